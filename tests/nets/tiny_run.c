/* SPDX-License-Identifier: MIT */
#include "tests/nets/tiny_run.h"

#include <stdlib.h>

#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"
#include "tests/nets/ref_exec.h"

void tiny_run_init(tiny_run *run, const mm_options *options) {
    mm_manager *manager;
    expect_ok(mm_manager_create(options, &manager));
    tiny_run_init_under(run, manager);
}

void tiny_run_init_under(tiny_run *run, mm_manager *manager) {
    *run = (tiny_run){.manager = manager};
    expect_ok(nets_zoo_build("tiny", &run->net));
    expect_ok(nets_exec_create(run->net, TINY_BATCH, NETS_TRAIN, run->manager, "host", &TINY_SGD, &run->exec));
    expect_ok(nets_exec_init(run->exec, TINY_SEED));
    for (int b = 0; b < TINY_BATCHES; b++)
        ref_batch(run->net, TINY_BATCH, (uint32_t)b + 1, &run->images[b], &run->labels[b]);
}

void tiny_run_fini(tiny_run *run) {
    nets_exec_destroy(run->exec);
    mm_manager_destroy(run->manager);
    nets_net_destroy(run->net);
    for (int b = 0; b < TINY_BATCHES; b++) {
        free(run->images[b]);
        free(run->labels[b]);
    }
}
