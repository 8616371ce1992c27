/* SPDX-License-Identifier: MIT */
/* Error bounds of convolutions' inputs, chosen by what was measured (Jin et al., "A Novel Memory-Efficient Deep
 * Learning Training Framework via Error-Bounded Lossy Compression"). Pure functions: the observer of the policy comet.
 *
 * A convolution's weight gradient is a sum of products of its input x and of g, the loss's gradient by its output:
 *
 *      dW[o, k] = sum over p of x[p + k] g[p, o]        p: images and positions, o: output channels, k: taps
 *
 * Errors of x are independent, and uniform within its error bound eb, so their variance is eb^2 / 3; those of zeros are
 * zero, and a share R of x is not. So the error of dW[o, k] has the variance eb^2 / 3 * R * (sum over p of g[p, o]^2),
 * and over all weights its standard deviation is
 *
 *      sum     sigma = eb * sqrt(R * V * sum(g^2) / (3 * C_out))      V: the share of products that read x, not padding
 *
 * Values below the bound come back as zeros, whose errors are not uniform: where most are, sigma is larger. The paper's
 * equations 6, 7 and 9 have instead
 *
 *      eq9     sigma = a * L * sqrt(N * R) * eb          N: images, a = 0.32
 *
 * The paper calls L the average loss; by its equation 5 that is the mean over images of the largest |g| of each. (By
 * the mean of |g| itself sigma comes out 20 to 120 times too small, by the mean of maxima 3 to 6 times: measured,
 * tools/bench/published.) Measures give the largest |g| of the batch; L is that, which errs on the safe side. The
 * paper's gradients are those of the mean loss over the batch, as are ours: g is divided by N already, and L is not
 * scaled. */
#ifndef POLICIES_COMET_H
#define POLICIES_COMET_H

#include "policies/rules/observer.h"

/* The standard deviation of the weight gradient's error that a bound causes; 0 for a bound of 0. */
double mm_comet_sigma(const mm_comet_config *config, const mm_layer_sample *sample, double bound);

/* Chooses the bound. `before`: the one that held until now. The guard, if it is on and sigma was measured: the bound is
 * at most the one that, by that measurement, gives the target; that is not kept: each sample begins with the rule's
 * bound. No bound is above the input's largest magnitude: nothing would be left of the map, and the weight's gradient
 * would be 0 until the next sample. A rule that knows no bound, because no gradient arrived or the input was all zero,
 * leaves the bound as it was. Anything that is not finite gives 0, by which codecs lose nothing. */
mm_layer_verdict mm_comet_observe(const mm_comet_config *config, const mm_layer_sample *sample, float before);

/* The graph's convolutions whose weights are learned by a declared gradient (mm_graph_set_weight), in order of their
 * layers. watched_out: room for mm_graph_layers. Returns their number. */
int mm_comet_watch(const mm_graph *graph, mm_watched *watched_out);

/* The two above. */
extern const mm_observer mm_comet_observer;

#endif
