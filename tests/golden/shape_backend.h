/* SPDX-License-Identifier: MIT */
/* A backend that computes nothing: what its operations need is a formula of their shapes, so networks lowered for it
 * are the same graphs on every machine. For planning. */
#ifndef TESTS_GOLDEN_SHAPE_BACKEND_H
#define TESTS_GOLDEN_SHAPE_BACKEND_H

#include "nets/contract/op.h"

/* The backend for maps of that type. It needs no close. */
nets_backend shape_backend(mm_dtype maps);

#endif
