#include "attention_plan.h"

#include <algorithm>

namespace swiftsure {

void AttentionPlan::cut(StepRows rows, int64_t kv_heads, int64_t enough) {
    for (int64_t most = kMaxGroupRows;; most = (most + 1) / 2) {
        group_rows(rows, most);
        const int64_t whole = static_cast<int64_t>(groups_.size()) * kv_heads, parts = span_items_.back() * kv_heads;
        splits_spans_ = whole < enough && parts > whole;
        if (most == 1 || (splits_spans_ ? parts : whole) >= enough) return;
    }
}

void AttentionPlan::group_rows(StepRows rows, int64_t most) {
    groups_.clear();
    row_group_.clear();
    for (int64_t r = 0; r < rows.count; ++r) {
        const int64_t position = rows.positions[r], span_end = position / kSpanKeys + 1;
        if (!groups_.empty() && groups_.back().rows < most && rows.sequences[r] == rows.sequences[r - 1]) {
            groups_.back().rows += 1;
            groups_.back().span_end = span_end;
        } else {
            groups_.push_back({r, 1, first_key(position, window_) / kSpanKeys, span_end});
        }
        row_group_.push_back(groups_.size() - 1);
    }
    span_items_.assign(1, 0);
    slot_begin_.assign(1, 0);
    for (const RowGroup& group : groups_) {
        span_items_.push_back(span_items_.back() + group.spans());
        slot_begin_.push_back(slot_begin_.back() + group.spans() * group.rows);
    }
}

AttentionPlan::Item AttentionPlan::item(int64_t index) const {
    if (!splits_spans_) return {static_cast<size_t>(index), groups_[static_cast<size_t>(index)].span_begin};
    const size_t group = static_cast<size_t>(std::upper_bound(span_items_.begin(), span_items_.end(), index) - span_items_.begin() - 1);
    return {group, groups_[group].span_begin + index - span_items_[group]};
}

}  // namespace swiftsure
