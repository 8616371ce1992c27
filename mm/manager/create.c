/* SPDX-License-Identifier: MIT */
/* Creation and destruction of a manager: its options, its memory, its parts. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/log.h"
#include "mm/core/size.h"
#include "mm/manager/budget.h"
#include "mm/manager/claims.h"
#include "mm/manager/install.h"
#include "mm/manager/observe.h"
#include "mm/planning/home_route.h"

/* No padding follows the last member. So if the struct of a caller is longer than this one, the further bytes are
 * members of a later version. */
_Static_assert(offsetof(mm_options, disk_bytes_per_s) + sizeof(int64_t) == sizeof(mm_options), "no padding at the end");

static mm_status check_options(const mm_options *o) {
    if (o->device_bytes < 0)
        return mm_fail(MM_ERR_INVALID, "mm_manager_create: device_bytes is %lld: must be 0 or more",
                       (long long)o->device_bytes);
    if (o->pinned_bytes < 0)
        return mm_fail(MM_ERR_INVALID, "mm_manager_create: pinned_bytes is %lld: must be 0 or more",
                       (long long)o->pinned_bytes);
    if (o->trace_bytes < 0)
        return mm_fail(MM_ERR_INVALID, "mm_manager_create: trace_bytes is %lld: must be 0 or more",
                       (long long)o->trace_bytes);
    if (o->self_check && o->verify_issued != 0)
        return mm_fail(MM_ERR_INVALID, "mm_manager_create: self_check issues work that no plan has: leave out "
                                       "verify_issued, or self_check");
    return mm_disk_check_options("mm_manager_create", o->disk, o->disk_bytes, o->disk_bytes_per_s);
}

/* Reserves as much as the device gives: tries `most` bytes, then less and less in steps of `part`. MM_ERR_NOMEM: it
 * gives nothing. */
static mm_status reserve_less(mm_manager *m, mm_memory_kind kind, int64_t most, int64_t part, mm_pool **pool_out) {
    for (int64_t bytes = most; part > 0 && bytes >= part; bytes -= part) {
        mm_status status = mm_pool_create(m->device, kind, bytes, pool_out);
        if (status != MM_ERR_NOMEM) return status;
    }
    return MM_ERR_NOMEM;
}

/* The most bytes that it is sensible to ask for: a larger budget is a mistake, not a shortage. */
static int64_t most_to_ask(mm_device *device, mm_memory_kind kind) {
    mm_memory_info info;
    if (kind == MM_MEMORY_PINNED) return INT64_MAX;
    mm_device_memory_info(device, &info);
    return info.free_bytes;
}

/* Reserves `bytes`; or, if the device has less than it said, or others took some meanwhile, a part of what it gives:
 * seven eighths of device memory, so that libraries can allocate beside the arena; half of pinned memory, which the
 * system needs too. If a second attempt gets all, there is no shortage: an allocation of our own had failed. PARTS is
 * the number of sizes that are tried: the result is at most 1/32 of `bytes` too small, and less than that is not worth
 * taking. All three numbers are chosen. */
static mm_status reserve(mm_manager *m, mm_memory_kind kind, int64_t bytes, mm_pool **pool_out) {
    enum { PARTS = 32 };
    const int left_per = kind == MM_MEMORY_PINNED ? 2 : 8;
    int64_t most = most_to_ask(m->device, kind);
    mm_status status = mm_pool_create(m->device, kind, bytes, pool_out);
    if (status != MM_ERR_NOMEM || m->options.no_ladder || bytes > most) return status;
    mm_failure refused;
    char message[256], asked[32], taken[32];
    mm_failure_save(&refused, status);
    most = most_to_ask(m->device, kind); /* asked again, because it may have changed meanwhile */
    status = reserve_less(m, kind, most < bytes ? most : bytes, bytes / PARTS, pool_out);
    if (status == MM_OK && mm_pool_bytes(*pool_out) == bytes) return MM_OK;
    if (status == MM_OK) {
        most = mm_pool_bytes(*pool_out);
        mm_pool_destroy(*pool_out);
        *pool_out = NULL;
        status = reserve_less(m, kind, most - most / left_per, bytes / PARTS, pool_out);
    }
    if (status != MM_OK) return mm_failure_restore(&refused);
    snprintf(message, sizeof message, "device %s has less than the %s of %s memory asked for; %s are reserved",
             m->options.device, mm_size_format(bytes, asked, sizeof asked),
             kind == MM_MEMORY_DEVICE ? "device" : "pinned",
             mm_size_format(mm_pool_bytes(*pool_out), taken, sizeof taken));
    mm_manager_step_down(m, m->plans.policy_now.spec, mm_pool_bytes(*pool_out), message);
    return MM_OK;
}

/* Reserves the arena and the pinned memory. A budget that follows the graphs has addresses now, and no memory yet; the
 * pinned memory comes first, because the addresses count as taken. */
static mm_status reserve_all(mm_manager *m) {
    const mm_options *o = &m->options;
    m->budget_follows = o->device_bytes == 0;
    if (!m->budget_follows) MM_TRY(reserve(m, MM_MEMORY_DEVICE, o->device_bytes, &m->pool));
    MM_TRY(reserve(m, MM_MEMORY_PINNED, o->pinned_bytes, &m->pinned));
    if (!m->budget_follows) {
        m->budget_bytes = m->there_bytes = mm_pool_bytes(m->pool);
        return MM_OK;
    }
    return mm_budget_reserve(m->device, &m->pool);
}

static mm_status open_parts(mm_manager *m) {
    mm_options *o = &m->options;
    MM_TRY(mm_policy_parse(o->policy ? o->policy : "liveness", &m->plans.policy));
    mm_device_config config = {.link_out_bytes_per_s = o->link_bytes_per_s,
                               .link_in_bytes_per_s = o->link_bytes_per_s,
                               .alloc_cost_ns = o->alloc_cost_ns,
                               .delay_seed = o->delay_seed,
                               .delay_max_ns = o->delay_max_ns,
                               .codec_threads = o->codec_threads,
                               .timed = o->measure_times || o->trace_bytes > 0};
    MM_TRY(mm_device_create(o->device ? o->device : "host", &config, &m->device));
    o->device = m->device->name; /* the device's own copy of the name, because the caller's string may be freed */
    mm_device_description description;
    mm_device_describe(m->device, &description);
    m->plans.sources =
        (mm_plan_sources){.device = o->device,
                          .rates = {description.memory_bytes_per_s, description.link_bytes_per_s,
                                    o->disk && o->disk_bytes_per_s == 0 ? MM_DISK_BYTES_PER_S : o->disk_bytes_per_s},
                          .facts = o->facts,
                          .persistents = &m->persistents};
    o->policy = NULL; /* m->plans has a copy; the caller's string may be freed */
    MM_TRY(mm_planned_try_codecs(&m->plans.policy, o->device));
    MM_TRY(mm_policy_copy(&m->plans.policy, &m->plans.policy_now));
    MM_TRY(reserve_all(m));
    if (o->disk) MM_TRY(mm_disk_create(o->disk, o->disk_bytes, &m->disk));
    o->disk = NULL; /* m->disk has a copy; the caller's string may be freed */
    mm_dispatch_config dispatch = {.device = m->device,
                                   .pool = m->pool,
                                   .pinned = m->pinned,
                                   .disk = m->disk,
                                   .issue = o->issue,
                                   .self_check = o->self_check,
                                   .verify_issued = o->verify_issued != 0,
                                   .measure_times = o->measure_times,
                                   .timed = o->trace_bytes > 0,
                                   .equal_streams = o->equal_streams};
    MM_TRY(mm_dispatch_create(&dispatch, &m->dispatch));
    if (!o->self_check || !o->fault_fn || !m->device->ops->protect) return MM_OK;
    return mm_fault_watch_start(m, mm_page_guard_explain, o->fault_fn, &m->guard.watch);
}

mm_status mm_manager_create_sized(const mm_options *given, size_t options_bytes, mm_manager **manager_out) {
    mm_options options;
    MM_TRY(mm_check_given(given, "mm_manager_create", "options"));
    MM_TRY(mm_take_options(given, options_bytes, &options, sizeof options, "mm_manager_create"));
    MM_TRY(check_options(&options));
    MM_TRY(mm_check_given(manager_out, "mm_manager_create", "manager_out"));
    mm_manager *m = calloc(1, sizeof *m);
    if (!m) return mm_fail(MM_ERR_NOMEM, "out of memory for a manager");
    m->options = options;
    m->ceiling_bytes = INT64_MAX;
    m->home_piece_bytes = MM_ROUTE_PIECE_BYTES;
    m->state = MM_STATE_IDLE;
    pthread_mutex_init(&m->lock, NULL);
    mm_status status = open_parts(m);
    if (status != MM_OK) {
        mm_manager_destroy(m);
        return status;
    }
    char size[32] = "what the graphs will need";
    if (!m->budget_follows) mm_size_format(m->budget_bytes, size, sizeof size);
    mm_log_send(&m->options.log, MM_LOG_INFO, "arena of %s on %s, policy %s", size, m->options.device,
                m->plans.policy.spec);
    *manager_out = m;
    return MM_OK;
}

void mm_manager_destroy(mm_manager *m) {
    if (!m) return;
    mm_policy_thread_cancel(&m->policy_thread);
    m->now.ran_out.status = MM_OK; /* so that the abort does not plan graphs anew */
    mm_iteration_abort(m);
    if (m->dispatch) {
        mm_status drained = mm_dispatch_sync(m->dispatch);
        (void)drained; /* failures are dropped */
    }
    for (int i = 0; i < m->n_ready; i++) mm_ready_fini(&m->ready[i]);
    free(m->ready);
    mm_page_guard_fini(m);
    mm_dispatch_destroy(m->dispatch);
    mm_timeline_destroy(m->timeline);
    mm_caller_stream_fini(m);
    mm_claims_destroy(m->claims);
    mm_upload_destroy(m->values);
    mm_disk_destroy(m->disk);
    mm_pool_destroy(m->pinned);
    mm_pool_destroy(m->pool);
    mm_device_destroy(m->device);
    mm_plan_set_fini(&m->plans);
    mm_observe_fini(m);
    mm_persistent_table_fini(&m->persistents);
    mm_coverage_fini(&m->coverage);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
