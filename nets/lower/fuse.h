/* SPDX-License-Identifier: MIT */
/* Fusion: which layers of a net lowering computes as one operation. Such layers are bound by memory bandwidth, so every
 * pass over memory that is saved counts.
 *
 *   batch norm -> ReLU, batch norm -> sum with another layer -> ReLU     one operation (nets_op_desc.relu)
 *   convolution or linear layer with a bias -> ReLU                      the bias is added by the ReLU (attrs.bias)
 *   SiLU -> product with another map                                     one operation (nets_op_desc.silu)
 *
 * Layers are fused where the outputs between them have no other consumer. The net's names, parameters and files do not
 * change. Neither do any bits of f32 maps: gradients of several consumers are summed in the same order. Internal to
 * lowering. */
#ifndef NETS_LOWER_FUSE_H
#define NETS_LOWER_FUSE_H

#include "nets/net.h"

typedef struct nets_fused {
    int within; /* the layer that computes this one: itself, or the ReLU or product behind it */
    /* For a ReLU; -1: none. */
    int norm;   /* the batch norm that it computes */
    int addend; /* the layer whose output it adds between batch norm and ReLU */
    int biased; /* the layer whose bias it adds */
    int gate;   /* for a product, the SiLU that it computes; -1: none */
    /* For a convolution or linear layer. */
    bool no_bias; /* the ReLU behind it adds its bias */
} nets_fused;

/* Fuses nothing. `fused_out` has one element for each layer. */
void nets_fuse_none(const nets_net *net, nets_fused *fused_out);

/* Fuses as much as possible. `fused_out` and the scratch `consumers` have one element for each layer. */
void nets_fuse(const nets_net *net, int *consumers, nets_fused *fused_out);

#endif
