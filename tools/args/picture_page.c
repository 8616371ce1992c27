/* SPDX-License-Identifier: MIT */
#include "tools/args/picture_page.h"

void picture_text(FILE *file, const char *raw) {
    for (const char *c = raw; *c; c++) switch (*c) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        default:
            if ((unsigned char)*c >= ' ') fputc(*c, file);
        }
}
