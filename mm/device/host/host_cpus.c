/* SPDX-License-Identifier: MIT */
/* The number of CPUs that this process may use, by the scheduler's set and the limits of its control groups. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/host/host_pool.h"

enum { PATH_CAPACITY = 1024 };

/* Number of CPUs that are allowed by a quota: `quota` us of CPU time in each `period` us. 0: no limit. */
static int cpus_of(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    long long cpus = (quota + period - 1) / period;
    return cpus < MM_HOST_THREADS_MOST ? (int)cpus : MM_HOST_THREADS_MOST;
}

static bool read_line(const char *path, char *line, int capacity) {
    FILE *file = fopen(path, "re");
    bool read = file && fgets(line, capacity, file);
    if (file) fclose(file);
    return read;
}

/* Reads "QUOTA PERIOD" or "max PERIOD". */
static int limit_v2(const char *folder) {
    char path[PATH_CAPACITY + 32], line[64];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    return read_line(path, line, sizeof line) && sscanf(line, "%lld %lld", &quota, &period) == 2
               ? cpus_of(quota, period)
               : 0;
}

static int limit_v1(const char *folder) {
    char path[PATH_CAPACITY + 32], quota[64], period[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, quota, sizeof quota)) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    return read_line(path, period, sizeof period) ? cpus_of(atoll(quota), atoll(period)) : 0;
}

/* The lowest limit of a control group and its ancestors. In a container the group's path may be the machine's, which
 * does not exist there; the files at the root are then the container's. */
static int limit_up_from(const char *root, const char *mount, const char *group, int (*limit)(const char *folder)) {
    char folder[PATH_CAPACITY];
    int least = 0;
    snprintf(folder, sizeof folder, "%s%s%s", root, mount, group);
    size_t top = strlen(root) + strlen(mount);
    if (strlen(folder) < top) return 0;
    for (;;) {
        int cpus = limit(folder);
        if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
        char *slash = strrchr(folder + top, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* Whether a comma-separated list contains the name. */
static bool lists(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += length)
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return true;
    return false;
}

/* Lines are "ID:CONTROLLERS:/PATH"; the one without controllers is version 2's. */
static int limit_of_groups(const char *root) {
    static const char *const V1[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    char path[PATH_CAPACITY + 32], line[PATH_CAPACITY], *controllers, *group;
    int least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (!(controllers = strchr(line, ':')) || !(group = strchr(++controllers, ':'))) continue;
        *group++ = '\0';
        bool v2 = controllers[0] == '\0';
        for (size_t i = 0; i < (v2 ? 1 : sizeof V1 / sizeof V1[0]); i++) {
            int cpus = v2                          ? limit_up_from(root, "/sys/fs/cgroup", group, limit_v2)
                       : lists(controllers, "cpu") ? limit_up_from(root, V1[i], group, limit_v1)
                                                   : 0;
            if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
        }
    }
    if (file) fclose(file);
    return least;
}

int mm_host_cpus_in(const char *root, int scheduled) {
    int limit = limit_of_groups(root), cpus = scheduled;
    if (limit > 0 && limit < cpus) cpus = limit;
    return cpus < 1 ? 1 : cpus > MM_HOST_THREADS_MOST ? MM_HOST_THREADS_MOST : cpus;
}

int mm_host_cpus(void) {
    cpu_set_t set;
    /* This fails if the machine has more CPUs than a cpu_set_t holds, which is more than MM_HOST_THREADS_MOST. */
    int scheduled = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : MM_HOST_THREADS_MOST;
    return mm_host_cpus_in("", scheduled);
}
