// SPDX-License-Identifier: MIT
/* eb on CUDA (eb_chunk.h).
 *
 * Encode. The numbers u lie in the last 512 words of the chunk's slot of shared memory, in 16 bits each, from word SLOT
 * - 512 on. The code never reaches them: its masks take at most 11 + 352 + 704 bits, its planes at most 14 bits per
 * value, and its layers at most 3 (low is chosen so that ceil((u >> low) / 2) is at most 1 on average). After each
 * layer, the numbers with a one in it move to the front.
 *
 * Lane i has the mask of block i, and lane t has three t (eb_mask.h).
 *
 * Decode. A warp decodes 32 elements at a time; lane l keeps the position of the next bit of layer l + 1. Functions
 * named as those of eb_chunk.h compute the same. */
#include "pipeline/codec/chunk/chunk_cuda_kernel.h"

#include "pipeline/codec/eb/eb_mask.h"

namespace {

constexpr int NUMBERS = MM_CHUNK_ELEMS / 2 /* words */;
static_assert((MM_EB_PREFIX_BITS + 1067 + 17 * MM_CHUNK_ELEMS + 31) / 32 <= SLOT - NUMBERS,
              "a code and numbers in a slot");
static_assert(MM_EB_LAYERS_MOST <= WARP, "a layer a lane");

/* mm_eb_put by a warp: all lanes have the same values. */
struct bit_writer {
    uint32_t *next;
    uint64_t waiting;
    int fill;

    __device__ __forceinline__ void put(uint32_t bits, int count, int lane) {
        waiting |= (uint64_t)bits << fill;
        fill += count;
        if (fill >= WARP) flush(lane);
    }
    __device__ __forceinline__ void flush(int lane) {
        if (lane == 0) *next = (uint32_t)waiting;
        next++;
        waiting >>= WARP;
        fill -= WARP;
    }
};

struct eb {
    static constexpr halves HALVES = halves::as_floats;

    __device__ explicit eb(const mm_chunk_work &work)
        : z(mm_eb_quantiser_of(work.bound ? *work.bound : work.abs)), nonfinite(work.nonfinite) {}

    __device__ __forceinline__ int encode(uint32_t *values, int n, uint32_t *words, int lane) const {
        count_nonfinite(values, lane);
        if (z.bound == 0) return n;
        bool negative = false, wide = false;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) {
            values[i] = mm_eb_raw(z, values[i]);
            negative = negative || values[i] >> 31;
            wide = wide || (values[i] != 0 && mm_eb_quantise(z, values[i]) > MM_EB_Q_MOST);
        }
        if (__any_sync(ALL, wide)) return n;
        const uint32_t mine = mask_nonzeros(values, lane);
        const int kept = count_all(mine), negatives = __any_sync(ALL, negative) != 0;
        if (kept == 0) return 0;
        uint16_t *const numbers = (uint16_t *)(words + SLOT - NUMBERS);
        pack_nonzeros(values, lane, [=](int rank, int, uint32_t value) {
            const uint32_t q = mm_eb_quantise(z, value) - 1;
            numbers[rank] = (uint16_t)(negatives ? 2 * q + (value >> 31) : q);
        });
        __syncwarp();
        int bits;
        mm_eb_three three = {};
        mm_eb_prefix prefix = choose(numbers, kept, negatives, lane, &bits);
        bits += choose_masks(mine, n, lane, &prefix, &three);
        const int total = (MM_EB_PREFIX_BITS + bits + WARP - 1) / WARP;
        if (total >= n) return n;
        bit_writer out = {words, 0, 0};
        out.put(mm_eb_prefix_bits(prefix), MM_EB_PREFIX_BITS, lane);
        put_masks(out, prefix, mine, n, three, lane);
        put_numbers(out, prefix, numbers, kept, lane);
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        uint32_t mine = 0;
        string_parts parts = {};
        if (count > 0 && (z.bound == 0 || !read_masks(words, WARP * count, n, lane, &mine, &parts) ||
                          !read_layers(WARP * count, lane, &parts)))
            return false;
        int before = 0;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) {
            const uint32_t mask = __shfl_sync(ALL, mine, i);
            const uint32_t number = next_numbers(parts, mask, before, lane);
            values[i] = mask >> lane & 1 ? mm_eb_value(z, number, parts.prefix.negatives) : 0;
            before += __popc(mask);
        }
        return true;
    }

  private:
    mm_eb_quantiser z;
    unsigned long long *nonfinite;

    /* A parsed code. next: position of the next unread bit of layer lane + 1. */
    struct string_parts {
        const uint32_t *string;
        int kept, planes, next;
        mm_eb_prefix prefix;
    };

    static __device__ __forceinline__ unsigned sum_all(unsigned value) { return __reduce_add_sync(ALL, value); }

    static __device__ __forceinline__ mm_eb_prefix choose(const uint16_t *numbers, int kept, bool negatives, int lane,
                                                          int *bits_out) {
        unsigned sum = 0, most = 0, halves, bits = 0;
        for (int i = lane; i < kept; i += WARP) {
            sum += numbers[i];
            most = numbers[i] > most ? numbers[i] : most;
        }
        most = __reduce_max_sync(ALL, most);
        mm_eb_prefix prefix = {mm_eb_low_least(sum_all(sum), most, (unsigned)kept) - 1, 0, 0, negatives, false};
        do {
            prefix.low++;
            halves = 0;
            for (int i = lane; i < kept; i += WARP) halves += ((numbers[i] >> prefix.low) + 1u) / 2;
        } while (sum_all(halves) > (unsigned)kept);
        prefix.layers = (int)(most >> prefix.low);
        for (int i = lane; i < kept; i += WARP) {
            const int high = numbers[i] >> prefix.low;
            bits += (unsigned)(high < prefix.layers ? high + 1 : prefix.layers);
        }
        *bits_out = prefix.low * kept + (int)sum_all(bits);
        return prefix;
    }

    /* The same as mm_eb_choose_before, mm_eb_threes_of and mm_eb_mask_bits. */
    static __device__ __forceinline__ int choose_masks(uint32_t mine, int n, int lane, mm_eb_prefix *prefix,
                                                       mm_eb_three *three) {
        const uint32_t elements = mm_eb_elements(n, lane);
        uint32_t least = MM_EB_NO_TRY;
        for (int before = 1; before <= MM_EB_BEFORES; before++) {
            const int distance = mm_eb_distance(before);
            const unsigned firsts = lane < distance ? __popc(mine) : 0;
            const unsigned both =
                sum_all(__popc((mine ^ same_before(mine, distance, 0, lane)) & elements) | firsts << 16);
            least = mm_eb_try_before(least, before, both & 0xffff, both >> 16, n);
        }
        mm_eb_take_before(prefix, least, n);
        if (prefix->before == 0) return WARP * mm_eb_blocks(n);
        const uint32_t ones = 0 - (uint32_t)prefix->ones;
        const uint32_t changes = (mine ^ same_before(mine, mm_eb_distance(prefix->before), ones, lane)) & elements;
        const uint32_t a = __shfl_sync(ALL, changes, 3 * lane % WARP),
                       b = __shfl_sync(ALL, changes, (3 * lane + 1) % WARP),
                       c = __shfl_sync(ALL, changes, (3 * lane + 2) % WARP);
        const bool is_three = lane < MM_EB_THREES, is_whole = lane < MM_EB_THREES - 1;
        *three = mm_eb_three_of(is_three ? a : 0, is_three ? b : 0, is_whole ? c : 0);
        return MM_EB_THREES + (int)sum_all((unsigned)mm_eb_three_bits(three));
    }

    /* The mask `distance` blocks before the lane's; `ones` before the first. */
    static __device__ __forceinline__ uint32_t same_before(uint32_t mine, int distance, uint32_t ones, int lane) {
        const uint32_t mask = __shfl_up_sync(ALL, mine, (unsigned)distance);
        return lane >= distance ? mask : ones;
    }

    static __device__ __forceinline__ void put_masks(bit_writer &out, mm_eb_prefix prefix, uint32_t mine, int n,
                                                     const mm_eb_three &three, int lane) {
        if (prefix.before == 0) {
            for (int i = 0; i < mm_eb_blocks(n); i++) out.put(__shfl_sync(ALL, mine, i), WARP, lane);
            return;
        }
        const uint32_t changed = __ballot_sync(ALL, three.any != 0);
        out.put(changed, MM_EB_THREES, lane);
        for (int t = 0; t < MM_EB_THREES; t++)
            if (changed >> t & 1) out.put(__shfl_sync(ALL, three.any, t), WARP, lane);
        put_gathered(out, three.which, three.any, lane);
        put_gathered(out, three.rest, three.more, lane);
    }

    /* Writes, for each three, the bits of two words at the mask's places. */
    static __device__ __forceinline__ void put_gathered(bit_writer &out, const uint32_t *bits, uint32_t mask,
                                                        int lane) {
        const uint32_t first = mm_eb_gather(bits[0], mask), second = mm_eb_gather(bits[1], mask);
        for (int t = 0; t < MM_EB_THREES; t++) {
            const int count = __popc(__shfl_sync(ALL, mask, t));
            out.put(__shfl_sync(ALL, first, t), count, lane);
            out.put(__shfl_sync(ALL, second, t), count, lane);
        }
    }

    /* The same as mm_eb_put_numbers and mm_eb_put_rest. */
    static __device__ __forceinline__ void put_numbers(bit_writer &out, mm_eb_prefix prefix, uint16_t *numbers,
                                                       int kept, int lane) {
        for (int b = 0; b < prefix.low; b++)
            for (int i = 0; i < kept; i += WARP) {
                const int number = i + lane < kept ? numbers[i + lane] : 0;
                out.put(__ballot_sync(ALL, number >> b & 1), min(kept - i, WARP), lane);
            }
        for (int layer = 1, left = kept; layer <= prefix.layers; layer++) {
            int next = 0;
            for (int i = 0; i < left; i += WARP) {
                const int number = i + lane < left ? numbers[i + lane] : 0;
                const bool one = number >> prefix.low >= layer;
                const uint32_t ones = __ballot_sync(ALL, one);
                out.put(ones, min(left - i, WARP), lane);
                __syncwarp(); /* all lanes have read their numbers */
                if (one) numbers[next + __popc(ones & below(lane))] = (uint16_t)number;
                next += __popc(ones);
            }
            left = next;
            __syncwarp();
        }
        if (out.fill > 0) out.flush(lane);
    }

    /* Reads the lane's mask, and all of `parts` but `next`. Returns false if the code is damaged. */
    static __device__ __forceinline__ bool read_masks(const uint32_t *string, int bits, int n, int lane,
                                                      uint32_t *mine_out, string_parts *parts) {
        uint32_t mine;
        *parts = {string, 0, 0, 0, mm_eb_prefix_of(string[0])};
        if (!read_changes(bits, n, lane, &mine, parts)) return false;
        const mm_eb_prefix prefix = parts->prefix;
        const uint32_t elements = mm_eb_elements(n, lane);
        const bool outside = (mine & ~elements) != 0;
        for (int by = prefix.before ? mm_eb_distance(prefix.before) : WARP; by < WARP; by *= 2)
            mine ^= same_before(mine, by, 0, lane);
        *mine_out = mine = (mine ^ (0 - (uint32_t)prefix.ones)) & elements;
        parts->kept = count_all(mine);
        return !__any_sync(ALL, outside) && parts->kept > 0 && parts->planes + prefix.low * parts->kept <= bits;
    }

    /* The same as mm_eb_read_changes, for the lane's block. */
    static __device__ __forceinline__ bool read_changes(int bits, int n, int lane, uint32_t *mine,
                                                        string_parts *parts) {
        const uint32_t *const string = parts->string;
        const int blocks = mm_eb_blocks(n);
        int at = MM_EB_PREFIX_BITS;
        if (parts->prefix.before == 0) {
            parts->planes = at + WARP * blocks;
            if (parts->planes > bits) return false;
            *mine = lane < blocks ? mm_eb_bits(string, at + WARP * lane, WARP) : 0;
            return true;
        }
        mm_eb_three three = {};
        const uint32_t changed = mm_eb_bits(string, at, MM_EB_THREES);
        at += MM_EB_THREES;
        if (at + WARP * __popc(changed) > bits) return false;
        if (changed >> lane & 1) three.any = mm_eb_bits(string, at + WARP * __popc(changed & below(lane)), WARP);
        at += WARP * __popc(changed);
        if (!read_scattered(string, bits, &at, three.any, three.which, lane)) return false;
        three.more = three.which[0] & three.which[1];
        if (!read_scattered(string, bits, &at, three.more, three.rest, lane)) return false;
        parts->planes = at;
        uint32_t a, b, c;
        mm_eb_three_changes(&three, &a, &b, &c);
        if (__any_sync(ALL, lane == MM_EB_THREES - 1 && c != 0)) return false;
        a = __shfl_sync(ALL, a, lane / 3), b = __shfl_sync(ALL, b, lane / 3), c = __shfl_sync(ALL, c, lane / 3);
        *mine = lane % 3 == 0 ? a : lane % 3 == 1 ? b : c;
        return true;
    }

    /* The inverse of put_gathered. */
    static __device__ __forceinline__ bool read_scattered(const uint32_t *string, int bits, int *at, uint32_t mask,
                                                          uint32_t *scattered, int lane) {
        const int count = __popc(mask), all = 2 * count_all(mask), from = *at + 2 * sum_below(count, lane);
        *at += all;
        if (*at > bits) return false;
        scattered[0] = mm_eb_scatter(mm_eb_bits(string, from, count), mask);
        scattered[1] = mm_eb_scatter(mm_eb_bits(string, from + count, count), mask);
        return true;
    }

    /* Number of ones among the `count` bits from position `at` on. */
    static __device__ __forceinline__ int ones_of(const uint32_t *string, int at, int count, int lane) {
        int ones = 0;
        for (int i = at / WARP + lane; WARP * i < at + count; i += WARP) {
            uint32_t word = string[i];
            if (WARP * i < at) word &= ~below(at % WARP);
            if (at + count - WARP * i < WARP) word &= below((at + count) % WARP);
            ones += __popc(word);
        }
        return (int)sum_all((unsigned)ones);
    }

    /* Finds where each layer begins. Returns false if the code is damaged. */
    static __device__ __forceinline__ bool read_layers(int bits, int lane, string_parts *parts) {
        const mm_eb_prefix prefix = parts->prefix;
        int at = parts->planes + prefix.low * parts->kept, left = parts->kept;
        for (int l = 0; l < prefix.layers; l++) {
            if (at + left > bits) return false;
            if (lane == l) parts->next = at;
            const int ones = ones_of(parts->string, at, left, lane);
            at += left;
            left = ones;
        }
        return at > bits - WARP && at <= bits;
    }

    /* The number u of the lane's element, if its bit in `mask` is set. before: number of values before these 32
     * elements. */
    static __device__ __forceinline__ uint32_t next_numbers(string_parts &parts, uint32_t mask, int before, int lane) {
        uint32_t high = 0, low = 0;
        const int value = before + __popc(mask & below(lane));
        for (int b = 0; b < parts.prefix.low; b++)
            if (mask >> lane & 1) low |= mm_eb_bit(parts.string, parts.planes + b * parts.kept + value) << b;
        for (int l = 0; l < parts.prefix.layers && mask; l++) {
            const int at = __shfl_sync(ALL, parts.next, l) + __popc(mask & below(lane));
            if (lane == l) parts.next += __popc(mask);
            mask = __ballot_sync(ALL, mask >> lane & 1 && mm_eb_bit(parts.string, at));
            high += mask >> lane & 1;
        }
        return high << parts.prefix.low | low;
    }

    /* Counts a chunk with infinities or NaNs. */
    __device__ __forceinline__ void count_nonfinite(const uint32_t *values, int lane) const {
        bool any = false;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) any = any || !mm_eb_is_finite(values[i]);
        if (__any_sync(ALL, any) && lane == 0 && nonfinite) atomicAdd_system(nonfinite, 1ull);
    }
};

} // namespace

MM_CHUNK_CUDA_DEFINE(eb, eb)
