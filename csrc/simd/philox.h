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

}  // namespace swiftsure::SWIFTSURE_ISA
