#include "packed_weights.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "row_grid.h"

namespace swiftsure {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

std::string shape_text(TensorType type, int64_t n, int64_t k) {
    return std::string(type_name(type)) + " of shape (" + std::to_string(n) + ", " + std::to_string(k) + ")";
}

}  // namespace

const char* type_name(TensorType type) {
    switch (type) {
        case TensorType::F32:
            return "F32";
        case TensorType::F16:
            return "F16";
        case TensorType::BF16:
            return "BF16";
        case TensorType::Q8_0:
            return "Q8_0";
        case TensorType::Q4_0:
            return "Q4_0";
        case TensorType::Q4_1:
            return "Q4_1";
        case TensorType::Q5_0:
            return "Q5_0";
        case TensorType::Q5_1:
            return "Q5_1";
        case TensorType::Q4_K:
            return "Q4_K";
        case TensorType::Q5_K:
            return "Q5_K";
        case TensorType::Q6_K:
            return "Q6_K";
        case TensorType::R8:
            return "R8";
        case TensorType::R4:
            return "R4";
    }
    return "?";
}

uint8_t* WeightArena::allocate(int64_t bytes) {
    if (bytes <= 0 || bytes > INT64_MAX - static_cast<int64_t>(kLine)) throw std::bad_alloc();
    const size_t rounded = (static_cast<size_t>(bytes) + kLine - 1) / kLine * kLine;
    if (slabs_.empty() || slabs_.back().pages.size() - slabs_.back().used < rounded) {
        const size_t size = rounded > slab_bytes_ ? rounded : slab_bytes_;
        slabs_.push_back({Pages(size, size >= kHugePage), 0});
    }
    Slab& slab = slabs_.back();
    uint8_t* memory = slab.pages.data() + slab.used;
    slab.used += rounded;
    used_bytes_ += static_cast<int64_t>(rounded);
    return memory;
}

void WeightArena::clear() {
    for (const auto& [memory, bytes] : spans()) std::memset(memory, 0, bytes);
}

std::vector<std::pair<uint8_t*, size_t>> WeightArena::spans() const {
    std::vector<std::pair<uint8_t*, size_t>> spans;
    for (const Slab& slab : slabs_) spans.emplace_back(slab.pages.data(), slab.used);
    return spans;
}

PackedWeights::PackedWeights(TensorType type, int64_t n, int64_t k, std::shared_ptr<WeightArena> shared) : arena(std::move(shared)) {
    const int64_t bytes = packed_bytes(type, n, k);
    if (bytes == 0) {
        const std::string rule = is_quantized(type)  ? "n at least 1, k a positive multiple of " + std::to_string(block_columns(type))
                                 : is_row_grid(type) ? "n at least 1, k from 1 to 65536"
                                                     : "n and k at least 1";
        throw std::invalid_argument("a packed matrix needs " + rule + " and less than 2^63 bytes, got " + shape_text(type, n, k));
    }
    if (!arena) arena = std::make_shared<WeightArena>(0);
    data = arena->allocate(bytes);
    const int64_t strips = (n - 1) / kStripRows + 1;
    matrix = {type, n, k, strips, bytes / strips, data};
}

void PackedWeights::pack_rows(int64_t first_row, int64_t rows, const uint8_t* source, size_t source_size, TensorType source_type) {
    if (first_row < 0 || rows < 1 || rows > matrix.n || first_row > matrix.n - rows)
        throw std::invalid_argument("pack_rows needs first_row at least 0, rows at least 1 and first_row + rows at most " +
                                    std::to_string(matrix.n) + ", got " + std::to_string(first_row) + " and " + std::to_string(rows));
    const bool grid = is_row_grid(matrix.type);
    if (grid ? is_row_grid(source_type) : source_type != matrix.type)
        throw std::invalid_argument(std::string(type_name(matrix.type)) +
                                    (grid ? " is packed from a type that files have" : " is packed from its own type") + ", got " +
                                    type_name(source_type));
    const int64_t expected = source_bytes(source_type, rows, matrix.k);
    if (expected == 0 || source_size != static_cast<size_t>(expected))
        throw std::invalid_argument(shape_text(source_type, rows, matrix.k) + " takes " + std::to_string(expected) + " bytes, got " +
                                    std::to_string(source_size));
    if (grid)
        pack_grid_rows(matrix.type, source_type, source, rows, matrix.k, first_row, data);
    else
        swiftsure::pack_rows(matrix.type, source, rows, matrix.k, first_row, data);
}

}  // namespace swiftsure
