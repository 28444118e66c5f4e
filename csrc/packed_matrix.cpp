#include "packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "activations.h"

namespace swiftsure {
namespace {

// A block of 32 columns of one row in a model file: float16 scale, for Q4_1 a float16 minimum, then the integers.
struct FileBlock {
    int64_t integers;  // offset of the integers
    int64_t bytes;
};

constexpr FileBlock file_block(TensorType type) {
    switch (type) {
        case TensorType::Q8_0:
            return {2, 34};
        case TensorType::Q4_0:
            return {2, 18};
        default:
            return {4, 20};  // Q4_1
    }
}

constexpr int64_t float_bytes(TensorType type) { return type == TensorType::F32 ? 4 : 2; }

int64_t product_or_zero(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? 0 : product;
}

// Bytes of one row of k columns where 32 columns take `group` bytes; 0 when k does not fit.
int64_t row_bytes(TensorType type, int64_t k, int64_t group) {
    if (k <= 0) return 0;
    if (!is_quantized(type)) return product_or_zero(k, float_bytes(type));
    return k % kGroup ? 0 : product_or_zero(k / kGroup, group);
}

// Both layouts keep four neighbouring bytes of a row together: byte b of a file's 16 or 32 integer bytes lands in vector b / 4.
template <TensorType type>
void pack_block_rows(const uint8_t* source, int64_t rows, int64_t k, int64_t first_row, uint8_t* data) {
    constexpr FileBlock block = file_block(type);
    constexpr int64_t vectors = (block.bytes - block.integers) / 4;
    const int64_t groups = k / kGroup, strip_bytes = groups * group_bytes(type);
    for (int64_t row = 0; row < rows;) {
        const int64_t lane_begin = (first_row + row) % kStripRows;
        const int64_t count = std::min(kStripRows - lane_begin, rows - row);
        uint8_t* out = data + (first_row + row) / kStripRows * strip_bytes;
        for (int64_t g = 0; g < groups; ++g, out += group_bytes(type)) {
            const uint8_t* in = source + (row * groups + g) * block.bytes;
            for (int64_t lane = lane_begin; lane < lane_begin + count; ++lane, in += groups * block.bytes) {
                for (int64_t j = 0; j < vectors; ++j) std::memcpy(out + 64 * j + 4 * lane, in + block.integers + 4 * j, 4);
                std::memcpy(out + 64 * vectors + 2 * lane, in, 2);
                if constexpr (type == TensorType::Q4_1) std::memcpy(out + 64 * vectors + kScaleBytes + 2 * lane, in + 2, 2);
            }
        }
        row += count;
    }
}

template <typename Float>
void pack_float_rows(const uint8_t* source, int64_t rows, int64_t k, int64_t first_row, uint8_t* data) {
    constexpr int64_t size = sizeof(Float);
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t n = first_row + row;
        const uint8_t* in = source + row * k * size;
        uint8_t* out = data + (n / kStripRows * k * kStripRows + n % kStripRows) * size;
        for (int64_t c = 0; c < k; ++c) std::memcpy(out + c * kStripRows * size, in + c * size, size);
    }
}

}  // namespace

int64_t source_bytes(TensorType type, int64_t rows, int64_t k) {
    if (rows <= 0 || is_row_grid(type)) return 0;
    return product_or_zero(rows, row_bytes(type, k, file_block(type).bytes));
}

int64_t packed_bytes(TensorType type, int64_t n, int64_t k) {
    if (n <= 0) return 0;
    const int64_t strips = n / kStripRows + (n % kStripRows != 0);
    if (is_row_grid(type))
        return k < 1 || k > kMaxGridColumns ? 0 : product_or_zero(strips, grid_blocks(k) * grid_block_bytes(type) + kGridScaleBytes);
    const int64_t per_strip =
        is_quantized(type) ? row_bytes(type, k, group_bytes(type)) : product_or_zero(kStripRows, row_bytes(type, k, 0));
    return product_or_zero(strips, per_strip);
}

void pack_rows(TensorType type, const uint8_t* source, int64_t rows, int64_t k, int64_t first_row, uint8_t* data) {
    switch (type) {
        case TensorType::F32:
            return pack_float_rows<uint32_t>(source, rows, k, first_row, data);
        case TensorType::F16:
        case TensorType::BF16:
            return pack_float_rows<uint16_t>(source, rows, k, first_row, data);
        case TensorType::Q8_0:
            return pack_block_rows<TensorType::Q8_0>(source, rows, k, first_row, data);
        case TensorType::Q4_0:
            return pack_block_rows<TensorType::Q4_0>(source, rows, k, first_row, data);
        case TensorType::Q4_1:
            return pack_block_rows<TensorType::Q4_1>(source, rows, k, first_row, data);
        default:
            return;  // row-grid types: pack_grid_rows
    }
}

}  // namespace swiftsure
