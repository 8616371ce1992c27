/* Gist: which map gets which code, and the account of maps by the layers that write and read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/account.h"
#include "tests/policies/engine_rig.h"

enum { BIG = 32, SMALL = 8, HEAD = UNIT, RESERVE = 2 * UNIT };

/* conv1 -> c1, relu1 -> r1, pool1 -> p1 (small), conv2 -> c2, relu2 -> r2, conv3 -> c3, relu3 -> r3, linear -> y; and
 * back. A pool's backward reads its index map, a ReLU's the signs of its output. */
static mm_graph *convnet(void) {
    static const char *const big[] = {"c1", "r1", "c2", "r2", "c3", "r3"};
    terse_graph g;
    char name[8];
    terse_init(&g, "convnet");
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x", MM_INPUT, 2);
    for (size_t i = 0; i < 6; i++) {
        const int units = i < 2 ? BIG : SMALL;
        terse_map(&g, big[i], MM_FEATURE_MAP, units);
        snprintf(name, sizeof name, "d%s", big[i]);
        terse_map(&g, name, MM_GRADIENT_MAP, units);
    }
    terse_map(&g, "p1", MM_FEATURE_MAP, SMALL);
    terse_map(&g, "dp1", MM_GRADIENT_MAP, SMALL);
    terse_map(&g, "index", MM_SAVED, 1);
    terse_map(&g, "y", MM_FEATURE_MAP, 1);
    terse_map(&g, "dy", MM_GRADIENT_MAP, 1);
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x");
    terse_step(&g, "conv1", MM_LAYER_CONV, MM_FORWARD, "x =c1");
    terse_step(&g, "relu1", MM_LAYER_RELU, MM_FORWARD, "c1 =r1");
    terse_inplace(&g, "c1", "r1");
    terse_step(&g, "pool1", MM_LAYER_POOL, MM_FORWARD, "r1 =p1 =index");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_FORWARD, "p1 =c2");
    terse_step(&g, "relu2", MM_LAYER_RELU, MM_FORWARD, "c2 =r2");
    terse_inplace(&g, "c2", "r2");
    terse_step(&g, "conv3", MM_LAYER_CONV, MM_FORWARD, "r2 =c3");
    terse_step(&g, "relu3", MM_LAYER_RELU, MM_FORWARD, "c3 =r3");
    terse_inplace(&g, "c3", "r3");
    terse_step(&g, "linear", MM_LAYER_LINEAR, MM_FORWARD, "r3 =y");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "y +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "y =dy");
    terse_step(&g, "linear", MM_LAYER_LINEAR, MM_BACKWARD, "r3 dy =dr3");
    terse_step(&g, "relu3", MM_LAYER_RELU, MM_BACKWARD, "?r3 dr3 =dc3");
    terse_inplace(&g, "dr3", "dc3");
    terse_step(&g, "conv3", MM_LAYER_CONV, MM_BACKWARD, "r2 dc3 =dr2");
    terse_step(&g, "relu2", MM_LAYER_RELU, MM_BACKWARD, "?r2 dr2 =dc2");
    terse_inplace(&g, "dr2", "dc2");
    terse_step(&g, "conv2", MM_LAYER_CONV, MM_BACKWARD, "p1 dc2 =dp1");
    terse_step(&g, "pool1", MM_LAYER_POOL, MM_BACKWARD, "index dp1 =dr1");
    terse_step(&g, "relu1", MM_LAYER_RELU, MM_BACKWARD, "?r1 dr1 =dc1");
    terse_inplace(&g, "dr1", "dc1");
    terse_step(&g, "conv1", MM_LAYER_CONV, MM_BACKWARD, "x dc1");
    return terse_freeze(&g);
}

/* Facts of the policy's codecs: a csr has a head and a body, a dpr half of the map, a mask a bit an element. */
static mm_facts *facts_for(const mm_graph *graph, const mm_policy *policy) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    mm_facts *facts;
    const int n = mm_policy_list_codecs(policy, specs);
    assert_int_equal(mm_facts_create(graph, n, &facts), MM_OK);
    for (int c = 0; c < n; c++) {
        const bool mask = strcmp(specs[c], "mask") == 0, csr = strncmp(specs[c], "csr", 3) == 0;
        facts->codecs[c] = (mm_codec_facts){.lossless = mask || strcmp(specs[c], "csr") == 0,
                                            .fixed_size = !csr,
                                            .gives_value = !mask,
                                            .gives_sign = mask};
        snprintf(facts->codecs[c].spec, MM_SPEC_CAPACITY, "%s", specs[c]);
        for (int t = 0; t < facts->n_tensors; t++) {
            const int64_t bytes = mm_graph_tensor(graph, t)->bytes;
            facts->codes[c * facts->n_tensors + t] = (mm_code_facts){.code_bytes = mask  ? bytes / 32
                                                                                   : csr ? HEAD
                                                                                         : bytes / 2,
                                                                     .body_bound_bytes = csr ? bytes : 0,
                                                                     .body_reserve_bytes = csr ? RESERVE : 0,
                                                                     .body_typical_bytes = csr ? RESERVE : 0};
        }
    }
    return facts;
}

static void plan_gist(const mm_graph *graph, const char *spec, planned *p) {
    mm_policy policy;
    mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(graph)};
    assert_int_equal(mm_policy_parse(spec, &policy), MM_OK);
    p->facts = facts_for(graph, &policy);
    if (mm_policy_plan(&policy, graph, p->facts, &limits, &p->plan) != MM_OK) fail_msg("%s", mm_last_error());
    if (mm_plan_check(p->plan, p->facts, &limits) != MM_OK) fail_msg("%s", mm_last_error());
    mm_policy_fini(&policy);
}

#define RULES                                                                                                          \
    "rules:relu&pool-in=mask;relu&conv-in=compress(csr);pool&conv-in=compress(csr),when=always,depth=0,layout=groups"

static void maps_are_told_by_who_writes_and_who_reads_them(void **state) {
    (void)state;
    mm_graph *graph = convnet();
    for (int gist = 0; gist < 2; gist++) {
        planned p;
        mm_stash stash;
        mm_map_account account;
        plan_gist(graph, gist ? RULES : "liveness:inplace=off,layout=groups", &p);
        assert_int_equal(mm_stash_init(p.plan, p.facts, &stash), MM_OK);
        assert_int_equal(mm_map_account_init(p.plan, p.facts, &stash, &account), MM_OK);
        const mm_stash_sum *sums = account.stash;
        assert_int_equal(sums[MM_STASH_RELU_POOL].bytes, BIG * UNIT);
        assert_int_equal(sums[MM_STASH_RELU_POOL].held_bytes, gist ? BIG * UNIT / 32 : BIG * UNIT);
        assert_int_equal(sums[MM_STASH_RELU_CONV].bytes, 2 * SMALL * UNIT);
        assert_int_equal(sums[MM_STASH_RELU_CONV].held_bytes, gist ? 2 * (HEAD + RESERVE) : 2 * SMALL * UNIT);
        assert_int_equal(sums[MM_STASH_OTHER].held_bytes, (SMALL + 1) * UNIT); /* r3 and y */
        assert_int_equal(sums[MM_STASH_SAVED].held_bytes, 1 * UNIT);
        assert_int_equal(sums[MM_STASH_BATCH].bytes, 2 * UNIT);
        if (gist) {
            /* At relu1: the map. At its backward: its gradient, in place, and the mask. */
            assert_int_equal(account.dynamic_bytes,
                             (BIG + SMALL + 1 + 1) * UNIT); /* pool1, with its output and index */
            assert_int_equal(account.undecoded_bytes, account.dynamic_bytes);
        } else {
            /* At relu1's backward: both gradients and r1. */
            assert_int_equal(account.dynamic_bytes, 3 * BIG * UNIT);
            assert_int_equal(account.placed_bytes, p.plan->extent_bytes - UNIT - 2 * UNIT);
        }
        mm_stash_fini(&stash);
        planned_done(&p);
    }
    mm_graph_destroy(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_are_told_by_who_writes_and_who_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
