// Choosing tokens: maxima, softmax sums and Gumbel noise keyed by token id.
//
// Sampling from softmax(x) is taking the argmax of x[t] + g[t] with g independent Gumbel noise, g = -ln(-ln u). The noise of a token is a
// pure function of (seed, choice, position, token id), so which other tokens are candidates, how the vocabulary is cut and in which
// order tokens are looked at change nothing.
#include "kernels/families.h"
#include "simd/exp.h"
#include "simd/log.h"
#include "simd/philox.h"

namespace swiftsure::SWIFTSURE_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kLargest = 3.40282347e+38f;
// The least -ln u is 2^-33, so no noise exceeds 33 ln 2 = 22.874.
constexpr double kNoiseBound = 22.88;
// The fourth counter word: keeps these draws apart from any other use of the generator under the same seed.
constexpr uint32_t kNoiseDomain = 0x47554D42u;
constexpr int64_t kBlock = 64;  // tokens that share sixteen counters: token 64 b + 16 w + l is word w of counter 16 b + l

struct Draw {
    uint64_t seed;
    uint32_t choice;
    uint32_t position;
};

bool is_finite(float x) { return x - x == 0.0f; }

// Up to sixteen values; the lanes past `count` are `fill`.
f32x16 load_part(const float* p, int64_t count, float fill) {
    if (count >= 16) return load(p);
    alignas(64) float lane[16];
    for (int i = 0; i < 16; ++i) lane[i] = i < count ? p[i] : fill;
    return load(lane);
}

i32x16 lane_numbers() {
    alignas(64) static constexpr int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return load_i32(lane);
}

PhiloxBlock draw_words(i32x16 counter, const Draw& draw) {
    const PhiloxBlock block = {{counter, splat_u32(draw.position), splat_u32(draw.choice), splat_u32(kNoiseDomain)}};
    return philox4x32(block, static_cast<uint32_t>(draw.seed), static_cast<uint32_t>(draw.seed >> 32));
}

// -ln(-ln u) for u = 1 - w, w = (bits + 1/2) / 2^32: never 0 or 1. The half of w below 1/2 goes through ln(1 - w) with the rounding of
// 1 - w divided out, so that the upper tail, which decides, keeps full relative accuracy.
f32x16 gumbel(i32x16 bits) {
    const i32x16 zero = splat_i32(0);
    const mask16 upper = less(bits, zero);  // top bit set: w >= 1/2, u small
    const i32x16 folded = select(upper, bit_xor(bits, splat_i32(-1)), bits);
    const f32x16 x = mul(add(to_f32(folded), splat(0.5f)), splat(0x1p-32f));  // in [2^-33, 1/2]: u or w
    const f32x16 complement = sub(splat(1.0f), x);
    const f32x16 rounded = sub(splat(1.0f), complement);  // exact; x as 1 - x saw it
    const mask16 vanished = equal(rounded, splat(0.0f));
    const f32x16 ln = log(select(upper, x, complement));
    const f32x16 correction = div(x, select(vanished, splat(1.0f), rounded));
    const f32x16 corrected = select(vanished, sub(splat(0.0f), x), mul(ln, correction));
    const f32x16 exponential = sub(splat(0.0f), select(upper, ln, corrected));
    return sub(splat(0.0f), log(exponential));
}

// At least gumbel(bits), for the price of two conversions: -ln(-ln(1 - w)) <= -ln w, and a float's bits read as an integer are a lower
// bound of its binary logarithm.
f32x16 gumbel_bound(i32x16 bits) {
    const f32x16 w31 = add(to_f32(shift_right<1>(bits)), splat(0.25f));  // at most 2^31 w
    constexpr float kLn2 = 0.693147180559945f;
    return fma(to_f32(as_i32(w31)), splat(-kLn2 * 0x1p-23f), splat((31 + 127) * kLn2 + 0.002f));
}

f32x16 scale(f32x16 logits, float max, float temperature) { return div(sub(logits, splat(max)), splat(temperature)); }

// `logit + noise * temperature >= value` holds for every token that can still reach a score, and for few others. Scores are
// (l - max) / T + g in float32; this leaves out the division and is rounded to the safe side by far more than all of them round.
float reachable(float score, float max, float temperature) {
    const double value = max + static_cast<double>(score) * temperature;
    const double magnitude = (max < 0 ? -static_cast<double>(max) : max) + ((score < 0 ? -score : score) + 2 * kNoiseBound) * temperature;
    const double least = value - 1e-5 * magnitude;
    if (least < -static_cast<double>(kLargest)) return -kLargest;
    return least > static_cast<double>(kLargest) ? kLargest : static_cast<float>(least);
}

struct Best {
    float score = -kInfinity;
    int64_t id = -1;
    // Ties go to the lowest id, whatever the order of offers; NaN never wins.
    void offer(float s, int64_t t) {
        if (s > score || (s == score && id >= 0 && t < id)) {
            score = s;
            id = t;
        }
    }
};

// A row of logits under one temperature and draw, and the best token so far.
struct Search {
    const float* logits;
    int64_t vocab;
    float max, temperature;
    Draw draw;
    Best best;
    float noisy_floor = -kLargest;  // what logit + noise * temperature must reach
    float plain_floor = -kLargest;  // what the logit must reach under the greatest noise

    // Offers the scores of one block, leaving out vectors of which no token can reach the best.
    void offer_block(int64_t block) {
        const int64_t first = block * kBlock;
        const PhiloxBlock words = draw_words(add(splat_i32(static_cast<int32_t>(block * 16)), lane_numbers()), draw);
        for (int w = 0; w < 4 && first + 16 * w < vocab; ++w) {
            const int64_t base = first + 16 * w;
            const f32x16 l = load_part(logits + base, vocab - base, -kInfinity);
            const f32x16 noisy = fma(gumbel_bound(words.word[w]), splat(temperature), l);
            if (!any(less_equal(splat(noisy_floor), noisy))) continue;
            alignas(64) float score[16];
            store(score, add(scale(l, max, temperature), gumbel(words.word[w])));
            const float before = best.score;
            for (int i = 0; i < 16 && base + i < vocab; ++i) best.offer(score[i], base + i);
            if (best.score > before) raise_floors();
        }
    }

    void raise_floors() {
        noisy_floor = reachable(best.score, max, temperature);
        plain_floor = reachable(best.score - static_cast<float>(kNoiseBound), max, temperature);
    }

    bool block_can_win(int64_t block) const {
        const int64_t first = block * kBlock;
        for (int64_t t = first; t < vocab && t < first + kBlock; t += 16)
            if (any(less_equal(splat(plain_floor), load_part(logits + t, vocab - t, -kInfinity)))) return true;
        return false;
    }
};

// The first token whose logit equals `wanted`; 0 when there is none (every logit is NaN).
int64_t first_equal(const float* logits, int64_t vocab, float wanted) {
    for (int64_t t = 0; t < vocab; t += 16) {
        if (!any(equal(load_part(logits + t, vocab - t, __builtin_nanf("")), splat(wanted)))) continue;
        for (int64_t i = t; i < vocab; ++i)
            if (logits[i] == wanted) return i;
    }
    return 0;
}

}  // namespace

float max_logit(const float* logits, int64_t vocab) {
    f32x16 best[4] = {splat(-kInfinity), splat(-kInfinity), splat(-kInfinity), splat(-kInfinity)};
    int64_t t = 0;
    for (; t + kBlock <= vocab; t += kBlock)
        for (int w = 0; w < 4; ++w) best[w] = max(load(logits + t + 16 * w), best[w]);  // a NaN logit leaves best as it is
    for (; t < vocab; t += 16) best[0] = max(load_part(logits + t, vocab - t, -kInfinity), best[0]);
    return reduce_max(max(max(best[0], best[1]), max(best[2], best[3])));
}

int64_t argmax(const float* logits, int64_t vocab) { return first_equal(logits, vocab, max_logit(logits, vocab)); }

int64_t select_at_least(const float* logits, int64_t vocab, float least, int32_t* ids) {
    int64_t count = 0;
    for (int64_t t = 0; t < vocab; t += 16) {
        if (!any(less_equal(splat(least), load_part(logits + t, vocab - t, __builtin_nanf(""))))) continue;
        for (int64_t i = t; i < vocab && i < t + 16; ++i)
            if (logits[i] >= least) ids[count++] = static_cast<int32_t>(i);
    }
    return count;
}

void scale_logits(const float* logits, int64_t count, float max, float temperature, float* out) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) store(out + i, scale(load(logits + i), max, temperature));
    if (i == count) return;
    alignas(64) float lane[16];
    store(lane, scale(load_part(logits + i, count - i, 0.0f), max, temperature));
    for (int64_t j = i; j < count; ++j) out[j] = lane[j - i];
}

void exp_row(const float* x, int64_t count, float* out) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) store(out + i, exp(load(x + i)));
    if (i == count) return;
    alignas(64) float lane[16];
    store(lane, exp(load_part(x + i, count - i, 0.0f)));
    for (int64_t j = i; j < count; ++j) out[j] = lane[j - i];
}

double exp_sum(const float* logits, int64_t vocab, float max, float temperature) {
    double total = 0;
    for (int64_t first = 0; first < vocab; first += 1024) {  // float sums over 64 vectors, their totals in double
        const int64_t end = first + 1024 < vocab ? first + 1024 : vocab;
        f32x16 sum = splat(0.0f);
        for (int64_t t = first; t < end; t += 16) {
            const f32x16 l = load_part(logits + t, vocab - t, -kInfinity);
            const f32x16 known = select(equal(l, l), l, splat(-kInfinity));  // NaN counts as impossible
            sum = add(sum, exp(scale(known, max, temperature)));
        }
        total = total + static_cast<double>(reduce_add(sum));
    }
    return total;
}

double log_sum_exp(const float* logits, int64_t vocab) {
    const float max = max_logit(logits, vocab);
    if (!is_finite(max)) return static_cast<double>(max);
    alignas(64) float lane[16];
    store(lane, log(splat(static_cast<float>(exp_sum(logits, vocab, max, 1.0f)))));
    return static_cast<double>(max) + static_cast<double>(lane[0]);
}

void philox_words(const uint32_t* counter, const uint32_t* key, uint32_t* out) {
    const PhiloxBlock block =
        philox4x32({{splat_u32(counter[0]), splat_u32(counter[1]), splat_u32(counter[2]), splat_u32(counter[3])}}, key[0], key[1]);
    for (int w = 0; w < 4; ++w) {
        alignas(64) int32_t lane[16];
        store_i32(lane, block.word[w]);
        out[w] = static_cast<uint32_t>(lane[0]);
    }
}

void gumbel_of_words(const uint32_t* words, int64_t count, float* noise, float* bound) {
    for (int64_t i = 0; i < count; i += 16) {
        alignas(64) int32_t bits[16];
        alignas(64) float lane[2][16];
        for (int j = 0; j < 16; ++j) bits[j] = i + j < count ? static_cast<int32_t>(words[i + j]) : 0;
        store(lane[0], gumbel(load_i32(bits)));
        store(lane[1], gumbel_bound(load_i32(bits)));
        for (int j = 0; j < 16 && i + j < count; ++j) {
            noise[i + j] = lane[0][j];
            bound[i + j] = lane[1][j];
        }
    }
}

int64_t gumbel_argmax(const float* logits, int64_t vocab, float temperature, uint64_t seed, uint32_t choice, uint32_t position) {
    const float max = max_logit(logits, vocab);
    const int64_t likeliest = first_equal(logits, vocab, max);
    if (!is_finite(max)) return likeliest;
    Search search = {
        .logits = logits, .vocab = vocab, .max = max, .temperature = temperature, .draw = {seed, choice, position}, .best = {}};
    // Any token's score is a floor under the winner's; the likeliest token's block gives a good one at once.
    search.offer_block(likeliest / kBlock);
    for (int64_t block = 0; block * kBlock < vocab; ++block)
        if (search.block_can_win(block)) search.offer_block(block);
    return search.best.id;
}

// scaled[i] + noise of token ids[i], for 16 candidates or the `count` there are; the lanes past them hold nothing of use.
static void noisy_scores(const int32_t* ids, const float* scaled, int64_t count, const Draw& draw, float score[16]) {
    alignas(64) int32_t id[16], counter[16];
    for (int64_t i = 0; i < 16; ++i) {
        id[i] = i < count ? ids[i] : 0;
        counter[i] = id[i] / 64 * 16 + id[i] % 16;
    }
    const PhiloxBlock words = draw_words(load_i32(counter), draw);
    alignas(64) int32_t word[4][16];
    for (int w = 0; w < 4; ++w) store_i32(word[w], words.word[w]);
    for (int i = 0; i < 16; ++i) word[0][i] = word[id[i] / 16 % 4][i];
    store(score, add(load_part(scaled, count, -kInfinity), gumbel(load_i32(word[0]))));
}

int64_t gumbel_argmax_of(const int32_t* ids, const float* scaled, int64_t count, uint64_t seed, uint32_t choice, uint32_t position) {
    Best best;
    for (int64_t first = 0; first < count; first += 16) {
        alignas(64) float score[16];
        noisy_scores(ids + first, scaled + first, count - first, {seed, choice, position}, score);
        for (int64_t i = 0; i < 16 && first + i < count; ++i) best.offer(score[i], ids[first + i]);
    }
    return best.id;
}

void gumbel_scores_of(const int32_t* ids, const float* scaled, int64_t count, uint64_t seed, uint32_t choice, uint32_t position,
                      float* scores) {
    for (int64_t first = 0; first < count; first += 16) {
        alignas(64) float score[16];
        noisy_scores(ids + first, scaled + first, count - first, {seed, choice, position}, score);
        for (int64_t i = 0; i < 16 && first + i < count; ++i) scores[first + i] = score[i];
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
