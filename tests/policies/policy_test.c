/* SPDX-License-Identifier: MIT */
/* Policies' specs, and what the baselines make of small graphs: who shares storage with whom, and the exact peak. */
#include <stdlib.h>
#include <string.h>

#include "policies/auto/auto_portfolio.h"
#include "tests/core/test_case.h"
#include "tests/policies/terse_graph.h"

static void assert_says(const char *word) {
    if (!strstr(mm_last_error(), word)) fail_msg("'%s' does not say '%s'", mm_last_error(), word);
}

/* ---------------------------------------------------------------- specs */

TEST_CASE(a_spec_is_taken_apart) {
    mm_policy p;
    assert_int_equal(mm_policy_parse("freelunch:codec=zfp:rate=4,depth=3,eligible=all", &p), MM_OK);
    assert_string_equal(p.ops->name, "freelunch");
    assert_string_equal(p.spec, "freelunch:codec=zfp:rate=4,depth=3,eligible=all");
    assert_int_equal(p.config.n_rules, 1);
    assert_string_equal(p.config.rules[0].selector.text, "*");
    assert_string_equal(p.config.rules[0].codec, "zfp:rate=4");
    assert_int_equal(p.config.depth, 3);
    assert_int_equal(p.config.buffers, MM_REGION_BUFFERS); /* the default */
    assert_int_equal(p.config.when, MM_WHEN_NEEDED);
    mm_policy_fini(&p);
    assert_int_equal(mm_policy_parse("naive", &p), MM_OK);
    assert_int_equal(p.config.n_rules, 0);
    mm_policy_fini(&p);
}

TEST_CASE(a_spec_and_its_rules_may_have_any_length) {
    enum { RULES = 300 };
    char spec[RULES * 16 + 64] = "rules:";
    mm_policy p;
    for (int i = 0; i < RULES; i++) sprintf(spec + strlen(spec), "layer%d=swap;", i);
    strcat(spec, "*=recompute,depth=7");
    assert_int_equal(mm_policy_parse(spec, &p), MM_OK);
    assert_string_equal(p.spec, spec);
    assert_int_equal(p.config.depth, 7);
    assert_int_equal(p.config.n_rules, RULES + 1);
    assert_int_equal(mm_policy_print(&p), MM_OK);
    assert_string_equal(p.spec, spec);
    mm_policy_fini(&p);
}

TEST_CASE(more_codecs_than_a_plan_may_have_are_refused) {
    char spec[MM_MAX_CODECS * 64] = "rules:";
    mm_policy p;
    for (int i = 1; i < MM_MAX_CODECS; i++)
        snprintf(spec + strlen(spec), sizeof spec - strlen(spec), "layer%d=compress(zfp:rate=%d);", i, i);
    assert_int_equal(mm_policy_parse(spec, &p), MM_OK);
    mm_policy_fini(&p);
    strcat(spec, "*=compress(zfp:rate=31)");
    assert_int_equal(mm_policy_parse(spec, &p), MM_ERR_INVALID);
    assert_says("more than 30 codecs, counting the mask");
}

static void refuse(const char *spec, mm_status status, const char *word, const char *other) {
    mm_policy p;
    assert_int_equal(mm_policy_parse(spec, &p), status);
    assert_says(word);
    assert_says(other);
}

TEST_CASE(wrong_specs_are_refused_with_what_would_be_right) {
    char endless[400];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    refuse(NULL, MM_ERR_INVALID, "NAME", "key=value");
    refuse(endless, MM_ERR_NOT_FOUND, "'xxx", "xxx...': there are naive, liveness, freelunch");
    refuse("", MM_ERR_NOT_FOUND, "''", "naive, liveness, freelunch");
    refuse("hope", MM_ERR_NOT_FOUND, "'hope'", "naive, liveness, freelunch");
    refuse("Naive", MM_ERR_NOT_FOUND, "'Naive'", "naive");
    refuse("naive:k=3", MM_ERR_INVALID, "'k'", "none");
    refuse("freelunch:size=3", MM_ERR_INVALID, "'size'", "codec, rate, ratio, eligible, depth, buffers, k, workspace");
    refuse("freelunch:depth", MM_ERR_INVALID, "'depth'", "key=value");
    refuse("freelunch:depth=-1", MM_ERR_INVALID, "depth=-1", "from 0 to 1024");
    refuse("freelunch:depth=1025", MM_ERR_INVALID, "depth=1025", "from 0 to 1024");
    refuse("freelunch:depth=2x", MM_ERR_INVALID, "depth=2x", "whole number");
    refuse("freelunch:depth=", MM_ERR_INVALID, "depth=", "whole number");
    refuse("freelunch:depth=99999999999999999999", MM_ERR_INVALID, "depth=999", "whole number");
    refuse("freelunch:k=-1", MM_ERR_INVALID, "k=-1", "from 0 to 4096");
    refuse("freelunch:eligible=some", MM_ERR_INVALID, "eligible=some", "conv|all");
    refuse("freelunch:eligible=con", MM_ERR_INVALID, "eligible=con", "conv|all");
    refuse("freelunch:eligible=", MM_ERR_INVALID, "eligible=", "conv|all");
    refuse("freelunch:rate=", MM_ERR_INVALID, "rate= has no value", "codec=zfp:rate=R");
    refuse("hybrid:depth=3,codec=", MM_ERR_INVALID, "codec= has no value", "'mm codecs'");
    refuse("rules:rules=", MM_ERR_INVALID, "rules= has no value", "SELECTOR=ACTION");
    refuse("freelunch:depth=2,depth=2", MM_ERR_INVALID, "depth", "twice");
    refuse("freelunch:", MM_ERR_INVALID, "freelunch", "colon");
    refuse("rules:", MM_ERR_INVALID, "rules", "colon");
    refuse("rules:;;;", MM_ERR_INVALID, "no rule", "compress(zfp)");
    refuse("freelunch:rate=4,codec=raw", MM_ERR_INVALID, "codec=zfp:rate=4", "one of codec, rate and ratio");
    refuse("hybrid:ratio=8,rate=4", MM_ERR_INVALID, "codec=zfp:rate=4", "one of codec, rate and ratio");
    refuse("freelunch:codec=raw,ratio=8", MM_ERR_INVALID, "ratio is short for codec=zfp:rate=4;", "one of codec");
    refuse("freelunch:ratio=0.5", MM_ERR_INVALID, "ratio=0.5", "must be a number from 1 to 60");
    refuse("cdma:ratio=5x", MM_ERR_INVALID, "ratio=5x", "must be a number from 1 to 60");
    refuse("freelunch:ratio=nan", MM_ERR_INVALID, "ratio=nan", "must be a number from 1 to 60");
    refuse("freelunch:ratio=", MM_ERR_INVALID, "ratio= has no value", "rate=6.4");
    refuse("vdnn-all:subbatch=some", MM_ERR_INVALID, "subbatch=some",
           "auto|off or a whole number from 1 to 1073741824");
    refuse("vdnn-all:subbatch=0", MM_ERR_INVALID, "subbatch=0", "auto|off or a whole number from 1");
    refuse("vdnn-conv:algorithms=gain", MM_ERR_INVALID, "algorithms=gain", "least|fastest");
    refuse("swap-async:ratio=5", MM_ERR_INVALID, "no option 'ratio'", "depth");
    refuse("cdma:codec=raw,rate=4", MM_ERR_INVALID, "codec=zfp:rate=4", "one of codec, rate and ratio");
    refuse("freelunch:codec=0123456789012345678901234567890123456789012345678901234567890123456789", MM_ERR_INVALID,
           "codec", "too long");
}

TEST_CASE(every_listed_option_has_a_fallback_that_it_accepts) {
    const mm_policy_ops *ops;
    for (size_t i = 0; (ops = mm_policy_table(i)); i++) {
        assert_true(strlen(ops->summary) > 0);
        int n = 0;
        for (const mm_option_desc *d = ops->options; d && d->key; d++) {
            char spec[128];
            mm_policy p;
            assert_true(n++ < MM_OPTION_MAX);
            if (!*d->fallback) continue; /* the default is nothing, which a spec cannot say */
            snprintf(spec, sizeof spec, "%s:%s=%s", ops->name, d->key, d->fallback);
            if (mm_policy_parse(spec, &p) != MM_OK) fail_msg("%s", mm_last_error());
            mm_policy_fini(&p);
            assert_true(strlen(d->help) > 0);
        }
    }
    assert_null(mm_policy_table(1000));
}

/* Whether a member of auto's portfolio is the policy. */
static bool is_tried(const mm_policy_ops *ops) {
    const size_t length = strlen(ops->name);
    const char *member;
    for (int i = 0; (member = mm_portfolio_member(i)); i++)
        if (strncmp(member, ops->name, length) == 0 && (member[length] == '\0' || member[length] == ':')) return true;
    return false;
}

TEST_CASE(auto_tries_every_policy_that_does_not_say_why_not) {
    const mm_policy_ops *ops;
    for (size_t i = 0; (ops = mm_policy_table(i)); i++) {
        if (!ops->not_in_auto && !is_tried(ops))
            fail_msg("auto does not try %s: add it to the members in auto_portfolio.c, or say why not (not_in_auto)",
                     ops->name);
        if (ops->not_in_auto && is_tried(ops)) fail_msg("auto tries %s: it has no not_in_auto", ops->name);
    }
}

/* Policies that plan differently must not be equal: the fallback leaves out a policy that is equal to one it has. */
TEST_CASE(each_number_and_choice_counts_when_policies_are_compared) {
    const mm_policy_ops *ops;
    for (size_t i = 0; (ops = mm_policy_table(i)); i++)
        for (const mm_option_desc *d = ops->options; d && d->key; d++) {
            if (d->type != MM_OPTION_NUMBER && d->type != MM_OPTION_CHOICE) continue;
            mm_policy p, other;
            assert_int_equal(mm_policy_default(ops, &p), MM_OK);
            assert_int_equal(mm_policy_copy(&p, &other), MM_OK);
            assert_true(mm_policy_equal(&p, &other));
            ((char *)&other.config)[d->field] ^= 1;
            if (mm_policy_equal(&p, &other)) fail_msg("%s: %s does not count", ops->name, d->key);
            mm_policy_fini(&other);
            mm_policy_fini(&p);
        }
}

/* Printed in the shortest form, which is parsed to the same configuration. */
TEST_CASE(a_policy_is_printed_as_it_is_parsed) {
    static const char *const cases[][2] = {
        {"naive", "naive"},
        {"freelunch:rate=6.4,eligible=conv,buffers=persistent,when=needed", "freelunch"},
        {"freelunch:rate=8,k=3", "freelunch:codec=zfp:rate=8,k=3"},
        {"freelunch:ratio=5", "freelunch"},
        {"freelunch:ratio=3", "freelunch:codec=zfp:rate=10.666667"},
        {"hybrid:ratio=8.0", "hybrid"},
        {"cdma:ratio=60", "cdma:codec=zfp:rate=0.533333"},
        {"freelunch:ratio=1", "freelunch:codec=zfp:rate=32"},
        {"freelunch:workspace=naive,eligible=all,depth=5,buffers=naive",
         "freelunch:eligible=all,depth=5,buffers=naive,workspace=naive"},
        {"cdma:throttle=0,codec=zfp:rate=4,when=always", "cdma:codec=zfp:rate=4,throttle=0,when=always"},
        {"vdnn-all:subbatch=off,algorithms=fastest", "vdnn-all"},
        {"vdnn-all:subbatch=16,algorithms=least", "vdnn-all:algorithms=least,subbatch=16"},
        {"vdnn-conv:subbatch=auto", "vdnn-conv:subbatch=auto"},
        {"modnn:algorithms=gain,offload=on,subbatch=auto", "modnn"},
        {"modnn:offload=off,subbatch=8,algorithms=least", "modnn:subbatch=8,algorithms=least,offload=off"},
        {"recompute:mode=sqrt", "recompute:mode=sqrt"},
        {"recompute:mode=cost,when=needed", "recompute"},
        {"recompute-swap:mode=speed", "recompute-swap:mode=speed"},
        {"hybrid:when=always,codec=raw", "hybrid:codec=raw,when=always"},
        {"rules", "rules:*=swap"},
        {"rules:mode=memory,rules=layer1.*-in=compress(zfp:rate=4);relu=mask;bn=keep;add=compress-swap(raw);*="
         "recompute;",
         "rules:layer1.*-in=compress(zfp:rate=4);relu=mask;bn=keep;add=compress-swap(raw);*=recompute,mode=memory"},
    };
    mm_policy p, again, other;
    assert_int_equal(mm_policy_parse("swap-async:depth=9", &other), MM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (mm_policy_parse(cases[i][0], &p) != MM_OK) fail_msg("%s", mm_last_error());
        assert_string_equal(p.spec, cases[i][0]);
        assert_int_equal(mm_policy_print(&p), MM_OK);
        assert_string_equal(p.spec, cases[i][1]);
        assert_int_equal(mm_policy_parse(p.spec, &again), MM_OK);
        assert_true(mm_policy_equal(&p, &again));
        assert_false(mm_policy_equal(&p, &other));
        mm_policy_fini(&again);
        assert_int_equal(mm_policy_copy(&p, &again), MM_OK);
        mm_policy_fini(&p);
        assert_int_equal(mm_policy_print(&again), MM_OK); /* the copy owns all that it has */
        assert_string_equal(again.spec, cases[i][1]);
        mm_policy_fini(&again);
    }
    mm_policy_fini(&other);
}

TEST_CASE(a_policy_says_how_many_images_it_wants_computed_at_a_time) {
    static const struct {
        const char *spec;
        int sub_batch;
    } cases[] = {{"naive", MM_SUB_BATCH_OFF},
                 {"liveness:layout=groups", MM_SUB_BATCH_OFF},
                 {"swap-async", MM_SUB_BATCH_OFF},
                 {"gist:lossless", MM_SUB_BATCH_OFF},
                 {"rules:*=swap", MM_SUB_BATCH_OFF},
                 {"comet", MM_SUB_BATCH_OFF},
                 {"vdnn-all", MM_SUB_BATCH_OFF},
                 {"vdnn-all:subbatch=auto", MM_SUB_BATCH_AUTO},
                 {"vdnn-conv:subbatch=1", 1},
                 {"modnn", MM_SUB_BATCH_AUTO},
                 {"modnn:subbatch=off", MM_SUB_BATCH_OFF},
                 {"vdnn-conv:subbatch=off", MM_SUB_BATCH_OFF}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mm_policy p;
        assert_int_equal(mm_policy_parse(cases[i].spec, &p), MM_OK);
        assert_int_equal(mm_policy_sub_batch(&p), cases[i].sub_batch);
        mm_policy_fini(&p);
    }
}

/* ---------------------------------------------------------------- storage shared */

/* data -> conv -> bn -> relu -> loss, and back. Units: input 1, maps and gradients 4, persistent 1 each. */
static mm_graph *conv_bn_relu(void) {
    terse_graph g;
    terse_init(&g, "conv_bn_relu");
    terse_persistent(&g, "w", 1);
    terse_persistent(&g, "dw", 1);
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x", MM_INPUT, 1);
    terse_map(&g, "c", MM_FEATURE_MAP, 4);
    terse_map(&g, "b", MM_FEATURE_MAP, 4);
    terse_map(&g, "r", MM_FEATURE_MAP, 4);
    terse_map(&g, "dr", MM_GRADIENT_MAP, 4);
    terse_map(&g, "db", MM_GRADIENT_MAP, 4);
    terse_map(&g, "dc", MM_GRADIENT_MAP, 4);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "x w =c");
    terse_step(&g, "bn", MM_LAYER_BATCH_NORM, MM_FORWARD, "c =b");
    terse_step(&g, "relu", MM_LAYER_RELU, MM_FORWARD, "b =r");
    terse_inplace(&g, "b", "r");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "r +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "r =dr");
    terse_step(&g, "relu", MM_LAYER_RELU, MM_BACKWARD, "?r dr =db");
    terse_inplace(&g, "dr", "db");
    terse_step(&g, "bn", MM_LAYER_BATCH_NORM, MM_BACKWARD, "c db =dc");
    terse_inplace(&g, "db", "dc");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "x dc =dw");
    return terse_freeze(&g);
}

TEST_CASE(naive_takes_the_sum_of_all_tensors) {
    mm_graph *graph = conv_bn_relu();
    planned p;
    plan_terse(&p, graph, "naive", 0);
    assert_int_equal(p.plan->peak_bytes, (3 + 1 + 3 * 4 + 3 * 4) * UNIT);
    assert_int_equal(p.plan->n_segments, mm_graph_persistents(graph) + 7);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(naive_has_one_workspace_as_large_as_the_largest) {
    terse_graph g;
    planned p;
    terse_init(&g, "workspaces");
    terse_map(&g, "x", MM_FEATURE_MAP, 2);
    g.workspace_bytes = 3 * UNIT;
    terse_step(&g, "a", MM_LAYER_OTHER, MM_FORWARD, "=x");
    g.workspace_bytes = 5 * UNIT - 1;
    terse_step(&g, "b", MM_LAYER_OTHER, MM_FORWARD, "x");
    mm_graph *graph = terse_freeze(&g);
    plan_terse(&p, graph, "naive", 0);
    assert_int_equal(mm_align(p.plan->peak_bytes), (2 + 5) * UNIT);
    planned_done(&p);
    plan_terse(&p, graph, "liveness", 0);
    assert_int_equal(mm_align(p.plan->peak_bytes), (2 + 5) * UNIT);
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(liveness_writes_relu_and_gradients_in_place_but_keeps_what_bn_needs) {
    mm_graph *graph = conv_bn_relu();
    planned p;
    plan_terse(&p, graph, "liveness", 0);
    assert_true(same_place(&p, "b", "r"));
    assert_true(same_place(&p, "dr", "db"));
    assert_true(same_place(&p, "db", "dc"));
    assert_false(same_place(&p, "c", "b")); /* not declared, and bn's backward reads c */
    /* At relu's backward: x, c, r and one gradient, which is written over the other. */
    assert_int_equal(p.plan->peak_bytes, (3 + 1 + 4 + 4 + 4) * UNIT);
    assert_int_equal(p.plan->live_peak_bytes, p.plan->peak_bytes);
    assert_int_equal(p.plan->stash_bytes, (1 + 4 + 4) * UNIT);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* Options for the baselines of papers: nothing in place, or gradients alone; stash=apart: maps that wait for the
 * backward pass share storage with nothing. */
TEST_CASE(liveness_without_inplace_and_with_its_stash_apart_is_the_papers_baseline) {
    mm_graph *graph = conv_bn_relu();
    planned p;
    plan_terse(&p, graph, "liveness:inplace=off", 0);
    assert_false(same_place(&p, "b", "r"));
    assert_false(same_place(&p, "dr", "db"));
    assert_int_equal(p.plan->stash_bytes, (1 + 4 + 4) * UNIT);
    /* At relu's backward: x, c, r and both gradients. */
    assert_int_equal(p.plan->peak_bytes, (3 + 1 + 4 + 4 + 4 + 4) * UNIT);
    assert_int_equal(p.plan->live_peak_bytes, p.plan->peak_bytes);
    planned_done(&p);
    plan_terse(&p, graph, "liveness:inplace=gradients", 0);
    assert_false(same_place(&p, "b", "r"));
    assert_true(same_place(&p, "dr", "db"));
    assert_int_equal(p.plan->peak_bytes, (3 + 1 + 4 + 4 + 4) * UNIT);
    planned_done(&p);
    plan_terse(&p, graph, "liveness:inplace=off,stash=apart", 0);
    /* x, c and r share with nothing. b and the gradients dr, db and dc share two places. */
    assert_int_equal(p.plan->peak_bytes, (3 + 1 + 4 + 4 + 4 + 4) * UNIT);
    const mm_segment *c = segment_of(&p, "c", 0), *x = segment_of(&p, "x", 0);
    for (int i = mm_graph_persistents(graph); i < p.plan->n_segments; i++) {
        const mm_segment *s = &p.plan->segments[i];
        if (s != c) assert_true(s->offset + s->bytes <= c->offset || c->offset + c->bytes <= s->offset);
        if (s != x) assert_true(s->offset + s->bytes <= x->offset || x->offset + x->bytes <= s->offset);
    }
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(an_input_that_is_needed_later_is_not_overwritten) {
    terse_graph g;
    planned p;
    terse_init(&g, "needed");
    terse_map(&g, "x", MM_FEATURE_MAP, 4);
    terse_map(&g, "y", MM_FEATURE_MAP, 4);
    terse_step(&g, "a", MM_LAYER_OTHER, MM_FORWARD, "=x");
    terse_step(&g, "relu", MM_LAYER_RELU, MM_FORWARD, "x =y");
    terse_inplace(&g, "x", "y");
    terse_step(&g, "b", MM_LAYER_OTHER, MM_FORWARD, "x y");
    mm_graph *graph = terse_freeze(&g);
    plan_terse(&p, graph, "liveness", 0);
    assert_false(same_place(&p, "x", "y"));
    assert_int_equal(p.plan->peak_bytes, 8 * UNIT);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* x -> conv -> a; s = a + x; and the backward steps. accumulate: that of conv adds to dx. */
static mm_graph *residual(bool accumulate) {
    terse_graph g;
    terse_init(&g, "residual");
    terse_persistent(&g, "dw", 1);
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x", MM_FEATURE_MAP, 4);
    terse_map(&g, "a", MM_FEATURE_MAP, 4);
    terse_map(&g, "s", MM_FEATURE_MAP, 4);
    terse_map(&g, "ds", MM_GRADIENT_MAP, 4);
    terse_map(&g, "da", MM_GRADIENT_MAP, 4);
    terse_map(&g, "dx", MM_GRADIENT_MAP, 4);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "x =a");
    terse_step(&g, "add", MM_LAYER_ADD, MM_FORWARD, "a x =s");
    terse_inplace(&g, "a", "s");
    terse_inplace(&g, "x", "s");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "s +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "s =ds");
    terse_step(&g, "add", MM_LAYER_ADD, MM_BACKWARD, "ds =da =dx");
    terse_alias(&g, "ds", "da");
    terse_alias(&g, "ds", "dx");
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, accumulate ? "x da +dx =dw" : "x da =dw");
    return terse_freeze(&g);
}

TEST_CASE(a_residual_sum_is_written_over_one_addend_and_its_gradients_are_one) {
    mm_graph *graph = residual(false);
    planned p;
    plan_terse(&p, graph, "liveness", 0);
    assert_true(same_place(&p, "a", "s"));
    assert_false(same_place(&p, "x", "s")); /* conv's backward reads x */
    assert_int_equal(p.plan->alias[terse_tensor(graph, "da")], terse_tensor(graph, "ds"));
    assert_int_equal(p.plan->alias[terse_tensor(graph, "dx")], terse_tensor(graph, "ds"));
    assert_int_equal(p.plan->peak_bytes, (2 + 4 + 4 + 4) * UNIT); /* at the loss: x, s, ds */
    planned_done(&p);
    plan_terse(&p, graph, "naive", 0);
    assert_int_equal(p.plan->peak_bytes, (2 + 6 * 4) * UNIT);
    assert_int_equal(p.plan->alias[terse_tensor(graph, "da")], terse_tensor(graph, "da"));
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(a_gradient_that_is_added_to_has_storage_of_its_own) {
    mm_graph *graph = residual(true);
    planned p;
    plan_terse(&p, graph, "liveness", 0);
    assert_int_equal(p.plan->alias[terse_tensor(graph, "da")], terse_tensor(graph, "ds"));
    assert_int_equal(p.plan->alias[terse_tensor(graph, "dx")], terse_tensor(graph, "dx"));
    assert_false(same_place(&p, "ds", "dx"));
    assert_int_equal(p.plan->peak_bytes, (2 + 4 + 4 + 4) * UNIT); /* x, ds, dx; and x, s, ds */
    planned_done(&p);
    mm_graph_destroy(graph);
}

TEST_CASE(storage_has_one_heir) {
    terse_graph g;
    planned p;
    terse_init(&g, "heirs");
    terse_map(&g, "x", MM_FEATURE_MAP, 4);
    terse_map(&g, "y", MM_FEATURE_MAP, 4);
    terse_map(&g, "z", MM_FEATURE_MAP, 4);
    terse_step(&g, "a", MM_LAYER_OTHER, MM_FORWARD, "=x");
    terse_step(&g, "split", MM_LAYER_OTHER, MM_FORWARD, "x =y =z");
    terse_inplace(&g, "x", "y");
    terse_inplace(&g, "x", "z");
    terse_step(&g, "b", MM_LAYER_OTHER, MM_FORWARD, "y z");
    mm_graph *graph = terse_freeze(&g);
    plan_terse(&p, graph, "liveness", 0);
    assert_true(same_place(&p, "x", "y"));
    assert_false(same_place(&p, "x", "z"));
    assert_int_equal(p.plan->peak_bytes, 8 * UNIT);
    planned_done(&p);
    mm_graph_destroy(graph);
}

/* A convolution that can run with 6, 2 or no units of workspace, and a product with one choice. */
static mm_graph *with_algorithms(void) {
    terse_graph g;
    terse_init(&g, "algorithms");
    terse_map(&g, "x", MM_FEATURE_MAP, 4);
    terse_map(&g, "y", MM_FEATURE_MAP, 4);
    terse_map(&g, "dy", MM_GRADIENT_MAP, 4);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x");
    g.workspace_bytes = 6 * UNIT;
    terse_step(&g, "conv", MM_LAYER_CONV, MM_FORWARD, "x =y");
    assert_int_equal(mm_graph_allow_workspace(g.graph, 2 * UNIT), MM_OK);
    assert_int_equal(mm_graph_allow_workspace(g.graph, 0), MM_OK);
    g.workspace_bytes = 1 * UNIT;
    terse_step(&g, "fc", MM_LAYER_LINEAR, MM_FORWARD, "y");
    g.workspace_bytes = 5 * UNIT;
    terse_step(&g, "fc", MM_LAYER_LINEAR, MM_BACKWARD, "y =dy");
    assert_int_equal(mm_graph_allow_workspace(g.graph, 3 * UNIT), MM_OK);
    g.workspace_bytes = 0;
    terse_step(&g, "conv", MM_LAYER_CONV, MM_BACKWARD, "x dy");
    return terse_freeze(&g);
}

TEST_CASE(each_step_runs_by_the_algorithm_that_the_policy_asks_for) {
    static const struct {
        const char *spec;
        int variants[5], units[5]; /* per step: its variant, its workspace */
    } cases[] = {{"liveness", {0, 0, 0, 0, 0}, {0, 6, 1, 5, 0}},
                 {"liveness:algorithms=1", {0, 1, 0, 1, 0}, {0, 2, 1, 3, 0}},
                 {"liveness:algorithms=2", {0, 2, 0, 1, 0}, {0, 0, 1, 3, 0}},
                 {"liveness:algorithms=least", {0, 2, 0, 1, 0}, {0, 0, 1, 3, 0}},
                 {"vdnn-all", {0, 0, 0, 0, 0}, {0, 6, 1, 5, 0}},
                 {"vdnn-all:algorithms=least", {0, 2, 0, 1, 0}, {0, 0, 1, 3, 0}},
                 {"vdnn-conv:algorithms=least,when=needed", {0, 2, 0, 1, 0}, {0, 0, 1, 3, 0}}};
    mm_graph *graph = with_algorithms();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned p;
        plan_terse(&p, graph, cases[i].spec, 0);
        for (int n = 0; n < p.plan->n_nodes; n++) {
            const mm_node *node = &p.plan->nodes[n];
            if (node->kind != MM_NODE_STEP) continue;
            assert_int_equal(node->variant, cases[i].variants[node->step]);
            assert_int_equal(node->work >= 0 ? p.plan->segments[node->work].bytes / UNIT : 0,
                             cases[i].units[node->step]);
        }
        planned_done(&p);
    }
    mm_graph_destroy(graph);
}

/* All maps, or those that the convolution reads, with as fast algorithms as have room. */
TEST_CASE(vdnn_dyn_takes_the_first_of_its_forms_that_fits) {
    static const struct {
        int64_t budget, peak; /* units */
        int variants[5], outs;
    } cases[] = {{17, 17, {0, 0, 0, 0, 0}, 0}, {16, 15, {0, 0, 0, 1, 0}, 1}, {15, 15, {0, 0, 0, 1, 0}, 1}};
    mm_graph *graph = with_algorithms();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned p;
        int outs = 0;
        plan_terse_within(&p, graph, "vdnn-dyn", 0, cases[i].budget * UNIT);
        assert_int_equal(p.plan->peak_bytes, cases[i].peak * UNIT);
        for (int n = 0; n < p.plan->n_nodes; n++) {
            const mm_node *node = &p.plan->nodes[n];
            outs += node->kind == MM_NODE_OUT;
            if (node->kind == MM_NODE_STEP) assert_int_equal(node->variant, cases[i].variants[node->step]);
        }
        assert_int_equal(outs, cases[i].outs);
        planned_done(&p);
    }
    planned least, all;
    plan_terse_within(&least, graph, "vdnn-dyn", 0, 1);
    plan_terse(&all, graph, "vdnn-all:algorithms=least", 0);
    assert_int_equal(least.plan->peak_bytes, all.plan->peak_bytes);
    planned_done(&least);
    planned_done(&all);
    mm_graph_destroy(graph);
}

TEST_CASE(the_plan_says_whose_it_is) {
    mm_graph *graph = residual(false);
    planned p;
    plan_terse(&p, graph, "freelunch:rate=8,depth=3", UNIT);
    assert_string_equal(p.plan->policy, "freelunch:rate=8,depth=3");
    planned_done(&p);
    mm_graph_destroy(graph);
}
