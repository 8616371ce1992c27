/* SPDX-License-Identifier: MIT */
/* Our kernels for attention or cuDNN's: the choice, and that cuDNN's graphs compute attention. The emulated cuDNN runs
 * a graph's operations one after the other. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "nets/cuda/libraries/cudnn_attention.h"
#include "tests/nets/algorithms_rig.h"

/* Small, because emulated tensor cores are slow. */
enum { SAMPLES = 2, TOKENS = 20, HEADS = 2, SIZE = 8, WIDTH = HEADS * SIZE, ROWS = SAMPLES * HEADS * TOKENS };
static const int64_t OURS_NS = INT64_C(100000000000); /* of each of our kernels: far more than cuDNN's loops take */
enum { Y_ELEMS = SAMPLES * TOKENS * WIDTH, FRONT_BYTES = (ROWS * 4 + 255) / 256 * 256 };

static const nets_op_desc ATTENTION = {
    .kind = NETS_ATTENTION,
    .attrs = {.heads = HEADS},
    .x = {{3, {SAMPLES, TOKENS, 3 * WIDTH}}},
    .y = {3, {SAMPLES, TOKENS, WIDTH}},
    .n_inputs = 1,
    .maps = MM_BF16,
    .training = true,
    .wants_dx = true,
};

/* The emulated cuDNN is new enough for attention, and faster than our kernels. */
static int setup(void **state) {
    if (algorithms_setup(state) != 0) return -1;
    algorithms_rig *f = *state;
    f->config.precision = NETS_BF16;
    f->config.log.level = MM_LOG_DEBUG;
    f->config.algorithms_path = f->path;
    cuda_emulation_dnn_version(NETS_CUDNN_ATTENTION_OLDEST);
    cuda_emulation_dnn_slow_engines(0);
    cuda_emulation_slow_kernels(OURS_NS);
    return 0;
}

typedef struct computed {
    uint16_t y[Y_ELEMS], dx[3 * Y_ELEMS];
    float log_sums[ROWS];
    nets_workspaces workspaces[2];
    long trials, runs; /* cuDNN's executions: while the op is created; in both phases */
} computed;

static void fill(uint16_t *to, int64_t n, uint32_t seed) {
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (uint16_t)((seed >> 31) << 15 | (0x3e80 + (seed >> 16 & 0xff)));
    }
}

static void run_op(op_rig *rig, nets_op *op, computed *c) {
    uint16_t *x = op_rig_alloc(rig, 6 * Y_ELEMS), *y = op_rig_alloc(rig, 2 * Y_ELEMS);
    uint16_t *dy = op_rig_alloc(rig, 2 * Y_ELEMS), *dx = op_rig_alloc(rig, 6 * Y_ELEMS);
    float *log_sums = op_rig_alloc(rig, 4 * ROWS);
    fill(x, 3 * Y_ELEMS, 1);
    fill(dy, Y_ELEMS, 2);
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        const int64_t bytes = nets_op_workspace_bytes(op, phase);
        nets_op_args args = {.workspace_bytes = bytes};
        c->workspaces[phase] = nets_op_workspaces(op, phase);
        args.at[NETS_X] = x;
        args.at[NETS_Y] = y;
        args.at[NETS_SAVED] = log_sums;
        if (phase == MM_BACKWARD) args.at[NETS_DY] = dy;
        if (phase == MM_BACKWARD) args.at[NETS_DX] = dx;
        if (bytes) args.at[NETS_WORKSPACE] = op_rig_alloc(rig, bytes);
        if (nets_op_enqueue(op, phase, &args, rig->stream) != MM_OK) fail_msg("%s", mm_last_error());
        assert_int_equal(mm_stream_sync(rig->stream), MM_OK);
    }
    memcpy(c->y, y, sizeof c->y);
    memcpy(c->dx, dx, sizeof c->dx);
    memcpy(c->log_sums, log_sums, sizeof c->log_sums);
}

static void compute(const algorithms_rig *f, const nets_op_desc *desc, computed *c) {
    op_rig rig;
    nets_op *op;
    memset(c, 0, sizeof *c);
    op_rig_open(&rig, &f->config);
    const long before = cuda_emulation_dnn_executed();
    if (nets_op_create(rig.backend, desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    const long created = cuda_emulation_dnn_executed();
    run_op(&rig, op, c);
    c->trials = created - before;
    c->runs = cuda_emulation_dnn_executed() - created;
    nets_op_destroy(op);
    op_rig_fini(&rig);
}

static float widened(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void assert_maps_near(const uint16_t *a, const uint16_t *b, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(widened(b[i])));
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(widened(a[i]) - widened(b[i])) <= most * 0x1p-7f))
            fail_msg("%lld: %g, not %g", (long long)i, (double)widened(a[i]), (double)widened(b[i]));
}

/* The result of our kernels, which a deterministic configuration takes. Computed once. */
static const computed *ours(const algorithms_rig *f) {
    static computed c;
    if (c.workspaces[MM_BACKWARD].n) return &c;
    algorithms_rig other = *f;
    other.config.deterministic = true;
    other.config.algorithms_path = NULL;
    compute(&other, &ATTENTION, &c);
    assert_int_equal(c.trials + c.runs, 0);
    return &c;
}

static void where_cudnn_is_faster_it_computes_the_same_attention(void **state) {
    algorithms_rig *f = *state;
    static computed c;
    const computed *own = ours(f);
    compute(f, &ATTENTION, &c);
    assert_true(c.trials > 0);
    assert_int_equal(c.runs, 2);
    assert_maps_near(c.y, own->y, Y_ELEMS);
    assert_maps_near(c.dx, own->dx, 3 * (int64_t)Y_ELEMS);
    for (int i = 0; i < ROWS; i++) assert_true(fabsf(c.log_sums[i] - own->log_sums[i]) < 1e-4f);
    assert_true(c.workspaces[MM_FORWARD].bytes[0] >= SAMPLES * ENGINE_PLAIN_BYTES);
    assert_true(c.workspaces[MM_BACKWARD].bytes[0] >= FRONT_BYTES + SAMPLES * ENGINE_PLAIN_BYTES);
}

/* Pairs of q's heads share a head of k and v. As many elements of y, and no more of x, as in ATTENTION. */
static void cudnn_computes_the_same_where_heads_share_keys(void **state) {
    enum { FEWER = TOKENS / 2, GROUPED = 2 * HEADS, X_ELEMS = SAMPLES * FEWER * (GROUPED + 2 * HEADS) * SIZE };
    static computed own, c, again;
    algorithms_rig *f = *state, other = *f;
    nets_op_desc desc = ATTENTION;
    desc.attrs.heads = GROUPED;
    desc.attrs.kv_heads = HEADS;
    desc.x[0] = (nets_shape){3, {SAMPLES, FEWER, (GROUPED + 2 * HEADS) * SIZE}};
    desc.y = (nets_shape){3, {SAMPLES, FEWER, GROUPED * SIZE}};
    other.config.deterministic = true;
    other.config.algorithms_path = NULL;
    compute(&other, &desc, &own);
    assert_int_equal(own.trials + own.runs, 0);
    for (int unordered = 0; unordered < 2; unordered++) {
        cuda_emulation_dnn_unordered(unordered);
        compute(f, &desc, &c);
        assert_true(c.trials > 0);
        assert_int_equal(c.runs, 2);
        assert_maps_near(c.y, own.y, Y_ELEMS);
        assert_maps_near(c.dx, own.dx, X_ELEMS);
        for (int i = 0; i < ROWS; i++) assert_true(fabsf(c.log_sums[i] - own.log_sums[i]) < 1e-4f);
        compute(f, &desc, &again); /* what was kept for other heads of k and v is not taken for these */
        assert_int_equal(again.trials, 0);
        assert_memory_equal(again.dx, c.dx, X_ELEMS * sizeof c.dx[0]);
        unlink(f->path);
    }
    cuda_emulation_dnn_unordered(false);
    desc.attrs.kv_heads = GROUPED;
    desc.x[0].dims[2] = 3 * GROUPED * SIZE;
    compute(f, &desc, &c);
    assert_true(c.trials > 0);
    desc.attrs.kv_heads = HEADS;
    desc.x[0].dims[2] = (GROUPED + 2 * HEADS) * SIZE;
    compute(f, &desc, &c); /* its key is another's, who differs in nothing but the heads of k and v */
    assert_true(c.trials > 0);
}

static void a_kept_choice_is_made_again_with_and_without_a_device(void **state) {
    algorithms_rig *f = *state;
    static computed first, again;
    compute(f, &ATTENTION, &first);
    cuda_emulation_dnn_slow_engines(1); /* a new choice would not take it */
    compute(f, &ATTENTION, &again);
    assert_int_equal(again.trials, 0);
    assert_int_equal(again.runs, 2);
    assert_memory_equal(again.y, first.y, sizeof first.y);
    assert_memory_equal(again.dx, first.dx, sizeof first.dx);
    f->config.untimed = true;
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++)
        assert_int_equal(algorithms_workspace(f, &ATTENTION, phase), first.workspaces[phase].bytes[0]);
}

/* A backward that adds in any order is allowed. It computes the whole batch at once, and sums in f32 in the
 * workspace. */
static void where_an_unordered_backward_is_faster_it_is_taken_and_kept(void **state) {
    algorithms_rig *f = *state;
    static computed first, again;
    cuda_emulation_dnn_unordered(true);
    compute(f, &ATTENTION, &first);
    assert_int_equal(first.runs, 2);
    assert_maps_near(first.dx, ours(f)->dx, 3 * (int64_t)Y_ELEMS);
    const int64_t sums = (Y_ELEMS * 4 + 255) / 256 * 256;
    assert_true(first.workspaces[MM_BACKWARD].bytes[0] >= FRONT_BYTES + sums);
    cuda_emulation_dnn_unordered(false); /* a new choice would not take it */
    compute(f, &ATTENTION, &again);
    assert_int_equal(again.trials, 0);
    assert_memory_equal(again.dx, first.dx, sizeof first.dx);
    f->config.untimed = true;
    assert_int_equal(algorithms_workspace(f, &ATTENTION, MM_BACKWARD), first.workspaces[MM_BACKWARD].bytes[0]);
}

static void where_our_kernels_are_faster_they_are_taken_and_kept(void **state) {
    algorithms_rig *f = *state;
    static computed c;
    cuda_emulation_dnn_slow_engines(1);
    compute(f, &ATTENTION, &c);
    assert_true(c.trials > 0);
    assert_int_equal(c.runs, 0);
    assert_int_equal(c.workspaces[MM_BACKWARD].bytes[0], ROWS * 4);
    cuda_emulation_dnn_slow_engines(0);
    compute(f, &ATTENTION, &c);
    assert_int_equal(c.trials + c.runs, 0);
}

static void check_refused(algorithms_rig *f, cuda_emulation_outputs how, const char *why) {
    static computed c;
    f->looked_for = why;
    f->found = 0;
    cuda_emulation_dnn_outputs(how);
    compute(f, &ATTENTION, &c);
    assert_true(f->found > 0);
    assert_true(c.trials > 0);
    assert_int_equal(c.runs, 0);
    assert_memory_equal(c.dx, ours(f)->dx, sizeof c.dx);
}

static void results_that_are_wrong_are_not_taken(void **state) {
    check_refused(*state, OUTPUTS_WRONG, "differ too much from our kernels");
}

static void results_that_differ_from_run_to_run_are_not_taken(void **state) {
    check_refused(*state, OUTPUTS_UNSTEADY, "have other bits when computed again");
}

/* First the limit allows one sample at a time, then none. */
static void a_batch_is_divided_until_its_workspace_is_within_the_limit(void **state) {
    algorithms_rig *f = *state;
    static computed c;
    cuda_emulation_dnn_tensor_core_bytes(1 << 20);
    f->config.workspace_limit_bytes = FRONT_BYTES + 2 * ENGINE_PLAIN_BYTES - 1;
    compute(f, &ATTENTION, &c);
    assert_int_equal(c.runs, 1 + 2); /* forward: both samples at once, as FRONT_BYTES are not needed */
    assert_int_equal(c.workspaces[MM_BACKWARD].bytes[0], FRONT_BYTES + ENGINE_PLAIN_BYTES);
    assert_maps_near(c.dx, ours(f)->dx, 3 * (int64_t)Y_ELEMS);
    f->config.workspace_limit_bytes = FRONT_BYTES + ENGINE_PLAIN_BYTES - 1;
    compute(f, &ATTENTION, &c);
    assert_int_equal(c.runs, 0);
}

static void cudnn_is_no_candidate_where_it_cannot_be(void **state) {
    algorithms_rig *f = *state;
    static computed c;
    nets_op_desc desc = ATTENTION;
    desc.adds_earlier = true;
    compute(f, &desc, &c);
    assert_int_equal(c.trials + c.runs, 0);
    (void)ours(f); /* ours() is deterministic: cuDNN is no candidate */
    cuda_emulation_dnn_version(NETS_CUDNN_ATTENTION_OLDEST - 1);
    compute(f, &ATTENTION, &c);
    assert_int_equal(c.trials + c.runs, 0);
}

static void an_interrupt_ends_the_choice_and_keeps_none(void **state) {
    algorithms_rig *f = *state;
    f->looked_for = "taken: ";
    algorithms_expect_stopped(f, &ATTENTION, "attention: ", 0);
    algorithms_expect_stopped(f, &ATTENTION, ", engine ", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_interrupt_ends_the_choice_and_keeps_none, setup, algorithms_teardown),
        cmocka_unit_test_setup_teardown(where_cudnn_is_faster_it_computes_the_same_attention, setup,
                                        algorithms_teardown),
        cmocka_unit_test_setup_teardown(cudnn_computes_the_same_where_heads_share_keys, setup, algorithms_teardown),
        cmocka_unit_test_setup_teardown(a_kept_choice_is_made_again_with_and_without_a_device, setup,
                                        algorithms_teardown),
        cmocka_unit_test_setup_teardown(where_an_unordered_backward_is_faster_it_is_taken_and_kept, setup,
                                        algorithms_teardown),
        cmocka_unit_test_setup_teardown(where_our_kernels_are_faster_they_are_taken_and_kept, setup,
                                        algorithms_teardown),
        cmocka_unit_test_setup_teardown(results_that_are_wrong_are_not_taken, setup, algorithms_teardown),
        cmocka_unit_test_setup_teardown(results_that_differ_from_run_to_run_are_not_taken, setup, algorithms_teardown),
        cmocka_unit_test_setup_teardown(a_batch_is_divided_until_its_workspace_is_within_the_limit, setup,
                                        algorithms_teardown),
        cmocka_unit_test_setup_teardown(cudnn_is_no_candidate_where_it_cannot_be, setup, algorithms_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
