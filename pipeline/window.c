/* SPDX-License-Identifier: MIT */
/* Windows: times of a program's nodes in its latest iterations. */
#include "pipeline/window.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"

static void window_destroy(mm_window *w) {
    if (!w) return;
    free(w->node_ns);
    free(w->iteration_ns);
    free(w->sorted);
    free(w);
}

void mm_execution_unobserve(mm_execution *p) {
    window_destroy(p->window);
    p->window = NULL;
}

mm_status mm_execution_observe(mm_execution *p, int iterations) {
    const size_t n = (size_t)iterations;
    mm_window *w = calloc(1, sizeof *w);
    if (w) {
        w->most = iterations;
        w->starts = true;
        w->node_ns = calloc(n * (size_t)p->plan->n_nodes + 1, sizeof *w->node_ns);
        w->iteration_ns = calloc(n, sizeof *w->iteration_ns);
        w->sorted = calloc(n, sizeof *w->sorted);
    }
    if (!w || !w->node_ns || !w->iteration_ns || !w->sorted) {
        window_destroy(w);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the times of %d iterations", iterations);
    }
    mm_execution_unobserve(p);
    p->window = w;
    return MM_OK;
}

/* The time since the previous iteration, of any program, counts to the first step. Does not add an iteration in which
 * the time of some piece is not known, nor the first one of a window. */
void mm_window_add(mm_execution *p, const mm_period *periods) {
    mm_window *w = p->window;
    mm_dispatch *d = p->dispatch;
    const int first = p->program->at[MM_STREAM_COMPUTE][0];
    int64_t start_ns = periods[first].start_ns, end_ns = 0;
    bool known = true;
    for (int i = 0; i < p->program->n; i++) {
        known &= mm_period_is_known(&periods[i]);
        if (periods[i].end_ns > end_ns) end_ns = periods[i].end_ns;
    }
    if (d->ended_ns > 0 && d->ended_ns < start_ns) start_ns = d->ended_ns;
    if (known) d->ended_ns = end_ns;
    if (!known) return;
    if (w->starts) {
        w->starts = false;
        return;
    }
    const int slot = w->next;
    int64_t *node_ns = w->node_ns + (size_t)slot * (size_t)p->plan->n_nodes;
    mm_program_node_times(p->program, periods, node_ns);
    node_ns[p->program->pieces[first].node] += periods[first].start_ns - start_ns;
    w->iteration_ns[slot] = end_ns - start_ns;
    w->next = (slot + 1) % w->most;
    if (w->kept < w->most) w->kept++;
    if (w->fresh < w->most) w->fresh++;
}

bool mm_execution_window_is_full(const mm_execution *p) { return p->window && p->window->fresh == p->window->most; }

void mm_execution_window_restart(mm_execution *p) {
    if (!p->window) return;
    p->window->fresh = 0;
    p->window->starts = true;
}

static int by_size(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

int mm_execution_window_times(const mm_execution *p, mm_quartiles *iteration_out, int64_t *node_ns) {
    const mm_window *w = p->window;
    const int n = w ? w->kept : 0, nodes = p->plan->n_nodes;
    if (n == 0) return 0;
    memcpy(w->sorted, w->iteration_ns, (size_t)n * sizeof *w->sorted);
    qsort(w->sorted, (size_t)n, sizeof *w->sorted, by_size);
    *iteration_out = (mm_quartiles){w->sorted[n / 4], w->sorted[n / 2], w->sorted[n - 1 - n / 4]};
    for (int i = 0; i < nodes; i++) {
        for (int k = 0; k < n; k++) w->sorted[k] = w->node_ns[(size_t)k * (size_t)nodes + (size_t)i];
        qsort(w->sorted, (size_t)n, sizeof *w->sorted, by_size);
        node_ns[i] = w->sorted[n / 2];
    }
    return n;
}
