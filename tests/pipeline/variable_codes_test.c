/* SPDX-License-Identifier: MIT */
/* Codes of variable size: the same bits wherever their bodies lie, sizes that are known when they were encoded, and
 * damage that a device can only count. */
#include <string.h>

#include "mm/core/plan/program.h"
#include "mm/core/status.h"
#include "tests/core/test_case.h"
#include "tests/pipeline/dispatch_rig.h"

enum { LAYERS = 14, CODES = 64 };

static const char *const POLICIES[] = {
    "rules:rules=*=compress(zvc),when=always",
    "rules:rules=*=compress(zvc:reserve=1),when=always",
    "rules:rules=*=compress-swap(zvc),when=always",
    "rules:rules=conv=compress(zvc:reserve=50);*=compress-swap(zvc),when=always,depth=4",
    "rules:rules=relu=swap;*=compress(zvc:reserve=100),when=always",
};
enum { POLICIES_N = sizeof POLICIES / sizeof *POLICIES };

static void must_iterate(rig *r, bool on_stream) {
    if (rig_iteration(r, on_stream, NULL) != MM_OK) fail_msg("%s", mm_last_error());
}

TEST_CASE(every_way_to_issue_gives_the_same_bits) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        rig r;
        rig_options options = {.seed = seed,
                               .layers = LAYERS,
                               .policy = POLICIES[seed % POLICIES_N],
                               .images = 16,
                               .issue = seed / 5 & 1 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                               .self_check = seed % 2,
                               .delay_max_ns = seed % 3 ? 0 : 100000};
        rig_init(&r, &options);
        for (int i = 0; i < r.planned.plan->n_nodes; i++)
            if (mm_program_pieces(r.planned.program, i) > 1) fail_msg("a code with a body is cut");
        must_iterate(&r, seed / 10);
        for (int i = 0; i < 2; i++) assert_int_equal(rig_iteration_ahead(&r), MM_OK);
        mm_dispatch_stats running, ended;
        mm_dispatch_stats_get(r.dispatch, &running); /* a read while codecs write the statistics */
        assert_int_equal(mm_dispatch_sync(r.dispatch), MM_OK);
        mm_dispatch_stats_get(r.dispatch, &ended);
        assert_true(running.coded_bytes <= ended.coded_bytes && running.spilled_bytes <= ended.spilled_bytes);
        if (rig_digest(&r) != rig_expected(&r, seed, 3)) fail_msg("%s: other bits, seed %d", options.policy, (int)seed);
        rig_fini(&r);
    }
}

typedef struct sums {
    int64_t bytes, body_bytes, spilled_bytes;
} sums;

static sums sum_sizes(const rig *r) {
    mm_code_size sizes[CODES];
    const int n = mm_execution_codes(r->execution, sizes, CODES);
    sums s = {0};
    assert_true(n > 0 && n <= CODES);
    assert_int_equal(mm_execution_codes(r->execution, NULL, 0), n);
    for (int i = 0; i < n; i++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, sizes[i].tensor);
        assert_int_equal(strncmp(sizes[i].codec, "zvc", 3), 0);
        assert_true(sizes[i].body_bytes <= tensor->bytes && sizes[i].spilled_bytes <= sizes[i].body_bytes);
        s.bytes += sizes[i].bytes;
        s.body_bytes += sizes[i].body_bytes;
        s.spilled_bytes += sizes[i].spilled_bytes;
    }
    return s;
}

/* Each iteration adds the sizes of its codes, also an iteration that nobody waits for, and one of a program that was
 * since replaced. */
TEST_CASE(statistics_have_the_sizes_of_all_iterations) {
    for (int p = 0; p < POLICIES_N; p++) {
        rig r;
        rig_options options = {.seed = 3, .layers = LAYERS, .policy = POLICIES[p], .images = 16};
        mm_dispatch_stats stats;
        sums all = {0}, last;
        rig_init(&r, &options);
        assert_int_equal(sum_sizes(&r).body_bytes, 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(i == 1 ? rig_iteration(&r, true, NULL) : rig_iteration_ahead(&r), MM_OK);
            assert_int_equal(mm_dispatch_sync(r.dispatch), MM_OK);
            last = sum_sizes(&r);
            all.bytes += last.bytes;
            all.body_bytes += last.body_bytes;
            all.spilled_bytes += last.spilled_bytes;
        }
        assert_true(last.body_bytes > 0 && last.bytes > last.body_bytes);
        mm_dispatch_stats_get(r.dispatch, &stats);
        assert_int_equal(stats.coded_bytes, all.bytes);
        assert_int_equal(stats.spilled_bytes, all.spilled_bytes);
        if (p == 0 || p == 1 || p == 3) assert_true(stats.spilled_bytes > 0);
        if (p == 2) assert_int_equal(stats.spilled_bytes, all.body_bytes);
        if (p == 4) assert_int_equal(stats.spilled_bytes, 0);
        if (p != 4) assert_int_equal(stats.out_bytes, stats.spilled_bytes);
        assert_int_equal(stats.in_bytes, stats.out_bytes); /* each code is decoded once */
        mm_execution_destroy(r.execution);
        r.execution = NULL;
        mm_dispatch_stats_get(r.dispatch, &stats);
        assert_int_equal(stats.coded_bytes, all.bytes);
        assert_int_equal(stats.spilled_bytes, all.spilled_bytes);
        rig_fini(&r);
    }
}

static int64_t link_ns(int64_t bytes, int64_t rate) { return (int64_t)((double)bytes / (double)rate * 1e9); }

/* Bodies in a pool in pinned memory, or in a spill, take the link's time when they are written and when they are
 * read. */
TEST_CASE(bodies_in_pinned_memory_take_the_links_time) {
    enum { RATE = 1000000 };
    for (int p = 1; p <= 2; p++) {
        rig r;
        rig_options options = {
            .seed = 3, .layers = LAYERS, .policy = POLICIES[p], .images = 16, .link_bytes_per_s = RATE};
        mm_dispatch_stats stats;
        rig_init(&r, &options);
        must_iterate(&r, true);
        mm_dispatch_stats_get(r.dispatch, &stats);
        assert_true(stats.spilled_bytes > 0);
        assert_true(stats.stream[MM_STREAM_ENCODE].busy_ns >= link_ns(stats.spilled_bytes, RATE));
        assert_true(stats.stream[MM_STREAM_DECODE].busy_ns >= link_ns(stats.spilled_bytes, RATE));
        rig_fini(&r);
    }
}

TEST_CASE(damage_that_is_counted_fails_the_iteration_that_is_waited_for) {
    rig r;
    rig_options options = {.seed = 3, .layers = LAYERS, .policy = POLICIES[0]};
    rig_init(&r, &options);
    r.codec.decode = FAULT_COUNT;
    assert_int_equal(rig_iteration(&r, true, NULL), MM_ERR_FORMAT);
    assert_string_equal(mm_last_error(), "1 chunk of codes was damaged when it was decoded");
    must_iterate(&r, true); /* the failure was returned once; this one succeeds */
    r.codec.at = atomic_load(&r.codec.decodes) + 1;
    for (int i = 0; i < 2; i++) assert_int_equal(rig_iteration_ahead(&r), MM_OK);
    assert_int_equal(mm_dispatch_sync(r.dispatch), MM_ERR_FORMAT);
    must_iterate(&r, true);
    rig_fini(&r);
}
