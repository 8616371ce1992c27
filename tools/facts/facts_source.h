/* SPDX-License-Identifier: MIT */
/* A source of times: either facts files, measured for one network and one batch each, or a machine, whose rates give
 * the times of any network and batch: from a file, or by the name of a GPU (gpu.h). */
#ifndef TOOLS_FACTS_FACTS_SOURCE_H
#define TOOLS_FACTS_FACTS_SOURCE_H

#include "tools/facts/gpu.h"
#include "tools/facts/machine.h"

enum { FACTS_FILES_MOST = 24 }; /* chosen: `mm` tries fewer sub-batches of a batch */

typedef struct facts_source {
    const char *path; /* borrowed */
    bool is_machine;
    machine machine;
    const gpu *gpu;                    /* whose rates the machine has, by name; NULL: they are a file's */
    mm_facts *facts[FACTS_FILES_MOST]; /* n_facts of them, each of another batch */
    int n_facts;                       /* 0 if is_machine */
    bool only_between; /* the graph has other variants than were measured: let times follow also from its own batch */
    bool for_run;      /* plans will run on this machine: take only MM_FACTS_TIMES of the facts, else MM_FACTS_ALL */
    int64_t link_bytes_per_s; /* for_run with a machine: the rate of a simulated link, which counts; 0: none */
    int ranks;                /* times are those of one of `ranks` devices (mm_facts_set_ranks); 0: a single device */
    mm_sum_at sum_at;
    /* from the first facts file: */
    char net[128]; /* the network that was measured; "" if the file does not say */
    int64_t batch; /* its batch; 0 if the file does not say */
    int threads;   /* CPU threads of the host device; 0 if the file does not say */
    /* from facts_source_study: */
    json_t *study; /* NULL: none */
    char layout[8];
} facts_source;

/* Reads a file of either kind, or FILE,FILE,...: facts of one network, each measured with another batch. If there is no
 * such file, `path` may be the name of a GPU, unless it has '/' or '.'. MM_ERR_IO, MM_ERR_FORMAT: the message names the
 * file; MM_ERR_INVALID: several GPUs have that name, or the files do not go together. */
MM_CHECKED mm_status facts_source_open(const char *path, facts_source *source_out);
/* Whether that names several files, and not one with a comma in its name. */
bool facts_source_is_list(const char *path);
/* Takes the rates of the GPU of that name, which the source borrows. Errors of gpu_find. */
MM_CHECKED mm_status facts_source_open_gpu(const char *name, facts_source *source_out);
void facts_source_close(facts_source *source);

/* Name of the machine that the times are of; "facts" for a measured file, which does not name it. */
static inline const char *facts_source_machine(const facts_source *source) {
    return source->is_machine ? source->machine.name : "facts";
}

/* What kind of estimate the machine's rates are; NULL: they are a file's. */
static inline const char *facts_source_estimate(const facts_source *source) {
    return source->gpu ? GPU_ESTIMATED : NULL;
}

/* Adds typical sizes of variable codes from FILE, the JSON of `mm codecs --study`. text: "FILE" or "FILE,LAYOUT";
 * LAYOUT defaults to nhwc, that of maps on the device. If FILE has several iterations, the last one is used. NULL: adds
 * nothing. MM_ERR_IO, MM_ERR_FORMAT: the message names the file; MM_ERR_INVALID: no such layout. */
MM_CHECKED mm_status facts_source_study(facts_source *source, const char *text);

/* Sets the times in the facts of a graph, and the typical sizes of the codes that the study has. If the graph trains
 * the measured network with another batch than was measured, times follow from the measured ones
 * (mm_facts_apply_between). Errors of mm_facts_apply. */
MM_CHECKED mm_status facts_source_fill(const facts_source *source, const mm_graph *graph, mm_graph_facts *facts);

/* The source as facts of every graph, for a manager. It borrows the source, which must not move. MM_ERR_NOMEM. The
 * caller destroys them (mm_facts_destroy). */
MM_CHECKED mm_status facts_source_facts(const facts_source *source, mm_facts **facts_out);

#endif
