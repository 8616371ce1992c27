/* SPDX-License-Identifier: MIT */
/* What a training step of bf16 tokens launches, and how many bytes our kernels move, counted on the emulation: a
 * difference of networks of two layers and of one is what a layer costs. A map is R x C elements: rows of tokens, and
 * the width. Products and attention are the libraries' or count apart. With these counts GPT-2 and others are reckoned
 * in nets/README.md ("GPUs on paper"). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/exec/exec.h"
#include "nets/zoo/zoo.h"
#include "tests/cuda_emulation/traffic.h"
#include "tests/nets/cuda_rig.h"

/* H: width of a SwiGLU's inner maps; Q: of queries, keys and values together. LOSS_THREADS: of a row's block, of which
 * each reads the label's number and its score. */
enum {
    R = 32,
    C = 64,
    GPT_CLASSES = 100,
    LLAMA_CLASSES = 104,
    H = 2 * C,
    Q = 2 * C,
    MAP = R * C * 2,
    LOSS_THREADS = 512
};

typedef struct counts {
    long products, launches;    /* of the libraries; of our kernels */
    long elementwise;           /* bytes of all kernels but those that follow */
    long attention, ends, rest; /* bytes of attention; of embedding and loss; of the update */
    long loss_reads;            /* bytes that the pass over scores reads, those from caches too */
} counts;

static bool is_any(const char *kernel, const char *const *names) {
    while (*names && !strstr(kernel, *names)) names++;
    return *names != NULL;
}

static void add_kernel(counts *c, const cuda_emulation_traffic *t) {
    static const char *const ATTENTION[] = {"attend", "dot_rows", "by_query", "by_key", NULL},
                             *const ENDS[] = {"sum_token", "loss", NULL}, *const UPDATE[] = {"move_", "count_", NULL};
    const long bytes = t->once + t->written;
    c->launches += t->launches;
    if (strstr(t->kernel, "token_loss_rows")) c->loss_reads = t->read;
    *(is_any(t->kernel, ATTENTION) ? &c->attention
      : is_any(t->kernel, ENDS)    ? &c->ends
      : is_any(t->kernel, UPDATE)  ? &c->rest
                                   : &c->elementwise) += bytes;
}

/* One iteration by AdamW. */
static counts train(const char *name, int classes) {
    const mm_options options = {.device = "cuda", .device_bytes = 64 << 20, .policy = "liveness"};
    const nets_backend_config config = {.precision = NETS_BF16};
    float tokens[R];
    int32_t labels[R];
    nets_optimizer optimizer;
    nets_net *net;
    mm_manager *manager;
    nets_backend *backend;
    nets_exec *exec;
    nets_result result;
    for (int i = 0; i < R; i++) {
        tokens[i] = (float)(i * 7 % classes);
        labels[i] = i * 5 % classes;
    }
    assert_int_equal(nets_optimizer_parse("adamw", &optimizer), MM_OK);
    assert_int_equal(nets_zoo_build(name, &net), MM_OK);
    assert_int_equal(mm_manager_create(&options, &manager), MM_OK);
    assert_int_equal(nets_backend_open("cuda", &config, &backend), MM_OK);
    if (nets_exec_create_with(net, 1, NETS_TRAIN, manager, backend, &optimizer, &(nets_exec_options){0}, &exec) !=
        MM_OK)
        fail_msg("%s", mm_last_error());
    assert_int_equal(nets_exec_init(exec, 1), MM_OK);
    cuda_emulation_traffic_reset();
    counts c = {.products = -cuda_emulation_blas_executed()};
    if (nets_exec_iteration(exec, tokens, labels, 1, 1e-3f, &result) != MM_OK) fail_msg("%s", mm_last_error());
    c.products += cuda_emulation_blas_executed();
    for (int k = 0; cuda_emulation_traffic_get(k).kernel; k++) {
        const cuda_emulation_traffic t = cuda_emulation_traffic_get(k);
        add_kernel(&c, &t);
    }
    nets_exec_destroy(exec);
    mm_manager_destroy(manager);
    nets_backend_close(backend);
    nets_net_destroy(net);
    return c;
}

/* What the second of two layers adds. `form` has the number of layers in place of %d. */
static counts count_layer(const char *form, int classes, counts *one_out) {
    char name[128];
    counts of[2];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(name, sizeof name, form, i + 1);
        of[i] = train(name, classes);
    }
    *one_out = of[0];
    assert_int_equal(of[1].ends, of[0].ends);
    return (counts){.products = of[1].products - of[0].products,
                    .launches = of[1].launches - of[0].launches,
                    .elementwise = of[1].elementwise - of[0].elementwise};
}

/* Two passes over the scores; and the gradients are written once. */
static void check_loss(const counts *c, int classes) {
    assert_int_equal(c->loss_reads - R * LOSS_THREADS * (4 + 4), 2 * R * classes * 4);
}

/* Forward: two norms (2 maps each), GELU (8), two sums (3). Backward: GELU (12), two norms (4, with the residual's
 * gradient). The sums' own gradients cost nothing, and products add biases and sum up their gradients. */
static void a_layer_of_a_gpt_moves_38_maps(void **state) {
    counts one;
    (void)state;
    const counts c = count_layer("gpt,layers=%d,width=64,heads=2,context=32,vocabulary=100", GPT_CLASSES, &one);
    const long rows = 2 * 8 * R + 2 * 8 * R;                          /* means and factors, written and read */
    const long weights = 2 * 8 * C + 2 * (4 * C + 8 * C + 2 * 8 * C); /* of norms, and their gradients' parts, joined */
    const long biases = 9 * C * (4 + 2);                              /* rounded for products */
    assert_int_equal(c.products, 4 + 8);
    assert_int_equal(c.launches, 2 + 1 + 2 + 4 /* biases */ + 1 + 2 * 2 + 4 /* attention */);
    assert_int_equal(c.elementwise, 38 * MAP + rows + weights + biases);
    check_loss(&one, GPT_CLASSES);
    const double gpt2 = 12.0 * 38 * 16 * 1024 * 768 * 2;
    assert_true(gpt2 < 22e9);
    print_message("GPT-2, batch 16, context 1024: 48 products forward, %.1f GB of maps beside them\n", gpt2 / 1e9);
}

/* Forward: two norms (2 maps each), two sums (3), concatenation and rotation (2 Q each), SwiGLU (3 H).
 * Backward: norms (4), the slices' and rotation's (2 Q each), SwiGLU's (5 H); and where several projections read one
 * map, the library adds to their earlier gradient. */
static void a_layer_of_a_llama_moves_18_maps_and_8_qkv_and_8_hidden_ones(void **state) {
    counts one;
    (void)state;
    const counts c = count_layer("llama-15m,layers=%d,width=64,heads=4,kv_heads=2,hidden=128,context=32,vocabulary=104",
                                 LLAMA_CLASSES, &one);
    const long rows = 2 * 4 * R + 2 * 4 * R, weights = 2 * 4 * C + 2 * (4 * C + 8 * C + 8 * C + 4 * C);
    assert_int_equal(c.products, 3 * 7);
    assert_int_equal(c.elementwise, 18 * MAP + (8 * Q + 8 * H) * R * 2 + rows + weights);
    check_loss(&one, LLAMA_CLASSES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_layer_of_a_gpt_moves_38_maps, cuda_rig_setup, cuda_rig_teardown),
        cmocka_unit_test_setup_teardown(a_layer_of_a_llama_moves_18_maps_and_8_qkv_and_8_hidden_ones, cuda_rig_setup,
                                        cuda_rig_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
