// Loops over rows or strips that must be unrolled, so that their arrays of vectors become registers.
#pragma once

// The portable twin has no registers to fill: unrolling loops of sixteen lanes would only cost a minute of compiling.
#if defined(__AVX2__)
#define SWIFTSURE_UNROLL _Pragma("GCC unroll 16")
#else
#define SWIFTSURE_UNROLL
#endif

// For what takes or gives such arrays: a compiler that has inlined much already calls it instead, and then they are memory.
#define SWIFTSURE_INLINE inline __attribute__((always_inline))
