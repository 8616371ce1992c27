/* SPDX-License-Identifier: MIT */
/* A source of times: a file of facts, measured for one network and batch, or a file of a machine's rates, from which
 * the times of any network and batch follow. */
#ifndef TOOLS_FACTS_FACTS_SOURCE_H
#define TOOLS_FACTS_FACTS_SOURCE_H

#include "tools/facts/machine.h"

typedef struct facts_source {
    const char *path; /* borrowed */
    bool is_machine;
    machine machine;
    mm_facts *facts; /* NULL if is_machine */
    bool for_run;    /* for plans that run here: MM_FACTS_TIMES is taken, else MM_FACTS_ALL */
    int ranks;       /* times are those of one of so many devices (mm_facts_set_ranks); 0: of the only one */
    mm_sum_at sum_at;
    /* of facts: */
    char net[128]; /* the network that was measured; "" if the file does not say */
    int64_t batch; /* its batch; 0 if the file does not say */
    int threads;   /* CPU threads of the host device; 0 if the file does not say */
    /* of facts_source_study: */
    json_t *study; /* NULL: none */
    char layout[8];
} facts_source;

/* Reads a file of either kind. MM_ERR_IO, MM_ERR_FORMAT: the message names the file. */
MM_CHECKED mm_status facts_source_open(const char *path, facts_source *source_out);
void facts_source_close(facts_source *source);

/* Adds what codes of variable size take: text is "FILE", the JSON of `mm codecs --study`, or "FILE,LAYOUT"; without,
 * that of maps on the device, nhwc. Of several iterations the last counts. NULL: none. MM_ERR_IO, MM_ERR_FORMAT: the
 * message names the file; MM_ERR_INVALID: no such layout. */
MM_CHECKED mm_status facts_source_study(facts_source *source, const char *text);

/* Adds the times to the facts of a graph, and typical sizes of its codes to those that have been studied. Errors of
 * mm_facts_apply. */
MM_CHECKED mm_status facts_source_fill(const facts_source *source, const mm_graph *graph, mm_facts *facts);

#endif
