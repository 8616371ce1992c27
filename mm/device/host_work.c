/* The work that every device knows: copies, fills, checksums. Tasks like any other (mm_host_launch). */
#include <string.h>

#include "mm/device/host_internal.h"

/* ---------------------------------------------------------------- copy */

typedef struct copy_task {
    host_device *device;
    void *dst;
    const void *src;
    int64_t bytes;
    mm_copy_kind kind;
} copy_task;

/* The link carries one copy after the other in each direction, whichever streams they are on. Returns when this one
 * will be through. */
static int64_t link_book(host_device *device, mm_copy_kind kind, int64_t bytes) {
    int64_t rate = kind == MM_COPY_OUT ? device->config.link_out_bytes_per_s : device->config.link_in_bytes_per_s;
    if (rate == 0) return 0;
    int64_t now_ns = host_now_ns(), cost_ns = (int64_t)((double)bytes * 1e9 / (double)rate);
    int64_t *link_free_ns = &device->link_free_ns[kind == MM_COPY_OUT ? 0 : 1];
    pthread_mutex_lock(&device->lock);
    int64_t end_ns = (now_ns > *link_free_ns ? now_ns : *link_free_ns) + cost_ns;
    *link_free_ns = end_ns;
    pthread_mutex_unlock(&device->lock);
    return end_ns;
}

static mm_status copy_run(void *arg) {
    const copy_task *copy = arg;
    int64_t end_ns = copy->kind == MM_COPY_DEVICE ? 0 : link_book(copy->device, copy->kind, copy->bytes);
    if (copy->bytes > 0) memcpy(copy->dst, copy->src, (size_t)copy->bytes);
    if (end_ns > 0) host_sleep_until(end_ns);
    return MM_OK;
}

mm_status host_copy_async(mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind) {
    const copy_task copy = {(host_device *)stream->device, dst, src, bytes, kind};
    return mm_host_launch(stream, copy_run, &copy, sizeof copy);
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
    return mm_host_launch(stream, fill_run, &fill, sizeof fill);
}

/* ---------------------------------------------------------------- checksum */

typedef struct checksum_task {
    const unsigned char *src;
    int64_t bytes;
    uint64_t *sum_out;
} checksum_task;

/* A bijection of `sum` for every word and of `word` for every sum, so no change of one word goes unseen; the rotation
 * brings what the product left in the top bits down again. */
static inline uint64_t checksum_mix(uint64_t sum, uint64_t word) {
    sum ^= word;
    return ((sum << 29) | (sum >> 35)) * 0x9e3779b97f4a7c15u;
}

static inline uint64_t load_word(const unsigned char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

/* Word i goes into lane i mod 4: four chains, so that the multiplier's latency does not limit it. */
static mm_status checksum_run(void *arg) {
    const checksum_task *task = arg;
    const unsigned char *src = task->src;
    uint64_t lane[4] = {1, 2, 3, 4};
    int64_t left = task->bytes;
    for (; left >= 32; left -= 32, src += 32)
        for (int i = 0; i < 4; i++) lane[i] = checksum_mix(lane[i], load_word(src + 8 * i));
    uint64_t sum = (uint64_t)task->bytes;
    for (int i = 0; i < 4; i++) sum = checksum_mix(sum, lane[i]);
    for (; left >= 8; left -= 8, src += 8) sum = checksum_mix(sum, load_word(src));
    if (left > 0) {
        uint64_t tail = 0;
        memcpy(&tail, src, (size_t)left);
        sum = checksum_mix(sum, tail);
    }
    *task->sum_out = sum ^ (sum >> 32);
    return MM_OK;
}

mm_status host_checksum_async(mm_stream *stream, const void *src, int64_t bytes, uint64_t *sum_out) {
    const checksum_task task = {src, bytes, sum_out};
    return mm_host_launch(stream, checksum_run, &task, sizeof task);
}
