/* SPDX-License-Identifier: MIT */
/* Values that change between iterations (MM_VALUES): each iteration sees its own, whether iterations are waited for,
 * run ahead, or are replayed. A step writes what it sees to a log, which is read at the end. */
#include <math.h>
#include <string.h>

#include "mm/core/plan/plan.h"
#include "mm/manager/bounds.h"
#include "mm/manager/prepare.h"
#include "pipeline/codec/code_block.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mm_values_set */

enum { ITERATIONS = 40, WORDS = 4, WORD_BYTES = 4 }; /* more iterations than may run at a time */

/* What a step found: the iteration's number, and the caller's value. */
typedef struct entry {
    int64_t iteration;
    int32_t own[2];
} entry;

typedef struct fixture {
    mm_graph *graph;
    mm_tensor values, log;
    mm_layer layer;
    mm_manager *m;
} fixture;

static mm_tensor add(mm_graph *graph, const char *name, int64_t words) {
    const mm_tensor_desc desc = {name, MM_STATE, MM_PERSISTENT, MM_I32, 1, {words}};
    mm_tensor tensor;
    assert_int_equal(mm_graph_add_tensor(graph, &desc, &tensor), MM_OK);
    return tensor;
}

static void start(fixture *f, mm_options options) {
    assert_int_equal(mm_graph_create("looker", &f->graph), MM_OK);
    add(f->graph, "before", 100);
    f->values = add(f->graph, MM_VALUES, WORDS);
    f->log = add(f->graph, "log", 2 + ITERATIONS * (int64_t)sizeof(entry) / WORD_BYTES);
    assert_int_equal(mm_graph_add_layer(f->graph, "look", MM_LAYER_OTHER, &f->layer), MM_OK);
    const mm_use uses[] = {
        {0, MM_MODIFY, MM_FORM_VALUE}, {f->values, MM_READ, MM_FORM_VALUE}, {f->log, MM_MODIFY, MM_FORM_VALUE}};
    assert_int_equal(mm_graph_add_step(f->graph, f->layer, MM_FORWARD, uses, 3, 0), MM_OK);
    assert_int_equal(mm_graph_freeze(f->graph), MM_OK);
    options.device_bytes = 1 << 20;
    f->m = rig_manager(&options);
}

static void finish(fixture *f) {
    mm_manager_destroy(f->m);
    mm_graph_destroy(f->graph);
}

typedef struct look {
    const entry *values;
    int32_t *log; /* first the number of entries, then unused words, then the entries */
    bool fails;
} look;

static mm_status look_now(void *arg) {
    const look *l = arg;
    if (l->fails) return MM_ERR_DEVICE;
    memcpy(l->log + 2 + *l->log * (int64_t)sizeof(entry) / WORD_BYTES, l->values, sizeof(entry));
    ++*l->log;
    return MM_OK;
}

/* Runs the step of an iteration that has begun, or of a recording. */
static mm_status step(const fixture *f, bool on_stream, bool fails) {
    mm_stream *stream = on_stream ? mm_compute_stream(f->m) : NULL;
    mm_status status = mm_layer_begin(f->m, f->layer, MM_FORWARD, stream);
    if (status != MM_OK) return status;
    look l = {mm_tensor_data(f->m, f->values), mm_tensor_data(f->m, f->log), fails};
    status = on_stream ? rig_device_used()->launch(stream, look_now, &l, sizeof l) : look_now(&l);
    return status == MM_OK ? mm_layer_end(f->m, f->layer, MM_FORWARD) : status;
}

typedef enum follow { INLINE, DRAINED, AHEAD, REPLAYED, FOLLOWS } follow;

static mm_status iterate(fixture *f, follow how, bool fails) {
    if (how == REPLAYED && mm_replay_state(f->m, f->graph) == MM_REPLAY_MAY) {
        assert_int_equal(mm_record_begin(f->m, f->graph), MM_OK);
        assert_int_equal(step(f, true, false), MM_OK);
        assert_int_equal(mm_record_end(f->m), MM_OK);
    }
    if (mm_replay_state(f->m, f->graph) == MM_REPLAY_READY) return mm_iteration_replay(f->m, f->graph);
    mm_status status = mm_iteration_begin(f->m, f->graph);
    if (status != MM_OK) return status;
    status = step(f, how != INLINE, fails);
    if (status == MM_OK) return how <= DRAINED ? mm_iteration_end(f->m) : mm_iteration_end_async(f->m);
    mm_iteration_abort(f->m);
    return status;
}

static int32_t entries(const fixture *f) {
    int32_t n;
    assert_int_equal(mm_persistent_get(f->m, "log", 0, &n, sizeof n), MM_OK);
    return n;
}

static entry entry_at(const fixture *f, int i) {
    entry e;
    assert_int_equal(mm_persistent_get(f->m, "log", 2 * WORD_BYTES + i * (int64_t)sizeof e, &e, sizeof e), MM_OK);
    return e;
}

TEST_CASE(each_iteration_sees_its_own_values) {
    for (follow how = INLINE; how < FOLLOWS; how++) {
        if (how == INLINE && !rig_device_used()->cpu_reaches_memory) continue;
        fixture f;
        mm_stats stats;
        start(&f, (mm_options){.issue = MM_ISSUE_INLINE, .delay_seed = 3, .delay_max_ns = 300000});
        assert_int_equal(mm_manager_prepare(f.m, f.graph), MM_OK);
        for (int i = 0; i < ITERATIONS; i++) {
            int32_t own[2] = {1000 + i, -i};
            if (i > 0) assert_int_equal(mm_values_set(f.m, MM_VALUES_OWN, own, sizeof own), MM_OK);
            own[0] = own[1] = 77; /* the manager has copied them */
            if (iterate(&f, how, false) != MM_OK) fail_msg("%d: %s", (int)how, mm_last_error());
        }
        assert_int_equal(mm_manager_sync(f.m), MM_OK);
        assert_int_equal(entries(&f), ITERATIONS);
        for (int i = 0; i < ITERATIONS; i++) {
            const entry e = entry_at(&f, i);
            assert_int_equal(e.iteration, i);
            assert_int_equal(e.own[0], i > 0 ? 1000 + i : 0);
            assert_int_equal(e.own[1], -i);
        }
        mm_stats_get(f.m, &stats);
        assert_int_equal(stats.replays > 0, how == REPLAYED && !rig_device_used()->cpu_reaches_memory);
        finish(&f);
    }
}

/* A loop that has loaded a state sets the number. Iterations in flight keep theirs. */
TEST_CASE(numbers_go_on_from_the_one_that_is_set) {
    for (follow how = DRAINED; how < FOLLOWS; how++) {
        fixture f;
        start(&f, (mm_options){.issue = MM_ISSUE_INLINE, .delay_seed = 3, .delay_max_ns = 300000});
        for (int i = 0; i < 6; i++) {
            if (i % 3 == 0) assert_int_equal(mm_iteration_number_set(f.m, INT64_C(5000000000) * (1 + i)), MM_OK);
            assert_int_equal(iterate(&f, how, false), MM_OK);
        }
        assert_int_equal(mm_manager_sync(f.m), MM_OK);
        for (int i = 0; i < 6; i++)
            assert_int_equal(entry_at(&f, i).iteration, INT64_C(5000000000) * (1 + i / 3 * 3) + i % 3);
        finish(&f);
    }
}

TEST_CASE(numbers_begin_again_behind_the_largest) {
    static const int64_t numbers[] = {INT64_MAX - 1, INT64_MAX, 0, 1};
    fixture f;
    start(&f, (mm_options){0});
    assert_int_equal(mm_iteration_number_set(f.m, numbers[0]), MM_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(iterate(&f, DRAINED, false), MM_OK);
    for (int i = 0; i < 4; i++) assert_true(entry_at(&f, i).iteration == numbers[i]);
    finish(&f);
}

TEST_CASE(a_part_of_the_values_is_set_and_the_rest_stays) {
    fixture f;
    start(&f, (mm_options){0});
    assert_int_equal(mm_manager_prepare(f.m, f.graph), MM_OK);
    const int32_t both[] = {5, 6}, second = 9;
    assert_int_equal(mm_values_set(f.m, MM_VALUES_OWN, both, sizeof both), MM_OK);
    assert_int_equal(mm_values_set(f.m, MM_VALUES_OWN + WORD_BYTES, &second, sizeof second), MM_OK);
    assert_int_equal(mm_values_set(f.m, WORDS * WORD_BYTES, NULL, 0), MM_OK);
    assert_int_equal(iterate(&f, DRAINED, false), MM_OK);
    const entry e = entry_at(&f, 0);
    assert_int_equal(e.own[0], 5);
    assert_int_equal(e.own[1], 9);
    finish(&f);
}

#define REFUSED(status, word, call)                                                                                    \
    do {                                                                                                               \
        assert_int_equal(call, status);                                                                                \
        if (!strstr(mm_last_error(), word)) fail_msg("no '%s' in: %s", word, mm_last_error());                         \
    } while (0)

TEST_CASE(what_is_not_the_callers_is_refused) {
    fixture f;
    const int32_t one = 1;
    start(&f, (mm_options){0});
    REFUSED(MM_ERR_INVALID, "mm_values_set", mm_values_set(NULL, MM_VALUES_OWN, &one, 4));
    REFUSED(MM_ERR_NOT_FOUND, "declares the tensor mm.values", mm_values_set(f.m, MM_VALUES_OWN, &one, 4));
    REFUSED(MM_ERR_INVALID, "only a graph may declare", mm_persistent_add(f.m, MM_VALUES, 64));
    assert_int_equal(mm_manager_prepare(f.m, f.graph), MM_OK);
    REFUSED(MM_ERR_INVALID, "caller's values lie from 8 to 16", mm_values_set(f.m, MM_VALUES_ITERATION, &one, 4));
    REFUSED(MM_ERR_INVALID, "caller's values lie from 8 to 16", mm_values_set(f.m, 14, &one, 4));
    REFUSED(MM_ERR_INVALID, "caller's values lie from 8 to 16", mm_values_set(f.m, MM_VALUES_OWN, &one, -1));
    REFUSED(MM_ERR_INVALID, "data is NULL", mm_values_set(f.m, MM_VALUES_OWN, NULL, 4));
    REFUSED(MM_ERR_INVALID, "is set by mm_values_set", mm_persistent_set(f.m, MM_VALUES, 8, &one, 4));
    REFUSED(MM_ERR_INVALID, "-1: must be 0 or more", mm_iteration_number_set(f.m, -1));
    REFUSED(MM_ERR_INVALID, "mm_iteration_number_set", mm_iteration_number_set(NULL, 1));
    assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
    REFUSED(MM_ERR_ORDER, "mm_iteration_number_set", mm_iteration_number_set(f.m, 1));
    REFUSED(MM_ERR_ORDER, "mm_values_set", mm_values_set(f.m, MM_VALUES_OWN, &one, 4));
    finish(&f);
}

/* An iteration fails while others are in flight. One call reports it; then iterations see their values again. */
TEST_CASE(a_failure_on_the_way_is_told_once_and_values_go_on) {
    if (!rig_device_used()->cpu_reaches_memory) return; /* a GPU does not run on after a fault */
    fixture f;
    mm_stats stats;
    int told = 0;
    start(&f, (mm_options){.issue = MM_ISSUE_INLINE});
    for (int i = 0; i < ITERATIONS / 2; i++) {
        mm_status status = iterate(&f, AHEAD, i == 2);
        if (status != MM_OK) assert_int_equal(status, MM_ERR_DEVICE);
        told += status != MM_OK;
    }
    told += mm_manager_sync(f.m) != MM_OK;
    assert_int_equal(told, 1);
    const int before = entries(&f);
    mm_stats_get(f.m, &stats);
    for (int i = 0; i < 10; i++) assert_int_equal(iterate(&f, i % 2 ? AHEAD : DRAINED, false), MM_OK);
    assert_int_equal(entries(&f), before + 10);
    for (int i = 0; i < 10; i++) assert_int_equal(entry_at(&f, before + i).iteration, stats.iterations + i);
    finish(&f);
}

/* An iteration is aborted after one in flight has failed: mm_manager_sync still reports the failure, once. */
TEST_CASE(an_abort_does_not_hide_the_failure_of_an_iteration_ahead) {
    if (!rig_device_used()->cpu_reaches_memory) return; /* a GPU does not run on after a fault */
    fixture f;
    start(&f, (mm_options){.issue = MM_ISSUE_INLINE});
    for (int i = 0; i < 3; i++) {
        assert_int_equal(iterate(&f, AHEAD, i == 1), MM_OK);
        if (i == 0) continue;
        assert_int_equal(mm_iteration_begin(f.m, f.graph), MM_OK);
        mm_iteration_abort(f.m);
        assert_int_equal(mm_manager_sync(f.m), i == 1 ? MM_ERR_DEVICE : MM_OK);
        assert_int_equal(mm_manager_sync(f.m), MM_OK);
    }
    finish(&f);
}

/* ---------------------------------------------------------------- what codecs read on the device */

static const char reading[] = "rules:*=compress(group:bits=4),when=always";

typedef struct coded {
    mm_graph *graph;
    rig rig;
    mm_manager *m;
} coded;

static void code(coded *c, const char *policy, int64_t device_bytes) {
    c->graph = rig_random_graph(7, 8, 6);
    c->m = rig_manager(&(mm_options){.device_bytes = device_bytes, .pinned_bytes = 1 << 20, .policy = policy});
    rig_init(&c->rig, c->graph, 7);
    if (rig_bind(&c->rig, c->m) != MM_OK) fail_msg("%s", mm_last_error());
}

static void code_end(coded *c) {
    mm_manager_destroy(c->m);
    rig_fini(&c->rig);
    mm_graph_destroy(c->graph);
}

/* Size of the code block: all that the plan's base has beside persistent tensors. */
static int64_t block_bytes(const coded *c) {
    mm_stats stats;
    mm_stats_get(c->m, &stats);
    return mm_plan_now(c->m, c->graph)->base_bytes - stats.persistent_bytes;
}

TEST_CASE(codecs_have_a_block_exactly_where_one_reads_it) {
    static const char *const policies[] = {"liveness", reading, "rules:*=compress(dpr:fp8),when=always",
                                           "rules:conv=compress(group);*=swap", "swap"};
    coded c;
    code(&c, "liveness", 1 << 20);
    const int64_t bytes = mm_align(mm_code_block_bytes(c.graph));
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        assert_int_equal(mm_policy_set(c.m, policies[p]), MM_OK);
        assert_int_equal(block_bytes(&c), strstr(policies[p], "group") ? bytes : 0);
        assert_int_equal(rig_iteration(&c.rig, c.m, RIG_STREAM), MM_OK);
    }
    code_end(&c);
}

/* A plan runs in what it needs, the code block included. With one byte less it is refused. */
TEST_CASE(the_budget_has_the_block) {
    coded c;
    code(&c, "liveness", 1 << 20);
    const int64_t need = rig_needs(c.graph, reading, 0, INT64_MAX).device_bytes;
    code_end(&c);
    code(&c, reading, need);
    assert_int_equal(mm_plan_now(c.m, c.graph)->peak_bytes, need);
    assert_int_equal(rig_iteration(&c.rig, c.m, RIG_STREAM), MM_OK);
    mm_manager_destroy(c.m);
    c.m = rig_manager(&(mm_options){.device_bytes = need - 1, .pinned_bytes = 1 << 20, .policy = reading});
    assert_int_equal(mm_manager_prepare(c.m, c.graph), MM_ERR_INFEASIBLE);
    code_end(&c);
}

TEST_CASE(the_block_has_each_iterations_number_and_the_bounds) {
    if (!rig_device_used()->cpu_reaches_memory) return; /* train_cuda_test.c checks the effect */
    coded c;
    size_t first_bytes;
    code(&c, reading, 1 << 20);
    const mm_graph *graph = c.graph;
    const char *first = NULL; /* the persistent tensor that lies lowest */
    for (int t = 0; t < mm_graph_tensors(graph) && !first; t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_PERSISTENT) first = mm_graph_tensor(graph, t)->name;
    const uint8_t *base = mm_persistent_data(c.m, first, &first_bytes);
    mm_stats stats;
    mm_stats_get(c.m, &stats);
    const mm_code_block *block = (const void *)(base + stats.persistent_bytes);
    for (int i = 0; i < 20; i++) {
        float bound = -1;
        if (i == 9) assert_int_equal(mm_iteration_number_set(c.m, 100), MM_OK);
        if (i == 12) {
            assert_int_equal(mm_policy_set(c.m, "liveness"), MM_OK);
            assert_int_equal(rig_iteration(&c.rig, c.m, RIG_STREAM), MM_OK);
            assert_int_equal(mm_policy_set(c.m, reading), MM_OK); /* error bounds are kept */
        }
        assert_int_equal(mm_bound_set(c.m, graph, i % 3, (float)i / 8), MM_OK);
        assert_int_equal(rig_iteration(&c.rig, c.m, RIG_STREAM), MM_OK);
        assert_int_equal(block->iteration, i < 9 ? i : i < 12 ? 100 + i - 9 : 100 + i - 8);
        for (int t = 0; t < mm_graph_tensors(graph); t++) {
            const float want = t < 3 && t <= i ? (float)((i - t) / 3 * 3 + t) / 8 : 0;
            assert_true(block->bound[t] == want);
            assert_int_equal(mm_bound_get(c.m, graph, t, &bound), MM_OK);
            assert_true(bound == want);
        }
    }
    code_end(&c);
}

TEST_CASE(bounds_that_cannot_be_are_refused) {
    coded c;
    float bound = 5;
    code(&c, "liveness", 1 << 20);
    mm_graph *other = rig_random_graph(8, 3, 2);
    REFUSED(MM_ERR_NOT_FOUND, "was not prepared", mm_bound_set(c.m, other, 0, 1));
    REFUSED(MM_ERR_NOT_FOUND, "was not prepared", mm_bound_get(c.m, other, 0, &bound));
    REFUSED(MM_ERR_INVALID, "has no tensor -1", mm_bound_set(c.m, c.graph, -1, 1));
    REFUSED(MM_ERR_INVALID, "has no tensor", mm_bound_get(c.m, c.graph, mm_graph_tensors(c.graph), &bound));
    REFUSED(MM_ERR_INVALID, "a bound of -1 for ", mm_bound_set(c.m, c.graph, 0, -1));
    REFUSED(MM_ERR_INVALID, "must be 0 or more, and finite", mm_bound_set(c.m, c.graph, 0, NAN));
    REFUSED(MM_ERR_INVALID, "a bound of inf for ", mm_bound_set(c.m, c.graph, 0, INFINITY));
    assert_int_equal(mm_iteration_begin(c.m, c.graph), MM_OK);
    REFUSED(MM_ERR_ORDER, "mm_bound_set", mm_bound_set(c.m, c.graph, 0, 1));
    assert_true(bound == 5);
    mm_iteration_abort(c.m);
    mm_graph_destroy(other);
    code_end(&c);
}
