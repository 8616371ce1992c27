/* SPDX-License-Identifier: MIT */
#include "tests/mm/stash/stash_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "mm/core/graph/dtype.h"
#include "tests/mm/manager/rig_device.h"

enum { READS = 64, DELAY_NS = 200000 };

/* A copy of what mm_stash_get gave. */
struct stash_read {
    uint8_t *bytes; /* pinned */
    int64_t n;
    uint64_t seed;
    mm_dtype dtype;
    stash_comes_back back;
};

static void enter(const stash_rig *r) {
    if (r->guard) r->guard(true);
}

static void leave(const stash_rig *r) {
    if (r->guard) r->guard(false);
}

mm_stash *stash_create(mm_stash_options options) {
    mm_stash *s;
    if (!options.device) options.device = rig_device_used()->name;
    stash_expect_ok(mm_stash_create(&options, &s));
    return s;
}

mm_stash_stats stash_stats_of(mm_stash *s) {
    mm_stash_stats stats;
    mm_stash_stats_get(s, &stats);
    return stats;
}

void stash_expect_ok(mm_status status) {
    if (status != MM_OK) fail_msg("%s", mm_last_error());
}

void stash_expect_refused(mm_status status, mm_status expected, const char *text) {
    if (status != expected) fail_msg("%s: %s", mm_status_name(status), mm_last_error());
    if (!strstr(mm_last_error(), text)) fail_msg("'%s' is not in: %s", text, mm_last_error());
}

void stash_count_warnings(void *ctx, mm_log_level level, const char *message) {
    (void)message;
    *(int *)ctx += level == MM_LOG_WARNING;
}

static bool is_half(mm_dtype dtype) { return dtype == MM_F16 || dtype == MM_BF16; }

/* Fills with f16 or bf16 values between -1 and 1, half of them 0. */
static void fill_halves(uint64_t seed, mm_dtype dtype, uint8_t *bytes, int64_t n) {
    const uint16_t half = dtype == MM_F16 ? 0x3800 : 0x3f00, free_bits = dtype == MM_F16 ? 0x83ff : 0x807f;
    for (int64_t i = 0; i + 2 <= n; i += 2) {
        const uint64_t draw = random_next(&seed);
        const uint16_t value = draw & 1 ? (uint16_t)(half | ((uint16_t)(draw >> 32) & free_bits)) : 0;
        memcpy(bytes + i, &value, sizeof value);
    }
}

/* Fills with values between -1 and 1, half of them 0, so that codecs can compress them. */
static void fill(uint64_t seed, mm_dtype dtype, uint8_t *bytes, int64_t n) {
    uint64_t state = seed;
    if (is_half(dtype)) {
        fill_halves(seed, dtype, bytes, n);
        return;
    }
    for (int64_t i = 0; i + 4 <= n; i += 4) {
        const uint64_t draw = random_next(&state);
        const float value = draw & 1 ? (float)(int32_t)(draw >> 32) / 2147483648.0F : 0;
        memcpy(bytes + i, &value, sizeof value);
    }
    for (int64_t i = n & ~(int64_t)3; i < n; i++) bytes[i] = (uint8_t)random_next(&state);
}

static bool is_inline(const stash_rig *r) { return mm_device_is_inline(r->device); }

void stash_rig_init(stash_rig *r, mm_stash *stash, uint64_t seed) {
    *r = (stash_rig){.stash = stash, .random = seed, .next_seed = seed * 1000003};
    stash_expect_ok(mm_device_create(rig_device_used()->name, NULL, &r->device));
    r->reads = calloc(READS, sizeof *r->reads);
    assert_non_null(r->reads);
    for (int i = 0; i < READS; i++)
        stash_expect_ok(mm_device_reserve(r->device, MM_MEMORY_PINNED, STASH_RIG_MOST, (void **)&r->reads[i].bytes));
    for (int i = 0; i < STASH_RIG_STREAMS; i++) {
        stash_expect_ok(mm_device_reserve(r->device, MM_MEMORY_DEVICE, STASH_RIG_MOST, (void **)&r->tensor[i]));
        if (is_inline(r)) continue;
        stash_expect_ok(mm_stream_create(r->device, "caller", 0, &r->streams[i]));
        r->handles[i] = mm_stream_handle(r->streams[i]);
    }
}

static bool is_half_positive(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value > 0 && value < 0x8000;
}

static void check_half_signs(const uint8_t *expected, const uint8_t *got, int64_t n) {
    for (int64_t i = 0; i + 2 <= n; i += 2)
        if (is_half_positive(expected + i) != is_half_positive(got + i))
            fail_msg("element %lld came back with another sign", (long long)(i / 2));
}

static void check_signs(const uint8_t *expected, const uint8_t *got, int64_t n) {
    for (int64_t i = 0; i + 4 <= n; i += 4) {
        float x, y;
        memcpy(&x, expected + i, sizeof x);
        memcpy(&y, got + i, sizeof y);
        if ((x > 0) != (y > 0)) fail_msg("element %lld: %g came back as %g", (long long)(i / 4), (double)x, (double)y);
    }
}

void stash_rig_check(stash_rig *r) {
    uint8_t *expected = malloc(STASH_RIG_MOST);
    assert_non_null(expected);
    for (int i = 0; i < STASH_RIG_STREAMS; i++)
        if (r->streams[i]) stash_expect_ok(mm_stream_sync(r->streams[i]));
    for (int i = 0; i < r->n_reads; i++) {
        const stash_read *read = &r->reads[i];
        fill(read->seed, read->dtype, expected, read->n);
        if (read->back == STASH_BITS) assert_memory_equal(expected, read->bytes, read->n);
        if (read->back == STASH_SIGNS_ALONE)
            (is_half(read->dtype) ? check_half_signs : check_signs)(expected, read->bytes, read->n);
    }
    r->n_reads = 0;
    free(expected);
}

void stash_rig_fini(stash_rig *r) {
    stash_rig_check(r);
    for (int i = 0; i < STASH_RIG_STREAMS; i++) {
        mm_stream_destroy(r->streams[i]);
        mm_device_release(r->device, MM_MEMORY_DEVICE, r->tensor[i], STASH_RIG_MOST);
    }
    for (int i = 0; i < READS; i++) mm_device_release(r->device, MM_MEMORY_PINNED, r->reads[i].bytes, STASH_RIG_MOST);
    free(r->reads);
    mm_device_destroy(r->device);
}

/* Copies on a stream of the rig; on the host, on this thread. */
static void copy(const stash_rig *r, int stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    if (is_inline(r))
        memcpy(dst, src, (size_t)bytes);
    else
        stash_expect_ok(mm_copy_async(r->streams[stream], dst, src, bytes, kind));
}

static mm_status sleep_on_stream(void *arg) {
    nanosleep(arg, NULL);
    return MM_OK;
}

/* Delays a stream now and then. */
static void delay(stash_rig *r, int stream) {
    const struct timespec time = {.tv_nsec = random_below(&r->random, DELAY_NS)};
    if (!is_inline(r) && random_chance(&r->random, 2))
        stash_expect_ok(rig_device_used()->launch(r->streams[stream], sleep_on_stream, &time, sizeof time));
}

static int64_t bytes_of(const mm_stash_tensor *tensor) {
    int64_t bytes = mm_dtype_table[tensor->dtype].bytes;
    for (int i = 0; i < tensor->rank; i++) bytes *= tensor->dims[i];
    return bytes;
}

mm_status stash_rig_put(stash_rig *r, const mm_stash_tensor *like, stash_item *item_out) {
    const int stream = random_below(&r->random, STASH_RIG_STREAMS);
    stash_item item = {.seed = r->next_seed++, .bytes = bytes_of(like), .dtype = like->dtype};
    mm_stash_tensor tensor = *like;
    if (r->n_reads == READS) stash_rig_check(r);
    /* The bytes pass through the pinned memory for the next read, which is not used yet. */
    uint8_t *staged = r->reads[r->n_reads].bytes;
    void *memory = r->tensor[stream];
    if (!is_inline(r)) stash_expect_ok(mm_stream_sync(r->streams[stream]));
    fill(item.seed, item.dtype, staged, item.bytes);
    delay(r, stream);
    copy(r, stream, memory, staged, item.bytes, MM_COPY_IN);
    tensor.data = memory;
    enter(r);
    mm_status status = mm_stash_put(r->stash, &tensor, r->handles[stream], &item.entry, &item.answer);
    leave(r);
    if (status == MM_OK && item.answer == MM_STASH_KEPT) {
        stash_expect_ok(mm_device_reserve(r->device, MM_MEMORY_DEVICE, STASH_RIG_MOST, (void **)&r->tensor[stream]));
        item.kept = memory;
    }
    if (!is_inline(r)) stash_expect_ok(mm_stream_sync(r->streams[stream])); /* `staged` is written again below */
    if (!item.kept) {
        memset(staged, 0xff, (size_t)item.bytes);
        copy(r, stream, memory, staged, item.bytes, MM_COPY_IN);
    }
    if (status == MM_OK) *item_out = item;
    return status;
}

mm_status stash_rig_get(stash_rig *r, stash_item *item) {
    const int stream = random_below(&r->random, STASH_RIG_STREAMS);
    void *data;
    if (r->n_reads == READS) stash_rig_check(r);
    enter(r);
    mm_status status = mm_stash_get(r->stash, item->entry, r->handles[stream], &data);
    leave(r);
    if (status != MM_OK) return status;
    if (item->kept) assert_ptr_equal(data, item->kept);
    stash_read *read = &r->reads[r->n_reads++];
    read->seed = item->seed;
    read->n = item->bytes;
    read->dtype = item->dtype;
    read->back = item->back;
    delay(r, stream);
    copy(r, stream, read->bytes, data, item->bytes, MM_COPY_OUT);
    item->held++;
    /* The other stream waits for the read too, so that the entry may be given back on either. */
    if (!is_inline(r)) {
        mm_event *event;
        stash_expect_ok(mm_event_create(r->device, &event));
        stash_expect_ok(mm_event_record(event, r->streams[stream]));
        stash_expect_ok(mm_stream_wait(r->streams[!stream], event));
        mm_event_destroy(event);
    }
    return MM_OK;
}

void stash_rig_give_back(stash_rig *r, stash_item *item) {
    const int stream = random_below(&r->random, STASH_RIG_STREAMS);
    enter(r);
    mm_stash_release(r->stash, item->entry, r->handles[stream]);
    leave(r);
    item->held--;
}

void stash_rig_drop(stash_rig *r, stash_item *item) {
    if (item->kept) {
        if (!is_inline(r)) stash_rig_check(r);
        mm_device_release(r->device, MM_MEMORY_DEVICE, item->kept, STASH_RIG_MOST);
    }
    enter(r);
    mm_stash_drop(r->stash, item->entry);
    leave(r);
    item->entry = 0;
}

mm_stash_tensor stash_tensor_f32(const char *producer, int64_t elems) {
    return (mm_stash_tensor){.dtype = MM_F32, .rank = 1, .dims = {elems}, .producer = producer};
}
