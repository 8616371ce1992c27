/* SPDX-License-Identifier: MIT */
#include "tools/plan/picture_columns.h"

const char *picture_layer_name(picture_layer layer) {
    static const char *const names[PICTURE_LAYERS] = {
        [PICTURE_LASTING] = "weights and state",
        [PICTURE_STASH] = "stashed maps",
        [PICTURE_CODES] = "codes",
        [PICTURE_BUFFERS] = "tensor buffers",
        [PICTURE_MAPS] = "other maps",
        [PICTURE_GRADIENTS] = "gradient maps",
        [PICTURE_WORKSPACE] = "workspace",
    };
    return names[layer];
}

static picture_layer layer_of(mm_held_kind kind) {
    switch (kind) {
    case MM_HELD_STASH:
        return PICTURE_STASH;
    case MM_HELD_CODE:
        return PICTURE_CODES;
    case MM_HELD_BUFFER:
        return PICTURE_BUFFERS;
    case MM_HELD_FEATURE_MAP:
        return PICTURE_MAPS;
    case MM_HELD_GRADIENT_MAP:
        return PICTURE_GRADIENTS;
    case MM_HELD_WORKSPACE:
        return PICTURE_WORKSPACE;
    default:
        return PICTURE_LASTING;
    }
}

void picture_tops(const mm_held_step *step, int64_t tops_out[PICTURE_LAYERS]) {
    for (int l = 0; l < PICTURE_LAYERS; l++) tops_out[l] = 0;
    for (int k = 0; k < MM_HELD_KINDS; k++) tops_out[layer_of((mm_held_kind)k)] += step->held[k];
    for (int l = 1; l < PICTURE_LAYERS; l++) tops_out[l] += tops_out[l - 1];
}

uint32_t picture_layers_of(const picture_memory *memory) {
    uint32_t layers = 0;
    for (int i = 0; i < memory->n_steps; i++)
        for (int k = 0; k < MM_HELD_KINDS; k++)
            if (memory->steps[i].held[k] > 0) layers |= 1u << layer_of((mm_held_kind)k);
    return layers;
}

/* The first step of a column. */
static int column_begin(const picture_memory *memory, int column, int n) {
    return (int)(((int64_t)column * memory->n_steps + n - 1) / n);
}

int picture_column_of(const picture_memory *memory, int step, int n) {
    return (int)((int64_t)step * n / memory->n_steps);
}

int picture_column_step(const picture_memory *memory, int column, int n) {
    int begin = column_begin(memory, column, n), end = column_begin(memory, column + 1, n);
    if (begin == end) return (int)((int64_t)column * memory->n_steps / n);
    int best = begin;
    for (int i = begin + 1; i < end; i++)
        if (memory->steps[i].live_bytes > memory->steps[best].live_bytes) best = i;
    return best;
}

int picture_peak(const picture_memory *memory) {
    int best = 0;
    for (int i = 1; i < memory->n_steps; i++)
        if (memory->steps[i].live_bytes > memory->steps[best].live_bytes) best = i;
    return best;
}

int picture_phase_begin(const picture_memory *memory, mm_phase phase) {
    int i = 0;
    while (i < memory->n_steps && memory->steps[i].phase != phase) i++;
    return i;
}
