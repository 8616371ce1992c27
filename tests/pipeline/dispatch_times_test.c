/* SPDX-License-Identifier: MIT */
/* Statistics of times: how long each node took, and what the computation waited for. */

#include "tests/core/test_case.h"
#include "tests/pipeline/dispatch_rig.h"

enum { LAYERS = 14, IMAGES = 16, SLOW_NS = 3000000 };

static void must_iterate(rig *r, bool on_stream) {
    if (rig_iteration(r, on_stream, NULL) != MM_OK) fail_msg("%s", mm_last_error());
}

/* The first iteration, a warm-up, gives no times. After the next ones every step and operation has a time, also the
 * first step, and operations in pieces. */
TEST_CASE(every_node_is_measured_from_the_second_iteration_on) {
    for (int way = 0; way < 4; way++) {
        rig r;
        rig_options options = {.seed = 1,
                               .layers = LAYERS,
                               .policy = "cdma:codec=raw,when=always",
                               .images = IMAGES,
                               .piece_bytes = 1,
                               .issue = way & 1 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                               .measure_times = true};
        rig_init(&r, &options);
        must_iterate(&r, way & 2);
        for (int i = 0; i < r.planned.plan->n_nodes; i++) assert_int_equal(mm_execution_ns(r.execution, i), 0);
        for (int i = 0; i < 3; i++) must_iterate(&r, way & 2);
        for (int i = 0; i < r.planned.plan->n_nodes; i++) assert_true(mm_execution_ns(r.execution, i) > 0);
        rig_fini(&r);
    }
}

/* The first iteration is left out of the mean: its times are not in the sum, nor is it in the number of iterations. */
TEST_CASE(an_operations_time_is_that_of_one_iteration) {
    rig r;
    rig_options options = {
        .seed = 1, .layers = LAYERS, .policy = "freelunch:codec=raw,eligible=all,when=always", .measure_times = true};
    rig_init(&r, &options);
    r.codec.encode_ns = SLOW_NS;
    for (int i = 0; i < 2; i++) must_iterate(&r, true);
    for (int i = 0; i < r.planned.plan->n_nodes; i++) {
        const mm_node *n = &r.planned.plan->nodes[i];
        if (n->kind == MM_NODE_ENCODE && r.planned.plan->segments[n->dst].codec == 0)
            assert_true(mm_execution_ns(r.execution, i) >= SLOW_NS);
    }
    rig_fini(&r);
}

static mm_dispatch_stats stats_of(const char *policy, int64_t encode_ns, bool on_stream) {
    rig r;
    mm_dispatch_stats stats;
    rig_options options = {.seed = 1, .layers = LAYERS, .policy = policy, .images = IMAGES, .piece_bytes = 1};
    rig_init(&r, &options);
    r.codec.encode_ns = encode_ns;
    must_iterate(&r, on_stream);
    mm_dispatch_stats_get(r.dispatch, &stats);
    assert_true(r.codec.encodes > 0 || encode_ns == 0);
    rig_fini(&r);
    return stats;
}

/* Steps of microseconds cannot hide encodes of milliseconds: they wait for the encodes, or for the copies of the
 * codes. */
TEST_CASE(slow_encodes_are_waited_for) {
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        assert_true(stats_of("freelunch:codec=raw,eligible=all,when=always", SLOW_NS, on_stream).codec_wait_ns > 0);
        assert_true(stats_of("cdma:codec=raw,when=always", SLOW_NS, on_stream).codec_wait_ns > 0);
    }
}

TEST_CASE(where_there_is_no_codec_none_is_waited_for) {
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        mm_dispatch_stats stats = stats_of("swap:when=always", 0, on_stream);
        assert_true(stats.out_bytes > 0);
        assert_int_equal(stats.codec_wait_ns, 0);
        /* A caller that computes inline waits for data; one that enqueues on a stream, at most until operations are
         * issued. */
        assert_int_equal(on_stream ? stats.data_wait_ns : stats.issue_wait_ns, 0);
    }
}

/* A trace's slices of encodes add up to the statistics' busy time. A task that the system suspends at its end has too
 * long a slice, so the best of several tries counts. */
TEST_CASE(a_traces_busy_time_is_that_of_the_statistics) {
    double least = 1;
    for (int try = 0; try < 10 && least > 0.02; try++) {
        rig r;
        mm_timeline *t;
        mm_dispatch_stats stats;
        rig_options options = {
            .seed = 1, .layers = LAYERS, .policy = "freelunch:codec=raw,eligible=all,when=always", .images = IMAGES};
        rig_init(&r, &options);
        r.codec.encode_ns = SLOW_NS;
        if (mm_timeline_create("run", 0, &t) != MM_OK) fail();
        assert_int_equal(mm_dispatch_trace(r.dispatch, t), MM_OK);
        for (int i = 0; i < 2; i++) must_iterate(&r, true);
        assert_int_equal(mm_dispatch_trace(r.dispatch, NULL), MM_OK);
        mm_dispatch_stats_get(r.dispatch, &stats);
        int64_t sum = 0;
        for (int64_t i = 0; i < t->n_spans; i++) {
            const mm_timeline_piece *piece = &t->plans[0].pieces[i % t->plans[0].n_pieces];
            if (piece->stream == MM_STREAM_ENCODE) sum += t->spans[i].end_ns - t->spans[i].start_ns;
        }
        const int64_t busy = stats.stream[MM_STREAM_ENCODE].busy_ns;
        assert_int_equal(t->n_iterations, 2);
        assert_true(busy >= 2 * SLOW_NS && sum >= busy);
        if ((double)(sum - busy) / (double)busy < least) least = (double)(sum - busy) / (double)busy;
        mm_timeline_destroy(t);
        rig_fini(&r);
    }
    assert_true(least <= 0.02);
}
