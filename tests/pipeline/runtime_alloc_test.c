/* SPDX-License-Identifier: MIT */
/* The unoptimised workflow, which allocates and frees memory for each tensor while threads run ahead of each other:
 * there is no deadlock, however slow the codec is and however small the heap. */
#include <string.h>

#include "buffers/heap_jemalloc.h"
#include "pipeline/execution.h"
#include "tests/core/test_case.h"
#include "tests/pipeline/dispatch_rig.h"

enum { LAYERS = 30, ENCODE_NS = 1000000 };

static const char naive[] = "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always";

static void init(rig *r, uint64_t seed, const char *policy, mm_issue issue) {
    rig_options options = {.seed = seed, .layers = LAYERS, .policy = policy, .issue = issue, .self_check = true};
    rig_init(r, &options);
    r->codec.encode_ns = ENCODE_NS;
}

static void check_slow_codec(uint64_t seed, const char *policy, bool on_stream) {
    rig r;
    init(&r, seed, policy, MM_ISSUE_THREAD);
    if (rig_iteration(&r, on_stream, NULL) != MM_OK)
        fail_msg("seed %llu, %s: %s", (unsigned long long)seed, policy, mm_last_error());
    assert_true(rig_digest(&r) == rig_expected(&r, seed, 1));
    rig_fini(&r);
}

TEST_CASE(steps_that_run_ahead_leave_slow_encodes_their_memory) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        check_slow_codec(seed, naive, seed % 2);
        check_slow_codec(seed, "freelunch:codec=raw,eligible=all,buffers=naive,when=always", seed % 3 == 0);
        check_slow_codec(seed, "freelunch:codec=raw,eligible=all,workspace=naive,depth=4,when=always", seed % 3 == 0);
    }
}

/* A step's memory is free for others when the step has run, not when it was enqueued. */
TEST_CASE(what_slow_steps_use_is_not_given_to_others) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        rig r;
        rig_options options = {.seed = seed, .layers = LAYERS, .policy = naive, .step_ns = 1000000};
        rig_init(&r, &options);
        if (rig_iteration(&r, true, NULL) != MM_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, mm_last_error());
        assert_true(rig_digest(&r) == rig_expected(&r, seed, 1));
        rig_fini(&r);
    }
}

TEST_CASE(every_dynamic_segment_is_allocated_once_an_iteration) {
    rig r;
    mm_dispatch_stats stats;
    int dynamic = 0;
    init(&r, 1, naive, MM_ISSUE_INLINE);
    for (int i = 0; i < r.planned.plan->n_segments; i++) dynamic += r.planned.plan->segments[i].dynamic;
    assert_true(dynamic > 20);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(rig_iteration(&r, true, NULL), MM_OK);
        mm_dispatch_stats_get(r.dispatch, &stats);
        assert_int_equal(stats.unplanned_allocs, i * dynamic);
    }
    rig_fini(&r);
}

/* Steps run ahead of encodes until there is no memory left, and wait; an abort of the iteration must end these
 * waits. */
TEST_CASE(giving_up_reaches_those_who_wait_for_memory) {
    for (int encode = 0; encode < 12; encode++) {
        rig r;
        init(&r, 2, naive, MM_ISSUE_THREAD);
        r.codec.encode = FAULT_ISSUE;
        r.codec.at = encode;
        assert_int_equal(rig_iteration(&r, false, NULL), MM_ERR_DEVICE);
        assert_non_null(strstr(mm_last_error(), "the codec broke"));
        assert_false(r.execution->runtime_alloc.stopped); /* so later iterations can wait for memory again */
        r.codec.encode = FAULT_NOWHERE;
        rig_refill(&r, 2);
        assert_int_equal(rig_iteration(&r, false, NULL), MM_OK);
        assert_true(rig_digest(&r) == rig_expected(&r, 2, 1));
        rig_fini(&r);
    }
}

/* A heap that is left open keeps its number, and the next one gets another. */
TEST_CASE(a_program_closes_its_heaps) {
    enum { PROGRAMS = 4 };
    unsigned arenas[PROGRAMS];
    for (int i = 0; i < PROGRAMS; i++) {
        rig r;
        size_t length = sizeof arenas[i];
        init(&r, 1, naive, MM_ISSUE_INLINE);
        assert_int_equal(rig_iteration(&r, true, NULL), MM_OK);
        rig_fini(&r);
        assert_int_equal(je_mallctl("arenas.narenas", &arenas[i], &length, NULL, 0), 0);
    }
    assert_int_equal(arenas[PROGRAMS - 1], arenas[0]);
}
