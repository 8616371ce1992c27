/* SPDX-License-Identifier: MIT */
/* Random elements on several ranks, and what must become of them. */
#ifndef TESTS_COMM_COMM_SUMS_H
#define TESTS_COMM_COMM_SUMS_H

#include "nets/comm/comm.h"

/* Begins sums, means and counts of random sizes, several at a time, as rank `rank` of `ranks` does, with random pauses;
 * agrees with the others while they are under way; and compares what comes with sums in the order of ranks. NULL: all
 * is right; else what is not. */
const char *comm_sums_try(comm *m, uint64_t seed);

#endif
