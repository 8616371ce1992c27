/* SPDX-License-Identifier: MIT */
/* A codec's job that fails is told to whoever waits for it: the beginning of a step, if the caller computes inline
 * or the job could not be issued; else the end of the iteration. Weights are not updated from garbage, and the
 * dispatcher can be used further. */
#include <string.h>

#include "tests/core/test_case.h"
#include "tests/device/host_fixture.h"
#include "tests/pipeline/dispatch_rig.h"

enum { LAYERS = 12 };

static const char sliding[] = "freelunch:codec=raw,eligible=all,when=always";
static const char naive[] = "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always";

/* Whether all updates come after the backward pass: then none may follow a failed job. */
static bool updates_last(const mm_graph *graph) {
    bool updating = false;
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        bool update = mm_graph_step(graph, s)->phase == MM_UPDATE;
        if (updating && !update) return false;
        updating |= update;
    }
    return updating;
}

/* The first seed, from `seed` on, of a graph whose updates come last. */
static uint64_t seed_with_updates_last(uint64_t seed) {
    for (;; seed++) {
        mm_graph *graph;
        random_graph_options options = {.seed = seed, .layers = LAYERS, .max_channels = 4};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        bool found = updates_last(graph);
        mm_graph_destroy(graph);
        if (found) return seed;
    }
}

static uint64_t weights_digest(const rig *r) {
    uint64_t digest = 0;
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
        if (tensor->kind == MM_WEIGHT || tensor->kind == MM_OPTIMIZER)
            digest = random_graph_digest(digest, r->memory[t], (size_t)tensor->bytes);
    }
    return digest;
}

/* One place of failure, one way to run. */
typedef struct fault_case {
    const char *policy;
    fault_place encode, decode;
    bool late; /* the last job of the iteration fails; else the first */
    mm_issue issue;
    bool on_stream;
    bool told_at_end; /* only the end of the iteration can return the failure */
} fault_case;

static void check_recovery(rig *r, uint64_t seed) {
    r->codec.encode = r->codec.decode = FAULT_NOWHERE;
    rig_refill(r, seed);
    for (int i = 0; i < 2; i++)
        if (rig_iteration(r, i == 0, NULL) != MM_OK) fail_msg("after a failure: %s", mm_last_error());
    assert_true(rig_digest(r) == rig_expected(r, seed, 2));
}

static void check_failure(const fault_case *c) {
    rig r;
    int step;
    uint64_t seed = seed_with_updates_last(1);
    rig_options options = {.seed = seed, .layers = LAYERS, .policy = c->policy, .issue = c->issue, .self_check = true};
    rig_init(&r, &options);
    assert_int_equal(rig_iteration(&r, c->on_stream, NULL), MM_OK);
    int jobs = c->encode ? r.codec.encodes : r.codec.decodes;
    assert_true(jobs > 1);
    uint64_t before = weights_digest(&r);
    r.codec.encode = c->encode;
    r.codec.decode = c->decode;
    r.codec.at = jobs + (c->late ? jobs - 1 : 0);
    assert_int_equal(rig_iteration(&r, c->on_stream, &step), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "the codec broke"));
    assert_int_equal(step == mm_graph_steps(r.graph), c->told_at_end);
    assert_true(weights_digest(&r) == before);
    check_recovery(&r, seed);
    rig_fini(&r);
}

/* Checks the case for each way to issue, with the first and the last job. */
static void check_failures(fault_case c) {
    for (int i = 0; i < 4; i++) {
        c.issue = i & 1 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD;
        c.late = i & 2;
        check_failure(&c);
    }
}

TEST_CASE(encode_that_cannot_be_issued_is_told_to_the_step_that_waits) {
    check_failures((fault_case){.policy = sliding, .encode = FAULT_ISSUE});
    check_failures((fault_case){.policy = sliding, .encode = FAULT_ISSUE, .on_stream = true});
}

TEST_CASE(decode_that_cannot_be_issued_is_told_to_the_step_that_waits) {
    check_failures((fault_case){.policy = sliding, .decode = FAULT_ISSUE});
    check_failures((fault_case){.policy = sliding, .decode = FAULT_ISSUE, .on_stream = true});
}

TEST_CASE(encode_that_fails_running_is_told_to_the_inline_step_that_waits) {
    check_failures((fault_case){.policy = sliding, .encode = FAULT_RUN});
}

TEST_CASE(decode_that_fails_running_is_told_to_the_inline_step_that_waits) {
    check_failures((fault_case){.policy = sliding, .decode = FAULT_RUN});
}

TEST_CASE(encode_that_fails_running_poisons_the_stream_and_is_told_at_the_end) {
    check_failures((fault_case){.policy = sliding, .encode = FAULT_RUN, .on_stream = true, .told_at_end = true});
}

TEST_CASE(decode_that_fails_running_poisons_the_stream_and_is_told_at_the_end) {
    check_failures((fault_case){.policy = sliding, .decode = FAULT_RUN, .on_stream = true, .told_at_end = true});
}

TEST_CASE(failures_of_the_unoptimised_workflow_are_told_to_the_step_that_waits) {
    for (int stream = 0; stream < 2; stream++) {
        check_failures((fault_case){.policy = naive, .encode = FAULT_ISSUE, .on_stream = stream});
        check_failures((fault_case){.policy = naive, .encode = FAULT_RUN, .on_stream = stream});
        check_failures((fault_case){.policy = naive, .decode = FAULT_ISSUE, .on_stream = stream});
        check_failures((fault_case){.policy = naive, .decode = FAULT_RUN, .on_stream = stream});
    }
}

TEST_CASE(the_message_names_the_operation_that_could_not_be_issued) {
    rig r;
    rig_options options = {.seed = 3, .layers = LAYERS, .policy = sliding};
    rig_init(&r, &options);
    r.codec.encode = FAULT_ISSUE;
    assert_int_equal(rig_iteration(&r, true, NULL), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "encode of map"));
    rig_fini(&r);
}

/* Every decode of an iteration in turn: of two checksums that differ, either may be the larger one. */
TEST_CASE(a_wrong_bit_of_any_decode_fails_the_self_check) {
    rig r;
    rig_options options = {.seed = 3, .layers = LAYERS, .policy = sliding, .self_check = true};
    rig_init(&r, &options);
    assert_int_equal(rig_iteration(&r, true, NULL), MM_OK);
    int decodes = r.codec.decodes;
    assert_true(decodes >= 6);
    r.codec.decode = FAULT_BIT;
    for (r.codec.at = 0; r.codec.at < decodes; r.codec.at++) {
        r.codec.decodes = 0;
        assert_int_equal(rig_iteration(&r, true, NULL), MM_ERR_DEVICE);
        assert_non_null(strstr(mm_last_error(), "came back different"));
    }
    check_recovery(&r, 3);
    rig_fini(&r);
}

TEST_CASE(a_users_failed_step_is_told_at_the_end_and_updates_nothing) {
    rig r;
    int64_t waited_ns;
    uint64_t seed = seed_with_updates_last(1);
    rig_options options = {.seed = seed, .layers = LAYERS, .policy = sliding, .self_check = true};
    rig_init(&r, &options);
    uint64_t before = rig_digest(&r);
    mm_stream *stream = mm_dispatch_compute(r.dispatch);
    assert_int_equal(mm_dispatch_begin(r.dispatch, r.execution), MM_OK);
    for (int s = 0; s < mm_graph_steps(r.graph); s++) {
        int node = mm_execution_node(r.execution, s);
        assert_int_equal(mm_dispatch_step_begin(r.dispatch, node, stream, &waited_ns), MM_OK);
        if (s == 0) host_launch_failure(stream, 17);
        assert_int_equal(mm_dispatch_step_end(r.dispatch, node), MM_OK);
    }
    assert_int_equal(mm_dispatch_end(r.dispatch), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "task 17 broke"));
    assert_true(rig_digest(&r) == before);
    check_recovery(&r, seed);
    rig_fini(&r);
}

/* ---------------------------------------------------------------- iterations ahead */

/* Begins an iteration, runs its first steps, and aborts it. own: one of its own tasks fails. */
static void begin_and_abort(rig *r, int steps, bool own) {
    int64_t waited_ns;
    mm_stream *stream = mm_dispatch_compute(r->dispatch);
    assert_int_equal(mm_dispatch_begin(r->dispatch, r->execution), MM_OK);
    for (int s = 0; s < steps; s++) {
        int node = mm_execution_node(r->execution, s);
        assert_int_equal(mm_dispatch_step_begin(r->dispatch, node, stream, &waited_ns), MM_OK);
        if (own && s == 0) host_launch_failure(stream, 17);
        assert_int_equal(mm_dispatch_step_end(r->dispatch, node), MM_OK);
    }
    mm_dispatch_abort(r->dispatch);
}

/* An iteration that was ended without a wait fails while it runs, and the next iteration is aborted. The next call that
 * waits returns the failure, once. */
TEST_CASE(an_abort_leaves_the_failure_of_iterations_ahead_to_who_waits) {
    static const struct {
        fault_place place;
        mm_status status;
        const char *message;
    } faults[] = {{FAULT_RUN, MM_ERR_DEVICE, "the codec broke"}, {FAULT_COUNT, MM_ERR_FORMAT, "damaged"}};
    for (int f = 0; f < 2; f++)
        for (int i = 0; i < 8; i++) {
            rig r;
            const bool ends = i & 1, own = i & 2;
            const uint64_t seed = seed_with_updates_last(1);
            rig_options options = {.seed = seed,
                                   .layers = LAYERS,
                                   .policy = sliding,
                                   .issue = i & 4 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                                   .delay_max_ns = 200000};
            rig_init(&r, &options);
            r.codec.decode = faults[f].place;
            r.codec.at = 1;
            assert_int_equal(rig_iteration_ahead(&r), MM_OK);
            begin_and_abort(&r, 2, own);
            r.codec.decode = FAULT_NOWHERE;
            if (i == 4) begin_and_abort(&r, 1, false); /* the failure is still to be told */
            assert_int_equal(ends ? rig_iteration(&r, true, NULL) : mm_dispatch_sync(r.dispatch), faults[f].status);
            assert_non_null(strstr(mm_last_error(), faults[f].message));
            assert_int_equal(mm_dispatch_sync(r.dispatch), MM_OK);
            check_recovery(&r, seed);
            rig_fini(&r);
        }
}

TEST_CASE(the_failure_of_what_is_given_up_is_nobodys) {
    rig r;
    rig_options options = {.seed = 3, .layers = LAYERS, .policy = sliding, .delay_max_ns = 200000};
    rig_init(&r, &options);
    assert_int_equal(rig_iteration_ahead(&r), MM_OK);
    begin_and_abort(&r, 3, true);
    assert_int_equal(mm_dispatch_sync(r.dispatch), MM_OK);
    check_recovery(&r, 3);
    rig_fini(&r);
}

/* An iteration fails while it runs, and the next one cannot be issued: the end of that one returns its own failure, the
 * next call that waits the earlier one's. */
TEST_CASE(an_iteration_that_fails_leaves_the_failure_of_those_ahead_too) {
    rig r;
    int64_t waited_ns;
    rig_options options = {.seed = 3, .layers = LAYERS, .policy = sliding, .issue = MM_ISSUE_INLINE};
    rig_init(&r, &options);
    mm_stream *stream = mm_dispatch_compute(r.dispatch);
    assert_int_equal(mm_dispatch_begin(r.dispatch, r.execution), MM_OK);
    for (int s = 0; s < mm_graph_steps(r.graph); s++) {
        int node = mm_execution_node(r.execution, s);
        assert_int_equal(mm_dispatch_step_begin(r.dispatch, node, stream, &waited_ns), MM_OK);
        if (s == 0) host_launch_failure(stream, 17);
        assert_int_equal(mm_dispatch_step_end(r.dispatch, node), MM_OK);
    }
    assert_int_equal(mm_dispatch_end_async(r.dispatch), MM_OK);
    r.codec.encode = FAULT_ISSUE;
    r.codec.at = r.codec.encodes;
    assert_int_equal(mm_dispatch_begin(r.dispatch, r.execution), MM_OK);
    mm_status status = MM_OK;
    for (int s = 0; status == MM_OK && s < mm_graph_steps(r.graph); s++) {
        int node = mm_execution_node(r.execution, s);
        status = mm_dispatch_step_begin(r.dispatch, node, stream, &waited_ns);
        if (status == MM_OK) status = mm_dispatch_step_end(r.dispatch, node);
    }
    assert_int_equal(mm_dispatch_end(r.dispatch), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "the codec broke"));
    assert_int_equal(mm_dispatch_sync(r.dispatch), MM_ERR_DEVICE);
    assert_non_null(strstr(mm_last_error(), "task 17 broke"));
    assert_int_equal(mm_dispatch_sync(r.dispatch), MM_OK);
    check_recovery(&r, 3);
    rig_fini(&r);
}
