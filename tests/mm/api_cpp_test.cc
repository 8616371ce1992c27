// SPDX-License-Identifier: MIT
// mm.h compiles as C++ with all warnings, and links: one layer runs from C++.
#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include <setjmp.h>

extern "C" {
#include <cmocka.h>
}

#include "mm/mm.h"

static void a_layer_runs_from_cpp(void **) {
    mm_graph *graph = nullptr;
    mm_layer layer;
    mm_tensor sum;
    mm_tensor_desc desc = {};
    desc.name = "sum";
    desc.kind = MM_STATE;
    desc.ownership = MM_PERSISTENT;
    desc.dtype = MM_F32;
    desc.rank = 1;
    desc.dims[0] = 4;
    assert_int_equal(mm_graph_create("cpp", &graph), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &desc, &sum), MM_OK);
    assert_int_equal(mm_graph_add_layer(graph, "layer", MM_LAYER_OTHER, &layer), MM_OK);
    const mm_use uses[] = {{sum, MM_MODIFY, MM_FORM_VALUE}};
    assert_int_equal(mm_graph_add_step(graph, layer, MM_FORWARD, uses, 1, 100), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);

    mm_options options = {};
    options.device_bytes = 65536;
    mm_manager *manager = nullptr;
    assert_int_equal(mm_manager_create_sized(&options, sizeof options, &manager), MM_OK);
    mm_manager_destroy(manager);
    assert_int_equal(mm_manager_create(&options, &manager), MM_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mm_iteration_begin(manager, graph), MM_OK);
        assert_int_equal(mm_layer_begin(manager, layer, MM_FORWARD, nullptr), MM_OK);
        assert_non_null(mm_workspace_data(manager));
        static_cast<float *>(mm_tensor_data(manager, sum))[3] += 2;
        assert_int_equal(mm_layer_end(manager, layer, MM_FORWARD), MM_OK);
        assert_int_equal(mm_iteration_end(manager), MM_OK);
    }
    std::size_t bytes = 0;
    auto *values = static_cast<float *>(mm_persistent_data(manager, "sum", &bytes));
    assert_int_equal(bytes, 16);
    assert_true(values[3] == 6);
    mm_stats stats;
    mm_stats_get(manager, &stats);
    assert_int_equal(stats.iterations, 3);
    mm_manager_destroy(manager);
    mm_graph_destroy(graph);
}

int main() {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_layer_runs_from_cpp)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
