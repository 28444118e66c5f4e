// From logits to tokens, one object per request and choice.
//
// The token at a position is a pure function of (settings, tokens before it, logits of it). The order of the steps, each on the result
// of the one before:
//
//   1. logit_bias          l += bias[t]
//   2. repetition_penalty  tokens of the prompt and of the output so far: l > 0 ? l / r : l * r
//   3. frequency_penalty   tokens of the output so far: l -= count(t) * f
//      presence_penalty    the same tokens: l -= p
//   -- temperature 0: the greatest l, ties to the lowest id; what follows is left out --
//   4. temperature         x = (l - max l) / T
//   5. top_k               the k greatest x (ties to the lower id)
//   6. top_p               of these, by x descending (ties to the lower id), the fewest whose probabilities reach top_p of their sum;
//                          probabilities are summed in fixed point, exactly, so that no order of summation can matter
//   7. min_p               of these, those with p >= min_p * p_max
//   8. Gumbel noise        argmax x[t] + g(seed, choice, position, t), ties to the lowest id; position = tokens before this one
//
// Because the noise is keyed by the token's id and position, a draft that is compared with the token so sampled changes nothing:
// speculation yields the same tokens at any temperature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/table.h"

namespace swiftsure {

constexpr float kMaxTemperature = 1e6f;  // keeps temperature times noise far from the end of float32

struct SamplerSettings {
    int64_t vocab = 0;
    float temperature = 0;  // 0: greedy
    double top_p = 1;       // 1: off
    int64_t top_k = 0;      // 0: off
    double min_p = 0;       // 0: off
    uint64_t seed = 0;
    uint32_t choice = 0;
    float repetition_penalty = 1;
    float presence_penalty = 0;
    float frequency_penalty = 0;
    std::vector<std::pair<int32_t, float>> logit_bias;  // ids distinct
};

struct Candidate {
    float value;
    int32_t id;
    uint64_t weight = 0;  // e^value in units of 2^-40, where a step needs it
    // Greater value first, then lower id.
    bool operator<(const Candidate& other) const { return value > other.value || (value == other.value && id < other.id); }
};

// The `count` greatest logits in that order; NaN and -infinity are never among them, so there may be fewer.
std::vector<Candidate> largest_logits(const KernelTable& kernels, const float* logits, int64_t vocab, int64_t count);

// Throws std::invalid_argument when a setting is out of its range.
void check_settings(const SamplerSettings& settings);

class Sampler {
  public:
    // Throws std::invalid_argument when a setting is out of its range.
    Sampler(const KernelTable& kernels, SamplerSettings settings);

    // Adds prompt tokens to the history. Throws std::invalid_argument for an id outside the vocabulary, std::logic_error once tokens
    // were sampled.
    void prime(const int32_t* ids, int64_t count);

    // logits: (rows, vocab), row i following history + draft[0..i). Samples row by row and stops behind the first token that differs from
    // the draft (that token counts) or behind the last row. Writes and appends to the history what it returns; out has room for `rows`.
    // Stops before a later row of which no token can be chosen; throws std::runtime_error when that is the first row.
    int64_t accept(const float* logits, int64_t rows, const int32_t* draft, int32_t* out);

    // What step 8 (temperature 0: the argmax) would see for the next position: x for the tokens left, -infinity for all others.
    void process(const float* logits, float* out);

    int64_t position() const { return position_; }
    int64_t vocab() const { return settings_.vocab; }

  private:
    // A distinct token of the history and how often the output has it.
    struct Use {
        int32_t id;
        uint32_t generated;
    };

    int32_t sample(const float* logits);
    const float* adjust(const float* logits);                     // steps 1-3; the row itself when they are off
    float finite_max(const float* adjusted) const;                // throws std::runtime_error
    void filter(const float* adjusted, float max);                // steps 4-7 into candidates_, x as value
    void gather(const float* adjusted, float max, double depth);  // candidates_ = the tokens with x >= -depth
    void keep_top_k(const float* adjusted, float max);
    void keep_top_p(const float* adjusted, float max);
    bool cut_at_mass(double mass);  // false when candidates_ do not reach it
    void keep_min_p();
    void weigh();  // the weights of candidates_
    void append(int32_t id, uint32_t generated);
    bool filters() const { return settings_.top_k > 0 || settings_.top_p < 1 || settings_.min_p > 0; }
    bool penalties() const;

    const KernelTable& kernels_;
    SamplerSettings settings_;
    int64_t position_ = 0;
    bool sampled_ = false;
    std::vector<Use> uses_;                       // in order of first use; kept only when a penalty needs it
    std::unordered_map<int32_t, size_t> use_of_;  // token -> index into uses_
    std::vector<float> adjusted_;                 // (vocab,) when steps 1-3 change anything
    std::vector<int32_t> ids_;                    // (vocab,) room for a selection
    std::vector<Candidate> candidates_;
    std::vector<float> values_;  // room for the kernels
};

}  // namespace swiftsure
