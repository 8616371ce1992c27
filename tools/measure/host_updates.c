/* SPDX-License-Identifier: MIT */
#include "tools/measure/host_updates.h"

#include <stdlib.h>

#include "mm/device/contract/clock.h"

/* An update reads the gradient, and reads and writes the weight and two states: what mm_simulate_node_ns counts. */
enum { ELEMS = 16 << 20, ARRAYS = 4, BYTES_AN_ELEM = 4 + 3 * 8, ROUNDS = 5 /* chosen */ };

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The first update takes the memory, and does not count. */
static mm_status time_updates(nets_backend *backend, const nets_update_args *args, int64_t *median_ns_out) {
    int64_t ns[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        const int64_t began = mm_now_ns();
        MM_TRY(backend->ops->update_now(backend, args));
        if (i >= 0) ns[i] = mm_now_ns() - began;
    }
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    *median_ns_out = ns[ROUNDS / 2];
    return MM_OK;
}

mm_status host_updates_measure(nets_backend *backend, double *bytes_per_s_out) {
    float *memory = malloc((size_t)ARRAYS * ELEMS * sizeof *memory);
    if (!memory) return mm_fail(MM_ERR_NOMEM, "no memory to time updates of weights");
    /* Of no value that an update could take longer for, as tiny ones. */
    for (int64_t i = 0; i < (int64_t)ARRAYS * ELEMS; i++) memory[i] = 1.0f + (float)(i & 1023) / 1024.0f;
    const nets_update_param param = {.weight = memory,
                                     .gradient = memory + ELEMS,
                                     .state = {memory + 2 * ELEMS, memory + 3 * (int64_t)ELEMS},
                                     .elems = ELEMS,
                                     .decayed = true};
    const float lr = 1e-4f;
    uint32_t step = 0;
    nets_update_args args = {.params = &param, .n_params = 1, .lr = &lr, .step = &step};
    mm_status status = nets_optimizer_parse("adamw", &args.optimizer);
    int64_t ns = 0;
    if (status == MM_OK) status = time_updates(backend, &args, &ns);
    free(memory);
    if (status == MM_OK) *bytes_per_s_out = (double)ELEMS * BYTES_AN_ELEM * 1e9 / (double)ns;
    return status;
}
