// Blocks of row-grid weights (packed_matrix.h) as bytes w + 128, per instruction set.
//
//   unpack_block(block, out)   R4: 64 columns of a strip, to the 1024 bytes in which R8 has them
//
// A nibble is looked up, not calculated: the sixteen weights b + ((a * q + 8) >> 4) of a row and group fill one 16-byte lane. vpmulhrsw
// multiplies, rounds and shifts at once: (a * (q << 11) + 2^14) >> 15 = (a * q + 8) >> 4.
#pragma once

#include "activations.h"
#include "packed_matrix.h"
#include "simd/unroll.h"
#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

#if defined(__AVX2__)

// Constants of a lane; rows of a vector follow one another lane by lane.
struct LevelConstants {
    __m256i low_levels = _mm256_broadcastsi128_si256(_mm_setr_epi16(0, 1 << 11, 2 << 11, 3 << 11, 4 << 11, 5 << 11, 6 << 11, 7 << 11));
    __m256i high_levels =
        _mm256_broadcastsi128_si256(_mm_setr_epi16(8 << 11, 9 << 11, 10 << 11, 11 << 11, 12 << 11, 13 << 11, 14 << 11, 15 << 11));
    __m256i mask = _mm256_set1_epi8(15);
};

inline int32_t load_four(const uint8_t* p) {
    int32_t four;
    std::memcpy(&four, p, 4);
    return four;
}

#endif

#if defined(__AVX512F__)

struct LevelTables {
    __m512i low_levels, high_levels, mask, word_of_lane, byte_of_lane;
    LevelTables() {
        const LevelConstants half;
        low_levels = _mm512_broadcast_i64x4(half.low_levels);
        high_levels = _mm512_broadcast_i64x4(half.high_levels);
        mask = _mm512_set1_epi8(15);
        const __m512i lane = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0);
        byte_of_lane = _mm512_mullo_epi64(lane, _mm512_set1_epi64(0x0101010101010101));
        word_of_lane = _mm512_or_si512(byte_of_lane, _mm512_set1_epi16(static_cast<int16_t>(0x8000)));  // the upper bytes become 0
    }
    // The weights of rows t, 4 + t, 8 + t and 12 + t, one a lane. `factors`: a of 16 rows, then b.
    __m512i of(const uint8_t* factors, int t) const {
        const __m512i a = _mm512_shuffle_epi8(_mm512_set1_epi32(load_four(factors + 4 * t)), word_of_lane);
        const __m512i b = _mm512_shuffle_epi8(_mm512_set1_epi32(load_four(factors + 16 + 4 * t)), byte_of_lane);
        const __m512i steps = _mm512_packus_epi16(_mm512_mulhrs_epi16(a, low_levels), _mm512_mulhrs_epi16(a, high_levels));
        return _mm512_add_epi8(steps, b);
    }
};

// Four vectors of four 32-bit columns a lane: out[d] has column d of all of them.
inline void transpose_lanes(const __m512i* in, __m512i* out) {
    const __m512i ab = _mm512_unpacklo_epi32(in[0], in[1]), cd = _mm512_unpacklo_epi32(in[2], in[3]);
    const __m512i ab_high = _mm512_unpackhi_epi32(in[0], in[1]), cd_high = _mm512_unpackhi_epi32(in[2], in[3]);
    out[0] = _mm512_unpacklo_epi64(ab, cd);
    out[1] = _mm512_unpackhi_epi64(ab, cd);
    out[2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    out[3] = _mm512_unpackhi_epi64(ab_high, cd_high);
}

inline void unpack_block(const uint8_t* block, uint8_t* out) {
    const LevelTables tables;
    SWIFTSURE_UNROLL
    for (int half = 0; half < 2; ++half) {
        const uint8_t* nibbles = block + kNibbleBytes * half;
        const uint8_t* factors = block + 2 * kNibbleBytes + kGroupLevelBytes * half;
        __m512i head[4], tail[4], columns[8];
        SWIFTSURE_UNROLL
        for (int t = 0; t < 4; ++t) {
            const __m512i table = tables.of(factors, t), bytes = _mm512_loadu_si512(nibbles + 64 * t);
            head[t] = _mm512_shuffle_epi8(table, _mm512_and_si512(bytes, tables.mask));
            tail[t] = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), tables.mask));
        }
        transpose_lanes(head, columns);
        transpose_lanes(tail, columns + 4);
        SWIFTSURE_UNROLL
        for (int j = 0; j < 8; ++j) _mm512_storeu_si512(out + 512 * half + 64 * j, columns[j]);
    }
}

#elif defined(__AVX2__)

inline void transpose_lanes(const __m256i* in, uint8_t* out) {
    const __m256i ab = _mm256_unpacklo_epi32(in[0], in[1]), cd = _mm256_unpacklo_epi32(in[2], in[3]);
    const __m256i ab_high = _mm256_unpackhi_epi32(in[0], in[1]), cd_high = _mm256_unpackhi_epi32(in[2], in[3]);
    const auto store = [out](int d, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 * d), v); };
    store(0, _mm256_unpacklo_epi64(ab, cd));
    store(1, _mm256_unpackhi_epi64(ab, cd));
    store(2, _mm256_unpacklo_epi64(ab_high, cd_high));
    store(3, _mm256_unpackhi_epi64(ab_high, cd_high));
}

// 32 columns of rows 0 to 7 (upper = 0) or 8 to 15 (upper = 1).
inline void unpack_eight_rows(const uint8_t* nibbles, const uint8_t* factors, int upper, uint8_t* out) {
    const LevelConstants constants;
    const __m256i byte_of_lane =
        _mm256_setr_m128i(_mm_set1_epi8(static_cast<char>(2 * upper)), _mm_set1_epi8(static_cast<char>(2 * upper + 1)));
    const __m256i word_of_lane = _mm256_or_si256(byte_of_lane, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
    __m256i head[4], tail[4];
    SWIFTSURE_UNROLL
    for (int t = 0; t < 4; ++t) {
        const __m256i a = _mm256_shuffle_epi8(_mm256_set1_epi32(load_four(factors + 4 * t)), word_of_lane);
        const __m256i b = _mm256_shuffle_epi8(_mm256_set1_epi32(load_four(factors + 16 + 4 * t)), byte_of_lane);
        const __m256i steps =
            _mm256_packus_epi16(_mm256_mulhrs_epi16(a, constants.low_levels), _mm256_mulhrs_epi16(a, constants.high_levels));
        const __m256i table = _mm256_add_epi8(steps, b);
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(nibbles + 64 * t + 32 * upper));
        head[t] = _mm256_shuffle_epi8(table, _mm256_and_si256(bytes, constants.mask));
        tail[t] = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), constants.mask));
    }
    transpose_lanes(head, out + 32 * upper);
    transpose_lanes(tail, out + 256 + 32 * upper);
}

inline void unpack_block(const uint8_t* block, uint8_t* out) {
    for (int half = 0; half < 2; ++half)
        for (int upper = 0; upper < 2; ++upper)
            unpack_eight_rows(block + kNibbleBytes * half, block + 2 * kNibbleBytes + kGroupLevelBytes * half, upper, out + 512 * half);
}

#else

inline void unpack_block(const uint8_t* block, uint8_t* out) {
    for (int half = 0; half < 2; ++half)
        for (int row = 0; row < kStripRows; ++row) {
            const uint8_t* nibbles = block + kNibbleBytes * half + 64 * (row % 4) + 16 * (row / 4);
            const uint8_t* factors = block + 2 * kNibbleBytes + kGroupLevelBytes * half + 4 * (row % 4) + row / 4;
            uint8_t weights[16];
            for (int q = 0; q < 16; ++q) weights[q] = static_cast<uint8_t>(factors[16] + ((factors[0] * q + 8) >> 4));
            for (int c = 0; c < 16; ++c) {
                uint8_t* at = out + 512 * half + 64 * (c / 4) + 4 * row + c % 4;
                at[0] = weights[nibbles[c] & 15];
                at[256] = weights[nibbles[c] >> 4];
            }
        }
}

#endif

}  // namespace swiftsure::SWIFTSURE_ISA
