// Drafts from the text itself: what followed the last time the sequence read like this.
//
// A. Saxena, "Prompt lookup decoding", 2023; here over prompt and output, longest suffix first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace swiftsure {

// Finds the longest suffix of the sequence, of min_ngram to max_ngram tokens, that occurred before, and of its earlier occurrences the
// most recent. Appending a token costs one table update per suffix length; memory is 16 to 32 bytes per token and suffix length.
// Exact: entries are compared with the tokens they stand for, so a hash collision costs time only.
class Drafter {
  public:
    static constexpr int kMaxNgram = 32;

    // Throws std::invalid_argument unless 1 <= min_ngram <= max_ngram <= kMaxNgram.
    Drafter(int max_ngram, int min_ngram);

    void extend(const int32_t* ids, int64_t count);
    // Up to max_tokens tokens that followed the match; empty without one. A continuation that reaches the end of the sequence goes on
    // into itself, so that periodic text is drafted to any length.
    std::vector<int32_t> draft(int64_t max_tokens) const;

    // Tokens of the longest suffix that occurred before, at most max_ngram; 0 when it is shorter than min_ngram.
    int match_length() const { return match_length_; }
    int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
    int64_t memory_bytes() const;

  private:
    // An n-gram by its last position; stamp: 26 bits of its hash and its length, never 0 in a used entry.
    struct Entry {
        uint32_t stamp;
        uint32_t end;
    };

    size_t place(uint64_t hash, int n, int64_t end) const;  // the entry of the n-gram that ends at `end`, or a free one
    bool same(int64_t a_end, int64_t b_end, int n) const;
    void append(int32_t id);
    void grow();

    const int max_ngram_, min_ngram_;
    std::vector<int32_t> tokens_;
    std::vector<Entry> entries_;  // open addressing, a power of two, at most half full
    size_t used_ = 0;
    int match_length_ = 0;
    int64_t match_end_ = -1;  // position of the last token of the earlier occurrence
};

}  // namespace swiftsure
