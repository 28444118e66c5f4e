// Packed matrices that own their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "packed_matrix.h"
#include "pages.h"

namespace swiftsure {

// Memory for many matrices, in large slabs. A pass streams all weights, and with 4 KiB pages the walks through the page tables take a
// tenth of its time; a small matrix alone would either miss huge pages or waste most of one. Freed as a whole, when the last user is gone.
// Not thread-safe: one thread loads a model.
class WeightArena {
  public:
    explicit WeightArena(size_t slab_bytes = size_t{64} << 20) : slab_bytes_(slab_bytes) {}
    WeightArena(const WeightArena&) = delete;
    WeightArena& operator=(const WeightArena&) = delete;

    // `bytes` zeroed bytes, 64-byte aligned. Throws std::bad_alloc when the system has no more.
    uint8_t* allocate(int64_t bytes);
    // Bytes handed out, rounded up to cache lines.
    int64_t used_bytes() const { return used_bytes_; }
    // Zeroes what was handed out.
    void clear();
    // What was handed out, slab by slab: the same calls of allocate on another arena give spans of the same sizes.
    std::vector<std::pair<uint8_t*, size_t>> spans() const;

  private:
    struct Slab {
        Pages pages;
        size_t used;
    };

    size_t slab_bytes_;
    std::vector<Slab> slabs_;
    int64_t used_bytes_ = 0;
};

// A packed matrix and a share in the arena that it lies in.
struct PackedWeights {
    // Throws std::invalid_argument when (n, k) does not fit `type`, std::bad_alloc when memory runs out. Without an arena it makes its own.
    PackedWeights(TensorType type, int64_t n, int64_t k, std::shared_ptr<WeightArena> shared = nullptr);
    PackedWeights(const PackedWeights&) = delete;
    PackedWeights& operator=(const PackedWeights&) = delete;

    // Packs rows [first_row, first_row + rows) from the file's own bytes, which are of the matrix's type or, for row-grid types, of any
    // type that files have. Throws std::invalid_argument when rows, type or size do not fit.
    void pack_rows(int64_t first_row, int64_t rows, const uint8_t* source, size_t source_size, TensorType source_type);
    void pack_rows(int64_t first_row, int64_t rows, const uint8_t* source, size_t source_size) {
        pack_rows(first_row, rows, source, source_size, matrix.type);
    }
    int64_t nbytes() const { return matrix.strips * matrix.strip_bytes; }

    std::shared_ptr<WeightArena> arena;
    uint8_t* data;
    PackedMatrix matrix;
};

// "Q4_1" and so on.
const char* type_name(TensorType type);

}  // namespace swiftsure
