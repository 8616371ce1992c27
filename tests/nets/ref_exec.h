/* SPDX-License-Identifier: MIT */
/* A reference executor: every tensor of a lowered net has storage of its own, and each step is drained before the next.
 * Training under a manager must give the same bits. */
#ifndef TESTS_NETS_REF_EXEC_H
#define TESTS_NETS_REF_EXEC_H

#include "nets/lower/lower.h"

typedef struct ref_options {
    bool share;     /* outputs are written over inputs where the graph allows it and nothing reads the input again */
    bool sign_mask; /* readers of signs get sign masks */
    bool no_fuse;   /* the net is lowered layer by layer */
    nets_precision precision;
    nets_optimizer_id optimizer;
    bool exact; /* ops are told that all roles are exact, which is true here */
} ref_options;

typedef struct ref_exec {
    const nets_net *net;
    ref_options options;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    nets_lowered *lowered;
    void **storage;  /* NULL for tensors that lie in another's storage */
    mm_tensor *root; /* for each tensor, the one in whose storage it lies */
    int shared;      /* number of tensors in another's storage */
    void *workspace;
    int64_t workspace_bytes;
    nets_update_param *params;
    int n_params;
    nets_optimizer optimizer;
} ref_exec;

/* Fails the test on an error. Parameters are initialised from `seed`, or copied from `like` if not NULL. */
void ref_init(ref_exec *ref, const nets_net *net, int64_t batch, nets_mode mode, ref_options options, uint64_t seed,
              const ref_exec *like);
void ref_fini(ref_exec *ref);

/* Fills managed tensors and the workspace with NaN, runs one iteration, and returns the loss. */
float ref_iteration(ref_exec *ref, const float *images, const int32_t *labels, float lr);

/* Elements of the named tensor; fails the test if there is none. */
void *ref_tensor(const ref_exec *ref, const char *name);

/* A small net with layers that read one map twice: sums and concatenations, of maps with other consumers, of the images
 * and, in evaluation only, through a dropout with probability `dropped`. Two of its batch norms are fused with a
 * ReLU. */
nets_net *ref_repeated_net(float dropped);

/* Makes n images of the net's size and their labels from a seed. The caller frees both. */
void ref_batch(const nets_net *net, int64_t n, uint32_t seed, float **images_out, int32_t **labels_out);

#endif
