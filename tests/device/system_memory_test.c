/* SPDX-License-Identifier: MIT */
/* The host's memory by made-up trees of /proc and /sys: a machine alone, and control groups of both versions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/device/system/system_memory.h"
#include "tests/core/test_case.h"
#include "tests/device/made_file.h"

#define MEMINFO   "MemTotal:       1000000 kB\nMemFree:         100000 kB\nMemAvailable:    600000 kB\n"
#define MACHINE   1024000000
#define AVAILABLE 614400000
#define OVERLAY   "23 1 0:20 / / rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/c\n"
#define V2        OVERLAY "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1        OVERLAY "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
#define SELF      "/proc/self/cgroup"
#define MOUNTS    "/proc/self/mountinfo"

typedef struct tree {
    const char *name;
    const char *files[16][2]; /* path, text */
    int64_t total, free;      /* expected */
} tree;

static const tree trees[] = {
    {"no groups", {{NULL}}, MACHINE, AVAILABLE},
    {"version 2 without a limit",
     {{SELF, "0::/a/b\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/a/b/memory.max", "max\n"},
      {"/sys/fs/cgroup/a/b/memory.high", "max\n"},
      {"/sys/fs/cgroup/a/b/memory.current", "5000000\n"}},
     MACHINE,
     AVAILABLE},
    {"version 2: the working set is used, inactive files are not",
     {{SELF, "0::/a\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/a/memory.max", "150000000\n"},
      {"/sys/fs/cgroup/a/memory.high", "max\n"},
      {"/sys/fs/cgroup/a/memory.current", "80000000\n"},
      {"/sys/fs/cgroup/a/memory.stat", "anon 10000000\nactive_file 20000000\ninactive_file 50000000\n"}},
     150000000,
     120000000},
    {"version 2: more cache is counted than there is memory",
     {{SELF, "0::/a\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/a/memory.max", "150000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "8\n"},
      {"/sys/fs/cgroup/a/memory.stat", "inactive_file 50000000\n"}},
     150000000,
     150000000},
    {"version 2: the group above has the least limit",
     {{SELF, "0::/a/b/c\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/a/b/c/memory.max", "400000000\n"},
      {"/sys/fs/cgroup/a/b/c/memory.current", "1000000\n"},
      {"/sys/fs/cgroup/a/memory.max", "200000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "150000000\n"}},
     200000000,
     50000000},
    {"version 2: the least limit is not where least is free",
     {{SELF, "0::/a/b\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/a/b/memory.max", "200000000\n"},
      {"/sys/fs/cgroup/a/memory.max", "400000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "390000000\n"}},
     200000000,
     10000000},
    {"version 2: memory.high stops processes before memory.max kills them",
     {{SELF, "0::/a\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/a/memory.max", "200000000\n"},
      {"/sys/fs/cgroup/a/memory.high", "120000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "20000000\n"}},
     120000000,
     100000000},
    {"version 2: the group is over its limit",
     {{SELF, "0::/a\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/a/memory.max", "100000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "100000001\n"}},
     100000000,
     0},
    {"version 2: a limit above the machine is none",
     {{SELF, "0::/a\n"}, {MOUNTS, V2}, {"/sys/fs/cgroup/a/memory.max", "9000000000\n"}},
     MACHINE,
     AVAILABLE},
    {"version 2 in a container: only the top is there, and is the container's",
     {{SELF, "0::/system.slice/docker-1.scope\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/memory.max", "300000000\n"},
      {"/sys/fs/cgroup/memory.current", "100000000\n"}},
     300000000,
     200000000},
    {"version 2 in a namespace: the path leads out of it",
     {{SELF, "0::/../other\n"},
      {MOUNTS, V2},
      {"/sys/fs/cgroup/memory.max", "300000000\n"},
      {"/sys/fs/other/memory.max", "1000\n"}},
     300000000,
     300000000},
    {"version 2, mounted elsewhere, with a space in the name",
     {{SELF, "0::/a\n"},
      {MOUNTS, "30 23 0:26 / /control\\040groups rw - cgroup2 cgroup2 rw\n"},
      {"/control groups/a/memory.max", "300000000\n"},
      {"/sys/fs/cgroup/a/memory.max", "1000\n"}},
     300000000,
     300000000},
    {"version 2: the system does not say where",
     {{SELF, "0::/a\n"}, {"/sys/fs/cgroup/a/memory.max", "300000000\n"}},
     300000000,
     300000000},
    {"version 1",
     {{SELF, "5:cpu,cpuacct:/x\n4:memory:/a/b\n"},
      {MOUNTS, V1},
      {"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "250000000\n"},
      {"/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "100000000\n"},
      {"/sys/fs/cgroup/memory/a/b/memory.stat", "inactive_file 1\ntotal_inactive_file 30000000\n"},
      {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"},
      {"/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n"}},
     250000000,
     180000000},
    {"version 1 in a container: the mount shows the hierarchy from the group on",
     {{SELF, "4:memory:/docker/1/b\n"},
      {MOUNTS, "35 31 0:32 /docker/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
      {"/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "250000000\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "240000000\n"},
      {"/sys/fs/cgroup/memory/docker/1/b/memory.limit_in_bytes", "1000\n"}},
     240000000,
     240000000},
    {"both versions: memory is version 1's",
     {{SELF, "4:memory:/a\n0::/a\n"},
      {MOUNTS, V1 "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
      {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "250000000\n"},
      {"/sys/fs/cgroup/unified/a/cgroup.procs", "1\n"}},
     250000000,
     250000000},
    {"both versions: memory is version 2's",
     {{SELF, "4:cpu:/a\n0::/a\n"},
      {MOUNTS, "35 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
               "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"},
      {"/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1000\n"},
      {"/sys/fs/cgroup/unified/a/memory.max", "260000000\n"}},
     260000000,
     260000000},
    {"files that say something else",
     {{SELF, "0::/a\nnonsense\n7:\n"},
      {MOUNTS, "nonsense\n\n30 23 - cgroup2\n" V2},
      {"/sys/fs/cgroup/a/memory.max", "nonsense\n"},
      {"/sys/fs/cgroup/memory.max", ""}},
     MACHINE,
     AVAILABLE},
    {"usage that cannot be read",
     {{SELF, "0::/a\n"}, {MOUNTS, V2}, {"/sys/fs/cgroup/a/memory.max", "200000000\n"}},
     200000000,
     200000000},
};

TEST_CASE(the_least_of_what_is_available_and_of_what_groups_leave_is_free) {
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        const tree *t = &trees[i];
        char root[64] = "/tmp/mm-memory-XXXXXX", command[96];
        mm_host_memory memory;
        assert_non_null(mkdtemp(root));
        made_file(root, "/proc/meminfo", MEMINFO);
        for (int f = 0; t->files[f][0]; f++) made_file(root, t->files[f][0], t->files[f][1]);
        mm_host_memory_get_in(root, &memory);
        snprintf(command, sizeof command, "rm -rf %s", root);
        assert_int_equal(system(command), 0);
        assert_int_equal(memory.machine_bytes, MACHINE);
        if (memory.total_bytes != t->total || memory.free_bytes != t->free)
            fail_msg("%s: %" PRId64 " bytes in all, %" PRId64 " free", t->name, memory.total_bytes, memory.free_bytes);
    }
}

TEST_CASE(a_machine_that_says_nothing_has_what_the_c_library_says) {
    mm_host_memory memory, here;
    mm_host_memory_get_in("/nowhere", &memory);
    mm_host_memory_get(&here);
    assert_int_equal(memory.total_bytes, memory.machine_bytes);
    assert_in_range(memory.free_bytes, 1, memory.total_bytes);
    assert_in_range(here.free_bytes, 1, here.total_bytes);
    assert_in_range(here.total_bytes, 1, here.machine_bytes);
    mm_host_memory_get(NULL);
}
