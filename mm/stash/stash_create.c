/* SPDX-License-Identifier: MIT */
/* Creation and destruction of a stash. */
#include <stdlib.h>

#include "mm/core/log.h"
#include "mm/core/size.h"
#include "mm/core/text.h"
#include "mm/stash/stash.h"
#include "mm/stash/stash_host.h"
#include "mm/stash/stash_sync.h"
#include "mm/stash/stash_table.h"

/* No padding follows the last member, as with mm_options. */
_Static_assert(offsetof(mm_stash_options, disk_bytes_per_s) + sizeof(int64_t) == sizeof(mm_stash_options),
               "no padding at the end");

static mm_status take_options(const mm_stash_options *given, size_t bytes, mm_stash_options *taken) {
    MM_TRY(mm_check_given(given, "mm_stash_create", "options"));
    MM_TRY(mm_take_options(given, bytes, taken, sizeof *taken, "mm_stash_create"));
    if (!taken->device) taken->device = "host";
    if (!taken->policy) taken->policy = "swap-async";
    if (taken->device_bytes <= 0)
        return mm_fail(MM_ERR_INVALID, "mm_stash_create: device_bytes is %lld; give the budget in bytes",
                       (long long)taken->device_bytes);
    if (taken->pinned_bytes < 0)
        return mm_fail(MM_ERR_INVALID, "mm_stash_create: pinned_bytes is %lld: must be 0 or more",
                       (long long)taken->pinned_bytes);
    if (taken->device_most_bytes == 0) taken->device_most_bytes = taken->device_bytes;
    if (taken->device_most_bytes < taken->device_bytes)
        return mm_fail(MM_ERR_INVALID, "mm_stash_create: device_most_bytes is %lld, less than device_bytes, %lld",
                       (long long)taken->device_most_bytes, (long long)taken->device_bytes);
    MM_TRY(mm_disk_check_options("mm_stash_create", taken->disk, taken->disk_bytes, taken->disk_bytes_per_s));
    const uint64_t both = MM_STASH_TAKE_ALWAYS | MM_STASH_KEEP_ALWAYS;
    if ((taken->modes & ~(both | MM_STASH_REFUSE_LATER)) || (taken->modes & both) == both)
        return mm_fail(
            MM_ERR_INVALID,
            "mm_stash_create: modes 0x%llx: mm %s knows MM_STASH_TAKE_ALWAYS and MM_STASH_KEEP_ALWAYS, one at "
            "a time, and MM_STASH_REFUSE_LATER",
            (unsigned long long)taken->modes, MM_VERSION);
    return MM_OK;
}

/* Refuses a budget above what the device has free, which is a mistake. */
static mm_status check_budget(const mm_stash *s) {
    mm_memory_info info;
    mm_device_memory_info(s->device, &info);
    if (s->options.device_bytes <= info.free_bytes) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "mm_stash_create: the budget is %s, and the device %s has %s free",
                   MM_SIZE_TEXT(s->options.device_bytes), s->device->name, MM_SIZE_TEXT(info.free_bytes));
}

/* The arena: memory for the budget, and addresses for the largest one. */
static mm_status open_arena(mm_stash *s) {
    const mm_stash_options *o = &s->options;
    if (o->device_most_bytes == o->device_bytes)
        return mm_pool_create(s->device, MM_MEMORY_DEVICE, o->device_bytes, &s->pool);
    MM_TRY(mm_pool_create_trimmed(s->device, o->device_most_bytes, &s->pool));
    return mm_pool_restore(s->pool, o->device_bytes);
}

static mm_status open_lane(mm_stash *s) {
    if (s->is_inline) return MM_OK;
    s->stream = mm_dispatch_compute(s->dispatch);
    MM_TRY(mm_event_create(s->device, &s->entered));
    return mm_event_create(s->device, &s->left);
}

/* A policy that searches is not refused although it has rules that recompute: it finds that no layer of a stash can be
 * recomputed. */
static bool recomputes(const mm_policy *policy) {
    for (int i = 0; i < policy->config.n_rules && !mm_policy_searches(policy); i++)
        if (policy->config.rules[i].action == MM_ACTION_RECOMPUTE) return true;
    return false;
}

static mm_status open_learner(mm_stash *s) {
    mm_learner *l = &s->learner;
    mm_device_description description;
    mm_device_describe(s->device, &description);
    MM_TRY(mm_policy_parse(s->options.policy, &l->policy));
    if (recomputes(&l->policy))
        return mm_fail(
            MM_ERR_UNSUPPORTED,
            "mm_stash_create: policy %s recomputes, and a stash cannot: use the framework's own checkpointing "
            "(torch.utils.checkpoint), which may be combined with a stash",
            MM_BRIEF(l->policy.spec));
    MM_TRY(mm_planned_try_codecs(&l->policy, s->options.device));
    if (!mm_policy_searches(&l->policy)) {
        MM_TRY(mm_stash_sign_policy(&l->policy, s->options.device, &l->signing));
        MM_TRY(mm_planned_try_codecs(&l->signing, s->options.device));
        l->terms.signing = &l->signing;
    }
    l->terms.device = s->device->name;
    const mm_stash_options *o = &s->options;
    l->terms.rates = (mm_rates){description.memory_bytes_per_s, description.link_bytes_per_s,
                                o->disk && o->disk_bytes_per_s == 0 ? MM_DISK_BYTES_PER_S : o->disk_bytes_per_s};
    l->terms.facts = s->options.facts;
    l->terms.take_always = s->options.modes & MM_STASH_TAKE_ALWAYS;
    l->terms.keep_always = s->options.modes & MM_STASH_KEEP_ALWAYS;
    l->terms.device_bytes = s->options.device_bytes / MM_ALIGN * MM_ALIGN;
    l->terms.pinned_bytes = s->options.pinned_bytes / MM_ALIGN * MM_ALIGN;
    l->terms.disk_bytes = s->options.disk_bytes / MM_DISK_BLOCK * MM_DISK_BLOCK;
    return MM_OK;
}

static mm_status open_parts(mm_stash *s) {
    const mm_stash_options *o = &s->options;
    const mm_device_config config = {.link_out_bytes_per_s = o->link_bytes_per_s,
                                     .link_in_bytes_per_s = o->link_bytes_per_s,
                                     .delay_seed = o->delay_seed,
                                     .delay_max_ns = o->delay_max_ns,
                                     .codec_threads = o->codec_threads};
    MM_TRY(mm_device_create(o->device, &config, &s->device));
    s->is_inline = mm_device_is_inline(s->device);
    MM_TRY(open_learner(s));
    MM_TRY(check_budget(s));
    MM_TRY(open_arena(s));
    MM_TRY(mm_pool_create(s->device, MM_MEMORY_PINNED, o->pinned_bytes, &s->pinned));
    MM_TRY(mm_ranges_init(&s->arena, 0, s->limit_bytes));
    MM_TRY(mm_ranges_init(&s->host, 0, s->learner.terms.pinned_bytes));
    MM_TRY(mm_stash_disk_open(s));
    const mm_dispatch_config dispatch = {
        .device = s->device, .pool = s->pool, .pinned = s->pinned, .disk = s->disk, .issue = MM_ISSUE_INLINE};
    MM_TRY(mm_dispatch_create(&dispatch, &s->dispatch));
    s->learner.dispatch = s->dispatch;
    return open_lane(s);
}

mm_status mm_stash_create_sized(const mm_stash_options *given, size_t options_bytes, mm_stash **stash_out) {
    mm_stash_options options;
    MM_TRY(take_options(given, options_bytes, &options));
    MM_TRY(mm_check_given(stash_out, "mm_stash_create", "stash_out"));
    mm_stash *s = calloc(1, sizeof *s);
    if (!s) return mm_fail(MM_ERR_NOMEM, "out of memory for a stash");
    s->options = options;
    s->limit_bytes = options.device_bytes / MM_ALIGN * MM_ALIGN;
    mm_learner_init(&s->learner);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    mm_status status = open_parts(s);
    if (status != MM_OK) {
        mm_stash_destroy(s);
        return status;
    }
    char size[32];
    mm_log_send(&s->options.log, MM_LOG_INFO, "stash of %s on %s, policy %s",
                mm_size_format(s->options.device_bytes, size, sizeof size), s->device->name, s->options.policy);
    s->options.policy = s->options.disk = NULL; /* the caller's strings may go */
    s->options.device = s->device->name;
    *stash_out = s;
    return MM_OK;
}

void mm_stash_destroy(mm_stash *s) {
    if (!s) return;
    if (s->stats.entries > 0)
        mm_log_send(&s->options.log, MM_LOG_WARNING, "a stash is destroyed with %lld entries",
                    (long long)s->stats.entries);
    if (s->dispatch) {
        mm_dispatch_abort(s->dispatch);
        mm_status drained = mm_stash_sync_drain(s);
        (void)drained; /* the status is dropped, because the stash is being destroyed */
    }
    free(s->follow.order ? s->follow.slots : NULL);
    mm_order_fini(&s->recorded);
    mm_stash_table_fini(s);
    mm_learner_fini(&s->learner);
    mm_event_destroy(s->entered);
    mm_event_destroy(s->left);
    mm_dispatch_destroy(s->dispatch);
    mm_coverage_fini(&s->coverage);
    mm_ranges_fini(&s->arena);
    mm_ranges_fini(&s->host);
    mm_stash_disk_close(s);
    mm_pool_destroy(s->pinned);
    mm_pool_destroy(s->pool);
    mm_device_destroy(s->device);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
