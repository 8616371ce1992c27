/* One op on a host stream, with storage of its own for every role: what the op tests measure with. */
#ifndef TESTS_NETS_OP_RIG_H
#define TESTS_NETS_OP_RIG_H

#include "nets/op.h"

typedef struct op_rig {
    nets_op_desc desc;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    nets_op *op;
    nets_op_args args;         /* what is enqueued: tests may point roles elsewhere */
    void *storage[NETS_ROLES]; /* what args.at points to at first */
    int64_t bytes[NETS_ROLES];
    int64_t w_elems, b_elems;
} op_rig;

/* The op of a single layer on an input of {n, h, w, c}, in training unless told; inputs filled at random. Fails the
 * test if it cannot. */
void op_rig_init(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4], bool training,
                 bool wants_dx);
/* The same of several inputs that have the dims x but for their channels; inputs after the first are given random
 * numbers, too. */
void op_rig_init_inputs(op_rig *rig, nets_op_kind kind, const nets_attrs *attrs, const int64_t x[4],
                        const int64_t *channels, int n_inputs, bool training, bool wants_dx);
void op_rig_fini(op_rig *rig);

float *op_rig_floats(const op_rig *rig, nets_role role);
int64_t op_rig_elems(const op_rig *rig, nets_role role);

/* Fills a role with numbers in [-1, 1] that depend on the seed alone. */
void op_rig_fill(op_rig *rig, nets_role role, uint32_t seed);

/* Runs a phase to its end, with the workspace full of NaN first. Fails the test if anything was written behind the
 * workspace that the op declares for the phase. */
void op_rig_run(op_rig *rig, mm_phase phase);

/* Compares the gradient `by` (DX, DW, DB, DX2), as the backward computed it for the output's gradient DY, with central
 * differences of sum(DY * Y) by the elements of `of` (X, W, B, X2), step h. The largest deviation may be `tolerance`
 * times the largest gradient. */
void op_rig_check_gradient(op_rig *rig, nets_role of, nets_role by, float h, double tolerance);

/* The backward with an earlier contribution gives DX of the backward without, plus that contribution, exactly. */
void op_rig_check_earlier(op_rig *rig);

/* Both phases give the same bits wherever the tensors and the workspace lie. */
void op_rig_check_places(op_rig *rig);

/* A phase that writes `output` over `input` gives the same bits as one that does not. */
void op_rig_check_inplace(op_rig *rig, mm_phase phase, nets_role input, nets_role output);

#endif
