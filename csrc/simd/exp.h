// exp with one fixed order of operations, so that every instruction set gives the same bits.
#pragma once

#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

// e^x for x <= 88; exactly 0 for x < -87 (attention needs masked and far keys to add nothing), so a result is never subnormal.
// NaN gives NaN: only the exponent is taken from the clamped x, for NaN has none.
//
// Range reduction x = n ln2 + r, |r| <= ln2/2, with ln2 in two parts; e^r = 1 + (r + r^2 q(r)) with q of degree 5, a minimax fit of
// the whole e^r with relative error 1.1e-9 after rounding its coefficients to float32. Measured over [-87, 88]: at most 1.0 ulp.
inline f32x16 exp(f32x16 x) {
    const mask16 flushed = less(x, splat(-87.0f));
    const i32x16 n = round_to_i32(mul(max(x, splat(-87.0f)), splat(0x1.715476p+0f)));
    const f32x16 nf = to_f32(n);
    f32x16 r = fma(nf, splat(-0x1.62e400p-1f), x);
    r = fma(nf, splat(-0x1.7f7d1cp-20f), r);
    f32x16 q = splat(0x1.9f085ap-13f);
    q = fma(q, r, splat(0x1.6d8d52p-10f));
    q = fma(q, r, splat(0x1.111272p-7f));
    q = fma(q, r, splat(0x1.55548ep-5f));
    q = fma(q, r, splat(0x1.555554p-3f));
    q = fma(q, r, splat(0x1.000000p-1f));
    const f32x16 power = add(splat(1.0f), fma(mul(r, r), q, r));
    const f32x16 scale = as_f32(shift_left<23>(add(n, splat_i32(127))));
    return select(flushed, splat(0.0f), mul(power, scale));
}

}  // namespace swiftsure::SWIFTSURE_ISA
