/* SPDX-License-Identifier: MIT */
/* Memory runs out at some point of training, also with iterations submitted ahead. Training goes on with a policy that
 * needs less, and ends with the same weights as with enough memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/suite/device_fault.h"
#include "tools/train/session.h"

enum { ITERATIONS = 6, BATCH = 4 };

static session_config config_of(const nets_net *net, const target *target) {
    session_config config = {.net = net,
                             .data = "synthetic:samples=24",
                             .batch = BATCH,
                             .target = *target,
                             .seed = 3,
                             .pinned_bytes = PINNED_OPEN};
    config.policies.text[config.policies.n++] = "liveness";
    return config;
}

/* Learned parameters and running statistics, in one array. */
static float *learned(const session *s, size_t *n_out) {
    const nets_net *net = s->config.net;
    size_t n = 0, most = 0;
    for (int p = 0; p < nets_net_params(net); p++) most += (size_t)nets_net_param(net, p)->elems;
    float *all = malloc(most * sizeof *all);
    assert_non_null(all);
    for (int p = 0; p < nets_net_params(net); p++) {
        expect_ok(nets_exec_param_get(s->train, p, NETS_VALUE, all + n));
        n += (size_t)nets_net_param(net, p)->elems;
    }
    *n_out = n;
    return all;
}

static mm_status train(session *s, row *r) {
    const session_run run = {.iterations = ITERATIONS, .schedule = {.rate = 0.05f, .factor = 1}, .quiet = true};
    return session_train(s, &run, r);
}

/* The iteration had updated some weights when memory ran out: it is neither undone nor repeated, and the state is not
 * saved. */
static bool is_torn(session *s, mm_status status) {
    if (status != MM_ERR_DEVICE || s->config.target.update != NETS_UPDATE_IN_BACKWARD) return false;
    if (!strstr(mm_last_error(), "ended after it had updated some of the weights")) fail_msg("%s", mm_last_error());
    assert_int_equal(session_save(s, "torn", NULL), MM_ERR_DEVICE);
    if (strncmp(mm_last_error(), "no state is saved: ", 19) != 0) fail_msg("%s", mm_last_error());
    assert_int_not_equal(access("torn", F_OK), 0);
    return true;
}

/* Trains while memory runs out at the nth task. Returns whether there was an nth task. */
static bool run_short(const nets_net *net, const target *target, int nth, const float *expected, size_t n,
                      int64_t *steps, int *torn) {
    session_config config = config_of(net, target);
    session s;
    row r = {0};
    size_t found;
    expect_ok(session_init(&s, &config));
    device_fault_set(DEVICE_FAULT_MEMORY_TASK, nth);
    mm_status status = train(&s, &r);
    if (status == MM_ERR_NOMEM && s.iteration < ITERATIONS) { /* between iterations: another call continues */
        device_fault_set(DEVICE_FAULT_NONE, 0);
        r = (row){0};
        status = train(&s, &r);
    }
    if (is_torn(&s, status)) {
        ++*torn;
        device_fault_set(DEVICE_FAULT_NONE, 0);
        session_fini(&s);
        return true;
    }
    if (status != MM_OK) fail_msg("task %d: %s", nth, mm_last_error());
    bool happened = device_fault_happened();
    device_fault_set(DEVICE_FAULT_NONE, 0);
    assert_int_equal(s.iteration, ITERATIONS);
    assert_true(r.ladder_steps <= 1);
    assert_int_equal(strcmp(mm_policy_now(s.manager), "liveness") != 0, r.ladder_steps == 1);
    *steps += r.ladder_steps;
    float *weights = learned(&s, &found);
    assert_int_equal(found, n);
    if (memcmp(weights, expected, n * sizeof *weights) != 0) fail_msg("other weights, with a fault in task %d", nth);
    free(weights);
    session_fini(&s);
    return happened;
}

/* update: when weights are updated as memory runs out. Returns the number of iterations that were torn. */
static int run_out(nets_update_when update, int stride) {
    nets_net *net;
    session s;
    row r = {0};
    size_t n;
    int64_t steps = 0;
    target target = TARGET_DEFAULTS;
    expect_ok(nets_zoo_build("tiny", &net));
    expect_ok(target_init(&target));
    session_config config = config_of(net, &target);
    expect_ok(session_init(&s, &config));
    expect_ok(train(&s, &r));
    float *expected = learned(&s, &n);
    session_fini(&s);
    int nth = 1, torn = 0;
    target.update = update;
    while (run_short(net, &target, nth, expected, n, &steps, &torn)) nth += stride;
    assert_true(steps > 20);
    free(expected);
    target_fini(&target);
    nets_net_destroy(net);
    return torn;
}

TEST_CASE(memory_that_runs_out_at_any_task_changes_no_weight) { assert_int_equal(run_out(NETS_UPDATE_AT_END, 3), 0); }

TEST_CASE(memory_that_runs_out_between_updates_ends_the_training) {
    assert_true(run_out(NETS_UPDATE_IN_BACKWARD, 5) > 0);
}

/* Without a ladder, training fails where memory runs out, and keeps the results of the iterations before. */
TEST_CASE(memory_that_runs_out_without_a_ladder_ends_the_training) {
    nets_net *net;
    session s;
    row r = {0};
    target target = TARGET_DEFAULTS;
    expect_ok(nets_zoo_build("tiny", &net));
    expect_ok(target_init(&target));
    session_config config = config_of(net, &target);
    config.no_ladder = true;
    expect_ok(session_init(&s, &config));
    device_fault_set(DEVICE_FAULT_MEMORY_TASK, 40);
    assert_int_equal(train(&s, &r), MM_ERR_NOMEM);
    device_fault_set(DEVICE_FAULT_NONE, 0);
    int64_t updates;
    expect_ok(nets_exec_updates(s.train, &updates));
    assert_int_equal(updates, s.iteration);
    assert_true(s.iteration > 0 && s.iteration < ITERATIONS);
    session_fini(&s);
    target_fini(&target);
    nets_net_destroy(net);
}

/* ---------------------------------------------------------------- a host with little memory */

static mm_host_memory host; /* what the host has; machine_bytes 0: what it really has */

void __real_mm_host_memory_get(mm_host_memory *memory_out);
void __wrap_mm_host_memory_get(mm_host_memory *memory_out);

void __wrap_mm_host_memory_get(mm_host_memory *memory_out) {
    if (host.machine_bytes > 0)
        *memory_out = host;
    else
        __real_mm_host_memory_get(memory_out);
}

/* The session is refused with a message of one line that has both texts. */
static void expect_refused(const session_config *config, const char *text, const char *other) {
    session s;
    assert_int_equal(session_init(&s, config), MM_ERR_NOMEM);
    if (!strstr(mm_last_error(), text) || !strstr(mm_last_error(), other) || strchr(mm_last_error(), '\n'))
        fail_msg("%s", mm_last_error());
}

static void expect_begins(const session_config *config, int64_t *minimum_out, int64_t *pinned_out) {
    session s;
    expect_ok(session_init(&s, config));
    *minimum_out = s.minimum_bytes;
    *pinned_out = s.pinned_needed_bytes;
    session_fini(&s);
}

/* In a container of 150 MB, a training that takes 400 MiB would be killed without a word. */
TEST_CASE(what_the_control_group_does_not_leave_is_refused_before_anything_runs) {
    static const int64_t MACHINE = INT64_C(64) << 30;
    nets_net *net;
    int64_t least, pinned;
    target target = TARGET_DEFAULTS;
    expect_ok(nets_zoo_build("tiny", &net));
    expect_ok(target_init(&target));
    session_config config = config_of(net, &target);
    host = (mm_host_memory){MACHINE, 150000000, 130000000};
    config.budget_bytes = INT64_C(400) << 20;
    expect_refused(&config, "the budget is 419430400 bytes (400MiB)",
                   "130000000 bytes (124MiB) free in its control group");
    config.budget_bytes = 130000001;
    expect_refused(&config, "the budget is 130000001 bytes", "in its control group");
    config.budget_bytes = 130000000;
    expect_begins(&config, &least, &pinned);
    assert_int_equal(pinned, 0);
    config.budget_bytes = 0;
    host = (mm_host_memory){MACHINE, MACHINE, least - 1};
    expect_refused(&config, "this needs ", " free; choose a policy that needs less");
    host.free_bytes = least;
    expect_begins(&config, &least, &pinned);
    config.policies.text[0] = "swap:when=always";
    host.free_bytes = MACHINE;
    expect_begins(&config, &least, &pinned);
    assert_true(pinned > 0);
    config.budget_bytes = least; /* pinned memory is the host's, too */
    host.free_bytes = least + pinned - 1;
    config.pinned_bytes = pinned;
    expect_refused(&config, " for the budget and ", "of pinned memory are needed, this host has ");
    host.free_bytes = least + pinned;
    expect_begins(&config, &least, &pinned);
    config.pinned_bytes = PINNED_OPEN; /* then plans pin no more than the budget leaves */
    config.policies.text[0] = "swap";
    host.free_bytes = 3 * least;
    target_fini(&target);
    expect_ok(target_init(&target));
    config.target = target;
    config.budget_bytes = 3 * least - 50000;
    session s;
    expect_ok(session_init(&s, &config));
    assert_int_equal(s.pinned.bytes, 50000);
    assert_true(s.pinned_needed_bytes <= 50000);
    session_fini(&s);
    host.machine_bytes = 0;
    target_fini(&target);
    nets_net_destroy(net);
}
