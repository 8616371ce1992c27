/* SPDX-License-Identifier: MIT */
/* Any operation of bf16 maps through its f32 form, on devices that convert (nets_backend_ops.convert). Internal. */
#ifndef NETS_WIDENED_H
#define NETS_WIDENED_H

#include "nets/op.h"

extern const nets_op_impl nets_op_widened;

#endif
