/* SPDX-License-Identifier: MIT */
#include "tools/host_rates/cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mm/core/atomic_file.h"
#include "mm/core/json_text.h"

/* ---------------------------------------------------------------- what rates depend on */

enum { KEYS = 4, VALUE_CAPACITY = 128 };

static const char *const KEY[KEYS] = {"cpu", "threads", "library", "mm"};
static const char *const WHAT[KEYS] = {"CPU", "threads", "library", "mm"};

typedef struct identity {
    char value[KEYS][VALUE_CAPACITY];
} identity;

static mm_status identify(const target *target, identity *id) {
    mm_device *device;
    mm_device_description description;
    char library[NETS_LIBRARY_CAPACITY] = "";
    MM_TRY(mm_device_create(target->device, NULL, &device));
    mm_device_describe(device, &description);
    mm_device_destroy(device);
    if (target->backend->ops->library) target->backend->ops->library(library);
    snprintf(id->value[0], VALUE_CAPACITY, "%.127s", description.model);
    snprintf(id->value[1], VALUE_CAPACITY, "%d", target->backend->threads);
    snprintf(id->value[2], VALUE_CAPACITY, "%s", library);
    snprintf(id->value[3], VALUE_CAPACITY, "%s", mm_version());
    return MM_OK;
}

/* ---------------------------------------------------------------- the path */

/* The folder for caches. By the XDG Base Directory Specification a path that is not absolute is ignored. */
static const char *folder_of(const char **below_out) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *below_out = "";
    if (cache && *cache == '/') return cache;
    *below_out = "/.cache";
    return home && *home == '/' ? home : NULL;
}

mm_status host_rates_path(int threads, char path[PATH_MAX]) {
    const char *below, *folder = folder_of(&below);
    path[0] = '\0';
    if (!folder || snprintf(path, PATH_MAX, "%s%s/mm/host-%d.json", folder, below, threads) >= PATH_MAX)
        return mm_fail(MM_ERR_NOT_FOUND, "no folder for rates: set XDG_CACHE_HOME to an absolute path");
    return MM_OK;
}

/* Makes the folders above the file. What fails shows when the file is written. */
static void make_folders(const char *path) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *p = folder + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        (void)mkdir(folder, 0777);
        *p = '/';
    }
}

/* ---------------------------------------------------------------- writing */

mm_status host_rates_save(const target *target, json_t *machine, char path[PATH_MAX]) {
    char date[16] = "";
    identity id;
    struct tm day;
    const time_t now = time(NULL);
    MM_TRY(host_rates_path(target->backend->threads, path));
    MM_TRY(identify(target, &id));
    if (gmtime_r(&now, &day)) strftime(date, sizeof date, "%Y-%m-%d", &day);
    json_t *host =
        json_pack("{ss ss}", "comment", "rates of one host: 'mm device --facts' measures them", "measured", date);
    bool whole = host != NULL;
    for (int k = 0; k < KEYS && whole; k++) whole = json_object_set_new(host, KEY[k], json_string(id.value[k])) == 0;
    if (json_object_set_new(machine, "host", host) != 0) whole = false;
    char *text = whole ? mm_json_print(machine, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    if (!text) return mm_fail(MM_ERR_NOMEM, "out of memory for the rates of this host");
    make_folders(path);
    mm_status status = mm_atomic_file_save(path, text, strlen(text));
    free(text);
    return status;
}

/* ---------------------------------------------------------------- reading */

static mm_status check(const char *path, const json_t *root, const identity *id) {
    const json_t *host = json_object_get(root, "host");
    for (int k = 0; k < KEYS; k++) {
        const char *there = json_string_value(json_object_get(host, KEY[k]));
        if (there && strcmp(there, id->value[k]) == 0) continue;
        return mm_fail(MM_ERR_FORMAT,
                       "%s: has the rates of another host (%s %.64s, here %s): measure them anew with 'mm "
                       "device --facts'",
                       path, WHAT[k], there ? there : "is missing", id->value[k]);
    }
    return MM_OK;
}

static mm_status read_root(const char *path, const json_t *root, const identity *id, machine *machine_out,
                           char measured[16]) {
    MM_TRY(check(path, root, id));
    MM_TRY(machine_read(path, root, machine_out));
    const char *date = json_string_value(json_object_get(json_object_get(root, "host"), "measured"));
    snprintf(measured, 16, "%.15s", date ? date : "");
    return MM_OK;
}

mm_status host_cache_read(const target *target, char path[PATH_MAX], machine *machine_out, char measured[16]) {
    identity id;
    json_t *root;
    MM_TRY(host_rates_path(target->backend->threads, path));
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return mm_fail(MM_ERR_NOT_FOUND, "%s: there is no such file", path);
    MM_TRY(identify(target, &id));
    MM_TRY(mm_json_read("file of rates ", path, JSON_REJECT_DUPLICATES, &root));
    const mm_status status = read_root(path, root, &id, machine_out, measured);
    json_decref(root);
    return status;
}
