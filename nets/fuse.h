/* Which layers of a net are computed as one, in lowering: what memory passes cost is most of what such layers cost.
 *
 *   batch norm -> ReLU, batch norm -> sum with another layer -> ReLU     one operation (nets_op_desc.relu)
 *   convolution or linear layer with a bias -> ReLU                      the bias is added by the ReLU (attrs.bias)
 *
 * where what is between them has no other consumer. The net stays as it is: names, parameters and files. So do all
 * bits: a sum over several consumers' gradients is taken in the same order. Internal to lowering. */
#ifndef NETS_FUSE_H
#define NETS_FUSE_H

#include "nets/net.h"

typedef struct nets_fused {
    int within; /* the layer that computes it: itself, or the ReLU behind it */
    /* Of a ReLU: */
    int norm;   /* the batch norm that it computes; -1 */
    int addend; /* the layer whose output is added between; -1 */
    int biased; /* the layer whose bias it adds; -1 */
    /* Of a convolution or linear layer: */
    bool no_bias; /* its bias is added by the ReLU behind it */
} nets_fused;

/* Every layer by itself. `fused_out`: one of each layer. */
void nets_fuse_none(const nets_net *net, nets_fused *fused_out);

/* As much as can be. `consumers`: scratch, one of each layer. */
void nets_fuse(const nets_net *net, int *consumers, nets_fused *fused_out);

#endif
