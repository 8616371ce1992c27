/* SPDX-License-Identifier: MIT */
/* Plans as a file: text, one JSON object a line. FORMAT.md, in this folder, describes it. A file holds all that
 * mm_program_prove and the simulator read: the graph, the facts, the limits, the plan, and the program as its pieces.
 * A file may hold several plans: those of all graphs of one arena. */
#ifndef MM_CORE_PLAN_PLAN_FILE_H
#define MM_CORE_PLAN_PLAN_FILE_H

#include <stddef.h>

#include "mm/core/plan/program.h"

#define MM_PLAN_FORMAT "mm plan"
enum { MM_PLAN_FORMAT_VERSION = 1, MM_PLANS_MOST = 1024 };

/* A plan to be written; borrows all of it. The program's plan is finished (mm_plan_finish). */
typedef struct mm_plan_view {
    const mm_program *program;
    const mm_graph_facts *facts; /* that the plan was made with */
    /* Bytes, bases and places; its other members are not written. NULL: those of a plan that was proved: what it takes,
     * its bases, its homes. */
    const mm_limits *limits;
} mm_plan_view;

/* A plan that was read; owns all of it. The struct may be moved. The plan need not be right: the reader checks what
 * functions that walk plans rely on (indices are in range, sums of bytes fit 64 bits); mm_program_prove the rest. */
typedef struct mm_plan_file {
    mm_graph *graph; /* frozen */
    /* All codecs, and of codes those that the plan has segments for; others count as what the codec cannot encode. */
    mm_graph_facts *facts;
    mm_place *places; /* limits.places */
    mm_limits limits;
    mm_plan *plan; /* its totals are what the file says, and its first and last uses what follows from the nodes */
    mm_program *program; /* the file's pieces; the plan is not lowered anew */
} mm_plan_file;

/* Writes n plans to a file, atomically. Of equal plans the bytes are equal. MM_ERR_INVALID: n is 0 or above
 * MM_PLANS_MOST, a name is not UTF-8 or has control characters, or a plan is larger than a reader takes (FORMAT.md).
 * MM_ERR_IO, MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_plan_file_write(const mm_plan_view *plans, size_t n, const char *path);

/* Reads all plans of a file. MM_ERR_IO. MM_ERR_FORMAT: not a file of plans, or of a later version, or what a line says
 * is not possible; the message names the file, the line and the key. MM_ERR_NOMEM. The caller frees them with
 * mm_plan_files_destroy. */
MM_CHECKED mm_status mm_plan_files_read(const char *path, mm_plan_file **files_out, size_t *n_out);
/* NULL is legal. */
void mm_plan_files_destroy(mm_plan_file *files, size_t n);

#endif
