/* SPDX-License-Identifier: MIT */
/* mm bench: trains or simulates every combination of networks, batches, budgets and policies, and makes a row of
 * each. */
#ifndef TOOLS_COMPARE_BENCH_H
#define TOOLS_COMPARE_BENCH_H

#include <jansson.h>

#include "tools/facts/facts_source.h"
#include "tools/measure/collect.h"
#include "tools/measure/host_ceiling.h"
#include "tools/need/forecast.h"
#include "tools/need/policy_effect.h"
#include "tools/need/ranks.h"

enum {
    BENCH_VALUES_MAX = 4 * ARG_TEXTS_MAX, /* the most budgets, or batches, of one network */
    BENCH_PREDICT_ROUNDS = 4              /* how often --predict measures facts; chosen by us */
};

/* Learning rate. Only speed is measured. With ten times this rate, random labels drive nets without batch norm, such as
 * SqueezeNet, to infinity in a few iterations. */
#define BENCH_RATE 0.01f

/* The plan of a policy for the present network and batch. */
typedef struct bench_planned {
    forecast as; /* forecast under the chosen plan */
    bool fused;  /* whether the chosen plan's layers are fused (nets/lower/fuse.h) */
} bench_planned;

typedef struct bench {
    /* options as given */
    const char *net_list, *batch_list, *policy_list, *budget_list, *simulate_list, *gpu_list, *data, *json, *svg,
        *trace, *facts, *study, *rates, *issue_text, *link, *sub_batch, *kernels, *ranks_list, *sum, *sum_at, *divide;
    int64_t iterations, seed, alloc_cost_us, pinned_bytes, effort;
    target target;
    mm_issue issue;
    bool same_batches, no_ladder, equal_streams, predict, quiet, help;
    /* options, parsed */
    arg_texts nets, batches, policies, budgets, sources;
    ranks ranks;
    /* of the present network and batch */
    const nets_net *net;
    int64_t batch; /* images of each rank */
    int n_ranks;
    policy_effect effects[ARG_TEXTS_MAX]; /* of each policy */
    struct {
        int64_t sub_batch;
        bench_planned planned;
    } least[ARG_TEXTS_MAX]; /* each policy's plan without a budget, in sub-batches of sub_batch; 0: not yet planned */
    facts_source *source;   /* times to simulate with; NULL: policies are trained */
    collector *collector;   /* collects facts; NULL: no facts are collected */
    FILE *out;              /* where tables go: standard output, unless JSON goes there */
    /* results */
    texts texts; /* texts that rows point to */
    row *rows;
    int n_rows, capacity;
    traces traces;             /* of all runs, if `trace` is set */
    json_t *kernel_rows;       /* of all runs, if `kernels` is set; NULL: none */
    host_ceiling ceiling;      /* of --kernels on the host; all zero: not measured yet */
    int64_t cells, cells_done; /* the most runs that the table has, and those that ended */
    int64_t began_ns;          /* when the first began */
    bool told;                 /* how long all take */
    unsigned told_rates;       /* by which rates policies plan: a bit for each host_rates_from that was told */
    bool warned;               /* the warning about batch norms in sub-batches was printed for this network and batch */
    bool failed;               /* some run failed for another reason than its budget */
    const volatile sig_atomic_t *interrupted;
} bench;

/* Runs every combination, and makes a row of each. A run that fails becomes a row that says why, and sets `failed`. */
MM_CHECKED mm_status bench_run(bench *b);
/* Compares the rows with those of liveness, and writes them to the --json file. Called after each measured row, too, so
 * that no row is lost if the process is killed. */
MM_CHECKED mm_status bench_save_rows(bench *b);

/* Opens an entry of --simulate, or of --gpu. Errors of facts_source_open or of facts_source_open_gpu. */
MM_CHECKED mm_status bench_open_source(const bench *b, const char *name, facts_source *source_out);

/* Reads all lists, and checks every name in them, so that a misspelt name does not end a long table. */
MM_CHECKED mm_status bench_read_lists(bench *b);
/* Checks that the target's device has the codecs of all policies. Call it after the device's name was checked. */
MM_CHECKED mm_status bench_check_codecs(const bench *b);
void bench_free_lists(bench *b);
/* The most runs that the lists ask for: sweeps may give fewer. */
int64_t bench_cells(const bench *b);

/* How many images of the batch the policy computes at a time, if that does not depend on a budget; else 0.
 * MM_ERR_INVALID: the options ask for a sub-batch that is impossible. */
MM_CHECKED mm_status bench_sub_batch(const bench *b, const char *policy, int64_t batch, int64_t *sub_batch_out);
/* Checks the sub-batches of all policies, for all batches that are listed as numbers (batch > 0: for this one). */
MM_CHECKED mm_status bench_check_sub_batches(const bench *b, int64_t batch);
/* Checks that every listed number of ranks divides every batch. */
MM_CHECKED mm_status bench_check_ranks(const bench *b);
/* The batches of a network. */
MM_CHECKED mm_status bench_batches(const bench *b, const nets_net *net, int64_t batches[BENCH_VALUES_MAX], int *n_out);
/* The budgets of the present network and batch; 0: what each policy needs. */
MM_CHECKED mm_status bench_budgets(const bench *b, int64_t budgets[BENCH_VALUES_MAX], int *n_out);

/* Adds a row that names its run. It is valid until the next row is added. NULL: out of memory. */
row *bench_row(bench *b, const nets_net *net, int64_t batch, const char *policy, int64_t budget);
/* Sets the row's status by the run's result. */
void bench_end_row(bench *b, row *r, mm_status status);
/* Prints the row, unless the output is a terminal, so that a run that is killed before its final table shows it. */
void bench_show_row(bench *b, const row *r);

/* Trains the row's run, and sets its figures. MM_ERR_INFEASIBLE: the message says why. */
MM_CHECKED mm_status bench_measure(bench *b, const nets_net *net, row *r);
/* Runs two more iterations of the session, and adds their kernels as --kernels writes them. MM_ERR_UNSUPPORTED: kernels
 * cannot be recorded here; the message says why. */
MM_CHECKED mm_status bench_kernels(bench *b, session *s, const row *r);
/* The same on the host: prints a table of the steps that the session ran, with times measured, and adds it. */
MM_CHECKED mm_status bench_steps(bench *b, session *s, const row *r);
/* Trains under a policy, and adds its times to the collector. */
MM_CHECKED mm_status bench_calibrate(bench *b, const nets_net *net, int64_t batch, const char *policy, collector *c);
/* collector_measure_variants, with runs of bench_calibrate. */
MM_CHECKED mm_status bench_calibrate_variants(bench *b, const nets_net *net, int64_t batch, collector *c);

/* Compares the simulator with measurements, for all policies in all budgets. Facts are measured under a fixed set of
 * policies; the listed policies add only their codecs to it. Facts and listed policies are measured alternately, facts
 * first and last, so that a machine that gets slower or faster affects both. The median of each counts. A listed
 * policy whose plan is that of a policy in the set is marked (row.calibrated): its error says nothing about the
 * simulator. */
MM_CHECKED mm_status bench_predict(bench *b, const nets_net *net, int64_t batch);

/* Measures how many bytes per second the first ZFP codec of the policies encodes; zfp:rate=6.4 if they have none. */
MM_CHECKED mm_status bench_codec_speed(const bench *b, int64_t *bytes_per_s_out);

/* Whether rows are simulated with the rates of another machine. */
bool bench_is_elsewhere(const bench *b);

/* The planning case of the present network and batch, in sub-batches of sub_batch images. pinned_bytes: the value of
 * --pinned. */
need_case bench_need(const bench *b, const char *policy, int64_t sub_batch, int64_t pinned_bytes);
/* Plans a case, and simulates the plan if the case has facts. If planning may choose whether to fuse layers
 * (need_may_unfuse), the plan has unfused layers in three cases: fused ones do not fit, and unfused ones need less;
 * fused ones just fit (need_is_near), and unfused ones are faster; there is no budget, and unfused ones need less. */
MM_CHECKED mm_status bench_plan(const need_case *c, bench_planned *planned_out);

/* Simulates the row's run, and sets its figures. policy: its index in the list. */
MM_CHECKED mm_status bench_simulate(bench *b, int policy, row *r);

#endif
