/* SPDX-License-Identifier: MIT */
/* Error bounds of convolutions' inputs, chosen by what was measured (Jin et al., "A Novel Memory-Efficient Deep
 * Learning Training Framework via Error-Bounded Lossy Compression"). Pure functions: the observer of the policy comet.
 *
 * A convolution's weight gradient is a sum of products of its input x and of g, the loss's gradient with respect to its
 * output:
 *
 *      dW[o, k] = sum over p of x[p + k] g[p, o]        p: images and positions, o: output channels, k: taps
 *
 * Errors of x are independent, and uniform within its error bound eb, so their variance is eb^2 / 3. Zeros have no
 * error; R is the share of x that is not zero. So the error of dW[o, k] has the variance eb^2 / 3 * R * (sum over p of
 * g[p, o]^2), and over all weights its standard deviation is
 *
 *      sum     sigma = eb * sqrt(R * V * sum(g^2) / (3 * C_out))      V: the share of products that read x, not padding
 *
 * Values below the bound come back as zeros, so their errors are not uniform: where most values are that small, sigma
 * is larger. The paper's equations 6, 7 and 9 have instead
 *
 *      eq9     sigma = a * L * sqrt(N * R) * eb          N: images, a = 0.32
 *
 * The paper calls L the average loss; by its equation 5 that is the mean over images of the largest |g| of each. (If L
 * were the mean of |g| itself, sigma would come out 20 to 120 times too small; with the mean of the maxima it is 3 to 6
 * times: measured, tools/bench/published comet.) Here L is the largest |g| of the whole batch, which is what is
 * measured, and errs on the safe side. The paper's gradients are those of the mean loss over the batch, and so are
 * ours: g is already divided by N, so L is not scaled. */
#ifndef POLICIES_COMET_H
#define POLICIES_COMET_H

#include "policies/rules/observer.h"

/* The standard deviation of the weight gradient's error that a bound causes; 0 for a bound of 0. */
double mm_comet_sigma(const mm_comet_config *config, const mm_layer_sample *sample, double bound);

/* Chooses a layer's bound. `before`: the bound until now. The new bound is the rule's, with two limits. If the guard is
 * on and sigma was measured, the bound is at most the one that would meet the target by that measurement (this holds
 * for one sample: the next begins with the rule's bound again). It is also at most the input's largest magnitude:
 * otherwise nothing would be left of the map, and the weight's gradient would be 0 until the next sample. If the rule
 * gives no bound, because no gradient arrived or the input was all zero, the bound stays as it was. A bound that is not
 * finite becomes 0: the codec then loses nothing. */
mm_layer_verdict mm_comet_observe(const mm_comet_config *config, const mm_layer_sample *sample, float before);

/* The graph's convolutions whose weights have a declared gradient (mm_graph_set_weight), in order of their layers.
 * watched_out: room for mm_graph_layers. Returns their number. */
int mm_comet_watch(const mm_graph *graph, mm_watched *watched_out);

/* These two functions. */
extern const mm_observer mm_comet_observer;

#endif
