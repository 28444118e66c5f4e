// AMX: sixteen rows of digits times one or two strips of row-grid weights, 64 columns a tile product.
//
//   load_grid_shape(rows)                 before the calls below, release_tiles() (_tile_release) after them
//   clear_sums<strips>()
//   block_products<strips>(digits, stride, b)   adds the products of 64 columns; b[s]: bytes w + 128 of strip s, as R8 has them
//   save_sums<strips>(sums)
//
// Sums stay in tiles over all columns. High and low digits lie apart in a row, so each is an A tile with the stride of a row.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/row_weights.h"

namespace swiftsure::SWIFTSURE_ISA {

constexpr int64_t kGridTileRows = 16;

// Of one strip: high digits, then low ones, 16 outputs per row.
using GridTileSums = int32_t[2][kGridTileRows][16];

// Tiles 0 to 3: sums of strip 0 (high, low), then of strip 1. 4, 5: high and low digits. 6, 7: weights of both strips.
inline void load_grid_shape(int64_t rows) {
    struct alignas(64) Shape {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {};
        uint8_t rows[16] = {};
    } shape;
    for (int t = 0; t < 8; ++t) {
        shape.row_bytes[t] = 64;
        shape.rows[t] = static_cast<uint8_t>(t < 6 ? rows : 16);
    }
    asm volatile("" : : "r"(&shape) : "memory");  // the intrinsic tells the compiler of eight bytes only
    _tile_loadconfig(&shape);
}

template <int strips>
inline void clear_sums() {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (strips == 2) {
        _tile_zero(2);
        _tile_zero(3);
    }
}

// Tile loads do not tell the compiler what they read: memory must be up to date before.
template <int strips>
inline void block_products(const int8_t* digits, int64_t stride, const uint8_t* const (&b)[2]) {
    _tile_loadd(4, digits, stride);
    _tile_loadd(6, b[0], 64);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(5, digits + stride / 2, stride);
    _tile_dpbsud(1, 5, 6);
    if constexpr (strips == 2) {
        _tile_loadd(7, b[1], 64);
        _tile_dpbsud(2, 4, 7);
        _tile_dpbsud(3, 5, 7);
    }
}

template <int strips>
inline void save_sums(GridTileSums (&sums)[2]) {
    _tile_stored(0, sums[0][0], 64);
    _tile_stored(1, sums[0][1], 64);
    if constexpr (strips == 2) {
        _tile_stored(2, sums[1][0], 64);
        _tile_stored(3, sums[1][1], 64);
    }
    asm volatile("" : : "r"(&sums) : "memory");
}

}  // namespace swiftsure::SWIFTSURE_ISA
