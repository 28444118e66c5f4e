// Weights in the order the kernels stream them: strips of 16 output rows, one layout for all instruction sets.
//
// Block types, per strip and group of 32 columns:
//   Q4_0, Q4_1  256 B of nibbles: vector j (64 B), byte 4n+i holds columns 4j+i (low nibble) and 16+4j+i (high nibble) of row n;
//               then 16 float16 scales (32 B); for Q4_1 then 16 float16 minima (32 B).
//   Q5_0, Q5_1  as Q4_0 and Q4_1, with a plane of fifth bits (64 B) after the nibbles: byte 4n+i of row n holds, for vector j of nibbles,
//               that of column 4j+i in bit j and that of column 16+4j+i in bit 4+j.
//   Q8_0        512 B of int8: vector j (64 B), byte 4n+i holds column 4j+i of row n; then 16 float16 scales (32 B).
// Super-block types, per strip and 256 columns: eight groups of 32, each with integers of its own as above and small factors of its scale,
// then what is common to the eight. Products of a scale and a factor are exact in float32.
//   Q4_K, Q5_K  a group ends in 16 bytes sc and 16 bytes m in [0, 63]; at the end 16 float16 d (32 B) and 16 float16 -dmin (32 B). A weight
//               is d * sc times its integer plus -dmin * m.
//   Q6_K        two planes of two bits (128 B) after the nibbles: byte 4n+i of plane p holds those of column 8p+4h+i in bits 2h, 2h+1 and
//               those of column 16+8p+4h+i in bits 4+2h, 5+2h, for h = 0, 1; then 16 int8 sc of columns 0..15 and 16 of columns 16..31. At
//               the end 16 float16 d (32 B). A weight is d * sc times its integer.
// Integers of Q4_0, Q5_0 and Q6_K are stored with 8, 16 and 32 added.
// F32, F16, BF16: (k, 16), the rows of the strip beside each other.
//
// Row-grid types: the weights of an output row are integers w in [-128, 127] times one float32 scale of the row, kept as w + 128. A strip
// is blocks of 64 columns (the last one filled up), then 16 float32 scales (64 B). Made at load from the types above (row_grid.h).
//   R8  1024 B a block: vector j (64 B), byte 4n+i holds column 4j+i of row n.
//   R4  576 B a block, for two groups of 32 columns: w = b + ((a * q + 8) >> 4) of a nibble q and, per row and group, a in [0, 255] and b.
//       256 B of nibbles a group: byte 64t + 16l + c holds columns c (low nibble) and 16+c of row 4l+t; then, for each group, 16 B of a
//       and 16 B of b + 128, byte 4t+l for row 4l+t.
//
// The kernels take any range of strips. They ask for weights kPrefetchBytes ahead of use, beyond the end of the range too; a thread should
// go on with the range that follows, so that little of what it asks for is another's. kStripsPerChunk strips are worth a claim.
#pragma once

#include <cstdint>

namespace swiftsure {

enum class TensorType : int32_t { F32, F16, BF16, Q8_0, Q4_0, Q4_1, R8, R4, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K };

constexpr int64_t kStripRows = 16;
constexpr int64_t kPrefetchBytes = 8192;  // far enough ahead to hide DRAM, near enough to stay in L1
constexpr int64_t kStripsPerChunk = 4;

constexpr int64_t kNibbleBytes = 256;  // of one group of 32 columns of a strip
constexpr int64_t kPlaneBytes = 64;    // one bit of each weight of a group
constexpr int64_t kInt8Bytes = 512;
constexpr int64_t kScaleBytes = 32;  // 16 float16
constexpr int64_t kFactorBytes = 16;
constexpr int64_t kSuperGroups = 8;  // of a super-block

// How a type writes weights down: groups of 32 columns, or eight of them with what they have in common.
struct GroupFormat {
    int64_t bits;      // of an integer; 0 for types without groups
    int32_t offset;    // what is added to an integer to store it
    bool minimum;      // a minimum is added to scale times integer
    bool super_block;  // scales are d times a small factor
};

constexpr GroupFormat group_format(TensorType type) {
    switch (type) {
        case TensorType::Q8_0:
            return {8, 0, false, false};
        case TensorType::Q4_0:
            return {4, 8, false, false};
        case TensorType::Q4_1:
            return {4, 0, true, false};
        case TensorType::Q5_0:
            return {5, 16, false, false};
        case TensorType::Q5_1:
            return {5, 0, true, false};
        case TensorType::Q4_K:
            return {4, 0, true, true};
        case TensorType::Q5_K:
            return {5, 0, true, true};
        case TensorType::Q6_K:
            return {6, 32, false, true};
        default:
            return {};  // float and row-grid types have no groups
    }
}

// Columns 0..15 and 16..31 of a group have a scale each.
constexpr bool has_half_scales(TensorType type) { return type == TensorType::Q6_K; }

// Bytes of the integers of a group, which its scales or factors follow.
constexpr int64_t integer_bytes(TensorType type) {
    const int64_t bits = group_format(type).bits;
    return bits == 8 ? kInt8Bytes : bits == 0 ? 0 : kNibbleBytes + (bits - 4) * kPlaneBytes;
}

constexpr int64_t group_bytes(TensorType type) {
    const GroupFormat format = group_format(type);
    if (format.bits == 0) return 0;
    return integer_bytes(type) + (format.super_block ? 2 * kFactorBytes : format.minimum ? 2 * kScaleBytes : kScaleBytes);
}

// Columns that are written down together, in files as in strips, and the bytes they take in a strip.
constexpr int64_t block_columns(TensorType type) { return group_format(type).super_block ? 256 : 32; }
constexpr int64_t block_bytes(TensorType type) {
    const GroupFormat format = group_format(type);
    return format.super_block ? kSuperGroups * group_bytes(type) + (format.minimum ? 2 * kScaleBytes : kScaleBytes) : group_bytes(type);
}

// Where group `group` of a strip begins, and what its super-block has in common.
constexpr int64_t group_offset(TensorType type, int64_t group) {
    if (!group_format(type).super_block) return group * group_bytes(type);
    return group / kSuperGroups * block_bytes(type) + group % kSuperGroups * group_bytes(type);
}
constexpr int64_t common_offset(TensorType type, int64_t group) {
    return group / kSuperGroups * block_bytes(type) + kSuperGroups * group_bytes(type);
}

// Quantized group by group; activations are, too.
constexpr bool is_quantized(TensorType type) { return group_format(type).bits != 0; }

constexpr int64_t kBlockColumns = 64;       // of a block of a row-grid type, and of rows of digits
constexpr int64_t kGridScaleBytes = 64;     // 16 float32 scales at the end of a strip
constexpr int64_t kGroupLevelBytes = 32;    // R4: a and b of 16 rows
constexpr int64_t kMaxGridColumns = 65536;  // 255 * 128 * 65536 < 2^31: integer sums of a whole row fit

// Bytes of a block of 64 columns of a strip; 0 when the type is not a row-grid type.
constexpr int64_t grid_block_bytes(TensorType type) {
    if (type == TensorType::R8) return kStripRows * kBlockColumns;
    return type == TensorType::R4 ? 2 * (kNibbleBytes + kGroupLevelBytes) : 0;
}

constexpr bool is_row_grid(TensorType type) { return grid_block_bytes(type) != 0; }

constexpr int64_t grid_blocks(int64_t k) { return k / kBlockColumns + (k % kBlockColumns != 0); }

struct PackedMatrix {
    TensorType type;
    int64_t n;       // output rows
    int64_t k;       // input columns
    int64_t strips;  // ceil(n / 16); rows past n are zero
    int64_t strip_bytes;
    const uint8_t* data;  // (strips, strip_bytes), 64-byte aligned
};

// Bytes that `rows` rows of k columns take in a model file; 0 when the shape does not fit the type (k not whole blocks) or 63 bits, and
// for row-grid types, which no file has.
int64_t source_bytes(TensorType type, int64_t rows, int64_t k);
// Bytes that packing `type` of shape (n, k) takes; 0 when the shape does not fit the type (k <= 65536 for row-grid types) or 63 bits.
int64_t packed_bytes(TensorType type, int64_t n, int64_t k);
// Packs `source` (the file's own layout, row-major blocks) into `data`. Rows [first_row, first_row + rows) of the packed matrix, so that
// q, k and v may share one matrix. Touches those rows only; the memory of rows that are never packed must be zero from the start.
// Not for row-grid types: row_grid.h.
void pack_rows(TensorType type, const uint8_t* source, int64_t rows, int64_t k, int64_t first_row, uint8_t* data);

}  // namespace swiftsure
