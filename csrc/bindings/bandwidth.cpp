#include "bandwidth.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/arrays.h"
#include "bindings/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace swiftsure {
namespace {

void require_team(int threads, int passes) {
    if (threads < 1 || threads > 1024) throw nb::value_error("threads must lie in 1..1024");
    if (passes < 1 || passes > 10000) throw nb::value_error("passes must lie in 1..10000");
}

}  // namespace

void register_bandwidth(nb::module_& m) {
    m.def(
        "read_passes",
        [](std::size_t bytes, int threads, int passes) {
            if (bytes < 4096) throw nb::value_error("bytes must be at least 4096");
            require_team(threads, passes);
            nb::gil_scoped_release release;
            return read_passes(bytes, threads, passes);
        },
        "bytes"_a, "threads"_a, "passes"_a, "Seconds of each pass that reads a buffer of `bytes` bytes once with `threads` threads.");
    m.def(
        "arithmetic_passes",
        [](const std::string& kind, const std::string& isa, int threads, int passes) {
            if (kind != "integer" && kind != "float") throw nb::value_error("kind must be integer or float");
            require_team(threads, passes);
            const KernelTable& table = kernels_of(isa);
            nb::gil_scoped_release release;
            return arithmetic_passes(kind == "integer" ? table.integer_peak : table.float_peak, threads, passes);
        },
        "kind"_a, "isa"_a, "threads"_a, "passes"_a,
        "Additions and multiplications per second, on registers alone, of each pass with `threads` threads: float32 (fma), or the integer "
        "products that matmuls over quantized weights are made of.");
}

}  // namespace swiftsure
