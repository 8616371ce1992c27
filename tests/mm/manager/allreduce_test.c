/* SPDX-License-Identifier: MIT */
/* All-reduced tensors (mm_graph_allreduce): random graphs x policies x ways to run them. Under every policy, update
 * steps see what the caller made of each tensor; every policy sends a graph's tensors in the same order; a failure
 * fails its own iteration only. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/status.h"
#include "mm/device/contract/device.h"
#include "tests/core/test_case.h"
#include "tests/core/trace_check.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEEDS = 12, ITERATIONS = 3, MOST = 256, DELAY_NS = 50000 };

/* The caller that gets the tensors. It halves each one, where a real caller would add up the ranks' tensors. */
typedef struct caller {
    pthread_mutex_t lock;
    mm_tensor sent[MOST], awaited[MOST];
    int n_sent, n_awaited;
    int n_groups; /* calls of enqueue */
    int fails_at; /* which call of await or enqueue fails, from 1; 0: none */
    struct halving *halvings;
} caller;

/* Halving keeps finite values finite, and different values different. */
static void halve(void *data, int64_t bytes) {
    float *elems = data;
    for (int64_t i = 0; i < bytes / 4; i++) elems[i] *= 0.5f;
}

static void sent(void *ctx, const mm_allreduce_part *shared) {
    caller *c = ctx;
    halve(shared->data, shared->bytes);
    pthread_mutex_lock(&c->lock);
    c->sent[c->n_sent++ % MOST] = shared->tensor;
    pthread_mutex_unlock(&c->lock);
}

static mm_status await(void *ctx, const mm_allreduce_part *shared) {
    caller *c = ctx;
    pthread_mutex_lock(&c->lock);
    c->awaited[c->n_awaited++ % MOST] = shared->tensor;
    const bool fails = c->n_awaited == c->fails_at, there = c->n_sent >= c->n_awaited;
    pthread_mutex_unlock(&c->lock);
    if (!there) return mm_fail(MM_ERR_ORDER, "awaited before it was sent");
    return fails ? mm_fail(MM_ERR_IO, "rank 1 is gone") : MM_OK;
}

/* Halves a tensor in place, through a copy in host memory: the CPU may not reach the device's. */
typedef struct halving {
    mm_call call;
    int64_t bytes;
    struct halving *next;
    float data[];
} halving;

static mm_status run_halving(void *arg) {
    halving *h = arg;
    halve(h->data, h->bytes);
    return MM_OK;
}

static mm_status enqueue(void *ctx, const mm_allreduce_part *shared, int n, mm_stream *stream) {
    caller *c = ctx;
    if (c->n_groups++ == c->fails_at - 1) return mm_fail(MM_ERR_IO, "rank 1 is gone");
    for (int i = 0; i < n; i++) {
        halving *h = malloc(sizeof *h + (size_t)shared[i].bytes);
        if (!h) return mm_fail(MM_ERR_NOMEM, "no memory");
        *h = (halving){.call = {run_halving, h}, .bytes = shared[i].bytes, .next = c->halvings};
        c->halvings = h;
        MM_TRY(mm_copy_async(stream, h->data, shared[i].data, h->bytes, MM_COPY_OUT));
        MM_TRY(mm_call_async(stream, &h->call));
        MM_TRY(mm_copy_async(stream, shared[i].data, h->data, h->bytes, MM_COPY_IN));
        c->sent[c->n_sent++ % MOST] = c->awaited[c->n_awaited++ % MOST] = shared[i].tensor;
    }
    return MM_OK;
}

static void free_halvings(caller *c) {
    for (halving *h = c->halvings, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    c->halvings = NULL;
}

static const mm_allreduce_fns fns = {sent, await, enqueue};

static mm_graph *create_graph(uint64_t seed, mm_allreduce_when how) {
    mm_graph *graph;
    const random_graph_options options = {
        .seed = seed, .layers = 4 + (int)(seed % 9), .max_channels = 6, .shares = how};
    assert_int_equal(random_graph_create(&options, &graph), MM_OK);
    return graph;
}

static bool writes(const mm_step_info *step, mm_tensor tensor) {
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor && step->uses[u].access != MM_READ) return true;
    return false;
}

/* Digest of the graph's persistent tensors after ITERATIONS without a manager. An all-reduced tensor is halved before
 * the first update after its last writer. */
static uint64_t expected_digest(const mm_graph *graph, uint64_t seed) {
    plain p;
    plain_init(&p, graph, seed);
    for (int i = 0; i < ITERATIONS; i++)
        for (int s = 0; s < mm_graph_steps(graph); s++) {
            for (mm_tensor t = 0; mm_graph_step(graph, s)->phase == MM_UPDATE && t < mm_graph_tensors(graph); t++) {
                int last = -1, update = s;
                for (int w = 0; w < mm_graph_steps(graph); w++)
                    if (writes(mm_graph_step(graph, w), t)) last = w;
                for (int u = last + 1; u < s; u++)
                    if (mm_graph_step(graph, u)->phase == MM_UPDATE) update = u;
                if (mm_graph_tensor(graph, t)->shared && last >= 0 && last < s && update == s)
                    halve(p.memory[t], mm_graph_tensor(graph, t)->bytes);
            }
            plain_steps(&p, s, 1);
        }
    const uint64_t digest = plain_digest(&p);
    plain_fini(&p);
    return digest;
}

static int count_shared(const mm_graph *graph) {
    int n = 0;
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++) n += mm_graph_tensor(graph, t)->shared != MM_ALLREDUCE_NOT;
    return n;
}

typedef struct trial {
    const char *policy;
    rig_mode mode;
    mm_issue issue;
    bool ahead;
} trial;

/* order: the tensor of each call of `sent`. The first trial of a graph fills it in; the others must have the same. */
static void run_trial(const trial *t, const mm_graph *graph, uint64_t seed, uint64_t expected, mm_tensor *order,
                      bool first) {
    caller c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    rig r;
    const rig_need need = rig_needs(graph, t->policy, rig_minimum(graph, t->policy), INT64_MAX);
    rig_init(&r, graph, seed);
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = need.device_bytes,
                                              .pinned_bytes = need.pinned_bytes,
                                              .policy = t->policy,
                                              .issue = t->issue,
                                              .self_check = !t->ahead,
                                              .verify_issued = t->ahead,
                                              .no_ladder = true,
                                              .delay_seed = seed + 1,
                                              .delay_max_ns = DELAY_NS});
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(mm_allreduce_set(m, graph, &fns, &c), MM_OK);
    for (int i = 0; i < ITERATIONS; i++) {
        mm_status status = (t->ahead ? rig_iteration_ahead : rig_iteration)(&r, m, t->mode);
        if (status != MM_OK) fail_msg("seed %llu, %s: %s", (unsigned long long)seed, t->policy, mm_last_error());
    }
    assert_int_equal(mm_manager_sync(m), MM_OK);
    if (rig_digest(&r, m) != expected) fail_msg("seed %llu, %s: other results", (unsigned long long)seed, t->policy);
    const int n = ITERATIONS * count_shared(graph);
    assert_int_equal(c.n_sent, n);
    assert_int_equal(c.n_awaited, n);
    assert_memory_equal(c.sent, c.awaited, (size_t)n * sizeof *c.sent);
    if (first) memcpy(order, c.sent, sizeof c.sent);
    assert_memory_equal(c.sent, order, (size_t)n * sizeof *c.sent);
    mm_manager_destroy(m);
    rig_fini(&r);
    free_halvings(&c);
}

TEST_CASE(what_comes_back_is_what_is_updated_with_under_every_policy) {
    static const char *const policies[] = {"liveness",
                                           "naive",
                                           "swap-async:when=always",
                                           "vdnn-all:when=always",
                                           "freelunch:codec=raw,eligible=all,when=always",
                                           "swap:when=always"};
    int tensors = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const mm_allreduce_when how = (mm_allreduce_when)(MM_ALLREDUCE_AT_ONCE + seed % 4);
        mm_graph *graph = create_graph(seed, how);
        mm_tensor order[MOST];
        const uint64_t expected = expected_digest(graph, seed);
        tensors += count_shared(graph);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            const trial t = {policies[p], (rig_mode)((seed + p) % RIG_MODES), (mm_issue)((seed + p / 2) % 2),
                             seed / 2 % 2};
            run_trial(&t, graph, seed, expected, order, p == 0);
        }
        rig_needs(graph, "recompute:mode=sqrt,when=always", INT64_MAX, INT64_MAX); /* only proved; tests/comm runs it */
        mm_graph_destroy(graph);
    }
    assert_true(tensors > SEEDS); /* the graphs have enough all-reduced tensors */
}

/* A rehearsal calls none of the caller's functions: if it sent, other ranks would add that up, or wait for ever. */
TEST_CASE(nothing_is_sent_in_a_rehearsal) {
    for (int how = MM_ALLREDUCE_AT_ONCE; how <= MM_ALLREDUCE_IN_PLACE_AT_END; how++)
        for (int issue = 0; issue < 2; issue++) {
            mm_graph *graph = create_graph(4, (mm_allreduce_when)how);
            const rig_need need = rig_needs(graph, "liveness", INT64_MAX, INT64_MAX);
            caller c = {.lock = PTHREAD_MUTEX_INITIALIZER};
            rig r;
            rig_init(&r, graph, 4);
            mm_manager *m = rig_manager(&(mm_options){
                .device_bytes = need.device_bytes, .pinned_bytes = need.pinned_bytes, .issue = (mm_issue)issue});
            assert_int_equal(rig_bind(&r, m), MM_OK);
            assert_int_equal(mm_allreduce_set(m, graph, &fns, &c), MM_OK);
            assert_int_equal(mm_rehearsal_begin(m, graph), MM_OK);
            assert_int_equal(rig_steps(&r, m, RIG_STREAM, 0, mm_graph_steps(graph)), MM_OK);
            mm_iteration_abort(m);
            assert_int_equal(c.n_sent + c.n_awaited + c.n_groups, 0);
            assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
            assert_int_equal(c.n_awaited, count_shared(graph));
            mm_manager_destroy(m);
            rig_fini(&r);
            free_halvings(&c);
            mm_graph_destroy(graph);
        }
}

TEST_CASE(without_functions_shared_tensors_come_back_as_they_were) {
    mm_graph *graph = create_graph(2, MM_ALLREDUCE_AT_ONCE);
    rig r;
    rig_init(&r, graph, 2);
    const rig_need need = rig_needs(graph, "liveness", INT64_MAX, INT64_MAX);
    assert_true(need.pinned_bytes > 0 && need.out_bytes > 0 && need.out_bytes == need.in_bytes);
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = need.device_bytes, .pinned_bytes = need.pinned_bytes});
    assert_int_equal(rig_bind(&r, m), MM_OK);
    for (int i = 0; i < ITERATIONS; i++) assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    assert_true(rig_digest(&r, m) == random_graph_reference(graph, 2, ITERATIONS));
    mm_manager_destroy(m);
    m = rig_manager(&(mm_options){.device_bytes = need.device_bytes, .pinned_bytes = need.pinned_bytes - 1});
    assert_int_equal(mm_manager_prepare(m, graph), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "pinned memory"));
    mm_manager_destroy(m);
    rig_fini(&r);
    mm_graph_destroy(graph);
}

/* Counts messages which say that all-reduces keep an iteration from being recorded. ctx: int. */
static void count_unrecorded(void *ctx, mm_log_level level, const char *message) {
    *(int *)ctx += level == MM_LOG_INFO && strstr(message, "runs without a recording") &&
                   strstr(message, "other processes' gradients");
}

TEST_CASE(a_sum_that_does_not_come_fails_its_iteration_alone) {
    for (int issue = 0; issue < 2; issue++) {
        mm_graph *graph = create_graph(4, MM_ALLREDUCE_AT_ONCE);
        const rig_need need = rig_needs(graph, "liveness", INT64_MAX, INT64_MAX);
        caller c = {.lock = PTHREAD_MUTEX_INITIALIZER, .fails_at = 1};
        int told = 0;
        rig r;
        rig_init(&r, graph, 4);
        mm_manager *m = rig_manager(&(mm_options){.device_bytes = need.device_bytes,
                                                  .pinned_bytes = need.pinned_bytes,
                                                  .issue = (mm_issue)issue,
                                                  .log = {.fn = count_unrecorded, .ctx = &told, .level = MM_LOG_INFO}});
        assert_int_equal(rig_bind(&r, m), MM_OK);
        assert_int_equal(mm_allreduce_set(m, graph, &fns, &c), MM_OK);
        assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_ERR_IO);
        assert_non_null(strstr(mm_last_error(), "rank 1 is gone"));
        c.n_sent = c.n_awaited = c.fails_at = 0;
        assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
        assert_int_equal(c.n_awaited, count_shared(graph));
        /* The iteration is not recorded, and the log says so once. */
        assert_int_not_equal(mm_replay_state(m, graph), MM_REPLAY_READY);
        if (mm_replay_state(m, graph) == MM_REPLAY_MAY && issue == MM_ISSUE_INLINE) {
            assert_int_equal(mm_record_begin(m, graph), MM_ERR_UNSUPPORTED);
            assert_non_null(strstr(mm_last_error(), "other processes' gradients"));
            mm_iteration_abort(m);
            assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
            assert_int_equal(mm_replay_state(m, graph), MM_REPLAY_NO);
            assert_int_equal(told, 1);
        }
        mm_manager_destroy(m);
        rig_fini(&r);
        mm_graph_destroy(graph);
    }
}

TEST_CASE(sums_in_place_take_no_pinned_memory_and_fail_their_step) {
    mm_graph *graph = create_graph(4, MM_ALLREDUCE_IN_PLACE_AT_ONCE);
    const rig_need need = rig_needs(graph, "liveness", INT64_MAX, INT64_MAX);
    assert_int_equal(need.pinned_bytes, 0);
    assert_int_equal(need.out_bytes, 0);
    caller c = {.lock = PTHREAD_MUTEX_INITIALIZER, .fails_at = 2};
    rig r;
    rig_init(&r, graph, 4);
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = need.device_bytes});
    assert_int_equal(rig_bind(&r, m), MM_OK);
    assert_int_equal(mm_allreduce_set(m, graph, &(mm_allreduce_fns){.sent = sent, .await = await}, &c), MM_ERR_INVALID);
    assert_int_equal(mm_allreduce_set(m, graph, &fns, &c), MM_OK);
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), "rank 1 is gone"));
    assert_int_equal(c.n_groups, 2);
    c.n_sent = 0;
    assert_int_equal(rig_iteration(&r, m, RIG_STREAM), MM_OK);
    assert_int_equal(c.n_sent, count_shared(graph));
    mm_manager_destroy(m);
    rig_fini(&r);
    free_halvings(&c);
    mm_graph_destroy(graph);
}

TEST_CASE(sums_in_place_are_in_traces) {
    static const struct {
        rig_mode mode;
        bool ahead;
        mm_allreduce_when how;
    } cases[] = {{RIG_STREAM, true, MM_ALLREDUCE_IN_PLACE_AT_ONCE},
                 {RIG_STREAM, false, MM_ALLREDUCE_IN_PLACE_AT_END},
                 {RIG_INLINE, false, MM_ALLREDUCE_IN_PLACE_AT_ONCE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static trace_checked checked;
        mm_graph *graph = create_graph(4, cases[i].how);
        caller c = {.lock = PTHREAD_MUTEX_INITIALIZER};
        int64_t dropped;
        rig r;
        rig_init(&r, graph, 4);
        const int64_t bytes = rig_needs(graph, "liveness", INT64_MAX, INT64_MAX).device_bytes;
        mm_manager *m = rig_manager(&(mm_options){.device_bytes = bytes, .trace_bytes = 1 << 20});
        assert_int_equal(rig_bind(&r, m), MM_OK);
        assert_int_equal(mm_allreduce_set(m, graph, &fns, &c), MM_OK);
        assert_int_equal(mm_trace_start(m, "sums"), MM_OK);
        for (int k = 0; k < ITERATIONS; k++)
            assert_int_equal((cases[i].ahead ? rig_iteration_ahead : rig_iteration)(&r, m, cases[i].mode), MM_OK);
        assert_int_equal(mm_manager_sync(m), MM_OK);
        assert_int_equal(mm_trace_stop(m, "trace.json", &dropped), MM_OK);
        assert_int_equal(dropped, 0);
        assert_true(trace_check("trace.json", NULL, &checked));
        assert_int_equal(checked.process[0].iterations, ITERATIONS);
        assert_int_equal(checked.process[0].sums, c.n_groups);
        assert_true(checked.process[0].sums_ns > 0);
        assert_int_equal(unlink("trace.json"), 0);
        mm_manager_destroy(m);
        rig_fini(&r);
        free_halvings(&c);
        mm_graph_destroy(graph);
    }
}

TEST_CASE(what_cannot_be_shared_is_refused) {
    mm_graph *graph;
    mm_tensor map, sum, lone;
    mm_layer layer;
    const mm_tensor_desc descs[] = {{"map", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 1, {4}},
                                    {"sum", MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32, 1, {4}},
                                    {"lone", MM_STATE, MM_PERSISTENT, MM_F32, 1, {4}}};
    assert_int_equal(mm_graph_create("g", &graph), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &descs[0], &map), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &descs[1], &sum), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &descs[2], &lone), MM_OK);
    assert_int_equal(mm_graph_add_layer(graph, "l", MM_LAYER_OTHER, &layer), MM_OK);
    const mm_use uses[] = {{map, MM_WRITE, 0}, {sum, MM_WRITE, 0}};
    assert_int_equal(mm_graph_add_step(graph, layer, MM_FORWARD, uses, 2, 0), MM_OK);
    assert_int_equal(mm_graph_allreduce(graph, map, MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM), MM_ERR_INVALID);
    assert_int_equal(mm_graph_allreduce(graph, 3, MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM), MM_ERR_INVALID);
    assert_int_equal(mm_graph_allreduce(graph, sum, (mm_allreduce_when)9, MM_REDUCE_SUM), MM_ERR_INVALID);
    assert_int_equal(mm_graph_allreduce(graph, sum, MM_ALLREDUCE_AT_ONCE, (mm_reduce_op)9), MM_ERR_INVALID);
    assert_int_equal(mm_graph_allreduce(graph, sum, MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM), MM_OK);
    const mm_use own = {lone, MM_MODIFY, 0};
    assert_int_equal(mm_graph_add_step(graph, layer, MM_BACKWARD, &own, 1, 0), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_ERR_INVALID); /* no update step uses `sum` */
    assert_non_null(strstr(mm_last_error(), "sum: is all-reduced, but no update step"));
    const mm_use update[] = {{sum, MM_READ, 0}, {lone, MM_MODIFY, 0}};
    assert_int_equal(mm_graph_add_step(graph, layer, MM_UPDATE, update, 2, 0), MM_OK);
    assert_int_equal(mm_graph_allreduce(graph, lone, MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_ERR_INVALID); /* the update writes `lone` */
    assert_int_equal(mm_graph_allreduce(graph, lone, MM_ALLREDUCE_NOT, MM_REDUCE_SUM), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    assert_int_equal(mm_graph_allreduce(graph, sum, MM_ALLREDUCE_AT_ONCE, MM_REDUCE_SUM), MM_ERR_ORDER);
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = 1 << 20, .pinned_bytes = 1 << 16});
    assert_int_equal(mm_allreduce_set(m, graph, &(mm_allreduce_fns){.sent = sent}, NULL), MM_ERR_INVALID);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
}
