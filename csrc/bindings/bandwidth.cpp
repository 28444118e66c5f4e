#include "bandwidth.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace swiftsure {

void register_bandwidth(nb::module_& m) {
    m.def(
        "read_passes",
        [](std::size_t bytes, int threads, int passes) {
            if (bytes < 4096) throw nb::value_error("bytes must be at least 4096");
            if (threads < 1 || threads > 1024) throw nb::value_error("threads must lie in 1..1024");
            if (passes < 1 || passes > 10000) throw nb::value_error("passes must lie in 1..10000");
            nb::gil_scoped_release release;
            return read_passes(bytes, threads, passes);
        },
        "bytes"_a, "threads"_a, "passes"_a, "Seconds of each pass that reads a buffer of `bytes` bytes once with `threads` threads.");
}

}  // namespace swiftsure
