// Rotary position embedding (Su et al., 2021) of one head vector in place.
//
// a' = fma(a, c, -(b s)), b' = fma(a, s, b c): two roundings an element, the same in the vector loop and in the tail.
#include "kernels/families.h"
#include "simd/tail.h"

namespace swiftsure::SWIFTSURE_ISA {

static void rotate(float& a, float& b, float c, float s) {
    const float bs = b * s, bc = b * c;
    const float a_new = __builtin_fmaf(a, c, -bs);
    b = __builtin_fmaf(a, s, bc);
    a = a_new;
}

void rope_interleaved(float* x, const float* table, int64_t pairs) {
    for (int64_t i = 0; i < pairs; ++i) rotate(x[2 * i], x[2 * i + 1], table[2 * i], table[2 * i + 1]);
}

void rope_halves(float* x, const float* table, int64_t pairs) {
    for (int64_t i = 0; i < pairs; ++i) rotate(x[i], x[i + pairs], table[2 * i], table[2 * i + 1]);
}

}  // namespace swiftsure::SWIFTSURE_ISA
