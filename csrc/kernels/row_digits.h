// Exact sums of rows of digits with a block of row-grid weights, per instruction set.
//
//   dot_block<rows>(w, digits, stride, sums)   sums[r] += the 64 columns of w (bytes w + 128, packed_matrix.h's order) times row r's high
//                                              digits, and the same for its low digits, `stride` / 2 bytes further. A row follows after
//                                              `stride` bytes.
#pragma once

#include "kernels/digits.h"
#include "simd/unroll.h"
#include "simd/vec16.h"

namespace swiftsure::SWIFTSURE_ISA {

struct DigitSums {
    i32x16 high, low;
};

#if defined(__AVX512VNNI__)

inline __m512i broadcast_digits(const int8_t* p) { return broadcast_quad(reinterpret_cast<const uint8_t*>(p)); }

template <int rows>
inline void dot_block(const uint8_t* w, const int8_t* digits, int64_t stride, DigitSums (&sums)[rows]) {
    SWIFTSURE_UNROLL
    for (int j = 0; j < 16; ++j) {
        const __m512i weights = _mm512_loadu_si512(w + 64 * j);
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const int8_t* at = digits + r * stride + 4 * j;
            sums[r].high.v = _mm512_dpbusd_epi32(sums[r].high.v, weights, broadcast_digits(at));
            sums[r].low.v = _mm512_dpbusd_epi32(sums[r].low.v, weights, broadcast_digits(at + stride / 2));
        }
    }
}

#elif defined(__AVX2__)

// Four neighbouring digits in every lane, as the 16-bit pairs (0, 2) and (1, 3); vpmaddubsw would saturate.
inline i32x16 add_digits(i32x16 sum, words even, words odd, const int8_t* digits) {
    const int32_t quad = load_pair(reinterpret_cast<const uint8_t*>(digits));
    const auto pair = [](int32_t low, int32_t high) {
        return static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | (static_cast<uint32_t>(low) & 0xFFFF));
    };
    const auto digit = [quad](int shift) { return static_cast<int32_t>(static_cast<uint32_t>(quad) << (24 - shift)) >> 24; };
    return add_products(add_products(sum, even, pair(digit(0), digit(16))), odd, pair(digit(8), digit(24)));
}

template <int rows>
inline void dot_block(const uint8_t* w, const int8_t* digits, int64_t stride, DigitSums (&sums)[rows]) {
    SWIFTSURE_UNROLL
    for (int j = 0; j < 16; ++j) {
        const words bytes = load_words(w + 64 * j), even = mask_words(bytes, 0xFF), odd = shift_right_words<8>(bytes);
        SWIFTSURE_UNROLL
        for (int r = 0; r < rows; ++r) {
            const int8_t* at = digits + r * stride + 4 * j;
            sums[r].high = add_digits(sums[r].high, even, odd, at);
            sums[r].low = add_digits(sums[r].low, even, odd, at + stride / 2);
        }
    }
}

#else

inline i32x16 add_digits(i32x16 sum, const uint8_t* weights, const int8_t* digits) {
    for (int n = 0; n < 16; ++n)
        for (int i = 0; i < 4; ++i) sum.v[n] += static_cast<int32_t>(weights[4 * n + i]) * static_cast<int32_t>(digits[i]);
    return sum;
}

template <int rows>
inline void dot_block(const uint8_t* w, const int8_t* digits, int64_t stride, DigitSums (&sums)[rows]) {
    for (int j = 0; j < 16; ++j)
        for (int r = 0; r < rows; ++r) {
            const int8_t* at = digits + r * stride + 4 * j;
            sums[r].high = add_digits(sums[r].high, w + 64 * j, at);
            sums[r].low = add_digits(sums[r].low, w + 64 * j, at + stride / 2);
        }
}

#endif

}  // namespace swiftsure::SWIFTSURE_ISA
