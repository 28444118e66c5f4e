#include "rope_table.h"

#include <cstring>
#include <utility>

#include "refuse.h"

namespace swiftsure {

namespace {

// Doubles with a fixed order of operations and without libm, whose last bits differ from one system to the next. Errors are a few units of
// 2^-53, far under the rounding to float32 that follows.

constexpr double kLn2High = 0x1.62e42fefp-1, kLn2Low = 0x1.473de6af278edp-34;
constexpr double kHalfPi1 = 0x1.921fb544p+0, kHalfPi2 = 0x1.0b4611a6p-34, kHalfPi3 = 0x1.3198a2e037073p-69;

double nearest(double x) {  // |x| < 2^51; to even
    constexpr double magic = 0x1.8p52;
    volatile double shifted = x + magic;
    return shifted - magic;
}

// Natural logarithm of a positive, normal x: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m - 1) / (m + 1)).
double log_of(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    int exponent = static_cast<int>(bits >> 52) - 1022;
    bits = (bits & 0x000FFFFFFFFFFFFFull) | 0x3FE0000000000000ull;
    double m;
    std::memcpy(&m, &bits, sizeof m);
    if (m < 0.70710678118654752) {
        m = m + m;
        exponent -= 1;
    }
    const double t = (m - 1.0) / (m + 1.0), square = t * t;
    double series = 0.0;
    for (int n = 25; n >= 3; n -= 2) series = (series + 1.0 / n) * square;  // |t| <= 0.172: the next term is under 1e-21
    return exponent * kLn2High + (2.0 * t + (2.0 * t * series + exponent * kLn2Low));
}

// e^x for -700 < x <= 0.
double exp_of(double x) {
    const double n = nearest(x * 0x1.71547652b82fep+0);
    const double r = (x - n * kLn2High) - n * kLn2Low;
    double series = 1.0;
    for (int k = 16; k >= 1; --k) series = 1.0 + r / k * series;
    uint64_t bits = static_cast<uint64_t>(1023 + static_cast<int64_t>(n)) << 52;
    double scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return series * scale;
}

// x in [0, 2^30]: quadrant and remainder in [-pi/4, pi/4]; pi/2 in three parts, the products with the first two are exact for n < 2^20.
void sin_cos_of(double x, double* sine, double* cosine) {
    const double n = nearest(x * 0x1.45f306dc9c883p-1);
    const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
    const double square = r * r;
    double s = 1.0, c = 1.0;
    for (int k = 18; k >= 2; k -= 2) {
        s = 1.0 - square / (k * (k + 1.0)) * s;
        c = 1.0 - square / (k * (k - 1.0)) * c;
    }
    s = s * r;
    switch (static_cast<int64_t>(n) & 3) {
        case 0:
            *sine = s, *cosine = c;
            break;
        case 1:
            *sine = c, *cosine = -s;
            break;
        case 2:
            *sine = -s, *cosine = -c;
            break;
        default:
            *sine = -c, *cosine = s;
            break;
    }
}

}  // namespace

void require_rope_factors(const std::vector<double>& factors, int64_t rotary_dim) {
    if (factors.empty()) return;
    if (static_cast<int64_t>(factors.size()) != rotary_dim / 2)
        refuse("rope needs a factor for each of " + std::to_string(rotary_dim / 2) + " pairs, got " + std::to_string(factors.size()));
    for (const double factor : factors)
        if (!(factor >= 1.0 && factor <= 1e9)) refuse("rope factors must be from 1 to 1e9, got " + std::to_string(factor));
}

RopeTable::RopeTable(double theta, int64_t rotary_dim, std::vector<double> factors)
    : theta_(theta), rotary_dim_(rotary_dim), factors_(std::move(factors)) {
    const double log_theta = log_of(theta);
    for (int64_t i = 0; i < rotary_dim / 2; ++i) {
        const double inverse = exp_of(-(static_cast<double>(2 * i) / static_cast<double>(rotary_dim)) * log_theta);
        inverse_.push_back(factors_.empty() ? inverse : inverse / factors_[static_cast<size_t>(i)]);
    }
}

void RopeTable::extend(int64_t positions) {
    constexpr int64_t kStep = 256;  // so that a decoding sequence does not grow the table at every step
    if (positions <= positions_) return;
    const int64_t wanted = (positions + kStep - 1) / kStep * kStep;
    for (int64_t p = positions_; p < wanted; ++p) {
        for (const double inverse : inverse_) {
            double sine = 0.0, cosine = 0.0;
            sin_cos_of(static_cast<double>(p) * inverse, &sine, &cosine);
            table_.push_back(static_cast<float>(cosine));
            table_.push_back(static_cast<float>(sine));
        }
    }
    positions_ = wanted;
}

}  // namespace swiftsure
