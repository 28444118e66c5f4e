// Weights in the order the kernels stream them: strips of 16 output rows.
#pragma once

#include <cstdint>

namespace swiftsure {

enum class TensorType : int32_t { F32, F16, BF16, Q8_0, Q4_0, Q4_1 };

constexpr int64_t kStripRows = 16;

struct PackedMatrix {
    TensorType type;
    int64_t n;            // output rows
    int64_t k;            // input columns
    int64_t strips;       // ceil(n / 16); rows past n are zero
    int64_t strip_bytes;
    const uint8_t* data;  // (strips, strip_bytes), 64-byte aligned
};

// Bytes that packing `type` of shape (n, k) takes; 0 when the shape does not fit the type (k % 32 for block types).
int64_t packed_bytes(TensorType type, int64_t n, int64_t k);
// Packs `source` (the file's own layout, row-major blocks) into `data`. Rows [first_row, first_row + rows) of the packed matrix, so that
// q, k and v may share one matrix.
void pack_rows(TensorType type, const uint8_t* source, int64_t rows, int64_t k, int64_t first_row, uint8_t* data);

}  // namespace swiftsure
