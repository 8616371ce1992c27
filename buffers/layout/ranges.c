/* SPDX-License-Identifier: MIT */
#include "buffers/layout/ranges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

mm_status mm_ranges_init(mm_ranges *ranges, int64_t begin, int64_t end) {
    *ranges = (mm_ranges){0};
    MM_TRY(mm_ranges_reserve(ranges, 8));
    if (begin < end) ranges->free[ranges->n++] = (mm_span){begin, end};
    return MM_OK;
}

void mm_ranges_fini(mm_ranges *ranges) {
    free(ranges->free);
    *ranges = (mm_ranges){0};
}

mm_status mm_ranges_reserve(mm_ranges *ranges, size_t n) {
    if (n <= ranges->capacity) return MM_OK;
    size_t capacity = n > 2 * ranges->capacity ? n : 2 * ranges->capacity;
    mm_span *grown = realloc(ranges->free, capacity * sizeof *grown);
    if (!grown) return mm_fail(MM_ERR_NOMEM, "no memory for a list of %zu free spans", capacity);
    ranges->free = grown;
    ranges->capacity = capacity;
    return MM_OK;
}

/* The lowest aligned offset in the span. */
static int64_t span_low(const mm_span *span, int64_t align) { return (span->begin + align - 1) / align * align; }

static bool span_fits(const mm_span *span, int64_t bytes, int64_t align) {
    return span->end - bytes >= span_low(span, align);
}

static size_t find_lowest(const mm_ranges *ranges, int64_t bytes, int64_t align) {
    size_t i = 0;
    while (i < ranges->n && !span_fits(&ranges->free[i], bytes, align)) i++;
    return i;
}

static size_t find_exact(const mm_ranges *ranges, int64_t bytes, int64_t align) {
    size_t i = 0;
    for (; i < ranges->n; i++) {
        const mm_span *span = &ranges->free[i];
        if (span->end - span->begin == bytes && span_fits(span, bytes, align)) break;
    }
    return i;
}

static size_t find_closest(const mm_ranges *ranges, int64_t bytes, int64_t align) {
    size_t best = ranges->n;
    int64_t best_bytes = INT64_MAX;
    for (size_t i = 0; i < ranges->n; i++) {
        const mm_span *span = &ranges->free[i];
        if (span->end - span->begin < best_bytes && span_fits(span, bytes, align)) {
            best = i;
            best_bytes = span->end - span->begin;
        }
    }
    return best;
}

static size_t find(const mm_ranges *ranges, int64_t bytes, int64_t align, mm_fit fit) {
    switch (fit) {
    case MM_FIT_CLOSEST:
        return find_closest(ranges, bytes, align);
    case MM_FIT_EXACT_LOWEST: {
        size_t exact = find_exact(ranges, bytes, align);
        if (exact < ranges->n) return exact;
        break;
    }
    case MM_FIT_LOWEST:
        break;
    }
    return find_lowest(ranges, bytes, align);
}

static void span_insert(mm_ranges *ranges, size_t at, mm_span span) {
    assert(ranges->n < ranges->capacity);
    memmove(&ranges->free[at + 1], &ranges->free[at], (ranges->n - at) * sizeof *ranges->free);
    ranges->free[at] = span;
    ranges->n++;
}

static void span_remove(mm_ranges *ranges, size_t at) {
    ranges->n--;
    memmove(&ranges->free[at], &ranges->free[at + 1], (ranges->n - at) * sizeof *ranges->free);
}

static void take_of(mm_ranges *ranges, size_t at, int64_t offset, int64_t bytes) {
    mm_span *span = &ranges->free[at];
    mm_span above = {offset + bytes, span->end};
    span->end = offset;
    if (span->begin == span->end) {
        if (above.begin == above.end) {
            span_remove(ranges, at);
        } else {
            *span = above;
        }
    } else if (above.begin < above.end) {
        span_insert(ranges, at + 1, above);
    }
}

int64_t mm_ranges_take(mm_ranges *ranges, int64_t bytes, int64_t align, mm_fit fit) {
    assert(bytes > 0 && align > 0);
    size_t at = find(ranges, bytes, align, fit);
    if (at == ranges->n) return -1;
    int64_t offset = span_low(&ranges->free[at], align);
    take_of(ranges, at, offset, bytes);
    return offset;
}

void mm_ranges_take_at(mm_ranges *ranges, int64_t offset, int64_t bytes) {
    size_t at = 0;
    while (at < ranges->n && ranges->free[at].end < offset + bytes) at++;
    assert(at < ranges->n && ranges->free[at].begin <= offset);
    take_of(ranges, at, offset, bytes);
}

void mm_ranges_give(mm_ranges *ranges, int64_t offset, int64_t bytes) {
    size_t low = 0, high = ranges->n; /* the first span above the offset */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges->free[middle].begin > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    mm_span *above = low < ranges->n ? &ranges->free[low] : NULL;
    mm_span *below = low > 0 ? &ranges->free[low - 1] : NULL;
    /* if this fails, the range was given back twice */
    assert((!below || below->end <= offset) && (!above || offset + bytes <= above->begin));
    bool joins_below = below && below->end == offset;
    bool joins_above = above && above->begin == offset + bytes;
    if (joins_below && joins_above) {
        below->end = above->end;
        span_remove(ranges, low);
    } else if (joins_below) {
        below->end += bytes;
    } else if (joins_above) {
        above->begin = offset;
    } else {
        span_insert(ranges, low, (mm_span){offset, offset + bytes});
    }
}
