/* SPDX-License-Identifier: MIT */
/* Rig for tests of one op, on a stream of a device, with separate storage for every role. Device and CPU can both
 * access it. A test's main runs all tests once for each device of the build. */
#ifndef TESTS_NETS_OP_RIG_H
#define TESTS_NETS_OP_RIG_H

#include "nets/contract/op.h"
#include "nets/contract/op_order.h"

/* Sets the device of later rigs to the i-th of the build; false past the last. */
bool op_rig_use_device(size_t i);
/* Sets the device of later rigs by name. */
void op_rig_use(const char *device);
/* The name of the device of later rigs. */
const char *op_rig_device(void);
/* Whether the device has an implementation of the operation. */
bool op_rig_has(nets_op_kind kind);

/* The body of a test's main: runs all tests on each device. Tests on a device without hardware are skipped. */
#define OP_RIG_RUN(tests)                                                                                              \
    int failures = 0;                                                                                                  \
    for (size_t device = 0; op_rig_use_device(device); device++)                                                       \
        failures += cmocka_run_group_tests_name(op_rig_device(), tests, NULL, NULL);                                   \
    return failures

/* OP_RIG_THREADS: number of threads of device host; more than one, so that work for several images is divided. */
enum { OP_RIG_BLOCKS = 128, OP_RIG_THREADS = 3 };

typedef struct op_rig {
    nets_op_desc desc;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    nets_op *op;
    nets_op_args args;         /* arguments of phases; tests may change the pointers */
    void *storage[NETS_ROLES]; /* args.at as it is after init */
    int64_t bytes[NETS_ROLES];
    nets_order orders[NETS_MAX_PARAMS]; /* of parameters and their gradients */
    struct {
        void *memory;
        int64_t bytes;
    } blocks[OP_RIG_BLOCKS]; /* from op_rig_alloc */
    int n_blocks;
} op_rig;

/* Opens device, stream and backend without an op. `config` NULL: deterministic, small workspaces, and algorithms that
 * all such rigs share, so that they give the same bits. Skips the test if the device does not answer. Close with
 * op_rig_fini. */
void op_rig_open(op_rig *rig, const nets_backend_config *config);

/* Zeroed memory for a role or an update. op_rig_fini frees it. */
void *op_rig_alloc(op_rig *rig, int64_t bytes);

/* Makes an op on an input of {n, h, w, c}, and fills its inputs with random numbers. Fails the test on an error. */
void op_rig_init(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], bool training,
                 bool wants_dx);
/* op_rig_init with two inputs {n, h, w, c}; x2 may have other channels, or be {n, 1, 1, c}. */
void op_rig_init_two(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], const int64_t x2[4],
                     bool training, bool wants_dx);
/* op_rig_init with several inputs of dims x, each with its own number of channels. */
void op_rig_init_inputs(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4],
                        const int64_t *channels, int n_inputs, bool training, bool wants_dx);
/* op_rig_init for a fused op (nets/lower/fuse.h): a batch norm with a ReLU (with two inputs: and a sum), a ReLU with a
 * bias, or a product with a SiLU. */
void op_rig_init_fused(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], int n_inputs,
                       bool training, bool wants_dx);
void op_rig_fini(op_rig *rig);

/* Makes the op again, on a new backend with this configuration. */
void op_rig_reopen(op_rig *rig, const nets_backend_config *config);

float *op_rig_floats(const op_rig *rig, nets_role role);
/* Where torchvision's element e of a role lies; e except for convolutions' weights on some devices. */
int64_t op_rig_place(const op_rig *rig, nets_role role, int64_t e);
int64_t op_rig_elems(const op_rig *rig, nets_role role);

/* A sign mask of n numbers, in mm.h's format; op_rig_fini frees it. */
void *op_rig_mask(op_rig *rig, const float *y, int64_t n);

/* Fills a role with numbers in [-1, 1] that depend only on the seed and on the element. */
void op_rig_fill(op_rig *rig, nets_role role, uint32_t seed);

/* Fills the workspace with NaN and runs a phase to its end, with the largest workspace within args.workspace_bytes (at
 * first any). Fails the test if anything behind the workspace was written. */
void op_rig_run(op_rig *rig, mm_phase phase);

/* Compares gradient `by` (DX, DW, DB, DX2), which the backward computed from DY, with central differences of sum(DY *
 * Y) by the elements of `of` (X, W, B, X2) with step h. The largest error may be `tolerance` times the largest
 * gradient. */
void op_rig_check_gradient(op_rig *rig, nets_role of, nets_role by, float h, double tolerance);

/* Makes the op again, with adds_earlier and this EARLIER; NULL: with neither. */
void op_rig_give_earlier(op_rig *rig, void *earlier);

/* Makes the op again, with frozen parameters. */
void op_rig_freeze(op_rig *rig);

/* Makes the op again, for a pass that is not the first: it may add to the parameters' gradients (nets_op.adds). */
void op_rig_give_passes(op_rig *rig);

/* Checks that the backward with EARLIER gives the DX without it plus EARLIER: exactly, except for a GPU's convolutions,
 * which may sum in another order. */
void op_rig_check_earlier(op_rig *rig);

/* Checks that a convolution gives the same bits if EARLIER is at DX's address. */
void op_rig_check_earlier_inplace(op_rig *rig);

/* Checks that a convolution made with adds_earlier refuses a backward without EARLIER, and the other way round. */
void op_rig_check_made_for_earlier(op_rig *rig);

/* Checks that both phases give the same bits wherever the tensors and the workspace lie. */
void op_rig_check_places(op_rig *rig);

/* Checks that a phase that writes `output` over `input` gives the same bits as one that does not. */
void op_rig_check_inplace(op_rig *rig, mm_phase phase, nets_role input, nets_role output);

#endif
