/* SPDX-License-Identifier: MIT */
#include "tools/args/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool terminal_redraws(int descriptor) {
    const char *kind = getenv("TERM");
    return kind && *kind && strcmp(kind, "dumb") != 0 && isatty(descriptor);
}

const char *terminal_clear(void) { return terminal_redraws(STDERR_FILENO) ? "\r\033[K" : ""; }

int terminal_columns(int descriptor) {
    enum { DIGITS_MOST = 5 };
    const char *asked = getenv("COLUMNS");
    struct winsize size;
    const size_t digits = asked ? strspn(asked, "0123456789") : 0;
    if (digits > 0 && digits <= DIGITS_MOST && !asked[digits] && atoi(asked) > 1) return atoi(asked);
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : TERMINAL_COLUMNS;
}

int terminal_width(FILE *file) {
    enum { LEAST = 60, MOST = 200 };
    const int columns = terminal_columns(fileno(file));
    return columns < LEAST ? LEAST : columns > MOST ? MOST : columns;
}
