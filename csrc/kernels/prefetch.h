// Asking for weights before they are multiplied.
#pragma once

#include <cstdint>

#include "packed_matrix.h"

namespace swiftsure::SWIFTSURE_ISA {

#if defined(__AMX_INT8__)
// Twice: far ahead into the second-level cache, near ahead into the first. The first-level cache has few requests under way at a time, and
// each that has to come from memory holds one for as long as that takes: decision 11 has the figures.
constexpr int64_t kFarBytes = 16384, kNearBytes = 4096;
#else
constexpr int64_t kFarBytes = 0, kNearBytes = kPrefetchBytes;
#endif

// The `bytes` that come after those at `at`, by so much that they are there when they are needed.
template <int64_t bytes>
inline __attribute__((always_inline)) void ask_ahead(const uint8_t* at) {
    constexpr int second_level = 2, first_level = 3;
#pragma GCC unroll 32
    for (int64_t line = 0; line < bytes; line += 64) {
        if constexpr (kFarBytes > 0) __builtin_prefetch(at + kFarBytes + line, 0, second_level);
        __builtin_prefetch(at + kNearBytes + line, 0, first_level);
    }
}

}  // namespace swiftsure::SWIFTSURE_ISA
