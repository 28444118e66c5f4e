// Sixteen lanes, one meaning on every instruction set.
//
// Each kernel is one source file written against these types and compiled once per instruction set. Every operation below is a
// single IEEE-754 operation per lane (or an exact integer one), so the compiled variants give the same bits by construction:
// the only thing an instruction set may change is speed.
//
// Rules for code that uses these types:
//  * no std:: templates in kernel files: an inline function compiled with AVX-512 flags could be the copy that the linker keeps for
//  everyone;
//  * min and max follow MINPS/MAXPS: `a < b ? a : b`, `a > b ? a : b` (the second operand when either is NaN);
//  * round_to_i32 rounds to nearest even and needs |x| < 2^31.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#define SWIFTSURE_CONCAT_(a, b) a##b
#define SWIFTSURE_CONCAT(a, b) SWIFTSURE_CONCAT_(a, b)

// The instruction set of this translation unit: SWIFTSURE_ISA is a bare word such as avx2, set by CMake. All kernels live in
// the namespace swiftsure::SWIFTSURE_ISA.
#ifndef SWIFTSURE_ISA
#error "compile kernel files with -DSWIFTSURE_ISA=<portable|avx2|avx512|avx512_vnni|amx>"
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include "vec16_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "vec16_avx2.h"
#else
#include "vec16_portable.h"
#endif

namespace swiftsure::SWIFTSURE_ISA {

// Fixed tree: lanes i and i+8, then i and i+4, i+2, i+1. Shared by every instruction set.
inline float reduce_add(f32x16 v) {
    alignas(64) float lane[16];
    store(lane, v);
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] = lane[i] + lane[i + width];
    return lane[0];
}

inline float reduce_max(f32x16 v) {
    alignas(64) float lane[16];
    store(lane, v);
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
    return lane[0];
}

}  // namespace swiftsure::SWIFTSURE_ISA
