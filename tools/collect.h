/* Facts of one network and batch, collected while policies run it: the steps' times from a run without side streams,
 * the codecs' times from the runs that use them, and how much side streams slow compute from comparing the two. */
#ifndef TOOLS_COLLECT_H
#define TOOLS_COLLECT_H

#include "tools/requirement.h"
#include "tools/session.h"

typedef struct collector {
    nets_backend *backend;
    nets_lowered *lowered;
    mm_codec *codecs[MM_MAX_CODECS];
    mm_facts *facts;
    int64_t copied_bytes[2];    /* the largest copy in, and out, of which the link's rates are */
    int64_t alone_ns;           /* of all steps, in a run without side streams */
    int64_t beside_ns, side_ns; /* of all steps, and of the side streams, in a run with them */
} collector;

/* For every codec that any of the policies uses. */
MM_CHECKED mm_status collector_init(collector *c, const nets_net *net, int64_t batch, const char *device,
                                    const arg_texts *policies);
void collector_fini(collector *c);

/* Takes what a session measured (mm_options.measure_times). */
MM_CHECKED mm_status collector_add(collector *c, session *s);

/* Adds what was collected to facts of the same graph, or of an equal one; of codecs that it does not know, nothing. A
 * time_source's fill. */
mm_status collector_fill(const void *collector, const mm_graph *graph, mm_facts *facts);

MM_CHECKED mm_status collector_save(const collector *c, const char *path);

#endif
