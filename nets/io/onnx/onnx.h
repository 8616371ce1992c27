/* SPDX-License-Identifier: MIT */
/* Networks from ONNX files, as torch.onnx.export writes them: `--net onnx:FILE`.
 *
 * The net has the file's layers, and its weights as initial values. Its input is the graph's one input: images
 * [n, channels, height, width] of any float type, or tokens [n, tokens] of a whole type; its output is the first
 * output, one score a class, and gets the loss. What a reshape or transposition leaves in place needs no layer;
 * sigmoids, GELUs and attention that an exporter wrote out become layers again. Parameters keep the names of the
 * file's initializers where these are a module's ("layer1.0.conv1.weight"). */
#ifndef NETS_IO_ONNX_H
#define NETS_IO_ONNX_H

#include "nets/net.h"

/* Builds and finishes a net; the caller destroys it. "FILE,classes=K" gives the last layer K outputs; it starts anew.
 * MM_ERR_IO: a file cannot be read. MM_ERR_FORMAT: it is no ONNX
 * file, or damaged. MM_ERR_UNSUPPORTED: a node has no layer here; the message names it. MM_ERR_NOMEM. Weights in a
 * second file (external data) are read from the first one's folder alone. */
MM_CHECKED mm_status nets_onnx_load(const char *path, nets_net **net_out);

/* The same of a file in memory; messages call it `path`, and external data lies beside that. */
MM_CHECKED mm_status nets_onnx_parse(const char *path, const uint8_t *data, int64_t bytes, nets_net **net_out);

#endif
