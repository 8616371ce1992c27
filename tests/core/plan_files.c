/* SPDX-License-Identifier: MIT */
#include "tests/core/plan_files.h"

#include <stdlib.h>

#include "tests/core/expect.h"
#include "tests/core/random.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"

/* Places persistent tensors with room between them, some of them in pinned memory or on the disk. */
static void place_persistents(plan_world *w, uint64_t random) {
    w->places = calloc((size_t)mm_graph_persistents(w->graph) + 1, sizeof *w->places);
    assert_non_null(w->places);
    for (int t = 0; t < mm_graph_tensors(w->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(w->graph, t);
        if (tensor->persistent < 0) continue;
        mm_place *place = &w->places[tensor->persistent];
        const bool leaves = tensor->first_use > 0 && tensor->shared == MM_ALLREDUCE_NOT && random_chance(&random, 50);
        place->memory = !leaves ? MM_MEM_DEVICE : random_chance(&random, 40) ? MM_MEM_DISK : MM_MEM_PINNED;
        int64_t *end = place->memory == MM_MEM_DEVICE   ? &w->limits.base_bytes
                       : place->memory == MM_MEM_PINNED ? &w->limits.pinned_base_bytes
                                                        : &w->limits.disk_base_bytes;
        place->offset = *end + mm_memory_align(place->memory) * random_below(&random, 2);
        *end = place->offset + mm_memory_round(place->memory, tensor->bytes);
    }
    w->limits.places = w->places;
}

/* Facts that only the simulator reads. */
static void add_rates(mm_graph_facts *facts, uint64_t seed) {
    facts->piece_bytes = seed % 2 ? 1 : facts->piece_bytes;
    facts->memory_bytes_per_s = 1000000007;
    facts->threads = (int)(seed % 3);
    facts->issue_ns = 11;
    facts->ranks = 2;
    facts->sum_at = (mm_sum_at)(seed % MM_SUM_PLACES);
    facts->cache_bytes = 4096;
    facts->far_ps_per_byte = (int64_t)(seed % 5);
    facts->contention.known = seed % 4 < 2;
    for (int i = 0; i < MM_WORK_KINDS * MM_WORK_KINDS && facts->contention.known; i++)
        facts->contention.permille[i / MM_WORK_KINDS][i % MM_WORK_KINDS] = 10 * i;
}

plan_world plan_world_create(uint64_t seed) { return plan_world_create_of(seed, 3 + (int)(seed % 9)); }

plan_world plan_world_create_of(uint64_t seed, int layers) {
    plan_world w = {0};
    expect_ok(random_graph_create(
        &(random_graph_options){.seed = seed, .layers = layers, .max_channels = 4, .images = 12, .repeats = true},
        &w.graph));
    expect_ok(random_facts_create(w.graph, seed, &w.facts));
    add_rates(w.facts, seed);
    if (seed % 2)
        place_persistents(&w, seed);
    else
        w.limits.base_bytes = mm_plan_base(w.graph) + MM_ALIGN * (int64_t)(seed % 5);
    expect_ok(random_plan_create(w.graph, w.facts, &w.limits,
                                 &(random_plan_options){.seed = seed,
                                                        .lossy = seed % 2 == 0,
                                                        .dynamic = seed % 3 == 0,
                                                        .measures = seed % 7 < 4,
                                                        .disk = seed % 3 == 1,
                                                        .pools = seed % 4 < 2},
                                 &w.plan));
    expect_ok(mm_plan_name(w.plan, "random"));
    w.limits.device_bytes = w.plan->peak_bytes;
    w.limits.pinned_bytes = w.plan->pinned_bytes;
    w.limits.disk_bytes = w.plan->disk_bytes;
    expect_ok(mm_program_init(w.plan, w.facts, &w.program));
    return w;
}

void plan_world_destroy(plan_world *w) {
    mm_program_fini(&w->program);
    mm_plan_destroy(w->plan);
    mm_graph_facts_destroy(w->facts);
    mm_graph_destroy(w->graph);
    free(w->places);
}

mm_plan_view plan_world_view(const plan_world *w) { return (mm_plan_view){&w->program, w->facts, &w->limits}; }

mm_plan_view plan_files_view(const mm_plan_file *file) {
    return (mm_plan_view){file->program, file->facts, &file->limits};
}
