// How the attention of a step is cut: groups of rows, key-value heads and spans of keys. Pure arithmetic; no cut changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/table.h"

namespace swiftsure {

constexpr int64_t kEveryKey = std::numeric_limits<int64_t>::max();  // the window of an attention that has none

// A row at `position` sees keys [first_key, position + 1): at most `window` of them.
constexpr int64_t first_key(int64_t position, int64_t window) { return position < window ? 0 : position + 1 - window; }

// Neighbouring rows of one sequence that attend together and share the conversion of keys and values. Together they see keys of the spans
// [span_begin, span_end), of each span at least one row.
struct RowGroup {
    int64_t first, rows;
    int64_t span_begin, span_end;
    int64_t spans() const { return span_end - span_begin; }
};

// The rows of a step, in the order of the step.
struct StepRows {
    const int32_t* positions;
    const int32_t* sequences;
    int64_t count;
};

// Of all attentions with one window. An item is a group with all its spans, or, where that makes too few of them, one span of a group;
// then spans are merged in a stage of their own.
class AttentionPlan {
  public:
    static constexpr int64_t kMaxGroupRows = 8;

    explicit AttentionPlan(int64_t window) : window_(window) {}

    // Groups as large as leaves `enough` pairs of an item and a key-value head, and one item at least.
    void cut(StepRows rows, int64_t kv_heads, int64_t enough);

    int64_t window() const { return window_; }
    bool splits_spans() const { return splits_spans_; }
    const std::vector<RowGroup>& groups() const { return groups_; }
    size_t group_of_row(int64_t row) const { return row_group_[static_cast<size_t>(row)]; }

    int64_t items() const { return splits_spans_ ? span_items_.back() : static_cast<int64_t>(groups_.size()); }
    struct Item {
        size_t group;
        int64_t span;  // the first one, where it has all
    };
    Item item(int64_t index) const;

    // Partial results when spans are split: one for each span and row of a group.
    int64_t slots() const { return slot_begin_.back(); }
    int64_t slot(size_t group, int64_t span, int64_t row) const {
        const RowGroup& g = groups_[group];
        return slot_begin_[group] + (span - g.span_begin) * g.rows + row - g.first;
    }

  private:
    void group_rows(StepRows rows, int64_t most);

    int64_t window_;
    bool splits_spans_ = false;
    std::vector<RowGroup> groups_;
    std::vector<size_t> row_group_;    // (rows,)
    std::vector<int64_t> span_items_;  // (groups + 1,) spans of the groups before
    std::vector<int64_t> slot_begin_;  // (groups + 1,) rows times spans of the groups before
};

}  // namespace swiftsure
