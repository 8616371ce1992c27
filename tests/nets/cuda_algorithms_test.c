/* SPDX-License-Identifier: MIT */
/* How the CUDA backend chooses algorithms for convolutions, on the emulation. "Kept" is cached in the algorithms
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/nets/algorithms_rig.h"

/* Workspaces of the emulated legacy algorithms: the fast one's (TENSORS_BYTES; in plain float32 EXACT_BYTES), and a
 * small one's. */
enum {
    TENSORS_BYTES = 4 * (8 * 144 * 8 + 8 * 144 * 16 + 1152),
    EXACT_BYTES = TENSORS_BYTES + CUDA_EMULATION_FMA_BYTES,
    SMALL = 1000
};
/* Launches to time one candidate: a warm-up, one that shows whether it is worth more, four more. */
enum { LAUNCHES = 1 + 1 + 4 };

/* ---------------------------------------------------------------- algorithms */

static void workspaces_without_a_device_are_what_the_limit_allows(void **state) {
    algorithms_rig *f = *state;
    cuda_emulation_set_devices(0);
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), (1 << 20));
    assert_int_equal(algorithms_workspace(f, &CONV, MM_BACKWARD), (1 << 20));
    f->config.workspace_limit_bytes = 0;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), NETS_WORKSPACE_LIMIT_BYTES);
}

static void algorithms_are_timed_once_and_then_known_also_without_a_device(void **state) {
    algorithms_rig *f = *state;
    long timed = cuda_emulation_dnn_timed();
    f->config.algorithms_path = f->path;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
    assert_true(cuda_emulation_dnn_timed() > timed);
    timed = cuda_emulation_dnn_timed();
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
    cuda_emulation_set_devices(0);
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
    assert_int_equal(f->warnings, 0);
}

static void layers_of_one_shape_are_timed_once_without_a_file(void **state) {
    algorithms_rig *f = *state;
    nets_backend *backend;
    nets_op *op[2];
    assert_int_equal(nets_backend_open("cuda", &f->config, &backend), MM_OK);
    assert_int_equal(nets_op_create(backend, &CONV, &op[0]), MM_OK);
    long timed = cuda_emulation_dnn_timed();
    assert_int_equal(nets_op_create(backend, &CONV, &op[1]), MM_OK);
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
    for (int i = 0; i < 2; i++) nets_op_destroy(op[i]);
    nets_backend_close(backend);
}

static void timing_gives_all_memory_back(void **state) {
    algorithms_rig *f = *state;
    size_t before = cuda_emulation_alive_get().device_bytes;
    algorithms_workspace(f, &CONV, MM_FORWARD);
    assert_int_equal(cuda_emulation_alive_get().device_bytes, before);
}

/* The last op's stream is destroyed; the next op is still timed. */
static void algorithms_are_timed_after_the_last_ones_stream_is_gone(void **state) {
    algorithms_rig *f = *state;
    op_rig rig;
    nets_op *op;
    nets_op_desc desc = CONV;
    op_rig_init(&rig, NETS_CONV, &CONV.attrs, CONV.x[0].dims, true, true);
    op_rig_reopen(&rig, &f->config);
    op_rig_run(&rig, MM_FORWARD);
    mm_stream_destroy(rig.stream);
    long timed = cuda_emulation_dnn_timed();
    desc.x[0].dims[0] = desc.y.dims[0] = 4;
    if (nets_op_create(rig.backend, &desc, &op) != MM_OK) fail_msg("%s", mm_last_error());
    assert_true(cuda_emulation_dnn_timed() > timed);
    assert_int_equal(f->warnings, 0);
    nets_op_destroy(op);
    assert_int_equal(mm_stream_create(rig.device, "rig", 0, &rig.stream), MM_OK);
    op_rig_fini(&rig);
}

/* Two of the algorithms that fit the first limit are hardly apart: the faster takes 2000 bytes and gains only 1 %, so
 * the smaller is taken. */
static void the_limit_bounds_the_workspace_and_of_equals_the_smaller_is_taken(void **state) {
    algorithms_rig *f = *state;
    cuda_emulation_dnn_slow_engines(10);
    f->config.workspace_limit_bytes = EXACT_BYTES - 1;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), SMALL);
    f->config.workspace_limit_bytes = SMALL - 1;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), 0);
}

/* The fast algorithm fits the limit in TF32, but not in plain float32. */
static void the_workspace_is_that_of_the_precision_that_is_set(void **state) {
    algorithms_rig *f = *state;
    cuda_emulation_dnn_slow_engines(10);
    f->config.workspace_limit_bytes = TENSORS_BYTES;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), SMALL);
    f->config.precision = NETS_TF32;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), TENSORS_BYTES);
}

static void deterministic_takes_only_what_is(void **state) {
    algorithms_rig *f = *state;
    cuda_emulation_dnn_slow_engines(10);
    assert_int_equal(algorithms_workspace(f, &CONV, MM_BACKWARD), EXACT_BYTES);
    f->config.deterministic = true;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_BACKWARD), SMALL);
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
}

static nets_op_desc transposed(void) {
    nets_op_desc desc = CONV;
    desc.kind = NETS_CONV_TRANSPOSE;
    return desc;
}

/* To cuDNN a transposed convolution's output is a gradient by the input, for which the fast algorithm is not
 * deterministic. */
static void outputs_are_deterministic_even_where_gradients_need_not_be(void **state) {
    algorithms_rig *f = *state;
    const nets_op_desc back = transposed();
    cuda_emulation_dnn_slow_engines(10);
    assert_int_equal(algorithms_workspace(f, &back, MM_FORWARD), SMALL);
    assert_int_equal(algorithms_workspace(f, &back, MM_BACKWARD), EXACT_BYTES);
    cuda_emulation_dnn_slow_engines(0.1);
    for (int i = 0; i < 2; i++) {
        const nets_op_desc *desc = i ? &back : &CONV;
        assert_int_equal(algorithms_workspace(f, desc, MM_FORWARD), ENGINE_PLAIN_BYTES);
        assert_int_equal(algorithms_workspace(f, desc, MM_BACKWARD), ENGINE_NONDETERMINISTIC_BYTES);
    }
}

/* CONV's output and the gradient of a transposed convolution are the same forward convolution to cuDNN. */
static void an_output_does_not_take_what_was_kept_for_a_gradient(void **state) {
    algorithms_rig *f = *state;
    nets_op_desc back = transposed();
    back.x[0].dims[3] = 16;
    back.y.dims[3] = back.attrs.out_channels = 8;
    f->config.algorithms_path = f->path;
    cuda_emulation_dnn_slow_engines(0.1);
    for (int again = 0; again < 2; again++) {
        long timed = cuda_emulation_dnn_timed();
        assert_int_equal(algorithms_workspace(f, &back, MM_BACKWARD), ENGINE_NONDETERMINISTIC_BYTES);
        assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), ENGINE_PLAIN_BYTES);
        assert_true(again ? cuda_emulation_dnn_timed() == timed : cuda_emulation_dnn_timed() > timed);
    }
}

/* cudaMalloc fails for one of the tensors or the workspace. nth begins at 2, because the first call of cudaMalloc is
 * the backend's own. */
static void without_memory_to_time_in_cudnns_guess_is_taken_and_not_kept(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    for (int nth = 2; nth <= 5; nth++) {
        long listed = cuda_emulation_dnn_listed();
        f->warnings = 0;
        cuda_emulation_fail("cudaMalloc", nth, cudaErrorMemoryAllocation);
        assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
        assert_true(cuda_emulation_failed());
        assert_true(cuda_emulation_dnn_listed() > listed);
        assert_int_equal(f->warnings, 1);
        assert_int_equal(cuda_emulation_alive_get().device_bytes, 0);
        unlink(f->path);
    }
}

static void check_guessed(algorithms_rig *f) {
    long listed = cuda_emulation_dnn_listed();
    f->warnings = 0;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
    assert_true(cuda_emulation_failed());
    assert_true(cuda_emulation_dnn_listed() > listed);
    assert_int_equal(f->warnings, 1);
    const cuda_emulation_alive alive = cuda_emulation_alive_get();
    assert_int_equal(alive.device_bytes + (size_t)alive.streams + (size_t)alive.events, 0);
    unlink(f->path);
}

static void where_timing_cannot_begin_cudnns_guess_is_taken_and_not_kept(void **state) {
    static const char *const CALLS[] = {"cudaStreamCreateWithPriority", "cudaEventCreateWithFlags", "cudaMemcpyAsync"};
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        cuda_emulation_fail(CALLS[i], 1, cudaErrorMemoryAllocation);
        check_guessed(f);
    }
}

/* The legacy algorithm fails when cuDNN times it (nth 1 and 2), or when the backend does (from nth 3 on). Each time the
 * best engine is chosen and kept. */
static void a_legacy_algorithm_that_fails_is_left_out(void **state) {
    static const char *const CALLS[] = {"cudaEventRecord",        "cudaEventSynchronize", "cudaEventElapsedTime",
                                        "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate",
                                        "cudaGraphUpload",        "cudaGraphLaunch"};
    enum { FAILURES = sizeof CALLS / sizeof CALLS[0] };
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    f->config.log.level = MM_LOG_DEBUG;
    for (int nth = 1; nth <= 2 + LAUNCHES + FAILURES; nth++) {
        const char *call = nth <= 2 + LAUNCHES ? "kernel_launch" : CALLS[nth - 2 - LAUNCHES - 1];
        f->looked_for = nth <= 2 ? "  no algorithm: " : ", math 3: cu";
        f->found = 0;
        cuda_emulation_fail(call, nth <= 2 + LAUNCHES ? nth : 1, cudaErrorLaunchFailure);
        assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), ENGINE_PLAIN_BYTES);
        assert_true(cuda_emulation_failed());
        assert_int_equal(f->found, 1);
        assert_int_equal(f->warnings, 0);
        long timed = cuda_emulation_dnn_timed();
        assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), ENGINE_PLAIN_BYTES);
        assert_int_equal(cuda_emulation_dnn_timed(), timed);
        assert_int_equal(cuda_emulation_alive_get().device_bytes, 0);
        unlink(f->path);
    }
}

/* ---------------------------------------------------------------- engines of the graph API */

static void check_engine(algorithms_rig *f, nets_precision precision, bool deterministic, int64_t output,
                         int64_t gradients) {
    f->config.precision = precision;
    f->config.deterministic = deterministic;
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), output);
    assert_int_equal(algorithms_workspace(f, &CONV, MM_BACKWARD), gradients);
}

static void the_fastest_engine_that_is_allowed_is_taken(void **state) {
    algorithms_rig *f = *state;
    cuda_emulation_dnn_slow_engines(0.1);
    check_engine(f, NETS_FP32, false, ENGINE_PLAIN_BYTES, ENGINE_NONDETERMINISTIC_BYTES);
    check_engine(f, NETS_FP32, true, ENGINE_PLAIN_BYTES, ENGINE_PLAIN_BYTES);
    check_engine(f, NETS_TF32, false, ENGINE_TENSOR_CORE_BYTES, ENGINE_TENSOR_CORE_BYTES);
    check_engine(f, NETS_TF32, true, ENGINE_TENSOR_CORE_BYTES, ENGINE_TENSOR_CORE_BYTES);
    f->config.workspace_limit_bytes = ENGINE_PLAIN_BYTES - 1;
    check_engine(f, NETS_FP32, true, 0, 0);
    assert_int_equal(f->warnings, 0);
}

static void an_engine_is_timed_once_and_then_known_also_without_a_device(void **state) {
    algorithms_rig *f = *state;
    f->config.algorithms_path = f->path;
    cuda_emulation_dnn_slow_engines(0.1);
    check_engine(f, NETS_TF32, false, ENGINE_TENSOR_CORE_BYTES, ENGINE_TENSOR_CORE_BYTES);
    long executed = cuda_emulation_dnn_executed(), timed = cuda_emulation_dnn_timed();
    check_engine(f, NETS_TF32, false, ENGINE_TENSOR_CORE_BYTES, ENGINE_TENSOR_CORE_BYTES);
    assert_int_equal(cuda_emulation_dnn_executed(), executed);
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
    cuda_emulation_set_devices(0);
    check_engine(f, NETS_TF32, false, ENGINE_TENSOR_CORE_BYTES, ENGINE_TENSOR_CORE_BYTES);
    assert_int_equal(f->warnings, 0);
}

static void rigs_have_the_same_algorithms(void **state) {
    (void)state;
    op_rig rigs[2];
    const nets_attrs attrs = {.out_channels = 4, .kernel = {2, 2}};
    long timed = cuda_emulation_dnn_timed();
    op_rig_init(&rigs[0], NETS_CONV, &attrs, (const int64_t[4]){1, 5, 6, 8}, true, true);
    assert_true(cuda_emulation_dnn_timed() > timed);
    timed = cuda_emulation_dnn_timed();
    op_rig_init(&rigs[1], NETS_CONV, &attrs, (const int64_t[4]){1, 5, 6, 8}, true, true);
    assert_int_equal(cuda_emulation_dnn_timed(), timed);
    for (int i = 0; i < 2; i++) op_rig_fini(&rigs[i]);
}

static nets_op_desc evaluated(void) {
    nets_op_desc desc = CONV;
    desc.training = desc.wants_dx = false;
    return desc;
}

/* There is no candidate: the limit allows no workspace, the gradient is added, and the legacy algorithm fails. */
static void where_there_is_no_candidate_the_engines_that_always_can_are_asked_for(void **state) {
    algorithms_rig *f = *state;
    nets_op_desc desc = CONV;
    f->config.workspace_limit_bytes = 1;
    f->config.precision = NETS_TF32;
    desc.wants_dx = false;
    long launches = cuda_emulation_calls("kernel_launch");
    algorithms_workspace(f, &desc, MM_BACKWARD);
    desc.wants_dx = desc.adds_earlier = true;
    cuda_emulation_fail("kernel_launch", (int)(cuda_emulation_calls("kernel_launch") - launches + 1),
                        cudaErrorLaunchFailure);
    assert_int_equal(algorithms_workspace(f, &desc, MM_BACKWARD), 0);
    assert_true(cuda_emulation_failed());
}

static void where_tensor_cores_need_it_they_may_take_more_than_the_default_limit(void **state) {
    enum { MORE = NETS_WORKSPACE_LIMIT_BYTES + 256 };
    static const struct {
        int64_t limit, takes;
        nets_precision precision;
        double slow; /* factor on engines' times; at 0.9 the engine gains only 5 % */
        int64_t expected;
    } CASES[] = {
        {0, MORE, NETS_TF32, 0.1, MORE},
        {0, MORE, NETS_TF32, 0.9, TENSORS_BYTES},
        {0, MORE, NETS_FP32, 0.1, ENGINE_PLAIN_BYTES},
        {0, NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES + 1, NETS_TF32, 0.1, ENGINE_PLAIN_BYTES},
        {NETS_WORKSPACE_LIMIT_BYTES, MORE, NETS_TF32, 0.1, ENGINE_PLAIN_BYTES},
        {MORE, MORE, NETS_TF32, 0.1, MORE},
    };
    algorithms_rig *f = *state;
    const nets_op_desc desc = evaluated();
    f->config.deterministic = true;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        f->config.workspace_limit_bytes = CASES[i].limit;
        f->config.precision = CASES[i].precision;
        cuda_emulation_dnn_tensor_core_bytes(CASES[i].takes);
        cuda_emulation_dnn_slow_engines(CASES[i].slow);
        assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), CASES[i].expected);
        assert_int_equal(cuda_emulation_alive_get().device_bytes, 0);
    }
    assert_int_equal(f->warnings, 0);
}

/* cudaMalloc's sixth call, for the larger workspace, fails once: the first op then keeps no choice for the higher
 * limit. */
static void more_than_the_default_limit_is_kept_for_it_and_not_for_one_that_is_given(void **state) {
    algorithms_rig *f = *state;
    const nets_op_desc desc = evaluated();
    const int64_t more = NETS_WORKSPACE_LIMIT_BYTES + 256;
    f->config = (nets_backend_config){
        .precision = NETS_TF32, .deterministic = true, .algorithms_path = f->path, .log = f->config.log};
    cuda_emulation_dnn_tensor_core_bytes(more);
    cuda_emulation_dnn_slow_engines(0.1);
    cuda_emulation_fail("cudaMalloc", 6, cudaErrorMemoryAllocation);
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), ENGINE_PLAIN_BYTES);
    assert_true(cuda_emulation_failed());
    for (int devices = 1; devices >= 0; devices--) {
        cuda_emulation_set_devices(devices);
        assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), more);
    }
    f->config.workspace_limit_bytes = NETS_WORKSPACE_LIMIT_BYTES;
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), NETS_WORKSPACE_LIMIT_BYTES);
    cuda_emulation_set_devices(2);
    assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), ENGINE_PLAIN_BYTES);
    assert_int_equal(f->warnings, 0);
}

/* Fails each call that reads the first engine of the first list. The best engine is the sixth. */
static void an_engine_that_cannot_be_read_hides_no_other(void **state) {
    algorithms_rig *f = *state;
    const nets_op_desc desc = evaluated();
    cuda_emulation_dnn_slow_engines(0.1);
    f->config.precision = NETS_TF32;
    f->config.log.level = MM_LOG_DEBUG;
    f->looked_for = ": cannot be read";
    for (int nth = 2; nth <= 2 + 4; nth++) {
        f->found = 0;
        cuda_emulation_fail("cudnnBackendGetAttribute", nth, cudaErrorMemoryAllocation);
        assert_int_equal(algorithms_workspace(f, &desc, MM_FORWARD), ENGINE_TENSOR_CORE_BYTES);
        assert_true(cuda_emulation_failed());
        assert_int_equal(f->found, 1);
    }
}

/* Same bits, because all engines and algorithms of the emulation add in the same order. */
static void engines_compute_what_algorithms_compute(void **state) {
    static const nets_role outputs[] = {NETS_Y, NETS_DX, NETS_DW};
    const nets_attrs attrs = {.out_channels = 12, .kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 0}, .groups = 2};
    algorithms_rig *f = *state;
    f->config.deterministic = true;
    for (int transposed = 0; transposed < 2; transposed++)
        for (int adds = 0; adds < 2; adds++) {
            op_rig rigs[2];
            for (int fast = 0; fast < 2; fast++) {
                cuda_emulation_dnn_slow_engines(fast ? 0.1 : 10);
                op_rig_init(&rigs[fast], transposed ? NETS_CONV_TRANSPOSE : NETS_CONV, &attrs,
                            (const int64_t[4]){2, 7, 5, 6}, true, true);
                op_rig_reopen(&rigs[fast], &f->config); /* its configuration has no file, so each rig times again */
                if (adds) op_rig_give_earlier(&rigs[fast], rigs[fast].args.at[NETS_X]);
                long executed = cuda_emulation_dnn_executed();
                for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) op_rig_run(&rigs[fast], phase);
                assert_int_equal(cuda_emulation_dnn_executed() - executed, fast ? 3 : 0);
            }
            for (int i = 0; i < 3; i++)
                assert_memory_equal(rigs[0].args.at[outputs[i]], rigs[1].args.at[outputs[i]],
                                    (size_t)rigs[0].bytes[outputs[i]]);
            for (int fast = 0; fast < 2; fast++) op_rig_fini(&rigs[fast]);
        }
}

static int messages_with(algorithms_rig *f, const char *text) {
    f->config.log.level = MM_LOG_DEBUG;
    f->looked_for = text;
    f->found = 0;
    algorithms_workspace(f, &CONV, MM_FORWARD);
    return f->found;
}

static void the_log_says_what_was_tried_and_why_not(void **state) {
    algorithms_rig *f = *state;
    f->config.deterministic = true;
    static const char *const WHY[] = {
        "converts its inputs", "does not sum in float32", "rounds to TF32", "not deterministic",
        "has to be compiled",  "more than the limit",     "taken: "};
    for (size_t i = 0; i < sizeof WHY / sizeof WHY[0]; i++) assert_true(messages_with(f, WHY[i]) > 0);
}

/* Fails one call of the graph API at a time: an op then chooses among fewer engines, or only among the legacy
 * algorithms. */
static void where_the_graph_api_fails_others_are_taken(void **state) {
    static const char *const CALLS[] = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                        "cudnnBackendFinalize", "cudnnBackendGetAttribute", "cudnnBackendExecute"};
    algorithms_rig *f = *state;
    cuda_emulation_dnn_slow_engines(0.1);
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        long before = cuda_emulation_calls(CALLS[i]);
        algorithms_workspace(f, &CONV, MM_FORWARD);
        long calls = cuda_emulation_calls(CALLS[i]) - before;
        for (long nth = 1; nth <= calls; nth += 1 + nth / 16) {
            cuda_emulation_fail(CALLS[i], nth, cudaErrorMemoryAllocation);
            int64_t bytes = algorithms_workspace(f, &CONV, MM_FORWARD);
            assert_true(cuda_emulation_failed());
            assert_true(bytes == ENGINE_PLAIN_BYTES || bytes == 0 || bytes == EXACT_BYTES);
            assert_int_equal(cuda_emulation_dnn_descriptors(), 0);
            assert_int_equal(cuda_emulation_alive_get().device_bytes, 0);
        }
    }
    cuda_emulation_fail(CALLS[0], 1, cudaErrorMemoryAllocation);
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
    assert_int_equal(f->warnings, 0);
}

static void a_launch_of_an_engine_that_fails_is_reported(void **state) {
    algorithms_rig *f = *state;
    op_rig rig;
    cuda_emulation_dnn_slow_engines(0.1);
    op_rig_init(&rig, NETS_CONV, &(nets_attrs){.out_channels = 8, .kernel = {1, 1}}, (const int64_t[4]){2, 6, 6, 8},
                true, true);
    op_rig_reopen(&rig, &f->config);
    static const char *const CALLS[] = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                        "cudnnBackendFinalize", "cudnnBackendExecute", "kernel_launch"};
    for (size_t i = 0; i < sizeof CALLS / sizeof CALLS[0]; i++) {
        cuda_emulation_fail(CALLS[i], 1, cudaErrorMemoryAllocation);
        assert_int_equal(nets_op_enqueue(rig.op, MM_FORWARD, &rig.args, rig.stream), MM_ERR_NOMEM);
        assert_int_equal(mm_stream_sync(rig.stream), MM_OK);
    }
    op_rig_run(&rig, MM_FORWARD);
    op_rig_fini(&rig);
}

/* Replaces the kept choice, for example by one that this library lacks. */
static void keep_instead(algorithms_rig *f, const nets_conv_choice *choice) {
    const nets_conv_shape forward = {.direction = NETS_CONV_FORWARD,
                                     .x = {8, 12, 12, 8},
                                     .y = {8, 12, 12, 16},
                                     .kernel = {3, 3},
                                     .stride = {1, 1},
                                     .pad = {1, 1},
                                     .dilation = {1, 1},
                                     .groups = 1};
    algorithms_workspace(f, &CONV, MM_FORWARD);
    algorithms_keep_instead(f, &forward, choice);
}

static void a_kept_choice_that_no_longer_holds_is_made_anew(void **state) {
    algorithms_rig *f = *state;
    static const nets_conv_choice GONE[] = {
        {.api = NETS_CONV_LEGACY, .algorithm = 999},
        {.api = NETS_CONV_LEGACY, .algorithm = 2, .math = 3, .workspace_bytes = EXACT_BYTES - 1},
        {.api = NETS_CONV_GRAPH, .algorithm = 999},
        {.api = NETS_CONV_GRAPH, .algorithm = ENGINE_PLAIN, .workspace_bytes = 1 << 20},
        {.api = NETS_CONV_GRAPH,
         .algorithm = ENGINE_PLAIN,
         .workspace_bytes = ENGINE_PLAIN_BYTES - 1,
         .n_knobs = 2,
         .knobs = {{2, 8}, {14, 1}}},
    };
    f->config.algorithms_path = f->path;
    for (size_t i = 0; i < sizeof GONE / sizeof GONE[0]; i++) {
        keep_instead(f, &GONE[i]);
        long timed = cuda_emulation_dnn_timed();
        assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), EXACT_BYTES);
        assert_true(cuda_emulation_dnn_timed() > timed);
    }
    keep_instead(f, &(nets_conv_choice){.api = NETS_CONV_GRAPH,
                                        .algorithm = ENGINE_PLAIN,
                                        .workspace_bytes = ENGINE_PLAIN_BYTES,
                                        .n_knobs = 2,
                                        .knobs = {{2, 8}, {14, 1}}});
    assert_int_equal(algorithms_workspace(f, &CONV, MM_FORWARD), ENGINE_PLAIN_BYTES);
}

/* The maps exceed 2^31 elements and the emulated device's memory: nothing is timed. */
static void maps_beyond_the_legacy_apis_counters_are_left_to_engines(void **state) {
    algorithms_rig *f = *state;
    nets_backend *backend;
    nets_op *op;
    nets_op_desc huge = CONV;
    huge.x[0].dims[0] = huge.y.dims[0] = INT64_C(1) << 20;
    assert_int_equal(algorithms_workspace(f, &huge, MM_BACKWARD), ENGINE_NONDETERMINISTIC_BYTES);
    assert_int_equal(f->warnings, 1);
    assert_int_equal(nets_backend_open("cuda", &f->config, &backend), MM_OK);
    cuda_emulation_fail("cudnnBackendFinalize", 1, cudaErrorMemoryAllocation);
    assert_int_equal(nets_op_create(backend, &huge, &op), MM_ERR_UNSUPPORTED);
    huge.x[0].dims[0] = huge.y.dims[0] = INT64_C(1) << 26;
    assert_int_equal(nets_op_create(backend, &huge, &op), MM_ERR_UNSUPPORTED);
    nets_backend_close(backend);
    cuda_emulation_set_devices(0);
    huge.x[0].dims[0] = huge.y.dims[0] = INT64_C(1) << 20;
    assert_int_equal(algorithms_workspace(f, &huge, MM_FORWARD), (1 << 20));
}

/* An op has some twenty candidates, and a network dozens of ops. " ms": also what cuDNN times; " ms, ": only what this
 * backend times. */
static void an_interrupt_ends_the_timing_after_the_candidate_that_runs(void **state) {
    algorithms_rig *f = *state;
    f->looked_for = " ms";
    algorithms_expect_stopped(f, &CONV, "a convolution ", 0);
    f->looked_for = " ms, ";
    algorithms_expect_stopped(f, &CONV, " ms, ", 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, algorithms_setup, algorithms_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(workspaces_without_a_device_are_what_the_limit_allows),
        CASE(algorithms_are_timed_once_and_then_known_also_without_a_device),
        CASE(layers_of_one_shape_are_timed_once_without_a_file),
        CASE(timing_gives_all_memory_back),
        CASE(algorithms_are_timed_after_the_last_ones_stream_is_gone),
        CASE(the_limit_bounds_the_workspace_and_of_equals_the_smaller_is_taken),
        CASE(the_workspace_is_that_of_the_precision_that_is_set),
        CASE(deterministic_takes_only_what_is),
        CASE(outputs_are_deterministic_even_where_gradients_need_not_be),
        CASE(an_output_does_not_take_what_was_kept_for_a_gradient),
        CASE(without_memory_to_time_in_cudnns_guess_is_taken_and_not_kept),
        CASE(where_timing_cannot_begin_cudnns_guess_is_taken_and_not_kept),
        CASE(a_legacy_algorithm_that_fails_is_left_out),
        CASE(a_kept_choice_that_no_longer_holds_is_made_anew),
        CASE(the_fastest_engine_that_is_allowed_is_taken),
        CASE(an_engine_is_timed_once_and_then_known_also_without_a_device),
        CASE(where_there_is_no_candidate_the_engines_that_always_can_are_asked_for),
        CASE(where_tensor_cores_need_it_they_may_take_more_than_the_default_limit),
        CASE(more_than_the_default_limit_is_kept_for_it_and_not_for_one_that_is_given),
        CASE(an_engine_that_cannot_be_read_hides_no_other),
        CASE(rigs_have_the_same_algorithms),
        CASE(engines_compute_what_algorithms_compute),
        CASE(the_log_says_what_was_tried_and_why_not),
        CASE(where_the_graph_api_fails_others_are_taken),
        CASE(a_launch_of_an_engine_that_fails_is_reported),
        CASE(an_interrupt_ends_the_timing_after_the_candidate_that_runs),
        CASE(maps_beyond_the_legacy_apis_counters_are_left_to_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
