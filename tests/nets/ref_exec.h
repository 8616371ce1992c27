/* A reference executor: runs a lowered net with storage of its own for every tensor, step after step, each drained
 * before the next. What a manager does must give the same bits. */
#ifndef TESTS_NETS_REF_EXEC_H
#define TESTS_NETS_REF_EXEC_H

#include "nets/lower.h"

typedef struct ref_options {
    bool share;     /* storage is shared wherever the graph allows it and nobody needs the input later */
    bool sign_mask; /* readers of the sign get the mask */
    bool no_fuse;   /* layer by layer */
    nets_optimizer_id optimizer;
    bool exact; /* steps are told that everything has the bits that it had, as it has */
} ref_options;

typedef struct ref_exec {
    const nets_net *net;
    ref_options options;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    nets_lowered *lowered;
    void **storage; /* of roots; NULL for tensors that live in another's */
    mm_tensor *root;
    int shared; /* how many tensors live in another's storage */
    void *workspace;
    int64_t workspace_bytes;
    nets_update_param *params;
    int n_params;
    nets_optimizer optimizer;
} ref_exec;

/* Fails the test if it cannot. Parameters start from `seed`; or, `like` not NULL, as they are there. */
void ref_init(ref_exec *ref, const nets_net *net, int64_t batch, nets_mode mode, ref_options options, uint64_t seed,
              const ref_exec *like);
void ref_fini(ref_exec *ref);

/* One iteration; returns the loss. Managed tensors and the workspace are full of NaN before. */
float ref_iteration(ref_exec *ref, const float *images, const int32_t *labels, float lr);

/* A tensor's elements by name; fails the test if there is none. */
void *ref_tensor(const ref_exec *ref, const char *name);

/* A small net in which layers read one map twice: sums and concats, of maps with other consumers, of the images, in
 * evaluation only, where a dropout of that probability is none. Two of its batch norms run with their ReLU. */
nets_net *ref_repeated_net(float dropped);

/* n images of the net's size and their labels, from a seed. The caller frees them. */
void ref_batch(const nets_net *net, int64_t n, uint32_t seed, float **images_out, int32_t **labels_out);

#endif
