// Times the quantized matmuls of one pass over SmolLM2-135M's matrices (random contents), per number of rows.
//
//   cmake -S . -B build/bench -G Ninja -DSWIFTSURE_BENCHMARKS=ON && cmake --build build/bench --target bench_matmul
//   build/bench/bench_matmul [--isa NAME] [--threads 2] [--repeats 20] [--rows 1,2,4,8] [--layers 30]
//
// Every repeat runs each number of rows once, in turn, so that a busy machine slows all of them alike; medians are printed. GB/s counts the
// packed weights that a pass reads once, GOP/s two operations per weight and row. Quantizing the activations is not part of the time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dispatch.h"
#include "float_mode.h"
#include "packed_weights.h"
#include "pages.h"

using namespace swiftsure;

namespace {

struct Shape {
    const char* name;
    TensorType type;
    int64_t n, k;
};

constexpr Shape kLayer[] = {{"qkv", TensorType::Q4_1, 960, 576},
                            {"o", TensorType::Q4_1, 576, 576},
                            {"gate_up", TensorType::Q4_1, 3072, 576},
                            {"down", TensorType::Q4_1, 576, 1536}};
constexpr Shape kHead = {"head", TensorType::Q8_0, 49152, 576};
constexpr int64_t kMaxWidth = 1536;

struct Options {
    std::string isa = supported_isas().front();
    int threads = 2;
    int repeats = 20;
    int layers = 30;
    std::vector<int64_t> rows = {1, 2, 4, 8};
};

[[noreturn]] void usage(const std::string& problem) {
    std::fprintf(stderr, "bench_matmul: %s\n", problem.c_str());
    std::exit(2);
}

int64_t positive(const std::string& option, const char* text) {
    char* end;
    const long long value = std::strtoll(text, &end, 10);
    if (*text == 0 || *end != 0 || value < 1) usage(option + " needs whole numbers of at least 1, got " + text);
    return value;
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i];
        if (i + 1 == argc) usage(name + " needs a value");
        const char* value = argv[i + 1];
        if (name == "--isa")
            options.isa = value;
        else if (name == "--threads")
            options.threads = static_cast<int>(positive(name, value));
        else if (name == "--repeats")
            options.repeats = static_cast<int>(positive(name, value));
        else if (name == "--layers")
            options.layers = static_cast<int>(positive(name, value));
        else if (name == "--rows") {
            options.rows.clear();
            std::string list = value;
            for (char* item = std::strtok(list.data(), ","); item; item = std::strtok(nullptr, ","))
                options.rows.push_back(positive(name, item));
            if (options.rows.empty()) usage("--rows needs at least one number");
        } else
            usage("unknown option " + name + "; known: --isa, --threads, --repeats, --layers, --rows");
    }
    if (!find_kernel_table(options.isa)) usage("--isa " + options.isa + " is not available here");
    return options;
}

// A matrix of random integers with scales of 0.01 and, where there are any, minima of -0.08.
std::unique_ptr<PackedWeights> random_matrix(const Shape& shape, const std::shared_ptr<WeightArena>& arena, std::mt19937_64& random) {
    auto weights = std::make_unique<PackedWeights>(shape.type, shape.n, shape.k, arena);
    std::vector<uint8_t> source(static_cast<size_t>(source_bytes(shape.type, 1, shape.k)));
    const size_t block = source.size() / static_cast<size_t>(shape.k / kGroup);
    const uint16_t scale = 0x211F, minimum = 0xAD1F;
    for (int64_t row = 0; row < shape.n; ++row) {
        for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
        for (size_t at = 0; at < source.size(); at += block) {
            std::memcpy(&source[at], &scale, 2);
            if (shape.type == TensorType::Q4_1) std::memcpy(&source[at + 2], &minimum, 2);
        }
        weights->pack_rows(row, 1, source.data(), source.size());
    }
    return weights;
}

// Rows of quantized normal noise, one set per width.
class Rows {
  public:
    Rows(const KernelTable& table, int64_t rows, int64_t k, std::mt19937_64& random) : rows_(rows), groups_(k / kGroup) {
        const size_t count = static_cast<size_t>(rows * groups_);
        payload_ = Pages(count * kGroupPayloadBytes);
        scale_.resize(count);
        scaled_sum_.resize(count);
        sum_.resize(count);
        std::normal_distribution<float> normal;
        std::vector<float> x(static_cast<size_t>(k));
        for (int64_t r = 0; r < rows; ++r) {
            for (float& value : x) value = normal(random);
            const size_t at = static_cast<size_t>(r * groups_);
            table.quantize_row(x.data(), k, {payload_.data() + at * kGroupPayloadBytes, &scale_[at], &scaled_sum_[at], &sum_[at]});
        }
    }
    Activations view() const { return {payload_.data(), scale_.data(), scaled_sum_.data(), sum_.data(), rows_, groups_}; }

  private:
    int64_t rows_, groups_;
    Pages payload_;
    std::vector<float> scale_, scaled_sum_;
    std::vector<int32_t> sum_;
};

// Threads that run the same function and meet at a spinning barrier between matrices.
class Team {
  public:
    explicit Team(int threads) : threads_(threads) {}

    template <typename Work>
    double seconds(int steps, const Work& work) {
        arrived_ = 0;
        const auto begin = std::chrono::steady_clock::now();
        std::vector<std::thread> others;
        std::atomic<int> ready{0};
        std::chrono::steady_clock::time_point start = begin;
        const auto run = [&](int index) {
            const FloatMode mode;
            ++ready;
            while (ready < threads_) __builtin_ia32_pause();
            if (index == 0) start = std::chrono::steady_clock::now();
            for (int step = 0; step < steps; ++step) {
                work(step, index);
                ++arrived_;
                while (arrived_ < (step + 1) * threads_) __builtin_ia32_pause();
            }
        };
        for (int i = 1; i < threads_; ++i) others.emplace_back(run, i);
        run(0);
        const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        for (std::thread& thread : others) thread.join();
        return elapsed;
    }

  private:
    int threads_;
    std::atomic<int> arrived_{0};
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

struct Case {
    std::string name;
    std::vector<const PackedWeights*> matrices;
};

void report(const Options& options, const KernelTable& table, const Case& item, std::mt19937_64& random) {
    const int64_t most = *std::max_element(options.rows.begin(), options.rows.end());
    const Rows narrow(table, most, 576, random), wide(table, most, kMaxWidth, random);
    std::vector<float> out(static_cast<size_t>(most) * 49152);
    std::vector<std::vector<double>> times(options.rows.size());
    double weights = 0, bytes = 0;
    for (const PackedWeights* w : item.matrices) {
        weights += static_cast<double>(w->matrix.n * w->matrix.k);
        bytes += static_cast<double>(w->nbytes());
    }
    Team team(options.threads);
    for (int repeat = -1; repeat < options.repeats; ++repeat) {
        for (size_t i = 0; i < options.rows.size(); ++i) {
            const double elapsed = team.seconds(static_cast<int>(item.matrices.size()), [&](int step, int index) {
                const PackedMatrix& w = item.matrices[static_cast<size_t>(step)]->matrix;
                Activations x = (w.k == kMaxWidth ? wide : narrow).view();
                x.rows = options.rows[i];
                const int64_t pairs = (w.strips + 1) / 2;
                const int64_t begin = pairs * index / options.threads * 2, end = pairs * (index + 1) / options.threads * 2;
                table.matmul_quantized(w, x, begin, std::min(end, w.strips), out.data(), w.n, false);
            });
            if (repeat >= 0) times[i].push_back(elapsed);
        }
    }
    const double first = median(times[0]);
    for (size_t i = 0; i < options.rows.size(); ++i) {
        const double s = median(times[i]), rows = static_cast<double>(options.rows[i]);
        std::printf("%-8s rows=%-4.0f %9.3f ms  best %9.3f  %6.1f GB/s  %8.1f GOP/s  %6.2fx  %8.0f rows/s\n", item.name.c_str(), rows,
                    s * 1e3, *std::min_element(times[i].begin(), times[i].end()) * 1e3, bytes / s / 1e9, 2 * weights * rows / s / 1e9,
                    s / first, rows / s);
    }
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const KernelTable& table = *find_kernel_table(options.isa);
    const FloatMode mode;
    std::mt19937_64 random(1);
    auto arena = std::make_shared<WeightArena>();
    std::vector<std::unique_ptr<PackedWeights>> matrices;
    for (int layer = 0; layer < options.layers; ++layer)
        for (const Shape& shape : kLayer) matrices.push_back(random_matrix(shape, arena, random));
    matrices.push_back(random_matrix(kHead, arena, random));

    std::printf("isa=%s threads=%d repeats=%d weights=%.1f MB\n", options.isa.c_str(), options.threads, options.repeats,
                static_cast<double>(arena->used_bytes()) / 1e6);
    Case all{"pass", {}}, layers{"layers", {}};
    for (const auto& matrix : matrices) all.matrices.push_back(matrix.get());
    layers.matrices.assign(all.matrices.begin(), all.matrices.end() - 1);
    report(options, table, all, random);
    report(options, table, layers, random);
    for (size_t i = 0; i < 4; ++i) {
        Case one{kLayer[i].name, {}};
        for (size_t at = i; at + 1 < matrices.size(); at += 4) one.matrices.push_back(matrices[at].get());
        report(options, table, one, random);
    }
    report(options, table, {"head", {matrices.back().get()}}, random);
}
