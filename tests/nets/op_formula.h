/* SPDX-License-Identifier: MIT */
/* The operations by their definitions: each computes one element of the output, in plain loops in double. */
#ifndef TESTS_NETS_OP_FORMULA_H
#define TESTS_NETS_OP_FORMULA_H

#include "tests/nets/op_rig.h"

/* Element e of Y, from the rig's X and parameters. Definitions are torch's, images NHWC. */
double op_formula_conv(const op_rig *rig, int64_t e);
double op_formula_conv_transpose(const op_rig *rig, int64_t e);
double op_formula_linear(const op_rig *rig, int64_t e);
double op_formula_lrn(const op_rig *rig, int64_t e);
double op_formula_upsample(const op_rig *rig, int64_t e);
double op_formula_crop(const op_rig *rig, int64_t e);
double op_formula_relu(const op_rig *rig, int64_t e);
double op_formula_leaky_relu(const op_rig *rig, int64_t e);
double op_formula_scale(const op_rig *rig, int64_t e);
double op_formula_relu6(const op_rig *rig, int64_t e);
double op_formula_sigmoid(const op_rig *rig, int64_t e);
double op_formula_silu(const op_rig *rig, int64_t e);
double op_formula_hard_sigmoid(const op_rig *rig, int64_t e);
double op_formula_hard_swish(const op_rig *rig, int64_t e);
double op_formula_gelu(const op_rig *rig, int64_t e);
double op_formula_add(const op_rig *rig, int64_t e);
double op_formula_mul(const op_rig *rig, int64_t e);
double op_formula_group_norm(const op_rig *rig, int64_t e);
double op_formula_rms_norm(const op_rig *rig, int64_t e);
double op_formula_max_pool(const op_rig *rig, int64_t e);
double op_formula_avg_pool(const op_rig *rig, int64_t e);

/* The index, row by row, of the largest element in the window of output element e. */
int op_formula_max_index(const op_rig *rig, int64_t e);

#endif
