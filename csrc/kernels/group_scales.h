// Scales of one group of 32 columns of a strip, and what else the chain of float operations needs of it.
#pragma once

#include "packed_matrix.h"
#include "simd/unroll.h"
#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

struct GroupScales {
    f32x16 scale;   // of columns 0..15 where halves have scales of their own
    f32x16 second;  // the minimum, or the scale of columns 16..31; undefined for types with neither
};

inline f32x16 load_scale(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }

// Exact: 11 bits of a float16 times at most 7 of a factor.
inline f32x16 load_scale(const uint8_t* common, const uint8_t* factors) {
    return mul(load_scale(common), to_f32(load_i8(reinterpret_cast<const int8_t*>(factors))));
}

// Of group `group` of a strip.
template <TensorType type>
SWIFTSURE_INLINE GroupScales load_group_scales(const uint8_t* strip, int64_t group) {
    const uint8_t* own = strip + group_offset(type, group) + integer_bytes(type);
    if constexpr (group_format(type).super_block) {
        const uint8_t* common = strip + common_offset(type, group);
        return {load_scale(common, own), load_scale(has_half_scales(type) ? common : common + kScaleBytes, own + kFactorBytes)};
    } else {
        const f32x16 scale = load_scale(own);
        return {scale, group_format(type).minimum ? load_scale(own + kScaleBytes) : scale};
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
