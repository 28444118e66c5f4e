// Activations to groups of 32 integers of 16 bits.
//
// A group with a NaN or an infinity gets scale NaN and zeros, so that everything it is multiplied into becomes NaN: rounding it to a number
// would hide the overflow. Sums and the maximum are over integers, exact in any order.
#include "kernels/digits.h"
#include "kernels/families.h"

namespace swiftsure::SWIFTSURE_ISA {
namespace {

constexpr float kMaxDigits = 32639.0f;  // 127 * 256 + 127: the largest value whose low digit, in [-128, 127], leaves a high digit of 127
constexpr float kSmallest = 1e-30f;     // below it the inverse of the scale would leave the range of float
constexpr int32_t kInfinityBits = 0x7F800000;

inline i32x16 magnitude_bits(f32x16 v) { return bit_and(as_i32(v), splat_i32(0x7FFFFFFF)); }

inline int32_t reduce_max_i32(i32x16 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_epi32(v.v);
#else
    alignas(64) int32_t lane[16];
    store_i32(lane, v);
    int32_t result = lane[0];
    for (int i = 1; i < 16; ++i) result = lane[i] > result ? lane[i] : result;
    return result;
#endif
}

inline int32_t reduce_add_i32(i32x16 v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32(v.v);
#else
    alignas(64) int32_t lane[16];
    store_i32(lane, v);
    int32_t result = 0;
    for (int i = 0; i < 16; ++i) result += lane[i];
    return result;
#endif
}

inline i32x16 quantize(f32x16 x, f32x16 inverse) { return round_to_i32(min(max(mul(x, inverse), splat(-kMaxDigits)), splat(kMaxDigits))); }

}  // namespace

void quantize_row(const float* x, int64_t k, ActivationRow out) {
    for (int64_t g = 0; g < k / kGroup; ++g) {
        const f32x16 a = load(x + g * kGroup), b = load(x + g * kGroup + 16);
        const i32x16 a_bits = magnitude_bits(a), b_bits = magnitude_bits(b);  // ordered like the magnitudes, NaN above infinity
        const int32_t max_bits = reduce_max_i32(select(less(a_bits, b_bits), b_bits, a_bits));
        float amax;
        std::memcpy(&amax, &max_bits, 4);

        uint8_t* payload = out.payload + g * kGroupPayloadBytes;
        if (max_bits >= kInfinityBits || amax < kSmallest) {
            const float scale = max_bits >= kInfinityBits ? __builtin_nanf("") : 0.0f;
            std::memset(payload, 0, kGroupPayloadBytes);
            out.scale[g] = scale;
            out.scaled_sum[g] = scale;
            out.sum[g] = 0;
            continue;
        }
        const f32x16 inverse = splat(kMaxDigits / amax);
        const i32x16 qa = quantize(a, inverse), qb = quantize(b, inverse);
        store_payload(payload, qa, qb);
        const int32_t sum = reduce_add_i32(add(qa, qb));
        const float scale = amax / kMaxDigits;
        out.scale[g] = scale;
        out.scaled_sum[g] = scale * static_cast<float>(sum);
        out.sum[g] = sum;
    }
}

void unpack_activations(const uint8_t* payload, int16_t* q) { load_payload(payload, q); }

}  // namespace swiftsure::SWIFTSURE_ISA
