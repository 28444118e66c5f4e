// One row of a packed matrix as floats, for embedding look-ups. Exact but for Q4_1, where scale * nibble + minimum is
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
inline void unpack_group(TensorType type, const uint8_t* block, int64_t lane, int32_t* w) {
    for (int64_t c = 0; c < 32; ++c) {
        if (type == TensorType::Q8_0) {
            w[c] = static_cast<int8_t>(block[c / 4 * 64 + 4 * lane + c % 4]);
            continue;
        }
        const uint8_t byte = block[c % 16 / 4 * 64 + 4 * lane + c % 4];
        w[c] = (c < 16 ? byte & 15 : byte >> 4) - (type == TensorType::Q4_0 ? 8 : 0);
    }
}

void unpack_blocks(const PackedMatrix& w, const uint8_t* strip, int64_t lane, float* out) {
    const int64_t bytes = group_bytes(w.type);
    const int64_t scales = w.type == TensorType::Q8_0 ? kInt8Bytes : kNibbleBytes;
    for (int64_t c = 0; c < w.k; c += 32, strip += bytes) {
        int32_t integers[32];
        unpack_group(w.type, strip, lane, integers);
        const f32x16 scale = splat(half_lane(strip + scales, lane));
        const bool has_minimum = w.type == TensorType::Q4_1;
        const f32x16 minimum = splat(has_minimum ? half_lane(strip + scales + kScaleBytes, lane) : 0.0f);
        for (int64_t half = 0; half < 32; half += 16) {
            const f32x16 product = mul(to_f32(load_i32(integers + half)), scale);
            store(out + c + half, canonical_nan(has_minimum ? add(product, minimum) : product));
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
