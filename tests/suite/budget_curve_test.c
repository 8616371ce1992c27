/* SPDX-License-Identifier: MIT */
/* Networks as large as those in the papers, on a simulated GPU, whose times follow from a few rates. More budget never
 * makes a step slower; no time is below the bound; plans stay within their budget; and policies have the order in speed
 * that papers published. */
#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/time/simulate.h"
#include "mm/core/time/time_bound.h"
#include "mm/planning/planning.h"
#include "nets/lower/lower.h"
#include "nets/zoo/zoo.h"
#include "policies/schedule/nominal.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"

/* How many budgets a case tries at most. Few are enough under sanitizers, which check how plans are made. */
static int most_budgets(void) {
#ifdef __SANITIZE_ADDRESS__
    return 3;
#else
    return test_depth(3, 9);
#endif
}

typedef struct subject {
    nets_net *net;
    nets_backend *backend;
    nets_lowered *lowered;
    bool untimed; /* planned without times, as by a manager, and then simulated with nominal ones */
} subject;

static void subject_init(subject *s, const char *name, int64_t batch) {
    s->untimed = false;
    expect_ok(nets_zoo_build(name, &s->net));
    expect_ok(nets_backend_open("host", NULL, &s->backend));
    expect_ok(nets_lower(s->net, s->backend, batch, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD},
                         &s->lowered));
}

static void subject_fini(subject *s) {
    nets_lowered_destroy(s->lowered);
    nets_backend_close(s->backend);
    nets_net_destroy(s->net);
}

/* Sets times like those of a Titan X with zfp: 6 TFLOP/s, memory of 250 GB/s, a link of 12 GB/s, codecs of 25 GB/s.
 * Convolutions are bound by arithmetic, so they take longer per byte. */
static void time_steps(const mm_graph *graph, mm_graph_facts *facts) {
    for (int i = 0; i < mm_graph_steps(graph); i++) {
        const mm_step_info *step = mm_graph_step(graph, i);
        int64_t bytes = 0;
        for (int u = 0; u < step->n_uses; u++) bytes += mm_graph_tensor(graph, step->uses[u].tensor)->bytes;
        bool dear = mm_graph_layer(graph, step->layer)->kind == MM_LAYER_CONV;
        facts->variants[facts->variant_first[i]].ns = 8000 + bytes / (dear ? 60 : 250);
    }
    facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(12000000000);
    facts->out_both_bytes_per_s = facts->in_both_bytes_per_s = INT64_C(10000000000);
    facts->contention_permille = 50;
    for (int c = 0; c < facts->n_codecs; c++)
        for (int t = 0; t < facts->n_tensors; t++) {
            mm_code_facts *code = &facts->codes[c * facts->n_tensors + t];
            int64_t rate = facts->codecs[c].gives_value ? 25 : 240;
            code->encode_ns = code->decode_ns = 8000 + mm_graph_tensor(graph, t)->bytes / rate;
        }
}

typedef struct outcome {
    int64_t device_bytes, pinned_bytes, ns;
    int operations;
} outcome;

/* Checks that the plan's time is at least the bound on any plan in the memory that this one takes, and at most twenty
 * times it. */
static void check_bound(const mm_planned *planned, int64_t ns) {
    const mm_plan *plan = planned->plan;
    const mm_limits limits = {
        .device_bytes = plan->peak_bytes, .pinned_bytes = plan->pinned_bytes, .base_bytes = plan->base_bytes};
    mm_time_bound bound;
    expect_ok(mm_time_bound_of(plan->graph, planned->facts, &limits, &bound));
    if (bound.ns > ns || bound.ns * 20 < ns)
        fail_msg("%s of %s: %lld ns, the bound is %lld", plan->policy, mm_graph_name(plan->graph), (long long)ns,
                 (long long)bound.ns);
}

static outcome plan_within_both(const subject *s, const char *spec, int64_t budget, int64_t pinned) {
    const mm_graph *graph = s->lowered->graph;
    mm_policy policy;
    mm_planned planned;
    mm_simulation sim;
    mm_limits limits = {.device_bytes = budget, .pinned_bytes = pinned, .base_bytes = mm_plan_base(graph)};
    expect_ok(mm_policy_parse(spec, &policy));
    expect_ok(mm_planned_init(&planned, &policy, graph, "host"));
    if (!s->untimed) time_steps(graph, planned.facts);
    expect_ok(mm_planned_make(&planned, &policy, graph, &limits)); /* proves the plan */
    mm_policy_fini(&policy);
    if (s->untimed) mm_nominal_times(graph, planned.facts);
    expect_ok(mm_simulate(planned.plan, planned.facts, &sim));
    check_bound(&planned, sim.iteration_ns);
    outcome o = {
        .device_bytes = planned.plan->peak_bytes, .pinned_bytes = planned.plan->pinned_bytes, .ns = sim.iteration_ns};
    for (int i = 0; i < planned.plan->n_nodes; i++) o.operations += planned.plan->nodes[i].kind != MM_NODE_STEP;
    mm_simulation_fini(&sim);
    mm_planned_fini(&planned);
    return o;
}

static outcome plan_within(const subject *s, const char *spec, int64_t budget) {
    return plan_within_both(s, spec, budget, INT64_MAX);
}

/* Checks the plans of a policy at `budgets` budgets (at most most_budgets()), from the policy's least to what liveness
 * takes: more budget never takes more time. */
static void check_curve(const subject *s, const char *spec, int budgets) {
    outcome liveness = plan_within(s, "liveness", 0), last = {.ns = INT64_MAX};
    char always[160];
    if (budgets > most_budgets()) budgets = most_budgets();
    snprintf(always, sizeof always, "%s%cwhen=always", spec, strchr(spec, ':') ? ',' : ':');
    const int64_t least = plan_within(s, spec, 0).device_bytes, all = plan_within(s, always, 0).device_bytes;
    /* within a unit of alignment, the plan that is found first is taken */
    if (least >= all + MM_ALIGN || least > liveness.device_bytes)
        fail_msg("%s needs %lld bytes, when=always %lld, liveness %lld", spec, (long long)least, (long long)all,
                 (long long)liveness.device_bytes);
    for (int b = 0; b < budgets; b++) {
        int64_t budget = least + (liveness.device_bytes - least) * b / (budgets - 1);
        outcome o = plan_within(s, spec, budget);
        if (o.device_bytes > budget || o.ns > last.ns)
            fail_msg("%s: takes %lld of %lld bytes, and %lld ns, %lld with less", spec, (long long)o.device_bytes,
                     (long long)budget, (long long)o.ns, (long long)last.ns);
        last = o;
    }
    assert_int_equal(last.operations, 0);
    assert_int_equal(last.ns, liveness.ns);
}

static void check_curves(const char *name, int64_t batch, bool untimed, int budgets) {
    static const char *const policies[] = {"freelunch",
                                           "hybrid",
                                           "swap-async",
                                           "swap",
                                           "vdnn-all",
                                           "recompute",
                                           "recompute:mode=sqrt",
                                           "recompute:mode=nested",
                                           "recompute:mode=speed",
                                           "cdma",
                                           "recompute:mode=memory",
                                           "recompute-swap",
                                           "rules:*=lean-swap"};
    subject s;
    subject_init(&s, name, batch);
    s.untimed = untimed;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) check_curve(&s, policies[p], budgets);
    subject_fini(&s);
}

TEST_CASE(resnet_is_never_slower_with_more) { check_curves("resnet20", 64, false, 5); }

TEST_CASE(googlenet_is_never_slower_with_more) { check_curves("googlenet", 16, false, 5); }

TEST_CASE(vgg_is_never_slower_with_more) { check_curves("vgg16", 16, false, 5); }

TEST_CASE(what_is_run_is_never_slower_with_more_by_nominal_times) {
    check_curves("resnet20", 64, true, 9);
    check_curves("googlenet", 16, true, 3);
}

/* Checks that at each budget auto is at most half a percent slower than each other policy that fits, and than auto with
 * less memory. */
static void check_auto(const char *name, int64_t batch, const char *spec, const char *const *others) {
    enum { BUDGETS = 3, SLACK = 200 };
    subject s;
    subject_init(&s, name, batch);
    const int64_t least = plan_within(&s, spec, 0).device_bytes, most = plan_within(&s, "liveness", 0).device_bytes;
    int64_t before = INT64_MAX;
    for (int b = 0; b < BUDGETS; b++) {
        const int64_t budget = least + (most - least) * b / (BUDGETS - 1);
        const outcome o = plan_within(&s, spec, budget);
        if (o.device_bytes > budget || o.ns - o.ns / SLACK > before)
            fail_msg("%s, %s: takes %lld of %lld bytes, and %lld ns, %lld with less", name, spec,
                     (long long)o.device_bytes, (long long)budget, (long long)o.ns, (long long)before);
        before = o.ns;
        for (int p = 0; others[p]; p++) {
            const outcome other = plan_within(&s, others[p], budget);
            if (b == 0 && other.device_bytes < least)
                fail_msg("%s, %s: needs %lld bytes, but %s %lld", name, spec, (long long)least, others[p],
                         (long long)other.device_bytes);
            if (other.device_bytes <= budget && o.ns - o.ns / SLACK > other.ns)
                fail_msg("%s, %s in %lld bytes: %lld ns, but %s %lld", name, spec, (long long)budget, (long long)o.ns,
                         others[p], (long long)other.ns);
        }
    }
    subject_fini(&s);
}

TEST_CASE(auto_is_never_slower_than_others_nor_with_more) {
    static const char *const lossless[] = {
        "swap", "swap-async",     "vdnn-all",  "vdnn-conv",           "modnn:subbatch=off",
        "cdma", "recompute-swap", "recompute", "recompute:mode=sqrt", "gist:lossless",
        NULL};
    static const char *const lossy[] = {"freelunch:rate=4", "freelunch:rate=4,eligible=all", "hybrid", "cdma:rate=4",
                                        NULL};
    check_auto("tiny", 16, "auto", lossless);
    check_auto("resnet20", 64, "auto", lossless);
    check_auto("vgg16", 16, "auto", lossless);
    check_auto("tiny", 16, "auto:codecs=zfp:rate=4", lossy);
}

/* A session plans once to learn how much pinned memory to take, and again within that much: both plans must be the
 * same. */
TEST_CASE(auto_plans_the_same_in_the_pinned_memory_that_it_takes) {
    const int budgets = most_budgets() - 1;
    subject s;
    subject_init(&s, "resnet20", 16);
    const int64_t least = plan_within(&s, "auto", 0).device_bytes, most = plan_within(&s, "liveness", 0).device_bytes;
    for (int b = 0; b < budgets / 2; b++) {
        const int64_t budget = least + (most - least) * b / budgets;
        const outcome o = plan_within(&s, "auto", budget);
        const outcome again = plan_within_both(&s, "auto", budget, o.pinned_bytes);
        if (again.ns != o.ns || again.device_bytes != o.device_bytes || again.pinned_bytes != o.pinned_bytes)
            fail_msg("auto in %lld bytes, %lld pinned: %lld ns, planned again %lld", (long long)budget,
                     (long long)o.pinned_bytes, (long long)o.ns, (long long)again.ns);
    }
    subject_fini(&s);
}

/* Checks that policies have the order in speed of FreeLunch's Tables I and III, and of SuperNeurons: as published
 * (when=always), and all within the same budgets. Within budgets a policy may be faster than the one before it by a
 * fortieth, because most of the copying is hidden anyway. */
static void check_orders(const char *name, int64_t batch) {
    static const char *const published[] = {"freelunch:when=always", "hybrid:when=always", "swap-async:when=always",
                                            "vdnn-all:when=always", "swap:when=always"};
    static const char *const needed[] = {"hybrid", "swap-async", "vdnn-all", "swap"};
    subject s;
    subject_init(&s, name, batch);
    int64_t before = plan_within(&s, "liveness", 0).ns;
    for (int p = 0; p < 5; p++) {
        int64_t ns = plan_within(&s, published[p], INT64_MAX).ns;
        if (ns < before)
            fail_msg("%s is faster than the policy before it: %lld, %lld ns", published[p], (long long)ns,
                     (long long)before);
        before = ns;
    }
    int64_t most = plan_within(&s, "liveness", 0).device_bytes, least = 0;
    for (int p = 0; p < 4; p++) {
        int64_t bytes = plan_within(&s, needed[p], 0).device_bytes;
        if (bytes > least) least = bytes;
    }
    for (int b = 1; b < 4; b++) {
        before = 0;
        for (int p = 0; p < 4; p++) {
            int64_t ns = plan_within(&s, needed[p], least + (most - least) * b / 4).ns;
            if (ns * 40 < before * 39)
                fail_msg("%s is faster than the policy before it: %lld, %lld ns", needed[p], (long long)ns,
                         (long long)before);
            before = ns;
        }
    }
    subject_fini(&s);
}

TEST_CASE(published_orders_hold_for_resnets) {
    check_orders("resnet32", 128);
    check_orders("resnet50", 16);
}

TEST_CASE(published_orders_hold_for_vgg) { check_orders("vgg16", 16); }

/* Chen et al.: of the maps, about the square root of their number is stashed, instead of all. */
TEST_CASE(segments_of_a_deep_resnet_take_a_fraction) {
    subject s;
    subject_init(&s, "resnet152", 16);
    int64_t base = mm_plan_base(s.lowered->graph);
    int64_t kept = plan_within(&s, "liveness", 0).device_bytes - base;
    outcome segments = plan_within(&s, "recompute:mode=sqrt,when=always", 0), all = plan_within(&s, "liveness", 0);
    assert_true(4 * (segments.device_bytes - base) < kept);
    assert_true(segments.ns < all.ns * 3 / 2); /* one more forward pass is a third of a step */
    subject_fini(&s);
}
