/* SPDX-License-Identifier: MIT */
/* Damages the text of a file of graphs. */
#ifndef TESTS_CORE_GRAPH_MUTATE_H
#define TESTS_CORE_GRAPH_MUTATE_H

#include <stddef.h>
#include <stdint.h>

enum { GRAPH_MUTANT = 1 << 16 }; /* bytes that a mutant may have */

/* Makes one edit: of a byte, a value, a name, or a line; or cuts the text. It has room for GRAPH_MUTANT bytes. Returns
 * its new length. */
size_t graph_mutate(uint64_t *random, char *text, size_t n_bytes);

#endif
