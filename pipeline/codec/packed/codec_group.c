/* SPDX-License-Identifier: MIT */
/* group on the host device: group_code.h in loops that the compiler vectorises. */
#include <endian.h>

#define MM_PHILOX_FUNCTION MM_PACKED_INLINE
#include "pipeline/codec/packed/group_code.h"
#include "pipeline/codec/packed/packed_host.h"

#include "mm/core/philox.h"

enum { LANES = MM_GROUP_LANES, EACH = MM_GROUP_EACH };

typedef uint32_t word __attribute__((may_alias));

/* 16 random bits for each element of a group, two elements in a word. group: the group's index in its tensor. */
MM_PACKED_INLINE void draw(const mm_packed_draw *from, uint64_t iteration, uint64_t group,
                           uint32_t words[restrict EACH / 2][LANES]) {
    const uint32_t key[2] = {from->seed, from->tensor}, first = (uint32_t)(group * LANES);
    for (int j = 0; j < LANES; j++) {
        const uint32_t counter[4] = {first + (uint32_t)j, (uint32_t)(group * LANES >> 32), (uint32_t)iteration,
                                     (uint32_t)(iteration >> 32)};
        uint32_t out[4];
        mm_philox(key, counter, out);
        for (int w = 0; w < EACH / 2; w++) words[w][j] = out[w];
    }
}

MM_PACKED_INLINE mm_group_head head_of(const word *restrict values, uint32_t levels) {
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int i = 0; i < MM_GROUP; i++) {
        const int32_t place = mm_group_place(values[i]);
        least = place < least ? place : least;
        most = place > most ? place : most;
    }
    return mm_group_head_of(least, most, levels);
}

/* Adds the level of each lane's element k to the lane's code, shifted to its place. */
MM_PACKED_INLINE void add_levels(const word *restrict values, int k, const mm_group_head *head,
                                 const uint32_t *restrict random, int bits, int shift, uint32_t *restrict codes) {
    for (int j = 0; j < LANES; j++)
        codes[j] |= mm_group_level(values[j], *head, random[j] >> k % 2 * 16 & 0xffff, (1u << bits) - 1) << shift;
}

MM_PACKED_INLINE void store(const uint32_t *restrict codes, int bits, uint8_t *restrict dst) {
    uint16_t shorts[LANES];
    uint32_t words[LANES];
    for (int j = 0; j < LANES; j++) shorts[j] = htole16((uint16_t)codes[j]), words[j] = htole32(codes[j]);
    if (bits == 2)
        memcpy(dst, shorts, sizeof shorts);
    else
        memcpy(dst, words, sizeof words);
}

MM_PACKED_INLINE int64_t encode(const float *restrict src, int64_t packs, uint8_t *restrict dst,
                                const mm_packed_draw *from, int bits) {
    const uint64_t iteration = from->iteration ? (uint64_t)*from->iteration : 0;
    const uint64_t first = (uint64_t)from->first / MM_GROUP;
    int64_t nonfinite = 0;
    for (int64_t g = 0; g < 2 * packs; g++, src += MM_GROUP) {
        uint8_t *pack = dst + g / 2 * (MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(bits));
        uint8_t *codes = pack + MM_GROUP_HEADS + g % 2 * MM_GROUP_BYTES(bits);
        const word *values = (const word *)src;
        const mm_group_head head = head_of(values, (1u << bits) - 1);
        const uint32_t halves = htole32(head.halves);
        memcpy(pack + g % 2 * 4, &halves, sizeof halves);
        nonfinite += !head.kept;
        uint32_t random[EACH / 2][LANES];
        draw(from, iteration, first + (uint64_t)g, random);
        for (int w = 0; w < EACH * bits; w += 32, codes += sizeof(uint32_t) * LANES) {
            uint32_t lanes[LANES] = {0};
            for (int shift = 0, k = w / bits; shift < 32 && k < EACH; shift += bits, k++)
                add_levels(values + k * LANES, k, &head, random[k / 2], bits, shift, lanes);
            store(lanes, bits, codes);
        }
    }
    return nonfinite;
}

MM_PACKED_INLINE uint32_t code_at(const uint8_t *restrict codes, int bits, int j) {
    uint16_t half;
    uint32_t all;
    memcpy(&half, codes + j * 2, sizeof half);
    if (bits == 2) return le16toh(half);
    memcpy(&all, codes + j * 4, sizeof all);
    return le32toh(all);
}

MM_PACKED_INLINE void decode(const uint8_t *restrict src, int64_t packs, float *restrict dst, int bits) {
    for (int64_t g = 0; g < 2 * packs; g++, dst += MM_GROUP) {
        const uint8_t *pack = src + g / 2 * (MM_GROUP_HEADS + 2 * MM_GROUP_BYTES(bits));
        const uint8_t *codes = pack + MM_GROUP_HEADS + g % 2 * MM_GROUP_BYTES(bits);
        word *restrict values = (word *)dst;
        uint32_t halves;
        memcpy(&halves, pack + g % 2 * 4, sizeof halves);
        halves = le32toh(halves);
        const float scale = mm_group_half_float(halves & 0x7fff), minimum = mm_group_half_float(halves >> 16);
        const uint32_t number = mm_group_number(halves), mask = (1u << bits) - 1;
        for (int k = 0; k < EACH; k++) {
            const uint8_t *of = codes + k * bits / 32 * 4 * LANES;
            for (int j = 0; j < LANES; j++)
                values[k * LANES + j] =
                    mm_group_value(code_at(of, bits, j) >> k * bits % 32 & mask, minimum, scale, number);
        }
    }
}

#define DEFINE(isa, target, bits)                                                                                      \
    target static int64_t encode_##bits##_##isa(const float *src, int64_t packs, uint8_t *dst,                         \
                                                const mm_packed_draw *from) {                                          \
        return encode(src, packs, dst, from, bits);                                                                    \
    }                                                                                                                  \
    target static void decode_##bits##_##isa(const uint8_t *src, int64_t packs, float *dst) {                          \
        decode(src, packs, dst, bits);                                                                                 \
    }
#define EACH_ISA(bits) MM_PACKED_EACH_ISA(DEFINE, bits)
MM_GROUP_FORMATS(EACH_ISA)

#define KERNELS(bits) {MM_PACKED_ISA_LIST(encode_##bits), MM_PACKED_ISA_LIST(decode_##bits)},
static const mm_packed_host group_host = {{{MM_GROUP_FORMATS(MM_GROUP_PACKED)}}, {MM_GROUP_FORMATS(KERNELS)}};

const mm_codec_ops mm_codec_group_host_ops = MM_PACKED_OPS("group", MM_GROUP_SUMMARY, "host", &group_host, true,
                                                           mm_packed_host_encode, mm_packed_host_decode, NULL);
