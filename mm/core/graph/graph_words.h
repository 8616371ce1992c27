/* SPDX-License-Identifier: MIT */
/* The words of a file of graphs (mm/mm_plan.h) for values that mm.h does not name as text. */
#ifndef MM_CORE_GRAPH_GRAPH_WORDS_H
#define MM_CORE_GRAPH_GRAPH_WORDS_H

#include "mm/mm.h"

#define MM_GRAPH_FORMAT "mm graph"
enum { MM_GRAPH_FORMAT_VERSION = 1, MM_GRAPHS_MOST = 1024 };

/* The n words of an enum, by its values 0 to n - 1. */
typedef struct mm_graph_words {
    const char *(*name)(int value);
    int n;
} mm_graph_words;

extern const mm_graph_words mm_words_tensor_kind, mm_words_ownership, mm_words_dtype, mm_words_layer_kind,
    mm_words_cost, mm_words_phase, mm_words_access, mm_words_form, mm_words_pair, mm_words_when, mm_words_as;

#endif
