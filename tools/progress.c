#include "tools/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_begin(progress *p, const char *what, int64_t total, bool quiet) {
    *p = (progress){.what = what, .total = total, .terminal = isatty(2), .quiet = quiet, .began = now()};
}

static void draw_bar(const progress *p, int64_t done) {
    enum { WIDTH = 24 };
    int full = p->total > 0 ? (int)(WIDTH * done / p->total) : 0;
    fprintf(stderr, "\r\033[K%s [", p->what);
    for (int i = 0; i < WIDTH; i++) fputc(i < full ? '#' : '.', stderr);
    fputc(']', stderr);
}

void progress_show(progress *p, int64_t done, const char *format, ...) {
    const double pause = p->terminal ? 0.1 : 10;
    double t = now();
    bool last = done >= p->total;
    if (p->quiet || (!last && t - p->shown < pause)) return;
    p->shown = t;
    if (p->terminal)
        draw_bar(p, done);
    else
        fprintf(stderr, "%s", p->what);
    double left = done > 0 ? (t - p->began) * (double)(p->total - done) / (double)done : 0;
    fprintf(stderr, " %lld/%lld", (long long)done, (long long)p->total);
    va_list arguments;
    va_start(arguments, format);
    fputc(' ', stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (!last) fprintf(stderr, ", %.0f s left", left);
    if (!p->terminal) fputc('\n', stderr);
    fflush(stderr);
}

void progress_end(progress *p) {
    if (p->terminal && !p->quiet) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}
