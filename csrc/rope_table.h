// Cosines and sines of rotary position embedding.
#pragma once

#include <cstdint>
#include <vector>

namespace swiftsure {

// Row p holds cos and sin of p * theta^(-2 i / rotary_dim), i = 0 .. rotary_dim / 2, interleaved. Computed in double in a fixed order of
// operations, rounded once to float32, so a row depends on nothing but p, theta and rotary_dim. Needs theta >= 1.
class RopeTable {
  public:
    RopeTable(double theta, int64_t rotary_dim);

    // Makes rows [0, positions) available; moves what row() returned before.
    void extend(int64_t positions);
    const float* row(int64_t position) const { return table_.data() + position * rotary_dim_; }

    double theta() const { return theta_; }
    int64_t rotary_dim() const { return rotary_dim_; }

  private:
    double theta_;
    int64_t rotary_dim_;
    int64_t positions_ = 0;
    std::vector<double> inverse_;  // (rotary_dim / 2,)
    std::vector<float> table_;     // (positions, rotary_dim)
};

}  // namespace swiftsure
