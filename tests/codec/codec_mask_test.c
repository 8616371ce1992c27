/* SPDX-License-Identifier: MIT */
/* The mask codec: every value's bit, at every length, and nothing for what is not > 0. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/device/host/device_host.h"
#include "pipeline/codec/codec.h"
#include "tests/codec/codec_data.h"

typedef struct fixture {
    mm_device *device;
    mm_stream *stream;
    mm_codec *codec;
} fixture;

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(mm_device_host_create(NULL, &f->device), MM_OK);
    assert_int_equal(mm_stream_create(f->device, "mask", 0, &f->stream), MM_OK);
    assert_int_equal(mm_codec_create("mask", "host", &f->codec), MM_OK);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    mm_codec_destroy(f->codec);
    mm_stream_destroy(f->stream);
    mm_device_destroy(f->device);
    free(f);
    return 0;
}

static void encode(fixture *f, const float *src, int64_t elems, uint8_t *code) {
    const mm_shape shape = {MM_F32, 1, {elems, 1, 1, 1}};
    assert_int_equal(mm_codec_encode(f->codec, f->stream, &shape, src, code, NULL, NULL, NULL), MM_OK);
    assert_int_equal(mm_stream_sync(f->stream), MM_OK);
}

static void each_special_value_has_its_bit_at_each_place(void **state) {
    fixture *f = *state;
    static const struct {
        float value;
        bool positive;
    } cases[] = {
        {0.0f, false},   {-0.0f, false},  {1.0f, true},           {-1.0f, false},   {FLT_TRUE_MIN, true},
        {FLT_MIN, true}, {FLT_MAX, true}, {-FLT_MAX, false},      {INFINITY, true}, {-INFINITY, false},
        {NAN, false},    {-NAN, false},   {-FLT_TRUE_MIN, false},
    };
    enum { ELEMS = 67 };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int place = 0; place < ELEMS; place++) {
            float src[ELEMS];
            uint8_t code[12];
            for (int i = 0; i < ELEMS; i++) src[i] = i == place ? cases[c].value : -2;
            encode(f, src, ELEMS, code);
            for (int bit = 0; bit < 96; bit++)
                assert_int_equal(code[bit / 8] >> bit % 8 & 1, bit == place && cases[c].positive);
        }
}

/* All bit patterns: zeros, denormals, infinities and NaNs of both signs are among them. */
static void every_number_of_16_bits_has_its_bit(void **state) {
    fixture *f = *state;
    enum { ALL = 1 << 16 };
    static uint16_t src[ALL];
    static uint8_t code[ALL / 8];
    for (int i = 0; i < ALL; i++) src[i] = (uint16_t)i;
    for (mm_dtype dtype = MM_F16; dtype <= MM_BF16; dtype++) {
        const mm_shape shape = {dtype, 1, {ALL, 1, 1, 1}};
        assert_int_equal(mm_codec_encode(f->codec, f->stream, &shape, src, code, NULL, NULL, NULL), MM_OK);
        assert_int_equal(mm_stream_sync(f->stream), MM_OK);
        for (int i = 0; i < ALL; i++) {
            const int exponent_bits = dtype == MM_F16 ? 5 : 8, mantissa_bits = 15 - exponent_bits;
            const int exponent = i >> mantissa_bits & ((1 << exponent_bits) - 1), rest = i & ((1 << mantissa_bits) - 1);
            const bool nan = exponent == (1 << exponent_bits) - 1 && rest != 0;
            const bool positive = i < 1 << 15 && !nan && (exponent > 0 || rest > 0);
            assert_int_equal(code[i / 8] >> i % 8 & 1, positive);
        }
    }
}

static void every_length_is_padded_with_zeros_and_nothing_is_written_beyond(void **state) {
    fixture *f = *state;
    enum { MOST = 200, CODE = (MOST + 31) / 32 * 4 };
    float src[MOST];
    for (int elems = 1; elems <= MOST; elems++) {
        uint8_t code[CODE + 8];
        const int bytes = (elems + 31) / 32 * 4;
        codec_data_fill(src, MOST, FAMILY_RELU, (uint64_t)elems);
        memset(code, 0xff, sizeof code);
        encode(f, src, elems, code);
        for (int bit = 0; bit < 8 * bytes; bit++)
            assert_int_equal(code[bit / 8] >> bit % 8 & 1, bit < elems && src[bit] > 0);
        for (size_t i = (size_t)bytes; i < sizeof code; i++) assert_int_equal(code[i], 0xff);
    }
}

static void sizes_are_whole_words_beyond_31_bits_too(void **state) {
    fixture *f = *state;
    int64_t bytes = 0;
    const mm_shape shape = {MM_F32, 4, {((int64_t)1 << 33) + 1, 1, 1, 1}};
    assert_int_equal(mm_codec_bound(f->codec, &shape, &bytes), MM_OK);
    assert_true(bytes == ((int64_t)1 << 30) + 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_special_value_has_its_bit_at_each_place, setup, teardown),
        cmocka_unit_test_setup_teardown(every_number_of_16_bits_has_its_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(every_length_is_padded_with_zeros_and_nothing_is_written_beyond, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(sizes_are_whole_words_beyond_31_bits_too, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
