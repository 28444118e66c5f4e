#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

#include "float_mode.h"

namespace swiftsure {
namespace {

constexpr double kEverything = std::numeric_limits<double>::infinity();
constexpr double kWeightUnit = 0x1p-40;  // 2^24 tokens of weight 1 fit 64 bits
constexpr int64_t kMaxVocab = int64_t{1} << 24;
// Few tokens lie close to the maximum: look there first, deeper only when that was not enough. The result does not depend on these.
constexpr double kDepths[] = {4, 8, 16, 32, kEverything};

template <typename T>
void require(bool holds, const char* rule, T value) {
    if (holds) return;
    std::ostringstream message;
    message << rule << ", got " << value;
    throw std::invalid_argument(message.str());
}

// Conservative: every logit with (l - max) / temperature >= -depth is at least this.
float least_logit(float max, double temperature, double depth) {
    const double gap = depth * temperature;
    const double least = max - gap - 1e-6 * (std::fabs(static_cast<double>(max)) + gap);
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    return least > static_cast<double>(kLowest) ? static_cast<float>(least) : kLowest;
}

}  // namespace

void check_settings(const SamplerSettings& s) {
    require(s.vocab >= 1 && s.vocab < kMaxVocab, "vocab_size must be at least 1 and below 16777216", s.vocab);
    require(s.temperature >= 0 && s.temperature <= kMaxTemperature, "temperature must be between 0 and 1000000", s.temperature);
    require(s.top_p > 0 && s.top_p <= 1, "top_p must be above 0 and at most 1", s.top_p);
    require(s.top_k >= 0, "top_k must be at least 0", s.top_k);
    require(s.min_p >= 0 && s.min_p <= 1, "min_p must be between 0 and 1", s.min_p);
    const float repetition = s.repetition_penalty;
    require(std::isfinite(repetition) && repetition > 0, "repetition_penalty must be finite and above 0", repetition);
    require(std::isfinite(s.presence_penalty), "presence_penalty must be finite", s.presence_penalty);
    require(std::isfinite(s.frequency_penalty), "frequency_penalty must be finite", s.frequency_penalty);
    for (const auto& [id, bias] : s.logit_bias) {
        require(id >= 0 && id < s.vocab, "logit_bias ids must be in the vocabulary", id);
        const bool bans = bias == -std::numeric_limits<float>::infinity();
        require(std::isfinite(bias) || bans, "logit_bias values must be finite or -infinity", bias);
    }
}

std::vector<Candidate> largest_logits(const KernelTable& kernels, const float* logits, int64_t vocab, int64_t count) {
    std::vector<Candidate> found;
    const float max = kernels.max_logit(logits, vocab);
    count = std::min(count, vocab);
    if (count <= 0 || max == -std::numeric_limits<float>::infinity()) return found;
    std::vector<int32_t> ids(static_cast<size_t>(vocab));
    for (const double depth : kDepths) {
        const int64_t selected = kernels.select_at_least(logits, vocab, least_logit(max, 1, depth), ids.data());
        if (selected < count && depth != kEverything) continue;
        found.resize(static_cast<size_t>(selected));
        for (size_t i = 0; i < found.size(); ++i) found[i] = {logits[ids[i]], ids[i]};
        break;
    }
    const size_t kept = std::min(found.size(), static_cast<size_t>(count));
    std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(kept), found.end());
    found.resize(kept);
    return found;
}

Sampler::Sampler(const KernelTable& kernels, SamplerSettings settings) : kernels_(kernels), settings_(std::move(settings)) {
    check_settings(settings_);
    if (filters()) ids_.resize(static_cast<size_t>(settings_.vocab));
    if (penalties() || !settings_.logit_bias.empty()) adjusted_.resize(static_cast<size_t>(settings_.vocab));
}

bool Sampler::penalties() const {
    return settings_.repetition_penalty != 1 || settings_.presence_penalty != 0 || settings_.frequency_penalty != 0;
}

void Sampler::append(int32_t id, uint32_t generated) {
    ++position_;
    if (!penalties()) return;
    const auto [place, is_new] = use_of_.try_emplace(id, uses_.size());
    if (is_new) uses_.push_back({id, 0});
    uses_[place->second].generated += generated;
}

void Sampler::prime(const int32_t* ids, int64_t count) {
    if (sampled_) throw std::logic_error("prime() comes before the first accept()");
    for (int64_t i = 0; i < count; ++i) require(ids[i] >= 0 && ids[i] < settings_.vocab, "prompt ids must be in the vocabulary", ids[i]);
    for (int64_t i = 0; i < count; ++i) append(ids[i], 0);
}

int64_t Sampler::accept(const float* logits, int64_t rows, const int32_t* draft, int32_t* out) {
    const FloatMode ieee;
    for (int64_t row = 0; row < rows; ++row) {
        int32_t token;
        try {
            token = sample(logits + row * settings_.vocab);
        } catch (const std::runtime_error&) {
            if (row == 0) throw;
            return row;  // the tokens before stand; plain decoding, too, would fail only in the pass after them
        }
        sampled_ = true;
        append(token, 1);
        out[row] = token;
        if (row + 1 == rows || draft[row] != token) return row + 1;
    }
    return 0;
}

void Sampler::process(const float* logits, float* out) {
    const FloatMode ieee;
    const float* adjusted = adjust(logits);
    const float max = finite_max(adjusted);
    if (settings_.temperature == 0) {
        std::copy(adjusted, adjusted + settings_.vocab, out);
    } else if (!filters()) {
        kernels_.scale_logits(adjusted, settings_.vocab, max, settings_.temperature, out);
    } else {
        filter(adjusted, max);
        std::fill(out, out + settings_.vocab, -std::numeric_limits<float>::infinity());
        for (const Candidate& c : candidates_) out[c.id] = c.value;
    }
}

int32_t Sampler::sample(const float* logits) {
    const float* adjusted = adjust(logits);
    if (settings_.temperature == 0) {
        const int64_t id = kernels_.argmax(adjusted, settings_.vocab);
        if (!std::isfinite(adjusted[id])) finite_max(adjusted);
        return static_cast<int32_t>(id);
    }
    const uint32_t position = static_cast<uint32_t>(position_);
    if (!filters()) {
        finite_max(adjusted);
        return static_cast<int32_t>(
            kernels_.gumbel_argmax(adjusted, settings_.vocab, settings_.temperature, settings_.seed, settings_.choice, position));
    }
    filter(adjusted, finite_max(adjusted));
    values_.resize(candidates_.size());
    for (size_t i = 0; i < candidates_.size(); ++i) {
        ids_[i] = candidates_[i].id;
        values_[i] = candidates_[i].value;
    }
    return static_cast<int32_t>(kernels_.gumbel_argmax_of(ids_.data(), values_.data(), static_cast<int64_t>(candidates_.size()),
                                                          settings_.seed, settings_.choice, position));
}

float Sampler::finite_max(const float* adjusted) const {
    const float max = kernels_.max_logit(adjusted, settings_.vocab);
    if (!std::isfinite(max))
        throw std::runtime_error("no token can be chosen at position " + std::to_string(position_) +
                                 ": the greatest logit must be finite, got " + std::to_string(max));
    return max;
}

const float* Sampler::adjust(const float* logits) {
    if (settings_.logit_bias.empty() && uses_.empty()) return logits;
    float* l = adjusted_.data();
    std::copy(logits, logits + settings_.vocab, l);
    for (const auto& [id, bias] : settings_.logit_bias) l[id] = l[id] + bias;
    const float repetition = settings_.repetition_penalty;
    for (const Use& use : uses_) {
        float value = l[use.id];
        if (repetition != 1) value = value > 0 ? value / repetition : value * repetition;
        if (use.generated > 0) {
            value = value - static_cast<float>(use.generated) * settings_.frequency_penalty;
            value = value - settings_.presence_penalty;
        }
        l[use.id] = value;
    }
    return l;
}

void Sampler::filter(const float* adjusted, float max) {
    if (settings_.top_k > 0 && settings_.top_k < settings_.vocab) {
        keep_top_k(adjusted, max);
        if (settings_.top_p < 1) {
            weigh();
            uint64_t total = 0;
            for (const Candidate& c : candidates_) total += c.weight;
            cut_at_mass(settings_.top_p * static_cast<double>(total));
        }
    } else if (settings_.top_p < 1) {
        keep_top_p(adjusted, max);
    } else {
        // e^x is accurate to far better than the hundredth by which this looks deeper than min_p asks.
        gather(adjusted, max, settings_.min_p > 0 ? 0.01 - std::log(settings_.min_p) : kEverything);
    }
    if (settings_.min_p > 0) keep_min_p();
}

void Sampler::gather(const float* adjusted, float max, double depth) {
    const double temperature = settings_.temperature;
    const int64_t count = kernels_.select_at_least(adjusted, settings_.vocab, least_logit(max, temperature, depth), ids_.data());
    values_.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = adjusted[ids_[i]];
    kernels_.scale_logits(values_.data(), count, max, settings_.temperature, values_.data());
    candidates_.clear();
    for (size_t i = 0; i < values_.size(); ++i)
        if (std::isfinite(values_[i]) && static_cast<double>(values_[i]) >= -depth) candidates_.push_back({values_[i], ids_[i]});
}

void Sampler::keep_top_k(const float* adjusted, float max) {
    const size_t k = static_cast<size_t>(settings_.top_k);
    for (const double depth : kDepths) {
        gather(adjusted, max, depth);
        if (candidates_.size() >= k) break;
    }
    if (candidates_.size() <= k) return;
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k), candidates_.end());
    candidates_.resize(k);
}

void Sampler::keep_top_p(const float* adjusted, float max) {
    const double total = kernels_.exp_sum(adjusted, settings_.vocab, max, settings_.temperature);
    for (const double depth : kDepths) {
        gather(adjusted, max, depth);
        weigh();
        if (cut_at_mass(settings_.top_p * total / kWeightUnit)) return;
    }
}

bool Sampler::cut_at_mass(double mass) {
    uint64_t total = 0;
    for (const Candidate& c : candidates_) total += c.weight;
    if (static_cast<double>(total) < mass) return false;
    // The cut lies in [first, last); what is before `first` weighs `before` and stays. Halve by rank, sort only the last few.
    auto first = candidates_.begin(), last = candidates_.end();
    uint64_t before = 0;
    while (last - first > 32) {
        const auto middle = first + (last - first) / 2;
        std::nth_element(first, middle, last);
        uint64_t half = before;
        for (auto c = first; c != middle; ++c) half += c->weight;
        if (static_cast<double>(half) >= mass) {
            last = middle;
        } else {
            first = middle;
            before = half;
        }
    }
    std::sort(first, last);
    for (; first != last; ++first) {
        before += first->weight;
        if (static_cast<double>(before) >= mass) break;
    }
    candidates_.erase(first == last ? last : first + 1, candidates_.end());
    return true;
}

void Sampler::keep_min_p() {
    weigh();
    // p_max is e^0 = 1: the likeliest token has passed every filter.
    const double least = settings_.min_p / kWeightUnit;
    std::erase_if(candidates_, [least](const Candidate& c) { return static_cast<double>(c.weight) < least; });
}

void Sampler::weigh() {
    values_.resize(candidates_.size());
    for (size_t i = 0; i < candidates_.size(); ++i) values_[i] = candidates_[i].value;
    kernels_.exp_row(values_.data(), static_cast<int64_t>(values_.size()), values_.data());
    for (size_t i = 0; i < candidates_.size(); ++i)
        candidates_[i].weight = static_cast<uint64_t>(static_cast<double>(values_[i]) / kWeightUnit);
}

}  // namespace swiftsure
