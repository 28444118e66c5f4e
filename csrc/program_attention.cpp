// Running a program: the attention of a step, in groups of rows, key-value heads and spans of keys.
#include <algorithm>
#include <limits>

#include "program.h"
#include "refuse.h"

namespace swiftsure {

namespace {

constexpr int64_t kMaxSpanBlocks = kSpanKeys / 16;

}  // namespace

// --- cutting a step into groups and spans ------------------------------------------------------------------------------------

// Groups as large as leaves every thread a few chunks to claim: a group takes all spans of a key-value head together, or, where that makes
// too few chunks, one span a chunk, merged in a stage of their own.
void Program::plan_attention() {
    const int64_t enough = threads_ == 1 ? 1 : kChunksPerThread * threads_;
    for (int64_t most = kMaxGroupRows;; most = (most + 1) / 2) {
        group_rows(most);
        const int64_t whole = static_cast<int64_t>(groups_.size()) * kv_.kv_heads(), parts = span_begin_.back() * kv_.kv_heads();
        split_spans_ = whole < enough && parts > whole;
        if (most == 1 || (split_spans_ ? parts : whole) >= enough) return;
    }
}

void Program::group_rows(int64_t most) {
    groups_.clear();
    row_group_.clear();
    for (int64_t r = 0; r < step_.rows; ++r) {
        if (!groups_.empty() && groups_.back().rows < most && step_.sequences[r] == step_.sequences[r - 1])
            groups_.back().rows += 1;
        else
            groups_.push_back({r, 1});
        row_group_.push_back(static_cast<int32_t>(groups_.size()) - 1);
    }
    span_begin_.assign(1, 0);
    slot_begin_.assign(1, 0);
    for (const RowGroup& group : groups_) {
        const int64_t spans = spans_of(group.first + group.rows - 1);
        span_begin_.push_back(span_begin_.back() + spans);
        slot_begin_.push_back(slot_begin_.back() + spans * group.rows);
    }
}

// --- where keys are -----------------------------------------------------------------------------------------------------------

float* Program::partial(int64_t slot, int64_t head) const {
    return reinterpret_cast<float*>(partial_memory_.data()) + (slot * max_heads_ + head) * (kv_.head_dim() + 2);
}

// Where the partial results of a span and a row are, the row counted within its group.
int64_t Program::group_slot(size_t group, int64_t span, int64_t row) const { return slot_begin_[group] + span * groups_[group].rows + row; }

int64_t Program::spans_of(int64_t row) const { return ceil_div(step_.positions[row] + 1, kSpanKeys); }

// Writes at most kMaxSpanBlocks blocks and returns how many.
int64_t Program::blocks_of(int64_t layer, Reading at, KVBlockView* out) const {
    const int64_t size = kv_.block_size(), most = std::min(step_.positions[at.row] + 1 - at.span * kSpanKeys, kSpanKeys);
    const int32_t* table = step_.block_tables + step_.sequences[at.row] * step_.table_width + at.span * (kSpanKeys / size);
    for (int64_t b = 0; b < ceil_div(most, size); ++b) out[b] = kv_.block(layer, at.kv_head, table[b]);
    return ceil_div(most, size);
}

// Where a chunk of an attention begins to read. The chunk after the last begins nowhere: row -1.
Program::Reading Program::first_reading(int64_t chunk) const {
    const int64_t kv_head = chunk % kv_.kv_heads(), item = chunk / kv_.kv_heads();
    if (!split_spans_) {
        if (item == static_cast<int64_t>(groups_.size())) return {-1, 0, 0};
        const RowGroup& group = groups_[static_cast<size_t>(item)];
        return {group.first + group.rows - 1, kv_head, 0};
    }
    if (item == span_begin_.back()) return {-1, 0, 0};
    const size_t group = static_cast<size_t>(std::upper_bound(span_begin_.begin(), span_begin_.end(), item) - span_begin_.begin() - 1);
    return {groups_[group].first + groups_[group].rows - 1, kv_head, item - span_begin_[group]};
}

// One span of a group of rows and a key-value head: maximum, sum and accumulator of each query head. The first `skipped` rows of the
// group do not reach the span.
void Program::attend_span(const AttentionStage& stage, RowGroup group, int64_t skipped, Reading at, Reading next,
                          const Scratch& own) const {
    const int64_t heads = stage.heads / kv_.kv_heads(), dim = kv_.head_dim(), first = skipped * heads;
    for (int64_t r = skipped; r < group.rows; ++r)
        std::fill_n(own.visible + r * heads, heads, std::min(step_.positions[group.first + r] + 1 - at.span * kSpanKeys, kSpanKeys));
    KVBlockView blocks[kMaxSpanBlocks], next_blocks[kMaxSpanBlocks];
    blocks_of(stage.layer, at, blocks);
    const int64_t next_count = next.row < 0 ? 0 : blocks_of(stage.layer, next, next_blocks);
    kernels_.attention_span(own.q + first * dim, group.rows * heads - first, dim, blocks, next_blocks, next_count, kv_.block_size(),
                            own.visible + first, own.converted, own.span_max + first, own.span_sum + first, own.span_acc + first * dim);
}

void Program::scaled_queries(const AttentionStage& stage, RowGroup group, int64_t kv_head, float* out) const {
    const int64_t width = stage.heads / kv_.kv_heads() * kv_.head_dim();
    for (int64_t r = 0; r < group.rows; ++r, out += width) {
        const float* q = buffers_[static_cast<size_t>(stage.x)].row(group.first + r) + stage.q_offset + kv_head * width;
        for (int64_t i = 0; i < width; ++i) out[i] = q[i] * stage.scale;
    }
}

void Program::run_attention(const AttentionStage& stage, int32_t chunk, int32_t thread) const {
    const Scratch& own = scratch_[static_cast<size_t>(thread)];
    const int64_t kv_heads = kv_.kv_heads(), kv_head = chunk % kv_heads, item = chunk / kv_heads;
    const int64_t heads = stage.heads / kv_heads, dim = kv_.head_dim();
    const Reading next = first_reading(chunk + 1);
    if (split_spans_) {
        const Reading at = first_reading(chunk);
        const size_t index = static_cast<size_t>(row_group_[static_cast<size_t>(at.row)]);
        const RowGroup group = groups_[index];
        int64_t skipped = 0;
        while (at.span >= spans_of(group.first + skipped)) ++skipped;
        scaled_queries(stage, group, kv_head, own.q);
        attend_span(stage, group, skipped, at, next, own);
        for (int64_t r = skipped, h = r * heads; r < group.rows; ++r, h += heads)
            save_partial(stage, group_slot(index, at.span, r), kv_head, own.span_max + h, own.span_sum + h, own.span_acc + h * dim);
        return;
    }
    const RowGroup group = groups_[static_cast<size_t>(item)];
    scaled_queries(stage, group, kv_head, own.q);
    start_merge(own, group.rows * heads);
    const int64_t last = group.first + group.rows - 1, spans = spans_of(last);
    int64_t skipped = 0;
    for (int64_t span = 0; span < spans; ++span) {
        while (step_.positions[group.first + skipped] < span * kSpanKeys) ++skipped;
        attend_span(stage, group, skipped, {last, kv_head, span}, span + 1 < spans ? Reading{last, kv_head, span + 1} : next, own);
        const int64_t first = skipped * heads;
        kernels_.attention_merge(own.max + first, own.sum + first, own.acc + first * dim, own.span_max + first, own.span_sum + first,
                                 own.span_acc + first * dim, group.rows * heads - first, dim);
    }
    for (int64_t r = 0; r < group.rows; ++r) finish_group(stage, group.first + r, kv_head, own.sum + r * heads, own.acc + r * heads * dim);
}

void Program::start_merge(const Scratch& own, int64_t heads) const {
    std::fill_n(own.max, heads, -std::numeric_limits<float>::infinity());
    std::fill_n(own.sum, heads, 0.0f);
    std::fill_n(own.acc, heads * kv_.head_dim(), 0.0f);
}

// Of one row: max, sum (heads of a key-value head,) and acc (heads, head_dim).
void Program::save_partial(const AttentionStage& stage, int64_t slot, int64_t kv_head, const float* max, const float* sum,
                           const float* acc) const {
    const int64_t heads = stage.heads / kv_.kv_heads(), dim = kv_.head_dim();
    for (int64_t h = 0; h < heads; ++h) {
        float* saved = partial(slot, kv_head * heads + h);
        saved[0] = max[h];
        saved[1] = sum[h];
        std::copy(acc + h * dim, acc + (h + 1) * dim, saved + 2);
    }
}

// The spans of one row and key-value head, in ascending order as in run_attention.
void Program::run_merge(const AttentionStage& stage, int32_t chunk, int32_t thread) const {
    const Scratch& own = scratch_[static_cast<size_t>(thread)];
    const int64_t kv_heads = kv_.kv_heads(), kv_head = chunk % kv_heads, row = chunk / kv_heads;
    const int64_t heads = stage.heads / kv_heads, dim = kv_.head_dim();
    const size_t group = static_cast<size_t>(row_group_[static_cast<size_t>(row)]);
    start_merge(own, heads);
    for (int64_t span = 0; span < spans_of(row); ++span)
        for (int64_t h = 0; h < heads; ++h) {
            const float* saved = partial(group_slot(group, span, row - groups_[group].first), kv_head * heads + h);
            kernels_.attention_merge(own.max + h, own.sum + h, own.acc + h * dim, saved, saved + 1, saved + 2, 1, dim);
        }
    finish_group(stage, row, kv_head, own.sum, own.acc);
}

void Program::finish_group(const AttentionStage& stage, int64_t row, int64_t kv_head, const float* sum, const float* acc) const {
    const int64_t heads = stage.heads / kv_.kv_heads(), width = heads * kv_.head_dim();
    float* out = buffers_[static_cast<size_t>(stage.out)].row(row) + kv_head * width;
    kernels_.attention_finish(sum, acc, out, heads, kv_.head_dim());
    if (stage.quantize) quantize_columns(stage.out, step_.rows, row, kv_head * width, width);
}

}  // namespace swiftsure
