/* SPDX-License-Identifier: MIT */
/* Trains small networks of the zoo under managers, and compares results. Any failure fails the test, and names the net
 * and the policy. */
#ifndef TESTS_SUITE_SUITE_RIG_H
#define TESTS_SUITE_SUITE_RIG_H

#include "nets/exec/exec.h"

enum { SUITE_SEED = 11, SUITE_THREADS = 3 }; /* SUITE_THREADS: of the host device, the same on every machine */
static const nets_optimizer SUITE_SGD = {.momentum = 0.9f, .weight_decay = 1e-4f};
static const nets_optimizer SUITE_ADAMW = {
    .id = NETS_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .only_finite = true};
static const float SUITE_RATE = 0.02f;

/* Runs `run` on each device of this build, or on the one that MM_SUITE_DEVICE names. Returns main's result. */
int suite_on_each_device(int (*run)(const char *device));
/* A test whose *state is the device's name. */
#define SUITE_TEST(function, device) cmocka_unit_test_prestate(function, (void *)(uintptr_t)(device))

/* A network, and one batch to train on. */
typedef struct suite_net {
    const char *device;
    nets_net *net;
    int64_t batch;
    int64_t sub_batch; /* images in a sub-batch; 0 (at first): whole batches */
    bool no_fuse;      /* layers are not fused; false at first */
    nets_update_when update;
    int64_t strip_elems;             /* nets_lowering.strip_elems; 0 at first */
    const nets_optimizer *optimizer; /* NULL (at first): SUITE_SGD */
    nets_precision precision;
    bool several; /* steps may have several algorithms, so gradients may vary in their bits; false at first */
    float *images;
    int32_t *labels;
} suite_net;

/* name: a network of the zoo; behind it may stand " lora:..." or " freeze:...", as the options of mm train (adapt.h).
 * Skips the test if the device is absent. */
void suite_net_init(suite_net *s, const char *device, const char *name, int64_t batch);
/* conv bn relu dropout conv bn relu pool fc: very small; backward steps read all maps but one. */
void suite_net_init_dropped(suite_net *s, const char *device, int64_t batch);
void suite_net_fini(suite_net *s);

/* What the policy's plan needs if it is alone in an arena with `budget` bytes (0: the policy's minimum). The plan is
 * proved. With sub-batches there are several plans: the memory is the most that one of them needs; the other numbers
 * are sums over them. */
typedef struct suite_need {
    int64_t device_bytes, pinned_bytes;
    int64_t out_bytes, in_bytes;         /* copied in an iteration, without codes of variable size */
    bool bodies;                         /* codes vary in size */
    bool spills;                         /* some codes lie in pinned memory, however small they are */
    int operations;                      /* on side streams */
    int recomputed;                      /* steps that are run again */
    int recomputed_kind[MM_LAYER_KINDS]; /* steps that are run again, by their layer's kind */
} suite_need;
suite_need suite_needs(const suite_net *s, const char *policy, int64_t budget);
suite_need suite_needs_within(const suite_net *s, const char *policy, int64_t budget, int64_t pinned);

/* Opens a backend of the net's device, or of the named one. All backends of a device give the same bits and need the
 * same workspaces. */
nets_backend *suite_backend(const suite_net *s);
nets_backend *suite_backend_on(const suite_net *s, const char *device);

/* An executor of the net, with initial values, in a manager of its own. */
typedef struct suite_run {
    const suite_net *s;
    mm_manager *manager;
    nets_backend *backend;
    nets_exec *exec;
} suite_run;
void suite_run_init(suite_run *r, const suite_net *s, const mm_options *options);
void suite_run_fini(suite_run *r);

/* Whether two results of suite_weights have the same learned parameters, states and running statistics. */
bool suite_same_learned(const suite_net *s, const float *a, const float *b);

/* Runs one iteration; returns the loss. */
float suite_iterate(suite_run *r);

/* All parameters (weights, running statistics), then all gradients (zero where they are managed), then all states. The
 * caller frees them. */
float *suite_weights(const suite_run *r, size_t *n_out);
/* The same, but gradients are not read, and zero. */
float *suite_learned(const suite_run *r, size_t *n_out);

/* Fails the test if the run has touched more device memory than this, or any outside its arena. The run's options had
 * measure_touched. */
void suite_check_touched(const suite_run *r, int64_t bytes);

/* Sets the run's policy, then its budget. Where either has too little memory, it stays as it was. */
void suite_switch(const suite_run *r, const char *policy, int64_t budget);

/* Ends a run with suite_run_fini. Fails the test if the run has touched more device memory than `most`, or any outside
 * its arena, or has not learned what `expected` has, from suite_weights of as many iterations. */
void suite_expect_end(suite_run *r, int64_t most, const float *expected);

/* A way to train that an executor refuses, and a part of the message. */
typedef struct suite_refused {
    nets_update_when update;
    double clip_norm;
    int64_t sub_batch;
    nets_allreduce allreduce;
    const char *policy; /* NULL: liveness */
    const char *why;
} suite_refused;
void suite_expect_refused(const suite_net *s, const nets_optimizer *optimizer, const suite_refused *cases, size_t n);

/* suite_weights after `iterations` of a new run under the policy in just what it needs, with self-checks, and the last
 * loss. */
float *suite_train(const suite_net *s, const char *policy, int iterations, float *loss_out, size_t *n_out);

/* suite_weights after `iterations` of a new run under the policy, with memory to spare. */
float *suite_expected(const suite_net *s, const char *policy, int iterations, size_t *n_out);

#endif
