/* SPDX-License-Identifier: MIT */
#include "tools/args/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mm/device/contract/clock.h"
#include "tools/args/terminal.h"

static double now(void) { return (double)mm_now_ns() * 1e-9; }

void progress_begin(progress *p, const char *what, int64_t from, int64_t total, bool quiet) {
    *p = (progress){.what = what,
                    .from = from,
                    .total = total,
                    .terminal = terminal_redraws(STDERR_FILENO),
                    .quiet = quiet,
                    .began = now()};
}

enum { BAR_MAX = 24, BAR_MIN = 4 };

/* Draws " [###...]" into `room` columns, at most BAR_MAX wide; draws nothing if the bar would be below BAR_MIN. */
static void draw_bar(int room, int64_t done, int64_t total, char bar[static BAR_MAX + 4]) {
    int width = room - 3 < BAR_MAX ? room - 3 : BAR_MAX;
    bar[0] = '\0';
    if (width < BAR_MIN || total <= 0) return;
    int full = done < total ? (int)(width * done / total) : width;
    memcpy(bar, " [", 2);
    memset(bar + 2, '#', (size_t)full);
    memset(bar + 2 + full, '.', (size_t)(width - full));
    strcpy(bar + 2 + width, "]");
}

/* Prints the details below the bar, then moves the cursor back to the bar's line, so that a message overwrites the bar
 * and not the last detail. */
static void show_details(progress *p, int columns) {
    char lines[PROGRESS_LINES][PROGRESS_LINE_BYTES];
    const int n = p->details ? p->details(p->details_ctx, lines) : 0;
    for (int i = 0; i < n; i++) fprintf(stderr, "\n\033[K%.*s", columns, lines[i]);
    if (n > 0) fprintf(stderr, "\033[%dA", n);
}

void progress_show(progress *p, int64_t done, const char *format, ...) {
    const double pause = p->terminal ? 0.1 : 10;
    double t = now();
    bool last = done >= p->total;
    if (p->quiet || (!last && t - p->shown < pause)) return;
    p->shown = t;
    char left[32] = "", text[160], line[256], bar[BAR_MAX + 4];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!last && done > p->from)
        snprintf(left, sizeof left, ", %.0f s left",
                 (t - p->began) * (double)(p->total - done) / (double)(done - p->from));
    int length = snprintf(line, sizeof line, " %lld/%lld %s%s", (long long)done, (long long)p->total, text, left);
    if (p->terminal) {
        /* The bar must fit: a line that wrapped could not be redrawn. */
        int columns = terminal_columns(STDERR_FILENO) - 1, name = (int)strlen(p->what);
        draw_bar(columns - name - length, done, p->total, bar);
        fprintf(stderr, "\r\033[K%.*s%s%.*s", columns, p->what, bar, columns > name ? columns - name : 0, line);
        show_details(p, columns);
    } else
        fprintf(stderr, "%s%s\n", p->what, line);
    fflush(stderr);
}

void progress_end(progress *p) {
    if (p->terminal && !p->quiet) {
        fprintf(stderr, p->details ? "\r\033[J" : "\r\033[K");
        fflush(stderr);
    }
}
