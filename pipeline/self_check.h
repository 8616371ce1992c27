/* SPDX-License-Identifier: MIT */
/* Checksums of evicted maps. The functions do nothing unless config.self_check. */
#ifndef PIPELINE_SELF_CHECK_H
#define PIPELINE_SELF_CHECK_H

#include "pipeline/dispatch.h"

/* State of the self-check: segments to overwrite after each node, and checksums. */
typedef struct mm_self_check {
    int32_t *first; /* per node, n + 1: its segments are dying[first[n]] to dying[first[n + 1] - 1] */
    int32_t *dying;
    uint64_t *before, *after; /* per tensor: checksums of the map before it was evicted, and after it was fetched; only
                               * for maps that come back exactly */
    uint8_t *compared;        /* per tensor: both checksums are taken in this iteration */
} mm_self_check;

MM_CHECKED mm_status mm_self_check_init(mm_execution *execution);
void mm_self_check_fini(mm_execution *execution);
/* Before an operation that evicts a map: enqueues the checksum of the map. */
MM_CHECKED mm_status mm_self_check_before(mm_execution *execution, int node);
/* After a node, before its event: enqueues the checksum of a fetched map, and fills over the segments that the node
 * used last. */
MM_CHECKED mm_status mm_self_check_after(mm_execution *execution, int node);
/* After a drain: compares the checksums. MM_ERR_DEVICE: a map came back different. */
MM_CHECKED mm_status mm_self_check_end(mm_execution *execution);

#endif
