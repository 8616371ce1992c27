/* SPDX-License-Identifier: MIT */
/* Optimizer states in codes of 8 bits: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022.
 *
 * A state is cut into blocks of NETS_STATE_BLOCK elements, in the device's order (op_order.h). A block has its largest
 * magnitude, absmax, in f32; an element's code names one of 256 numbers in [-1, 1], and stands for that number times
 * absmax. An update decodes a block, computes in f32, moves the weights by what it computed, and encodes the block.
 *
 * The numbers are the paper's dynamic tree map. Decade i of 7 spans 10^(i-7) .. 10^(i-6) and is cut into n equal cells,
 * of which the middles are numbers; n is 2^i for each sign in the map of averages, whose sign is coded (Adam's first
 * moment), and 2^(i+1) in the map of squares, which have no sign (the second). 0 and 1 are numbers, too; -1 is not.
 * Codes are numbered in the order of what they stand for, so 0 is code 127 in the first map, and 0 in the second.
 *
 * Encoding takes the nearest number; of two equally near ones, the one nearer to zero. A block that has a NaN becomes
 * NaN, so that a training that diverges shows.
 *
 * Blocks of 2048 are the paper's (absmax adds 4 bytes to 2048; bitsandbytes, which now takes 256, has 8 times that).
 * Parameters below NETS_STATE_LEAST elements keep f32 states, as in bitsandbytes, and so do those that are looked up,
 * as the paper has it for embeddings. */
#ifndef NETS_STATE_CODES_H
#define NETS_STATE_CODES_H

#include <stdint.h>

enum { NETS_STATE_CODES = 256, NETS_STATE_BLOCK = 2048, NETS_STATE_LEAST = 4096 };
/* The codes of 0 (state_codes.c). */
enum { NETS_STATE_ZERO_SIGNED = 127, NETS_STATE_ZERO_UNSIGNED = 0 };

typedef struct nets_state_map {
    float value[NETS_STATE_CODES]; /* what a code stands for, divided by absmax */
    /* above[p]: a magnitude above this is nearer to the (p+1)-th magnitude of the map than to the p-th, from 0 on. */
    float above[NETS_STATE_CODES];
} nets_state_map;

/* The maps of an optimizer's states: [0] with signs, [1] without. */
typedef struct nets_state_maps {
    nets_state_map of[2];
} nets_state_maps;

void nets_state_maps_make(nets_state_maps *maps_out);

static inline int64_t nets_state_blocks(int64_t elems) { return (elems + NETS_STATE_BLOCK - 1) / NETS_STATE_BLOCK; }

#endif
