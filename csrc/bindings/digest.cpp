// Fingerprints of rows of logits.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

#include "bindings/arrays.h"
#include "bindings/bindings.h"

namespace nb = nanobind;

namespace swiftsure {
namespace {

// The four words one after the other, each with its lowest byte first.
nb::bytes hash_row(const std::string& isa, InArray<float, 1> row) {
    const KernelTable& kernels = kernels_of(isa);
    uint32_t word[4];
    {
        nb::gil_scoped_release release;
        kernels.hash_row(row.data(), static_cast<int64_t>(row.size()), word);
    }
    char bytes[sizeof word];
    for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = static_cast<char>(word[i / 4] >> (8 * (i % 4)) & 0xFF);
    return nb::bytes(bytes, sizeof bytes);
}

}  // namespace

void register_digest(nb::module_& m) {
    m.def("hash_row", hash_row, nb::arg("isa"), nb::arg("row").noconvert(),
          "128 bits of all bits of a row of floats, the same on every instruction set.");
}

}  // namespace swiftsure
