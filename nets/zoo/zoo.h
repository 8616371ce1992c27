/* The networks that there are, by name.
 *
 *   NAME[@HEIGHTxWIDTH][,classes=K][,thin=T]      resnet50    vgg16@32,classes=10    resnet50@64x96,thin=8
 *
 * NAME is an entry of the list below, or a member of a family in it. Without more, a network has the input and the
 * classes of its paper. HEIGHTxWIDTH (one number for a square) is another input's size: windows and strides stay, maps
 * and the first linear layer follow; an input that some layer's window does not fit into is refused by that layer.
 * `thin` divides the channels of all layers but the last (rounded up), for small instances.
 *
 * Names of layers and parameters are torchvision's for those that torchvision has, else those of the network's first
 * published description (each file says which). Where torchvision pools adaptively to a fixed size (AlexNet, VGG) a net
 * of another input size has that many more or fewer inputs to its first linear layer instead. */
#ifndef NETS_ZOO_ZOO_H
#define NETS_ZOO_ZOO_H

#include "nets/net.h"

/* Builds and finishes a net. MM_ERR_NOT_FOUND lists what there is; MM_ERR_INVALID: a size out of range, or one that a
 * layer refuses. The caller destroys it. */
MM_CHECKED mm_status nets_zoo_build(const char *name, nets_net **net_out);

/* Name and one-line description of the i-th entry, NULL past the last; static strings. An entry with a '<' stands for a
 * family ("cifar-resnet<6n+2>"). */
const char *nets_zoo_list(size_t i, const char **summary_out);

#endif
