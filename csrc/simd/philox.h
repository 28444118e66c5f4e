// Philox4x32-10: sixteen counters at a time.
//
// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. A bijection of a 128-bit
// counter under a 64-bit key: any value can be drawn at any time, in any order, on any number of threads.
#pragma once

#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

struct PhiloxBlock {
    i32x16 word[4];
};

inline i32x16 splat_u32(uint32_t x) { return splat_i32(static_cast<int32_t>(x)); }

#if defined(__AVX512F__) && defined(__AVX512BW__)

// Even and odd lanes apart, as 64-bit products: the high half of a lane may hold anything, since a multiplication reads the low one. The
// high halves come down by a shuffle because multiplications and shifts share a port.
struct PhiloxHalf {
    __m512i word[4];
};

inline void philox_round(PhiloxHalf& c, __m512i key0, __m512i key1) {
    const __m512i product0 = _mm512_mul_epu32(c.word[0], _mm512_set1_epi64(0xD2511F53));
    const __m512i product1 = _mm512_mul_epu32(c.word[2], _mm512_set1_epi64(0xCD9E8D57));
    constexpr int kXor3 = 0x96;
    c.word[0] = _mm512_ternarylogic_epi32(_mm512_shuffle_epi32(product1, _MM_PERM_DDBB), c.word[1], key0, kXor3);
    c.word[1] = product1;
    c.word[2] = _mm512_ternarylogic_epi32(_mm512_shuffle_epi32(product0, _MM_PERM_DDBB), c.word[3], key1, kXor3);
    c.word[3] = product0;
}

inline PhiloxBlock philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
    PhiloxHalf even, odd;
    for (int w = 0; w < 4; ++w) {
        even.word[w] = counter.word[w].v;
        odd.word[w] = _mm512_srli_epi64(counter.word[w].v, 32);
    }
    for (int round = 0; round < 10; ++round) {
        const __m512i k0 = splat_u32(key0).v, k1 = splat_u32(key1).v;
        philox_round(even, k0, k1);
        philox_round(odd, k0, k1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    PhiloxBlock out;
    for (int w = 0; w < 4; ++w) out.word[w].v = _mm512_mask_blend_epi32(0xAAAA, even.word[w], _mm512_slli_epi64(odd.word[w], 32));
    return out;
}

#else

inline PhiloxBlock philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
    const i32x16 m0 = splat_u32(0xD2511F53u), m1 = splat_u32(0xCD9E8D57u);
    i32x16 c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
    for (int round = 0; round < 10; ++round) {
        const i32x16 high0 = mul_high_u32(c0, m0), low0 = mul(c0, m0);
        const i32x16 high1 = mul_high_u32(c2, m1), low1 = mul(c2, m1);
        c0 = bit_xor(bit_xor(high1, c1), splat_u32(key0));
        c1 = low1;
        c2 = bit_xor(bit_xor(high0, c3), splat_u32(key1));
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

#endif

}  // namespace swiftsure::SWIFTSURE_ISA
