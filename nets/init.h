/* SPDX-License-Identifier: MIT */
/* Initial parameters from a seed. Each number depends only on the seed, its parameter's name and its index, so nets
 * that have a layer of the same name and shape have the same values there. */
#ifndef NETS_INIT_H
#define NETS_INIT_H

#include "nets/net.h"

/* Fills `values_out` with the parameter's `n` initial elements from `first` on; `first` is a multiple of 4. A parameter
 * filled in pieces gets the same bits as one filled at once. Each operation's description gives the distributions
 * (net_ops.h): convolutions Kaiming normal by fan out (He et al. 2015, as torchvision's ResNet); linear layers and
 * biases uniform in +-1 / sqrt(fan in), as torch; matrices of transformers normal, as GPT-2; scales of norms and
 * running variances 1; everything else 0. Values that the net was given (nets_give_values) go before all of these. */
void nets_init_param(const nets_net *net, int param, uint64_t seed, int64_t first, int64_t n, float *values_out);

#endif
