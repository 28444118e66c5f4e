// Array types that bindings take and give.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.h"

namespace swiftsure {

template <typename T, int dimensions>
using InArray = nanobind::ndarray<const T, nanobind::ndim<dimensions>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using OutArray = nanobind::ndarray<nanobind::numpy, T>;

// A NumPy array that owns `values`.
template <typename T>
OutArray<T> to_array(std::vector<T>&& values, std::initializer_list<size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return OutArray<T>(kept->data(), shape, owner);
}

inline const KernelTable& kernels_of(const std::string& isa) {
    if (const KernelTable* table = find_kernel_table(isa)) return *table;
    std::string known;
    for (const std::string& name : supported_isas()) known += (known.empty() ? "" : ", ") + name;
    throw std::invalid_argument("isa must be one of " + known + " on this machine, got '" + isa + "'");
}

}  // namespace swiftsure
