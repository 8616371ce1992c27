/* SPDX-License-Identifier: MIT */
/* Throughput by budget or by batch, for each policy, as in FreeLunch's Figure 2 and moDNN's Figure 12. */
#ifndef TOOLS_COMPARE_BENCH_GRID_H
#define TOOLS_COMPARE_BENCH_GRID_H

#include "tools/train/row.h"

enum { GRID_POLICIES = 64, GRID_VALUES = 256, GRID_TITLE = 192 };

typedef struct grid {
    bool over_batch;             /* values are batches; false: budgets */
    const char *unit;            /* of speeds */
    char title[GRID_TITLE];      /* "resnet32, batch 128" */
    int64_t values[GRID_VALUES]; /* budgets or batches, ascending; a budget of 0: what each policy needs */
    int n_values;
    const char *machine; /* where the speeds were measured, or for which they are simulated; the rows own it */
    bool simulated;
    const char *policies[GRID_POLICIES]; /* names; the rows own them */
    bool lossy[GRID_POLICIES];
    int n_policies;
    double speed[GRID_POLICIES][GRID_VALUES];  /* 0: infeasible, or not run */
    bool stood_in[GRID_POLICIES][GRID_VALUES]; /* a substitute policy ran */
    bool same[GRID_POLICIES][GRID_VALUES];     /* row.same_plan_as is set */
    /* Smallest budget of a policy that did not fit, and that run's batch; 0: it fitted, or the budget is not known. */
    int64_t needs_bytes[GRID_POLICIES], needs_batch[GRID_POLICIES];
} grid;

/* Makes a grid of each set of rows that differ only in policy and budget, or in policy and batch, if the set has at
 * least two budgets or batches. MM_ERR_NOMEM. The caller frees *grids_out. */
MM_CHECKED mm_status grids_make(const row *rows, int n, grid **grids_out, int *n_out);

/* Where the speeds are from: "simulated for titanx", "measured on host". Returns buffer. */
const char *grid_source(const grid *g, char buffer[GRID_TITLE]);

/* Prints a grid as a table (table.h). MM_ERR_NOMEM. */
MM_CHECKED mm_status grid_print(FILE *file, const grid *g);
/* Prints the policies in order of speed, for each network, batch and budget. MM_ERR_NOMEM. */
MM_CHECKED mm_status grid_print_orders(FILE *file, const row *rows, int n);

/* Writes all grids as curves to one self-contained SVG file, atomically. MM_ERR_IO names the path, MM_ERR_NOMEM. */
MM_CHECKED mm_status grids_save_picture(const char *path, const grid *grids, int n);

#endif
