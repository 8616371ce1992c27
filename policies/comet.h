/* Error bounds of convolutions' inputs, chosen by what was measured (Jin et al., "A Novel Memory-Efficient Deep Learning
 * Training Framework via Error-Bounded Lossy Compression"). Pure functions: mm_policy_ops.observer of the policy comet.
 *
 * A convolution's weight gradient is a sum of products of its input x and of g, the loss's gradient by its output:
 *
 *      dW[o, k] = sum over p of x[p + k] g[p, o]        p: images and positions, o: output channels, k: taps
 *
 * Errors of x are independent, and uniform within its error bound eb, so their variance is eb^2 / 3; those of zeros are
 * zero, and a share R of x is not. So the error of dW[o, k] has the variance eb^2 / 3 * R * (sum over p of g[p, o]^2), and
 * over all weights its standard deviation is
 *
 *      sum     sigma = eb * sqrt(R * sum(g^2) / (3 * C_out))
 *
 * which counts a tap that lies in the padding as if it read x. The paper's equations 6, 7 and 9 have instead
 *
 *      eq9     sigma = a * L * sqrt(N * R) * eb          N: images, L: the mean of |g|, a = 0.32
 *
 * Their gradients are those of the mean loss over the batch, as are ours: g is divided by N already, and L is the mean of
 * |g| as it is. */
#ifndef POLICIES_COMET_H
#define POLICIES_COMET_H

#include "policies/policy.h"

/* What was measured of a convolution in one iteration. */
typedef struct mm_layer_sample {
    double nonzero_share;  /* R, of its input's elements */
    double gradient_mean;  /* L, of |g| */
    double gradient_sum2;  /* of g^2 */
    double momentum_mean;  /* of |momentum| of its weights; of their |gradient| if the optimizer keeps none */
    int64_t batch;         /* N */
    int64_t channels;      /* C_out */
    double measured_sigma; /* of its weight gradient, by the bound that held until now; negative: not measured */
} mm_layer_sample;

/* The standard deviation of the weight gradient's error that a bound causes; 0 for a bound of 0. */
double mm_comet_sigma(const mm_comet_config *config, const mm_layer_sample *sample, double bound);

/* What follows from a sample. */
typedef struct mm_layer_verdict {
    double target_sigma;    /* config->sigma * mean |momentum| */
    double predicted_sigma; /* by the rule, of the bound that held until now */
    double rule_bound;      /* the bound by which the rule predicts the target */
    float bound;            /* the bound from now on: at most rule_bound */
    bool tightened;         /* the guard made it smaller than the rule's */
} mm_layer_verdict;

/* Chooses the bound. `before`: the one that held until now. The guard, if it is on and sigma was measured: the bound is at
 * most the one that, by that measurement, gives the target. A rule that knows no bound, because no gradient arrived or the
 * input was all zero, leaves the bound as it was. Anything that is not finite gives 0, by which codecs lose nothing. */
mm_layer_verdict mm_comet_judge(const mm_comet_config *config, const mm_layer_sample *sample, float before);

/* A convolution that is sampled, and the tensors that are measured. */
typedef struct mm_watched {
    mm_layer layer;
    mm_tensor map;      /* its input */
    mm_tensor gradient; /* the loss's gradient by its output */
    mm_tensor weight;
    mm_tensor momentum; /* the weight's momentum, or its gradient if the optimizer keeps none */
} mm_watched;

/* The graph's convolutions whose weights are learned by a declared gradient (mm_graph_set_weight), in order of their
 * layers. watched_out: room for mm_graph_layers. Returns their number. */
int mm_comet_watch(const mm_graph *graph, mm_watched *watched_out);

#endif
