/* SPDX-License-Identifier: MIT */
/* Damaged codes of every codec whose codes have bodies: bits of the head, the table and the body flipped, parts of them
 * overwritten, pools too short. A decode succeeds or says MM_ERR_FORMAT. All memory is of exactly the size that the
 * codec may touch, so that the address sanitizer sees an access outside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/codec/codec_impl.h"
#include "pipeline/codec/packed/half_host.h"
#include "tests/codec/codec_data.h"
#include "tests/core/test_case.h"

enum { CODES = 1500, DAMAGES = 10, ELEMS_MOST = 5000, AFTER = 512 /* where a body begins that is not the first */ };

typedef struct code {
    mm_shape map;
    int64_t elems, head_bytes;
    uint8_t *head, *scratch;
    mm_body_record record, before;
    mm_code_body body;
} code;

static void *copy_of(const void *memory, int64_t bytes) {
    void *copy = malloc((size_t)(bytes > 0 ? bytes : 1));
    assert_non_null(copy);
    if (bytes > 0) memcpy(copy, memory, (size_t)bytes);
    return copy;
}

/* Encodes a map of some family, with its body in a pool, in a spill, or in both. */
static void make(const mm_codec *codec, mm_stream *stream, const float *bound, uint64_t *random, code *c) {
    static float map[ELEMS_MOST];
    static uint16_t halves[ELEMS_MOST];
    static uint8_t zeros[ELEMS_MOST * 4 + 3 * 4096];
    int64_t most;
    memset(c, 0, sizeof *c);
    c->elems = 1 + random_below(random, random_below(random, 3) ? 1500 : ELEMS_MOST);
    static const mm_dtype types[] = {MM_F32, MM_F32, MM_F16, MM_BF16};
    c->map = (mm_shape){types[random_below(random, 4)], 1, {c->elems, 1, 1, 1}};
    codec_data_fill(map, c->elems, (codec_family)random_below(random, FAMILIES), random_next(random));
    const int drop = random_below(random, 4);
    for (int64_t i = 0; i < c->elems; i++)
        if (random_below(random, 4) < drop) map[i] = 0;
    if (c->map.dtype != MM_F32) {
        mm_halves_narrow(c->map.dtype, map, c->elems, halves);
        memcpy(map, halves, (size_t)c->elems * sizeof *halves);
    }
    assert_int_equal(mm_codec_bound(codec, &c->map, &c->head_bytes), MM_OK);
    assert_int_equal(mm_codec_body_bound(codec, &c->map, &most), MM_OK);
    c->before.end = random_below(random, 2) * (AFTER - 200);
    most += AFTER;
    const int place = random_below(random, 3);
    c->body.pool_bytes = place == 0 ? most : place == 1 ? random_below(random, (int)most) / 4 * 4 : 0;
    c->body.spill_bytes = place == 0 ? 0 : most - c->body.pool_bytes + 4096;
    c->body.pool = copy_of(zeros, c->body.pool_bytes);
    c->body.spill = copy_of(zeros, c->body.spill_bytes);
    c->body.before = &c->before;
    c->body.record = &c->record;
    c->head = copy_of(zeros, c->head_bytes);
    c->scratch = copy_of(NULL, 0);
    if (mm_codec_scratch(codec, &c->map) > 0) {
        c->scratch = realloc(c->scratch, (size_t)mm_codec_scratch(codec, &c->map));
        assert_non_null(c->scratch);
    }
    assert_int_equal(mm_codec_encode(codec, stream, &c->map, map, c->head, c->scratch,
                                     &(mm_code_inputs){.body = &c->body, .bound = bound}, NULL),
                     MM_OK);
    if (mm_stream_sync(stream) != MM_OK) fail_msg("%s: %s", codec->spec, mm_last_error());
}

/* Flips some bits, in the first or in all of these bytes, or overwrites some bytes. */
static void damage(uint8_t *bytes, int64_t n, uint64_t *random) {
    if (n == 0) return;
    const int kind = random_below(random, 4), times = 1 + random_below(random, 4);
    for (int i = 0; i < times; i++) {
        const int64_t at = random_below(random, (int)(kind == 0 && n > 64 ? 64 : n));
        if (kind < 3)
            bytes[at] ^= (uint8_t)(1 << random_below(random, 8));
        else
            for (int64_t j = at; j < n && j < at + 8; j++) bytes[j] = (uint8_t)random_next(random);
    }
}

/* Decodes a damaged copy. Returns whether it was refused. */
static bool decode_damaged(const mm_codec *codec, mm_stream *stream, const float *bound, uint64_t *random,
                           const code *c) {
    code d = *c;
    const int kind = random_below(random, 4);
    if (kind == 3) d.body.pool_bytes = c->body.pool_bytes / 2 / 4 * 4, d.body.spill_bytes = c->body.spill_bytes / 2;
    d.head = copy_of(c->head, d.head_bytes);
    d.body.pool = copy_of(c->body.pool, d.body.pool_bytes);
    d.body.spill = copy_of(c->body.spill, d.body.spill_bytes);
    if (kind != 1) damage(d.head, d.head_bytes, random);
    if (kind > 0) {
        const int64_t begin = c->before.end > 0 ? AFTER : 0, pool = d.body.pool_bytes, end = begin + c->record.bytes;
        const int64_t in_spill = c->body.pool_bytes == 0 ? 4096 + begin : 0;
        if (pool > begin) damage((uint8_t *)d.body.pool + begin, (end < pool ? end : pool) - begin, random);
        if (d.body.spill_bytes > in_spill)
            damage((uint8_t *)d.body.spill + in_spill, d.body.spill_bytes - in_spill, random);
    }
    void *back = malloc((size_t)c->elems * mm_dtype_bytes(c->map.dtype));
    assert_non_null(back);
    assert_int_equal(mm_codec_decode(codec, stream, &c->map, d.head, back, d.scratch,
                                     &(mm_code_inputs){.body = &d.body, .bound = bound}, NULL),
                     MM_OK);
    const mm_status status = mm_stream_sync(stream);
    if (status != MM_OK && status != MM_ERR_FORMAT) fail_msg("%s: %s", codec->spec, mm_last_error());
    mm_stream_reset(stream);
    free(back);
    free(d.body.spill);
    free(d.body.pool);
    free(d.head);
    return status != MM_OK;
}

static void fuzz(const char *spec, mm_device *device) {
    const float bound = 0.02f;
    uint64_t random = codec_seed((uint64_t)strlen(spec));
    mm_codec *codec;
    mm_stream *stream;
    int refused = 0;
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    assert_int_equal(mm_stream_create(device, "fuzz", 0, &stream), MM_OK);
    for (int i = 0; i < CODES; i++) {
        code c;
        make(codec, stream, &bound, &random, &c);
        for (int j = 0; j < DAMAGES; j++) refused += decode_damaged(codec, stream, &bound, &random, &c);
        free(c.scratch);
        free(c.body.spill);
        free(c.body.pool);
        free(c.head);
    }
    if (refused < CODES * DAMAGES / 4 || refused == CODES * DAMAGES)
        fail_msg("%s: %d of %d were refused", spec, refused, CODES * DAMAGES);
    mm_stream_destroy(stream);
    mm_codec_destroy(codec);
}

TEST_CASE(damaged_codes_are_refused_or_harmless) {
    mm_device *device;
    const mm_codec_ops *ops;
    const char *format;
    int codecs = 0;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    for (size_t i = 0; (ops = mm_codec_table(i)); i++)
        for (size_t f = 0;
             !ops->flags.fixed_size && strcmp(ops->device, "host") == 0 && (format = mm_codec_format(ops, f)); f++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s%s%s", ops->name, *format ? ":" : "", format);
            fuzz(spec, device);
            codecs++;
        }
    assert_true(codecs > 0);
    mm_device_destroy(device);
}
