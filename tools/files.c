#include "tools/files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/io/safetensors.h"

/* Behind links; of a file that is not there, its folder is. False: neither. */
static bool resolve(const char *path, char real[PATH_MAX]) {
    char folder[PATH_MAX], behind[PATH_MAX];
    if (realpath(path, real)) return true;
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s%s", length, path, slash ? "/" : ".");
    if (!realpath(folder, behind)) return false;
    return snprintf(real, PATH_MAX, "%s/%s", behind, slash ? slash + 1 : path) < PATH_MAX;
}

bool files_are_same(const char *a, const char *b) {
    char real_a[PATH_MAX], real_b[PATH_MAX];
    if (!resolve(a, real_a) || !resolve(b, real_b)) return strcmp(a, b) == 0;
    return strcmp(real_a, real_b) == 0;
}

mm_status files_check(const named_file *files, int n) {
    for (int i = 0; i < n; i++) {
        if (files[i].path && files[i].written) MM_TRY(nets_safetensors_writable(files[i].path));
        for (int j = 0; j < i; j++) {
            bool clash = files[i].path && files[j].path && (files[i].written || files[j].written);
            if (clash && files_are_same(files[i].path, files[j].path))
                return mm_fail(MM_ERR_INVALID, "%s and %s name the same file, %s", files[j].option, files[i].option,
                               files[i].path);
        }
    }
    return MM_OK;
}
