/* SPDX-License-Identifier: MIT */
#include "mm/stash/stash_order.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for one more item. */
static bool grow(void **items, int n, int *capacity, size_t item_bytes) {
    if (n < *capacity) return true;
    const int larger = *capacity ? 2 * *capacity : 64;
    void *grown = realloc(*items, (size_t)larger * item_bytes);
    if (!grown) return false;
    *items = grown;
    *capacity = larger;
    return true;
}

void mm_order_put(mm_order *o, const mm_stash_desc *kind) {
    void *entries = o->entries;
    if (!o->lost) o->lost = !grow(&entries, o->n_entries, &o->entry_capacity, sizeof *o->entries);
    o->entries = entries;
    if (o->lost) return;
    o->entries[o->n_entries] = *kind;
    mm_order_add(o, MM_ORDER_PUT, o->n_entries++);
}

void mm_order_add(mm_order *o, mm_order_event_kind kind, int entry) {
    void *events = o->events;
    if (!o->lost)
        o->lost =
            o->n_events == MM_ORDER_EVENTS_MOST || !grow(&events, o->n_events, &o->event_capacity, sizeof *o->events);
    o->events = events;
    if (o->lost) return;
    const mm_order_event *last = o->n_events > 0 ? &o->events[o->n_events - 1] : NULL;
    if (kind == MM_ORDER_END && last && last->kind == MM_ORDER_RETURN && last->entry == entry) o->n_events--;
    o->events[o->n_events++] = (mm_order_event){kind, entry};
    o->n_gets += kind == MM_ORDER_GET;
    o->open += kind == MM_ORDER_PUT;
    o->open -= kind == MM_ORDER_END;
}

void mm_order_clear(mm_order *o) {
    o->n_entries = o->n_events = o->open = o->n_gets = 0;
    o->lost = false;
}

void mm_order_fini(mm_order *o) {
    free(o->entries);
    free(o->events);
    *o = (mm_order){0};
}

bool mm_stash_desc_equal(const mm_stash_desc *a, const mm_stash_desc *b) {
    return a->dtype == b->dtype && a->flags == b->flags && a->rank == b->rank && a->bytes == b->bytes &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0 && strcmp(a->producer, b->producer) == 0;
}

bool mm_order_equal(const mm_order *a, const mm_order *b) {
    if (a->n_entries != b->n_entries || a->n_events != b->n_events) return false;
    for (int i = 0; i < a->n_events; i++)
        if (a->events[i].kind != b->events[i].kind || a->events[i].entry != b->events[i].entry) return false;
    for (int i = 0; i < a->n_entries; i++)
        if (!mm_stash_desc_equal(&a->entries[i], &b->entries[i])) return false;
    return true;
}

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static uint64_t hash(uint64_t before, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) before = (before ^ at[i]) * UINT64_C(0x100000001b3);
    return before;
}

uint64_t mm_order_hash(const mm_order *o) {
    uint64_t found = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < o->n_events; i++) {
        const int32_t event[] = {(int32_t)o->events[i].kind, o->events[i].entry};
        found = hash(found, event, sizeof event);
    }
    for (int i = 0; i < o->n_entries; i++) {
        const mm_stash_desc *e = &o->entries[i];
        const uint32_t kind[] = {(uint32_t)e->dtype, e->flags};
        found = hash(found, kind, sizeof kind);
        found = hash(found, e->dims, sizeof e->dims);
        found = hash(found, e->producer, strlen(e->producer));
    }
    return found;
}
