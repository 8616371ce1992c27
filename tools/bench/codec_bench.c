/* SPDX-License-Identifier: MIT */
/* Measures how fast a device's codecs are, beside its own copy in the same rounds; on the host also beside libzfp.
 *
 *      codec_bench [--device host|cuda] [--shape NxHxWxC] [--type f32|f16|bf16] [--codecs SPEC,SPEC]
 *                  [--zeros PERCENT,PERCENT] [--jobs N] [--rounds N] [--json FILE]
 *
 * Prints a line for each codec and direction:
 *      min, median, p95   the map's bytes a second in the slowest round, the median one and the 95th percentile
 *      /copy              ratio of the median to that of a copy inside the device's memory (one core's on the host)
 *      /bytes             the same ratio for moved bytes: a codec moves the map and its code, a copy the map twice
 *      map/code           ratio of the map's bytes to its code's
 *      /libzfp            ratio of the median to libzfp's at the same bits a block, on one thread; for f32 only
 *
 * A codec with layout=nchw gets the same map, stored as NCHW. --zeros repeats everything for each share of zeros. A
 * round enqueues JOBS encodes (or decodes) together, so that launches on a GPU do not count. Specs with few
 * multiprocessors (sms=) show the speed of a codec that runs beside a training step. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zfp.h>

#include "mm/core/facts/facts.h"
#include "mm/device/contract/clock.h"
#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/packed/half_host.h"
#include "tools/args/args.h"
#include "tools/args/json_file.h"
#include "tools/bench/samples.h"

enum {
    MAX_ENTRIES = 4 * ARG_TEXTS_MAX + 1,
    VALUES = 16,
    CHUNK_BYTES = 16 << 20,
    WAVES = -1 /* a value of bench.zeros: the map's values are value_of's */
};

/* Defaults for a device. `shape` is that of a tensor much larger than the device's caches. */
typedef struct setting {
    const char *device, *shape;
    int64_t jobs;      /* encodes, or decodes, in a round */
    const char *specs; /* measured besides each codec in each of its formats */
} setting;

/* clang-format off */
#define EACH_CAP(spec)    "," spec "," spec ",sms=32," spec ",sms=16"
#define CAPS_OF(name)     "," name ":sms=32," name ":sms=16"
static const setting settings[] = {
    {"host", "128x32x32x64", 1,
     "zfp:rate=2,zfp:rate=4,zfp:rate=4,layout=nchw,zfp:rate=8,zfp:rate=16,zfp:rate=4,dims=1,"
     "zfp:rate=4,dims=3,zfp:rate=4,dims=3,layout=nchw"},
    {"cuda", "128x64x64x128", 20,
     "dpr:fp16,sms=32,mx:fp8,sms=32"
     CAPS_OF("zvc")
     CAPS_OF("csr")
     CAPS_OF("eb")
     EACH_CAP("zfp:rate=4")
     EACH_CAP("zfp:rate=6")
     EACH_CAP("zfp:rate=6.4")
     EACH_CAP("zfp:rate=8")
     EACH_CAP("zfp:rate=4,layout=nchw")
     EACH_CAP("zfp:rate=6,layout=nchw")
     EACH_CAP("zfp:rate=4,dims=3")
     EACH_CAP("zfp:rate=6,dims=3")
     EACH_CAP("zfp:rate=8,dims=3")
     EACH_CAP("zfp:rate=4,dims=3,layout=nchw")
     EACH_CAP("zfp:rate=4,dims=1")},
};
/* clang-format on */

/* One measurement: a codec, libzfp or the copy, in one direction. */
typedef struct entry {
    const char *spec, *direction;
    mm_codec *codec; /* NULL: libzfp or the copy */
    zfp_stream *libzfp;
    bool encode, channels_first;
    const struct entry *peer; /* libzfp's entry to compare with; NULL: none */
    int64_t code_bytes;       /* of a copy: the bytes of the map */
    samples gb_per_s;
    samples_summary summary;
} entry;

typedef struct bench {
    const char *device_name, *shape_text, *type, *codecs, *zeros_text, *json;
    mm_dtype elem;
    int64_t elem_bytes;
    int64_t zeros;               /* percent of the map that is 0, at random places; or WAVES */
    json_t *rows;                /* for --json; NULL: out of memory, or no --json */
    const mm_device_ops *all_of; /* measure all codecs of this kind of device, too; NULL: only --codecs */
    arg_texts specs;             /* of `codecs` */
    int64_t jobs, rounds;
    bool on_cpu;        /* the CPU reaches the device's memory */
    mm_shape shapes[2]; /* NHWC, NCHW */
    int64_t bytes;
    mm_device *device;
    mm_stream *stream;
    void *src[2], *dst, *code, *scratch;
    int64_t scratch_bytes;
    mm_code_body body; /* for codes of variable size */
    mm_code_inputs inputs;
    entry entries[MAX_ENTRIES]; /* the first is the copy */
    int n_entries;
} bench;

/* ---------------------------------------------------------------- measuring */

/* Runs libzfp on the same blocks as our layouts, in the same order. */
static void run_libzfp(const bench *b, const entry *e) {
    const int64_t *d = b->shapes[0].dims, planes = e->channels_first ? d[0] * d[3] : d[0];
    const int64_t channels = e->channels_first ? 1 : d[3];
    const ptrdiff_t sx = channels, sy = d[2] * channels;
    float *data = e->encode ? b->src[e->channels_first] : b->dst;
    zfp_stream_rewind(e->libzfp);
    for (int64_t y = 0; y < planes * d[1]; y += 4)
        for (int64_t x = 0; x < d[2]; x += 4)
            for (int64_t c = 0; c < channels; c++) {
                float *block = data + y * sy + x * sx + c;
                if (e->encode)
                    zfp_encode_block_strided_float_2(e->libzfp, block, sx, sy);
                else
                    zfp_decode_block_strided_float_2(e->libzfp, block, sx, sy);
            }
    if (e->encode) zfp_stream_flush(e->libzfp);
}

static mm_status enqueue(const bench *b, const entry *e) {
    const mm_shape *shape = &b->shapes[e->channels_first];
    if (!e->codec) return mm_copy_async(b->stream, b->dst, b->src[0], b->bytes, MM_COPY_DEVICE);
    if (e->encode)
        return mm_codec_encode(e->codec, b->stream, shape, b->src[e->channels_first], b->code, b->scratch, &b->inputs,
                               NULL);
    return mm_codec_decode(e->codec, b->stream, shape, b->code, b->dst, b->scratch, &b->inputs, NULL);
}

static mm_status run_entry(const bench *b, const entry *e) {
    if (e->libzfp) {
        run_libzfp(b, e);
        return MM_OK;
    }
    for (int64_t i = 0; i < b->jobs; i++) MM_TRY(enqueue(b, e));
    return mm_stream_sync(b->stream);
}

/* Bytes of the code that the last encode made; for the copy, those of the map. The entries of libzfp have their bytes
 * already. */
static mm_status code_bytes_of(const bench *b, const entry *e, int64_t *bytes_out) {
    if (e->libzfp) return MM_OK;
    *bytes_out = b->bytes;
    if (!e->codec) return MM_OK;
    MM_TRY(mm_codec_bound(e->codec, &b->shapes[e->channels_first], bytes_out));
    if (!e->codec->flags.fixed_size) *bytes_out += b->body.record->bytes;
    return MM_OK;
}

/* Entries take turns, so that a slow phase of the machine affects all of them. A decode follows its encode, whose code
 * it reads. */
static mm_status measure(bench *b) {
    for (int64_t round = -1; round < b->rounds; round++) /* round -1 warms up */
        for (int i = 0; i < b->n_entries; i++) {
            entry *e = &b->entries[i];
            const int64_t start = mm_now_ns();
            MM_TRY(run_entry(b, e));
            const int64_t ns = mm_now_ns() - start;
            const double bytes = (double)b->bytes * (double)(e->libzfp ? 1 : b->jobs);
            if (round >= 0) MM_TRY(samples_add(&e->gb_per_s, bytes / (double)(ns > 0 ? ns : 1)));
            MM_TRY(code_bytes_of(b, e, &e->code_bytes));
        }
    for (int i = 0; i < b->n_entries; i++) b->entries[i].summary = samples_summarize(&b->entries[i].gb_per_s);
    return MM_OK;
}

/* ---------------------------------------------------------------- results */

static double of_copy(const bench *b, const entry *e) { return e->summary.median / b->entries[0].summary.median; }

static double of_libzfp(const entry *e) { return e->summary.median / e->peer->summary.median; }

static double of_bytes(const bench *b, const entry *e) {
    return of_copy(b, e) * (1 + (double)e->code_bytes / (double)b->bytes) / 2;
}

static double ratio_of(const bench *b, const entry *e) { return (double)b->bytes / (double)e->code_bytes; }

static void print(const bench *b) {
    FILE *const file = json_file_beside(b->json);
    fprintf(file, "%s: %s %s, %.1f MB, n = %" PRId64 " of %" PRId64 " jobs", b->device_name, b->shape_text, b->type,
            (double)b->bytes / 1e6, b->rounds, b->jobs);
    if (b->zeros != WAVES) fprintf(file, ", %" PRId64 " %% zeros", b->zeros);
    fprintf(file, "\n%-36s %-8s %8s %8s %8s GB/s %9s %9s %9s %9s\n", "codec", "", "min", "median", "p95", "/copy",
            "/bytes", "map/code", "/libzfp");
    for (int i = 0; i < b->n_entries; i++) {
        const entry *e = &b->entries[i];
        fprintf(file, "%-36s %-8s %8.2f %8.2f %8.2f      %9.3f %9.3f %9.2f", e->spec, e->direction, e->summary.min,
                e->summary.median, e->summary.p95, of_copy(b, e), of_bytes(b, e), ratio_of(b, e));
        if (e->peer) fprintf(file, " %9.1f", of_libzfp(e));
        fprintf(file, "\n");
    }
}

static json_t *row_of(const bench *b, const entry *e) {
    json_t *row =
        json_pack("{ss ss ss ss ss sI sI sI sI sf sf sf sf sf sf}", "device", b->device_name, "codec", e->spec,
                  "direction", e->direction, "shape", b->shape_text, "type", b->type, "bytes", (json_int_t)b->bytes,
                  "jobs", (json_int_t)b->jobs, "n", (json_int_t)e->summary.n, "code_bytes", (json_int_t)e->code_bytes,
                  "gb_per_s_min", e->summary.min, "gb_per_s_median", e->summary.median, "gb_per_s_p95", e->summary.p95,
                  "share_of_copy", of_copy(b, e), "share_of_bytes", of_bytes(b, e), "map_by_code", ratio_of(b, e));
    const bool whole = row && (!e->peer || json_object_set_new(row, "times_libzfp", json_real(of_libzfp(e))) == 0) &&
                       (b->zeros == WAVES || json_object_set_new(row, "zeros_percent", json_integer(b->zeros)) == 0);
    if (whole) return row;
    json_decref(row);
    return NULL;
}

static void report(bench *b) {
    print(b);
    for (int i = 0; b->rows && i < b->n_entries; i++)
        if (json_array_append_new(b->rows, row_of(b, &b->entries[i])) != 0) {
            json_decref(b->rows);
            b->rows = NULL;
        }
}

/* ---------------------------------------------------------------- values of the map */

/* A value of a map as a ReLU leaves it: smooth in space, with noise, and 0 in half of the places. */
static float value_of(int64_t x, int64_t y, int64_t c, uint32_t *random) {
    *random = *random * 1664525 + 1013904223;
    const float noise = (float)(*random >> 8) * 0x1p-24f - 0.5f;
    const float wave = (float)((c * 37 + x * 3 + y * 5) % 64) / 32 - 1;
    return wave + 0.2f * noise > 0 ? wave + 0.2f * noise : 0;
}

/* 0 with a probability of `zeros` percent; else a positive value up to 2 from one half of a bell curve. */
static float drawn_value(int64_t zeros, uint32_t *random) {
    uint32_t draws[5];
    for (int i = 0; i < 5; i++) draws[i] = (*random = *random * 1664525 + 1013904223) >> 8;
    const float sum = (float)(draws[0] + draws[1] + draws[2] + draws[3]) * 0x1p-24f - 2;
    if (draws[4] % 100 < zeros) return 0;
    return sum == 0 ? 0x1p-24f : sum < 0 ? -sum : sum;
}

/* Makes `count` elements of the map in one of the two layouts, from element `from` on. */
static void make_values(const bench *b, bool channels_first, int64_t from, int64_t count, uint32_t *random,
                        float *out) {
    const int64_t *d = b->shapes[channels_first].dims;
    for (int64_t i = 0, at = from; i < count; i++, at++) {
        const int64_t inner = at % d[3], middle = at / d[3] % d[2], outer = at / d[3] / d[2] % d[1];
        out[i] = channels_first ? value_of(inner, middle, outer, random) : value_of(middle, outer, inner, random);
        if (b->zeros != WAVES) out[i] = drawn_value(b->zeros, random);
    }
}

static mm_status fill(const bench *b, bool channels_first) {
    enum { CHUNK = CHUNK_BYTES / sizeof(float) };
    static uint16_t halves[CHUNK];
    void *memory = NULL;
    uint32_t random = 1;
    uint8_t *const to = b->src[channels_first];
    const int64_t elems = b->bytes / b->elem_bytes;
    mm_status status = mm_device_reserve(b->device, MM_MEMORY_PINNED, CHUNK_BYTES, &memory);
    for (int64_t at = 0; status == MM_OK && at < elems; at += CHUNK) {
        const int64_t n = elems - at < CHUNK ? elems - at : CHUNK;
        make_values(b, channels_first, at, n, &random, memory);
        if (b->elem != MM_F32) {
            mm_halves_narrow(b->elem, memory, n, halves);
            memcpy(memory, halves, (size_t)n * sizeof *halves);
        }
        status = mm_copy_async(b->stream, to + at * b->elem_bytes, memory, n * b->elem_bytes, MM_COPY_IN);
        if (status == MM_OK) status = mm_stream_sync(b->stream);
    }
    if (memory) mm_device_release(b->device, MM_MEMORY_PINNED, memory, CHUNK_BYTES);
    return status;
}

/* ---------------------------------------------------------------- setup */

static entry *add(bench *b, const char *spec, const char *direction) {
    entry *e = &b->entries[b->n_entries++];
    *e = (entry){.spec = spec, .direction = direction};
    return e;
}

/* Adds libzfp's two entries, with as many bits a block as the codec's code has. They share a stream. */
static mm_status add_libzfp(bench *b, const mm_codec *codec, bool channels_first, int64_t code_bytes,
                            entry *peers_out[2]) {
    bitstream *bits = stream_open(b->code, (size_t)code_bytes);
    zfp_stream *stream = bits ? zfp_stream_open(bits) : NULL;
    if (!stream) return mm_fail(MM_ERR_NOMEM, "out of memory for libzfp's stream");
    stream->minbits = stream->maxbits = (uint)(code_bytes * 8 / (b->bytes / 4 / VALUES));
    for (int i = 0; i < 2; i++) {
        peers_out[i] = add(b, codec->spec, i == 0 ? "libzfp e" : "libzfp d");
        peers_out[i]->libzfp = stream;
        peers_out[i]->encode = i == 0;
        peers_out[i]->channels_first = channels_first;
        peers_out[i]->code_bytes = code_bytes;
    }
    return MM_OK;
}

/* Adds the entries of a codec. If the codec's codes can be larger than the map, that is an error if the user named the
 * codec (asked); else the codec is skipped. */
static mm_status add_codec(bench *b, const char *spec, bool asked) {
    mm_codec *codec;
    int64_t code_bytes = 0;
    entry *peers[2] = {NULL, NULL};
    MM_TRY(mm_codec_create(spec, b->device_name, &codec));
    const bool channels_first = strstr(codec->spec, "layout=nchw");
    mm_status status = mm_codec_bound(codec, &b->shapes[channels_first], &code_bytes);
    const bool large = status == MM_OK && code_bytes > b->bytes;
    if (large && asked) status = mm_fail(MM_ERR_INVALID, "codes of %s are larger than the tensor", codec->spec);
    if (status != MM_OK || large) {
        mm_codec_destroy(codec);
        return status;
    }
    entry *const ours = &b->entries[b->n_entries];
    for (int i = 0; i < (codec->flags.gives_value ? 2 : 1); i++) {
        entry *e = add(b, codec->spec, i == 0 ? "encode" : "decode");
        e->codec = codec;
        e->encode = i == 0;
        e->channels_first = channels_first;
    }
    const int64_t scratch_bytes = mm_codec_scratch(codec, &b->shapes[channels_first]);
    if (scratch_bytes > b->scratch_bytes) b->scratch_bytes = scratch_bytes;
    if (strcmp(codec->ops->name, "zfp") != 0 || strstr(codec->spec, "dims=") || !b->on_cpu) return MM_OK;
    if (b->elem != MM_F32) return MM_OK;
    MM_TRY(add_libzfp(b, codec, channels_first, code_bytes, peers));
    for (int i = 0; i < 2; i++) ours[i].peer = peers[i];
    return MM_OK;
}

/* Adds each codec of the device in each of its formats. */
static mm_status add_all(bench *b) {
    const mm_codec_ops *ops;
    const char *format;
    for (size_t i = 0; b->all_of && (ops = mm_codec_table(i)); i++)
        for (size_t f = 0; strcmp(ops->device, b->all_of->name) == 0 && (format = mm_codec_format(ops, f)); f++) {
            char spec[MM_SPEC_CAPACITY];
            snprintf(spec, sizeof spec, "%s%s%s", ops->name, *format ? ":" : "", format);
            MM_TRY(add_codec(b, spec, false));
        }
    return MM_OK;
}

/* Parses --type, and --shape "NxHxWxC" (H and W multiples of 4) to that shape and the NCHW one. */
static mm_status parse_shape(bench *b) {
    int64_t d[4];
    char more;
    const mm_dtype types[] = {MM_F32, MM_F16, MM_BF16};
    int t = 0;
    while (t < 3 && strcmp(b->type, mm_dtype_name(types[t])) != 0) t++;
    if (t == 3) return mm_fail(MM_ERR_INVALID, "--type %s: must be f32, f16 or bf16", b->type);
    b->elem = types[t];
    b->bytes = b->elem_bytes = (int64_t)mm_dtype_bytes(types[t]);
    bool good = sscanf(b->shape_text, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%c", &d[0], &d[1], &d[2], &d[3],
                       &more) == 4;
    for (int i = 0; good && i < 4; i++) {
        good = d[i] >= 1 && d[i] <= 1 << 14;
        b->bytes *= d[i];
    }
    if (!good || d[1] % 4 || d[2] % 4)
        return mm_fail(MM_ERR_INVALID, "--shape %s: NxHxWxC, each up to 16384, H and W multiples of 4", b->shape_text);
    b->shapes[0] = (mm_shape){types[t], 4, {d[0], d[1], d[2], d[3]}};
    b->shapes[1] = (mm_shape){types[t], 4, {d[0], d[3], d[1], d[2]}};
    return MM_OK;
}

/* Makes a pool with room for the largest body, and the error bound for codecs that read one: about a percent of the
 * largest value. */
static mm_status init_inputs(bench *b) {
    const float bound = 0.01f;
    void *record, *on_device;
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->bytes, &b->body.pool));
    b->body.pool_bytes = b->bytes;
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_PINNED, sizeof *b->body.record, &record));
    b->body.record = record;
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, sizeof bound, &on_device));
    b->inputs = (mm_code_inputs){.body = &b->body, .bound = on_device};
    memcpy(record, &bound, sizeof bound);
    MM_TRY(mm_copy_async(b->stream, on_device, record, sizeof bound, MM_COPY_IN));
    MM_TRY(mm_stream_sync(b->stream));
    memset(record, 0, sizeof *b->body.record);
    return MM_OK;
}

static mm_status bench_init(bench *b) {
    MM_TRY(parse_shape(b));
    MM_TRY(args_split("--codecs", b->codecs, &b->specs));
    MM_TRY(mm_device_create(b->device_name, NULL, &b->device));
    b->on_cpu = b->device->ops->cpu_reaches_memory;
    MM_TRY(mm_stream_create(b->device, "codec", 0, &b->stream));
    void **const memory[] = {&b->src[0], &b->src[1], &b->dst, &b->code};
    for (int i = 0; i < 4; i++) MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->bytes, memory[i]));
    MM_TRY(init_inputs(b));
    add(b, "copy", "");
    MM_TRY(add_all(b));
    for (int i = 0; i < b->specs.n; i++) MM_TRY(add_codec(b, b->specs.text[i], !b->all_of));
    if (b->scratch_bytes > 0) MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, b->scratch_bytes, &b->scratch));
    if (b->json) b->rows = json_array();
    return MM_OK;
}

static mm_status run_with(bench *b, int64_t zeros) {
    b->zeros = zeros;
    MM_TRY(fill(b, false));
    MM_TRY(fill(b, true));
    MM_TRY(measure(b));
    report(b);
    for (int i = 0; i < b->n_entries; i++) samples_fini(&b->entries[i].gb_per_s);
    return MM_OK;
}

static mm_status run_each(bench *b) {
    arg_texts shares = {0};
    mm_status status = MM_OK;
    if (!b->zeros_text) return run_with(b, WAVES);
    MM_TRY(args_split("--zeros", b->zeros_text, &shares));
    for (int i = 0; status == MM_OK && i < shares.n; i++) {
        char *end;
        const long share = strtol(shares.text[i], &end, 10);
        status =
            end == shares.text[i] || *end || share < 0 || share > 100
                ? mm_fail(MM_ERR_INVALID, "--zeros %s: percents must be whole numbers from 0 to 100", b->zeros_text)
                : run_with(b, share);
    }
    args_texts_fini(&shares);
    return status;
}

static void bench_fini(bench *b) {
    for (int i = 0; i < b->n_entries; i++) {
        entry *e = &b->entries[i];
        samples_fini(&e->gb_per_s);
        if (!e->encode) continue;
        mm_codec_destroy(e->codec);
        if (!e->libzfp) continue;
        stream_close(e->libzfp->stream);
        zfp_stream_close(e->libzfp);
    }
    args_texts_fini(&b->specs);
    json_decref(b->rows);
    mm_stream_destroy(b->stream);
    void *const memory[] = {b->src[0], b->src[1], b->dst, b->code};
    for (int i = 0; i < 4; i++)
        if (memory[i]) mm_device_release(b->device, MM_MEMORY_DEVICE, memory[i], b->bytes);
    if (b->scratch) mm_device_release(b->device, MM_MEMORY_DEVICE, b->scratch, b->scratch_bytes);
    if (b->body.pool) mm_device_release(b->device, MM_MEMORY_DEVICE, b->body.pool, b->bytes);
    if (b->body.record) mm_device_release(b->device, MM_MEMORY_PINNED, b->body.record, sizeof *b->body.record);
    if (b->inputs.bound)
        mm_device_release(b->device, MM_MEMORY_DEVICE, (void *)b->inputs.bound, sizeof *b->inputs.bound);
    mm_device_destroy(b->device);
}

/* Sets options that were not given to the defaults of the device. */
static mm_status complete_options(bench *b) {
    const mm_device_ops *kind;
    int ordinal;
    MM_TRY(mm_device_find(b->device_name, &kind, &ordinal));
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        const setting *s = &settings[i];
        if (strcmp(s->device, kind->name) != 0) continue;
        if (!b->shape_text) b->shape_text = s->shape;
        if (!b->codecs) {
            b->codecs = s->specs;
            b->all_of = kind;
        }
        if (!b->jobs) b->jobs = s->jobs;
        return MM_OK;
    }
    return mm_fail(MM_ERR_INVALID, "--device %s: must be host or cuda", b->device_name);
}

int main(int argc, char **argv) {
    static bench b = {.device_name = "host", .type = "f32", .rounds = 15};
    bool help = false;
    const arg table[] = {
        {"--device", "NAME", "host, cuda or cuda:1 (host)", ARG_TEXT, &b.device_name, 0, 0},
        {"--shape", "NxHxWxC", "the tensor (128x32x32x64, 128x64x64x128 on cuda)", ARG_TEXT, &b.shape_text, 0, 0},
        {"--type", "TYPE", "type of its elements: f32, f16 or bf16 (f32)", ARG_TEXT, &b.type, 0, 0},
        {"--codecs", "SPECS", "codecs, separated by commas (all that have goals)", ARG_TEXT, &b.codecs, 0, 0},
        {"--zeros", "PERCENTS", "shares of zeros, at random places (half of the map, in waves)", ARG_TEXT,
         &b.zeros_text, 0, 0},
        {"--jobs", "N", "encodes or decodes enqueued together (1, 20 on cuda)", ARG_COUNT, &b.jobs, 1, 1000},
        {"--rounds", "N", "rounds to measure (15)", ARG_COUNT, &b.rounds, 1, 1000},
        {"--json", "FILE", "the figures, as an array; -: to standard output", ARG_TEXT, &b.json, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "codec_bench [OPTIONS]",
                                  "Times a device's codecs beside its copy, and beside libzfp.", &help);
    if (status == MM_OK && !help) {
        status = complete_options(&b);
        if (status == MM_OK) status = bench_init(&b);
        if (status == MM_OK) status = run_each(&b);
        if (status == MM_OK && b.json) status = json_file_save(b.json, b.rows), b.rows = NULL;
    }
    bench_fini(&b);
    if (status != MM_OK) fprintf(stderr, "codec_bench: %s\n", mm_last_error());
    return status != MM_OK;
}
