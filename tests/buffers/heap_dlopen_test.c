/* SPDX-License-Identifier: MIT */

#include <dlfcn.h>
#include <pthread.h>

#include "tests/core/test_case.h"

static int (*heap_probe)(void);

static void *probe(void *unused) {
    (void)unused;
    return (void *)(intptr_t)heap_probe();
}

/* The main thread has used the library, and ends after it was closed. A destructor of the library runs then. */
TEST_CASE(a_library_with_a_heap_opens_works_in_threads_and_closes) {
    pthread_t thread;
    void *result = (void *)1;
    void *library = dlopen("tests/buffers/libheap_probe.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    *(void **)&heap_probe = dlsym(library, "heap_probe");
    assert_non_null(heap_probe);
    assert_int_equal(heap_probe(), 0);
    assert_int_equal(pthread_create(&thread, NULL, probe, NULL), 0);
    pthread_join(thread, &result);
    assert_null(result);
    assert_int_equal(dlclose(library), 0);
}
