/* SPDX-License-Identifier: MIT */
/* The CUDA backend of this build, with the real libraries, describes every network of the zoo and knows its workspaces
 * without a GPU. A machine's own GPU is hidden: timing all algorithms of all networks takes long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nets/lower/lower.h"
#include "nets/zoo/zoo.h"

static void every_network_is_described_without_a_device(void **state) {
    (void)state;
    nets_backend *backend;
    assert_int_equal(nets_backend_open("cuda", NULL, &backend), MM_OK);
    const char *name, *summary;
    for (size_t i = 0; (name = nets_zoo_list(i, &summary)); i++) {
        if (strchr(name, '<')) continue; /* the name of a family, such as resnet<n> */
        nets_net *net;
        nets_lowered *lowered;
        int64_t largest = 0;
        assert_int_equal(nets_zoo_build(name, &net), MM_OK);
        if (nets_lower(net, backend, 8, &(nets_lowering){.mode = NETS_TRAIN, .optimizer = NETS_SGD}, &lowered) != MM_OK)
            fail_msg("%s", mm_last_error());
        for (int op = 0; op < lowered->n_ops; op++)
            for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
                int64_t bytes = nets_op_workspace_bytes(lowered->ops[op], phase);
                if (bytes > largest) largest = bytes;
            }
        assert_true(largest >= NETS_WORKSPACE_LIMIT_BYTES); /* its product may take the whole limit until timed */
        nets_lowered_destroy(lowered);
        nets_net_destroy(net);
    }
    nets_backend_close(backend);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_network_is_described_without_a_device),
    };
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
