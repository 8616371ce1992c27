/* The figures of one run: a row of the table that people read, an object in the array that machines read. */
#ifndef TOOLS_ROW_H
#define TOOLS_ROW_H

#include <stdio.h>

#include "mm/core/facts.h"
#include "mm/core/status.h"
#include "nets/net.h"
#include "tools/texts.h"

typedef struct row {
    char net[NETS_NAME_CAPACITY], device[16], precision[8], fuse[8], codec[MM_SPEC_CAPACITY];
    const char *policy;     /* borrowed: of the options, or of a table */
    const char *policy_now; /* what is run at the end, if something stands in for the policy or it was switched; NULL.
                               Borrowed from the session's texts */
    int64_t ladder_steps;   /* taken because memory was short */
    int threads;            /* of this machine's CPUs that it computed on; 0: on another device */
    int64_t batch;
    int64_t workspace_limit_bytes; /* of one convolution; 0: as the device has it */
    int64_t asked_bytes;           /* the budget that was asked for; 0: what the policy needs */
    int64_t budget_bytes;
    int64_t peak_bytes;           /* measured: touched, and external; 0: not measured */
    int64_t predicted_peak_bytes; /* of the plans that ran */
    int64_t minimum_bytes;        /* the smallest budget in which it runs */
    int64_t pinned_bytes;         /* host memory that is reserved for maps */
    int64_t host_peak_bytes;      /* the most that the process had resident; 0: not known */
    int64_t host_planned_bytes;   /* what of it the plans explain: pinned memory, and on the host device the arena */
    int64_t staged_bytes;         /* of the plans: for the next batch to come in meanwhile */
    int64_t outside_bytes;
    int64_t stash_bytes;
    double images_per_second; /* by the median; 0: nothing ran */
    double iteration_seconds_median, iteration_seconds_p95;
    double iteration_seconds_mean;      /* but for the first, if there are more */
    double host_seconds;                /* of the training thread, to issue an iteration; the median; 0: not measured */
    int64_t layers;                     /* that it issues */
    double codec_hidden_share;          /* negative: no codec */
    double codec_busy_seconds;          /* of the codecs' streams, an iteration */
    double compute_busy_seconds;        /* of the compute stream; 0: not measured */
    double step_ratio, compute_ratio;   /* to liveness in the same table; 0: it is not there */
    double loss_first, loss_last;       /* NaN and infinite, too */
    int64_t diverged_iteration;         /* the first whose loss or gradient was not finite, from 1; 0: none */
    double test_accuracy;               /* negative: not evaluated */
    int64_t iterations, replays;        /* of them, those whose work was replayed */
    double iteration_seconds_predicted; /* by the simulator; 0: not */
    bool simulated;                     /* nothing ran: the times are the simulator's */
    bool calibrated;                    /* the simulator's facts were measured of the very same plan */
    char status[MM_MESSAGE_CAPACITY];   /* "ok", "diverged", "interrupted", or what went wrong */
} row;

/* Of n iterations of so many images each (sorts both): median and 95th percentile of how long they took, median of what the training thread
 * took to issue them. */
void row_times(row *r, int64_t images, double *seconds, double *host_seconds, int64_t n);

/* The status of a run that did not fail. */
void row_end(row *r, bool interrupted);

/* How far the simulator was from what was measured, as a share of that; negative: not both are known. */
double row_error(const row *r);

/* The policy that ran at the end in place of the row's; NULL: none did. */
const char *row_stand_in(const row *r);

/* "naive", or "naive -> liveness" where that stood in for it at the end. Kept in the texts; MM_ERR_NOMEM. */
MM_CHECKED mm_status row_policy(const row *r, texts *kept, const char **name_out);

/* Prints rows as one table (table.h). MM_ERR_NOMEM. */
MM_CHECKED mm_status rows_print(FILE *file, const row *rows, int n);

/* One row as a line that stands for itself. */
void row_print_line(FILE *file, const row *r);

/* A line that sums the rows' errors up, but for those that facts were measured of; nothing if there are none. */
void rows_print_error(FILE *file, const row *rows, int n);

/* Writes rows as a JSON array, atomically. MM_ERR_IO names the path. */
MM_CHECKED mm_status rows_save(const char *path, const row *rows, int n);

#endif
