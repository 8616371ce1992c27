/* SPDX-License-Identifier: MIT */
/* Where the strips of a code lie among its tensor's elements (mm_strips). */
#ifndef MM_CORE_GRAPH_CODE_STRIPS_H
#define MM_CORE_GRAPH_CODE_STRIPS_H

#include "mm/mm.h"

static inline int64_t mm_strips_in_period(const mm_strips *s) {
    return (s->period_elems + s->strip_elems - 1) / s->strip_elems;
}

/* The first element of a strip; for the number of all strips, the number of elements. */
static inline int64_t mm_strip_begin(const mm_strips *s, int64_t strip) {
    const int64_t n = mm_strips_in_period(s);
    return strip / n * s->period_elems + strip % n * s->strip_elems;
}

/* The strip in which an element lies. */
static inline int64_t mm_strip_of(const mm_strips *s, int64_t elem) {
    return elem / s->period_elems * mm_strips_in_period(s) + elem % s->period_elems / s->strip_elems;
}

/* The number of elements of strips first to first + n - 1. */
static inline int64_t mm_strips_elems(const mm_strips *s, int64_t first, int64_t n) {
    return mm_strip_begin(s, first + n) - mm_strip_begin(s, first);
}

#endif
