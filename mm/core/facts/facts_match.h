/* SPDX-License-Identifier: MIT */
/* How facts of a file, which go by names, are found for a graph: what facts_apply.c and facts_between.c share. */
#ifndef MM_CORE_FACTS_FACTS_MATCH_H
#define MM_CORE_FACTS_FACTS_MATCH_H

#include "mm/core/facts/facts.h"

/* The step of that layer and phase in file->by_name, by bisection; -1: there is none. */
int mm_facts_find_step(const mm_facts *file, const char *layer, mm_phase phase);

/* Copies the device's rates and times, which do not depend on the graph. */
void mm_facts_take_rates(const mm_graph_facts *from, mm_graph_facts *facts);

#endif
