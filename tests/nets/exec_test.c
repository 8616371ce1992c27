/* The executor under a manager: equal bits to the reference executor, whatever the policy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/graph.h"
#include "nets/exec.h"
#include "nets/exec_kept.h"
#include "nets/zoo/zoo.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 8, ITERATIONS = 3 };
static const nets_sgd SGD = {.momentum = 0.9f, .weight_decay = 1e-4f};
static const float RATE = 0.05f;

typedef struct fixture {
    nets_net *net;
    mm_manager *manager;
    nets_exec *train;
    float *images;
    int32_t *labels;
} fixture;

static mm_status make_manager(const char *policy, int64_t bytes, mm_manager **manager_out) {
    const mm_options options = {
        .device = "host", .device_bytes = bytes, .pinned_bytes = 64 << 20, .policy = policy, .self_check = true};
    return mm_manager_create(&options, manager_out);
}

/* In a manager that is there. */
static void start_in(fixture *f, const char *net) {
    assert_int_equal(nets_zoo_build(net, &f->net), MM_OK);
    if (nets_exec_create(f->net, BATCH, NETS_TRAIN, f->manager, "host", &SGD, &f->train) != MM_OK)
        fail_msg("%s", mm_last_error());
    assert_int_equal(nets_exec_init(f->train, 11), MM_OK);
    ref_batch(f->net, BATCH, 4, &f->images, &f->labels);
}

static void start(fixture *f, const char *net, const char *policy) {
    if (make_manager(policy, 256 << 20, &f->manager) != MM_OK) fail_msg("%s", mm_last_error());
    start_in(f, net);
}

static void finish(fixture *f) {
    nets_exec_destroy(f->train);
    mm_manager_destroy(f->manager);
    nets_net_destroy(f->net);
    free(f->images);
    free(f->labels);
}

static nets_result iterate(fixture *f, nets_exec *exec, int64_t n) {
    nets_result result;
    if (nets_exec_iteration(exec, f->images, f->labels, n, RATE, &result) != MM_OK) fail_msg("%s", mm_last_error());
    return result;
}

static void expect_same_as_reference(const fixture *f, const ref_exec *ref) {
    for (int p = 0; p < nets_net_params(f->net); p++) {
        const nets_param *param = nets_net_param(f->net, p);
        assert_memory_equal(nets_exec_param(f->train, p, NETS_VALUE), ref_tensor(ref, param->name),
                            (size_t)param->elems * 4);
        if (!param->learned) continue;
        char name[160] = "grad.";
        strcat(name, param->name);
        assert_memory_equal(nets_exec_param(f->train, p, NETS_GRADIENT), ref_tensor(ref, name),
                            (size_t)param->elems * 4);
    }
}

static void train_as_reference(const char *net, const char *policy) {
    fixture f;
    ref_exec ref;
    start(&f, net, policy);
    ref_init(&ref, f.net, BATCH, NETS_TRAIN, (ref_options){0}, 11, NULL);
    ref.sgd = SGD;
    for (int i = 0; i < ITERATIONS; i++) {
        float expected = ref_iteration(&ref, f.images, f.labels, RATE);
        assert_true(iterate(&f, f.train, BATCH).loss == expected);
    }
    expect_same_as_reference(&f, &ref);
    ref_fini(&ref);
    finish(&f);
}

static void resnet20_trains_as_the_reference_under_naive(void **state) {
    (void)state;
    train_as_reference("resnet20", "naive");
}

static void resnet20_trains_as_the_reference_under_liveness(void **state) {
    (void)state;
    train_as_reference("resnet20", "liveness");
}

static void tiny_trains_as_the_reference_under_either(void **state) {
    (void)state;
    train_as_reference("tiny", "naive");
    train_as_reference("tiny", "liveness");
}

static void smaller_batch_and_evaluation_share_the_parameters(void **state) {
    (void)state;
    fixture f;
    nets_exec *last, *eval;
    start(&f, "tiny", "liveness");
    assert_int_equal(nets_exec_create(f.net, 3, NETS_TRAIN, f.manager, "host", &SGD, &last), MM_OK);
    assert_int_equal(nets_exec_create(f.net, BATCH, NETS_EVAL, f.manager, "host", NULL, &eval), MM_OK);
    assert_ptr_equal(nets_exec_param(last, 0, NETS_VALUE), nets_exec_param(f.train, 0, NETS_VALUE));
    assert_ptr_equal(nets_exec_param(eval, 0, NETS_VALUE), nets_exec_param(f.train, 0, NETS_VALUE));
    assert_null(nets_exec_param(eval, 0, NETS_GRADIENT));
    nets_result before = iterate(&f, eval, BATCH), after = {0};
    for (int i = 0; i < 40; i++) {
        iterate(&f, f.train, BATCH);
        iterate(&f, last, 3);
        after = iterate(&f, eval, BATCH);
    }
    assert_true(after.loss < 0.7f * before.loss);
    assert_true(after.correct > BATCH / 2 && after.correct <= BATCH);
    nets_exec_destroy(eval);
    nets_exec_destroy(last);
    finish(&f);
}

static void initial_values_are_set_again_by_init(void **state) {
    (void)state;
    fixture f;
    start(&f, "tiny", "liveness");
    float first = iterate(&f, f.train, BATCH).loss;
    assert_true(iterate(&f, f.train, BATCH).loss != first);
    assert_int_equal(nets_exec_init(f.train, 11), MM_OK);
    assert_true(iterate(&f, f.train, BATCH).loss == first);
    finish(&f);
}

static void wrong_batch_or_label_is_refused_and_the_executor_stays_usable(void **state) {
    (void)state;
    fixture f;
    nets_result result;
    start(&f, "tiny", "liveness");
    assert_int_equal(nets_exec_iteration(f.train, f.images, f.labels, BATCH - 1, RATE, &result), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "7 images for a batch of 8"));
    int32_t label = f.labels[2];
    f.labels[2] = 10;
    assert_int_equal(nets_exec_iteration(f.train, f.images, f.labels, BATCH, RATE, &result), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "label 10 of image 2"));
    f.labels[2] = label;
    iterate(&f, f.train, BATCH);
    finish(&f);
}

static void batch_above_the_budget_is_infeasible(void **state) {
    (void)state;
    nets_net *net;
    mm_manager *manager;
    nets_exec *exec;
    assert_int_equal(nets_zoo_build("resnet20", &net), MM_OK);
    assert_int_equal(make_manager("naive", 32 << 20, &manager), MM_OK);
    assert_int_equal(nets_exec_create(net, 128, NETS_TRAIN, manager, "host", &SGD, &exec), MM_ERR_INFEASIBLE);
    assert_non_null(strstr(mm_last_error(), "needs at least"));
    mm_manager_destroy(manager);
    nets_net_destroy(net);
}

/* When the count of updates has arrived, everything has: it tells whether an iteration that failed can be undone. */
static void the_count_of_updates_is_the_last_that_is_kept(void **state) {
    (void)state;
    for (int below = 0; below < 2; below++) { /* all statistics, where somebody gave it its place before */
        fixture f;
        uint32_t counts[NETS_RNG_WORDS] = {11, 12, 13, 14};
        nets_kept kept = {0};
        assert_int_equal(make_manager("liveness", 256 << 20, &f.manager), MM_OK);
        if (below) assert_int_equal(mm_persistent_add(f.manager, "rng", sizeof counts), MM_OK);
        start_in(&f, "tiny");
        const nets_lowered *lowered = nets_exec_lowered(f.train);
        const char *rng = mm_graph_tensor(lowered->graph, lowered->rng)->name;
        assert_int_equal(mm_persistent_set(f.manager, rng, 0, counts, sizeof counts), MM_OK);
        assert_int_equal(nets_kept_init(&kept, f.manager, lowered), MM_OK);
        assert_true(kept.rng_offset >= 0 && kept.rng_offset + (int64_t)sizeof counts <= kept.bytes);
        assert_int_equal(nets_kept_save(&kept, 0, mm_compute_stream(f.manager)), MM_OK);
        assert_int_equal(mm_stream_sync(mm_compute_stream(f.manager)), MM_OK);
        assert_memory_equal(kept.memory + kept.rng_offset, counts, sizeof counts);
        /* From there to its end the copy is one piece of the arena. */
        assert_memory_equal(kept.memory + kept.rng_offset, mm_persistent_data(f.manager, rng, NULL),
                            (size_t)(kept.bytes - kept.rng_offset));
        nets_kept_fini(&kept);
        finish(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resnet20_trains_as_the_reference_under_naive),
        cmocka_unit_test(resnet20_trains_as_the_reference_under_liveness),
        cmocka_unit_test(tiny_trains_as_the_reference_under_either),
        cmocka_unit_test(smaller_batch_and_evaluation_share_the_parameters),
        cmocka_unit_test(initial_values_are_set_again_by_init),
        cmocka_unit_test(wrong_batch_or_label_is_refused_and_the_executor_stays_usable),
        cmocka_unit_test(the_count_of_updates_is_the_last_that_is_kept),
        cmocka_unit_test(batch_above_the_budget_is_infeasible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
