/* SPDX-License-Identifier: MIT */
/* Shared by the SVG and the terminal chart: a plan's memory as a few stacked layers over a limited number of
 * columns. */
#ifndef TOOLS_PLAN_PICTURE_COLUMNS_H
#define TOOLS_PLAN_PICTURE_COLUMNS_H

#include "tools/plan/picture.h"

/* Layers from the bottom up: bytes that stay are below those that come and go. */
typedef enum picture_layer {
    PICTURE_LASTING, /* weights, their gradients, optimizer state and other persistent tensors */
    PICTURE_STASH,
    PICTURE_CODES,
    PICTURE_BUFFERS,
    PICTURE_MAPS,
    PICTURE_GRADIENTS,
    PICTURE_WORKSPACE,
    PICTURE_LAYERS
} picture_layer;

const char *picture_layer_name(picture_layer layer);

/* For each layer, the bytes of the step in it and in all layers below. */
void picture_tops(const mm_held_step *step, int64_t tops_out[PICTURE_LAYERS]);

/* The layers that have bytes at some step, as bits. */
uint32_t picture_layers_of(const picture_memory *memory);

/* The step, as an index in memory->steps, that is drawn in column `column` of `n`: of the steps that begin in the
 * column, the one with most live bytes, so that no peak is lost; if none begins there, the step before. n_steps > 0. */
int picture_column_step(const picture_memory *memory, int column, int n);
/* The column in which a step, an index in memory->steps, begins. */
int picture_column_of(const picture_memory *memory, int step, int n);

/* The step with most live bytes, as an index in memory->steps. */
int picture_peak(const picture_memory *memory);

/* The first step of the phase, as an index in memory->steps; n_steps if there is none. */
int picture_phase_begin(const picture_memory *memory, mm_phase phase);

#endif
