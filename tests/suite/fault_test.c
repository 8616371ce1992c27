/* SPDX-License-Identifier: MIT */
/* The device's Nth call fails, for N from the manager's creation to the end of its iterations. The status says what
 * failed, nothing is left behind, and the manager can be used further. BUILD names the device: host or cuda. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/core/deep.h"
#include "tests/device/host_fixture.h"
#include "tests/suite/device_fault.h"
#include "tests/suite/suite_rig.h"

enum { ITERATIONS = 2, BATCH = 2 };

/* Returns n: every n-th call is made to fail. Policies and faults begin at different calls, so together they cover all.
 * Under sanitizers n is larger: they take three to five times as long, and find the same in calls of the same kind. */
static int sparse(void) {
#ifdef __SANITIZE_THREAD__
    return 8;
#elif defined __SANITIZE_ADDRESS__
    return test_depth(8, 3);
#else
    return test_depth(4, 1);
#endif
}

static int torn; /* iterations that ended after they had updated some weights */

typedef struct fault_case {
    const suite_net *net;
    mm_options options;
    float *after[ITERATIONS]; /* weights after each iteration without a fault */
    size_t n;
    device_fault fault;
    int nth;
    int64_t *ladder_steps; /* the policy's ladder steps, added up over all cases */
} fault_case;

static void fail_case(const fault_case *c, const char *what) {
    fail_msg("%s, issue %s, fault %d at call %d: %s", c->options.policy,
             c->options.issue == MM_ISSUE_THREAD ? "thread" : "inline", (int)c->fault, c->nth, what);
}

/* Returns the weights; calls that read them are not made to fail. */
static float *weights_of(const suite_run *r, size_t *n_out) {
    device_fault_pause(true);
    float *weights = suite_weights(r, n_out);
    device_fault_pause(false);
    return weights;
}

static bool is_of_memory(const fault_case *c) {
    return c->fault == DEVICE_FAULT_MEMORY_CALL || c->fault == DEVICE_FAULT_MEMORY_TASK;
}

static void expect_clear(const fault_case *c, mm_status status) {
    if (!device_fault_happened()) fail_case(c, mm_last_error());
    if (status != (is_of_memory(c) ? MM_ERR_NOMEM : MM_ERR_DEVICE) || !strstr(mm_last_error(), device_fault_message))
        fail_case(c, mm_last_error());
}

static mm_status iterate(suite_run *r) {
    nets_result result;
    return nets_exec_iteration(r->exec, r->s->images, r->s->labels, r->s->batch, SUITE_RATE, &result);
}

/* Checks that a failed iteration leaves weights, momenta and running statistics as before, or as after a good
 * iteration; or, if weights are updated in the backward pass, that the executor tells that they are torn. Gradients may
 * differ: some steps have run. */
static void expect_whole(const fault_case *c, const suite_run *r, const float *before, const float *after) {
    size_t n;
    int64_t updates;
    device_fault_pause(true);
    const mm_status status = nets_exec_updates(r->exec, &updates);
    device_fault_pause(false);
    if (status == MM_ERR_DEVICE && c->net->update == NETS_UPDATE_IN_BACKWARD) {
        torn++;
        return;
    }
    if (status != MM_OK) fail_case(c, mm_last_error());
    float *now = weights_of(r, &n);
    if (!suite_same_learned(r->s, now, before) && !suite_same_learned(r->s, now, after))
        fail_case(c, "the weights are neither those from before the iteration nor those from after it");
    free(now);
}

/* Checks what was learned: the manager may have gone on with less memory, but that must not change it. */
static void expect_learned(const fault_case *c, const suite_run *r, const float *wanted) {
    size_t n;
    float *now = weights_of(r, &n);
    if (!suite_same_learned(r->s, now, wanted)) fail_case(c, "a step down the ladder changed what is learned");
    free(now);
}

/* Checks that training from the initial values works as if nothing had failed. */
static void expect_usable(const fault_case *c, suite_run *r) {
    size_t n;
    if (nets_exec_init(r->exec, SUITE_SEED) != MM_OK) fail_case(c, mm_last_error());
    for (int i = 0; i < ITERATIONS; i++)
        if (iterate(r) != MM_OK) fail_case(c, mm_last_error());
    float *weights = weights_of(r, &n);
    if (n != c->n || memcmp(weights, c->after[ITERATIONS - 1], n * sizeof *weights) != 0)
        fail_case(c, "afterwards, other weights than without a fault");
    free(weights);
}

/* Whether the manager's creation met the fault and still has all it was asked for: a second attempt to reserve the
 * memory succeeded, so there is nothing to report. */
static bool is_made_good(const fault_case *c, const suite_run *r) {
    mm_stats stats;
    mm_stats_get(r->manager, &stats);
    return is_of_memory(c) && device_fault_happened() && stats.ladder_steps == 0 &&
           mm_manager_device_bytes(r->manager) == c->options.device_bytes;
}

/* made_good: see is_made_good. Returns whether the fault has happened. */
static bool run_iterations(const fault_case *c, suite_run *r, bool made_good) {
    mm_status status = nets_exec_init(r->exec, SUITE_SEED);
    if (status != MM_OK) expect_clear(c, status);
    for (int i = 0; status == MM_OK && i < ITERATIONS; i++) {
        size_t n;
        float *before = weights_of(r, &n);
        status = iterate(r);
        if (status != MM_OK) expect_clear(c, status);
        if (status != MM_OK) expect_whole(c, r, before, c->after[i]);
        if (status == MM_OK) expect_learned(c, r, c->after[i]);
        free(before);
    }
    bool happened = device_fault_happened();
    mm_stats stats;
    mm_stats_get(r->manager, &stats);
    if (c->ladder_steps) *c->ladder_steps += stats.ladder_steps;
    bool good = c->fault == DEVICE_FAULT_DELAY || stats.ladder_steps > 0 || made_good;
    if (happened && status == MM_OK && !good) fail_case(c, "a failure was not reported");
    device_fault_set(DEVICE_FAULT_NONE, 0);
    expect_usable(c, r);
    return happened;
}

static mm_status create_exec(const fault_case *c, suite_run *r) {
    return nets_exec_create_with(c->net->net, c->net->batch, NETS_TRAIN, r->manager, r->backend, &SUITE_SGD,
                                 &(nets_exec_options){.update = c->net->update}, &r->exec);
}

/* Returns whether the fault has happened; if it has not, there was no such call, and later calls need not be tried. */
static bool run_case(const fault_case *c) {
    suite_run r = {.s = c->net, .backend = suite_backend(c->net)};
    device_fault_set(c->fault, c->nth);
    mm_status status = mm_manager_create(&c->options, &r.manager);
    if (status != MM_OK) {
        expect_clear(c, status);
        device_fault_set(DEVICE_FAULT_NONE, 0);
        nets_backend_close(r.backend);
        return true;
    }
    const bool made_good = is_made_good(c, &r);
    status = create_exec(c, &r);
    if (status == MM_ERR_INFEASIBLE && is_of_memory(c) && device_fault_happened() &&
        mm_manager_device_bytes(r.manager) < c->options.device_bytes) {
        /* The device gave less than any plan takes. This is likely where oneDNN wants much workspace. */
        device_fault_set(DEVICE_FAULT_NONE, 0);
        suite_run_fini(&r);
        return true;
    }
    if (status != MM_OK) {
        expect_clear(c, status);
        device_fault_set(DEVICE_FAULT_NONE, 0);
        if (create_exec(c, &r) != MM_OK) fail_case(c, mm_last_error());
        expect_usable(c, &r);
        suite_run_fini(&r);
        return true;
    }
    bool happened = run_iterations(c, &r, made_good);
    suite_run_fini(&r);
    return happened;
}

/* On the host each call fails in turn, or one in several if there are many. On other devices a case takes a tenth of a
 * second, so only one call from each place in the library fails. */
static void first_fault(fault_case *c, int nth) {
    device_fault_forget_places();
    c->nth = strcmp(c->net->device, "host") == 0 ? 1 + nth % sparse() : DEVICE_FAULT_NEW_PLACE;
}

static void next_fault(fault_case *c, int stride) {
    if (c->nth != DEVICE_FAULT_NEW_PLACE) c->nth += stride * sparse();
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
    "rules:relu=compress(zvc:reserve=10);*=compress-swap(zvc),when=always",
};

static void run_policy(const suite_net *net, size_t p, mm_issue issue, device_fault fault, bool self_check,
                       int64_t *ladder_steps) {
    enum { ALL = 40, STRIDE = 3, PLACES = 5 };
    const char *policy = POLICIES[p];
    suite_need need = suite_needs(net, policy, 0);
    if (ladder_steps) { /* so that a plan with a little less fits too */
        need.device_bytes += need.device_bytes / 10;
        need.pinned_bytes += need.pinned_bytes / 10 + 65536;
    }
    fault_case c = {.net = net,
                    .options = {.device = net->device,
                                .device_bytes = need.device_bytes,
                                .pinned_bytes = need.pinned_bytes,
                                .policy = policy,
                                .issue = issue,
                                .self_check = self_check,
                                .measure_times = true},
                    .fault = fault,
                    .ladder_steps = ladder_steps};
    for (int i = 0; i < ITERATIONS; i++) c.after[i] = suite_expected(net, policy, i + 1, &c.n);
    int threads = host_threads(), cases = 0;
    for (first_fault(&c, (int)p + 3 * (int)fault); run_case(&c); cases++) {
        /* A GPU's driver starts threads with the first work of a kind, and keeps them. */
        if (cases == 0 && strcmp(net->device, "host") != 0 && host_threads() > threads) {
            host_threads_settle(NULL);
            threads = host_threads();
        }
        next_fault(&c, c.nth < ALL ? 1 : STRIDE);
    }
    assert_true(cases >= (c.nth == DEVICE_FAULT_NEW_PLACE ? PLACES : ALL / sparse()));
    host_threads_wait(threads);
    for (int i = 0; i < ITERATIONS; i++) free(c.after[i]);
}

/* Whether to run this policy and fault with this `issue`. Where cases are fast, and for delays, both ways to issue are
 * run; else only one, which depends on the policy and the fault. */
static bool is_issued_so(const char *device, size_t p, mm_issue issue, device_fault fault) {
    const bool fast = sparse() == 1 && strcmp(device, "host") == 0;
    return fast || fault == DEVICE_FAULT_DELAY || (p + (size_t)fault) % 2 == (size_t)(issue == MM_ISSUE_THREAD);
}

/* Under a sanitizer each policy has every other fault only. */
static bool is_left_out(size_t p, device_fault fault) { return test_is_sanitized() && (p / 2 + (size_t)fault) % 2; }

static void run_policies(const char *device, mm_issue issue, device_fault fault, bool self_check) {
    suite_net net;
    suite_net_init_dropped(&net, device, BATCH);
    for (size_t p = 0; p < sizeof POLICIES / sizeof *POLICIES; p++)
        if (is_issued_so(device, p, issue, fault) && !is_left_out(p, fault))
            run_policy(&net, p, issue, fault, self_check, NULL);
    suite_net_fini(&net);
}

/* Memory runs out under lossless policies. The policies that stand in end with the same bits. */
static void run_out(const char *device, mm_issue issue, device_fault fault, bool self_check) {
    suite_net net;
    int64_t ladder_steps = 0;
    suite_net_init_dropped(&net, device, BATCH);
    for (size_t p = 0; p < sizeof POLICIES / sizeof *POLICIES; p++)
        if (!strstr(POLICIES[p], "rate=") && is_issued_so(device, p, issue, fault) && !is_left_out(p, fault))
            run_policy(&net, p, issue, fault, self_check, &ladder_steps);
    assert_true(ladder_steps > 0);
    suite_net_fini(&net);
}

static void memory_runs_out_at_the_nth_call(void **state) {
    run_out(*state, MM_ISSUE_THREAD, DEVICE_FAULT_MEMORY_CALL, false);
    run_out(*state, MM_ISSUE_INLINE, DEVICE_FAULT_MEMORY_CALL, true);
}

static void memory_runs_out_in_the_nth_task(void **state) {
    run_out(*state, MM_ISSUE_THREAD, DEVICE_FAULT_MEMORY_TASK, true);
    run_out(*state, MM_ISSUE_INLINE, DEVICE_FAULT_MEMORY_TASK, false);
}

static void nth_call_fails_issued_by_threads(void **state) {
    run_policies(*state, MM_ISSUE_THREAD, DEVICE_FAULT_CALL, true);
}

static void nth_call_fails_issued_inline(void **state) {
    run_policies(*state, MM_ISSUE_INLINE, DEVICE_FAULT_CALL, false);
}

static void nth_task_fails_issued_by_threads(void **state) {
    run_policies(*state, MM_ISSUE_THREAD, DEVICE_FAULT_TASK, false);
}

static void nth_task_fails_issued_inline(void **state) {
    run_policies(*state, MM_ISSUE_INLINE, DEVICE_FAULT_TASK, true);
}

/* Weights are updated in the backward pass: an iteration that fails is undone, or told to be torn. */
static void nth_call_or_task_fails_between_updates(void **state) {
    suite_net net;
    suite_net_init_dropped(&net, *state, BATCH);
    net.update = NETS_UPDATE_IN_BACKWARD;
    torn = 0;
    for (size_t p = 1; p < 5; p += 3)
        for (device_fault fault = DEVICE_FAULT_CALL; fault <= DEVICE_FAULT_TASK; fault++)
            run_policy(&net, p, fault == DEVICE_FAULT_CALL ? MM_ISSUE_INLINE : MM_ISSUE_THREAD, fault, false, NULL);
    /* On other devices the first call of each place fails, and that is before the first update. */
    assert_true(torn > 0 || strcmp(net.device, "host") != 0);
    suite_net_fini(&net);
}

static void nth_task_is_late(void **state) { run_policies(*state, MM_ISSUE_THREAD, DEVICE_FAULT_DELAY, true); }

/* ---------------------------------------------------------------- between iterations */

/* other: a net that is not the run's. */
typedef mm_status change_fn(suite_run *r, const suite_net *other, nets_exec **made_out);

/* Tries `change` with a fault at each of its calls, until it succeeds because no call was left to fail. After each
 * failure the manager runs on as before. */
static void run_change(const char *device, const char *policy, change_fn *change) {
    suite_net net, other;
    suite_run r;
    suite_net_init(&other, device, "vgg11@32,classes=5,thin=32", 1);
    suite_net_init_dropped(&net, device, BATCH);
    mm_options options = {.device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .policy = policy};
    fault_case c = {.net = &net, .options = options};
    c.after[ITERATIONS - 1] = suite_expected(&net, "liveness", ITERATIONS, &c.n);
    nets_exec *made = NULL;
    suite_run_init(&r, &net, &options);
    for (c.fault = DEVICE_FAULT_CALL; c.fault <= DEVICE_FAULT_TASK; c.fault++)
        for (first_fault(&c, (int)c.fault);; next_fault(&c, 1)) {
            device_fault_set(c.fault, c.nth);
            mm_status status = change(&r, &other, &made);
            bool happened = device_fault_happened();
            if (status != MM_OK) expect_clear(&c, status);
            device_fault_set(DEVICE_FAULT_NONE, 0);
            expect_usable(&c, &r);
            nets_exec_destroy(made);
            made = NULL;
            if (!happened) break;
            if (status == MM_OK) fail_case(&c, "a failure was not reported");
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
    run_change(*state, "liveness", set_policy);
    run_change(*state, "freelunch:codec=raw,eligible=all,when=always", set_policy);
}

/* Makes the budget smaller than the policy needs, switches policies there, and makes it larger again. */
static mm_status set_budget(suite_run *r, const suite_net *other, nets_exec **made_out) {
    (void)other, (void)made_out;
    suite_need need = suite_needs(r->s, "swap", 0);
    int64_t all = mm_manager_device_bytes(r->manager);
    mm_status status = mm_budget_set(r->manager, need.device_bytes);
    if (status == MM_OK) status = mm_policy_set(r->manager, "swap-async:when=always,depth=3");
    if (status == MM_OK) status = mm_policy_set(r->manager, "liveness");
    return status == MM_OK ? mm_budget_set(r->manager, all) : status;
}

static void nth_call_fails_when_the_budget_changes(void **state) {
    run_change(*state, "liveness", set_budget);
    run_change(*state, "vdnn-all:when=always", set_budget);
}

/* Adds a net, whose persistent tensors take room below all plans. */
static mm_status add_net(suite_run *r, const suite_net *other, nets_exec **made_out) {
    return nets_exec_create_on(other->net, other->batch, NETS_TRAIN, r->manager, r->backend, &SUITE_SGD, made_out);
}

static mm_status add_evaluation(suite_run *r, const suite_net *other, nets_exec **made_out) {
    (void)other;
    return nets_exec_create_on(r->s->net, r->s->batch, NETS_EVAL, r->manager, r->backend, NULL, made_out);
}

static void nth_call_fails_when_a_graph_is_added(void **state) {
    run_change(*state, "swap-async:when=always", add_evaluation);
    run_change(*state, "swap-async:when=always", add_net);
}

/* Here the persistent tensors to restore after a failure are not one range, so the copy made of them has several
 * pieces. */
static void nth_call_fails_in_an_iteration_of_a_net_added_to_another(void **state) {
    suite_net first, second;
    suite_run r;
    size_t n;
    suite_net_init(&first, *state, "vgg11@32,classes=5,thin=32", 1);
    suite_net_init_dropped(&second, *state, BATCH);
    mm_options options = {
        .device_bytes = 1 << 20, .pinned_bytes = 1 << 20, .policy = "liveness", .issue = MM_ISSUE_INLINE};
    fault_case c = {.net = &second, .options = options};
    float *after = suite_expected(&second, "liveness", 1, &n);
    suite_run_init(&r, &first, &options);
    for (c.fault = DEVICE_FAULT_CALL; c.fault <= DEVICE_FAULT_TASK; c.fault++)
        for (first_fault(&c, (int)c.fault);; next_fault(&c, 1)) {
            suite_run added = {.s = &second, .manager = r.manager};
            assert_int_equal(add_net(&r, &second, &added.exec), MM_OK);
            assert_int_equal(nets_exec_init(added.exec, SUITE_SEED), MM_OK);
            float *before = weights_of(&added, &n);
            device_fault_set(c.fault, c.nth);
            mm_status status = iterate(&added);
            bool happened = device_fault_happened();
            if (status != MM_OK) expect_clear(&c, status);
            device_fault_set(DEVICE_FAULT_NONE, 0);
            expect_whole(&c, &added, before, after);
            nets_exec_destroy(added.exec);
            free(before);
            if (!happened) break;
            if (status == MM_OK) fail_case(&c, "a failure was not reported");
        }
    suite_run_fini(&r);
    suite_net_fini(&second);
    suite_net_fini(&first);
    free(after);
}

int main(void) {
    static const char device[] = FAULT_DEVICE;
    const struct CMUnitTest tests[] = {
        SUITE_TEST(nth_call_fails_issued_by_threads, device),
        SUITE_TEST(nth_call_fails_issued_inline, device),
        SUITE_TEST(nth_task_fails_issued_by_threads, device),
        SUITE_TEST(nth_task_fails_issued_inline, device),
        SUITE_TEST(nth_call_or_task_fails_between_updates, device),
        SUITE_TEST(nth_task_is_late, device),
        SUITE_TEST(memory_runs_out_at_the_nth_call, device),
        SUITE_TEST(memory_runs_out_in_the_nth_task, device),
        SUITE_TEST(nth_call_fails_in_a_switch, device),
        SUITE_TEST(nth_call_fails_when_the_budget_changes, device),
        SUITE_TEST(nth_call_fails_when_a_graph_is_added, device),
        SUITE_TEST(nth_call_fails_in_an_iteration_of_a_net_added_to_another, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
