// Rows of activations quantized for integer matmuls.
#pragma once

#include <cstdint>

namespace swiftsure {

constexpr int64_t kGroup = 32;              // activations that share a scale; also the weight group of Q4_0, Q4_1 and Q8_0
constexpr int64_t kGroupPayloadBytes = 64;  // 32 values of two bytes, in the order the instruction set's kernel wants them

// One row. The payload's byte order is private to the instruction set (16-bit integers, or a plane of high and one of low digits).
struct ActivationRow {
    uint8_t* payload;   // (groups, 64), 64-byte aligned
    float* scale;       // (groups,)   x ~ scale * q
    float* scaled_sum;  // (groups,)   scale * float(sum of q)
    int32_t* sum;       // (groups,)   sum of q
};

struct Activations {
    const uint8_t* payload;   // (rows, groups, 64)
    const float* scale;       // (rows, groups)
    const float* scaled_sum;  // (rows, groups)
    const int32_t* sum;       // (rows, groups)
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

}  // namespace swiftsure
