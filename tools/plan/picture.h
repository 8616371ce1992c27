/* SPDX-License-Identifier: MIT */
/* Draws live device memory over the steps of an iteration, stacked by use. */
#ifndef TOOLS_PLAN_PICTURE_H
#define TOOLS_PLAN_PICTURE_H

#include <stdio.h>

#include "mm/core/account/account.h"

typedef struct picture_panel {
    char name[192]; /* "liveness, batch 128" */
    const mm_account *account;
} picture_panel;

typedef struct picture {
    const char *title;
    const picture_panel *panels; /* drawn one below the other, to the same scale */
    int n_panels;
    int64_t budget_bytes; /* drawn as a line across; 0: none */
} picture;

/* Writes a self-contained SVG file, atomically. MM_ERR_IO names the path, MM_ERR_NOMEM. */
MM_CHECKED mm_status picture_save(const char *path, const picture *picture);

/* Prints a small chart of one panel for a terminal: 80 columns, 12 rows and a legend. Only ASCII unless `utf8`. */
void picture_print(FILE *file, const picture_panel *panel, int64_t budget_bytes, bool utf8);

/* Whether the environment's locale is a UTF-8 one. */
bool picture_utf8(void);

#endif
