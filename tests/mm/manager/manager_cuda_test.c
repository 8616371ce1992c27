/* SPDX-License-Identifier: MIT */
/* Managers on emulated CUDA: the CPU cannot reach the memory, the training thread does not wait for streams, and
 * iterations are recorded and replayed. Mock steps run on the compute stream. */
#include <stdio.h>
#include <string.h>

#include "tests/core/test_case.h"
#include "tests/cuda_emulation/control.h"
#include "tests/cuda_emulation/enqueue.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 11, LAYERS = 12, ITERATIONS = 4 };

/* How iterations follow each other. */
typedef enum follow { DRAINED, AHEAD, REPLAYED, FOLLOWS } follow;

static const char *const FOLLOW_NAMES[] = {"drained", "ahead", "replayed"};

static const char *const POLICIES[] = {
    "naive", "liveness", "swap", "swap-async:when=always", "vdnn-all:when=always", "rules:*=swap,depth=3,when=always",
};
enum { POLICIES_N = sizeof POLICIES / sizeof *POLICIES };

/* ---------------------------------------------------------------- running */

static void expect_ok(const char *policy, mm_status status) {
    if (status != MM_OK) fail_msg("%s: %s", policy, mm_last_error());
}

static void record(rig *r, mm_manager *m) {
    mm_status begun = mm_record_begin(m, r->graph);
    if (begun == MM_ERR_UNSUPPORTED) return;
    expect_ok("recording", begun);
    expect_ok("recording", rig_steps(r, m, RIG_STREAM, 0, mm_graph_steps(r->graph)));
    expect_ok("recording", mm_record_end(m));
}

/* Runs one iteration. REPLAYED: records as soon as the manager allows it, as an executor does, and then replays. */
static mm_status iterate(rig *r, mm_manager *m, follow how) {
    if (how == DRAINED) return rig_iteration(r, m, RIG_STREAM);
    if (how == REPLAYED && mm_replay_state(m, r->graph) == MM_REPLAY_MAY) record(r, m);
    if (mm_replay_state(m, r->graph) == MM_REPLAY_READY) return mm_iteration_replay(m, r->graph);
    return rig_iteration_ahead(r, m, RIG_STREAM);
}

typedef struct fixture {
    mm_graph *graph;
    rig rig;
    mm_manager *m;
} fixture;

/* Starts a manager without resetting the emulation, so that earlier managers stay valid. */
static void start_beside(fixture *f, const char *policy, mm_issue issue, mm_options options) {
    f->graph = rig_random_graph(SEED, LAYERS, 6);
    rig_need need = rig_needs(f->graph, policy, 0, INT64_MAX);
    if (!options.device) options.device = "cuda";
    options.policy = policy;
    options.issue = issue;
    options.pinned_bytes = need.pinned_bytes;
    if (options.device_bytes == 0) options.device_bytes = need.device_bytes;
    f->m = rig_manager(&options);
    rig_init(&f->rig, f->graph, SEED);
    expect_ok(policy, rig_bind(&f->rig, f->m));
}

static void start(fixture *f, const char *policy, mm_issue issue, mm_options options) {
    cuda_emulation_reset();
    start_beside(f, policy, issue, options);
}

static void finish_beside(fixture *f) {
    mm_manager_destroy(f->m);
    rig_fini(&f->rig);
    mm_graph_destroy(f->graph);
}

static void finish(fixture *f) {
    finish_beside(f);
    cuda_emulation_alive alive = cuda_emulation_alive_get();
    assert_int_equal(alive.streams + alive.events + alive.graphs + alive.ranges, 0);
    assert_int_equal(alive.device_bytes + alive.pinned_bytes, 0);
}

static uint64_t expected_digest(const mm_graph *graph, int iterations) {
    uint64_t expected;
    expected = random_graph_reference(graph, SEED, iterations);
    return expected;
}

TEST_CASE(results_are_those_without_a_manager) {
    for (int p = 0; p < POLICIES_N; p++)
        for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++)
            for (follow how = DRAINED; how < FOLLOWS; how++) {
                fixture f;
                start(&f, POLICIES[p], (mm_issue)issue,
                      (mm_options){.self_check = how == DRAINED, .verify_issued = how != DRAINED});
                for (int i = 0; i < ITERATIONS; i++) expect_ok(POLICIES[p], iterate(&f.rig, f.m, how));
                expect_ok(POLICIES[p], mm_manager_sync(f.m));
                if (rig_digest(&f.rig, f.m) != expected_digest(f.graph, ITERATIONS))
                    fail_msg("%s, %s, issue %d: other results", POLICIES[p], FOLLOW_NAMES[how], issue);
                finish(&f);
            }
}

/* ---------------------------------------------------------------- several GPUs */

static int current_gpu(void) {
    int gpu = -1;
    assert_int_equal(cudaGetDevice(&gpu), cudaSuccess);
    return gpu;
}

/* How often the manager's threads have chosen a GPU. Each does so once. */
static long choices_of_workers(void) {
    return cuda_emulation_calls("cuCtxPushCurrent") - cuda_emulation_calls_here("cuCtxPushCurrent");
}

/* The emulation refuses what belongs to another GPU than the thread's current one, so every thread must have chosen the
 * manager's. */
TEST_CASE(a_second_gpu_gives_the_same_results_and_nothing_touches_the_first) {
    for (int p = 0; p < POLICIES_N; p++)
        for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++)
            for (follow how = DRAINED; how < FOLLOWS; how++) {
                fixture f;
                start(&f, POLICIES[p], (mm_issue)issue,
                      (mm_options){.device = "cuda:1", .self_check = how == DRAINED, .measure_touched = p == 1});
                expect_ok(POLICIES[p], iterate(&f.rig, f.m, how));
                const long choices = choices_of_workers();
                for (int i = 1; i < ITERATIONS; i++) expect_ok(POLICIES[p], iterate(&f.rig, f.m, how));
                expect_ok(POLICIES[p], mm_manager_sync(f.m));
                assert_int_equal(choices_of_workers(), choices);
                assert_int_equal(current_gpu(), 0);
                if (rig_digest(&f.rig, f.m) != expected_digest(f.graph, ITERATIONS))
                    fail_msg("%s, %s, issue %d: other results", POLICIES[p], FOLLOW_NAMES[how], issue);
                finish(&f);
                assert_false(cuda_emulation_has_context(0));
                assert_int_equal(cuda_emulation_strays(), 0);
            }
}

TEST_CASE(managers_on_two_gpus_run_by_turns_whatever_is_current) {
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    for (follow how = DRAINED; how < FOLLOWS; how++) {
        fixture f[2];
        char name[16] = "";
        cuda_emulation_reset();
        for (int d = 0; d < 2; d++) {
            strcpy(name, devices[d]);
            start_beside(&f[d], "swap-async:when=always", how == REPLAYED ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                         (mm_options){.device = name, .device_bytes = 1 << 20, .measure_times = how == DRAINED});
            strcpy(name, "overwritten"); /* the manager has its own copy of the name */
        }
        for (int i = 0; i < ITERATIONS; i++)
            for (int d = 0; d < 2; d++) {
                assert_int_equal(cudaSetDevice((i + d) % 2), cudaSuccess);
                expect_ok(devices[d], iterate(&f[d].rig, f[d].m, how));
                if (i == 1) expect_ok(devices[d], mm_policy_set(f[d].m, "vdnn-all:when=always"));
                assert_int_equal(current_gpu(), (i + d) % 2);
            }
        for (int d = 0; d < 2; d++) {
            expect_ok(devices[d], mm_manager_sync(f[d].m));
            assert_int_equal(rig_digest(&f[d].rig, f[d].m), expected_digest(f[d].graph, ITERATIONS));
        }
        finish_beside(&f[0]);
        finish(&f[1]);
        assert_int_equal(cuda_emulation_strays(), 0);
    }
}

TEST_CASE(a_manager_on_a_gpu_that_is_not_there_is_refused) {
    static const char *const names[] = {"cuda:2", "cuda:x", "host:1"};
    cuda_emulation_reset();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mm_manager *m = NULL;
        assert_int_not_equal(mm_manager_create(&(mm_options){.device = names[i], .device_bytes = 1 << 20}, &m), MM_OK);
        assert_null(m);
        assert_non_null(strstr(mm_last_error(), names[i]));
        assert_non_null(strstr(mm_last_error(), i < 2 ? "there are 2" : "there is 1"));
    }
}

/* ---------------------------------------------------------------- calls */

/* Calls that no thread may make in the training loop. */
static long forbidden_calls(void) { return cuda_emulation_dear_calls() + cuda_emulation_calls("cudaEventSynchronize"); }

TEST_CASE(no_call_of_the_loop_synchronises_or_allocates) {
    enum { WARM_UP = 2 };
    for (int p = 1; p < POLICIES_N; p++) /* not POLICIES[0]: naive buffers and workspaces are allocated at run time */
        for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++)
            for (follow how = AHEAD; how < FOLLOWS; how++) {
                fixture f;
                start(&f, POLICIES[p], (mm_issue)issue, (mm_options){0});
                for (int i = 0; i < WARM_UP; i++) expect_ok(POLICIES[p], iterate(&f.rig, f.m, how));
                long before = forbidden_calls();
                for (int i = 0; i < ITERATIONS; i++) expect_ok(POLICIES[p], iterate(&f.rig, f.m, how));
                if (forbidden_calls() != before)
                    fail_msg("%s, %s, issue %d: %ld calls that synchronise or allocate in %d iterations", POLICIES[p],
                             FOLLOW_NAMES[how], issue, forbidden_calls() - before, ITERATIONS);
                finish(&f);
            }
}

/* A launch, and before it the question whether others capture the stream. */
TEST_CASE(a_replayed_iteration_is_two_calls) {
    fixture f;
    start(&f, "swap-async:when=always", MM_ISSUE_INLINE, (mm_options){0});
    for (int i = 0; i < 2; i++) expect_ok("swap-async", iterate(&f.rig, f.m, REPLAYED));
    long before = cuda_emulation_calls_here(NULL);
    expect_ok("swap-async", iterate(&f.rig, f.m, AHEAD));
    assert_int_equal(cuda_emulation_calls_here(NULL) - before, 2);
    finish(&f);
}

TEST_CASE(the_computation_goes_before_side_streams_unless_they_are_to_be_equal) {
    for (int equal = 0; equal < 2; equal++) {
        fixture f;
        start(&f, "swap-async:when=always", MM_ISSUE_INLINE, (mm_options){.equal_streams = equal});
        expect_ok("swap-async", iterate(&f.rig, f.m, DRAINED));
        cuda_emulation_alive alive = cuda_emulation_alive_get();
        assert_true(alive.streams > 2);
        assert_int_equal(alive.urgent, !equal);
        finish(&f);
        start(&f, "freelunch:eligible=all,when=always", MM_ISSUE_INLINE, (mm_options){.equal_streams = equal});
        expect_ok("freelunch", iterate(&f.rig, f.m, DRAINED));
        assert_non_null(cuda_emulation_launch_get(0).kernel); /* the codec's */
        for (long i = 0; cuda_emulation_launch_get(i).kernel; i++)
            assert_int_equal(cuda_emulation_launch_get(i).priority, 0);
        finish(&f);
    }
}

TEST_CASE(figures_count_replays_as_iterations) {
    mm_stats stats[2];
    for (int how = AHEAD; how <= REPLAYED; how++) {
        fixture f;
        start(&f, "swap-async:when=always", MM_ISSUE_INLINE, (mm_options){0});
        for (int i = 0; i < ITERATIONS; i++) expect_ok("swap-async", iterate(&f.rig, f.m, (follow)how));
        expect_ok("swap-async", mm_manager_sync(f.m));
        mm_stats_get(f.m, &stats[how - AHEAD]);
        finish(&f);
    }
    assert_int_equal(stats[0].iterations, ITERATIONS);
    assert_int_equal(stats[1].iterations, ITERATIONS);
    assert_int_equal(stats[0].replays, 0);
    assert_int_equal(stats[1].replays, ITERATIONS - 1);
    assert_true(stats[0].out_bytes > 0);
    assert_int_equal(stats[1].out_bytes, stats[0].out_bytes);
    assert_int_equal(stats[1].in_bytes, stats[0].in_bytes);
    assert_int_equal(stats[1].predicted_peak_bytes, stats[0].predicted_peak_bytes);
}

/* ---------------------------------------------------------------- recordings come and go */

typedef struct lines {
    int n, warnings;
    char last[512];
} lines;

static void keep_line(void *ctx, mm_log_level level, const char *message) {
    lines *l = ctx;
    if (!strstr(message, "without a recording")) return;
    l->n++;
    l->warnings += level == MM_LOG_WARNING;
    snprintf(l->last, sizeof l->last, "%s", message);
}

TEST_CASE(what_cannot_be_recorded_runs_without_and_says_so_once) {
    static const struct {
        const char *policy, *why;
        mm_issue issue;
        bool self_check, measure_times;
    } cases[] = {
        {"liveness", "issued by threads", MM_ISSUE_THREAD, false, false},
        {"liveness", "checked", MM_ISSUE_INLINE, true, false},
        {"liveness", "times", MM_ISSUE_INLINE, false, true},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        lines logged = {0};
        fixture f;
        mm_options options = {.self_check = cases[c].self_check,
                              .measure_times = cases[c].measure_times,
                              .log = {keep_line, &logged, MM_LOG_INFO}};
        start(&f, cases[c].policy, cases[c].issue, options);
        for (int i = 0; i < ITERATIONS; i++) {
            expect_ok(cases[c].policy, rig_iteration_ahead(&f.rig, f.m, RIG_STREAM));
            if (mm_replay_state(f.m, f.graph) != MM_REPLAY_MAY) continue;
            assert_int_equal(mm_record_begin(f.m, f.graph), MM_ERR_UNSUPPORTED);
            assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_NO);
        }
        expect_ok(cases[c].policy, mm_manager_sync(f.m));
        assert_int_equal(rig_digest(&f.rig, f.m), expected_digest(f.graph, ITERATIONS));
        assert_int_equal(logged.n, 1);
        assert_int_equal(logged.warnings, 0);
        if (!strstr(logged.last, cases[c].why)) fail_msg("'%s' does not say '%s'", logged.last, cases[c].why);
        finish(&f);
    }
}

TEST_CASE(a_recording_goes_with_its_plan_and_is_made_again) {
    fixture f;
    start(&f, "liveness", MM_ISSUE_INLINE, (mm_options){.device_bytes = 4 << 20});
    int done = 0;
    for (int p = 1; p < POLICIES_N; p++) {
        expect_ok(POLICIES[p], mm_policy_set(f.m, "liveness"));
        assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_NO);
        for (int i = 0; i < 3; i++, done++) expect_ok("liveness", iterate(&f.rig, f.m, REPLAYED));
        assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_READY);
    }
    expect_ok("budget", mm_budget_set(f.m, 3 << 20));
    assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_NO);
    assert_int_equal(mm_iteration_replay(f.m, f.graph), MM_ERR_ORDER);
    for (int i = 0; i < 3; i++, done++) expect_ok("liveness", iterate(&f.rig, f.m, REPLAYED));
    expect_ok("liveness", mm_manager_sync(f.m));
    assert_int_equal(rig_digest(&f.rig, f.m), expected_digest(f.graph, done));
    finish(&f);
}

static mm_status recompute_nothing(void *ctx, mm_manager *m, mm_layer layer, mm_stream *stream) {
    (void)ctx, (void)m, (void)layer, (void)stream;
    return MM_OK;
}

/* A recording contains the recompute callback and the addresses of external tensors: setting either drops it. */
TEST_CASE(a_recording_goes_with_what_it_was_made_of) {
    fixture f;
    mm_tensor labels;
    start(&f, "liveness", MM_ISSUE_INLINE, (mm_options){0});
    assert_int_equal(mm_graph_find_tensor(f.graph, "labels", &labels), MM_OK);
    for (int change = 0; change < 2; change++) {
        for (int i = 0; i < 2; i++) expect_ok("liveness", iterate(&f.rig, f.m, REPLAYED));
        assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_READY);
        if (change == 0)
            expect_ok("recompute", mm_recompute_set(f.m, f.graph, recompute_nothing, NULL));
        else
            expect_ok("external", mm_external_set(f.m, f.graph, labels, f.rig.external[labels]));
        assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_MAY);
        assert_int_equal(mm_iteration_replay(f.m, f.graph), MM_ERR_ORDER);
    }
    finish(&f);
}

TEST_CASE(a_recording_that_is_given_up_leaves_nothing_and_is_not_tried_again) {
    fixture f;
    lines logged = {0};
    start(&f, "swap-async:when=always", MM_ISSUE_INLINE, (mm_options){.log = {keep_line, &logged, MM_LOG_INFO}});
    expect_ok("first", iterate(&f.rig, f.m, AHEAD));
    expect_ok("begin", mm_record_begin(f.m, f.graph));
    expect_ok("steps", rig_steps(&f.rig, f.m, RIG_STREAM, 0, 5));
    assert_int_equal(mm_iteration_end(f.m), MM_ERR_ORDER);
    mm_iteration_abort(f.m);
    assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_NO);
    assert_int_equal(logged.n, 1);
    for (int i = 1; i < ITERATIONS; i++) expect_ok("after", iterate(&f.rig, f.m, REPLAYED));
    expect_ok("after", mm_manager_sync(f.m));
    mm_stats stats;
    mm_stats_get(f.m, &stats);
    assert_int_equal(stats.iterations, ITERATIONS);
    assert_int_equal(rig_digest(&f.rig, f.m), expected_digest(f.graph, ITERATIONS));
    finish(&f);
}

TEST_CASE(a_device_that_refuses_to_record_is_used_without) {
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"};
    for (int c = 0; c < 3; c++) {
        fixture f;
        lines logged = {0};
        start(&f, "swap-async:when=always", MM_ISSUE_INLINE, (mm_options){.log = {keep_line, &logged, MM_LOG_INFO}});
        expect_ok("first", iterate(&f.rig, f.m, AHEAD));
        cuda_emulation_fail(calls[c], 1, cudaErrorStreamCaptureUnsupported);
        mm_status status = mm_record_begin(f.m, f.graph);
        if (status == MM_OK) status = rig_steps(&f.rig, f.m, RIG_STREAM, 0, mm_graph_steps(f.graph));
        if (status == MM_OK) status = mm_record_end(f.m);
        assert_int_not_equal(status, MM_OK);
        assert_true(cuda_emulation_failed());
        mm_iteration_abort(f.m);
        assert_int_equal(mm_replay_state(f.m, f.graph), MM_REPLAY_NO);
        for (int i = 1; i < ITERATIONS; i++) expect_ok(calls[c], iterate(&f.rig, f.m, REPLAYED));
        expect_ok(calls[c], mm_manager_sync(f.m));
        assert_int_equal(logged.n, 1);
        assert_int_equal(logged.warnings, 1);
        assert_int_equal(rig_digest(&f.rig, f.m), expected_digest(f.graph, ITERATIONS));
        finish(&f);
    }
}

/* Iterations that were begun, and those of them that have neither ended nor been aborted. */
typedef struct balance {
    int begun, open;
} balance;

static void keep_balance(void *ctx, const mm_event_info *event) {
    balance *b = ctx;
    b->begun += event->kind == MM_EVENT_ITERATION_BEGIN;
    b->open += event->kind == MM_EVENT_ITERATION_BEGIN;
    b->open -= event->kind == MM_EVENT_ITERATION_END || event->kind == MM_EVENT_ABORT;
}

TEST_CASE(a_replay_that_fails_is_told_as_ended) {
    fixture f;
    balance b = {0};
    start(&f, "liveness", MM_ISSUE_INLINE, (mm_options){.event_fn = keep_balance, .event_ctx = &b});
    for (int i = 0; i < ITERATIONS; i++) expect_ok("liveness", iterate(&f.rig, f.m, REPLAYED));
    int begun = b.begun;
    assert_int_equal(b.open, 0);
    cuda_emulation_fail("cudaGraphLaunch", 1, cudaErrorLaunchFailure);
    assert_int_equal(mm_iteration_replay(f.m, f.graph), MM_ERR_DEVICE);
    assert_true(cuda_emulation_failed());
    assert_int_equal(b.begun, begun + 1);
    assert_int_equal(b.open, 0);
    finish(&f);
}

TEST_CASE(touched_bytes_are_counted_in_memory_that_the_cpu_cannot_reach) {
    fixture f;
    mm_touched touched;
    mm_stats stats;
    start(&f, "swap-async:when=always", MM_ISSUE_INLINE, (mm_options){.measure_touched = true});
    for (int i = 0; i < ITERATIONS; i++) expect_ok("touched", iterate(&f.rig, f.m, REPLAYED));
    expect_ok("touched", mm_touched_get(f.m, &touched));
    mm_stats_get(f.m, &stats);
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes > 0 && touched.total_bytes <= stats.predicted_peak_bytes);
    finish(&f);
}

TEST_CASE(touched_bytes_are_counted_before_memory_is_given_back) {
    static const char policy[] = "swap:when=needed";
    enum { MOST = 64 << 20 };
    fixture f;
    mm_touched before, after;
    start(&f, policy, MM_ISSUE_INLINE, (mm_options){.measure_touched = true, .device_bytes = MOST});
    expect_ok(policy, iterate(&f.rig, f.m, DRAINED));
    expect_ok(policy, mm_touched_get(f.m, &before));
    size_t there = cuda_emulation_alive_get().device_bytes;
    expect_ok(policy, mm_budget_set(f.m, rig_needs(f.graph, policy, 0, INT64_MAX).device_bytes));
    assert_true(cuda_emulation_alive_get().device_bytes < there);
    expect_ok(policy, mm_touched_get(f.m, &after));
    assert_int_equal(after.total_bytes, before.total_bytes);
    expect_ok(policy, mm_budget_set(f.m, MOST));
    expect_ok(policy, mm_touched_get(f.m, &after));
    assert_int_equal(after.total_bytes, before.total_bytes);
    assert_int_equal(after.stray_bytes, 0);
    expect_ok(policy, iterate(&f.rig, f.m, DRAINED));
    finish(&f);
}

TEST_CASE(memory_that_ran_out_is_given_back) {
    static const char policy[] = "swap-async:when=always";
    enum { MOST = 64 << 20 };
    fixture f;
    start(&f, policy, MM_ISSUE_INLINE, (mm_options){.device_bytes = MOST});
    expect_ok(policy, iterate(&f.rig, f.m, DRAINED));
    size_t there = cuda_emulation_alive_get().device_bytes;
    cuda_emulation_fail("cudaMemcpyAsync", 1, cudaErrorMemoryAllocation);
    assert_int_equal(iterate(&f.rig, f.m, DRAINED), MM_ERR_NOMEM);
    assert_true(cuda_emulation_failed());
    mm_stats stats;
    mm_stats_get(f.m, &stats);
    assert_int_equal(stats.ladder_steps, 1);
    assert_true(cuda_emulation_alive_get().device_bytes < there / 2);
    expect_ok(policy, iterate(&f.rig, f.m, DRAINED));
    finish(&f);
}

/* What a program captures that takes the manager's stream by its handle (mm_stream_handle). */
static cudaStream_t begin_capture(const fixture *f) {
    const cudaStream_t stream = mm_stream_handle(mm_compute_stream(f->m));
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    return stream;
}

static void end_capture(cudaStream_t stream) {
    cudaGraph_t graph;
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess); /* nothing has made it invalid */
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
}

static void expect_captured(mm_status status) {
    assert_int_equal(status, MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "mm's own stream is being captured"));
}

TEST_CASE(while_others_capture_the_managers_stream_calls_are_refused_and_nothing_changes) {
    static const char policy[] = "swap-async:when=always";
    fixture f;
    start(&f, policy, MM_ISSUE_INLINE, (mm_options){0});
    const int steps = mm_graph_steps(f.graph), half = steps / 2;
    expect_ok(policy, iterate(&f.rig, f.m, AHEAD));
    expect_ok(policy, mm_manager_sync(f.m));
    cudaStream_t stream = begin_capture(&f);
    expect_captured(mm_iteration_begin(f.m, f.graph));
    expect_captured(mm_record_begin(f.m, f.graph));
    end_capture(stream);
    expect_ok(policy, mm_iteration_begin(f.m, f.graph));
    expect_ok(policy, rig_steps(&f.rig, f.m, RIG_STREAM, 0, half));
    stream = begin_capture(&f);
    expect_captured(rig_steps(&f.rig, f.m, RIG_STREAM, half, 1));
    end_capture(stream);
    expect_ok(policy, rig_steps(&f.rig, f.m, RIG_STREAM, half, steps - half));
    expect_ok(policy, mm_iteration_end(f.m));
    record(&f.rig, f.m);
    stream = begin_capture(&f);
    expect_captured(mm_iteration_replay(f.m, f.graph));
    end_capture(stream);
    expect_ok(policy, mm_iteration_replay(f.m, f.graph));
    expect_ok(policy, mm_manager_sync(f.m));
    assert_true(rig_digest(&f.rig, f.m) == expected_digest(f.graph, 3));
    finish(&f);
}
