/* SPDX-License-Identifier: MIT */
/* Fits a machine's rates to measured facts of graphs. */
#ifndef TOOLS_MEASURE_HOST_FIT_H
#define TOOLS_MEASURE_HOST_FIT_H

#include <jansson.h>

#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"
#include "tools/measure/device_pairs.h"
#include "tools/measure/device_speed.h"

enum host_fit_product { HOST_FIT_CONV, HOST_FIT_WINOGRAD, HOST_FIT_LINEAR, HOST_FIT_ATTENTION, HOST_FIT_PRODUCTS };

/* Sums of work and of its time. */
typedef struct host_fit_sum {
    double work, ns;
} host_fit_sum;

typedef struct host_fit {
    host_fit_sum product[HOST_FIT_PRODUCTS]; /* work: operations */
    host_fit_sum layer[MM_LAYER_KINDS];      /* of layers without products; work: bytes */
    int64_t launch_ns;                       /* the shortest step's time; 0: no step yet */
    int n;                                   /* graphs that were added; the next are sums over them */
    double out, in, out_both, in_both, issue_ns, contention, link_contention;
} host_fit;

/* Adds a graph with measured times of all steps and of copies. */
void host_fit_add(host_fit *fit, const mm_graph *graph, const mm_graph_facts *facts);

/* The rates as a machine file's JSON. pairs: contention of all pairs that can run beside each other; counts at most as
 * if they took turns. MM_ERR_INVALID: steps of a kind that every machine has were not measured. The caller releases
 * it. */
MM_CHECKED mm_status host_fit_machine(const host_fit *fit, const device_speed *speed, const device_pairs *pairs,
                                      int64_t memory_bytes, json_t **machine_out);

#endif
