#include "file_blocks.h"

#include <cstring>

namespace swiftsure {
namespace {

constexpr int64_t kFactors = 4, kFactorsEnd = 16;  // of Q4_K and Q5_K: 12 bytes after d and dmin
constexpr int64_t kHighBits = 128, kQ6Factors = 192;

// Low nibbles are columns 0..15, high ones 16..31.
void read_nibbles(const uint8_t* bytes, uint8_t* q) {
    for (int64_t c = 0; c < 16; ++c) {
        q[c] = bytes[c] & 15;
        q[16 + c] = bytes[c] >> 4;
    }
}

// 64 columns share 32 bytes: an even group has the low nibbles, an odd one the high ones.
void read_paired_nibbles(const uint8_t* bytes, bool odd, uint8_t* q) {
    for (int64_t c = 0; c < 32; ++c) q[c] = odd ? bytes[c] >> 4 : bytes[c] & 15;
}

void add_bits(const uint8_t* bits, int64_t shift, uint8_t mask, uint8_t* q) {
    for (int64_t c = 0; c < 32; ++c) q[c] = static_cast<uint8_t>(q[c] | (bits[c] >> shift & mask) << 4);
}

}  // namespace

void read_integers(TensorType type, const uint8_t* block, int64_t group, uint8_t* q) {
    switch (type) {
        case TensorType::Q8_0:
            std::memcpy(q, block + 2, 32);
            return;
        case TensorType::Q4_0:
        case TensorType::Q4_1:
            return read_nibbles(block + (type == TensorType::Q4_1 ? 4 : 2), q);
        case TensorType::Q5_0:
        case TensorType::Q5_1: {
            const uint8_t* fifth = block + (type == TensorType::Q5_1 ? 4 : 2);
            read_nibbles(fifth + 4, q);
            for (int64_t c = 0; c < 32; ++c) q[c] = static_cast<uint8_t>(q[c] | (fifth[c / 8] >> c % 8 & 1) << 4);
            return;
        }
        case TensorType::Q4_K:
            return read_paired_nibbles(block + kFactorsEnd + group / 2 * 32, group % 2 != 0, q);
        case TensorType::Q5_K:
            read_paired_nibbles(block + kFactorsEnd + 32 + group / 2 * 32, group % 2 != 0, q);
            return add_bits(block + kFactorsEnd, group, 1, q);
        case TensorType::Q6_K: {  // 128 columns share 64 bytes of nibbles and 32 of the bits above
            const int64_t half = group / 4, quarter = group % 4;
            read_paired_nibbles(block + 64 * half + 32 * (quarter % 2), quarter >= 2, q);
            return add_bits(block + kHighBits + 32 * half, 2 * quarter, 3, q);
        }
        default:
            return;
    }
}

GroupFactors read_factors(TensorType type, const uint8_t* block, int64_t group) {
    if (type == TensorType::Q6_K) {
        const int8_t* factors = reinterpret_cast<const int8_t*>(block + kQ6Factors + 2 * group);
        return {{factors[0], factors[1]}, 0};
    }
    // Six bits each: those of groups 0..3 in the low bits of bytes 0..7, those of groups 4..7 in nibbles of bytes 8..11 with their two
    // upper bits in the upper bits of bytes 0..7.
    const uint8_t* s = block + kFactors;
    if (group < 4)
        return {{static_cast<int8_t>(s[group] & 63), static_cast<int8_t>(s[group] & 63)}, static_cast<int8_t>(s[group + 4] & 63)};
    const int8_t scale = static_cast<int8_t>((s[group + 4] & 15) | s[group - 4] >> 6 << 4);
    return {{scale, scale}, static_cast<int8_t>(s[group + 4] >> 4 | s[group] >> 6 << 4)};
}

}  // namespace swiftsure
