// exp and log with one fixed order of operations, so that every instruction set gives the same bits.
#pragma once

#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

// e^x for x <= 88; below -87.3 the result is exactly 0 (attention needs masked and far keys to add nothing).
// Range reduction x = n ln2 + r with ln2 in two parts, degree-6 polynomial in r (Remez on [-ln2/2, ln2/2]); error about 1 ulp.
inline f32x16 exp(f32x16 x) {
    const mask16 flushed = less(x, splat(-87.0f));
    const f32x16 clamped = max(x, splat(-87.0f));
    const i32x16 n = round_to_i32(mul(clamped, splat(1.44269504088896341f)));
    const f32x16 nf = to_f32(n);
    f32x16 r = fma(nf, splat(-0.693145751953125f), clamped);
    r = fma(nf, splat(-1.42860682030941723e-6f), r);
    f32x16 p = splat(1.0f / 720);
    p = fma(p, r, splat(1.0f / 120));
    p = fma(p, r, splat(1.0f / 24));
    p = fma(p, r, splat(1.0f / 6));
    p = fma(p, r, splat(0.5f));
    p = fma(p, r, splat(1.0f));
    p = fma(p, r, splat(1.0f));
    const f32x16 scale = as_f32(shift_left<23>(add(n, splat_i32(127))));
    return select(flushed, splat(0.0f), mul(p, scale));
}

}  // namespace swiftsure::SWIFTSURE_ISA
