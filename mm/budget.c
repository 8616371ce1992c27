/* How much of the arena may be used: what lies above is given back to the system, and taken back from it. */
#include "mm/manager.h"

int64_t mm_manager_limit_bytes(const mm_manager *m) {
    return m->budget_bytes < m->ceiling_bytes ? m->budget_bytes : m->ceiling_bytes;
}

/* The pattern that tells touched bytes goes with the memory: they are counted before. */
static mm_status count_given_back(mm_manager *m, int64_t from) {
    mm_touched touched;
    if (!m->options.measure_touched) return MM_OK;
    MM_TRY(mm_touched_count(m, from, m->there_bytes, &touched));
    m->given_back.total_bytes += touched.total_bytes;
    m->given_back.stray_bytes += touched.stray_bytes;
    return MM_OK;
}

void mm_manager_trim(mm_manager *m) {
    int64_t limit = mm_manager_limit_bytes(m);
    /* Persistent tensors outlive the graphs that the limit was made for. */
    int64_t from = mm_align(limit > m->directory.bytes ? limit : m->directory.bytes);
    if (from >= m->there_bytes) return;
    if (count_given_back(m, from) != MM_OK) {
        mm_log_send(&m->options.log, MM_LOG_WARNING, "nothing is given back, touched bytes cannot be counted: %s",
                    mm_last_error());
        return;
    }
    mm_pool_trim(m->pool, from);
    m->there_bytes = from;
}

/* What comes back is as if it had never been touched. */
static mm_status forget_given_back(mm_manager *m) {
    mm_touched touched;
    if (!m->options.measure_touched) return MM_OK;
    MM_TRY(mm_touched_now(m, &touched));
    m->most_touched = touched.total_bytes;
    m->given_back.total_bytes = 0;
    return MM_OK;
}

static mm_status take_back(mm_manager *m, int64_t bytes) {
    int64_t there = m->there_bytes;
    if (bytes <= there) return MM_OK;
    MM_TRY(forget_given_back(m));
    mm_status status = mm_pool_restore(m->pool, bytes);
    if (status == MM_OK)
        m->there_bytes = bytes;
    else
        mm_pool_trim(m->pool, there);
    char budget[32];
    return status == MM_OK
               ? MM_OK
               : mm_fail_in(status, "a budget of %s, more than now", mm_size_format(bytes, budget, sizeof budget));
}

static void put_budget(mm_manager *m, int64_t bytes) {
    pthread_mutex_lock(&m->lock);
    m->budget_bytes = bytes;
    pthread_mutex_unlock(&m->lock);
}

mm_status mm_budget_set(mm_manager *m, int64_t device_bytes) {
    MM_TRY(mm_manager_check_idle(m, "mm_budget_set"));
    if (device_bytes <= 0 || device_bytes > mm_pool_bytes(m->pool))
        return mm_fail(MM_ERR_INVALID,
                       "mm_budget_set: a budget of %s: must be from 1 byte to the %s that were reserved",
                       MM_SIZE_TOLD(device_bytes), MM_SIZE_TOLD(mm_pool_bytes(m->pool)));
    MM_TRY(mm_manager_settle(m, "mm_budget_set"));
    int64_t before = m->budget_bytes, ceiling = m->ceiling_bytes;
    mm_status status = take_back(m, device_bytes);
    put_budget(m, device_bytes);
    m->ceiling_bytes = INT64_MAX;
    if (status == MM_OK) status = mm_manager_replan(m, &m->policy, NULL, "the budget is set");
    if (status != MM_OK) {
        put_budget(m, before);
        m->ceiling_bytes = ceiling;
    }
    mm_manager_trim(m);
    return status;
}

int64_t mm_manager_device_bytes(mm_manager *m) {
    if (!m) return 0;
    pthread_mutex_lock(&m->lock);
    int64_t bytes = m->budget_bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}
