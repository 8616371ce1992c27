/* SPDX-License-Identifier: MIT */
/* Runs of random networks, optimizers, updates, homes, policies and budgets, which change between iterations: the
 * weights and states end with the bits of a run that keeps everything on the device. Some have little pinned memory,
 * and a disk. Each run has a seed of its own; a failure prints it, and MM_SUITE_RUN=SEED runs it alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/manager/prepare.h"
#include "tests/core/deep.h"
#include "tests/core/random.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 2, ITERATIONS = 4, SPEC_CAPACITY = 128 };
enum { PINNED_BYTES = 64 << 20, DISK_BYTES = 64 << 20 };

/* NULL: suite_net_init_dropped. Batch norms and residuals; biases that a ReLU adds; a tied embedding; a loss with a
 * weight of its own; adapters; parameters of 4096 elements, which have codes. */
static const char *const NETS[] = {
    NULL,
    "tiny@16,thin=2",
    "cifar-resnet8@16,thin=8",
    "vgg11@32x32,classes=10,thin=16",
    "gpt,layers=1,width=32,heads=2,context=8,vocabulary=130,dropout=0.1",
    "llama-15m,layers=2,width=32,heads=2,kv_heads=1,hidden=64,context=8,vocabulary=64",
    "llama-15m,layers=1,width=32,heads=2,kv_heads=1,hidden=64,context=8,vocabulary=64 lora:rank=4",
};
enum { N_NETS = sizeof NETS / sizeof *NETS };

static const char *const OPTIMIZERS[] = {"sgd", "sgd,momentum=0", "adamw", "adamw,states=8bit"};
enum { N_OPTIMIZERS = sizeof OPTIMIZERS / sizeof *OPTIMIZERS };

/* Every one takes resident=. */
static const char *const POLICIES[] = {
    "liveness",
    "swap-async",
    "swap-async:when=always",
    "recompute",
    "recompute:mode=sqrt,when=always",
    "recompute:mode=nested,when=always",
    "recompute:mode=memory,when=always",
    "recompute-swap:when=always",
    "freelunch:codec=raw,eligible=all,when=always",
    "freelunch:codec=zvc,eligible=all,when=always",
    "rules:relu=mask;conv=recompute;*=swap,when=always",
    "hybrid:codec=zvc",
    "auto",
};
enum { N_POLICIES = sizeof POLICIES / sizeof *POLICIES };

/* Policies without homes in pinned memory, but for what the host updates. */
static const char *const PLAIN[] = {"naive", "swap:when=always", "vdnn-all:when=always", "cdma:when=always",
                                    "gist:lossless"};
enum { N_PLAIN = sizeof PLAIN / sizeof *PLAIN };

static const char *const RESIDENT[] = {"all", "needed", "none"};

/* A run, as its seed draws it. */
typedef struct random_run {
    int net, optimizer;
    nets_optimizer how;
    suite_net s;
} random_run;

/* Weights of runs without a limit, by network, optimizer and precision; NULL: not computed yet. */
typedef struct kept {
    float *weights[N_NETS][N_OPTIMIZERS][2];
    int on_disk; /* how often homes were on the disk */
} kept;

static const char *directory(void) {
    const char *given = getenv("TEST_TMPDIR");
    return given ? given : "/tmp";
}

static void init_net(suite_net *s, const char *device, int net) {
    if (NETS[net])
        suite_net_init(s, device, NETS[net], BATCH);
    else
        suite_net_init_dropped(s, device, BATCH);
}

static const float *expected(kept *all, const random_run *run) {
    const int half = run->s.precision == NETS_BF16;
    float **weights = &all->weights[run->net][run->optimizer][half];
    nets_optimizer on_device;
    suite_net s;
    size_t n;
    if (*weights) return *weights;
    init_net(&s, run->s.device, run->net);
    assert_int_equal(nets_optimizer_parse(OPTIMIZERS[run->optimizer], &on_device), MM_OK);
    s.optimizer = &on_device;
    s.precision = run->s.precision;
    *weights = suite_expected(&s, "liveness", ITERATIONS, &n);
    suite_net_fini(&s);
    return *weights;
}

static void draw(random_run *run, const char *device, uint64_t *random) {
    *run = (random_run){.net = random_below(random, N_NETS), .optimizer = random_below(random, N_OPTIMIZERS)};
    init_net(&run->s, device, run->net);
    suite_net *s = &run->s;
    assert_int_equal(nets_optimizer_parse(OPTIMIZERS[run->optimizer], &run->how), MM_OK);
    run->how.on_host = random_chance(random, 30);
    s->update = run->how.on_host ? NETS_UPDATE_IN_BACKWARD : (nets_update_when)random_below(random, 3);
    s->precision = random_chance(random, 30) ? NETS_BF16 : NETS_FP32;
    s->strip_elems = random_chance(random, 50) ? 1 + random_below(random, 6000) : 0;
}

static void draw_policy(uint64_t *random, char spec_out[SPEC_CAPACITY]) {
    if (random_chance(random, 15)) {
        snprintf(spec_out, SPEC_CAPACITY, "%s", PLAIN[random_below(random, N_PLAIN)]);
        return;
    }
    const char *policy = POLICIES[random_below(random, N_POLICIES)];
    snprintf(spec_out, SPEC_CAPACITY, "%s%cresident=%s", policy, strchr(policy, ':') ? ',' : ':',
             RESIDENT[random_below(random, 3)]);
}

static void collect(suite_run *r) {
    nets_result result;
    if (nets_exec_collect(r->exec, &result) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(result.halted, 0);
}

/* Some iterations are still running when the next one is submitted. */
static void iterate(suite_run *r, uint64_t *random, int n) {
    const suite_net *s = r->s;
    for (int i = 0; i < n; i++) {
        if (nets_exec_submit(r->exec, s->images, s->labels, s->batch, SUITE_RATE) != MM_OK)
            fail_msg("%s", mm_last_error());
        if (nets_exec_outstanding(r->exec) == NETS_AHEAD || random_chance(random, 50)) collect(r);
    }
    while (nets_exec_outstanding(r->exec) > 0) collect(r);
}

static void run_one(const char *device, kept *all, int seed) {
    uint64_t random = (uint64_t)seed;
    random_run run;
    suite_run r;
    char spec[SPEC_CAPACITY];
    draw(&run, device, &random);
    const float *weights = expected(all, &run);
    suite_net *s = &run.s;
    uint64_t draws = ~random;
    const bool disk = (!run.how.on_host || run.how.id == NETS_ADAMW) && random_chance(&draws, 50);
    s->optimizer = &run.how;
    const int64_t least = suite_needs(s, "recompute:mode=memory,when=always,resident=none", 0).device_bytes;
    const int64_t most = suite_needs(s, "liveness", 0).device_bytes;
    int64_t pinned = disk ? most / 32 + (int64_t)(random_next(&draws) % (uint64_t)(most / 4)) : PINNED_BYTES;
    if (disk && run.how.on_host) pinned = suite_needs(s, "liveness", 0).pinned_bytes / 4 * 3; /* not for all states */
    print_message("run %d: %s %s%s%s, update %d, strips of %lld, %lld to %lld bytes%s, %lld pinned:", seed,
                  nets_net_name(s->net), OPTIMIZERS[run.optimizer], run.how.on_host ? " on=host" : "",
                  s->precision == NETS_BF16 ? " bf16" : "", (int)s->update, (long long)s->strip_elems, (long long)least,
                  (long long)most, disk ? ", a disk" : "", (long long)pinned);
    suite_run_init(&r, s,
                   &(mm_options){.device_bytes = most,
                                 .pinned_bytes = pinned,
                                 .policy = "liveness",
                                 .disk = disk ? directory() : NULL,
                                 .disk_bytes = disk ? DISK_BYTES : 0,
                                 .issue = random_chance(&random, 30) ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                                 .self_check = random_chance(&random, 30),
                                 .measure_touched = true});
    for (int done = 0, n; done < ITERATIONS; done += n) {
        n = 1 + random_below(&random, ITERATIONS - done);
        draw_policy(&random, spec);
        const int64_t budget = least + (int64_t)(random_next(&random) % (uint64_t)(most - least + 1));
        print_message(" %s, %lld bytes: %d;", spec, (long long)budget, n);
        suite_switch(&r, spec, budget);
        all->on_disk += mm_plan_now(r.manager, nets_exec_lowered(r.exec)->graph)->disk_base_bytes > 0;
        iterate(&r, &random, n);
    }
    suite_expect_end(&r, most, weights);
    print_message(" as expected\n");
    suite_net_fini(s);
}

static void weights_are_those_of_a_run_that_keeps_all(void **state) {
    const char *device = *state, *only = getenv("MM_SUITE_RUN");
    const bool host = strcmp(device, "host") == 0;
    const int usual = test_is_sanitized() ? 12 : 50, runs = host ? test_depth(usual, 1000) : test_depth(4, 60);
    kept all = {0};
    for (int seed = only ? atoi(only) : 1, end = only ? seed : runs; seed <= end; seed++) run_one(device, &all, seed);
    if (!only && runs < 53) run_one(device, &all, 53); /* even the count of steps is on the disk, for the host */
    print_message("%d times homes were on the disk\n", all.on_disk);
    assert_true(only || all.on_disk >= runs / 12);
    for (int net = 0; net < N_NETS; net++)
        for (int o = 0; o < N_OPTIMIZERS; o++)
            for (int half = 0; half < 2; half++) free(all.weights[net][o][half]);
}

static int run(const char *device) {
    const struct CMUnitTest tests[] = {SUITE_TEST(weights_are_those_of_a_run_that_keeps_all, device)};
    return cmocka_run_group_tests_name(device, tests, NULL, NULL);
}

int main(void) { return suite_on_each_device(run); }
