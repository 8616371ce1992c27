/* SPDX-License-Identifier: MIT */
/* An imported network's scores, from an evaluation on device host. */
#ifndef TESTS_NETS_IO_ONNX_RUN_H
#define TESTS_NETS_IO_ONNX_RUN_H

#include "nets/net.h"

/* The scores of `batch` samples: images [n, channels, height, width] as ONNX has them,
 * or with the channels last; or tokens [n, tokens]. Gives
 * [n, classes], or [n, tokens or pixels, classes]; the caller frees them. Fails the test on an error. */
float *onnx_run(const nets_net *net, int64_t batch, const float *inputs, bool channels_last, int64_t *elems_out);

#endif
