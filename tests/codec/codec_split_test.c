/* SPDX-License-Identifier: MIT */
/* What mm_codec_split returns, and codes made by threads in pieces. (codec_suite.c checks the pieces themselves.) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/codec/codec.h"
#include "tests/core/test_case.h"

static int64_t split(const char *spec, mm_shape shape) {
    mm_codec *codec = NULL;
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    const int64_t rows = mm_codec_split(codec, &shape);
    mm_codec_destroy(codec);
    return rows;
}

static mm_shape images(int64_t n, int64_t h, int64_t w, int64_t c) {
    return (mm_shape){.dtype = MM_F32, .rank = 4, .dims = {n, h, w, c}};
}

TEST_CASE(raw_is_split_where_rows_end_on_8_bytes) {
    assert_int_equal(split("raw", images(9, 2, 2, 2)), 1);
    assert_int_equal(split("raw", images(9, 3, 3, 3)), 2);
    assert_int_equal(split("raw", (mm_shape){MM_U8, 4, {9, 3, 3, 3}}), 8);
    assert_int_equal(split("raw", (mm_shape){MM_U8, 2, {9, 12, 1, 1}}), 2);
    assert_int_equal(split("raw", (mm_shape){MM_F32, 1, {9, 1, 1, 1}}), 2);
}

TEST_CASE(mask_is_split_where_rows_end_on_64_elements) {
    assert_int_equal(split("mask", images(65, 8, 8, 3)), 1);
    assert_int_equal(split("mask", images(65, 4, 4, 2)), 2);
    assert_int_equal(split("mask", images(65, 3, 3, 3)), 64);
    assert_int_equal(split("mask", (mm_shape){MM_I32, 4, {65, 8, 8, 3}}), 0);
}

TEST_CASE(zfp_is_split_where_an_images_blocks_end_on_64_bits) {
    assert_int_equal(split("zfp:rate=4", images(65, 4, 4, 1)), 1);
    assert_int_equal(split("zfp:rate=2", images(65, 4, 4, 1)), 2);
    assert_int_equal(split("zfp:rate=2", images(65, 8, 8, 1)), 1);
    assert_int_equal(split("zfp:rate=6.4", images(65, 7, 7, 3)), 8); /* 12 blocks of 102 bits */
    assert_int_equal(split("zfp:rate=0.5625", images(65, 4, 4, 1)), 64);
    assert_int_equal(split("zfp:rate=4,dims=1", images(65, 3, 3, 1)), 4);        /* 3 blocks of 16 bits */
    assert_int_equal(split("zfp:rate=6.4,layout=nchw", images(65, 3, 7, 7)), 8); /* 12 blocks of 102 bits */
    assert_int_equal(split("zfp:rate=6.4,layout=nchw", images(65, 16, 4, 4)), 2);
    assert_int_equal(split("zfp:rate=1.5,dims=3,layout=nchw", images(65, 4, 3, 3)), 2);
    assert_int_equal(split("zfp:rate=4,dims=3", images(65, 3, 3, 1)), 1); /* 256 bits */
    assert_int_equal(split("zfp:rate=1.5,dims=3", images(65, 3, 3, 5)), 1);
    assert_int_equal(split("zfp:rate=1.5,dims=3", images(65, 3, 3, 4)), 2);
}

TEST_CASE(packed_codecs_are_split_where_their_groups_end) {
    assert_int_equal(split("dpr:fp16", images(65, 3, 3, 1)), 4); /* of 4 elements */
    assert_int_equal(split("dpr:fp10", images(65, 2, 2, 2)), 3); /* of 6 */
    assert_int_equal(split("dpr:fp10", images(65, 3, 2, 1)), 1);
    assert_int_equal(split("dpr:fp8", images(65, 2, 1, 1)), 4); /* of 8 */
    assert_int_equal(split("mx:fp4", images(65, 8, 8, 3)), 4);  /* of 256 */
    assert_int_equal(split("mx:fp6", images(65, 16, 16, 5)), 1);
    assert_int_equal(split("mx:int8", images(65, 3, 3, 3)), 0);
    assert_int_equal(split("group:bits=2", images(65, 8, 8, 3)), 8); /* of 512 */
    assert_int_equal(split("dpr", (mm_shape){MM_F32, 1, {9, 1, 1, 1}}), 4);
    assert_int_equal(split("dpr", (mm_shape){MM_F16, 4, {65, 8, 8, 3}}), 1);
    assert_int_equal(split("dpr", (mm_shape){MM_I32, 4, {65, 8, 8, 3}}), 0);
}

/* The strips of a code, made one by one in any order, are bit for bit those of the whole encode, and decode to the
 * same. */
static void check_strips(const char *spec, mm_shape shape) {
    mm_codec *codec = NULL;
    mm_device *device;
    mm_stream *stream;
    mm_codec_strips s;
    int64_t bytes;
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_stream_create(device, "strips", 0, &stream), MM_OK);
    assert_int_equal(mm_codec_bound(codec, &shape, &bytes), MM_OK);
    assert_true(mm_codec_strips_of(codec, &shape, &s));
    const int64_t elems = s.strips.elems, last = mm_strip_of(&s.strips, elems - 1);
    float *map = malloc((size_t)elems * sizeof *map), *whole = calloc((size_t)elems, sizeof *whole);
    float *strip = malloc((size_t)s.strips.strip_elems * sizeof *strip);
    unsigned char *code = calloc(1, (size_t)bytes), *parts = calloc(1, (size_t)bytes);
    assert_true(map && whole && strip && code && parts);
    for (int64_t i = 0; i < elems; i++) map[i] = sinf((float)i * 0.37f) * (float)(i % 7);
    assert_int_equal(mm_codec_encode(codec, stream, &shape, map, code, NULL, NULL, NULL), MM_OK);
    if (s.strips.decode) assert_int_equal(mm_codec_decode(codec, stream, &shape, code, whole, NULL, NULL, NULL), MM_OK);
    assert_int_equal(mm_stream_sync(stream), MM_OK);
    for (int64_t i = last; i >= 0; i--)
        s.strips.encode(&s.strips, map + mm_strip_begin(&s.strips, i), i, 1, parts, NULL);
    assert_memory_equal(parts, code, (size_t)bytes);
    for (int64_t i = 0; s.strips.decode && i <= last; i++) {
        const int64_t begin = mm_strip_begin(&s.strips, i), n = mm_strips_elems(&s.strips, i, 1);
        s.strips.decode(&s.strips, code, i, 1, strip);
        assert_memory_equal(strip, whole + begin, (size_t)n * sizeof *strip);
    }
    free(map), free(whole), free(strip), free(code), free(parts);
    mm_stream_destroy(stream);
    mm_device_destroy(device);
    mm_codec_destroy(codec);
}

TEST_CASE(strips_make_the_code_of_the_whole_map) {
    static const char *const specs[] = {"zfp:rate=4", "zfp:rate=8", "dpr:fp16", "dpr:fp10", "mx", "raw", "mask"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        check_strips(specs[i], images(3, 16, 16, 16));
        check_strips(specs[i], images(2, 14, 14, 8)); /* rows that are no multiple of 4, strips of several sizes */
        check_strips(specs[i], images(5, 7, 7, 4));
        check_strips(specs[i], images(1, 3, 8, 8));
    }
}

TEST_CASE(what_is_not_cut_at_words_or_needs_more_than_its_elements_has_no_strips) {
    static const char *const none[] = {"zfp:rate=4,dims=1", "zfp:rate=4,dims=3", "zfp:rate=6.4", "group:bits=4", "zvc"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const mm_shape shape = images(2, 8, 8, 3);
        mm_codec *codec = NULL;
        mm_codec_strips strips;
        assert_int_equal(mm_codec_create(none[i], "host", &codec), MM_OK);
        assert_false(mm_codec_strips_of(codec, &shape, &strips));
        mm_codec_destroy(codec);
    }
}

TEST_CASE(what_has_no_smaller_piece_or_is_not_taken_is_not_split) {
    assert_int_equal(split("raw", images(1, 2, 2, 2)), 0);
    assert_int_equal(split("raw", images(2, 3, 3, 3)), 0);
    assert_int_equal(split("mask", images(64, 3, 3, 3)), 0);
    assert_int_equal(split("zfp:rate=4", images(1, 4, 4, 1)), 0);
    assert_int_equal(split("zfp:rate=4", (mm_shape){MM_F32, 2, {64, 64, 1, 1}}), 0);
    assert_int_equal(split("zfp:rate=4", (mm_shape){MM_U8, 4, {64, 4, 4, 1}}), 0);
    assert_int_equal(split("raw", images(4, 0, 1, 1)), 0);
}

TEST_CASE(the_batch_does_not_change_it) {
    assert_int_equal(split("zfp:rate=6.4", images((int64_t)1 << 31, 7, 7, 3)), 8);
    assert_int_equal(split("raw", images((int64_t)1 << 40, 3, 3, 3)), 2);
}

/* ---------------------------------------------------------------- threads */

enum { IMAGES = 37, IMAGE = 7 * 7 * 3, CODE_CAPACITY = IMAGES * IMAGE * 4 };

typedef struct coded {
    unsigned char code[CODE_CAPACITY];
    float back[IMAGES * IMAGE];
    mm_codec_counters counters;
} coded;

static void code_on(const char *spec, int threads, coded *out) {
    const mm_device_config config = {.codec_threads = threads};
    const mm_shape shape = images(IMAGES, 7, 7, 3);
    mm_device *device;
    mm_stream *stream;
    mm_codec *codec;
    float *elems = malloc(sizeof out->back);
    assert_non_null(elems);
    for (int i = 0; i < IMAGES * IMAGE; i++) elems[i] = i % 1001 == 1000 ? (float)NAN : sinf(0.1f * (float)i);
    *out = (coded){.back = {0}};
    assert_int_equal(mm_device_create("host", &config, &device), MM_OK);
    assert_int_equal(mm_stream_create(device, "codec", 0, &stream), MM_OK);
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    assert_int_equal(mm_codec_encode(codec, stream, &shape, elems, out->code, NULL, NULL, &out->counters), MM_OK);
    if (codec->flags.gives_value)
        assert_int_equal(mm_codec_decode(codec, stream, &shape, out->code, out->back, NULL, NULL, NULL), MM_OK);
    assert_int_equal(mm_stream_sync(stream), MM_OK);
    mm_codec_destroy(codec);
    mm_stream_destroy(stream);
    mm_device_destroy(device);
    free(elems);
}

TEST_CASE(threads_give_the_code_and_the_elements_of_one) {
    static const char *const SPECS[] = {
        "zfp:rate=6.4", "zfp:rate=4,dims=3", "zfp:rate=4,layout=nchw", "mask", "dpr:fp10", "mx:fp6", "group:bits=4"};
    coded *one = malloc(sizeof *one), *several = malloc(sizeof *several);
    assert_non_null(one);
    assert_non_null(several);
    for (size_t i = 0; i < sizeof SPECS / sizeof SPECS[0]; i++)
        for (int threads = 2; threads <= 5; threads += 3) {
            code_on(SPECS[i], 1, one);
            code_on(SPECS[i], threads, several);
            assert_memory_equal(one, several, sizeof *one);
            assert_int_equal(one->counters.nonfinite_blocks > 0,
                             strcspn(SPECS[i], "zg") == 0 || strncmp(SPECS[i], "mx", 2) == 0);
        }
    free(one);
    free(several);
}
