#include "tools/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
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

/* Columns of the terminal: a line that wrapped could not be redrawn. */
static int terminal_columns(void) {
    struct winsize size;
    return ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

static const char *draw_bar(const progress *p, int64_t done, char bar[static 32]) {
    enum { WIDTH = 24 };
    int full = p->total > 0 ? (int)(WIDTH * done / p->total) : 0;
    if (full > WIDTH) full = WIDTH;
    bar[0] = ' ', bar[1] = '[';
    memset(bar + 2, '#', (size_t)full);
    memset(bar + 2 + full, '.', (size_t)(WIDTH - full));
    strcpy(bar + 2 + WIDTH, "]");
    return bar;
}

void progress_show(progress *p, int64_t done, const char *format, ...) {
    const double pause = p->terminal ? 0.1 : 10;
    double t = now();
    bool last = done >= p->total;
    if (p->quiet || (!last && t - p->shown < pause)) return;
    p->shown = t;
    char text[160], bar[32] = "", left[32] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!last && done > 0)
        snprintf(left, sizeof left, ", %.0f s left", (t - p->began) * (double)(p->total - done) / (double)done);
    char line[512];
    snprintf(line, sizeof line, "%s%s %lld/%lld %s%s", p->what, p->terminal ? draw_bar(p, done, bar) : "",
             (long long)done, (long long)p->total, text, left);
    if (p->terminal)
        fprintf(stderr, "\r\033[K%.*s", terminal_columns() - 1, line);
    else
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

void progress_end(progress *p) {
    if (p->terminal && !p->quiet) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}
