// AVX-512 VNNI: vpdpbusd multiplies unsigned bytes of weights with signed bytes of activations, so an activation is two digits,
// q = 256 * high + low with low in [-128, 127], and the payload is 32 high digits, then 32 low ones.
#pragma once

#include "simd/unroll.h"

namespace swiftsure::SWIFTSURE_ISA {

inline void store_payload(uint8_t* payload, i32x16 first, i32x16 last) {
    int8_t* digits = reinterpret_cast<int8_t*>(payload);
    const i32x16 half = splat_i32(128);
    store_i8(digits, shift_right_signed<8>(add(first, half)));
    store_i8(digits + 16, shift_right_signed<8>(add(last, half)));
    store_i8(digits + 32, first);  // the low 8 bits of q are the low digit
    store_i8(digits + 48, last);
}

inline void load_payload(const uint8_t* payload, int16_t* q) {
    const int8_t* digits = reinterpret_cast<const int8_t*>(payload);
    for (int i = 0; i < 32; ++i) q[i] = static_cast<int16_t>(256 * digits[i] + digits[32 + i]);
}

// Four neighbouring digits, in every lane.
inline __m512i broadcast_quad(const uint8_t* p) {
    int32_t quad;
    std::memcpy(&quad, p, 4);
    return _mm512_set1_epi32(quad);
}

// The integers of a group vector by vector: four neighbouring columns of 16 rows, from columns 0..15 and from columns 16..31.
template <int bits>
struct IntegerVectors {
    const uint8_t* w;
    __m512i head_plane{}, tail_plane{};  // the bits above the nibbles, shifted to their places for the vector that is next

    // Vectors are taken in order, j = 0, 1, 2, 3.
    SWIFTSURE_INLINE void next(int j, __m512i& head, __m512i& tail) {
        constexpr int extra = bits - 4, vectors = extra == 0 ? 4 : 4 / extra;  // vectors a plane serves
        const __m512i mask = _mm512_set1_epi8(15), bytes = _mm512_loadu_si512(w + 64 * j);
        head = _mm512_and_si512(bytes, mask);
        tail = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
        if constexpr (extra > 0) {
            constexpr int a_or_b_and_c = 0xF8;
            const __m512i above = _mm512_set1_epi8((1 << bits) - 16);
            if (j % vectors == 0) {
                tail_plane = _mm512_loadu_si512(w + kNibbleBytes + kPlaneBytes * (j / vectors));
                head_plane = _mm512_slli_epi16(tail_plane, 4);
            }
            head = _mm512_ternarylogic_epi32(head, head_plane, above, a_or_b_and_c);
            tail = _mm512_ternarylogic_epi32(tail, tail_plane, above, a_or_b_and_c);
            head_plane = _mm512_srli_epi16(head_plane, extra);
            tail_plane = _mm512_srli_epi16(tail_plane, extra);
        }
    }
};

template <int bits, bool apart, int rows>
SWIFTSURE_INLINE void dot_integers(const uint8_t* w, const uint8_t* payload, int64_t stride, const i32x16* start, i32x16* sum) {
    constexpr int sums = apart ? 2 * rows : rows, last = sums - rows;  // the sums of columns 16..31 begin at `last`
    __m512i high[sums], low[sums];
    SWIFTSURE_UNROLL
    for (int r = 0; r < sums; ++r) {
        high[r] = _mm512_setzero_si512();
        low[r] = start[r].v;
    }
    IntegerVectors<bits> vectors{w};
    SWIFTSURE_UNROLL
    for (int j = 0; j < 4; ++j) {
        __m512i head, tail;
        vectors.next(j, head, tail);
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const uint8_t* digits = payload + r * stride + 4 * j;
            high[r] = _mm512_dpbusd_epi32(high[r], head, broadcast_quad(digits));
            low[r] = _mm512_dpbusd_epi32(low[r], head, broadcast_quad(digits + 32));
        }
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const uint8_t* digits = payload + r * stride + 4 * j;
            high[last + r] = _mm512_dpbusd_epi32(high[last + r], tail, broadcast_quad(digits + 16));
            low[last + r] = _mm512_dpbusd_epi32(low[last + r], tail, broadcast_quad(digits + 48));
        }
    }
    SWIFTSURE_UNROLL
    for (int r = 0; r < sums; ++r) sum[r].v = _mm512_add_epi32(_mm512_slli_epi32(high[r], 8), low[r]);
}

// Flipping the sign bit adds 128 to a weight and makes it unsigned; starting from -128 * sum(q) takes it off again.
template <int rows>
SWIFTSURE_INLINE void dot_int8(const uint8_t* w, const uint8_t* payload, int64_t stride, const int32_t* q_sum, int64_t q_sum_stride,
                               i32x16* sum) {
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512i high[rows], low[rows];
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) {
        high[r] = _mm512_setzero_si512();
        low[r] = _mm512_set1_epi32(-128 * q_sum[r * q_sum_stride]);
    }
    SWIFTSURE_UNROLL
    for (int j = 0; j < 8; ++j) {
        const __m512i bytes = _mm512_xor_si512(_mm512_loadu_si512(w + 64 * j), flip);
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const uint8_t* digits = payload + r * stride + 4 * j;
            high[r] = _mm512_dpbusd_epi32(high[r], bytes, broadcast_quad(digits));
            low[r] = _mm512_dpbusd_epi32(low[r], bytes, broadcast_quad(digits + 32));
        }
    }
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) sum[r].v = _mm512_add_epi32(_mm512_slli_epi32(high[r], 8), low[r]);
}

}  // namespace swiftsure::SWIFTSURE_ISA
