// AMX for three to eight rows of activations: two groups of 32 columns a tile product.
//
// A product costs about the same for four rows as for sixteen, so both digits of all rows and two neighbouring groups share one: they lie
// as rows of 64 bytes, one per group, row and digit, whose other half is zero (ActivationRow::tiles). Up to four rows fill one A tile, more
// take one a group; the B tile of a pair, 64 columns of 16 outputs, serves both. Sums come out apart for each group, row and digit, and go
// through the chain of float operations that matmul_quantized.cpp states.
#pragma once

#include "kernels/matmul_tiles.h"
#include "kernels/prefetch.h"

namespace swiftsure::SWIFTSURE_ISA {

constexpr int64_t kPairBytes = 2 * kTileBytes;

// Tiles 0, 1: sums of an even pair, 2, 3: of an odd one. 4, 5: digits. 6: weights.
template <int rows>
inline void load_pair_shape() {
    constexpr uint8_t tile_rows = rows <= 4 ? 4 * rows : 2 * rows;
    load_tile_shapes({tile_rows, 64}, {tile_rows, 64}, {16, 64});
}

template <TensorType type>
SWIFTSURE_INLINE void unpack_pair(const uint8_t* block, uint8_t (&b)[kPairBytes]) {
    unpack_group<type>(block, b);
    unpack_group<type>(block + group_bytes(type), b + kTileBytes);
    asm volatile("" : "+m"(b));  // tile loads do not tell the compiler what they read
}

// Sums of a pair: per group and row, high digits, then low ones.
using PairSums = int32_t[2][kMaxPairedRows][2][16];

// The product of `tile_rows` rows at `a` with the weights in tile 6.
template <int sum, int digits>
SWIFTSURE_INLINE void paired_product(const uint8_t* a) {
    asm volatile("tilezero %%tmm%c1\n\ttileloadd (%0,%2,1), %%tmm%c3\n\ttdpbssd %%tmm6, %%tmm%c3, %%tmm%c1" ::"r"(a), "i"(sum),
                 "r"(int64_t{64}), "i"(digits));
}

template <int tile>
SWIFTSURE_INLINE void store_pair_sums(int32_t* to, PairSums& all) {
    asm volatile("tilestored %%tmm%c3, (%1,%2,1)" : "+m"(all) : "r"(to), "r"(int64_t{64}), "i"(tile));
}

// All rows of activations and the strip they are multiplied with.
struct PairedRows {
    const uint8_t* weights;
    const uint8_t* tiles;
    const float* scales;
    int64_t groups;
};

template <TensorType type, int rows, int r = 0>
SWIFTSURE_INLINE void scale_paired_rows(const int32_t* sums, const float* scales, f32x16 scale, f32x16 minimum, f32x16 (&acc)[rows]) {
    if constexpr (type == TensorType::Q4_1) acc[r] = fma(minimum, splat(scales[r * kTileScaleStride + 1]), acc[r]);
    const i32x16 sum = add(shift_left<8>(load_i32(sums + 32 * r)), load_i32(sums + 32 * r + 16));
    acc[r] = fma(to_f32(sum), mul(scale, splat(scales[r * kTileScaleStride])), acc[r]);
    if constexpr (r + 1 < rows) scale_paired_rows<type, rows, r + 1>(sums, scales, scale, minimum, acc);
}

template <TensorType type, int rows>
SWIFTSURE_INLINE void scale_group(const PairedRows& at, int64_t group, const int32_t* sums, f32x16 (&acc)[rows]) {
    constexpr int64_t scales = type == TensorType::Q8_0 ? kInt8Bytes : kNibbleBytes;
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(at.weights + group * group_bytes(type) + scales);
    const f32x16 scale = load_f16(halves), minimum = type == TensorType::Q4_1 ? load_f16(halves + kStripRows) : scale;
    scale_paired_rows<type, rows>(sums, at.scales + 2 * group, scale, minimum, acc);
}

// One step: the product of pair `p`, unpacking of the next but one, scaling of the last but one, and only then the store of the
// sums of `p`, which wait for the product.
template <TensorType type, int rows, int set>
SWIFTSURE_INLINE void pair_step(const PairedRows& at, int64_t p, uint8_t (&b)[4][kPairBytes], PairSums& sums, f32x16 (&acc)[rows]) {
    constexpr int64_t bytes = 2 * group_bytes(type);
    constexpr bool two_tiles = rows > 4;
    const int64_t pairs = at.groups / 2;
    int32_t *first = &sums[0][0][0][0], *second = first + rows * 32;
    if (p < pairs) {
        ask_ahead<bytes>(at.weights + p * bytes);
        const uint8_t* a = at.tiles + p * rows * 4 * kTileRowBytes;
        _tile_loadd(6, b[p & 3], 64);
        paired_product<2 * set, 4>(a);
        if constexpr (two_tiles) paired_product<2 * set + 1, 5>(a + rows * 2 * kTileRowBytes);
        if (p + 2 < pairs) unpack_pair<type>(at.weights + (p + 2) * bytes, b[(p + 2) & 3]);
    }
    if (p >= 2) {
        scale_group<type, rows>(at, 2 * p - 4, first, acc);
        scale_group<type, rows>(at, 2 * p - 3, second, acc);
    }
    if (p < pairs) {
        store_pair_sums<2 * set>(first, sums);
        if constexpr (two_tiles) store_pair_sums<2 * set + 1>(second, sums);
    }
}

// All rows, whose groups are even in number, times a strip.
template <TensorType type, int rows>
__attribute__((noinline)) void multiply_pairs(const PairedRows& at, float* out, int64_t out_stride, int64_t count, bool accumulate) {
    alignas(64) uint8_t b[4][kPairBytes];
    alignas(64) PairSums sums[2];
    f32x16 acc[rows];
    clear_rows<rows>(acc);
    const int64_t pairs = at.groups / 2;
    unpack_pair<type>(at.weights, b[0]);
    if (pairs > 1) unpack_pair<type>(at.weights + 2 * group_bytes(type), b[1]);
    for (int64_t p = 0; p < pairs + 2; p += 2) {
        pair_step<type, rows, 0>(at, p, b, sums[0], acc);
        if (p + 1 < pairs + 2) pair_step<type, rows, 1>(at, p + 1, b, sums[1], acc);
    }
    store_rows<rows>(out, out_stride, count, accumulate, acc);
}

}  // namespace swiftsure::SWIFTSURE_ISA
