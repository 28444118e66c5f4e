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

// Blocks between their rounds.
class PhiloxRounds {
  public:
    explicit PhiloxRounds(PhiloxBlock counter) {
        for (int w = 0; w < 4; ++w) {
            even_.word[w] = counter.word[w].v;
            odd_.word[w] = _mm512_srli_epi64(counter.word[w].v, 32);
        }
    }
    void round(uint32_t key0, uint32_t key1) {
        const __m512i k0 = splat_u32(key0).v, k1 = splat_u32(key1).v;
        philox_round(even_, k0, k1);
        philox_round(odd_, k0, k1);
    }
    // Adds bits to the two words that the next round multiplies.
    void mix(i32x16 into0, i32x16 into2) {
        even_.word[0] = _mm512_xor_si512(even_.word[0], into0.v);
        even_.word[2] = _mm512_xor_si512(even_.word[2], into2.v);
        odd_.word[0] = _mm512_xor_si512(odd_.word[0], _mm512_srli_epi64(into0.v, 32));
        odd_.word[2] = _mm512_xor_si512(odd_.word[2], _mm512_srli_epi64(into2.v, 32));
    }
    PhiloxBlock block() const {
        PhiloxBlock out;
        for (int w = 0; w < 4; ++w) out.word[w].v = _mm512_mask_blend_epi32(0xAAAA, even_.word[w], _mm512_slli_epi64(odd_.word[w], 32));
        return out;
    }

  private:
    PhiloxHalf even_, odd_;
};

#else

// Blocks between their rounds.
class PhiloxRounds {
  public:
    explicit PhiloxRounds(PhiloxBlock counter) : c_(counter) {}
    void round(uint32_t key0, uint32_t key1) {
        const i32x16 m0 = splat_u32(0xD2511F53u), m1 = splat_u32(0xCD9E8D57u);
        const i32x16 high0 = mul_high_u32(c_.word[0], m0), low0 = mul(c_.word[0], m0);
        const i32x16 high1 = mul_high_u32(c_.word[2], m1), low1 = mul(c_.word[2], m1);
        c_.word[0] = bit_xor(bit_xor(high1, c_.word[1]), splat_u32(key0));
        c_.word[1] = low1;
        c_.word[2] = bit_xor(bit_xor(high0, c_.word[3]), splat_u32(key1));
        c_.word[3] = low0;
    }
    // Adds bits to the two words that the next round multiplies.
    void mix(i32x16 into0, i32x16 into2) {
        c_.word[0] = bit_xor(c_.word[0], into0);
        c_.word[2] = bit_xor(c_.word[2], into2);
    }
    PhiloxBlock block() const { return c_; }

  private:
    PhiloxBlock c_;
};

#endif

// What the key words grow by from round to round.
constexpr uint32_t kPhiloxStep0 = 0x9E3779B9u, kPhiloxStep1 = 0xBB67AE85u;

inline PhiloxBlock philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
    PhiloxRounds rounds(counter);
    for (int round = 0; round < 10; ++round) {
        rounds.round(key0, key1);
        key0 += kPhiloxStep0;
        key1 += kPhiloxStep1;
    }
    return rounds.block();
}

}  // namespace swiftsure::SWIFTSURE_ISA
