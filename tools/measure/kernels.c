/* SPDX-License-Identifier: MIT */
#include "tools/measure/kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Constants and records as in cupti_activity.h. CUPTI extends records only at their ends; what is read here has had the
 * same place since CUDA 11. */
enum { KIND_DRIVER = 4, KIND_RUNTIME = 5, KIND_KERNEL = 10, KIND_EXTERNAL = 39 };
enum { EXTERNAL_CUSTOM = 3, BUFFER_BYTES = 4 << 20, FLUSH_FORCED = 1 };

typedef struct kernel_record { /* CUpti_ActivityKernel4 and later */
    uint32_t kind;
    uint8_t caches[2];
    uint16_t registers;
    int32_t global_caching[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], shared[2];
    uint32_t local[2], correlation;
    int64_t grid_id;
    const char *name;
} kernel_record;
_Static_assert(offsetof(kernel_record, start) == 16 && offsetof(kernel_record, correlation) == 92 &&
                   offsetof(kernel_record, name) == 104,
               "kernel_record has CUPTI's layout, aligned to 8 bytes");

typedef struct external_record { /* CUpti_ActivityExternalCorrelation */
    uint32_t kind, external_kind;
    uint64_t external;
    uint32_t correlation, reserved;
} external_record;

typedef void (*request_fn)(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void (*complete_fn)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes);

typedef struct cupti {
    void *library;
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*callbacks)(request_fn request, complete_fn complete);
    int (*next)(uint8_t *buffer, size_t valid_bytes, void **record);
    int (*flush)(uint32_t flag);
    int (*push)(int kind, uint64_t id);
    int (*pop)(int kind, uint64_t *id);
    int (*text)(int result, const char **text);
    bool pushed;
} cupti;

/* Globals, because CUPTI calls back from its own threads and passes no context. noted: where records go. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kernels *noted;
static bool registered; /* callbacks are registered, once in a process */

/* ---------------------------------------------------------------- records */

static bool reserve(void **of, int n, int *capacity, size_t size) {
    if (n < *capacity) return true;
    const int more = *capacity ? 2 * *capacity : 1024;
    void *larger = realloc(*of, (size_t)more * size);
    if (!larger) return false;
    *of = larger;
    *capacity = more;
    return true;
}

static void note_kernel(kernels *k, const kernel_record *r) {
    char *name = strdup(r->name ? r->name : "");
    if (!name || !reserve((void **)&k->of, k->n, &k->capacity, sizeof *k->of)) {
        free(name);
        k->out_of_memory = true;
        return;
    }
    k->of[k->n++] = (kernel){.name = name,
                             .step = -1,
                             .stream = r->stream,
                             .correlation = r->correlation,
                             .begin_ns = (int64_t)r->start,
                             .end_ns = (int64_t)r->end};
}

static void note_step(kernels *k, const external_record *r) {
    if (!reserve((void **)&k->steps, k->n_steps, &k->steps_capacity, sizeof *k->steps)) {
        k->out_of_memory = true;
        return;
    }
    k->steps[k->n_steps++] = (struct kernels_step_of){r->correlation, (int)r->external};
}

static void request(uint8_t **buffer, size_t *bytes, size_t *most_records) {
    *bytes = BUFFER_BYTES;
    *most_records = 0;
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    if (!*buffer) *bytes = 0;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid_bytes) {
    void *record = NULL;
    (void)context, (void)stream, (void)bytes;
    pthread_mutex_lock(&lock);
    while (noted && noted->cupti->next(buffer, valid_bytes, &record) == 0) {
        const uint32_t kind = *(const uint32_t *)record;
        if (kind == KIND_KERNEL) note_kernel(noted, record);
        if (kind == KIND_EXTERNAL) note_step(noted, record);
    }
    pthread_mutex_unlock(&lock);
    free(buffer);
}

/* ---------------------------------------------------------------- the library */

static mm_status check(const cupti *c, int result, const char *what) {
    const char *text = NULL;
    if (result == 0) return MM_OK;
    if (c->text) (void)c->text(result, &text);
    return mm_fail(MM_ERR_UNSUPPORTED, "CUPTI: %s: %s (%d)", what, text ? text : "failed", result);
}

static mm_status load(cupti *c) {
    static const char *const FILES[] = {"libcupti.so", "libcupti.so.13", "libcupti.so.12"};
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES && !c->library; i++) c->library = dlopen(FILES[i], RTLD_NOW);
    if (!c->library) return mm_fail(MM_ERR_UNSUPPORTED, "CUPTI was not found (libcupti.so, in LD_LIBRARY_PATH)");
    const struct {
        void *to;
        const char *name;
    } CALLS[] = {{&c->enable, "cuptiActivityEnable"},
                 {&c->disable, "cuptiActivityDisable"},
                 {&c->callbacks, "cuptiActivityRegisterCallbacks"},
                 {&c->next, "cuptiActivityGetNextRecord"},
                 {&c->flush, "cuptiActivityFlushAll"},
                 {&c->push, "cuptiActivityPushExternalCorrelationId"},
                 {&c->pop, "cuptiActivityPopExternalCorrelationId"},
                 {&c->text, "cuptiGetResultString"}};
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        void *symbol = dlsym(c->library, CALLS[i].name);
        if (!symbol) return mm_fail(MM_ERR_UNSUPPORTED, "CUPTI has no %s", CALLS[i].name);
        memcpy(CALLS[i].to, &symbol, sizeof symbol);
    }
    return MM_OK;
}

/* The kinds of records to enable: kernels, and API calls, since CUPTI links only calls to the step that was pushed. */
static const int KINDS[] = {KIND_EXTERNAL, KIND_RUNTIME, KIND_DRIVER, KIND_KERNEL};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

static mm_status start(cupti *c) {
    MM_TRY(load(c));
    if (!registered) MM_TRY(check(c, c->callbacks(request, complete), "registering callbacks"));
    registered = true;
    for (int i = 0; i < N_KINDS; i++) MM_TRY(check(c, c->enable(KINDS[i]), "recording kernels"));
    return MM_OK;
}

/* Stops, without unloading the library: CUPTI cannot be unloaded while CUDA is in use. */
static void stop(kernels *k) {
    pthread_mutex_lock(&lock);
    noted = NULL;
    pthread_mutex_unlock(&lock);
    free(k->cupti);
    k->cupti = NULL;
}

mm_status kernels_begin(kernels *k) {
    *k = (kernels){.cupti = calloc(1, sizeof *k->cupti)};
    if (!k->cupti) return mm_fail(MM_ERR_NOMEM, "out of memory to record kernels");
    pthread_mutex_lock(&lock);
    noted = k;
    pthread_mutex_unlock(&lock);
    mm_status status = start(k->cupti);
    if (status != MM_OK) stop(k);
    return status;
}

void kernels_step(kernels *k, int step) {
    cupti *c = k->cupti;
    uint64_t last;
    if (c->pushed) (void)c->pop(EXTERNAL_CUSTOM, &last);
    c->pushed = step >= 0 && c->push(EXTERNAL_CUSTOM, (uint64_t)step) == 0;
}

/* ---------------------------------------------------------------- evaluating the records */

static int by_begin(const void *a, const void *b) {
    const kernel *x = a, *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static int by_correlation(const void *a, const void *b) {
    const struct kernels_step_of *x = a, *y = b;
    return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

static void finish(kernels *k) {
    if (k->n > 1) qsort(k->of, (size_t)k->n, sizeof *k->of, by_begin);
    if (k->n_steps > 1) qsort(k->steps, (size_t)k->n_steps, sizeof *k->steps, by_correlation);
    for (int i = 0; i < k->n; i++) {
        kernel *now = &k->of[i];
        const struct kernels_step_of wanted = {now->correlation, 0}, *found = NULL;
        if (k->n_steps > 0) found = bsearch(&wanted, k->steps, (size_t)k->n_steps, sizeof *k->steps, by_correlation);
        if (found) now->step = found->step;
        int64_t ended = INT64_MAX;
        for (int j = i - 1; j >= 0; j--)
            if (k->of[j].stream == now->stream && (ended == INT64_MAX || k->of[j].end_ns > ended))
                ended = k->of[j].end_ns;
        now->gap_ns = ended < now->begin_ns ? now->begin_ns - ended : 0;
    }
}

mm_status kernels_end(kernels *k) {
    cupti *c = k->cupti;
    kernels_step(k, -1);
    mm_status status = check(c, c->flush(FLUSH_FORCED), "reading records");
    for (int i = 0; i < N_KINDS; i++) (void)c->disable(KINDS[i]);
    stop(k);
    finish(k);
    if (status == MM_OK && k->out_of_memory) status = mm_fail(MM_ERR_NOMEM, "out of memory for all kernels");
    return status;
}

void kernels_fini(kernels *k) {
    for (int i = 0; i < k->n; i++) free(k->of[i].name);
    free(k->of);
    free(k->steps);
    *k = (kernels){0};
}

void kernels_span(const kernels *k, int64_t *busy_ns_out, int64_t *span_ns_out) {
    int64_t busy = 0, end = k->n ? k->of[0].begin_ns : 0;
    const int64_t begin = end;
    for (int i = 0; i < k->n; i++) {
        const int64_t from = k->of[i].begin_ns > end ? k->of[i].begin_ns : end;
        if (k->of[i].end_ns <= from) continue;
        busy += k->of[i].end_ns - from;
        end = k->of[i].end_ns;
    }
    *busy_ns_out = busy;
    *span_ns_out = end - begin;
}
