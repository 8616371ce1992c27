/* mm bench: every combination of networks, batches, budgets and policies, trained or simulated; a row for each. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "tools/collect.h"
#include "tools/facts_source.h"
#include "tools/simulated.h"

enum {
    BENCH_VALUES_MAX = 4 * ARG_TEXTS_MAX, /* budgets, or batches, of one network */
    BENCH_PREDICT_ROUNDS = 4              /* of measuring facts; between each two, everything predicted is measured */
};

typedef struct bench {
    /* as given */
    const char *net_list, *batch_list, *policy_list, *budget_list, *simulate_list, *data, *json, *svg, *facts,
        *issue_text, *link;
    int64_t iterations, seed, alloc_cost_us, pinned_bytes;
    target target;
    mm_issue issue;
    bool same_batches, no_ladder, equal_streams, predict, quiet, help;
    /* read */
    arg_texts nets, batches, policies, budgets, sources;
    /* of the network and batch that is under way */
    simulated subject;
    int64_t least_bytes[ARG_TEXTS_MAX]; /* that each policy needs, as far as they were simulated; 0 */
    const facts_source *source;         /* simulated; NULL: measured */
    collector *collector;               /* of facts; NULL: not wanted */
    FILE *out;                          /* tables: standard output, unless JSON goes there */
    /* made */
    texts texts; /* that rows name */
    row *rows;
    int n_rows, capacity;
    bool failed; /* some run failed, other than by its budget */
    const volatile sig_atomic_t *interrupted;
} bench;

/* Reads every list and makes sure that what they name is there, so that no long table ends at a misspelt name. */
MM_CHECKED mm_status bench_read_lists(bench *b);
void bench_free_lists(bench *b);

/* A network's batches. */
MM_CHECKED mm_status bench_batches(const bench *b, const nets_net *net, int64_t batches[BENCH_VALUES_MAX], int *n_out);
/* Budgets for the network and batch under way; 0: what the policy that runs needs. */
MM_CHECKED mm_status bench_budgets(const bench *b, int64_t budgets[BENCH_VALUES_MAX], int *n_out);

/* A new row, that names its run; NULL: out of memory. It holds until the next one. */
row *bench_row(bench *b, const nets_net *net, int64_t batch, const char *policy, int64_t budget);
/* Sets its status, by how the run ended. */
void bench_end_row(bench *b, row *r, mm_status status);
/* Prints it as it is done, where the table at the end might not be reached: not on a terminal. */
void bench_show_row(const bench *b, const row *r);

/* Into `r`, which names the run: trains. MM_ERR_INFEASIBLE: the message says why. */
MM_CHECKED mm_status bench_measure(bench *b, const nets_net *net, row *r);
/* Runs a policy for the sake of the facts. */
MM_CHECKED mm_status bench_calibrate(bench *b, const nets_net *net, int64_t batch, const char *policy, collector *c);

/* All policies at all budgets. Facts are measured under a set of policies of their own, that no listed one changes but
 * by its codecs; then everything listed is measured; and so on in turns, facts being the first and the last, so that a
 * machine that grows slower or faster does so for both. Of each the median counts, whatever the error. A listed policy
 * whose plan is one of the set's is marked (row.calibrated): its error says nothing of the simulator. */
MM_CHECKED mm_status bench_predict(bench *b, const nets_net *net, int64_t batch);

/* Bytes a second of the codec that the policies name first. */
MM_CHECKED mm_status bench_codec_speed(const bench *b, int64_t *bytes_per_s_out);

/* The same by the simulator alone; `policy` is its place in the list. */
MM_CHECKED mm_status bench_simulate(bench *b, int policy, row *r);

#endif
