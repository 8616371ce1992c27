/* SPDX-License-Identifier: MIT */
/* The rates by which a run on this host plans if it is given none: those that 'mm device --facts' measured once and
 * keeps in the user's cache; or the times of the run's own first iterations.
 *
 * The cache is a machine file (tools/facts/machine.h), $XDG_CACHE_HOME/mm/host-N.json for N threads (by default
 * ~/.cache/mm/host-N.json), with a key of its own, which machine files otherwise do not have:
 *
 *     "host": { "cpu": "AMD EPYC", "threads": 2, "library": "oneDNN 3.5.3", "mm": "0.15.0", "measured": "2026-11-28" }
 *
 * It holds only where all but the date are equal. */
#ifndef TOOLS_HOST_RATES_HOST_RATES_H
#define TOOLS_HOST_RATES_HOST_RATES_H

#include <limits.h>

#include "mm/manager/facts_measured.h"
#include "tools/facts/facts_source.h"
#include "tools/need/target.h"

/* ---- the cache (cache.c) */

/* The cache's path for so many threads. MM_ERR_NOT_FOUND: there is no XDG_CACHE_HOME and no HOME that is absolute. */
MM_CHECKED mm_status host_rates_path(int threads, char path_out[PATH_MAX]);

/* Adds "host" to the rates (a machine file's JSON, borrowed) and writes them to the cache, atomically; makes its
 * folders. target: initialised, of the host device. path_out: where. MM_ERR_NOT_FOUND, MM_ERR_IO, MM_ERR_NOMEM. */
MM_CHECKED mm_status host_rates_save(const target *target, json_t *machine, char path_out[PATH_MAX]);

/* ---- what a run plans by (host_rates.c) */

typedef enum host_rates_from {
    HOST_RATES_NONE, /* not asked: the policy does not search by times, or there are other facts, or another device */
    HOST_RATES_NOMINAL, /* nominal times (policies/schedule/nominal.h) */
    HOST_RATES_CACHE,
    HOST_RATES_RUN /* nominal times, and once again those of the first iterations */
} host_rates_from;

/* The value of --rates. */
#define HOST_RATES_ARG(text)                                                                                           \
    ARG("--rates", "host|nominal",                                                                                     \
        "without facts, auto plans by: host: this host's rates ('mm device --facts'), or measured ones; nominal: a "   \
        "GPU's (host)",                                                                                                \
        ARG_TEXT, text, 0, 0)

/* What is asked of a run. */
typedef struct host_rates_case {
    const char *rates;         /* --rates; NULL: host */
    const arg_texts *policies; /* of the run; the first runs first */
    const target *target;      /* initialised */
    bool has_facts;            /* other times are given */
    bool same_plan;            /* the plan must not change while it runs */
    bool quiet;                /* say nothing of a cache that is ignored */
    int ranks;
} host_rates_case;

typedef struct host_rates {
    host_rates_from from;
    const char *why;     /* why nominal times (static); NULL: nothing is to be told */
    facts_source source; /* HOST_RATES_CACHE: of every graph, for_run */
    char path[PATH_MAX], measured[16];
} host_rates;

/* Chooses, and opens the cache. A cache of another machine or version is ignored; a line on stderr says so. command:
 * "train". *rates must stay where it is while its source is used. MM_ERR_INVALID: --rates is wrong; MM_ERR_NOMEM. */
MM_CHECKED mm_status host_rates_open(host_rates *rates, const char *command, const host_rates_case *c);
void host_rates_close(host_rates *rates);

/* The source for plans; NULL: there are no times. */
static inline const facts_source *host_rates_source(const host_rates *rates) {
    return rates->from == HOST_RATES_CACHE ? &rates->source : NULL;
}

/* Says on stderr by which rates the run plans; nothing of HOST_RATES_NONE. */
void host_rates_tell(const host_rates *rates, const char *command, const char *policy);

/* ---- the run's own times (learn.c) */

enum { HOST_RATES_ITERATIONS = 3 /* are measured, the first only warms up: chosen, as few as show an outlier */ };

/* A mm_measured_learn; ctx: an int, the threads that compute steps. Replaces the times of what ran by measured ones. If
 * the facts have no times yet, what did not run gets times that follow from those of steps. */
mm_status host_rates_learn(void *ctx, const mm_measured *measured, mm_graph_facts *facts);

#endif
