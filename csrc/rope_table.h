// Cosines and sines of rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

namespace swiftsure {

// Throws std::invalid_argument unless there is none, or one for each of rotary_dim / 2 pairs, all from 1 to 1e9.
void require_rope_factors(const std::vector<double>& factors, int64_t rotary_dim);

// Row p holds cos and sin of p * theta^(-2 i / rotary_dim) / factors[i], i = 0 .. rotary_dim / 2, interleaved; without factors the division
// is left out. Computed in double in a fixed order of operations, rounded once to float32, so a row depends on nothing but p, theta,
// rotary_dim and the factors. Needs theta >= 1.
class RopeTable {
  public:
    RopeTable(double theta, int64_t rotary_dim, std::vector<double> factors);

    // Makes rows [0, positions) available; moves what row() returned before.
    void extend(int64_t positions);
    const float* row(int64_t position) const { return table_.data() + position * rotary_dim_; }

    bool same(double theta, int64_t rotary_dim, const std::vector<double>& factors) const {
        return theta_ == theta && rotary_dim_ == rotary_dim && factors_ == factors;
    }
    int64_t rotary_dim() const { return rotary_dim_; }

  private:
    double theta_;
    int64_t rotary_dim_;
    std::vector<double> factors_;  // (rotary_dim / 2,) or none
    int64_t positions_ = 0;
    std::vector<double> inverse_;  // (rotary_dim / 2,)
    std::vector<float> table_;     // (positions, rotary_dim)
};

}  // namespace swiftsure
