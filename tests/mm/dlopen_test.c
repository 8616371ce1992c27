/* SPDX-License-Identifier: MIT */
/* Opens libmm.so at run time and uses it, as a program does that is not linked with the library. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/mm.h"

static const char library_path[] = "mm/libmm.so";

#define FUNCTIONS(f)                                                                                                   \
    f(graph_create) f(graph_add_tensor) f(graph_add_layer) f(graph_add_step) f(graph_freeze) f(manager_create_sized)   \
        f(last_error) f(iteration_begin) f(layer_begin) f(tensor_data) f(layer_end) f(iteration_end)                   \
            f(persistent_data) f(stats_get) f(manager_destroy) f(graph_destroy)

/* Functions of mm.h, looked up in the library. */
static struct api {
#define POINTER(name) __typeof__(mm_##name) *name;
    FUNCTIONS(POINTER)
#undef POINTER
} mm;

static void *open_library(void) {
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
#define FIND(name)                                                                                                     \
    *(void **)&mm.name = dlsym(library, "mm_" #name);                                                                  \
    if (!mm.name) fail_msg("%s", dlerror());
    FUNCTIONS(FIND)
#undef FIND
    return library;
}

static void a_layer_runs_in_a_library_opened_at_run_time(void **state) {
    (void)state;
    void *library = open_library();
    mm_graph *graph;
    mm_manager *m;
    mm_layer layer;
    mm_tensor x, y;
    mm_stats stats;
    mm_tensor_desc xd = {.name = "x", .kind = MM_FEATURE_MAP, .rank = 2, .dims = {16, 64}};
    mm_tensor_desc yd = {.name = "y", .kind = MM_STATE, .ownership = MM_PERSISTENT, .rank = 1, .dims = {1}};
    assert_int_equal(mm.graph_create("dlopen", &graph), MM_OK);
    assert_int_equal(mm.graph_add_tensor(graph, &xd, &x), MM_OK);
    assert_int_equal(mm.graph_add_tensor(graph, &yd, &y), MM_OK);
    assert_int_equal(mm.graph_add_layer(graph, "conv", MM_LAYER_CONV, &layer), MM_OK);
    mm_use forward[] = {{x, MM_WRITE, MM_FORM_VALUE}}, backward[] = {{x, MM_READ, MM_FORM_VALUE}, {y, MM_MODIFY, 0}};
    assert_int_equal(mm.graph_add_step(graph, layer, MM_FORWARD, forward, 1, 0), MM_OK);
    assert_int_equal(mm.graph_add_step(graph, layer, MM_BACKWARD, backward, 2, 0), MM_OK);
    assert_int_equal(mm.graph_freeze(graph), MM_OK);
    /* Naive buffers and workspaces are allocated at run time, so the library's jemalloc runs too. */
    mm_options options = {.device_bytes = 1 << 20,
                          .policy = "freelunch:codec=raw,buffers=naive,workspace=naive,when=always"};
    if (mm.manager_create_sized(&options, sizeof options, &m) != MM_OK) fail_msg("%s", mm.last_error());
    for (int i = 0; i < 2; i++) {
        if (mm.iteration_begin(m, graph) != MM_OK) fail_msg("%s", mm.last_error());
        assert_int_equal(mm.layer_begin(m, layer, MM_FORWARD, NULL), MM_OK);
        float *data = mm.tensor_data(m, x);
        for (int e = 0; e < 16 * 64; e++) data[e] = (float)e;
        assert_int_equal(mm.layer_end(m, layer, MM_FORWARD), MM_OK);
        assert_int_equal(mm.layer_begin(m, layer, MM_BACKWARD, NULL), MM_OK);
        *(float *)mm.tensor_data(m, y) += ((float *)mm.tensor_data(m, x))[1023];
        assert_int_equal(mm.layer_end(m, layer, MM_BACKWARD), MM_OK);
        if (mm.iteration_end(m) != MM_OK) fail_msg("%s", mm.last_error());
    }
    assert_true(*(float *)mm.persistent_data(m, "y", NULL) == 2046);
    mm.stats_get(m, &stats);
    assert_int_equal(stats.encodes, 2);
    assert_int_equal(stats.decodes, 2);
    assert_true(stats.unplanned_allocs > 0);
    mm.manager_destroy(m);
    mm.graph_destroy(graph);
    assert_int_equal(dlclose(library), 0);
}

/* The emulation of CUDA keeps kernels' shared memory thread-local: hundreds of KiB. A library that is opened at run
 * time gets that much only if it was set aside when the program started, so the program restarts itself. */
static void set_aside_thread_local_memory(char **argv) {
    static const char setting[] = "glibc.rtld.optional_static_tls=1048576";
    const char *now = getenv("GLIBC_TUNABLES");
    if (now && strcmp(now, setting) == 0) return;
    if (setenv("GLIBC_TUNABLES", setting, 1) == 0) execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    (void)argc;
    set_aside_thread_local_memory(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_runs_in_a_library_opened_at_run_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
