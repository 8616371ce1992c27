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

static picture_layer layer_of(mm_account_kind kind) {
    switch (kind) {
    case MM_ACCOUNT_STASH:
        return PICTURE_STASH;
    case MM_ACCOUNT_CODE:
        return PICTURE_CODES;
    case MM_ACCOUNT_BUFFER:
        return PICTURE_BUFFERS;
    case MM_ACCOUNT_FEATURE_MAP:
        return PICTURE_MAPS;
    case MM_ACCOUNT_GRADIENT_MAP:
        return PICTURE_GRADIENTS;
    case MM_ACCOUNT_WORKSPACE:
        return PICTURE_WORKSPACE;
    default:
        return PICTURE_LASTING;
    }
}

void picture_tops(const mm_account_step *step, int64_t tops_out[PICTURE_LAYERS]) {
    for (int l = 0; l < PICTURE_LAYERS; l++) tops_out[l] = 0;
    for (int k = 0; k < MM_ACCOUNT_KINDS; k++) tops_out[layer_of(k)] += step->bytes[k];
    for (int l = 1; l < PICTURE_LAYERS; l++) tops_out[l] += tops_out[l - 1];
}

uint32_t picture_layers_of(const mm_account *account) {
    uint32_t layers = 0;
    for (int i = 0; i < account->n_steps; i++)
        for (int k = 0; k < MM_ACCOUNT_KINDS; k++)
            if (account->steps[i].bytes[k] > 0) layers |= 1u << layer_of(k);
    return layers;
}

/* The first step of a column. */
static int column_begin(const mm_account *account, int column, int n) {
    return (int)(((int64_t)column * account->n_steps + n - 1) / n);
}

int picture_column_of(const mm_account *account, int step, int n) {
    return (int)((int64_t)step * n / account->n_steps);
}

int picture_column_step(const mm_account *account, int column, int n) {
    int begin = column_begin(account, column, n), end = column_begin(account, column + 1, n);
    if (begin == end) return (int)((int64_t)column * account->n_steps / n);
    int best = begin;
    for (int i = begin + 1; i < end; i++)
        if (account->steps[i].live_bytes > account->steps[best].live_bytes) best = i;
    return best;
}

int picture_peak(const mm_account *account) {
    int best = 0;
    for (int i = 1; i < account->n_steps; i++)
        if (account->steps[i].live_bytes > account->steps[best].live_bytes) best = i;
    return best;
}

int picture_phase_begin(const mm_account *account, mm_phase phase) {
    int i = 0;
    while (i < account->n_steps && mm_graph_step(account->plan->graph, account->steps[i].step)->phase != phase) i++;
    return i;
}
