/* Throughput against the budget and against the batch, for each policy: FreeLunch's Figure 2, moDNN's Figure 12. */
#ifndef TOOLS_BENCH_GRID_H
#define TOOLS_BENCH_GRID_H

#include "tools/row.h"

enum { GRID_POLICIES = 64, GRID_VALUES = 256, GRID_TITLE = 192 };

typedef struct grid {
    bool over_batch;             /* else over the budget */
    char title[GRID_TITLE];      /* "resnet32, batch 128" */
    int64_t values[GRID_VALUES]; /* budgets or batches, rising; a budget of 0: what each policy needs */
    int n_values;
    const char *policies[GRID_POLICIES]; /* of the rows */
    int n_policies;
    double images_per_second[GRID_POLICIES][GRID_VALUES]; /* 0: infeasible, or not run */
    bool stood_in[GRID_POLICIES][GRID_VALUES];            /* another policy ran in its place */
    /* The least that a policy needs where it did not fit, and with which batch; 0: it fitted, or nobody knows. */
    int64_t needs_bytes[GRID_POLICIES], needs_batch[GRID_POLICIES];
} grid;

/* Every table that the rows have two budgets, or two batches for. The caller frees *grids_out. */
MM_CHECKED mm_status grids_make(const row *rows, int n, grid **grids_out, int *n_out);

/* As tables (table.h). MM_ERR_NOMEM. */
MM_CHECKED mm_status grid_print(FILE *file, const grid *g);
/* The policies by their speed, for each network, batch and budget. MM_ERR_NOMEM. */
MM_CHECKED mm_status grid_print_orders(FILE *file, const row *rows, int n);

/* Both as curves, in one self-contained SVG file; whole or not at all. MM_ERR_IO names the path, MM_ERR_NOMEM. */
MM_CHECKED mm_status grids_save_picture(const char *path, const grid *grids, int n);

#endif
