// Weights in the order the kernels stream them: strips of 16 output rows, one layout for all instruction sets.
//
// Block types, per strip and group of 32 columns:
//   Q4_0, Q4_1  256 B of nibbles: vector j (64 B), byte 4n+i holds columns 4j+i (low nibble) and 16+4j+i (high nibble) of row n;
//               then 16 float16 scales (32 B); for Q4_1 then 16 float16 minima (32 B).
//   Q8_0        512 B of int8: vector j (64 B), byte 4n+i holds column 4j+i of row n; then 16 float16 scales (32 B).
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

enum class TensorType : int32_t { F32, F16, BF16, Q8_0, Q4_0, Q4_1, R8, R4 };

constexpr int64_t kStripRows = 16;
constexpr int64_t kPrefetchBytes = 8192;  // far enough ahead to hide DRAM, near enough to stay in L1
constexpr int64_t kStripsPerChunk = 4;

// Bytes of one group of 32 columns of a strip: the integers, then the float16 scales, then (Q4_1) the float16 minima.
constexpr int64_t kNibbleBytes = 256;
constexpr int64_t kInt8Bytes = 512;
constexpr int64_t kScaleBytes = 32;

constexpr int64_t group_bytes(TensorType type) {
    switch (type) {
        case TensorType::Q8_0:
            return kInt8Bytes + kScaleBytes;
        case TensorType::Q4_0:
            return kNibbleBytes + kScaleBytes;
        case TensorType::Q4_1:
            return kNibbleBytes + 2 * kScaleBytes;
        default:
            return 0;  // float and row-grid types have no groups
    }
}

// Quantized group by group; activations are, too.
constexpr bool is_quantized(TensorType type) { return group_bytes(type) != 0; }

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

// Bytes that `rows` rows of k columns take in a model file; 0 when the shape does not fit the type (k % 32 for block types) or 63 bits, and
// for row-grid types, which no file has.
int64_t source_bytes(TensorType type, int64_t rows, int64_t k);
// Bytes that packing `type` of shape (n, k) takes; 0 when the shape does not fit the type (k <= 65536 for row-grid types) or 63 bits.
int64_t packed_bytes(TensorType type, int64_t n, int64_t k);
// Packs `source` (the file's own layout, row-major blocks) into `data`. Rows [first_row, first_row + rows) of the packed matrix, so that
// q, k and v may share one matrix. Touches those rows only; the memory of rows that are never packed must be zero from the start.
// Not for row-grid types: row_grid.h.
void pack_rows(TensorType type, const uint8_t* source, int64_t rows, int64_t k, int64_t first_row, uint8_t* data);

}  // namespace swiftsure
