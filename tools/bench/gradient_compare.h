/* SPDX-License-Identifier: MIT */
/* Compares a policy's weight gradients with the exact ones, computed from the same weights and batch. */
#ifndef TOOLS_BENCH_GRADIENT_COMPARE_H
#define TOOLS_BENCH_GRADIENT_COMPARE_H

#include "tools/bench/trainer.h"

typedef struct gradient_batch {
    const float *images;
    const int32_t *labels;
    int64_t n;
} gradient_batch;

/* Compares one parameter's gradient with the exact one. */
typedef struct gradient_figure {
    int param;             /* index of the net's parameter */
    bool conv;             /* the parameter is a convolution's */
    double norm;           /* of the exact gradient */
    double cosine;         /* of the angle between the two; both zero: 1; one of them zero, or not finite: 0 */
    double relative_error; /* |tested - exact| / |exact|; both zero: 0; not finite: infinite */
    double sigma;          /* root of the mean square of tested - exact */
    double within_sigma;   /* share of elements whose error is at most sigma of their output channel */
} gradient_figure;

/* Runs one iteration under `policy` on the batch, in a manager of its own that starts from the state of `from`; `from`
 * does not change. gradients_out: the gradients of all learned parameters, one after the other
 * (nets_net_learned_elems). */
MM_CHECKED mm_status gradient_probe(const trainer *from, const char *policy, const gradient_batch *batch,
                                    float *gradients_out);

/* Makes a figure for each learned parameter, in the net's order; returns their number. figures_out: room for
 * nets_net_params(net). */
int gradient_compare(const nets_net *net, const float *exact, const float *tested, gradient_figure *figures_out);

/* The figure with the smallest cosine, of convolutions' weights or of all parameters; NULL if there is none. */
const gradient_figure *gradient_worst(const gradient_figure *figures, int n, bool conv_only);

#endif
