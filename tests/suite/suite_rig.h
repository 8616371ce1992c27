/* Small networks of the zoo, trained under managers, and what is compared afterwards. Everything fails the test if it
 * cannot be done, naming the net and the policy. */
#ifndef TESTS_SUITE_SUITE_RIG_H
#define TESTS_SUITE_SUITE_RIG_H

#include "nets/exec.h"

enum { SUITE_SEED = 11, SUITE_THREADS = 3 }; /* threads: of device host, whatever the machine has */
static const nets_optimizer SUITE_SGD = {.momentum = 0.9f, .weight_decay = 1e-4f};
static const float SUITE_RATE = 0.02f;

/* Runs a program's tests on each device of this build, or on the one that MM_SUITE_DEVICE names; what main returns. */
int suite_on_each_device(int (*run)(const char *device));
/* A test that finds the device's name as its *state. */
#define SUITE_TEST(function, device) cmocka_unit_test_prestate(function, (void *)(uintptr_t)(device))

/* A network with one batch to train on. */
typedef struct suite_net {
    const char *device; /* that it is to be trained on */
    nets_net *net;
    int64_t batch;
    bool no_fuse; /* layer by layer; false at first */
    float *images;
    int32_t *labels;
} suite_net;

/* `name` as the zoo reads it. Skips the test if the device is not there. */
void suite_net_init(suite_net *s, const char *device, const char *name, int64_t batch);
/* conv bn relu dropout conv bn relu pool fc: very small, and every map but one is read by a backward step. */
void suite_net_init_dropped(suite_net *s, const char *device, int64_t batch);
void suite_net_fini(suite_net *s);

/* What the policy's plan needs, alone in an arena, when it is given `budget` bytes (0: its minimum). It is proved. */
typedef struct suite_need {
    int64_t device_bytes, pinned_bytes;
    int64_t out_bytes, in_bytes;         /* over the link in an iteration */
    int operations;                      /* on side streams */
    int recomputed;                      /* steps that are run again */
    int recomputed_kind[MM_LAYER_KINDS]; /* of them, by the layer's kind */
} suite_need;
suite_need suite_needs(const suite_net *s, const char *policy, int64_t budget);
suite_need suite_needs_within(const suite_net *s, const char *policy, int64_t budget, int64_t pinned);

/* A backend of the net's device, or of another: all of a device give the same bits and need the same workspaces. */
nets_backend *suite_backend(const suite_net *s);
nets_backend *suite_backend_on(const suite_net *s, const char *device);

/* An executor of the net in a manager of its own, with initial values. */
typedef struct suite_run {
    const suite_net *s;
    mm_manager *manager;
    nets_backend *backend;
    nets_exec *exec;
} suite_run;
void suite_run_init(suite_run *r, const suite_net *s, const mm_options *options);
void suite_run_fini(suite_run *r);

/* Whether what is learned, its momenta and the running statistics are the same in two of suite_weights. */
bool suite_same_learned(const suite_net *s, const float *a, const float *b);

/* One iteration; the loss. */
float suite_iterate(suite_run *r);

/* All parameters (weights, running statistics), then gradients and momenta, one after the other. The caller frees. */
float *suite_weights(const suite_run *r, size_t *n_out);

/* The same after `iterations` of a fresh run under a policy with bytes to spare. */
float *suite_expected(const suite_net *s, const char *policy, int iterations, size_t *n_out);

#endif
