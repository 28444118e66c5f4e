// Texts that are over, as a source of drafts for others: the latest tokens up to a fixed number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swiftsure {

// A ring of tokens with chains of places whose last kKey tokens hash alike, as in LZ77 compressors: constant work per token added, 12 to 16
// bytes per token of capacity, and a search looks at most at kCandidates places. Exact: places are compared token by token.
class TextStore {
  public:
    static constexpr int kKey = 4;  // shortest match

    struct Match {
        int64_t length = 0;           // tokens of the tail that were found, 0 or at least kKey
        std::vector<int32_t> tokens;  // what followed there, up to the end of that text
    };

    // Throws std::invalid_argument unless capacity is at least 2 * kKey and at most 2^30.
    explicit TextStore(int64_t capacity);

    // Adds a text; the oldest tokens give way. Of a text longer than the store the end stays.
    void add(const int32_t* ids, int64_t count);
    // The place whose tokens agree with the end of `ids` for longest, at most max_match of them; of equals the latest.
    Match find(const int32_t* ids, int64_t count, int64_t max_match, int64_t max_tokens) const;
    void clear();

    int64_t tokens() const { return next_ < capacity_ ? next_ : capacity_; }
    int64_t memory_bytes() const;

  private:
    static constexpr int kCandidates = 32;

    void append(int32_t id);
    bool held(int64_t at) const { return at >= 0 && at >= next_ - capacity_ && at < next_; }
    int32_t token(int64_t at) const { return ring_[static_cast<size_t>(at % capacity_)]; }
    size_t bucket(uint64_t key) const { return static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> shift_); }

    const int64_t capacity_;
    int shift_ = 0;                  // hashes to buckets
    int64_t next_ = 0;               // tokens ever added; a place is counted from the first
    std::vector<int32_t> ring_;      // (capacity,) kBreak between texts
    std::vector<uint32_t> earlier_;  // (capacity,) how far back the chain goes on, 0: it ends
    std::vector<int64_t> latest_;    // by bucket, -1: none
};

}  // namespace swiftsure
