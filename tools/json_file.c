#include "tools/json_file.h"

#include <stdlib.h>
#include <string.h>

#include "nets/io/temp_file.h"

static mm_status save(const char *path, const char *text) {
    nets_temp_file file;
    MM_TRY(nets_temp_file_create(path, &file));
    mm_status status = nets_temp_file_write(&file, text, (int64_t)strlen(text));
    if (status == MM_OK) return nets_temp_file_commit(&file);
    nets_temp_file_abandon(&file);
    return status;
}

mm_status json_file_save(const char *path, json_t *json) {
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text) return mm_fail(MM_ERR_NOMEM, "out of memory for %s", path);
    mm_status status = save(path, text);
    free(text);
    return status;
}
