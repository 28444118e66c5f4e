// Row-grid weights times rows of digits: exact integer sums over a whole row, scaled once.
//
// Per output element (numerics grid1):
//   out = fma(float(sum of high * w), 256, float(sum of low * w)) * (scale of the weights' row * scale of x's row)
// Weights are multiplied as bytes w + 128; taking off 128 * sum(digits) is exact. Integer sums know no order, so neither the number of
// rows of activations, the range of strips nor the instruction set changes an element.
#include "kernels/families.h"
#include "kernels/prefetch.h"
#include "kernels/row_digits.h"
#include "kernels/row_weights.h"
#include "kernels/strip_out.h"
#if defined(__AMX_INT8__)
#include "kernels/row_tiles.h"
#endif

namespace swiftsure::SWIFTSURE_ISA {
namespace {

#if defined(__AVX512VNNI__)
constexpr int kMaxRows = 8;  // rows of activations that share one unpacking of a block
#else
constexpr int kMaxRows = 4;
#endif
constexpr int64_t kUnpackedBytes = int64_t{1} << 18;  // of unpacked weights on the stack

struct Output {
    float* data;
    int64_t stride;
    bool accumulate;
};

inline const float* strip_scales(const PackedMatrix& w, int64_t strip) {
    return reinterpret_cast<const float*>(w.data + (strip + 1) * w.strip_bytes - kGridScaleBytes);
}

// `sums` of weights that are 128 too large: to row `row` of the output.
inline void store_sums(const PackedMatrix& w, const GridActivations& x, int64_t strip, int64_t row, DigitSums sums, const Output& out) {
    const i32x16 high = sub(sums.high, splat_i32(x.excess[2 * row])), low = sub(sums.low, splat_i32(x.excess[2 * row + 1]));
    const f32x16 sum = fma(to_f32(high), splat(256.0f), to_f32(low));
    const f32x16 v = mul(sum, mul(load(strip_scales(w, strip)), splat(x.scale[row])));
    store_strip(out.data + row * out.stride + strip * kStripRows, v, rows_in_strip(w, strip), out.accumulate);
}

// `rows` rows of x, from `row` on, times one strip, whose blocks lie at `block`. R4 here means that they are to be unpacked. `fresh`:
// blocks are asked for ahead of use.
template <TensorType type, int rows>
void multiply(const PackedMatrix& w, const GridActivations& x, int64_t strip, const uint8_t* block, int64_t row, bool fresh,
              const Output& out) {
    const int64_t stride = 2 * x.columns;
    const int8_t* digits = x.digits + row * stride;
    DigitSums sums[rows];
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) sums[r] = {splat_i32(0), splat_i32(0)};
    for (int64_t column = 0; column < x.columns; column += kBlockColumns, block += grid_block_bytes(type)) {
        if (fresh) ask_ahead<grid_block_bytes(type)>(block);
        if constexpr (type == TensorType::R4) {
            alignas(64) uint8_t unpacked[kStripRows * kBlockColumns];
            unpack_block(block, unpacked);
            dot_block<rows>(unpacked, digits + column, stride, sums);
        } else {
            dot_block<rows>(block, digits + column, stride, sums);
        }
    }
    for (int r = 0; r < rows; ++r) store_sums(w, x, strip, row + r, sums[r], out);
}

#if defined(__AVX512VNNI__)

constexpr int64_t kFewRows = 2;

// One or two rows: weights stay as the tables give them, a row of weights a lane, and digits are laid beside them, 16 columns a lane. The
// four sums of a lane are added at the end.
template <int rows>
void multiply_few(const PackedMatrix& w, const GridActivations& x, int64_t strip, int64_t row, const Output& out) {
    const int64_t stride = 2 * x.columns;
    const int8_t* digits = x.digits + row * stride;
    const uint8_t* block = w.data + strip * w.strip_bytes;
    const LevelTables tables;
    __m512i sums[rows][2][4];
    SWIFTSURE_UNROLL
    for (int i = 0; i < 8 * rows; ++i) sums[i / 8][i / 4 % 2][i % 4] = _mm512_setzero_si512();
    const auto sixteen = [](const int8_t* p) { return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); };
    for (int64_t column = 0; column < x.columns; column += kBlockColumns, block += grid_block_bytes(TensorType::R4)) {
        ask_ahead<grid_block_bytes(TensorType::R4)>(block);
        SWIFTSURE_UNROLL
        for (int half = 0; half < 2; ++half) {
            const uint8_t* factors = block + 2 * kNibbleBytes + kGroupLevelBytes * half;
            SWIFTSURE_UNROLL
            for (int t = 0; t < 4; ++t) {
                const __m512i table = tables.of(factors, t), bytes = _mm512_loadu_si512(block + kNibbleBytes * half + 64 * t);
                const __m512i head = _mm512_shuffle_epi8(table, _mm512_and_si512(bytes, tables.mask));
                const __m512i tail = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(bytes, 4), tables.mask));
                SWIFTSURE_UNROLL
                for (int i = 0; i < 2 * rows; ++i) {
                    const int8_t* at = digits + i / 2 * stride + i % 2 * x.columns + column + kGroup * half;
                    __m512i& sum = sums[i / 2][i % 2][t];
                    sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, head, sixteen(at)), tail, sixteen(at + 16));
                }
            }
        }
    }
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) {
        i32x16 total[2];
        SWIFTSURE_UNROLL
        for (int digit = 0; digit < 2; ++digit) {
            __m512i part[4];
            transpose_lanes(sums[r][digit], part);
            total[digit].v = _mm512_add_epi32(_mm512_add_epi32(part[0], part[1]), _mm512_add_epi32(part[2], part[3]));
        }
        store_sums(w, x, strip, row + r, {total[0], total[1]}, out);
    }
}

#endif

// At most `most` rows.
template <TensorType type, int most = kMaxRows>
void multiply_rows(const PackedMatrix& w, const GridActivations& x, int64_t strip, const uint8_t* blocks, int64_t row, bool fresh,
                   const Output& out) {
    if constexpr (most > 1)
        if (x.rows - row < most) return multiply_rows<type, most - 1>(w, x, strip, blocks, row, fresh, out);
    multiply<type, most>(w, x, strip, blocks, row, fresh, out);
}

// All rows of x times one strip.
template <TensorType type>
void multiply_strip(const PackedMatrix& w, const GridActivations& x, int64_t strip, const Output& out) {
    const uint8_t* blocks = w.data + strip * w.strip_bytes;
#if defined(__AVX512VNNI__)
    if constexpr (type == TensorType::R4) {
        if (x.rows == 1) return multiply_few<1>(w, x, strip, 0, out);
        if (x.rows == kFewRows) return multiply_few<kFewRows>(w, x, strip, 0, out);
    }
#endif
    if (type == TensorType::R8 || x.rows <= kMaxRows || x.columns * kStripRows > kUnpackedBytes) {
        for (int64_t row = 0; row < x.rows; row += kMaxRows) multiply_rows<type>(w, x, strip, blocks, row, row == 0, out);
        return;
    }
    alignas(64) uint8_t unpacked[kUnpackedBytes];
    for (int64_t b = 0; b < x.columns / kBlockColumns; ++b) {
        ask_ahead<grid_block_bytes(type)>(blocks + b * grid_block_bytes(type));
        unpack_block(blocks + b * grid_block_bytes(type), unpacked + b * kStripRows * kBlockColumns);
    }
    for (int64_t row = 0; row < x.rows; row += kMaxRows) multiply_rows<TensorType::R8>(w, x, strip, unpacked, row, false, out);
}

#if defined(__AMX_INT8__)

constexpr int64_t kMinTileRows = 3;
constexpr int64_t kTileStrips = 2;  // multiplied with one tile of digits while all of them are in the first-level cache

// Rows [start, start + rows of a tile) of x; the first `skipped` of them are done already.
struct TileRows {
    int64_t start, skipped, rows;
};

// A tile of rows times one strip or two, whose weights lie as bytes at `b`. `fresh`: the first rows of a strip, whose weights are asked for
// ahead of use and, for R4, unpacked to `b`.
template <TensorType type, int strips, bool fresh>
void multiply_tile(const PackedMatrix& w, const GridActivations& x, int64_t strip, uint8_t* b, int64_t b_bytes, TileRows at,
                   const Output& out) {
    constexpr int64_t block_bytes = kStripRows * kBlockColumns;
    const int64_t stride = 2 * x.columns, blocks = x.columns / kBlockColumns;
    const int8_t* digits = x.digits + at.start * stride;
    alignas(64) GridTileSums sums[2];
    const auto products = [&](int64_t block) {
        const uint8_t* const weights[2] = {b + block * block_bytes, b + b_bytes + block * block_bytes};
        block_products<strips>(digits + block * kBlockColumns, stride, weights);
    };
    clear_sums<strips>();
    for (int64_t block = 0; block < blocks; ++block) {
        if constexpr (fresh) {
            static_assert(strips == 1);  // one stream of weights is faster than two
            const uint8_t* from = w.data + strip * w.strip_bytes + block * grid_block_bytes(type);
            ask_ahead<grid_block_bytes(type)>(from);
            if constexpr (type == TensorType::R4) unpack_block(from, b + block * block_bytes);
            asm volatile("" ::: "memory");
            if (block > 0) products(block - 1);  // one block behind: what was just stored is not yet where tiles are loaded from
        } else {
            products(block);
        }
    }
    if constexpr (fresh) products(blocks - 1);
    save_sums<strips>(sums);
    for (int s = 0; s < strips; ++s)
        for (int64_t r = at.skipped; r < at.rows; ++r)
            store_sums(w, x, strip + s, at.start + r, {load_i32(sums[s][0][r]), load_i32(sums[s][1][r])}, out);
}

template <TensorType type>
void multiply_strips(const PackedMatrix& w, const GridActivations& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    const int64_t b_bytes = type == TensorType::R4 ? x.columns * kStripRows : w.strip_bytes;
    if (x.rows < kMinTileRows || (type == TensorType::R4 && b_bytes > kUnpackedBytes)) {
        for (int64_t strip = strip_begin; strip < strip_end; ++strip) multiply_strip<type>(w, x, strip, out);
        return;
    }
    const int64_t tile_rows = x.rows < kGridTileRows ? x.rows : kGridTileRows;
    const int64_t room = type == TensorType::R4 ? kUnpackedBytes / b_bytes : kTileStrips;
    alignas(64) uint8_t unpacked[type == TensorType::R4 ? kUnpackedBytes : 64];
    load_grid_shape(tile_rows);
    for (int64_t strip = strip_begin; strip < strip_end;) {
        int64_t count = strip_end - strip < kTileStrips ? strip_end - strip : kTileStrips;
        count = count < room ? count : room;
        uint8_t* b = type == TensorType::R4 ? unpacked : const_cast<uint8_t*>(w.data) + strip * w.strip_bytes;
        for (int64_t row = 0; row < x.rows; row += kGridTileRows) {
            const int64_t start = row < x.rows - tile_rows ? row : x.rows - tile_rows;
            const TileRows at = {start, row - start, tile_rows};
            for (int64_t s = 0; s < count;) {
                const bool pair = row > 0 && count - s >= 2;
                const auto tile = row == 0 ? multiply_tile<type, 1, true>
                                  : pair   ? multiply_tile<type, 2, false>
                                           : multiply_tile<type, 1, false>;
                tile(w, x, strip + s, b + s * b_bytes, b_bytes, at, out);
                s += pair ? 2 : 1;
            }
        }
        strip += count;
    }
    _tile_release();
}

#else

template <TensorType type>
void multiply_strips(const PackedMatrix& w, const GridActivations& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    for (int64_t strip = strip_begin; strip < strip_end; ++strip) multiply_strip<type>(w, x, strip, out);
}

#endif

}  // namespace

void matmul_rows(const PackedMatrix& w, const GridActivations& x, int64_t strip_begin, int64_t strip_end, float* out, int64_t out_stride,
                 bool accumulate) {
    const Output output = {out, out_stride, accumulate};
    if (w.type == TensorType::R4)
        multiply_strips<TensorType::R4>(w, x, strip_begin, strip_end, output);
    else
        multiply_strips<TensorType::R8>(w, x, strip_begin, strip_end, output);
}

}  // namespace swiftsure::SWIFTSURE_ISA
