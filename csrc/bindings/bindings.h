// One register function a file; module.cpp is the table of contents.
#pragma once

#include <nanobind/nanobind.h>

namespace swiftsure {

void register_kernels(nanobind::module_& m);    // float kernels one by one, for tests against the float64 twin
void register_matmul(nanobind::module_& m);     // packed matrices and quantized rows
void register_program(nanobind::module_& m);    // the key-value cache and static programs
void register_sampling(nanobind::module_& m);   // sampler and drafter
void register_digest(nanobind::module_& m);     // fingerprints of rows of logits
void register_bandwidth(nanobind::module_& m);  // the memory wall

}  // namespace swiftsure
