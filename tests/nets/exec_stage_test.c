/* SPDX-License-Identifier: MIT */
/* Staging: the next batch is copied while the device computes. Same bits; the staging buffer counts in the budget, and
 * is left out where it does not fit. */
#include "nets/exec/exec_staging.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/device/host_fixture.h"
#include "tests/nets/tiny_run.h"

enum { ITERATIONS = 5, BATCHES = 2 };
static const float RATE = 0.05f;

static void start(tiny_run *f, const char *policy, int64_t bytes) {
    const mm_options options = {
        .device_bytes = bytes, .pinned_bytes = 64 << 20, .policy = policy, .measure_touched = true};
    tiny_run_init(f, &options);
}

static void submit(tiny_run *f, int batch) {
    expect_ok(nets_exec_submit(f->exec, f->images[batch], f->labels[batch], TINY_BATCH, RATE));
}

/* Trains with iterations submitted ahead. Returns the predicted peak. */
static int64_t train(tiny_run *f, float losses[ITERATIONS]) {
    nets_result result;
    mm_stats stats;
    int collected = 0;
    for (int i = 0; i < ITERATIONS; i++) {
        submit(f, i % BATCHES);
        if (nets_exec_outstanding(f->exec) < NETS_AHEAD) continue;
        expect_ok(nets_exec_collect(f->exec, &result));
        losses[collected++] = result.loss;
    }
    expect_ok(nets_exec_collect(f->exec, &result));
    losses[collected++] = result.loss;
    assert_int_equal(collected, ITERATIONS);
    mm_stats_get(f->manager, &stats);
    return stats.predicted_peak_bytes;
}

static int64_t staged_bytes(const tiny_run *f) { return nets_exec_stage_bytes(f->net, TINY_BATCH); }

static void expect_counted(tiny_run *f, int64_t predicted) {
    mm_touched touched;
    expect_ok(mm_touched_get(f->manager, &touched));
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes <= predicted);
}

TEST_CASE(the_buffer_is_counted_and_changes_no_bit) {
    static const char *const policies[] = {"liveness", "swap-async:when=always", "naive", "recompute:when=always"};
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        tiny_run plain, staged;
        float expected[ITERATIONS], losses[ITERATIONS];
        start(&plain, policies[p], 64 << 20);
        int64_t without = train(&plain, expected);
        start(&staged, policies[p], 64 << 20);
        expect_ok(nets_exec_stage(staged.exec));
        int64_t with = train(&staged, losses);
        assert_memory_equal(losses, expected, sizeof losses);
        assert_int_equal(with, without + staged_bytes(&staged));
        expect_counted(&staged, with);
        tiny_run_fini(&plain);
        tiny_run_fini(&staged);
    }
}

TEST_CASE(the_next_batch_arrives_while_the_computation_is_held) {
    enum { WORDS = 1000 };
    static float batches[BATCHES][WORDS], target[WORDS];
    mm_manager *manager;
    nets_staging staging = {0};
    host_gate gate = HOST_GATE_INITIALIZER;
    expect_ok(mm_manager_create(&(mm_options){.device_bytes = 1 << 20}, &manager));
    expect_ok(nets_staging_init(&staging, manager, "batch", sizeof target));
    mm_stream *compute = mm_compute_stream(manager);
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < WORDS; i++) batches[b][i] = (float)(b * WORDS + i);
        const nets_staged parts[NETS_STAGED] = {{.from = batches[b], .to = target, .bytes = sizeof target}};
        expect_ok(nets_staging_pass(&staging, compute, parts));
        if (b == 0) host_gate_launch(&gate, compute);
    }
    host_gate_wait_reached(&gate);
    expect_ok(mm_event_sync(staging.arrived));
    assert_memory_equal(staging.buffer, batches[1], sizeof target);
    assert_memory_equal(target, batches[0], sizeof target); /* the batch in use is not overwritten */
    host_gate_open(&gate);
    expect_ok(mm_stream_sync(compute));
    assert_memory_equal(target, batches[1], sizeof target);
    nets_staging_fini(&staging);
    mm_manager_destroy(manager);
}

TEST_CASE(a_budget_without_room_for_it_trains_without) {
    tiny_run f;
    float expected[ITERATIONS], losses[ITERATIONS];
    start(&f, "liveness", 64 << 20);
    int64_t need = train(&f, expected);
    int64_t staged = staged_bytes(&f);
    tiny_run_fini(&f);
    start(&f, "liveness", need + staged - 256);
    assert_int_equal(nets_exec_stage(f.exec), MM_ERR_INFEASIBLE);
    assert_int_equal(train(&f, losses), need);
    assert_memory_equal(losses, expected, sizeof losses);
    tiny_run_fini(&f);
    start(&f, "liveness", need + staged);
    expect_ok(nets_exec_stage(f.exec));
    assert_int_equal(train(&f, losses), need + staged);
    assert_memory_equal(losses, expected, sizeof losses);
    tiny_run_fini(&f);
}

TEST_CASE(it_is_refused_twice_and_under_way) {
    tiny_run f;
    nets_exec *other;
    nets_result result;
    start(&f, "liveness", 64 << 20);
    submit(&f, 0);
    assert_int_equal(nets_exec_stage(f.exec), MM_ERR_ORDER);
    expect_ok(nets_exec_collect(f.exec, &result));
    expect_ok(nets_exec_stage(f.exec));
    assert_int_equal(nets_exec_stage(f.exec), MM_ERR_ORDER);
    expect_ok(nets_exec_create(f.net, TINY_BATCH, NETS_TRAIN, f.manager, "host", &TINY_SGD, &other));
    assert_int_equal(nets_exec_stage(other), MM_ERR_INVALID);
    nets_exec_destroy(other);
    tiny_run_fini(&f);
}

static int64_t persistent_bytes(const tiny_run *f) {
    mm_stats stats;
    mm_stats_get(f->manager, &stats);
    return stats.persistent_bytes;
}

TEST_CASE(the_buffer_goes_with_its_executor) {
    tiny_run f;
    nets_exec *eval;
    nets_result result;
    float expected[ITERATIONS], losses[ITERATIONS];
    start(&f, "liveness", 64 << 20);
    expect_ok(nets_exec_create(f.net, TINY_BATCH, NETS_EVAL, f.manager, "host", NULL, &eval));
    int64_t without = persistent_bytes(&f);
    expect_ok(nets_exec_stage(f.exec));
    int64_t peak = train(&f, expected);
    assert_int_equal(persistent_bytes(&f), without + staged_bytes(&f));
    nets_exec_destroy(f.exec);
    assert_int_equal(persistent_bytes(&f), without);
    expect_ok(nets_exec_iteration(eval, f.images[0], f.labels[0], TINY_BATCH, 0, &result)); /* its plan moved */
    expect_counted(&f, peak);
    expect_ok(nets_exec_create(f.net, TINY_BATCH, NETS_TRAIN, f.manager, "host", &TINY_SGD, &f.exec));
    expect_ok(nets_exec_init(f.exec, TINY_SEED));
    expect_ok(nets_exec_stage(f.exec));
    assert_int_equal(train(&f, losses), peak);
    assert_memory_equal(losses, expected, sizeof losses);
    nets_exec_destroy(eval);
    tiny_run_fini(&f);
}

TEST_CASE(after_a_failure_batches_come_in_again) {
    tiny_run f, plain;
    nets_result result;
    float losses[ITERATIONS], expected[ITERATIONS];
    start(&plain, "liveness", 64 << 20);
    train(&plain, expected);
    tiny_run_fini(&plain);
    start(&f, "liveness", 64 << 20);
    expect_ok(nets_exec_stage(f.exec));
    submit(&f, 0);
    host_launch_failure(mm_compute_stream(f.manager), 7);
    submit(&f, 1);
    expect_ok(nets_exec_collect(f.exec, &result));
    assert_int_equal(nets_exec_collect(f.exec, &result), MM_ERR_DEVICE);
    expect_ok(nets_exec_init(f.exec, TINY_SEED));
    train(&f, losses);
    assert_memory_equal(losses, expected, sizeof losses);
    tiny_run_fini(&f);
}
