/* SPDX-License-Identifier: MIT */
#include "tools/args/files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/atomic_file.h"

enum { LINKS_MAX = 64 }; /* symbolic links in a row; Linux follows at most 40 */

/* The absolute path, without links, of a file that does not exist. False: its folder does not exist. */
static bool resolve_new(const char *path, char real[PATH_MAX]) {
    char folder[PATH_MAX], behind[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s%s", length, path, slash ? "/" : ".");
    if (!realpath(folder, behind)) return false;
    return snprintf(real, PATH_MAX, "%s/%s", behind, slash ? slash + 1 : path) < PATH_MAX;
}

/* The target of the link `path`, relative to the folder that `path` is relative to. False: not a link. */
static bool follow(const char *path, char next[PATH_MAX]) {
    char to[PATH_MAX];
    ssize_t length = readlink(path, to, sizeof to - 1);
    if (length < 0) return false;
    to[length] = '\0';
    const char *slash = strrchr(path, '/');
    int folder = slash && to[0] != '/' ? (int)(slash - path) + 1 : 0;
    return snprintf(next, PATH_MAX, "%.*s%s", folder, path, to) < PATH_MAX;
}

/* The absolute path, with links followed, of a file that may not exist. False: no such folder, or a circle of links. */
static bool resolve(const char *path, char real[PATH_MAX]) {
    char at[PATH_MAX], next[PATH_MAX];
    if (realpath(path, real)) return true;
    if (snprintf(at, sizeof at, "%s", path) >= PATH_MAX) return false;
    for (int i = 0; i < LINKS_MAX; i++) {
        if (!follow(at, next)) return resolve_new(at, real);
        memcpy(at, next, sizeof at);
    }
    return false;
}

bool files_are_same(const char *a, const char *b) {
    char real_a[PATH_MAX], real_b[PATH_MAX];
    if (!resolve(a, real_a) || !resolve(b, real_b)) return strcmp(a, b) == 0;
    return strcmp(real_a, real_b) == 0;
}

const char *files_net(const char *net) {
    static const char *const prefixes[] = {"file:", "onnx:"};
    for (size_t i = 0; net && i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(net, prefixes[i], strlen(prefixes[i])) == 0) return net + strlen(prefixes[i]);
    return NULL;
}

/* For data in one file or folder: the length of the prefix before the path, such as "text:". 0: other data. */
static size_t one_path(const char *spec, bool *folder_out) {
    static const struct {
        const char *prefix;
        bool folder;
    } table[] = {{"cifar10:", true}, {"fashion-mnist:", true}, {"text:", false}, {"tokens:", false}};
    *folder_out = false;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strncmp(spec, table[i].prefix, strlen(table[i].prefix)) != 0) continue;
        *folder_out = table[i].folder;
        return strlen(table[i].prefix);
    }
    return 0;
}

void files_data(const char *spec, data_files *files_out) {
    static const char prefix[] = "files:";
    bool folder = false;
    *files_out = (data_files){.images = NULL};
    const size_t one = spec ? one_path(spec, &folder) : 0;
    if (!spec || folder || (one == 0 && strncmp(spec, prefix, sizeof prefix - 1) != 0)) return;
    snprintf(files_out->text, sizeof files_out->text, "%s", spec + (one > 0 ? one : sizeof prefix - 1));
    if (one > 0) {
        files_out->images = files_out->text;
        return;
    }
    char *comma = strchr(files_out->text, ',');
    if (!comma) return; /* the reader of the data refuses it */
    *comma = '\0';
    files_out->images = files_out->text;
    files_out->labels = comma + 1;
}

mm_status files_absolute(const char *spec, char **spec_out) {
    char first[PATH_MAX], second[PATH_MAX];
    data_files files;
    bool folder;
    const size_t one = one_path(spec, &folder);
    *spec_out = NULL;
    files_data(spec, &files);
    if (one > 0 ? !realpath(spec + one, first)
                : !files.images || !realpath(files.images, first) || !realpath(files.labels, second))
        return MM_OK;
    if (one == 0 && (strchr(first, ',') || strchr(second, ','))) return MM_OK; /* the reader splits at a comma */
    int length = one > 0 ? asprintf(spec_out, "%.*s%s", (int)one, spec, first)
                         : asprintf(spec_out, "files:%s,%s", first, second);
    if (length >= 0) return MM_OK;
    *spec_out = NULL;
    return mm_fail(MM_ERR_NOMEM, "out of memory for the path of %s", spec);
}

/* False for --json -, which is standard output. */
static bool is_file(const named_file *f) {
    return f->path && !(strcmp(f->option, "--json") == 0 && strcmp(f->path, "-") == 0);
}

/* Whether the option's file would be lost if it were written twice: a pipe or a device has nothing to lose. */
static bool can_be_lost(const named_file *f) { return is_file(f) && !mm_atomic_file_is_stream(f->path); }

static mm_status check_written(const named_file *f) {
    if (strcmp(f->path, "-") == 0)
        return mm_fail(MM_ERR_INVALID, "%s -: only --json can go to standard output; a file of that name is ./-",
                       f->option);
    return mm_atomic_file_check(f->path);
}

mm_status files_check(const named_file *files, int n) {
    for (int i = 0; i < n; i++) {
        if (is_file(&files[i]) && files[i].use == FILE_WRITTEN) MM_TRY(check_written(&files[i]));
        for (int j = 0; j < i; j++) {
            bool clash = can_be_lost(&files[i]) && can_be_lost(&files[j]) &&
                         (files[i].use != FILE_READ || files[j].use != FILE_READ);
            if (clash && files_are_same(files[i].path, files[j].path))
                return mm_fail(MM_ERR_INVALID, "%s and %s name the same file, %s", files[j].option, files[i].option,
                               files[i].path);
        }
    }
    return MM_OK;
}
