/* SPDX-License-Identifier: MIT */
/* An executor that is one of several ranks.
 *
 * Memory runs out: if no all-reduce has begun, the iteration runs again under a plan that needs less, with the same
 * bits; else it fails, because other ranks have what it sent.
 *
 * Gradients are not finite: whichever rank has them, no rank updates anything. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/exec/exec.h"
#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"
#include "tests/suite/device_fault.h"

enum { BATCH = 4, SEED = 5, ITERATIONS = 2 };
static const nets_optimizer SGD = {.momentum = 0.9f, .weight_decay = 1e-4f, .only_finite = true};

/* The other rank has the same gradients, and a loss of 1. ctx: how many all-reduces have begun. */
static void sent(void *ctx, const mm_allreduce_part *shared) {
    const mm_tensor_info *tensor = mm_graph_tensor(shared->graph, shared->tensor);
    float *elems = shared->data;
    for (int64_t i = 0; tensor->kind == MM_WEIGHT_GRADIENT && i < shared->bytes / (int64_t)sizeof *elems; i++)
        elems[i] *= 2;
    if (strcmp(tensor->name, NETS_LOSS_NAME) == 0) *elems = 1;
    atomic_fetch_add((atomic_llong *)ctx, 1);
}

static mm_status await(void *ctx, const mm_allreduce_part *shared) {
    (void)ctx, (void)shared;
    return MM_OK;
}

static int64_t begun(void *ctx) { return atomic_load((atomic_llong *)ctx); }

static const mm_allreduce_fns fns = {.sent = sent, .await = await};

/* What ranks divide: the other rank has the same gradients, and its weights are always OTHERS. */
#define OTHERS 0.01f
static void begin_exchange(void *ctx, bool gathers, void *data, int64_t elems) {
    float *own = data;
    for (int64_t i = 0; i < elems / 2; i++)
        if (gathers)
            own[elems / 2 + i] = OTHERS;
        else
            own[i] *= 2;
    atomic_fetch_add((atomic_llong *)ctx, 1);
}

static mm_status wait_exchange(void *ctx) {
    (void)ctx;
    return MM_OK;
}

static mm_status collect(void *ctx, const void *mine, int64_t bytes, void *all_out) {
    (void)ctx;
    memcpy(all_out, mine, (size_t)bytes);
    memset((char *)all_out + bytes, 0, (size_t)bytes);
    return MM_OK;
}

static const nets_exchange exchange = {
    .most_elems = 1000, .begin = begin_exchange, .wait = wait_exchange, .collect = collect};

typedef struct votes {
    int32_t others; /* the other rank's word */
    int32_t mine;   /* this rank's last word */
} votes;

static votes voted;

static mm_status agree(void *ctx, int32_t *word) {
    (void)ctx;
    if (voted.others < 0) return mm_fail(MM_ERR_DEVICE, "the other rank has ended");
    voted.mine = *word;
    *word += voted.others;
    return MM_OK;
}

typedef struct run {
    nets_net *net;
    mm_manager *manager;
    nets_backend *backend;
    nets_exec *exec;
    float *images;
    int32_t *labels;
    atomic_llong begun;
} run;

static void begin(run *r, const char *net, const nets_optimizer *optimizer, nets_divide divide) {
    const mm_options options = {
        .device_bytes = 16 << 20, .pinned_bytes = 16 << 20, .policy = "liveness", .issue = MM_ISSUE_INLINE};
    *r = (run){0};
    voted = (votes){0};
    expect_ok(nets_zoo_build(net, &r->net));
    expect_ok(mm_manager_create(&options, &r->manager));
    expect_ok(nets_backend_open("host", NULL, &r->backend));
    const nets_exec_options of_two = {.allreduce = {.n = 2,
                                                    .when = MM_ALLREDUCE_AT_ONCE,
                                                    .fns = &fns,
                                                    .ctx = &r->begun,
                                                    .begun = begun,
                                                    .agree = agree,
                                                    .divide = divide,
                                                    .exchange = &exchange}};
    expect_ok(nets_exec_create_with(r->net, BATCH, NETS_TRAIN, r->manager, r->backend, optimizer, &of_two, &r->exec));
    expect_ok(nets_exec_init(r->exec, SEED));
    ref_batch(r->net, BATCH, 1, &r->images, &r->labels);
}

static void end(run *r) {
    nets_exec_destroy(r->exec);
    nets_backend_close(r->backend);
    mm_manager_destroy(r->manager);
    nets_net_destroy(r->net);
    free(r->images);
    free(r->labels);
}

static mm_status iterate(run *r) {
    nets_result result;
    return nets_exec_iteration(r->exec, r->images, r->labels, BATCH, 0.1f, &result);
}

static float *weights_of(const run *r, size_t *bytes_out) {
    size_t n = 0, at = 0;
    for (int p = 0; p < nets_net_params(r->net); p++) n += (size_t)nets_net_param(r->net, p)->elems;
    float *weights = malloc(n * sizeof *weights);
    assert_non_null(weights);
    for (int p = 0; p < nets_net_params(r->net); p++) {
        expect_ok(nets_exec_param_get(r->exec, p, NETS_VALUE, weights + at));
        at += (size_t)nets_net_param(r->net, p)->elems;
    }
    *bytes_out = n * sizeof *weights;
    return weights;
}

/* Returns how often an iteration ran again: the sooner sums begin, the less often, so it differs from run to run. */
static int run_out_of_memory(nets_divide divide) {
    run r;
    size_t bytes;
    int again = 0, failed = 0;
    begin(&r, "tiny", &SGD, divide);
    for (int i = 0; i < ITERATIONS; i++) expect_ok(iterate(&r));
    float *expected = weights_of(&r, &bytes);
    end(&r);
    for (int nth = 1;; nth++) {
        begin(&r, "tiny", &SGD, divide);
        expect_ok(iterate(&r));
        const int64_t before = begun(&r.begun);
        device_fault_set(DEVICE_FAULT_MEMORY_CALL, nth);
        const mm_status status = iterate(&r);
        const bool happened = device_fault_happened();
        device_fault_set(DEVICE_FAULT_NONE, 0);
        const int64_t sums = begun(&r.begun) - before;
        mm_stats stats;
        mm_stats_get(r.manager, &stats);
        if (status == MM_OK) {
            float *weights = weights_of(&r, &bytes);
            assert_int_equal(sums, before); /* each all-reduce has begun once */
            assert_memory_equal(weights, expected, bytes);
            free(weights);
        } else {
            assert_int_equal(status, MM_ERR_NOMEM);
            /* If memory runs out while the iteration copies what it may have to restore, before its plan runs, it fails
             * too: a smaller plan does not help there. */
            if (sums == 0 && stats.ladder_steps > 0) fail_msg("call %d: did not run again", nth);
        }
        again += status == MM_OK && stats.ladder_steps > 0;
        failed += sums > 0 && status != MM_OK;
        end(&r);
        if (!happened) break;
    }
    print_message("%d times it ran again, %d times it failed\n", again, failed);
    free(expected);
    assert_true(failed > 10);
    return again;
}

TEST_CASE(memory_that_runs_out_is_made_up_for_only_before_a_sum_has_begun) {
    int again = 0;
    for (int divide = 0; divide < NETS_DIVIDES; divide++) again += run_out_of_memory((nets_divide)divide);
    assert_true(again > 1);
}

/* Digest of the values and optimizer states of all parameters. */
static uint64_t digest_of(const run *r) {
    uint64_t digest = 14695981039346656037u;
    for (int p = 0; p < nets_net_params(r->net); p++)
        for (int part = NETS_VALUE; part <= NETS_STATE; part++) {
            const int64_t n = nets_net_param(r->net, p)->elems;
            uint32_t *elems = malloc((size_t)n * sizeof *elems);
            assert_non_null(elems);
            if (part != NETS_GRADIENT) expect_ok(nets_exec_param_get(r->exec, p, (nets_part)part, (float *)elems));
            for (int64_t i = 0; part != NETS_GRADIENT && i < n; i++) digest = (digest ^ elems[i]) * 1099511628211u;
            free(elems);
        }
    return digest;
}

static void halt(nets_divide divide) {
    nets_optimizer going_on = SGD, clipping = SGD;
    going_on.only_finite = false;
    clipping.clip_norm = 1;
    const struct {
        const char *what;
        const nets_optimizer *optimizer;
        float image; /* put into element 7 of the second batch's images */
        int32_t others, mine;
        mm_status status;
        bool halts;
    } cases[] = {
        {"nobody halts", &SGD, 1, 0, 0, MM_OK, false},
        {"the other rank halts", &SGD, 1, 1, 0, MM_OK, true},
        {"this rank halts", &SGD, NAN, 0, 1, MM_OK, true},
        {"the other rank is gone", &SGD, 1, -1, 0, MM_ERR_DEVICE, true},
        {"whatever comes", &going_on, NAN, 1, 0, MM_OK, false},
        {"clipping looks at sums", &clipping, NAN, 1, 0, MM_OK, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        if (divide == NETS_DIVIDE_GRADIENTS && cases[i].optimizer->clip_norm > 0) continue; /* is refused */
        begin(&r, "vgg11@32x32,classes=10,thin=16", cases[i].optimizer, divide);
        assert_true(nets_exec_lowered(r.exec)->n_updates > 2);
        expect_ok(iterate(&r));
        const uint64_t before = digest_of(&r);
        voted.others = cases[i].others;
        r.images[7] = cases[i].image;
        nets_result result;
        const mm_status status = nets_exec_iteration(r.exec, r.images, r.labels, BATCH, 0.1f, &result);
        if (status != cases[i].status || (digest_of(&r) == before) != cases[i].halts || voted.mine != cases[i].mine)
            fail_msg("%s, divide %d: status %d, %s, voted %d", cases[i].what, divide, status,
                     digest_of(&r) == before ? "halted" : "updated", voted.mine);
        if (status == MM_OK) assert_int_equal(result.halted != 0, cases[i].halts);
        end(&r);
    }
}

TEST_CASE(a_rank_that_halts_halts_all) {
    for (int divide = 0; divide < NETS_DIVIDES; divide++) halt((nets_divide)divide);
}

static void fill(const run *r, const char *name, float value) {
    const int param = nets_net_find_param(r->net, name);
    const int64_t elems = nets_net_param(r->net, param)->elems;
    float *values = malloc((size_t)elems * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < elems; i++) values[i] = value;
    expect_ok(nets_exec_param_set(r->exec, param, NETS_VALUE, values));
    free(values);
}

static float first_of(const run *r, const char *name) {
    float value;
    expect_ok(nets_exec_values_get(r->exec, name, 0, &value, sizeof value));
    return value;
}

/* The loss reads huge maps and ignores them, so only its weight's gradient, which is in parts, overflows. */
TEST_CASE(a_part_of_a_gradient_that_overflows_halts_all) {
    run r;
    nets_result result;
    begin(&r, "gpt,layers=1,width=64,heads=2,context=8,vocabulary=4200", &SGD, NETS_DIVIDE_GRADIENTS);
    assert_true(nets_exec_lowered(r.exec)->params[nets_net_find_param(r.net, "wte.weight")].parts_only);
    expect_ok(iterate(&r));
    assert_int_equal(voted.mine, 0);
    fill(&r, "ln_f.weight", 1e35f);
    fill(&r, "wte.weight", 0);
    expect_ok(nets_exec_iteration(r.exec, r.images, r.labels, BATCH, 0.1f, &result));
    assert_true(result.halted != 0);
    assert_int_equal(voted.mine, 1);
    assert_true(first_of(&r, "ln_f.weight") == 1e35f && first_of(&r, "wte.weight") == 0);
    end(&r);
}

/* Shares cover all elements once, in the order of ranks, and begin at whole units. */
TEST_CASE(shares_of_ranks_cover_a_tensor) {
    for (int64_t elems = 1; elems < 300; elems++)
        for (int ranks = 1; ranks < 9; ranks++) {
            const int64_t unit = elems % 3 ? NETS_SHARE_UNIT : 3 * NETS_SHARE_UNIT;
            const int64_t room = nets_share_room(elems, ranks, unit);
            int64_t at = 0;
            for (int r = 0; r < ranks; r++) {
                const nets_share share = nets_share_of(elems, ranks, r, unit);
                assert_true(share.first == at && share.n >= 0 && share.n <= room);
                assert_true(share.n == 0 || share.first % unit == 0);
                at += share.n;
            }
            assert_int_equal(at, elems);
            assert_true(room - nets_share_each(elems, ranks, unit) < unit * ranks + ranks);
        }
}

/* A graph in which ranks divide gradients holds them no longer than from their step to the next. */
TEST_CASE(a_divided_gradient_lives_for_two_steps) {
    run r;
    begin(&r, "vgg11@32x32,classes=10,thin=16", &SGD, NETS_DIVIDE_GRADIENTS);
    const nets_lowered *lowered = nets_exec_lowered(r.exec);
    int64_t elems = 0;
    for (int p = 0; p < nets_net_params(r.net); p++) {
        if (!nets_net_param(r.net, p)->learned) continue;
        const mm_tensor_info *gradient = mm_graph_tensor(lowered->graph, lowered->params[p].gradient);
        assert_int_equal(gradient->ownership, MM_MANAGED);
        assert_int_equal(gradient->last_use, gradient->first_use + 1);
        elems += nets_share_room(nets_net_param(r.net, p)->elems, 2, NETS_SHARE_UNIT);
    }
    assert_int_equal(mm_graph_tensor(lowered->graph, lowered->shares)->bytes, elems * (int64_t)sizeof(float));
    assert_int_equal(lowered->steps[lowered->n_steps - 1].exchanges, NETS_GATHERS);
    end(&r);
}
