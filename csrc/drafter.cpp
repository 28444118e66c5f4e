#include "drafter.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace swiftsure {
namespace {

uint64_t mix(uint64_t hash, int32_t token) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 29);
}

uint32_t stamp_of(uint64_t hash, int n) { return (static_cast<uint32_t>(hash >> 32) & ~63u) | static_cast<uint32_t>(n); }

}  // namespace

Drafter::Drafter(int max_ngram, int min_ngram) : max_ngram_(max_ngram), min_ngram_(min_ngram), entries_(1024) {
    if (min_ngram < 1 || max_ngram < min_ngram || max_ngram > kMaxNgram)
        throw std::invalid_argument("n-gram lengths must satisfy 1 <= min_ngram <= max_ngram <= 32, got min_ngram " +
                                    std::to_string(min_ngram) + " and max_ngram " + std::to_string(max_ngram));
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

void Drafter::append(int32_t id) {
    if (tokens_.size() >= std::numeric_limits<uint32_t>::max()) throw std::length_error("a drafter holds at most 2^32 - 1 tokens");
    if ((used_ + static_cast<size_t>(max_ngram_)) * 2 > entries_.size()) grow();
    tokens_.push_back(id);
    const int64_t end = length() - 1;
    const int reach = static_cast<int>(std::min<int64_t>(length(), max_ngram_));
    uint64_t hash = 0;
    int found = 0;
    for (int n = 1; n <= reach; ++n) {
        hash = mix(hash, tokens_[static_cast<size_t>(end - n + 1)]);
        if (n < min_ngram_) continue;
        Entry& entry = entries_[place(hash, n, end)];
        if (entry.stamp == 0) {
            entry.stamp = stamp_of(hash, n);
            ++used_;
        } else {
            found = n;
            match_end_ = entry.end;
        }
        entry.end = static_cast<uint32_t>(end);
    }
    match_length_ = found;
}

void Drafter::extend(const int32_t* ids, int64_t count) {
    for (int64_t i = 0; i < count; ++i) append(ids[i]);
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

std::vector<int32_t> Drafter::draft(int64_t max_tokens) const {
    std::vector<int32_t> out;
    if (match_length_ == 0 || max_tokens <= 0) return out;
    out.reserve(static_cast<size_t>(max_tokens));
    const int64_t start = match_end_ + 1, known = length();
    for (int64_t i = 0; i < max_tokens; ++i) {
        const int64_t from = start + i;
        out.push_back(from < known ? tokens_[static_cast<size_t>(from)] : out[static_cast<size_t>(from - known)]);
    }
    return out;
}

int64_t Drafter::memory_bytes() const {
    return static_cast<int64_t>(tokens_.capacity() * sizeof(int32_t) + entries_.size() * sizeof(Entry));
}

}  // namespace swiftsure
