#include "draft_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "float_mode.h"

namespace swiftsure {
namespace {

// Tokens less likely than e^-12 of the best are left out: one of them is drawn once in thousands of tokens.
constexpr float kDepth = 12;

}  // namespace

DraftSampler::DraftSampler(const KernelTable& kernels, SamplerSettings settings, std::vector<int32_t> shortlist)
    : kernels_(kernels),
      settings_(std::move(settings)),
      shortlist_(std::move(shortlist)),
      columns_(shortlist_.empty() ? settings_.vocab : static_cast<int64_t>(shortlist_.size())) {
    check_settings(settings_);
    for (size_t i = 0; i < shortlist_.size(); ++i)
        if (shortlist_[i] < 0 || shortlist_[i] >= settings_.vocab || (i > 0 && shortlist_[i] <= shortlist_[i - 1]))
            throw std::invalid_argument("a shortlist must ascend within the vocabulary of " + std::to_string(settings_.vocab) + ", got " +
                                        std::to_string(shortlist_[i]) + " at " + std::to_string(i));
    ids_.resize(static_cast<size_t>(columns_));
}

DraftSampler::Choice DraftSampler::choose(const float* logits, uint32_t position) {
    const FloatMode ieee;
    if (settings_.temperature == 0) return best(logits);
    const float max = kernels_.max_logit(logits, columns_);
    if (!std::isfinite(max)) return {0, 0};
    gather(logits, max);
    filter();
    const size_t count = candidates_.size();
    for (size_t i = 0; i < count; ++i) {
        ids_[i] = candidates_[i].id;
        values_[i] = candidates_[i].value;
    }
    kernels_.gumbel_scores_of(ids_.data(), values_.data(), static_cast<int64_t>(count), settings_.seed, settings_.choice, position,
                              values_.data());
    const size_t winner =
        static_cast<size_t>(std::max_element(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(count)) - values_.begin());
    const double total = kernels_.exp_sum(values_.data(), static_cast<int64_t>(count), values_[winner], 1);
    return {ids_[winner], static_cast<float>(1 / total)};
}

DraftSampler::Choice DraftSampler::best(const float* logits) const {
    const int64_t column = kernels_.argmax(logits, columns_);
    if (!std::isfinite(logits[column])) return {0, 0};
    return {token(column), static_cast<float>(1 / kernels_.exp_sum(logits, columns_, logits[column], 1))};
}

// The likely tokens, with x = (logit - max) / temperature.
void DraftSampler::gather(const float* logits, float max) {
    const float least = max - kDepth * settings_.temperature;
    const int64_t count = kernels_.select_at_least(logits, columns_, std::max(least, std::numeric_limits<float>::lowest()), ids_.data());
    values_.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = logits[ids_[i]];
    kernels_.scale_logits(values_.data(), count, max, settings_.temperature, values_.data());
    candidates_.resize(values_.size());
    for (size_t i = 0; i < values_.size(); ++i) candidates_[i] = {values_[i], token(ids_[i])};
}

// top_k, top_p and min_p, nearly as the sampler does them.
void DraftSampler::filter() {
    const size_t k = static_cast<size_t>(settings_.top_k);
    if (k == 0 && settings_.top_p >= 1 && settings_.min_p <= 0) return;
    std::sort(candidates_.begin(), candidates_.end());
    if (k > 0 && k < candidates_.size()) candidates_.resize(k);
    double total = 0, mass = 0;
    for (const Candidate& c : candidates_) total += std::exp(static_cast<double>(c.value));
    size_t kept = 0;
    while (kept < candidates_.size() && mass < settings_.top_p * total) mass += std::exp(static_cast<double>(candidates_[kept++].value));
    while (kept > 1 && std::exp(static_cast<double>(candidates_[kept - 1].value)) < settings_.min_p) --kept;
    candidates_.resize(std::max<size_t>(kept, 1));
}

}  // namespace swiftsure
