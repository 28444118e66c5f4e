// AMX: sixteen rows of activations times one strip, 32 columns a tile product.
//
//   load_tile_shape(rows), release_tiles()   around the calls below
//   unpack_strip<type>(w, strip, b)          integers of one strip, once for all rows, as the B tiles that products read
//   multiply_tile<type, rows>(...)           `rows` rows times the strip
//
// The digits of digits_vnni.h are A tiles as they lie: a row of a tile is 32 digits, the stride is the stride of a row of activations. A
// group of a strip is a B tile of eight rows of 64 bytes. High and low digits have a product each; products of the next groups run while
// the sums of this one are scaled, in the order that matmul_quantized.cpp states.
#pragma once

#include "kernels/digits.h"
#include "kernels/strip_out.h"
#include "simd/unroll.h"

namespace swiftsure::SWIFTSURE_ISA {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 512;      // of a B tile: 32 columns of 16 rows
constexpr int64_t kMaxTileGroups = 512;  // longer rows take the other path: 256 KB of unpacked strip are on the stack

struct TileShape {
    uint8_t rows;
    uint8_t row_bytes;
};

// Tiles 0 to 3: sums. 4, 5: digits. 6: weights.
inline void load_tile_shapes(TileShape sums, TileShape digits, TileShape weights) {
    struct alignas(64) Configuration {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    } configuration;
    for (int t = 0; t < 7; ++t) {
        const TileShape shape = t < 4 ? sums : t < 6 ? digits : weights;
        configuration.row_bytes[t] = shape.row_bytes;
        configuration.rows[t] = shape.rows;
    }
    asm volatile("" : : "r"(&configuration) : "memory");  // the intrinsic tells the compiler of eight bytes only
    _tile_loadconfig(&configuration);
}

inline void load_tile_shape(int64_t rows) {
    const uint8_t count = static_cast<uint8_t>(rows);
    load_tile_shapes({count, 64}, {count, 32}, {8, 64});
}

inline void release_tiles() { _tile_release(); }

template <TensorType type>
inline void prefetch_group(const uint8_t* block) {
    for (int64_t line = 0; line < group_bytes(type); line += 64) __builtin_prefetch(block + line);
}

// The integers of one group, as the B tile that products read.
template <TensorType type>
inline void unpack_group(const uint8_t* block, uint8_t* b) {
    if constexpr (type == TensorType::Q8_0) {
        SWIFTSURE_UNROLL
        for (int j = 0; j < 8; ++j) _mm512_store_si512(b + 64 * j, _mm512_loadu_si512(block + 64 * j));
        return;
    }
    const __m512i mask = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(type == TensorType::Q4_0 ? 8 : 0);
    SWIFTSURE_UNROLL
    for (int j = 0; j < 4; ++j) {
        const __m512i bytes = _mm512_loadu_si512(block + 64 * j);
        const __m512i head = _mm512_and_si512(bytes, mask), tail = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
        _mm512_store_si512(b + 64 * j, type == TensorType::Q4_0 ? _mm512_sub_epi8(head, eight) : head);
        _mm512_store_si512(b + 256 + 64 * j, type == TensorType::Q4_0 ? _mm512_sub_epi8(tail, eight) : tail);
    }
}

template <TensorType type>
inline void unpack_strip(const uint8_t* block, int64_t groups, uint8_t* b) {
    for (int64_t g = 0; g < groups; ++g) unpack_group<type>(block + g * group_bytes(type), b + g * kTileBytes);
    asm volatile("" ::: "memory");  // tile loads do not tell the compiler what they read
}

// Sums of one group: high digits, then low ones, a vector of 16 outputs per row.
using GroupSums = int32_t[2][kTileRows][16];

// As _tile_stored, but telling the compiler which memory changes: a clobber of all memory would keep accumulators out of registers.
template <int tile>
inline void store_sums(int32_t (&to)[kTileRows][16]) {
    asm volatile("tilestored %%tmm%c3, (%1,%2,1)" : "=m"(to) : "r"(&to), "r"(int64_t{64}), "i"(tile));
}

// One digit of 16 rows, at `a`, times the weights in tile 6. `sum` and `digits` number tiles.
template <int sum, int digits>
inline void digit_product(const uint8_t* a, int64_t stride) {
    asm volatile("tilezero %%tmm%c2\n\ttileloadd (%0,%1,1), %%tmm%c3\n\ttdpbssd %%tmm6, %%tmm%c3, %%tmm%c2" ::"r"(a), "r"(stride), "i"(sum),
                 "i"(digits));
}

struct Scales {
    const uint8_t* weights;   // float16 scales, then minima, of the group
    const float* x;           // of the first row
    const float* scaled_sum;  // of the first row
    int64_t groups;           // stride of both
};

// Rows of activations against a strip: a tile starts at row `row - skipped`, and its first `skipped` rows are done already.
struct TileBlock {
    const uint8_t* weights;  // the strip
    const uint8_t* b;        // its B tiles
    int64_t b_bytes;         // from one group's to the next
    int64_t row, skipped;
    int64_t prefetch;  // how far ahead to ask for weights, 0 when they are near already
};

// Rows one by one through a template, not through a loop: GCC keeps an array in registers only when every index is a constant before it
// unrolls anything, and accumulators in memory double the time.
template <int rows, int r = 0>
SWIFTSURE_INLINE void clear_rows(f32x16 (&acc)[rows]) {
    acc[r] = splat(0.0f);
    if constexpr (r + 1 < rows) clear_rows<rows, r + 1>(acc);
}

// Rows [r, end) of a group's scaling. `high`: the sums of row 0; those of the low digits lie one tile further.
template <TensorType type, int end, int r, int rows>
SWIFTSURE_INLINE void scale_rows(const int32_t* high, const Scales& s, f32x16 scale, f32x16 minimum, f32x16 (&acc)[rows]) {
    if constexpr (type == TensorType::Q4_1) acc[r] = fma(minimum, splat(s.scaled_sum[r * s.groups]), acc[r]);
    const i32x16 sum = add(shift_left<8>(load_i32(high + 16 * r)), load_i32(high + 16 * (kTileRows + r)));
    acc[r] = fma(to_f32(sum), mul(scale, splat(s.x[r * s.groups])), acc[r]);
    if constexpr (r + 1 < end) scale_rows<type, end, r + 1>(high, s, scale, minimum, acc);
}

template <int rows, int r = 0>
SWIFTSURE_INLINE void store_rows(float* out, int64_t stride, int64_t count, bool accumulate, f32x16 (&acc)[rows]) {
    store_strip(out + r * stride, acc[r], count, accumulate);
    if constexpr (r + 1 < rows) store_rows<rows, r + 1>(out, stride, count, accumulate, acc);
}

// What one step of the pipeline works on.
struct Position {
    const uint8_t* a;  // digits of group `group`, and its B tile
    const uint8_t* b;
    int64_t stride, b_bytes;  // from row to row of a, from group to group of b
    int64_t group, groups, prefetch;
};

// Three groups at once: products of `at.group` to the tiles of `set`, sums of the group before to memory, scaling of the group before that.
template <TensorType type, int rows, int set>
SWIFTSURE_INLINE void pipeline_step(Position& at, GroupSums (&sums)[2], int64_t skipped, Scales& s, f32x16 (&acc)[rows]) {
    constexpr int other = 1 - set, half = rows / 2;
    const bool multiply = at.group < at.groups, save = at.group >= 1 && at.group <= at.groups, scale_now = at.group >= 2;
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(s.weights);
    const f32x16 scale = load_f16(halves), minimum = type == TensorType::Q4_1 ? load_f16(halves + kStripRows) : scale;
    const int32_t* high = &sums[set][0][skipped][0];
    asm("" : "+r"(high));  // one register, not the address of every row
    if (save) store_sums<2 * other>(sums[other][0]);
    if (multiply) {
        if (at.prefetch != 0) prefetch_group<type>(s.weights + at.prefetch);
        _tile_loadd(6, at.b, 64);
        digit_product<2 * set, 4>(at.a, at.stride);
    }
    if (scale_now) scale_rows<type, half, 0>(high, s, scale, minimum, acc);
    if (save) store_sums<2 * other + 1>(sums[other][1]);
    if (multiply) digit_product<2 * set + 1, 5>(at.a + 32, at.stride);
    if (scale_now) {
        scale_rows<type, rows, half>(high, s, scale, minimum, acc);
        s.weights += group_bytes(type);
        s.x += 1;
        s.scaled_sum += 1;
    }
    at.a += kGroupPayloadBytes;
    at.b += at.b_bytes;
    at.group += 1;
}

// Rows [block.row, block.row + rows) of x times the strip, to `out`, the first of them, which has room for `count` values a row.
template <TensorType type, int rows>
__attribute__((noinline)) void multiply_tile(const Activations& x, const TileBlock& block, float* out, int64_t out_stride, int64_t count,
                                             bool accumulate) {
    constexpr int64_t scales = type == TensorType::Q8_0 ? kInt8Bytes : kNibbleBytes;
    const int64_t groups = x.groups, stride = groups * kGroupPayloadBytes;
    alignas(64) GroupSums sums[2];
    Position at = {x.payload + (block.row - block.skipped) * stride, block.b, stride, block.b_bytes, 0, groups, block.prefetch};
    Scales s = {block.weights + scales, x.scale + block.row * groups, x.scaled_sum + block.row * groups, groups};
    f32x16 acc[rows];
    clear_rows<rows>(acc);
    while (true) {
        pipeline_step<type, rows, 0>(at, sums, block.skipped, s, acc);
        if (at.group == groups + 2) break;
        pipeline_step<type, rows, 1>(at, sums, block.skipped, s, acc);
        if (at.group == groups + 2) break;
    }
    store_rows<rows>(out, out_stride, count, accumulate, acc);
}

}  // namespace swiftsure::SWIFTSURE_ISA
