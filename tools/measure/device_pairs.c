/* SPDX-License-Identifier: MIT */
#include "tools/measure/device_pairs.h"
#include "tools/measure/smooth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A map consists of images of 64 KiB. */
enum { CHANNELS = 64, SIDE = 16, IMAGE_BYTES = CHANNELS * SIDE * SIDE * 4, WEIGHT_BYTES = CHANNELS * CHANNELS * 9 * 4 };
enum { SIDES = MM_WORK_KINDS, ROUNDS = 3, TIMES_MAX = 1 << 14, GROWTH = 8 };
enum { MEMORY_PART = 64 }; /* a block takes at most 1/64 of the free memory. Chosen: all together take a sixth */

/* Chosen. Maps grow until the shortest work takes SHORTEST_NS, long against its launch, or the longest LONGEST_NS. A
 * run takes RUN_NS, long against the error of an event's time. */
static const int64_t SHORTEST_NS = 50000, LONGEST_NS = 4000000, RUN_NS = 3000000;

enum { MAP, CONVOLVED, CLIPPED, CODE, CODE_READ, DECODED, COPIED_IN, BODY, BODY_READ, BLOCKS };
enum { PINNED_OUT, PINNED_IN, PINNED };

/* In pinned memory: inputs of codecs with variable codes or an error bound. */
typedef struct pinned_inputs {
    mm_body_record record;
    float bound;
} pinned_inputs;

typedef struct bench bench;
typedef mm_status (*enqueue_fn)(bench *b, mm_stream *stream);

struct bench {
    mm_device *device;
    const mm_codec *codec; /* NULL: none */
    int64_t bytes;         /* of each block */
    mm_shape shape;
    void *block[BLOCKS], *pinned[PINNED], *weights, *workspace;
    int64_t workspace_bytes, scratch_bytes;
    nets_op *op[MM_WORK_CHEAP + 1]; /* by mm_work */
    /* [0]: for the encode that is measured; [1]: for the decode, and the encode that makes its input */
    void *scratch[2];
    pinned_inputs *of_codec[2];
    mm_code_body body[2];
    mm_code_inputs inputs[2];
    mm_stream *stream[SIDES];
    mm_event *begin[SIDES], *end[SIDES];
    int times[SIDES]; /* how often a run enqueues each kind */
    int64_t alone_ns[SIDES];
};

/* ---------------------------------------------------------------- the kinds of work */

static mm_status run_expensive(bench *b, mm_stream *stream) {
    nets_op_args args = {.workspace_bytes = b->workspace_bytes};
    args.at[NETS_X] = b->block[MAP];
    args.at[NETS_Y] = b->block[CONVOLVED];
    args.at[NETS_W] = b->weights;
    args.at[NETS_WORKSPACE] = b->workspace;
    return nets_op_enqueue(b->op[MM_WORK_EXPENSIVE], MM_FORWARD, &args, stream);
}

static mm_status run_cheap(bench *b, mm_stream *stream) {
    nets_op_args args = {.workspace_bytes = 0};
    args.at[NETS_X] = b->block[MAP];
    args.at[NETS_Y] = b->block[CLIPPED];
    return nets_op_enqueue(b->op[MM_WORK_CHEAP], MM_FORWARD, &args, stream);
}

static mm_status run_encode(bench *b, mm_stream *stream) {
    return mm_codec_encode(b->codec, stream, &b->shape, b->block[MAP], b->block[CODE], b->scratch[0], &b->inputs[0],
                           NULL);
}

static mm_status run_decode(bench *b, mm_stream *stream) {
    return mm_codec_decode(b->codec, stream, &b->shape, b->block[CODE_READ], b->block[DECODED], b->scratch[1],
                           &b->inputs[1], NULL);
}

/* Encodes the code that run_decode reads. */
static mm_status encode_to_read(bench *b) {
    return mm_codec_encode(b->codec, b->stream[MM_WORK_DECODE], &b->shape, b->block[MAP], b->block[CODE_READ],
                           b->scratch[1], &b->inputs[1], NULL);
}

static mm_status run_link(bench *b, mm_stream *stream) {
    MM_TRY(mm_copy_async(stream, b->pinned[PINNED_OUT], b->block[MAP], b->bytes, MM_COPY_OUT));
    return mm_copy_async(stream, b->block[COPIED_IN], b->pinned[PINNED_IN], b->bytes, MM_COPY_IN);
}

static const enqueue_fn WORK[MM_WORK_KINDS] = {[MM_WORK_EXPENSIVE] = run_expensive,
                                               [MM_WORK_CHEAP] = run_cheap,
                                               [MM_WORK_ENCODE] = run_encode,
                                               [MM_WORK_DECODE] = run_decode,
                                               [MM_WORK_LINK] = run_link};

static bool is_had(const bench *b, mm_work work) {
    return b->codec || (work != MM_WORK_ENCODE && work != MM_WORK_DECODE);
}

/* ---------------------------------------------------------------- memory, streams and the codec */

static mm_status reserve(const bench *b, mm_memory_kind kind, int64_t bytes, void **memory_out) {
    return bytes > 0 ? mm_device_reserve(b->device, kind, bytes, memory_out) : MM_OK;
}

static mm_status create_op(bench *b, nets_backend *backend, mm_work work) {
    const nets_shape map = {4, {b->shape.dims[0], SIDE, SIDE, CHANNELS}};
    nets_op_desc desc = {.kind = NETS_RELU, .maps = MM_F32, .n_inputs = 1, .y = map};
    desc.x[0] = map;
    if (work == MM_WORK_EXPENSIVE) {
        desc.kind = NETS_CONV;
        desc.attrs = (nets_attrs){.out_channels = CHANNELS,
                                  .kernel = {3, 3},
                                  .stride = {1, 1},
                                  .pad = {1, 1},
                                  .dilation = {1, 1},
                                  .groups = 1};
    }
    return nets_op_create(backend, &desc, &b->op[work]);
}

static mm_status open_codec(bench *b) {
    if (!b->codec) return MM_OK;
    b->scratch_bytes = mm_codec_scratch(b->codec, &b->shape);
    for (int i = 0; i < 2; i++) {
        MM_TRY(reserve(b, MM_MEMORY_DEVICE, b->scratch_bytes, &b->scratch[i]));
        MM_TRY(reserve(b, MM_MEMORY_PINNED, sizeof *b->of_codec[i], (void **)&b->of_codec[i]));
        b->of_codec[i]->bound = 0.01f; /* values go up to about 7: smooth_put */
        b->body[i] =
            (mm_code_body){.pool = b->block[BODY + i], .pool_bytes = b->bytes, .record = &b->of_codec[i]->record};
        b->inputs[i] = (mm_code_inputs){.body = &b->body[i], .bound = &b->of_codec[i]->bound};
    }
    return encode_to_read(b);
}

static mm_status open_streams(bench *b) {
    for (int i = 0; i < SIDES; i++) {
        MM_TRY(mm_stream_create(b->device, "pairs", i <= MM_WORK_CHEAP ? -1 : 0, &b->stream[i]));
        MM_TRY(mm_event_create(b->device, &b->begin[i]));
        MM_TRY(mm_event_create(b->device, &b->end[i]));
    }
    return MM_OK;
}

static mm_status open_bench(bench *b, nets_backend *backend, int64_t images) {
    b->bytes = images * IMAGE_BYTES;
    b->shape = (mm_shape){.dtype = MM_F32, .rank = 4, .dims = {images, SIDE, SIDE, CHANNELS}};
    MM_TRY(open_streams(b));
    for (int i = 0; i < BLOCKS; i++) MM_TRY(reserve(b, MM_MEMORY_DEVICE, b->bytes, &b->block[i]));
    for (int i = 0; i < PINNED; i++) MM_TRY(reserve(b, MM_MEMORY_PINNED, b->bytes, &b->pinned[i]));
    MM_TRY(reserve(b, MM_MEMORY_DEVICE, WEIGHT_BYTES, &b->weights));
    for (mm_work work = MM_WORK_EXPENSIVE; work <= MM_WORK_CHEAP; work++) MM_TRY(create_op(b, backend, work));
    b->workspace_bytes = nets_op_workspace_bytes(b->op[MM_WORK_EXPENSIVE], MM_FORWARD);
    MM_TRY(reserve(b, MM_MEMORY_DEVICE, b->workspace_bytes, &b->workspace));
    smooth_put(b->pinned[PINNED_IN], b->bytes / 4, -INFINITY);
    mm_stream *stream = b->stream[MM_WORK_DECODE];
    MM_TRY(mm_copy_async(stream, b->block[MAP], b->pinned[PINNED_IN], b->bytes, MM_COPY_IN));
    const int64_t part = WEIGHT_BYTES < b->bytes ? WEIGHT_BYTES : b->bytes;
    MM_TRY(mm_copy_async(stream, b->weights, b->pinned[PINNED_IN], part, MM_COPY_IN));
    MM_TRY(open_codec(b));
    return mm_stream_sync(stream);
}

static void close_bench(bench *b) {
    for (int i = 0; i < SIDES; i++) mm_stream_destroy(b->stream[i]);
    for (int i = 0; i < SIDES; i++) {
        mm_event_destroy(b->begin[i]);
        mm_event_destroy(b->end[i]);
    }
    for (mm_work work = MM_WORK_EXPENSIVE; work <= MM_WORK_CHEAP; work++) nets_op_destroy(b->op[work]);
    for (int i = 0; i < 2; i++) {
        mm_device_release(b->device, MM_MEMORY_PINNED, b->of_codec[i], sizeof *b->of_codec[i]);
        mm_device_release(b->device, MM_MEMORY_DEVICE, b->scratch[i], b->scratch_bytes);
    }
    mm_device_release(b->device, MM_MEMORY_DEVICE, b->workspace, b->workspace_bytes);
    mm_device_release(b->device, MM_MEMORY_DEVICE, b->weights, WEIGHT_BYTES);
    for (int i = 0; i < PINNED; i++) mm_device_release(b->device, MM_MEMORY_PINNED, b->pinned[i], b->bytes);
    for (int i = 0; i < BLOCKS; i++) mm_device_release(b->device, MM_MEMORY_DEVICE, b->block[i], b->bytes);
}

/* ---------------------------------------------------------------- measuring */

/* Runs kinds of work beside each other, enqueued in turn. end_ns: when each ended, from when the first began. */
static mm_status run(bench *b, const mm_work *works, int n, int64_t *end_ns) {
    int64_t begin = INT64_MAX;
    for (int i = 0; i < n; i++) MM_TRY(mm_event_record(b->begin[works[i]], b->stream[works[i]]));
    for (int t = 0; t < TIMES_MAX; t++)
        for (int i = 0; i < n; i++)
            if (t < b->times[works[i]]) MM_TRY(WORK[works[i]](b, b->stream[works[i]]));
    for (int i = 0; i < n; i++) MM_TRY(mm_event_record(b->end[works[i]], b->stream[works[i]]));
    for (int i = 0; i < n; i++) MM_TRY(mm_stream_sync(b->stream[works[i]]));
    for (int i = 0; i < n; i++) {
        const int64_t ns = mm_event_ns(b->begin[works[i]]);
        begin = ns < begin ? ns : begin;
    }
    for (int i = 0; i < n; i++) {
        end_ns[i] = mm_event_ns(b->end[works[i]]) - begin;
        if (end_ns[i] < 1) end_ns[i] = 1;
    }
    return MM_OK;
}

static int by_value(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static mm_status time_alone(bench *b, mm_work work) {
    int64_t ns[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) MM_TRY(run(b, &work, 1, &ns[r]));
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    b->alone_ns[work] = ns[ROUNDS / 2];
    return MM_OK;
}

/* Times one run of each kind of work, and finds the shortest and the longest of these times, leaving out the link's. */
static mm_status time_once(bench *b, int64_t *shortest_out, int64_t *longest_out) {
    *shortest_out = INT64_MAX;
    *longest_out = 0;
    for (mm_work work = 0; work < MM_WORK_KINDS; work++) {
        b->times[work] = 1;
        if (!is_had(b, work)) continue;
        MM_TRY(time_alone(b, work));
        const int64_t ns = b->alone_ns[work];
        if (work != MM_WORK_LINK && ns < *shortest_out) *shortest_out = ns;
        if (work != MM_WORK_LINK && ns > *longest_out) *longest_out = ns;
    }
    return MM_OK;
}

/* Sets how often each kind is enqueued so that all runs take about the same time, and times them alone. Beside a much
 * shorter run, a run's slowdown would be lost in the noise. */
static mm_status time_runs(bench *b) {
    int64_t length = RUN_NS;
    for (mm_work work = 0; work < MM_WORK_KINDS; work++)
        if (is_had(b, work) && b->alone_ns[work] > length) length = b->alone_ns[work];
    for (mm_work work = 0; work < MM_WORK_KINDS; work++) {
        if (!is_had(b, work)) continue;
        const int64_t times = (length + b->alone_ns[work] - 1) / b->alone_ns[work];
        b->times[work] = times < TIMES_MAX ? (int)times : TIMES_MAX;
        MM_TRY(time_alone(b, work));
    }
    return MM_OK;
}

static int permille(int64_t ns, int64_t alone_ns) {
    if (alone_ns <= 0) return MM_CONTENTION_MOST;
    const double longer = 1000.0 * (double)(ns - alone_ns) / (double)alone_ns;
    return longer <= 0 ? 0 : longer < MM_CONTENTION_MOST ? (int)longer : MM_CONTENTION_MOST;
}

void device_pairs_slowdowns(const int64_t alone_ns[2], const int64_t end_ns[2], int permille_out[2]) {
    const int first = end_ns[0] <= end_ns[1] ? 0 : 1, last = 1 - first;
    permille_out[first] = permille(end_ns[first], alone_ns[first]);
    permille_out[last] = permille(end_ns[first], alone_ns[last] - (end_ns[last] - end_ns[first]));
}

static int by_permille(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static mm_status measure_pair(bench *b, mm_work one, mm_work other, device_pairs *pairs) {
    const mm_work works[2] = {one, other};
    const int64_t alone_ns[2] = {b->alone_ns[one], b->alone_ns[other]};
    int found[2][ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        int64_t end_ns[2];
        int each[2];
        MM_TRY(run(b, works, 2, end_ns));
        device_pairs_slowdowns(alone_ns, end_ns, each);
        for (int i = 0; i < 2; i++) found[i][r] = each[i];
    }
    for (int i = 0; i < 2; i++) qsort(found[i], ROUNDS, sizeof found[i][0], by_permille);
    pairs->permille[one][other] = found[0][ROUNDS / 2];
    pairs->permille[other][one] = found[1][ROUNDS / 2];
    return MM_OK;
}

static mm_status measure_pairs(bench *b, device_pairs *pairs) {
    MM_TRY(time_runs(b));
    for (mm_work one = 0; one < MM_WORK_KINDS; one++)
        for (mm_work other = one + 1; other < MM_WORK_KINDS; other++)
            if (is_had(b, one) && is_had(b, other) && mm_work_can_run_beside(one, other))
                MM_TRY(measure_pair(b, one, other, pairs));
    return MM_OK;
}

/* Measures the pairs if with so many images the work takes long enough, or if there can be no more images (last). */
static mm_status try_images(bench *b, nets_backend *backend, int64_t images, bool last, bool *done_out,
                            device_pairs *pairs) {
    int64_t shortest, longest;
    MM_TRY(open_bench(b, backend, images));
    MM_TRY(time_once(b, &shortest, &longest));
    *done_out = last || shortest >= SHORTEST_NS || longest >= LONGEST_NS;
    return *done_out ? measure_pairs(b, pairs) : MM_OK;
}

bool device_pairs_takes(const mm_codec *codec) {
    const mm_shape image = {.dtype = MM_F32, .rank = 4, .dims = {1, SIDE, SIDE, CHANNELS}};
    int64_t bound, body;
    return codec->flags.gives_value && mm_codec_bound(codec, &image, &bound) == MM_OK &&
           mm_codec_body_bound(codec, &image, &body) == MM_OK && bound <= IMAGE_BYTES && body <= IMAGE_BYTES;
}

mm_status device_pairs_measure(mm_device *device, nets_backend *backend, const mm_codec *codec, int64_t most_images,
                               device_pairs *pairs_out) {
    device_pairs pairs;
    mm_status status = MM_OK;
    bool done = false;
    mm_memory_info info;
    mm_device_memory_info(device, &info);
    const int64_t room = info.free_bytes / MEMORY_PART / IMAGE_BYTES;
    if (most_images > room) most_images = room > 0 ? room : 1;
    memset(&pairs, 0xff, sizeof pairs); /* DEVICE_PAIRS_UNKNOWN */
    for (int64_t images = 1; status == MM_OK && !done; images *= GROWTH) {
        bench b = {.device = device, .codec = codec};
        const bool last = images >= most_images;
        status = try_images(&b, backend, last ? most_images : images, last, &done, &pairs);
        close_bench(&b);
    }
    if (status == MM_OK) *pairs_out = pairs;
    return status;
}
