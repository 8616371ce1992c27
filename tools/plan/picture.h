/* SPDX-License-Identifier: MIT */
/* Draws live device memory over the steps of an iteration, stacked by use. */
#ifndef TOOLS_PLAN_PICTURE_H
#define TOOLS_PLAN_PICTURE_H

#include <stdbool.h>
#include <stdio.h>

#include "mm/core/plan/plan.h"
#include "mm/mm_plan.h"

/* A plan's memory over the steps of an iteration. */
typedef struct picture_memory {
    const mm_held_step *steps; /* borrowed */
    int n_steps;
    int64_t needed_bytes; /* the plan's peak; if it does not fit, or there is no budget, the policy's least budget */
    int64_t live_bytes;   /* live bytes at the step `held_by` */
    char held_by[MM_PLAN_NAME_CAPACITY];
} picture_memory;

/* A copy on the device of a persistent tensor whose home is elsewhere. */
typedef struct picture_visit {
    int row;        /* number of the tensor in its group */
    int begin, end; /* the first and the last of picture_memory.steps at which it is there */
} picture_visit;

/* Persistent tensors of one kind with their homes in one memory. */
typedef struct picture_group {
    char label[96]; /* "weights in pinned memory: 12 of 3.2MiB" */
    mm_memory memory;
    int n;                 /* number of tensors */
    picture_visit *visits; /* owned */
    int n_visits;
} picture_group;

/* Homes of persistent tensors; none (n 0) if all are on the device. Each kind may have some in each memory. */
typedef struct picture_homes {
    picture_group groups[MM_MEMORY_COUNT * MM_TENSOR_KINDS];
    int n;
} picture_homes;
/* Groups a plan's persistent tensors by kind and memory. MM_ERR_NOMEM. */
MM_CHECKED mm_status picture_homes_init(const mm_housed *housed, int n, picture_homes *homes_out);
void picture_homes_fini(picture_homes *homes);

typedef struct picture_panel {
    char name[192]; /* "liveness, batch 128" */
    picture_memory memory;
    picture_homes homes;
} picture_panel;

typedef struct picture {
    const char *title;
    const picture_panel *panels; /* drawn one below the other, to the same scale */
    int n_panels;
    int64_t budget_bytes; /* drawn as a line across; 0: none */
} picture;

/* Writes the picture as an SVG element. The caller checks the stream for errors. */
void picture_write(FILE *file, const picture *picture);

/* Writes a self-contained SVG file, atomically. MM_ERR_IO names the path, MM_ERR_NOMEM. */
MM_CHECKED mm_status picture_save(const char *path, const picture *picture);

/* Prints a small chart of one panel for a terminal: 80 columns, 12 rows and a legend. Only ASCII unless `utf8`. */
void picture_print(FILE *file, const picture_panel *panel, int64_t budget_bytes, bool utf8);

/* Whether the environment's locale is a UTF-8 one. */
bool picture_utf8(void);

#endif
