// Keys and values of all layers in blocks of positions.
#pragma once

#include <cstdint>

#include "kernels/table.h"
#include "pages.h"

namespace swiftsure {

// int16 with one float scale per head vector; or int8, keys with one per 32 dimensions: models that norm the heads of keys leave a few
// dimensions far larger than the rest, which would have a few levels in one scale. All layers and heads of one block of positions lie
// together, so a block that no sequence has used yet costs no memory. Starts as zeros: a masked key has a finite scale from the first
// pass on.
class KVCache {
  public:
    // head_dim: a multiple of 16 up to 256; block_size: a multiple of 16 that divides 256; bits: 16 or 8 of a key or value. Throws
    // std::invalid_argument.
    KVCache(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t block_size, int64_t blocks, int64_t bits);

    KVBlockView block(int64_t layer, int64_t kv_head, int64_t block) const;

    int64_t layers() const { return layers_; }
    int64_t kv_heads() const { return kv_heads_; }
    int64_t head_dim() const { return head_dim_; }
    int64_t block_size() const { return block_size_; }
    int64_t blocks() const { return blocks_; }
    int64_t bits() const { return bits_; }
    int64_t key_group() const { return key_group_; }
    int64_t key_groups() const { return (head_dim_ + key_group_ - 1) / key_group_; }
    int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }

  private:
    int64_t layers_, kv_heads_, head_dim_, block_size_, blocks_, bits_, key_group_;
    int64_t part_bytes_;  // one (layer, key-value head, block): keys, values, key scales, value scales
    Pages memory_;
};

}  // namespace swiftsure
