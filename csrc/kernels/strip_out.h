// The last step of both matmuls: a finished vector of one strip to one output row.
#pragma once

#include "packed_matrix.h"
#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

// Which NaN an operation passes on depends on the order a compiler gives its operands; there is one NaN in results.
inline f32x16 canonical_nan(f32x16 v) { return select(equal(v, v), v, splat(__builtin_nanf(""))); }

// Rows of the matrix in strip `strip`: 16, fewer in the last one.
inline int64_t rows_in_strip(const PackedMatrix& w, int64_t strip) {
    const int64_t left = w.n - strip * kStripRows;
    return left < kStripRows ? left : kStripRows;
}

// Writes `count` lanes, adding what is there when `accumulate`.
inline void store_strip(float* out, f32x16 v, int64_t count, bool accumulate) {
    if (count == kStripRows) {
        store(out, canonical_nan(accumulate ? add(load(out), v) : v));
        return;
    }
    alignas(64) float lane[16] = {};
    if (accumulate) std::memcpy(lane, out, static_cast<size_t>(count) * sizeof(float));
    store(lane, canonical_nan(accumulate ? add(load(lane), v) : v));
    std::memcpy(out, lane, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace swiftsure::SWIFTSURE_ISA
