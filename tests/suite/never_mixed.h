/* SPDX-License-Identifier: MIT */
/* What a training on a disk that fails may leave behind. */
#ifndef TESTS_SUITE_NEVER_MIXED_H
#define TESTS_SUITE_NEVER_MIXED_H

#include "tests/suite/suite_rig.h"

typedef struct never_mixed {
    int failed; /* runs in which an access failed */
    int saved;  /* of these, runs in which all that was learned could be read afterwards */
} never_mixed;

/* Runs iterations with homes on the disk again and again; access number 0, stride, 2 * stride, ... of the disk fails,
 * until a run ends before its turn. The iteration, or the next, then fails with the disk's name. What can be saved is
 * what was learned before or after an iteration; else saving fails. With new values everything works as before. */
never_mixed suite_never_mixed(const suite_net *s, const mm_options *options, int stride);

#endif
