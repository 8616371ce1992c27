/* SPDX-License-Identifier: MIT */
/* The zoo: networks by name.
 *
 *   NAME[@HEIGHTxWIDTH][,classes=K][,thin=T]      resnet50    vgg16@32,classes=10    resnet50@64x96,thin=8
 *
 * NAME is an entry of nets_zoo_list, or a member of a family there. Without options a network has the input size and
 * the classes of its paper. HEIGHTxWIDTH, or one number for a square, sets another input size: windows and strides
 * stay, maps and the first linear layer change. A size is refused if a layer's window does not fit. `thin` divides the
 * channels of all layers but the last, rounded up, for small instances.
 *
 * A network of tokens has other options: gpt[,layers=N][,width=N][,heads=N][,context=N][,vocabulary=N][,dropout=P];
 * llama-15m[,layers=N][,width=N][,heads=N][,kv_heads=N][,hidden=N][,context=N][,vocabulary=N]; and
 * gpt2 the same. Width is that of its maps; its samples are `context` tokens.
 *
 * Layers and parameters have torchvision's names if torchvision has the network, else those of the network's first
 * published description, which its file cites. AlexNet and VGG do not pool adaptively to a fixed size as torchvision's
 * do: for another input size, their first linear layer has more or fewer inputs. */
#ifndef NETS_ZOO_ZOO_H
#define NETS_ZOO_ZOO_H

#include "nets/net.h"

/* Builds and finishes a net; the caller destroys it. MM_ERR_NOT_FOUND: no network has the name; the message names
 * one that may have been meant, or lists all. MM_ERR_INVALID: a size is out of range, or a layer refuses it. */
MM_CHECKED mm_status nets_zoo_build(const char *name, nets_net **net_out);

/* The name and one-line description of the i-th entry; NULL past the last. Static strings. A name with '<' is a
 * family's ("cifar-resnet<6n+2>"). */
const char *nets_zoo_list(size_t i, const char **summary_out);

#endif
