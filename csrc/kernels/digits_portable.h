// The portable twin: 32 activations as 16-bit integers, weights spread to one row of 16 per column so that a compiler finds its own lanes.
#pragma once

namespace swiftsure::SWIFTSURE_ISA {

inline void store_payload(uint8_t* payload, i32x16 first, i32x16 last) {
    int16_t q[32];
    store_i16(q, first);
    store_i16(q + 16, last);
    std::memcpy(payload, q, sizeof q);
}

inline void load_payload(const uint8_t* payload, int16_t* q) { std::memcpy(q, payload, kGroupPayloadBytes); }

// Products of columns [begin, end) added to `sum`.
inline i32x16 dot_columns(const int16_t (&columns)[32][16], const uint8_t* payload, i32x16 sum, int begin = 0, int end = 32) {
    int16_t q[32];
    load_payload(payload, q);
    for (int c = begin; c < end; ++c)
        for (int n = 0; n < 16; ++n) sum.v[n] += static_cast<int32_t>(columns[c][n]) * static_cast<int32_t>(q[c]);
    return sum;
}

template <int bits, bool apart, int rows>
inline void dot_integers(const uint8_t* w, const uint8_t* payload, int64_t stride, const i32x16* start, i32x16* sum) {
    constexpr int extra = bits - 4, vectors = extra == 0 ? 4 : 4 / extra, above = (1 << extra) - 1;  // vectors of nibbles a plane serves
    int16_t columns[32][16];
    for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 4; ++i)
            for (int n = 0; n < 16; ++n) {
                const int byte = w[64 * j + 4 * n + i];
                const int plane = extra == 0 ? 0 : w[kNibbleBytes + kPlaneBytes * (j / vectors) + 4 * n + i] >> extra * (j % vectors);
                columns[4 * j + i][n] = static_cast<int16_t>((byte & 15) | (plane & above) << 4);
                columns[16 + 4 * j + i][n] = static_cast<int16_t>(byte >> 4 | (plane >> 4 & above) << 4);
            }
    for (int r = 0; r < rows; ++r) {
        sum[r] = dot_columns(columns, payload + r * stride, start[r], 0, apart ? 16 : 32);
        if constexpr (apart) sum[rows + r] = dot_columns(columns, payload + r * stride, start[rows + r], 16);
    }
}

template <int rows>
inline void dot_int8(const uint8_t* w, const uint8_t* payload, int64_t stride, const int32_t*, int64_t, i32x16* sum) {
    int16_t columns[32][16];
    for (int j = 0; j < 8; ++j)
        for (int i = 0; i < 4; ++i)
            for (int n = 0; n < 16; ++n) columns[4 * j + i][n] = static_cast<int8_t>(w[64 * j + 4 * n + i]);
    for (int r = 0; r < rows; ++r) sum[r] = dot_columns(columns, payload + r * stride, splat_i32(0));
}

}  // namespace swiftsure::SWIFTSURE_ISA
