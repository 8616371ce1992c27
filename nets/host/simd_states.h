/* SPDX-License-Identifier: MIT */
/* AdamW's update of a block of a parameter whose states are codes (nets/state_codes.h), compiled for two instruction
 * sets that give the same bits. Internal. */
#ifndef NETS_HOST_SIMD_STATES_H
#define NETS_HOST_SIMD_STATES_H

#include "nets/adamw.h"
#include "nets/state_encode.h"

/* Updates the n elements of block `block`; gradients are multiplied by `clip`. */
typedef void (*nets_simd_states)(const nets_state_maps *maps, const nets_update_param *param, nets_adamw_factors f,
                                 float clip, int64_t block, int n);

void nets_simd_states_portable(const nets_state_maps *maps, const nets_update_param *param, nets_adamw_factors f,
                               float clip, int64_t block, int n);
/* On x86-64 only. */
void nets_simd_states_avx2(const nets_state_maps *maps, const nets_update_param *param, nets_adamw_factors f,
                           float clip, int64_t block, int n);

/* The function for the best instruction set of this processor. */
nets_simd_states nets_simd_states_best(void);

#endif
