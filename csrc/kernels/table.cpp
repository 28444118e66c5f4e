#include "kernels/table.h"

#include "kernels/families.h"

#define SWIFTSURE_STRING_(x) #x
#define SWIFTSURE_STRING(x) SWIFTSURE_STRING_(x)

namespace swiftsure::SWIFTSURE_ISA {

const KernelTable& kernel_table() {
    static constexpr KernelTable table = {
        .isa = SWIFTSURE_STRING(SWIFTSURE_ISA),
        .quantize_row = quantize_row,
        .quantize_grid_row = quantize_grid_row,
        .unpack_activations = unpack_activations,
        .matmul_quantized = matmul_quantized,
        .matmul_rows = matmul_rows,
        .matmul_float = matmul_float,
        .unpack_row = unpack_row,
        .rmsnorm = rmsnorm,
        .rope_interleaved = rope_interleaved,
        .rope_halves = rope_halves,
        .silu_mul = silu_mul,
        .gelu_tanh_mul = gelu_tanh_mul,
        .store_kv = store_kv,
        .attention_span = attention_span,
        .attention_merge = attention_merge,
        .attention_finish = attention_finish,
        .max_logit = max_logit,
        .argmax = argmax,
        .gumbel_argmax = gumbel_argmax,
        .gumbel_argmax_of = gumbel_argmax_of,
        .gumbel_scores_of = gumbel_scores_of,
        .select_at_least = select_at_least,
        .scale_logits = scale_logits,
        .exp_row = exp_row,
        .exp_sum = exp_sum,
        .log_sum_exp = log_sum_exp,
        .philox_words = philox_words,
        .gumbel_of_words = gumbel_of_words,
        .hash_row = hash_row,
        .integer_peak = integer_peak,
        .float_peak = float_peak,
    };
    return table;
}

}  // namespace swiftsure::SWIFTSURE_ISA
