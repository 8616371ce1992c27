/* SPDX-License-Identifier: MIT */
/* What an op computes (nets_op_desc), and the tensors that it is given (nets_op_args). */
#ifndef NETS_CONTRACT_OP_DESC_H
#define NETS_CONTRACT_OP_DESC_H

#include "nets/role.h"

/* The tensors whose codes an op may get, as indices of nets_op_args.coded. */
enum { NETS_CODED_X, NETS_CODED_Y, NETS_CODED };

typedef struct nets_op_args {
    void *at[NETS_ROLES]; /* NULL: absent */
    /* Size of the memory at NETS_WORKSPACE; the op uses the largest of its workspace sizes that fits */
    int64_t workspace_bytes;
    uint64_t sign_roles; /* bit r: role r is a sign mask (mm.h, MM_FORM_SIGN) instead of elements */
    /* Bit r: this is a recomputation, and role r, an output, still has its value; the op reads it and must not write
     * it. Set for all saved tensors with nets_saved_spec.given, or for none. */
    uint64_t given_roles;
    /* Bit r: role r has the bits that it had in the forward, so what depends on it alone can be computed again instead
     * of read. Set only for steps that read signs; 0 is always legal. */
    uint64_t exact_roles;
    /* Codes, by NETS_CODED_*; strips NULL: there is none. A forward writes them beside the elements. A backward reads
     * them instead of the elements, whose address is NULL. Only ops with code_needs get any. */
    mm_coded coded[NETS_CODED];
    uint32_t layer; /* the layer's number: dropout layers need different random numbers */
} nets_op_args;

/* Parts of a weight's gradient: part i has rows i * part_rows and the next ones, as many as there are. Such parts are
 * all that exists of a gradient at a time if ranks divide it (nets/lower/param_parts.h). */
typedef struct nets_part_args {
    const float *x;      /* the layer's input */
    const float *dy;     /* the gradient of its output; of a loss of tokens what it saved */
    float *dw;           /* the k-th part's rows, at k * part_rows rows; parts without rows leave it as it is */
    void *workspace;     /* of nets_op.part_bytes */
    int64_t first, step; /* the k-th part is first + k * step */
    int n;
} nets_part_args;

/* A training graph's part in one update of the weights. A batch may be trained on in sub-batches, one pass of a graph
 * each; the passes' gradients are added up, and the last pass updates. All zero: the graph's batch is the whole. */
typedef struct nets_pass {
    /* Images of the whole batch, whose number of labels divides the loss; 0: the graph's batch is the whole. With
     * several ranks the caller gives the images of this rank's part, which lowering multiplies by the number of
     * ranks. */
    int64_t whole;
    bool adds;    /* not the first pass: gradients, loss and correct labels are added to those of the passes before */
    bool goes_on; /* not the last pass: nothing is updated; NETS_RNG_IMAGE moves on to the next pass's first image */
} nets_pass;

typedef struct nets_op_desc {
    nets_op_kind kind;
    nets_attrs attrs;
    /* A batch norm is fused with a ReLU: y = max(0, bn(x)), or max(0, bn(x) + x2) if it has two inputs. (A ReLU with
     * attrs.bias is y = max(0, x + b).) The bits are those of the single operations, one after the other. */
    bool relu;
    /* A product is fused with the SiLU of its first input (SwiGLU): y = silu(x) x2, where silu(x) is not rounded. With
     * f32 maps the bits are those of the single operations. */
    bool silu;
    mm_dtype maps;                    /* type of X, Y and their gradients */
    uint32_t f32_inputs;              /* bit i: input i is f32, whatever the maps are: it is the batch */
    int64_t factor_elems;             /* the weight's on the device, if it is a factor (nets_param_spec.factor) */
    nets_shape x[NETS_MAX_INPUTS], y; /* shapes of the inputs and the output, batch included */
    int n_inputs;
    bool training; /* false: evaluation, without a backward */
    bool wants_dx; /* the backward computes the first input's gradient; other inputs' DX may be absent in any case */
    /* Every backward of the op gets EARLIER; false: none does. A convolution chooses its algorithm by this, too */
    bool adds_earlier;
    /* Its parameters are frozen: if its description says that it skips them (nets_op_info.skips_frozen), it gets no
     * DPARAM, nor what it would read for that alone. */
    bool frozen;
    /* Another layer reads the parameters, too, and has written their gradients: the op adds to them (nets_op.adds). */
    bool shared;
    /* Not 0: the weight's gradient is computed in parts of so many rows, whole or not, with the same bits; its layers
     * give parts (nets_backend_ops.parts). */
    int64_t part_rows;
    bool parts_only; /* it is never whole: no step gets DW, and a loss of tokens saves what its parts need */
    nets_pass pass;
} nets_op_desc;

#endif
