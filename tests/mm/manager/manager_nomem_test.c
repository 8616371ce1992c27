/* SPDX-License-Identifier: MIT */
/* Memory runs out in the library: in the life of a manager, from its graph to its traces, one allocation fails. The
 * call says MM_ERR_NOMEM, or does without; called again, it succeeds, and iterations compute what they always do. Under
 * the address sanitizer, nothing is lost. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/status.h"
#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 11, LAYERS = 7, CHANNELS = 2, ARENA = 1 << 22, MOST_BYTES = 1 << 16, MOST_ALLOCATIONS = 1 << 20 };

/* A life: the manager begins with the first policy, and goes on with the second one. */
typedef struct life {
    const char *first, *second;
    bool lossy; /* one of them is: results are not compared */
    int stride; /* in the usual tier, each so many-th allocation fails */
    int nth;
    mm_graph *graph;
    rig rig;
    mm_manager *m;
    uint64_t wanted;
} life;

/* The policies allocate in different places; strides are chosen so that each life takes a second. */
static const life LIVES[] = {
    {"swap-async:when=always", "freelunch:codec=zvc,eligible=all,when=always", .stride = 43},
    {"recompute-swap:when=always", "freelunch:codec=raw,buffers=naive,workspace=naive,when=always", .stride = 47},
    {"freelunch:rate=8,eligible=all,when=always", "comet:when=always", .lossy = true, .stride = 53},
    {"modnn", "auto:effort=0", .stride = 59},
};
enum { N_LIVES = sizeof LIVES / sizeof *LIVES };

/* Returns n: every n-th allocation is made to fail. Sanitizers take several times as long, and find the same. */
static int stride_of(const life *l) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return test_depth(5 * l->stride, 7);
#else
    return test_depth(l->stride, 1);
#endif
}

/* Allocations fail only inside calls of the library, and in its threads. */
static void guard(bool inside) { alloc_fault_pause(!inside); }

static void expect_no_memory(const life *l, mm_status status, const char *call) {
    if (status != MM_ERR_NOMEM || !alloc_fault_happened() || !strstr(mm_last_error(), "memory"))
        fail_msg("%s, then %s, allocation %d fails: %s: %s: %s", l->first, l->second, l->nth, call,
                 mm_status_name(status), mm_last_error());
}

static void expect_done(const life *l, mm_status status, const char *call) {
    if (status != MM_OK)
        fail_msg("%s, then %s, after allocation %d failed: %s: %s: %s", l->first, l->second, l->nth, call,
                 mm_status_name(status), mm_last_error());
}

/* Calls, and calls again if memory ran out. */
#define CALL(l, call)                                                                                                  \
    do {                                                                                                               \
        guard(true);                                                                                                   \
        mm_status status_ = (call);                                                                                    \
        if (status_ != MM_OK) {                                                                                        \
            expect_no_memory(l, status_, #call);                                                                       \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        guard(false);                                                                                                  \
        expect_done(l, status_, #call);                                                                                \
    } while (0)

/* Gives external tensors their memory, and all that persist their first values. */
static void bind(life *l) {
    static char values[MOST_BYTES];
    for (int t = 0; t < mm_graph_tensors(l->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(l->graph, t);
        if (l->rig.external[t]) CALL(l, mm_external_set(l->m, l->graph, t, l->rig.external[t]));
        if (l->rig.external[t]) random_graph_fill(l->graph, t, SEED, l->rig.external[t]);
        if (tensor->ownership != MM_PERSISTENT) continue;
        assert_true(tensor->bytes <= MOST_BYTES);
        random_graph_fill(l->graph, t, SEED, values);
        CALL(l, mm_persistent_set(l->m, tensor->name, 0, values, tensor->bytes));
    }
}

static mm_status run(life *l) {
    guard(true);
    mm_status status = rig_iteration_ahead(&l->rig, l->m, RIG_MIXED);
    if (status == MM_OK) status = mm_manager_sync(l->m);
    guard(false);
    return status;
}

/* Runs an iteration from the first values on. One that fails was aborted, and is run again. */
static void iterate(life *l) {
    bind(l);
    mm_status status = run(l);
    if (status != MM_OK) {
        expect_no_memory(l, status, "an iteration");
        bind(l);
        status = run(l);
    }
    expect_done(l, status, "an iteration");
    if (!l->lossy && rig_digest(&l->rig, l->m) != l->wanted)
        fail_msg("%s, then %s, allocation %d fails: an iteration computes something else", l->first, l->second, l->nth);
}

static void create(life *l, const mm_facts *facts) {
    const mm_options options = {.device_bytes = ARENA,
                                .pinned_bytes = ARENA,
                                .policy = l->first,
                                .measure_times = true,
                                .measure_touched = true,
                                .codec_threads = 2,
                                .facts = facts};
    CALL(l, mm_manager_create(&options, &l->m));
    /* An allocation that fails is no shortage of the device's. */
    assert_int_equal(mm_manager_device_bytes(l->m), ARENA);
    CALL(l, mm_recompute_set(l->m, l->graph, rig_again, &l->rig));
    bind(l);
    expect_done(l, mm_budget_set(l->m, ARENA), "mm_budget_set to what was asked for");
}

static void trace(life *l) {
    CALL(l, mm_trace_start(l->m, "life"));
    iterate(l);
    guard(true);
    const mm_status status = mm_trace_stop(l->m, "nomem.json", NULL);
    guard(false);
    if (status != MM_OK) expect_no_memory(l, status, "mm_trace_stop");
    assert_int_equal(access("nomem.json", F_OK) == 0, status == MM_OK);
    unlink("nomem.json");
}

/* auto is planned on a thread by now. */
static mm_status set_policy(life *l) {
    MM_TRY(mm_policy_set(l->m, l->second));
    return mm_policy_wait(l->m);
}

static void change(life *l) {
    const int64_t less = rig_minimum(l->graph, "swap");
    mm_touched touched;
    CALL(l, set_policy(l));
    iterate(l);
    CALL(l, mm_budget_set(l->m, less));
    iterate(l);
    CALL(l, mm_budget_set(l->m, ARENA));
    CALL(l, mm_persistent_add(l->m, "added", 1000));
    iterate(l);
    CALL(l, mm_persistent_remove(l->m, "added"));
    CALL(l, mm_touched_get(l->m, &touched));
    assert_int_equal(touched.stray_bytes, 0);
}

static void learn(life *l) {
    mm_facts *facts;
    for (int i = 0; i < 2; i++) iterate(l);
    CALL(l, mm_facts_save(l->m, l->graph, "nomem.facts"));
    mm_manager_destroy(l->m);
    CALL(l, mm_facts_load("nomem.facts", &facts));
    unlink("nomem.facts");
    create(l, facts);
    CALL(l, mm_observe(l->m, &(mm_observe_options){.replan_permille = 10, .window = 1}));
    for (int i = 0; i < 3; i++) iterate(l);
    mm_manager_destroy(l->m);
    mm_facts_destroy(facts);
}

static void live(life *l) {
    CALL(l, random_graph_create(&(random_graph_options){.seed = SEED, .layers = LAYERS, .max_channels = CHANNELS},
                                &l->graph));
    rig_init(&l->rig, l->graph, SEED);
    create(l, NULL);
    iterate(l);
    trace(l);
    change(l);
    learn(l);
    rig_fini(&l->rig);
    mm_graph_destroy(l->graph);
}

/* Every allocation: one that fails is no shortage of the device's, after which the manager would have less memory. */
TEST_CASE(one_allocation_that_fails_at_creation_leaves_the_budget_that_was_asked_for) {
    const mm_options options = {.device_bytes = ARENA, .pinned_bytes = ARENA, .codec_threads = 2};
    bool happened = true;
    for (int nth = 1; happened; nth++) {
        mm_manager *m;
        alloc_fault_set(nth);
        const mm_status status = mm_manager_create(&options, &m);
        happened = alloc_fault_happened();
        alloc_fault_set(0);
        if (status == MM_OK) {
            assert_int_equal(mm_manager_device_bytes(m), ARENA);
            expect_ok(mm_budget_set(m, ARENA));
            mm_manager_destroy(m);
        } else if (status != MM_ERR_NOMEM)
            fail_msg("allocation %d fails: %s", nth, mm_last_error());
    }
}

/* Every so many-th allocation: the budget is raised before the graph is planned, and is back if that fails. */
TEST_CASE(one_allocation_that_fails_leaves_a_budget_that_follows_the_graphs_as_it_was) {
    const int stride = test_depth(test_is_sanitized() ? 67 : 19, 1);
    mm_graph *graph = rig_random_graph(SEED, LAYERS, CHANNELS);
    const int64_t needed = rig_minimum(graph, "naive");
    const mm_options options = {.policy = "naive"};
    bool happened = true;
    int nth = 1;
    for (; happened; nth += stride) {
        mm_manager *m = NULL;
        alloc_fault_set(nth);
        mm_status status = mm_manager_create(&options, &m);
        if (status == MM_OK) status = mm_manager_prepare(m, graph);
        happened = alloc_fault_happened();
        alloc_fault_set(0);
        if (status != MM_OK && (!happened || status != MM_ERR_NOMEM))
            fail_msg("allocation %d fails: %s: %s", nth, mm_status_name(status), mm_last_error());
        if (m && status != MM_OK) assert_int_equal(mm_manager_device_bytes(m), 0);
        if (m) expect_ok(mm_manager_prepare(m, graph));
        if (m) assert_int_equal(mm_manager_device_bytes(m), needed);
        mm_manager_destroy(m);
    }
    assert_true(nth > 300);
    mm_graph_destroy(graph);
}

TEST_CASE(one_allocation_that_fails_in_a_managers_life_is_said_and_changes_nothing) {
    mm_graph *graph = rig_random_graph(SEED, LAYERS, CHANNELS);
    const uint64_t wanted = random_graph_reference(graph, SEED, 1);
    mm_graph_destroy(graph);
    for (int i = 0; i < N_LIVES; i++) {
        life l = LIVES[i];
        bool happened = true;
        l.wanted = wanted;
        guard(false);
        for (l.nth = 1 + i; happened; l.nth += stride_of(&l)) {
            assert_true(l.nth < MOST_ALLOCATIONS);
            alloc_fault_set(l.nth);
            live(&l);
            happened = alloc_fault_happened();
            alloc_fault_set(0);
        }
        assert_true(l.nth > 1000);
    }
}
