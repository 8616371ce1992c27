/* SPDX-License-Identifier: MIT */
/* Observers: how a policy chooses the error bounds of its codes from what sampled iterations have measured; and the
 * options of comet, the policy that does. */
#ifndef POLICIES_RULES_OBSERVER_H
#define POLICIES_RULES_OBSERVER_H

#include "mm/core/graph/graph.h"

/* How comet finds the error of a weight gradient (comet.h). */
typedef enum mm_bound_rule { MM_BOUND_SUM, MM_BOUND_EQ9 } mm_bound_rule;

/* Options of a policy that samples: it chooses error bounds from measurements (mm_observer). */
typedef struct mm_comet_config {
    int every; /* iterations from one that samples to the next; 0: the policy does not sample */
    mm_bound_rule rule;
    int guard;    /* whether a bound is tightened where the measured error exceeds the target */
    double sigma; /* target: the standard deviation of a weight gradient's error, as a share of mean |momentum| */
    double a;     /* coefficient of MM_BOUND_EQ9 */
} mm_comet_config;

/* A layer that is sampled, and the tensors that are measured for it. */
typedef struct mm_watched {
    mm_layer layer;
    mm_tensor map;      /* its input, whose code has an error bound */
    mm_tensor gradient; /* the loss's gradient with respect to its output */
    mm_tensor weight;
    mm_tensor momentum; /* the weight's momentum, or its gradient if the optimizer keeps none */
    double coverage;    /* share of its products that read the input rather than padding; 1 if shapes do not tell */
} mm_watched;

/* What was measured of a layer in one iteration. */
typedef struct mm_layer_sample {
    double nonzero_share;  /* R: share of its input's elements that are not zero */
    double map_max;        /* largest magnitude of its input's elements; 0: not known */
    double gradient_mean;  /* mean of |g|; g: the loss's gradient with respect to its output */
    double gradient_max;   /* largest |g| */
    double gradient_sum2;  /* sum of g^2 */
    double momentum_mean;  /* mean of |momentum| */
    double coverage;       /* see mm_watched */
    int64_t batch;         /* N: images of the batch */
    int64_t channels;      /* C_out: channels of its output */
    double measured_sigma; /* standard deviation of its weight gradient's error under the bound until now; negative: not
                              measured; NaN counts as infinite */
} mm_layer_sample;

/* What follows from a sample. */
typedef struct mm_layer_verdict {
    float before;           /* the bound until now */
    double target_sigma;    /* config->sigma * mean |momentum| */
    double predicted_sigma; /* what the rule predicts for `before` */
    double rule_bound;      /* the bound for which the rule predicts target_sigma */
    float bound;            /* the bound from now on: at most rule_bound and map_max; 0: the codec loses nothing */
    bool tightened;         /* the guard made it smaller than the rule's */
} mm_layer_verdict;

/* Both are pure functions, as planning is. */
typedef struct mm_observer {
    /* Lists the layers to sample, in order. watched_out: room for mm_graph_layers. Returns their number. */
    int (*watch)(const mm_graph *graph, mm_watched *watched_out);
    /* Chooses the next bound from a sample and the bound until now (`before`). */
    mm_layer_verdict (*observe)(const mm_comet_config *config, const mm_layer_sample *sample, float before);
} mm_observer;

#endif
