#include "drafter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace swiftsure {
namespace {

uint64_t mix(uint64_t hash, int32_t token) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

uint32_t stamp_of(uint64_t hash, int n) { return (static_cast<uint32_t>(hash >> 32) & ~63u) | static_cast<uint32_t>(n); }

// What the features weigh before a sequence has taught anything: fitted to 47 outputs of SmolLM2 (see docs/decisions/0016-drafts.md).
constexpr std::array<float, 21> kWeights = {-1.55f, -0.84f, -0.55f, -0.08f, -0.10f, -0.12f, 0.01f,  // classes of match lengths
                                            0.32f,  -0.30f, 0.69f,  0.07f,  0.31f,  0.11f,  -0.94f,
                                            0.54f,  0.18f,  0.74f,  -0.10f, -0.22f, 0.40f,  0.05f};
constexpr int kClassStarts[] = {1, 2, 3, 4, 6, 8, 12};
constexpr float kLearningRate = 0.005f;
constexpr int kCounted = 4;          // longest context whose continuations are counted
constexpr int64_t kWhole = 64;       // longer matches count as this long
constexpr int kLooked[] = {16, 32};  // places that end in the same token, in the same two, that are looked at for a rival
constexpr uint32_t kNowhere = 0xFFFFFFFFu;
constexpr float kMeanNoise = 0.5772f;  // of Gumbel noise
constexpr float kLeastNoise = -2, kMostNoise = 6;

// Log odds of `right` out of `all`, never certain.
float odds(uint32_t right, uint32_t all) {
    const float p = (static_cast<float>(right) + 0.4f) / (static_cast<float>(all) + 0.8f);
    return std::log(p / (1.0f - p));
}

float share(uint32_t bits, int count) { return static_cast<float>(std::popcount(bits & ((1u << count) - 1u))) / static_cast<float>(count); }

}  // namespace

Drafter::Drafter(const KernelTable& kernels, int max_ngram, Drawing drawing)
    : kernels_(kernels), max_ngram_(max_ngram), drawing_(drawing), entries_(1024), weights_(kWeights) {
    if (max_ngram < 1 || max_ngram > kMaxNgram)
        throw std::invalid_argument("max_ngram must be at least 1 and at most 32, got " + std::to_string(max_ngram));
}

bool Drafter::same(int64_t a_end, int64_t b_end, int n) const {
    for (int i = 0; i < n; ++i)
        if (tokens_[static_cast<size_t>(a_end - i)] != tokens_[static_cast<size_t>(b_end - i)]) return false;
    return true;
}

size_t Drafter::place(uint64_t hash, int n, int64_t end) const {
    const size_t mask = entries_.size() - 1;
    const uint32_t stamp = stamp_of(hash, n);
    size_t i = static_cast<size_t>(hash) & mask;
    while (entries_[i].stamp != 0 && !(entries_[i].stamp == stamp && same(entries_[i].end, end, n))) i = (i + 1) & mask;
    return i;
}

const Drafter::Entry& Drafter::entry(int64_t end, int n) const {
    uint64_t hash = 0;
    for (int i = 0; i < n; ++i) hash = mix(hash, tokens_[static_cast<size_t>(end - i)]);
    return entries_[place(hash, n, end)];
}

void Drafter::append(int32_t id) {
    if (tokens_.size() >= std::numeric_limits<uint32_t>::max()) throw std::length_error("a drafter holds at most 2^32 - 1 tokens");
    if ((used_ + static_cast<size_t>(max_ngram_)) * 2 > entries_.size()) grow();
    tokens_.push_back(id);
    const int64_t end = length() - 1;
    const int reach = static_cast<int>(std::min<int64_t>(length(), max_ngram_));
    uint64_t hash = 0;
    match_length_ = 0;
    if (reach < 2) before_[1].push_back(kNowhere);
    for (int n = 1; n <= reach; ++n) {
        hash = mix(hash, tokens_[static_cast<size_t>(end - n + 1)]);
        Entry& e = entries_[place(hash, n, end)];
        if (n <= 2) before_[static_cast<size_t>(n - 1)].push_back(e.stamp == 0 ? kNowhere : e.end);
        if (e.stamp == 0) {
            e = {stamp_of(hash, n), 0, 0, 0};
            ++used_;
            if (n == 2) ++entries_[place(mix(0, tokens_[static_cast<size_t>(end - 1)]), 1, end - 1)].followers;
        } else {
            match_length_ = n;
            match_end_ = e.end;
        }
        e.end = static_cast<uint32_t>(end);
        ++e.count;
    }
}

void Drafter::judge(bool right) {
    Fate* const fates[] = {&guessed_[tokens_[static_cast<size_t>(match_end_ + 1)]], &after_[tokens_.back()]};
    for (Fate* fate : fates) {
        ++fate->tried;
        fate->right += right;
    }
}

void Drafter::extend(const int32_t* ids, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        if (match_length_ > 0) judge(tokens_[static_cast<size_t>(match_end_ + 1)] == ids[i]);
        append(ids[i]);
        if (drawing_.temperature > 0) drawn_with_.push_back(0);
    }
}

void Drafter::observe(const int32_t* ids, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        if (match_length_ > 0) {
            const bool right = tokens_[static_cast<size_t>(match_end_ + 1)] == ids[i];
            const Features x = features(0, hits_, whole_match());
            const float step = kLearningRate * (static_cast<float>(right) - chance(x));
            for (size_t f = 0; f < x.size(); ++f) weights_[f] += step * x[f];
            hits_ = hits_ << 1 | static_cast<uint32_t>(right);
            judge(right);
        }
        if (drawing_.temperature > 0) drawn_with_.push_back(noise(ids[i], length()) - kMeanNoise - 1);
        append(ids[i]);
    }
}

void Drafter::grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    const size_t mask = entries_.size() - 1;
    for (const Entry& entry : old) {
        if (entry.stamp == 0) continue;
        uint64_t hash = 0;
        const int n = static_cast<int>(entry.stamp & 63u);
        for (int i = 0; i < n; ++i) hash = mix(hash, tokens_[entry.end - static_cast<size_t>(i)]);
        size_t i = static_cast<size_t>(hash) & mask;
        while (entries_[i].stamp != 0) i = (i + 1) & mask;
        entries_[i] = entry;
    }
}

int64_t Drafter::source(int64_t depth) const { return match_end_ + depth % (length() - 1 - match_end_); }

int64_t Drafter::whole_match() const {
    int64_t whole = match_length_;
    while (whole < kWhole && whole <= match_end_ &&
           tokens_[static_cast<size_t>(match_end_ - whole)] == tokens_[static_cast<size_t>(length() - 1 - whole)])
        ++whole;
    return whole;
}

int Drafter::rival(int64_t at, int match) const {
    const int32_t next = tokens_[static_cast<size_t>(at + 1)];
    int longest = 0;
    const int held = static_cast<int>(std::min<int64_t>(at + 1, 2));  // a repetition may match further than the tokens reach back
    for (int n = std::min({match, held, max_ngram_}); n >= 1 && longest == 0; --n) {
        const std::vector<uint32_t>& before = before_[static_cast<size_t>(n - 1)];
        uint32_t end = entry(at, n).end;
        for (int looked = 0; looked < kLooked[n - 1] && end != kNowhere && longest < match; ++looked, end = before[end]) {
            if (end + int64_t{1} >= length() || tokens_[size_t{end} + 1] == next) continue;
            int alike = n;
            while (alike < match && alike <= static_cast<int64_t>(end) && alike <= at &&
                   tokens_[end - static_cast<size_t>(alike)] == tokens_[static_cast<size_t>(at - alike)])
                ++alike;
            longest = std::max(longest, alike);
        }
    }
    return longest;
}

float Drafter::noise(int32_t token, int64_t position) const {
    const float nothing = 0;
    float found = 0;
    kernels_.gumbel_scores_of(&token, &nothing, 1, drawing_.seed, drawing_.choice, static_cast<uint32_t>(position), &found);
    return found;
}

// Of the token drafted at `depth`, were all before it right: how long the match is by then, how often its last tokens, its last two and its
// last one were followed by this token and by any, how well another place fits that goes on otherwise, which of the latest guesses were
// right, which of this token and which after the last; and where tokens are sampled, how much noise this one gets, and got there.
Drafter::Features Drafter::features(int64_t depth, uint32_t hits, int64_t whole) const {
    const int64_t at = source(depth), last = length() - 1;
    const int match = static_cast<int>(std::min<int64_t>(match_length_ + depth, max_ngram_));
    const int32_t token = tokens_[static_cast<size_t>(at + 1)];
    const auto counts = [&](int n) {
        n = static_cast<int>(std::min<int64_t>(n, at + 1));
        const uint32_t right = entry(at + 1, n + 1).count;
        const uint32_t open = same(last, at, n) ? 1 : 0;  // the end of the sequence is an occurrence that nothing follows yet
        return std::pair{right, std::max(entry(at, n).count - open, right)};
    };
    const auto [right, all] = counts(std::min({match, kCounted, max_ngram_ - 1}));
    const auto [right2, all2] = counts(std::min({match, 2, max_ngram_ - 1}));
    const auto [right1, all1] = counts(1);
    Features x{};
    const int* after = std::upper_bound(std::begin(kClassStarts), std::end(kClassStarts), match);
    x[static_cast<size_t>(after - std::begin(kClassStarts) - 1)] = 1.0f;
    float* f = x.data() + kClasses;
    *f++ = odds(right, all);
    *f++ = all == 1 ? 1.0f : 0.0f;
    *f++ = share(hits, 8) - 0.5f;
    *f++ = odds(right1, all1);
    *f++ = std::log1p(static_cast<float>(all1));
    *f++ = odds(right2, all2);
    *f++ = std::log1p(static_cast<float>(rival(at, match)));
    *f++ = fate(guessed_, token);
    *f++ = fate(after_, tokens_[static_cast<size_t>(at)]);
    *f++ = std::log1p(static_cast<float>(std::min(whole + depth, kWhole)));
    if (drawing_.temperature <= 0) return x;
    const float g = std::clamp(noise(token, length() + depth), kLeastNoise, kMostNoise);
    *f++ = std::min(drawn_with_[static_cast<size_t>(at + 1)], kMostNoise);
    *f++ = 1;
    *f++ = g - kMeanNoise;
    *f++ = std::exp(-g) - 1;
    return x;
}

float Drafter::fate(const Fates& fates, int32_t token) {
    const auto found = fates.find(token);
    const Fate fate = found == fates.end() ? Fate{} : found->second;
    return std::log(static_cast<float>(fate.right + 1) / static_cast<float>(fate.tried - fate.right + 1));
}

float Drafter::chance(const Features& x) const {
    float sum = 0.0f;
    for (size_t f = 0; f < x.size(); ++f) sum += weights_[f] * x[f];
    return 1.0f / (1.0f + std::exp(-sum));
}

Drafter::Draft Drafter::draft(int64_t max_tokens) const {
    Draft draft;
    if (match_length_ == 0 || max_tokens <= 0) return draft;
    const int64_t whole = whole_match();
    uint32_t hits = hits_;
    for (int64_t depth = 0; depth < max_tokens; ++depth) {
        draft.tokens.push_back(tokens_[static_cast<size_t>(source(depth) + 1)]);
        draft.chances.push_back(chance(features(depth, hits, whole)));
        hits = hits << 1 | 1u;
    }
    return draft;
}

int64_t Drafter::memory_bytes() const {
    // A node of a map: its key, its value, a pointer and its bucket.
    const size_t fates = (guessed_.size() + after_.size()) * (sizeof(Fates::value_type) + 2 * sizeof(void*));
    const size_t places = (before_[0].capacity() + before_[1].capacity()) * sizeof(uint32_t) + drawn_with_.capacity() * sizeof(float);
    return static_cast<int64_t>(tokens_.capacity() * sizeof(int32_t) + entries_.size() * sizeof(Entry) + places + fates);
}

}  // namespace swiftsure
