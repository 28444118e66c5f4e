// The floating-point environment of the thread: round to nearest, subnormals kept, no traps.
//
// Foreign libraries loaded into the process set flush-to-zero on whatever thread they like, and new threads inherit it; bits would then
// depend on who else is loaded. Every thread of a pass enters the one mode that the numerics id stands for and leaves its own behind.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace swiftsure {

class FloatMode {
  public:
    FloatMode() : saved_(read()) { write(kDefault); }
    ~FloatMode() { write(saved_); }
    FloatMode(const FloatMode&) = delete;
    FloatMode& operator=(const FloatMode&) = delete;

  private:
#if defined(__x86_64__)
    static constexpr uint64_t kDefault = 0x1F80;
    static uint64_t read() { return _mm_getcsr(); }
    static void write(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
    static constexpr uint64_t kDefault = 0;
    static uint64_t read() {
        uint64_t mode;
        asm volatile("mrs %0, fpcr" : "=r"(mode));
        return mode;
    }
    static void write(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
    static constexpr uint64_t kDefault = 0;
    static uint64_t read() { return 0; }
    static void write(uint64_t) {}
#endif
    uint64_t saved_;
};

}  // namespace swiftsure
