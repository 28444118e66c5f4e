// What building and running a program say when a rule is broken.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace swiftsure {

[[noreturn]] inline void refuse(const std::string& message) { throw std::invalid_argument(message); }

inline void require_at_least(const char* name, int64_t value, int64_t least) {
    if (value < least) refuse(std::string(name) + " must be at least " + std::to_string(least) + ", got " + std::to_string(value));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace swiftsure
