/* SPDX-License-Identifier: MIT */
#include "mm/planning/persistent_table.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan.h"

const mm_persistent *mm_persistent_table_find(const mm_persistent_table *d, const char *name) {
    int index = name ? mm_names_find(&d->names, name) : -1;
    return index < 0 ? NULL : &d->entries[index];
}

/* Chosen: far above the bytes of any memory, and small enough that sums of a few such numbers do not overflow.
 * mm_graph_freeze has the same limit. */
static const int64_t MAX_BYTES = INT64_C(1) << 60;

mm_status mm_persistent_table_append(mm_persistent_table *d, const char *tensor, int64_t bytes) {
    if (bytes > MAX_BYTES - MM_ALIGN - d->bytes)
        return mm_fail(MM_ERR_INVALID, "persistent tensor %s: with it, persistent tensors have more than 2^60 bytes",
                       tensor);
    if ((d->n & (d->n - 1)) == 0) { /* capacity is the next power of two */
        mm_persistent *entries = realloc(d->entries, (d->n ? 2 * (size_t)d->n : 1) * sizeof *entries);
        if (!entries) return mm_fail(MM_ERR_NOMEM, "out of memory for the persistent tensor %s", tensor);
        d->entries = entries;
    }
    char *name = strdup(tensor);
    if (!name || mm_names_add(&d->names, name, d->n) != MM_OK) {
        free(name);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the persistent tensor %s", tensor);
    }
    d->entries[d->n++] = (mm_persistent){.name = name, .place = {.offset = d->bytes}, .bytes = bytes};
    d->bytes += mm_align(bytes);
    return MM_OK;
}

mm_status mm_persistent_table_add(mm_persistent_table *d, const mm_graph *graph) {
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        if (tensor->ownership != MM_PERSISTENT) continue;
        int known = mm_names_find(&d->names, tensor->name);
        if (known >= 0 && d->entries[known].bytes != tensor->bytes)
            return mm_fail(
                MM_ERR_INVALID, "graph %s: persistent tensor %s has %lld bytes, but %lld in an earlier graph",
                mm_graph_name(graph), tensor->name, (long long)tensor->bytes, (long long)d->entries[known].bytes);
        if (known < 0) MM_TRY(mm_persistent_table_append(d, tensor->name, tensor->bytes));
        d->entries[known < 0 ? d->n - 1 : known].on_host |= tensor->on_host;
    }
    return MM_OK;
}

void mm_persistent_table_declare(mm_persistent_table *d, const mm_graph *graph) {
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        if (tensor->ownership == MM_PERSISTENT) d->entries[mm_names_find(&d->names, tensor->name)].declared = true;
    }
}

/* The place of an entry's home with these homes. ends: of the homes before it in each memory; grow. */
static mm_place place_after(const mm_persistent_table *d, const mm_homes *homes, int entry,
                            int64_t ends[MM_MEMORY_COUNT]) {
    const mm_memory wanted = mm_homes_memory(homes, entry);
    const mm_memory memory = d->entries[entry].on_host && wanted == MM_MEM_DEVICE ? MM_MEM_PINNED : wanted;
    const mm_place place = {.offset = ends[memory], .memory = memory};
    ends[memory] += mm_memory_round(memory, d->entries[entry].bytes);
    return place;
}

static int64_t *end_of(mm_persistent_table *d, mm_memory memory) {
    return memory == MM_MEM_DEVICE ? &d->bytes : memory == MM_MEM_PINNED ? &d->pinned_bytes : &d->disk_bytes;
}

mm_status mm_persistent_table_places(const mm_persistent_table *d, const mm_homes *homes, const mm_graph *graph,
                                     mm_limits *limits, mm_place **places_out) {
    int64_t ends[MM_MEMORY_COUNT] = {0};
    mm_place *all = malloc(((size_t)d->n + 1) * sizeof *all);
    mm_place *places = malloc(((size_t)mm_graph_persistents(graph) + 1) * sizeof *places);
    if (!all || !places) {
        free(all);
        free(places);
        return mm_fail(MM_ERR_NOMEM, "out of memory for the persistent tensors of %s", mm_graph_name(graph));
    }
    for (int i = 0; i < d->n; i++) all[i] = place_after(d, homes, i, ends);
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        if (tensor->persistent >= 0) places[tensor->persistent] = all[mm_names_find(&d->names, tensor->name)];
    }
    free(all);
    limits->base_bytes = ends[MM_MEM_DEVICE];
    limits->pinned_base_bytes = ends[MM_MEM_PINNED];
    limits->disk_base_bytes = ends[MM_MEM_DISK];
    limits->places = *places_out = places;
    return MM_OK;
}

void mm_persistent_table_settle(mm_persistent_table *d, const mm_homes *homes) {
    int64_t ends[MM_MEMORY_COUNT] = {0};
    for (int i = 0; i < d->n; i++) d->entries[i].place = place_after(d, homes, i, ends);
    for (mm_memory m = 0; m < MM_MEMORY_COUNT; m++) *end_of(d, m) = ends[m];
}

int64_t mm_persistent_table_beside(const mm_persistent_table *d, const mm_graph *graph) {
    int64_t bytes = d->bytes;
    for (int t = 0; t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        const int entry = tensor->persistent >= 0 ? mm_names_find(&d->names, tensor->name) : -1;
        if (entry >= 0 && d->entries[entry].place.memory == MM_MEM_DEVICE) bytes -= mm_align(tensor->bytes);
    }
    return bytes;
}

int64_t mm_persistent_beside(const mm_graph *graph, const mm_graph *other) {
    int64_t bytes = 0;
    for (int t = 0; t < mm_graph_tensors(other); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(other, t);
        const int own = tensor->persistent >= 0 ? mm_graph_index(graph, tensor->name) : -1;
        if (tensor->persistent >= 0 && (own < 0 || mm_graph_tensor(graph, own)->persistent < 0))
            bytes += mm_align(tensor->bytes);
    }
    return bytes;
}

void mm_persistent_table_cut(mm_persistent_table *d, int n) {
    if (d->n <= n) return;
    mm_names_clear(&d->names);
    while (d->n > n) {
        const mm_place *place = &d->entries[--d->n].place;
        *end_of(d, place->memory) = place->offset;
        free(d->entries[d->n].name);
    }
    /* At least half of the slots are free, so adding the names again cannot fail. */
    for (int i = 0; i < n; i++) {
        mm_status added = mm_names_add(&d->names, d->entries[i].name, i);
        (void)added;
    }
}

void mm_persistent_table_fini(mm_persistent_table *d) {
    mm_persistent_table_cut(d, 0);
    free(d->entries);
    mm_names_fini(&d->names);
    memset(d, 0, sizeof *d);
}
