// Times the quantized matmuls of one pass over a model's matrices (random contents), per number of rows.
//
//   cmake -S . -B build/bench -G Ninja -DSWIFTSURE_BENCHMARKS=ON && cmake --build build/bench --target bench_matmul
//   build/bench/bench_matmul [--isa NAME,NAME] [--threads 2] [--repeats 20] [--rows 1,2,4,8] [--model smollm2|gemma3] [--cases pass,head]
//       [--types file,R4,R8]
//
// Every repeat runs each instruction set and packed type (`file`: the types that the model's file has) at each number of rows once, in
// turn, so that a busy machine slows all of them alike; medians are printed. GB/s counts the packed weights that a pass reads once, GOP/s
// two operations per weight and row. `x1` is the time over that of the first number of rows, `speed` the median of the first variant's time
// over this one's, pair by pair. Quantizing the activations is not part of the time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dispatch.h"
#include "file_blocks.h"
#include "float_mode.h"
#include "packed_weights.h"
#include "pages.h"
#include "quantized_rows.h"

using namespace swiftsure;

namespace {

struct Shape {
    const char* name;
    TensorType type;
    int64_t n, k;
};

struct Model {
    const char* name;
    int layers;
    std::vector<Shape> layer;
    Shape head;
};

const std::vector<Model> kModels = {
    {"smollm2",  // 135M, Q4_1
     30,
     {{"qkv", TensorType::Q4_1, 960, 576},
      {"o", TensorType::Q4_1, 576, 576},
      {"gate_up", TensorType::Q4_1, 3072, 576},
      {"down", TensorType::Q4_1, 576, 1536}},
     {"head", TensorType::Q8_0, 49152, 576}},
    {"gemma3",  // 270M, Q4_K_M: rows of 640 do not fit super-blocks
     18,
     {{"qk", TensorType::Q5_0, 1280, 640},
      {"v", TensorType::Q8_0, 256, 640},
      {"o", TensorType::Q4_K, 640, 1024},
      {"gate_up", TensorType::Q5_0, 4096, 640},
      {"down", TensorType::Q6_K, 640, 2048}},
     {"head", TensorType::Q8_0, 262144, 640}},
};

struct Options {
    std::vector<std::string> isas = {supported_isas().front()};
    std::vector<std::string> cases;  // none: all
    std::vector<std::string> types = {"file"};
    int threads = 2;
    int repeats = 20;
    Model model = kModels.front();
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

std::vector<std::string> split(std::string list) {
    std::vector<std::string> items;
    for (char* item = std::strtok(list.data(), ","); item; item = std::strtok(nullptr, ",")) items.emplace_back(item);
    return items;
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i];
        if (i + 1 == argc) usage(name + " needs a value");
        const char* value = argv[i + 1];
        if (name == "--isa")
            options.isas = split(value);
        else if (name == "--cases")
            options.cases = split(value);
        else if (name == "--types")
            options.types = split(value);
        else if (name == "--threads")
            options.threads = static_cast<int>(positive(name, value));
        else if (name == "--repeats")
            options.repeats = static_cast<int>(positive(name, value));
        else if (name == "--model") {
            const auto found =
                std::find_if(kModels.begin(), kModels.end(), [&](const Model& model) { return model.name == std::string(value); });
            if (found == kModels.end()) usage(std::string("--model knows smollm2 and gemma3, got ") + value);
            options.model = *found;
        } else if (name == "--rows") {
            options.rows.clear();
            for (const std::string& item : split(value)) options.rows.push_back(positive(name, item.c_str()));
            if (options.rows.empty()) usage("--rows needs at least one number");
        } else
            usage("unknown option " + name + "; known: --isa, --threads, --repeats, --model, --rows, --cases, --types");
    }
    if (options.isas.empty()) usage("--isa needs at least one name");
    if (options.types.empty()) usage("--types needs at least one name");
    for (const std::string& type : options.types)
        if (type != "file" && type != "R4" && type != "R8") usage("--types knows file, R4 and R8, got " + type);
    for (const std::string& isa : options.isas)
        if (!find_kernel_table(isa)) usage("--isa " + isa + " is not available here");
    return options;
}

// A matrix of random integers with scales of 0.01 and, where there are any, minima of -0.08 (in super-blocks both times random factors).
std::unique_ptr<PackedWeights> random_matrix(const Shape& shape, TensorType packed, const std::shared_ptr<WeightArena>& arena,
                                             std::mt19937_64& random) {
    auto weights = std::make_unique<PackedWeights>(packed, shape.n, shape.k, arena);
    std::vector<uint8_t> source(static_cast<size_t>(source_bytes(shape.type, 1, shape.k)));
    const size_t block = static_cast<size_t>(file_block_bytes(shape.type)), scale_at = static_cast<size_t>(file_scale_offset(shape.type));
    const uint16_t scale = 0x211F, minimum = 0xAD1F;
    for (int64_t row = 0; row < shape.n; ++row) {
        for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
        for (size_t at = 0; at < source.size(); at += block) {
            std::memcpy(&source[at + scale_at], &scale, 2);
            if (group_format(shape.type).minimum) std::memcpy(&source[at + scale_at + 2], &minimum, 2);
        }
        weights->pack_rows(row, 1, source.data(), source.size(), shape.type);
    }
    return weights;
}

// Rows of quantized normal noise, one set per width and number of rows, in groups and as wholes.
class Rows {
  public:
    Rows(const KernelTable& table, int64_t rows, int64_t k, std::mt19937_64& random)
        : rows_(rows), columns_(grid_blocks(k) * kBlockColumns), grouped_(rows, k) {
        digits_ = Pages(static_cast<size_t>(2 * rows * columns_));
        row_scale_.resize(static_cast<size_t>(rows));
        row_sum_.resize(static_cast<size_t>(2 * rows));
        std::normal_distribution<float> normal;
        std::vector<float> x(static_cast<size_t>(k));
        for (int64_t r = 0; r < rows; ++r) {
            for (float& value : x) value = normal(random);
            table.quantize_row(x.data(), k, grouped_.row(r));
            const GridRow row = {reinterpret_cast<int8_t*>(digits_.data()) + 2 * r * columns_, &row_scale_[static_cast<size_t>(r)],
                                 &row_sum_[static_cast<size_t>(2 * r)]};
            table.quantize_grid_row(x.data(), k, row);
        }
    }
    Activations groups() const { return grouped_.all(); }
    GridActivations wholes() const {
        return {reinterpret_cast<const int8_t*>(digits_.data()), row_scale_.data(), row_sum_.data(), rows_, columns_};
    }

  private:
    int64_t rows_, columns_;
    QuantizedRows grouped_;
    Pages digits_;
    std::vector<float> row_scale_;
    std::vector<int32_t> row_sum_;
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

using Matrices = std::vector<const PackedWeights*>;

struct Case {
    std::string name;
    std::vector<Matrices> matrices;  // per packed type
};

using RowsByWidth = std::map<int64_t, Rows>;

// What is timed in turn: one instruction set and packed type at one number of rows.
struct Variant {
    const KernelTable* table;
    size_t type;
    std::shared_ptr<RowsByWidth> x;
    int64_t rows;
    std::vector<double> times;
};

std::vector<Variant> variants(const Options& options, std::mt19937_64& random) {
    std::vector<Variant> all;
    for (const std::string& isa : options.isas) {
        const KernelTable* table = find_kernel_table(isa);
        std::vector<std::shared_ptr<RowsByWidth>> x;
        for (int64_t rows : options.rows) {
            x.push_back(std::make_shared<RowsByWidth>());
            std::vector<Shape> shapes = options.model.layer;
            shapes.push_back(options.model.head);
            for (const Shape& shape : shapes)
                if (!x.back()->contains(shape.k)) x.back()->try_emplace(shape.k, *table, rows, shape.k, random);
        }
        for (size_t type = 0; type < options.types.size(); ++type)
            for (size_t i = 0; i < options.rows.size(); ++i) all.push_back({table, type, x[i], options.rows[i], {}});
    }
    return all;
}

double run_once(const Variant& variant, const Matrices& matrices, int threads, float* out) {
    return Team(threads).seconds(static_cast<int>(matrices.size()), [&](int step, int index) {
        const PackedMatrix& w = matrices[static_cast<size_t>(step)]->matrix;
        const Rows& x = variant.x->at(w.k);
        const int64_t pairs = (w.strips + 1) / 2;
        const int64_t begin = pairs * index / threads * 2, end = std::min(pairs * (index + 1) / threads * 2, w.strips);
        for (int64_t strip = begin; strip < end; strip += kStripsPerChunk) {  // as a program claims them
            const int64_t last = std::min(strip + kStripsPerChunk, end);
            if (is_row_grid(w.type))
                variant.table->matmul_rows(w, x.wholes(), strip, last, out, w.n, false);
            else
                variant.table->matmul_quantized(w, x.groups(), strip, last, out, w.n, false);
        }
    });
}

void report(const Options& options, const Case& item, std::mt19937_64& random) {
    if (!options.cases.empty() && std::find(options.cases.begin(), options.cases.end(), item.name) == options.cases.end()) return;
    std::vector<Variant> all = variants(options, random);
    std::vector<float> out(static_cast<size_t>(*std::max_element(options.rows.begin(), options.rows.end())) *
                           static_cast<size_t>(options.model.head.n));
    const size_t sizes = options.rows.size();
    for (int repeat = -1; repeat < options.repeats; ++repeat)
        for (size_t i = 0; i < sizes; ++i)
            for (size_t at = i; at < all.size(); at += sizes) {
                const double elapsed = run_once(all[at], item.matrices[all[at].type], options.threads, out.data());
                if (repeat >= 0) all[at].times.push_back(elapsed);
            }
    for (size_t at = 0; at < all.size(); ++at) {
        const Variant &v = all[at], &base = all[at % sizes];
        double weights = 0, bytes = 0;
        for (const PackedWeights* w : item.matrices[v.type]) {
            weights += static_cast<double>(w->matrix.n * w->matrix.k);
            bytes += static_cast<double>(w->nbytes());
        }
        std::vector<double> ratios;
        for (size_t r = 0; r < v.times.size(); ++r) ratios.push_back(base.times[r] / v.times[r]);
        const double s = median(v.times), rows = static_cast<double>(v.rows);
        std::printf("%-8s %-11s %-4s rows=%-4.0f %9.3f ms  best %9.3f  %6.1f GB/s  %8.1f GOP/s  %6.2f x1  %8.0f rows/s  speed %5.2f\n",
                    item.name.c_str(), v.table->isa, options.types[v.type].c_str(), rows, s * 1e3,
                    *std::min_element(v.times.begin(), v.times.end()) * 1e3, bytes / s / 1e9, 2 * weights * rows / s / 1e9,
                    s / median(all[at - at % sizes].times), rows / s, median(ratios));
    }
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const FloatMode mode;
    std::mt19937_64 random(1);
    auto arena = std::make_shared<WeightArena>();
    std::vector<std::unique_ptr<PackedWeights>> owned;
    std::vector<Case> cases = {{"pass", {}}, {"layers", {}}};
    const Model& model = options.model;
    for (const Shape& shape : model.layer) cases.push_back({shape.name, {}});
    cases.push_back({model.head.name, {}});
    for (const std::string& type : options.types) {
        for (Case& item : cases) item.matrices.emplace_back();
        const auto add = [&](const Shape& shape, std::initializer_list<size_t> to) {
            const TensorType packed = type == "file" ? shape.type : type == "R4" ? TensorType::R4 : TensorType::R8;
            owned.push_back(random_matrix(shape, packed, arena, random));
            for (size_t at : to) cases[at].matrices.back().push_back(owned.back().get());
        };
        for (int layer = 0; layer < model.layers; ++layer)
            for (size_t i = 0; i < model.layer.size(); ++i) add(model.layer[i], {0, 1, 2 + i});
        add(model.head, {0, 2 + model.layer.size()});
    }

    std::printf("threads=%d repeats=%d weights=%.1f MB\n", options.threads, options.repeats,
                static_cast<double>(arena->used_bytes()) / 1e6);
    for (const Case& item : cases) report(options, item, random);
}
