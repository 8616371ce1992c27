/* SPDX-License-Identifier: MIT */
/* The reorder between a convolution's plain weights and the layout of its kernel, by all threads of the pool: in pieces
 * of some output channels, or of some groups. Each but the last has whole blocks of that layout. Internal. */
#ifndef NETS_HOST_WEIGHTS_REORDER_H
#define NETS_HOST_WEIGHTS_REORDER_H

#include "nets/host/partition.h"

/* Makes the reorder of `kernel`, made from `w`, with arguments FROM and TO: to the layout of the kernel's WEIGHTS, or
 * (`arg`) from that of its DIFF_WEIGHTS; `adds`: it adds to TO. No pieces are made if the layouts are equal. After an
 * error the caller calls nets_piecewise_fini, too. */
MM_CHECKED mm_status nets_weights_reorder_init(nets_piecewise *run, const nets_dnn *dnn, const nets_dnn_windows *w,
                                               const nets_dnn_kernel *kernel, int arg, bool adds);

#endif
