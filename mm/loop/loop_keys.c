/* SPDX-License-Identifier: MIT */
#include "mm/loop/loop_keys.h"

#include <stdio.h>
#include <stdlib.h>

#include "mm/loop/loop_again.h"

mm_loop_recording *mm_loop_find(const mm_loop *l, int64_t key) {
    if (l->now && l->now->key == key) return l->now;
    for (int i = 0; i < l->n_recordings; i++)
        if (l->recordings[i]->key == key) return l->recordings[i];
    return NULL;
}

static void recording_free(mm_loop_recording *r) {
    for (int s = 0; s < r->n_steps; s++) free(r->steps[s].slots);
    free(r->steps);
    mm_names_fini(&r->tensors);
    mm_names_fini(&r->layers);
    for (int i = 0; i < r->n_texts; i++) free(r->texts[i]);
    free(r->texts);
    mm_graph_destroy(r->graph);
    free(r);
}

mm_status mm_loop_add(mm_loop *l, int64_t key, mm_loop_recording **recording_out) {
    char name[32];
    MM_TRY(mm_loop_grow(&l->recordings, l->n_recordings, sizeof(mm_loop_recording *)));
    mm_loop_recording *r = calloc(1, sizeof *r);
    if (!r) return mm_fail(MM_ERR_NOMEM, "out of memory for a recording");
    r->loop = l;
    r->key = key;
    snprintf(name, sizeof name, "key %lld", (long long)key);
    const mm_status status = mm_graph_create(name, &r->graph);
    if (status != MM_OK) {
        recording_free(r);
        return status;
    }
    l->recordings[l->n_recordings++] = r;
    *recording_out = r;
    return MM_OK;
}

mm_status mm_loop_plan(mm_loop_recording *r) {
    if (r->planned) return MM_OK;
    MM_TRY(mm_recompute_set(r->loop->manager, r->graph, mm_loop_again, r));
    r->planned = true;
    return MM_OK;
}

void mm_loop_drop(mm_loop *l, mm_loop_recording *r) {
    if (r->planned) {
        mm_failure last; /* the caller's mm_last_error stays */
        mm_failure_save(&last, MM_ERR_ORDER);
        mm_status forgotten = mm_manager_forget(l->manager, r->graph);
        (void)forgotten; /* the manager has the graph, and no iteration is under way */
        mm_failure_restore(&last);
    }
    for (int i = 0; i < l->n_recordings; i++)
        if (l->recordings[i] == r) l->recordings[i] = l->recordings[l->n_recordings - 1];
    l->n_recordings--;
    if (l->now == r) l->now = NULL;
    recording_free(r);
}

const mm_graph *mm_loop_graph(const mm_loop *l, int64_t key) {
    const mm_loop_recording *r = l ? mm_loop_find(l, key) : NULL;
    return r && r->learned ? r->graph : NULL;
}
