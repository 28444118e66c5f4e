// Programs, key-value caches and samplers as several threads use them, for the race detector: built and run by .ci/sanitize.
//
// Each scene also compares its results with those of one thread alone, so that it would fail without the detector if threads got in each
// other's way. Prints "ok".
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bandwidth.h"
#include "dispatch.h"
#include "float_mode.h"
#include "kv_cache.h"
#include "packed_weights.h"
#include "program.h"
#include "sampler.h"

using namespace swiftsure;

namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 16, kHidden = 64, kWide = 96, kVocab = 96, kLayers = 2, kBlock = 32, kBlocks = 44;
constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kDim, kMaxRows = 24, kTable = 20;

void expect(bool holds, const char* what) {
    if (holds) return;
    std::printf("failed: %s\n", what);
    std::exit(1);
}

std::unique_ptr<PackedWeights> weight(TensorType type, int64_t n, int64_t k, uint64_t seed) {
    auto made = std::make_unique<PackedWeights>(type, n, k);
    std::mt19937_64 random(seed);
    const TensorType file_type = type == TensorType::R8 ? TensorType::Q8_0 : type;
    std::vector<uint8_t> source(static_cast<size_t>(source_bytes(file_type, n, k)));
    if (type == TensorType::F32) {
        for (size_t at = 0; at < source.size(); at += 4) {
            const float value = static_cast<float>(random() % 2001) / 8000.0f - 0.125f;
            std::memcpy(&source[at], &value, 4);
        }
    } else {  // Q8_0: a float16 scale of about 0.001 and 32 integers
        for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
        const uint16_t scale = 0x1419;
        for (size_t at = 0; at < source.size(); at += 34) std::memcpy(&source[at], &scale, 2);
    }
    made->pack_rows(0, n, source.data(), source.size(), file_type);
    return made;
}

// The weights that all programs share, and how finely their caches keep keys and values.
struct Model {
    TensorType last;
    int64_t bits;
    std::unique_ptr<PackedWeights> embedding = weight(TensorType::F32, kVocab, kHidden, 1),
                                   qkv = weight(TensorType::Q8_0, kQkv, kHidden, 2), o = weight(TensorType::Q8_0, kHidden, kHeads* kDim, 3),
                                   gate_up = weight(TensorType::F32, 2 * kWide, kHidden, 4), down = weight(last, kHidden, kWide, 5);
};

std::unique_ptr<Program> make_program(const Model& model, int64_t threads, const KVCache& kv) {
    auto program = std::make_unique<Program>(*find_kernel_table("portable"), threads, kMaxRows, kMaxRows, kv);
    const std::pair<const char*, int64_t> buffers[] = {{"x", kHidden},      {"normed", kHidden}, {"qkv", kQkv},     {"att", kHeads * kDim},
                                                       {"wide", 2 * kWide}, {"act", kWide},      {"last", kHidden}, {"logits", kVocab}};
    for (const auto& [name, width] : buffers) program->buffer(name, width);
    const std::vector<float> ones(kHidden, 1.0f);
    program->embed(model.embedding->matrix, "x");
    for (int64_t layer = 0; layer < kLayers; ++layer) {
        program->rmsnorm("x", ones, "normed", 1e-5f);
        program->matmul("normed", {model.qkv->matrix}, "qkv", false);
        program->rope("qkv", 0, kHeads + kKvHeads, kDim, kDim, 1e4, RopeStyle::Halves, {});
        program->store_kv("qkv", kHeads * kDim, (kHeads + kKvHeads) * kDim, layer);
        program->attention("qkv", 0, "att", layer, kHeads, 0.25f);
        program->matmul("att", {model.o->matrix}, "x", true);
        program->rmsnorm("x", ones, "normed", 1e-5f);
        program->matmul("normed", {model.gate_up->matrix}, "wide", false);
        program->gated_activation("silu", "wide", "act");
        program->matmul("act", {model.down->matrix}, "x", true);
    }
    program->select_rows("x", "last");
    program->matmul("last", {model.embedding->matrix}, "logits", false);
    return program;
}

// One sequence in the blocks from `first_block` on.
struct Sequence {
    std::vector<int32_t> tokens, positions, sequences, table, wanted;

    Sequence(int64_t length, int64_t first_block) {
        for (int32_t p = 0; p < length; ++p) {
            tokens.push_back((p * 31 + 7) % static_cast<int32_t>(kVocab));
            positions.push_back(p);
        }
        sequences.assign(kMaxRows, 0);
        for (int32_t i = 0; i < kTable; ++i) table.push_back(static_cast<int32_t>(first_block) + i), wanted.push_back(i);
        for (int32_t i = kTable; i < kMaxRows; ++i) wanted.push_back(i);
    }
    Step step(int64_t start, int64_t rows) const {
        return {tokens.data() + start, positions.data() + start, sequences.data(), table.data(), wanted.data(), rows, 1, kTable, rows};
    }
};

// Logits of positions [start, end) in passes of `rows` rows.
std::vector<float> feed(Program& program, const Sequence& sequence, int64_t start, int64_t end, int64_t rows) {
    std::vector<float> logits;
    for (int64_t at = start; at < end; at += rows) {
        const int64_t count = std::min(rows, end - at);
        const float* out = program.run(sequence.step(at, count));
        logits.insert(logits.end(), out, out + count * kVocab);
    }
    return logits;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void at_once(int count, const std::function<void(int)>& work) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
    for (std::thread& thread : threads) thread.join();
}

// Many rows a pass, then few over several spans, with the clock on and off in turn.
void one_program_many_threads(const Model& model, const std::vector<float>& expected) {
    const KVCache kv(kLayers, kKvHeads, kDim, kBlock, kBlocks, model.bits);
    const auto program = make_program(model, 4, kv);
    const Sequence sequence(560, 3);
    program->profile(true);
    std::vector<float> logits = feed(*program, sequence, 0, 540, kMaxRows);
    program->profile(false);
    for (int64_t at = 540; at < 560; ++at) {
        const std::vector<float> row = feed(*program, sequence, at, at + 1, 1);
        logits.insert(logits.end(), row.begin(), row.end());
        program->profile(at % 2 == 0);
        if (at % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // workers fall asleep and are woken
    }
    expect(same(logits, expected), "a program of four threads gives the bits of one thread");
}

// Two engines with one set of weights and one cache, each with blocks of its own; the second goes on where the first has written.
void two_programs_one_cache(const Model& model, const std::vector<float>& expected) {
    const KVCache kv(kLayers, kKvHeads, kDim, kBlock, kBlocks, model.bits);
    std::unique_ptr<Program> programs[2] = {make_program(model, 2, kv), make_program(model, 3, kv)};
    std::vector<float> logits[2];
    at_once(2, [&](int i) { logits[i] = feed(*programs[i], Sequence(200, i * kTable), 0, 200, 16); });
    const std::vector<float> first(expected.begin(), expected.begin() + 200 * kVocab);
    expect(same(logits[0], first) && same(logits[1], first), "two programs on one cache give the bits of one");
    at_once(2, [&](int i) {  // both read the same prefix and write apart
        Sequence sequence(240, 0);
        for (int64_t b = 6; b < 8; ++b) sequence.table[static_cast<size_t>(b)] = static_cast<int32_t>(2 * kTable + 2 * i + b - 6);
        logits[i] = feed(*programs[i], sequence, 192, 240, 5);
    });
    const std::vector<float> later(expected.begin() + 192 * kVocab, expected.begin() + 240 * kVocab);
    expect(same(logits[0], later) && same(logits[1], later), "a shared prefix gives the bits of one's own");
}

// One of two callers may be refused; none sees the other's rows.
void two_callers_one_program(const Model& model, const std::vector<float>& expected) {
    const KVCache kv(kLayers, kKvHeads, kDim, kBlock, kBlocks, model.bits);
    const auto program = make_program(model, 2, kv);
    std::atomic<int> done{0};
    at_once(2, [&](int i) {
        const Sequence sequence(8, i * kTable);
        while (done.load() < 60) {
            try {
                program->run(sequence.step(0, 8));
                done.fetch_add(1);
            } catch (const std::runtime_error&) {
                std::this_thread::yield();
            }
        }
    });
    const float* out = program->run(Sequence(8, 0).step(0, 8));
    expect(std::memcmp(out, expected.data(), 8 * kVocab * sizeof(float)) == 0, "a program that two callers fought over is sound");
}

// A sampler each, one row of logits for all.
void samplers(const std::vector<float>& logits) {
    const KernelTable& table = *find_kernel_table("portable");
    SamplerSettings settings;
    settings.vocab = kVocab;
    settings.temperature = 0.8f;
    settings.top_p = 0.95;
    settings.top_k = 40;
    settings.repetition_penalty = 1.1f;
    settings.seed = 5;
    std::vector<int32_t> chosen[4];
    at_once(4, [&](int i) {
        const FloatMode mode;
        Sampler sampler(table, settings);
        const int32_t prompt[] = {1, 2, 3};
        sampler.prime(prompt, 3);
        for (int64_t row = 0; row < 300; ++row) {
            int32_t token;
            sampler.accept(logits.data() + row * kVocab, 1, nullptr, &token);
            chosen[i].push_back(token);
        }
    });
    expect(chosen[0] == chosen[1] && chosen[0] == chosen[2] && chosen[0] == chosen[3], "samplers beside each other draw what one draws");
}

void ceilings() {
    expect(read_passes(1 << 20, 3, 5).size() == 5, "bandwidth passes are all timed");
    expect(arithmetic_passes(find_kernel_table("portable")->float_peak, 3, 3).size() == 3, "arithmetic passes are all timed");
}

}  // namespace

int main() {
    for (const Model& model : {Model{TensorType::Q8_0, 16}, Model{TensorType::R8, 8}}) {
        const KVCache kv(kLayers, kKvHeads, kDim, kBlock, kBlocks, model.bits);
        const std::vector<float> expected = feed(*make_program(model, 1, kv), Sequence(560, 0), 0, 560, 1);
        one_program_many_threads(model, expected);
        two_programs_one_cache(model, expected);
        two_callers_one_program(model, expected);
        samplers(expected);
    }
    ceilings();
    std::puts("ok");
    return 0;
}
