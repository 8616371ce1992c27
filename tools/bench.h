/* mm bench: every combination of networks, batches, budgets and policies, trained or simulated; a row for each. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "tools/collect.h"
#include "tools/facts_source.h"
#include "tools/simulated.h"

enum { BENCH_VALUES_MAX = 4 * ARG_TEXTS_MAX }; /* budgets, or batches, of one network */

typedef struct bench {
    /* as given */
    const char *net_list, *batch_list, *policy_list, *budget_list, *simulate_list, *data, *json, *svg, *facts,
        *issue_text, *link;
    int64_t iterations, seed, alloc_cost_us, pinned_bytes;
    target target;
    mm_issue issue;
    bool same_batches, no_ladder, predict, quiet, help;
    /* read */
    arg_texts nets, batches, policies, budgets, sources;
    int64_t link_bytes;
    /* of the network and batch that is under way */
    simulated subject;
    int64_t least_bytes[ARG_TEXTS_MAX]; /* that each policy needs, as far as they were simulated; 0 */
    const facts_source *source;         /* simulated; NULL: measured */
    collector *collector;               /* of facts; NULL: not wanted */
    /* made */
    row *rows;
    int n_rows, capacity;
    bool failed; /* some run failed, other than by its budget */
    const volatile sig_atomic_t *interrupted;
} bench;

/* Reads every list and makes sure that what they name is there, so that no long table ends at a misspelt name. */
MM_CHECKED mm_status bench_read_lists(bench *b);

/* A network's batches. */
MM_CHECKED mm_status bench_batches(const bench *b, const nets_net *net, int64_t batches[BENCH_VALUES_MAX], int *n_out);
/* Budgets for the network and batch under way; 0: what the policy that runs needs. */
MM_CHECKED mm_status bench_budgets(const bench *b, int64_t budgets[BENCH_VALUES_MAX], int *n_out);

/* Into `r`, which names the run: trains, and (if facts were collected) predicts. MM_ERR_INFEASIBLE: r->status says why.
 */
MM_CHECKED mm_status bench_measure(bench *b, const nets_net *net, row *r);
/* Runs a policy for the sake of the facts, and before it liveness, which has no side streams: steps, codecs and copies are
 * measured again, contention over all runs. Done for every policy first, and right before each run that is predicted, so that a
 * machine that others slow down for a while is slow for both. */
MM_CHECKED mm_status bench_calibrate(bench *b, const nets_net *net, int64_t batch, const char *policy);
/* Bytes a second of the codec that the policies name first. */
MM_CHECKED mm_status bench_codec_speed(const bench *b, int64_t *bytes_per_s_out);

/* The same by the simulator alone; `policy` is its place in the list. */
MM_CHECKED mm_status bench_simulate(bench *b, int policy, row *r);

#endif
