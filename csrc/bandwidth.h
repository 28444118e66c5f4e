// The two walls of a machine: how fast it reads a buffer from start to end, and how fast it computes on registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/table.h"

namespace swiftsure {

// Reads a buffer of `bytes` bytes (rounded down to whole cache lines per thread) `passes` times with `threads` threads, each on a
// contiguous share of its own, and returns the seconds of each pass: from the moment the first thread starts to the moment the last one
// is done. One pass before them, which faults the pages in, is not counted. Throws std::bad_alloc when the buffer does not fit
// and std::system_error when the system has no more threads.
std::vector<double> read_passes(std::size_t bytes, int threads, int passes);

// Operations per second of each of `passes` passes of about 5 ms, `loop` being one of a table's peak loops, on `threads` threads at once;
// timed as above. Throws std::system_error when the system has no more threads.
std::vector<double> arithmetic_passes(int64_t (*loop)(int64_t rounds), int threads, int passes);

}  // namespace swiftsure
