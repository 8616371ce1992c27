/* SPDX-License-Identifier: MIT */
#include "mm/manager/values.h"

#include <math.h>
#include <string.h>

#include "mm/manager/bounds.h"
#include "mm/manager/home_moves.h"
#include "mm/manager/install.h"
#include "mm/manager/states.h"
#include "pipeline/codec/code_block.h"

_Static_assert(MM_VALUES_OWN == sizeof(int64_t), "the iteration's number comes first");

/* *upload_out NULL: no graph declares MM_VALUES. */
static mm_status find_upload(mm_manager *m, mm_upload **upload_out) {
    const mm_persistent *entry = mm_persistent_table_find(&m->persistents, MM_VALUES);
    if (entry && !m->values) MM_TRY(mm_upload_create(m->device, mm_home_address(m, entry), entry->bytes, &m->values));
    if (entry) mm_upload_retarget(m->values, mm_home_address(m, entry));
    *upload_out = m->values;
    return MM_OK;
}

static mm_status send(mm_manager *m, const mm_ready *r, bool exactly) {
    mm_upload *upload;
    mm_stream *stream = mm_dispatch_compute(m->dispatch);
    MM_TRY(find_upload(m, &upload));
    if (upload) {
        memcpy(mm_upload_data(upload), &m->number, sizeof m->number);
        MM_TRY(mm_upload_send(upload, stream));
    }
    if (!r->block) return MM_OK;
    mm_code_block *block = mm_upload_data(r->block);
    block->iteration = m->number;
    const size_t bytes = (size_t)mm_graph_tensors(r->prepared->graph) * sizeof *block->bound;
    exactly ? memset(block->bound, 0, bytes) : memcpy(block->bound, r->bounds, bytes);
    return mm_upload_send(r->block, stream);
}

mm_status mm_manager_send_values(mm_manager *m, const mm_ready *r, bool exactly, const char *call) {
    mm_failure failure;
    mm_failure_save(&failure, send(m, r, exactly));
    if (failure.status == MM_OK) return MM_OK;
    mm_status drained = mm_manager_drain(m, call);
    (void)drained; /* its status is dropped: it is the failure above, or one that follows from it */
    mm_stream_reset(mm_dispatch_compute(m->dispatch));
    return mm_failure_restore(&failure);
}

mm_status mm_iteration_number_set(mm_manager *m, int64_t number) {
    static const char call[] = "mm_iteration_number_set";
    MM_TRY(mm_manager_check_idle(m, call));
    if (number < 0) return mm_fail(MM_ERR_INVALID, "%s: %lld: must be 0 or more", call, (long long)number);
    m->number = number;
    return MM_OK;
}

mm_status mm_values_set(mm_manager *m, int64_t offset, const void *data, int64_t bytes) {
    static const char call[] = "mm_values_set";
    mm_upload *upload;
    MM_TRY(mm_manager_check_idle(m, call));
    const mm_persistent *entry = mm_persistent_table_find(&m->persistents, MM_VALUES);
    if (!entry) return mm_fail(MM_ERR_NOT_FOUND, "%s: no graph that is prepared declares the tensor " MM_VALUES, call);
    if (offset < MM_VALUES_OWN || bytes < 0 || offset > entry->bytes || bytes > entry->bytes - offset)
        return mm_fail(MM_ERR_INVALID, "%s: %lld bytes at offset %lld: the caller's values lie from %d to %lld", call,
                       (long long)bytes, (long long)offset, MM_VALUES_OWN, (long long)entry->bytes);
    if (bytes == 0) return MM_OK;
    MM_TRY(mm_check_given(data, call, "data"));
    MM_TRY(find_upload(m, &upload));
    memcpy((uint8_t *)mm_upload_data(upload) + offset, data, (size_t)bytes);
    return MM_OK;
}

/* ---------------------------------------------------------------- bounds */

static mm_status find_bound(mm_manager *m, const char *call, const mm_graph *graph, mm_tensor tensor,
                            float **bound_out) {
    MM_TRY(mm_manager_check_idle(m, call));
    const mm_ready *r = mm_manager_find(m, graph);
    if (!r) return mm_fail(MM_ERR_NOT_FOUND, "%s: the graph was not prepared", call);
    if (tensor < 0 || tensor >= mm_graph_tensors(graph))
        return mm_fail(MM_ERR_INVALID, "%s: %s has no tensor %d", call, mm_graph_name(graph), tensor);
    *bound_out = &r->bounds[tensor];
    return MM_OK;
}

mm_status mm_bound_set(mm_manager *m, const mm_graph *graph, mm_tensor tensor, float bound) {
    static const char call[] = "mm_bound_set";
    float *place;
    MM_TRY(find_bound(m, call, graph, tensor, &place));
    if (!(bound >= 0 && bound < INFINITY))
        return mm_fail(MM_ERR_INVALID, "%s: a bound of %g for %s: must be 0 or more, and finite", call, (double)bound,
                       mm_graph_tensor(graph, tensor)->name);
    *place = bound;
    return MM_OK;
}

mm_status mm_bound_get(mm_manager *m, const mm_graph *graph, mm_tensor tensor, float *bound_out) {
    float *place;
    MM_TRY(find_bound(m, "mm_bound_get", graph, tensor, &place));
    *bound_out = *place;
    return MM_OK;
}
