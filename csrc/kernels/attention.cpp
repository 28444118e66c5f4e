// Causal attention over int16 or int8 keys and values, one span of at most 256 keys at a time.
//
// What fixes the bits: a score is one fma chain over the dimensions of a group, and one over groups where keys have several scales, a sum
// is sixteen lanes over keys, an accumulator is one fma chain over keys; spans are merged in ascending order. How many heads share a load
// of keys or values (the tiles below) changes none of that. Nor do keys that another head of a tile sees: to a head that does not they add
// exact zeros, as do those that are not read at all.
#include "kernels/families.h"
#include "simd/exp.h"

namespace swiftsure::SWIFTSURE_ISA {

namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr int64_t kLineBytes = 64;
constexpr int kNear = 2;  // into the second-level cache: half a span fills the first
#if defined(__AVX512F__)
constexpr int kHeadTile = 12, kDimTile = 4;  // 24 accumulators of 32 registers
constexpr bool kConvertOnce = false;         // converting hides behind the products of a tile, and floats are twice as many bytes to read
#else
constexpr int kHeadTile = 2, kDimTile = 2;  // AVX2: 8 of 16 registers
constexpr bool kConvertOnce = true;
#endif
constexpr int64_t kConvertedHeads = 12;  // from so many heads on, converting keys and values once pays, where it does at all

// x = scale * q with |q| <= largest (32767 or 127) and scale = amax / largest; a vector without a value over 1e-30 becomes zeros with scale
// 0, one with a NaN or an infinity gets scale NaN, so that whoever attends to it becomes NaN: rounding it to a number would hide the
// overflow.
f32x16 inverse_scale(const float* x, int64_t width, float largest, float* scale) {
    const i32x16 magnitude = splat_i32(0x7FFFFFFF);
    f32x16 most = splat(0.0f), nothing = splat(0.0f);
    for (int64_t d = 0; d < width; d += 16) {
        const f32x16 v = load(x + d);
        most = max(as_f32(bit_and(as_i32(v), magnitude)), most);
        nothing = fma(v, splat(0.0f), nothing);  // NaN from the first value on that is not finite
    }
    const float amax = reduce_max(most), zero = reduce_add(nothing);
    if (zero != zero) {
        *scale = __builtin_nanf("");
        return splat(0.0f);
    }
    if (!(amax >= 1e-30f)) {
        *scale = 0.0f;
        return splat(0.0f);
    }
    *scale = amax / largest;
    return splat(largest / amax);
}

i32x16 quantized(const float* x, f32x16 inverse, float largest) {
    const f32x16 scaled = mul(load(x), inverse);
    return round_to_i32(min(max(scaled, splat(-largest)), splat(largest)));
}

void store_numbers(int16_t* p, i32x16 q) { store_i16(p, q); }
void store_numbers(int8_t* p, i32x16 q) { store_i8(p, q); }

template <typename T>
void store_vectors(const float* k, const float* v, KVBlockView block, int64_t offset, int64_t head_dim, int64_t block_size) {
    constexpr float largest = sizeof(T) == 1 ? 127.0f : 32767.0f;
    const f32x16 value_inverse = inverse_scale(v, head_dim, largest, block.value_scales + offset);
    T* keys = static_cast<T*>(block.keys);
    T* values = static_cast<T*>(block.values);
    f32x16 key_inverse = splat(0.0f);
    for (int64_t d = 0; d < head_dim; d += 16) {
        alignas(64) T lane[16];
        if (d % block.key_group == 0) {
            const int64_t rest = head_dim - d, width = rest < block.key_group ? rest : block.key_group;
            key_inverse = inverse_scale(k + d, width, largest, block.key_scales + d / block.key_group * block_size + offset);
        }
        store_numbers(lane, quantized(k + d, key_inverse, largest));
        for (int i = 0; i < 16; ++i) keys[(d + i) * block_size + offset] = lane[i];
        store_numbers(values + offset * head_dim + d, quantized(v + d, value_inverse, largest));
    }
}

// Numbers and scales that are asked for while as many others are read: their place in the cache is no neighbour of what is read before, so
// no processor guesses it.
struct Ahead {
    const uint8_t* numbers;  // (head_dim, block_size) of int16 or int8; null: nothing
    const float* scales;     // (count,)
    int64_t scale_count;
};

// Keys and values of one block, as the cache holds them (int16, int8) or converted once for many heads (float, the same numbers).
template <typename T>
struct Block {
    const T* keys;            // (head_dim, block_size)
    const T* values;          // (block_size, head_dim)
    const float* key_scales;  // (groups, block_size)
    const float* value_scales;
    Ahead during_keys, during_values;  // asked for by the first tile while it reads keys and values
};

f32x16 load_numbers(const int8_t* p) { return to_f32(load_i8(p)); }
f32x16 load_numbers(const int16_t* p) { return to_f32(load_i16(p)); }
[[maybe_unused]] f32x16 load_numbers(const float* p) { return load(p); }

// The blocks of one span and what the heads of a tile see of it.
template <typename T>
struct Span {
    Block<T> blocks[kSpanKeys / 16];
    int64_t block_size, head_dim, key_group;
    const int64_t *begin, *end;  // (heads,)
    int64_t cached_bytes;        // of a number in the cache
};

int64_t round_down(int64_t value, int64_t unit) { return value / unit * unit; }
int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

void fetch_scales(const Ahead& ahead) {
    if (ahead.numbers)
        for (int64_t p = 0; p < ahead.scale_count; p += kLineBytes / 4) __builtin_prefetch(ahead.scales + p, 0, kNear);
}

// Asks for `count` numbers from number `first` on.
void fetch_numbers(const Ahead& ahead, int64_t first, int64_t count, int64_t cached_bytes) {
    if (ahead.numbers)
        for (int64_t b = 0; b < count * cached_bytes; b += kLineBytes)
            __builtin_prefetch(ahead.numbers + first * cached_bytes + b, 0, kNear);
}

// Scores of H heads for 16 V positions of a block that start at `first`. out: (H, 256).
template <int H, int V, typename T>
void score_positions(const float* q, const Span<T>& span, const Block<T>& block, int64_t first, float* out) {
    const T* keys = block.keys + first;
    const float* scales = block.key_scales + first;
    for (int64_t from = 0; from < span.head_dim; from += span.key_group, scales += span.block_size) {
        const int64_t to = from + span.key_group < span.head_dim ? from + span.key_group : span.head_dim;
        f32x16 sum[H][V];
        for (int h = 0; h < H; ++h)
            for (int v = 0; v < V; ++v) sum[h][v] = splat(0.0f);
        for (int64_t d = from; d < to; ++d, keys += span.block_size) {
            fetch_numbers(block.during_keys, d * span.block_size + first, 16 * V, span.cached_bytes);
            f32x16 key[V];
            for (int v = 0; v < V; ++v) key[v] = load_numbers(keys + 16 * v);
            for (int h = 0; h < H; ++h) {
                const f32x16 query = splat(q[h * span.head_dim + d]);
                for (int v = 0; v < V; ++v) sum[h][v] = fma(query, key[v], sum[h][v]);
            }
        }
        for (int v = 0; v < V; ++v) {
            const f32x16 scale = load(scales + 16 * v);
            for (int h = 0; h < H; ++h) {
                float* score = out + h * kSpanKeys + 16 * v;
                store(score, from == 0 ? mul(sum[h][v], scale) : fma(sum[h][v], scale, load(score)));
            }
        }
    }
}

// Of the keys from `first` to `length`, and a few beside them: those that are loaded together.
template <int H, typename T>
void score_span(const float* q, const Span<T>& span, int64_t first, int64_t length, float* scores) {
    const Block<T>* block = span.blocks + first / span.block_size;
    for (int64_t start = round_down(first, span.block_size); start < length; start += span.block_size, ++block) {
        int64_t p = round_down(later(first - start, 0), 32);
        fetch_scales(block->during_keys);
        for (; p + 32 <= span.block_size; p += 32) score_positions<H, 2>(q, span, *block, p, scores + start + p);
        for (; p < span.block_size; p += 16) score_positions<H, 1>(q, span, *block, p, scores + start + p);
    }
}

// Sixteen of a head's lanes from key `at` on, those before `begin` and from `end` on replaced.
f32x16 masked(f32x16 v, int64_t at, int64_t begin, int64_t end, float instead) {
    if (end - at < 16) v = select(first_lanes(static_cast<int>(end - at)), v, splat(instead));
    return begin > at ? select(first_lanes(static_cast<int>(begin - at)), splat(instead), v) : v;
}

// Turns the scores of one head into e^(score - max); masked lanes become exact zeros, NaN scores stay NaN and are no maximum. Sum: lane i
// adds keys i, i+16, ...
float exponentials(float* scores, int64_t begin, int64_t end, float* max_out) {
    const int64_t first = round_down(begin, 16);
    f32x16 largest = splat(kMinusInfinity);
    for (int64_t j = first; j < end; j += 16) {
        const f32x16 v = masked(load(scores + j), j, begin, end, kMinusInfinity);
        store(scores + j, v);
        largest = max(v, largest);
    }
    const float top = reduce_max(largest);
    f32x16 sum = splat(0.0f);
    for (int64_t j = first; j < end; j += 16) {
        const f32x16 p = exp(sub(load(scores + j), splat(top)));
        store(scores + j, p);
        sum = add(sum, p);
    }
    *max_out = top;
    return reduce_add(sum);
}

// e^(score - max) times the value's scale; exact zeros from `first` to `begin` and from `end` to `length`, where another head of the tile
// sees more. Masked lanes are set, not multiplied: the scale of a value that this head does not see may be NaN.
template <typename T>
void scale_weights(float* scores, const Span<T>& span, int64_t begin, int64_t end, int64_t first, int64_t length) {
    const int64_t from = round_down(begin, 16);
    for (int64_t j = round_down(first, 16); j < from; j += 16) store(scores + j, splat(0.0f));
    const Block<T>* block = span.blocks + from / span.block_size;
    for (int64_t start = round_down(from, span.block_size); start < end; start += span.block_size, ++block)
        for (int64_t p = later(from - start, 0); p < span.block_size && start + p < end; p += 16) {
            const f32x16 weight = mul(load(scores + start + p), load(block->value_scales + p));
            store(scores + start + p, masked(weight, start + p, begin, end, 0.0f));
        }
    for (int64_t j = round_down(end + 15, 16); j < length; j += 16) store(scores + j, splat(0.0f));
}

// acc[h][d] = fma chain over keys of weight * value, for D vectors of dimensions from d0. weights: (H, 256). A weight of +0 leaves an
// accumulator as it is, bit for bit: none is ever -0, since weights are not negative and the chain starts from +0.
template <int H, int D, typename T>
void accumulate_values(const float* weights, const Span<T>& span, int64_t first, int64_t length, int64_t d0, float* acc_out) {
    f32x16 acc[H][D];
    for (int h = 0; h < H; ++h)
        for (int d = 0; d < D; ++d) acc[h][d] = splat(0.0f);
    const Block<T>* block = span.blocks + first / span.block_size;
    for (int64_t start = round_down(first, span.block_size); start < length; start += span.block_size, ++block) {
        const int64_t count = length - start < span.block_size ? length - start : span.block_size, from = later(first - start, 0);
        const T* values = block->values + from * span.head_dim + d0;
        if (d0 == 0) fetch_scales(block->during_values);
        for (int64_t j = from; j < count; ++j, values += span.head_dim) {
            fetch_numbers(block->during_values, j * span.head_dim + d0, 16 * D, span.cached_bytes);
            f32x16 value[D];
            for (int d = 0; d < D; ++d) value[d] = load_numbers(values + 16 * d);
            for (int h = 0; h < H; ++h) {
                const f32x16 weight = splat(weights[h * kSpanKeys + start + j]);
                for (int d = 0; d < D; ++d) acc[h][d] = fma(weight, value[d], acc[h][d]);
            }
        }
    }
    for (int h = 0; h < H; ++h)
        for (int d = 0; d < D; ++d) store(acc_out + h * span.head_dim + d0 + 16 * d, acc[h][d]);
}

// The keys that any of `heads` heads sees.
struct Seen {
    int64_t begin, end;
};

Seen seen_by(const int64_t* begin, const int64_t* end, int64_t heads) {
    Seen all = {begin[0], end[0]};
    for (int64_t h = 1; h < heads; ++h) all = {begin[h] < all.begin ? begin[h] : all.begin, later(end[h], all.end)};
    return all;
}

template <int H, typename T>
void tile_of_heads(const float* q, const Span<T>& span, int64_t first, float* max_out, float* sum_out, float* acc_out) {
    constexpr int kDims = H > 4 ? kDimTile / 2 : kDimTile;
    const int64_t *begin = span.begin + first, *end = span.end + first;
    const Seen seen = seen_by(begin, end, H);
    alignas(64) float scores[H * kSpanKeys];
    score_span<H>(q + first * span.head_dim, span, seen.begin, seen.end, scores);
    for (int h = 0; h < H; ++h) {
        sum_out[first + h] = exponentials(scores + h * kSpanKeys, begin[h], end[h], max_out + first + h);
        scale_weights(scores + h * kSpanKeys, span, begin[h], end[h], seen.begin, seen.end);
    }
    float* acc = acc_out + first * span.head_dim;
    int64_t d = 0;
    for (; d + 16 * kDims <= span.head_dim; d += 16 * kDims) accumulate_values<H, kDims>(scores, span, seen.begin, seen.end, d, acc);
    for (; d < span.head_dim; d += 16) accumulate_values<H, 1>(scores, span, seen.begin, seen.end, d, acc);
}

template <typename T>
void all_heads(const float* q, int64_t heads, Span<T>& span, float* max_out, float* sum_out, float* acc_out) {
    int64_t h = 0;
    const auto tile = [&]<int H>() {
        tile_of_heads<H>(q, span, h, max_out, sum_out, acc_out);
        if (h == 0)  // once is enough
            for (Block<T>& block : span.blocks) block.during_keys = block.during_values = {};
        h += H;
    };
    if constexpr (kHeadTile == 12) {
        while (h + 12 <= heads) tile.template operator()<12>();
        while (h + 8 <= heads) tile.template operator()<8>();
        while (h + 6 <= heads) tile.template operator()<6>();
        while (h + 4 <= heads) tile.template operator()<4>();
        while (h + 3 <= heads) tile.template operator()<3>();
    }
    while (h + 2 <= heads) tile.template operator()<2>();
    while (h < heads) tile.template operator()<1>();
}

// Every int16 is a float exactly, so converting first changes no bit.
template <typename T>
[[maybe_unused]] void convert(const T* from, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += 16) store(to + i, load_numbers(from + i));
}

template <typename T>
void attend(const float* q, int64_t heads, int64_t head_dim, const KVBlockView* blocks, const KVBlockView* next, int64_t next_blocks,
            int64_t block_size, const int64_t* begin, const int64_t* end, float* scratch, float* max_out, float* sum_out, float* acc_out) {
    const Seen seen = seen_by(begin, end, heads);
    const int64_t first = seen.begin / block_size, after = (seen.end + block_size - 1) / block_size;
    [[maybe_unused]] const int64_t numbers = block_size * head_dim;
    const int64_t key_group = blocks[first].key_group, key_scales = (head_dim + key_group - 1) / key_group * block_size;
    const auto keys_of = [&](const KVBlockView& block) {
        return Ahead{static_cast<const uint8_t*>(block.keys), block.key_scales, key_scales};
    };
    const auto values_of = [&](const KVBlockView& block) {
        return Ahead{static_cast<const uint8_t*>(block.values), block.value_scales, block_size};
    };
    if (!kConvertOnce || heads < kConvertedHeads) {
        Span<T> span = {{}, block_size, head_dim, key_group, begin, end, sizeof(T)};
        for (int64_t b = first; b < after; ++b)
            span.blocks[b] = {static_cast<const T*>(blocks[b].keys),
                              static_cast<const T*>(blocks[b].values),
                              blocks[b].key_scales,
                              blocks[b].value_scales,
                              values_of(blocks[b]),
                              b - first < next_blocks ? keys_of(next[b - first]) : Ahead{}};
        return all_heads(q, heads, span, max_out, sum_out, acc_out);
    }
    if constexpr (kConvertOnce) {
        Span<float> span = {{}, block_size, head_dim, key_group, begin, end, sizeof(T)};
        for (int64_t b = first; b < after; ++b, scratch += 2 * numbers) {
            convert(static_cast<const T*>(blocks[b].keys), numbers, scratch);
            convert(static_cast<const T*>(blocks[b].values), numbers, scratch + numbers);
            const bool more = b - first < next_blocks;
            span.blocks[b] = {scratch,
                              scratch + numbers,
                              blocks[b].key_scales,
                              blocks[b].value_scales,
                              more ? values_of(next[b - first]) : Ahead{},
                              more ? keys_of(next[b - first]) : Ahead{}};
        }
        all_heads(q, heads, span, max_out, sum_out, acc_out);
    }
}

f32x16 exp_of_difference(float a, float b) { return exp(splat(a - b)); }

float first_lane(f32x16 v) {
    alignas(64) float lane[16];
    store(lane, v);
    return lane[0];
}

}  // namespace

void store_kv(const float* k, const float* v, KVBlockView block, int64_t offset, int64_t head_dim, int64_t block_size) {
    (block.bits == 8 ? store_vectors<int8_t> : store_vectors<int16_t>)(k, v, block, offset, head_dim, block_size);
}

void attention_span(const float* q, int64_t heads, int64_t head_dim, const KVBlockView* blocks, const KVBlockView* next,
                    int64_t next_blocks, int64_t block_size, const int64_t* begin, const int64_t* end, float* scratch, float* max_out,
                    float* sum_out, float* acc_out) {
    const bool small = blocks[begin[0] / block_size].bits == 8;
    (small ? attend<int8_t> : attend<int16_t>)(q, heads, head_dim, blocks, next, next_blocks, block_size, begin, end, scratch, max_out,
                                               sum_out, acc_out);
}

void attention_merge(float* max, float* sum, float* acc, const float* span_max, const float* span_sum, const float* span_acc, int64_t heads,
                     int64_t head_dim) {
    for (int64_t h = 0; h < heads; ++h) {
        const float top = max[h] > span_max[h] ? max[h] : span_max[h];
        const f32x16 a = exp_of_difference(max[h], top), b = exp_of_difference(span_max[h], top);
        max[h] = top;
        sum[h] = first_lane(fma(splat(span_sum[h]), b, mul(splat(sum[h]), a)));
        for (int64_t d = h * head_dim; d < (h + 1) * head_dim; d += 16) store(acc + d, fma(load(span_acc + d), b, mul(load(acc + d), a)));
    }
}

void attention_finish(const float* sum, const float* acc, float* out, int64_t heads, int64_t head_dim) {
    for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = h * head_dim; d < (h + 1) * head_dim; d += 16) store(out + d, div(load(acc + d), splat(sum[h])));
}

}  // namespace swiftsure::SWIFTSURE_ISA
