/* SPDX-License-Identifier: MIT */
/* The real cuDNN describes attention's graphs, proposes engines, and compiles their kernels, for devices that are only
 * described to it. It proposes such engines only where it finds a driver, and loads what it compiled: the stand-in
 * driver (stand_in_driver.c) lets it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/cuda/libraries/cudnn_attention.h"
#include "tests/core/deep.h"
#include "tests/nets/cudnn_device.h"

enum { ENGINES = 64 };

typedef struct fixture {
    cudnnBackendDescriptor_t properties;
    nets_cuda_backend *cuda;
    cudnn_driver driver;
    nets_cudnn_engine engines[ENGINES];
} fixture;

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    nets_backend *backend;
    if (f) f->driver = cudnn_driver_open();
    if (!f || nets_backend_open("cuda", NULL, &backend) != MM_OK) return -1;
    f->properties = cudnn_device_describe(&CUDNN_CARDS[H200]);
    f->cuda = (nets_cuda_backend *)backend;
    f->cuda->properties = f->properties;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    if (!f) return 0;
    nets_backend_close(&f->cuda->base);
    if (f->properties) cudnnBackendDestroyDescriptor(f->properties);
    free(f);
    return 0;
}

/* gpt2, and half its batch; gpt; sizes that are no powers of two; the largest heads; llama-1b and llama-8b, where four
 * heads share k and v. None is full: cuDNN does only such attention here. */
static const nets_cuda_attention CASES[] = {
    {.samples = 16, .tokens = 1024, .heads = 12, .kv_heads = 12, .size = 64, .scale = 0.125f},
    {.samples = 8, .tokens = 1024, .heads = 12, .kv_heads = 12, .size = 64, .scale = 0.125f},
    {.samples = 16, .tokens = 128, .heads = 4, .kv_heads = 4, .size = 32, .scale = 0.1f},
    {.samples = 2, .tokens = 300, .heads = 3, .kv_heads = 3, .size = 72, .scale = 0.1f},
    {.samples = 1, .tokens = 1024, .heads = 16, .kv_heads = 16, .size = 128, .scale = 0.1f},
    {.samples = 2, .tokens = 1024, .heads = 32, .kv_heads = 8, .size = 64, .scale = 0.125f},
    {.samples = 2, .tokens = 1024, .heads = 32, .kv_heads = 8, .size = 128, .scale = 0.1f},
};
static const struct {
    mm_phase phase;
    bool unordered;
} OF[] = {{MM_FORWARD, false}, {MM_BACKWARD, false}, {MM_BACKWARD, true}};
enum { N_CASES = sizeof CASES / sizeof CASES[0], GRAPHS = sizeof OF / sizeof OF[0] };

static void all_graphs_can_be_described(void **state) {
    fixture *f = *state;
    cudnn_device_need(f->properties);
    for (int i = 0; i < N_CASES; i++)
        for (int graph = 0; graph < GRAPHS; graph++) {
            nets_cudnn_graph made;
            if (nets_cudnn_attention_graph(&made, f->cuda, &CASES[i], OF[graph].phase, OF[graph].unordered) != MM_OK)
                fail_msg("%s", mm_last_error());
            nets_cudnn_graph_fini(&made);
        }
}

static bool may_take(const nets_cudnn_engine *e, bool unordered) {
    return !e->unreadable && (unordered || !e->nondeterministic) && !e->coarse_sums && !e->converts;
}

/* The number of engines that may be chosen. */
static int engines_to_take(fixture *f, const nets_cuda_attention *a, mm_phase phase, bool unordered) {
    nets_cudnn_graph graph;
    int n, good = 0;
    if (nets_cudnn_attention_graph(&graph, f->cuda, a, phase, unordered) != MM_OK) fail_msg("%s", mm_last_error());
    if (nets_cudnn_engines(&graph, CUDNN_HEUR_MODE_A, ENGINES, f->engines, &n) != MM_OK) n = 0;
    for (int i = 0; i < n; i++) good += may_take(&f->engines[i], unordered);
    nets_cudnn_graph_fini(&graph);
    return good;
}

static void each_graph_has_engines(void **state) {
    fixture *f = *state;
    cudnn_device_need(f->properties);
    cudnn_driver_need(&f->driver);
    for (int i = 0; i < N_CASES; i++)
        for (int graph = 0; graph < GRAPHS; graph++)
            if (!engines_to_take(f, &CASES[i], OF[graph].phase, OF[graph].unordered))
                fail_msg("case %d, graph %d: %s", i, graph, mm_last_error());
}

/* ---------------------------------------------------------------- kernels */

/* For gpt2 on each card: what the name of the kernel of the first engine of each graph contains. All engines of 9.0 are
 * Hopper's, which multiply by wgmma; where 10.0 and 12.0 have none of their own, those of 8.0 run. */
static const struct {
    int card;
    const char *kernels[GRAPHS];
} KERNELS[] = {
    {H200, {"sm90_flash_fprop_wgmma", "sm90_flash_bprop_wgmma", "sm90_flash_bprop_wgmma"}},
    {H100, {"sm90_flash_fprop_wgmma", "sm90_flash_bprop_wgmma", "sm90_flash_bprop_wgmma"}},
    {A100, {"sm80_flash_fprop_wmma", "sm80_flash_bprop_wmma", "sm80_flash_bprop_wmma"}},
    {RTX3090, {"sm80_flash_fprop_wmma", "sm80_flash_bprop_wmma", "sm80_flash_bprop_wmma"}},
    {L40S, {"sm80_flash_fprop_wmma", "sm80_flash_bprop_wmma", "sm80_flash_bprop_wmma"}},
    {RTX4090, {"sm80_flash_fprop_wmma", "sm80_flash_bprop_wmma", "sm80_flash_bprop_wmma"}},
    {B200, {"sm100_flash_fprop", "sm80_flash_bprop_wmma", "sm100_flash_bprop"}},
    {RTX5090, {"sm80_flash_fprop_wmma", "sm80_flash_bprop_wmma", "sm80_flash_bprop_wmma"}},
};
enum { USUAL_CARDS = 2 /* of KERNELS; each kernel takes half a second to compile, so others are for --deep */ };

/* Compiles the kernel of the graph's first engine that may be chosen, checks its name, and returns the workspace of the
 * plan. */
static int64_t compile(fixture *f, const nets_cuda_attention *a, int graph, const char *kernel) {
    const char *names[STAND_IN_KERNELS];
    nets_cudnn_graph made;
    nets_cudnn_plan plan;
    int n, of = 0;
    if (nets_cudnn_attention_graph(&made, f->cuda, a, OF[graph].phase, OF[graph].unordered) != MM_OK ||
        nets_cudnn_engines(&made, CUDNN_HEUR_MODE_A, ENGINES, f->engines, &n) != MM_OK)
        fail_msg("%s", mm_last_error());
    while (of < n && !may_take(&f->engines[of], OF[graph].unordered)) of++;
    assert_in_range(of, 0, n - 1);
    f->driver.forget();
    if (nets_cudnn_plan_init(&plan, &made, &f->engines[of].choice) != MM_OK)
        fail_msg("graph %d of %lld x %lld x %d x %d: %s", graph, (long long)a->samples, (long long)a->tokens, a->heads,
                 a->size, mm_last_error());
    const int n_names = f->driver.kernels(names);
    if (n_names != 1 || !strstr(names[0], kernel))
        fail_msg("graph %d: %d kernels, the first %s, none %s", graph, n_names, n_names ? names[0] : "-", kernel);
    const int64_t bytes = plan.workspace_bytes;
    nets_cudnn_plan_fini(&plan);
    nets_cudnn_graph_fini(&made);
    return bytes;
}

/* A deterministic backward keeps a bf16 gradient for each pair of tokens; tokens are rounded to multiples of 128. */
static int64_t pairs_bytes(const nets_cuda_attention *a) { return 2 * a->samples * a->heads * a->tokens * a->tokens; }

/* Where heads share k and v, every backward keeps a bf16 gradient of both for each head, to sum them. */
static int64_t shared_bytes(const nets_cuda_attention *a) {
    return a->kv_heads < a->heads ? 2 * 2 * a->samples * a->tokens * a->heads * a->size : 0;
}

static void on_hopper_every_attention_has_wgmma_kernels_and_workspace_within_the_limit(void **state) {
    enum { BESIDE = 1024, ROUNDED = 1 << 20 /* of CASES whose tokens are no multiple of 128 */ };
    fixture *f = *state;
    cudnn_device_need(f->properties);
    cudnn_driver_need(&f->driver);
    for (int i = 0; i < N_CASES; i++) {
        nets_cuda_attention a = CASES[i];
        const int64_t shared = shared_bytes(&a), pairs = shared + pairs_bytes(&a);
        assert_in_range(compile(f, &a, 0, KERNELS[0].kernels[0]), 0, BESIDE);
        assert_in_range(compile(f, &a, 2, KERNELS[0].kernels[2]), shared, shared + BESIDE);
        const int64_t bytes = compile(f, &a, 1, KERNELS[0].kernels[1]);
        assert_in_range(bytes, pairs, pairs + (a.tokens % 128 ? ROUNDED : BESIDE));
        /* gpt2's batch of 16 does in two parts, as the choice divides it. */
        const int64_t parts = i == 0 ? 2 : 1;
        a.samples /= parts;
        const int64_t of_part = parts > 1 ? compile(f, &a, 1, KERNELS[0].kernels[1]) : bytes;
        assert_in_range(nets_cudnn_attention_bytes(&CASES[i], MM_BACKWARD, parts, false, of_part), of_part,
                        NETS_WORKSPACE_LIMIT_BYTES);
        assert_true(parts == 1 || bytes > NETS_WORKSPACE_LIMIT_BYTES);
    }
}

static void every_card_has_the_kernels_of_its_kind(void **state) {
    fixture *f = *state;
    cudnn_device_need(f->properties);
    cudnn_driver_need(&f->driver);
    const int n = test_depth(USUAL_CARDS, (int)(sizeof KERNELS / sizeof KERNELS[0]));
    for (int k = 1; k < n; k++) {
        cudnnBackendDescriptor_t properties = cudnn_device_describe(&CUDNN_CARDS[KERNELS[k].card]);
        if (!properties) fail_msg("cuDNN cannot be told of %s", CUDNN_CARDS[KERNELS[k].card].name);
        f->cuda->properties = properties;
        for (int graph = 0; graph < GRAPHS; graph++)
            assert_in_range(compile(f, &CASES[0], graph, KERNELS[k].kernels[graph]), 0, pairs_bytes(&CASES[0]) + 1024);
        f->cuda->properties = f->properties;
        cudnnBackendDestroyDescriptor(properties);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_graphs_can_be_described),
        cmocka_unit_test(each_graph_has_engines),
        cmocka_unit_test(on_hopper_every_attention_has_wgmma_kernels_and_workspace_within_the_limit),
        cmocka_unit_test(every_card_has_the_kernels_of_its_kind),
    };
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
