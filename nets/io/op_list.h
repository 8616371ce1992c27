/* SPDX-License-Identifier: MIT */
/* The documentation of network files' operations, printed from the descriptions that the parser uses (net_ops.h). */
#ifndef NETS_IO_OP_LIST_H
#define NETS_IO_OP_LIST_H

#include <stdio.h>

#include "mm/core/status.h"

/* Prints every operation with its attributes, defaults and ranges; with `name` only that one, in depth: also what
 * everything means, and a layer of a network file that has it. `json`: an array of objects, the same for one and all.
 * MM_ERR_NOT_FOUND: no operation is called so; MM_ERR_NOMEM. The caller checks the stream for errors. */
MM_CHECKED mm_status nets_op_list_print(FILE *stream, const char *name, bool json);

#endif
