// Floating point as IEEE-754 says: round to nearest even, subnormals kept.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace swiftsure {

// Foreign libraries in the process may have set flush-to-zero on this thread; the caller's setting comes back at the end of the scope.
class FloatEnvironment {
  public:
#if defined(__SSE__)
    FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
    ~FloatEnvironment() { _mm_setcsr(saved_); }
#else
    FloatEnvironment() {}
#endif
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

  private:
#if defined(__SSE__)
    unsigned saved_;
#endif
};

}  // namespace swiftsure
