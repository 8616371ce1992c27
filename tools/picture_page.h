/* Shared by all picture files. */
#ifndef TOOLS_PICTURE_PAGE_H
#define TOOLS_PICTURE_PAGE_H

#include <stdio.h>

#include "mm/core/status.h"

/* Writes a text, escaped for XML. */
void picture_text(FILE *file, const char *raw);

/* Writes a file atomically. MM_ERR_IO names the path. */
MM_CHECKED mm_status picture_write(const char *path, const char *bytes, size_t n_bytes);

#endif
