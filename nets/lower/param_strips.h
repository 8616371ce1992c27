/* SPDX-License-Identifier: MIT */
/* Strips of a parameter: its optimizer's states are cut into several tensors, each updated by a step of its own, so
 * that only some of them need be on the device at once. The value, its copy and the gradient stay whole: every strip's
 * step reads and changes its own elements of these.
 *
 *   elements    0              strips.elems    2 strips.elems    elems
 *   states      | m.w[0], v.w[0] | m.w[1], v.w[1] | m.w[2], v.w[2] |
 *
 * An update is elementwise, so strips change no bits. Elements are counted in the device's order (op_order.h). */
#ifndef NETS_LOWER_PARAM_STRIPS_H
#define NETS_LOWER_PARAM_STRIPS_H

#include "mm/core/graph/graph.h"
#include "nets/exchange.h"

/* A strip begins at a multiple of STRIP_UNIT elements: of whatever updates take at once, blocks of codes of states
 * included. Chosen. */
enum { NETS_STRIP_UNIT = 2048 };
/* A strip has STRIP_ELEMS elements or, if that is more, a STRIP_PART-th of all that are trained; a parameter of more
 * than two strips is cut. Chosen: 32 MiB as f32, whose copy takes a link of 50 GB/s half a millisecond, many times what
 * a step costs; and so that no net has many more steps than it has parameters. */
enum { NETS_STRIP_ELEMS = 8 << 20, NETS_STRIP_PART = 128 };

typedef struct nets_param_strips {
    int n;         /* 1: the parameter is not cut */
    int64_t elems; /* of each strip but the last, which has the rest */
} nets_param_strips;

/* How many elements a strip has at most in a net that trains `trained`. */
int64_t nets_strip_most(int64_t trained);

/* Cuts `elems` elements into equal strips of at most `most`, or of NETS_STRIP_UNIT if that is more. One strip if there
 * are no more than 2 `most`. */
nets_param_strips nets_param_strips_of(int64_t elems, int64_t most);

/* The elements of strip i. */
nets_share nets_strip(const nets_param_strips *strips, int i, int64_t elems);

/* Adds the strips of the state `name`, "<name>[0]", "<name>[1]", ..., of a weight of `elems` elements. The tensors
 * follow each other; *first_out is the first. */
MM_CHECKED mm_status nets_strips_add(mm_graph *graph, const nets_param_strips *strips, int64_t elems, const char *name,
                                     mm_tensor weight, mm_tensor *first_out);

#endif
