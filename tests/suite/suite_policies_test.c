/* SPDX-License-Identifier: MIT */
/* Networks x policies x two budgets: the policy's minimum, and half way to what liveness needs. The deep tier has five
 * budgets from the one to the other (large networks: three, and one policy of a kind). Lossless policies end with the
 * weights of liveness, bit for bit; lossy ones stay within stated bounds, which a wrong map exceeds. No byte is touched
 * that was not predicted or is above the budget; nothing runs below the minimum. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/plan/plan.h"
#include "policies/policy.h"
#include "tests/accuracy/codec_fault.h"
#include "tests/core/deep.h"
#include "tests/suite/suite_rig.h"

/* How many budgets a policy is run at. Few are enough under sanitizers, which look for races and memory errors, not for
 * wrong weights. */
static int budgets_of(bool large) {
#ifdef __SANITIZE_THREAD__
    (void)large;
    return 2;
#elif defined __SANITIZE_ADDRESS__
    return large ? test_depth(1, 2) : test_depth(2, 3);
#else
    return test_depth(2, large ? 3 : 5);
#endif
}

/* Budget `number` of `budgets`, from the policy's minimum to what liveness needs, which is `span` more. If there are
 * two, the second is half way, or all the way in the deep tier. */
static int64_t budget_between(int64_t least, int64_t span, int number, int budgets) {
    const int parts = budgets <= 2 ? test_depth(2, 1) : budgets - 1;
    return least + span * number / parts;
}

/* If the environment's MM_SUITE_POLICIES is set, it has words: only policies whose spec contains one of them run. */
static bool is_wanted(const char *spec) {
    const char *word = getenv("MM_SUITE_POLICIES");
    if (!word) return true;
    for (size_t n; *word; word += n + (word[n] != '\0')) {
        n = strcspn(word, " ");
        if (n > 0 && memmem(spec, strlen(spec), word, n)) return true;
    }
    return false;
}

enum { ITERATIONS = 3, DELAY_NS = 20000 };

typedef struct suite_policy {
    const char *spec;
    bool when; /* it takes the option when=always */
    bool lossy;
    bool bodies; /* its codes vary in size, and may be spilled at any budget */
    bool large;  /* it runs on large networks too; of policies that treat maps alike, one does */
} suite_policy;

static const suite_policy POLICIES[] = {
    {"rules:*=compress(zvc)", true, false, true, false},
    {"rules:*=compress(zvc:reserve=1)", true, false, true, true}, /* nearly everything is spilled */
    {"rules:*=compress-swap(zvc)", true, false, true, true},
    {"rules:*=compress(exponent)", true, false, true, false},
    {"naive", false, false, false, false},
    {"liveness", false, false, false, false},
    {"liveness:inplace=off,layout=groups,stash=apart", false, false, false, true},
    {"swap", true, false, false, false},
    {"swap-async", true, false, false, true},
    {"vdnn-all", true, false, false, false},
    {"vdnn-conv", true, false, false, false},
    {"vdnn-dyn", false, false, false, false},
    {"cdma", true, false, false, false},
    {"modnn", false, false, false, true},
    {"cdma:codec=rle,signs=whole", true, false, true, false},
    {"cdma:codec=csr", true, false, true, true},
    {"recompute:mode=speed", true, false, false, false},
    {"recompute:mode=memory", true, false, false, true},
    {"recompute:mode=cost", true, false, false, false},
    {"recompute:mode=sqrt", true, false, false, true},
    {"recompute:mode=nested", true, false, false, true},
    {"recompute-swap", true, false, false, true},
    {"recompute-swap:mode=nested", true, false, false, false},
    {"auto:effort=0", false, false, false, true},
    {"auto:codecs=zfp:rate=8,effort=0", false, true, false, false},
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* auto's search takes minutes there */
    {"auto", false, false, false, false},
    {"auto:codecs=zfp:rate=8", false, true, false, false},
#endif
    {"rules:bn=recompute;relu=recompute;*=lean-swap", true, false, false, true},
    {"rules:conv=lean-recompute;relu=lean-recompute;*=lean-swap,mode=memory", true, false, false, true},
    {"rules:*=lean-swap,depth=0", true, false, false, true}, /* images and the pools' index maps are moved out too */
    {"freelunch:codec=raw,eligible=all", true, false, false, true},
    {"freelunch:rate=8", true, true, false, false},
    {"freelunch:codec=raw,eligible=all,codes=auto", true, false, false, false}, /* steps code by themselves */
    {"hybrid:rate=8", true, true, false, true},
    {"comet:every=1", true, false, true, true}, /* each iteration is sampled and rehearsed; nothing is lost */
    {"gist:lossless", true, false, true, true},
    {"rotor", true, false, false, true},
    {"knapsack", true, false, false, true},
};
enum { POLICY_COUNT = sizeof POLICIES / sizeof *POLICIES };

/* Bounds for ZFP at 8 bits a value, over all networks and budgets:
 *   gradients of the first iteration, all together: |g - exact| / |exact|
 *   parameters after the last: |w - exact| / |exact - initial|
 * The bound of a map's error (pipeline/codec/zfp/zfp_error.h) implies none for what is learned, so these follow from
 * measurements: at most 0.0112 and 0.09, by googlenet, whose last batch norms see eight pixels; rounding alone can make
 * its error three times larger or smaller in three steps. A wrong map (height and width exchanged, NCHW, or a row off)
 * gives gradients that are off by at least four times as much. */
static const double GRADIENT_ERROR = 0.02, WEIGHT_ERROR = 0.2;

/* The run under liveness with which runs under other policies are compared. */
typedef struct reference {
    suite_net net;
    int64_t liveness_bytes;
    float *initial, *first, *weights; /* at the start, after the first iteration, and at the end */
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

/* Checks that the bytes copied are those of the plan; bytes of spilled codes are not counted. */
static void check_moved(mm_manager *m, const char *what, const suite_need *need) {
    mm_stats stats;
    mm_stats_get(m, &stats);
    const int64_t out = stats.out_bytes - stats.spilled_bytes, in = stats.in_bytes - stats.spilled_bytes;
    if (stats.iterations != ITERATIONS || out != ITERATIONS * need->out_bytes || in != ITERATIONS * need->in_bytes)
        fail_msg(
            "%s: %lld iterations, %lld bytes out, %lld in, besides %lld spilled; planned %lld and %lld an iteration",
            what, (long long)stats.iterations, (long long)out, (long long)in, (long long)stats.spilled_bytes,
            (long long)need->out_bytes, (long long)need->in_bytes);
    if (need->bodies && (stats.coded_bytes == 0 || stats.spilled_bytes > stats.coded_bytes))
        fail_msg("%s: %lld bytes of codes, %lld of them spilled", what, (long long)stats.coded_bytes,
                 (long long)stats.spilled_bytes);
    if (need->spills && stats.spilled_bytes == 0) fail_msg("%s: nothing is spilled", what);
}

/* |a - b| / |b - c|; c NULL: zero. */
static double distance(const float *a, const float *b, const float *c, size_t n) {
    double apart = 0, length = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i], l = (double)b[i] - (c ? (double)c[i] : 0);
        apart += d * d;
        length += l * l;
    }
    return sqrt(apart / length);
}

/* The error of all gradients of the first iteration together. */
static double gradient_error(const reference *ref, const suite_run *r) {
    size_t n, part = ref->n / NETS_PARTS;
    float *weights = suite_weights(r, &n);
    double error = distance(weights + part, ref->first + part, NULL, part);
    free(weights);
    return error;
}

static void expect_gradients(const reference *ref, const suite_run *r, const char *what) {
    double error = gradient_error(ref, r);
    if (!(error <= GRADIENT_ERROR)) fail_msg("%s: gradients off by %g, bound %g", what, error, GRADIENT_ERROR);
}

/* Compares the weights at the end with liveness's. lossy: if codes were made, the weights must differ, or the network
 * would test nothing. (auto has lossless codes, too, and may take these alone.) */
static void expect_weights(const reference *ref, const suite_run *r, const char *what, bool lossy) {
    size_t n;
    float *weights = suite_weights(r, &n);
    mm_stats stats;
    mm_stats_get(r->manager, &stats);
    assert_int_equal(n, ref->n);
    double error = lossy ? distance(weights, ref->weights, ref->initial, ref->n / NETS_PARTS) : 0;
    if (!(error <= WEIGHT_ERROR)) fail_msg("%s: weights off by %g, bound %g", what, error, WEIGHT_ERROR);
    bool same = memcmp(weights, ref->weights, n * sizeof *weights) == 0;
    if (!lossy && !same) fail_msg("%s: other weights than under liveness", what);
    if (lossy && same && stats.decodes > 0 && !strstr(what, "auto"))
        fail_msg("%s: the same weights, though codes are lossy", what);
    free(weights);
}

static void run_at(const reference *ref, const suite_policy *policy, const char *spec, int64_t bytes,
                   const suite_need *need, int budget) {
    char what[256];
    suite_run r;
    snprintf(what, sizeof what, "%s, %s, %lld bytes", nets_net_name(ref->net.net), spec, (long long)bytes);
    mm_options options = options_for(spec, bytes, need->pinned_bytes, budget);
    suite_run_init(&r, &ref->net, &options);
    for (int i = 0; i < ITERATIONS; i++) {
        if (!isfinite(suite_iterate(&r))) fail_msg("%s: the loss is not finite", what);
        if (policy->lossy && i == 0) expect_gradients(ref, &r, what);
    }
    expect_weights(ref, &r, what, policy->lossy);
    check_memory(r.manager, what, bytes);
    check_moved(r.manager, what, need);
    suite_run_fini(&r);
}

/* Checks that the executor is refused in this memory, with a message that says how much is needed. */
static void expect_refused(const reference *ref, const char *spec, int64_t bytes, int64_t pinned) {
    mm_manager *manager;
    nets_exec *exec;
    nets_backend *backend = suite_backend(&ref->net);
    mm_options options = options_for(spec, bytes, pinned, 0);
    options.device = ref->net.device;
    assert_int_equal(mm_manager_create(&options, &manager), MM_OK);
    mm_status status = nets_exec_create_on(ref->net.net, ref->net.batch, NETS_TRAIN, manager, backend, NULL, &exec);
    if (status != MM_ERR_INFEASIBLE || !strstr(mm_last_error(), " needs "))
        fail_msg("%s, %s, %lld bytes of device and %lld of pinned memory: %s", nets_net_name(ref->net.net), spec,
                 (long long)bytes, (long long)pinned, status == MM_OK ? "not refused" : mm_last_error());
    mm_manager_destroy(manager);
    nets_backend_close(backend);
}

/* Runs the policy at `budgets` budgets. With when=needed, the plan for a larger budget may take more pinned memory, so
 * its need is found for each budget. */
static void run_budgets(const reference *ref, const suite_policy *policy, const char *spec, int budgets) {
    suite_need least = suite_needs(&ref->net, spec, 0);
    bool always = strstr(spec, "when=always");
    const bool for_images = strncmp(spec, "comet", 5) == 0 || strncmp(spec, "gist", 4) == 0;
    if (policy->when && always && least.operations + least.recomputed == 0 &&
        !(for_images && nets_net_tokens(ref->net.net))) /* comet and gist act on convolutions and ReLUs */
        fail_msg("%s, %s: does nothing", nets_net_name(ref->net.net), spec);
    int64_t span = ref->liveness_bytes > least.device_bytes ? ref->liveness_bytes - least.device_bytes : 0;
    for (int b = 0; b < budgets; b++) {
        int64_t bytes = budget_between(least.device_bytes, span, b, budgets);
        int64_t pinned = suite_needs(&ref->net, spec, bytes).pinned_bytes;
        suite_need need =
            suite_needs_within(&ref->net, spec, bytes, pinned); /* may be another plan: pinned memory is limited now */
        assert_true(need.device_bytes <= bytes && need.pinned_bytes <= pinned);
        need.pinned_bytes = pinned;
        run_at(ref, policy, spec, bytes, &need, b);
    }
    expect_refused(ref, spec, least.device_bytes - 1, INT32_MAX);
    if (!always || least.pinned_bytes == 0) return;
    /* With less pinned memory, codes that do not fit there may by chance fit on the device. */
    const int64_t less = least.pinned_bytes - 1;
    if (policy->bodies && suite_needs_within(&ref->net, spec, least.device_bytes, less).pinned_bytes <= less) return;
    expect_refused(ref, spec, least.device_bytes, less);
}

static void run_net(const char *device, const char *name, int64_t batch, bool large, nets_precision precision) {
    const int budgets = budgets_of(large);
    reference ref;
    suite_net_init(&ref.net, device, name, batch);
    ref.net.precision = precision;
    ref.liveness_bytes = suite_needs(&ref.net, "liveness", 0).device_bytes;
    ref.initial = suite_expected(&ref.net, "liveness", 0, &ref.n);
    ref.first = suite_expected(&ref.net, "liveness", 1, &ref.n);
    ref.weights = suite_expected(&ref.net, "liveness", ITERATIONS, &ref.n);
    for (int p = 0; p < POLICY_COUNT; p++) {
        const suite_policy *policy = &POLICIES[p];
        if ((large && !policy->large) || !is_wanted(policy->spec)) continue;
        /* A policy that acts at any budget has one plan for all: two budgets are enough. */
        run_budgets(&ref, policy, policy->spec, policy->when && !policy->bodies ? budgets : 2);
        if (!policy->when) continue;
        char always[192];
        snprintf(always, sizeof always, "%s%cwhen=always", policy->spec, strchr(policy->spec, ':') ? ',' : ':');
        run_budgets(&ref, policy, always, policy->bodies ? budgets : 2);
        int64_t least = suite_needs(&ref.net, policy->spec, 0).device_bytes,
                all = suite_needs(&ref.net, always, 0).device_bytes;
        /* The search for the least budget is exact to one unit of alignment. */
        if (least >= all + MM_ALIGN)
            fail_msg("%s needs at least %lld bytes, but %s %lld", policy->spec, (long long)least, always,
                     (long long)all);
    }
    free(ref.initial);
    free(ref.first);
    free(ref.weights);
    suite_net_fini(&ref.net);
}

/* Checks that the gradients' error exceeds its bound if decoded maps are wrong. */
static void run_wrong_map(const char *device, const char *name, int64_t batch) {
    reference ref;
    suite_net_init(&ref.net, device, name, batch);
    if (strcmp(device, "host") != 0) skip(); /* only the host's codecs can make wrong maps */
    ref.first = suite_expected(&ref.net, "liveness", 1, &ref.n);
    for (codec_fault fault = FAULT_NONE; fault <= FAULT_MAP_SHIFTED; fault++) {
        if (fault != FAULT_NONE && fault < FAULT_MAP_TRANSPOSED) continue;
        suite_run r;
        codec_fault_set(fault);
        suite_run_init(&r, &ref.net, &(mm_options){.device_bytes = 64 << 20, .policy = "freelunch:rate=8,when=always"});
        suite_iterate(&r);
        double error = gradient_error(&ref, &r);
        if (fault == FAULT_NONE ? error > GRADIENT_ERROR : error < 2 * GRADIENT_ERROR)
            fail_msg("%s: fault %d: gradients off by %g", name, (int)fault, error);
        suite_run_fini(&r);
    }
    codec_fault_set(FAULT_NONE);
    free(ref.first);
    suite_net_fini(&ref.net);
}

/* Steps that read and write codes themselves give the same weights, bit for bit, as codecs that run beside them. */
static void in_step_gives_the_bits_of_beside(void **state) {
    static const char *const codecs[] = {"zfp:rate=4", "zfp:rate=8", "dpr:fp16", "mx"}; /* the last: host only */
    const size_t n_codecs = sizeof codecs / sizeof *codecs - (strcmp(*state, "host") != 0);
    suite_net net;
    suite_net_init(&net, *state, "cifar-resnet8,thin=4", 2);
    for (size_t i = 0; i < n_codecs; i++) {
        float *weights[2];
        size_t n;
        for (int in_step = 0; in_step < 2; in_step++) {
            char spec[128];
            snprintf(spec, sizeof spec, "freelunch:codec=%s,eligible=all,when=always,codes=%s", codecs[i],
                     in_step ? "in-step" : "beside");
            weights[in_step] = suite_expected(&net, spec, ITERATIONS, &n);
        }
        assert_memory_equal(weights[0], weights[1], n * sizeof **weights);
        free(weights[0]);
        free(weights[1]);
    }
    assert_true(suite_needs(&net, "freelunch:rate=4,when=always,codes=in-step", 0).device_bytes <
                suite_needs(&net, "freelunch:rate=4,when=always,codes=beside", 0).device_bytes);
    suite_net_fini(&net);
}

static void wrong_map_misses_the_bound(void **state) {
    run_wrong_map(*state, "tiny", 2);
    run_wrong_map(*state, "cifar-resnet8,thin=4", 2);
    run_wrong_map(*state, "googlenet@64,classes=5,thin=16", 2);
}

/* In this net the embedding and the last product share weights, and attention and the loss save little for backward. */
static void net_of_tokens_under_every_kind_of_policy(void **state) {
    static const char net[] = "gpt,layers=2,width=32,heads=2,context=24,vocabulary=40,dropout=0.1";
    run_net(*state, net, 3, true, NETS_FP32);
}

#define ADAPTED "llama-15m,layers=2,width=32,heads=4,kv_heads=2,hidden=48,context=24,vocabulary=40 lora:rank=2,alpha=3"

/* Weights that steps only read, and backward steps that write no weight's gradient. */
static void net_with_adapters_under_every_kind_of_policy(void **state) { run_net(*state, ADAPTED, 3, true, NETS_FP32); }

/* Not under sanitizers: there tests/nets and tests/codec run the operations and codecs of 16 bits. */
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
static void bf16_maps_under_every_kind_of_policy(void **state) {
    run_net(*state, "cifar-resnet8,thin=4", 2, true, NETS_BF16);
    run_net(*state, "gpt,layers=2,width=32,heads=2,context=24,vocabulary=40,dropout=0.1", 3, true, NETS_BF16);
    run_net(*state, ADAPTED, 3, true, NETS_BF16);
}
#endif

#define NET(test, name, batch, large)                                                                                  \
    static void test(void **state) { run_net(*state, name, batch, large, NETS_FP32); }

NET(tiny_under_every_policy, "tiny", 2, false)
NET(residual_net_under_every_policy, "cifar-resnet8,thin=4", 2, false)
NET(net_with_lrn_groups_and_dropout_under_every_policy, "alexnet-2012@99,classes=5,thin=16", 1, false)
/* The thread sanitizer takes minutes to plan these, on one thread; tests/nets runs their operations under it. */
#ifndef __SANITIZE_THREAD__
NET(net_with_inception_blocks_under_every_kind_of_policy, "googlenet@64,classes=5,thin=16", 2, true)
NET(net_with_concats_of_fire_modules_under_every_kind_of_policy, "squeezenet1_0@64,classes=5,thin=16", 1, true)
NET(net_with_crops_and_upsampling_under_every_kind_of_policy, "unet@188,thin=32", 1, true)
#endif

static void each_policy_is_here(void **state) {
    (void)state;
    for (size_t i = 0; mm_policy_table(i); i++) {
        const char *name = mm_policy_table(i)->name;
        const size_t length = strlen(name);
        bool is = strcmp(name, "plan") == 0; /* plans of others: saved_test */
        for (int p = 0; p < POLICY_COUNT && !is; p++)
            is = strncmp(POLICIES[p].spec, name, length) == 0 &&
                 (POLICIES[p].spec[length] == '\0' || POLICIES[p].spec[length] == ':');
        if (!is) fail_msg("policy %s: add it to POLICIES of suite_policies_test.c", name);
    }
}

static int run_small_nets(const char *device) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_policy_is_here),          SUITE_TEST(in_step_gives_the_bits_of_beside, device),
        SUITE_TEST(tiny_under_every_policy, device),    SUITE_TEST(residual_net_under_every_policy, device),
        SUITE_TEST(wrong_map_misses_the_bound, device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

static int run_other_nets(const char *device) {
    const struct CMUnitTest tests[] = {
        SUITE_TEST(net_with_lrn_groups_and_dropout_under_every_policy, device),
        SUITE_TEST(net_of_tokens_under_every_kind_of_policy, device),
        SUITE_TEST(net_with_adapters_under_every_kind_of_policy, device),
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
        SUITE_TEST(bf16_maps_under_every_kind_of_policy, device),
#endif
#ifndef __SANITIZE_THREAD__
        SUITE_TEST(net_with_inception_blocks_under_every_kind_of_policy, device),
        SUITE_TEST(net_with_concats_of_fire_modules_under_every_kind_of_policy, device),
        SUITE_TEST(net_with_crops_and_upsampling_under_every_kind_of_policy, device),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#ifndef SUITE_SMALL_NETS /* the build sets it */
#define SUITE_SMALL_NETS 1
#endif

/* Built twice, as two tests that run beside each other: it would take longer than any other test. */
static int run(const char *device) { return SUITE_SMALL_NETS ? run_small_nets(device) : run_other_nets(device); }

int main(void) { return suite_on_each_device(run); }
