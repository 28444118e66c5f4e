#include "text_store.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>

namespace swiftsure {
namespace {

constexpr int32_t kBreak = -1;  // no token has this id

uint64_t key_of(const int32_t* last) {
    uint64_t key = 0;
    for (int i = 0; i < TextStore::kKey; ++i) key = key * 0xD6E8FEB86659FD93u + static_cast<uint32_t>(last[-i]) + 1;
    return key;
}

}  // namespace

TextStore::TextStore(int64_t capacity) : capacity_(capacity) {
    if (capacity < 2 * kKey || capacity > int64_t{1} << 30)
        throw std::invalid_argument("capacity must be at least 8 and at most 2^30 tokens, got " + std::to_string(capacity));
    clear();
}

void TextStore::clear() {
    const int bits = std::bit_width(static_cast<uint64_t>(capacity_)) - 1;
    shift_ = 64 - bits;
    next_ = 0;
    ring_.assign(static_cast<size_t>(capacity_), kBreak);
    earlier_.assign(static_cast<size_t>(capacity_), 0);
    latest_.assign(size_t{1} << bits, -1);
}

void TextStore::append(int32_t id) {
    const size_t slot = static_cast<size_t>(next_ % capacity_);
    ring_[slot] = id;
    earlier_[slot] = 0;
    ++next_;
}

void TextStore::add(const int32_t* ids, int64_t count) {
    const int64_t skipped = std::max<int64_t>(0, count + 1 - capacity_);
    for (int64_t i = skipped; i < count; ++i) {
        append(ids[i]);
        if (i - skipped + 1 < kKey) continue;
        int64_t& latest = latest_[bucket(key_of(ids + i))];
        const int64_t at = next_ - 1, back = at - latest;
        if (latest >= 0 && back < capacity_) earlier_[static_cast<size_t>(at % capacity_)] = static_cast<uint32_t>(back);
        latest = at;
    }
    append(kBreak);
}

TextStore::Match TextStore::find(const int32_t* ids, int64_t count, int64_t max_match, int64_t max_tokens) const {
    Match best;
    if (count < kKey || max_tokens <= 0) return best;
    const int64_t most = std::min(count, max_match);
    int64_t found = -1, at = latest_[bucket(key_of(ids + count - 1))];
    for (int looked = 0; looked < kCandidates && held(at) && best.length < most; ++looked) {
        int64_t length = 0;
        while (length < most && held(at - length) && token(at - length) == ids[count - 1 - length]) ++length;
        if (length >= kKey && length > best.length && held(at + 1) && token(at + 1) != kBreak) {
            best.length = length;
            found = at;
        }
        const uint32_t back = earlier_[static_cast<size_t>(at % capacity_)];
        if (back == 0) break;
        at -= back;
    }
    for (int64_t next = found + 1; best.length > 0 && next <= found + max_tokens; ++next) {
        if (!held(next) || token(next) == kBreak) break;
        best.tokens.push_back(token(next));
    }
    return best;
}

int64_t TextStore::memory_bytes() const {
    return static_cast<int64_t>(ring_.size() * sizeof(int32_t) + earlier_.size() * sizeof(uint32_t) + latest_.size() * sizeof(int64_t));
}

}  // namespace swiftsure
