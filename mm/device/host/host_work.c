/* SPDX-License-Identifier: MIT */
/* The tasks of the contract: copies, fills, checksums, marks, sums, enqueued with host_stream_launch. */
#include <endian.h>
#include <string.h>
#include <time.h>

#include "mm/device/contract/checksum.h"
#include "mm/device/contract/sums.h"
#include "mm/device/host/host_internal.h"

/* ---------------------------------------------------------------- copy */

typedef struct copy_task {
    mm_stream *stream;
    void *dst;
    const void *src;
    int64_t bytes, queued_ns;
    mm_copy_kind kind;
} copy_task;

/* Books the simulated link, which does one copy at a time in each direction, for all streams. Returns the time at which
 * this copy, which began at began_ns, will have finished; 0 if no rate is set. */
static int64_t link_book(host_device *device, mm_copy_kind kind, int64_t bytes, int64_t began_ns) {
    int64_t rate = kind == MM_COPY_OUT ? device->config.link_out_bytes_per_s : device->config.link_in_bytes_per_s;
    if (rate == 0) return 0;
    int64_t cost_ns = (int64_t)((double)bytes * 1e9 / (double)rate);
    int64_t *link_free_ns = &device->link_free_ns[kind == MM_COPY_OUT ? 0 : 1];
    pthread_mutex_lock(&device->lock);
    int64_t end_ns = (began_ns > *link_free_ns ? began_ns : *link_free_ns) + cost_ns;
    *link_free_ns = end_ns;
    pthread_mutex_unlock(&device->lock);
    return end_ns;
}

static void sleep_on_link(mm_stream *stream, int64_t began_ns, int64_t end_ns) {
    host_sleep_until(end_ns);
    host_stream_on_link(stream, (mm_task_times){began_ns, end_ns});
}

void mm_host_link_charge(mm_stream *stream, mm_copy_kind kind, int64_t bytes, int64_t began_ns) {
    if (bytes == 0) return;
    int64_t end_ns = link_book((host_device *)stream->device, kind, bytes, began_ns);
    if (end_ns > 0) sleep_on_link(stream, began_ns, end_ns);
}

/* CPU time of this thread. */
static int64_t thread_ns(void) {
    struct timespec ran;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (int64_t)ran.tv_sec * 1000000000 + ran.tv_nsec;
}

/* A real link needs no thread: it begins a stream's next copy at once. So a copy counts as begun when it is queued and
 * the tasks before it on its stream have ended, however late the thread wakes. Its time is that of the simulated link,
 * or the CPU time of memcpy if that is longer. Time in which the thread waits for a core does not count. */
static mm_status copy_run(void *arg) {
    const copy_task *copy = arg;
    const int64_t at_ns = host_stream_at(copy->stream);
    const int64_t began_ns = at_ns > copy->queued_ns ? at_ns : copy->queued_ns;
    int64_t end_ns = 0;
    if (copy->kind == MM_COPY_OUT || copy->kind == MM_COPY_IN)
        end_ns = link_book((host_device *)copy->stream->device, copy->kind, copy->bytes, began_ns);
    const int64_t ran_ns = end_ns ? thread_ns() : 0; /* a system call */
    if (copy->bytes > 0) memcpy(copy->dst, copy->src, (size_t)copy->bytes);
    if (end_ns == 0) return MM_OK;
    const int64_t copied_ns = began_ns + thread_ns() - ran_ns;
    sleep_on_link(copy->stream, began_ns, end_ns > copied_ns ? end_ns : copied_ns);
    return MM_OK;
}

/* A copy that takes less than to wake a thread. */
enum { SHORT_BYTES = 32 << 10 };

/* Whether copies sleep, as on a slow link, or at random. */
static bool sleeps(const mm_device_config *config) {
    return config->link_out_bytes_per_s || config->link_in_bytes_per_s || config->delay_seed;
}

mm_status host_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    copy_task copy = {stream, dst, src, bytes, mm_now_ns(), kind};
    if (bytes <= SHORT_BYTES && !sleeps(&((host_device *)stream->device)->config) &&
        host_stream_run_short(stream, copy_run, &copy))
        return MM_OK;
    return host_stream_launch(stream, copy_run, &copy, sizeof copy);
}

/* ---------------------------------------------------------------- fill */

typedef struct fill_task {
    void *dst;
    int64_t bytes;
    uint8_t byte;
} fill_task;

static mm_status fill_run(void *arg) {
    const fill_task *fill = arg;
    if (fill->bytes > 0) memset(fill->dst, fill->byte, (size_t)fill->bytes);
    return MM_OK;
}

mm_status host_fill_async(mm_stream *stream, void *dst, uint8_t byte, int64_t bytes) {
    const fill_task fill = {dst, bytes, byte};
    return host_stream_launch(stream, fill_run, &fill, sizeof fill);
}

/* ---------------------------------------------------------------- checksum */

typedef struct checksum_task {
    const unsigned char *src;
    int64_t bytes;
    uint64_t *sum_out;
} checksum_task;

static mm_status checksum_run(void *arg) {
    const checksum_task *task = arg;
    uint64_t lane[MM_CHECKSUM_LANES], sum = 0;
    int64_t words = mm_checksum_words(task->bytes), whole = task->bytes / 8;
    int lanes = words < MM_CHECKSUM_LANES ? (int)words : MM_CHECKSUM_LANES;
    for (int l = 0; l < lanes; l++) lane[l] = mm_checksum_lane_begin(l);
    for (int64_t first = 0; first < whole; first += MM_CHECKSUM_LANES) {
        int n = whole - first < MM_CHECKSUM_LANES ? (int)(whole - first) : MM_CHECKSUM_LANES;
        for (int l = 0; l < n; l++) {
            uint64_t word;
            memcpy(&word, task->src + 8 * (first + l), sizeof word);
            lane[l] = mm_checksum_mix(lane[l], le64toh(word));
        }
    }
    if (words > whole) {
        uint64_t *last = &lane[whole % MM_CHECKSUM_LANES];
        *last = mm_checksum_mix(*last, mm_checksum_word(task->src, task->bytes, whole));
    }
    for (int l = 0; l < lanes; l++) sum += mm_checksum_lane_end(lane[l]);
    *task->sum_out = mm_checksum_end(sum, task->bytes);
    return MM_OK;
}

mm_status host_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out) {
    const checksum_task task = {src, bytes, sum_out};
    return host_stream_launch(stream, checksum_run, &task, sizeof task);
}

/* ---------------------------------------------------------------- marks */

typedef struct mark_task {
    unsigned char *dst;
    int64_t bytes;
    uint64_t word; /* little-endian */
} mark_task;

static mm_status mark_run(void *arg) {
    const mark_task *task = arg;
    int64_t done = 0;
    for (; done + 8 <= task->bytes; done += 8) memcpy(task->dst + done, &task->word, 8);
    if (done < task->bytes) memcpy(task->dst + done, &task->word, (size_t)(task->bytes - done));
    return MM_OK;
}

mm_status host_mark_async(mm_stream *stream, void *dst, int64_t bytes, uint64_t word) {
    const mark_task task = {dst, bytes, htole64(word)};
    return host_stream_launch(stream, mark_run, &task, sizeof task);
}

typedef struct find_task {
    const unsigned char *src;
    int64_t bytes;
    mm_mark mark; /* its word is little-endian */
    uint64_t *at_out;
} find_task;

static mm_status find_run(void *arg) {
    const find_task *task = arg;
    const size_t size = (size_t)task->mark.elem_bytes;
    int64_t at = 0;
    while (at + (int64_t)size <= task->bytes && memcmp(task->src + at, &task->mark.word, size) != 0)
        at += (int64_t)size;
    *task->at_out = at + (int64_t)size <= task->bytes ? (uint64_t)at : MM_MARK_NONE;
    return MM_OK;
}

mm_status host_find_mark_async(mm_stream *stream, const void *src, int64_t bytes, const mm_mark *mark,
                               uint64_t *at_out) {
    const find_task task = {src, bytes, {htole64(mark->word), mark->elem_bytes}, at_out};
    return host_stream_launch(stream, find_run, &task, sizeof task);
}

/* ---------------------------------------------------------------- sums */

typedef struct sums_task {
    const float *src;
    int64_t elems, strip_elems;
    mm_host_pool *pool;
    mm_sums_part *parts; /* per strip */
    mm_sums *sums_out;
} sums_task;

static mm_status sum_strip(void *arg, int64_t strip, int thread) {
    (void)thread;
    const sums_task *task = arg;
    const int64_t first = strip * task->strip_elems, rest = task->elems - first;
    mm_sums_host_strip(task->src + first, rest < task->strip_elems ? rest : task->strip_elems, &task->parts[strip]);
    return MM_OK;
}

static mm_status sums_run(void *arg) {
    sums_task *task = arg;
    const int64_t strips = mm_sums_strips(task->elems);
    mm_sums_part lanes[MM_SUMS_LANES] = {{0}};
    MM_TRY(mm_host_pool_run(task->pool, strips, sum_strip, task));
    for (int64_t i = 0; i < strips; i++) mm_sums_add(&lanes[i % MM_SUMS_LANES], &task->parts[i]);
    for (int half = MM_SUMS_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) mm_sums_add(&lanes[l], &lanes[l + half]);
    *task->sums_out = mm_sums_of(&lanes[0]);
    return MM_OK;
}

mm_status host_sums_async(mm_stream *stream, const float *src, int64_t elems, void *scratch, mm_sums *sums_out) {
    const sums_task task = {.src = src,
                            .elems = elems,
                            .strip_elems = mm_sums_strip_elems(elems),
                            .pool = mm_host_codec_pool(stream),
                            .parts = scratch,
                            .sums_out = sums_out};
    return host_stream_launch(stream, sums_run, &task, sizeof task);
}

/* ---------------------------------------------------------------- the caller's functions */

static mm_status run_call(void *arg) {
    const mm_call *call = arg;
    return call->fn(call->arg);
}

mm_status host_call_async(mm_stream *stream, const mm_call *call) {
    return host_stream_launch(stream, run_call, call, sizeof *call);
}
