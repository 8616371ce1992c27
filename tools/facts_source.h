/* Where times come from: a file of facts, measured of one network and batch, or of a machine's rates, from which those
 * of any network and batch follow. */
#ifndef TOOLS_FACTS_SOURCE_H
#define TOOLS_FACTS_SOURCE_H

#include "tools/machine.h"

typedef struct facts_source {
    const char *path; /* borrowed */
    bool is_machine;
    machine machine;
    mm_facts *facts; /* NULL: of a machine */
    bool for_run;    /* they are for plans that are run here: MM_FACTS_TIMES */
    char net[128];   /* of facts: what they were measured of; "" if the file does not say */
    int64_t batch;   /* 0 */
    int threads;     /* of facts: of the host device that they were measured on; 0: the file does not say */
} facts_source;

/* MM_ERR_IO, MM_ERR_FORMAT: names the file. */
MM_CHECKED mm_status facts_source_open(const char *path, facts_source *source_out);
void facts_source_close(facts_source *source);

/* Adds the times to facts of a graph; errors of mm_facts_apply. */
MM_CHECKED mm_status facts_source_fill(const facts_source *source, const mm_graph *graph, mm_facts *facts);

#endif
