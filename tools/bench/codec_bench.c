/* How fast a device's codecs are, beside its own copy measured in the same rounds; on the host, beside libzfp too.
 *
 *      codec_bench [--device host|cuda] [ROUNDS [N H W C [SPEC...]]]          H and W multiples of 4
 *
 * A line for each codec and direction: the tensor's bytes a second in the slowest round, the median one and the 95th
 * percentile, and the median's ratio to that of a copy inside the device's memory (which reads and writes all of them; one
 * core's on the host) and to libzfp's at the same bits a block, one thread. On a GPU a round is JOBS of them enqueued
 * together, so that launches do not count, and specs of few multiprocessors (sms=) show what a codec beside a training
 * step has. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zfp.h>

#include "pipeline/codec/codec.h"

enum { DEFAULT_ROUNDS = 15, MAX_ROUNDS = 1000, MAX_ENTRIES = 256, VALUES = 16, CHUNK_BYTES = 16 << 20 };

static const char *const host_specs[] = {"raw",        "mask",        "zfp:rate=2",        "zfp:rate=4",       "zfp",
                                         "zfp:rate=8", "zfp:rate=16", "zfp:rate=4,dims=1", "zfp:rate=4,dims=3"};

#define EACH_CAP(rate_and_dims) rate_and_dims, rate_and_dims ",sms=32", rate_and_dims ",sms=16"
#define EACH_RATE(dims)                                                                                                \
    EACH_CAP("zfp:rate=4" dims), EACH_CAP("zfp:rate=6" dims), EACH_CAP("zfp:rate=6.4" dims), EACH_CAP("zfp:rate=8" dims)
static const char *const cuda_specs[] = {"raw", "mask", EACH_RATE(",dims=2"), EACH_RATE(",dims=3"),
                                         EACH_RATE(",dims=1")};

/* What a device is measured with, unless told otherwise: a tensor much larger than its caches. */
typedef struct setting {
    const char *device;
    int jobs; /* a round */
    int64_t dims[4];
    const char *const *specs;
    int n_specs;
} setting;

static const setting settings[] = {
    {"host", 1, {128, 32, 32, 64}, host_specs, sizeof host_specs / sizeof host_specs[0]},
    {"cuda", 20, {128, 64, 64, 128}, cuda_specs, sizeof cuda_specs / sizeof cuda_specs[0]},
};

/* One thing that is measured. */
typedef struct entry {
    const char *spec, *direction;
    mm_codec *codec; /* NULL: libzfp or the copy */
    zfp_stream *libzfp;
    bool encode;
    const struct entry *peer; /* libzfp's entry */
    double gb_per_s[MAX_ROUNDS];
} entry;

typedef struct bench {
    const setting *of;
    bool on_cpu; /* which reaches the device's memory */
    mm_shape shape;
    int64_t bytes;
    int rounds;
    mm_device *device;
    mm_stream *stream;
    float *src, *dst;
    void *code;
    entry *entries; /* the first is the copy */
    int n_entries;
} bench;

/* ---------------------------------------------------------------- what is measured */

/* libzfp on the blocks that our layout has, in its order. */
static void run_libzfp(const bench *b, zfp_stream *stream, bool encode) {
    const int64_t *d = b->shape.dims, channels = d[3];
    const ptrdiff_t sx = channels, sy = d[2] * channels;
    float *data = encode ? b->src : b->dst;
    zfp_stream_rewind(stream);
    for (int64_t y = 0; y < d[0] * d[1]; y += 4)
        for (int64_t x = 0; x < d[2]; x += 4)
            for (int64_t c = 0; c < channels; c++) {
                float *block = data + y * sy + x * sx + c;
                if (encode)
                    zfp_encode_block_strided_float_2(stream, block, sx, sy);
                else
                    zfp_decode_block_strided_float_2(stream, block, sx, sy);
            }
    if (encode) zfp_stream_flush(stream);
}

static mm_status enqueue(const bench *b, const entry *e) {
    if (!e->codec) return mm_copy_async(b->stream, b->dst, b->src, b->bytes, MM_COPY_DEVICE);
    if (e->encode) return mm_codec_encode(e->codec, b->stream, &b->shape, b->src, b->code, NULL, NULL);
    return mm_codec_decode(e->codec, b->stream, &b->shape, b->code, b->dst, NULL, NULL);
}

static mm_status run(const bench *b, const entry *e) {
    if (e->libzfp) {
        run_libzfp(b, e->libzfp, e->encode);
        return MM_OK;
    }
    for (int i = 0; i < b->of->jobs; i++) MM_TRY(enqueue(b, e));
    return mm_stream_sync(b->stream);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Entries take turns, so that what slows the machine down for a while slows all of them. A decode follows its encode,
 * whose code it reads. */
static mm_status measure(bench *b) {
    for (int round = -1; round < b->rounds; round++) /* one to warm up */
        for (int i = 0; i < b->n_entries; i++) {
            const int64_t start = now_ns();
            MM_TRY(run(b, &b->entries[i]));
            const int64_t ns = now_ns() - start;
            const double bytes = (double)b->bytes * (b->entries[i].libzfp ? 1 : b->of->jobs);
            if (round >= 0) b->entries[i].gb_per_s[round] = bytes / (double)(ns > 0 ? ns : 1);
        }
    return MM_OK;
}

/* ---------------------------------------------------------------- what is printed */

static int compare_rates(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(bench *b) {
    const int64_t *d = b->shape.dims;
    for (int i = 0; i < b->n_entries; i++)
        qsort(b->entries[i].gb_per_s, (size_t)b->rounds, sizeof(double), compare_rates);
    printf("%s: %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 " float32, %.1f MB, n = %d of %d jobs\n", b->of->device,
           d[0], d[1], d[2], d[3], (double)b->bytes / 1e6, b->rounds, b->of->jobs);
    printf("%-26s %-8s %8s %8s %8s GB/s %9s %9s\n", "codec", "", "min", "median", "p95", "/copy", "/libzfp");
    for (int i = 0; i < b->n_entries; i++) {
        const entry *e = &b->entries[i];
        const double median = e->gb_per_s[b->rounds / 2];
        printf("%-26s %-8s %8.2f %8.2f %8.2f      %9.3f", e->spec, e->direction, e->gb_per_s[0], median,
               e->gb_per_s[b->rounds * 95 / 100], median / b->entries[0].gb_per_s[b->rounds / 2]);
        if (e->peer) printf(" %9.1f", median / e->peer->gb_per_s[b->rounds / 2]);
        printf("\n");
    }
}

/* ---------------------------------------------------------------- setup */

static entry *add(bench *b, const char *spec, const char *direction) {
    entry *e = &b->entries[b->n_entries++];
    *e = (entry){.spec = spec, .direction = direction};
    return e;
}

/* libzfp's two entries, for the bits that the codec's code has. They share a stream. */
static mm_status add_libzfp(bench *b, const mm_codec *codec, int64_t code_bytes, entry *peers_out[2]) {
    bitstream *bits = stream_open(b->code, (size_t)code_bytes);
    zfp_stream *stream = bits ? zfp_stream_open(bits) : NULL;
    if (!stream) return mm_fail(MM_ERR_NOMEM, "libzfp's stream");
    stream->minbits = stream->maxbits = (uint)(code_bytes * 8 / (b->bytes / 4 / VALUES));
    for (int i = 0; i < 2; i++) {
        peers_out[i] = add(b, codec->spec, i == 0 ? "libzfp e" : "libzfp d");
        peers_out[i]->libzfp = stream;
        peers_out[i]->encode = i == 0;
    }
    return MM_OK;
}

static mm_status add_codec(bench *b, const char *spec) {
    mm_codec *codec;
    int64_t code_bytes;
    entry *peers[2] = {NULL, NULL};
    if (b->n_entries + 4 > MAX_ENTRIES) return mm_fail(MM_ERR_INVALID, "more than %d entries", MAX_ENTRIES);
    MM_TRY(mm_codec_create(spec, b->of->device, &codec));
    MM_TRY(mm_codec_bound(codec, &b->shape, &code_bytes));
    if (code_bytes > b->bytes) return mm_fail(MM_ERR_INVALID, "codes of %s are larger than the tensor", codec->spec);
    const bool peer = strcmp(codec->ops->name, "zfp") == 0 && !strstr(codec->spec, "dims=") && b->on_cpu;
    if (peer) MM_TRY(add_libzfp(b, codec, code_bytes, peers));
    for (int i = 0; i < (codec->ops->flags.gives_value ? 2 : 1); i++) {
        entry *e = add(b, codec->spec, i == 0 ? "encode" : "decode");
        e->codec = codec;
        e->encode = i == 0;
        e->peer = peers[i];
    }
    return MM_OK;
}

/* What a feature map looks like: smooth in space, with noise, half of it cut off at 0. */
static float value_of(const bench *b, int64_t i, uint32_t *random) {
    const int64_t *d = b->shape.dims, c = i % d[3], x = i / d[3] % d[2], y = i / d[3] / d[2] % d[1];
    *random = *random * 1664525 + 1013904223;
    const float noise = (float)(*random >> 8) * 0x1p-24f - 0.5f;
    const float wave = (float)((c * 37 + x * 3 + y * 5) % 64) / 32 - 1;
    return wave + 0.2f * noise > 0 ? wave + 0.2f * noise : 0;
}

static mm_status fill(const bench *b) {
    void *memory = NULL;
    uint32_t random = 1;
    mm_status status = mm_device_reserve(b->device, MM_MEMORY_PINNED, CHUNK_BYTES, &memory);
    for (int64_t at = 0; status == MM_OK && at < b->bytes; at += CHUNK_BYTES) {
        const int64_t bytes = b->bytes - at < CHUNK_BYTES ? b->bytes - at : CHUNK_BYTES;
        float *chunk = memory;
        for (int64_t i = 0; i < bytes / 4; i++) chunk[i] = value_of(b, at / 4 + i, &random);
        status = mm_copy_async(b->stream, b->src + at / 4, chunk, bytes, MM_COPY_IN);
        if (status == MM_OK) status = mm_stream_sync(b->stream);
    }
    if (memory) mm_device_release(b->device, MM_MEMORY_PINNED, memory, CHUNK_BYTES);
    return status;
}

static mm_status bench_init(bench *b, const char *const *specs, int n_specs) {
    void *memory;
    b->bytes = 4;
    for (int i = 0; i < 4; i++) b->bytes *= b->shape.dims[i];
    b->entries = calloc(MAX_ENTRIES, sizeof *b->entries);
    if (!b->entries) return mm_fail(MM_ERR_NOMEM, "%zu bytes", MAX_ENTRIES * sizeof *b->entries);
    MM_TRY(mm_device_create(b->of->device, NULL, &b->device));
    b->on_cpu = b->device->ops->cpu_reaches_memory;
    MM_TRY(mm_stream_create(b->device, "codec", 0, &b->stream));
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->bytes, &memory));
    b->src = memory;
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->bytes, &memory));
    b->dst = memory;
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->bytes, &b->code));
    add(b, "copy", "");
    for (int i = 0; i < n_specs; i++) MM_TRY(add_codec(b, specs[i]));
    return fill(b);
}

static void bench_fini(bench *b) {
    for (int i = 0; i < b->n_entries; i++) {
        const entry *e = &b->entries[i];
        if (!e->encode) continue;
        mm_codec_destroy(e->codec);
        if (!e->libzfp) continue;
        stream_close(e->libzfp->stream);
        zfp_stream_close(e->libzfp);
    }
    free(b->entries);
    mm_stream_destroy(b->stream);
    mm_device_release(b->device, MM_MEMORY_DEVICE, b->src, b->bytes);
    mm_device_release(b->device, MM_MEMORY_DEVICE, b->dst, b->bytes);
    mm_device_release(b->device, MM_MEMORY_DEVICE, b->code, b->bytes);
    mm_device_destroy(b->device);
}

/* The setting that the first two arguments name, or the first; NULL: there is no such device. */
static const setting *setting_of(int *argc, char ***argv) {
    if (*argc < 2 || strcmp((*argv)[1], "--device") != 0) return &settings[0];
    for (size_t i = 0; *argc > 2 && i < sizeof settings / sizeof settings[0]; i++)
        if (strcmp((*argv)[2], settings[i].device) == 0) {
            *argc -= 2;
            *argv += 2;
            return &settings[i];
        }
    return NULL;
}

int main(int argc, char **argv) {
    bench b = {.rounds = DEFAULT_ROUNDS, .shape = {.dtype = MM_F32, .rank = 4}};
    b.of = setting_of(&argc, &argv);
    bool good = b.of && (argc <= 2 || argc >= 6);
    if (good && argc > 1) b.rounds = atoi(argv[1]);
    for (int i = 0; good && i < 4; i++) b.shape.dims[i] = argc > 2 ? atoll(argv[2 + i]) : b.of->dims[i];
    for (int i = 0; i < 4; i++) good = good && b.shape.dims[i] >= 1 && b.shape.dims[i] <= 1 << 14;
    good = good && b.rounds >= 1 && b.rounds <= MAX_ROUNDS && b.shape.dims[1] % 4 == 0 && b.shape.dims[2] % 4 == 0;
    if (!good) {
        fprintf(stderr,
                "usage: codec_bench [--device host|cuda] [ROUNDS [N H W C [SPEC...]]], H and W multiples of 4\n");
        return 2;
    }
    const bool own = argc > 6;
    mm_status status =
        bench_init(&b, own ? (const char *const *)argv + 6 : b.of->specs, own ? argc - 6 : b.of->n_specs);
    if (status == MM_OK) status = measure(&b);
    if (status != MM_OK) {
        fprintf(stderr, "codec_bench: %s\n", mm_last_error());
        return 1;
    }
    report(&b);
    bench_fini(&b);
    return 0;
}
