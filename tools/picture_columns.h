/* What both pictures draw: a plan's accounts as a few stacked layers over a limited number of columns. */
#ifndef TOOLS_PICTURE_COLUMNS_H
#define TOOLS_PICTURE_COLUMNS_H

#include "mm/core/account.h"

/* From the bottom up: what stays lies below what comes and goes. */
typedef enum picture_layer {
    PICTURE_LASTING, /* weights and what goes with them */
    PICTURE_STASH,
    PICTURE_CODES,
    PICTURE_BUFFERS,
    PICTURE_MAPS,
    PICTURE_GRADIENTS,
    PICTURE_WORKSPACE,
    PICTURE_LAYERS
} picture_layer;

const char *picture_layer_name(picture_layer layer);

/* The bytes of a step up to the top of each layer. */
void picture_tops(const mm_account_step *step, int64_t tops_out[PICTURE_LAYERS]);

/* The layers that have any byte at any step of an account, as bits. */
uint32_t picture_layers_of(const mm_account *account);

/* Which step stands for column `column` of `n` that all steps of an account are spread over: of those that begin in it
 * the one with most alive, so that no peak is lost; of none, the one that goes on there. n_steps > 0. */
int picture_column_step(const mm_account *account, int column, int n);
/* The column in which a step (its place in account->steps) begins. */
int picture_column_of(const mm_account *account, int step, int n);

/* Where the account's peak is, as a place in account->steps. */
int picture_peak(const mm_account *account);

/* The first step of the phase, as a place in account->steps; n_steps if there is none. */
int picture_phase_begin(const mm_account *account, mm_phase phase);

#endif
