// AVX2 and AVX-512 without VNNI: weights widened to 16 bits, vpmaddwd. (vpmaddubsw would saturate.)
//
// A 32-bit lane of weights holds the bytes of four neighbouring columns; masks and shifts split it into 16-bit pairs of its even and of its
// odd bytes, so the payload keeps each four activations as the pairs (0, 2) and (1, 3).
#pragma once

#include "simd/unroll.h"

namespace swiftsure::SWIFTSURE_ISA {

#if defined(__AVX512F__)
struct words {
    __m512i v;
};  // 32 of 16 bits
inline words load_words(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline words mask_words(words w, int16_t mask) { return {_mm512_and_si512(w.v, _mm512_set1_epi16(mask))}; }
inline words or_words(words a, words b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int n>
inline words shift_right_words(words w) {
    return {_mm512_srli_epi16(w.v, n)};
}
template <int n>
inline words shift_left_words(words w) {
    return {_mm512_slli_epi16(w.v, n)};
}
template <int n>
inline words shift_right_signed_words(words w) {
    return {_mm512_srai_epi16(w.v, n)};
}
inline i32x16 add_products(i32x16 sum, words w, int32_t pair) {
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(w.v, _mm512_set1_epi32(pair)))};
}
inline __m256i narrow(i32x16 a) { return _mm512_cvtepi32_epi16(a.v); }
#else
struct words {
    __m256i lo, hi;
};
inline words load_words(const uint8_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline words mask_words(words w, int16_t mask) {
    const __m256i m = _mm256_set1_epi16(mask);
    return {_mm256_and_si256(w.lo, m), _mm256_and_si256(w.hi, m)};
}
inline words or_words(words a, words b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int n>
inline words shift_right_words(words w) {
    return {_mm256_srli_epi16(w.lo, n), _mm256_srli_epi16(w.hi, n)};
}
template <int n>
inline words shift_left_words(words w) {
    return {_mm256_slli_epi16(w.lo, n), _mm256_slli_epi16(w.hi, n)};
}
template <int n>
inline words shift_right_signed_words(words w) {
    return {_mm256_srai_epi16(w.lo, n), _mm256_srai_epi16(w.hi, n)};
}
inline i32x16 add_products(i32x16 sum, words w, int32_t pair) {
    const __m256i q = _mm256_set1_epi32(pair);
    return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(w.lo, q)), _mm256_add_epi32(sum.hi, _mm256_madd_epi16(w.hi, q))};
}
inline __m256i narrow(i32x16 a) { return _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8); }
#endif

inline void store_payload(uint8_t* payload, i32x16 first, i32x16 last) {
    constexpr int swap_middle = 0xD8;  // (0, 2, 1, 3) of each four
    __m256i* out = reinterpret_cast<__m256i*>(payload);
    _mm256_storeu_si256(out, _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(narrow(first), swap_middle), swap_middle));
    _mm256_storeu_si256(out + 1, _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(narrow(last), swap_middle), swap_middle));
}

inline void load_payload(const uint8_t* payload, int16_t* q) {
    constexpr int place[4] = {0, 2, 1, 3};
    for (int i = 0; i < 32; ++i) std::memcpy(q + i, payload + 2 * (i - i % 4 + place[i % 4]), 2);
}

inline int32_t load_pair(const uint8_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, 4);
    return pair;
}

// The integers of a group vector by vector: bytes of four neighbouring columns of 16 rows, from columns 0..15 and from columns 16..31.
template <int bits>
struct IntegerVectors {
    const uint8_t* w;
    words head_plane{}, tail_plane{};  // the bits above the nibbles, shifted to their places for the vector that is next

    // Vectors are taken in order, j = 0, 1, 2, 3.
    inline void next(int j, words& head, words& tail) {
        constexpr int extra = bits - 4, vectors = extra == 0 ? 4 : 4 / extra;  // vectors a plane serves
        constexpr int16_t nibbles = 0x0F0F, above = ((1 << bits) - 16) * 0x0101;
        const words bytes = load_words(w + 64 * j);
        head = mask_words(bytes, nibbles);
        tail = mask_words(shift_right_words<4>(bytes), nibbles);
        if constexpr (extra > 0) {
            if (j % vectors == 0) {
                tail_plane = load_words(w + kNibbleBytes + kPlaneBytes * (j / vectors));
                head_plane = shift_left_words<4>(tail_plane);
            }
            head = or_words(head, mask_words(head_plane, above));
            tail = or_words(tail, mask_words(tail_plane, above));
            head_plane = shift_right_words<extra>(head_plane);
            tail_plane = shift_right_words<extra>(tail_plane);
        }
    }
};

template <int bits, bool apart, int rows>
inline void dot_integers(const uint8_t* w, const uint8_t* payload, int64_t stride, const i32x16* start, i32x16* sum) {
    constexpr int sums = apart ? 2 * rows : rows, last = sums - rows;  // the sums of columns 16..31 begin at `last`
    SWIFTSURE_UNROLL
    for (int r = 0; r < sums; ++r) sum[r] = start[r];
    IntegerVectors<bits> vectors{w};
    SWIFTSURE_UNROLL
    for (int j = 0; j < 4; ++j) {
        words head, tail;
        vectors.next(j, head, tail);
        const words head_even = mask_words(head, 255), tail_even = mask_words(tail, 255);
        const words head_odd = shift_right_words<8>(head), tail_odd = shift_right_words<8>(tail);
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const uint8_t* q = payload + r * stride + 8 * j;
            sum[r] = add_products(sum[r], head_even, load_pair(q));
            sum[r] = add_products(sum[r], head_odd, load_pair(q + 4));
            sum[last + r] = add_products(sum[last + r], tail_even, load_pair(q + 32));
            sum[last + r] = add_products(sum[last + r], tail_odd, load_pair(q + 36));
        }
    }
}

template <int rows>
inline void dot_int8(const uint8_t* w, const uint8_t* payload, int64_t stride, const int32_t*, int64_t, i32x16* sum) {
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) sum[r] = splat_i32(0);
    SWIFTSURE_UNROLL
    for (int j = 0; j < 8; ++j) {
        const words bytes = load_words(w + 64 * j);
        const words even = shift_right_signed_words<8>(shift_left_words<8>(bytes)), odd = shift_right_signed_words<8>(bytes);
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const uint8_t* q = payload + r * stride + 8 * j;
            sum[r] = add_products(sum[r], even, load_pair(q));
            sum[r] = add_products(sum[r], odd, load_pair(q + 4));
        }
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
