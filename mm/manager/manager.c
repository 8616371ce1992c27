/* SPDX-License-Identifier: MIT */
#include "mm/manager/manager.h"

#include "mm/core/log.h"

void mm_manager_notify(mm_manager *m, mm_event_kind kind, const char *name, int64_t bytes, int64_t ns) {
    mm_event_info info = {.kind = kind, .name = name, .bytes = bytes, .ns = ns};
    if (m->options.event_fn) m->options.event_fn(m->options.event_ctx, &info);
}

void mm_manager_step_down(mm_manager *m, const char *name, int64_t bytes, const char *message) {
    pthread_mutex_lock(&m->lock);
    m->ladder_steps++;
    pthread_mutex_unlock(&m->lock);
    mm_log_send(&m->options.log, MM_LOG_WARNING, "memory is short: %s", message);
    mm_manager_notify(m, MM_EVENT_LADDER, name, bytes, 0);
}

mm_ready *mm_manager_find(const mm_manager *m, const mm_graph *graph) {
    for (int i = 0; i < m->n_ready; i++)
        if (m->ready[i].prepared->graph == graph) return &m->ready[i];
    return NULL;
}

int64_t mm_manager_limit_bytes(const mm_manager *m) {
    return m->budget_bytes < m->ceiling_bytes ? m->budget_bytes : m->ceiling_bytes;
}

mm_limits mm_manager_limits(const mm_manager *m) {
    return (mm_limits){.device_bytes = mm_manager_limit_bytes(m),
                       .pinned_bytes = mm_pool_bytes(m->pinned),
                       .base_bytes = m->persistents.bytes,
                       .pinned_base_bytes = m->persistents.pinned_bytes,
                       .disk_base_bytes = m->persistents.disk_bytes,
                       .disk_bytes = m->disk ? mm_disk_bytes(m->disk) : 0,
                       .stop = m->options.stop_search};
}
