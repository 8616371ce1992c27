/* SPDX-License-Identifier: MIT */
/* A network as a JSON file: what `--net file:my.json` takes and `mm nets --net X --json` prints.
 *
 *   {
 *     "format": "mm net",
 *     "version": 1,
 *     "name": "small",
 *     "input": {"height": 32, "width": 32, "channels": 3, "classes": 10},
 *     "layers": [
 *       {"name": "conv1", "op": "conv", "inputs": ["data"], "out_channels": 16, "kernel": 3, "pad": 1},
 *       {"name": "fc", "op": "linear", "inputs": ["conv1"], "out_channels": 10, "bias": true},
 *       {"name": "loss", "op": "loss", "inputs": ["fc"]}
 *     ]
 *   }
 *
 * Layers are in order of execution. Inputs are names of earlier layers; "data" is the batch. Operations, their
 * attributes, defaults and ranges are those of the descriptions (net_ops.h), which `mm nets --ops` prints. A pair is
 * [height, width], or one number for both. Every object may have a "comment" (text), which is not kept.
 *
 * A net is printed as one text only: a line for each layer, without attributes that have their defaults. Reading that
 * text gives an equal net. */
#ifndef NETS_IO_NET_FILE_H
#define NETS_IO_NET_FILE_H

#include <stdio.h>

#include "nets/net.h"

#define NETS_NET_FILE_FORMAT "mm net"
enum { NETS_NET_FILE_VERSION = 1 };

/* Builds and finishes a net by the name that --net takes: "file:PATH", or a network of the zoo (nets/zoo/zoo.h). The
 * caller destroys it. The errors are those of nets_net_load and nets_zoo_build. */
MM_CHECKED mm_status nets_open(const char *name, nets_net **net_out);

/* Reads a file. MM_ERR_IO: it does not exist or cannot be read. MM_ERR_FORMAT: it is larger than 16 MiB (chosen:
 * ResNet-1202 has 0.4 MiB), or not a network as above; the message is one line with the path and the layer.
 * MM_ERR_UNSUPPORTED: the operations cannot compute the network. */
MM_CHECKED mm_status nets_net_load(const char *path, nets_net **net_out);

/* The same from memory; messages call it `path`. */
MM_CHECKED mm_status nets_net_parse(const char *path, const char *text, size_t n_bytes, nets_net **net_out);

/* Prints a finished net. MM_ERR_UNSUPPORTED: a name is not UTF-8, which JSON cannot hold; MM_ERR_NOMEM. The caller
 * checks the stream for errors. */
MM_CHECKED mm_status nets_net_print(const nets_net *net, FILE *stream);

#endif
