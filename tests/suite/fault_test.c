/* A device whose Nth call fails, for N from the manager's creation to the end of its iterations: a clear status, nothing
 * left behind, and a manager that goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/device/host_fixture.h"
#include "tests/suite/device_fault.h"
#include "tests/suite/suite_rig.h"

enum { ITERATIONS = 2, BATCH = 2 };

typedef struct fault_case {
    const suite_net *net;
    mm_options options;
    float *after[ITERATIONS]; /* weights after each iteration without a fault */
    size_t n;
    device_fault fault;
    int nth;
} fault_case;

static void fail_case(const fault_case *c, const char *what) {
    fail_msg("%s, issue %s, fault %d at call %d: %s", c->options.policy,
             c->options.issue == MM_ISSUE_THREAD ? "thread" : "inline", (int)c->fault, c->nth, what);
}

static void expect_clear(const fault_case *c, mm_status status) {
    if (!device_fault_happened()) fail_case(c, mm_last_error());
    if (status != MM_ERR_DEVICE || !strstr(mm_last_error(), device_fault_message)) fail_case(c, mm_last_error());
}

static mm_status iterate(suite_run *r) {
    nets_result result;
    return nets_exec_iteration(r->exec, r->s->images, r->s->labels, r->s->batch, SUITE_RATE, &result);
}

/* Whether what is learned and its momenta are the same. Running statistics and gradients may have been written by the
 * steps that did run. */
static bool same_learned(const nets_net *net, const float *a, const float *b, size_t n) {
    for (size_t part = 0; part < n; part += 2 * n / 3) {
        size_t at = part;
        for (int p = 0; p < nets_net_params(net); p++) {
            size_t elems = (size_t)nets_net_param(net, p)->elems;
            if (nets_net_param(net, p)->learned && memcmp(a + at, b + at, elems * sizeof *a) != 0) return false;
            at += elems;
        }
    }
    return true;
}

/* A failed iteration leaves what is learned as it was before, or as it is after one that does not fail. */
static void expect_whole(const fault_case *c, const suite_run *r, const float *before, const float *after) {
    size_t n;
    float *now = suite_weights(r, &n);
    if (!same_learned(r->s->net, now, before, n) && !same_learned(r->s->net, now, after, n))
        fail_case(c, "the weights are neither those from before the iteration nor those from after it");
    free(now);
}

/* From initial values, as if nothing had been. */
static void expect_usable(const fault_case *c, suite_run *r) {
    size_t n;
    nets_exec_init(r->exec, SUITE_SEED);
    for (int i = 0; i < ITERATIONS; i++)
        if (iterate(r) != MM_OK) fail_case(c, mm_last_error());
    float *weights = suite_weights(r, &n);
    if (n != c->n || memcmp(weights, c->after[ITERATIONS - 1], n * sizeof *weights) != 0)
        fail_case(c, "afterwards, other weights than without a fault");
    free(weights);
}

/* Whether the fault has happened. */
static bool run_iterations(const fault_case *c, suite_run *r) {
    mm_status status = MM_OK;
    nets_exec_init(r->exec, SUITE_SEED);
    for (int i = 0; i < ITERATIONS; i++) {
        size_t n;
        float *before = suite_weights(r, &n);
        status = iterate(r);
        if (status != MM_OK) expect_clear(c, status);
        if (status != MM_OK) expect_whole(c, r, before, c->after[i]);
        free(before);
        if (status != MM_OK) break;
    }
    bool happened = device_fault_happened();
    if (happened && status == MM_OK && c->fault != DEVICE_FAULT_DELAY) fail_case(c, "a failure was taken for good");
    device_fault_set(DEVICE_FAULT_NONE, 0);
    expect_usable(c, r);
    return happened;
}

static mm_status create_exec(const fault_case *c, suite_run *r) {
    return nets_exec_create(c->net->net, c->net->batch, NETS_TRAIN, r->manager, "host", &SUITE_SGD, &r->exec);
}

/* True if the fault has happened: so the next one is worth a try. */
static bool run_case(const fault_case *c) {
    suite_run r = {.s = c->net};
    device_fault_set(c->fault, c->nth);
    mm_status status = mm_manager_create(&c->options, &r.manager);
    if (status != MM_OK) {
        expect_clear(c, status);
        device_fault_set(DEVICE_FAULT_NONE, 0);
        return true;
    }
    status = create_exec(c, &r);
    if (status != MM_OK) {
        expect_clear(c, status);
        device_fault_set(DEVICE_FAULT_NONE, 0);
        if (create_exec(c, &r) != MM_OK) fail_case(c, mm_last_error());
        expect_usable(c, &r);
        suite_run_fini(&r);
        return true;
    }
    bool happened = run_iterations(c, &r);
    suite_run_fini(&r);
    return happened;
}

/* Every call until there is none left, in strides where there are many. */
static void run_policy(const suite_net *net, const char *policy, mm_issue issue, device_fault fault, bool self_check) {
    enum { ALL = 40, STRIDE = 3 };
    suite_need need = suite_needs(net, policy, 0);
    fault_case c = {.net = net,
                    .options = {.device_bytes = need.device_bytes,
                                .pinned_bytes = need.pinned_bytes,
                                .policy = policy,
                                .issue = issue,
                                .self_check = self_check,
                                .measure_times = true},
                    .fault = fault,
                    .nth = 1};
    for (int i = 0; i < ITERATIONS; i++) c.after[i] = suite_expected(net, policy, i + 1, &c.n);
    int threads = host_threads();
    while (run_case(&c)) c.nth += c.nth < ALL ? 1 : STRIDE;
    assert_true(c.nth > ALL);
    host_threads_wait(threads);
    for (int i = 0; i < ITERATIONS; i++) free(c.after[i]);
}

static const char *const POLICIES[] = {
    "liveness",
    "swap:when=always",
    "swap-async:when=always",
    "hybrid:rate=8,when=always",
    "recompute:when=always",
    "rules:bn=recompute;relu=recompute;*=swap,when=always",
    "freelunch:codec=raw,eligible=all,when=always",
    "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always",
};

static void run_policies(mm_issue issue, device_fault fault, bool self_check) {
    suite_net net;
    suite_net_init_dropped(&net, BATCH);
    for (size_t p = 0; p < sizeof POLICIES / sizeof *POLICIES; p++)
        run_policy(&net, POLICIES[p], issue, fault, self_check);
    suite_net_fini(&net);
}

static void nth_call_fails_issued_by_threads(void **state) {
    (void)state;
    run_policies(MM_ISSUE_THREAD, DEVICE_FAULT_CALL, true);
}

static void nth_call_fails_issued_inline(void **state) {
    (void)state;
    run_policies(MM_ISSUE_INLINE, DEVICE_FAULT_CALL, false);
}

static void nth_task_fails_issued_by_threads(void **state) {
    (void)state;
    run_policies(MM_ISSUE_THREAD, DEVICE_FAULT_TASK, false);
}

static void nth_task_fails_issued_inline(void **state) {
    (void)state;
    run_policies(MM_ISSUE_INLINE, DEVICE_FAULT_TASK, true);
}

static void nth_task_is_late(void **state) {
    (void)state;
    run_policies(MM_ISSUE_THREAD, DEVICE_FAULT_DELAY, true);
}

/* ---------------------------------------------------------------- between iterations */

/* `other`: a net that has nothing to do with the run's. */
typedef mm_status change_fn(suite_run *r, const suite_net *other, nets_exec **made_out);

/* Tries `change` with a fault at its every call; the first time that it succeeds, nothing was left to fail. After each
 * failure the manager runs on as before. */
static void run_change(const char *policy, change_fn *change) {
    suite_net net, other;
    suite_run r;
    suite_net_init(&other, "vgg11@32,classes=5,thin=32", 1);
    suite_net_init_dropped(&net, BATCH);
    mm_options options = {.device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .policy = policy};
    fault_case c = {.net = &net, .options = options};
    c.after[ITERATIONS - 1] = suite_expected(&net, "liveness", ITERATIONS, &c.n);
    nets_exec *made = NULL;
    suite_run_init(&r, &net, &options);
    for (c.fault = DEVICE_FAULT_CALL; c.fault <= DEVICE_FAULT_TASK; c.fault++)
        for (c.nth = 1;; c.nth++) {
            device_fault_set(c.fault, c.nth);
            mm_status status = change(&r, &other, &made);
            bool happened = device_fault_happened();
            if (status != MM_OK) expect_clear(&c, status);
            device_fault_set(DEVICE_FAULT_NONE, 0);
            expect_usable(&c, &r);
            nets_exec_destroy(made);
            made = NULL;
            if (!happened) break;
            if (status == MM_OK) fail_case(&c, "a failure was taken for good");
        }
    suite_run_fini(&r);
    suite_net_fini(&other);
    suite_net_fini(&net);
    free(c.after[ITERATIONS - 1]);
}

static mm_status set_policy(suite_run *r, const suite_net *other, nets_exec **made_out) {
    (void)other, (void)made_out;
    return mm_policy_set(r->manager, "rules:relu=recompute;*=swap,when=always");
}

static void nth_call_fails_in_a_switch(void **state) {
    (void)state;
    run_change("liveness", set_policy);
    run_change("freelunch:codec=raw,eligible=all,when=always", set_policy);
}

/* New persistent tensors: every plan moves up. */
static mm_status add_net(suite_run *r, const suite_net *other, nets_exec **made_out) {
    return nets_exec_create(other->net, other->batch, NETS_TRAIN, r->manager, "host", &SUITE_SGD, made_out);
}

static mm_status add_evaluation(suite_run *r, const suite_net *other, nets_exec **made_out) {
    (void)other;
    return nets_exec_create(r->s->net, r->s->batch, NETS_EVAL, r->manager, "host", NULL, made_out);
}

static void nth_call_fails_when_a_graph_is_added(void **state) {
    (void)state;
    run_change("swap-async:when=always", add_evaluation);
    run_change("swap-async:when=always", add_net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nth_call_fails_issued_by_threads),
        cmocka_unit_test(nth_call_fails_issued_inline),
        cmocka_unit_test(nth_task_fails_issued_by_threads),
        cmocka_unit_test(nth_task_fails_issued_inline),
        cmocka_unit_test(nth_task_is_late),
        cmocka_unit_test(nth_call_fails_in_a_switch),
        cmocka_unit_test(nth_call_fails_when_a_graph_is_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
