/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_allreduce.h"
#include "mm/core/plan/program.h"
#include "mm/core/time/simulate.h"
#include "tests/core/random_graph.h"
#include "tests/core/random_plan.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

/* The small graph: steps of 1000 ns, a codec that takes 500 each way; `out` is encoded after relu, decoded for
 * loss backward. Nothing is placed: times do not depend on it. */
typedef struct fixture {
    small_graph g;
    mm_graph_facts *facts;
    mm_plan *plan;
    int steps[SMALL_STEPS], encode, decode; /* nodes */
} fixture;

static fixture fixture_create(bool with_codec, int contention_permille) {
    fixture f = {.g = small_graph_create()};
    mm_limits limits = {.base_bytes = 512};
    assert_int_equal(mm_graph_facts_create(f.g.graph, 1, &f.facts), MM_OK);
    assert_int_equal(mm_plan_create(f.g.graph, &limits, &f.plan), MM_OK);
    f.facts->contention_permille = contention_permille;
    for (int s = 0; s < SMALL_STEPS; s++) f.facts->variants[s].ns = 1000;
    f.facts->codes[f.g.out] = (mm_code_facts){.code_bytes = 1000, .encode_ns = 500, .decode_ns = 500};
    int raw = mm_plan_segment(f.plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, f.g.out, SMALL_MAP_BYTES);
    int code = mm_plan_segment(f.plan, MM_CONTENT_CODED, MM_CAT_CODE, f.g.out, 1000);
    f.plan->segments[code].codec = 0;
    for (int s = 0; s < SMALL_STEPS; s++) {
        if (with_codec && s == LOSS_B) {
            f.decode = mm_plan_op(f.plan, MM_NODE_DECODE, f.g.out, code, raw);
            mm_plan_wait(f.plan, f.decode, f.encode);
        }
        f.steps[s] = mm_plan_step(f.plan, s);
        if (with_codec && s == RELU_F) {
            f.encode = mm_plan_op(f.plan, MM_NODE_ENCODE, f.g.out, raw, code);
            mm_plan_wait(f.plan, f.encode, f.steps[s]);
        }
    }
    if (with_codec) mm_plan_wait(f.plan, f.steps[LOSS_B], f.decode);
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    return f;
}

static void fixture_destroy(fixture *f) {
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->g.graph);
}

TEST_CASE(steps_alone_take_the_sum_of_their_times) {
    fixture f = fixture_create(false, 500);
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.iteration_ns, 7000);
    assert_int_equal(sim.compute_ns, 7000);
    assert_int_equal(sim.stall_ns, 0);
    assert_int_equal(sim.hidden_permille, 1000);
    assert_int_equal(sim.n_nodes, 7);
    assert_int_equal(sim.nodes[3].start_ns, 3000);
    assert_int_equal(sim.nodes[3].end_ns, 4000);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

TEST_CASE(codec_beside_the_computation_is_hidden) {
    fixture f = fixture_create(true, 0);
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    /* relu ends at 2000; encode to 2500; decode, which waits for nothing else, to 3000: when loss forward ends. */
    assert_int_equal(sim.nodes[f.encode].start_ns, 2000);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2500);
    assert_int_equal(sim.nodes[f.decode].end_ns, 3000);
    assert_int_equal(sim.iteration_ns, 7000);
    assert_int_equal(sim.stall_ns, 0);
    assert_int_equal(sim.busy_ns[MM_STREAM_ENCODE], 500);
    assert_int_equal(sim.busy_ns[MM_STREAM_DECODE], 500);
    assert_int_equal(sim.hidden_permille, 1000);
    assert_int_equal(sim.codec_hidden_permille, 1000);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

TEST_CASE(compute_waits_for_a_slow_decode) {
    fixture f = fixture_create(true, 0);
    f.facts->codes[f.g.out].decode_ns = 1500;
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    /* Decode from 2500 to 4000; loss backward would have started at 3000. */
    assert_int_equal(sim.nodes[f.steps[LOSS_B]].start_ns, 4000);
    assert_int_equal(sim.stall_ns, 1000);
    assert_int_equal(sim.iteration_ns, 8000);
    assert_int_equal(sim.compute_ns, 7000);
    assert_int_equal(sim.hidden_permille, 500); /* 1000 of the codec's 2000 */
    assert_int_equal(sim.codec_hidden_permille, 500);
    assert_int_equal(sim.exposed_ns[MM_STREAM_DECODE], 1000);
    assert_int_equal(sim.exposed_ns[MM_STREAM_ENCODE] + sim.exposed_ns[MM_STREAM_COMPUTE], 0);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

TEST_CASE(contention_slows_a_step_only_while_a_side_stream_works) {
    fixture f = fixture_create(true, 500);
    f.facts->codes[f.g.out] = (mm_code_facts){.code_bytes = 1000, .encode_ns = 300, .decode_ns = 0};
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    /* During the encode's 300 ns loss forward gets 200 ns of its work done; the other 800 are undisturbed. */
    assert_int_equal(sim.nodes[f.steps[LOSS_F]].start_ns, 2000);
    assert_int_equal(sim.nodes[f.steps[LOSS_F]].end_ns, 3100);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2300);
    assert_int_equal(sim.iteration_ns, 7100);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

/* Gives the facts contention by pairs of work: `of` beside `beside` takes so much longer. Pairs not given have 0. */
static void know(mm_graph_facts *facts, mm_work of, mm_work beside, int permille) {
    facts->contention.known = true;
    facts->contention.permille[of][beside] = permille;
}

TEST_CASE(a_codec_takes_longer_beside_steps_by_their_kind) {
    fixture f = fixture_create(true, 9000); /* the 9000 do not count: pairs replace them */
    mm_simulation sim;
    f.facts->codes[f.g.out].encode_ns = 500;
    f.facts->codes[f.g.out].decode_ns = 0;
    know(f.facts, MM_WORK_ENCODE, MM_WORK_CHEAP, 600); /* beside loss forward the encode is 1.6 times as long */
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2800);
    assert_int_equal(sim.iteration_ns, 7000);
    assert_int_equal(sim.busy_ns[MM_STREAM_ENCODE], 800);
    mm_simulation_fini(&sim);
    know(f.facts, MM_WORK_ENCODE, MM_WORK_EXPENSIVE, 3000); /* no convolution runs beside it */
    know(f.facts, MM_WORK_CHEAP, MM_WORK_ENCODE, 1000);
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2800); /* both go on at their slower speeds */
    assert_int_equal(sim.nodes[f.steps[LOSS_F]].end_ns, 3400);
    mm_simulation_fini(&sim);
    f.facts->variants[RELU_F].ns = 0; /* the encode begins with loss forward, as before */
    f.facts->variants[LOSS_F].ns = 0; /* nothing runs beside it: backward waits for the decode */
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.encode].end_ns, 1500);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

/* A decode that does not wait for its encode, but begins with it. (Wrong for the data; the simulation has none.) */
TEST_CASE(an_encode_and_a_decode_at_once_count_twice) {
    fixture f = fixture_create(true, 250);
    mm_simulation sim;
    f.plan->nodes[f.decode].wait[MM_STREAM_ENCODE] = -1;
    mm_plan_wait(f.plan, f.decode, f.steps[RELU_F]);
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.decode].start_ns, 2000);
    assert_in_range(sim.nodes[f.steps[LOSS_F]].end_ns, 3166, 3167); /* 500 ns at two thirds of its speed */
    mm_simulation_fini(&sim);
    know(f.facts, MM_WORK_ENCODE, MM_WORK_DECODE, 1000);
    know(f.facts, MM_WORK_DECODE, MM_WORK_ENCODE, 500);
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.decode].end_ns, 2750);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2875); /* 375 of its 500 ns were done at 2750 */
    assert_int_equal(sim.nodes[f.steps[LOSS_F]].end_ns, 3000);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

TEST_CASE(a_codec_that_works_in_pinned_memory_takes_as_long_as_the_link) {
    fixture f = fixture_create(true, 0);
    f.plan->segments[f.plan->nodes[f.encode].dst].memory = MM_MEM_PINNED;
    f.facts->out_bytes_per_s = INT64_C(1000000000000) / 800; /* 800 ns for a code of 1000 bytes */
    f.facts->in_bytes_per_s = INT64_C(1000000000000) / 400;
    f.facts->link_contention_permille = 250;
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2800);
    assert_int_equal(sim.nodes[f.decode].end_ns, 3300);        /* 500 ns: the codec is slower than the link's 400 */
    assert_int_equal(sim.nodes[f.steps[LOSS_F]].end_ns, 3250); /* slowed by a codec's use of the link, too */
    mm_simulation_fini(&sim);
    know(f.facts, MM_WORK_ENCODE, MM_WORK_LINK, 500); /* the link that it uses itself does not count */
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2800);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

/* The small graph's `out` is copied to pinned memory after relu, and back for loss backward. */
typedef struct link_fixture {
    fixture f;
    int out, in; /* nodes */
} link_fixture;

/* at_once: the copy back does not wait for the copy out, but begins with it (wrong for the data, not for times). */
static link_fixture link_create(bool at_once) {
    link_fixture l = {.f = {.g = small_graph_create()}};
    fixture *f = &l.f;
    mm_limits limits = {.base_bytes = 512};
    assert_int_equal(mm_graph_facts_create(f->g.graph, 0, &f->facts), MM_OK);
    assert_int_equal(mm_plan_create(f->g.graph, &limits, &f->plan), MM_OK);
    int segments[3];
    for (int i = 0; i < 3; i++) {
        segments[i] = mm_plan_segment(f->plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, f->g.out, SMALL_MAP_BYTES);
        f->plan->segments[segments[i]].memory = i == 1 ? MM_MEM_PINNED : MM_MEM_DEVICE;
    }
    for (int s = 0; s < SMALL_STEPS; s++) {
        f->facts->variants[s].ns = 1000;
        f->steps[s] = mm_plan_step(f->plan, s);
        if (s == LOSS_B) mm_plan_wait(f->plan, f->steps[s], l.in);
        if (s != RELU_F) continue;
        l.out = mm_plan_op(f->plan, MM_NODE_OUT, f->g.out, segments[0], segments[1]);
        l.in = mm_plan_op(f->plan, MM_NODE_IN, f->g.out, segments[1], segments[2]);
        mm_plan_wait(f->plan, l.out, f->steps[s]);
        mm_plan_wait(f->plan, l.in, at_once ? f->steps[s] : l.out);
    }
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    return l;
}

/* The rate, in bytes per second, at which a copy of the map takes so many ns. */
static int64_t rate_for(int64_t ns) { return SMALL_MAP_BYTES * INT64_C(1000000000) / ns; }

static void check_copy(const mm_simulation *sim, int node, int64_t start_ns, int64_t end_ns) {
    assert_int_equal(sim->nodes[node].start_ns, start_ns);
    assert_in_range(sim->nodes[node].end_ns, end_ns - 1, end_ns + 1); /* the rate is rounded */
}

TEST_CASE(copies_take_their_bytes_at_the_rate_of_their_way) {
    link_fixture l = link_create(false);
    l.f.facts->out_bytes_per_s = rate_for(400);
    l.f.facts->in_bytes_per_s = rate_for(2600);
    l.f.facts->out_both_bytes_per_s = rate_for(4000); /* both ways are never busy at once */
    l.f.facts->in_both_bytes_per_s = rate_for(26000);
    mm_simulation sim;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, l.out, 2000, 2400);
    check_copy(&sim, l.in, sim.nodes[l.out].end_ns, 5000);
    /* Loss backward would have begun at 3000. */
    assert_int_equal(sim.nodes[l.f.steps[LOSS_B]].start_ns, sim.nodes[l.in].end_ns);
    assert_int_equal(sim.stall_ns, sim.nodes[l.in].end_ns - 3000);
    assert_int_equal(sim.busy_ns[MM_STREAM_OUT] + sim.busy_ns[MM_STREAM_IN], sim.nodes[l.in].end_ns - 2000);
    mm_simulation_fini(&sim);
    fixture_destroy(&l.f);
}

/* A plan in which a map goes on to the disk behind its copy out, and comes back. at_once: the load does not wait for
 * the store (wrong for the data, not for times). */
static link_fixture disk_create(bool at_once, int *store_out, int *load_out) {
    static const mm_memory memories[] = {MM_MEM_DEVICE, MM_MEM_PINNED, MM_MEM_DISK, MM_MEM_PINNED, MM_MEM_DEVICE};
    link_fixture l = {.f = {.g = small_graph_create()}};
    fixture *f = &l.f;
    mm_limits limits = {.base_bytes = 512};
    int segments[5];
    assert_int_equal(mm_graph_facts_create(f->g.graph, 0, &f->facts), MM_OK);
    assert_int_equal(mm_plan_create(f->g.graph, &limits, &f->plan), MM_OK);
    for (int i = 0; i < 5; i++) {
        segments[i] = mm_plan_segment(f->plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, f->g.out, SMALL_MAP_BYTES);
        f->plan->segments[segments[i]].memory = memories[i];
    }
    for (int s = 0; s < SMALL_STEPS; s++) {
        f->facts->variants[s].ns = 1000;
        f->steps[s] = mm_plan_step(f->plan, s);
        if (s == LOSS_B) mm_plan_wait(f->plan, f->steps[s], l.in);
        if (s != RELU_F) continue;
        l.out = mm_plan_op(f->plan, MM_NODE_OUT, f->g.out, segments[0], segments[1]);
        *store_out = mm_plan_op(f->plan, MM_NODE_STORE, f->g.out, segments[1], segments[2]);
        *load_out = mm_plan_op(f->plan, MM_NODE_LOAD, f->g.out, segments[2], segments[3]);
        l.in = mm_plan_op(f->plan, MM_NODE_IN, f->g.out, segments[3], segments[4]);
        mm_plan_wait(f->plan, l.out, f->steps[s]);
        mm_plan_wait(f->plan, *store_out, l.out);
        mm_plan_wait(f->plan, *load_out, at_once ? l.out : *store_out);
        mm_plan_wait(f->plan, l.in, *load_out);
    }
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    assert_int_equal(f->plan->disk_bytes, SMALL_MAP_BYTES);
    l.f.facts->out_bytes_per_s = rate_for(400);
    l.f.facts->in_bytes_per_s = rate_for(600);
    return l;
}

TEST_CASE(stores_and_loads_take_their_bytes_at_the_rates_of_the_disk_and_its_latency) {
    int store, load;
    link_fixture l = disk_create(false, &store, &load);
    mm_simulation sim;
    l.f.facts->store_bytes_per_s = rate_for(1000);
    l.f.facts->load_bytes_per_s = rate_for(500);
    l.f.facts->disk_ns = 70;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, store, sim.nodes[l.out].end_ns, 2400 + 1070);
    check_copy(&sim, load, sim.nodes[store].end_ns, 3470 + 570);
    check_copy(&sim, l.in, sim.nodes[load].end_ns, 4040 + 600);
    assert_int_equal(sim.nodes[l.f.steps[LOSS_B]].start_ns, sim.nodes[l.in].end_ns);
    mm_simulation_fini(&sim);
    l.f.facts->store_bytes_per_s = l.f.facts->load_bytes_per_s = l.f.facts->disk_ns = 0; /* nominal: 500 MB/s */
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, store, sim.nodes[l.out].end_ns, 2400 + SMALL_MAP_BYTES * 2);
    mm_simulation_fini(&sim);
    l.f.facts->disk_ns = -1;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_ERR_INVALID);
    fixture_destroy(&l.f);
}

/* The disk is one: what it reads and writes at the same time gets half of it each. */
TEST_CASE(a_store_and_a_load_at_once_share_the_disk) {
    int store, load;
    link_fixture l = disk_create(true, &store, &load);
    mm_simulation sim;
    l.f.facts->store_bytes_per_s = rate_for(1000);
    l.f.facts->load_bytes_per_s = rate_for(300);
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, load, sim.nodes[l.out].end_ns, 2400 + 600);
    check_copy(&sim, store, sim.nodes[l.out].end_ns, 2400 + 1300); /* 300 of its 1000 ns took twice as long */
    mm_simulation_fini(&sim);
    fixture_destroy(&l.f);
}

TEST_CASE(a_copy_is_slower_only_while_the_other_way_is_busy) {
    link_fixture l = link_create(true);
    l.f.facts->out_bytes_per_s = rate_for(400);
    l.f.facts->in_bytes_per_s = rate_for(500);
    l.f.facts->out_both_bytes_per_s = rate_for(800);
    l.f.facts->in_both_bytes_per_s = rate_for(2000);
    mm_simulation sim;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, l.out, 2000, 2800); /* the other way is busy all the time: half as fast */
    check_copy(&sim, l.in, 2000, 3100);  /* 200 of its 500 ns are done at 2800, then it is alone */
    mm_simulation_fini(&sim);
    l.f.facts->in_both_bytes_per_s = 0; /* not known: as if alone */
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, l.in, 2000, 2500);
    check_copy(&sim, l.out, 2000, 2650); /* 250 of its 400 ns are done at 2500 */
    mm_simulation_fini(&sim);
    fixture_destroy(&l.f);
}

TEST_CASE(copies_and_codecs_slow_the_steps_each_by_its_own) {
    link_fixture l = link_create(false);
    l.f.facts->out_bytes_per_s = rate_for(250);
    l.f.facts->contention_permille = 9000;
    l.f.facts->link_contention_permille = 250;
    mm_simulation sim;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    /* Loss forward gets 200 ns of its work done during the copy out. */
    assert_in_range(sim.nodes[l.f.steps[LOSS_F]].end_ns, 3049, 3051);
    mm_simulation_fini(&sim);
    fixture_destroy(&l.f);
    fixture f = fixture_create(true, 250);
    f.facts->link_contention_permille = 9000; /* there is no copy */
    f.facts->codes[f.g.out].decode_ns = 0;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.steps[LOSS_F]].end_ns, 3100); /* it does 400 ns of work beside the encode's 500 */
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

TEST_CASE(a_copy_takes_longer_beside_steps_and_not_beside_the_other_way) {
    link_fixture l = link_create(true);
    l.f.facts->out_bytes_per_s = rate_for(400);
    l.f.facts->in_bytes_per_s = rate_for(500);
    know(l.f.facts, MM_WORK_LINK, MM_WORK_CHEAP, 1000);
    mm_simulation sim;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, l.out, 2000, 2800);
    check_copy(&sim, l.in, 2000, 3000);
    assert_int_equal(sim.nodes[l.f.steps[LOSS_F]].end_ns, 3000);
    mm_simulation_fini(&sim);
    fixture_destroy(&l.f);
}

TEST_CASE(a_copy_takes_its_issuing_and_its_bytes) {
    link_fixture l = link_create(false);
    l.f.facts->out_bytes_per_s = rate_for(400);
    l.f.facts->in_bytes_per_s = rate_for(500);
    l.f.facts->issue_ns = 100;
    mm_simulation sim;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    check_copy(&sim, l.out, 2000, 2500);
    check_copy(&sim, l.in, sim.nodes[l.out].end_ns, 3100);
    mm_simulation_fini(&sim);
    fixture_destroy(&l.f);
}

/* The code is placed at run time: allocated for its encoding, freed with its decoding. */
TEST_CASE(memory_is_allocated_with_every_stream_idle) {
    fixture f = fixture_create(true, 0);
    f.plan->segments[f.plan->nodes[f.encode].dst].dynamic = true;
    f.plan->heap_bytes = 4096;
    f.facts->alloc_ns = 300;
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.encode].start_ns, 2300);
    assert_int_equal(sim.nodes[f.steps[LOSS_F]].start_ns, 2300);
    assert_int_equal(sim.nodes[f.encode].end_ns, 2800);
    /* The decoding would be ready, but loss forward runs. */
    assert_int_equal(sim.nodes[f.decode].start_ns, 3600);
    assert_int_equal(sim.nodes[f.decode].end_ns, 4100);
    assert_int_equal(sim.iteration_ns, 8100);
    mm_simulation_fini(&sim);
    /* The encode's source is placed at run time, too: two allocations before it, two frees after the decode. */
    f.plan->segments[f.plan->nodes[f.encode].src].dynamic = true;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.encode].start_ns, 2600);
    assert_int_equal(sim.iteration_ns, 8700);
    mm_simulation_fini(&sim);
    f.facts->alloc_ns = MM_ALLOC_NS_MOST + 1;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
    f.facts->alloc_ns = 0;
    f.facts->issue_ns = -1;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
    fixture_destroy(&f);
}

/* The first, the third and the last step use a map each, and nothing else has a place. */
TEST_CASE(what_a_step_does_not_find_near_takes_longer) {
    fixture f = fixture_create(false, 0);
    int maps[2], between = mm_plan_segment(f.plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, f.g.out, SMALL_MAP_BYTES);
    f.plan->segments[between].offset = 8192;
    for (int i = 0; i < 2; i++) {
        maps[i] = mm_plan_segment(f.plan, MM_CONTENT_WORK, MM_CAT_WORKSPACE, -1, SMALL_MAP_BYTES);
        f.plan->segments[maps[i]].offset = 16384 + 8192 * i;
    }
    f.plan->nodes[f.steps[CONV_F]].work = maps[0];
    f.plan->nodes[f.steps[LOSS_F]].work = between;
    f.plan->nodes[f.steps[UPDATE]].work = maps[1];
    f.facts->cache_bytes = SMALL_MAP_BYTES;
    f.facts->far_ps_per_byte = 25;
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[f.steps[CONV_F]].end_ns, 1100);
    assert_int_equal(sim.iteration_ns, 7300);
    mm_simulation_fini(&sim);
    f.facts->cache_bytes = 2 * SMALL_MAP_BYTES;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.iteration_ns, 7000);
    mm_simulation_fini(&sim);
    f.facts->far_ps_per_byte = -1;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
    f.facts->far_ps_per_byte = MM_FAR_PS_MOST + 1;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
    fixture_destroy(&f);
}

TEST_CASE(copies_over_a_link_of_unknown_speed_take_no_time) {
    link_fixture l = link_create(false);
    mm_simulation sim;
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_OK);
    assert_int_equal(sim.iteration_ns, 7000);
    assert_int_equal(sim.busy_ns[MM_STREAM_OUT] + sim.busy_ns[MM_STREAM_IN], 0);
    mm_simulation_fini(&sim);
    l.f.facts->out_bytes_per_s = 1; /* more than a node may take */
    assert_int_equal(mm_simulate(l.f.plan, l.f.facts, &sim), MM_ERR_INVALID);
    fixture_destroy(&l.f);
}

/* ---------------------------------------------------------------- pieces
 *
 * The small graph's `out`, 1000 rows, compressed and copied out after relu, fetched and decoded for loss backward; in
 * four pieces. Nothing but these takes time. */
typedef struct piece_fixture {
    fixture f;
    int out, in; /* nodes; f.encode and f.decode */
} piece_fixture;

static piece_fixture piece_create(int64_t encode_ns, int64_t copy_ns, int64_t decode_ns) {
    piece_fixture p = {.f = fixture_create(false, 0)};
    fixture *f = &p.f;
    mm_plan_destroy(f->plan);
    mm_limits limits = {.base_bytes = 512};
    assert_int_equal(mm_plan_create(f->g.graph, &limits, &f->plan), MM_OK);
    int segments[5];
    for (int i = 0; i < 5; i++) {
        bool raw = i == 0 || i == 4;
        segments[i] = mm_plan_segment(f->plan, raw ? MM_CONTENT_RAW : MM_CONTENT_CODED, MM_CAT_CODE, f->g.out, 1000);
        f->plan->segments[segments[i]].codec = raw ? -1 : 0;
        f->plan->segments[segments[i]].memory = i == 2 ? MM_MEM_PINNED : MM_MEM_DEVICE;
    }
    static const mm_node_kind kinds[] = {MM_NODE_ENCODE, MM_NODE_OUT, MM_NODE_IN, MM_NODE_DECODE};
    int nodes[4];
    for (int s = 0; s < SMALL_STEPS; s++) {
        f->facts->variants[s].ns = 0;
        f->steps[s] = mm_plan_step(f->plan, s);
        for (int i = 0; s == RELU_F && i < 4; i++) {
            nodes[i] = mm_plan_op(f->plan, kinds[i], f->g.out, segments[i], segments[i + 1]);
            mm_plan_wait(f->plan, nodes[i], nodes[i] - 1);
        }
    }
    f->encode = nodes[0], p.out = nodes[1], p.in = nodes[2], f->decode = nodes[3];
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    f->facts->codecs[0].fixed_size = true;
    f->facts->codes[f->g.out] = (mm_code_facts){
        .code_bytes = 1000, .encode_ns = encode_ns, .decode_ns = decode_ns, .split_rows = 250, .split_bytes = 250};
    f->facts->piece_bytes = 1000;
    f->facts->out_bytes_per_s = f->facts->in_bytes_per_s = 1000 * INT64_C(1000000000) / copy_ns;
    return p;
}

/* When the four operations end; none may begin before `starts` says. */
static void check_pieces(piece_fixture *p, const int64_t starts[4], const int64_t ends[4]) {
    const int nodes[] = {p->f.encode, p->out, p->in, p->f.decode};
    mm_simulation sim;
    assert_int_equal(mm_simulate(p->f.plan, p->f.facts, &sim), MM_OK);
    for (int i = 0; i < 4; i++) check_copy(&sim, nodes[i], starts[i], ends[i]);
    int64_t in_ns = p->f.facts->codes[p->f.g.out].code_bytes * INT64_C(1000000000) / p->f.facts->in_bytes_per_s;
    assert_in_range(sim.busy_ns[MM_STREAM_ENCODE], ends[0] - starts[0] - 1, ends[0] - starts[0] + 1);
    assert_in_range(sim.busy_ns[MM_STREAM_IN], in_ns - 4, in_ns + 4); /* waits between pieces do not count as busy */
    mm_simulation_fini(&sim);
}

TEST_CASE(a_slow_encode_is_followed_by_the_copy_of_its_last_piece) {
    piece_fixture p = piece_create(800, 400, 2000);
    check_pieces(&p, (const int64_t[]){0, 200, 900, 1000}, (const int64_t[]){800, 900, 1300, 3000});
    fixture_destroy(&p.f);
}

TEST_CASE(a_slow_link_begins_with_the_first_piece_and_goes_on_without_a_pause) {
    piece_fixture p = piece_create(400, 800, 40);
    check_pieces(&p, (const int64_t[]){0, 100, 900, 1100}, (const int64_t[]){400, 900, 1700, 1710});
    fixture_destroy(&p.f);
}

TEST_CASE(whole_maps_are_copied_after_they_were_encoded) {
    piece_fixture p = piece_create(400, 800, 40);
    p.f.facts->piece_bytes = SMALL_MAP_BYTES;
    check_pieces(&p, (const int64_t[]){0, 400, 1200, 2000}, (const int64_t[]){400, 1200, 2000, 2040});
    fixture_destroy(&p.f);
}

TEST_CASE(waits_for_the_link_are_no_waits_for_the_codec) {
    piece_fixture p = piece_create(400, 800, 40);
    mm_simulation sim;
    mm_plan_wait(p.f.plan, p.f.steps[LOSS_B], p.f.decode);
    assert_int_equal(mm_simulate(p.f.plan, p.f.facts, &sim), MM_OK);
    /* Loss backward waits from 0 to 1710: a piece is encoded, all are copied out and in, and the last is decoded. */
    assert_in_range(sim.stall_ns, 1709, 1711);
    assert_in_range(sim.hidden_permille, 159, 163); /* 330 of 2040 ns: copies count, too */
    assert_in_range(sim.codec_hidden_permille, 748, 752);
    int64_t exposed = 0;
    for (int t = 0; t < MM_STREAM_COUNT; t++) exposed += sim.exposed_ns[t];
    assert_int_equal(exposed, sim.stall_ns); /* each wait is for one stream */
    assert_true(sim.exposed_ns[MM_STREAM_OUT] > 0 && sim.exposed_ns[MM_STREAM_DECODE] > 0);
    mm_simulation_fini(&sim);
    fixture_destroy(&p.f);
}

TEST_CASE(every_piece_on_the_link_is_issued) {
    piece_fixture p = piece_create(400, 800, 40);
    p.f.facts->issue_ns = 10;
    mm_simulation sim;
    assert_int_equal(mm_simulate(p.f.plan, p.f.facts, &sim), MM_OK);
    assert_in_range(sim.busy_ns[MM_STREAM_OUT], 836, 844); /* 800 and the issue of four pieces */
    assert_int_equal(sim.busy_ns[MM_STREAM_ENCODE], 400);
    mm_simulation_fini(&sim);
    fixture_destroy(&p.f);
}

TEST_CASE(a_throttled_encode_goes_at_the_pace_of_the_link) {
    piece_fixture p = piece_create(400, 800, 40);
    mm_simulation sim;
    p.f.plan->nodes[p.f.encode].throttle = 1; /* pieces are encoded (100 ns) and copied (200 ns) in turn */
    assert_int_equal(mm_simulate(p.f.plan, p.f.facts, &sim), MM_OK);
    check_copy(&sim, p.f.encode, 0, 1000);
    check_copy(&sim, p.out, 100, 1200);
    assert_int_equal(sim.busy_ns[MM_STREAM_ENCODE], 400);
    mm_simulation_fini(&sim);
    p.f.plan->nodes[p.f.encode].throttle = 2; /* one is encoded while another is copied: the link is never idle */
    assert_int_equal(mm_simulate(p.f.plan, p.f.facts, &sim), MM_OK);
    check_copy(&sim, p.f.encode, 0, 600);
    check_copy(&sim, p.out, 100, 900);
    mm_simulation_fini(&sim);
    fixture_destroy(&p.f);
}

TEST_CASE(the_step_takes_its_variants_time) {
    fixture f = fixture_create(false, 0);
    f.facts->variants = realloc(f.facts->variants, (SMALL_STEPS + 1) * sizeof *f.facts->variants);
    assert_non_null(f.facts->variants);
    f.facts->variants[SMALL_STEPS] = (mm_variant){.id = 1, .ns = 50};
    f.facts->variant_first[SMALL_STEPS] = SMALL_STEPS + 1;
    f.plan->nodes[f.steps[UPDATE]].variant = 1;
    mm_simulation sim;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.iteration_ns, 6050);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

TEST_CASE(live_bytes_are_those_of_the_plans_accounts) {
    for (uint64_t seed = 0; seed < 40; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        mm_plan *plan;
        mm_simulation sim;
        mm_limits limits = {.base_bytes = 512};
        random_graph_options graph_options = {.seed = seed, .layers = 12, .max_channels = 4};
        random_plan_options plan_options = {.seed = seed, .lossy = true, .dynamic = seed % 2 == 0};
        assert_int_equal(random_graph_create(&graph_options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        assert_int_equal(random_plan_create(graph, facts, &limits, &plan_options, &plan), MM_OK);
        assert_int_equal(mm_simulate(plan, facts, &sim), MM_OK);
        int64_t peak = 0;
        for (int i = 0; i < plan->n_nodes; i++) {
            int64_t bytes[MM_CATEGORIES], sum = 0;
            mm_plan_live_at(plan, i, bytes);
            for (int c = 0; c < MM_CATEGORIES; c++) sum += bytes[c];
            assert_int_equal(sim.nodes[i].live_bytes, sum);
            if (sum > peak) peak = sum;
        }
        assert_int_equal(peak, plan->live_peak_bytes);
        mm_simulation_fini(&sim);
        mm_plan_destroy(plan);
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
}

/* Checks the simulation of a plan whose nodes are whole: each node starts as soon as the nodes that it waits for, and
 * the one before it on its stream, have ended. */
static void check_schedule(const mm_plan *plan, const mm_simulation *sim) {
    int last[MM_STREAM_COUNT] = {-1, -1, -1, -1, -1};
    int64_t end = 0;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        int64_t earliest = last[n->stream] < 0 ? 0 : sim->nodes[last[n->stream]].end_ns;
        for (int k = 0; k < i; k++)
            if (n->wait[plan->nodes[k].stream] >= plan->nodes[k].seq && sim->nodes[k].end_ns > earliest)
                earliest = sim->nodes[k].end_ns;
        assert_int_equal(sim->nodes[i].start_ns, earliest);
        assert_true(sim->nodes[i].end_ns >= sim->nodes[i].start_ns);
        if (sim->nodes[i].end_ns > end) end = sim->nodes[i].end_ns;
        last[n->stream] = i;
    }
    assert_int_equal(sim->iteration_ns, end);
}

/* Checks pairs of nodes of which the second goes on with the pieces of the first: it begins when the first has done a
 * piece, and ends no earlier than the first. Returns how many pairs overlapped. */
static int check_overlap(const mm_plan *plan, const mm_graph_facts *facts, const mm_simulation *sim) {
    int overlapping = 0;
    mm_program pieces;
    assert_int_equal(mm_program_init(plan, facts, &pieces), MM_OK);
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        for (int k = 0; k < i; k++) {
            const mm_sim_node *a = &sim->nodes[k], *b = &sim->nodes[i];
            if (n->wait[plan->nodes[k].stream] < plan->nodes[k].seq) continue;
            bool divided = pieces.last[i] > pieces.first[i] && pieces.last[k] > pieces.first[k] &&
                           plan->nodes[k].dst == n->src && n->src >= 0;
            assert_true(b->start_ns >= (divided ? a->start_ns : a->end_ns));
            assert_true(b->end_ns >= a->end_ns);
            overlapping += b->start_ns < a->end_ns;
        }
    }
    mm_program_fini(&pieces);
    return overlapping;
}

TEST_CASE(random_plans_run_as_early_as_their_waits_allow) {
    int overlapping = 0;
    for (uint64_t seed = 100; seed < 140; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts;
        mm_plan *plan;
        mm_simulation sim, again;
        mm_limits limits = {0};
        random_graph_options graph_options = {.seed = seed, .layers = 15, .max_channels = 4, .images = 12};
        random_plan_options plan_options = {.seed = seed, .lossy = true};
        assert_int_equal(random_graph_create(&graph_options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        assert_int_equal(random_plan_create(graph, facts, &limits, &plan_options, &plan), MM_OK);
        facts->piece_bytes = seed % 2 ? MM_PIECE_BYTES : 1;
        facts->out_bytes_per_s = facts->in_bytes_per_s = INT64_C(1) << 30;
        facts->in_both_bytes_per_s = INT64_C(1) << 29;
        assert_int_equal(mm_simulate(plan, facts, &sim), MM_OK);
        assert_int_equal(mm_simulate(plan, facts, &again), MM_OK);
        if (seed % 2)
            check_schedule(plan, &sim);
        else
            overlapping += check_overlap(plan, facts, &sim);
        assert_memory_equal(sim.nodes, again.nodes, (size_t)sim.n_nodes * sizeof *sim.nodes);
        assert_true(sim.hidden_permille >= 0 && sim.hidden_permille <= 1000);
        assert_int_equal(sim.compute_ns, sim.busy_ns[MM_STREAM_COMPUTE]);
        mm_simulation_fini(&sim);
        mm_simulation_fini(&again);
        mm_plan_destroy(plan);
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
    assert_true(overlapping > 10);
}

/* ---------------------------------------------------------------- several devices */

enum { GRADIENT_BYTES = 4096, SHARED_STEPS = 4 };

typedef struct shared_case {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
} shared_case;

/* Steps of 1000 ns each: a forward; b and a backward, which write their gradients; an update. A gradient takes 400 ns
 * each way on the link, 800 if two devices use it at once; a core adds two gradients in 500 ns. */
static shared_case shared_create(mm_allreduce_when when, int ranks, mm_sum_at sum_at) {
    shared_case c;
    mm_plan *plan;
    const mm_limits limits = {.base_bytes = 8192 + 2 * GRADIENT_BYTES};
    assert_int_equal(mm_graph_create("shared", &c.graph), MM_OK);
    const mm_tensor map = small_tensor(c.graph, "map", MM_FEATURE_MAP, MM_MANAGED, 256);
    const mm_tensor ga = small_tensor(c.graph, "ga", MM_WEIGHT_GRADIENT, MM_PERSISTENT, GRADIENT_BYTES);
    const mm_tensor gb = small_tensor(c.graph, "gb", MM_WEIGHT_GRADIENT, MM_PERSISTENT, GRADIENT_BYTES);
    const mm_layer a = small_layer(c.graph, "a", MM_LAYER_CONV), b = small_layer(c.graph, "b", MM_LAYER_CONV);
    const mm_layer update = small_layer(c.graph, "update", MM_LAYER_UPDATE);
    small_step(c.graph, a, MM_FORWARD, (mm_use[]){{map, MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    small_step(c.graph, b, MM_BACKWARD, (mm_use[]){{map, MM_READ, MM_FORM_VALUE}, {gb, MM_WRITE, MM_FORM_VALUE}}, 2, 0);
    small_step(c.graph, a, MM_BACKWARD, (mm_use[]){{ga, MM_WRITE, MM_FORM_VALUE}}, 1, 0);
    small_step(c.graph, update, MM_UPDATE, (mm_use[]){{ga, MM_READ, MM_FORM_VALUE}, {gb, MM_READ, MM_FORM_VALUE}}, 2,
               0);
    assert_int_equal(mm_graph_allreduce(c.graph, ga, when, MM_REDUCE_SUM), MM_OK);
    assert_int_equal(mm_graph_allreduce(c.graph, gb, when, MM_REDUCE_SUM), MM_OK);
    assert_int_equal(mm_graph_freeze(c.graph), MM_OK);
    assert_int_equal(mm_graph_facts_create(c.graph, 0, &c.facts), MM_OK);
    assert_int_equal(mm_plan_create(c.graph, &limits, &plan), MM_OK);
    for (int s = 0; s < SHARED_STEPS; s++) {
        c.facts->variants[s].ns = 1000;
        mm_plan_step(plan, s);
    }
    c.facts->out_bytes_per_s = c.facts->in_bytes_per_s = INT64_C(1000000000) * GRADIENT_BYTES / 400;
    c.facts->host_sum_bytes_per_s = INT64_C(1000000000) * GRADIENT_BYTES / 250;
    c.facts->link_sharers = 4;
    mm_facts_set_ranks(c.facts, ranks, sum_at);
    assert_int_equal(mm_plan_finish(plan), MM_OK);
    assert_int_equal(mm_plan_add_allreduce(plan, &c.plan), MM_OK);
    mm_plan_destroy(plan);
    return c;
}

/* Checks the iteration's time. pieces: into how many each gradient is cut. */
static void check_shared_pieces(mm_allreduce_when when, int ranks, mm_sum_at sum_at, int pieces, int64_t expected_ns) {
    shared_case c = shared_create(when, ranks, sum_at);
    mm_simulation sim;
    c.facts->piece_bytes = GRADIENT_BYTES / pieces;
    assert_int_equal(mm_simulate(c.plan, c.facts, &sim), MM_OK);
    if (sim.iteration_ns < expected_ns - 4 || sim.iteration_ns > expected_ns + 4)
        fail_msg("%s, %d ranks, place %d: %lld ns, expected %lld", when == MM_ALLREDUCE_AT_END ? "end" : "overlap",
                 ranks, (int)sum_at, (long long)sim.iteration_ns, (long long)expected_ns);
    mm_simulation_fini(&sim);
    mm_plan_destroy(c.plan);
    mm_graph_facts_destroy(c.facts);
    mm_graph_destroy(c.graph);
}

static void check_shared(mm_allreduce_when when, int ranks, mm_sum_at sum_at, int64_t expected_ns) {
    check_shared_pieces(when, ranks, sum_at, 1, expected_ns);
}

TEST_CASE(sums_of_ranks_follow_each_other_between_the_copies) {
    /* One device copies its gradients, and adds nothing. The last leaves at 3000: 400 out, 400 in, then the update. */
    check_shared(MM_ALLREDUCE_AT_ONCE, 1, MM_SUM_AT_ROOT, 4800);
    /* Two devices: a copy takes 800. a's gradient: out from 3000 to 3800, added until 4300, in until 5100. */
    check_shared(MM_ALLREDUCE_AT_ONCE, 2, MM_SUM_AT_ROOT, 6100);
    check_shared(MM_ALLREDUCE_AT_ONCE, 2, MM_SUM_AT_RANKS, 5850); /* each rank adds one half */
    /* At the end: b's gradient is out at 3800, a's at 4600; a's is added until 5100, and is in at 5900, after b's. */
    check_shared(MM_ALLREDUCE_AT_END, 2, MM_SUM_AT_ROOT, 6900);
    /* The first device adds: both gradients are out at 4600; it copies each in and out, alone on the link at 400 a
     * copy, until 6200; both are in at 7800. */
    check_shared(MM_ALLREDUCE_AT_END, 2, MM_SUM_AT_DEVICE, 8800);
    /* In quarters. The last quarter of a's gradient is out at 3800, added at 3925, and in at 4125. */
    check_shared_pieces(MM_ALLREDUCE_AT_ONCE, 2, MM_SUM_AT_ROOT, 4, 5125);
    /* The last quarter is out at 4600, added 125 later, and in 200 after that. */
    check_shared_pieces(MM_ALLREDUCE_AT_END, 2, MM_SUM_AT_ROOT, 4, 5925);
    check_shared_pieces(MM_ALLREDUCE_AT_END, 2, MM_SUM_AT_DEVICE, 4, 8800);
}

TEST_CASE(sums_in_place_run_beside_steps_and_hold_up_the_update) {
    /* With two devices, each sends halves of a gradient twice, at half of the link's rate: a sum takes 800 ns. */
    check_shared(MM_ALLREDUCE_IN_PLACE_AT_ONCE, 1, MM_SUM_IN_PLACE, 4000);
    check_shared(MM_ALLREDUCE_IN_PLACE_AT_ONCE, 2, MM_SUM_IN_PLACE, 4800); /* b's sum begins at 2000, a's at 3000 */
    check_shared(MM_ALLREDUCE_IN_PLACE_AT_END, 2, MM_SUM_IN_PLACE, 5600);  /* both sums follow from 3000 on */
    /* With four, each sends three quarters twice, at a quarter of the rate: 2400 ns. a's sum begins when b's ends. */
    check_shared(MM_ALLREDUCE_IN_PLACE_AT_ONCE, 4, MM_SUM_IN_PLACE, 7800);
    shared_case c = shared_create(MM_ALLREDUCE_IN_PLACE_AT_ONCE, 2, MM_SUM_IN_PLACE);
    mm_simulation sim;
    c.facts->issue_ns = 10;
    assert_int_equal(mm_simulate(c.plan, c.facts, &sim), MM_OK);
    assert_int_equal(sim.n_spans, SHARED_STEPS + 2);
    assert_int_equal(sim.spans[SHARED_STEPS].start_ns, 2000);
    assert_int_equal(sim.spans[SHARED_STEPS].end_ns, 2810);
    assert_int_equal(sim.spans[SHARED_STEPS + 1].start_ns, 3000);
    assert_int_equal(sim.spans[3].start_ns, 3810);
    assert_int_equal(sim.stall_ns, 810);
    assert_int_equal(sim.hidden_permille, 500);
    mm_simulation_fini(&sim);
    mm_plan_destroy(c.plan);
    mm_graph_facts_destroy(c.facts);
    mm_graph_destroy(c.graph);
}

TEST_CASE(times_out_of_range_are_refused) {
    fixture f = fixture_create(true, 0);
    mm_simulation sim;
    f.facts->variants[2].ns = -1;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
    f.facts->variants[2].ns = INT64_MAX;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "small"));
    f.facts->variants[2].ns = 0;
    f.facts->contention.known = true;
    int *contentions[] = {&f.facts->contention_permille, &f.facts->link_contention_permille,
                          &f.facts->contention.permille[MM_WORK_LINK][MM_WORK_DECODE]};
    for (int i = 0; i < 3; i++) {
        *contentions[i] = -1;
        assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
        *contentions[i] = MM_CONTENTION_MOST + 1;
        assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
        *contentions[i] = MM_CONTENTION_MOST;
        assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
        mm_simulation_fini(&sim);
    }
    f.facts->in_bytes_per_s = 1000;
    f.facts->in_both_bytes_per_s = 99; /* refused below a tenth of in_bytes_per_s */
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_INVALID);
    fixture_destroy(&f);
}

TEST_CASE(a_plan_that_cannot_end_is_refused) {
    fixture f = fixture_create(true, 0);
    mm_simulation sim;
    f.plan->nodes[f.encode].wait[MM_STREAM_DECODE] = 0; /* the decode waits for this encode: a cycle */
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_ERR_PLAN);
    fixture_destroy(&f);
}

TEST_CASE(a_measure_takes_its_bytes_at_the_memorys_rate_beside_the_steps) {
    fixture f = fixture_create(true, 1000);
    const int measure = mm_plan_op(f.plan, MM_NODE_MEASURE, f.g.out, f.plan->nodes[f.encode].src, -1);
    mm_simulation sim;
    assert_int_equal(mm_plan_finish(f.plan), MM_OK);
    mm_plan_wait(f.plan, measure, f.steps[LOSS_B]);
    f.facts->memory_bytes_per_s = INT64_C(4) * SMALL_MAP_BYTES * 1000000; /* 250 ns for the map */
    f.facts->codes[f.g.out].encode_ns = f.facts->codes[f.g.out].decode_ns = 0;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[measure].start_ns, 4000);
    assert_int_equal(sim.nodes[measure].end_ns, 4250);
    assert_int_equal(sim.iteration_ns, 7000 + 125); /* beside the measure, a step has half its speed */
    mm_simulation_fini(&sim);
    f.facts->memory_bytes_per_s = 0;
    assert_int_equal(mm_simulate(f.plan, f.facts, &sim), MM_OK);
    assert_int_equal(sim.nodes[measure].end_ns, 4000);
    mm_simulation_fini(&sim);
    fixture_destroy(&f);
}

/* Two steps of the device, and between them one on the host that changes 4000 bytes. */
TEST_CASE(a_step_on_the_host_takes_its_bytes_at_the_hosts_rate_beside_the_others) {
    mm_graph *graph;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_tensor weight, loss;
    mm_layer layers[3];
    const mm_tensor_desc descs[] = {{"weight", MM_WEIGHT, MM_PERSISTENT, MM_F32, 1, {1000}},
                                    {"loss", MM_STATE, MM_PERSISTENT, MM_F32, 1, {1}}};
    const mm_place places[] = {{0, MM_MEM_PINNED}, {0, MM_MEM_DEVICE}};
    const mm_limits limits = {.base_bytes = 512, .pinned_base_bytes = 4096, .places = places};
    assert_int_equal(mm_graph_create("hosting", &graph), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &descs[0], &weight), MM_OK);
    assert_int_equal(mm_graph_add_tensor(graph, &descs[1], &loss), MM_OK);
    for (int i = 0; i < 3; i++) {
        const mm_use use = {i == 1 ? weight : loss, MM_MODIFY, MM_FORM_VALUE};
        assert_int_equal(mm_graph_add_layer(graph, "layer", MM_LAYER_UPDATE, &layers[i]), MM_OK);
        assert_int_equal(mm_graph_add_step(graph, layers[i], MM_UPDATE, &use, 1, 0), MM_OK);
        if (i == 1) assert_int_equal(mm_graph_run_on_host(graph), MM_OK);
    }
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    assert_int_equal(mm_graph_facts_create(graph, 0, &facts), MM_OK);
    assert_int_equal(mm_plan_create(graph, &limits, &plan), MM_OK);
    facts->variants[0].ns = facts->variants[2].ns = 1000;
    for (int s = 0; s < 3; s++) assert_int_equal(mm_plan_step(plan, s), s);
    mm_plan_wait(plan, 1, 0);
    assert_int_equal(mm_plan_finish(plan), MM_OK);
    const struct {
        int64_t rate, ns;
    } cases[] = {{INT64_C(8000000000), 1000}, {INT64_C(2000000000), 4000}, {0, 44}}; /* 0: MM_HOST_BYTES_PER_S */
    for (int i = 0; i < 3; i++) {
        mm_simulation sim;
        facts->host_bytes_per_s = cases[i].rate;
        assert_int_equal(mm_simulate(plan, facts, &sim), MM_OK);
        assert_int_equal(sim.nodes[1].start_ns, 1000);
        assert_int_equal(sim.nodes[1].end_ns, 1000 + cases[i].ns);
        assert_int_equal(sim.busy_ns[MM_STREAM_HOST], cases[i].ns);
        assert_int_equal(sim.nodes[2].end_ns, 2000);
        assert_int_equal(sim.iteration_ns, cases[i].ns > 1000 ? 1000 + cases[i].ns : 2000);
        mm_simulation_fini(&sim);
    }
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}
