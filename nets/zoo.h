/* The networks that there are, by name. */
#ifndef NETS_ZOO_H
#define NETS_ZOO_H

#include "nets/net.h"

/* Builds and finishes a net. MM_ERR_NOT_FOUND lists what there is. The caller destroys it. */
MM_CHECKED mm_status nets_zoo_build(const char *name, nets_net **net_out);

/* Name and one-line description of the i-th entry, NULL past the last; static strings. An entry may stand for a family
 * ("cifar-resnet<6n+2>"). */
const char *nets_zoo_list(size_t i, const char **summary_out);

/* Builders: add layers to an empty net; failures are kept in it (net.h). */

/* He et al. 2016, section 4.2: 32x32x3, 10 classes, three stages of n basic blocks of 16, 32, 64 channels, depth
 * 6n + 2. Where the shape changes the shortcut is a 1x1 convolution with batch norm (their option B), named
 * downsample.0 and downsample.1 as torchvision does: it needs no padding of channels, and 2752 more parameters than
 * their option A. */
void nets_build_resnet_cifar(nets_net *net, int blocks_per_stage);

/* conv-relu-maxpool-conv-bn-relu-dropout-avgpool-linear on 32x32x3: every kind of layer but a residual sum, small. */
void nets_build_tiny(nets_net *net);

#endif
