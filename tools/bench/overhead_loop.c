/* SPDX-License-Identifier: MIT */
#include "tools/bench/overhead_loop.h"

#include <stdlib.h>

#include "mm/core/graph/graph.h"
#include "mm/device/contract/clock.h"
#include "mm/mm_loop.h"
#include "tools/bench/samples.h"

enum { BLOCKS = 32, SLOTS = 6, BYTES = 1024, ARENA = 1 << 22 };

struct overhead_loop {
    mm_manager *manager;
    mm_loop *loop;
    float *at[SLOTS];
    int64_t host_ns;
    samples layers, addresses, loops;
};

static void spin(int64_t ns) {
    for (int64_t until = mm_now_ns() + ns; mm_now_ns() < until;) {}
}

/* A block's step: forward it makes a map and four that are saved, backward it reads these. Nothing is added up, whose
 * zeros would count. */
static void describe(overhead_loop *o, int l, mm_phase phase, mm_loop_step *step, mm_slot slots[SLOTS]) {
    static const char *const names[] = {"saved0", "saved1", "saved2", "saved3"};
    *step = (mm_loop_step){.name = "block", .row = l, .phase = phase, .kind = MM_LAYER_LINEAR};
    slots[0] = phase == MM_FORWARD ? mm_slot_read("x", l, &o->at[0]) : mm_slot_read("dx", l + 1, &o->at[0]);
    slots[1] =
        phase == MM_FORWARD ? mm_slot_write("x", l + 1, &o->at[1], BYTES) : mm_slot_write("dx", l, &o->at[1], BYTES);
    for (int i = 2; i < SLOTS; i++)
        slots[i] = phase == MM_FORWARD ? mm_slot_write(names[i - 2], l, &o->at[i], BYTES)
                                       : mm_slot_read(names[i - 2], l, &o->at[i]);
}

static mm_status step(overhead_loop *o, int l, mm_phase phase, bool keep) {
    mm_loop_step what;
    mm_slot slots[SLOTS];
    spin(o->host_ns);
    describe(o, l, phase, &what, slots);
    const int64_t start = mm_now_ns();
    if (mm_loop_enter(o->loop, &what, slots, SLOTS)) mm_loop_leave(o->loop);
    const int64_t ns = mm_now_ns() - start;
    return keep ? samples_add(&o->loops, (double)ns) : MM_OK;
}

static mm_status by_loop(overhead_loop *o, bool keep) {
    bool again;
    do {
        mm_slot first = mm_slot_write("x", 0, &o->at[0], BYTES), last = mm_slot_write("dx", BLOCKS, &o->at[0], BYTES);
        MM_TRY(mm_loop_begin(o->loop, 0));
        if (mm_loop_enter(o->loop, &(mm_loop_step){.name = "input"}, &first, 1)) mm_loop_leave(o->loop);
        for (int l = 0; l < BLOCKS; l++) MM_TRY(step(o, l, MM_FORWARD, keep));
        if (mm_loop_enter(o->loop, &(mm_loop_step){.name = "loss"}, &last, 1)) mm_loop_leave(o->loop);
        for (int l = BLOCKS - 1; l >= 0; l--) MM_TRY(step(o, l, MM_BACKWARD, keep));
        MM_TRY(mm_loop_end(o->loop, &again));
    } while (again);
    return MM_OK;
}

static mm_status by_layers(overhead_loop *o, bool keep) {
    const mm_graph *graph = mm_loop_graph(o->loop, 0);
    MM_TRY(mm_iteration_begin(o->manager, graph));
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        const mm_step_info *info = mm_graph_step(graph, s);
        spin(o->host_ns);
        const int64_t t0 = mm_now_ns();
        MM_TRY(mm_layer_begin(o->manager, info->layer, info->phase, NULL));
        const int64_t t1 = mm_now_ns();
        for (int i = 0; info->n_uses == SLOTS && i < SLOTS; i++)
            o->at[i] = mm_tensor_data(o->manager, info->uses[i].tensor);
        const int64_t t2 = mm_now_ns();
        MM_TRY(mm_layer_end(o->manager, info->layer, info->phase));
        const int64_t t3 = mm_now_ns();
        if (!keep || info->n_uses != SLOTS) continue;
        MM_TRY(samples_add(&o->layers, (double)(t1 - t0 + t3 - t2)));
        MM_TRY(samples_add(&o->addresses, (double)(t2 - t1)));
    }
    return mm_iteration_end(o->manager);
}

mm_status overhead_loop_measure(overhead_loop *o, int64_t host_ns, bool keep) {
    o->host_ns = host_ns;
    /* Both read the plan: first once each, so that neither warms the caches for the other. */
    MM_TRY(by_loop(o, false));
    MM_TRY(by_layers(o, false));
    MM_TRY(by_loop(o, keep));
    return by_layers(o, keep);
}

void overhead_loop_report(overhead_loop *o) {
    const double layers = samples_summarize(&o->layers).median, loops = samples_summarize(&o->loops).median;
    printf("\n");
    samples_print_head(stdout, "a loop that was learned: steps of six slots, on the host");
    samples_print(stdout, &o->layers, "layer_begin + layer_end", 1, "ns", 0, NULL);
    samples_print(stdout, &o->addresses, "six times tensor_data", 1, "ns", 0, NULL);
    samples_print(stdout, &o->loops, "loop_enter + loop_leave", 1, "ns", loops / layers, "begin + end");
}

mm_status overhead_loop_create(overhead_loop **overhead_out) {
    overhead_loop *o = calloc(1, sizeof *o);
    if (!o) return mm_fail(MM_ERR_NOMEM, "out of memory for a loop");
    mm_status status = mm_manager_create(&(mm_options){.device_bytes = ARENA}, &o->manager);
    if (status == MM_OK) status = mm_loop_create(o->manager, NULL, &o->loop);
    if (status == MM_OK)
        *overhead_out = o;
    else
        overhead_loop_destroy(o);
    return status;
}

void overhead_loop_destroy(overhead_loop *o) {
    if (!o) return;
    mm_loop_destroy(o->loop);
    mm_manager_destroy(o->manager);
    samples_fini(&o->layers);
    samples_fini(&o->addresses);
    samples_fini(&o->loops);
    free(o);
}
