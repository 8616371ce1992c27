/* Memory that runs out in an iteration of one of several processes: before it has given anything to be added up, the
 * iteration runs again under a plan that needs less, with the same bits; afterwards it fails, because others have what it
 * gave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/graph.h"
#include "nets/exec.h"
#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"
#include "tests/nets/ref_exec.h"
#include "tests/suite/device_fault.h"

enum { BATCH = 4, SEED = 5, ITERATIONS = 2 };
static const nets_optimizer SGD = {.momentum = 0.9f, .weight_decay = 1e-4f, .only_finite = true};

/* The other rank has the same gradients. ctx: how many sums have begun. */
static void sent(void *ctx, const mm_shared *shared) {
    const mm_tensor_info *tensor = mm_graph_tensor(shared->graph, shared->tensor);
    float *elems = shared->data;
    for (int64_t i = 0; tensor->kind == MM_WEIGHT_GRADIENT && i < shared->bytes / (int64_t)sizeof *elems; i++)
        elems[i] *= 2;
    atomic_fetch_add((atomic_llong *)ctx, 1);
}

static mm_status await(void *ctx, const mm_shared *shared) {
    (void)ctx, (void)shared;
    return MM_OK;
}

static int64_t begun(void *ctx) { return atomic_load((atomic_llong *)ctx); }

static const mm_gradient_fns fns = {.sent = sent, .await = await};

typedef struct run {
    nets_net *net;
    mm_manager *manager;
    nets_backend *backend;
    nets_exec *exec;
    float *images;
    int32_t *labels;
    atomic_llong begun;
} run;

static void begin(run *r) {
    const mm_options options = {
        .device_bytes = 16 << 20, .pinned_bytes = 16 << 20, .policy = "liveness", .issue = MM_ISSUE_INLINE};
    *r = (run){0};
    expect_ok(nets_zoo_build("tiny", &r->net));
    expect_ok(mm_manager_create(&options, &r->manager));
    expect_ok(nets_backend_open("host", NULL, &r->backend));
    r->backend->ranks = (nets_ranks){.n = 2, .when = MM_SHARE_AT_ONCE, .fns = &fns, .ctx = &r->begun, .begun = begun};
    expect_ok(nets_exec_create_on(r->net, BATCH, NETS_TRAIN, r->manager, r->backend, &SGD, &r->exec));
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

static void memory_that_runs_out_is_made_up_for_only_before_a_sum_has_begun(void **state) {
    (void)state;
    run r;
    size_t bytes;
    int again = 0, failed = 0;
    begin(&r);
    for (int i = 0; i < ITERATIONS; i++) expect_ok(iterate(&r));
    float *expected = weights_of(&r, &bytes);
    end(&r);
    for (int nth = 1;; nth++) {
        begin(&r);
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
            assert_int_equal(sums, before); /* once each */
            assert_memory_equal(weights, expected, bytes);
            free(weights);
        } else {
            assert_int_equal(status, MM_ERR_NOMEM);
            /* What runs before the plan, such as copies of what an iteration may have to restore, no plan makes smaller. */
            if (sums == 0 && stats.ladder_steps > 0) fail_msg("call %d: did not run again", nth);
        }
        again += status == MM_OK && stats.ladder_steps > 0;
        failed += sums > 0 && status != MM_OK;
        end(&r);
        if (!happened) break;
    }
    print_message("%d times it ran again, %d times it failed\n", again, failed);
    assert_true(again > 3 && failed > 10);
    free(expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_runs_out_is_made_up_for_only_before_a_sum_has_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
