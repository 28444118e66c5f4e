// RMS normalization (Zhang and Sennrich, 2019).
#include "kernels/families.h"
#include "simd/tail.h"

namespace swiftsure::SWIFTSURE_ISA {

// Sum of squares: lane i holds the fma chain over columns i, i+16, ...; the lanes are added by reduce_add's tree.
void rmsnorm(const float* x, const float* weight, float* out, int64_t width, float eps, bool accumulate) {
    f32x16 squares = splat(0.0f);
    for (int64_t c = 0; c < width; c += 16) {
        const f32x16 v = load_first(x + c, width - c);
        squares = fma(v, v, squares);
    }
    const float mean = reduce_add(squares) / static_cast<float>(width);
    const f32x16 scale = splat(1.0f / __builtin_sqrtf(mean + eps));
    for (int64_t c = 0; c < width; c += 16) {
        const f32x16 v = mul(mul(load_first(x + c, width - c), scale), load_first(weight + c, width - c));
        store_first(out + c, accumulate ? add(load_first(out + c, width - c), v) : v, width - c);
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
