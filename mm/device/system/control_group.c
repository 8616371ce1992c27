/* SPDX-License-Identifier: MIT */
#include "mm/device/system/control_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/system_file.h"

int mm_group_numbers(const char *folder, const char *file, const char *key, int wanted, int64_t numbers[]) {
    char path[MM_GROUP_PATH_CAPACITY + 64], text[8192];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!mm_system_file_read(path, text, sizeof text)) return 0;
    const char *at = mm_system_file_after(text, key), *end = at ? at + strcspn(at, "\n") : NULL;
    for (int used; at && n < wanted && sscanf(at, "%" SCNd64 "%n", &numbers[n], &used) == 1 && at + used <= end;) {
        at += used;
        n++;
    }
    return n;
}

/* Whether a comma-separated list contains the name. */
static bool lists(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return true;
    return false;
}

/* ---------------------------------------------------------------- mounts */

/* The group of this process in one hierarchy, by a line of /proc/self/cgroup. */
typedef struct group {
    const char *controllers; /* separated by commas; "": version 2 */
    const char *path;        /* from the hierarchy's top, or from the top that a namespace shows */
    const char *root, *controller;
    mm_group_fn fn;
    void *ctx;
} group;

/* /proc/self/mountinfo writes spaces and the like as \ and three octal digits. */
static void unescape(char *text) {
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned code;
        if (*from == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
            *to = (char)code;
            from += 4;
        } else
            *to = *from++;
    }
    *to = '\0';
}

/* The path of the group below a mount that shows the hierarchy from `top` on. If the group is not below `top`, the
 * paths are of different namespaces, and the whole path is tried. */
static const char *below(const char *path, const char *top) {
    const size_t length = strcmp(top, "/") == 0 ? 0 : strlen(top);
    const bool inside = strncmp(path, top, length) == 0 && (path[length] == '/' || path[length] == '\0');
    const char *rest = inside ? path + length : path;
    return strcmp(rest, "/") == 0 || strstr(rest, "/..") ? "" : rest; /* "/..": above what the namespace shows */
}

/* Visits the folders from the group's own up to the mount. */
static void climb(const group *g, const char *mount, const char *top) {
    char folder[MM_GROUP_PATH_CAPACITY];
    const size_t least = strlen(g->root) + strlen(mount);
    const int length = snprintf(folder, sizeof folder, "%s%s%s", g->root, mount, below(g->path, top));
    if (length < 0 || (size_t)length >= sizeof folder) return;
    for (;;) {
        g->fn(g->ctx, folder, !*g->controllers);
        char *slash = strlen(folder) > least ? strrchr(folder + least, '/') : NULL;
        if (!slash) return;
        *slash = '\0';
    }
}

/* A line of /proc/self/mountinfo: "ID PARENT DEVICE TOP MOUNT OPTIONS [TAGS] - TYPE SOURCE OPTIONS". Returns whether
 * it mounts the group's hierarchy. */
static bool climb_mount(const group *g, char *line) {
    char *field[5], *type = strstr(line, " - "), *kept;
    for (int i = 0; i < 5; i++)
        if (!(field[i] = strtok_r(i == 0 ? line : NULL, " ", &kept)) || !type || field[i] > type) return false;
    const char *kind = strtok_r(type + 3, " ", &kept), *source = strtok_r(NULL, " ", &kept);
    const char *options = strtok_r(NULL, " \n", &kept);
    if (!kind || !source || strcmp(kind, *g->controllers ? "cgroup" : "cgroup2") != 0) return false;
    if (*g->controllers && (!options || !lists(options, g->controller))) return false;
    unescape(field[3]);
    unescape(field[4]);
    climb(g, field[4], field[3]);
    return true;
}

/* Where hierarchies are mounted if the system does not say. */
static void climb_usual_mounts(const group *g) {
    char mount[2][MM_GROUP_PATH_CAPACITY];
    if (!*g->controllers) {
        climb(g, "/sys/fs/cgroup", "/");
        return;
    }
    snprintf(mount[0], sizeof mount[0], "/sys/fs/cgroup/%s", g->controller);
    snprintf(mount[1], sizeof mount[1], "/sys/fs/cgroup/%s", g->controllers);
    for (int i = 0; i < (strcmp(mount[0], mount[1]) == 0 ? 1 : 2); i++) climb(g, mount[i], "/");
}

static void climb_mounts(const group *g) {
    char path[MM_GROUP_PATH_CAPACITY], *line = NULL;
    size_t capacity = 0; /* the line of an overlay may have thousands of characters */
    bool any = false;
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", g->root);
    FILE *mounts = fopen(path, "re");
    while (mounts && getline(&line, &capacity, mounts) > 0) any |= climb_mount(g, line);
    free(line);
    if (mounts) fclose(mounts);
    if (!any) climb_usual_mounts(g);
}

/* Lines of /proc/self/cgroup are "ID:CONTROLLERS:/PATH". */
void mm_groups_visit(const char *root, const char *controller, mm_group_fn fn, void *ctx) {
    char path[MM_GROUP_PATH_CAPACITY], text[8 * MM_GROUP_PATH_CAPACITY], *controllers, *group_path, *rest = NULL;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!mm_system_file_read(path, text, sizeof text)) return;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!(controllers = strchr(line, ':')) || !(group_path = strchr(++controllers, ':'))) continue;
        *group_path++ = '\0';
        if (*controllers && !lists(controllers, controller)) continue;
        climb_mounts(&(group){controllers, group_path, root, controller, fn, ctx});
    }
}
