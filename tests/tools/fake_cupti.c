/* SPDX-License-Identifier: MIT */
/* Stands in for CUPTI. Reports two kernels for each step that is pushed, the second on another stream. If no step was
 * pushed, as in a replayed graph, it reports three kernels. Records have the layout of cupti_activity.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KERNEL = 10, EXTERNAL = 39, MOST = 4096, BYTES = 256 };

typedef void (*request_fn)(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void (*complete_fn)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes);

static request_fn request;
static complete_fn complete;
static uint64_t steps[MOST];
static int n_steps;

#define EXPORT __attribute__((visibility("default")))
EXPORT int cuptiActivityEnable(int kind);
EXPORT int cuptiActivityDisable(int kind);
EXPORT int cuptiActivityRegisterCallbacks(request_fn asks, complete_fn takes);
EXPORT int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id);
EXPORT int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *id);
EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, void **record);
EXPORT int cuptiActivityFlushAll(uint32_t flag);
EXPORT int cuptiGetResultString(int result, const char **text);

int cuptiActivityEnable(int kind) { return getenv("FAKE_CUPTI_REFUSES") && kind == KERNEL ? 15 : 0; }
int cuptiActivityDisable(int kind) { return kind < 0; }
int cuptiActivityRegisterCallbacks(request_fn asks, complete_fn takes) {
    if (request) return 1;
    request = asks;
    complete = takes;
    return 0;
}
int cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
    if (kind != 3 || n_steps == MOST) return 1;
    steps[n_steps++] = id;
    return 0;
}
int cuptiActivityPopExternalCorrelationId(int kind, uint64_t *id) {
    *id = 0;
    return kind != 3;
}
int cuptiGetResultString(int result, const char **text) {
    *text = result == 15 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "an error";
    return 0;
}

static void put(uint8_t *record, int at, const void *value, size_t bytes) { memcpy(record + at, value, bytes); }

static void put_kernel(uint8_t *record, uint32_t correlation, uint32_t stream, uint64_t begin, uint64_t end) {
    const uint32_t kind = KERNEL;
    const char *const name = stream == 7 ? "_Z7computePf" : "_Z6encodePf";
    put(record, 0, &kind, sizeof kind);
    put(record, 16, &begin, sizeof begin);
    put(record, 24, &end, sizeof end);
    put(record, 48, &stream, sizeof stream);
    put(record, 92, &correlation, sizeof correlation);
    put(record, 104, &name, sizeof name);
}

/* Iterates over the records of a buffer, which lie BYTES apart. */
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes, void **record) {
    uint8_t *next = *record ? (uint8_t *)*record + BYTES : buffer;
    if (next >= buffer + valid_bytes) return 12;
    *record = next;
    return 0;
}

int cuptiActivityFlushAll(uint32_t flag) {
    uint8_t *buffer;
    size_t bytes, most, at = 0;
    if (flag != 1) return 1;
    request(&buffer, &bytes, &most);
    if (!buffer) return 1;
    memset(buffer, 0, bytes);
    const int n = n_steps ? n_steps : 3;
    for (int i = 0; i < n && at + 4 * BYTES <= bytes; i++) {
        const uint32_t kind[2] = {EXTERNAL, 3}, correlation[2] = {(uint32_t)(100 + 2 * i), (uint32_t)(101 + 2 * i)};
        for (int k = 0; k < (n_steps ? 2 : 1); k++) {
            const uint64_t begin = 5000 + 1000 * (uint64_t)i;
            put(buffer + at, 0, kind, sizeof kind);
            put(buffer + at, 8, &steps[i], sizeof steps[i]);
            put(buffer + at, 16, &correlation[k], sizeof correlation[k]);
            at += n_steps ? BYTES : 0;
            put_kernel(buffer + at, correlation[k], k ? 9 : 7, begin + 100 * (uint64_t)k, begin + 600);
            at += BYTES;
        }
    }
    n_steps = 0;
    complete(NULL, 0, buffer, bytes, at);
    return 0;
}
