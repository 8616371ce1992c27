/* SPDX-License-Identifier: MIT */
/* The real cuDNN describes attention's graphs, and proposes engines, for a device that is only described to it. These
 * engines compile their kernels, so it proposes them only if it finds a driver; the toolkit's stub is enough. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/cuda/libraries/cudnn_attention.h"
#include "tests/nets/cudnn_device.h"

enum { ENGINES = 64 };

typedef struct fixture {
    cudnnBackendDescriptor_t properties;
    nets_cuda_backend *cuda;
    nets_cudnn_engine engines[ENGINES];
} fixture;

/* Loads the driver, or its stub, by the name that cuDNN looks for. */
static void *open_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    Dl_info cudnn;
    char path[4096];
    if (driver || !dladdr((void *)cudnnGetVersion, &cudnn)) return driver;
    const char *end = strrchr(cudnn.dli_fname, '/');
    if (!end) return NULL;
    snprintf(path, sizeof path, "%.*s/stubs/libcuda.so", (int)(end - cudnn.dli_fname), cudnn.dli_fname);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    nets_backend *backend;
    if (!f || nets_backend_open("cuda", NULL, &backend) != MM_OK) return -1;
    f->properties = cudnn_device_describe();
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

/* gpt2, and half its batch; gpt; sizes that are no powers of two; the largest heads. Each head has its own k and v, and
 * none is full: cuDNN does only such attention. */
static const nets_cuda_attention CASES[] = {
    {.samples = 16, .tokens = 1024, .heads = 12, .kv_heads = 12, .size = 64, .scale = 0.125f},
    {.samples = 8, .tokens = 1024, .heads = 12, .kv_heads = 12, .size = 64, .scale = 0.125f},
    {.samples = 16, .tokens = 128, .heads = 4, .kv_heads = 4, .size = 32, .scale = 0.1f},
    {.samples = 2, .tokens = 300, .heads = 3, .kv_heads = 3, .size = 72, .scale = 0.1f},
    {.samples = 1, .tokens = 1024, .heads = 16, .kv_heads = 16, .size = 128, .scale = 0.1f},
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

/* The number of engines that may be chosen. */
static int engines_to_take(fixture *f, const nets_cuda_attention *a, mm_phase phase, bool unordered) {
    nets_cudnn_graph graph;
    int n, good = 0;
    if (nets_cudnn_attention_graph(&graph, f->cuda, a, phase, unordered) != MM_OK) fail_msg("%s", mm_last_error());
    if (nets_cudnn_engines(&graph, CUDNN_HEUR_MODE_A, ENGINES, f->engines, &n) != MM_OK) n = 0;
    for (int i = 0; i < n; i++) {
        const nets_cudnn_engine *e = &f->engines[i];
        good += !e->unreadable && (unordered || !e->nondeterministic) && !e->coarse_sums && !e->converts;
    }
    nets_cudnn_graph_fini(&graph);
    return good;
}

static void each_graph_has_engines(void **state) {
    fixture *f = *state;
    cudnn_device_need(f->properties);
    if (!open_driver()) skip();
    for (int i = 0; i < N_CASES; i++)
        for (int graph = 0; graph < GRAPHS; graph++)
            if (!engines_to_take(f, &CASES[i], OF[graph].phase, OF[graph].unordered))
                fail_msg("case %d, graph %d: %s", i, graph, mm_last_error());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_graphs_can_be_described),
        cmocka_unit_test(each_graph_has_engines),
    };
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
