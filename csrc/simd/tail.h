// Widths that are not a multiple of sixteen: the last lanes come from and go to a small copy, so that nothing outside a row is touched.
#pragma once

#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

// The first `count` (0..16) floats of p; exact zeros in the other lanes.
inline f32x16 load_first(const float* p, int64_t count) {
    if (count >= 16) return load(p);
    alignas(64) float lane[16] = {};
    for (int64_t i = 0; i < count; ++i) lane[i] = p[i];
    return load(lane);
}

inline void store_first(float* p, f32x16 a, int64_t count) {
    if (count >= 16) return store(p, a);
    alignas(64) float lane[16];
    store(lane, a);
    for (int64_t i = 0; i < count; ++i) p[i] = lane[i];
}

}  // namespace swiftsure::SWIFTSURE_ISA
