/* One op on a stream of a device, with storage of its own for every role: what the op tests measure with. Their mains
 * run them once for each device of the build. Storage is in memory that both the device and the CPU can touch. */
#ifndef TESTS_NETS_OP_RIG_H
#define TESTS_NETS_OP_RIG_H

#include "nets/op.h"

/* The device that rigs are made on from here on: the i-th of the build, false past the last. */
bool op_rig_use_device(size_t i);
/* By name. */
void op_rig_use(const char *device);
/* Its name. */
const char *op_rig_device(void);

/* The body of a main: all the tests on each device; those of a device that does not answer are skipped. */
#define OP_RIG_RUN(tests)                                                                                              \
    int failures = 0;                                                                                                  \
    for (size_t device = 0; op_rig_use_device(device); device++)                                                       \
        failures += cmocka_run_group_tests_name(op_rig_device(), tests, NULL, NULL);                                   \
    return failures

/* Threads: of the host; more than batches of one image have pieces for. */
enum { OP_RIG_BLOCKS = 128, OP_RIG_THREADS = 3 };

typedef struct op_rig {
    nets_op_desc desc;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    nets_op *op;
    nets_op_args args;         /* what is enqueued: tests may point roles elsewhere */
    void *storage[NETS_ROLES]; /* what args.at points to at first */
    int64_t bytes[NETS_ROLES];
    struct {
        void *memory;
        int64_t bytes;
    } blocks[OP_RIG_BLOCKS]; /* taken by op_rig_alloc */
    int n_blocks;
} op_rig;

/* Device, stream and backend alone, for what is no op. `config` NULL: deterministic, with small workspaces and
 * the algorithms of all such rigs, so that several give the same bits. Skips the test if the device does not answer;
 * the rig is ended by op_rig_fini. */
void op_rig_open(op_rig *rig, const nets_backend_config *config);

/* Memory for a role, or for an update, full of zeros; given back by op_rig_fini. */
void *op_rig_alloc(op_rig *rig, int64_t bytes);

/* The op of a single layer on an input of {n, h, w, c}, in training unless told; inputs filled at random. Fails the
 * test if it cannot. */
void op_rig_init(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], bool training,
                 bool wants_dx);
/* The same of several inputs that have the dims x but for their channels; inputs after the first are given random
 * numbers, too. */
void op_rig_init_inputs(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4],
                        const int64_t *channels, int n_inputs, bool training, bool wants_dx);
/* What a layer with a ReLU has in one op: a batch norm, of two inputs with the sum between them, or a ReLU with a
 * bias. */
void op_rig_init_fused(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], int n_inputs,
                       bool training, bool wants_dx);
void op_rig_fini(op_rig *rig);

/* Makes the op anew on a backend opened with this configuration. */
void op_rig_reopen(op_rig *rig, const nets_backend_config *config);

float *op_rig_floats(const op_rig *rig, nets_role role);
int64_t op_rig_elems(const op_rig *rig, nets_role role);

/* The signs of n numbers in mm.h's form of a mask; given back by op_rig_fini. */
void *op_rig_mask(op_rig *rig, const float *y, int64_t n);

/* Fills a role with numbers in [-1, 1] that depend on the seed alone. */
void op_rig_fill(op_rig *rig, nets_role role, uint32_t seed);

/* Runs a phase to its end, with the workspace full of NaN first. Fails the test if anything was written behind the
 * workspace that the op declares for the phase. */
void op_rig_run(op_rig *rig, mm_phase phase);

/* Compares the gradient `by` (DX, DW, DB, DX2), as the backward computed it for the output's gradient DY, with central
 * differences of sum(DY * Y) by the elements of `of` (X, W, B, X2), step h. The largest deviation may be `tolerance`
 * times the largest gradient. */
void op_rig_check_gradient(op_rig *rig, nets_role of, nets_role by, float h, double tolerance);

/* Makes the op anew as one that gets EARLIER, and gives it that; NULL: as one that gets none. */
void op_rig_give_earlier(op_rig *rig, void *earlier);

/* The backward with an earlier contribution gives DX of the backward without, plus that contribution: exactly, but for
 * a GPU's convolutions, which may sum up in another order then. */
void op_rig_check_earlier(op_rig *rig);

/* A convolution's: the same bits where the earlier contribution lies in DX's place. */
void op_rig_check_earlier_inplace(op_rig *rig);

/* A convolution's: one made for an earlier contribution refuses to do without, and the other way round. */
void op_rig_check_made_for_earlier(op_rig *rig);

/* Both phases give the same bits wherever the tensors and the workspace lie. */
void op_rig_check_places(op_rig *rig);

/* A phase that writes `output` over `input` gives the same bits as one that does not. */
void op_rig_check_inplace(op_rig *rig, mm_phase phase, nets_role input, nets_role output);

#endif
