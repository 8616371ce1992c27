/* SPDX-License-Identifier: MIT */
/* FreeLunch's two regions: codes one after the other, and k buffers that all feature maps pass through. */
#include "buffers/layout/layout.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct key {
    int32_t value;
    size_t item;
} key;

static int compare_key(const void *a, const void *b) {
    const key *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static mm_status check(const mm_interval *items, size_t n, int64_t align) {
    if (align <= 0) return mm_fail(MM_ERR_INVALID, "the alignment must be above 0, but is %" PRId64, align);
    int64_t left = INT64_C(1) << 62;
    for (size_t i = 0; i < n; i++) {
        if (items[i].bytes < 0 || items[i].bytes > left - align) {
            return mm_fail(MM_ERR_INVALID, "item %zu has %" PRId64 " bytes: negative, or above 2^62 in all", i,
                           items[i].bytes);
        }
        if (items[i].is_given)
            return mm_fail(MM_ERR_INVALID, "item %zu has a given offset: codes and buffers lie one after the other", i);
        left -= (items[i].bytes + align - 1) / align * align;
    }
    return MM_OK;
}

static mm_status keys_create(size_t n, key **keys_out) {
    *keys_out = malloc((n + 1) * sizeof **keys_out);
    return *keys_out ? MM_OK : mm_fail(MM_ERR_NOMEM, "no memory to sort %zu items", n);
}

mm_status mm_layout_sliding(mm_interval *codes, const int32_t *rank, size_t n, int64_t align, int64_t *height_out) {
    key *keys;
    MM_TRY(check(codes, n, align));
    MM_TRY(keys_create(n, &keys));
    for (size_t i = 0; i < n; i++) keys[i] = (key){rank[i], i};
    qsort(keys, n, sizeof *keys, compare_key);
    int64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        mm_interval *code = &codes[keys[i].item];
        code->offset = offset;
        offset += (code->bytes + align - 1) / align * align;
    }
    free(keys);
    *height_out = offset;
    return MM_OK;
}

/* The most items alive at one position. */
static mm_status largest_overlap(const mm_interval *items, size_t n, const key *by_first, int *overlap_out) {
    key *by_last;
    MM_TRY(keys_create(n, &by_last));
    for (size_t i = 0; i < n; i++) by_last[i] = (key){items[i].last, i};
    qsort(by_last, n, sizeof *by_last, compare_key);
    int alive = 0, most = 0;
    for (size_t i = 0, ended = 0; i < n; i++) {
        for (; by_last[ended].value < by_first[i].value; ended++) alive--;
        if (++alive > most) most = alive;
    }
    free(by_last);
    *overlap_out = most;
    return MM_OK;
}

typedef struct buffer {
    int64_t bytes, offset;
    int64_t busy_until; /* last position of the latest item placed in it; INT64_MIN: none */
} buffer;

/* Of the buffers free at `position`: the smallest that fits, else the largest. One is free, because k is at least the
 * overlap. */
static int closest_buffer(const buffer *buffers, int k, int64_t bytes, int32_t position) {
    int best = -1;
    for (int b = 0; b < k; b++) {
        if (buffers[b].busy_until >= position) continue;
        if (best < 0) {
            best = b;
            continue;
        }
        bool fits = buffers[b].bytes >= bytes, best_fits = buffers[best].bytes >= bytes;
        bool smaller = buffers[b].bytes<buffers[best].bytes, larger = buffers[b].bytes> buffers[best].bytes;
        if (fits ? (!best_fits || smaller) : (!best_fits && larger)) best = b;
    }
    return best;
}

static mm_status pass_through(mm_interval *items, size_t n, const key *by_first, int k, int64_t align,
                              int32_t *buffer_out, int64_t *height_out) {
    buffer *buffers = malloc(((size_t)k + 1) * sizeof *buffers);
    if (!buffers) return mm_fail(MM_ERR_NOMEM, "no memory for %d buffers", k);
    for (int b = 0; b < k; b++) buffers[b] = (buffer){.busy_until = INT64_MIN};
    for (size_t i = 0; i < n; i++) {
        const mm_interval *item = &items[by_first[i].item];
        int64_t bytes = (item->bytes + align - 1) / align * align;
        int b = closest_buffer(buffers, k, bytes, item->first);
        if (buffers[b].bytes < bytes) buffers[b].bytes = bytes;
        buffers[b].busy_until = item->last;
        buffer_out[by_first[i].item] = b;
    }
    int64_t height = 0;
    for (int b = 0; b < k; b++) {
        buffers[b].offset = height;
        height += buffers[b].bytes;
    }
    for (size_t i = 0; i < n; i++) items[i].offset = buffers[buffer_out[i]].offset;
    free(buffers);
    *height_out = height;
    return MM_OK;
}

mm_status mm_layout_buffers(mm_interval *items, size_t n, int want_k, int64_t align, int32_t *buffer_out, int *k_out,
                            int64_t *height_out) {
    int needed = 0;
    key *by_first;
    MM_TRY(check(items, n, align));
    if (want_k < 0) return mm_fail(MM_ERR_INVALID, "cannot place items in %d buffers", want_k);
    for (size_t i = 0; i < n; i++) {
        if (items[i].last < items[i].first) {
            return mm_fail(MM_ERR_INVALID, "item %zu is alive from %d to %d: it ends before it begins", i,
                           items[i].first, items[i].last);
        }
    }
    MM_TRY(keys_create(n, &by_first));
    for (size_t i = 0; i < n; i++) by_first[i] = (key){items[i].first, i};
    qsort(by_first, n, sizeof *by_first, compare_key);
    mm_status status = largest_overlap(items, n, by_first, &needed);
    int k = want_k > 0 ? want_k : needed;
    if (status == MM_OK && k < needed) {
        status = mm_fail(MM_ERR_INFEASIBLE,
                         "k=%d: only %d buffer%s, but %d maps are alive together; give k=%d or more, or k=0 for "
                         "as many as needed",
                         k, k, k == 1 ? "" : "s", needed, needed);
    }
    if (status == MM_OK) status = pass_through(items, n, by_first, k, align, buffer_out, height_out);
    if (status == MM_OK) *k_out = k;
    free(by_first);
    return status;
}
