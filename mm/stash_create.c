/* Creation and destruction of a stash. */
#include <stdlib.h>
#include <string.h>

#include "mm/stash.h"

/* No padding follows the last member, as with mm_options. */
_Static_assert(offsetof(mm_stash_options, link_bytes_per_s) + sizeof(int64_t) == sizeof(mm_stash_options),
               "no padding at the end");

static mm_status take_options(const mm_stash_options *given, size_t bytes, mm_stash_options *taken) {
    MM_TRY(mm_check_given(given, "mm_stash_create", "options"));
    for (size_t i = sizeof *taken; i < bytes; i++)
        if (((const uint8_t *)given)[i])
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "mm_stash_create: the options have %zu bytes, of which mm %s knows %zu, and byte %zu is not "
                           "0: they are of a newer mm.h; run with its library, or leave out what is newer",
                           bytes, MM_VERSION, sizeof *taken, i);
    *taken = (mm_stash_options){0};
    memcpy(taken, given, bytes < sizeof *taken ? bytes : sizeof *taken);
    if (!taken->device) taken->device = "host";
    if (!taken->policy) taken->policy = "swap-async";
    if (taken->device_bytes <= 0)
        return mm_fail(MM_ERR_INVALID, "mm_stash_create: device_bytes is %lld; give the budget in bytes",
                       (long long)taken->device_bytes);
    if (taken->pinned_bytes < 0)
        return mm_fail(MM_ERR_INVALID, "mm_stash_create: pinned_bytes is %lld: must be 0 or more",
                       (long long)taken->pinned_bytes);
    return MM_OK;
}

/* A budget above what the device has is a mistake. */
static mm_status check_budget(const mm_stash *s) {
    mm_memory_info info;
    mm_device_memory_info(s->device, &info);
    const int64_t most = s->device->ops->knows_free_memory ? info.free_bytes : info.total_bytes;
    if (s->options.device_bytes <= most) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "mm_stash_create: the budget is %s, and the device %s has %s",
                   MM_SIZE_TOLD(s->options.device_bytes), s->device->name, MM_SIZE_TOLD(most));
}

static mm_status open_lane(mm_stash *s) {
    if (s->is_inline) return MM_OK;
    MM_TRY(mm_stream_create(s->device, "mm-stash", 0, &s->stream));
    MM_TRY(mm_event_create(s->device, &s->entered));
    return mm_event_create(s->device, &s->left);
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
    MM_TRY(check_budget(s));
    MM_TRY(mm_pool_create(s->device, MM_MEMORY_DEVICE, o->device_bytes, &s->pool));
    MM_TRY(mm_pool_create(s->device, MM_MEMORY_PINNED, o->pinned_bytes, &s->pinned));
    MM_TRY(mm_ranges_init(&s->arena, 0, s->limit_bytes));
    MM_TRY(mm_ranges_init(&s->host, 0, o->pinned_bytes));
    return open_lane(s);
}

mm_status mm_stash_create_sized(const mm_stash_options *given, size_t options_bytes, mm_stash **stash_out) {
    mm_stash_options options;
    MM_TRY(take_options(given, options_bytes, &options));
    MM_TRY(mm_check_given(stash_out, "mm_stash_create", "stash_out"));
    mm_stash *s = calloc(1, sizeof *s);
    if (!s) return mm_fail(MM_ERR_NOMEM, "out of memory for a stash");
    s->options = options;
    s->limit_bytes = options.device_bytes;
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
    s->options.policy = NULL; /* the caller's string may go */
    s->options.device = s->device->name;
    *stash_out = s;
    return MM_OK;
}

void mm_stash_destroy(mm_stash *s) {
    if (!s) return;
    if (s->stats.entries > 0)
        mm_log_send(&s->options.log, MM_LOG_WARNING, "a stash is destroyed with %lld entries",
                    (long long)s->stats.entries);
    if (s->stream) {
        mm_status drained = mm_lane_drain(s);
        (void)drained; /* nobody is there to be told */
    }
    mm_stash_table_fini(s);
    mm_event_destroy(s->entered);
    mm_event_destroy(s->left);
    mm_stream_destroy(s->stream);
    mm_ranges_fini(&s->arena);
    mm_ranges_fini(&s->host);
    mm_pool_destroy(s->pinned);
    mm_pool_destroy(s->pool);
    mm_device_destroy(s->device);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
