/* SPDX-License-Identifier: MIT */
/* The table of entries, and the records of deferred calls ("notes"). */
#include "mm/stash/stash_table.h"

#include <stdlib.h>

#include "mm/core/plan/plan.h"
#include "mm/stash/stash.h"

/* ---------------------------------------------------------------- slots
 *
 * An entry's number has its slot's index in the low bits; the high bits count the stash's entries, from 1. */
enum { INDEX_BITS = 24 };

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the entries of a stash"); }

/* Makes the free slots of one more chunk. */
static mm_status add_chunk(mm_stash *s) {
    mm_stash_table *t = &s->table;
    if ((t->n_chunks + 1) * MM_STASH_CHUNK > (size_t)1 << INDEX_BITS)
        return mm_fail(MM_ERR_NOMEM, "a stash has %zu entries, and room for no more", t->n_chunks * MM_STASH_CHUNK);
    mm_stash_slot *slots = calloc(MM_STASH_CHUNK, sizeof *slots);
    if (!slots) return no_memory();
    pthread_mutex_lock(&s->lock);
    mm_stash_slot **chunks = realloc(t->chunks, (t->n_chunks + 1) * sizeof(mm_stash_slot *));
    if (chunks) {
        t->chunks = chunks;
        t->chunks[t->n_chunks++] = slots;
    }
    pthread_mutex_unlock(&s->lock);
    if (!chunks) {
        free(slots);
        return no_memory();
    }
    for (size_t i = MM_STASH_CHUNK; i-- > 0;) {
        slots[i].index = (uint32_t)((t->n_chunks - 1) * MM_STASH_CHUNK + i);
        slots[i].next_free = t->free;
        t->free = &slots[i];
    }
    return MM_OK;
}

mm_status mm_stash_slot_new(mm_stash *s, mm_stash_slot **slot_out) {
    if (!s->table.free) MM_TRY(add_chunk(s));
    mm_stash_slot *slot = s->table.free;
    s->table.free = slot->next_free;
    pthread_mutex_lock(&s->lock); /* others may be looking up an entry that had this slot */
    *slot = (mm_stash_slot){.index = slot->index, .number = -1, .offset = -1};
    pthread_mutex_unlock(&s->lock);
    slot->drop.slot = slot;
    *slot_out = slot;
    return MM_OK;
}

mm_stash_entry mm_stash_slot_publish(mm_stash *s, mm_stash_slot *slot) {
    pthread_mutex_lock(&s->lock);
    mm_stash_entry id = slot->id = ++s->table.last << INDEX_BITS | slot->index;
    pthread_mutex_unlock(&s->lock);
    return id;
}

void mm_stash_slot_free(mm_stash *s, mm_stash_slot *slot) {
    pthread_mutex_lock(&s->lock);
    slot->id = 0;
    pthread_mutex_unlock(&s->lock);
    slot->next_free = s->table.free;
    s->table.free = slot;
}

mm_stash_slot *mm_stash_slot_at(const mm_stash *s, mm_stash_entry entry) {
    const size_t index = entry & (((uint64_t)1 << INDEX_BITS) - 1);
    if (index >= s->table.n_chunks * MM_STASH_CHUNK) return NULL;
    mm_stash_slot *slot = &s->table.chunks[index / MM_STASH_CHUNK][index % MM_STASH_CHUNK];
    return entry != 0 && slot->id == entry ? slot : NULL;
}

/* ---------------------------------------------------------------- notes */

mm_status mm_stash_deferred_new(mm_stash *s, mm_stash_deferred **note_out) {
    mm_stash_deferred *note = s->free_notes;
    if (note) {
        s->free_notes = note->next;
    } else {
        note = calloc(1, sizeof *note);
        if (!note) return no_memory();
        mm_status status = s->is_inline ? MM_OK : mm_event_create(s->device, &note->event);
        if (status != MM_OK) {
            free(note);
            return status;
        }
    }
    note->returns = true;
    note->failed = MM_OK;
    *note_out = note;
    return MM_OK;
}

void mm_stash_deferred_free(mm_stash *s, mm_stash_deferred *note) {
    note->next = s->free_notes;
    s->free_notes = note;
}

static void destroy_notes(mm_stash_deferred *note) {
    while (note) {
        mm_stash_deferred *next = note->next;
        mm_event_destroy(note->event);
        free(note);
        note = next;
    }
}

void mm_stash_table_fini(mm_stash *s) {
    mm_stash_table *t = &s->table;
    for (size_t c = 0; c < t->n_chunks; c++) {
        for (int i = 0; i < MM_STASH_CHUNK; i++) {
            mm_stash_slot *slot = &t->chunks[c][i];
            if (!slot->id) continue;
            destroy_notes(slot->gets);
            if (slot->host.where == MM_STASH_IN_ORDINARY) free(slot->host.memory);
            if (slot->beyond) mm_device_release(s->device, MM_MEMORY_DEVICE, slot->beyond, mm_align(slot->kind.bytes));
        }
        free(t->chunks[c]);
    }
    free(t->chunks);
    destroy_notes(s->free_notes);
}
