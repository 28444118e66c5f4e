// Which token a draft takes, and how sure that is: the sampler's choice made from other logits.
//
// A draft is right when it is the token that the big model's sampler draws (sampler.h). With the same noise on the same token ids, logits
// that are merely close pick that token far more often than two independent draws would agree. Nothing here can change an output, so this
// looks at the likely tokens only and leaves penalties and biases out.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/table.h"
#include "sampler.h"

namespace swiftsure {

class DraftSampler {
  public:
    struct Choice {
        int32_t token;
        float chance;  // e^score of the token over the sum of all; without noise its probability. 0: nothing can be chosen
    };

    // shortlist: ids of the columns of the logits, ascending; empty: column t is token t of settings.vocab. Of the settings, temperature,
    // top_k, top_p, min_p, seed and choice count. Throws std::invalid_argument.
    DraftSampler(const KernelTable& kernels, SamplerSettings settings, std::vector<int32_t> shortlist);

    // logits: (columns(),). position: tokens before this one.
    Choice choose(const float* logits, uint32_t position);

    int64_t columns() const { return columns_; }

  private:
    Choice best(const float* logits) const;
    void gather(const float* logits, float max);
    void filter();
    int32_t token(int64_t column) const {
        return shortlist_.empty() ? static_cast<int32_t>(column) : shortlist_[static_cast<size_t>(column)];
    }

    const KernelTable& kernels_;
    SamplerSettings settings_;
    std::vector<int32_t> shortlist_;
    int64_t columns_;
    std::vector<Candidate> candidates_;
    std::vector<int32_t> ids_;  // (columns,)
    std::vector<float> values_;
};

}  // namespace swiftsure
