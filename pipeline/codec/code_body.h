/* SPDX-License-Identifier: MIT */
/* Bodies of codes of variable size. Plain C that device code includes, too.
 *
 * A code of variable size has a head of a fixed size, and a body in a pool, in which bodies follow one another in the
 * order in which they are encoded. A pool and its spill are one range of positions from 0 on: the first pool_bytes lie
 * in the pool, the rest in the spill (chunk_code.h says where exactly). So an encode needs only the end of the body
 * before it, and nothing waits for a size. */
#ifndef PIPELINE_CODEC_CODE_BODY_H
#define PIPELINE_CODEC_CODE_BODY_H

#include <stdbool.h>
#include <stdint.h>

/* What encode writes about a body, on its stream, to memory that device and host reach (like mm_codec_counters). It
 * must begin as zeros. */
typedef struct mm_body_record {
    int64_t end;                    /* position right after the body, in the range of its pool */
    int64_t bytes, spilled;         /* of the last encode: the body's bytes, and how many of them lie in pinned
                                     * memory */
    int64_t all_bytes, all_spilled; /* sums over all encodes so far, so that the host may read them late */
} mm_body_record;

/* Where a code's body goes (encode) or lies (decode). All that it points to must stay valid until the task is done. */
typedef struct mm_code_body {
    void *pool; /* aligned to 256, as the spill is; NULL if pool_bytes is 0 */
    int64_t pool_bytes;
    void *spill; /* pinned memory; NULL, 0: none */
    int64_t spill_bytes;
    bool pool_pinned;             /* the pool itself lies in pinned memory: all of the body crosses the link */
    const mm_body_record *before; /* encode: record of the body before it in the pool; NULL: it is the iteration's
                                     first, from position 0 */
    mm_body_record *record;       /* encode writes it; decode does not read it */
} mm_code_body;

#endif
