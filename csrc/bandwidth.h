// The memory wall: how fast this machine reads a buffer from start to end.
#pragma once

#include <cstddef>
#include <vector>

namespace swiftsure {

// Reads a buffer of `bytes` bytes (rounded down to whole cache lines per thread) `passes` times with `threads` threads, each on a
// contiguous share of its own, and returns the seconds of each pass: from the moment the first thread starts to the moment the last one
// is done. One pass before them, which faults the pages in, is not counted. Throws std::bad_alloc when the buffer does not fit
// and std::system_error when the system has no more threads.
std::vector<double> read_passes(std::size_t bytes, int threads, int passes);

}  // namespace swiftsure
