/* SPDX-License-Identifier: MIT */
/* Random elements on several ranks, and their sums. */
#ifndef TESTS_COMM_COMM_SUMS_H
#define TESTS_COMM_COMM_SUMS_H

#include "nets/comm/comm.h"

/* Begins sums, means, counts and exchanges of random sizes, several at a time, with random pauses; calls comm_agree
 * while they run; and compares the results with sums in the order of ranks. Returns NULL, or what is wrong. */
const char *comm_sums_try(comm *m, uint64_t seed);

#endif
