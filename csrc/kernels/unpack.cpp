// One row of a packed matrix as floats, for embedding look-ups. Exact but for types with minima, where scale * integer + minimum is
// rounded once, and for row-grid types, where scale * integer is.
#include "kernels/families.h"
#include "kernels/row_weights.h"
#include "kernels/strip_out.h"

namespace swiftsure::SWIFTSURE_ISA {
namespace {

// Only lane `lane` of 16 half floats; the conversion is the vector one so that special values come out alike.
inline float half_lane(const uint8_t* p, int64_t lane) {
    alignas(64) float value[16];
    store(value, load_f16(reinterpret_cast<const uint16_t*>(p)));
    return value[lane];
}

// Integers of the 32 columns of row `lane`, in natural order.
inline void unpack_group(TensorType type, const uint8_t* group, int64_t lane, int32_t* w) {
    const GroupFormat format = group_format(type);
    const int64_t extra = format.bits - 4, vectors = extra == 0 ? 4 : 4 / extra;  // vectors of nibbles that a plane serves
    for (int64_t c = 0; c < 32; ++c) {
        const int64_t j = (format.bits == 8 ? c : c % 16) / 4, at = 4 * lane + c % 4;
        if (format.bits == 8) {
            w[c] = static_cast<int8_t>(group[64 * j + at]);
            continue;
        }
        const uint8_t byte = group[64 * j + at];
        w[c] = (c < 16 ? byte & 15 : byte >> 4) - format.offset;
        if (extra > 0) {
            const int32_t plane = group[kNibbleBytes + kPlaneBytes * (j / vectors) + at];
            w[c] += (plane >> (extra * (j % vectors) + (c < 16 ? 0 : 4)) & ((1 << extra) - 1)) << 4;
        }
    }
}

// Scale of columns 0..15 and 16..31 and the minimum of row `lane` in a group. Products are exact.
struct LaneScales {
    float scale[2], minimum;
};

LaneScales scales_of(TensorType type, const uint8_t* strip, int64_t group, int64_t lane) {
    const GroupFormat format = group_format(type);
    const uint8_t* own = strip + group_offset(type, group) + integer_bytes(type);
    if (!format.super_block) {
        const float scale = half_lane(own, lane);
        return {{scale, scale}, format.minimum ? half_lane(own + kScaleBytes, lane) : 0.0f};
    }
    const uint8_t* common = strip + common_offset(type, group);
    const int8_t* factors = reinterpret_cast<const int8_t*>(own) + lane;
    const float d = half_lane(common, lane), first = d * static_cast<float>(factors[0]), factor = static_cast<float>(factors[kFactorBytes]);
    if (has_half_scales(type)) return {{first, d * factor}, 0.0f};
    return {{first, first}, half_lane(common + kScaleBytes, lane) * factor};
}

void unpack_blocks(const PackedMatrix& w, const uint8_t* strip, int64_t lane, float* out) {
    const bool has_minimum = group_format(w.type).minimum;
    for (int64_t g = 0; g < w.k / 32; ++g) {
        int32_t integers[32];
        unpack_group(w.type, strip + group_offset(w.type, g), lane, integers);
        const LaneScales scales = scales_of(w.type, strip, g, lane);
        for (int64_t half = 0; half < 2; ++half) {
            const f32x16 product = mul(to_f32(load_i32(integers + 16 * half)), splat(scales.scale[half]));
            store(out + 32 * g + 16 * half, canonical_nan(has_minimum ? add(product, splat(scales.minimum)) : product));
        }
    }
}

void unpack_grid(const PackedMatrix& w, const uint8_t* strip, int64_t lane, float* out) {
    float scale;
    std::memcpy(&scale, strip + w.strip_bytes - kGridScaleBytes + 4 * lane, 4);
    uint8_t unpacked[kStripRows * kBlockColumns];
    for (int64_t c = 0; c < w.k; ++c) {
        const uint8_t* block = strip + c / kBlockColumns * grid_block_bytes(w.type);
        if (w.type == TensorType::R4 && c % kBlockColumns == 0) unpack_block(block, unpacked);
        const uint8_t* bytes = w.type == TensorType::R4 ? unpacked : block;
        out[c] = scale * static_cast<float>(bytes[c % kBlockColumns / 4 * 64 + 4 * lane + c % 4] - 128);
    }
}

void unpack_floats(const PackedMatrix& w, const uint8_t* strip, int64_t lane, float* out) {
    for (int64_t c = 0; c < w.k; ++c) {
        if (w.type == TensorType::F32) {
            std::memcpy(out + c, strip + (c * kStripRows + lane) * 4, 4);
        } else if (w.type == TensorType::F16) {
            out[c] = half_lane(strip + c * kStripRows * 2, lane);
        } else {
            uint16_t upper;
            std::memcpy(&upper, strip + (c * kStripRows + lane) * 2, 2);
            const uint32_t bits = static_cast<uint32_t>(upper) << 16;
            std::memcpy(out + c, &bits, 4);
        }
    }
}

}  // namespace

void unpack_row(const PackedMatrix& w, int64_t n, float* out) {
    const uint8_t* strip = w.data + n / kStripRows * w.strip_bytes;
    if (is_row_grid(w.type))
        unpack_grid(w, strip, n % kStripRows, out);
    else if (is_quantized(w.type))
        unpack_blocks(w, strip, n % kStripRows, out);
    else
        unpack_floats(w, strip, n % kStripRows, out);
}

}  // namespace swiftsure::SWIFTSURE_ISA
