/* SPDX-License-Identifier: MIT */
#include "tools/args/json_file.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/json_text.h"

bool json_file_is_output(const char *path) {
    static const char *const names[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (size_t i = 0; path && i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

bool json_file_is_stream(const char *path) {
    return json_file_is_output(path) || (path && mm_atomic_file_is_stream(path));
}

FILE *json_file_beside(const char *path) { return json_file_is_output(path) ? stderr : stdout; }

static mm_status print(const char *text) {
    if (fprintf(stdout, "%s\n", text) >= 0 && fflush(stdout) == 0) return MM_OK;
    const int why = mm_stream_errno(stdout);
    clearerr(stdout); /* so that main does not say it again */
    return mm_fail(MM_ERR_IO, "cannot write to standard output: %s", strerror(why));
}

static atomic_bool lacked; /* an allocation of jansson's has failed */

static void *take(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) atomic_store(&lacked, true);
    return memory;
}

void json_file_watch(void) { json_set_alloc_funcs(take, free); }

mm_status json_file_save(const char *path, json_t *json) {
    char *text = json ? mm_json_print(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (!text || atomic_load(&lacked)) {
        free(text);
        return mm_fail(MM_ERR_NOMEM, "out of memory for %s", path);
    }
    mm_status status = json_file_is_output(path) ? print(text) : mm_atomic_file_save(path, text, strlen(text));
    free(text);
    return status;
}
