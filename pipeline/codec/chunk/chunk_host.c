/* SPDX-License-Identifier: MIT */
/* Chunk codecs on the host device: jobs that run the kernels.
 *
 * Encoding. Threads take tasks of some chunks each. A task encodes its chunks to its stack, waits for its turn,
 * reserves the next words of the body, passes the turn on, and copies its code there. Tasks are begun in order, so the
 * task whose turn it is always runs; and the bytes are those of a serial loop. */
#include "pipeline/codec/chunk/chunk_host.h"

#include <sched.h>
#include <string.h>

#include "mm/device/contract/clock.h"
#include "mm/device/host/device_host.h"
#include "pipeline/codec/packed/half_host.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "codes are little-endian, as words in memory must be here");

enum { TASK_CHUNKS = 8 };

typedef struct chunk_job {
    const mm_codec *codec; /* outlives the job */
    mm_chunk_params params;
    const float *bound; /* NULL: params has the bound */
    mm_code_body body;
    const void *src;
    void *dst;
    int64_t elems;
    mm_dtype type;
    int elem_bytes;
    mm_stream *stream;
    mm_host_pool *pool;
    mm_codec_counters *counters;
} chunk_job;

/* Address of chunk i of the map. */
static uint8_t *chunk_of(const chunk_job *job, const void *map, int64_t i) {
    return (uint8_t *)map + i * MM_CHUNK_ELEMS * job->elem_bytes;
}

static int raw_words_of(const chunk_job *job, int64_t i) {
    return mm_chunk_raw_words(mm_chunk_elems(job->elems, i), job->type != MM_F32);
}

/* Charges the link's time. Bytes of a pool in pinned memory cross the link while the job works (from began_ns on);
 * spilled bytes cross it afterwards, and take extra time (as in mm/core/time/simulate.h). */
static void charge_link(const chunk_job *job, mm_copy_kind kind, int64_t bytes, int64_t began_ns) {
    if (job->stream->device->ops != &mm_device_host_ops) return;
    mm_host_link_charge(job->stream, kind, bytes, job->body.pool_pinned ? began_ns : mm_now_ns());
}

/* ---------------------------------------------------------------- the head */

static const uint32_t *words_begin(const void *code) { return (const uint32_t *)code + 2; }

/* ---------------------------------------------------------------- elements */

static bool has_nonfinite(const float *src, int n) {
    bool found = false;
    for (int i = 0; i < n; i++) found |= !__builtin_isfinite(src[i]);
    return found;
}

/* In which form elements of 16 bits are passed to kernels (chunk_code.h). */
typedef enum halves_as { AS_FLOATS, AS_BITS, AS_PAIRS, AS_THEY_ARE } halves_as;

static const mm_chunk_host *host_of(const chunk_job *job) { return job->codec->ops->own; }

static halves_as halves_as_of(const chunk_job *job) {
    const mm_chunk_kind *kind = host_of(job)->kind;
    return !job->codec->flags.lossless ? AS_FLOATS : kind->head ? AS_BITS : kind->by_type ? AS_THEY_ARE : AS_PAIRS;
}

/* A chunk in the form that kernels process. */
typedef union wide_chunk {
    float value[MM_CHUNK_ELEMS];
    uint32_t bits[MM_CHUNK_ELEMS];
} wide_chunk;

/* The same as mm_chunk_encode_fn, for elements of 16 bits; returns mm_chunk_raw_words for a raw chunk. */
static int encode_halves(const chunk_job *job, mm_chunk_encode_fn encode, const uint16_t *src, int n, uint32_t *words,
                         bool *nonfinite_out) {
    const int raw = mm_chunk_raw_words(n, true);
    const halves_as as = halves_as_of(job);
    wide_chunk wide;
    int count;
    if (as == AS_FLOATS) {
        mm_halves_widen(job->type, src, n, wide.value);
        count = encode(&job->params, wide.value, n, words);
        *nonfinite_out = count == n && has_nonfinite(wide.value, n);
    } else if (as == AS_PAIRS) {
        wide.bits[raw - 1] = 0;
        memcpy(wide.bits, src, (size_t)n * sizeof *src);
        count = encode(&job->params, wide.value, raw, words);
    } else {
        for (int i = 0; i < n; i++) wide.bits[i] = src[i];
        count = encode(&job->params, wide.value, n, words);
    }
    if (as == AS_BITS) {
        const int head = host_of(job)->kind->head(words, n), values = count - head;
        if (count < n) {
            for (int i = 0; i < values; i += 2)
                words[head + i / 2] = words[head + i] | (i + 1 < values ? words[head + i + 1] << 16 : 0);
            count = head + (values + 1) / 2;
        }
    }
    if (count < raw) return count;
    words[raw - 1] = 0;
    memcpy(words, src, (size_t)n * sizeof *src);
    return raw;
}

/* The same as mm_chunk_decode_fn, for elements of 16 bits; count is below mm_chunk_raw_words. */
static bool decode_halves(const chunk_job *job, mm_chunk_decode_fn decode, const uint32_t *words, int count, int n,
                          uint16_t *dst) {
    const halves_as as = halves_as_of(job);
    wide_chunk wide;
    uint32_t code[MM_CHUNK_ELEMS];
    if (as == AS_FLOATS) {
        if (!decode(&job->params, words, count, n, wide.value)) return false;
        mm_halves_narrow(job->type, wide.value, n, dst);
        return true;
    }
    if (as == AS_PAIRS) {
        if (!decode(&job->params, words, count, mm_chunk_raw_words(n, true), wide.value)) return false;
        memcpy(dst, wide.bits, (size_t)n * sizeof *dst);
        return true;
    }
    if (as == AS_THEY_ARE) {
        if (!decode(&job->params, words, count, n, wide.value)) return false;
        for (int i = 0; i < n; i++) dst[i] = (uint16_t)wide.bits[i];
        return true;
    }
    memset(code, 0, 2 * sizeof *code);
    memcpy(code, words, (size_t)count * sizeof *code);
    const int head = host_of(job)->kind->head(code, n), values = mm_chunk_half_values(words, count, head);
    if (values < 0 || head + values >= n) return false;
    for (int i = 0; i < values; i++) code[head + i] = words[head + i / 2] >> i % 2 * 16 & 0xffff;
    if (!decode(&job->params, code, head + values, n, wide.value)) return false;
    for (int i = 0; i < n; i++) dst[i] = (uint16_t)wide.bits[i];
    return true;
}

/* ---------------------------------------------------------------- encode */

typedef struct encode_run {
    const chunk_job *job;
    mm_chunk_encode_fn encode;
    int64_t begin;
    uint32_t *at;
    int64_t words; /* words that tasks have reserved; only the task whose turn it is may use it */
    _Atomic int64_t turn, spilled_bytes, nonfinite;
} encode_run;

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
                       "codec %s: no room for %lld bytes at position %lld in a pool of %lld bytes and a spill of %lld",
                       run->job->codec->spec, (long long)bytes, (long long)position, (long long)body->pool_bytes,
                       (long long)body->spill_bytes);
    memcpy(to, words, (size_t)bytes);
    if (body->pool_pinned || mm_chunk_spills(body, position, bytes)) atomic_fetch_add(&run->spilled_bytes, bytes);
    return MM_OK;
}

/* Prefetches chunk i while the one before it is encoded, so that encoding does not wait for each cache line. */
static void fetch_ahead(const chunk_job *job, int64_t i) {
    if (i >= mm_chunks(job->elems)) return;
    const uint8_t *src = chunk_of(job, job->src, i);
    for (int64_t at = 0; at < mm_chunk_elems(job->elems, i) * job->elem_bytes; at += 64) __builtin_prefetch(src + at);
}

/* Encodes one chunk. Returns the code's words: mm_chunk_raw_words if it is raw, else fewer. */
static int encode_chunk(encode_run *run, int64_t i, uint32_t *words) {
    const chunk_job *job = run->job;
    const void *src = chunk_of(job, job->src, i);
    const int n = mm_chunk_elems(job->elems, i);
    bool nonfinite = false;
    int count;
    fetch_ahead(job, i + 1);
    if (job->type != MM_F32) {
        count = encode_halves(job, run->encode, src, n, words, &nonfinite);
    } else {
        count = run->encode(&job->params, src, n, words);
        nonfinite = count == n && host_of(job)->kind->counts_nonfinite && has_nonfinite(src, n);
    }
    if (nonfinite && host_of(job)->kind->counts_nonfinite) atomic_fetch_add(&run->nonfinite, 1);
    return count;
}

static mm_status encode_task(void *ctx, int64_t task, int thread) {
    encode_run *run = ctx;
    const chunk_job *job = run->job;
    const int64_t first = task * TASK_CHUNKS, left = mm_chunks(job->elems) - first;
    const int chunks = left < TASK_CHUNKS ? (int)left : TASK_CHUNKS;
    uint32_t words[TASK_CHUNKS * MM_CHUNK_ELEMS + MM_CHUNK_ROOM];
    int count[TASK_CHUNKS];
    int64_t used = 0;
    mm_status status = MM_OK;
    (void)thread;
    for (int i = 0; i < chunks; i++) {
        count[i] = encode_chunk(run, first + i, words + used);
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

/* Sets a field that others may be reading. */
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
                      .encode = host_of(job)->encode[mm_packed_isa_fastest()],
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

/* Finds a chunk's code. Returns false if the head is damaged. */
static bool find_chunk(const decode_run *run, int64_t i, const uint32_t **words_out, int *count_out) {
    const uint32_t *at = words_begin(run->job->src);
    if (!mm_chunk_words_are_possible(at[i], at[i + 1], raw_words_of(run->job, i))) return false;
    *count_out = (int)(at[i + 1] - at[i]);
    const int64_t position = run->begin + 4 * (int64_t)at[i];
    *words_out = (const uint32_t *)mm_chunk_place(&run->job->body, position, 4 * (int64_t)*count_out);
    return *words_out || *count_out == 0;
}

/* Prefetches a chunk's code, and the lines of the map that will be written. */
static void fetch_chunk(const decode_run *run, int64_t i) {
    const uint32_t *words;
    int count;
    if (i >= mm_chunks(run->job->elems) || !find_chunk(run, i, &words, &count)) return;
    for (int j = 0; j < count; j += 16) __builtin_prefetch(words + j);
    const uint8_t *dst = chunk_of(run->job, run->job->dst, i);
    for (int j = 0, n = raw_words_of(run->job, i); j < n; j += 16) __builtin_prefetch(dst + 4 * j, 1);
}

/* Returns false if the chunk is damaged. */
static bool decode_chunk(const decode_run *run, int64_t i) {
    const chunk_job *job = run->job;
    const int n = mm_chunk_elems(job->elems, i);
    void *dst = chunk_of(job, job->dst, i);
    const uint32_t *words;
    int count;
    if (!find_chunk(run, i, &words, &count)) return false;
    fetch_chunk(run, i + 1);
    if (count == raw_words_of(job, i)) {
        memcpy(dst, words, (size_t)(n * job->elem_bytes));
        return true;
    }
    return job->type == MM_F32 ? run->decode(&job->params, words, count, n, dst)
                               : decode_halves(job, run->decode, words, count, n, dst);
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
    decode_run run = {.job = job, .decode = host_of(job)->decode[mm_packed_isa_fastest()]};
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
    job.type = shape->dtype;
    job.elem_bytes = (int)mm_elem_bytes(job.type);
    job.stream = stream;
    job.params = ((const mm_chunk_codec *)job.codec)->params;
    job.params.type = shape->dtype;
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
