/* SPDX-License-Identifier: MIT */
/* FNV-1a, a hash of 64 bits: it tells texts and plans apart, but gives no protection against somebody who constructs
 * two with the same hash. */
#ifndef MM_CORE_HASH_H
#define MM_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define MM_HASH_BEGIN UINT64_C(0xcbf29ce484222325) /* the hash of nothing */

/* Adds a word to a hash. */
static inline uint64_t mm_hash_word(uint64_t hash, uint64_t word) { return (hash ^ word) * UINT64_C(0x100000001b3); }

/* Adds `bytes` bytes to a hash, one after the other. */
static inline uint64_t mm_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) hash = mm_hash_word(hash, at[i]);
    return hash;
}

#endif
