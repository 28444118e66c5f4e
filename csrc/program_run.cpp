// Running a program: one step is checked, cut into chunks and handed to the threads. Attention: program_attention.cpp.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "program.h"
#include "refuse.h"

namespace swiftsure {

namespace {

std::string at_row(const char* what, int64_t row, int64_t value) {
    return std::string(what) + " of row " + std::to_string(row) + " is " + std::to_string(value);
}

}  // namespace

// --- checks ------------------------------------------------------------------------------------------------------------------

void Program::validate(const Step& step) const {
    if (step.rows < 1 || step.rows > max_rows_)
        refuse("a pass takes 1 to " + std::to_string(max_rows_) + " rows, got " + std::to_string(step.rows));
    if (step.features_width != input_width_)
        refuse("the program reads rows of " + std::to_string(input_width_) + " features, got " + std::to_string(step.features_width));
    if (step.wanted > max_logit_rows_)
        refuse("a pass hands back at most " + std::to_string(max_logit_rows_) + " rows of logits, got " + std::to_string(step.wanted));
    for (int64_t r = 0; r < step.rows; ++r) {
        const int64_t token = step.tokens[r], position = step.positions[r], sequence = step.sequences[r];
        if (token < 0 || token >= vocab_) refuse(at_row("token", r, token) + ", not in [0, " + std::to_string(vocab_) + ")");
        if (sequence < 0 || sequence >= step.sequence_count)
            refuse(at_row("sequence", r, sequence) + ", but there are " + std::to_string(step.sequence_count) + " block tables");
        if (position < 0 || position / kv_.block_size() >= step.table_width)
            refuse(at_row("position", r, position) + ", but a block table holds " + std::to_string(step.table_width * kv_.block_size()) +
                   " positions");
        if (r > 0 && sequence == step.sequences[r - 1] && position != step.positions[r - 1] + 1)
            refuse(at_row("position", r, position) + " after " + std::to_string(step.positions[r - 1]) +
                   "; rows of a sequence have consecutive positions");
        const bool last = r + 1 == step.rows || step.sequences[r + 1] != sequence;
        if (!last) continue;
        for (int64_t other = r + 1; other < step.rows; ++other)
            if (step.sequences[other] == sequence) refuse(at_row("sequence", other, sequence) + ", but its rows are not neighbours");
        for (int64_t b = 0; b <= position / kv_.block_size(); ++b) {
            const int64_t block = step.block_tables[sequence * step.table_width + b];
            if (block < 0 || block >= kv_.blocks())
                refuse("block " + std::to_string(b) + " of sequence " + std::to_string(sequence) + " is " + std::to_string(block) +
                       ", not in [0, " + std::to_string(kv_.blocks()) + ")");
        }
    }
    for (int64_t i = 0; i < step.wanted; ++i) {
        const int64_t row = step.logit_rows[i];
        if (row < 0 || row >= step.rows || (i > 0 && row <= step.logit_rows[i - 1]))
            refuse("logit_rows must ascend within [0, " + std::to_string(step.rows) + "), got " + std::to_string(row) + " at " +
                   std::to_string(i));
    }
}

// --- cutting a step into chunks ----------------------------------------------------------------------------------------------

const float* Program::run(const Step& step) {
    const std::unique_lock<std::mutex> lock(running_, std::try_to_lock);
    if (!lock.owns_lock()) throw std::runtime_error("the program is running already; one step at a time");
    if (!sealed_) seal();
    const std::unique_lock<std::mutex> threads(team_->running, std::try_to_lock);
    if (!threads.owns_lock()) throw std::runtime_error("another program runs on these threads; one step at a time");
    if (!team_->pool) team_->pool = std::make_unique<ThreadPool>(static_cast<int32_t>(threads_), static_cast<int32_t>(team_->stages));
    if (profile_) profile_->begin();
    validate(step);
    plan(step);
    if (profile_) profile_->planned();
    team_->pool->run(chunks_.data(), static_cast<int32_t>(stages_.size()), profile_ ? time_chunk : run_chunk, this, ahead_.data());
    if (profile_) profile_->end();
    return buffers_[static_cast<size_t>(last_out_)].row(0);
}

void Program::plan(const Step& step) {
    step_ = step;
    int64_t positions = 0;
    for (int64_t r = 0; r < step.rows; ++r) positions = std::max<int64_t>(positions, step.positions[r] + 1);
    for (RopeTable& table : rope_tables_) table.extend(positions);
    plan_attention();
    for (size_t s = 0; s < stages_.size(); ++s) {
        const int64_t chunks = chunks_of(stages_[s]);
        if (chunks > ThreadPool::kMaxChunks) refuse("the step has " + std::to_string(chunks) + " chunks in a stage; use fewer rows a pass");
        chunks_[s] = static_cast<int32_t>(chunks);
    }
}

Program::RowSplit Program::row_split(const RowStage& stage, int64_t rows) const {
    const int64_t chunks = kChunksPerThread * threads_;
    if (stage.heads > 0 && threads_ > 1 && rows > 1 && rows <= kv_.block_size()) return {rows, 0, stage.heads};
    if (stage.columns == 0 || rows >= chunks || threads_ == 1) return {ceil_div(rows, chunks), 0, 1};
    const int64_t columns = std::max<int64_t>(ceil_div(ceil_div(stage.columns * rows, chunks), kGroup), 8) * kGroup;
    return {1, columns, ceil_div(stage.columns, columns)};
}

int64_t Program::chunks_of(const Stage& stage) const {
    const int64_t rows = domain_rows(stage.selected);
    if (rows == 0) return 0;
    if (const RowStage* work = std::get_if<RowStage>(&stage.work)) {
        const RowSplit split = row_split(*work, rows);
        return ceil_div(rows, split.rows) * split.pieces;
    }
    if (const MatmulStage* work = std::get_if<MatmulStage>(&stage.work)) return static_cast<int64_t>(work->chunks.size());
    if (const AttentionStage* work = std::get_if<AttentionStage>(&stage.work)) return attention_chunks(*work);
    const MergeStage& merge = *std::get_if<MergeStage>(&stage.work);
    const bool splits = plan_of(*std::get_if<AttentionStage>(&stages_[static_cast<size_t>(merge.attention)].work)).splits_spans();
    return splits ? rows * kv_.kv_heads() : 0;
}

void Program::run_chunk(void* program, int32_t stage_index, int32_t chunk, int32_t thread) {
    Program& self = *static_cast<Program*>(program);
    const Stage& stage = self.stages_[static_cast<size_t>(stage_index)];
    if (const RowStage* work = std::get_if<RowStage>(&stage.work)) return self.run_rows(*work, stage.selected, chunk, [](size_t) {});
    if (const MatmulStage* work = std::get_if<MatmulStage>(&stage.work)) return self.run_matmul(*work, stage.selected, chunk);
    if (const AttentionStage* work = std::get_if<AttentionStage>(&stage.work)) return self.run_attention(*work, chunk, thread);
    const MergeStage& merge = *std::get_if<MergeStage>(&stage.work);
    self.run_merge(*std::get_if<AttentionStage>(&self.stages_[static_cast<size_t>(merge.attention)].work), chunk, thread);
}

// As run_chunk, with a look at the clock around every piece.
void Program::time_chunk(void* program, int32_t stage_index, int32_t chunk, int32_t thread) {
    Program& self = *static_cast<Program*>(program);
    const Stage& stage = self.stages_[static_cast<size_t>(stage_index)];
    const int64_t piece = self.stage_pieces_[static_cast<size_t>(stage_index)], begin = self.profile_->start(thread, stage_index);
    int64_t end = begin;
    const auto lap = [&](size_t op) {
        const int64_t now = self.profile_->now();
        self.profile_->add_work(thread, piece + static_cast<int64_t>(op), now - end);
        end = now;
    };
    if (const RowStage* work = std::get_if<RowStage>(&stage.work)) {
        self.run_rows(*work, stage.selected, chunk, lap);
    } else {
        run_chunk(program, stage_index, chunk, thread);
        lap(0);
    }
    self.profile_->add_chunk(thread, stage_index, begin, end);
}

// --- rows --------------------------------------------------------------------------------------------------------------------

// Calls after(op) when operation `op` of the stage is done on a row.
template <typename After>
void Program::run_rows(const RowStage& stage, bool selected, int32_t chunk, const After& after) const {
    const int64_t rows = domain_rows(selected);
    const RowSplit split = row_split(stage, rows);
    const int64_t piece = chunk % split.pieces, first = chunk / split.pieces * split.rows;
    Slice slice{piece * split.columns, 0, piece, 0, stage.k_offset, kv_.head_dim()};
    if (split.columns > 0)
        slice.columns = std::min(split.columns, stage.columns - slice.column);
    else if (split.pieces > 1)
        slice.heads = split.pieces;
    for (int64_t row = first; row < std::min(first + split.rows, rows); ++row)
        for (size_t op = 0; op < stage.ops.size(); ++op) {
            run_row_op(stage.ops[op], rows, row, slice);
            after(op);
        }
}

// Row `row` of the `rows` of a stage.
void Program::run_row_op(const RowOp& op, int64_t rows, int64_t row, const Slice& slice) const {
    const int64_t column = slice.column, columns = slice.columns;
    const auto at = [&](int buffer) { return buffers_[static_cast<size_t>(buffer)].row(row); };
    const auto width = [&](int buffer) { return columns > 0 ? columns : buffers_[static_cast<size_t>(buffer)].width; };
    if (const Embed* o = std::get_if<Embed>(&op)) {
        float* out = at(o->out);
        kernels_.unpack_row(o->weight, step_.tokens[row], out);
        if (o->scale != 1.0f)
            for (int64_t c = 0; c < width(o->out); ++c) out[c] *= o->scale;
    } else if (const Input* o = std::get_if<Input>(&op)) {
        const float* source = step_.features + row * step_.features_width;
        std::copy(source, source + step_.features_width, at(o->out));
    } else if (const Norm* o = std::get_if<Norm>(&op)) {
        kernels_.rmsnorm(at(o->x), vectors_[static_cast<size_t>(o->weight)].data(), at(o->out), width(o->x), o->eps, o->accumulate);
    } else if (const AddBias* o = std::get_if<AddBias>(&op)) {
        const float* bias = vectors_[static_cast<size_t>(o->bias)].data() + column;
        float* x = at(o->x) + column;
        for (int64_t c = 0; c < width(o->x); ++c) x[c] += bias[c];
    } else if (const HeadNorm* o = std::get_if<HeadNorm>(&op)) {
        const float* weight = vectors_[static_cast<size_t>(o->weight)].data();
        for (int64_t v = o->offset; v < o->offset + o->heads * o->head_dim; v += o->head_dim)
            if (slice.has(v)) kernels_.rmsnorm(at(o->x) + v, weight, at(o->x) + v, o->head_dim, o->eps, false);
    } else if (const Rope* o = std::get_if<Rope>(&op)) {
        const RopeTable& table = rope_tables_[static_cast<size_t>(o->table)];
        const auto rotate = o->style == RopeStyle::Interleaved ? kernels_.rope_interleaved : kernels_.rope_halves;
        for (int64_t v = o->offset; v < o->offset + o->heads * o->head_dim; v += o->head_dim)
            if (slice.has(v)) rotate(at(o->x) + v, table.row(step_.positions[row]), table.rotary_dim() / 2);
    } else if (const StoreKV* o = std::get_if<StoreKV>(&op)) {
        store_row(*o, row, slice);
    } else if (const Gated* o = std::get_if<Gated>(&op)) {
        const int64_t half = buffers_[static_cast<size_t>(o->out)].width;
        o->kernel(at(o->x) + column, at(o->x) + half + column, at(o->out) + column, width(o->out));
    } else if (const Select* o = std::get_if<Select>(&op)) {
        const float* source = buffers_[static_cast<size_t>(o->x)].row(step_.logit_rows[row]);
        std::copy(source, source + width(o->x), at(o->out));
    } else if (const QuantizeRow* o = std::get_if<QuantizeRow>(&op)) {
        const int64_t k = width(o->x);
        kernels_.quantize_grid_row(at(o->x), k,
                                   {digits_ + row * 2 * grid_blocks(k) * kBlockColumns, digit_scale_ + row, digit_sum_ + 2 * row});
    } else {
        const int x = std::get_if<Quantize>(&op)->x;
        quantize_columns(x, rows, row, column, width(x));
    }
}

void Program::store_row(const StoreKV& op, int64_t row, const Slice& slice) const {
    const float* x = buffers_[static_cast<size_t>(op.x)].row(row);
    const int64_t position = step_.positions[row], size = kv_.block_size(), dim = kv_.head_dim();
    const int64_t block = step_.block_tables[step_.sequences[row] * step_.table_width + position / size];
    for (int64_t h = 0; h < kv_.kv_heads(); ++h)
        if (slice.has(op.k_offset + h * dim))
            kernels_.store_kv(x + op.k_offset + h * dim, x + op.v_offset + h * dim, kv_.block(op.layer, h, block), position % size, dim,
                              size);
}

// Columns [column, column + columns) of one of `rows` rows, whole groups of 32.
void Program::quantize_columns(int x, int64_t rows, int64_t row, int64_t column, int64_t columns) const {
    const Buffer& b = buffers_[static_cast<size_t>(x)];
    kernels_.quantize_row(b.row(row) + column, columns, activations_.row(row, column / kGroup, rows, b.width / kGroup));
}

// --- matmul ------------------------------------------------------------------------------------------------------------------

void Program::run_matmul(const MatmulStage& stage, bool selected, int32_t chunk) const {
    const StripRange& range = stage.chunks[static_cast<size_t>(chunk)];
    const Part& part = stage.parts[static_cast<size_t>(range.part)];
    const Buffer &x = buffers_[static_cast<size_t>(stage.x)], &out = buffers_[static_cast<size_t>(stage.out)];
    const int64_t rows = domain_rows(selected);
    if (is_quantized(part.weight.type)) {
        kernels_.matmul_quantized(part.weight, activations_.all(rows, x.width / kGroup), range.begin, range.end, out.row(0) + part.column,
                                  out.width, stage.accumulate);
    } else if (is_row_grid(part.weight.type)) {
        const GridActivations activations = {digits_, digit_scale_, digit_sum_, rows, grid_blocks(x.width) * kBlockColumns};
        kernels_.matmul_rows(part.weight, activations, range.begin, range.end, out.row(0) + part.column, out.width, stage.accumulate);
    } else {
        kernels_.matmul_float(part.weight, x.row(0), x.width, rows, range.begin, range.end, out.row(0) + part.column, out.width,
                              stage.accumulate);
    }
}

}  // namespace swiftsure
