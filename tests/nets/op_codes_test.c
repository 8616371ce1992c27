/* SPDX-License-Identifier: MIT */
/* A batch norm that encodes and decodes maps by itself gives what it gives beside a codec, bit for bit: its codes and
 * masks are the codec's, its gradients from a code are those from the decoded map. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/codec/codec.h"
#include "tests/nets/op_rig.h"

/* Shapes with partial tiles, strips and words; numbers of channels for one warp, for several, and some that leave
 * threads idle. */
static const int64_t SHAPES[][4] = {{2, 7, 7, 32},  {3, 5, 10, 16}, {2, 6, 4, 36}, {1, 9, 13, 64}, {2, 3, 5, 3},
                                    {1, 4, 6, 130}, {5, 2, 2, 8},   {1, 1, 1, 1},  {3, 14, 14, 4}, {1, 13, 9, 2}};
static const char *const SPECS[] = {"zfp:rate=4", "zfp:rate=6.4", "zfp:rate=8", "dpr:fp16", "dpr:fp8", "mx", "raw"};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0], N_SPECS = sizeof SPECS / sizeof SPECS[0] };

typedef struct coding {
    mm_codec *codec;
    mm_codec_strips strips;
    mm_shape shape;
    int64_t bytes;
    void *code, *expected; /* code: by the op; expected: by the codec */
    mm_codec_counters *counters, *expected_counters;
} coding;

/* False: steps cannot code by themselves in this format. */
static bool start_coding(op_rig *rig, const char *spec, const int64_t x[4], coding *c) {
    *c = (coding){.shape = {.dtype = MM_F32, .rank = 4, .dims = {x[0], x[1], x[2], x[3]}}};
    assert_int_equal(mm_codec_create(spec, op_rig_device(), &c->codec), MM_OK);
    if (!mm_codec_strips_of(c->codec, &c->shape, &c->strips)) {
        mm_codec_destroy(c->codec);
        return false;
    }
    assert_int_equal(mm_codec_bound(c->codec, &c->shape, &c->bytes), MM_OK);
    c->code = op_rig_alloc(rig, c->bytes);
    c->expected = op_rig_alloc(rig, c->bytes);
    c->counters = op_rig_alloc(rig, sizeof *c->counters);
    c->expected_counters = op_rig_alloc(rig, sizeof *c->counters);
    memset(c->code, 0x5a, (size_t)c->bytes);
    return true;
}

static void sync(const op_rig *rig) {
    if (mm_stream_sync(rig->stream) != MM_OK) fail_msg("%s", mm_last_error());
}

static void encode(const op_rig *rig, coding *c, const void *elems) {
    assert_int_equal(
        mm_codec_encode(c->codec, rig->stream, &c->shape, elems, c->expected, NULL, NULL, c->expected_counters), MM_OK);
    sync(rig);
}

static void run(op_rig *rig, mm_phase phase) {
    assert_int_equal(nets_op_enqueue(rig->op, phase, &rig->args, rig->stream), MM_OK);
    sync(rig);
}

static mm_coded coded_of(const coding *c) {
    return (mm_coded){.strips = &c->strips.strips, .code = c->code, .counters = c->counters};
}

static void check_code(const coding *c, const char *what) {
    for (int64_t i = 0; i < c->bytes; i++)
        if (((uint8_t *)c->code)[i] != ((uint8_t *)c->expected)[i])
            fail_msg("%s: byte %lld of %lld of the code of %s", what, (long long)i, (long long)c->bytes,
                     c->codec->spec);
    assert_int_equal(atomic_load(&c->counters->nonfinite_blocks), atomic_load(&c->expected_counters->nonfinite_blocks));
}

static void start(op_rig *rig, const int64_t x[4], int n_inputs) {
    if (n_inputs == 0)
        op_rig_init(rig, NETS_BATCH_NORM, NULL, x, true, true);
    else
        op_rig_init_fused(rig, NETS_BATCH_NORM, NULL, x, n_inputs, true, true);
    for (int64_t i = 0; i < op_rig_elems(rig, NETS_X); i++) op_rig_floats(rig, NETS_X)[i] *= 1 + (float)(i % 7);
}

/* ---------------------------------------------------------------- codes that are written */

/* Checks the codes that a forward writes. n_inputs 0: a batch norm without ReLU; 1: with ReLU; 2: with a sum and ReLU.
 * If only the mask is coded, y is written over x. */
static void check_written(const char *spec, const int64_t x[4], int n_inputs, bool nonfinite) {
    op_rig rig;
    coding values, signs;
    start(&rig, x, n_inputs);
    float *map = op_rig_floats(&rig, NETS_X), *y = op_rig_floats(&rig, NETS_Y);
    const size_t bytes = (size_t)rig.bytes[NETS_Y];
    if (nonfinite) map[op_rig_elems(&rig, NETS_X) / 2] = map[0] = INFINITY;
    float *plain = op_rig_alloc(&rig, rig.bytes[NETS_Y]);
    op_rig_run(&rig, MM_FORWARD);
    memcpy(plain, y, bytes);
    const bool coded = start_coding(&rig, spec, x, &values);
    assert_true(start_coding(&rig, "mask", x, &signs));
    encode(&rig, &signs, plain);
    if (coded) encode(&rig, &values, map);
    if (coded) rig.args.coded[NETS_CODED_X] = coded_of(&values);
    if (n_inputs > 0) rig.args.coded[NETS_CODED_Y] = coded_of(&signs);
    memset(y, 0xff, bytes);
    if (!coded) rig.args.at[NETS_Y] = memcpy(y, map, bytes);
    if (!coded) rig.args.at[NETS_X] = y;
    run(&rig, MM_FORWARD);
    if (!nonfinite) assert_memory_equal(y, plain, bytes); /* NaNs may have other payloads */
    if (n_inputs > 0) check_code(&signs, "signs");
    if (coded) check_code(&values, nonfinite ? "not finite" : "values");
    if (coded && nonfinite && strncmp(spec, "zfp", 3) == 0)
        assert_true(atomic_load(&values.counters->nonfinite_blocks) > 0);
    if (coded) mm_codec_destroy(values.codec);
    mm_codec_destroy(signs.codec);
    op_rig_fini(&rig);
}

static void forward_writes_the_codes_of_codecs(void **state) {
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int c = 0; c < N_SPECS; c++) check_written(SPECS[c], SHAPES[s], (s + c) % 3, false);
}

static void forward_counts_blocks_that_are_not_finite(void **state) {
    (void)state;
    check_written("zfp:rate=4", SHAPES[0], 1, true);
    check_written("zfp:rate=8", SHAPES[2], 2, true);
    check_written("zfp:rate=6.4", SHAPES[3], 0, true);
}

/* ---------------------------------------------------------------- codes that are read */

typedef enum gate { GATE_NONE, GATE_VALUE, GATE_MASK, GATES } gate;
static const nets_role GRADIENTS[] = {NETS_DX, NETS_DX2, NETS_DW, NETS_DB};
enum { N_GRADIENTS = sizeof GRADIENTS / sizeof GRADIENTS[0] };

static void check_read(const char *spec, const int64_t x[4], int n_inputs, gate by, bool earlier) {
    op_rig rig;
    coding c;
    start(&rig, x, n_inputs);
    if (!start_coding(&rig, spec, x, &c)) {
        op_rig_fini(&rig);
        return;
    }
    op_rig_run(&rig, MM_FORWARD);
    encode(&rig, &c, rig.args.at[NETS_X]);
    memcpy(c.code, c.expected, (size_t)c.bytes);
    float *decoded = op_rig_alloc(&rig, rig.bytes[NETS_X]);
    assert_int_equal(mm_codec_decode(c.codec, rig.stream, &c.shape, c.code, decoded, NULL, NULL, c.counters), MM_OK);
    sync(&rig);
    rig.args.at[NETS_X] = decoded;
    if (by == GATE_MASK) {
        rig.args.at[NETS_Y] = op_rig_mask(&rig, op_rig_floats(&rig, NETS_Y), op_rig_elems(&rig, NETS_Y));
        rig.args.sign_roles |= NETS_ROLE_BIT(NETS_Y);
    }
    for (int i = 0; earlier && i < 1 + (n_inputs == 2); i++) {
        const nets_role role = (nets_role)(NETS_EARLIER + i);
        rig.args.at[role] = op_rig_alloc(&rig, rig.bytes[NETS_X]);
        memcpy(rig.args.at[role], rig.storage[NETS_X], (size_t)rig.bytes[NETS_X]);
    }
    void *plain[N_GRADIENTS] = {NULL};
    op_rig_run(&rig, MM_BACKWARD);
    for (int i = 0; i < N_GRADIENTS; i++) {
        const nets_role role = GRADIENTS[i];
        if (!rig.args.at[role]) continue;
        plain[i] = malloc((size_t)rig.bytes[role]);
        assert_non_null(plain[i]);
        memcpy(plain[i], rig.args.at[role], (size_t)rig.bytes[role]);
        memset(rig.args.at[role], 0xff, (size_t)rig.bytes[role]);
    }
    const nets_code_needs *needs = &rig.op->code_needs;
    assert_int_equal(needs->passes, 2);
    rig.args.at[NETS_WORKSPACE] =
        op_rig_alloc(&rig, nets_op_workspace_bytes(rig.op, MM_BACKWARD) + 256 + needs->workspace_bytes +
                               needs->workspace_strips * c.strips.strips.strip_elems * (int64_t)sizeof(float));
    rig.args.at[NETS_X] = NULL;
    rig.args.coded[NETS_CODED_X] = coded_of(&c);
    run(&rig, MM_BACKWARD);
    for (int i = 0; i < N_GRADIENTS; i++) {
        if (plain[i] && memcmp(plain[i], rig.args.at[GRADIENTS[i]], (size_t)rig.bytes[GRADIENTS[i]]) != 0)
            fail_msg("%s, %lldx%lldx%lldx%lld, %d inputs, gate %d, earlier %d: role %d", spec, (long long)x[0],
                     (long long)x[1], (long long)x[2], (long long)x[3], n_inputs, (int)by, earlier, (int)GRADIENTS[i]);
        free(plain[i]);
    }
    mm_codec_destroy(c.codec);
    op_rig_fini(&rig);
}

static void backward_reads_codes_as_it_reads_what_they_decode_to(void **state) {
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int c = 0; c < N_SPECS; c++) {
            const int n_inputs = (s + c) % 3;
            const gate by = n_inputs == 0 ? GATE_NONE : (s + c / 2) % 2 == 0 ? GATE_VALUE : GATE_MASK;
            check_read(SPECS[c], SHAPES[s], n_inputs, by, (s + c) % 2 == 0);
        }
}

static void backward_reads_codes_behind_every_gate(void **state) {
    (void)state;
    for (int n_inputs = 1; n_inputs < 3; n_inputs++)
        for (gate by = GATE_VALUE; by < GATES; by++)
            for (int earlier = 0; earlier < 2; earlier++)
                check_read(SPECS[by == GATE_MASK ? 0 : 3], SHAPES[1], n_inputs, by, earlier);
}

/* Whether a device's steps can code by themselves: on CUDA only some forms of zfp and dpr, and masks. */
static void codes_of_strips_are_known(void **state) {
    static const struct {
        const char *spec;
        int64_t channels;
        bool host, cuda;
    } cases[] = {{"zfp:rate=4", 3, true, true},
                 {"zfp:rate=4", 4, true, true},
                 {"zfp:rate=8", 3, true, true},
                 {"zfp:rate=6.4", 16, true, false},
                 {"zfp:rate=6.4", 32, true, true},
                 {"zfp:rate=5", 32, true, false},
                 {"zfp:rate=4,dims=3", 32, false, false},
                 {"zfp:rate=4,layout=nchw", 32, true, false},
                 {"dpr:fp16", 6, true, true},
                 {"dpr:fp8", 6, true, false},
                 {"dpr:fp10", 6, true, false},
                 {"mx", 32, true, false},
                 {"mask", 3, true, true}};
    (void)state;
    const bool cuda = strcmp(op_rig_device(), "cuda") == 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mm_shape shape = {.dtype = MM_F32, .rank = 4, .dims = {2, 7, 7, cases[i].channels}};
        mm_codec *codec;
        mm_codec_strips strips;
        assert_int_equal(mm_codec_create(cases[i].spec, op_rig_device(), &codec), MM_OK);
        if (mm_codec_strips_of(codec, &shape, &strips) != (cuda ? cases[i].cuda : cases[i].host))
            fail_msg("%s of %lld channels on %s", cases[i].spec, (long long)cases[i].channels, op_rig_device());
        mm_codec_destroy(codec);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_writes_the_codes_of_codecs),
        cmocka_unit_test(forward_counts_blocks_that_are_not_finite),
        cmocka_unit_test(backward_reads_codes_as_it_reads_what_they_decode_to),
        cmocka_unit_test(backward_reads_codes_behind_every_gate),
        cmocka_unit_test(codes_of_strips_are_known),
    };
    OP_RIG_RUN(tests);
}
