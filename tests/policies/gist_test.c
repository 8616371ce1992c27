/* SPDX-License-Identifier: MIT */
/* Gist: which map gets which code, and the account of maps by the layers that write and read them. */
#include <stdio.h>
#include <string.h>

#include "mm/core/account/account_maps.h"
#include "tests/core/plan_proof.h"
#include "tests/core/test_case.h"
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

/* Facts of the policy's codecs: csr has a head and a body, dpr takes half of the map, a mask one bit per element. */
static mm_graph_facts *facts_for(const mm_graph *graph, const mm_policy *policy) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    mm_graph_facts *facts;
    const int n = mm_policy_list_codecs(policy, specs);
    assert_int_equal(mm_graph_facts_create(graph, n, &facts), MM_OK);
    for (int c = 0; c < n; c++) {
        const bool mask = strcmp(specs[c], "mask") == 0, csr = strncmp(specs[c], "csr", 3) == 0;
        facts->codecs[c] = (mm_codec_facts){.lossless = mask || (csr && !strstr(specs[c], "values=")),
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
    if (plan_check(p->plan, p->facts, &limits) != MM_OK) fail_msg("%s", mm_last_error());
    mm_policy_fini(&policy);
}

/* Writes every code that the plan makes, in order: "r1 mask, p1 csr, ...". */
static const char *codes_of(const planned *p, char *text, size_t capacity) {
    text[0] = '\0';
    for (int i = 0; i < p->plan->n_nodes; i++) {
        const mm_node *n = &p->plan->nodes[i];
        if (n->kind != MM_NODE_ENCODE) continue;
        const size_t used = strlen(text);
        snprintf(text + used, capacity - used, "%s%s %s", used ? ", " : "",
                 mm_graph_tensor(p->plan->graph, n->tensor)->name,
                 p->facts->codecs[p->plan->segments[n->dst].codec].spec);
    }
    return text;
}

TEST_CASE(each_pair_of_layers_has_its_code) {
    static const char *const cases[][2] = {
        {"gist:when=always", "r1 mask, p1 csr, r2 csr"},
        {"gist:lossless,when=always,depth=2", "r1 mask, p1 csr, r2 csr"},
        {"gist:lossy=fp16,when=always",
         "r1 mask, p1 csr:values=fp16, r2 mask, r2 csr:values=fp16, r3 mask, r3 dpr:fp16, y dpr:fp16"},
        {"gist:lossy=fp8,when=always",
         "r1 mask, p1 csr:values=fp8, r2 mask, r2 csr:values=fp8, r3 mask, r3 dpr:fp8, y dpr:fp8"},
        {"gist:lossless,reserve=100,when=always", "r1 mask, p1 csr:reserve=100, r2 csr:reserve=100"},
        {"gist:lossless", ""}, /* when=needed: there is enough memory */
    };
    mm_graph *graph = convnet();
    char text[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        planned p;
        plan_gist(graph, cases[i][0], &p);
        assert_string_equal(codes_of(&p, text, sizeof text), cases[i][1]);
        planned_done(&p);
    }
    mm_graph_destroy(graph);
}

TEST_CASE(its_spec_is_printed_as_it_is_read) {
    static const char *const cases[][2] = {
        {"gist", "gist:lossless"},
        {"gist:codes=lossy=fp10,depth=0,when=always", "gist:lossy=fp10,when=always"},
        {"gist:lossy=fp8,depth=2,layout=groups,inplace=gradients,stash=apart",
         "gist:lossy=fp8,depth=2,inplace=gradients,layout=groups,stash=apart"},
        {"gist:lossy=fp16,reserve=7", "gist:lossy=fp16,reserve=7"},
    };
    mm_policy p;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(mm_policy_parse(cases[i][0], &p), MM_OK);
        assert_int_equal(mm_policy_print(&p), MM_OK);
        assert_string_equal(p.spec, cases[i][1]);
        mm_policy_fini(&p);
    }
    assert_int_equal(mm_policy_parse("gist:lossy=fp9", &p), MM_ERR_INVALID);
    assert_says("codes=lossy=fp9: must be one of lossless|");
    assert_int_equal(mm_policy_parse("gist:reserve=0", &p), MM_ERR_INVALID);
    assert_says("reserve=0: must be a whole number from 1 to 100");
    assert_int_equal(mm_policy_parse("gist:lossy=fp9", &p), MM_ERR_INVALID);
    assert_says("codes=lossy=fp9: must be one of lossless|lossy=fp16|lossy=fp10|lossy=fp8");
}

#define RULES                                                                                                          \
    "rules:relu&pool-in=mask;relu&conv-in=compress(csr);pool&conv-in=compress(csr),when=always,depth=0,layout=groups"

TEST_CASE(maps_are_told_by_who_writes_and_who_reads_them) {
    mm_graph *graph = convnet();
    for (int gist = 0; gist < 2; gist++) {
        planned p;
        mm_stash_account stash;
        mm_map_account account;
        plan_gist(graph, gist ? RULES : "liveness:inplace=off,layout=groups", &p);
        assert_int_equal(mm_stash_account_init(p.plan, p.facts, &stash), MM_OK);
        assert_int_equal(mm_map_account_init(p.plan, p.facts, &stash, &account), MM_OK);
        const mm_stash_sum *sums = account.stash;
        assert_int_equal(sums[MM_STASH_RELU_POOL].bytes, BIG * UNIT);
        assert_int_equal(sums[MM_STASH_RELU_POOL].held_bytes, gist ? BIG * UNIT / 32 : BIG * UNIT);
        for (int class = MM_STASH_RELU_CONV; class <= MM_STASH_POOL_CONV; class ++) {
            assert_int_equal(sums[class].bytes, SMALL * UNIT);
            assert_int_equal(sums[class].held_bytes, gist ? HEAD + RESERVE : SMALL * UNIT);
        }
        assert_int_equal(sums[MM_STASH_OTHER].held_bytes, (SMALL + 1) * UNIT); /* r3 and y */
        assert_int_equal(sums[MM_STASH_SAVED].held_bytes, 1 * UNIT);
        assert_int_equal(sums[MM_STASH_BATCH].bytes, 2 * UNIT);
        if (gist) {
            /* Less is needed at relu1 (the map), and at its backward step (the gradient, in place, and the mask). */
            assert_int_equal(account.dynamic_bytes,
                             (BIG + SMALL + 1 + 1) * UNIT); /* at pool1: its input, output and index */
            assert_int_equal(account.undecoded_bytes, account.dynamic_bytes);
        } else {
            /* At relu1's backward: both gradients and r1. */
            assert_int_equal(account.dynamic_bytes, 3 * BIG * UNIT);
            assert_int_equal(account.placed_bytes, p.plan->extent_bytes - UNIT - 2 * UNIT);
        }
        mm_stash_account_fini(&stash);
        planned_done(&p);
    }
    mm_graph_destroy(graph);
}
