/* What computes a convolution: an algorithm of cuDNN's legacy API, an engine of its graph API or, where it is a product
 * of matrices, an algorithm of cuBLAS, chosen once, by timing, and kept in a file.
 *
 * The file is text: a line for each choice, with the device, the libraries' versions and all that the choice depends
 * on, and at the end their number and a checksum of all before. A file that is not exactly that is ignored with a
 * warning, and written anew. It is replaced as a whole: readers never see half of it, of two writers the last one's
 * choices remain. */
#ifndef NETS_CUDA_CHOICES_H
#define NETS_CUDA_CHOICES_H

#include "nets/op.h"

typedef enum nets_direction { NETS_CONV_FORWARD, NETS_CONV_BY_INPUT, NETS_CONV_BY_WEIGHTS } nets_direction;

/* A convolution from x to y (NHWC) and what of it is computed; pairs are {height, width}. */
typedef struct nets_conv_shape {
    int direction; /* nets_direction */
    int x[4], y[4];
    int kernel[2], stride[2], pad[2], dilation[2], groups;
    int adds; /* 1: to what the output holds already */
} nets_conv_shape;

/* What is allowed to compute it. */
typedef struct nets_conv_terms {
    bool deterministic;
    int64_t limit_bytes;             /* of workspace */
    int64_t tensor_core_limit_bytes; /* no less; where tensor cores can do nothing within the other */
} nets_conv_terms;

typedef enum nets_conv_api {
    NETS_CONV_UNCHOSEN, /* no device has */
    NETS_CONV_LEGACY,
    NETS_CONV_GRAPH,
    NETS_CONV_PRODUCT
} nets_conv_api;

enum { NETS_CONV_KNOBS = 44 }; /* an engine has at most */

/* All as cuDNN or cuBLAS numbers it. */
typedef struct nets_conv_choice {
    int api;                 /* nets_conv_api */
    int algorithm, math;     /* of the graph API: the engine's index, 0; of cuBLAS: its number, 0 */
    int64_t workspace_bytes; /* of the library */
    int n_knobs;             /* of an engine; of cuBLAS: what configures the algorithm */
    struct nets_conv_knob {
        int type;
        int64_t value;
    } knobs[NETS_CONV_KNOBS];
} nets_conv_choice;

typedef struct nets_cuda_choices {
    char device[128]; /* whose choices count, and by which cuDNN; "": any, there is none here */
    int precision;
    char *path; /* NULL: kept in memory only */
    mm_log log;
    struct nets_kept_choice *kept;
    int n, capacity;
} nets_cuda_choices;

/* Reads the file, if there is one. `device` names the device and the libraries, without spaces. MM_ERR_NOMEM. */
MM_CHECKED mm_status nets_cuda_choices_init(nets_cuda_choices *choices, const nets_backend_config *config,
                                            const char *device);
void nets_cuda_choices_fini(nets_cuda_choices *choices);

/* NULL: not chosen yet. Valid until the next is kept. */
const nets_conv_choice *nets_cuda_choices_find(const nets_cuda_choices *choices, const nets_conv_shape *shape,
                                               const nets_conv_terms *terms);

/* Keeps a choice, in place of an older one, and writes the file; that this failed is a warning. MM_ERR_NOMEM. */
MM_CHECKED mm_status nets_cuda_choices_keep(nets_cuda_choices *choices, const nets_conv_shape *shape,
                                            const nets_conv_terms *terms, const nets_conv_choice *choice);

#endif
