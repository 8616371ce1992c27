/* SPDX-License-Identifier: MIT */
/* Runs any operation with bf16 maps through its f32 form, on devices that convert (nets_backend_ops.convert).
 * Internal. */
#ifndef NETS_BACKENDS_OP_THROUGH_F32_H
#define NETS_BACKENDS_OP_THROUGH_F32_H

#include "nets/contract/op.h"

extern const nets_op_impl nets_op_through_f32;

#endif
