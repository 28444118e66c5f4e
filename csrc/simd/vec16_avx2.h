// AVX2 + FMA + F16C: two registers a vector.
#pragma once

#include <immintrin.h>

namespace swiftsure::SWIFTSURE_ISA {

struct f32x16 {
    __m256 lo, hi;
};
struct i32x16 {
    __m256i lo, hi;
};
struct mask16 {
    __m256i lo, hi;
};  // all ones or all zeros per 32-bit lane

inline f32x16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline i32x16 splat_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline i32x16 load_i32(const int32_t* p) {
    const __m256i* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline i32x16 load_i16(const int16_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepi16_epi32(_mm_loadu_si128(q)), _mm256_cvtepi16_epi32(_mm_loadu_si128(q + 1))};
}
inline i32x16 load_i8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline void store(float* p, f32x16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_i32(int32_t* p, i32x16 a) {
    __m256i* q = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(q, a.lo);
    _mm256_storeu_si256(q + 1, a.hi);
}
inline void store_i16(int16_t* p, i32x16 a) {
    alignas(32) int32_t lane[16];
    store_i32(lane, a);
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int16_t>(lane[i]);
}
inline void store_i8(int8_t* p, i32x16 a) {
    alignas(32) int32_t lane[16];
    store_i32(lane, a);
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(lane[i]);
}

#define SWIFTSURE_PAIR(type, name, intrinsic) \
    inline type name(type a, type b) { return {intrinsic(a.lo, b.lo), intrinsic(a.hi, b.hi)}; }
SWIFTSURE_PAIR(f32x16, add, _mm256_add_ps)
SWIFTSURE_PAIR(f32x16, sub, _mm256_sub_ps)
SWIFTSURE_PAIR(f32x16, mul, _mm256_mul_ps)
SWIFTSURE_PAIR(f32x16, div, _mm256_div_ps)
SWIFTSURE_PAIR(f32x16, min, _mm256_min_ps)
SWIFTSURE_PAIR(f32x16, max, _mm256_max_ps)
SWIFTSURE_PAIR(i32x16, add, _mm256_add_epi32)
SWIFTSURE_PAIR(i32x16, sub, _mm256_sub_epi32)
SWIFTSURE_PAIR(i32x16, mul, _mm256_mullo_epi32)
SWIFTSURE_PAIR(i32x16, bit_and, _mm256_and_si256)
SWIFTSURE_PAIR(i32x16, bit_or, _mm256_or_si256)
SWIFTSURE_PAIR(i32x16, bit_xor, _mm256_xor_si256)
#undef SWIFTSURE_PAIR

inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
inline f32x16 sqrt(f32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline f32x16 to_f32(i32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
inline i32x16 round_to_i32(f32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }

inline __m256i mul_high_u32_half(__m256i a, __m256i b) {
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    return _mm256_blend_epi32(even, odd, 0xAA);
}
inline i32x16 mul_high_u32(i32x16 a, i32x16 b) { return {mul_high_u32_half(a.lo, b.lo), mul_high_u32_half(a.hi, b.hi)}; }
template <int n>
inline i32x16 shift_left(i32x16 a) {
    return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
}
template <int n>
inline i32x16 shift_right(i32x16 a) {
    return {_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n)};
}
template <int n>
inline i32x16 shift_right_signed(i32x16 a) {
    return {_mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n)};
}

inline f32x16 as_f32(i32x16 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline i32x16 as_i32(f32x16 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }

template <int predicate>
inline mask16 compare(f32x16 a, f32x16 b) {
    return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, predicate)), _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, predicate))};
}
inline mask16 less(f32x16 a, f32x16 b) { return compare<_CMP_LT_OQ>(a, b); }
inline mask16 less_equal(f32x16 a, f32x16 b) { return compare<_CMP_LE_OQ>(a, b); }
inline mask16 equal(f32x16 a, f32x16 b) { return compare<_CMP_EQ_OQ>(a, b); }
inline mask16 less(i32x16 a, i32x16 b) { return {_mm256_cmpgt_epi32(b.lo, a.lo), _mm256_cmpgt_epi32(b.hi, a.hi)}; }
inline f32x16 select(mask16 m, f32x16 a, f32x16 b) {
    return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(m.lo)), _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(m.hi))};
}
inline i32x16 select(mask16 m, i32x16 a, i32x16 b) { return {_mm256_blendv_epi8(b.lo, a.lo, m.lo), _mm256_blendv_epi8(b.hi, a.hi, m.hi)}; }
inline bool any(mask16 m) { return (_mm256_movemask_epi8(m.lo) | _mm256_movemask_epi8(m.hi)) != 0; }
inline mask16 first_lanes(int n) {
    const i32x16 lane = {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
    return less(lane, splat_i32(n));
}

inline f32x16 load_f16(const uint16_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline f32x16 load_bf16(const uint16_t* p) {
    const __m128i* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)), 16))};
}

}  // namespace swiftsure::SWIFTSURE_ISA
