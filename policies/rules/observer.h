/* SPDX-License-Identifier: MIT */
/* What a policy may observe: it chooses the error bounds of its codes by what some iterations, which sample,
 * measured. */
#ifndef POLICIES_RULES_OBSERVER_H
#define POLICIES_RULES_OBSERVER_H

#include "policies/rules/config.h"

/* A layer that is sampled, and the tensors that are measured. */
typedef struct mm_watched {
    mm_layer layer;
    mm_tensor map;      /* its input, whose code has a bound */
    mm_tensor gradient; /* the loss's gradient by its output */
    mm_tensor weight;
    mm_tensor momentum; /* the weight's momentum, or its gradient if the optimizer keeps none */
    double coverage;    /* share of its products that read the input, and not padding; 1 if shapes do not tell */
} mm_watched;

/* What was measured of a layer in one iteration. */
typedef struct mm_layer_sample {
    double nonzero_share;  /* R, of its input's elements */
    double map_max;        /* of the magnitudes of these; 0: not known */
    double gradient_mean;  /* of |g|; g: the loss's gradient by its output */
    double gradient_max;   /* of |g| */
    double gradient_sum2;  /* of g^2 */
    double momentum_mean;  /* of |momentum| */
    double coverage;       /* as in mm_watched */
    int64_t batch;         /* N, images */
    int64_t channels;      /* C_out, of its output */
    double measured_sigma; /* of the error of its weight gradient by the bound that held until now; negative: not
                              measured; NaN counts as infinite */
} mm_layer_sample;

/* What follows from a sample. */
typedef struct mm_layer_verdict {
    float before;           /* the bound that held until now */
    double target_sigma;    /* config->sigma * mean |momentum| */
    double predicted_sigma; /* by the rule, of the bound that held until now */
    double rule_bound;      /* the bound by which the rule predicts the target */
    float bound;            /* the bound from now on: at most rule_bound and map_max; 0: nothing may be lost */
    bool tightened;         /* the guard made it smaller than the rule's */
} mm_layer_verdict;

/* Pure functions, as planning is. */
typedef struct mm_observer {
    /* The layers that are sampled, in their order. watched_out: room for mm_graph_layers. Returns their number. */
    int (*watch)(const mm_graph *graph, mm_watched *watched_out);
    /* From a sample, and the bound that held until now, to the next. */
    mm_layer_verdict (*observe)(const mm_comet_config *config, const mm_layer_sample *sample, float before);
} mm_observer;

#endif
