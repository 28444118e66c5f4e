// Packed weights to a file and back, with a checksum.
#pragma once

#include <cstdint>

#include "packed_weights.h"

namespace swiftsure {

// Writes all bytes that the arena handed out, one slab after another, to the file `fd` from `offset` on. Returns their checksum.
// Throws std::system_error.
uint64_t write_arena(const WeightArena& arena, int fd, int64_t offset);

// Fills an arena that handed out the same sizes from such a file, with `threads` threads, and returns the checksum of what was read. It
// catches every change within 8 bytes and any other but for one in 2^64; it is no defence against an adversary. Throws std::system_error,
// also when the file ends early.
uint64_t read_arena(const WeightArena& arena, int fd, int64_t offset, int threads);

}  // namespace swiftsure
