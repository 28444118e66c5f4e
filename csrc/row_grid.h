// Packing into row-grid types (layout: packed_matrix.h): all weights of an output row as integers of 8 bits with one scale.
#pragma once

#include <cstdint>

#include "packed_matrix.h"

namespace swiftsure {

// Packs rows [first_row, first_row + rows) of a matrix of `type` (R8 or R4) from `source`, rows of k columns of any type that files have.
//
// The scale s of a row is its largest magnitude / 127. R8 rounds every weight to a multiple of s. R4 keeps groups of 32 columns on their 16
// levels d * q + m, those of files of four bits or, for other types, levels chosen for the least squared error, and rounds d to sixteenths
// of s and m to multiples of s so that the squared error over the levels in use is least; s is 16 d / 255 where that is more, so that a
// fits a byte. A weight then misses its level by at most 2.5 s (about 0.4 s on average). A row with a NaN or an infinity gets the scale
// NaN, a row below 1e-30 the scale 0, as rows of activations do.
void pack_grid_rows(TensorType type, TensorType source_type, const uint8_t* source, int64_t rows, int64_t k, int64_t first_row,
                    uint8_t* data);

}  // namespace swiftsure
