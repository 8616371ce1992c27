/* Initial parameters, from a seed: each number depends on the seed, its parameter's name and its index alone, so nets
 * that share a layer's name and shape share its values. */
#ifndef NETS_INIT_H
#define NETS_INIT_H

#include "nets/net.h"

/* The parameter's initial elements from `first`, a multiple of 4, on: the bits are those of the whole. Each operation says
 * how its parameters begin (net_ops.h). Convolutions: Kaiming normal by fan out (He et al. 2015, as torchvision's ResNet);
 * linear layers and biases: uniform in +-1 / sqrt(fan in), as torch; batch norm: scale and running variance 1, the rest
 * 0. `values_out` has `n` elements. */
void nets_init_param(const nets_net *net, int param, uint64_t seed, int64_t first, int64_t n, float *values_out);

#endif
