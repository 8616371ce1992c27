/* SPDX-License-Identifier: MIT */
/* The rig of the op tests: one op on a stream of a device, with storage of its own for every role. Storage is in memory
 * that both the device and the CPU can access. The tests' mains run them once for each device of the build. */
#ifndef TESTS_NETS_OP_RIG_H
#define TESTS_NETS_OP_RIG_H

#include "nets/contract/op.h"
#include "nets/contract/op_order.h"

/* Sets the device of later rigs to the i-th of the build; false past the last. */
bool op_rig_use_device(size_t i);
/* Sets it by name. */
void op_rig_use(const char *device);
/* Its name. */
const char *op_rig_device(void);

/* The body of a main: runs all tests on each device. Tests on a device that does not answer are skipped. */
#define OP_RIG_RUN(tests)                                                                                              \
    int failures = 0;                                                                                                  \
    for (size_t device = 0; op_rig_use_device(device); device++)                                                       \
        failures += cmocka_run_group_tests_name(op_rig_device(), tests, NULL, NULL);                                   \
    return failures

/* THREADS: of device host; more than a batch of one image has pieces. */
enum { OP_RIG_BLOCKS = 128, OP_RIG_THREADS = 3 };

typedef struct op_rig {
    nets_op_desc desc;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    nets_op *op;
    nets_op_args args;         /* with which phases are enqueued; tests may change its pointers */
    void *storage[NETS_ROLES]; /* what args.at points to after init */
    int64_t bytes[NETS_ROLES];
    nets_order orders[NETS_MAX_PARAMS]; /* of parameters and their gradients */
    struct {
        void *memory;
        int64_t bytes;
    } blocks[OP_RIG_BLOCKS]; /* taken by op_rig_alloc */
    int n_blocks;
} op_rig;

/* Opens device, stream and backend without an op. `config` NULL: deterministic, with small workspaces and the
 * algorithms that all such rigs share, so that several rigs give the same bits. Skips the test if the device does not
 * answer. End with op_rig_fini. */
void op_rig_open(op_rig *rig, const nets_backend_config *config);

/* Memory for a role or an update, full of zeros. op_rig_fini frees it. */
void *op_rig_alloc(op_rig *rig, int64_t bytes);

/* Makes the op of a single layer on an input of {n, h, w, c}, and fills its inputs with random numbers. Fails the test
 * if it cannot. */
void op_rig_init(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], bool training,
                 bool wants_dx);
/* The same with several inputs of the dims x, each with its own number of channels. */
void op_rig_init_inputs(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4],
                        const int64_t *channels, int n_inputs, bool training, bool wants_dx);
/* The same for an op that is fused with a ReLU (nets/lower/fuse.h): a batch norm, with a sum if there are two inputs, or a
 * ReLU with a bias. */
void op_rig_init_fused(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], int n_inputs,
                       bool training, bool wants_dx);
void op_rig_fini(op_rig *rig);

/* Makes the op again, on a new backend with this configuration. */
void op_rig_reopen(op_rig *rig, const nets_backend_config *config);

float *op_rig_floats(const op_rig *rig, nets_role role);
/* Where torchvision's element e of a role is among them; e but for the weights of a convolution on some devices. */
int64_t op_rig_place(const op_rig *rig, nets_role role, int64_t e);
int64_t op_rig_elems(const op_rig *rig, nets_role role);

/* The signs of n numbers in mm.h's form of a mask; given back by op_rig_fini. */
void *op_rig_mask(op_rig *rig, const float *y, int64_t n);

/* Fills a role with numbers in [-1, 1] that depend only on the seed and on the element. */
void op_rig_fill(op_rig *rig, nets_role role, uint32_t seed);

/* Fills the workspace with NaN and runs a phase to its end, in the largest of its workspaces that args.workspace_bytes
 * allow (at first: any). Fails the test if anything was written behind it. */
void op_rig_run(op_rig *rig, mm_phase phase);

/* Compares the gradient `by` (DX, DW, DB, DX2), as the backward computed it for the output's gradient DY, with central
 * differences of sum(DY * Y) by the elements of `of` (X, W, B, X2), step h. The largest deviation may be `tolerance`
 * times the largest gradient. */
void op_rig_check_gradient(op_rig *rig, nets_role of, nets_role by, float h, double tolerance);

/* Makes the op again, with adds_earlier and this EARLIER; NULL: without. */
void op_rig_give_earlier(op_rig *rig, void *earlier);

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
