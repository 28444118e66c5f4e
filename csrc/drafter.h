// Drafts from the text itself: what followed the last time the sequence read like this.
//
// A. Saxena, "Prompt lookup decoding", 2023; here over prompt and output, longest suffix first, each token with an estimate of its chance.
// The estimate is a logistic mix of counts, trained as it goes along, as in M. Mahoney, "Adaptive weighing of context models for lossless
// data compression", 2005: every token that comes tells whether the guess for its place was right, verified or not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace swiftsure {

// Finds the longest suffix of the sequence, of at most max_ngram tokens, that occurred before, and of its earlier occurrences the most
// recent. Appending a token costs one table update per suffix length; memory is 32 to 64 bytes per token and suffix length.
// Exact: entries are compared with the tokens they stand for, so a hash collision costs time only.
class Drafter {
  public:
    static constexpr int kMaxNgram = 32;

    struct Draft {
        std::vector<int32_t> tokens;
        std::vector<float> chances;  // of each token, given that all before it are right
    };

    // Throws std::invalid_argument unless 1 <= max_ngram <= kMaxNgram.
    explicit Drafter(int max_ngram);

    // Appends tokens that were given.
    void extend(const int32_t* ids, int64_t count);
    // Appends tokens that were generated, and learns from each how far its guess was to be trusted.
    void observe(const int32_t* ids, int64_t count);
    // Up to max_tokens tokens that followed the match; empty without one. A continuation that reaches the end of the sequence goes on
    // into itself, so that periodic text is drafted to any length.
    Draft draft(int64_t max_tokens) const;

    // Tokens of the longest suffix that occurred before, at most max_ngram.
    int match_length() const { return match_length_; }
    int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
    int64_t memory_bytes() const;

  private:
    // An n-gram by its last position; stamp: 26 bits of its hash and its length, never 0 in a used entry.
    struct Entry {
        uint32_t stamp;
        uint32_t end;        // of its most recent occurrence
        uint32_t count;      // of its occurrences
        uint32_t followers;  // of a single token: different tokens that came after it
    };
    static constexpr int kClasses = 7;  // of match lengths
    static constexpr int kFeatures = kClasses + 9;
    using Features = std::array<float, kFeatures>;

    size_t place(uint64_t hash, int n, int64_t end) const;  // the entry of the n-gram that ends at `end`, or a free one
    const Entry& entry(int64_t end, int n) const;           // of an n-gram that occurred
    bool same(int64_t a_end, int64_t b_end, int n) const;
    void append(int32_t id);
    void grow();

    int64_t source(int64_t depth) const;  // position whose next token is drafted
    Features features(int64_t depth, uint32_t hits) const;
    float chance(const Features& x) const;

    const int max_ngram_;
    std::vector<int32_t> tokens_;
    std::vector<Entry> entries_;  // open addressing, a power of two, at most half full
    size_t used_ = 0;
    int match_length_ = 0;
    int64_t match_end_ = -1;  // position of the last token of the earlier occurrence
    Features weights_;
    uint32_t hits_ = 0;  // the latest guesses, latest in bit 0: 1 was right
};

}  // namespace swiftsure
