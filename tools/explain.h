/* What mm plan --explain adds: the largest stashed maps and what could be done with each, lower bounds, and all
 * accounts as JSON. */
#ifndef TOOLS_EXPLAIN_H
#define TOOLS_EXPLAIN_H

#include "tools/plan_case.h"
#include "tools/target.h"

enum { EXPLAIN_MAPS = 10 };

/* An mm_lower_bound with the names of the steps that hold it. */
typedef struct explain_bound {
    int64_t batch;
    mm_lower_bound bound;
    char held_by[256], offloaded_held_by[256];
} explain_bound;

/* Of a net at a batch, one image being moDNN's smallest sub-batch. */
MM_CHECKED mm_status explain_bound_of(const nets_net *net, const target *target, int64_t batch,
                                      explain_bound *bound_out);

/* The largest stashed maps of cases of one net and one batch, with what each case holds of them, and the bounds: of
 * `image` and of the cases' own batch. */
MM_CHECKED mm_status explain_print(FILE *file, const plan_case *cases, int n, const explain_bound *image);

/* Adds to a case's row: kinds, peak_segments, stashed_maps, timeline (live bytes of every step by kind), and the bounds
 * of `image` (lower_bound_bytes, _held_by, _offloaded_bytes, _offloaded_held_by) and of the case's batch (the same
 * after batch_). */
MM_CHECKED mm_status explain_row(json_t *row, const plan_case *c, const explain_bound *image);

#endif
