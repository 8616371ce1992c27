/* SPDX-License-Identifier: MIT */
/* Training under policy comet, which now and then samples an iteration to choose error bounds of its codes. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/manager/bounds.h"
#include "mm/manager/figures.h"
#include "mm/manager/sampled.h"
#include "nets/exec/exec.h"
#include "nets/zoo/zoo.h"
#include "tests/core/test_case.h"
#include "tests/nets/ref_exec.h"

enum { BATCH = 8, EVERY = 4, LAYERS = 64 };
static const nets_optimizer SGD = {.momentum = 0.9f, .weight_decay = 1e-4f};

typedef struct fixture {
    nets_net *net;
    mm_manager *manager;
    nets_exec *exec;
    const mm_graph *graph;
    float *images;
    int32_t *labels;
} fixture;

static void expect_ok(mm_status status) {
    if (status != MM_OK) fail_msg("%s", mm_last_error());
}

static void init(fixture *f, const char *policy) {
    const mm_options options = {.device = "host",
                                .device_bytes = 64 << 20,
                                .pinned_bytes = 64 << 20,
                                .policy = policy,
                                .measure_touched = true};
    expect_ok(mm_manager_create(&options, &f->manager));
    expect_ok(nets_zoo_build("resnet20", &f->net));
    expect_ok(nets_exec_create(f->net, BATCH, NETS_TRAIN, f->manager, "host", &SGD, &f->exec));
    expect_ok(nets_exec_init(f->exec, 11));
    f->graph = nets_exec_lowered(f->exec)->graph;
    ref_batch(f->net, BATCH, 4, &f->images, &f->labels);
}

static void fini(fixture *f) {
    nets_exec_destroy(f->exec);
    mm_manager_destroy(f->manager);
    nets_net_destroy(f->net);
    free(f->images);
    free(f->labels);
}

static void iterate(fixture *f, int n) {
    nets_result result;
    for (int i = 0; i < n; i++) expect_ok(nets_exec_iteration(f->exec, f->images, f->labels, BATCH, 0.05f, &result));
}

static int64_t age(fixture *f) {
    int64_t found;
    expect_ok(mm_sampling_age(f->manager, f->graph, &found));
    return found;
}

/* Bytes of encoded maps per byte of code, in the last iteration that ran the graph's own plan. */
static double ratio(fixture *f) {
    mm_code_size sizes[LAYERS];
    int n;
    double maps = 0, codes = 0;
    expect_ok(mm_code_sizes(f->manager, f->graph, sizes, LAYERS, &n));
    assert_in_range(n, 1, LAYERS);
    for (int i = 0; i < n; i++) {
        if (sizes[i].body_bytes == 0) continue; /* a mask */
        maps += (double)mm_graph_tensor(f->graph, sizes[i].tensor)->bytes;
        codes += (double)sizes[i].bytes;
    }
    return codes > 0 ? maps / codes : 0;
}

TEST_CASE(the_first_iteration_gives_the_bounds_and_each_fourth_after_it_new_ones) {
    fixture f;
    mm_sampled s;
    init(&f, "comet:every=4,when=always");
    assert_int_equal(age(&f), -1);
    assert_false(mm_sampling_guards(f.manager, f.graph));
    iterate(&f, 1);
    assert_int_equal(age(&f), 1);
    expect_ok(mm_sampled_get(f.manager, f.graph, &s));
    assert_int_equal(s.n, 20); /* all convolutions but the first, which reads images */
    float first[LAYERS];
    for (int i = 0; i < s.n; i++) {
        const mm_layer_sample *l = &s.samples[i];
        first[i] = s.bounds[s.coded[i]];
        assert_true(first[i] > 0 && first[i] <= s.verdicts[i].bound);
        assert_true(l->nonzero_share > 0.2 && l->nonzero_share < 1); /* their inputs are outputs of ReLUs */
        assert_true(l->gradient_mean > 0 && l->gradient_max > l->gradient_mean && l->gradient_sum2 > 0);
        assert_true(l->momentum_mean > 0 && l->measured_sigma < 0);
        assert_int_equal(l->batch, BATCH);
    }
    iterate(&f, EVERY - 1);
    assert_int_equal(age(&f), EVERY);
    assert_true(mm_sampling_guards(f.manager, f.graph));
    iterate(&f, 1);
    assert_int_equal(age(&f), 1);
    expect_ok(mm_sampled_get(f.manager, f.graph, &s));
    for (int i = 0; i < s.n; i++) assert_true(s.bounds[s.coded[i]] != first[i]);
    fini(&f);
}

/* The prediction ignores the padding and the filter of small values. The tolerance of 30 % is twice the error that this
 * causes here. */
TEST_CASE(what_was_predicted_is_measured_and_the_budget_kept) {
    fixture f;
    mm_sampled s;
    mm_touched touched;
    mm_stats stats;
    init(&f, "comet:every=4,when=always");
    iterate(&f, EVERY + 1);
    expect_ok(mm_sampled_get(f.manager, f.graph, &s));
    for (int i = 0; i < s.n; i++) {
        const double predicted = s.verdicts[i].predicted_sigma, measured = s.samples[i].measured_sigma;
        const char *name = mm_graph_layer(f.graph, s.watched[i].layer)->name;
        if (!(measured > 0.7 * predicted && measured < 1.3 * predicted))
            fail_msg("%s: predicted %g, measured %g", name, predicted, measured);
    }
    if (!(ratio(&f) > 3)) fail_msg("%g bytes of maps a byte of code", ratio(&f));
    iterate(&f, 2);
    expect_ok(mm_touched_get(f.manager, &touched));
    mm_stats_get(f.manager, &stats);
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes <= stats.predicted_peak_bytes);
    assert_int_equal(stats.iterations, EVERY + 3); /* rehearsals are not counted */
    fini(&f);
}

enum { PARTS = 3 };

typedef struct parted {
    fixture f;
    nets_backend *backend;
    const mm_graph *graphs[PARTS]; /* last, first, middle */
} parted;

static void parted_init(parted *p, const char *policy, int64_t sub_batch) {
    init(&p->f, policy);
    nets_exec_destroy(p->f.exec);
    expect_ok(nets_backend_open("host", NULL, &p->backend));
    expect_ok(nets_exec_create_with(p->f.net, BATCH, NETS_TRAIN, p->f.manager, p->backend, &SGD,
                                    &(nets_exec_options){.sub_batch = sub_batch}, &p->f.exec));
    expect_ok(nets_exec_init(p->f.exec, 11));
    for (int i = 0; i < PARTS; i++) p->graphs[i] = nets_exec_lowered_pass(p->f.exec, i)->graph;
}

static void parted_fini(parted *p) {
    nets_exec_destroy(p->f.exec);
    p->f.exec = NULL;
    nets_backend_close(p->backend);
    fini(&p->f);
}

static void expect_ages(parted *p, int64_t expected) {
    for (int i = 0; i < PARTS; i++) {
        p->f.graph = p->graphs[i];
        if (age(&p->f) != expected)
            fail_msg("%s: age %d, expected %d", mm_graph_name(p->graphs[i]), (int)age(&p->f), (int)expected);
    }
}

static float *weights_of(const fixture *f, size_t *n_out) {
    size_t n = 0;
    for (int i = 0; i < nets_net_params(f->net); i++) n += (size_t)nets_net_param(f->net, i)->elems;
    float *all = malloc(n * sizeof *all), *at = all;
    assert_non_null(all);
    for (int i = 0; i < nets_net_params(f->net); i++) {
        expect_ok(nets_exec_param_get(f->exec, i, NETS_VALUE, at));
        at += nets_net_param(f->net, i)->elems;
    }
    *n_out = n;
    return all;
}

static void expect_compared(parted *p, bool guard) {
    mm_sampled s;
    for (int i = 0; i < PARTS; i++) {
        expect_ok(mm_sampled_get(p->f.manager, p->graphs[i], &s));
        assert_int_equal(s.n, 20);
        for (int l = 0; l < s.n; l++) {
            const double predicted = s.verdicts[l].predicted_sigma, measured = s.samples[l].measured_sigma;
            if (guard ? !(measured > 0.4 * predicted && measured < 2 * predicted) : measured >= 0)
                fail_msg("%s, %s: predicted %g, measured %g", mm_graph_name(p->graphs[i]),
                         mm_graph_layer(p->graphs[i], s.watched[l].layer)->name, predicted, measured);
        }
    }
}

/* A batch of 8 is computed as 2 + 2 + 2 + 2: the two passes in the middle share a graph, which samples once; and as 3 +
 * 3 + 2: every pass samples. Equal weights with and without guard show that rehearsals restore the earlier passes'
 * gradients. */
TEST_CASE(with_sub_batches_every_counts_updates_and_each_pass_is_compared) {
    float *weights[2];
    size_t n;
    for (int i = 0; i < 4; i++) {
        const bool guard = i % 2;
        parted p;
        parted_init(&p, guard ? "comet:every=2,when=always" : "comet:every=2,when=always,guard=off", 2 + i / 2);
        for (int age = 1; age <= 3; age++) {
            iterate(&p.f, 1);
            expect_ages(&p, age == 3 ? 1 : age);
        }
        expect_compared(&p, guard);
        weights[guard] = weights_of(&p.f, &n);
        if (i == 3) assert_memory_equal(weights[0], weights[1], n * sizeof(float));
        if (i != 2) free(weights[guard]);
        parted_fini(&p);
    }
    free(weights[0]);
}

/* The last pass has an invalid label, so the update fails after earlier passes have sampled. */
TEST_CASE(an_update_that_failed_behind_a_pass_that_sampled_samples_again) {
    parted p;
    nets_result result;
    parted_init(&p, "comet:every=2,when=always", 2);
    for (int i = 0; i < 2; i++) {
        const int32_t right = p.f.labels[BATCH - 1];
        p.f.labels[BATCH - 1] = 10;
        assert_int_equal(nets_exec_iteration(p.f.exec, p.f.images, p.f.labels, BATCH, 0.05f, &result), MM_ERR_INVALID);
        expect_ages(&p, i == 0 ? -1 : 2);
        p.f.labels[BATCH - 1] = right;
        iterate(&p.f, 1);
        expect_ages(&p, 1);
        iterate(&p.f, 1);
        expect_ages(&p, 2);
    }
    parted_fini(&p);
}

TEST_CASE(a_rehearsal_can_only_be_aborted) {
    fixture f;
    init(&f, "comet:every=4,when=always");
    iterate(&f, 1);
    expect_ok(mm_rehearsal_begin(f.manager, f.graph));
    const nets_lowered *lowered = nets_exec_lowered(f.exec);
    for (int i = 0; i < lowered->n_steps; i++) { /* computes nothing */
        expect_ok(mm_layer_begin(f.manager, lowered->steps[i].graph_layer, lowered->steps[i].phase, NULL));
        expect_ok(mm_layer_end(f.manager, lowered->steps[i].graph_layer, lowered->steps[i].phase));
    }
    assert_int_equal(mm_iteration_end(f.manager), MM_ERR_ORDER);
    assert_non_null(strstr(mm_last_error(), "mm_iteration_abort"));
    mm_iteration_abort(f.manager);
    assert_int_equal(age(&f), 1);
    iterate(&f, 1);
    fini(&f);
}

TEST_CASE(what_is_told_at_a_wrong_time_or_of_a_wrong_tensor_is_refused) {
    fixture f;
    mm_sampled s;
    init(&f, "comet:every=4,when=always");
    assert_int_equal(mm_sampling_report(f.manager, f.graph, 0, 1), MM_ERR_ORDER);
    iterate(&f, 1);
    assert_int_equal(mm_sampling_report(f.manager, f.graph, -1, 1), MM_ERR_NOT_FOUND);
    expect_ok(mm_sampled_get(f.manager, f.graph, &s));
    assert_int_equal(mm_sampling_report(f.manager, f.graph, s.watched[0].weight, 1), MM_ERR_ORDER); /* judged already */
    assert_int_equal(mm_sampling_age_set(f.manager, f.graph, -2), MM_ERR_INVALID);
    expect_ok(mm_policy_set(f.manager, "liveness"));
    assert_int_equal(mm_sampled_get(f.manager, f.graph, &s), MM_ERR_NOT_FOUND);
    assert_int_equal(age(&f), 1); /* the age stays, as bounds do */
    iterate(&f, 1);
    assert_int_equal(age(&f), 2);
    fini(&f);
}
