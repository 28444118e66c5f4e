// Loops over rows or strips that must be unrolled, so that their arrays of vectors become registers.
#pragma once

// The portable twin has no registers to fill: unrolling loops of sixteen lanes would only cost a minute of compiling.
#if defined(__AVX2__)
#define SWIFTSURE_UNROLL _Pragma("GCC unroll 16")
#else
#define SWIFTSURE_UNROLL
#endif
