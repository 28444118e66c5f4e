// Building a program: checks, fusion of stages, memory. Running it: program_run.cpp.
#include "program.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace swiftsure {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

void require_at_least(const char* name, int64_t value, int64_t least) {
    if (value < least) refuse(std::string(name) + " must be at least " + std::to_string(least) + ", got " + std::to_string(value));
}

constexpr int64_t kMaxThreads = 1024, kMaxRows = 65536;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Program::Program(const KernelTable& kernels, int64_t threads, int64_t max_rows, int64_t max_logit_rows, const KVCache& kv)
    : kernels_(kernels), threads_(threads), max_rows_(max_rows), max_logit_rows_(max_logit_rows), kv_(kv) {
    require_at_least("threads", threads, 1);
    require_at_least("max_rows", max_rows, 1);
    require_at_least("max_logit_rows", max_logit_rows, 1);
    if (threads > kMaxThreads) refuse("threads must be at most " + std::to_string(kMaxThreads) + ", got " + std::to_string(threads));
    if (max_rows > kMaxRows) refuse("max_rows must be at most " + std::to_string(kMaxRows) + ", got " + std::to_string(max_rows));
}

// --- buffers -----------------------------------------------------------------------------------------------------------------

void Program::buffer(std::string name, int64_t width) {
    still_building();
    require_at_least("width", width, 1);
    if (width > int64_t{1} << 24) refuse("width of buffer '" + name + "' must be at most 2^24, got " + std::to_string(width));
    for (const Buffer& b : buffers_)
        if (b.name == name) refuse("buffer '" + name + "' exists already");
    Buffer b;
    b.name = std::move(name);
    b.width = width;
    buffers_.push_back(std::move(b));
}

// A run uses what building changes.
void Program::still_building() const {
    if (team_) refuse("a program that has run, or shares its threads, takes no more operations");
}

// Every operation begins here, before it changes anything.
int Program::find(std::string_view name) const {
    still_building();
    for (size_t i = 0; i < buffers_.size(); ++i)
        if (buffers_[i].name == name) return static_cast<int>(i);
    std::string known;
    for (const Buffer& b : buffers_) known += (known.empty() ? "" : ", ") + b.name;
    refuse("there is no buffer '" + std::string(name) + "'; the program has: " + known);
}

int Program::reading(std::string_view name) const {
    const int i = find(name);
    const Buffer& b = buffers_[static_cast<size_t>(i)];
    if (b.version == 0) refuse("buffer '" + b.name + "' is read before anything writes it");
    if (b.selected != selected_) refuse("buffer '" + b.name + "' was written before select_rows and holds other rows");
    return i;
}

int Program::writing(std::string_view name) {
    const int i = find(name);
    Buffer& b = buffers_[static_cast<size_t>(i)];
    if (b.rows == 0) {
        b.rows = selected_ ? max_logit_rows_ : max_rows_;
        b.memory = Pages(static_cast<size_t>(b.rows * b.width) * sizeof(float));
    }
    b.version += 1;
    b.selected = selected_;
    last_out_ = i;
    return i;
}

void Program::not_after_select(const char* what) const {
    if (selected_) refuse(std::string(what) + " must stand before select_rows");
}

void Program::same_width(int a, int b, const char* what) const {
    const Buffer &x = buffers_[static_cast<size_t>(a)], &y = buffers_[static_cast<size_t>(b)];
    if (x.width != y.width)
        refuse(std::string(what) + " needs buffers of one width, got '" + x.name + "' with " + std::to_string(x.width) + " and '" + y.name +
               "' with " + std::to_string(y.width));
}

void Program::different(int a, int b, const char* what) const {
    if (a == b) refuse(std::string(what) + " cannot write its own input '" + buffers_[static_cast<size_t>(a)].name + "'");
}

// `vectors` of `size` columns each, from `offset` on.
void Program::columns_fit(int x, int64_t offset, int64_t vectors, int64_t size, const char* what) const {
    const Buffer& b = buffers_[static_cast<size_t>(x)];
    int64_t width = 0, end = 0;
    const bool countable = !__builtin_mul_overflow(vectors, size, &width) && !__builtin_add_overflow(offset, width, &end);
    if (!countable || offset < 0 || width < 1 || end > b.width)
        refuse(std::string(what) + " needs columns [" + std::to_string(offset) + ", " + (countable ? std::to_string(end) : "past 2^63") +
               ") of buffer '" + b.name + "', which has " + std::to_string(b.width));
}

void Program::layer_exists(int64_t layer) const {
    if (layer < 0 || layer >= kv_.layers())
        refuse("layer must be in [0, " + std::to_string(kv_.layers()) + "), got " + std::to_string(layer));
}

// --- operations --------------------------------------------------------------------------------------------------------------

// Appends to the last stage when that stays within rows too.
void Program::append(RowOp op, int64_t columns) {
    if (!stages_.empty() && stages_.back().selected == selected_) {
        if (RowStage* stage = std::get_if<RowStage>(&stages_.back().work)) {
            stage->ops.push_back(std::move(op));
            if (stage->columns != columns) stage->columns = 0;
            return;
        }
    }
    stages_.push_back({RowStage{{std::move(op)}, columns}, selected_});
}

void Program::embed(const PackedMatrix& weight, std::string_view out) {
    not_after_select("embed");
    const int o = find(out);
    if (weight.k != buffers_[static_cast<size_t>(o)].width)
        refuse("embed needs a buffer as wide as its weight, got " + std::to_string(buffers_[static_cast<size_t>(o)].width) + " and " +
               std::to_string(weight.k));
    vocab_ = vocab_ == 0 ? weight.n : std::min(vocab_, weight.n);
    append(Embed{weight, writing(out)}, 0);
}

void Program::input(std::string_view out) {
    not_after_select("input");
    const int o = find(out);
    const int64_t width = buffers_[static_cast<size_t>(o)].width;
    if (input_width_ != 0 && input_width_ != width)
        refuse("inputs of one program have one width, got " + std::to_string(input_width_) + " and " + std::to_string(width));
    input_width_ = width;
    append(Input{writing(out)}, 0);
}

void Program::rmsnorm(std::string_view x, std::vector<float> weight, std::string_view out, float eps) {
    const int i = reading(x), o = find(out);
    same_width(i, o, "rmsnorm");
    if (static_cast<int64_t>(weight.size()) != buffers_[static_cast<size_t>(i)].width)
        refuse("rmsnorm needs a weight per column: '" + std::string(x) + "' has " + std::to_string(buffers_[static_cast<size_t>(i)].width) +
               ", got " + std::to_string(weight.size()));
    if (!(eps >= 0.0f)) refuse("eps must be at least 0, got " + std::to_string(eps));
    norm_weights_.push_back(std::move(weight));
    append(Norm{i, static_cast<int>(norm_weights_.size()) - 1, writing(out), eps}, 0);
}

void Program::rope(std::string_view x, int64_t offset, int64_t heads, int64_t head_dim, int64_t rotary_dim, double theta, RopeStyle style) {
    not_after_select("rope");
    const int i = reading(x);
    require_at_least("heads", heads, 1);
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > head_dim)
        refuse("rotary_dim must be even and in [2, head_dim = " + std::to_string(head_dim) + "], got " + std::to_string(rotary_dim));
    if (!(theta >= 1.0 && theta < 1e30)) refuse("theta must be at least 1 and below 1e30, got " + std::to_string(theta));
    columns_fit(i, offset, heads, head_dim, "rope");
    size_t table = 0;
    while (table < rope_tables_.size() && (rope_tables_[table].theta() != theta || rope_tables_[table].rotary_dim() != rotary_dim)) ++table;
    if (table == rope_tables_.size()) rope_tables_.emplace_back(theta, rotary_dim);
    append(Rope{writing(x), offset, heads, head_dim, static_cast<int>(table), style}, 0);
}

void Program::store_kv(std::string_view x, int64_t k_offset, int64_t v_offset, int64_t layer) {
    not_after_select("store_kv");
    const int i = reading(x);
    layer_exists(layer);
    columns_fit(i, k_offset, kv_.kv_heads(), kv_.head_dim(), "store_kv");
    columns_fit(i, v_offset, kv_.kv_heads(), kv_.head_dim(), "store_kv");
    append(StoreKV{i, k_offset, v_offset, layer}, 0);
}

void Program::silu_mul(std::string_view x, std::string_view out) {
    const int i = reading(x), o = find(out);
    different(i, o, "silu_mul");
    const int64_t width = buffers_[static_cast<size_t>(o)].width;
    if (buffers_[static_cast<size_t>(i)].width != 2 * width)
        refuse("silu_mul needs an input twice as wide as its output, got " + std::to_string(buffers_[static_cast<size_t>(i)].width) +
               " and " + std::to_string(width));
    append(SiluMul{i, writing(out)}, width % kGroup == 0 ? width : 0);
}

void Program::select_rows(std::string_view x, std::string_view out) {
    not_after_select("a second select_rows");
    const int i = reading(x), o = find(out);
    different(i, o, "select_rows");
    same_width(i, o, "select_rows");
    selected_ = true;
    quantized_ = quantized_rows_ = {};
    append(Select{i, writing(out)}, 0);
}

void Program::attention(std::string_view x, int64_t q_offset, std::string_view out, int64_t layer, int64_t heads, float scale) {
    not_after_select("attention");
    const int i = reading(x), o = find(out);
    different(i, o, "attention");
    layer_exists(layer);
    if (heads < 1 || heads % kv_.kv_heads() != 0)
        refuse("heads must be a multiple of the cache's " + std::to_string(kv_.kv_heads()) + " key-value heads, got " +
               std::to_string(heads));
    columns_fit(i, q_offset, heads, kv_.head_dim(), "attention");
    if (buffers_[static_cast<size_t>(o)].width != heads * kv_.head_dim())
        refuse("attention writes heads * head_dim = " + std::to_string(heads * kv_.head_dim()) + " columns, but '" + std::string(out) +
               "' has " + std::to_string(buffers_[static_cast<size_t>(o)].width));
    max_heads_ = std::max(max_heads_, heads);
    stages_.push_back({AttentionStage{i, q_offset, writing(out), layer, heads, scale, false}, false});
    stages_.push_back({MergeStage{static_cast<int>(stages_.size()) - 1}, false});
}

void Program::matmul(std::string_view x, const std::vector<PackedMatrix>& weights, std::string_view out, bool accumulate) {
    const int i = reading(x), o = accumulate ? reading(out) : find(out);
    different(i, o, "matmul");
    const int64_t k = buffers_[static_cast<size_t>(i)].width;
    MatmulStage stage{i, o, accumulate, {}, {}};
    int64_t columns = 0, strips = 0;
    bool quantized = false, grid = false;
    for (const PackedMatrix& w : weights) {
        if (is_row_grid(w.type) != is_row_grid(weights[0].type))
            refuse("the weights of a matmul are all of types R8 and R4 or none of them is; its input is quantized in rows or in groups");
        grid = is_row_grid(w.type);
        if (w.k != k)
            refuse("matmul of '" + std::string(x) + "' with " + std::to_string(k) + " columns by a weight with " + std::to_string(w.k));
        stage.parts.push_back({w, columns});
        columns += w.n;
        strips += w.strips;
        quantized = quantized || is_quantized(w.type);
    }
    if (columns != buffers_[static_cast<size_t>(o)].width)
        refuse("the weights of a matmul have " + std::to_string(columns) + " rows, but '" + std::string(out) + "' has " +
               std::to_string(buffers_[static_cast<size_t>(o)].width) + " columns");
    const int64_t share = std::min(kStripsPerChunk, ceil_div(strips, threads_));
    for (size_t p = 0; p < stage.parts.size(); ++p) {
        const int64_t in_part = stage.parts[p].weight.strips;
        for (int64_t s = 0; s < in_part; s += share) stage.chunks.push_back({static_cast<int>(p), s, std::min(s + share, in_part)});
    }
    if (quantized) quantize_input(i);
    if (grid) quantize_input_rows(i);
    writing(out);
    stages_.push_back({std::move(stage), selected_});
}

// Once per contents of a buffer: q, k and v share the quantized rows of their input.
void Program::quantize_input(int x) {
    const Buffer& b = buffers_[static_cast<size_t>(x)];
    if (quantized_ == Contents{x, b.version}) return;
    quantized_ = {x, b.version};
    activation_groups_ = std::max(activation_groups_, b.rows * (b.width / kGroup));
    row_groups_ = std::max(row_groups_, b.width / kGroup);
    // An attention whose groups of heads fill whole activation groups quantizes what it finishes.
    if (stages_.size() >= 2 && std::holds_alternative<MergeStage>(stages_.back().work)) {
        AttentionStage& attention = std::get<AttentionStage>(stages_[stages_.size() - 2].work);
        if (attention.out == x && attention.heads / kv_.kv_heads() * kv_.head_dim() % kGroup == 0) {
            attention.quantize = true;
            return;
        }
    }
    append(Quantize{x}, b.width);
}

// As quantize_input, for row-grid weights; a row's scale needs all of it.
void Program::quantize_input_rows(int x) {
    const Buffer& b = buffers_[static_cast<size_t>(x)];
    if (quantized_rows_ == Contents{x, b.version}) return;
    quantized_rows_ = {x, b.version};
    digit_columns_ = std::max(digit_columns_, b.rows * grid_blocks(b.width) * kBlockColumns);
    digit_rows_ = std::max(digit_rows_, b.rows);
    append(QuantizeRow{x}, 0);
}

// --- memory of the whole program ---------------------------------------------------------------------------------------------

// Whole cache lines per array, so that no two threads share one.
void Program::make_scratch() {
    const int64_t heads = std::max<int64_t>(max_heads_ / kv_.kv_heads(), 1) * kMaxGroupRows, dim = kv_.head_dim();
    const int64_t converted = 2 * kSpanKeys * dim, vectors = heads * dim;
    const int64_t scalars = round_up(2 * heads, 16);  // `visible` takes two floats each
    const int64_t per_thread = 3 * vectors + 5 * scalars + converted;
    scratch_memory_ = Pages(static_cast<size_t>(threads_ * per_thread) * sizeof(float));
    scratch_.clear();  // of a first run that found no memory for the rest, or no threads
    for (int64_t t = 0; t < threads_; ++t) {
        float* next = reinterpret_cast<float*>(scratch_memory_.data()) + t * per_thread;
        const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
        Scratch own{};
        own.converted = take(converted);
        own.q = take(vectors), own.acc = take(vectors), own.span_acc = take(vectors);
        own.max = take(scalars), own.sum = take(scalars), own.span_max = take(scalars), own.span_sum = take(scalars);
        own.visible = reinterpret_cast<int64_t*>(take(scalars));
        scratch_.push_back(own);
    }
}

void Program::join(std::shared_ptr<Team> team) {
    team->stages = std::max(team->stages, static_cast<int64_t>(stages_.size()));
    team_ = std::move(team);
}

void Program::share_threads(Program& other) {
    if (this == &other) refuse("a program has its threads for itself already");
    if (threads_ != other.threads_)
        refuse("programs that share threads have as many, got " + std::to_string(threads_) + " and " + std::to_string(other.threads_));
    if (team_ || (other.team_ && other.team_->pool)) refuse("programs share threads before the first run of either");
    if (!other.team_) other.join(std::make_shared<Team>());
    join(other.team_);
}

void Program::seal() {
    if (!selected_) refuse("the program has no select_rows, so no rows of logits to hand back");
    make_scratch();
    const int64_t groups = activation_groups_, tile_bytes = ActivationMemory::tile_bytes(row_groups_);
    activation_memory_ = Pages(static_cast<size_t>(tile_bytes + groups * (kGroupPayloadBytes + ActivationMemory::kNumberBytes)));
    uint8_t *tiles = activation_memory_.data(), *payload = tiles + tile_bytes;
    float* scale = reinterpret_cast<float*>(payload + groups * kGroupPayloadBytes);
    int32_t* sum = reinterpret_cast<int32_t*>(scale + 2 * groups);
    activations_ = {payload, scale, scale + groups, sum, sum + groups, tiles};
    digit_memory_ = Pages(static_cast<size_t>(2 * digit_columns_ + 3 * digit_rows_ * static_cast<int64_t>(sizeof(float))));
    digits_ = reinterpret_cast<int8_t*>(digit_memory_.data());
    digit_scale_ = reinterpret_cast<float*>(digits_ + 2 * digit_columns_);
    digit_sum_ = reinterpret_cast<int32_t*>(digit_scale_ + digit_rows_);
    chunks_.resize(stages_.size());
    if (!team_) join(std::make_shared<Team>());
    sealed_ = true;
}

// --- timing ------------------------------------------------------------------------------------------------------------------

namespace {

template <typename... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

std::vector<Program::Piece> Program::pieces() const {
    const Overloaded name{
        [](const Embed&) { return "embed"; },
        [](const Input&) { return "input"; },
        [](const Norm&) { return "rms_norm"; },
        [](const Rope&) { return "rope"; },
        [](const StoreKV&) { return "store_kv"; },
        [](const SiluMul&) { return "silu_mul"; },
        [](const Select&) { return "select_rows"; },
        [](const Quantize&) { return "quantize"; },
        [](const QuantizeRow&) { return "quantize"; },
        [](const MatmulStage&) { return "matmul"; },
        [](const AttentionStage&) { return "attention"; },
        [](const MergeStage&) { return "merge"; },
    };
    std::vector<Piece> pieces;
    for (size_t s = 0; s < stages_.size(); ++s) {
        const int64_t stage = static_cast<int64_t>(s);
        std::visit(Overloaded{[&](const RowStage& rows) {
                                  for (const RowOp& op : rows.ops) pieces.push_back({stage, std::visit(name, op), 0});
                              },
                              [&](const auto& work) { pieces.push_back({stage, name(work), 0}); }},
                   stages_[s].work);
        if (const MatmulStage* matmul = std::get_if<MatmulStage>(&stages_[s].work))
            for (const Part& part : matmul->parts) pieces.back().weight_bytes += part.weight.strips * part.weight.strip_bytes;
    }
    return pieces;
}

void Program::profile(bool on) {
    const std::unique_lock<std::mutex> lock(running_, std::try_to_lock);
    if (!lock.owns_lock()) throw std::runtime_error("the program is running; timing is switched between runs");
    if (!on) return profile_.reset();
    if (!sealed_) seal();
    const std::vector<Piece> all = pieces();
    stage_pieces_.assign(stages_.size(), 0);
    for (size_t p = all.size(); p-- > 0;) stage_pieces_[static_cast<size_t>(all[p].stage)] = static_cast<int64_t>(p);
    profile_ = std::make_unique<Profile>(threads_, static_cast<int64_t>(stages_.size()), static_cast<int64_t>(all.size()));
}

int64_t Program::logits_width() const { return last_out_ < 0 ? 0 : buffers_[static_cast<size_t>(last_out_)].width; }

Program::Selected Program::selected_rows(std::string_view buffer) const {
    for (const Buffer& b : buffers_)
        if (b.name == buffer && b.selected) return {b.row(0), step_.wanted, b.width};
    refuse("no buffer '" + std::string(buffer) + "' holds the rows whose logits are wanted");
}

int64_t Program::buffer_bytes() const {
    int64_t bytes =
        static_cast<int64_t>(activation_memory_.size() + digit_memory_.size() + scratch_memory_.size() + partial_memory_.size());
    for (const Buffer& b : buffers_) bytes += static_cast<int64_t>(b.memory.size());
    return bytes;
}

}  // namespace swiftsure
