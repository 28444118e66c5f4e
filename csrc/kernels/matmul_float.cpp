// Float weights times float activations: lanes are output rows, one fma per column, ascending, from +0. Also rows of any packed matrix as
// floats.
#include "kernels/families.h"
#include "kernels/strip_out.h"
#include "simd/unroll.h"

namespace swiftsure::SWIFTSURE_ISA {
namespace {

struct Input {
    const float* data;
    int64_t stride;
    int64_t rows;
};

struct Output {
    float* data;
    int64_t stride;
    bool accumulate;
};

constexpr int64_t float_bytes(TensorType type) { return type == TensorType::F32 ? 4 : 2; }

// The 16 weights of column c of a strip.
template <TensorType type>
inline f32x16 load_column(const uint8_t* strip, int64_t c) {
    const uint8_t* p = strip + c * kStripRows * float_bytes(type);
    if constexpr (type == TensorType::F32) return load(reinterpret_cast<const float*>(p));
    if constexpr (type == TensorType::F16) return load_f16(reinterpret_cast<const uint16_t*>(p));
    return load_bf16(reinterpret_cast<const uint16_t*>(p));
}

// The strips side by side ask for those that follow them, which the second-level cache must hold; beyond this, for what is near.
constexpr int64_t kMaxAheadBytes = 512 * 1024;

// An element is one chain of dependent operations; several strips and rows side by side keep the multipliers busy meanwhile. Each strip
// asks for its weights `prefetch` bytes ahead, 0 when they are near already.
template <TensorType type, int rows, int strips>
void tile(const PackedMatrix& w, const Input& x, int64_t strip, int64_t row, int64_t prefetch, const Output& out) {
    constexpr int64_t line_columns = 64 / (kStripRows * float_bytes(type));
    f32x16 acc[strips][rows];
    const uint8_t* data = w.data + strip * w.strip_bytes;
    const float* in = x.data + row * x.stride;
    SWIFTSURE_UNROLL
    for (int s = 0; s < strips; ++s) SWIFTSURE_UNROLL
    for (int r = 0; r < rows; ++r) acc[s][r] = splat(0.0f);
    for (int64_t c = 0; c < w.k; ++c) {
        SWIFTSURE_UNROLL
        for (int s = 0; s < strips; ++s) {
            const uint8_t* at = data + s * w.strip_bytes;
            if (c % line_columns == 0) __builtin_prefetch(at + c * kStripRows * float_bytes(type) + prefetch, 0, 2);
            const f32x16 column = load_column<type>(at, c);
            SWIFTSURE_UNROLL
            for (int r = 0; r < rows; ++r) acc[s][r] = fma(column, splat(in[r * x.stride + c]), acc[s][r]);
        }
    }
    for (int s = 0; s < strips; ++s)
        for (int r = 0; r < rows; ++r)
            store_strip(out.data + (row + r) * out.stride + (strip + s) * kStripRows, acc[s][r], rows_in_strip(w, strip + s),
                        out.accumulate);
}

// All rows over `strips` strips.
template <TensorType type, int strips>
void multiply_rows(const PackedMatrix& w, const Input& x, int64_t strip, const Output& out) {
    int64_t row = 0;
    int64_t prefetch = strips * w.strip_bytes <= kMaxAheadBytes ? strips * w.strip_bytes : kPrefetchBytes;
#if defined(__AVX512F__)
    if constexpr (strips == 4)  // a weight is widened for twice the rows, and the sums still fit the 32 registers
        for (; row + 8 <= x.rows; row += 8, prefetch = 0) {
            tile<type, 8, 2>(w, x, strip, row, prefetch, out);
            tile<type, 8, 2>(w, x, strip + 2, row, prefetch, out);
        }
#endif
    for (; row + 4 <= x.rows; row += 4, prefetch = 0) tile<type, 4, strips>(w, x, strip, row, prefetch, out);
    switch (x.rows - row) {
        case 3:
            return tile<type, 3, strips>(w, x, strip, row, prefetch, out);
        case 2:
            return tile<type, 2, strips>(w, x, strip, row, prefetch, out);
        case 1:
            return tile<type, 1, strips>(w, x, strip, row, prefetch, out);
        default:
            return;
    }
}

template <TensorType type>
void multiply_strips(const PackedMatrix& w, const Input& x, int64_t strip_begin, int64_t strip_end, const Output& out) {
    int64_t strip = strip_begin;
    for (; strip + 4 <= strip_end; strip += 4) multiply_rows<type, 4>(w, x, strip, out);
    for (; strip < strip_end; ++strip) multiply_rows<type, 1>(w, x, strip, out);
}

}  // namespace

void matmul_float(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t rows, int64_t strip_begin, int64_t strip_end, float* out,
                  int64_t out_stride, bool accumulate) {
    const Input input = {x, x_stride, rows};
    const Output output = {out, out_stride, accumulate};
    switch (w.type) {
        case TensorType::F32:
            return multiply_strips<TensorType::F32>(w, input, strip_begin, strip_end, output);
        case TensorType::F16:
            return multiply_strips<TensorType::F16>(w, input, strip_begin, strip_end, output);
        case TensorType::BF16:
            return multiply_strips<TensorType::BF16>(w, input, strip_begin, strip_end, output);
        default:
            return;  // block types: matmul_quantized
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
