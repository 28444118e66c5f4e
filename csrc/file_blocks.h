// Blocks of quantized weights as model files hold them (GGUF; the layouts are those of ggml's reference quantization).
#pragma once

#include <cstdint>

#include "packed_matrix.h"

namespace swiftsure {

// Bytes of block_columns(type) columns of one row; 0 for types without blocks.
constexpr int64_t file_block_bytes(TensorType type) {
    switch (type) {
        case TensorType::Q8_0:
            return 34;
        case TensorType::Q4_0:
            return 18;
        case TensorType::Q4_1:
            return 20;
        case TensorType::Q5_0:
            return 22;
        case TensorType::Q5_1:
            return 24;
        case TensorType::Q4_K:
            return 144;
        case TensorType::Q5_K:
            return 176;
        case TensorType::Q6_K:
            return 210;
        default:
            return 0;
    }
}

// Where a block's float16 scale lies. The minimum, where there is one, follows it.
constexpr int64_t file_scale_offset(TensorType type) { return type == TensorType::Q6_K ? 208 : 0; }

// The 32 integers of group `group` of a block as they are stored, the type's offset included; those of Q8_0 as bytes of int8.
void read_integers(TensorType type, const uint8_t* block, int64_t group, uint8_t* q);

// Factors of one group of a super-block: `scale` of columns 0..15 and 16..31 (alike but for Q6_K), `minimum` counted in dmin.
struct GroupFactors {
    int8_t scale[2];
    int8_t minimum;
};

GroupFactors read_factors(TensorType type, const uint8_t* block, int64_t group);

}  // namespace swiftsure
