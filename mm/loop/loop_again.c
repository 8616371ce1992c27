/* SPDX-License-Identifier: MIT */
#include "mm/loop/loop_again.h"

#include <stdlib.h>

#include "mm/loop/loop_fill.h"

static mm_status run(mm_loop *l, mm_loop_made *step) {
    MM_TRY(mm_loop_fill(l, step));
    mm_loop_made *entered = l->entered;
    l->entered = step;
    const mm_status status = step->run(step->ctx, step->row);
    l->entered = entered;
    return status == MM_OK
               ? MM_OK
               : mm_fail(status, "%s forward, computed again, returned %s", step->name, mm_status_name(status));
}

mm_status mm_loop_again(void *ctx, mm_manager *m, mm_layer layer, mm_stream *stream) {
    (void)m;
    (void)stream; /* the step's function enqueues on the loop's */
    mm_loop_recording *r = ctx;
    mm_loop_made *step = &r->steps[mm_graph_layer(r->graph, layer)->step[MM_FORWARD]];
    void **before = malloc(((size_t)step->n_slots + 1) * sizeof *before);
    if (!before) return mm_fail(MM_ERR_NOMEM, "out of memory for %d pointers", step->n_slots);
    for (int i = 0; i < step->n_slots; i++) before[i] = mm_loop_pointer_get(step->slots[i].where);
    const mm_status status = run(r->loop, step);
    for (int i = 0; i < step->n_slots; i++) mm_loop_pointer_set(step->slots[i].where, before[i]);
    free(before);
    return status;
}
