// Drafts from the text itself: what followed the last time the sequence read like this.
//
// A. Saxena, "Prompt lookup decoding", 2023; here over prompt and output, longest suffix first, each token with an estimate of its chance.
// The estimate is a logistic mix of counts, trained as it goes along, as in M. Mahoney, "Adaptive weighing of context models for lossless
// data compression", 2005: every token that comes tells whether the guess for its place was right, verified or not. Of a sampled request
// the noise that its sampler will add is known beforehand: a token with great noise is drawn more often than its probability.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "kernels/table.h"

namespace swiftsure {

// Finds the longest suffix of the sequence, of at most max_ngram tokens, that occurred before, and of its earlier occurrences the most
// recent. Appending a token costs one table update per suffix length; memory is 32 to 64 bytes per token and suffix length. Drafting looks
// at a bounded number of other places per token. Exact: entries are compared with the tokens they stand for, so a hash collision costs time
// only.
class Drafter {
  public:
    static constexpr int kMaxNgram = 32;

    struct Draft {
        std::vector<int32_t> tokens;
        std::vector<float> chances;  // of each token, given that all before it are right
    };

    // What the request's tokens are drawn with; see sampler.h.
    struct Drawing {
        float temperature = 0;
        uint64_t seed = 0;
        uint32_t choice = 0;
    };

    // Throws std::invalid_argument unless 1 <= max_ngram <= kMaxNgram.
    Drafter(const KernelTable& kernels, int max_ngram, Drawing drawing);

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
    static constexpr int kFeatures = kClasses + 14;
    // Guesses of one token, or made after it: how many, and how many of them were right.
    struct Fate {
        uint32_t right = 0, tried = 0;
    };
    using Fates = std::unordered_map<int32_t, Fate>;
    using Features = std::array<float, kFeatures>;

    size_t place(uint64_t hash, int n, int64_t end) const;  // the entry of the n-gram that ends at `end`, or a free one
    const Entry& entry(int64_t end, int n) const;           // of an n-gram that occurred
    bool same(int64_t a_end, int64_t b_end, int n) const;
    void append(int32_t id);
    void judge(bool right);  // the guess for the token that is about to be appended
    void grow();

    int64_t source(int64_t depth) const;  // position whose next token is drafted
    // `whole`: length of the match beyond max_ngram.
    Features features(int64_t depth, uint32_t hits, int64_t whole) const;
    int64_t whole_match() const;
    int rival(int64_t at, int match) const;  // longest match, up to `match`, of a place that goes on otherwise than `at`
    float noise(int32_t token, int64_t position) const;
    static float fate(const Fates& fates, int32_t token);  // log odds, 0 for a token that was not guessed
    float chance(const Features& x) const;

    const KernelTable& kernels_;
    const int max_ngram_;
    const Drawing drawing_;
    std::vector<int32_t> tokens_;
    std::array<std::vector<uint32_t>, 2> before_;  // by position, where the token, and it with the one before it, ended last
    std::vector<float> drawn_with_;                // noise of a token that was generated, 0 of one that was given; only where sampled
    Fates guessed_, after_;                        // by the token that was guessed, and by the one before it
    std::vector<Entry> entries_;                   // open addressing, a power of two, at most half full
    size_t used_ = 0;
    int match_length_ = 0;
    int64_t match_end_ = -1;  // position of the last token of the earlier occurrence
    Features weights_;
    uint32_t hits_ = 0;  // the latest guesses, latest in bit 0: 1 was right
};

}  // namespace swiftsure
