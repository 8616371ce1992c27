/* SPDX-License-Identifier: MIT */
/* Convolutions and products with several algorithms, on the emulation: a step offers several sizes of workspace, and
 * computes by the algorithm of the size it gets. The times are those of tests/cuda_emulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "mm/core/graph/graph.h"
#include "nets/lower/lower.h"
#include "tests/nets/algorithms_rig.h"

/* Workspaces of the legacy API's fast and small algorithms, in f32. */
enum { FAST = 4 * (8 * 144 * 8 + 8 * 144 * 16 + 1152) + CUDA_EMULATION_FMA_BYTES, SMALL = 1000 };

static nets_workspaces workspaces_of(const algorithms_rig *f, const nets_op_desc *desc, mm_phase phase) {
    nets_backend *backend;
    nets_op *op;
    if (nets_backend_open("cuda", &f->config, &backend) != MM_OK) fail_msg("%s", mm_last_error());
    if (nets_op_create(backend, desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    const nets_workspaces w = nets_op_workspaces(op, phase);
    nets_op_destroy(op);
    nets_backend_close(backend);
    return w;
}

static void check_sizes(const algorithms_rig *f, const nets_op_desc *desc, mm_phase phase, nets_workspaces expected) {
    const nets_workspaces w = workspaces_of(f, desc, phase);
    assert_int_equal(w.n, expected.n);
    for (int i = 0; i < w.n; i++) assert_int_equal(w.bytes[i], expected.bytes[i]);
}

static void an_output_has_the_fastest_algorithm_of_each_workspace(void **state) {
    algorithms_rig *f = *state;
    cuda_emulation_dnn_slow_engines(10);
    check_sizes(f, &CONV, MM_FORWARD, (nets_workspaces){3, {FAST, SMALL, 0}});
    f->config.workspace_limit_bytes = FAST - 1;
    check_sizes(f, &CONV, MM_FORWARD, (nets_workspaces){2, {SMALL, 0}});
}

/* Emulated times in ms. Gradient by input: 1 with FAST, else 1.2, 1.8 and 2.1 by engines; by weights: 0.4, 0.6 and 0.7
 * by engines. */
static void a_backward_has_the_fastest_of_both_gradients_in_each_workspace(void **state) {
    algorithms_rig *f = *state;
    nets_op_desc desc = CONV;
    check_sizes(f, &desc, MM_BACKWARD,
                (nets_workspaces){4, {FAST, ENGINE_NONDETERMINISTIC_BYTES, ENGINE_PLAIN_BYTES, 0}});
    desc.wants_dx = false;
    check_sizes(f, &desc, MM_BACKWARD, (nets_workspaces){3, {ENGINE_NONDETERMINISTIC_BYTES, ENGINE_PLAIN_BYTES, 0}});
    desc = CONV;
    desc.kind = NETS_LINEAR; /* a product, whose fastest algorithm is allowed for gradients only */
    desc.x[0].dims[1] = desc.x[0].dims[2] = desc.y.dims[1] = desc.y.dims[2] = 1;
    check_sizes(f, &desc, MM_FORWARD, (nets_workspaces){2, {PRODUCT_SPLIT_BYTES, 0}});
    check_sizes(f, &desc, MM_BACKWARD, (nets_workspaces){2, {PRODUCT_INPLACE_BYTES, 0}});
}

/* Both configurations share an algorithms file, and either may write it first: the file stores the whole Pareto
 * front. */
static void deterministic_steps_have_one_workspace(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    for (int first = 0; first < 2; first++) {
        for (int i = 0; i < 2; i++) {
            f->config.deterministic = i == first;
            cuda_emulation_dnn_slow_engines(10);
            const nets_workspaces several = {3, {FAST, SMALL, 0}}, one = {1, {FAST}};
            check_sizes(f, &CONV, MM_FORWARD, f->config.deterministic ? one : several);
        }
        unlink(f->path);
    }
    assert_int_equal(f->warnings, 0);
}

static void all_sizes_are_known_also_without_a_device(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    const nets_workspaces first = workspaces_of(f, &CONV, MM_BACKWARD);
    const long timed = cuda_emulation_dnn_timed(), executed = cuda_emulation_dnn_executed();
    for (int devices = 1; devices >= 0; devices--) {
        cuda_emulation_set_devices(devices);
        check_sizes(f, &CONV, MM_BACKWARD, first);
    }
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
    assert_int_equal(cuda_emulation_dnn_executed(), executed);
    assert_int_equal(f->warnings, 0);
}

/* ---------------------------------------------------------------- computing */

static int64_t end_of_what_was_written(const op_rig *rig) {
    const unsigned char *workspace = rig->args.at[NETS_WORKSPACE];
    int64_t end = rig->bytes[NETS_WORKSPACE];
    while (end > 0 && workspace[end - 1] == 0xff) end--;
    return end;
}

/* The emulated libraries write exactly the bytes that an algorithm asks for, and all algorithms add in the same
 * order. */
static void check_each_workspace(op_rig *rig, mm_phase phase, int at_least) {
    static const nets_role OUTPUTS[] = {NETS_Y, NETS_DX, NETS_DW, NETS_DB};
    const nets_workspaces w = nets_op_workspaces(rig->op, phase);
    void *expected[4] = {NULL};
    assert_true(w.n >= at_least);
    for (int i = 0; i < w.n; i++) {
        rig->args.workspace_bytes = w.bytes[i];
        op_rig_run(rig, phase);
        if (i < w.n - 1) assert_int_equal(end_of_what_was_written(rig), w.bytes[i]);
        for (int o = 0; o < 4; o++) {
            const size_t bytes = (size_t)rig->bytes[OUTPUTS[o]];
            if (bytes == 0) continue;
            if (i == 0) expected[o] = op_rig_alloc(rig, (int64_t)bytes);
            if (i == 0) memcpy(expected[o], rig->args.at[OUTPUTS[o]], bytes);
            assert_memory_equal(rig->args.at[OUTPUTS[o]], expected[o], bytes);
        }
    }
    rig->args.workspace_bytes = w.bytes[w.n - 1] - 1;
    assert_int_equal(nets_op_enqueue(rig->op, phase, &rig->args, rig->stream), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "it takes at least"));
    assert_int_equal(mm_stream_sync(rig->stream), MM_OK);
}

static void a_step_computes_by_the_algorithm_of_the_workspace_that_it_got(void **state) {
    static const struct {
        nets_op_kind kind;
        nets_attrs attrs;
        int sizes[2];
    } CASES[] = {
        {NETS_CONV, {.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}}, {2, 3}},
        {NETS_CONV, {.out_channels = 8, .kernel = {1, 1}}, {2, 2}},
        {NETS_CONV_TRANSPOSE, {.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}}, {2, 3}},
        {NETS_LINEAR, {.out_channels = 12}, {2, 2}},
    };
    algorithms_rig *f = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        op_rig rig;
        op_rig_init(&rig, CASES[i].kind, &CASES[i].attrs, (const int64_t[4]){2, 5, 5, 8}, true, true);
        op_rig_reopen(&rig, &f->config);
        for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++)
            check_each_workspace(&rig, phase, CASES[i].sizes[phase]);
        op_rig_fini(&rig);
    }
}

/* The new gradients, which are added to the earlier ones, lie behind the library's workspace, for each of its sizes. */
static void a_pass_that_adds_does_too(void **state) {
    algorithms_rig *f = *state;
    op_rig rig;
    op_rig_init(&rig, NETS_LINEAR, &(nets_attrs){.out_channels = 4, .bias = true}, (const int64_t[4]){2, 1, 1, 8}, true,
                true);
    rig.desc.pass = (nets_pass){.whole = 4, .adds = true};
    op_rig_reopen(&rig, &f->config);
    const nets_workspaces w = nets_op_workspaces(rig.op, MM_BACKWARD);
    op_rig_run(&rig, MM_FORWARD);
    void *expected = op_rig_alloc(&rig, rig.bytes[NETS_DW]);
    for (int i = 0; i < w.n; i++) {
        rig.args.workspace_bytes = w.bytes[i];
        memset(rig.args.at[NETS_DW], 0, (size_t)rig.bytes[NETS_DW]);
        op_rig_run(&rig, MM_BACKWARD);
        if (i == 0) memcpy(expected, rig.args.at[NETS_DW], (size_t)rig.bytes[NETS_DW]);
        assert_memory_equal(rig.args.at[NETS_DW], expected, (size_t)rig.bytes[NETS_DW]);
    }
    assert_int_equal(w.n, 2);
    op_rig_fini(&rig);
}

/* ---------------------------------------------------------------- graphs */

static nets_net *small_net(void) {
    nets_net *net;
    if (nets_net_create("small", &net) != MM_OK) fail_msg("%s", mm_last_error());
    int x = nets_add_data(net, 12, 12, 8, 5);
    x = nets_add1(net, "conv", NETS_CONV, &(nets_attrs){.out_channels = 16, .kernel = {3, 3}, .pad = {1, 1}}, x);
    x = nets_add1(net, "conv2", NETS_CONV, &(nets_attrs){.out_channels = 16, .kernel = {3, 3}, .pad = {1, 1}}, x);
    x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 5}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    return net;
}

/* Where the executor adds gradients to earlier ones, each size includes the bytes of the new gradients. */
static void steps_of_a_graph_may_run_with_each_of_their_ops_sizes(void **state) {
    algorithms_rig *f = *state;
    nets_net *net = small_net();
    nets_backend *backend;
    if (nets_backend_open("cuda", &f->config, &backend) != MM_OK) fail_msg("%s", mm_last_error());
    for (int adds = 0; adds < 2; adds++) {
        const nets_pass pass = {.whole = 16, .adds = adds, .goes_on = true};
        nets_lowered *lowered;
        int several = 0, behind_gradients = 0;
        if (nets_lower(net, backend, 8, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD, .pass = pass},
                       &lowered) != MM_OK)
            fail_msg("%s", mm_last_error());
        for (int s = 0; s < lowered->n_steps; s++) {
            const nets_step *step = &lowered->steps[s];
            const mm_step_info *info = mm_graph_step(lowered->graph, s);
            if (!step->op) continue;
            const nets_workspaces w = nets_op_workspaces(step->op, step->phase);
            several += w.n > 1;
            behind_gradients += w.n > 1 && step->op_workspace_at > 0;
            assert_int_equal(info->n_less, w.n - 1);
            assert_int_equal(info->workspace_bytes, step->op_workspace_at + w.bytes[0]);
            for (int i = 1; i < w.n; i++) assert_int_equal(info->less_bytes[i - 1], step->op_workspace_at + w.bytes[i]);
        }
        assert_int_equal(several, 6);
        assert_int_equal(behind_gradients, adds ? 2 : 0); /* 2: the two convolutions; the linear layer adds by itself */
        nets_lowered_destroy(lowered);
    }
    nets_backend_close(backend);
    nets_net_destroy(net);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, algorithms_setup, algorithms_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(an_output_has_the_fastest_algorithm_of_each_workspace),
        CASE(a_backward_has_the_fastest_of_both_gradients_in_each_workspace),
        CASE(deterministic_steps_have_one_workspace),
        CASE(all_sizes_are_known_also_without_a_device),
        CASE(a_step_computes_by_the_algorithm_of_the_workspace_that_it_got),
        CASE(a_pass_that_adds_does_too),
        CASE(steps_of_a_graph_may_run_with_each_of_their_ops_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
