// Arithmetic on registers alone, as fast as it goes: the ceilings that a profile holds the other kernels against.
#include "kernels/digits.h"
#include "kernels/families.h"
#include "simd/unroll.h"
#if defined(__AMX_INT8__)
#include "kernels/matmul_tiles.h"
#endif

namespace swiftsure::SWIFTSURE_ISA {

namespace {

// Independent chains of sums, enough to fill two units of a latency of four cycles, few enough for the registers.
#if defined(__AVX512F__)
constexpr int kChains = 12;
#else
constexpr int kChains = 6;
#endif
constexpr int64_t kOps = 2;  // an addition and a multiplication

// Keeps results that nobody asks for.
template <typename T>
void keep(const T& value) {
    asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace

#if defined(__AMX_INT8__)

int64_t integer_peak(int64_t rounds) {
    struct alignas(64) Shape {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16};
    } shape;
    alignas(64) int8_t bytes[16][64];
    std::memset(bytes, 1, sizeof bytes);
    asm volatile("" : : "r"(&shape), "r"(&bytes) : "memory");  // the intrinsics do not tell the compiler what they read
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, bytes, 64);
    _tile_loadd(5, bytes, 64);
    _tile_loadd(6, bytes, 64);
    for (int64_t round = 0; round < rounds; ++round) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
        _tile_dpbssd(2, 4, 6);
        _tile_dpbssd(3, 5, 6);
    }
    release_tiles();
    return rounds * 4 * 16 * 16 * 64 * kOps;
}

#elif defined(__AVX512VNNI__)

int64_t integer_peak(int64_t rounds) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i sum[kChains];
    SWIFTSURE_UNROLL
    for (int i = 0; i < kChains; ++i) sum[i] = _mm512_set1_epi32(i);  // alike, one chain would be computed for all
    for (int64_t round = 0; round < rounds; ++round) {
        SWIFTSURE_UNROLL
        for (int i = 0; i < kChains; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], ones, ones);
    }
    keep(sum);
    return rounds * kChains * 64 * kOps;
}

#elif defined(__AVX2__)

constexpr int kSums = 3;  // an addition takes a cycle, and more sums than registers would go through memory

int64_t integer_peak(int64_t rounds) {
    alignas(64) uint8_t bytes[64];
    std::memset(bytes, 1, sizeof bytes);
    words w = load_words(bytes);
    i32x16 sum[kSums];
    SWIFTSURE_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = splat_i32(0);
    for (int64_t round = 0; round < rounds; ++round) {
        SWIFTSURE_UNROLL
        for (int i = 0; i < kSums; ++i) {
#if defined(__AVX512F__)
            asm volatile("" : "+v"(w.v));  // as if new each time: one product would do for all otherwise
#else
            asm volatile("" : "+x"(w.lo), "+x"(w.hi));
#endif
            sum[i] = add_products(sum[i], w, 0x00010001);
        }
    }
    keep(sum);
    return rounds * kSums * 32 * kOps;
}

#else

int64_t integer_peak(int64_t rounds) {
    int16_t columns[32][16];
    uint8_t payload[kGroupPayloadBytes];
    std::memset(columns, 0, sizeof columns);
    std::memset(payload, 0, sizeof payload);
    i32x16 sum = splat_i32(0);
    for (int64_t round = 0; round < rounds; ++round) {
        keep(payload);
        sum = dot_columns(columns, payload, sum);
    }
    keep(sum);
    return rounds * 32 * 16 * kOps;
}

#endif

int64_t float_peak(int64_t rounds) {
    f32x16 half = splat(0.5f), sum[kChains];
    asm volatile("" : : "r"(&half) : "memory");
    SWIFTSURE_UNROLL
    for (int i = 0; i < kChains; ++i) sum[i] = splat(static_cast<float>(i));
    const f32x16 factor = half;
    for (int64_t round = 0; round < rounds; ++round) {
        SWIFTSURE_UNROLL
        for (int i = 0; i < kChains; ++i) sum[i] = fma(sum[i], factor, factor);
    }
    keep(sum);
    return rounds * kChains * 16 * kOps;
}

}  // namespace swiftsure::SWIFTSURE_ISA
