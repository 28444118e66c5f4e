// Rows of activations quantized for integer matmuls.
#pragma once

#include <cstdint>

namespace swiftsure {

constexpr int64_t kGroup = 32;              // activations that share a scale; also the weight group of Q4_0, Q4_1 and Q8_0
constexpr int64_t kGroupPayloadBytes = 64;  // 32 values of two bytes, in the order the instruction set's kernel wants them

// So many rows also lie as tile rows, for instruction sets with tiles: 64 bytes per group, row and digit, in which the digits of an even
// group fill the first half, those of an odd one the second, and the other half is zero.
constexpr int64_t kMinPairedRows = 3, kMaxPairedRows = 8;
constexpr int64_t kTileRowBytes = 64;

// One row. The payload's byte order is private to the instruction set (16-bit integers, or a plane of high and one of low digits).
struct ActivationRow {
    uint8_t* payload;     // (groups, 64), 64-byte aligned
    float* scale;         // (groups,)   x ~ scale * q
    float* scaled_sum;    // (groups,)   scale * float(sum of q)
    int32_t* sum;         // (groups,)   sum of q
    uint8_t* tiles;       // its tile rows of the first group, high digits, then low ones; null when none are wanted
    int64_t tile_stride;  // bytes from group to group
    bool odd;             // the number of the first group
};

struct Activations {
    const uint8_t* payload;   // (rows, groups, 64)
    const float* scale;       // (rows, groups)
    const float* scaled_sum;  // (rows, groups)
    const int32_t* sum;       // (rows, groups)
    const uint8_t* tiles;     // (groups, rows, 2, 64), or null
    int64_t rows;
    int64_t groups;
};

// Where the quantized rows of a pass lie: `groups` groups of each of `rows` rows.
struct ActivationMemory {
    uint8_t* payload;
    float *scale, *scaled_sum;
    int32_t* sum;
    uint8_t* tiles;

    static constexpr int64_t tile_bytes(int64_t groups) { return groups * kMaxPairedRows * 2 * kTileRowBytes; }

    // A row from group `group` on.
    ActivationRow row(int64_t row, int64_t group, int64_t rows, int64_t groups) const {
        const int64_t at = row * groups + group, in_tiles = (group * rows + row) * 2 * kTileRowBytes;
        uint8_t* tile_row = paired(rows, groups) ? tiles + in_tiles : nullptr;
        return {payload + at * kGroupPayloadBytes, scale + at,    scaled_sum + at, sum + at, tile_row,
                rows * 2 * kTileRowBytes,          group % 2 != 0};
    }
    Activations all(int64_t rows, int64_t groups) const {
        return {payload, scale, scaled_sum, sum, paired(rows, groups) ? tiles : nullptr, rows, groups};
    }

  private:
    static bool paired(int64_t rows, int64_t groups) { return rows >= kMinPairedRows && rows <= kMaxPairedRows && groups % 2 == 0; }
};

}  // namespace swiftsure
