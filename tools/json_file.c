#include "tools/json_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static mm_status save(const char *name, const json_t *json) {
    char temporary[PATH_MAX], behind_links[PATH_MAX];
    const char *path = realpath(name, behind_links) ? behind_links : name;
    if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof temporary)
        return mm_fail(MM_ERR_IO, "cannot write %s: the name is too long", path);
    if (json_dump_file(json, temporary, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && rename(temporary, path) == 0)
        return MM_OK;
    mm_status status = mm_fail(MM_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    unlink(temporary);
    return status;
}

mm_status json_file_save(const char *path, json_t *json) {
    if (!json) return mm_fail(MM_ERR_NOMEM, "out of memory for %s", path);
    mm_status status = save(path, json);
    json_decref(json);
    return status;
}
