// The float kernels one call at a time, for tests against the float64 twin.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "float_mode.h"
#include "kv_cache.h"
#include "rope_table.h"

namespace nb = nanobind;

namespace swiftsure {
namespace {

using Vector = InArray<float, 1>;
using Matrix = InArray<float, 2>;

void same_size(size_t a, size_t b, const char* what) {
    if (a != b) throw std::invalid_argument(std::string(what) + ": got " + std::to_string(a) + " and " + std::to_string(b));
}

OutArray<float> rmsnorm(const std::string& isa, Vector x, Vector weight, float eps) {
    const KernelTable& kernels = kernels_of(isa);
    same_size(x.size(), weight.size(), "x and weight must have one width");
    std::vector<float> out(x.size());
    const FloatMode mode;
    kernels.rmsnorm(x.data(), weight.data(), out.data(), static_cast<int64_t>(x.size()), eps, false);
    return to_array(std::move(out), {x.size()});
}

OutArray<float> gated(const std::string& isa, const std::string& kind, Vector gate, Vector up) {
    const KernelTable& kernels = kernels_of(isa);
    const GatedKernel activation = gated_kernel(kernels, kind);
    same_size(gate.size(), up.size(), "gate and up must have one width");
    std::vector<float> out(gate.size());
    const FloatMode mode;
    activation(gate.data(), up.data(), out.data(), static_cast<int64_t>(gate.size()));
    return to_array(std::move(out), {gate.size()});
}

OutArray<float> rope(const std::string& isa, Vector x, int64_t position, int64_t rotary_dim, double theta, const std::string& style,
                     std::vector<double> factors) {
    const KernelTable& kernels = kernels_of(isa);
    if (rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > static_cast<int64_t>(x.size()))
        throw std::invalid_argument("rotary_dim must be even and in [2, " + std::to_string(x.size()) + "], got " +
                                    std::to_string(rotary_dim));
    if (position < 0 || position >= int64_t{1} << 24)
        throw std::invalid_argument("position must be in [0, 2^24), got " + std::to_string(position));
    if (style != "interleaved" && style != "halves")
        throw std::invalid_argument("style must be interleaved or halves, got '" + style + "'");
    if (!(theta >= 1.0 && theta < 1e30)) throw std::invalid_argument("theta must be at least 1 and below 1e30");
    std::vector<float> out(x.data(), x.data() + x.size());
    const FloatMode mode;
    require_rope_factors(factors, rotary_dim);
    RopeTable table(theta, rotary_dim, std::move(factors));
    table.extend(position + 1);
    (style == "halves" ? kernels.rope_halves : kernels.rope_interleaved)(out.data(), table.row(position), rotary_dim / 2);
    return to_array(std::move(out), {x.size()});
}

// One row of queries over `length` keys of one key-value head, through blocks as in the cache.
OutArray<float> attention(const std::string& isa, Matrix q, Matrix keys, Matrix values, int64_t block_size, int64_t kv_bits,
                          std::optional<int64_t> window) {
    const KernelTable& kernels = kernels_of(isa);
    const int64_t heads = static_cast<int64_t>(q.shape(0)), dim = static_cast<int64_t>(q.shape(1)),
                  length = static_cast<int64_t>(keys.shape(0));
    same_size(keys.shape(0), values.shape(0), "there must be a value per key");
    same_size(q.shape(1), keys.shape(1), "queries and keys must have one head_dim");
    same_size(q.shape(1), values.shape(1), "queries and values must have one head_dim");
    if (heads < 1 || length < 1) throw std::invalid_argument("attention needs at least one query and one key");
    if (window && *window < 1) throw std::invalid_argument("window must be at least 1, got " + std::to_string(*window));
    const int64_t first_key = window ? std::max<int64_t>(length - *window, 0) : 0;
    KVCache cache(1, 1, dim, block_size, (length + block_size - 1) / block_size, kv_bits);
    std::vector<KVBlockView> blocks;
    for (int64_t b = 0; b < cache.blocks(); ++b) blocks.push_back(cache.block(0, 0, b));
    std::vector<float> max(heads, -std::numeric_limits<float>::infinity()), sum(heads), acc(heads * dim), span_max(heads), span_sum(heads),
        span_acc(heads * dim), out(heads * dim);
    std::vector<float> scratch(2 * kSpanKeys * dim);
    std::vector<int64_t> seen_begin, seen_end;
    const FloatMode mode;
    for (int64_t p = 0; p < length; ++p)
        kernels.store_kv(keys.data() + p * dim, values.data() + p * dim, blocks[p / block_size], p % block_size, dim, block_size);
    for (int64_t begin = first_key / kSpanKeys * kSpanKeys; begin < length; begin += kSpanKeys) {
        seen_begin.assign(heads, std::max<int64_t>(first_key - begin, 0));
        seen_end.assign(heads, std::min(length - begin, kSpanKeys));
        const int64_t first = begin / block_size, after = std::min(first + kSpanKeys / block_size, cache.blocks());
        const int64_t more = std::min(cache.blocks() - after, kSpanKeys / block_size);
        kernels.attention_span(q.data(), heads, dim, blocks.data() + first, blocks.data() + after, more, block_size, seen_begin.data(),
                               seen_end.data(), scratch.data(), span_max.data(), span_sum.data(), span_acc.data());
        kernels.attention_merge(max.data(), sum.data(), acc.data(), span_max.data(), span_sum.data(), span_acc.data(), heads, dim);
    }
    kernels.attention_finish(sum.data(), acc.data(), out.data(), heads, dim);
    return to_array(std::move(out), {q.shape(0), q.shape(1)});
}

}  // namespace

void register_kernels(nb::module_& m) {
    m.def("built_isas", &built_isas, "Instruction sets that this build has kernels for, best first.");
    m.def("supported_isas", &supported_isas, "Instruction sets of this build that this machine runs, best first.");
    m.def("rmsnorm", &rmsnorm, nb::arg("isa"), nb::arg("x").noconvert(), nb::arg("weight").noconvert(), nb::arg("eps"));
    m.def("gated_activation", &gated, nb::arg("isa"), nb::arg("kind"), nb::arg("gate").noconvert(), nb::arg("up").noconvert());
    m.def("rope", &rope, nb::arg("isa"), nb::arg("x").noconvert(), nb::arg("position"), nb::arg("rotary_dim"), nb::arg("theta"),
          nb::arg("style"), nb::arg("factors") = std::vector<double>());
    m.def("attention", &attention, nb::arg("isa"), nb::arg("q").noconvert(), nb::arg("keys").noconvert(), nb::arg("values").noconvert(),
          nb::arg("block_size"), nb::arg("kv_bits") = 16, nb::arg("window") = nb::none(),
          "One row of queries (heads, head_dim) over keys and values (length, head_dim) of one key-value head, or the last `window` of "
          "them.");
}

}  // namespace swiftsure
