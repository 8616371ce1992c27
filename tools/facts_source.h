/* Where times come from: a file of facts, measured of one network and batch, or of a machine's rates, from which those
 * of any network and batch follow. */
#ifndef TOOLS_FACTS_SOURCE_H
#define TOOLS_FACTS_SOURCE_H

#include "tools/machine.h"

typedef struct facts_source {
    const char *path; /* borrowed */
    bool is_machine;
    machine machine;
    char net[128]; /* of facts: what they were measured of; "" if the file does not say */
    int64_t batch; /* 0 */
    int threads;   /* of facts: of the host device that they were measured on; 0: the file does not say */
} facts_source;

/* MM_ERR_IO, MM_ERR_FORMAT: names the file. */
MM_CHECKED mm_status facts_source_open(const char *path, facts_source *source_out);

/* Adds the times to facts of a graph; errors of mm_facts_load. */
MM_CHECKED mm_status facts_source_fill(const facts_source *source, const mm_graph *graph, mm_facts *facts);

/* Both. */
MM_CHECKED mm_status facts_source_load(const char *path, const mm_graph *graph, mm_facts *facts);

#endif
