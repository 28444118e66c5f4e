#include "kv_cache.h"

#include <stdexcept>
#include <string>

namespace swiftsure {

namespace {

constexpr int64_t kSmallKeyGroup = 32;

void require(bool holds, const char* rule, int64_t value) {
    if (!holds) throw std::invalid_argument(std::string(rule) + ", got " + std::to_string(value));
}

int64_t checked_product(int64_t a, int64_t b) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) throw std::invalid_argument("the key-value cache does not fit 63 bits of bytes");
    return product;
}

}  // namespace

KVCache::KVCache(int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t block_size, int64_t blocks, int64_t bits)
    : layers_(layers),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      block_size_(block_size),
      blocks_(blocks),
      bits_(bits),
      key_group_(bits == 8 ? kSmallKeyGroup : head_dim) {
    require(layers >= 1, "layers must be at least 1", layers);
    require(kv_heads >= 1, "kv_heads must be at least 1", kv_heads);
    require(head_dim >= 16 && head_dim <= 256 && head_dim % 16 == 0, "head_dim must be a multiple of 16 from 16 to 256", head_dim);
    require(block_size >= 16 && block_size % 16 == 0 && 256 % block_size == 0, "block_size must be 16, 32, 64, 128 or 256", block_size);
    require(blocks >= 1, "blocks must be at least 1", blocks);
    require(bits == 16 || bits == 8, "bits of keys and values must be 16 or 8", bits);
    part_bytes_ = block_size * (2 * head_dim * bits / 8 + (key_groups() + 1) * static_cast<int64_t>(sizeof(float)));
    memory_ = Pages(static_cast<size_t>(checked_product(checked_product(checked_product(layers, kv_heads), blocks), part_bytes_)), true);
}

KVBlockView KVCache::block(int64_t layer, int64_t kv_head, int64_t block) const {
    uint8_t* part = memory_.data() + ((block * layers_ + layer) * kv_heads_ + kv_head) * part_bytes_;
    const int64_t number_bytes = head_dim_ * block_size_ * bits_ / 8;
    float* key_scales = reinterpret_cast<float*>(part + 2 * number_bytes);
    return {bits_, key_group_, part, key_scales, part + number_bytes, key_scales + key_groups() * block_size_};
}

}  // namespace swiftsure
