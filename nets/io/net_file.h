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
 * Layers are in order of execution; inputs are names of earlier layers, "data" being the batch. Operations and their
 * attributes, defaults and ranges are those of the tables in net_ops.c and net_attrs.c, which `mm nets --ops` prints
 * (op_list.h); a pair is [height, width], or one number for both. A "comment" (text) is allowed in every object, and is not
 * kept.
 *
 * Printing gives one text for a net: attributes that are as by default are left out, a layer is a line. Reading what
 * was printed gives an equal net. */
#ifndef NETS_IO_NET_FILE_H
#define NETS_IO_NET_FILE_H

#include <stdio.h>

#include "nets/net.h"

#define NETS_NET_FILE_FORMAT "mm net"
enum { NETS_NET_FILE_VERSION = 1 };

/* Builds and finishes the net that a name stands for: "file:PATH", or one of the zoo's (nets/zoo/zoo.h). What --net
 * takes. The caller destroys it. Errors as of nets_net_load and nets_zoo_build. */
MM_CHECKED mm_status nets_open(const char *name, nets_net **net_out);

/* Reads a file. MM_ERR_IO: there is none, or it cannot be read; MM_ERR_FORMAT: it is above 16 MiB, or no network as
 * above: the message is one line with the path and the layer; MM_ERR_UNSUPPORTED: a network that the operations cannot
 * do. */
MM_CHECKED mm_status nets_net_load(const char *path, nets_net **net_out);

/* The same from memory; messages call it `path`. */
MM_CHECKED mm_status nets_net_parse(const char *path, const char *text, size_t n_bytes, nets_net **net_out);

/* Prints a finished net. MM_ERR_IO if the stream has failed, MM_ERR_UNSUPPORTED for a net that JSON cannot hold (a name
 * that is not UTF-8). */
MM_CHECKED mm_status nets_net_print(const nets_net *net, FILE *stream);

#endif
