/* SPDX-License-Identifier: MIT */
/* The zfp codec's specs, sizes and counters, and its error, on host streams. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zfp.h>

#include "mm/device/host/device_host.h"
#include "pipeline/codec/codec.h"
#include "tests/codec/codec_data.h"
#include "tests/core/test_case.h"

static mm_codec *create(const char *spec) {
    mm_codec *codec = NULL;
    assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
    return codec;
}

static int64_t bound(const char *spec, const mm_shape *shape) {
    mm_codec *codec = create(spec);
    int64_t bytes = 0;
    assert_int_equal(mm_codec_bound(codec, shape, &bytes), MM_OK);
    mm_codec_destroy(codec);
    return bytes;
}

TEST_CASE(specs_of_one_rate_have_one_canonical_form) {
    static const char *const pairs[][2] = {
        {"zfp", "zfp:rate=6.4"},
        {"zfp:rate=4", "zfp:rate=4"},
        {"zfp:rate=4.0", "zfp:rate=4"},
        {"zfp:rate=04.", "zfp:rate=4"},
        {"zfp:rate=.75", "zfp:rate=0.75"},
        {"zfp:rate=32.000", "zfp:rate=32"},
        {"zfp:rate=10", "zfp:rate=10"},
        {"zfp:rate=2.50", "zfp:rate=2.5"},
        {"zfp:rate=6.4", "zfp:rate=6.4"},
        {"zfp:rate=0.6", "zfp:rate=0.6"},
        {"zfp:rate=3.0625", "zfp:rate=3.0625"},
        {"zfp:dims=2", "zfp:rate=6.4"},
        {"zfp:rate=4:dims=3", "zfp:rate=4,dims=3"},
        {"zfp:dims=1,rate=4.0", "zfp:rate=4,dims=1"},
        {"zfp:rate=0.15,dims=3", "zfp:rate=0.15,dims=3"},
        {"zfp:layout=nhwc", "zfp:rate=6.4"},
        {"zfp:layout=nchw", "zfp:rate=6.4,layout=nchw"},
        {"zfp:layout=nchw,sms=65536,dims=3,rate=31.123456789", "zfp:rate=31.123456789,dims=3,layout=nchw,sms=65536"},
        {"zfp:sms=16,dims=3,rate=4", "zfp:rate=4,dims=3,sms=16"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        mm_codec *codec = create(pairs[i][0]);
        assert_string_equal(codec->spec, pairs[i][1]);
        mm_codec_destroy(codec);
    }
}

TEST_CASE(parameters_that_are_no_rate_in_range_are_invalid_and_the_message_says_why) {
    static const char *const specs[][2] = {{"zfp:rate=0", "0.53125 to 32"},
                                           {"zfp:rate=33", "0.53125 to 32"},
                                           {"zfp:rate=abc", "abc"},
                                           {"zfp:rate=", "rate="},
                                           {"zfp:rate=-4", "-4"},
                                           {"zfp:rate=4,", "4,"},
                                           {"zfp:rate=1e1", "1e1"},
                                           {"zfp:rate=nan", "nan"},
                                           {"zfp:rate=32.001", "0.53125 to 32"},
                                           {"zfp:rate=0.5", "0.53125 to 32"},
                                           {"zfp:rate=.", "rate=."},
                                           {"zfp:rate=4.0000000001", "4.0000000001"},
                                           {"zfp:quality=9", "quality"},
                                           {"zfp:dims=0", "dims is 1, 2 or 3"},
                                           {"zfp:dims=4", "dims is 1, 2 or 3"},
                                           {"zfp:rate=4,dims=2.5", "dims is 1, 2 or 3"},
                                           {"zfp:rate=2,dims=1", "2.125 to 32"},
                                           {"zfp:rate=0.1,dims=3", "0.132812 to 32"},
                                           {"zfp:sms=0", "from 1 to 65536"},
                                           {"zfp:rate=4:rate=20", "rate is given twice"},
                                           {"zfp:dims=3,layout=nchw,dims=3", "dims is given twice"},
                                           {"zfp:layout=nchwc", "layout is nhwc or nchw"},
                                           {"zfp:layout=nch", "layout is nhwc or nchw"},
                                           {"zfp:sms=16,", "unknown parameter"},
                                           {"zfp:,rate=4", "unknown parameter"},
                                           {"zfp:rate=9999999999", "0.53125"},
                                           {"zfp:rate=4 ", "rate=4 "}};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        mm_codec *codec = NULL;
        assert_int_equal(mm_codec_create(specs[i][0], "host", &codec), MM_ERR_INVALID);
        assert_null(codec);
        assert_non_null(strstr(mm_last_error(), specs[i][1]));
    }
}

TEST_CASE(a_rate_gives_the_bits_that_libzfp_gives) {
    zfp_stream *stream = zfp_stream_open(NULL);
    assert_non_null(stream);
    static const int least[] = {0, 213, 54, 14};
    for (int dims = 1; dims <= 3; dims++)
        for (int hundredths = least[dims]; hundredths <= 3200; hundredths += 7) {
            char spec[64];
            snprintf(spec, sizeof spec, "zfp:rate=%d.%02d,dims=%d", hundredths / 100, hundredths % 100, dims);
            zfp_stream_set_rate(stream, hundredths / 100.0, zfp_type_float, (uint)dims, 0);
            const mm_shape shape = {MM_F32, 4, {64, dims == 1 ? 1 : 4, 4, dims == 3 ? 4 : 1}};
            assert_int_equal(bound(spec, &shape), 8 * stream->maxbits);
        }
    zfp_stream_close(stream);
}

TEST_CASE(sizes_beyond_31_bits_are_exact) {
    const mm_shape big = {MM_F32, 4, {1024, 128, 128, 256}}; /* 2^32 elements */
    assert_true(bound("zfp:rate=4", &big) == (int64_t)1 << 31);
    assert_true(bound("zfp:rate=32", &big) == (int64_t)1 << 34);
    const mm_shape ragged = {MM_F32, 4, {((int64_t)1 << 31) + 1, 7, 7, 3}};
    assert_true(bound("zfp:rate=0.6", &ragged) == (12 * (((int64_t)1 << 31) + 1) * 10 + 63) / 64 * 8);
}

TEST_CASE(a_code_beyond_63_bits_is_unsupported) {
    const mm_shape shape = {MM_F32, 4, {(int64_t)1 << 56, 1, 1, 1}};
    mm_codec *codec = create("zfp:rate=32");
    int64_t bytes = 5;
    assert_int_equal(mm_codec_bound(codec, &shape, &bytes), MM_ERR_UNSUPPORTED);
    assert_int_equal(bytes, 5);
    mm_codec_destroy(codec);
}

TEST_CASE(other_types_are_unsupported) {
    mm_codec *codec = create("zfp");
    int64_t bytes = 5;
    assert_int_equal(mm_codec_bound(codec, &(mm_shape){MM_I32, 1, {16, 1, 1, 1}}, &bytes), MM_ERR_UNSUPPORTED);
    assert_int_equal(mm_codec_bound(codec, &(mm_shape){MM_U8, 4, {1, 4, 4, 1}}, &bytes), MM_ERR_UNSUPPORTED);
    assert_int_equal(bytes, 5);
    mm_codec_destroy(codec);
}

enum { N = 2, SIDE = 16, CHANNELS = 20, ELEMS = N * SIDE * SIDE * CHANNELS };
static const mm_shape map_shape = {MM_F32, 4, {N, SIDE, SIDE, CHANNELS}};

/* Encodes src and decodes it to back, on a stream of its own. */
static void round_trip(const char *spec, const float *src, float *back, mm_codec_counters *counters) {
    mm_device *device = NULL;
    mm_stream *stream = NULL;
    void *code = NULL;
    mm_codec *codec = create(spec);
    const int64_t bytes = bound(spec, &map_shape);
    assert_int_equal(mm_device_host_create(NULL, &device), MM_OK);
    assert_int_equal(mm_stream_create(device, "codec", 0, &stream), MM_OK);
    assert_int_equal(mm_device_reserve(device, MM_MEMORY_DEVICE, bytes, &code), MM_OK);
    assert_int_equal(mm_codec_encode(codec, stream, &map_shape, src, code, NULL, NULL, counters), MM_OK);
    assert_int_equal(mm_codec_decode(codec, stream, &map_shape, code, back, NULL, NULL, counters), MM_OK);
    assert_int_equal(mm_stream_sync(stream), MM_OK);
    mm_stream_destroy(stream);
    mm_device_release(device, MM_MEMORY_DEVICE, code, bytes);
    mm_device_destroy(device);
    mm_codec_destroy(codec);
}

static double rms_error(const char *spec, const float *src) {
    float *back = malloc(ELEMS * sizeof *back);
    assert_non_null(back);
    round_trip(spec, src, back, NULL);
    double sum = 0;
    for (int i = 0; i < ELEMS; i++) sum += ((double)back[i] - src[i]) * ((double)back[i] - src[i]);
    free(back);
    return sqrt(sum / ELEMS);
}

TEST_CASE(more_bits_are_less_error_and_32_are_nearly_none) {
    float *src = malloc(ELEMS * sizeof *src);
    assert_non_null(src);
    codec_data_fill(src, ELEMS, FAMILY_UNIFORM, 11);
    static const char *const specs[] = {"zfp:rate=1", "zfp:rate=4", "zfp:rate=6.4", "zfp:rate=12", "zfp:rate=32"};
    double last = 1;
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        const double error = rms_error(specs[i], src);
        assert_true(error < last);
        last = error;
    }
    assert_true(last < 1e-7);
    free(src);
}

/* Blocks span width and height, not channels: a map that is smooth in space has small errors, however its channels
 * differ. */
TEST_CASE(maps_smooth_in_space_and_rough_in_channels_keep_their_digits) {
    float *src = malloc(ELEMS * sizeof *src);
    assert_non_null(src);
    for (int i = 0; i < ELEMS; i++) {
        const int c = i % CHANNELS, x = i / CHANNELS % SIDE, y = i / CHANNELS / SIDE % SIDE;
        src[i] = (float)(c * 7919 % 13 - 6) + 0.02f * (float)x - 0.01f * (float)y;
    }
    assert_true(rms_error("zfp:rate=4", src) < 1e-3);
    free(src);
}

TEST_CASE(blocks_that_are_not_finite_are_counted_once_each) {
    float *src = malloc(ELEMS * sizeof *src), *back = malloc(ELEMS * sizeof *back);
    assert_true(src && back);
    codec_data_fill(src, ELEMS, FAMILY_UNIFORM, 12);
    mm_codec_counters counters = {.nonfinite_blocks = 5};
    round_trip("zfp:rate=4", src, back, &counters);
    assert_int_equal(counters.nonfinite_blocks, 5);
    src[0] = NAN;
    src[CHANNELS] = INFINITY; /* the same block as src[0] */
    src[1] = -INFINITY;
    src[ELEMS - 1] = NAN;
    round_trip("zfp:rate=4", src, back, &counters);
    assert_int_equal(counters.nonfinite_blocks, 8);
    assert_true(isnan(back[0]) && back[CHANNELS] == INFINITY && back[1] == -INFINITY && isnan(back[ELEMS - 1]));
    round_trip("zfp:rate=4", src, back, NULL);
    free(src);
    free(back);
}
