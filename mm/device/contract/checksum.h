/* SPDX-License-Identifier: MIT */
/* The checksum of mm_checksum_async, defined so that a GPU computes it in parallel. The bytes are 64-bit little-endian
 * words, the last one padded with zeros. Word i goes to lane i mod MM_CHECKSUM_LANES; each lane is a chain of
 * mm_checksum_mix. The checksum is the sum of the lanes' results, mixed with the number of bytes. */
#ifndef MM_DEVICE_CONTRACT_CHECKSUM_H
#define MM_DEVICE_CONTRACT_CHECKSUM_H

#include <stdint.h>

/* A .cu file defines this as __device__ functions before it includes the header. */
#ifndef MM_CHECKSUM_FUNCTION
#define MM_CHECKSUM_FUNCTION static inline
#endif

enum { MM_CHECKSUM_LANES = 1024 };

MM_CHECKSUM_FUNCTION int64_t mm_checksum_words(int64_t bytes) { return bytes / 8 + (bytes % 8 != 0); }

MM_CHECKSUM_FUNCTION uint64_t mm_checksum_lane_begin(int lane) { return (uint64_t)lane + 1; }

/* A bijection of `sum` for every word, and of `word` for every sum: every change of one word changes the result. The
 * rotation brings the product's top bits down again. */
MM_CHECKSUM_FUNCTION uint64_t mm_checksum_mix(uint64_t sum, uint64_t word) {
    sum ^= word;
    return ((sum << 29) | (sum >> 35)) * UINT64_C(0x9e3779b97f4a7c15);
}

/* A lane's summand: the finalizer of splitmix64, which is not linear, so that changes in two lanes do not cancel. */
MM_CHECKSUM_FUNCTION uint64_t mm_checksum_lane_end(uint64_t sum) {
    sum = (sum ^ (sum >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    sum = (sum ^ (sum >> 27)) * UINT64_C(0x94d049bb133111eb);
    return sum ^ (sum >> 31);
}

MM_CHECKSUM_FUNCTION uint64_t mm_checksum_end(uint64_t lanes, int64_t bytes) {
    return mm_checksum_lane_end(lanes + mm_checksum_mix(0, (uint64_t)bytes));
}

/* The checksum of `bytes` zeros, without reading any memory. */
MM_CHECKSUM_FUNCTION uint64_t mm_checksum_zeros(int64_t bytes) {
    int64_t words = mm_checksum_words(bytes);
    uint64_t sum = 0;
    for (int l = 0; l < MM_CHECKSUM_LANES && l < words; l++) {
        uint64_t lane = mm_checksum_lane_begin(l);
        for (int64_t i = l; i < words; i += MM_CHECKSUM_LANES) lane = mm_checksum_mix(lane, 0);
        sum += mm_checksum_lane_end(lane);
    }
    return mm_checksum_end(sum, bytes);
}

/* Word i of the bytes; `src` may have any alignment. */
MM_CHECKSUM_FUNCTION uint64_t mm_checksum_word(const unsigned char *src, int64_t bytes, int64_t i) {
    uint64_t word = 0;
    int64_t left = bytes - 8 * i;
    for (int b = 0; b < (left < 8 ? (int)left : 8); b++) word |= (uint64_t)src[8 * i + b] << (8 * b);
    return word;
}

#endif
