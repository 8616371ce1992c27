/* SPDX-License-Identifier: MIT */
#include "tools/bench/samples.h"

#include <stdio.h>
#include <stdlib.h>

mm_status samples_add(samples *s, double value) {
    if (s->n == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 64;
        double *at = realloc(s->at, (size_t)capacity * sizeof *at);
        if (!at) return mm_fail(MM_ERR_NOMEM, "out of memory for %lld samples", (long long)capacity);
        s->at = at;
        s->capacity = capacity;
    }
    s->at[s->n++] = value;
    return MM_OK;
}

void samples_fini(samples *s) {
    free(s->at);
    *s = (samples){0};
}

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

samples_summary samples_summarize(samples *s) {
    if (s->n == 0) return (samples_summary){0};
    qsort(s->at, (size_t)s->n, sizeof *s->at, by_value);
    return (samples_summary){.n = s->n,
                             .min = s->at[0],
                             .median = (s->at[(s->n - 1) / 2] + s->at[s->n / 2]) / 2,
                             .p95 = s->at[(int64_t)(0.95 * (double)(s->n - 1) + 0.5)]};
}

void samples_print_head(FILE *file, const char *title) {
    fprintf(file, "%-44s %7s %11s %11s %11s\n", title, "n", "min", "median", "p95");
}

void samples_print(FILE *file, samples *s, const char *label, double scale, const char *unit, double ratio,
                   const char *peer) {
    const samples_summary x = samples_summarize(s);
    fprintf(file, "  %-42s %7lld %11.6g %11.6g %11.6g %-3s", label, (long long)x.n, x.min * scale, x.median * scale,
            x.p95 * scale, unit);
    if (peer) fprintf(file, "  %.3g x %s", ratio, peer);
    fputc('\n', file);
}
