// Packed matrices, and the matmul kernels one call at a time for tests and measurements.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "activations.h"
#include "arena_file.h"
#include "bindings/arrays.h"
#include "bindings/bindings.h"
#include "float_mode.h"
#include "packed_weights.h"
#include "pages.h"
#include "quantized_rows.h"

namespace nb = nanobind;

namespace swiftsure {
namespace {

using Bytes = InArray<uint8_t, 1>;
using Matrix = InArray<float, 2>;
using OutMatrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr TensorType kTypes[] = {TensorType::F32,  TensorType::F16,  TensorType::BF16, TensorType::Q8_0, TensorType::Q4_0,
                                 TensorType::Q4_1, TensorType::Q5_0, TensorType::Q5_1, TensorType::Q4_K, TensorType::Q5_K,
                                 TensorType::Q6_K, TensorType::R8,   TensorType::R4};

TensorType parse_type(const std::string& name) {
    std::string known;
    for (TensorType type : kTypes) {
        if (name == type_name(type)) return type;
        known += (known.empty() ? "" : ", ") + std::string(type_name(type));
    }
    throw std::invalid_argument("tensor type must be one of " + known + ", got \"" + name + "\"");
}

// Rows quantized as a whole, for row-grid weights.
class GridRows {
  public:
    GridRows(const KernelTable& table, const float* x, int64_t rows, int64_t k)
        : rows_(rows), columns_(grid_blocks(k) * kBlockColumns), digits_(static_cast<size_t>(2 * rows * columns_)) {
        scale_.resize(static_cast<size_t>(rows));
        sum_.resize(static_cast<size_t>(2 * rows));
        for (int64_t r = 0; r < rows; ++r)
            table.quantize_grid_row(x + r * k, k, {digits() + 2 * r * columns_, scale_.data() + r, sum_.data() + 2 * r});
    }
    GridActivations all() const { return {digits(), scale_.data(), sum_.data(), rows_, columns_}; }

  private:
    int8_t* digits() const { return reinterpret_cast<int8_t*>(digits_.data()); }

    int64_t rows_, columns_;
    Pages digits_;
    std::vector<float> scale_;
    std::vector<int32_t> sum_;
};

void matmul(const std::string& isa, const PackedWeights& weights, Matrix x, int64_t strip_begin, int64_t strip_end, bool accumulate,
            OutMatrix out) {
    const KernelTable& table = kernels_of(isa);
    const PackedMatrix& w = weights.matrix;
    const int64_t rows = static_cast<int64_t>(x.shape(0)), width = static_cast<int64_t>(out.shape(1));
    if (static_cast<int64_t>(x.shape(1)) != w.k)
        throw std::invalid_argument("x must have the matrix's " + std::to_string(w.k) + " columns, got " + std::to_string(x.shape(1)));
    if (static_cast<int64_t>(out.shape(0)) != rows || width != w.n)
        throw std::invalid_argument("out must have shape (" + std::to_string(rows) + ", " + std::to_string(w.n) + "), got (" +
                                    std::to_string(out.shape(0)) + ", " + std::to_string(width) + ")");
    if (strip_begin < 0 || strip_begin > strip_end || strip_end > w.strips)
        throw std::invalid_argument("strips must satisfy 0 <= begin <= end <= " + std::to_string(w.strips) + ", got " +
                                    std::to_string(strip_begin) + " and " + std::to_string(strip_end));
    nb::gil_scoped_release release;
    const FloatMode mode;
    if (is_row_grid(w.type)) {
        table.matmul_rows(w, GridRows(table, x.data(), rows, w.k).all(), strip_begin, strip_end, out.data(), width, accumulate);
        return;
    }
    if (!is_quantized(w.type)) {
        table.matmul_float(w, x.data(), w.k, rows, strip_begin, strip_end, out.data(), width, accumulate);
        return;
    }
    const QuantizedRows quantized(table, x.data(), rows, w.k);
    table.matmul_quantized(w, quantized.all(), strip_begin, strip_end, out.data(), width, accumulate);
}

template <typename T>
nb::ndarray<nb::numpy, T> numpy_array(std::initializer_list<size_t> shape) {
    size_t size = 1;
    for (size_t s : shape) size *= s;
    T* data = new T[size]();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(data, shape, owner);
}

using Quantized = std::tuple<nb::ndarray<nb::numpy, int16_t>, nb::ndarray<nb::numpy, float>, nb::ndarray<nb::numpy, int32_t>>;

Quantized quantize(const std::string& isa, Matrix x) {
    const KernelTable& table = kernels_of(isa);
    const size_t rows = x.shape(0), k = x.shape(1), groups = k / kGroup;
    if (k % kGroup) throw std::invalid_argument("quantized rows need a multiple of 32 columns, got " + std::to_string(k));
    auto q = numpy_array<int16_t>({rows, k});
    auto scale = numpy_array<float>({rows, groups});
    auto sum = numpy_array<int32_t>({rows, groups});
    nb::gil_scoped_release release;
    const FloatMode mode;
    const QuantizedRows quantized(table, x.data(), static_cast<int64_t>(rows), static_cast<int64_t>(k));
    const Activations all = quantized.all();
    for (size_t i = 0; i < rows * groups; ++i) {
        table.unpack_activations(all.payload + i * kGroupPayloadBytes, q.data() + i * kGroup);
        scale.data()[i] = all.scale[i];
        sum.data()[i] = all.sum[i];
    }
    return {q, scale, sum};
}

using QuantizedGrid = std::tuple<nb::ndarray<nb::numpy, int8_t>, nb::ndarray<nb::numpy, float>, nb::ndarray<nb::numpy, int32_t>>;

QuantizedGrid quantize_grid(const std::string& isa, Matrix x) {
    const KernelTable& table = kernels_of(isa);
    const size_t rows = x.shape(0), k = x.shape(1), columns = static_cast<size_t>(grid_blocks(static_cast<int64_t>(k)) * kBlockColumns);
    auto digits = numpy_array<int8_t>({rows, 2, columns});
    auto scale = numpy_array<float>({rows});
    auto excess = numpy_array<int32_t>({rows, 2});
    nb::gil_scoped_release release;
    const FloatMode mode;
    for (size_t r = 0; r < rows; ++r)
        table.quantize_grid_row(x.data() + r * k, static_cast<int64_t>(k),
                                {digits.data() + 2 * r * columns, scale.data() + r, excess.data() + 2 * r});
    return {digits, scale, excess};
}

nb::ndarray<nb::numpy, float> unpack_row(const std::string& isa, const PackedWeights& weights, int64_t n) {
    const KernelTable& table = kernels_of(isa);
    if (n < 0 || n >= weights.matrix.n)
        throw std::invalid_argument("row must be in [0, " + std::to_string(weights.matrix.n) + "), got " + std::to_string(n));
    auto out = numpy_array<float>({static_cast<size_t>(weights.matrix.k)});
    nb::gil_scoped_release release;
    const FloatMode mode;
    table.unpack_row(weights.matrix, n, out.data());
    return out;
}

nb::ndarray<nb::numpy, float> row_scales(const PackedWeights& weights) {
    const PackedMatrix& w = weights.matrix;
    if (!is_row_grid(w.type)) throw std::invalid_argument(std::string("only R8 and R4 have a scale a row, got ") + type_name(w.type));
    auto out = numpy_array<float>({static_cast<size_t>(w.n)});
    for (int64_t n = 0; n < w.n; ++n)
        std::memcpy(out.data() + n, w.data + (n / kStripRows + 1) * w.strip_bytes - kGridScaleBytes + n % kStripRows * 4, 4);
    return out;
}

void pack_source_rows(PackedWeights& weights, int64_t first_row, int64_t rows, Bytes data, const std::optional<std::string>& source_type) {
    const TensorType type = source_type ? parse_type(*source_type) : weights.matrix.type;
    nb::gil_scoped_release release;
    const FloatMode mode;
    weights.pack_rows(first_row, rows, data.data(), data.size(), type);
}

// Calls `work` without the interpreter lock; a failure of the system is an OSError.
template <typename Work>
uint64_t with_files(Work work) {
    try {
        nb::gil_scoped_release release;
        return work();
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

}  // namespace

void register_matmul(nb::module_& m) {
    nb::class_<WeightArena>(m, "WeightArena", "Memory on huge pages that many packed matrices share.")
        .def(nb::init<>())
        .def_prop_ro("used_bytes", &WeightArena::used_bytes)
        .def("clear", &WeightArena::clear, nb::call_guard<nb::gil_scoped_release>(), "Zeroes what was handed out.")
        .def(
            "write", [](const WeightArena& a, int fd, int64_t offset) { return with_files([&] { return write_arena(a, fd, offset); }); },
            nb::arg("fd"), nb::arg("offset"), "Writes used_bytes bytes to a file and returns their checksum. Raises OSError.")
        .def(
            "read",
            [](const WeightArena& a, int fd, int64_t offset, int threads) {
                return with_files([&] { return read_arena(a, fd, offset, threads); });
            },
            nb::arg("fd"), nb::arg("offset"), nb::arg("threads"),
            "Fills the arena from such a file and returns the checksum of what was read. Raises OSError, also where the file ends early.");
    nb::class_<PackedWeights>(m, "PackedMatrix", "Weights of shape (n, k) in the order the kernels stream them; zero until packed.")
        .def(
            "__init__",
            [](PackedWeights* self, const std::string& type, int64_t n, int64_t k, std::shared_ptr<WeightArena> arena) {
                new (self) PackedWeights(parse_type(type), n, k, std::move(arena));
            },
            nb::arg("type"), nb::arg("n"), nb::arg("k"), nb::arg("arena") = nb::none())
        .def("pack_rows", &pack_source_rows, nb::arg("first_row"), nb::arg("rows"), nb::arg("data").noconvert(),
             nb::arg("source_type") = nb::none(),
             "Packs `rows` rows from the bytes of a model file. R8 and R4 take any type that files have, named by `source_type`.")
        .def_prop_ro("type", [](const PackedWeights& w) { return type_name(w.matrix.type); })
        .def_prop_ro("n", [](const PackedWeights& w) { return w.matrix.n; })
        .def_prop_ro("k", [](const PackedWeights& w) { return w.matrix.k; })
        .def_prop_ro(
            "strips", [](const PackedWeights& w) { return w.matrix.strips; }, "Strips of 16 rows; the last may be short.")
        .def_prop_ro("row_scales", &row_scales, nb::rv_policy::move, "What the integers of each row of an R8 or R4 matrix count in, (n,).")
        .def_prop_ro("nbytes", &PackedWeights::nbytes);
    m.def("matmul", &matmul, nb::arg("isa"), nb::arg("weights"), nb::arg("x").noconvert(), nb::arg("strip_begin"), nb::arg("strip_end"),
          nb::arg("accumulate"), nb::arg("out").noconvert(),
          "out[:, 16 * strip_begin : 16 * strip_end] (+)= x @ weights.T, on one thread.");
    m.def("quantize", &quantize, nb::arg("isa"), nb::arg("x").noconvert(),
          "Rows as integers: q (rows, k), scale (rows, k / 32) and sum of q (rows, k / 32).");
    m.def(
        "quantize_grid", &quantize_grid, nb::arg("isa"), nb::arg("x").noconvert(),
        "Rows as integers with one scale each: high and low digits (rows, 2, k filled up to a multiple of 64), scale (rows,) and 128 times "
        "the sums of the digits (rows, 2).");
    m.def("unpack_row", &unpack_row, nb::arg("isa"), nb::arg("weights"), nb::arg("row"), "One row of the matrix as floats.");
}

}  // namespace swiftsure
