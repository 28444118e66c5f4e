// Activations to integers of 16 bits, in groups of 32 or whole rows.
//
// A group (or row) with a NaN or an infinity gets scale NaN and zeros, so that everything it is multiplied into becomes NaN: rounding it to
// a number would hide the overflow. Sums and the maximum are over integers, exact in any order.
#include "kernels/digits.h"
#include "kernels/families.h"
#include "simd/tail.h"

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

#if defined(__AMX_INT8__)
// The digits of one group once more, as tile rows.
inline void store_tile_rows(const uint8_t* payload, uint8_t* tiles, bool odd) {
    const __m512i digits = _mm512_load_si512(payload), swapped = _mm512_shuffle_i64x2(digits, digits, 0x4E);  // 32 high ones, 32 low ones
    const __mmask8 half = odd ? 0xF0 : 0x0F;
    _mm512_store_si512(tiles, _mm512_maskz_mov_epi64(half, odd ? swapped : digits));
    _mm512_store_si512(tiles + kTileRowBytes, _mm512_maskz_mov_epi64(half, odd ? digits : swapped));
}
#endif

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
            out.sum[g] = out.half_sum[g] = 0;
            continue;
        }
        const f32x16 inverse = splat(kMaxDigits / amax);
        const i32x16 qa = quantize(a, inverse), qb = quantize(b, inverse);
        store_payload(payload, qa, qb);
        const int32_t half_sum = reduce_add_i32(qa), sum = half_sum + reduce_add_i32(qb);
        const float scale = amax / kMaxDigits;
        out.scale[g] = scale;
        out.scaled_sum[g] = scale * static_cast<float>(sum);
        out.sum[g] = sum;
        out.half_sum[g] = half_sum;
    }
#if defined(__AMX_INT8__)
    if (!out.tiles) return;
    for (int64_t g = 0; g < k / kGroup; ++g) {
        store_tile_rows(out.payload + g * kGroupPayloadBytes, out.tiles + g * out.rows * 2 * kTileRowBytes, (g % 2 != 0) != out.odd);
        out.tile_scales[2 * g] = out.scale[g];
        out.tile_scales[2 * g + 1] = out.scaled_sum[g];
    }
#endif
}

// Columns past k hold zeros.
void quantize_grid_row(const float* x, int64_t k, GridRow out) {
    i32x16 largest = splat_i32(0);
    for (int64_t c = 0; c < k; c += 16) {
        const i32x16 bits = magnitude_bits(load_first(x + c, k - c));
        largest = select(less(largest, bits), bits, largest);
    }
    const int32_t max_bits = reduce_max_i32(largest);
    float amax;
    std::memcpy(&amax, &max_bits, 4);

    const int64_t columns = grid_blocks(k) * kBlockColumns;
    int8_t *high_digits = out.digits, *low_digits = out.digits + columns;
    out.excess[0] = out.excess[1] = 0;
    if (max_bits >= kInfinityBits || amax < kSmallest) {
        *out.scale = max_bits >= kInfinityBits ? __builtin_nanf("") : 0.0f;
        std::memset(out.digits, 0, static_cast<size_t>(2 * columns));
        return;
    }
    *out.scale = amax / kMaxDigits;
    const f32x16 inverse = splat(kMaxDigits / amax);
    i32x16 high_sum = splat_i32(0), low_sum = splat_i32(0);
    for (int64_t c = 0; c < columns; c += 16) {
        const i32x16 q = c < k ? quantize(load_first(x + c, k - c), inverse) : splat_i32(0);
        const i32x16 high = shift_right_signed<8>(add(q, splat_i32(128))), low = sub(q, shift_left<8>(high));
        store_i8(high_digits + c, high);
        store_i8(low_digits + c, low);
        high_sum = add(high_sum, high);
        low_sum = add(low_sum, low);
    }
    out.excess[0] = 128 * reduce_add_i32(high_sum);
    out.excess[1] = 128 * reduce_add_i32(low_sum);
}

void unpack_activations(const uint8_t* payload, int16_t* q) { load_payload(payload, q); }

}  // namespace swiftsure::SWIFTSURE_ISA
