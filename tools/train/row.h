/* SPDX-License-Identifier: MIT */
/* The figures of one run: a row of a table for people, and an object of a JSON array for programs. */
#ifndef TOOLS_TRAIN_ROW_H
#define TOOLS_TRAIN_ROW_H

#include <stdio.h>

#include "mm/core/facts/facts.h"
#include "mm/core/status.h"
#include "nets/net.h"
#include "tools/args/texts.h"
#include "tools/need/plan_work.h"

typedef struct row {
    char net[NETS_NAME_CAPACITY], device[24], precision[8], fuse[8], codec[MM_SPEC_CAPACITY];
    const char *policy;       /* borrowed from the options, or from a table */
    const char *policy_now;   /* policy at the end, if substituted or switched to; else NULL. In session_config.texts */
    bool lossy;               /* a plan that ran codes lossily; if none ran: the policy can, in this network */
    const char *ran;          /* the policies that ran, in order, as tables name them: "liveness -> freelunch (lossy)".
                                 NULL: only `policy`, or none. In session_config.texts, as are the next two */
    const char *idle, *would; /* policy_effect_idle of `policy` and `work` */
    bool unforced;            /* `idle` is due to the budget, not to the network */
    plan_work work;           /* of the plans for full batches; zero if nothing ran, or if the policy changed */
    const char *same_plan_as; /* the policy of the first other row of the table with the same network, batch, budget and
                                 plans; NULL: none before this one. Borrowed */
    /* What sub-batches would gain, simulated (sub_batch_offer.h): the policy, the words, sub_batch_differs_key, and
     * images a second (0: not known). NULL: nothing. In the texts of the table */
    const char *offer, *offer_text, *offer_differs;
    double offer_per_second;
    int64_t ladder_steps;          /* substitutions because memory was short */
    int64_t replans;               /* mm_stats.replans */
    int threads;                   /* CPU threads that computed; 0: not the host device */
    int64_t batch, sub_batch;      /* sub_batch: images of a pass; equals batch without sub-batches */
    int ranks;                     /* devices, or processes, that share the batch; 0: one */
    int64_t workspace_limit_bytes; /* of one convolution; 0: the device's default */
    int64_t asked_bytes;           /* the budget that the user set; 0: what the policy needs */
    int64_t budget_bytes;
    int64_t peak_bytes;           /* measured: touched bytes and external tensors; 0: not measured */
    int64_t predicted_peak_bytes; /* of the plans that ran */
    int64_t minimum_bytes;        /* the smallest budget in which the policy runs */
    int64_t pinned_bytes;         /* host memory reserved for maps */
    int64_t host_peak_bytes;      /* peak of the process's resident memory; 0: not known */
    int64_t host_planned_bytes;   /* planned part of host_peak_bytes: pinned memory, and on the host device the arena */
    int64_t staged_bytes;         /* part of the plans for staging the next batch */
    int64_t outside_bytes;
    int64_t stash_bytes;
    int64_t moved_bytes;             /* copied over the link in an iteration, as planned (mm_moves) */
    int64_t store_bytes, load_bytes; /* stored on the disk and loaded from it, in all iterations; 0: none */
    int64_t steps_again;             /* steps that an iteration recomputes, as planned */
    double images_per_second;        /* at the median iteration's time; 0: nothing ran */
    double iteration_seconds_median, iteration_seconds_p95;
    double iteration_seconds_mean;      /* without the first iteration, if there are more */
    double host_seconds;                /* median time of the training thread to issue an iteration; 0: not measured */
    int64_t layers;                     /* number of layers of the training graph */
    double codec_hidden_share;          /* share of the codecs' time not waited for; negative: no codec ran */
    double encoded_bytes, coded_bytes;  /* per iteration: encoded maps; their codes */
    double spilled_bytes;               /* part of the variable codes that spilled to pinned memory */
    double codec_busy_seconds;          /* busy time of the codecs' streams per iteration */
    double compute_busy_seconds;        /* busy time of the compute stream per iteration; 0: not measured */
    double step_ratio, compute_ratio;   /* times relative to liveness's row in the same table; 0: no such row */
    double loss_first, loss_last;       /* may be NaN or infinite */
    int64_t diverged_iteration;         /* first iteration, from 1, whose loss or gradient was not finite; 0: none */
    double test_accuracy;               /* negative: not evaluated */
    double test_loss;                   /* if evaluated */
    int64_t sample_tokens;              /* tokens of a sample, if the network reads tokens; else 0 */
    int64_t iterations, replays;        /* replays: how many of the iterations were replays */
    double iteration_seconds_predicted; /* by the simulator; 0: not simulated */
    double bound_seconds;               /* lower bound of the time under any plan; 0: unknown */
    bool simulated;                     /* nothing ran; the times are the simulator's */
    bool calibrated;                    /* the simulator's facts were measured under the same plan */
    char status[MM_MESSAGE_CAPACITY];   /* "ok", "diverged", "interrupted", or what went wrong */
} row;

/* Images of the batch that each rank trains. */
static inline int64_t row_part(const row *r) { return r->ranks > 1 ? r->batch / r->ranks : r->batch; }

/* Sets the row's times from n iterations of `images` images each; sorts both arrays. seconds: times of the iterations;
 * host_seconds: times of the training thread to issue them. */
void row_times(row *r, int64_t images, double *seconds, double *host_seconds, int64_t n);

/* Sets the status of a run that did not fail. */
void row_end(row *r, bool interrupted);

/* The substitute policy that ran at the end; NULL: none. */
const char *row_stand_in(const row *r);

/* The policies as tables name them: "naive", "freelunch (lossy)", or "naive -> liveness" if another one followed.
 * The caller frees it. NULL: out of memory. */
char *row_policy(const row *r);

/* Prints rows as one table (table.h). MM_ERR_NOMEM. */
MM_CHECKED mm_status rows_print(FILE *file, const row *rows, int n);

/* Prints a training's row as such a table, which drops its loss and the test's accuracy last. MM_ERR_NOMEM. */
MM_CHECKED mm_status row_print(FILE *file, const row *r);

/* Prints one row as a line of its own. MM_ERR_NOMEM. */
MM_CHECKED mm_status row_print_line(FILE *file, const row *r);

/* Prints a line with the simulator's errors over all rows that are not calibrated; nothing if there are none.
 * MM_ERR_NOMEM. */
MM_CHECKED mm_status rows_print_error(FILE *file, const row *rows, int n);

/* Prints a line for each policy and network in which the policy acts on nothing, unless that is due to the budget and
 * the table says already that the plan is another's. */
void rows_print_idle(FILE *file, const row *rows, int n);

/* Prints a line for each row that sub-batches would make faster, or fit. */
void rows_print_offers(FILE *file, const row *rows, int n);

/* Writes rows as a JSON array, atomically. MM_ERR_IO names the path. */
MM_CHECKED mm_status rows_save(const char *path, const row *rows, int n);

#endif
