/* SPDX-License-Identifier: MIT */
/* What this host can: the rates that bound how fast a network's steps can be. */
#ifndef TOOLS_MEASURE_HOST_CEILING_H
#define TOOLS_MEASURE_HOST_CEILING_H

#include "tools/need/target.h"

typedef struct host_ceiling {
    double flops_per_s; /* of a product of 2048 x 2048 matrices, of the target's precision, on its threads */
    double bytes_per_s; /* read and written; of a sum of arrays on its threads, or of a copy if that is faster */
} host_ceiling;

/* Measures the rates: of five rounds the fastest. Takes a second or two, and 256 MiB. target: initialised, of the host
 * device. MM_ERR_NOMEM. */
MM_CHECKED mm_status host_ceiling_measure(const target *target, host_ceiling *ceiling_out);

#endif
