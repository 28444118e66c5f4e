// Gated activations: silu(gate) * up and gelu(gate) * up.
#include "kernels/families.h"
#include "simd/exp.h"
#include "simd/tail.h"

namespace swiftsure::SWIFTSURE_ISA {

namespace {

constexpr float kLowest = -200.0f;  // e^x is exactly 0 from -87 on; a floor keeps -infinity * 0 from being NaN

// x / (1 + e^-z) for x and z of one sign, written with t = e^-|z| so that nothing overflows: x / (1 + t) for z >= 0, x t / (1 + t) for z <
// 0. Below -87 t is exactly 0 and so is the result (the true value is under 2e-36).
f32x16 times_sigmoid(f32x16 x, f32x16 z) {
    const mask16 negative = less(z, splat(0.0f));
    const f32x16 t = exp(select(negative, z, sub(splat(0.0f), z)));
    return div(select(negative, mul(x, t), x), add(splat(1.0f), t));
}

f32x16 silu(f32x16 g) {
    const f32x16 floored = max(splat(kLowest), g);
    return times_sigmoid(floored, floored);
}

// g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) (Hendrycks and Gimpel, 2016), which is g sigmoid(z) with z twice that argument.
f32x16 gelu_tanh(f32x16 g) {
    const f32x16 floored = max(splat(kLowest), g);
    const f32x16 slope = fma(mul(floored, floored), splat(0x1.2444f2p-4f), splat(0x1.988454p+0f));  // 2 sqrt(2/pi) times 0.044715, and 1
    return times_sigmoid(floored, max(splat(kLowest), mul(floored, slope)));
}

template <typename Activation>
void gate_row(const float* gate, const float* up, float* out, int64_t width, const Activation& activation) {
    for (int64_t c = 0; c < width; c += 16) {
        const int64_t count = width - c;
        store_first(out + c, mul(activation(load_first(gate + c, count)), load_first(up + c, count)), count);
    }
}

}  // namespace

void silu_mul(const float* gate, const float* up, float* out, int64_t width) {
    gate_row(gate, up, out, width, [](f32x16 g) { return silu(g); });
}

void gelu_tanh_mul(const float* gate, const float* up, float* out, int64_t width) {
    gate_row(gate, up, out, width, [](f32x16 g) { return gelu_tanh(g); });
}

}  // namespace swiftsure::SWIFTSURE_ISA
