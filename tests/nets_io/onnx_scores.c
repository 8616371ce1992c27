/* SPDX-License-Identifier: MIT */
/* onnx_scores NET BATCH: reads the inputs of BATCH samples, as floats, from standard input, and writes the scores of
 * the network that --net calls so. For tests that compare them with another program's. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/status.h"
#include "nets/io/net_file.h"
#include "tests/nets_io/onnx_run.h"

int main(int argc, char **argv) {
    nets_net *net;
    if (argc != 3) return 2;
    if (nets_open(argv[1], &net) != MM_OK) {
        fprintf(stderr, "%s\n", mm_last_error());
        return 1;
    }
    const int64_t batch = atoi(argv[2]), n = batch * nets_shape_elems(&nets_net_layer(net, 0)->shape);
    float *inputs = malloc((size_t)n * sizeof *inputs);
    int64_t elems = 0;
    if (!inputs || fread(inputs, sizeof *inputs, (size_t)n, stdin) != (size_t)n) {
        fprintf(stderr, "standard input must have %lld floats\n", (long long)n);
        return 1;
    }
    float *scores = onnx_run(net, batch, inputs, false, &elems);
    const bool written = fwrite(scores, sizeof *scores, (size_t)elems, stdout) == (size_t)elems && fflush(stdout) == 0;
    free(scores);
    free(inputs);
    nets_net_destroy(net);
    return written ? 0 : 1;
}
