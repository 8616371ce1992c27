/* SPDX-License-Identifier: MIT */
/* mm bench: trains or simulates every combination of networks, batches, budgets and policies, and makes a row of
 * each. */
#ifndef TOOLS_COMPARE_BENCH_H
#define TOOLS_COMPARE_BENCH_H

#include <jansson.h>

#include "tools/facts/facts_source.h"
#include "tools/measure/collect.h"
#include "tools/need/forecast.h"
#include "tools/need/ranks.h"

enum {
    BENCH_VALUES_MAX = 4 * ARG_TEXTS_MAX, /* most budgets, or batches, of one network */
    BENCH_PREDICT_ROUNDS = 4              /* times that facts are measured; in between, listed policies are. Chosen */
};

/* Of learning: what is measured is the speed. Ten times as much drives nets without batch norm to infinity in a few
 * iterations on random labels, as SqueezeNet. */
#define BENCH_RATE 0.01f

/* What a policy makes of the present network and batch. */
typedef struct bench_planned {
    forecast as;         /* as the layers are, */
    bool fused;          /* that is, fused or not (nets/lower/fuse.h) */
    int64_t fused_bytes; /* without a budget, what it needs with layers fused as the target does */
} bench_planned;

typedef struct bench {
    /* as given */
    const char *net_list, *batch_list, *policy_list, *budget_list, *simulate_list, *data, *json, *svg, *trace, *facts,
        *study, *issue_text, *link, *sub_batch, *kernels, *ranks_list, *sum, *sum_at;
    int64_t iterations, seed, alloc_cost_us, pinned_bytes, effort;
    target target;
    mm_issue issue;
    bool same_batches, no_ladder, equal_streams, predict, quiet, help;
    /* read */
    arg_texts nets, batches, policies, budgets, sources;
    ranks ranks;
    /* of the present network and batch */
    const nets_net *net;
    int64_t batch; /* of each device, */
    int n_ranks;   /* and their number */
    struct {
        int64_t sub_batch;
        bench_planned planned;
    } least[ARG_TEXTS_MAX]; /* in the least budget of each policy, and of which sub-batch; 0: not simulated yet */
    facts_source *source;   /* times to simulate by; NULL: policies are trained */
    collector *collector;   /* collects facts; NULL: they are not wanted */
    FILE *out;              /* where tables go: standard output, unless JSON goes there */
    /* made */
    texts texts; /* texts that rows point to */
    row *rows;
    int n_rows, capacity;
    traces traces;       /* of all runs, with `trace` */
    json_t *kernel_rows; /* of all runs, with `kernels`; NULL: none */
    bool warned;         /* of batch norms in sub-batches, of the present network and batch */
    bool failed;         /* some run failed, other than by its budget */
    const volatile sig_atomic_t *interrupted;
} bench;

/* Runs every combination, and makes a row of each. A run that fails becomes a row that says why, and sets `failed`. */
MM_CHECKED mm_status bench_run(bench *b);
/* Compares the rows with those of liveness, and writes them to the file that was asked for. After each row that was
 * measured, too: a run that is killed later takes none with it. */
MM_CHECKED mm_status bench_save_rows(bench *b);

/* Reads all lists, and checks every name in them, so that a misspelt name does not end a long table. */
MM_CHECKED mm_status bench_read_lists(bench *b);
/* Checks that the target's device has the codecs of all policies. Once its name is known to be right. */
MM_CHECKED mm_status bench_check_codecs(const bench *b);
void bench_free_lists(bench *b);

/* How many images of the batch the policy computes at a time, if that does not depend on a budget; else 0.
 * MM_ERR_INVALID: what is asked for cannot be. */
MM_CHECKED mm_status bench_sub_batch(const bench *b, const char *policy, int64_t batch, int64_t *sub_batch_out);
/* Checks that for all policies, and for all batches that are listed by number (batch > 0: for this one). */
MM_CHECKED mm_status bench_check_sub_batches(const bench *b, int64_t batch);
/* Checks that the listed numbers of ranks divide all batches. */
MM_CHECKED mm_status bench_check_ranks(const bench *b);
/* The batches of a network. */
MM_CHECKED mm_status bench_batches(const bench *b, const nets_net *net, int64_t batches[BENCH_VALUES_MAX], int *n_out);
/* The budgets of the present network and batch; 0: what each policy needs. */
MM_CHECKED mm_status bench_budgets(const bench *b, int64_t budgets[BENCH_VALUES_MAX], int *n_out);

/* Adds a row with its run's names. Valid until the next one is added. NULL: out of memory. */
row *bench_row(bench *b, const nets_net *net, int64_t batch, const char *policy, int64_t budget);
/* Sets the row's status by the run's result. */
void bench_end_row(bench *b, row *r, mm_status status);
/* Prints the row, unless to a terminal: the table at the end might not be reached. */
void bench_show_row(const bench *b, const row *r);

/* Trains the row's run, and sets its figures. MM_ERR_INFEASIBLE: the message says why. */
MM_CHECKED mm_status bench_measure(bench *b, const nets_net *net, row *r);
/* Adds the kernels of one further iteration of the session, as --kernels writes them. MM_ERR_UNSUPPORTED: they cannot
 * be had here, and why. */
MM_CHECKED mm_status bench_kernels(bench *b, session *s, const row *r);
/* Runs a policy, and adds its times to the collector. */
MM_CHECKED mm_status bench_calibrate(bench *b, const nets_net *net, int64_t batch, const char *policy, collector *c);
/* collector_measure_variants by such runs. */
MM_CHECKED mm_status bench_calibrate_variants(bench *b, const nets_net *net, int64_t batch, collector *c);

/* Compares the simulator with measurements, for all policies at all budgets. Facts are measured under a fixed set of
 * policies, to which the listed ones add only their codecs. Facts and listed policies are measured by turns, facts
 * first and last, so that a machine that gets slower or faster does so for both. The median of each counts. A listed
 * policy with the plan of one of the set is marked (row.calibrated), because its error says nothing of the
 * simulator. */
MM_CHECKED mm_status bench_predict(bench *b, const nets_net *net, int64_t batch);

/* Encoded bytes per second of the first codec that the policies name. */
MM_CHECKED mm_status bench_codec_speed(const bench *b, int64_t *bytes_per_s_out);

/* What is planned of the present network and batch, in sub-batches of so many images. pinned_bytes: as an option has
 * it. */
need_case bench_need(const bench *b, const char *policy, int64_t sub_batch, int64_t pinned_bytes);
/* Plans it, and simulates that by the source's times, if there is one. Where it is open (need_may_unfuse), layers are
 * not fused if fused ones do not fit; if fused ones just fit (need_is_near) and others are faster; or, without a
 * budget, if others need less. fused_bytes: that of the plan without a budget. */
MM_CHECKED mm_status bench_plan(const need_case *c, int64_t fused_bytes, bench_planned *planned_out);

/* Simulates the row's run, and sets its figures. policy: its index in the list. */
MM_CHECKED mm_status bench_simulate(bench *b, int policy, row *r);

#endif
