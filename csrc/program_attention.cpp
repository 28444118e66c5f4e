// Running a program: the attention of a step, in groups of rows, ranges of heads and spans of keys (attention_plan.h).
#include <algorithm>
#include <limits>

#include "program.h"
#include "refuse.h"

namespace swiftsure {

namespace {

constexpr int64_t kMaxSpanBlocks = kSpanKeys / 16;

}  // namespace

void Program::plan_attention() {
    int64_t slots = 0;
    for (AttentionPlan& plan : attention_plans_) {
        plan.cut({step_.positions, step_.sequences, step_.rows}, kv_.kv_heads(), threads_ == 1 ? 1 : kChunksPerThread * threads_);
        if (plan.splits_spans()) slots = std::max(slots, plan.slots());
    }
    const size_t bytes = static_cast<size_t>(slots * max_heads_ * (kv_.head_dim() + 2)) * sizeof(float);
    if (partial_memory_.size() < bytes) partial_memory_ = Pages(2 * bytes);
}

// --- chunks ------------------------------------------------------------------------------------------------------------------

// How many threads the query heads of one key-value head are cut for. They share its keys and values, so a cut costs time unless a thread
// would have nothing to do, or much less than another.
int64_t Program::head_parts(const AttentionStage& stage) const {
    const int64_t chunks = plan_of(stage).items() * kv_.kv_heads(), heads = stage.heads / kv_.kv_heads();
    int64_t parts = 1;
    if (threads_ == 1) return parts;
    while (heads % (2 * parts) == 0 && heads / (2 * parts) * kv_.head_dim() % kGroup == 0) {
        const bool shares = heads / (2 * parts) > 1;
        if (chunks * parts >= (shares ? 2 : 1) * threads_) break;
        parts *= 2;
    }
    return parts;
}

int64_t Program::attention_chunks(const AttentionStage& stage) const { return plan_of(stage).items() * kv_.kv_heads() * head_parts(stage); }

Program::HeadRange Program::heads_of(const AttentionStage& stage, int64_t chunk) const {
    const int64_t parts = head_parts(stage), count = stage.heads / kv_.kv_heads() / parts, range = chunk % (kv_.kv_heads() * parts);
    return {range / parts, range * count, count};
}

// Where a chunk of an attention begins to read; null after the last.
std::optional<Program::Reading> Program::first_reading(const AttentionStage& stage, int64_t chunk) const {
    const AttentionPlan& plan = plan_of(stage);
    const int64_t index = chunk / (kv_.kv_heads() * head_parts(stage));
    if (index == plan.items()) return std::nullopt;
    const AttentionPlan::Item item = plan.item(index);
    return reading_of(stage, plan.groups()[item.group], item.span, heads_of(stage, chunk).kv_head);
}

// --- where keys are ----------------------------------------------------------------------------------------------------------

// What the rows of a group that see a span see of it together.
Program::Reading Program::reading_of(const AttentionStage& stage, const RowGroup& group, int64_t span, int64_t kv_head) const {
    const int64_t begin = span * kSpanKeys, end = begin + kSpanKeys, window = plan_of(stage).window();
    int64_t first = group.first, last = group.first + group.rows;
    while (step_.positions[first] < begin) ++first;
    while (first_key(step_.positions[last - 1], window) >= end) --last;
    return {.first_row = first,
            .rows = last - first,
            .kv_head = kv_head,
            .span = span,
            .begin = std::max(first_key(step_.positions[first], window), begin),
            .end = std::min<int64_t>(step_.positions[last - 1] + 1, end)};
}

// The blocks of a reading, at most kMaxSpanBlocks; returns how many.
int64_t Program::blocks_of(const AttentionStage& stage, const Reading& at, KVBlockView* out) const {
    const int64_t size = kv_.block_size(), first = at.begin / size, after = ceil_div(at.end, size);
    const int32_t* table = step_.block_tables + step_.sequences[at.first_row] * step_.table_width;
    for (int64_t b = first; b < after; ++b) *out++ = kv_.block(stage.layer, at.kv_head, table[b]);
    return after - first;
}

float* Program::partial(int64_t slot, int64_t head) const {
    return reinterpret_cast<float*>(partial_memory_.data()) + (slot * max_heads_ + head) * (kv_.head_dim() + 2);
}

// --- attending ---------------------------------------------------------------------------------------------------------------

// Of some heads: maximum, sum and accumulator of each of them and of each row of the reading, as if nothing else were seen. `own` has all
// rows of the group, of which `skipped` come before those of the reading.
void Program::attend_span(const AttentionStage& stage, const Reading& at, const std::optional<Reading>& next, int64_t skipped,
                          int64_t heads, const Scratch& own) const {
    const int64_t dim = kv_.head_dim(), first = skipped * heads, begin = at.span * kSpanKeys, window = plan_of(stage).window();
    for (int64_t r = 0; r < at.rows; ++r) {
        const int64_t position = step_.positions[at.first_row + r];
        std::fill_n(own.seen_begin + r * heads, heads, std::max<int64_t>(first_key(position, window) - begin, 0));
        std::fill_n(own.seen_end + r * heads, heads, std::min(position + 1 - begin, kSpanKeys));
    }
    KVBlockView blocks[kMaxSpanBlocks], next_blocks[kMaxSpanBlocks];
    blocks_of(stage, at, blocks + (at.begin - begin) / kv_.block_size());
    const int64_t next_count = next ? blocks_of(stage, *next, next_blocks) : 0;
    kernels_.attention_span(own.q + first * dim, at.rows * heads, dim, blocks, next_blocks, next_count, kv_.block_size(), own.seen_begin,
                            own.seen_end, own.converted, own.span_max + first, own.span_sum + first, own.span_acc + first * dim);
}

// (rows, heads, head_dim)
void Program::scaled_queries(const AttentionStage& stage, const RowGroup& group, HeadRange heads, float* out) const {
    const int64_t width = heads.count * kv_.head_dim();
    for (int64_t r = 0; r < group.rows; ++r, out += width) {
        const float* q = buffers_[static_cast<size_t>(stage.x)].row(group.first + r) + stage.q_offset + heads.first * kv_.head_dim();
        for (int64_t i = 0; i < width; ++i) out[i] = q[i] * stage.scale;
    }
}

void Program::run_attention(const AttentionStage& stage, int32_t chunk, int32_t thread) const {
    const Scratch& own = scratch_[static_cast<size_t>(thread)];
    const AttentionPlan& plan = plan_of(stage);
    const HeadRange heads = heads_of(stage, chunk);
    const int64_t dim = kv_.head_dim();
    const std::optional<Reading> first = first_reading(stage, chunk), next = first_reading(stage, chunk + 1);
    const size_t index = plan.group_of_row(first->first_row);
    const RowGroup& group = plan.groups()[index];
    scaled_queries(stage, group, heads, own.q);
    if (plan.splits_spans()) {
        const int64_t skipped = first->first_row - group.first;
        attend_span(stage, *first, next, skipped, heads.count, own);
        for (int64_t r = 0, h = skipped * heads.count; r < first->rows; ++r, h += heads.count)
            save_partial(plan.slot(index, first->span, first->first_row + r), heads, own.span_max + h, own.span_sum + h,
                         own.span_acc + h * dim);
        return;
    }
    start_merge(own, group.rows * heads.count);
    Reading at = *first;
    for (int64_t span = group.span_begin; span < group.span_end; ++span) {
        const std::optional<Reading> after =
            span + 1 < group.span_end ? std::optional(reading_of(stage, group, span + 1, heads.kv_head)) : next;
        attend_span(stage, at, after, at.first_row - group.first, heads.count, own);
        const int64_t h = (at.first_row - group.first) * heads.count;
        kernels_.attention_merge(own.max + h, own.sum + h, own.acc + h * dim, own.span_max + h, own.span_sum + h, own.span_acc + h * dim,
                                 at.rows * heads.count, dim);
        if (span + 1 < group.span_end) at = *after;
    }
    for (int64_t r = 0, h = 0; r < group.rows; ++r, h += heads.count)
        finish_heads(stage, group.first + r, heads, own.sum + h, own.acc + h * dim);
}

void Program::start_merge(const Scratch& own, int64_t heads) const {
    std::fill_n(own.max, heads, -std::numeric_limits<float>::infinity());
    std::fill_n(own.sum, heads, 0.0f);
    std::fill_n(own.acc, heads * kv_.head_dim(), 0.0f);
}

// Of one row: max, sum (heads,) and acc (heads, head_dim).
void Program::save_partial(int64_t slot, HeadRange heads, const float* max, const float* sum, const float* acc) const {
    const int64_t dim = kv_.head_dim();
    for (int64_t h = 0; h < heads.count; ++h) {
        float* saved = partial(slot, heads.first + h);
        saved[0] = max[h];
        saved[1] = sum[h];
        std::copy(acc + h * dim, acc + (h + 1) * dim, saved + 2);
    }
}

// The spans of one row and key-value head, in ascending order as in run_attention.
void Program::run_merge(const AttentionStage& stage, int32_t chunk, int32_t thread) const {
    const Scratch& own = scratch_[static_cast<size_t>(thread)];
    const AttentionPlan& plan = plan_of(stage);
    const int64_t kv_heads = kv_.kv_heads(), kv_head = chunk % kv_heads, row = chunk / kv_heads;
    const int64_t count = stage.heads / kv_heads, dim = kv_.head_dim(), position = step_.positions[row];
    const HeadRange heads = {kv_head, kv_head * count, count};
    start_merge(own, count);
    for (int64_t span = first_key(position, plan.window()) / kSpanKeys; span <= position / kSpanKeys; ++span)
        for (int64_t h = 0; h < count; ++h) {
            const float* saved = partial(plan.slot(plan.group_of_row(row), span, row), heads.first + h);
            kernels_.attention_merge(own.max + h, own.sum + h, own.acc + h * dim, saved, saved + 1, saved + 2, 1, dim);
        }
    finish_heads(stage, row, heads, own.sum, own.acc);
}

void Program::finish_heads(const AttentionStage& stage, int64_t row, HeadRange heads, const float* sum, const float* acc) const {
    const int64_t column = heads.first * kv_.head_dim();
    kernels_.attention_finish(sum, acc, buffers_[static_cast<size_t>(stage.out)].row(row) + column, heads.count, kv_.head_dim());
    if (stage.quantize) quantize_columns(stage.out, step_.rows, row, column, heads.count * kv_.head_dim());
}

}  // namespace swiftsure
