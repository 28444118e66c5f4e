// Quantized weights times quantized activations: exact integer sums per group of 32, then float scales in one fixed order.
//
// Per output element and group, ascending, from +0 (numerics cpu1):
//   acc = fma(minimum, scaled_sum, acc)                                  types with minima only
//   acc = fma(float(sum of q * w), scale of weights * scale of x, acc)   Q6_K: for columns 0..15, then for columns 16..31
// Lanes are output rows, so neither the number of rows of activations nor the range of strips changes an element.
#include "kernels/digits.h"
#include "kernels/families.h"
#include "kernels/group_scales.h"
#include "kernels/prefetch.h"
#include "kernels/strip_out.h"
#include "simd/unroll.h"
#if defined(__AMX_INT8__)
#include "kernels/matmul_pairs.h"
#include "kernels/matmul_tiles.h"
#elif defined(__AVX512VNNI__)
#include "kernels/matmul_strip_pairs.h"
#endif

namespace swiftsure::SWIFTSURE_ISA {
namespace {

// Rows of activations that share one unpacking of the weights: as many as have registers for their sums.
constexpr int64_t max_rows(TensorType type) { return has_half_scales(type) ? 4 : 8; }

// sum[r] of one group of one strip.
template <TensorType type, int rows>
inline void dot_group(const uint8_t* group, const uint8_t* payload, int64_t stride, const int32_t* q_sum, int64_t groups, i32x16* sum) {
    constexpr GroupFormat format = group_format(type);
    if constexpr (type == TensorType::Q8_0) {
        dot_int8<rows>(group, payload, stride, q_sum, groups, sum);
    } else {
        i32x16 start[rows];
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) start[r] = splat_i32(-format.offset * q_sum[r * groups]);
        dot_integers<format.bits, false, rows>(group, payload, stride, start, sum);
    }
}

// sum[r] of columns 0..15 of a group, sum[rows + r] of columns 16..31.
template <TensorType type, int rows>
inline void dot_halves(const uint8_t* group, const Activations& x, int64_t at, i32x16* sum) {
    constexpr GroupFormat format = group_format(type);
    i32x16 start[2 * rows];
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) {
        const int32_t first = x.half_sum[at + r * x.groups];
        start[r] = splat_i32(-format.offset * first);
        start[rows + r] = splat_i32(-format.offset * (x.sum[at + r * x.groups] - first));
    }
    dot_integers<format.bits, true, rows>(group, x.payload + at * kGroupPayloadBytes, x.groups * kGroupPayloadBytes, start, sum);
}

template <int rows>
inline void add_scaled(const i32x16* sum, f32x16 scale, const Activations& x, int64_t at, f32x16* acc) {
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) acc[r] = fma(to_f32(sum[r]), mul(scale, splat(x.scale[at + r * x.groups])), acc[r]);
}

struct Output {
    float* data;
    int64_t stride;
    bool accumulate;
};

// `rows` rows of x, from `row` on, times one strip. Strips are taken one by one: two streams of weights side by side came out slower than
// one at every size that does not fit a core's own cache. `fresh`: the first rows of a strip, which ask for weights ahead of use.
template <TensorType type, int rows>
void tile(const PackedMatrix& w, const Activations& x, int64_t strip, int64_t row, bool fresh, const Output& out) {
    // A super-block's common part is asked for with its groups.
    constexpr int64_t ahead_bytes = block_bytes(type) * kGroup / block_columns(type);
    const int64_t groups = x.groups, stride = groups * kGroupPayloadBytes;
    const uint8_t* strip_data = w.data + strip * w.strip_bytes;
    f32x16 acc[rows];
    SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) acc[r] = splat(0.0f);
    for (int64_t g = 0, at = row * groups; g < groups; ++g, ++at) {
        if (fresh) ask_ahead<ahead_bytes>(strip_data + g * ahead_bytes);
        const uint8_t* group = strip_data + group_offset(type, g);
        const GroupScales scales = load_group_scales<type>(strip_data, g);
        if constexpr (has_half_scales(type)) {
            i32x16 sum[2 * rows];
            dot_halves<type, rows>(group, x, at, sum);
            add_scaled<rows>(sum, scales.scale, x, at, acc);
            add_scaled<rows>(sum + rows, scales.second, x, at, acc);
        } else {
            i32x16 sum[rows];
            dot_group<type, rows>(group, x.payload + at * kGroupPayloadBytes, stride, x.sum + at, groups, sum);
            SWIFTSURE_UNROLL
            for (int r = 0; r < rows; ++r)
                if constexpr (group_format(type).minimum) acc[r] = fma(scales.second, splat(x.scaled_sum[at + r * groups]), acc[r]);
            add_scaled<rows>(sum, scales.scale, x, at, acc);
        }
    }
    for (int r = 0; r < rows; ++r)
        store_strip(out.data + (row + r) * out.stride + strip * kStripRows, acc[r], rows_in_strip(w, strip), out.accumulate);
}

template <TensorType type>
void multiply_rows(const PackedMatrix& w, const Activations& x, int64_t strip, int64_t row, int64_t rows, bool fresh, const Output& out) {
    switch (rows) {
        case 1:
            return tile<type, 1>(w, x, strip, row, fresh, out);
        case 2:
            return tile<type, 2>(w, x, strip, row, fresh, out);
        case 3:
            return tile<type, 3>(w, x, strip, row, fresh, out);
        case 4:
            return tile<type, 4>(w, x, strip, row, fresh, out);
        default:
            break;
    }
    if constexpr (max_rows(type) > 4) switch (rows) {
            case 5:
                return tile<type, 5>(w, x, strip, row, fresh, out);
            case 6:
                return tile<type, 6>(w, x, strip, row, fresh, out);
            case 7:
                return tile<type, 7>(w, x, strip, row, fresh, out);
            default:
                return tile<type, 8>(w, x, strip, row, fresh, out);
        }
}

// Rows [row, x.rows) of one strip.
template <TensorType type>
void multiply_strip(const PackedMatrix& w, const Activations& x, int64_t strip, int64_t row, const Output& out) {
    constexpr int64_t most = max_rows(type);
    for (; row < x.rows; row += most) {
        const int64_t rows = x.rows - row < most ? x.rows - row : most;
        multiply_rows<type>(w, x, strip, row, rows, row == 0, out);
    }
}

#if defined(__AMX_INT8__)

constexpr bool has_tiles(TensorType type) { return type == TensorType::Q8_0 || type == TensorType::Q4_0 || type == TensorType::Q4_1; }
constexpr int64_t kMinTileRows = 9;  // three to eight take pairs of groups

template <TensorType type, int rows>
void multiply_paired_strips(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    load_pair_shape<rows>();
    for (int64_t strip = strip_begin; strip < strip_end; ++strip) {
        const PairedRows at = {w.data + strip * w.strip_bytes, x.tiles, x.tile_scales, x.groups};
        multiply_pairs<type, rows>(at, out.data + strip * kStripRows, out.stride, rows_in_strip(w, strip), out.accumulate);
    }
    release_tiles();
}

template <TensorType type>
void multiply_few_rows(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    switch (x.rows) {
        case 3:
            return multiply_paired_strips<type, 3>(w, x, strip_begin, strip_end, out);
        case 4:
            return multiply_paired_strips<type, 4>(w, x, strip_begin, strip_end, out);
        case 5:
            return multiply_paired_strips<type, 5>(w, x, strip_begin, strip_end, out);
        case 6:
            return multiply_paired_strips<type, 6>(w, x, strip_begin, strip_end, out);
        case 7:
            return multiply_paired_strips<type, 7>(w, x, strip_begin, strip_end, out);
        default:
            return multiply_paired_strips<type, 8>(w, x, strip_begin, strip_end, out);
    }
}

template <TensorType type>
void multiply_tile_rows(const PackedMatrix& w, const Activations& x, int64_t strip, int64_t rows, const TileBlock& block,
                        const Output& out) {
    float* data = out.data + block.row * out.stride + strip * kStripRows;
    const int64_t count = rows_in_strip(w, strip);
    switch (rows) {
        case 9:
            return multiply_tile<type, 9>(x, block, data, out.stride, count, out.accumulate);
        case 10:
            return multiply_tile<type, 10>(x, block, data, out.stride, count, out.accumulate);
        case 11:
            return multiply_tile<type, 11>(x, block, data, out.stride, count, out.accumulate);
        case 12:
            return multiply_tile<type, 12>(x, block, data, out.stride, count, out.accumulate);
        case 13:
            return multiply_tile<type, 13>(x, block, data, out.stride, count, out.accumulate);
        case 14:
            return multiply_tile<type, 14>(x, block, data, out.stride, count, out.accumulate);
        case 15:
            return multiply_tile<type, 15>(x, block, data, out.stride, count, out.accumulate);
        default:
            return multiply_tile<type, 16>(x, block, data, out.stride, count, out.accumulate);
    }
}

// Tiles have one shape for the whole call. The last rows, when they are enough, are the end of a full tile whose first rows are done
// already.
template <TensorType type>
void multiply_strips(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    if constexpr (!has_tiles(type)) {
        for (int64_t strip = strip_begin; strip < strip_end; ++strip) multiply_strip<type>(w, x, strip, 0, out);
        return;
    }
    if (x.tiles) return multiply_few_rows<type>(w, x, strip_begin, strip_end, out);
    if (x.rows < kMinTileRows || x.groups > kMaxTileGroups) {
        for (int64_t strip = strip_begin; strip < strip_end; ++strip) multiply_strip<type>(w, x, strip, 0, out);
        return;
    }
    const int64_t tile_rows = x.rows < kTileRows ? x.rows : kTileRows;
    load_tile_shape(tile_rows);
    alignas(64) uint8_t unpacked[type == TensorType::Q8_0 ? 64 : kMaxTileGroups * kTileBytes];
    for (int64_t strip = strip_begin; strip < strip_end; ++strip) {
        TileBlock block = {w.data + strip * w.strip_bytes,
                           unpacked,
                           kTileBytes,
                           0,
                           0,
                           type == TensorType::Q8_0 ? kPrefetchBytes : w.strip_bytes};  // unpacking reads a whole strip
        if constexpr (type == TensorType::Q8_0) {
            block.b = block.weights;
            block.b_bytes = group_bytes(type);
        } else {
            unpack_strip<type>(block.weights, x.groups, unpacked);
        }
        while (x.rows - block.row >= kMinTileRows) {
            const int64_t left = x.rows - block.row, rows = left < kTileRows ? left : kTileRows;
            block.skipped = tile_rows - rows;
            multiply_tile_rows<type>(w, x, strip, rows, block, out);
            block.row += rows;
            block.prefetch = 0;
        }
        multiply_strip<type>(w, x, strip, block.row, out);
    }
    release_tiles();
}

#elif defined(__AVX512VNNI__)

// Types whose integers are nibbles or bytes: planes of further bits and factors of super-blocks would need registers that two strips leave
// none of.
constexpr bool goes_in_pairs(TensorType type) {
    return !group_format(type).super_block && (group_format(type).bits == 4 || group_format(type).bits == 8);
}

// Two strips and the next two must fit the second-level cache. Wider matrices go strip by strip.
constexpr int64_t kMaxAheadBytes = 512 * 1024;

template <TensorType type, int rows>
void multiply_pair(const PackedMatrix& w, const Activations& x, int64_t strip, int64_t row, WeightsAhead& ahead, const Output& out) {
    multiply_strip_pair<type, rows>(w, x, strip, row, ahead, out.data, out.stride, out.accumulate);
}

// All rows of two strips, in blocks of three and four as far as they go: the fewer rows share a load of weights, the more each costs.
template <TensorType type>
void multiply_both(const PackedMatrix& w, const Activations& x, int64_t strip, const Output& out) {
    const int64_t blocks = (x.rows + kPairRows - 1) / kPairRows, bytes = 2 * w.strip_bytes, steps = blocks * x.groups;
    const uint8_t* next = w.data + (strip + 2) * w.strip_bytes;
    WeightsAhead ahead = {next, next + bytes, (bytes / steps + 63) / 64 * 64};
    for (int64_t row = 0, left = blocks; left > 0; --left) {
        const int64_t rows = (x.rows - row) / left;
        if (rows == 4)
            multiply_pair<type, 4>(w, x, strip, row, ahead, out);
        else if (rows == 3)
            multiply_pair<type, 3>(w, x, strip, row, ahead, out);
        else if (rows == 2)
            multiply_pair<type, 2>(w, x, strip, row, ahead, out);
        else
            multiply_pair<type, 1>(w, x, strip, row, ahead, out);
        row += rows;
    }
}

template <TensorType type>
void multiply_strips(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    int64_t strip = strip_begin;
    if constexpr (goes_in_pairs(type))
        if (2 * w.strip_bytes <= kMaxAheadBytes)
            for (; strip + 2 <= strip_end; strip += 2) multiply_both<type>(w, x, strip, out);
    for (; strip < strip_end; ++strip) multiply_strip<type>(w, x, strip, 0, out);
}

#else

template <TensorType type>
void multiply_strips(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    for (int64_t strip = strip_begin; strip < strip_end; ++strip) multiply_strip<type>(w, x, strip, 0, out);
}

#endif

}  // namespace

void matmul_quantized(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, float* out, int64_t out_stride,
                      bool accumulate) {
    const Output output = {out, out_stride, accumulate};
    switch (w.type) {
        case TensorType::Q8_0:
            return multiply_strips<TensorType::Q8_0>(w, x, strip_begin, strip_end, output);
        case TensorType::Q4_0:
            return multiply_strips<TensorType::Q4_0>(w, x, strip_begin, strip_end, output);
        case TensorType::Q4_1:
            return multiply_strips<TensorType::Q4_1>(w, x, strip_begin, strip_end, output);
        case TensorType::Q5_0:
            return multiply_strips<TensorType::Q5_0>(w, x, strip_begin, strip_end, output);
        case TensorType::Q5_1:
            return multiply_strips<TensorType::Q5_1>(w, x, strip_begin, strip_end, output);
        case TensorType::Q4_K:
            return multiply_strips<TensorType::Q4_K>(w, x, strip_begin, strip_end, output);
        case TensorType::Q5_K:
            return multiply_strips<TensorType::Q5_K>(w, x, strip_begin, strip_end, output);
        case TensorType::Q6_K:
            return multiply_strips<TensorType::Q6_K>(w, x, strip_begin, strip_end, output);
        default:
            return;  // float types: matmul_float
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
