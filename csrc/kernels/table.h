// The seam between what a step does (program.cpp) and how an instruction set does it.
//
// Every kernel file under csrc/kernels is compiled once per instruction set into its own namespace; `kernel_table()` of each namespace
// fills one of these tables, and dispatch.cpp picks a table once, when a model is loaded. Kernels work on one thread over the range
// they are given; splitting work over threads is program.cpp's business and never changes a bit.
#pragma once

#include <cstdint>

#include "activations.h"
#include "packed_matrix.h"

namespace swiftsure {

// Keys and values of one (layer, key-value head, block): int16 or int8 with one float scale per position.
// keys are stored [dim][position] so that lanes run over positions; values [position][dim] so that lanes run over dimensions.
struct KVBlockView {
    int64_t bits;         // 16 or 8, of keys and values
    int64_t key_group;    // neighbouring dimensions of a key that share a scale
    void* keys;           // (head_dim, block_size)
    float* key_scales;    // (groups of dimensions, block_size)
    void* values;         // (block_size, head_dim)
    float* value_scales;  // (block_size,)
};

// Keys of an attention span: each has a maximum, a sum and an accumulator of its own. Part of the numerics id.
constexpr int64_t kSpanKeys = 256;

// out = activation(gate) * up, all (width,).
using GatedKernel = void (*)(const float* gate, const float* up, float* out, int64_t width);

struct KernelTable {
    const char* isa;

    // --- matmul_*.cpp, quantize.cpp, unpack.cpp ---------------------------------------------------------------------------
    // Quantizes one row of k floats (k a multiple of 32) into groups of 32: int16 as two int8 digits, |q| <= 32639.
    void (*quantize_row)(const float* x, int64_t k, ActivationRow out);
    // Quantizes one row of k floats as a whole, |q| <= 32639, for row-grid weights. The digits lie alike on every instruction set.
    void (*quantize_grid_row)(const float* x, int64_t k, GridRow out);
    // The 32 integers of one group's payload, in natural order.
    void (*unpack_activations)(const uint8_t* payload, int16_t* q);
    // out[row * out_stride + n] (+)= sum_k x[row][k] w[n][k] for n in strips [strip_begin, strip_end) of 16 output rows each.
    // `accumulate`: the finished sum is added to what is there with one float addition.
    void (*matmul_quantized)(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, float* out,
                             int64_t out_stride, bool accumulate);
    // The same for R8 and R4 weights.
    void (*matmul_rows)(const PackedMatrix& w, const GridActivations& x, int64_t strip_begin, int64_t strip_end, float* out,
                        int64_t out_stride, bool accumulate);
    // The same for F32, F16 and BF16 weights: lanes over output rows, k ascending, one fma each.
    void (*matmul_float)(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t rows, int64_t strip_begin, int64_t strip_end,
                         float* out, int64_t out_stride, bool accumulate);
    // Row `n` of a packed matrix as floats (embedding look-up): out[k], exact.
    void (*unpack_row)(const PackedMatrix& w, int64_t n, float* out);

    // --- norm.cpp, rope.cpp, elementwise.cpp ------------------------------------------------------------------------------
    // `accumulate`: the finished value is added to what is there with one float addition.
    void (*rmsnorm)(const float* x, const float* weight, float* out, int64_t width, float eps, bool accumulate);
    // Rotates one head vector in place. table: (cos, sin) of `pairs` angles, interleaved: c0 s0 c1 s1 ...
    void (*rope_interleaved)(float* x, const float* table, int64_t pairs);  // pairs (2i, 2i+1)
    void (*rope_halves)(float* x, const float* table, int64_t pairs);       // pairs (i, i+pairs)
    GatedKernel silu_mul, gelu_tanh_mul;

    // --- attention.cpp ----------------------------------------------------------------------------------------------------
    // Writes one position of one key-value head; head_dim a multiple of 16.
    void (*store_kv)(const float* k, const float* v, KVBlockView block, int64_t offset, int64_t head_dim, int64_t block_size);
    // One span (at most kSpanKeys keys, whole blocks) for `heads` query heads, of one or more rows, that share a key-value head.
    // q: (heads, head_dim), scaled already. Head h sees keys [begin[h], end[h]) of the span, at least one; the others are masked, and
    // blocks that no head sees are not read and need no view in `blocks`, which begins with the span.
    // next: the `next_blocks` blocks that this thread most likely reads next; they are asked for ahead.
    // scratch: 2 * kSpanKeys * head_dim floats, 64-byte aligned. Writes max, sum and accumulator per head.
    void (*attention_span)(const float* q, int64_t heads, int64_t head_dim, const KVBlockView* blocks, const KVBlockView* next,
                           int64_t next_blocks, int64_t block_size, const int64_t* begin, const int64_t* end, float* scratch,
                           float* max_out, float* sum_out, float* acc_out);
    // Merges span s into the running (max, sum, acc); spans are merged in ascending order.
    void (*attention_merge)(float* max, float* sum, float* acc, const float* span_max, const float* span_sum, const float* span_acc,
                            int64_t heads, int64_t head_dim);
    void (*attention_finish)(const float* sum, const float* acc, float* out, int64_t heads, int64_t head_dim);

    // --- sampling.cpp -----------------------------------------------------------------------------------------------------
    // NaN logits are never chosen (unless all are: token 0), logits of -infinity neither while another is left; ties to the lowest id.
    float (*max_logit)(const float* logits, int64_t vocab);  // -infinity when all are NaN
    int64_t (*argmax)(const float* logits, int64_t vocab);
    // argmax over tokens of (logits[t] - max) / temperature + gumbel(seed, choice, position, t).
    int64_t (*gumbel_argmax)(const float* logits, int64_t vocab, float temperature, uint64_t seed, uint32_t choice, uint32_t position);
    // The same over `count` candidates in any order, `scaled` being (logits[t] - max) / temperature; -1 when none can be chosen.
    int64_t (*gumbel_argmax_of)(const int32_t* ids, const float* scaled, int64_t count, uint64_t seed, uint32_t choice, uint32_t position);
    // scaled + gumbel of every candidate.
    void (*gumbel_scores_of)(const int32_t* ids, const float* scaled, int64_t count, uint64_t seed, uint32_t choice, uint32_t position,
                             float* scores);
    // Ids of the logits >= least, ascending; returns how many. ids has room for vocab.
    int64_t (*select_at_least)(const float* logits, int64_t vocab, float least, int32_t* ids);
    void (*scale_logits)(const float* logits, int64_t count, float max, float temperature, float* out);  // (l - max) / temperature
    void (*exp_row)(const float* x, int64_t count, float* out);                                          // e^x, x <= 88
    // Sum of e^((l - max) / temperature) in a fixed order: float over 64 vectors of 16 lanes, their totals in double.
    double (*exp_sum)(const float* logits, int64_t vocab, float max, float temperature);
    double (*log_sum_exp)(const float* logits, int64_t vocab);
    // For known-answer tests: one Philox4x32-10 block, and the noise of given words with the bound that prunes it.
    void (*philox_words)(const uint32_t* counter, const uint32_t* key, uint32_t* out);  // 4, 2, 4 words
    void (*gumbel_of_words)(const uint32_t* words, int64_t count, float* noise, float* bound);

    // --- digest.cpp -------------------------------------------------------------------------------------------------------
    // 128 bits of all bits of a row of `count` floats: any changed bit changes them. Four words.
    void (*hash_row)(const float* row, int64_t count, uint32_t* out);

    // --- peak.cpp ---------------------------------------------------------------------------------------------------------
    // The additions and multiplications done in `rounds` rounds on registers: products of integers as dot products of digits take them
    // (8 bits with VNNI and tiles, a digit a product; 16 bits elsewhere), and float fma.
    int64_t (*integer_peak)(int64_t rounds);
    int64_t (*float_peak)(int64_t rounds);
};

}  // namespace swiftsure
