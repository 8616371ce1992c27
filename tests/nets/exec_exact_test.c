/* SPDX-License-Identifier: MIT */
/* Whether a step learns that its maps have exact bits (mm_tensor_exact), under lossless and lossy policies; and a net
 * whose layers read one map twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/exec/exec.h"
#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 6, ITERATIONS = 3 };

static void expect_ok(mm_status status) {
    if (status != MM_OK) fail_msg("%s", mm_last_error());
}

static mm_manager *make_manager(const char *policy, bool self_check) {
    mm_manager *manager;
    const mm_options options = {.device = "host",
                                .device_bytes = 64 << 20,
                                .pinned_bytes = 64 << 20,
                                .policy = policy,
                                .self_check = self_check};
    expect_ok(mm_manager_create(&options, &manager));
    return manager;
}

/* ---------------------------------------------------------------- exact or not */

/* Counts the feature maps that backward steps read: those that were exact, and those that were not. Nothing is
 * computed. */
typedef struct counts {
    int exact, not_exact;
} counts;

static mm_status nothing_to_compute(void *ctx, mm_manager *manager, mm_layer layer, mm_stream *stream) {
    (void)ctx, (void)manager, (void)layer, (void)stream;
    return MM_OK;
}

static counts count(const char *net_name, const char *policy) {
    nets_net *net;
    nets_backend *backend;
    nets_lowered *lowered;
    counts c = {0, 0};
    mm_manager *manager = make_manager(policy, false); /* which would find that the steps do not write */
    expect_ok(nets_zoo_build(net_name, &net));
    expect_ok(nets_backend_open("host", NULL, &backend));
    expect_ok(nets_lower(net, backend, BATCH, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &lowered));
    expect_ok(mm_recompute_set(manager, lowered->graph, nothing_to_compute, NULL));
    expect_ok(mm_iteration_begin(manager, lowered->graph));
    for (int i = 0; i < lowered->n_steps; i++) {
        const nets_step *step = &lowered->steps[i];
        expect_ok(mm_layer_begin(manager, step->graph_layer, step->phase, NULL));
        for (int role = NETS_X; role <= NETS_Y && step->phase == MM_BACKWARD; role++) {
            if (step->tensors[role] < 0 || mm_tensor_form(manager, step->tensors[role]) == MM_FORM_SIGN) continue;
            bool exact = mm_tensor_exact(manager, step->tensors[role]);
            c.exact += exact;
            c.not_exact += !exact;
        }
        if (step->phase == MM_BACKWARD && step->tensors[NETS_SAVED_MEAN] >= 0)
            assert_true(mm_tensor_exact(manager, step->tensors[NETS_SAVED_MEAN]));
        expect_ok(mm_layer_end(manager, step->graph_layer, step->phase));
        assert_false(mm_tensor_exact(manager, lowered->images));
    }
    expect_ok(mm_iteration_end(manager));
    mm_manager_destroy(manager);
    nets_lowered_destroy(lowered);
    nets_backend_close(backend);
    nets_net_destroy(net);
    return c;
}

TEST_CASE(what_is_kept_or_swapped_or_recomputed_or_of_a_lossless_code_is_exact) {
    static const char *const policies[] = {"naive", "liveness", "vdnn-all:when=always", "recompute:when=always",
                                           "freelunch:codec=raw,when=always"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        counts c = count("resnet8", policies[i]);
        if (c.exact == 0 || c.not_exact != 0) fail_msg("%s: %d exact, %d not", policies[i], c.exact, c.not_exact);
    }
}

/* Batch norms read convolutions' outputs. All of these are lossy but those just behind the turning point from forward
 * to backward, which a policy may leave as they are. */
TEST_CASE(what_a_lossy_code_gave_back_is_not) {
    counts c = count("resnet8", "freelunch:codec=zfp:rate=8,when=always");
    assert_true(c.not_exact > 3);
    assert_true(c.exact > 0);
    c = count("resnet8", "freelunch:codec=zfp:rate=8,eligible=all,when=always");
    assert_true(c.not_exact > 6);
}

/* ---------------------------------------------------------------- a map read twice */

static void train_as_reference(const nets_net *net, const char *policy, const nets_optimizer *optimizer) {
    mm_manager *manager = make_manager(policy, true);
    nets_exec *exec;
    ref_exec ref;
    float *images;
    int32_t *labels;
    expect_ok(nets_exec_create(net, BATCH, NETS_TRAIN, manager, "host", optimizer, &exec));
    expect_ok(nets_exec_init(exec, 11));
    ref_init(&ref, net, BATCH, NETS_TRAIN, (ref_options){.optimizer = optimizer->id}, 11, NULL);
    ref.optimizer = *optimizer;
    ref_batch(net, BATCH, 4, &images, &labels);
    for (int i = 0; i < ITERATIONS; i++) {
        nets_result result;
        float expected = ref_iteration(&ref, images, labels, 0.05f);
        expect_ok(nets_exec_iteration(exec, images, labels, BATCH, 0.05f, &result));
        if (result.loss != expected) fail_msg("%s: %.9g, not %.9g", policy, (double)result.loss, (double)expected);
    }
    for (int p = 0; p < nets_net_params(net); p++) {
        const nets_param *param = nets_net_param(net, p);
        assert_memory_equal(nets_exec_param(exec, p, NETS_VALUE), ref_tensor(&ref, param->name),
                            (size_t)param->elems * 4);
        for (int k = 0; param->learned && k < NETS_OPTIMIZER_STATES; k++) {
            const char *state = nets_optimizer_traits_of(optimizer->id)->states[k];
            char name[256];
            if (!state) continue;
            snprintf(name, sizeof name, "%s.%s", state, param->name);
            assert_memory_equal(nets_exec_param(exec, p, NETS_STATE + k), ref_tensor(&ref, name),
                                (size_t)param->elems * 4);
        }
    }
    free(images);
    free(labels);
    ref_fini(&ref);
    nets_exec_destroy(exec);
    mm_manager_destroy(manager);
}

TEST_CASE(a_net_of_layers_that_read_one_map_twice_trains_as_the_reference) {
    static const char *const policies[] = {
        "naive",
        "liveness",
        "swap:when=always",
        "swap-async:when=always",
        "vdnn-all:when=always",
        "recompute:mode=speed,when=always",
        "recompute:mode=sqrt,when=always",
        "recompute:mode=nested,when=always",
        "freelunch:codec=raw,eligible=all,when=always",
        "rules:rules=relu=mask;*=swap,when=always",
    };
    nets_net *net = ref_repeated_net(0.3f);
    static const char *const optimizers[] = {"sgd", "adamw"};
    for (int o = 0; o < 2; o++) {
        nets_optimizer optimizer;
        expect_ok(nets_optimizer_parse(optimizers[o], &optimizer));
        for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
            train_as_reference(net, policies[i], &optimizer);
    }
    nets_net_destroy(net);
}
