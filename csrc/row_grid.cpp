#include "row_grid.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "activations.h"
#include "file_blocks.h"

namespace swiftsure {
namespace {

constexpr float kMaxLevel = 127.0f, kMaxFactor = 255.0f;
constexpr float kSmallest = 1e-30f;  // as for rows of activations

// --- reading file types ------------------------------------------------------------------------------------------------------

float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

float half_at(const uint8_t* p) {
    uint16_t half;
    std::memcpy(&half, p, 2);
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, rest = half & 0x7FFFu;
    if (rest >= 0x7C00u) return from_bits(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
    return from_bits(sign | 0x3F800000u) * (from_bits(rest << 13) * 0x1p112f);  // exact, subnormal halves too
}

float float_at(TensorType type, const uint8_t* p) {
    if (type == TensorType::F16) return half_at(p);
    uint32_t bits = 0;
    if (type == TensorType::F32) {
        std::memcpy(&bits, p, 4);
    } else {
        uint16_t upper;
        std::memcpy(&upper, p, 2);
        bits = static_cast<uint32_t>(upper) << 16;
    }
    return from_bits(bits);
}

// A group of 32 columns on 16 levels d * q + m, d >= 0.
struct Levels {
    float d = 0.0f, m = 0.0f;
    uint8_t q[kGroup] = {};
    uint8_t lowest = 0, highest = 0;  // q in use
};

void find_range(Levels& levels) {
    levels.lowest = *std::min_element(levels.q, levels.q + kGroup);
    levels.highest = *std::max_element(levels.q, levels.q + kGroup);
}

// A group of 32 columns of a row of any block type: integers as they are stored and what they stand for, scale[half] * q + minimum.
struct FileGroup {
    uint8_t q[kGroup];
    float scale[2], minimum;
};

FileGroup read_group(TensorType type, const uint8_t* row, int64_t index) {
    const GroupFormat format = group_format(type);
    const int64_t groups = block_columns(type) / kGroup, within = index % groups;
    const uint8_t* block = row + index / groups * file_block_bytes(type);
    FileGroup group;
    read_integers(type, block, within, group.q);
    const float d = half_at(block + file_scale_offset(type)), minimum = format.minimum ? half_at(block + 2) : 0.0f;
    if (format.super_block) {
        const GroupFactors factors = read_factors(type, block, within);
        for (int64_t half = 0; half < 2; ++half) group.scale[half] = d * static_cast<float>(factors.scale[half]);
        group.minimum = -minimum * static_cast<float>(factors.minimum);
    } else {
        group.scale[0] = group.scale[1] = d;
        group.minimum = minimum;
    }
    return group;
}

// The levels of a group of a type of four bits.
void read_levels(TensorType type, const uint8_t* row, int64_t index, Levels& levels) {
    const FileGroup group = read_group(type, row, index);
    levels.d = group.scale[0];
    levels.m = group_format(type).minimum ? group.minimum : static_cast<float>(-group_format(type).offset) * levels.d;
    std::memcpy(levels.q, group.q, sizeof levels.q);
    if (levels.d < 0.0f) {  // the same levels, counted from the other end
        levels.m += 15.0f * levels.d;
        levels.d = -levels.d;
        for (uint8_t& q : levels.q) q = static_cast<uint8_t>(15 - q);
    }
    find_range(levels);
}

void read_values(TensorType type, const uint8_t* row, int64_t k, float* out) {
    if (!is_quantized(type)) {
        const int64_t size = source_bytes(type, 1, 1);
        for (int64_t c = 0; c < k; ++c) out[c] = float_at(type, row + c * size);
        return;
    }
    const int32_t offset = group_format(type).offset;
    for (int64_t g = 0; g < k / kGroup; ++g) {
        const FileGroup group = read_group(type, row, g);
        for (int64_t i = 0; i < kGroup; ++i) {
            const int32_t q = type == TensorType::Q8_0 ? static_cast<int8_t>(group.q[i]) : group.q[i] - offset;
            out[g * kGroup + i] = group.scale[i / 16] * static_cast<float>(q) + group.minimum;
        }
    }
}

// --- sixteen levels for 32 values --------------------------------------------------------------------------------------------

// Nearest of the levels lowest + step * 0..15, then the d and m that fit these choices best; returns the squared error.
float fit_levels(const float* v, float lowest, float step, Levels& levels) {
    float q_sum = 0.0f, qq_sum = 0.0f, v_sum = 0.0f, qv_sum = 0.0f;
    for (int64_t i = 0; i < kGroup; ++i) {
        const float at = std::min(std::max((v[i] - lowest) / step + 0.5f, 0.0f), 15.5f);
        levels.q[i] = static_cast<uint8_t>(at);
        const float q = static_cast<float>(levels.q[i]);
        q_sum += q, qq_sum += q * q, v_sum += v[i], qv_sum += q * v[i];
    }
    const float spread = kGroup * qq_sum - q_sum * q_sum;
    levels.d = spread > 0.0f ? (kGroup * qv_sum - q_sum * v_sum) / spread : 0.0f;
    if (!(levels.d > 0.0f)) levels.d = 0.0f;
    levels.m = (v_sum - levels.d * q_sum) / kGroup;
    float error = 0.0f;
    for (int64_t i = 0; i < kGroup; ++i) {
        const float missed = levels.d * static_cast<float>(levels.q[i]) + levels.m - v[i];
        error += missed * missed;
    }
    return error;
}

// Levels from the least to the greatest value, or over a range shortened at both ends, whichever errs least. The values are in [-1, 1].
void choose_levels(const float* v, Levels& levels) {
    const float low = *std::min_element(v, v + kGroup), high = *std::max_element(v, v + kGroup), range = high - low;
    if (!(range > 0.0f)) {
        levels = {};
        levels.m = low;
        return;
    }
    constexpr float cuts[] = {0.0f, 0.02f, 0.04f, 0.07f};
    float least = std::numeric_limits<float>::infinity();
    for (float cut : cuts) {
        Levels tried;
        const float error = fit_levels(v, low + cut * range, (1.0f - 2.0f * cut) * range / 15.0f, tried);
        if (error < least) {
            least = error;
            levels = tried;
        }
    }
    find_range(levels);
}

// --- onto the grid of the row ------------------------------------------------------------------------------------------------

struct Factors {
    int32_t a = 0, b = 0;
};

constexpr int32_t step_of(int32_t a, int32_t q) { return (a * q + 8) >> 4; }

// d and m count in units of the row's scale.
Factors choose_factors(const Levels& levels, float d, float m) {
    float used[16] = {};
    for (uint8_t q : levels.q) used[q] += 1.0f;
    const int32_t below = std::min(static_cast<int32_t>(16.0f * d), static_cast<int32_t>(kMaxFactor));
    Factors best;
    float least = std::numeric_limits<float>::infinity();
    for (int32_t a = below; a <= std::min<int32_t>(below + 1, 255); ++a) {
        float missed[16], mean = 0.0f, error = 0.0f;
        for (int32_t q = 0; q < 16; ++q) {
            missed[q] = d * static_cast<float>(q) + m - static_cast<float>(step_of(a, q));
            mean += used[q] * missed[q];
        }
        const int32_t b = std::clamp(static_cast<int32_t>(std::lrintf(mean / kGroup)), -128 - step_of(a, levels.lowest),
                                     127 - step_of(a, levels.highest));
        for (int32_t q = 0; q < 16; ++q) {
            const float rest = missed[q] - static_cast<float>(b);
            error += used[q] * rest * rest;
        }
        if (error < least) {
            least = error;
            best = {a, b};
        }
    }
    return best;
}

// Where row n of a packed matrix lies.
struct Place {
    uint8_t* strip;
    int64_t row;  // within the strip
    float* scale;
};

Place place_of(TensorType type, int64_t n, int64_t k, uint8_t* data) {
    const int64_t blocks_bytes = grid_blocks(k) * grid_block_bytes(type), row = n % kStripRows;
    uint8_t* strip = data + n / kStripRows * (blocks_bytes + kGridScaleBytes);
    return {strip, row, reinterpret_cast<float*>(strip + blocks_bytes) + row};
}

// The scale, given a row's largest magnitude and the least scale it needs otherwise; NaN or 0 where weights cannot be scaled.
float row_scale(float largest, float least) {
    if (!std::isfinite(largest)) return std::numeric_limits<float>::quiet_NaN();
    return largest < kSmallest ? 0.0f : std::max(largest / kMaxLevel, least);
}

// Largest magnitude; infinite when any value is not finite.
float largest_of(const std::vector<float>& values) {
    float largest = 0.0f;
    for (float v : values) largest = std::isfinite(v) ? std::max(largest, std::fabs(v)) : std::numeric_limits<float>::infinity();
    return largest;
}

void pack_8_bit(const std::vector<float>& values, int64_t k, Place at) {
    const float scale = row_scale(largest_of(values), 0.0f);
    *at.scale = scale;
    for (int64_t c = 0; c < k; ++c) {
        const int64_t w = scale > 0.0f ? std::clamp<int64_t>(std::lrintf(values[static_cast<size_t>(c)] / scale), -127, 127) : 0;
        at.strip[c / 4 * 64 + 4 * at.row + c % 4] = static_cast<uint8_t>(w + 128);
    }
}

void pack_4_bit(const std::vector<Levels>& groups, Place at) {
    float largest = 0.0f, step = 0.0f;
    bool finite = true;
    for (const Levels& g : groups) {
        const float low = g.d * static_cast<float>(g.lowest) + g.m, high = g.d * static_cast<float>(g.highest) + g.m;
        finite = finite && std::isfinite(low) && std::isfinite(high);
        largest = std::max({largest, std::fabs(low), std::fabs(high)});
        if (g.lowest < g.highest) step = std::max(step, g.d);
    }
    const float scale = row_scale(finite ? largest : std::numeric_limits<float>::infinity(), step * (16.0f / kMaxFactor));
    *at.scale = scale;
    for (size_t index = 0; index < groups.size(); ++index) {
        const Levels& g = groups[index];
        const int64_t t = at.row % 4, l = at.row / 4, half = static_cast<int64_t>(index % 2);
        uint8_t* block = at.strip + static_cast<int64_t>(index / 2) * grid_block_bytes(TensorType::R4);
        uint8_t* nibbles = block + kNibbleBytes * half + 64 * t + 16 * l;
        uint8_t* factors = block + 2 * kNibbleBytes + kGroupLevelBytes * half + 4 * t + l;
        for (int64_t c = 0; c < kGroup / 2; ++c) nibbles[c] = static_cast<uint8_t>(g.q[c] | g.q[kGroup / 2 + c] << 4);
        const bool single = g.lowest == g.highest;  // one level: m alone says it
        const float d = single ? 0.0f : g.d, m = single ? g.d * static_cast<float>(g.lowest) + g.m : g.m;
        const Factors f = scale > 0.0f ? choose_factors(g, d / scale, m / scale) : Factors{};
        factors[0] = static_cast<uint8_t>(f.a);
        factors[16] = static_cast<uint8_t>(f.b + 128);
    }
}

// The row's values on levels; the last group is filled up with the row's last value, which adds no level.
void level_values(std::vector<float>& values, std::vector<Levels>& groups) {
    const float largest = largest_of(values), unit = largest >= kSmallest ? largest : 1.0f;
    if (!std::isfinite(largest)) {
        groups.assign(groups.size(), {});
        groups[0].m = largest;
        return;
    }
    values.resize(groups.size() * kGroup, values.back());
    for (float& v : values) v /= unit;  // squares of the largest floats would overflow
    for (size_t g = 0; g < groups.size(); ++g) {
        choose_levels(values.data() + g * kGroup, groups[g]);
        groups[g].d *= unit;
        groups[g].m *= unit;
    }
}

}  // namespace

void pack_grid_rows(TensorType type, TensorType source_type, const uint8_t* source, int64_t rows, int64_t k, int64_t first_row,
                    uint8_t* data) {
    const bool has_levels = group_format(source_type).bits == 4;
    const int64_t row_bytes = source_bytes(source_type, 1, k), groups = (k + kGroup - 1) / kGroup;
    std::vector<float> values(static_cast<size_t>(k));
    std::vector<Levels> levels(static_cast<size_t>(groups));
    for (int64_t row = 0; row < rows; ++row, source += row_bytes) {
        const Place place = place_of(type, first_row + row, k, data);
        if (type == TensorType::R4 && has_levels) {
            for (int64_t g = 0; g < groups; ++g) read_levels(source_type, source, g, levels[static_cast<size_t>(g)]);
            pack_4_bit(levels, place);
            continue;
        }
        values.resize(static_cast<size_t>(k));
        read_values(source_type, source, k, values.data());
        if (type == TensorType::R8) {
            pack_8_bit(values, k, place);
        } else {
            level_values(values, levels);
            pack_4_bit(levels, place);
        }
    }
}

}  // namespace swiftsure
