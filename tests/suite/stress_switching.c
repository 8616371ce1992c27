/* SPDX-License-Identifier: MIT */
/* Between iterations, policies and budgets change at random, hundreds of times, in one manager. Some budgets fit the
 * strongest policy only, which then stands in for others, and memory runs out in between. The weights end as if nothing
 * had changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/core/deep.h"
#include "tests/core/random.h"
#include "tests/suite/device_fault.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 2, DELAY_NS = 20000 };

static int most_iterations(void) { return test_depth(80, 400); }

static const char *const LOSSLESS[] = {
    "naive",
    "liveness",
    "swap:when=always",
    "swap-async:depth=3,when=always",
    "vdnn-all:when=always",
    "vdnn-conv:when=always",
    "cdma:when=always",
    "recompute:when=always",
    "recompute:mode=speed,when=always",
    "recompute:mode=memory,when=always",
    "recompute:mode=sqrt,when=always",
    "recompute:mode=nested,when=always",
    "recompute",
    "recompute:mode=sqrt",
    "rules:bn=recompute;relu=recompute;*=swap,when=always",
    "rules:conv=compress(raw);relu=recompute;*=compress-swap(raw),when=always",
    "freelunch:codec=raw,eligible=all,when=always",
    "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always",
    "freelunch:codec=zvc,eligible=all,buffers=naive,when=always",
    "rules:relu=compress(zvc:reserve=10);*=compress-swap(zvc),when=always",
    "swap-async",
};
enum { LOSSLESS_COUNT = sizeof LOSSLESS / sizeof *LOSSLESS };

/* Sets the budgets to the most that any lossless policy needs. */
static void needs_of_all(const suite_net *net, mm_options *options) {
    for (int p = 0; p < LOSSLESS_COUNT; p++) {
        suite_need need = suite_needs(net, LOSSLESS[p], INT64_MAX);
        if (need.device_bytes > options->device_bytes) options->device_bytes = need.device_bytes;
        if (need.pinned_bytes > options->pinned_bytes) options->pinned_bytes = need.pinned_bytes;
    }
}

static void switch_at_random(mm_manager *m, uint64_t *random) {
    const char *spec = LOSSLESS[random_below(random, LOSSLESS_COUNT)];
    if (random_below(random, 3) == 0) return;
    if (mm_policy_set(m, spec) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
}

/* Sets a budget between the least of the strongest policy and all that was reserved. */
static void resize_at_random(mm_manager *m, int64_t least, int64_t reserved, uint64_t *random) {
    if (random_below(random, 4) != 0) return;
    int64_t bytes =
        random_below(random, 2) ? least + (int64_t)(random_next(random) % (uint64_t)(reserved - least + 1)) : reserved;
    if (mm_budget_set(m, bytes) != MM_OK) fail_msg("%lld bytes: %s", (long long)bytes, mm_last_error());
}

/* Sometimes tries to switch to a wrong policy, which must be refused and change nothing. */
static void switch_in_vain(mm_manager *m, uint64_t *random) {
    static const char *const wrong[] = {"no-such-policy", "swap:depth=0", "rules:conv=compress(none)"};
    if (random_below(random, 8) == 0) assert_int_not_equal(mm_policy_set(m, wrong[random_below(random, 3)]), MM_OK);
}

/* Runs an iteration in which memory may run out, and runs it again until its update has been made. */
static void iterate_short_of_memory(suite_run *r, uint64_t *random, int64_t done) {
    int64_t updates = done;
    while (updates == done) {
        nets_result result;
        if (random_below(random, 8) == 0) device_fault_set(DEVICE_FAULT_MEMORY_TASK, 1 + random_below(random, 60));
        mm_status status = nets_exec_iteration(r->exec, r->s->images, r->s->labels, r->s->batch, SUITE_RATE, &result);
        device_fault_set(DEVICE_FAULT_NONE, 0);
        if (status != MM_OK && status != MM_ERR_NOMEM) fail_msg("%s", mm_last_error());
        if (nets_exec_updates(r->exec, &updates) != MM_OK) fail_msg("%s", mm_last_error());
    }
    assert_int_equal(updates, done + 1);
}

static void check_memory(suite_run *r, int64_t reserved) {
    mm_touched touched;
    mm_stats stats;
    mm_stats_get(r->manager, &stats);
    assert_int_equal(mm_touched_get(r->manager, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes <= stats.predicted_peak_bytes);
    assert_true(stats.predicted_peak_bytes <= reserved);
    assert_true(stats.decodes > 0 && stats.in_bytes > 0);
    assert_true(stats.ladder_steps > 0);
}

/* iterations: how many run on the host. On a GPU, which may be emulated, a quarter of them run if they are over 100. */
static void run(const char *device, const char *name, mm_issue issue, uint64_t seed, int iterations, bool runs_out) {
    if (strcmp(device, "host") != 0 && iterations > 100) iterations /= 4;
    suite_net net;
    suite_run r;
    size_t n, found;
    suite_net_init(&net, device, name, BATCH);
    mm_options options = {.policy = "naive",
                          .issue = issue,
                          .self_check = true,
                          .measure_touched = true,
                          .delay_seed = seed,
                          .delay_max_ns = DELAY_NS};
    needs_of_all(&net, &options);
    int64_t least = suite_needs(&net, "swap:when=always", 0).device_bytes;
    float *expected = suite_expected(&net, "liveness", iterations, &n);
    uint64_t random = seed;
    suite_run_init(&r, &net, &options);
    for (int i = 0; i < iterations; i++) {
        resize_at_random(r.manager, least, options.device_bytes, &random);
        switch_at_random(r.manager, &random);
        switch_in_vain(r.manager, &random);
        if (runs_out)
            iterate_short_of_memory(&r, &random, i);
        else
            suite_iterate(&r);
    }
    float *weights = suite_weights(&r, &found);
    assert_int_equal(found, n);
    assert_true(suite_same_learned(&net, weights, expected));
    /* An iteration that ran twice has seen its batch twice, so only what is learned is the same. */
    if (!runs_out) assert_memory_equal(weights, expected, n * sizeof *weights);
    check_memory(&r, options.device_bytes);
    free(weights);
    free(expected);
    suite_run_fini(&r);
    suite_net_fini(&net);
}

static void switched_at_random_issued_by_threads(void **state) {
    run(*state, "tiny@16,thin=2", MM_ISSUE_THREAD, 1, most_iterations(), false);
}

static void switched_at_random_issued_inline(void **state) {
    run(*state, "tiny@16,thin=2", MM_ISSUE_INLINE, 2, most_iterations() / 2, false);
}

static void residual_net_switched_at_random(void **state) {
    run(*state, "cifar-resnet8@16,thin=8", MM_ISSUE_THREAD, 3, most_iterations() / 4, false);
}

static void switched_at_random_while_memory_runs_out(void **state) {
    run(*state, "tiny@16,thin=2", MM_ISSUE_THREAD, 4, most_iterations(), true);
    run(*state, "cifar-resnet8@16,thin=8", MM_ISSUE_INLINE, 5, most_iterations() / 4, true);
}

static int run_group(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(switched_at_random_issued_by_threads, device),
        SUITE_TEST(switched_at_random_issued_inline, device),
        SUITE_TEST(residual_net_switched_at_random, device),
        SUITE_TEST(switched_at_random_while_memory_runs_out, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run_group); }
