// The key-value cache and static programs.
#include "program.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <tuple>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "kv_cache.h"
#include "packed_weights.h"

namespace nb = nanobind;

namespace swiftsure {
namespace {

// A program and the packed matrices whose memory it borrows.
class BoundProgram {
  public:
    BoundProgram(const std::string& isa, int64_t threads, int64_t max_rows, int64_t max_logit_rows, const KVCache& kv)
        : program(kernels_of(isa), threads, max_rows, max_logit_rows, kv) {}

    PackedMatrix borrow(nb::handle weight) {
        const PackedMatrix matrix = nb::cast<const PackedWeights&>(weight).matrix;
        borrowed_.push_back(nb::borrow(weight));
        return matrix;
    }

    Program program;

  private:
    std::vector<nb::object> borrowed_;
};

void matmul(BoundProgram& self, const std::string& x, nb::typed<nb::sequence, PackedWeights> weights, const std::string& out,
            bool accumulate) {
    std::vector<PackedMatrix> matrices;
    for (nb::handle weight : weights) matrices.push_back(self.borrow(weight));
    self.program.matmul(x, matrices, out, accumulate);
}

void rmsnorm(BoundProgram& self, const std::string& x, InArray<float, 1> weight, const std::string& out, float eps, bool accumulate) {
    self.program.rmsnorm(x, {weight.data(), weight.data() + weight.size()}, out, eps, accumulate);
}

void add_bias(BoundProgram& self, const std::string& x, InArray<float, 1> bias) {
    self.program.add_bias(x, {bias.data(), bias.data() + bias.size()});
}

void head_norm(BoundProgram& self, const std::string& x, InArray<float, 1> weight, int64_t offset, int64_t heads, int64_t head_dim,
               float eps) {
    self.program.head_norm(x, {weight.data(), weight.data() + weight.size()}, offset, heads, head_dim, eps);
}

void rope(BoundProgram& self, const std::string& x, int64_t offset, int64_t heads, int64_t head_dim, int64_t rotary_dim, double theta,
          const std::string& style, const std::vector<double>& factors) {
    if (style != "interleaved" && style != "halves")
        throw std::invalid_argument("style must be interleaved or halves, got '" + style + "'");
    self.program.rope(x, offset, heads, head_dim, rotary_dim, theta, style == "halves" ? RopeStyle::Halves : RopeStyle::Interleaved,
                      factors);
}

// The result is a view of the program's own buffer; `self` stays alive as long as the view does.
OutArray<float> run(nb::handle self, InArray<int32_t, 1> tokens, InArray<int32_t, 1> positions, InArray<int32_t, 1> sequences,
                    InArray<int32_t, 2> block_tables, InArray<int32_t, 1> logit_rows, std::optional<InArray<float, 2>> features) {
    Program& program = nb::cast<BoundProgram&>(self).program;
    if (positions.size() != tokens.size() || sequences.size() != tokens.size())
        throw std::invalid_argument("tokens, positions and sequences must have one length, got " + std::to_string(tokens.size()) + ", " +
                                    std::to_string(positions.size()) + " and " + std::to_string(sequences.size()));
    if (features && features->shape(0) != tokens.size())
        throw std::invalid_argument("features must have a row for each of " + std::to_string(tokens.size()) + " tokens, got " +
                                    std::to_string(features->shape(0)));
    const Step step = {tokens.data(),
                       positions.data(),
                       sequences.data(),
                       block_tables.data(),
                       logit_rows.data(),
                       static_cast<int64_t>(tokens.size()),
                       static_cast<int64_t>(block_tables.shape(0)),
                       static_cast<int64_t>(block_tables.shape(1)),
                       static_cast<int64_t>(logit_rows.size()),
                       features ? features->data() : nullptr,
                       features ? static_cast<int64_t>(features->shape(1)) : 0};
    const float* logits = nullptr;
    {
        nb::gil_scoped_release release;
        logits = program.run(step);
    }
    return OutArray<float>(const_cast<float*>(logits), {logit_rows.size(), static_cast<size_t>(program.logits_width())}, self);
}

OutArray<float> selected_rows(nb::handle self, const std::string& buffer) {
    const Program::Selected rows = nb::cast<BoundProgram&>(self).program.selected_rows(buffer);
    return OutArray<float>(const_cast<float*>(rows.values), {static_cast<size_t>(rows.rows), static_cast<size_t>(rows.width)}, self);
}

using Pieces = std::vector<std::tuple<int64_t, std::string, int64_t>>;
using Times = std::tuple<int64_t, int64_t, OutArray<int64_t>, OutArray<int64_t>>;

Pieces pieces(const BoundProgram& self) {
    Pieces all;
    for (const Program::Piece& piece : self.program.pieces()) all.emplace_back(piece.stage, piece.name, piece.weight_bytes);
    return all;
}

Times times(const BoundProgram& self) {
    const Profile* profile = self.program.profiled();
    if (!profile) throw std::invalid_argument("the program was not asked to time its runs");
    std::vector<int64_t> shares, work;
    for (int64_t thread = 0; thread < profile->threads(); ++thread) {
        for (const Profile::Share& share : profile->shares(thread)) shares.insert(shares.end(), {share.first, share.last, share.chunks});
        work.insert(work.end(), profile->work(thread).begin(), profile->work(thread).end());
    }
    const size_t threads = static_cast<size_t>(profile->threads());
    return {profile->planned_ns(), profile->wall_ns(), to_array(std::move(shares), {threads, static_cast<size_t>(profile->stages()), 3}),
            to_array(std::move(work), {threads, static_cast<size_t>(profile->pieces())})};
}

using Block = std::tuple<OutArray<int16_t>, OutArray<float>, OutArray<int16_t>, OutArray<float>>;

// Numbers of the cache, widened to 16 bits.
std::vector<int16_t> numbers(const KVBlockView& view, const void* at, size_t count) {
    if (view.bits == 8) return {static_cast<const int8_t*>(at), static_cast<const int8_t*>(at) + count};
    return {static_cast<const int16_t*>(at), static_cast<const int16_t*>(at) + count};
}

Block read_block(const KVCache& kv, int64_t layer, int64_t kv_head, int64_t block) {
    if (layer < 0 || layer >= kv.layers() || kv_head < 0 || kv_head >= kv.kv_heads() || block < 0 || block >= kv.blocks())
        throw std::invalid_argument("the cache has no block " + std::to_string(block) + " of layer " + std::to_string(layer) +
                                    ", key-value head " + std::to_string(kv_head));
    const KVBlockView view = kv.block(layer, kv_head, block);
    const size_t dim = static_cast<size_t>(kv.head_dim()), size = static_cast<size_t>(kv.block_size()),
                 groups = static_cast<size_t>(kv.key_groups());
    return {to_array(numbers(view, view.keys, dim * size), {dim, size}),
            to_array(std::vector<float>(view.key_scales, view.key_scales + groups * size), {groups, size}),
            to_array(numbers(view, view.values, dim * size), {size, dim}),
            to_array(std::vector<float>(view.value_scales, view.value_scales + size), {size})};
}

}  // namespace

void register_program(nb::module_& m) {
    nb::class_<KVCache>(
        m, "KVCache",
        "Keys and values of all layers in blocks of positions: int16 or int8, one float scale per head vector; of int8 keys, per 32 "
        "dimensions.")
        .def(nb::init<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>(), nb::arg("layers"), nb::arg("kv_heads"), nb::arg("head_dim"),
             nb::arg("block_size"), nb::arg("blocks"), nb::arg("bits") = 16)
        .def_prop_ro("bits", &KVCache::bits)
        .def_prop_ro("block_size", &KVCache::block_size)
        .def_prop_ro("blocks", &KVCache::blocks)
        .def_prop_ro("nbytes", &KVCache::bytes)
        .def("read_block", &read_block, nb::arg("layer"), nb::arg("kv_head"), nb::arg("block"),
             "Copies of keys (head_dim, block_size), key scales (groups, block_size), values (block_size, head_dim) and value scales; int8 "
             "widened to int16.");
    nb::class_<BoundProgram>(m, "Program", "A static program: one method per operation of a schedule, then one run per step.")
        .def(nb::init<const std::string&, int64_t, int64_t, int64_t, const KVCache&>(), nb::arg("isa"), nb::arg("threads"),
             nb::arg("max_rows"), nb::arg("max_logit_rows"), nb::arg("kv"), nb::keep_alive<1, 6>())
        .def(
            "buffer", [](BoundProgram& s, const std::string& name, int64_t width) { s.program.buffer(name, width); }, nb::arg("name"),
            nb::arg("width"))
        .def(
            "embed",
            [](BoundProgram& s, const PackedWeights& weight, const std::string& out, float scale) {
                s.program.embed(weight.matrix, out, scale);
            },
            nb::arg("weight"), nb::arg("out"), nb::arg("scale") = 1.0f, nb::keep_alive<1, 2>())
        .def(
            "input", [](BoundProgram& s, const std::string& out) { s.program.input(out); }, nb::arg("out"))
        .def(
            "share_threads", [](BoundProgram& s, BoundProgram& other) { s.program.share_threads(other.program); }, nb::arg("other"),
            "Both programs run on the same threads, one at a time. Before the first run of either; ends the building.")
        .def("rmsnorm", &rmsnorm, nb::arg("x"), nb::arg("weight").noconvert(), nb::arg("out"), nb::arg("eps"),
             nb::arg("accumulate") = false)
        .def("matmul", &matmul, nb::arg("x"), nb::arg("weights"), nb::arg("out"), nb::arg("accumulate"))
        .def("add_bias", &add_bias, nb::arg("x"), nb::arg("bias").noconvert())
        .def("head_norm", &head_norm, nb::arg("x"), nb::arg("weight").noconvert(), nb::arg("offset"), nb::arg("heads"), nb::arg("head_dim"),
             nb::arg("eps"))
        .def("rope", &rope, nb::arg("x"), nb::arg("offset"), nb::arg("heads"), nb::arg("head_dim"), nb::arg("rotary_dim"), nb::arg("theta"),
             nb::arg("style"), nb::arg("factors") = std::vector<double>())
        .def(
            "store_kv",
            [](BoundProgram& s, const std::string& x, int64_t k, int64_t v, int64_t layer) { s.program.store_kv(x, k, v, layer); },
            nb::arg("x"), nb::arg("k_offset"), nb::arg("v_offset"), nb::arg("layer"))
        .def(
            "attention",
            [](BoundProgram& s, const std::string& x, int64_t q_offset, const std::string& out, int64_t layer, int64_t heads, float scale,
               std::optional<int64_t> window) { s.program.attention(x, q_offset, out, layer, heads, scale, window.value_or(kEveryKey)); },
            nb::arg("x"), nb::arg("q_offset"), nb::arg("out"), nb::arg("layer"), nb::arg("heads"), nb::arg("scale"),
            nb::arg("window") = nb::none())
        .def(
            "gated_activation",
            [](BoundProgram& s, const std::string& kind, const std::string& x, const std::string& out) {
                s.program.gated_activation(kind, x, out);
            },
            nb::arg("kind"), nb::arg("x"), nb::arg("out"))
        .def(
            "select_rows", [](BoundProgram& s, const std::string& x, const std::string& out) { s.program.select_rows(x, out); },
            nb::arg("x"), nb::arg("out"))
        .def("run", &run, nb::arg("tokens").noconvert(), nb::arg("positions").noconvert(), nb::arg("sequences").noconvert(),
             nb::arg("block_tables").noconvert(), nb::arg("logit_rows").noconvert(), nb::arg("features").noconvert() = nb::none(),
             "Runs one step; returns (wanted, logits width), a view that the next run overwrites. features: (rows, width), what `input` "
             "reads.")
        .def("selected_rows", &selected_rows, nb::arg("buffer"),
             "What the last run left in a buffer that is written after select_rows: (wanted, width), a view that the next run overwrites.")
        .def("pieces", &pieces,
             "What is timed: (stage, name, bytes of packed weights that a matmul reads) in the order of the work, \"quantize\" before the "
             "matmul that asked for it and \"merge\" after "
             "its "
             "attention; all others in the order they were appended.")
        .def(
            "profile", [](BoundProgram& s, bool on) { s.program.profile(on); }, nb::arg("on"),
            "Times every piece of the runs to come on every thread, or nothing (as at first); the results are the same. Ends the building.")
        .def("times", &times,
             "Of the last run, in nanoseconds since it began: when its plan was made and when it was over; (threads, stages, 3) begin of "
             "the "
             "first chunk, end of the last and number of chunks; (threads, pieces) time spent.")
        .def_prop_ro("isa", [](const BoundProgram& s) { return s.program.isa(); })
        .def_prop_ro("threads", [](const BoundProgram& s) { return s.program.threads(); })
        .def_prop_ro("buffer_bytes", [](const BoundProgram& s) { return s.program.buffer_bytes(); });
}

}  // namespace swiftsure
