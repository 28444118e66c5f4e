// The portable twin: plain loops over sixteen lanes. Correct on any processor with IEEE-754 floats.
#pragma once

namespace swiftsure::SWIFTSURE_ISA {

struct f32x16 {
    float v[16];
};
struct i32x16 {
    int32_t v[16];
};
struct mask16 {
    bool v[16];
};

#define SWIFTSURE_LANES(type, expression)                  \
    do {                                                   \
        type r_;                                           \
        for (int i = 0; i < 16; ++i) r_.v[i] = expression; \
        return r_;                                         \
    } while (0)

inline f32x16 splat(float x) { SWIFTSURE_LANES(f32x16, x); }
inline i32x16 splat_i32(int32_t x) { SWIFTSURE_LANES(i32x16, x); }
inline f32x16 load(const float* p) { SWIFTSURE_LANES(f32x16, p[i]); }
inline i32x16 load_i32(const int32_t* p) { SWIFTSURE_LANES(i32x16, p[i]); }
inline i32x16 load_i16(const int16_t* p) { SWIFTSURE_LANES(i32x16, p[i]); }  // sign-extended
inline i32x16 load_i8(const int8_t* p) { SWIFTSURE_LANES(i32x16, p[i]); }    // sign-extended
inline void store(float* p, f32x16 a) { std::memcpy(p, a.v, sizeof a.v); }
inline void store_i32(int32_t* p, i32x16 a) { std::memcpy(p, a.v, sizeof a.v); }
inline void store_i16(int16_t* p, i32x16 a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int16_t>(a.v[i]);
}  // low 16 bits
inline void store_i8(int8_t* p, i32x16 a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}  // low 8 bits

inline f32x16 add(f32x16 a, f32x16 b) { SWIFTSURE_LANES(f32x16, a.v[i] + b.v[i]); }
inline f32x16 sub(f32x16 a, f32x16 b) { SWIFTSURE_LANES(f32x16, a.v[i] - b.v[i]); }
inline f32x16 mul(f32x16 a, f32x16 b) { SWIFTSURE_LANES(f32x16, a.v[i] * b.v[i]); }
inline f32x16 div(f32x16 a, f32x16 b) { SWIFTSURE_LANES(f32x16, a.v[i] / b.v[i]); }
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { SWIFTSURE_LANES(f32x16, __builtin_fmaf(a.v[i], b.v[i], c.v[i])); }  // a*b + c
inline f32x16 sqrt(f32x16 a) { SWIFTSURE_LANES(f32x16, __builtin_sqrtf(a.v[i])); }
inline f32x16 min(f32x16 a, f32x16 b) { SWIFTSURE_LANES(f32x16, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline f32x16 max(f32x16 a, f32x16 b) { SWIFTSURE_LANES(f32x16, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline f32x16 to_f32(i32x16 a) { SWIFTSURE_LANES(f32x16, static_cast<float>(a.v[i])); }
inline i32x16 round_to_i32(f32x16 a) { SWIFTSURE_LANES(i32x16, static_cast<int32_t>(__builtin_rintf(a.v[i]))); }

inline i32x16 add(i32x16 a, i32x16 b) {
    SWIFTSURE_LANES(i32x16, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i])));
}
inline i32x16 sub(i32x16 a, i32x16 b) {
    SWIFTSURE_LANES(i32x16, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i])));
}
inline i32x16 mul(i32x16 a, i32x16 b) {
    SWIFTSURE_LANES(i32x16, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) * static_cast<uint32_t>(b.v[i])));
}  // low 32 bits
inline i32x16 mul_high_u32(i32x16 a, i32x16 b) {
    SWIFTSURE_LANES(i32x16,
                    static_cast<int32_t>((static_cast<uint64_t>(static_cast<uint32_t>(a.v[i])) * static_cast<uint32_t>(b.v[i])) >> 32));
}
inline i32x16 bit_and(i32x16 a, i32x16 b) { SWIFTSURE_LANES(i32x16, a.v[i] & b.v[i]); }
inline i32x16 bit_or(i32x16 a, i32x16 b) { SWIFTSURE_LANES(i32x16, a.v[i] | b.v[i]); }
inline i32x16 bit_xor(i32x16 a, i32x16 b) { SWIFTSURE_LANES(i32x16, a.v[i] ^ b.v[i]); }
template <int n>
inline i32x16 shift_left(i32x16 a) {
    SWIFTSURE_LANES(i32x16, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << n));
}
template <int n>
inline i32x16 shift_right(i32x16 a) {
    SWIFTSURE_LANES(i32x16, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> n));
}  // logical
template <int n>
inline i32x16 shift_right_signed(i32x16 a) {
    SWIFTSURE_LANES(i32x16, a.v[i] >> n);
}

inline f32x16 as_f32(i32x16 a) {
    f32x16 r;
    std::memcpy(r.v, a.v, sizeof r.v);
    return r;
}
inline i32x16 as_i32(f32x16 a) {
    i32x16 r;
    std::memcpy(r.v, a.v, sizeof r.v);
    return r;
}

inline mask16 less(f32x16 a, f32x16 b) { SWIFTSURE_LANES(mask16, a.v[i] < b.v[i]); }
inline mask16 less_equal(f32x16 a, f32x16 b) { SWIFTSURE_LANES(mask16, a.v[i] <= b.v[i]); }
inline mask16 equal(f32x16 a, f32x16 b) { SWIFTSURE_LANES(mask16, a.v[i] == b.v[i]); }
inline mask16 less(i32x16 a, i32x16 b) { SWIFTSURE_LANES(mask16, a.v[i] < b.v[i]); }
inline f32x16 select(mask16 m, f32x16 a, f32x16 b) { SWIFTSURE_LANES(f32x16, m.v[i] ? a.v[i] : b.v[i]); }  // m ? a : b
inline i32x16 select(mask16 m, i32x16 a, i32x16 b) { SWIFTSURE_LANES(i32x16, m.v[i] ? a.v[i] : b.v[i]); }
inline bool any(mask16 m) {
    for (int i = 0; i < 16; ++i)
        if (m.v[i]) return true;
    return false;
}
// The first n lanes (n in 0..16) set.
inline mask16 first_lanes(int n) { SWIFTSURE_LANES(mask16, i < n); }

inline float f16_to_f32(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
    uint32_t bits;
    if (exponent == 31)
        bits = sign | 0x7F800000u | (fraction << 13) | (fraction ? 0x400000u : 0u);
    else if (exponent)
        bits = sign | ((exponent + 112) << 23) | (fraction << 13);
    else {
        const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // exact
        std::memcpy(&bits, &magnitude, 4);
        bits |= sign;
    }
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}
inline f32x16 load_f16(const uint16_t* p) { SWIFTSURE_LANES(f32x16, f16_to_f32(p[i])); }
inline f32x16 load_bf16(const uint16_t* p) {
    i32x16 bits;
    for (int i = 0; i < 16; ++i) bits.v[i] = static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16);
    return as_f32(bits);
}

#undef SWIFTSURE_LANES

}  // namespace swiftsure::SWIFTSURE_ISA
