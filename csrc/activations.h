// Rows of activations quantized for integer matmuls.
#pragma once

#include <algorithm>
#include <cstdint>

namespace swiftsure {

constexpr int64_t kGroup = 32;              // activations that share a scale; also the weight group of quantized types
constexpr int64_t kGroupPayloadBytes = 64;  // 32 values of two bytes, in the order the instruction set's kernel wants them

// So many rows also lie as tile rows, for instruction sets with tiles: 64 bytes per group, row and digit, in which the digits of an even
// group fill the first half, those of an odd one the second, and the other half is zero.
constexpr int64_t kMinPairedRows = 3, kMaxPairedRows = 8;
constexpr int64_t kTileRowBytes = 64;
// Floats from row to row of their scales, known when kernels are compiled: rows lie apart, because threads write them at the same time, and
// not by a power of two, because one group of all rows is read at a time.
constexpr int64_t kMaxPairedGroups = 512, kTileScaleStride = 2 * kMaxPairedGroups + 16;

// One row. The payload's byte order is private to the instruction set (16-bit integers, or a plane of high and one of low digits).
struct ActivationRow {
    uint8_t* payload;    // (groups, 64), 64-byte aligned
    float* scale;        // (groups,)   x ~ scale * q
    float* scaled_sum;   // (groups,)   scale * float(sum of q)
    int32_t* sum;        // (groups,)   sum of q
    int32_t* half_sum;   // (groups,)   sum of its first 16
    uint8_t* tiles;      // its tile rows of the first group, high digits, then low ones; null when none are wanted
    float* tile_scales;  // for each group its scale and its scaled sum
    int64_t rows;        // in tiles
    bool odd;            // the number of the first group
};

struct Activations {
    const uint8_t* payload;    // (rows, groups, 64)
    const float* scale;        // (rows, groups)
    const float* scaled_sum;   // (rows, groups)
    const int32_t* sum;        // (rows, groups)
    const int32_t* half_sum;   // (rows, groups)
    const uint8_t* tiles;      // (groups, rows, 2, 64), or null
    const float* tile_scales;  // (rows, kTileScaleStride / 2, 2) scales and scaled sums
    int64_t rows;
    int64_t groups;
};

// --- for row-grid weights: one scale a row ---

// One row: its high digits, then its low ones, q = 256 * high + low with low in [-128, 127]; zeros fill up the last 64 columns of each.
struct GridRow {
    int8_t* digits;   // (2, columns), 64-byte aligned; columns: k rounded up to a multiple of 64
    float* scale;     // x ~ scale * q
    int32_t* excess;  // (2,) 128 times the sum of the high and of the low digits: what weights w + 128 give too much
};

struct GridActivations {
    const int8_t* digits;   // (rows, 2, columns)
    const float* scale;     // (rows,)
    const int32_t* excess;  // (rows, 2)
    int64_t rows;
    int64_t columns;
};

// Where the quantized rows of a pass lie: `groups` groups of each of `rows` rows.
struct ActivationMemory {
    uint8_t* payload;
    float *scale, *scaled_sum;
    int32_t *sum, *half_sum;
    uint8_t* tiles;

    // Bytes of scales and sums a group of a row.
    static constexpr int64_t kNumberBytes = 4 * sizeof(float);
    // Bytes of tiles for rows of so many groups; their scales lie behind them.
    static constexpr int64_t tile_bytes(int64_t groups) {
        return kMaxPairedRows *
               (std::min(groups, kMaxPairedGroups) * 2 * kTileRowBytes + kTileScaleStride * static_cast<int64_t>(sizeof(float)));
    }

    // A row from group `group` on.
    ActivationRow row(int64_t row, int64_t group, int64_t rows, int64_t groups) const {
        const int64_t at = row * groups + group;
        const bool paired = is_paired(rows, groups);
        return {payload + at * kGroupPayloadBytes,
                scale + at,
                scaled_sum + at,
                sum + at,
                half_sum + at,
                paired ? tiles + (group * rows + row) * 2 * kTileRowBytes : nullptr,
                paired ? tile_scales(rows, groups) + row * kTileScaleStride + 2 * group : nullptr,
                rows,
                group % 2 != 0};
    }
    Activations all(int64_t rows, int64_t groups) const {
        const bool paired = is_paired(rows, groups);
        return {payload, scale, scaled_sum, sum, half_sum, paired ? tiles : nullptr, paired ? tile_scales(rows, groups) : nullptr,
                rows,    groups};
    }

  private:
    static bool is_paired(int64_t rows, int64_t groups) {
        return rows >= kMinPairedRows && rows <= kMaxPairedRows && groups % 2 == 0 && groups <= kMaxPairedGroups;
    }
    float* tile_scales(int64_t rows, int64_t groups) const { return reinterpret_cast<float*>(tiles + groups * rows * 2 * kTileRowBytes); }
};

}  // namespace swiftsure
