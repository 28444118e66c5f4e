// A static program: the operations of a schedule in order, with their buffers, run by one call per step.
//
// Building appends operations; operations that stay within a row are fused into one stage, so that a stage boundary (all threads wait)
// stands only where one row or one part of a row needs another. Splitting stages into chunks never changes a bit (kernels/table.h).
//
// program.cpp: buffers and memory; program_ops.cpp: operations and their fusion; program_run.cpp: a step, its chunks and everything within
// rows; program_attention.cpp: attention.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attention_plan.h"
#include "kernels/table.h"
#include "kv_cache.h"
#include "pages.h"
#include "profile.h"
#include "rope_table.h"
#include "thread_pool.h"

namespace swiftsure {

// The rows of one pass. Rows of a sequence are neighbours, with consecutive positions.
struct Step {
    const int32_t* tokens;        // (rows,)
    const int32_t* positions;     // (rows,)
    const int32_t* sequences;     // (rows,) row of block_tables
    const int32_t* block_tables;  // (sequence_count, table_width)
    const int32_t* logit_rows;    // (wanted,) ascending
    int64_t rows, sequence_count, table_width, wanted;
    const float* features = nullptr;  // (rows, features_width) what `input` reads
    int64_t features_width = 0;       // 0: nothing is given
};

enum class RopeStyle { Interleaved, Halves };

// Not copyable: stages point into buffers. Every method throws std::invalid_argument that names the rule and the value.
// Weights and cache are borrowed and must outlive the program.
class Program {
  public:
    Program(const KernelTable& kernels, int64_t threads, int64_t max_rows, int64_t max_logit_rows, const KVCache& kv);
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // One method per operation of models/schedule.py, with its meaning.
    void buffer(std::string name, int64_t width);
    void embed(const PackedMatrix& weight, std::string_view out, float scale = 1.0f);
    void input(std::string_view out);
    void rmsnorm(std::string_view x, std::vector<float> weight, std::string_view out, float eps, bool accumulate = false);
    void matmul(std::string_view x, const std::vector<PackedMatrix>& weights, std::string_view out, bool accumulate);
    void add_bias(std::string_view x, std::vector<float> bias);
    void head_norm(std::string_view x, std::vector<float> weight, int64_t offset, int64_t heads, int64_t head_dim, float eps);
    void rope(std::string_view x, int64_t offset, int64_t heads, int64_t head_dim, int64_t rotary_dim, double theta, RopeStyle style,
              const std::vector<double>& factors);
    void store_kv(std::string_view x, int64_t k_offset, int64_t v_offset, int64_t layer);
    void attention(std::string_view x, int64_t q_offset, std::string_view out, int64_t layer, int64_t heads, float scale,
                   int64_t window = kEveryKey);
    void gated_activation(std::string_view kind, std::string_view x, std::string_view out);
    void select_rows(std::string_view x, std::string_view out);

    // From now on both programs run on the same threads, one at a time, and take no more operations. Before the first run of either.
    void share_threads(Program& other);
    // Runs all operations on the step's rows. Returns (wanted, logits_width()): what the last operation wrote, until the next run.
    const float* run(const Step& step);

    // What a profile times, in the order of the work: the stage, and what it does there ("matmul", "quantize", ...). Operations appear in
    // the order they were appended, with "quantize" before the matmul that asked for it and "merge" after its attention.
    struct Piece {
        int64_t stage;
        const char* name;
        int64_t weight_bytes;  // packed, that a matmul reads; 0 for all others
    };
    std::vector<Piece> pieces() const;
    // From the next run on, times every piece on every thread (on) or nothing (off, as at first). Results are the same either way.
    // Ends the building.
    void profile(bool on);
    // Of the last run; null when it was not timed. The next run overwrites it.
    const Profile* profiled() const { return profile_.get(); }

    int64_t logits_width() const;
    // What the last run left in a buffer that is written after select_rows, (wanted, width), until the next run.
    struct Selected {
        const float* values;
        int64_t rows, width;
    };
    Selected selected_rows(std::string_view buffer) const;
    int64_t threads() const { return threads_; }
    int64_t buffer_bytes() const;
    const char* isa() const { return kernels_.isa; }

  private:
    static constexpr int64_t kChunksPerThread = 4;
    static constexpr int64_t kMostAheadBytes =
        256 * 1024;  // of weights that a waiting thread asks for: they stay in its second-level cache

    // The threads of the programs that share them.
    struct Team {
        std::mutex running;
        int64_t stages = 0;  // of the longest program
        std::unique_ptr<ThreadPool> pool;
    };

    struct Buffer {
        std::string name;
        int64_t width = 0;
        int64_t rows = 0;       // capacity; 0 until an operation uses it
        int64_t version = 0;    // counts writes while building
        bool selected = false;  // written after select_rows: its rows are those whose logits are wanted
        Pages memory;
        float* row(int64_t r) const { return reinterpret_cast<float*>(memory.data()) + r * width; }
    };

    // Operations within a row. Buffers are indices.
    struct Embed {
        PackedMatrix weight;
        int out;
        float scale;
    };
    struct Input {
        int out;
    };
    struct Norm {
        int x;
        int weight;
        int out;
        float eps;
        bool accumulate;
    };
    struct AddBias {
        int x;
        int bias;
    };
    struct HeadNorm {
        int x;
        int weight;
        int64_t offset, heads, head_dim;
        float eps;
    };
    struct Rope {
        int x;
        int64_t offset, heads, head_dim;
        int table;
        RopeStyle style;
    };
    struct StoreKV {
        int x;
        int64_t k_offset, v_offset, layer;
    };
    struct Gated {
        GatedKernel kernel;
        int x;
        int out;
    };
    struct Select {
        int x;
        int out;
    };
    struct Quantize {
        int x;
    };
    struct QuantizeRow {
        int x;
    };
    using RowOp = std::variant<Embed, Input, Norm, AddBias, HeadNorm, Rope, StoreKV, Gated, Select, Quantize, QuantizeRow>;

    struct RowStage {
        std::vector<RowOp> ops;
        int64_t columns = 0;   // > 0: every operation is elementwise in groups of 32 over this width, so columns may be split too
        int64_t heads = 0;     // > 0: every operation goes head by head, and this many key-value heads may be apart, each with its keys
        int64_t k_offset = 0;  // of those
    };
    struct Part {
        PackedMatrix weight;
        int64_t column;
    };
    struct StripRange {
        int part;
        int64_t begin, end;
    };
    struct MatmulStage {
        int x, out;
        bool accumulate;
        std::vector<Part> parts;
        std::vector<StripRange> chunks;
    };
    struct AttentionStage {
        int x;
        int64_t q_offset;
        int out;
        int64_t layer, heads;
        float scale;
        int plan;
        bool quantize;  // finished heads are quantized at once
    };
    struct MergeStage {
        int attention;
    };  // index of its stage
    struct Stage {
        std::variant<RowStage, MatmulStage, AttentionStage, MergeStage> work;
        bool selected;  // runs on the rows whose logits are wanted
    };

    // What a call of attention_span reads: keys [begin, end) of one span, for some rows of a group.
    struct Reading {
        int64_t first_row, rows, kv_head, span, begin, end;
    };
    // Query heads that read one key-value head.
    struct HeadRange {
        int64_t kv_head, first, count;
    };
    // Memory of one thread, for the queries that a group of rows has at one key-value head. Rows lie behind one another.
    struct Scratch {
        float *q, *max, *sum, *acc, *span_max, *span_sum, *span_acc, *converted;
        int64_t *seen_begin, *seen_end;
    };

    // --- building
    void still_building() const;
    int find(std::string_view name) const;
    int reading(std::string_view name) const;
    int writing(std::string_view name);
    void not_after_select(const char* what) const;
    void same_width(int a, int b, const char* what) const;
    void different(int a, int b, const char* what) const;
    void layer_exists(int64_t layer) const;
    int plan_with(int64_t window);
    void columns_fit(int x, int64_t offset, int64_t vectors, int64_t size, const char* what) const;
    int keep(std::vector<float> vector);
    void append(RowOp op, int64_t columns);
    void quantize_input(int x);
    void quantize_input_rows(int x);
    void join(std::shared_ptr<Team> team);
    void seal();
    void make_scratch();

    // --- running
    void validate(const Step& step) const;
    void plan(const Step& step);
    int64_t chunks_of(const Stage& stage) const;
    void split_heads();
    void look_ahead();
    ThreadPool::Ahead first_weights(const MatmulStage& stage, int64_t thread) const;
    // A chunk: `rows` rows, or one row's `columns` columns of `pieces` pieces, or one of `pieces` parts of the heads of `rows` rows.
    struct RowSplit {
        int64_t rows, columns, pieces;
    };
    // What an operation does of a row: columns 0: all of them; `heads` > 0: the vectors that go with key-value head `head`.
    struct Slice {
        int64_t column, columns, head, heads, k_offset, head_dim;
        bool has(int64_t vector_offset) const {
            if (heads == 0) return true;
            const int64_t key = (vector_offset - k_offset) / head_dim;  // queries go with any, in turn
            return (vector_offset >= k_offset && key < heads ? key : vector_offset / head_dim % heads) == head;
        }
    };
    RowSplit row_split(const RowStage& stage, int64_t rows) const;
    float* partial(int64_t slot, int64_t head) const;
    static void run_chunk(void* program, int32_t stage, int32_t chunk, int32_t thread);
    static void time_chunk(void* program, int32_t stage, int32_t chunk, int32_t thread);
    template <typename After>
    void run_rows(const RowStage& stage, bool selected, int32_t chunk, const After& after) const;
    void run_row_op(const RowOp& op, int64_t rows, int64_t row, const Slice& slice) const;
    void run_matmul(const MatmulStage& stage, bool selected, int32_t chunk) const;
    void run_attention(const AttentionStage& stage, int32_t chunk, int32_t thread) const;
    void run_merge(const AttentionStage& stage, int32_t chunk, int32_t thread) const;
    void plan_attention();
    const AttentionPlan& plan_of(const AttentionStage& stage) const { return attention_plans_[static_cast<size_t>(stage.plan)]; }
    int64_t head_parts(const AttentionStage& stage) const;
    int64_t attention_chunks(const AttentionStage& stage) const;
    HeadRange heads_of(const AttentionStage& stage, int64_t chunk) const;
    std::optional<Reading> first_reading(const AttentionStage& stage, int64_t chunk) const;
    Reading reading_of(const AttentionStage& stage, const RowGroup& group, int64_t span, int64_t kv_head) const;
    int64_t blocks_of(const AttentionStage& stage, const Reading& at, KVBlockView* out) const;
    void scaled_queries(const AttentionStage& stage, const RowGroup& group, HeadRange heads, float* out) const;
    void attend_span(const AttentionStage& stage, const Reading& at, const std::optional<Reading>& next, int64_t skipped, int64_t heads,
                     const Scratch& own) const;
    void start_merge(const Scratch& own, int64_t heads) const;
    void save_partial(int64_t slot, HeadRange heads, const float* max, const float* sum, const float* acc) const;
    void finish_heads(const AttentionStage& stage, int64_t row, HeadRange heads, const float* sum, const float* acc) const;
    void store_row(const StoreKV& op, int64_t row, const Slice& slice) const;
    void quantize_columns(int x, int64_t rows, int64_t row, int64_t column, int64_t columns) const;
    int64_t domain_rows(bool selected) const { return selected ? step_.wanted : step_.rows; }

    const KernelTable& kernels_;
    const int64_t threads_, max_rows_, max_logit_rows_;
    const KVCache& kv_;
    std::vector<Buffer> buffers_;
    std::vector<std::vector<float>> vectors_;  // weights of norms, biases
    std::vector<RopeTable> rope_tables_;
    std::vector<Stage> stages_;
    bool selected_ = false;
    int last_out_ = -1;
    int64_t vocab_ = 0;        // smallest number of rows of the embeddings
    int64_t input_width_ = 0;  // columns of the features; 0: none are read
    int64_t max_heads_ = 0;    // query heads of an attention
    // What is quantized, group by group or as whole rows, at this point of the building: the contents of one buffer each.
    struct Contents {
        int buffer = -1;
        int64_t version = 0;
        bool operator==(const Contents&) const = default;
    };
    Contents quantized_, quantized_rows_;
    int64_t activation_groups_ = 0;  // groups of all rows of the largest buffer quantized in groups
    int64_t row_groups_ = 0;         // groups of a row of the widest one
    int64_t digit_columns_ = 0;      // columns of all rows of the largest buffer quantized as rows, filled up to whole blocks
    int64_t digit_rows_ = 0;

    std::mutex running_;
    std::shared_ptr<Team> team_;  // ends the building; its threads are made by the first run
    bool sealed_ = false;         // scratch and activations are there
    Pages scratch_memory_, activation_memory_, digit_memory_, partial_memory_;
    std::vector<Scratch> scratch_;
    ActivationMemory activations_{};
    int8_t* digits_ = nullptr;  // of whole rows, as GridActivations has them, and what goes with them
    float* digit_scale_ = nullptr;
    int32_t* digit_sum_ = nullptr;

    Step step_{};                                 // of the run in progress
    std::vector<AttentionPlan> attention_plans_;  // one for each window
    std::vector<int32_t> chunks_;                 // (stages,)
    std::vector<ThreadPool::Ahead> ahead_;        // (stages, threads) weights that come next

    std::unique_ptr<Profile> profile_;   // while runs are timed
    std::vector<int64_t> stage_pieces_;  // (stages,) the first piece of each, while runs are timed
};

}  // namespace swiftsure
