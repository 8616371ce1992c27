/* SPDX-License-Identifier: MIT */
/* The number of CPUs that this process may use, by the scheduler's set and the limits of its control groups. */
#include <sched.h>

#include "mm/device/host/host_pool.h"
#include "mm/device/system/control_group.h"

/* An mm_group_fn. ctx: the least number of CPUs that a quota allows, rounded up; 0: there is no quota so far. A quota
 * is so many us of CPU time in each period, also in us. */
static void look_at(void *ctx, const char *folder, bool v2) {
    int *least = ctx;
    int64_t of[2]; /* quota, period */
    const bool known = v2 ? mm_group_numbers(folder, "cpu.max", "", 2, of) == 2
                          : mm_group_numbers(folder, "cpu.cfs_quota_us", "", 1, &of[0]) == 1 &&
                                mm_group_numbers(folder, "cpu.cfs_period_us", "", 1, &of[1]) == 1;
    if (!known || of[0] <= 0 || of[1] <= 0) return;
    const int64_t whole = of[0] / of[1] + (of[0] % of[1] > 0);
    const int cpus = whole < MM_HOST_THREADS_MOST ? (int)whole : MM_HOST_THREADS_MOST;
    if (*least == 0 || cpus < *least) *least = cpus;
}

int mm_host_cpus_in(const char *root, int scheduled) {
    int limit = 0, cpus = scheduled;
    mm_groups_visit(root, "cpu", look_at, &limit);
    if (limit > 0 && limit < cpus) cpus = limit;
    return cpus < 1 ? 1 : cpus > MM_HOST_THREADS_MOST ? MM_HOST_THREADS_MOST : cpus;
}

int mm_host_cpus(void) {
    cpu_set_t set;
    /* This fails if the machine has more CPUs than a cpu_set_t holds, which is more than MM_HOST_THREADS_MOST. */
    int scheduled = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : MM_HOST_THREADS_MOST;
    return mm_host_cpus_in("", scheduled);
}
