/* SPDX-License-Identifier: MIT */
/* A network that is trained for a few iterations under policies, to measure facts. */
#ifndef TOOLS_MEASURE_SUBJECT_H
#define TOOLS_MEASURE_SUBJECT_H

#include "tools/measure/collect.h"

/* Default policies. With when=always they copy or compress every map that they can, so that all times are measured. */
#define SUBJECT_POLICIES "liveness,vdnn-all:when=always,freelunch:when=always"

typedef struct subject {
    const nets_net *net;
    int64_t batch, iterations; /* of each policy; the first iteration does not count */
    const target *target;      /* initialised */
} subject;

/* Runs the subject under each policy, and measures the device (collector_measure_device). The caller calls
 * collector_fini. */
MM_CHECKED mm_status subject_collect(const subject *of, const arg_texts *policies, collector *c_out);

#endif
