/* Chunk codecs on the host device: the jobs.
 *
 * Encoding. Threads take tasks of some chunks each. A task encodes its chunks to its stack, waits for its turn, takes the
 * next words of the body, passes the turn on, and copies. Tasks are begun in order, so the one whose turn it is runs; and
 * the bytes are those of a serial loop. */
#include "pipeline/codec/chunk_host.h"

#include <sched.h>
#include <string.h>

#include "mm/device/clock.h"
#include "mm/device/device_host.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "codes are little-endian: here as words are in memory");

enum { TASK_CHUNKS = 8 };

typedef struct chunk_job {
    const mm_codec *codec; /* lives as long as jobs run */
    mm_chunk_params params;
    const float *bound; /* NULL: params has it */
    mm_code_body body;
    const void *src;
    void *dst;
    int64_t elems;
    mm_stream *stream;
    mm_host_pool *pool;
    mm_codec_counters *counters;
} chunk_job;

/* What goes to a pool in pinned memory, or comes from there, does so while the job works; what is spilled is the last
 * of it, and takes the link's time besides (as mm/core/simulate.h has it). */
static void charge_link(const chunk_job *job, mm_copy_kind kind, int64_t bytes, int64_t began_ns) {
    if (job->stream->device->ops != &mm_device_host_ops) return;
    mm_host_link_charge(job->stream, kind, bytes, job->body.pool_pinned ? began_ns : mm_now_ns());
}

/* ---------------------------------------------------------------- the head */

static const uint32_t *words_begin(const void *code) { return (const uint32_t *)code + 2; }

/* ---------------------------------------------------------------- encode */

typedef struct encode_run {
    const chunk_job *job;
    mm_chunk_encode_fn encode;
    int64_t begin;
    uint32_t *at;
    int64_t words; /* that tasks have taken; whose turn it is may use it */
    _Atomic int64_t turn, spilled_bytes, nonfinite;
} encode_run;

static bool has_nonfinite(const float *src, int n) {
    bool found = false;
    for (int i = 0; i < n; i++) found |= !__builtin_isfinite(src[i]);
    return found;
}

static int64_t take_words(encode_run *run, int64_t task, int64_t words) {
    while (atomic_load_explicit(&run->turn, memory_order_acquire) != task) sched_yield();
    const int64_t from = run->words;
    run->words += words;
    atomic_store_explicit(&run->turn, task + 1, memory_order_release);
    return from;
}

static mm_status copy_chunk(encode_run *run, int64_t from, const uint32_t *words, int count) {
    const int64_t position = run->begin + 4 * from, bytes = 4 * (int64_t)count;
    const mm_code_body *body = &run->job->body;
    uint8_t *to = mm_chunk_place(body, position, bytes);
    if (!to)
        return mm_fail(MM_ERR_INVALID,
                       "codec %s: %lld bytes at %lld of a body: outside its pool of %lld bytes and its spill of %lld",
                       run->job->codec->spec, (long long)bytes, (long long)position, (long long)body->pool_bytes,
                       (long long)body->spill_bytes);
    memcpy(to, words, (size_t)bytes);
    if (body->pool_pinned || mm_chunk_spills(body, position, bytes)) atomic_fetch_add(&run->spilled_bytes, bytes);
    return MM_OK;
}

/* Has the chunk fetched from memory while the one before is encoded, which would wait for each line. */
static void fetch_ahead(const float *src, int n) {
    for (int i = 0; i < n; i += 16) __builtin_prefetch(src + i);
}

static mm_status encode_task(void *ctx, int64_t task, int thread) {
    encode_run *run = ctx;
    const chunk_job *job = run->job;
    const bool counts = ((const mm_chunk_host *)job->codec->ops->own)->kind->counts_nonfinite;
    const int64_t first = task * TASK_CHUNKS, left = mm_chunks(job->elems) - first;
    const int chunks = left < TASK_CHUNKS ? (int)left : TASK_CHUNKS;
    uint32_t words[TASK_CHUNKS * MM_CHUNK_ELEMS + MM_CHUNK_ROOM];
    int count[TASK_CHUNKS];
    int64_t used = 0;
    mm_status status = MM_OK;
    (void)thread;
    for (int i = 0; i < chunks; i++) {
        const float *src = (const float *)job->src + (first + i) * MM_CHUNK_ELEMS;
        const int n = mm_chunk_elems(job->elems, first + i);
        if (first + i + 1 < mm_chunks(job->elems))
            fetch_ahead(src + MM_CHUNK_ELEMS, mm_chunk_elems(job->elems, first + i + 1));
        count[i] = run->encode(&job->params, src, n, words + used);
        if (counts && count[i] == n && has_nonfinite(src, n)) atomic_fetch_add(&run->nonfinite, 1);
        used += count[i];
    }
    int64_t from = take_words(run, task, used);
    const uint32_t *next = words;
    for (int i = 0; i < chunks && status == MM_OK; from += count[i], next += count[i], i++) {
        run->at[first + i] = (uint32_t)from;
        if (count[i] > 0) status = copy_chunk(run, from, next, count[i]);
    }
    return status;
}

/* Others may read it meanwhile. */
static void put(int64_t *field, int64_t value) { __atomic_store_n(field, value, __ATOMIC_RELAXED); }

static void put_record(mm_body_record *record, int64_t begin, int64_t bytes, int64_t spilled) {
    put(&record->end, begin + bytes);
    put(&record->bytes, bytes);
    put(&record->spilled, spilled);
    put(&record->all_bytes, record->all_bytes + bytes);
    put(&record->all_spilled, record->all_spilled + spilled);
}

static mm_status encode(void *arg) {
    chunk_job *job = arg;
    const int64_t began_ns = mm_now_ns();
    const mm_body_record *before = job->body.before;
    const int64_t chunks = mm_chunks(job->elems), head_words = mm_chunk_head_bytes(job->elems) / 4;
    uint32_t *code = job->dst;
    encode_run run = {.job = job,
                      .encode = ((const mm_chunk_host *)job->codec->ops->own)->encode[mm_packed_isa_fastest()],
                      .begin = before ? mm_body_begin(before->end) : 0,
                      .at = code + 2};
    if (job->bound) job->params.bound = *job->bound;
    code[head_words - 1] = 0; /* padding, if there is one */
    MM_TRY(mm_host_pool_run(job->pool, (chunks + TASK_CHUNKS - 1) / TASK_CHUNKS, encode_task, &run));
    memcpy(code, &run.begin, sizeof run.begin);
    run.at[chunks] = (uint32_t)run.words;
    put_record(job->body.record, run.begin, 4 * run.words, run.spilled_bytes);
    charge_link(job, MM_COPY_OUT, run.spilled_bytes, began_ns);
    if (run.nonfinite && job->counters) atomic_fetch_add(&job->counters->nonfinite_blocks, run.nonfinite);
    return MM_OK;
}

/* ---------------------------------------------------------------- decode */

typedef struct decode_run {
    const chunk_job *job;
    mm_chunk_decode_fn decode;
    int64_t begin;
} decode_run;

/* Where a chunk's code lies. False: the head is damaged. */
static bool find_chunk(const decode_run *run, int64_t i, const uint32_t **words_out, int *count_out) {
    const uint32_t *at = words_begin(run->job->src);
    if (!mm_chunk_words_are_possible(at[i], at[i + 1], mm_chunk_elems(run->job->elems, i))) return false;
    *count_out = (int)(at[i + 1] - at[i]);
    const int64_t position = run->begin + 4 * (int64_t)at[i];
    *words_out = (const uint32_t *)mm_chunk_place(&run->job->body, position, 4 * (int64_t)*count_out);
    return *words_out || *count_out == 0;
}

/* As fetch_ahead: the code, and the lines that will be written. */
static void fetch_chunk(const decode_run *run, int64_t i) {
    const uint32_t *words;
    int count;
    if (i >= mm_chunks(run->job->elems) || !find_chunk(run, i, &words, &count)) return;
    for (int j = 0; j < count; j += 16) __builtin_prefetch(words + j);
    const float *dst = (float *)run->job->dst + i * MM_CHUNK_ELEMS;
    for (int j = 0, n = mm_chunk_elems(run->job->elems, i); j < n; j += 16) __builtin_prefetch(dst + j, 1);
}

/* False: damaged. */
static bool decode_chunk(const decode_run *run, int64_t i) {
    const chunk_job *job = run->job;
    const int n = mm_chunk_elems(job->elems, i);
    float *dst = (float *)job->dst + i * MM_CHUNK_ELEMS;
    const uint32_t *words;
    int count;
    if (!find_chunk(run, i, &words, &count)) return false;
    fetch_chunk(run, i + 1);
    if (count < n) return run->decode(&job->params, words, count, n, dst);
    memcpy(dst, words, (size_t)n * sizeof *dst);
    return true;
}

static mm_status decode_task(void *ctx, int64_t task, int thread) {
    const decode_run *run = ctx;
    const int64_t chunks = mm_chunks(run->job->elems), to = (task + 1) * TASK_CHUNKS;
    (void)thread;
    for (int64_t i = task * TASK_CHUNKS; i < to && i < chunks; i++)
        if (!decode_chunk(run, i))
            return mm_fail(MM_ERR_FORMAT, "codec %s: chunk %lld of %lld of a code is damaged", run->job->codec->spec,
                           (long long)i, (long long)chunks);
    return MM_OK;
}

/* Bytes of a body in pinned memory. */
static int64_t pinned_bytes(const mm_code_body *body, int64_t begin, const uint32_t *at, int64_t chunks) {
    int64_t bytes = body->pool_pinned ? 4 * (int64_t)at[chunks] : 0;
    for (int64_t i = 0; !body->pool_pinned && body->spill_bytes > 0 && i < chunks; i++) {
        const int64_t chunk = 4 * (int64_t)(at[i + 1] - at[i]);
        if (mm_chunk_spills(body, begin + 4 * (int64_t)at[i], chunk)) bytes += chunk;
    }
    return bytes;
}

static mm_status decode(void *arg) {
    chunk_job *job = arg;
    const int64_t began_ns = mm_now_ns(), chunks = mm_chunks(job->elems);
    decode_run run = {.job = job,
                      .decode = ((const mm_chunk_host *)job->codec->ops->own)->decode[mm_packed_isa_fastest()]};
    memcpy(&run.begin, job->src, sizeof run.begin);
    if (!mm_body_begin_is_possible(&job->body, run.begin) || words_begin(job->src)[0] != 0)
        return mm_fail(MM_ERR_FORMAT, "codec %s: the head of a code is damaged: its body begins at %lld, chunk 0 at %u",
                       job->codec->spec, (long long)run.begin, words_begin(job->src)[0]);
    if (job->bound) job->params.bound = *job->bound;
    MM_TRY(mm_host_pool_run(job->pool, (chunks + TASK_CHUNKS - 1) / TASK_CHUNKS, decode_task, &run));
    charge_link(job, MM_COPY_IN, pinned_bytes(&job->body, run.begin, words_begin(job->src), chunks), began_ns);
    return MM_OK;
}

/* ---------------------------------------------------------------- ops */

static mm_status enqueue(mm_stream *stream, const mm_shape *shape, const mm_code_inputs *inputs,
                         mm_status (*fn)(void *arg), chunk_job job) {
    MM_TRY(mm_chunk_map_elems(job.codec, shape, &job.elems));
    job.stream = stream;
    job.params = ((const mm_chunk_codec *)job.codec)->params;
    job.body = *inputs->body;
    if (job.codec->flags.reads_bound) job.bound = inputs->bound;
    if (stream->device->ops == &mm_device_host_ops) job.pool = mm_host_codec_pool(stream);
    return mm_host_launch(stream, fn, &job, sizeof job);
}

mm_status mm_chunk_host_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                               void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch;
    return enqueue(stream, shape, inputs, encode,
                   (chunk_job){.codec = codec, .src = src, .dst = dst, .counters = counters});
}

mm_status mm_chunk_host_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                               void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    (void)scratch, (void)counters;
    return enqueue(stream, shape, inputs, decode, (chunk_job){.codec = codec, .src = src, .dst = dst});
}
