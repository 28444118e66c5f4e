// The fingerprint of a row of logits: 128 bits of all its bits.
//
// Integer arithmetic in one fixed order, so the same on every instruction set. Sixteen lanes, each a block of four words (128 bits), take
// the row stripe by stripe: of a stripe of 32 floats, lane l takes the bits of float l into its first word and those of float 16 + l into
// its third, and goes through one round of Philox4x32 (simd/philox.h) whose key grows with the stripe. A round is a bijection, and so is
// taking in a word: one changed float always changes its lane. Then the lanes are taken, in order, into one block in the same manner, two
// words a round, and eight rounds without input mix what came last.
// The scheme and what it does not promise: docs/decisions/0021-token-chains.md.
#include "kernels/families.h"
#include "simd/philox.h"

namespace swiftsure::SWIFTSURE_ISA {
namespace {

constexpr int64_t kStripe = 32;           // floats
constexpr uint32_t kDomain = 0x53573152;  // keeps these blocks apart from any other use of the rounds
constexpr int kClosingRounds = 8;

// Key words of one round after the other.
struct Keys {
    uint32_t first = 0, second = 0;
    void next() {
        first += kPhiloxStep0;
        second += kPhiloxStep1;
    }
};

// One block, word by word.
struct Fold {
    uint32_t word[4];
    Keys keys;

    void take(uint32_t into0, uint32_t into2) {
        const uint64_t product0 = uint64_t{word[0] ^ into0} * 0xD2511F53u, product1 = uint64_t{word[2] ^ into2} * 0xCD9E8D57u;
        const uint32_t word1 = word[1], word3 = word[3];
        word[0] = static_cast<uint32_t>(product1 >> 32) ^ word1 ^ keys.first;
        word[1] = static_cast<uint32_t>(product1);
        word[2] = static_cast<uint32_t>(product0 >> 32) ^ word3 ^ keys.second;
        word[3] = static_cast<uint32_t>(product0);
        keys.next();
    }
};

PhiloxBlock begin(int64_t count) {
    alignas(64) static constexpr int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const auto length = static_cast<uint64_t>(count);
    return {{load_i32(lane), splat_u32(static_cast<uint32_t>(length)), splat_u32(kDomain), splat_u32(static_cast<uint32_t>(length >> 32))}};
}

}  // namespace

void hash_row(const float* row, int64_t count, uint32_t* out) {
    PhiloxRounds lanes(begin(count));
    Keys keys;
    const int64_t whole = count / kStripe * kStripe;
    for (int64_t at = 0; at < whole; at += kStripe) {
        lanes.mix(as_i32(load(row + at)), as_i32(load(row + at + 16)));
        lanes.round(keys.first, keys.second);
        keys.next();
    }
    if (whole < count) {  // the rest, filled up with zeros; the length is in every lane, so a row that has them is another one
        alignas(64) float last[kStripe] = {};
        __builtin_memcpy(last, row + whole, static_cast<size_t>(count - whole) * sizeof(float));
        lanes.mix(as_i32(load(last)), as_i32(load(last + 16)));
        lanes.round(keys.first, keys.second);
    }
    const PhiloxBlock block = lanes.block();
    alignas(64) int32_t word[4][16];
    for (int w = 0; w < 4; ++w) store_i32(word[w], block.word[w]);
    Fold fold = {{}, {}};
    for (int lane = 0; lane < 16; ++lane) {
        fold.take(static_cast<uint32_t>(word[0][lane]), static_cast<uint32_t>(word[2][lane]));
        fold.take(static_cast<uint32_t>(word[1][lane]), static_cast<uint32_t>(word[3][lane]));
    }
    for (int round = 0; round < kClosingRounds; ++round) fold.take(0, 0);
    for (int w = 0; w < 4; ++w) out[w] = fold.word[w];
}

}  // namespace swiftsure::SWIFTSURE_ISA
