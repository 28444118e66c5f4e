// silu(gate) * up.
#include "kernels/families.h"
#include "simd/exp.h"
#include "simd/tail.h"

namespace swiftsure::SWIFTSURE_ISA {

// g / (1 + e^-g), written with t = e^-|g| so that nothing overflows: g / (1 + t) for g >= 0, g t / (1 + t) for g < 0.
// Below -87 t is exactly 0 and so is the result (the true value is under 2e-36); the floor at -200 keeps -infinity * 0 from being NaN.
static f32x16 silu(f32x16 g) {
    const f32x16 floored = max(splat(-200.0f), g);
    const f32x16 negated = sub(splat(0.0f), floored);
    const mask16 negative = less(floored, splat(0.0f));
    const f32x16 t = exp(select(negative, floored, negated));
    return div(select(negative, mul(floored, t), floored), add(splat(1.0f), t));
}

void silu_mul(const float* gate, const float* up, float* out, int64_t width) {
    for (int64_t c = 0; c < width; c += 16) {
        const int64_t count = width - c;
        store_first(out + c, mul(silu(load_first(gate + c, count)), load_first(up + c, count)), count);
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
