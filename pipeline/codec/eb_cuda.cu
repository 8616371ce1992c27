/* eb on CUDA (eb_chunk.h). Lane g has the width of group g.
 *
 * Planes are made of, and into, numbers that lie at the end of the same slot of shared memory, group by group: from the
 * first on to encode, from the last on to decode. What is written never reaches numbers, or planes, that are yet to be
 * read: planes begin before word 1 + 32 + 5 and take at most 15 words a group, the k <= 1024 numbers begin after word
 * 1056 - k >= 32 and take 32; and 38 + 15 (g + 1) <= 32 + 32 (g + 1). Only the first words, which masks and widths
 * take, lie where numbers of group 0 may be: they are written last. */
#include "pipeline/codec/chunk_cuda_kernel.h"

#include "pipeline/codec/eb_value.h"

namespace {

constexpr int NIBBLES = 8 /* a word */;
static_assert(MM_EB_GROUP == WARP, "a number of a group a lane");

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
        uint32_t *const numbers = words + SLOT - kept;
        pack_nonzeros(values, lane, [=](int rank, int, uint32_t value) {
            const uint32_t q = mm_eb_quantise(z, value) - 1;
            numbers[rank] = negatives ? 2 * q + (value >> 31) : q;
        });
        __syncwarp();
        const int groups = groups_of_kept(kept), width = width_of_group(numbers, kept, groups, lane);
        const uint32_t blocks = __ballot_sync(ALL, mine != 0);
        const int nibbles = 1 + __popc(blocks), planes = nibbles + nibble_words(groups);
        const int total = planes + (int)__reduce_add_sync(ALL, (unsigned)width);
        if (total >= n) return n;
        write_planes(numbers, kept, width, words + planes, lane);
        __syncwarp();
        if (lane == 0) words[0] = blocks;
        if (mine != 0) words[1 + __popc(blocks & below(lane))] = mine;
        const uint32_t packed = pack_nibbles(width, negatives, groups, lane);
        if (lane < planes - nibbles) words[nibbles + lane] = packed;
        return total;
    }

    __device__ __forceinline__ bool decode(uint32_t *words, int count, int n, uint32_t *values, int lane) const {
        uint32_t mine = 0;
        int kept = 0;
        if (count > 0) {
            if (z.bound == 0 || !read_masks(words, count, n, lane, &mine)) return false;
            kept = count_all(mine);
            if (!decode_planes(words, count, kept, lane)) return false;
        }
        const uint32_t *const decoded = words + SLOT - kept;
        unpack_nonzeros(mine, values, lane, [=](int rank) { return decoded[rank]; });
        return true;
    }

  private:
    mm_eb_quantiser z;
    unsigned long long *nonfinite;

    static __device__ __forceinline__ int groups_of_kept(int kept) { return (kept + MM_EB_GROUP - 1) / MM_EB_GROUP; }
    /* Words of the nibbles: one of the sign, and a width a group. */
    static __device__ __forceinline__ int nibble_words(int groups) { return (groups + NIBBLES) / NIBBLES; }

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

    /* Puts the elements that planes are of at the slot's end. False: damaged. */
    __device__ __forceinline__ bool decode_planes(uint32_t *words, int count, int kept, int lane) const {
        const int nibbles = 1 + __popc(words[0]), groups = groups_of_kept(kept),
                  planes = nibbles + nibble_words(groups);
        if (planes > count) return false;
        const int nibble = lane + 1;
        const int width = lane < groups ? words[nibbles + nibble / NIBBLES] >> nibble % NIBBLES * 4 & 15 : 0;
        if (planes + (int)__reduce_add_sync(ALL, (unsigned)width) != count) return false;
        const bool negatives = words[nibbles] & 1;
        uint32_t *const decoded = words + SLOT - kept;
        for (int g = groups - 1, from = count; g >= 0; g--) {
            const int planes_of_group = __shfl_sync(ALL, width, g);
            uint32_t number = 0;
            from -= planes_of_group;
            for (int b = 0; b < planes_of_group; b++) number |= (words[from + b] >> lane & 1) << b;
            __syncwarp();
            if (g * WARP + lane < kept) decoded[g * WARP + lane] = mm_eb_value(z, number, negatives);
        }
        __syncwarp();
        return true;
    }

    /* Counts a chunk with infinities or NaNs. */
    __device__ __forceinline__ void count_nonfinite(const uint32_t *values, int lane) const {
        bool any = false;
#pragma unroll
        for (int i = 0; i < GROUPS_OF_32; i++) any = any || !mm_eb_is_finite(values[i]);
        if (__any_sync(ALL, any) && lane == 0 && nonfinite) atomicAdd_system(nonfinite, 1ull);
    }

    /* The width of the lane's group of `kept` numbers. */
    static __device__ __forceinline__ int width_of_group(const uint32_t *numbers, int kept, int groups, int lane) {
        int mine = 0;
        for (int g = 0; g < groups; g++) {
            const uint32_t all = __reduce_or_sync(ALL, g * WARP + lane < kept ? numbers[g * WARP + lane] : 0u);
            if (lane == g) mine = WARP - __clz((int)all);
        }
        return mine;
    }

    /* The lane's word of nibbles. */
    static __device__ __forceinline__ uint32_t pack_nibbles(int width, int negatives, int groups, int lane) {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < NIBBLES; i++) {
            const int group = NIBBLES * lane + i - 1;
            const uint32_t nibble = (uint32_t)__shfl_sync(ALL, width, group & (WARP - 1));
            if (group >= 0 && group < groups) word |= nibble << 4 * i;
        }
        return lane == 0 ? word | (uint32_t)negatives : word;
    }

    static __device__ __forceinline__ void write_planes(const uint32_t *numbers, int kept, int width, uint32_t *planes,
                                                        int lane) {
        for (int g = 0; g * WARP < kept; g++) {
            const int planes_of_group = __shfl_sync(ALL, width, g);
            uint32_t left = g * WARP + lane < kept ? numbers[g * WARP + lane] : 0, mine = 0;
            for (int b = 0; b < planes_of_group; b++, left >>= 1) {
                const uint32_t plane = __ballot_sync(ALL, (int)(left & 1));
                if (lane == b) mine = plane;
            }
            __syncwarp();
            if (lane < planes_of_group) planes[lane] = mine;
            planes += planes_of_group;
        }
    }
};

} // namespace

MM_CHUNK_CUDA_DEFINE(eb, eb)
