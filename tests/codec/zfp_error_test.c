/* SPDX-License-Identifier: MIT */
/* The stated bound of fixed-rate ZFP's error holds for blocks of every kind, and is not far too large. */
#include <stdio.h>
#include <stdlib.h>

#include "pipeline/codec/codec.h"
#include "pipeline/codec/zfp/zfp_error.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"

enum { BLOCKS = 4096, VALUES = 16 };

/* A random number in (-1, 1). */
static float noise(uint64_t *random) { return (float)((double)(random_next(random) >> 33) / 1073741824.0 - 1); }

typedef float value_fn(uint64_t *random, int block, int i);

static float white(uint64_t *random, int block, int i) {
    (void)block, (void)i;
    return noise(random);
}

/* Magnitudes over twenty powers of two in each block. */
static float wide(uint64_t *random, int block, int i) {
    (void)block, (void)i;
    return ldexpf(noise(random), -random_below(random, 20));
}

static float spike(uint64_t *random, int block, int i) { return i == block % VALUES ? 1 : 1e-3f * noise(random); }

/* Large values with signs in every pattern, which the transform spreads most. */
static float signs(uint64_t *random, int block, int i) {
    (void)random;
    return block * 2654435761u >> 16 >> i & 1 ? 0.999f : -0.999f;
}

static float smooth(uint64_t *random, int block, int i) {
    return sinf(0.1f * (float)(block + i % 4 + 2 * (i / 4))) + 1e-4f * noise(random);
}

static value_fn *const KINDS[] = {white, wide, spike, signs, smooth};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

/* The largest error of any block but the last, divided by the block's 2^emax. The blocks lie one below the other. */
static double worst(const float *in, const float *out) {
    double most = 0;
    for (int b = 0; b < BLOCKS - 1; b++) {
        float largest = 0;
        double error = 0;
        int emax;
        for (int i = 0; i < VALUES; i++) {
            largest = fmaxf(largest, fabsf(in[b * VALUES + i]));
            error = fmax(error, fabs((double)in[b * VALUES + i] - (double)out[b * VALUES + i]));
        }
        frexpf(largest, &emax);
        most = fmax(most, ldexp(error, -emax));
    }
    return most;
}

/* The largest error of blocks of that kind. shift: compares with the value so many places behind, a planted fault. */
static double measure(const mm_codec *codec, mm_stream *stream, value_fn *kind, int shift) {
    const mm_shape shape = {MM_F32, 4, {1, 4 * BLOCKS, 4, 1}};
    float *in = malloc(BLOCKS * VALUES * sizeof *in), *out = malloc(BLOCKS * VALUES * sizeof *out);
    int64_t bytes;
    uint64_t random = 7;
    mm_codec_counters counters = {0};
    assert_int_equal(mm_codec_bound(codec, &shape, &bytes), MM_OK);
    void *code = aligned_alloc(256, (size_t)(bytes + 255) / 256 * 256);
    assert_true(in && out && code);
    for (int i = 0; i < BLOCKS * VALUES; i++) in[i] = kind(&random, i / VALUES, i % VALUES);
    assert_int_equal(mm_codec_encode(codec, stream, &shape, in, code, NULL, NULL, &counters), MM_OK);
    assert_int_equal(mm_codec_decode(codec, stream, &shape, code, out, NULL, NULL, &counters), MM_OK);
    assert_int_equal(mm_stream_sync(stream), MM_OK);
    double most = worst(in, out + shift);
    free(in);
    free(out);
    free(code);
    return most;
}

TEST_CASE(no_block_is_off_by_more_than_the_bound) {
    mm_device *device;
    mm_stream *stream;
    assert_int_equal(mm_device_create("host", NULL, &device), MM_OK);
    assert_int_equal(mm_stream_create(device, "zfp", 0, &stream), MM_OK);
    for (int rate = 1; rate <= 32; rate++) {
        mm_codec *codec;
        char spec[32];
        double bound = mm_zfp_max_error(VALUES * rate), most = 0;
        snprintf(spec, sizeof spec, "zfp:rate=%d", rate);
        assert_int_equal(mm_codec_create(spec, "host", &codec), MM_OK);
        for (int k = 0; k < KIND_COUNT; k++) {
            double error = measure(codec, stream, KINDS[k], 0);
            if (!(error <= bound)) fail_msg("%s, kind %d: %g of 2^emax, stated %g", spec, k, error, bound);
            most = fmax(most, error);
        }
        if (rate >= 3 && rate <= 24 && most < bound / 20) fail_msg("%s: at most %g, stated %g", spec, most, bound);
        /* From rate 8 on, the bound is small enough that values in the wrong place exceed it. */
        if (rate >= 8) assert_true(measure(codec, stream, white, 1) > bound);
        mm_codec_destroy(codec);
    }
    mm_stream_destroy(stream);
    mm_device_destroy(device);
}

TEST_CASE(each_bit_of_rate_is_a_plane) {
    for (int rate = 3; rate <= 31; rate++) {
        assert_int_equal(mm_zfp_certain_planes(VALUES * rate), rate - 2);
        assert_true(mm_zfp_max_error(VALUES * rate) < mm_zfp_max_error(VALUES * (rate - 1)));
    }
    assert_int_equal(mm_zfp_certain_planes(9), 0);
}
