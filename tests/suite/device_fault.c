/* SPDX-License-Identifier: MIT */
#include "tests/suite/device_fault.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "buffers/pool.h"
#include "mm/device/host/device_host.h"

enum { DELAY_NS = 500000, PLACES = 256 };

const char device_fault_message[] = "a fault on purpose";

/* Global, because a wrapped function has no context. */
static atomic_int current, calls_left;
static atomic_bool by_place;
static struct {
    pthread_mutex_t lock;
    const char *at[PLACES];
    int n;
} places = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool is_paused, heaps_fail;
static atomic_llong given[2]; /* the limits of device_fault_give, by mm_memory_kind */

void device_fault_set(device_fault fault, int nth) {
    atomic_store(&by_place, nth == DEVICE_FAULT_NEW_PLACE);
    atomic_store(&calls_left, fault == DEVICE_FAULT_NONE ? 0 : nth == DEVICE_FAULT_NEW_PLACE ? 1 : nth);
    atomic_store(&current, (int)fault);
}

void device_fault_forget_places(void) {
    pthread_mutex_lock(&places.lock);
    places.n = 0;
    pthread_mutex_unlock(&places.lock);
}

bool device_fault_happened(void) { return atomic_load(&calls_left) <= 0; }

void device_fault_give(mm_memory_kind kind, int64_t bytes) { atomic_store(&given[kind], bytes); }

void device_fault_pause(bool paused) { atomic_store(&is_paused, paused); }

void device_fault_heaps(bool fail) { atomic_store(&heaps_fail, fail); }

/* Returns true, and uses up the fault, if no call from this place has failed yet. */
static bool is_new_place(const char *caller) {
    pthread_mutex_lock(&places.lock);
    int i = 0;
    while (i < places.n && places.at[i] != caller) i++;
    bool is_new = i == places.n && i < PLACES && atomic_load(&calls_left) > 0;
    if (is_new) {
        places.at[places.n++] = caller;
        atomic_store(&calls_left, 0);
    }
    pthread_mutex_unlock(&places.lock);
    return is_new;
}

static bool is_due(device_fault fault, const char *caller) {
    if (atomic_load(&is_paused) || atomic_load(&current) != (int)fault) return false;
    return atomic_load(&by_place) ? is_new_place(caller) : atomic_fetch_sub(&calls_left, 1) == 1;
}

static mm_status fail(void *unused) {
    (void)unused;
    return mm_fail(MM_ERR_DEVICE, "%s", device_fault_message);
}

static mm_status run_out(void *unused) {
    (void)unused;
    return mm_fail(MM_ERR_NOMEM, "%s", device_fault_message);
}

static mm_status delay(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = DELAY_NS}, NULL);
    return MM_OK;
}

typedef mm_status launch_call(mm_stream *stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes);
launch_call __real_mm_host_launch, __wrap_mm_host_launch;

static mm_status before_call(const char *caller) {
    if (is_due(DEVICE_FAULT_CALL, caller)) return fail(NULL);
    return is_due(DEVICE_FAULT_MEMORY_CALL, caller) ? run_out(NULL) : MM_OK;
}

static mm_status before_reserve(mm_memory_kind kind, int64_t bytes, const char *caller) {
    int64_t most = atomic_load(&given[kind]);
    if (most > 0 && bytes > most)
        return mm_fail(MM_ERR_NOMEM, "%lld bytes asked, %lld given on purpose", (long long)bytes, (long long)most);
    return before_call(caller);
}

static mm_status before_heap(void) { return atomic_load(&heaps_fail) ? run_out(NULL) : MM_OK; }

/* Enqueues fn on the stream. On a device whose work does not run on the CPU, calls fn at once instead. */
static mm_status enqueue(mm_stream *stream, mm_status (*fn)(void *arg)) {
    return stream->device->ops->cpu_reaches_memory ? __real_mm_host_launch(stream, fn, NULL, 0) : fn(NULL);
}

/* What runs before a call that enqueues work: the fault, if this call has it. */
static mm_status before_work(mm_stream *stream, const char *caller) {
    MM_TRY(before_call(caller));
    if (is_due(DEVICE_FAULT_TASK, caller)) return enqueue(stream, fail);
    if (is_due(DEVICE_FAULT_MEMORY_TASK, caller)) return enqueue(stream, run_out);
    if (is_due(DEVICE_FAULT_DELAY, caller)) return enqueue(stream, delay);
    return MM_OK;
}

/* Wraps the function NAME with parameters PARAMS: first BEFORE, then NAME with ARGS. BEFORE may use CALLER, the place
 * of the call. */
#define CALLER ((const char *)__builtin_return_address(0))
#define WRAP(name, before, params, args)                                                                               \
    mm_status __real_##name params;                                                                                    \
    mm_status __wrap_##name params;                                                                                    \
    mm_status __wrap_##name params {                                                                                   \
        MM_TRY(before);                                                                                                \
        return __real_##name args;                                                                                     \
    }

WRAP(mm_device_reserve, before_reserve(kind, bytes, CALLER),
     (mm_device * device, mm_memory_kind kind, int64_t bytes, void **memory_out), (device, kind, bytes, memory_out))
WRAP(mm_heap_alloc, before_heap(), (mm_heap * heap, int64_t bytes, void **memory_out), (heap, bytes, memory_out))
WRAP(mm_stream_create, before_call(CALLER),
     (mm_device * device, const char *name, int priority, mm_stream **stream_out), (device, name, priority, stream_out))
WRAP(mm_event_create, before_call(CALLER), (mm_device * device, mm_event **event_out), (device, event_out))
WRAP(mm_event_record, before_call(CALLER), (mm_event * event, mm_stream *stream), (event, stream))
WRAP(mm_stream_wait, before_call(CALLER), (mm_stream * stream, mm_event *event), (stream, event))
WRAP(mm_copy_async, before_work(stream, CALLER + kind), /* a place for each kind of copy */
     (mm_stream *stream, void *dst, const void *src, int64_t bytes, mm_copy_kind kind), (stream, dst, src, bytes, kind))
WRAP(mm_foreign_record, before_call(CALLER), (mm_event * event, void *handle), (event, handle))
WRAP(mm_foreign_wait, before_call(CALLER), (mm_device * device, void *handle, mm_event *event), (device, handle, event))
WRAP(mm_fill_async, before_work(stream, CALLER), (mm_stream * stream, void *dst, uint8_t byte, int64_t bytes),
     (stream, dst, byte, bytes))
WRAP(mm_checksum_async, before_work(stream, CALLER),
     (mm_stream * stream, const void *src, int64_t bytes, uint64_t *sum_out), (stream, src, bytes, sum_out))
WRAP(mm_mark_async, before_work(stream, CALLER), (mm_stream * stream, void *dst, int64_t bytes, uint64_t word),
     (stream, dst, bytes, word))
WRAP(mm_find_mark_async, before_work(stream, CALLER),
     (mm_stream * stream, const void *src, int64_t bytes, const mm_mark *mark, uint64_t *at_out),
     (stream, src, bytes, mark, at_out))
WRAP(mm_sums_async, before_work(stream, CALLER),
     (mm_stream * stream, const float *src, int64_t elems, void *scratch, mm_sums *sums_out),
     (stream, src, elems, scratch, sums_out))
WRAP(mm_call_async, before_work(stream, CALLER), (mm_stream * stream, const mm_call *call), (stream, call))
WRAP(mm_call_blocking, before_work(stream, CALLER), (mm_stream * stream, const mm_call *call, mm_event *after),
     (stream, call, after))
WRAP(mm_host_launch, before_work(stream, CALLER),
     (mm_stream * stream, mm_status (*fn)(void *arg), const void *arg, size_t arg_bytes), (stream, fn, arg, arg_bytes))
