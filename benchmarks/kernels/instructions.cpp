// Counts the instructions of the hot loops on small inputs, per instruction set: a trend without noise.
//
//   cmake -S . -B build/bench -G Ninja -DSWIFTSURE_BENCHMARKS=ON && cmake --build build/bench --target bench_instructions
//   build/bench/bench_instructions [--isa NAME,NAME]
//
// One line per kernel: instruction set, kernel, instructions, with tabs between. An instruction set that does not run here has one line
// with the word NOT and the reason. `python -m benchmarks.instructions` compares the counts with those on record.
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "float_mode.h"
#include "packed_weights.h"
#include "quantized_rows.h"
#include "single_step.h"

using namespace swiftsure;

#if defined(__x86_64__) && defined(__linux__)

namespace {

constexpr int64_t kOutputs = 32, kMostWidth = 576, kHeadDim = 64, kQueryHeads = 3, kKeys = 16, kVocab = 512, kMostRows = 16;

constexpr int64_t kRows[] = {1, 2, 4, 8, kMostRows};

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The inputs of every kernel. What they hold does not matter, as long as it is finite: no kernel branches on a value that is.
struct Inputs {
    const KernelTable& table;
    int64_t width;  // of the matrices
    PackedWeights nibbles{TensorType::Q4_1, kOutputs, width}, bytes{TensorType::Q8_0, kOutputs, width};
    PackedWeights grid_bytes{TensorType::R8, kOutputs, width}, grid_nibbles{TensorType::R4, kOutputs, width};
    std::vector<float> x, out;
    std::map<int64_t, QuantizedRows> quantized;  // by their number
    QuantizedRows wide_row{1, kMostWidth};
    std::vector<float> row_scale;
    std::vector<int32_t> row_sum;
    std::vector<int8_t> digits;
    std::vector<int16_t> keys, values;
    std::vector<float> key_scales, value_scales;
    Pages scratch{2 * kSpanKeys * kHeadDim * sizeof(float)};
    std::vector<int64_t> visible;

    Inputs(const KernelTable& kernels, int64_t k) : table(kernels), width(k) {
        fill(nibbles, 20, 0x1C00);
        fill(bytes, 34, 0x1C00);
        const std::vector<uint8_t> source = filled(TensorType::Q8_0, 34, 0x1C00);
        for (PackedWeights* grid : {&grid_bytes, &grid_nibbles})
            grid->pack_rows(0, kOutputs, source.data(), source.size(), TensorType::Q8_0);
        digits.assign(static_cast<size_t>(kMostRows * 2 * round_up(kMostWidth, 64)), 5);
        row_scale.assign(kMostRows, 1e-3f), row_sum.assign(2 * kMostRows, 7);
        x.resize(static_cast<size_t>(kMostRows * kMostWidth));
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 37) / 37.0f - 0.4f;
        out.resize(x.size() * 2);
        for (const int64_t rows : kRows) quantized.try_emplace(rows, table, x.data(), rows, width);
        keys.assign(static_cast<size_t>(kHeadDim * kSpanKeys), 100), values = keys;
        key_scales.assign(kSpanKeys, 1e-3f), value_scales = key_scales;
        visible.assign(kMostRows * kQueryHeads, kKeys);
    }

    std::vector<uint8_t> filled(TensorType type, size_t block, uint16_t scale) const {
        std::vector<uint8_t> source(static_cast<size_t>(source_bytes(type, kOutputs, width)), 0x35);
        for (size_t at = 0; at < source.size(); at += block) std::memcpy(&source[at], &scale, 2);
        return source;
    }
    void fill(PackedWeights& weights, size_t block, uint16_t scale) const {
        const std::vector<uint8_t> source = filled(weights.matrix.type, block, scale);
        weights.pack_rows(0, kOutputs, source.data(), source.size());
    }
    void matmul(const PackedWeights& weights, int64_t rows) {
        table.matmul_quantized(weights.matrix, quantized.at(rows).all(), 0, weights.matrix.strips, out.data(), kOutputs, false);
    }
    KVBlockView cached() { return {16, keys.data(), key_scales.data(), values.data(), value_scales.data()}; }
    void matmul_rows(const PackedWeights& weights, int64_t rows) {
        const GridActivations input = {digits.data(), row_scale.data(), row_sum.data(), rows, round_up(width, 64)};
        table.matmul_rows(weights.matrix, input, 0, weights.matrix.strips, out.data(), kOutputs, false);
    }
    void attend(int64_t rows) {
        const KVBlockView block = cached();
        const int64_t heads = rows * kQueryHeads;
        float* result = out.data();
        table.attention_span(x.data(), heads, kHeadDim, &block, nullptr, 0, kKeys, visible.data(), reinterpret_cast<float*>(scratch.data()),
                             result, result + 64, result + 128);
    }
};

using Case = std::pair<std::string, std::function<void(Inputs&)>>;

std::vector<Case> cases(int64_t width) {
    std::vector<Case> all;
    for (const int64_t rows : kRows) {
        const std::string of = " 32x" + std::to_string(width) + ", rows " + std::to_string(rows);
        all.emplace_back("matmul Q4_1" + of, [rows](Inputs& in) { in.matmul(in.nibbles, rows); });
        all.emplace_back("matmul Q8_0" + of, [rows](Inputs& in) { in.matmul(in.bytes, rows); });
        all.emplace_back("matmul R8" + of, [rows](Inputs& in) { in.matmul_rows(in.grid_bytes, rows); });
        all.emplace_back("matmul R4" + of, [rows](Inputs& in) { in.matmul_rows(in.grid_nibbles, rows); });
    }
    for (const int64_t rows : {1, 4})
        all.emplace_back("attention 16 keys x 64, rows " + std::to_string(rows), [rows](Inputs& in) { in.attend(rows); });
    all.emplace_back("quantize 576", [](Inputs& in) { in.table.quantize_row(in.x.data(), kMostWidth, in.wide_row.row(0)); });
    all.emplace_back("rms_norm 576",
                     [](Inputs& in) { in.table.rmsnorm(in.x.data(), in.x.data(), in.out.data(), kMostWidth, 1e-5f, false); });
    all.emplace_back("silu_mul 576", [](Inputs& in) { in.table.silu_mul(in.x.data(), in.x.data(), in.out.data(), kMostWidth); });
    all.emplace_back("rope 64", [](Inputs& in) { in.table.rope_interleaved(in.out.data(), in.x.data(), kHeadDim / 2); });
    all.emplace_back("store_kv 64", [](Inputs& in) { in.table.store_kv(in.x.data(), in.x.data(), in.cached(), 3, kHeadDim, kKeys); });
    all.emplace_back("argmax 512", [](Inputs& in) { in.table.argmax(in.x.data(), kVocab); });
    all.emplace_back("gumbel_argmax 512", [](Inputs& in) { in.table.gumbel_argmax(in.x.data(), kVocab, 0.7f, 5, 0, 9); });
    return all;
}

void report(const std::string& isa) {
    const KernelTable* table = find_kernel_table(isa);
    if (!table) {
        std::printf("%s\tNOT\tthis processor or system does not run %s\n", isa.c_str(), isa.c_str());
        return;
    }
    const int64_t width = isa == "portable" ? kMostWidth / 9 : kMostWidth;  // it takes a hundred times as many steps
    for (const auto& [name, work] : cases(width)) {
        Inputs inputs(*table, width);
        std::pair<const std::function<void(Inputs&)>*, Inputs*> argument = {&work, &inputs};
        const int64_t steps = single_step::count(
            [](void* at) {
                const auto& [call, on] = *static_cast<std::pair<const std::function<void(Inputs&)>*, Inputs*>*>(at);
                (*call)(*on);
            },
            &argument);
        std::printf("%s\t%s\t%lld\n", isa.c_str(), name.c_str(), static_cast<long long>(steps));
        std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const FloatMode mode;
    std::vector<std::string> isas = built_isas();
    if (argc == 3 && std::strcmp(argv[1], "--isa") == 0) {
        isas.clear();
        for (char* item = std::strtok(argv[2], ","); item; item = std::strtok(nullptr, ",")) isas.emplace_back(item);
    } else if (argc != 1) {
        std::fprintf(stderr, "bench_instructions: takes --isa NAME,NAME and nothing else\n");
        return 2;
    }
    for (const std::string& isa : isas) report(isa);
    return 0;
}

#else

int main() {
    std::printf("all\tNOT\tcounting by single steps is written for x86-64 on Linux\n");
    return 0;
}

#endif
