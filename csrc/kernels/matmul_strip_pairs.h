// AVX-512 VNNI: up to four rows of activations times two neighbouring strips.
//
//   multiply_strip_pair<type, rows>(w, x, strip, row, ahead, out, stride, accumulate)   `rows` rows from `row` on
//
// A broadcast of four digits serves both strips, so a product costs half a load; against one strip and eight rows, a load each, that is
// what the unit that loads could not keep up with. The chain of float operations is the one that matmul_quantized.cpp states.
#pragma once

#include "activations.h"
#include "kernels/digits.h"
#include "kernels/group_scales.h"
#include "kernels/strip_out.h"
#include "simd/unroll.h"

namespace swiftsure::SWIFTSURE_ISA {

constexpr int kNear = 2;          // ask for weights into the second-level cache: two strips and those after them would fill the first
constexpr int64_t kPairRows = 4;  // 16 sums of digits and 8 of floats, of 32 registers

// sum[s][r] += the integers of a group of strip s times row r; `bits` of an integer, 4 or 8.
template <int bits, int rows>
SWIFTSURE_INLINE void dot_strip_pair(const uint8_t* const (&w)[2], const uint8_t* payload, int64_t stride, i32x16 (&sum)[2][rows]) {
    __m512i high[2][rows], low[2][rows];
    SWIFTSURE_UNROLL
    for (int s = 0; s < 2; ++s) SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) {
        high[s][r] = _mm512_setzero_si512();
        low[s][r] = sum[s][r].v;
    }
    const auto add_products = [&](const __m512i(&vector)[2], int64_t column) {
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const uint8_t* digits = payload + r * stride + column;
            const __m512i first = broadcast_quad(digits), second = broadcast_quad(digits + 32);
            SWIFTSURE_UNROLL
            for (int s = 0; s < 2; ++s) {
                high[s][r] = _mm512_dpbusd_epi32(high[s][r], vector[s], first);
                low[s][r] = _mm512_dpbusd_epi32(low[s][r], vector[s], second);
            }
        }
    };
    if constexpr (bits == 8) {
        const __m512i flip = _mm512_set1_epi8(-128);
        SWIFTSURE_UNROLL
        for (int j = 0; j < 8; ++j) {
            const __m512i vector[2] = {_mm512_xor_si512(_mm512_loadu_si512(w[0] + 64 * j), flip),
                                       _mm512_xor_si512(_mm512_loadu_si512(w[1] + 64 * j), flip)};
            add_products(vector, 4 * j);
        }
    } else {
        IntegerVectors<bits> vectors[2] = {{w[0]}, {w[1]}};
        SWIFTSURE_UNROLL
        for (int j = 0; j < 4; ++j) {
            __m512i head[2], tail[2];
            vectors[0].next(j, head[0], tail[0]);
            vectors[1].next(j, head[1], tail[1]);
            add_products(head, 4 * j);
            add_products(tail, 16 + 4 * j);
        }
    }
    SWIFTSURE_UNROLL
    for (int s = 0; s < 2; ++s) SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) sum[s][r].v = _mm512_add_epi32(_mm512_slli_epi32(high[s][r], 8), low[s][r]);
}

// The weights that are multiplied next, asked for little by little over all rows of those that are multiplied now: at once they would wait
// for memory, and memory for the products.
struct WeightsAhead {
    const uint8_t *next, *end;
    int64_t bytes_a_group;  // whole lines

    inline void ask() {
        if (next >= end) return;
        for (int64_t at = 0; at < bytes_a_group; at += 64) __builtin_prefetch(next + at, 0, kNear);
        next += bytes_a_group;
    }
};

template <TensorType type, int rows>
void multiply_strip_pair(const PackedMatrix& w, const Activations& x, int64_t strip, int64_t row, WeightsAhead& ahead, float* out,
                         int64_t out_stride, bool accumulate) {
    constexpr GroupFormat format = group_format(type);
    const int64_t groups = x.groups, stride = groups * kGroupPayloadBytes;
    const uint8_t* const strips[2] = {w.data + strip * w.strip_bytes, w.data + (strip + 1) * w.strip_bytes};
    f32x16 acc[2][rows];
    SWIFTSURE_UNROLL
    for (int s = 0; s < 2; ++s) SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) acc[s][r] = splat(0.0f);
    for (int64_t g = 0, at = row * groups; g < groups; ++g, ++at) {
        ahead.ask();
        const uint8_t* const group[2] = {strips[0] + group_offset(type, g), strips[1] + group_offset(type, g)};
        i32x16 sum[2][rows];
        constexpr int32_t offset = format.bits == 8 ? 128 : format.offset;
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) sum[0][r] = sum[1][r] = splat_i32(-offset * x.sum[at + r * groups]);
        dot_strip_pair<format.bits, rows>(group, x.payload + at * kGroupPayloadBytes, stride, sum);
        SWIFTSURE_UNROLL
        for (int s = 0; s < 2; ++s) {
            const GroupScales scales = load_group_scales<type>(strips[s], g);
            SWIFTSURE_UNROLL
            for (int r = 0; r < rows; ++r) {
                if constexpr (format.minimum) acc[s][r] = fma(scales.second, splat(x.scaled_sum[at + r * groups]), acc[s][r]);
                acc[s][r] = fma(to_f32(sum[s][r]), mul(scales.scale, splat(x.scale[at + r * groups])), acc[s][r]);
            }
        }
    }
    for (int s = 0; s < 2; ++s)
        for (int r = 0; r < rows; ++r)
            store_strip(out + (row + r) * out_stride + (strip + s) * kStripRows, acc[s][r], rows_in_strip(w, strip + s), accumulate);
}

}  // namespace swiftsure::SWIFTSURE_ISA
