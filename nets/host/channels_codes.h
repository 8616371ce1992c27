/* SPDX-License-Identifier: MIT */
/* A map's code (mm_coded), written and read in strips while the map's elements are in the cache. Internal. */
#ifndef NETS_HOST_CHANNELS_CODES_H
#define NETS_HOST_CHANNELS_CODES_H

#include <string.h>

#include "mm/core/graph/code_strips.h"

/* Encodes the strips from *next on that end at or before element `end`, and advances *next. `code` NULL: does nothing.
 * elems: the whole map. */
static inline void nets_encode_to(const mm_coded *code, const float *elems, int64_t end, int64_t *next) {
    if (!code) return;
    const mm_strips *s = code->strips;
    int64_t n = 0;
    while (mm_strip_begin(s, *next + n) < s->elems && mm_strip_begin(s, *next + n + 1) <= end) n++;
    if (n > 0) s->encode(s, elems + mm_strip_begin(s, *next), *next, n, code->code, code->counters);
    *next += n;
}

/* The first strip that begins at element `at` or behind it. */
static inline int64_t nets_strip_from(const mm_coded *code, int64_t at) {
    if (!code) return 0;
    const int64_t strip = mm_strip_of(code->strips, at);
    return mm_strip_begin(code->strips, strip) == at ? strip : strip + 1;
}

/* Encodes, once each, the strips that reach over two or more blocks. */
static inline void nets_encode_across(const mm_coded *code, const float *elems, int64_t block_elems, int blocks) {
    for (int64_t block = 1, after = 0; code && block < blocks; block++) {
        int64_t strip = nets_strip_from(code, block * block_elems);
        if (mm_strip_begin(code->strips, strip) == block * block_elems) continue;
        if (--strip < after) continue;
        nets_encode_to(code, elems, mm_strip_begin(code->strips, strip + 1), &strip);
        after = strip;
    }
}

/* The decoded strips around a chunk of a code: elements begin to end - 1.
 *
 *      strips  |    s    |   s + 1  |   s + 2  |
 *      chunk          |  at ... at + n  |
 *      window  begin                            end     what is before `at` is dropped when the next chunk is asked for
 */
typedef struct nets_code_window {
    const mm_coded *code; /* NULL: the elements themselves are read */
    const void *elems;
    int64_t elem_bytes;
    float *decoded;
    int64_t begin, end;
} nets_code_window;

/* Returns elements `at` to at + n - 1, at most a chunk; valid until the next call. */
static inline const void *nets_code_window_at(nets_code_window *w, int64_t at, int64_t n) {
    if (!w->code) return (const char *)w->elems + at * w->elem_bytes;
    const mm_strips *s = w->code->strips;
    if (at < w->begin || at >= w->end) {
        w->begin = w->end = mm_strip_begin(s, mm_strip_of(s, at));
    } else {
        memmove(w->decoded, w->decoded + (at - w->begin), (size_t)(w->end - at) * sizeof *w->decoded);
        w->begin = at;
    }
    while (w->end < at + n) {
        const int64_t strip = mm_strip_of(s, w->end);
        s->decode(s, w->code->code, strip, 1, w->decoded + (w->end - w->begin));
        w->end += mm_strips_elems(s, strip, 1);
    }
    return w->decoded + (at - w->begin);
}

#endif
