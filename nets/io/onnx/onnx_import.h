/* SPDX-License-Identifier: MIT */
/* Importing an ONNX graph. Its nodes are gone through once, in order; each gives its outputs a meaning (onnx_value),
 * and where that needs a layer, appends a draft of one. At the end the drafts that the output needs become the net.
 *
 *      file  ──►  nodes and initializers  ──►  values and drafts  ──►  net, with initial values
 *      onnx_model.c   onnx_link.c           onnx_*_ops.c, onnx_draft.c     onnx_build.c
 *
 * One import is one thread's. All memory of it is freed at its end. Internal to nets/io/onnx. */
#ifndef NETS_IO_ONNX_IMPORT_H
#define NETS_IO_ONNX_IMPORT_H

#include "mm/core/graph/names.h"
#include "nets/io/onnx/onnx_tensor.h"
#include "nets/net_ops.h"
#include <onnx.pb-c.h>

/* A function of single elements is known by its values at these many points. */
enum { ONNX_POINTS = 40 };

typedef enum onnx_kind {
    ONNX_UNKNOWN,
    ONNX_CONSTANT,
    ONNX_MAP,    /* elements of a draft's output, each changed by a function */
    ONNX_SCORES, /* of attention: queries times keys, scaled, perhaps masked */
    ONNX_SHARES, /* their softmax */
    ONNX_IS_NAN, /* which shares are NaN: none, as no row is masked wholly */
} onnx_kind;

/* Queries and keys, as far as they are known before they meet values. */
typedef struct onnx_attention {
    int drafts[3];      /* that give queries, keys and values */
    int64_t offsets[3]; /* of their channels there */
    onnx_view queries;  /* [..., tokens, depth] */
    int64_t heads, tokens, depth;
    bool causal;
} onnx_attention;

/* An initializer. Values that mean it share it. */
typedef struct onnx_initializer {
    Onnx__TensorProto *proto;
    onnx_tensor *tensor; /* NULL: it was not read yet */
} onnx_initializer;

typedef struct onnx_value {
    const char *name;
    onnx_kind kind;
    int uses;                      /* by nodes, and as the graph's output */
    bool sole;                     /* its draft's output is seen through it alone, if it has one use itself */
    onnx_initializer *initializer; /* of a constant; NULL: it was computed */
    onnx_tensor *constant;
    int draft;
    onnx_view view;
    double function[ONNX_POINTS]; /* of MAP; SCORES: their factor, at point 0 */
    onnx_attention attention;     /* SCORES and SHARES */
} onnx_value;

typedef struct onnx_node {
    const Onnx__NodeProto *proto;
    const char *op;   /* its operation, such as "Conv" */
    const char *name; /* for messages */
    int first_value;  /* its inputs', then its outputs' values: m->links from here on; -1: an input is left out */
    int n_inputs, n_outputs;
} onnx_node;

/* A parameter's initial values. */
typedef struct onnx_param {
    onnx_tensor *tensor; /* NULL: not known yet */
    bool transpose;      /* the parameter is the tensor, a matrix, transposed */
} onnx_param;

/* What a draft is before it is a layer. */
typedef enum onnx_draft_kind {
    ONNX_LAYER,
    ONNX_PADDING, /* zeros around its input, for the convolution or pool that reads it */
    ONNX_SOFTMAX, /* of the graph's output, which the loss has in itself */
} onnx_draft_kind;

typedef struct onnx_draft {
    onnx_draft_kind kind;
    nets_layer layer;           /* its inputs are drafts */
    const char *node;           /* for messages */
    int64_t padding[4];         /* ONNX_PADDING: top, left, bottom, right */
    bool anew;                  /* its parameters are not the file's */
    bool affine_pending;        /* a group norm whose weight and bias may still come */
    int first_joined, n_joined; /* the drafts that it joins, in m->joined; 0: no concat of a node's */
    onnx_param params[NETS_MAX_PARAMS];
    int built; /* the net's layer */
} onnx_draft;

/* A copy of a name. */
typedef struct onnx_text {
    struct onnx_text *next;
    char text[];
} onnx_text;

typedef struct onnx_import {
    const char *path;
    Onnx__ModelProto *model;
    int64_t classes;      /* that are wanted in place of the file's; 0: the file's */
    int64_t opset, batch; /* batch: of the graph's input, 1 if it is open */
    onnx_tensors tensors;
    onnx_value *values;
    int n_values;
    onnx_initializer *initializers;
    int *links;
    onnx_node *nodes;
    int n_nodes;
    onnx_draft *drafts;
    int n_drafts, drafts_capacity;
    int *joined; /* lists of drafts */
    int n_joined;
    mm_names names; /* values by name */
    mm_names layer_names, param_names;
    onnx_text *texts; /* the names in these two */
    int output;       /* the graph's output, a value */
    bool tokens;      /* the graph's input is whole numbers */
} onnx_import;

/* ---------------------------------------------------------------- file (onnx_model.c) */

/* The file's bytes; the caller frees them. */
mm_status onnx_file_read(const char *path, uint8_t **data_out, int64_t *bytes_out);
/* Makes the message of a file's bytes, which are not needed any more then. */
mm_status onnx_model_unpack(onnx_import *m, const uint8_t *data, int64_t bytes);
/* The constant's elements; reads an initializer from the file at first. */
mm_status onnx_constant(onnx_import *m, onnx_value *value, onnx_tensor **tensor_out);
/* Whether ONNX's type of elements is one of floats. */
bool onnx_is_real(int type);
/* The tensor of a node's attribute. */
mm_status onnx_tensor_read(onnx_import *m, const Onnx__TensorProto *proto, onnx_tensor **tensor_out);

/* ---------------------------------------------------------------- lists (onnx_link.c) */

/* Checks the message, and makes its values, its nodes and draft 0, the data. */
mm_status onnx_model_link(onnx_import *m);

/* ---------------------------------------------------------------- nodes (onnx_node.c) */

/* A failure that names the node. */
#define onnx_refuse(m, node, ...) (mm_fail_set(__VA_ARGS__), onnx_refused(m, node, MM_ERR_UNSUPPORTED))
/* Names the node in the thread's message, and gives `status`. */
mm_status onnx_refused(const onnx_import *m, const onnx_node *node, mm_status status);

/* The node's i-th input or output; NULL: it has none. */
onnx_value *onnx_in(const onnx_import *m, const onnx_node *node, int i);
onnx_value *onnx_out(const onnx_import *m, const onnx_node *node, int i);

int64_t onnx_attr_int(const onnx_node *node, const char *name, int64_t otherwise);
double onnx_attr_real(const onnx_node *node, const char *name, double otherwise);
/* "": it is not given. Returns text_out. */
enum { ONNX_TEXT_CAPACITY = 32 };
const char *onnx_attr_text(const onnx_node *node, const char *name, char text_out[ONNX_TEXT_CAPACITY]);
/* Fills in `n` numbers: the attribute's, or `otherwise`. */
mm_status onnx_attr_ints(const onnx_import *m, const onnx_node *node, const char *name, int n, int64_t otherwise,
                         int64_t numbers_out[]);
bool onnx_attr_given(const onnx_node *node, const char *name);
const Onnx__AttributeProto *onnx_attr(const onnx_node *node, const char *name);

/* The i-th input as a constant; NULL in *tensor_out: it is left out. Refused: it is computed from the data. */
mm_status onnx_in_constant(onnx_import *m, const onnx_node *node, int i, onnx_tensor **tensor_out);
/* One number of such an input, or `otherwise`. */
mm_status onnx_in_number(onnx_import *m, const onnx_node *node, int i, double otherwise, double *number_out);
/* Whole numbers, at most ONNX_RANK_MAX, of input i or else of the attribute `name`; *n_out is -1 if neither is
 * given. */
mm_status onnx_numbers(onnx_import *m, const onnx_node *node, int i, const char *name, int *n_out,
                       int64_t numbers_out[ONNX_RANK_MAX]);
/* An axis from 0, of one that may count from the end. */
mm_status onnx_axis(const onnx_import *m, const onnx_node *node, int64_t axis, int rank, int *axis_out);

/* The dims of a value that is a constant or a map; its rank. -1: neither. */
int onnx_dims(const onnx_import *m, const onnx_value *value, int64_t dims_out[ONNX_RANK_MAX]);

/* The i-th input as a map. Refused: a constant, or a part of attention. */
mm_status onnx_in_map(const onnx_import *m, const onnx_node *node, int i, onnx_value **value_out);

/* ---------------------------------------------------------------- drafts (onnx_draft.c) */

/* Appends a draft whose output's shape follows from the description of its operation. `weight`: the parameter that may
 * name the layer; NULL: none. */
mm_status onnx_draft_add(onnx_import *m, const onnx_node *node, nets_op_kind op, const nets_attrs *attrs,
                         const int inputs[], int n_inputs, const onnx_tensor *weight, int *draft_out);
/* Puts a copy of a new name into a map. */
mm_status onnx_remember(onnx_import *m, mm_names *names, const char *name, int index);
/* Whether a tensor's name is that of a module's parameter ("fc.weight"), not one that an exporter made. */
bool onnx_module_name(const char *name);
/* The same with the shape given, for drafts of other kinds. */
mm_status onnx_draft_special(onnx_import *m, const onnx_node *node, onnx_draft_kind kind, const nets_shape *shape,
                             int input, int *draft_out);

/* Joins drafts' channels: a layer takes at most NETS_MAX_INPUTS, and what an earlier layer joined already, as in a
 * DenseNet, is taken as one. */
mm_status onnx_join(onnx_import *m, const onnx_node *node, const int drafts[], int n, int *draft_out);

/* Makes the output a map of a draft, whole, seen by `view`. */
void onnx_give_map(onnx_value *out, int draft, const onnx_view *view);
/* Makes the output the input, seen by another view. */
void onnx_give_view(onnx_value *out, const onnx_value *in, const onnx_view *view);
void onnx_give_constant(onnx_value *out, onnx_tensor *tensor);

/* The draft that gives the map's elements, all of them, changed by its function: appends an activation if that is not
 * the identity. The view then is of this draft's output. Refused: a part of the channels, or a function that no
 * activation has. */
mm_status onnx_whole(onnx_import *m, const onnx_node *node, onnx_value *value, int *draft_out);
const nets_shape *onnx_shape(const onnx_import *m, int draft);

/* Builds and finishes the net. */
mm_status onnx_build(onnx_import *m, nets_net **net_out);

/* ---------------------------------------------------------------- functions (onnx_function.c) */

/* The points: -20 to 20. */
double onnx_point(int i);
bool onnx_is_identity(const double function[ONNX_POINTS]);
/* Whether it is x times a number. */
bool onnx_is_factor(const double function[ONNX_POINTS], double *factor_out);
/* The operation whose function it is, with its attributes; NETS_OP_KINDS: none. */
nets_op_kind onnx_activation(const double function[ONNX_POINTS], nets_attrs *attrs_out);

/* ---------------------------------------------------------------- operations */

typedef mm_status (*onnx_handler)(onnx_import *m, const onnx_node *node);
typedef struct onnx_op {
    const char *name;
    onnx_handler maps;      /* an input is computed from the data; NULL: that is not supported */
    onnx_handler constants; /* all inputs are constants; NULL: that is not supported */
} onnx_op;

/* The tables; each ends with a NULL name. */
extern const onnx_op onnx_element_ops[], onnx_image_ops[], onnx_join_ops[], onnx_part_ops[], onnx_shape_ops[],
    onnx_token_ops[];

/* Of two inputs of which one or both are parts of attention: what Add, Mul, Div and Where do with these. False in
 * *done_out: none is. */
mm_status onnx_attention_arithmetic(onnx_import *m, const onnx_node *node, bool *done_out);
/* The product of two maps: scores, or a part of attention's output. */
mm_status onnx_attention_product(onnx_import *m, const onnx_node *node);
/* The softmax of scores. */
mm_status onnx_attention_shares(onnx_import *m, const onnx_node *node);
/* A constant put before a map's tokens. */
mm_status onnx_class_token(onnx_import *m, const onnx_node *node, int axis);
/* Makes the output mean what the first input means. */
mm_status onnx_same(onnx_import *m, const onnx_node *node);
/* A constant added to a map, or multiplied with it: a bias, positions, a norm's weight. */
mm_status onnx_add_constant(onnx_import *m, const onnx_node *node, onnx_value *map, onnx_tensor *constant);
mm_status onnx_scale_channels(onnx_import *m, const onnx_node *node, onnx_value *map, onnx_tensor *constant);

#endif
