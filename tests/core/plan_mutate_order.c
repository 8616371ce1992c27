/* SPDX-License-Identifier: MIT */
/* Mutations of waits, of the nodes' order, and of which nodes there are. */
#include <string.h>

#include "tests/core/plan_mutate_parts.h"
#include "tests/core/random_graph.h"

static bool drop_wait(mutant *m) {
    int32_t *wait = mutant_find_wait(m);
    if (wait) *wait = -1;
    return wait != NULL;
}

static bool weaken_wait(mutant *m) {
    int32_t *wait = mutant_find_wait(m);
    if (wait) *wait -= 1;
    return wait != NULL;
}

static bool strengthen_wait(mutant *m) {
    int32_t *wait = mutant_find_wait(m);
    if (wait) *wait += 1;
    return wait != NULL;
}

static bool add_wait(mutant *m) {
    mm_node *n = mutant_node(m);
    int s = mutant_below(m, MM_STREAM_COUNT);
    if (m->plan->stream_nodes[s] == 0) return false;
    n->wait[s] = mutant_below(m, m->plan->stream_nodes[s]);
    return true;
}

static bool swap_neighbours(mutant *m) {
    if (m->plan->n_nodes < 2) return false;
    int i = mutant_below(m, m->plan->n_nodes - 1);
    mutant_move_node(m->plan, i, i + 1);
    return true;
}

static bool move_operation(mutant *m) {
    mm_node *n = mutant_find_node(m, node_is_extra);
    if (!n) return false;
    mutant_move_node(m->plan, (int)(n - m->plan->nodes), mutant_below(m, m->plan->n_nodes));
    return true;
}

static bool drop_node(mutant *m) {
    mm_node *n = random_chance(&m->random, 80) ? mutant_find_node(m, node_is_extra) : mutant_node(m);
    if (!n) return false;
    mm_node dropped = *n;
    int i = (int)(n - m->plan->nodes);
    memmove(n, n + 1, (size_t)(--m->plan->n_nodes - i) * sizeof *n);
    for (int k = 0; k < m->plan->n_nodes; k++)
        if (m->plan->nodes[k].wait[dropped.stream] >= dropped.seq) m->plan->nodes[k].wait[dropped.stream]--;
    mutant_renumber(m->plan);
    return true;
}

static bool duplicate_node(mutant *m) {
    mm_node *n = random_chance(&m->random, 80) ? mutant_find_node(m, node_is_extra) : mutant_node(m);
    if (!n) return false;
    mutant_insert(m->plan, (int)(n - m->plan->nodes), *n);
    return true;
}

static bool other_stream(mutant *m) {
    mutant_node(m)->stream = (mm_stream_id)mutant_below(m, MM_STREAM_COUNT);
    return true;
}

static bool other_step(mutant *m) {
    mutant_node(m)->step = mutant_below(m, mm_graph_steps(m->plan->graph) + 2) - 1;
    return true;
}

static bool other_seq(mutant *m) {
    mutant_node(m)->seq += mutant_below(m, 3) - 1;
    return true;
}

const mutation mutations_of_order[] = {
    {"drop_wait", drop_wait},
    {"weaken_wait", weaken_wait},
    {"strengthen_wait", strengthen_wait},
    {"add_wait", add_wait},
    {"swap_neighbours", swap_neighbours},
    {"move_operation", move_operation},
    {"drop_node", drop_node},
    {"duplicate_node", duplicate_node},
    {"other_stream", other_stream},
    {"other_step", other_step},
    {"other_seq", other_seq},
    {NULL, NULL},
};
