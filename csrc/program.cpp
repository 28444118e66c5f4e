// Building a program: buffers, checks, memory, what is timed. Its operations: program_ops.cpp. Running it: program_run.cpp.
#include "program.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "refuse.h"

namespace swiftsure {

namespace {

constexpr int64_t kMaxThreads = 1024, kMaxRows = 65536;

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

// --- memory of the whole program ---------------------------------------------------------------------------------------------

// Whole cache lines per array, so that no two threads share one.
void Program::make_scratch() {
    const int64_t heads = std::max<int64_t>(max_heads_ / kv_.kv_heads(), 1) * AttentionPlan::kMaxGroupRows, dim = kv_.head_dim();
    const int64_t converted = 2 * kSpanKeys * dim, vectors = heads * dim;
    const int64_t scalars = round_up(2 * heads, 16);  // what a row sees takes two floats each
    const int64_t per_thread = 3 * vectors + 6 * scalars + converted;
    scratch_memory_ = Pages(static_cast<size_t>(threads_ * per_thread) * sizeof(float));
    scratch_.clear();  // of a first run that found no memory for the rest, or no threads
    for (int64_t t = 0; t < threads_; ++t) {
        float* next = reinterpret_cast<float*>(scratch_memory_.data()) + t * per_thread;
        const auto take = [&](int64_t count) { return std::exchange(next, next + count); };
        Scratch own{};
        own.converted = take(converted);
        own.q = take(vectors), own.acc = take(vectors), own.span_acc = take(vectors);
        own.max = take(scalars), own.sum = take(scalars), own.span_max = take(scalars), own.span_sum = take(scalars);
        own.seen_begin = reinterpret_cast<int64_t*>(take(scalars));
        own.seen_end = reinterpret_cast<int64_t*>(take(scalars));
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
    split_heads();
    look_ahead();
    if (!team_) join(std::make_shared<Team>());
    sealed_ = true;
}

// Stages that store keys: a line of the cache holds one dimension of many positions, so threads that store neighbouring positions of one
// head would take each line from each other.
void Program::split_heads() {
    if (kv_.kv_heads() < threads_) return;
    for (Stage& stage : stages_) {
        RowStage* work = std::get_if<RowStage>(&stage.work);
        const StoreKV* store = work ? std::get_if<StoreKV>(&work->ops.back()) : nullptr;
        if (!store) continue;
        const auto whole_heads = [&](const auto& op) {
            return op.head_dim == kv_.head_dim() && (store->k_offset - op.offset) % op.head_dim == 0 && op.x == store->x;
        };
        const auto per_head = [&](const RowOp& op) {
            if (const HeadNorm* o = std::get_if<HeadNorm>(&op)) return whole_heads(*o);
            if (const Rope* o = std::get_if<Rope>(&op)) return whole_heads(*o);
            return &op == &work->ops.back();
        };
        if (!std::all_of(work->ops.begin(), work->ops.end(), per_head)) continue;
        work->heads = kv_.kv_heads();
        work->k_offset = store->k_offset;
    }
}

// What each thread multiplies first in the next matmul, for every stage before it.
void Program::look_ahead() {
    const size_t threads = static_cast<size_t>(threads_);
    ahead_.assign(stages_.size() * threads, {});
    const MatmulStage* next = nullptr;
    for (size_t s = stages_.size(); s-- > 0;) {
        if (next)
            for (size_t t = 0; t < threads; ++t) ahead_[s * threads + t] = first_weights(*next, static_cast<int64_t>(t));
        if (const MatmulStage* matmul = std::get_if<MatmulStage>(&stages_[s].work)) next = matmul;
    }
}

ThreadPool::Ahead Program::first_weights(const MatmulStage& stage, int64_t thread) const {
    const int64_t count = static_cast<int64_t>(stage.chunks.size());
    const int64_t begin = ThreadPool::share_begin(count, threads_, thread), end = ThreadPool::share_begin(count, threads_, thread + 1);
    if (begin == end) return {};
    const StripRange &first = stage.chunks[static_cast<size_t>(begin)], &last = stage.chunks[static_cast<size_t>(end - 1)];
    const PackedMatrix& w = stage.parts[static_cast<size_t>(first.part)].weight;
    const int64_t strips = (last.part == first.part ? last.end : w.strips) - first.begin;
    return {w.data + first.begin * w.strip_bytes, std::min(strips * w.strip_bytes, kMostAheadBytes)};
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
        [](const AddBias&) { return "add_bias"; },
        [](const HeadNorm&) { return "head_norm"; },
        [](const Rope&) { return "rope"; },
        [](const StoreKV&) { return "store_kv"; },
        [](const Gated&) { return "activation"; },
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
