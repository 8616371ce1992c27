/* SPDX-License-Identifier: MIT */
/* Steps on streams of the program's own, on emulated CUDA, where the CPU cannot reach the device's memory. Tasks are
 * late at random, so that a wait that is missing shows. (The emulation has no legacy stream.) */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/device/cuda/device_cuda.h"
#include "tests/core/expect.h"
#include "tests/cuda_emulation/control.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/mm/loop/loop_toy.h"

enum { ITERATIONS = 3, ARENA = 1 << 20, TIGHT = 24576, LATE_US = 256 };

static cudaStream_t own; /* the program's */
static atomic_int tasks; /* that have run */

static void run(void *arg) {
    static unsigned late; /* one thread runs the stream's tasks */
    late = late * 1103515245 + 12345;
    usleep(late >> 16 & (LATE_US - 1));
    toy_compute(arg);
    atomic_fetch_add(&tasks, 1);
}

static mm_status launch(const toy_task *task) {
    toy_task *copy = malloc(sizeof *copy);
    assert_non_null(copy);
    *copy = *task;
    return mm_cuda_check(cuda_emulation_enqueue(own, run, copy), "step");
}

static void sync_own(void) { assert_int_equal(cudaStreamSynchronize(own), cudaSuccess); }

static mm_manager *start_in(const char *policy, mm_issue issue, int64_t device_bytes) {
    mm_manager *m;
    const mm_options options = {.device = "cuda",
                                .device_bytes = device_bytes,
                                .pinned_bytes = ARENA,
                                .policy = policy,
                                .issue = issue,
                                .self_check = issue == MM_ISSUE_INLINE};
    cuda_emulation_reset();
    expect_ok(mm_manager_create(&options, &m));
    assert_int_equal(cudaStreamCreateWithPriority(&own, cudaStreamNonBlocking, 0), cudaSuccess);
    return m;
}

static mm_manager *start(const char *policy, mm_issue issue) { return start_in(policy, issue, ARENA); }

static void finish(mm_manager *m) {
    mm_manager_destroy(m);
    assert_int_equal(cudaStreamDestroy(own), cudaSuccess);
    const cuda_emulation_alive alive = cuda_emulation_alive_get();
    assert_int_equal(alive.streams + alive.events + alive.graphs + alive.ranges, 0);
    assert_int_equal(alive.device_bytes + alive.pinned_bytes, 0);
    assert_int_equal(cuda_emulation_strays(), 0);
}

static void toy_start(toy *t, mm_manager *m, mm_loop_options options) {
    options.stream = own;
    toy_init(t, m, &options);
    t->launch = launch;
    t->sync = sync_own;
    t->again = true;
}

TEST_CASE(steps_on_the_programs_stream_give_the_weights_of_plain_memory) {
    static const char *const policies[] = {"naive",
                                           "liveness",
                                           "swap-async:when=always",
                                           "recompute:mode=sqrt,when=always",
                                           "recompute-swap:when=always",
                                           "recompute-swap"};
    static toy t;
    const uint64_t wanted = toy_reference(ITERATIONS);
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int i = 0; i < 4; i++) {
            const bool tight = strcmp(policies[p], "recompute-swap") == 0;
            mm_manager *m = start_in(policies[p], i % 2 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD, tight ? TIGHT : ARENA);
            toy_start(&t, m, (mm_loop_options){.record = (mm_loop_record)(i / 2), .ahead = i / 2 == 0});
            for (int n = 0; n < ITERATIONS; n++) expect_ok(toy_iterate(&t, TOY_TRAIN));
            expect_ok(toy_iterate(&t, TOY_EVALUATE));
            if (toy_digest(&t) != wanted) fail_msg("%s, %d: other weights", policies[p], i);
            toy_fini(&t);
            finish(m);
        }
}

TEST_CASE(mms_own_stream_takes_no_events_more) {
    static toy t;
    long events[2];
    for (int mine = 0; mine < 2; mine++) {
        mm_manager *m = start("liveness", MM_ISSUE_THREAD);
        toy_start(&t, m, (mm_loop_options){0});
        if (mine) {
            mm_loop_destroy(t.loop);
            cudaStreamDestroy(own);
            own = mm_stream_handle(mm_compute_stream(m));
            expect_ok(mm_loop_create(m, &(mm_loop_options){.stream = own}, &t.loop));
        }
        for (int n = 0; n < ITERATIONS; n++) expect_ok(toy_iterate(&t, TOY_TRAIN));
        assert_int_equal(toy_digest(&t), toy_reference(ITERATIONS));
        events[mine] = cuda_emulation_calls("cudaEventRecord");
        toy_fini(&t);
        if (mine) assert_int_equal(cudaStreamCreateWithPriority(&own, cudaStreamNonBlocking, 0), cudaSuccess);
        finish(m);
    }
    assert_true(events[0] >= events[1] + 2 * ITERATIONS * TOY_BLOCKS);
}

static mm_status one_step(mm_manager *m, const mm_graph *graph, int s) {
    (void)graph;
    (void)s;
    return mm_layer_begin_on(m, 0, MM_FORWARD, own);
}

TEST_CASE(an_iteration_that_is_given_up_waits_for_the_programs_stream) {
    static toy t;
    mm_manager *m = start("liveness", MM_ISSUE_THREAD);
    float *x;
    const mm_slot slot = mm_slot_write("x", 0, &x, TOY_ELEMS * 4);
    toy_start(&t, m, (mm_loop_options){0});
    expect_ok(toy_iterate(&t, TOY_EVALUATE));
    for (int i = 0; i < 3; i++) {
        expect_ok(mm_loop_begin(t.loop, TOY_EVALUATE));
        assert_true(mm_loop_enter(t.loop, &(mm_loop_step){.name = "embed", .kind = MM_LAYER_EMBEDDING}, &slot, 1));
        atomic_store(&tasks, 0);
        for (int k = 0; k < 10; k++) expect_ok(launch(&(toy_task){.op = TOY_EMBED, .elems = TOY_ELEMS, .at = {x}}));
        mm_loop_abort(t.loop);
        assert_int_equal(atomic_load(&tasks), 10);
    }
    expect_ok(toy_iterate(&t, TOY_EVALUATE));
    toy_fini(&t);
    finish(m);
}

/* A graph of one step, which writes what persists. */
static mm_graph *small_graph(void) {
    mm_graph *graph;
    mm_layer layer;
    mm_tensor tensor;
    const mm_tensor_desc desc = {.name = "sum", .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {4}};
    expect_ok(mm_graph_create("small", &graph));
    expect_ok(mm_graph_add_tensor(graph, &desc, &tensor));
    expect_ok(mm_graph_add_layer(graph, "layer", MM_LAYER_OTHER, &layer));
    expect_ok(mm_graph_add_step(graph, layer, MM_FORWARD, &(mm_use){tensor, MM_MODIFY, MM_FORM_VALUE}, 1, 0));
    expect_ok(mm_graph_freeze(graph));
    return graph;
}

TEST_CASE(a_recording_for_replay_takes_mms_own_stream_only) {
    mm_manager *m = start("liveness", MM_ISSUE_INLINE);
    mm_graph *graph = small_graph();
    mm_manager_destroy(m); /* self_check does not go with recordings */
    expect_ok(mm_manager_create(&(mm_options){.device = "cuda", .device_bytes = ARENA, .issue = MM_ISSUE_INLINE}, &m));
    expect_ok(mm_iteration_begin(m, graph));
    expect_ok(one_step(m, graph, 0));
    expect_ok(mm_layer_end(m, 0, MM_FORWARD));
    expect_ok(mm_iteration_end(m));
    assert_int_equal(mm_replay_state(m, graph), MM_REPLAY_MAY);
    expect_ok(mm_record_begin(m, graph));
    assert_int_equal(one_step(m, graph, 0), MM_ERR_UNSUPPORTED);
    assert_non_null(strstr(mm_last_error(), "small is being recorded for replay"));
    expect_ok(mm_layer_begin(m, 0, MM_FORWARD, mm_compute_stream(m)));
    expect_ok(mm_layer_end(m, 0, MM_FORWARD));
    expect_ok(mm_record_end(m));
    expect_ok(mm_iteration_replay(m, graph));
    expect_ok(mm_manager_sync(m));
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
    expect_ok(mm_manager_create(&(mm_options){.device = "cuda", .device_bytes = ARENA}, &m));
    finish(m);
}

TEST_CASE(a_stream_that_is_captured_is_refused_and_the_iteration_can_be_given_up) {
    mm_manager *m = start("liveness", MM_ISSUE_THREAD);
    mm_graph *graph = small_graph();
    cudaGraph_t captured;
    expect_ok(mm_iteration_begin(m, graph));
    assert_int_equal(mm_layer_begin_on(m, 0, MM_BACKWARD, own), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "mm_layer_begin_on(layer backward) is out of order"));
    assert_int_equal(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(one_step(m, graph, 0), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "being captured"));
    assert_int_equal(cudaStreamEndCapture(own, &captured), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(captured), cudaSuccess);
    expect_ok(one_step(m, graph, 0));
    assert_int_equal(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(mm_layer_end(m, 0, MM_FORWARD), MM_ERR_ORDER);
    assert_int_equal(cudaStreamEndCapture(own, &captured), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(captured), cudaSuccess);
    expect_ok(mm_layer_end(m, 0, MM_FORWARD));
    expect_ok(mm_iteration_end(m));
    mm_iteration_abort(m);
    finish(m);
    mm_graph_destroy(graph);
}

/* Calls of CUDA that steps on the program's stream make fail: the iteration says so, and the next one runs. */
TEST_CASE(a_call_that_fails_fails_the_iteration_and_the_next_one_runs) {
    static const char *const calls[] = {"cudaEventRecord", "cudaStreamWaitEvent", "cudaMemsetAsync"};
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (long nth = 1; nth < 60; nth += 4) {
            static toy t;
            mm_manager *m = start("liveness", MM_ISSUE_THREAD);
            toy_start(&t, m, (mm_loop_options){0});
            expect_ok(toy_iterate(&t, TOY_TRAIN));
            cuda_emulation_fail(calls[c], nth, cudaErrorMemoryAllocation);
            const mm_status status = toy_iterate(&t, TOY_TRAIN);
            const bool failed = cuda_emulation_failed();
            cuda_emulation_fail(calls[c], 0, cudaSuccess);
            if (failed && status == MM_OK) fail_msg("call %ld of %s fails, and nothing says so", nth, calls[c]);
            sync_own();
            if (status != MM_OK) expect_ok(toy_iterate(&t, TOY_TRAIN));
            assert_int_equal(toy_digest(&t), toy_reference(2));
            toy_fini(&t);
            finish(m);
        }
}
