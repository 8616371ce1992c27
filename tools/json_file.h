/* JSON to a file, whole or not at all. */
#ifndef TOOLS_JSON_FILE_H
#define TOOLS_JSON_FILE_H

#include <jansson.h>

#include "mm/core/status.h"

/* Takes the reference. MM_ERR_IO names the path. NULL: MM_ERR_NOMEM. */
MM_CHECKED mm_status json_file_save(const char *path, json_t *json);

#endif
