/* SPDX-License-Identifier: MIT */
/* Persistent tensors of a manager: adds and removes them, and copies their bytes to and from the CPU's memory. */
#include "mm/manager/persistent.h"

#include <string.h>

#include "mm/manager/budget.h"
#include "mm/manager/home_moves.h"
#include "mm/manager/install.h"
#include "mm/manager/states.h"

/* ---------------------------------------------------------------- adding and removing */

static void count_persistents(mm_manager *m) {
    pthread_mutex_lock(&m->lock);
    m->persistent_bytes = m->persistents.bytes;
    pthread_mutex_unlock(&m->lock);
    m->persistents_there = m->persistents.n;
}

mm_status mm_persistent_commit(mm_manager *m, int entries, mm_status status) {
    if (status == MM_OK)
        count_persistents(m);
    else
        mm_persistent_table_cut(&m->persistents, entries);
    return status;
}

mm_status mm_persistent_add(mm_manager *m, const char *name, int64_t bytes) {
    MM_TRY(mm_manager_drain(m, "mm_persistent_add"));
    mm_policy_thread_interrupt(&m->policy_thread);
    if (!name) return mm_fail(MM_ERR_INVALID, "mm_persistent_add: a persistent tensor needs a name");
    if (bytes <= 0)
        return mm_fail(MM_ERR_INVALID, "mm_persistent_add: %s has %lld bytes: must be at least 1", name,
                       (long long)bytes);
    if (strcmp(name, MM_VALUES) == 0)
        return mm_fail(MM_ERR_INVALID, "mm_persistent_add: only a graph may declare " MM_VALUES);
    if (mm_persistent_table_find(&m->persistents, name))
        return mm_fail(MM_ERR_INVALID, "mm_persistent_add: %s is there already: choose another name", name);
    int entries = m->persistents.n;
    const int64_t budget = m->budget_bytes;
    mm_status status = mm_persistent_table_append(&m->persistents, name, bytes);
    if (status == MM_OK) status = mm_budget_follow(m, &m->plans.policy, NULL);
    if (status == MM_OK) status = mm_budget_keep(m, budget, mm_manager_plan_around(m));
    return mm_persistent_commit(m, entries, status);
}

static mm_status check_removable(const mm_manager *m, const char *name) {
    const mm_persistent_table *d = &m->persistents;
    const mm_persistent *entry = name ? mm_persistent_table_find(d, name) : NULL;
    if (!entry)
        return mm_fail(MM_ERR_NOT_FOUND, "mm_persistent_remove: there is no persistent tensor %s", name ? name : "");
    if (entry->declared)
        return mm_fail(MM_ERR_INVALID,
                       "mm_persistent_remove: a graph declares %s, which therefore stays for the manager's life", name);
    if (entry != &d->entries[d->n - 1])
        return mm_fail(MM_ERR_ORDER, "mm_persistent_remove: %s was added after %s and never moves",
                       d->entries[d->n - 1].name, name);
    return MM_OK;
}

mm_status mm_persistent_remove(mm_manager *m, const char *name) {
    MM_TRY(mm_manager_drain(m, "mm_persistent_remove"));
    mm_policy_thread_interrupt(&m->policy_thread);
    MM_TRY(check_removable(m, name));
    int64_t before = m->persistents.bytes;
    /* Once the tensor is removed, the bytes that were written to it must not count as stray. */
    if (m->options.measure_touched) MM_TRY(mm_coverage_add(&m->coverage, &(mm_range){0, before}, 1));
    m->persistents.bytes = m->persistents.entries[m->persistents.n - 1].place.offset;
    mm_status status = mm_manager_plan_around(m);
    if (status == MM_OK) {
        mm_persistent_table_cut(&m->persistents, m->persistents.n - 1);
        count_persistents(m);
    } else
        m->persistents.bytes = before;
    return status;
}

/* ---------------------------------------------------------------- bytes */

void *mm_persistent_data(mm_manager *m, const char *name, size_t *bytes_out) {
    const mm_persistent *entry = m ? mm_persistent_table_find(&m->persistents, name) : NULL;
    if (!entry) return NULL;
    if (bytes_out) *bytes_out = (size_t)entry->bytes;
    return entry->lost ? NULL : mm_home_address(m, entry);
}

/* Checks the range, and finds the tensor. */
static mm_status find(mm_manager *m, const char *call, const char *name, int64_t offset, const void *data,
                      int64_t bytes, const mm_persistent **entry_out) {
    MM_TRY(mm_manager_drain(m, call));
    MM_TRY(mm_check_given(name, call, "name"));
    const mm_persistent *entry = mm_persistent_table_find(&m->persistents, name);
    if (!entry) return mm_fail(MM_ERR_NOT_FOUND, "%s: no graph of this manager has a persistent tensor %s", call, name);
    if (offset < 0 || bytes < 0 || offset > entry->bytes || bytes > entry->bytes - offset)
        return mm_fail(MM_ERR_INVALID, "%s: %lld bytes at offset %lld exceed %s, which has %lld bytes", call,
                       (long long)bytes, (long long)offset, name, (long long)entry->bytes);
    if (bytes > 0) MM_TRY(mm_check_given(data, call, "data"));
    *entry_out = entry;
    return MM_OK;
}

mm_status mm_persistent_get(mm_manager *m, const char *name, int64_t offset, void *data, int64_t bytes) {
    const mm_persistent *entry;
    MM_TRY(find(m, "mm_persistent_get", name, offset, data, bytes, &entry));
    return mm_home_sync(m, mm_home_read(m, entry, offset, data, bytes));
}

/* A lost tensor is whole once it was set from its beginning to its end. */
static void note_set(mm_persistent *entry, int64_t offset, int64_t bytes) {
    if (!entry->lost || offset > entry->set_bytes) return;
    if (offset + bytes > entry->set_bytes) entry->set_bytes = offset + bytes;
    entry->lost = entry->set_bytes < entry->bytes;
}

mm_status mm_persistent_set(mm_manager *m, const char *name, int64_t offset, const void *data, int64_t bytes) {
    const mm_persistent *entry;
    MM_TRY(find(m, "mm_persistent_set", name, offset, data, bytes, &entry));
    if (strcmp(name, MM_VALUES) == 0)
        return mm_fail(MM_ERR_INVALID, "mm_persistent_set: " MM_VALUES " is set by mm_values_set");
    MM_TRY(mm_home_sync(m, mm_home_write(m, entry, offset, data, bytes)));
    note_set(&m->persistents.entries[entry - m->persistents.entries], offset, bytes);
    return MM_OK;
}
