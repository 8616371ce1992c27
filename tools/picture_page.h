/* What every picture file has in common. */
#ifndef TOOLS_PICTURE_PAGE_H
#define TOOLS_PICTURE_PAGE_H

#include <stdio.h>

#include "mm/core/status.h"

/* A text's characters as XML spells them. */
void picture_text(FILE *file, const char *raw);

/* A whole file or none. MM_ERR_IO names the path. */
MM_CHECKED mm_status picture_write(const char *path, const char *bytes, size_t n_bytes);

#endif
