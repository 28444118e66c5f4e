// Building a program: its operations, and how they are fused into stages.
#include <algorithm>
#include <utility>

#include "dispatch.h"
#include "program.h"
#include "refuse.h"

namespace swiftsure {

// Where a vector of weights is from now on.
int Program::keep(std::vector<float> vector) {
    vectors_.push_back(std::move(vector));
    return static_cast<int>(vectors_.size()) - 1;
}

// Appends to the last stage when that stays within rows too.
void Program::append(RowOp op, int64_t columns) {
    if (!stages_.empty() && stages_.back().selected == selected_) {
        if (RowStage* stage = std::get_if<RowStage>(&stages_.back().work)) {
            stage->ops.push_back(std::move(op));
            if (stage->columns != columns) stage->columns = 0;
            return;
        }
    }
    stages_.push_back({RowStage{{std::move(op)}, columns}, selected_});
}

void Program::embed(const PackedMatrix& weight, std::string_view out, float scale) {
    not_after_select("embed");
    const int o = find(out);
    if (weight.k != buffers_[static_cast<size_t>(o)].width)
        refuse("embed needs a buffer as wide as its weight, got " + std::to_string(buffers_[static_cast<size_t>(o)].width) + " and " +
               std::to_string(weight.k));
    vocab_ = vocab_ == 0 ? weight.n : std::min(vocab_, weight.n);
    append(Embed{weight, writing(out), scale}, 0);
}

void Program::input(std::string_view out) {
    not_after_select("input");
    const int o = find(out);
    const int64_t width = buffers_[static_cast<size_t>(o)].width;
    if (input_width_ != 0 && input_width_ != width)
        refuse("inputs of one program have one width, got " + std::to_string(input_width_) + " and " + std::to_string(width));
    input_width_ = width;
    append(Input{writing(out)}, 0);
}

void Program::rmsnorm(std::string_view x, std::vector<float> weight, std::string_view out, float eps, bool accumulate) {
    const int i = reading(x), o = accumulate ? reading(out) : find(out);
    if (accumulate) different(i, o, "an rmsnorm that accumulates");
    same_width(i, o, "rmsnorm");
    if (static_cast<int64_t>(weight.size()) != buffers_[static_cast<size_t>(i)].width)
        refuse("rmsnorm needs a weight per column: '" + std::string(x) + "' has " + std::to_string(buffers_[static_cast<size_t>(i)].width) +
               ", got " + std::to_string(weight.size()));
    if (!(eps >= 0.0f)) refuse("eps must be at least 0, got " + std::to_string(eps));
    const int kept = keep(std::move(weight));
    append(Norm{i, kept, writing(out), eps, accumulate}, 0);
}

void Program::add_bias(std::string_view x, std::vector<float> bias) {
    const int i = reading(x);
    const int64_t width = buffers_[static_cast<size_t>(i)].width;
    if (static_cast<int64_t>(bias.size()) != width)
        refuse("add_bias needs a bias per column: '" + std::string(x) + "' has " + std::to_string(width) + ", got " +
               std::to_string(bias.size()));
    const int kept = keep(std::move(bias));
    append(AddBias{writing(x), kept}, width % kGroup == 0 ? width : 0);
}

void Program::head_norm(std::string_view x, std::vector<float> weight, int64_t offset, int64_t heads, int64_t head_dim, float eps) {
    const int i = reading(x);
    require_at_least("heads", heads, 1);
    columns_fit(i, offset, heads, head_dim, "head_norm");
    if (static_cast<int64_t>(weight.size()) != head_dim)
        refuse("head_norm needs a weight per column of a head: " + std::to_string(head_dim) + ", got " + std::to_string(weight.size()));
    if (!(eps >= 0.0f)) refuse("eps must be at least 0, got " + std::to_string(eps));
    const int kept = keep(std::move(weight));
    append(HeadNorm{writing(x), kept, offset, heads, head_dim, eps}, 0);
}

void Program::rope(std::string_view x, int64_t offset, int64_t heads, int64_t head_dim, int64_t rotary_dim, double theta, RopeStyle style,
                   const std::vector<double>& factors) {
    not_after_select("rope");
    const int i = reading(x);
    require_at_least("heads", heads, 1);
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > head_dim)
        refuse("rotary_dim must be even and in [2, head_dim = " + std::to_string(head_dim) + "], got " + std::to_string(rotary_dim));
    if (!(theta >= 1.0 && theta < 1e30)) refuse("theta must be at least 1 and below 1e30, got " + std::to_string(theta));
    columns_fit(i, offset, heads, head_dim, "rope");
    require_rope_factors(factors, rotary_dim);
    size_t table = 0;
    while (table < rope_tables_.size() && !rope_tables_[table].same(theta, rotary_dim, factors)) ++table;
    if (table == rope_tables_.size()) rope_tables_.emplace_back(theta, rotary_dim, factors);
    append(Rope{writing(x), offset, heads, head_dim, static_cast<int>(table), style}, 0);
}

void Program::store_kv(std::string_view x, int64_t k_offset, int64_t v_offset, int64_t layer) {
    not_after_select("store_kv");
    const int i = reading(x);
    layer_exists(layer);
    columns_fit(i, k_offset, kv_.kv_heads(), kv_.head_dim(), "store_kv");
    columns_fit(i, v_offset, kv_.kv_heads(), kv_.head_dim(), "store_kv");
    append(StoreKV{i, k_offset, v_offset, layer}, 0);
}

void Program::gated_activation(std::string_view kind, std::string_view x, std::string_view out) {
    const GatedKernel kernel = gated_kernel(kernels_, kind);
    const int i = reading(x), o = find(out);
    different(i, o, "gated_activation");
    const int64_t width = buffers_[static_cast<size_t>(o)].width;
    if (buffers_[static_cast<size_t>(i)].width != 2 * width)
        refuse("gated_activation needs an input twice as wide as its output, got " +
               std::to_string(buffers_[static_cast<size_t>(i)].width) + " and " + std::to_string(width));
    append(Gated{kernel, i, writing(out)}, width % kGroup == 0 ? width : 0);
}

void Program::select_rows(std::string_view x, std::string_view out) {
    not_after_select("a second select_rows");
    const int i = reading(x), o = find(out);
    different(i, o, "select_rows");
    same_width(i, o, "select_rows");
    selected_ = true;
    quantized_ = quantized_rows_ = {};
    append(Select{i, writing(out)}, 0);
}

// Attentions with one window are cut alike.
int Program::plan_with(int64_t window) {
    for (size_t p = 0; p < attention_plans_.size(); ++p)
        if (attention_plans_[p].window() == window) return static_cast<int>(p);
    attention_plans_.emplace_back(window);
    return static_cast<int>(attention_plans_.size()) - 1;
}

void Program::attention(std::string_view x, int64_t q_offset, std::string_view out, int64_t layer, int64_t heads, float scale,
                        int64_t window) {
    not_after_select("attention");
    const int i = reading(x), o = find(out);
    different(i, o, "attention");
    layer_exists(layer);
    if (heads < 1 || heads % kv_.kv_heads() != 0)
        refuse("heads must be a multiple of the cache's " + std::to_string(kv_.kv_heads()) + " key-value heads, got " +
               std::to_string(heads));
    columns_fit(i, q_offset, heads, kv_.head_dim(), "attention");
    if (buffers_[static_cast<size_t>(o)].width != heads * kv_.head_dim())
        refuse("attention writes heads * head_dim = " + std::to_string(heads * kv_.head_dim()) + " columns, but '" + std::string(out) +
               "' has " + std::to_string(buffers_[static_cast<size_t>(o)].width));
    require_at_least("window", window, 1);
    max_heads_ = std::max(max_heads_, heads);
    stages_.push_back({AttentionStage{i, q_offset, writing(out), layer, heads, scale, plan_with(window), false}, false});
    stages_.push_back({MergeStage{static_cast<int>(stages_.size()) - 1}, false});
}

void Program::matmul(std::string_view x, const std::vector<PackedMatrix>& weights, std::string_view out, bool accumulate) {
    const int i = reading(x), o = accumulate ? reading(out) : find(out);
    different(i, o, "matmul");
    const int64_t k = buffers_[static_cast<size_t>(i)].width;
    MatmulStage stage{i, o, accumulate, {}, {}};
    int64_t columns = 0, strips = 0;
    bool quantized = false, grid = false;
    for (const PackedMatrix& w : weights) {
        if (is_row_grid(w.type) != is_row_grid(weights[0].type))
            refuse("the weights of a matmul are all of types R8 and R4 or none of them is; its input is quantized in rows or in groups");
        grid = is_row_grid(w.type);
        if (w.k != k)
            refuse("matmul of '" + std::string(x) + "' with " + std::to_string(k) + " columns by a weight with " + std::to_string(w.k));
        stage.parts.push_back({w, columns});
        columns += w.n;
        strips += w.strips;
        quantized = quantized || is_quantized(w.type);
    }
    if (columns != buffers_[static_cast<size_t>(o)].width)
        refuse("the weights of a matmul have " + std::to_string(columns) + " rows, but '" + std::string(out) + "' has " +
               std::to_string(buffers_[static_cast<size_t>(o)].width) + " columns");
    const int64_t share = std::min(kStripsPerChunk, ceil_div(strips, threads_));
    for (size_t p = 0; p < stage.parts.size(); ++p) {
        const int64_t in_part = stage.parts[p].weight.strips;
        for (int64_t s = 0; s < in_part; s += share) stage.chunks.push_back({static_cast<int>(p), s, std::min(s + share, in_part)});
    }
    if (quantized) quantize_input(i);
    if (grid) quantize_input_rows(i);
    writing(out);
    stages_.push_back({std::move(stage), selected_});
}

// Once per contents of a buffer: q, k and v share the quantized rows of their input.
void Program::quantize_input(int x) {
    const Buffer& b = buffers_[static_cast<size_t>(x)];
    if (quantized_ == Contents{x, b.version}) return;
    quantized_ = {x, b.version};
    activation_groups_ = std::max(activation_groups_, b.rows * (b.width / kGroup));
    row_groups_ = std::max(row_groups_, b.width / kGroup);
    // An attention whose groups of heads fill whole activation groups quantizes what it finishes.
    if (stages_.size() >= 2 && std::holds_alternative<MergeStage>(stages_.back().work)) {
        AttentionStage& attention = std::get<AttentionStage>(stages_[stages_.size() - 2].work);
        if (attention.out == x && attention.heads / kv_.kv_heads() * kv_.head_dim() % kGroup == 0) {
            attention.quantize = true;
            return;
        }
    }
    append(Quantize{x}, b.width);
}

// As quantize_input, for row-grid weights; a row's scale needs all of it.
void Program::quantize_input_rows(int x) {
    const Buffer& b = buffers_[static_cast<size_t>(x)];
    if (quantized_rows_ == Contents{x, b.version}) return;
    quantized_rows_ = {x, b.version};
    digit_columns_ = std::max(digit_columns_, b.rows * grid_blocks(b.width) * kBlockColumns);
    digit_rows_ = std::max(digit_rows_, b.rows);
    append(QuantizeRow{x}, 0);
}

}  // namespace swiftsure
