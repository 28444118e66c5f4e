// The functions that the kernel files of one instruction set offer; table.cpp gathers them into a KernelTable.
// Signatures and promises: table.h.
#pragma once

#include "kernels/table.h"
#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

void quantize_row(const float* x, int64_t k, ActivationRow out);
void quantize_grid_row(const float* x, int64_t k, GridRow out);
void unpack_activations(const uint8_t* payload, int16_t* q);
void matmul_quantized(const PackedMatrix& w, const Activations& x, int64_t strip_begin, int64_t strip_end, float* out, int64_t out_stride,
                      bool accumulate);
void matmul_rows(const PackedMatrix& w, const GridActivations& x, int64_t strip_begin, int64_t strip_end, float* out, int64_t out_stride,
                 bool accumulate);
void matmul_float(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t rows, int64_t strip_begin, int64_t strip_end, float* out,
                  int64_t out_stride, bool accumulate);
void unpack_row(const PackedMatrix& w, int64_t n, float* out);

void rmsnorm(const float* x, const float* weight, float* out, int64_t width, float eps, bool accumulate);
void rope_interleaved(float* x, const float* table, int64_t pairs);
void rope_halves(float* x, const float* table, int64_t pairs);
void silu_mul(const float* gate, const float* up, float* out, int64_t width);
void gelu_tanh_mul(const float* gate, const float* up, float* out, int64_t width);

void store_kv(const float* k, const float* v, KVBlockView block, int64_t offset, int64_t head_dim, int64_t block_size);
void attention_span(const float* q, int64_t heads, int64_t head_dim, const KVBlockView* blocks, const KVBlockView* next,
                    int64_t next_blocks, int64_t block_size, const int64_t* begin, const int64_t* end, float* scratch, float* max_out,
                    float* sum_out, float* acc_out);
void attention_merge(float* max, float* sum, float* acc, const float* span_max, const float* span_sum, const float* span_acc, int64_t heads,
                     int64_t head_dim);
void attention_finish(const float* sum, const float* acc, float* out, int64_t heads, int64_t head_dim);

float max_logit(const float* logits, int64_t vocab);
int64_t argmax(const float* logits, int64_t vocab);
int64_t gumbel_argmax(const float* logits, int64_t vocab, float temperature, uint64_t seed, uint32_t choice, uint32_t position);
int64_t gumbel_argmax_of(const int32_t* ids, const float* scaled, int64_t count, uint64_t seed, uint32_t choice, uint32_t position);
void gumbel_scores_of(const int32_t* ids, const float* scaled, int64_t count, uint64_t seed, uint32_t choice, uint32_t position,
                      float* scores);
int64_t select_at_least(const float* logits, int64_t vocab, float least, int32_t* ids);
void scale_logits(const float* logits, int64_t count, float max, float temperature, float* out);
void exp_row(const float* x, int64_t count, float* out);
double exp_sum(const float* logits, int64_t vocab, float max, float temperature);
double log_sum_exp(const float* logits, int64_t vocab);
void philox_words(const uint32_t* counter, const uint32_t* key, uint32_t* out);
void gumbel_of_words(const uint32_t* words, int64_t count, float* noise, float* bound);

void hash_row(const float* row, int64_t count, uint32_t* out);

int64_t integer_peak(int64_t rounds);
int64_t float_peak(int64_t rounds);

}  // namespace swiftsure::SWIFTSURE_ISA
