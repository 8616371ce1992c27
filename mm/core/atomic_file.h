/* A file that appears under its name only when it is complete: what the library itself writes. */
#ifndef MM_CORE_ATOMIC_FILE_H
#define MM_CORE_ATOMIC_FILE_H

#include <stdio.h>

#include "mm/core/status.h"

/* Writes the contents. Errors of the file itself are found afterwards. */
typedef mm_status (*mm_file_writer)(const void *ctx, FILE *file);

/* Replaces the file at `path`: writes to a new one beside it, flushes that to disk, and gives it the name. On a failure
 * the new one is removed, and what was there stays. A link stays: the file that it leads to is
 * replaced, or made. what: begins the
 * message, such as "facts". MM_ERR_IO, MM_ERR_NOMEM, and errors of the writer. */
MM_CHECKED mm_status mm_file_replace(const char *what, const char *path, mm_file_writer writer, const void *ctx);

#endif
