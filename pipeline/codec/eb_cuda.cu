/* eb on CUDA (eb_chunk.h).
 *
 * Encode. The numbers lie at the end of the same slot of shared memory, in 16 bits each, from word SLOT - 512 on. The code
 * never reaches them: it takes at most 1 + 32 words, and a string of 10 + 17 * 1024 bits, since low is at most 14 and layers
 * have at most 3 bits a value (half of them, rounded up, are at most 1 a value). Layer by layer the numbers that have a one
 * move to the front.
 *
 * Decode. 32 elements at a time, lane l knows which of layer l + 1's bits is the next. */
#include "pipeline/codec/chunk_cuda_kernel.h"

#include "pipeline/codec/eb_value.h"

namespace {

constexpr int NUMBERS = MM_CHUNK_ELEMS / 2 /* words */;
static_assert(33 + (MM_EB_PREFIX_BITS + 17 * MM_CHUNK_ELEMS + 31) / 32 <= SLOT - NUMBERS,
              "a code and numbers in a slot");
static_assert(MM_EB_LAYERS_MOST <= WARP, "a layer a lane");

/* As mm_eb_put, by a warp: all lanes have the same. */
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
        const mm_eb_prefix prefix = choose(numbers, kept, negatives, lane, &bits);
        const uint32_t blocks = __ballot_sync(ALL, mine != 0);
        const int before = 1 + __popc(blocks), total = before + (bits + WARP - 1) / WARP;
        if (total >= n) return n;
        if (lane == 0) words[0] = blocks;
        if (mine != 0) words[1 + __popc(blocks & below(lane))] = mine;
        write_string(prefix, numbers, kept, words + before, lane);
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        uint32_t mine = 0;
        string_parts parts = {};
        if (count > 0 && (z.bound == 0 || !read_masks(words, count, n, lane, &mine) ||
                          !read_string(words, count, count_all(mine), lane, &parts)))
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

    /* A code's string of bits, for a lane: where the bits of layer lane + 1 begin that have not been read. */
    struct string_parts {
        const uint32_t *string;
        int kept, next;
        mm_eb_prefix prefix;
    };

    static __device__ __forceinline__ unsigned sum_all(unsigned value) { return __reduce_add_sync(ALL, value); }

    /* As mm_eb_choose. */
    static __device__ __forceinline__ mm_eb_prefix choose(const uint16_t *numbers, int kept, bool negatives, int lane,
                                                          int *bits_out) {
        unsigned sum = 0, most = 0, halves, bits = 0;
        for (int i = lane; i < kept; i += WARP) {
            sum += numbers[i];
            most = numbers[i] > most ? numbers[i] : most;
        }
        most = __reduce_max_sync(ALL, most);
        mm_eb_prefix prefix = {mm_eb_low_least(sum_all(sum), most, (unsigned)kept) - 1, 0, negatives};
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
        *bits_out = MM_EB_PREFIX_BITS + prefix.low * kept + (int)sum_all(bits);
        return prefix;
    }

    /* As mm_eb_write_string. */
    static __device__ __forceinline__ void write_string(mm_eb_prefix prefix, uint16_t *numbers, int kept,
                                                        uint32_t *string, int lane) {
        bit_writer out = {string, 0, 0};
        out.put(mm_eb_prefix_bits(prefix), MM_EB_PREFIX_BITS, lane);
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
                __syncwarp(); /* all have read theirs */
                if (one) numbers[next + __popc(ones & below(lane))] = (uint16_t)number;
                next += __popc(ones);
            }
            left = next;
            __syncwarp();
        }
        if (out.fill > 0) out.flush(lane);
    }

    /* The lane's mask. False: damaged. */
    static __device__ __forceinline__ bool read_masks(const uint32_t *words, int count, int n, int lane,
                                                      uint32_t *mine_out) {
        const uint32_t blocks = words[0];
        const int most = (n + WARP - 1) / WARP;
        if (blocks == 0 || (most < WARP && blocks >> most) || __popc(blocks) + 2 > count) return false;
        const uint32_t mine = blocks >> lane & 1 ? words[1 + __popc(blocks & below(lane))] : 0;
        *mine_out = mine;
        return !__any_sync(ALL, lane == n / WARP && mine >> n % WARP);
    }

    /* How many of `count` bits are set. */
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

    /* False: damaged. */
    static __device__ __forceinline__ bool read_string(const uint32_t *words, int count, int kept, int lane,
                                                       string_parts *parts) {
        const int before = 1 + __popc(words[0]), bits = WARP * (count - before);
        const mm_eb_prefix prefix = mm_eb_prefix_of(words[before]);
        int at = MM_EB_PREFIX_BITS + prefix.low * kept, left = kept;
        *parts = {words + before, kept, 0, prefix};
        for (int l = 0; l < prefix.layers; l++) {
            if (at + left > bits) return false;
            if (lane == l) parts->next = at;
            const int ones = ones_of(words + before, at, left, lane);
            at += left;
            left = ones;
        }
        return at > bits - WARP && at <= bits;
    }

    /* The number of the lane's element, if the mask has it; `before` values are before these. */
    static __device__ __forceinline__ uint32_t next_numbers(string_parts &parts, uint32_t mask, int before, int lane) {
        uint32_t high = 0, low = 0;
        const int value = before + __popc(mask & below(lane));
        for (int b = 0; b < parts.prefix.low; b++)
            if (mask >> lane & 1) low |= mm_eb_bit(parts.string, MM_EB_PREFIX_BITS + b * parts.kept + value) << b;
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
