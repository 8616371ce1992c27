/* SPDX-License-Identifier: MIT */
#include "pipeline/disk_move.h"

#include <stdlib.h>

#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"

struct mm_disk_move {
    mm_call call; /* fn NULL: the piece is of another kind */
    const mm_execution *execution;
    const mm_node *node;
};

static mm_status run(void *arg) {
    const mm_disk_move *move = arg;
    const mm_dispatch *d = move->execution->dispatch;
    const mm_segment *segments = move->execution->plan->segments;
    const mm_segment *src = &segments[move->node->src], *dst = &segments[move->node->dst];
    if (dst->memory == MM_MEM_DISK)
        return mm_disk_write(d->config.disk, dst->offset, d->pinned + src->offset, dst->bytes);
    return mm_disk_read(d->config.disk, src->offset, d->pinned + dst->offset, dst->bytes);
}

static bool is_disk_move(const mm_node *n) {
    const mm_node_cost cost = mm_node_table[n->kind].cost;
    return cost == MM_COST_DISK_OUT || cost == MM_COST_DISK_IN;
}

mm_status mm_disk_moves_init(mm_execution *p) {
    const mm_program *program = p->program;
    mm_disk *disk = p->dispatch->config.disk;
    bool any = false;
    for (int i = 0; i < p->plan->n_nodes; i++) any |= is_disk_move(&p->plan->nodes[i]);
    if (!any) return MM_OK;
    if (!disk)
        return mm_fail(MM_ERR_UNSUPPORTED, "the plan of %s uses a disk, and none is given (mm_options.disk)",
                       mm_graph_name(p->plan->graph));
    MM_TRY(mm_disk_reserve(disk, p->plan->disk_bytes));
    p->disk_moves = calloc((size_t)program->n + 1, sizeof *p->disk_moves);
    if (!p->disk_moves) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan's accesses to the disk");
    for (int i = 0; i < program->n; i++) {
        const mm_node *node = &p->plan->nodes[program->pieces[i].node];
        if (is_disk_move(node)) p->disk_moves[i] = (mm_disk_move){{run, &p->disk_moves[i]}, p, node};
    }
    return MM_OK;
}

void mm_disk_moves_fini(mm_execution *p) {
    free(p->disk_moves);
    p->disk_moves = NULL;
}

/* Blocking: CUDA would drop the failure of a function that it calls itself, and steps would read what is not there. */
mm_status mm_disk_move_async(mm_dispatch *d, const mm_piece *piece, mm_stream *stream) {
    return mm_call_blocking(stream, &d->execution->disk_moves[piece - d->execution->program->pieces].call, NULL);
}
