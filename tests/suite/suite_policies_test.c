/* Small networks x policies x five budgets, from the policy's minimum to what liveness needs: lossless policies end
 * with the weights of liveness, bit for bit; lossy ones with finite ones; no byte is touched that was not predicted,
 * none above the budget; nothing runs below the minimum. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/suite/suite_rig.h"

enum { ITERATIONS = 3, BUDGETS = 5, DELAY_NS = 20000 };

typedef struct suite_policy {
    const char *spec;
    bool when; /* it takes when=always, too */
    bool lossy;
} suite_policy;

static const suite_policy POLICIES[] = {
    {"naive", false, false},
    {"liveness", false, false},
    {"swap", true, false},
    {"swap-async", true, false},
    {"vdnn-all", true, false},
    {"vdnn-conv", true, false},
    {"cdma", true, false},
    {"recompute:mode=speed", true, false},
    {"recompute:mode=memory", true, false},
    {"recompute:mode=cost", true, false},
    {"recompute:mode=sqrt", true, false},
    {"rules:bn=recompute;relu=recompute;*=swap", true, false},
    {"freelunch:codec=raw,eligible=all", true, false},
    {"freelunch:rate=8", true, true},
    {"hybrid:rate=8", true, true},
};
enum { POLICY_COUNT = sizeof POLICIES / sizeof *POLICIES };

/* What several policies are compared with. */
typedef struct reference {
    suite_net net;
    int64_t liveness_bytes;
    float *weights;
    size_t n;
} reference;

static mm_options options_for(const char *policy, int64_t bytes, int64_t pinned, int budget) {
    return (mm_options){.device_bytes = bytes,
                        .pinned_bytes = pinned,
                        .policy = policy,
                        .issue = budget % 2 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                        .self_check = budget % 3 == 0,
                        .measure_touched = true,
                        .delay_seed = (uint64_t)budget,
                        .delay_max_ns = DELAY_NS};
}

static void check_memory(mm_manager *m, const char *what, int64_t budget) {
    mm_touched touched;
    mm_stats stats;
    mm_stats_get(m, &stats);
    if (mm_touched_get(m, &touched) != MM_OK) fail_msg("%s: %s", what, mm_last_error());
    if (touched.stray_bytes != 0 || touched.total_bytes > stats.predicted_peak_bytes ||
        stats.predicted_peak_bytes > budget)
        fail_msg("%s: touched %lld (stray %lld), predicted %lld, budget %lld", what, (long long)touched.total_bytes,
                 (long long)touched.stray_bytes, (long long)stats.predicted_peak_bytes, (long long)budget);
}

static void check_moved(mm_manager *m, const char *what, const suite_need *need) {
    mm_stats stats;
    mm_stats_get(m, &stats);
    if (stats.iterations != ITERATIONS || stats.out_bytes != ITERATIONS * need->out_bytes ||
        stats.in_bytes != ITERATIONS * need->in_bytes)
        fail_msg("%s: %lld iterations, %lld bytes out, %lld in; planned %lld and %lld an iteration", what,
                 (long long)stats.iterations, (long long)stats.out_bytes, (long long)stats.in_bytes,
                 (long long)need->out_bytes, (long long)need->in_bytes);
}

/* `lossy`: they must differ where codes are made, or the net would show nothing. */
static void expect_weights(const reference *ref, const suite_run *r, const char *what, bool lossy) {
    size_t n;
    float *weights = suite_weights(r, &n);
    mm_stats stats;
    mm_stats_get(r->manager, &stats);
    assert_int_equal(n, ref->n);
    for (size_t i = 0; lossy && i < n; i++)
        if (!isfinite(weights[i])) fail_msg("%s: weight %zu is not finite", what, i);
    bool same = memcmp(weights, ref->weights, n * sizeof *weights) == 0;
    if (!lossy && !same) fail_msg("%s: other weights than under liveness", what);
    if (lossy && same && stats.decodes > 0) fail_msg("%s: the same weights, though codes are lossy", what);
    free(weights);
}

static void run_at(const reference *ref, const suite_policy *policy, const char *spec, int64_t bytes,
                   const suite_need *need, int budget) {
    char what[256];
    suite_run r;
    snprintf(what, sizeof what, "%s, %s, %lld bytes", nets_net_name(ref->net.net), spec, (long long)bytes);
    mm_options options = options_for(spec, bytes, need->pinned_bytes, budget);
    suite_run_init(&r, &ref->net, &options);
    for (int i = 0; i < ITERATIONS; i++)
        if (!isfinite(suite_iterate(&r))) fail_msg("%s: the loss is not finite", what);
    expect_weights(ref, &r, what, policy->lossy);
    check_memory(r.manager, what, bytes);
    check_moved(r.manager, what, need);
    suite_run_fini(&r);
}

/* The message says how much would do. */
static void expect_refused(const reference *ref, const char *spec, int64_t bytes, int64_t pinned) {
    mm_manager *manager;
    nets_exec *exec;
    mm_options options = options_for(spec, bytes, pinned, 0);
    assert_int_equal(mm_manager_create(&options, &manager), MM_OK);
    mm_status status = nets_exec_create(ref->net.net, ref->net.batch, NETS_TRAIN, manager, "host", NULL, &exec);
    if (status != MM_ERR_INFEASIBLE || !strstr(mm_last_error(), " needs "))
        fail_msg("%s, %s, %lld bytes of device and %lld of pinned memory: %s", nets_net_name(ref->net.net), spec,
                 (long long)bytes, (long long)pinned, status == MM_OK ? "not refused" : mm_last_error());
    mm_manager_destroy(manager);
}

/* A plan of when=needed may use more pinned memory with more of the device's: so it is asked for each budget. */
static void run_budgets(const reference *ref, const suite_policy *policy, const char *spec, int budgets) {
    suite_need least = suite_needs(&ref->net, spec, 0);
    bool always = strstr(spec, "when=always");
    if (policy->when && always && least.operations + least.recomputed == 0)
        fail_msg("%s, %s: does nothing", nets_net_name(ref->net.net), spec);
    int64_t span = ref->liveness_bytes > least.device_bytes ? ref->liveness_bytes - least.device_bytes : 0;
    for (int b = 0; b < budgets; b++) {
        int64_t bytes = least.device_bytes + (budgets > 1 ? span * b / (budgets - 1) : 0);
        suite_need need = suite_needs(&ref->net, spec, bytes);
        assert_true(need.device_bytes <= bytes);
        run_at(ref, policy, spec, bytes, &need, b);
    }
    expect_refused(ref, spec, least.device_bytes - 1, INT32_MAX);
    if (always && least.pinned_bytes > 0) expect_refused(ref, spec, least.device_bytes, least.pinned_bytes - 1);
}

static void run_net(const char *name, int64_t batch) {
    reference ref;
    suite_net_init(&ref.net, name, batch);
    ref.liveness_bytes = suite_needs(&ref.net, "liveness", 0).device_bytes;
    ref.weights = suite_expected(&ref.net, "liveness", ITERATIONS, &ref.n);
    for (int p = 0; p < POLICY_COUNT; p++) {
        const suite_policy *policy = &POLICIES[p];
        /* What acts whatever the budget has the same plan for all: their ends will do. */
        run_budgets(&ref, policy, policy->spec, policy->when ? BUDGETS : 2);
        if (!policy->when) continue;
        char always[192];
        snprintf(always, sizeof always, "%s%cwhen=always", policy->spec, strchr(policy->spec, ':') ? ',' : ':');
        run_budgets(&ref, policy, always, 2);
        assert_true(suite_needs(&ref.net, policy->spec, 0).device_bytes <=
                    suite_needs(&ref.net, always, 0).device_bytes);
    }
    free(ref.weights);
    suite_net_fini(&ref.net);
}

#define NET(test, name, batch)                                                                                         \
    static void test(void **state) {                                                                                   \
        (void)state;                                                                                                   \
        run_net(name, batch);                                                                                          \
    }

NET(tiny_under_every_policy, "tiny", 2)
NET(residual_net_under_every_policy, "cifar-resnet8,thin=4", 2)
NET(net_with_lrn_groups_and_dropout_under_every_policy, "alexnet-2012@99,classes=5,thin=16", 1)
NET(net_with_inception_blocks_under_every_policy, "googlenet@64,classes=5,thin=16", 2)
NET(net_with_concats_of_fire_modules_under_every_policy, "squeezenet1_0@64,classes=5,thin=16", 1)
NET(net_with_crops_and_upsampling_under_every_policy, "unet@188,thin=32", 1)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_under_every_policy),
        cmocka_unit_test(residual_net_under_every_policy),
        cmocka_unit_test(net_with_lrn_groups_and_dropout_under_every_policy),
        cmocka_unit_test(net_with_inception_blocks_under_every_policy),
        cmocka_unit_test(net_with_concats_of_fire_modules_under_every_policy),
        cmocka_unit_test(net_with_crops_and_upsampling_under_every_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
