/* SPDX-License-Identifier: MIT */
/* Draws random maps with a trained network's share of zeros, for networks that cannot be trained here. */
#ifndef TOOLS_STUDY_STUDY_DRAW_H
#define TOOLS_STUDY_STUDY_DRAW_H

#include "nets/net.h"

/* Sets the share of zeros in each layer's output, such that the outputs of the `counted` layers have the share `zeros`
 * (0 to 1) on average, weighted by bytes. The share rises with the depth of ReLUs; a pool's output has fewer zeros than
 * its input (Rhu et al., HPCA 2018, section IV). counted, zeros_out: one entry a layer. MM_ERR_INVALID: no shares of
 * the network's ReLUs give that average. */
MM_CHECKED mm_status study_draw_zeros(const nets_net *net, const bool *counted, double zeros, double *zeros_out);

/* Fills an NHWC map (dims: n, h, w, c) with values as a ReLU gives them. Neighbours within a plane are alike, and some
 * planes have many more zeros than others. The same seed gives the same map. */
void study_draw(float *map, const int64_t dims[4], double zeros, uint64_t seed);

#endif
