// AVX-512 (F, BW, DQ, VL): one register a vector.
#pragma once

#include <immintrin.h>

namespace swiftsure::SWIFTSURE_ISA {

struct f32x16 {
    __m512 v;
};
struct i32x16 {
    __m512i v;
};
struct mask16 {
    __mmask16 v;
};

inline f32x16 splat(float x) { return {_mm512_set1_ps(x)}; }
inline i32x16 splat_i32(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline f32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline i32x16 load_i32(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline i32x16 load_i16(const int16_t* p) { return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline i32x16 load_i8(const int8_t* p) { return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
inline void store(float* p, f32x16 a) { _mm512_storeu_ps(p, a.v); }
inline void store_i32(int32_t* p, i32x16 a) { _mm512_storeu_si512(p, a.v); }
inline void store_i16(int16_t* p, i32x16 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v)); }
inline void store_i8(int8_t* p, i32x16 a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v)); }

inline f32x16 add(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline f32x16 sub(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline f32x16 mul(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline f32x16 div(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline f32x16 sqrt(f32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
inline f32x16 min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline f32x16 max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline f32x16 to_f32(i32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline i32x16 round_to_i32(f32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }

inline i32x16 add(i32x16 a, i32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline i32x16 sub(i32x16 a, i32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline i32x16 mul(i32x16 a, i32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline i32x16 mul_high_u32(i32x16 a, i32x16 b) {
    const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a.v, b.v), 32);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), _mm512_srli_epi64(b.v, 32));
    return {_mm512_mask_blend_epi32(0xAAAA, even, odd)};
}
inline i32x16 bit_and(i32x16 a, i32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline i32x16 bit_or(i32x16 a, i32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
inline i32x16 bit_xor(i32x16 a, i32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
template <int n>
inline i32x16 shift_left(i32x16 a) {
    return {_mm512_slli_epi32(a.v, n)};
}
template <int n>
inline i32x16 shift_right(i32x16 a) {
    return {_mm512_srli_epi32(a.v, n)};
}
template <int n>
inline i32x16 shift_right_signed(i32x16 a) {
    return {_mm512_srai_epi32(a.v, n)};
}

inline f32x16 as_f32(i32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
inline i32x16 as_i32(f32x16 a) { return {_mm512_castps_si512(a.v)}; }

inline mask16 less(f32x16 a, f32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline mask16 less_equal(f32x16 a, f32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LE_OQ)}; }
inline mask16 equal(f32x16 a, f32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
inline mask16 less(i32x16 a, i32x16 b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }
inline f32x16 select(mask16 m, f32x16 a, f32x16 b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }
inline i32x16 select(mask16 m, i32x16 a, i32x16 b) { return {_mm512_mask_blend_epi32(m.v, b.v, a.v)}; }
inline bool any(mask16 m) { return m.v != 0; }
inline mask16 first_lanes(int n) { return {static_cast<__mmask16>((1u << n) - 1u)}; }

inline f32x16 load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline f32x16 load_bf16(const uint16_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16))};
}

}  // namespace swiftsure::SWIFTSURE_ISA
