/* SPDX-License-Identifier: MIT */
/* Two managers at once do not affect each other, any thread may read statistics, and nothing is left of a manager that
 * was destroyed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/device/host_fixture.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 31, LAYERS = 12, ITERATIONS = 12, BUDGET = 1 << 20 };

static const char freelunch[] = "freelunch:codec=raw,eligible=all,when=always";

/* A thread with its own manager. It reports errors, because cmocka's assertions work on the main thread only. */
typedef struct trainer {
    const mm_graph *graph; /* both threads read the same graph */
    const char *policy;
    uint64_t seed, digest;
    mm_status status;
} trainer;

static mm_status train(trainer *t, rig *r, mm_manager *m) {
    MM_TRY(rig_bind(r, m));
    for (int i = 0; i < ITERATIONS; i++) MM_TRY(rig_iteration(r, m, (rig_mode)(i % RIG_MODES)));
    t->digest = rig_digest(r, m);
    return MM_OK;
}

static void *trainer_loop(void *arg) {
    trainer *t = arg;
    rig r;
    mm_manager *m;
    mm_options options = {
        .device_bytes = BUDGET, .policy = t->policy, .self_check = true, .delay_seed = t->seed, .delay_max_ns = 50000};
    rig_init(&r, t->graph, t->seed);
    t->status = mm_manager_create(&options, &m);
    if (t->status == MM_OK) {
        t->status = train(t, &r, m);
        mm_manager_destroy(m);
    }
    rig_fini(&r);
    return NULL;
}

static void two_managers_at_once_do_not_see_each_other(void **state) {
    (void)state;
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    trainer trainers[2] = {
        {.graph = graph, .policy = freelunch, .seed = 1},
        {.graph = graph, .policy = "freelunch:codec=raw,buffers=naive,workspace=naive,when=always", .seed = 2}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, trainer_loop, &trainers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        uint64_t expected;
        assert_int_equal(trainers[i].status, MM_OK);
        expected = random_graph_reference(graph, trainers[i].seed, ITERATIONS);
        assert_int_equal(trainers[i].digest, expected);
    }
    mm_graph_destroy(graph);
}

typedef struct watcher {
    mm_manager *manager;
    atomic_bool stop;
    bool went_back; /* a counter became smaller */
} watcher;

static void *watcher_loop(void *arg) {
    watcher *w = arg;
    mm_stats last = {0}, now;
    while (!atomic_load(&w->stop)) {
        mm_stats_get(w->manager, &now);
        w->went_back |= now.iterations < last.iterations || now.encodes < last.encodes ||
                        now.compute_busy_ns < last.compute_busy_ns || mm_manager_device_bytes(w->manager) != BUDGET;
        last = now;
    }
    return NULL;
}

static void figures_may_be_asked_for_from_another_thread(void **state) {
    (void)state;
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    mm_options options = {.device_bytes = BUDGET, .policy = "liveness"};
    mm_manager *m = rig_manager(&options);
    watcher w = {.manager = m};
    pthread_t thread;
    rig r;
    rig_init(&r, graph, SEED);
    assert_int_equal(pthread_create(&thread, NULL, watcher_loop, &w), 0);
    assert_int_equal(rig_bind(&r, m), MM_OK);
    for (int i = 0; i < ITERATIONS; i++) {
        /* The new policy creates streams while the other thread reads statistics. */
        if (i == 2) assert_int_equal(mm_policy_set(m, freelunch), MM_OK);
        assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    assert_false(w.went_back);
    mm_stats stats;
    mm_stats_get(m, &stats);
    assert_int_equal(stats.iterations, ITERATIONS);
    rig_fini(&r);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}

static void a_manager_leaves_no_thread_behind(void **state) {
    (void)state;
    int before = host_threads();
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
        mm_options options = {.device_bytes = BUDGET, .policy = freelunch, .issue = (mm_issue)issue};
        mm_manager *m = rig_manager(&options);
        rig r;
        rig_init(&r, graph, SEED);
        assert_int_equal(rig_bind(&r, m), MM_OK);
        assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
        /* The manager has a thread for each of three streams, and with MM_ISSUE_THREAD two workers. */
        assert_int_equal(host_threads() - before, issue == MM_ISSUE_THREAD ? 5 : 3);
        assert_int_equal(mm_iteration_begin(m, graph), MM_OK);
        assert_int_equal(rig_steps(&r, m, RIG_STREAM, 0, mm_graph_steps(graph) / 2), MM_OK);
        mm_manager_destroy(m);
        host_threads_wait(before);
        rig_fini(&r);
    }
    mm_manager_destroy(NULL);
    mm_graph_destroy(graph);
}

static void both_ways_to_issue_compute_the_same(void **state) {
    (void)state;
    uint64_t digests[2];
    mm_graph *graph = rig_random_graph(SEED + 1, 2 * LAYERS, 4);
    for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
        mm_options options = {.device_bytes = BUDGET,
                              .policy = "freelunch:rate=6,eligible=all,when=always",
                              .issue = (mm_issue)issue,
                              .delay_seed = 5,
                              .delay_max_ns = 20000};
        mm_manager *m = rig_manager(&options);
        rig r;
        rig_init(&r, graph, SEED);
        assert_int_equal(rig_bind(&r, m), MM_OK);
        for (int i = 0; i < 3; i++) assert_int_equal(rig_iteration(&r, m, (rig_mode)i), MM_OK);
        digests[issue] = rig_digest(&r, m);
        rig_fini(&r);
        mm_manager_destroy(m);
    }
    assert_int_equal(digests[0], digests[1]);
    mm_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_managers_at_once_do_not_see_each_other),
        cmocka_unit_test(figures_may_be_asked_for_from_another_thread),
        cmocka_unit_test(a_manager_leaves_no_thread_behind),
        cmocka_unit_test(both_ways_to_issue_compute_the_same),
    };
    return cmocka_run_group_tests(tests, host_threads_settle, NULL);
}
