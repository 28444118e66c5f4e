// The natural logarithm with one fixed order of operations, so that every instruction set gives the same bits.
#pragma once

#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

// ln x for positive, finite, normal x; about 2 ulp.
// x = 2^k m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s) = 2s (1 + s^2/3 + s^4/5 + s^6/7 + s^8/9), s = (m - 1) / (m + 1), |s| <
// 0.1716, where the first term left out is below 1e-9 of the result. m - 1 is exact, so the result keeps its relative accuracy next to 1.
inline f32x16 log(f32x16 x) {
    const i32x16 bits = as_i32(x);
    // Subtracting the bits of sqrt(1/2) carries into the exponent exactly where m would reach sqrt(2).
    const i32x16 k = shift_right_signed<23>(sub(bits, splat_i32(0x3F3504F3)));
    const f32x16 m = as_f32(sub(bits, shift_left<23>(k)));
    const f32x16 kf = to_f32(k);
    const f32x16 s = div(sub(m, splat(1.0f)), add(m, splat(1.0f)));
    const f32x16 z = mul(s, s);
    f32x16 p = splat(2.0f / 9);
    p = fma(p, z, splat(2.0f / 7));
    p = fma(p, z, splat(2.0f / 5));
    p = fma(p, z, splat(2.0f / 3));
    const f32x16 small = fma(mul(p, z), s, add(s, s));
    // ln 2 in two parts; k times the first is exact.
    return fma(kf, splat(0.693145751953125f), fma(kf, splat(1.42860682030941723e-6f), small));
}

}  // namespace swiftsure::SWIFTSURE_ISA
