/* SPDX-License-Identifier: MIT */
#include "tests/nets/algorithms_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Set by the first call; valid until the process ends. */
static char path[512];

static void remove_it(void) { unlink(path); }

const char *algorithms_file(void) {
    if (path[0]) return path;
    const char *folder = getenv("TEST_TMPDIR");
    snprintf(path, sizeof path, "%s/algorithms.%d", folder ? folder : "/tmp", (int)getpid());
    remove_it(); /* a file that an earlier process with this process id left */
    atexit(remove_it);
    return path;
}
