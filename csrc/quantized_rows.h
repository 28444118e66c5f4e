// Quantized rows of activations and the memory they lie in, for kernels called one at a time.
#pragma once

#include <cstdint>

#include "activations.h"
#include "kernels/table.h"
#include "pages.h"

namespace swiftsure {

class QuantizedRows {
  public:
    // k: a multiple of 32.
    QuantizedRows(int64_t rows, int64_t k)
        : rows_(rows),
          groups_(k / kGroup),
          payload_(bytes(kGroupPayloadBytes)),
          numbers_(bytes(ActivationMemory::kNumberBytes)),
          tiles_(static_cast<size_t>(ActivationMemory::tile_bytes(groups_))) {
        const int64_t count = rows_ * groups_;
        float* scale = reinterpret_cast<float*>(numbers_.data());
        int32_t* sum = reinterpret_cast<int32_t*>(scale + 2 * count);
        memory_ = {payload_.data(), scale, scale + count, sum, sum + count, tiles_.data()};
    }
    // x: (rows, k).
    QuantizedRows(const KernelTable& table, const float* x, int64_t rows, int64_t k) : QuantizedRows(rows, k) {
        for (int64_t r = 0; r < rows; ++r) table.quantize_row(x + r * k, k, row(r));
    }

    ActivationRow row(int64_t r) const { return memory_.row(r, 0, rows_, groups_); }
    Activations all() const { return memory_.all(rows_, groups_); }

  private:
    size_t bytes(size_t a_group) const { return static_cast<size_t>(rows_ * groups_) * a_group; }

    int64_t rows_, groups_;
    Pages payload_, numbers_, tiles_;
    ActivationMemory memory_;
};

}  // namespace swiftsure
