#include "packed_matrix.h"

#include <algorithm>
#include <cstring>

#include "activations.h"
#include "file_blocks.h"

namespace swiftsure {
namespace {

constexpr int64_t float_bytes(TensorType type) { return type == TensorType::F32 ? 4 : 2; }

int64_t product_or_zero(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? 0 : product;
}

// Bytes of one row of k columns where a block takes `block`; 0 when k does not fit.
int64_t row_bytes(TensorType type, int64_t k, int64_t block) {
    if (k <= 0) return 0;
    if (!is_quantized(type)) return product_or_zero(k, float_bytes(type));
    return k % block_columns(type) ? 0 : product_or_zero(k / block_columns(type), block);
}

// Calls pack(file block, strip, lane, index of the block) for every block of `rows` rows, blocks of the same columns one after another.
template <typename Pack>
void for_each_block(TensorType type, const uint8_t* source, int64_t rows, int64_t k, int64_t first_row, uint8_t* data, Pack pack) {
    const int64_t blocks = k / block_columns(type), strip_bytes = blocks * block_bytes(type), bytes = file_block_bytes(type);
    for (int64_t row = 0; row < rows;) {
        const int64_t lane_begin = (first_row + row) % kStripRows;
        const int64_t count = std::min(kStripRows - lane_begin, rows - row);
        uint8_t* strip = data + (first_row + row) / kStripRows * strip_bytes;
        for (int64_t b = 0; b < blocks; ++b)
            for (int64_t i = 0; i < count; ++i) pack(source + ((row + i) * blocks + b) * bytes, strip, lane_begin + i, b);
        row += count;
    }
}

void copy_scale(const uint8_t* from, int64_t lane, uint8_t* scales) { std::memcpy(scales + 2 * lane, from, 2); }

// Both layouts keep four neighbouring bytes of a row together: byte b of a file's 16 or 32 integer bytes lands in vector b / 4.
template <TensorType type>
void pack_plain_block(const uint8_t* in, uint8_t* strip, int64_t lane, int64_t index) {
    constexpr int64_t integers = group_format(type).minimum ? 4 : 2, vectors = (file_block_bytes(type) - integers) / 4;
    uint8_t* out = strip + index * group_bytes(type);
    for (int64_t j = 0; j < vectors; ++j) std::memcpy(out + 64 * j + 4 * lane, in + integers + 4 * j, 4);
    copy_scale(in, lane, out + 64 * vectors);
    if constexpr (group_format(type).minimum) copy_scale(in + 2, lane, out + 64 * vectors + kScaleBytes);
}

// Nibbles, then planes of the bits above them.
template <TensorType type>
void pack_integers(const uint8_t* block, int64_t group, uint8_t* out, int64_t lane) {
    uint8_t q[kGroup];
    read_integers(type, block, group, q);
    for (int64_t c = 0; c < 16; ++c) out[c / 4 * 64 + 4 * lane + c % 4] = static_cast<uint8_t>((q[c] & 15) | q[16 + c] << 4);
    constexpr int64_t extra = group_format(type).bits - 4;
    for (int64_t plane = 0; plane < extra; ++plane) {
        constexpr int64_t vectors = 4 / (extra == 0 ? 1 : extra);  // of nibbles, whose upper bits a plane holds
        for (int64_t i = 0; i < 4; ++i) {
            int64_t bits = 0;
            for (int64_t v = 0; v < vectors; ++v) {
                const int64_t c = 4 * (plane * vectors + v) + i;
                bits |= q[c] >> 4 << extra * v | q[16 + c] >> 4 << (4 + extra * v);
            }
            out[kNibbleBytes + plane * kPlaneBytes + 4 * lane + i] = static_cast<uint8_t>(bits);
        }
    }
}

template <TensorType type>
void pack_super_block(const uint8_t* in, uint8_t* strip, int64_t lane, int64_t index) {
    uint8_t* block = strip + index * block_bytes(type);
    for (int64_t g = 0; g < kSuperGroups; ++g) {
        uint8_t* out = block + g * group_bytes(type);
        pack_integers<type>(in, g, out, lane);
        const GroupFactors factors = read_factors(type, in, g);
        uint8_t* at = out + integer_bytes(type) + lane;
        at[0] = static_cast<uint8_t>(factors.scale[0]);
        at[kFactorBytes] = static_cast<uint8_t>(has_half_scales(type) ? factors.scale[1] : factors.minimum);
    }
    uint8_t* common = block + kSuperGroups * group_bytes(type);
    copy_scale(in + file_scale_offset(type), lane, common);
    if constexpr (group_format(type).minimum) {
        copy_scale(in + 2, lane, common + kScaleBytes);
        common[kScaleBytes + 2 * lane + 1] ^= 0x80;  // dmin is subtracted
    }
}

template <TensorType type>
void pack_five_bit_block(const uint8_t* in, uint8_t* strip, int64_t lane, int64_t index) {
    uint8_t* out = strip + index * group_bytes(type);
    pack_integers<type>(in, 0, out, lane);
    copy_scale(in, lane, out + integer_bytes(type));
    if constexpr (group_format(type).minimum) copy_scale(in + 2, lane, out + integer_bytes(type) + kScaleBytes);
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
    return product_or_zero(rows, row_bytes(type, k, file_block_bytes(type)));
}

int64_t packed_bytes(TensorType type, int64_t n, int64_t k) {
    if (n <= 0) return 0;
    const int64_t strips = n / kStripRows + (n % kStripRows != 0);
    if (is_row_grid(type))
        return k < 1 || k > kMaxGridColumns ? 0 : product_or_zero(strips, grid_blocks(k) * grid_block_bytes(type) + kGridScaleBytes);
    const int64_t per_strip =
        is_quantized(type) ? row_bytes(type, k, block_bytes(type)) : product_or_zero(kStripRows, row_bytes(type, k, 0));
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
            return for_each_block(type, source, rows, k, first_row, data, pack_plain_block<TensorType::Q8_0>);
        case TensorType::Q4_0:
            return for_each_block(type, source, rows, k, first_row, data, pack_plain_block<TensorType::Q4_0>);
        case TensorType::Q4_1:
            return for_each_block(type, source, rows, k, first_row, data, pack_plain_block<TensorType::Q4_1>);
        case TensorType::Q5_0:
            return for_each_block(type, source, rows, k, first_row, data, pack_five_bit_block<TensorType::Q5_0>);
        case TensorType::Q5_1:
            return for_each_block(type, source, rows, k, first_row, data, pack_five_bit_block<TensorType::Q5_1>);
        case TensorType::Q4_K:
            return for_each_block(type, source, rows, k, first_row, data, pack_super_block<TensorType::Q4_K>);
        case TensorType::Q5_K:
            return for_each_block(type, source, rows, k, first_row, data, pack_super_block<TensorType::Q5_K>);
        case TensorType::Q6_K:
            return for_each_block(type, source, rows, k, first_row, data, pack_super_block<TensorType::Q6_K>);
        default:
            return;  // row-grid types: pack_grid_rows
    }
}

}  // namespace swiftsure
