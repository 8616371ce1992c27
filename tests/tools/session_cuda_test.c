/* SPDX-License-Identifier: MIT */
/* Sessions on the emulated CUDA device: their managers run the plans that were made before. Staging (the next batch is
 * copied while the device computes) takes a part of the budget and of free memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/io/safetensors.h"
#include "nets/zoo/zoo.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tests/cuda_emulation/control.h"
#include "tools/train/session.h"

enum { BATCH = 16 };

static const size_t MIB = 1 << 20;

typedef struct subject {
    nets_net *net;
    target target;
} subject;

static void subject_init_on(subject *u, const char *net, const char *device) {
    *u = (subject){.target = TARGET_DEFAULTS};
    u->target.device = device;
    cuda_emulation_reset();
    expect_ok(nets_zoo_build(net, &u->net));
    expect_ok(target_init(&u->target));
}

static void subject_init(subject *u, const char *net) { subject_init_on(u, net, "cuda"); }

static void subject_fini(subject *u) {
    target_fini(&u->target);
    nets_net_destroy(u->net);
}

/* other: a policy to switch to later; NULL: none. */
static session_config config_of(const subject *u, int64_t budget_bytes, const char *policy, const char *other) {
    session_config config = {.net = u->net,
                             .data = "synthetic:samples=32",
                             .batch = BATCH,
                             .target = u->target,
                             .budget_bytes = budget_bytes,
                             .no_ladder = true,
                             .pinned_bytes = PINNED_OPEN,
                             .seed = 3};
    config.policies.text[config.policies.n++] = policy;
    if (other) config.policies.text[config.policies.n++] = other;
    return config;
}

static need need_of(const subject *u, const char *policy) {
    const need_case c = {.net = u->net,
                         .batch = BATCH,
                         .mode = NETS_TRAIN,
                         .target = &u->target,
                         .policy = policy,
                         .pinned = {.bytes = INT64_MAX}};
    need n;
    expect_ok(need_init(&n, &c));
    return n;
}

/* Whether the budget has room for the next batch beside the least that each policy needs. If it has, plans leave that
 * room free. */
static bool is_room(const subject *u, int64_t budget_bytes, const char *policy, const char *other) {
    const char *policies[] = {policy, other};
    int64_t least = 0;
    for (int i = 0; i < 2; i++) {
        need n = need_of(u, policies[i]);
        if (need_most(&n)->minimum_bytes > least) least = need_most(&n)->minimum_bytes;
        need_fini(&n);
    }
    return budget_bytes == 0 || least + target_staged_bytes(&u->target, u->net, BATCH) <= budget_bytes;
}

/* Switches from one policy to the other and back, twice; each must fit. Returns whether batches are staged. */
static bool switch_to_and_fro(const subject *u, int64_t budget_bytes, const char *policy, const char *other) {
    session_config config = config_of(u, budget_bytes, policy, other);
    session s;
    expect_ok(session_init(&s, &config));
    for (int i = 0; i < 4; i++) {
        const char *next = i % 2 == 0 ? other : policy;
        if (mm_policy_set(s.manager, next) == MM_OK) continue;
        fail_msg("%s within %lld bytes: %s", next, (long long)s.config.budget_bytes, mm_last_error());
    }
    bool room = s.staged_bytes > 0;
    assert_int_equal(room, is_room(u, budget_bytes, policy, other));
    session_fini(&s);
    return room;
}

/* A switch to a policy fits in each budget: in a smaller budget a plan may need more pinned memory, and the manager
 * must have reserved that at first. */
TEST_CASE(policies_that_will_be_switched_to_fit_whatever_the_budget) {
    enum { LEAST = 9620000, STRIDE = 220000, BUDGETS = 6 };
    subject u;
    int rooms = 0;
    subject_init(&u, "resnet8");
    for (int i = 0; i < BUDGETS; i++)
        rooms += switch_to_and_fro(&u, LEAST + i * STRIDE, "recompute-swap", "swap-async");
    assert_in_range(rooms, 1, BUDGETS - 1);
    assert_true(switch_to_and_fro(&u, 0, "swap-async", "recompute-swap"));
    subject_fini(&u);
}

TEST_CASE(a_manager_plans_what_was_planned_without_one) {
    const int64_t budget = 17000000;
    const char *policy = "recompute-swap";
    subject u;
    session s;
    row found = {0};
    const session_run run = {.iterations = 1, .schedule = {.rate = 0.01f, .factor = 1}, .quiet = true};
    subject_init(&u, "resnet20");
    session_config config = config_of(&u, budget, policy, NULL);
    expect_ok(session_init(&s, &config));
    expect_ok(session_train(&s, &run, &found));
    need n = need_of(&u, policy);
    assert_true(s.staged_bytes > 0 && need_most(&n)->minimum_bytes + s.staged_bytes < budget);
    expect_ok(need_within(&n, 0, budget, INT64_MAX, s.staged_bytes));
    assert_int_equal(found.stash_bytes, need_most(&n)->planned.plan->stash_bytes);
    assert_int_equal(found.predicted_peak_bytes, need_most(&n)->planned.plan->peak_bytes);
    need_fini(&n);
    session_fini(&s);
    subject_fini(&u);
}

TEST_CASE(without_a_budget_batches_come_in_beside_the_computation_where_much_is_free) {
    const size_t others = 64 * MIB;
    subject u;
    session s;
    subject_init(&u, "resnet8");
    session_config config = config_of(&u, 0, "liveness", NULL);
    expect_ok(session_init(&s, &config));
    int64_t minimum = s.minimum_bytes, staged = s.staged_bytes;
    assert_true(staged > 0);
    assert_int_equal(s.config.budget_bytes, minimum + staged);
    session_fini(&s);
    cuda_emulation_set_memory(others + (size_t)(minimum + staged) + 8 * MIB, others);
    expect_ok(session_init(&s, &config));
    assert_int_equal(s.minimum_bytes, minimum);
    assert_int_equal(s.config.budget_bytes, minimum);
    assert_int_equal(s.staged_bytes, 0);
    session_fini(&s);
    cuda_emulation_set_memory((size_t)4 << 30, others);
    subject_fini(&u);
}

/* Of this file's last manager: cudaMalloc's calls before it had its arena. Only the timing of algorithms, and opening a
 * backend, call cudaMalloc. */
static long mallocs_before_arena;

mm_status __real_mm_manager_create_sized(const mm_options *options, size_t options_bytes, mm_manager **manager_out);
mm_status __wrap_mm_manager_create_sized(const mm_options *options, size_t options_bytes, mm_manager **manager_out);

mm_status __wrap_mm_manager_create_sized(const mm_options *options, size_t options_bytes, mm_manager **manager_out) {
    mallocs_before_arena = cuda_emulation_calls("cudaMalloc");
    return __real_mm_manager_create_sized(options, options_bytes, manager_out);
}

/* Beside an arena there may be no memory to time algorithms in: then a guess is taken, which may be slow. So a session
 * times those of all its graphs first: of parts of a batch, of an epoch's last batch, and of evaluation. */
TEST_CASE(all_algorithms_are_timed_before_the_arena_is_reserved) {
    static const struct {
        const char *net, *precision, *update;
        int64_t sub_batch;
    } CASES[] = {
        {"resnet8", "fp32", "by-layer", 0},
        {"resnet8", "bf16", NULL, 6},
        {"gpt,layers=1,width=16,heads=2,context=8,vocabulary=16", "bf16", NULL, 3},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        subject u = {.target = TARGET_DEFAULTS};
        session s;
        u.target.device = "cuda";
        u.target.precision = CASES[i].precision;
        u.target.update_text = CASES[i].update;
        cuda_emulation_reset();
        expect_ok(nets_zoo_build(CASES[i].net, &u.net));
        expect_ok(target_init(&u.target));
        session_config config = config_of(&u, 0, "recompute-swap", NULL);
        config.data = "synthetic:samples=40";
        config.test_data = "synthetic:samples=130"; /* 26 images */
        config.whole_epochs = config.evaluate = true;
        config.sub_batch = CASES[i].sub_batch;
        const long opened = cuda_emulation_calls("cudaMalloc");
        expect_ok(session_init(&s, &config));
        assert_true(mallocs_before_arena > opened);
        assert_int_equal(cuda_emulation_calls("cudaMalloc"), mallocs_before_arena);
        assert_true(s.train_last && s.eval && s.eval_last);
        session_fini(&s);
        subject_fini(&u);
    }
}

/* Returns the CUDA calls per iteration, counted after the calls that are made only once. */
static long train(const subject *u, mm_issue issue, row *found) {
    enum { WARM_UP = 2, COUNTED = 2 };
    session s;
    session_run run = {.iterations = WARM_UP, .schedule = {.rate = 0.01f, .factor = 1}, .quiet = true};
    session_config config = config_of(u, 0, "liveness", NULL);
    config.issue = issue;
    expect_ok(session_init(&s, &config));
    expect_ok(session_train(&s, &run, &(row){0}));
    long before = cuda_emulation_calls_here(NULL);
    run.iterations += COUNTED;
    expect_ok(session_train(&s, &run, found));
    long calls = (cuda_emulation_calls_here(NULL) - before) / COUNTED;
    session_fini(&s);
    return calls;
}

TEST_CASE(a_replayed_iteration_takes_the_host_fewer_calls_than_layers) {
    subject u;
    row replayed = {0}, stepwise = {0};
    subject_init(&u, "resnet8");
    long calls = train(&u, MM_ISSUE_INLINE, &replayed), step_calls = train(&u, MM_ISSUE_THREAD, &stepwise);
    assert_true(replayed.replays > 0 && replayed.host_seconds > 0);
    assert_true(stepwise.replays == 0 && stepwise.host_seconds > 0);
    assert_int_equal(replayed.layers, stepwise.layers);
    assert_true(calls < replayed.layers && stepwise.layers < step_calls);
    subject_fini(&u);
}

TEST_CASE(a_row_has_the_device_as_it_was_asked_for) {
    subject u;
    row found = {0};
    subject_init_on(&u, "resnet8", "cuda:1");
    (void)train(&u, MM_ISSUE_INLINE, &found);
    assert_string_equal(found.device, "cuda:1");
    assert_true(found.replays > 0);
    assert_false(cuda_emulation_has_context(0));
    subject_fini(&u);
    for (int host = 0; host < 2; host++) {
        target t = TARGET_DEFAULTS;
        t.device = host ? "host:1" : "cuda:2";
        assert_int_equal(target_init(&t), MM_ERR_NOT_FOUND);
        assert_non_null(strstr(mm_last_error(), host ? "--device: no device 'host:1': there is 1" : "there are 2"));
        target_fini(&t);
    }
    assert_true(target_is_host("host:0") && target_is_host("host") && !target_is_host("hos"));
}

/* Loads state `from` unless NULL, trains, and saves state `to`. */
static void pass_through(const subject *u, int iterations, const char *from, const char *to) {
    session s;
    nets_safetensors_file *file;
    session_config config = config_of(u, 0, "liveness", NULL);
    const session_run run = {.iterations = iterations, .schedule = {.rate = 0.01f, .factor = 1}, .quiet = true};
    expect_ok(session_init(&s, &config));
    if (from) {
        expect_ok(nets_safetensors_open(from, &file));
        expect_ok(session_load(&s, file, from));
        nets_safetensors_close(file);
    }
    if (iterations) expect_ok(session_train(&s, &run, &(row){0}));
    expect_ok(session_save(&s, to, NULL));
    session_fini(&s);
}

static void assert_same_file(const char *a, const char *b) {
    FILE *files[2] = {fopen(a, "rb"), fopen(b, "rb")};
    assert_true(files[0] && files[1]);
    for (int64_t at = 0;; at++) {
        const int x = getc(files[0]), y = getc(files[1]);
        if (x != y) fail_msg("%s and %s differ at byte %lld", a, b, (long long)at);
        if (x == EOF) break;
    }
    for (int i = 0; i < 2; i++) fclose(files[i]);
}

/* On CUDA, convolutions' weights and their states have another memory order than on the host and in files. */
TEST_CASE(states_of_host_and_cuda_are_the_same_bytes) {
    const char *root = getenv("TEST_TMPDIR");
    char paths[3][512];
    for (int i = 0; i < 3; i++) snprintf(paths[i], sizeof paths[i], "%s/state%d", root ? root : "/tmp", i);
    for (int i = 0; i < 2; i++) {
        subject cuda, host;
        subject_init_on(&host, "resnet8", "host");
        subject_init(&cuda, "resnet8");
        cuda.target.optimizer.id = host.target.optimizer.id = i == 0 ? NETS_SGD : NETS_ADAMW;
        pass_through(&cuda, 1, NULL, paths[0]);
        pass_through(&host, 0, paths[0], paths[1]);
        assert_same_file(paths[0], paths[1]);
        pass_through(&cuda, 0, paths[1], paths[2]);
        assert_same_file(paths[1], paths[2]);
        subject_fini(&cuda);
        subject_fini(&host);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(unlink(paths[i]), 0);
}
