/* SPDX-License-Identifier: MIT */
/* Arithmetic on sizes that the backends share. Internal. */
#ifndef NETS_CONTRACT_OP_SIZES_H
#define NETS_CONTRACT_OP_SIZES_H

#include <stdint.h>

/* Elements of an NHWC tensor. */
static inline int64_t nets_elems(const int64_t dims[4]) { return dims[0] * dims[1] * dims[2] * dims[3]; }

/* Rounds up to 256 bytes, the alignment of a workspace, so that each part of a workspace is as aligned as the whole. */
static inline int64_t nets_aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

static inline int64_t nets_larger(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
