/* SPDX-License-Identifier: MIT */
#include "tools/plan/plan_page.h"

#include <stdlib.h>

#include "mm/core/atomic_file.h"
#include "mm/core/status.h"
#include "tools/args/picture_page.h"

static void print_page(FILE *file, const picture *picture, const char *text) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          file);
    picture_text(file, picture->title);
    fputs("</title>\n<style>body{margin:1em auto;max-width:1000px;padding:0 1em;font-family:system-ui,sans-serif}"
          "svg{width:100%;height:auto}pre{overflow-x:auto;white-space:pre-wrap}</style>\n</head>\n<body>\n",
          file);
    picture_write(file, picture);
    fputs("<pre>", file);
    for (const char *line = text; *line;) { /* picture_text drops control characters, line breaks too */
        char part[512];
        size_t n = 0;
        while (line[n] && line[n] != '\n' && n + 1 < sizeof part) {
            part[n] = line[n];
            n++;
        }
        part[n] = '\0';
        picture_text(file, part);
        if (line[n] == '\n') {
            fputc('\n', file);
            n++;
        }
        line += n;
    }
    fputs("</pre>\n</body>\n</html>\n", file);
}

mm_status plan_page_save(const char *path, const picture *picture, const char *text) {
    char *bytes = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&bytes, &n_bytes);
    if (!file) return mm_fail(MM_ERR_NOMEM, "out of memory for the page %s", path);
    print_page(file, picture, text);
    bool good = !ferror(file);
    good &= fclose(file) == 0;
    mm_status status =
        good ? mm_atomic_file_save(path, bytes, n_bytes) : mm_fail(MM_ERR_NOMEM, "out of memory for the page %s", path);
    free(bytes);
    return status;
}
