/* SPDX-License-Identifier: MIT */
/* Which policies may stand in for one that does not fit: the mildest first, and never a lossy one for a lossless one.
 * And which policy is advised where one is refused. */
#include <stdio.h>
#include <string.h>

#include "mm/core/status.h"
#include "pipeline/codec/codec.h"
#include "policies/advice.h"
#include "policies/fallback.h"
#include "policies/rules/rules.h"
#include "tests/core/test_case.h"

static const char *const POLICIES[] = {
    "naive",
    "liveness",
    "freelunch",
    "freelunch:rate=8,eligible=all,depth=4,k=3",
    "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive",
    "swap",
    "swap-async:depth=3",
    "swap-async:when=always",
    "hybrid:rate=8",
    "vdnn-all",
    "vdnn-conv",
    "cdma",
    "modnn",
    "cdma:rate=4",
    "recompute",
    "recompute:mode=speed",
    "recompute-swap",
    "rules:relu=mask;*=keep",
    "rules:conv=compress(zfp:rate=4);relu=recompute;*=compress-swap(raw)",
};
enum { COUNT = sizeof POLICIES / sizeof *POLICIES };

/* Makes the ladder of a policy; returns its rungs: the policy itself and its substitutes. */
static const mm_substitute *climb(mm_fallback *ladder, const char *spec) {
    mm_policy policy;
    if (mm_policy_parse(spec, &policy) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    if (mm_fallback_init(ladder, &policy) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    mm_policy_fini(&policy);
    return ladder->substitutes;
}

/* Writes the policy's lossy codecs to `text`. */
static void lossy_codecs(const char *spec, char text[256]) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n;
    text[0] = '\0';
    if (mm_policy_codecs(spec, specs, &n) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    for (int c = 0; c < n; c++) {
        mm_codec *codec;
        if (mm_codec_create(specs[c], "host", &codec) != MM_OK) fail_msg("%s: %s", specs[c], mm_last_error());
        if (!codec->flags.lossless) strcat(strcat(text, codec->spec), " ");
        mm_codec_destroy(codec);
    }
}

TEST_CASE(what_stands_in_is_lossy_only_as_the_policy_is) {
    for (int p = 0; p < COUNT; p++) {
        mm_fallback ladder;
        char own[256], its[256];
        const mm_substitute *rungs = climb(&ladder, POLICIES[p]);
        int n = ladder.n;
        lossy_codecs(POLICIES[p], own);
        for (int i = 0; i < n; i++) {
            lossy_codecs(rungs[i].policy.spec, its);
            if (!strstr(own, its)) fail_msg("%s instead of %s loses by %s", rungs[i].policy.spec, POLICIES[p], its);
        }
        mm_fallback_fini(&ladder);
    }
}

TEST_CASE(it_begins_with_the_policy_itself_and_names_nothing_twice) {
    for (int p = 0; p < COUNT; p++) {
        mm_fallback ladder;
        const mm_substitute *rungs = climb(&ladder, POLICIES[p]);
        int n = ladder.n;
        assert_true(n >= 5);
        assert_string_equal(rungs[0].policy.spec, POLICIES[p]);
        assert_string_equal(rungs[0].step, "smaller workspaces");
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) assert_string_not_equal(rungs[i].policy.spec, rungs[j].policy.spec);
        }
        mm_fallback_fini(&ladder);
    }
}

static void expect(const char *spec, const char *const *wanted) {
    mm_fallback ladder;
    const mm_substitute *rungs = climb(&ladder, spec);
    int n = ladder.n;
    for (int i = 0; wanted[i]; i++) {
        assert_true(i < n);
        assert_string_equal(rungs[i].policy.spec, wanted[i]);
    }
    mm_fallback_fini(&ladder);
}

TEST_CASE(steps_come_in_the_order_from_later_decodes_to_stronger_policies) {
    expect("freelunch:rate=8,k=9", (const char *const[]){"freelunch:rate=8,k=9", "freelunch:codec=zfp:rate=8,depth=1",
                                                         "rules:conv=compress(zfp:rate=8);*=swap,depth=1",
                                                         "rules:conv=compress(zfp:rate=8);*=recompute,depth=1", NULL});
    expect("freelunch:codec=raw,buffers=naive,depth=1",
           (const char *const[]){"freelunch:codec=raw,buffers=naive,depth=1", "freelunch:codec=raw,depth=1", NULL});
    expect("naive", (const char *const[]){"naive", "liveness", "rules:*=swap,depth=1", NULL});
}

static int place_of(const char *spec, const mm_substitute *rungs, int n) {
    for (int i = 0; i < n; i++)
        if (strcmp(rungs[i].policy.spec, spec) == 0) return i;
    fail_msg("%s is not there", spec);
    return -1;
}

/* Whether the last rule keeps or swaps all maps, so that a rule behind it would never apply. */
static bool leaves_none(const mm_engine_config *config) {
    const mm_rule *last = &config->rules[config->n_rules - 1];
    return config->n_rules > 0 && strcmp(last->selector.text, "*") == 0 &&
           (last->action == MM_ACTION_KEEP || last->action == MM_ACTION_SWAP);
}

TEST_CASE(segments_run_again_come_after_cheap_layers_and_before_the_computation_waits) {
    for (int p = 0; p < COUNT; p++) {
        mm_fallback ladder;
        if (strcmp(POLICIES[p], "swap") == 0 || strcmp(POLICIES[p], "recompute-swap") == 0) continue;
        const mm_substitute *rungs = climb(&ladder, POLICIES[p]);
        int n = ladder.n, waits = place_of("swap", rungs, n);
        assert_int_equal(place_of("recompute-swap:depth=1", rungs, n), waits - 1);
        if (!leaves_none(&rungs[0].policy.config))
            assert_int_equal(strncmp(rungs[waits - 2].step, "recomputing", 11), 0);
        mm_fallback_fini(&ladder);
    }
}

/* No substitute is equal to the policy, however the policy is written: it was tried already. */
TEST_CASE(what_does_the_same_as_the_policy_is_not_named_again) {
    static const char *const same[] = {"swap", "swap:when=needed", "recompute:mode=sqrt,when=needed",
                                       "recompute-swap:mode=sqrt,depth=1",
                                       "rules:rules=*=compress(zfp:rate=4);*=swap,depth=1"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        mm_fallback ladder;
        climb(&ladder, same[i]);
        assert_string_equal(ladder.substitutes[0].policy.spec, same[i]);
        for (int r = 1; r < ladder.n; r++)
            assert_false(mm_policy_equal(&ladder.substitutes[r].policy, &ladder.substitutes[0].policy));
        mm_fallback_fini(&ladder);
    }
}

TEST_CASE(the_last_resort_is_any_action_on_any_map) {
    for (int p = 0; p < COUNT; p++) {
        mm_fallback ladder;
        const mm_substitute *rungs = climb(&ladder, POLICIES[p]);
        const char *last = rungs[ladder.n - 1].policy.spec, *codec = mm_rules_codec(&rungs[0].policy.config);
        assert_int_equal(strncmp(last, "auto", 4), 0);
        if (*codec) assert_non_null(strstr(last, codec));
        mm_fallback_fini(&ladder);
    }
}

TEST_CASE(it_ends_with_the_codec_of_the_policy_for_all_maps) {
    mm_fallback ladder;
    const mm_substitute *rungs = climb(&ladder, "rules:relu=mask;conv=compress(zfp:rate=4)");
    int n = ladder.n;
    assert_string_equal(rungs[n - 2].policy.spec, "rules:*=compress(zfp:rate=4);*=swap,depth=1");
    assert_string_equal(rungs[n - 1].policy.spec, "auto:codecs=zfp:rate=4,resident=all");
    mm_fallback_fini(&ladder);
    rungs = climb(&ladder, "rules:relu=mask;*=keep");
    n = ladder.n;
    for (int i = 0; i < n; i++) assert_null(strstr(rungs[i].policy.spec, "compress"));
    mm_fallback_fini(&ladder);
}

/* Rungs contain all of the policy's own rules, however long these are. */
TEST_CASE(a_long_policy_has_all_rungs_in_full) {
    char rules[2048] = "", spec[2100], wanted[2200];
    for (int i = 0; i < 60; i++) sprintf(rules + strlen(rules), "conv%d=compress(zfp:rate=4);", i);
    strcat(rules, "relu=mask");
    snprintf(spec, sizeof spec, "rules:%s", rules);
    snprintf(wanted, sizeof wanted, "rules:%s;*=swap,depth=1", rules);
    mm_fallback ladder, brief;
    const mm_substitute *rungs = climb(&ladder, spec);
    climb(&brief, "rules:conv=compress(zfp:rate=4);relu=mask");
    assert_int_equal(ladder.n, brief.n);
    assert_string_equal(rungs[0].policy.spec, spec);
    place_of(wanted, rungs, ladder.n);
    mm_fallback_fini(&ladder);
    mm_fallback_fini(&brief);
}

/* ---------------------------------------------------------------- advice */

/* A pretended planner: a table of policies, and what each takes in its two forms, `needed` and `always`. */
typedef struct world {
    struct taken {
        const char *spec; /* the policy, in its published form */
        int64_t needed, always, pinned;
        int64_t needed_ns, always_ns;
    } taken[4]; /* no other policy can be planned */
} world;

static int tries; /* number of plans asked for */

static mm_trial pretend(void *ctx, const mm_policy *policy, bool any) {
    (void)any;
    tries++;
    const world *w = ctx;
    mm_trial t = {.bytes = INT64_MAX, .lossy = *mm_rules_codec(&policy->config) != '\0'};
    for (int i = 0; i < 4 && w->taken[i].spec; i++) {
        mm_policy own;
        assert_int_equal(mm_policy_parse(w->taken[i].spec, &own), MM_OK);
        own.config.when = policy->config.when;
        if (mm_policy_equal(&own, policy)) {
            t.bytes = policy->config.when == MM_WHEN_ALWAYS ? w->taken[i].always : w->taken[i].needed;
            t.pinned_bytes = w->taken[i].pinned;
            t.step_ns = policy->config.when == MM_WHEN_ALWAYS ? w->taken[i].always_ns : w->taken[i].needed_ns;
        }
        mm_policy_fini(&own);
    }
    return t;
}

static void advise_for(world w, mm_advice_request wish, mm_advice_kind kind, const char *spec, int64_t bytes) {
    const mm_limits limits = {.device_bytes = 100, .pinned_bytes = 10};
    mm_advice advice = {.kind = MM_ADVICE_NONE};
    if (!wish.limits) wish.limits = &limits;
    assert_int_equal(mm_advice_find(&wish, pretend, &w, &advice), MM_OK);
    assert_int_equal(advice.kind, kind);
    if (spec) assert_string_equal(advice.policy.spec, spec);
    if (spec) assert_int_equal(advice.takes.bytes, bytes);
    mm_policy_fini(&advice.policy);
}

static void advise(world w, bool published_only, mm_advice_kind kind, const char *spec, int64_t bytes) {
    advise_for(w, (mm_advice_request){.published_only = published_only}, kind, spec, bytes);
}

/* auto's plan is as good as that of any other lossless policy, so the advice need not try those. */
TEST_CASE(auto_is_advised_where_it_fits_and_stands_for_all_that_lose_nothing) {
    const mm_limits open = {.device_bytes = 100, .pinned_bytes = INT64_MAX};
    const struct taken mixed = {"auto:effort=0", 90, 90, 10, 50, 50}, large = {"auto:effort=0", 120, 120, 10, 50, 50};
    const struct taken vdnn = {"vdnn-all", 90, 90, 10, 40, 40}, lossy = {"freelunch", 90, 90, 0, 9, 9};
    const mm_advice_request deep = {.deep = true};
    advise((world){{mixed, vdnn, lossy}}, false, MM_ADVICE_FITS, "auto", 90);
    advise((world){{mixed, {"liveness", 99, 99, 0, 50, 50}}}, false, MM_ADVICE_FITS, "liveness", 99);
    advise_for((world){{large, vdnn, lossy}}, (mm_advice_request){.limits = &open}, MM_ADVICE_FITS, "freelunch", 90);
    advise((world){{large, vdnn, lossy}}, false, MM_ADVICE_FITS, "vdnn-all", 90); /* little pinned memory */
    /* In a deep graph, where auto takes long, other policies come first. */
    advise_for((world){{mixed, vdnn, lossy}}, deep, MM_ADVICE_FITS, "vdnn-all", 90);
    advise_for((world){{mixed, lossy}}, deep, MM_ADVICE_FITS, "auto", 90);
    /* If auto itself was refused, it is not tried again. */
    mm_policy refused;
    assert_int_equal(mm_policy_parse("auto:effort=3", &refused), MM_OK);
    mm_advice_request again = {.limits = &open, .refused = &refused, .refused_takes = {.bytes = 110}};
    for (int d = 0; d < 2; d++) {
        again.deep = d;
        advise_for((world){{mixed, vdnn, lossy}}, again, MM_ADVICE_FITS, "freelunch", 90);
    }
    advise_for((world){{mixed, vdnn}}, again, MM_ADVICE_NEEDS_LEAST, "auto", 110);
    mm_policy_fini(&refused);
}

/* In a deep network each plan takes long, so the advice may ask for few. */
TEST_CASE(few_plans_tell_that_none_fits) {
    const mm_limits open = {.device_bytes = 100, .pinned_bytes = INT64_MAX};
    const struct taken large = {"auto:effort=0", 120, 120, 10, 50, 50}, vdnn = {"vdnn-all", 130, 130, 10, 40, 40};
    const struct taken lossy = {"freelunch", 900, 900, 0, 9, 9}, near = {"freelunch", 90, 150, 0, 9, 9};
    enum { LIVENESS_AND_AUTO = 2, LOSSY = 3, AGAIN = 1 };
    mm_advice_request deep = {.deep = true, .limits = &open};
    tries = 0;
    advise_for((world){{large, vdnn, lossy}}, deep, MM_ADVICE_NEEDS_LEAST, "auto", 120);
    assert_int_equal(tries, LIVENESS_AND_AUTO + LOSSY);
    tries = 0; /* in its default form this one fits */
    advise_for((world){{large, vdnn, near}}, deep, MM_ADVICE_FITS, "freelunch", 90);
    assert_int_equal(tries, LIVENESS_AND_AUTO + LOSSY + AGAIN);
    /* With little pinned memory, other policies are tried to tell how much would do, unless `hopeless`. */
    tries = 0;
    deep.limits = NULL;
    deep.hopeless = true;
    advise_for((world){{large, vdnn, lossy}}, deep, MM_ADVICE_NEEDS_LEAST, "auto", 120);
    assert_int_equal(tries, LIVENESS_AND_AUTO + LOSSY);
    deep.hopeless = false;
    const struct taken pinning = {"vdnn-all", 90, 90, 11, 40, 40};
    advise_for((world){{large, pinning, lossy}}, deep, MM_ADVICE_PINNED, "vdnn-all", 90);
}

TEST_CASE(nested_recomputation_is_advised) {
    for (int swaps = 0; swaps < 2; swaps++) {
        const char *spec = swaps ? "recompute-swap:mode=nested" : "recompute:mode=nested";
        advise((world){{{spec, 90, 60, 5, 7, 9}, {"recompute", 95, 95, 0, 8, 8}}}, false, MM_ADVICE_FITS, spec, 90);
    }
}

TEST_CASE(the_first_that_fits_is_advised_and_a_lossless_one_before_the_others) {
    advise((world){{{"liveness", 90, 90, 0, 9, 9}, {"recompute", 20, 20, 0, 9, 9}}}, false, MM_ADVICE_FITS, "liveness",
           90);
    advise((world){{{"liveness", 101, 101, 0, 9, 9}, {"recompute:mode=sqrt", 60, 100, 0, 9, 9}}}, false, MM_ADVICE_FITS,
           "recompute:mode=sqrt", 100);
    advise((world){{{"swap", 90, 120, 10, 9, 9}, {"freelunch", 80, 110, 0, 9, 9}}}, false, MM_ADVICE_FITS, "swap", 90);
    advise((world){{{"swap", 101, 120, 10, 9, 9}, {"freelunch", 80, 130, 0, 9, 9}}}, false, MM_ADVICE_FITS, "freelunch",
           80);
    advise((world){{{"rules:*=compress(zfp:rate=4);*=swap", 101, 100, 0, 9, 9}}}, false, MM_ADVICE_FITS,
           "rules:*=compress(zfp:rate=4);*=swap", 100);
}

TEST_CASE(of_those_that_fit_the_fastest_is_advised) {
    const world both = {{{"swap-async", 100, 60, 10, 70, 99}, {"recompute:mode=sqrt", 100, 70, 0, 60, 95}}};
    advise(both, false, MM_ADVICE_FITS, "recompute:mode=sqrt", 100);
    advise(both, true, MM_ADVICE_FITS, "recompute:mode=sqrt", 70);
    /* Policies are advised, and compared, in their default form, in which they do no more than they must. */
    const world turned = {{{"swap-async", 100, 60, 10, 50, 99}, {"recompute:mode=sqrt", 100, 70, 0, 60, 95}}};
    advise(turned, false, MM_ADVICE_FITS, "swap-async", 100);
    advise(turned, true, MM_ADVICE_FITS, "recompute:mode=sqrt", 70);
    /* A lossless policy is advised before a lossy one, however slow it is, and even if only its default form fits.
     * liveness, if it fits, is advised before all. */
    advise((world){{{"swap", 90, 90, 10, 80, 80}, {"freelunch", 90, 90, 0, 20, 20}}}, false, MM_ADVICE_FITS, "swap",
           90);
    advise((world){{{"swap", 90, 120, 10, 80, 80}, {"freelunch", 90, 90, 0, 20, 20}}}, false, MM_ADVICE_FITS, "swap",
           90);
    advise((world){{{"swap", 110, 120, 10, 80, 80}, {"freelunch", 90, 90, 0, 30, 30}, {"hybrid", 90, 90, 9, 20, 20}}},
           false, MM_ADVICE_FITS, "hybrid", 90);
    advise((world){{{"liveness", 90, 90, 0, 80, 80}, {"recompute", 20, 20, 0, 20, 20}}}, false, MM_ADVICE_FITS,
           "liveness", 90);
    /* modnn, which has one form only, is advised where swap-async cannot be had. */
    const struct taken modnn = {"modnn:subbatch=off", 90, 90, 10, 50, 50};
    advise((world){{modnn, {"swap", 110, 110, 10, 80, 80}}}, false, MM_ADVICE_FITS, "modnn:subbatch=off", 90);
    advise((world){{modnn, {"swap-async", 95, 95, 10, 80, 80}}}, false, MM_ADVICE_FITS, "swap-async", 95);
    advise((world){{{"recompute-swap", 50, 50, 11, 20, 20}, {"swap-async", 60, 60, 12, 10, 10}}}, false,
           MM_ADVICE_PINNED, "swap-async", 60);
}

TEST_CASE(where_none_fits_more_pinned_memory_is_advised_or_what_needs_least) {
    advise((world){{{"swap", 50, 50, 11, 9, 9}, {"recompute", 101, 101, 0, 9, 9}}}, false, MM_ADVICE_PINNED, "swap",
           50);
    advise((world){{{"liveness", 130, 130, 0, 9, 9}, {"recompute", 110, 120, 0, 9, 9}}}, false, MM_ADVICE_NEEDS_LEAST,
           "recompute", 110);
    advise((world){{{"liveness", 130, 130, 0, 9, 9}, {"recompute", 90, 120, 0, 9, 9}}}, true, MM_ADVICE_NEEDS_LEAST,
           "recompute", 120);
    advise((world){{{"recompute", 120, 120, 0, 9, 9}, {"hybrid", 115, 119, 0, 9, 9}}}, false, MM_ADVICE_NEEDS_LEAST,
           "hybrid", 115);
    advise((world){0}, false, MM_ADVICE_NONE, NULL, 0);
}
