/* What the training loop calls of CUDA, counted on the emulation: nothing that synchronises a stream or the device,
 * allocates or frees; and how many calls an iteration is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/cuda_emulation/control.h"
#include "tests/suite/suite_rig.h"

enum { BATCH = 2, WARM_UP = 3, ITERATIONS = 2 };

typedef struct loop {
    suite_net s;
    mm_manager *manager;
    nets_exec *exec;
} loop;

static void expect_ok(mm_status status) {
    if (status != MM_OK) fail_msg("%s", mm_last_error());
}

/* net NULL: the smallest. */
static void start(loop *l, const char *net, const char *policy, mm_issue issue) {
    const mm_options options = {
        .device = "cuda", .device_bytes = 48 << 20, .pinned_bytes = 16 << 20, .policy = policy, .issue = issue};
    cuda_emulation_reset();
    if (net)
        suite_net_init(&l->s, "cuda", net, BATCH);
    else
        suite_net_init_dropped(&l->s, "cuda", BATCH);
    expect_ok(mm_manager_create(&options, &l->manager));
    expect_ok(nets_exec_create(l->s.net, BATCH, NETS_TRAIN, l->manager, "cuda", &SUITE_SGD, &l->exec));
    expect_ok(nets_exec_init(l->exec, SUITE_SEED));
}

static void finish(loop *l) {
    nets_exec_destroy(l->exec);
    mm_manager_destroy(l->manager);
    suite_net_fini(&l->s);
}

/* As a training loop does: one iteration runs while the next is enqueued. */
static void iterate(loop *l, int n) {
    nets_result result;
    for (int i = 0; i < n; i++) {
        if (nets_exec_outstanding(l->exec) == NETS_AHEAD) expect_ok(nets_exec_collect(l->exec, &result));
        expect_ok(nets_exec_submit(l->exec, l->s.images, l->s.labels, BATCH, SUITE_RATE));
    }
}

static long calls_of(const char *const *names) {
    long calls = 0;
    for (; *names; names++) calls += cuda_emulation_calls(*names);
    return calls;
}

static long calls_here(void) {
    long calls = 0;
    const char *name;
    for (size_t i = 0; (name = cuda_emulation_name(i)); i++) calls += cuda_emulation_calls_here(name);
    return calls;
}

static const char *const FORBIDDEN[] = {"cudaDeviceSynchronize",
                                        "cudaStreamSynchronize",
                                        "cudaStreamQuery",
                                        "cudaMalloc",
                                        "cudaFree",
                                        "cudaHostAlloc",
                                        "cudaFreeHost",
                                        "cudaMemGetInfo",
                                        "cuMemCreate",
                                        "cuMemRelease",
                                        "cuMemMap",
                                        "cuMemUnmap",
                                        "cuMemSetAccess",
                                        "cuMemAddressReserve",
                                        "cuMemAddressFree",
                                        "cudaEventCreateWithFlags",
                                        "cudaEventDestroy",
                                        "cudaStreamCreateWithPriority",
                                        "cudaStreamDestroy",
                                        "cudaGraphInstantiate",
                                        "cudaGraphExecDestroy",
                                        "cudaStreamBeginCapture",
                                        NULL};

static const char *const POLICIES[] = {"liveness", "recompute:when=always", "swap-async:when=always",
                                       "freelunch:rate=8,when=always", "hybrid:rate=8,when=always"};
enum { POLICIES_N = sizeof POLICIES / sizeof *POLICIES };

/* The one thing that it waits for is the event of an iteration that is NETS_AHEAD behind: where its result lies. */
static void nothing_of_the_loop_synchronises_allocates_or_frees(void **state) {
    (void)state;
    static const char *const waits[] = {"cudaEventSynchronize", NULL};
    for (int p = 0; p < POLICIES_N; p++)
        for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
            loop l;
            start(&l, NULL, POLICIES[p], (mm_issue)issue);
            iterate(&l, WARM_UP);
            long before = calls_of(FORBIDDEN), waited = calls_of(waits);
            iterate(&l, ITERATIONS);
            if (calls_of(FORBIDDEN) != before)
                fail_msg("%s, issue %d: %ld calls that synchronise, allocate or free in %d iterations", POLICIES[p],
                         issue, calls_of(FORBIDDEN) - before, ITERATIONS);
            assert_int_equal(calls_of(waits) - waited, ITERATIONS);
            finish(&l);
        }
}

/* Batch, labels, rate; the graph; loss, correct, their event; the wait for an earlier one's. */
static void a_recorded_iteration_takes_eight_calls_however_many_layers(void **state) {
    (void)state;
    enum { CALLS = 8 };
    static const char policy[] = "hybrid:rate=8,when=always";
    long calls[2];
    loop l;
    for (int issue = MM_ISSUE_THREAD; issue <= MM_ISSUE_INLINE; issue++) {
        start(&l, "resnet18@32,classes=5,thin=32", policy, (mm_issue)issue);
        iterate(&l, WARM_UP);
        long before = calls_here();
        iterate(&l, ITERATIONS);
        calls[issue] = (calls_here() - before) / ITERATIONS;
        print_message("%ld calls of the training thread an iteration, %.2f a layer, %s\n", calls[issue],
                      (double)calls[issue] / nets_net_layers(l.s.net),
                      issue == MM_ISSUE_INLINE ? "recorded" : "step by step");
        finish(&l);
    }
    assert_int_equal(calls[MM_ISSUE_INLINE], CALLS);
    assert_true(calls[MM_ISSUE_THREAD] > 10 * CALLS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_the_loop_synchronises_allocates_or_frees),
        cmocka_unit_test(a_recorded_iteration_takes_eight_calls_however_many_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
