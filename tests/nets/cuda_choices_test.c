/* SPDX-License-Identifier: MIT */
/* The algorithms file: a stored choice is found again, by its own key only; a damaged file counts as none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "nets/cuda/choose/algorithm_cache.h"
#include "nets/cuda/choose/pareto.h"

static const nets_conv_shape SHAPE = {.x = {2, 7, 6, 5},
                                      .y = {2, 4, 3, 8},
                                      .kernel = {3, 3},
                                      .stride = {2, 2},
                                      .pad = {1, 1},
                                      .dilation = {1, 1},
                                      .groups = 1};
static const nets_conv_pareto FRONT = {
    .n = 2,
    .of = {{.api = NETS_CONV_GRAPH,
            .algorithm = 31,
            .workspace_bytes = INT64_C(5000000000),
            .ns = 70,
            .n_knobs = 2,
            .knobs = {{2, 130}, {14, -1}}},
           {.api = NETS_CONV_LEGACY, .algorithm = 1, .math = 3, .workspace_bytes = INT64_C(4999999999), .ns = 71}}};
static const char DEVICE[] = "NVIDIA_H200/cudnn-91900/cublas-130100";

typedef struct fixture {
    char path[256];
    nets_backend_config config;
    nets_conv_terms terms;
    int warnings;
    char warning[512];
} fixture;

static void note(void *ctx, mm_log_level level, const char *message) {
    fixture *f = ctx;
    assert_int_equal(level, MM_LOG_WARNING);
    f->warnings++;
    snprintf(f->warning, sizeof f->warning, "%s", message);
}

static int setup(void **state) {
    const char *folder = getenv("TEST_TMPDIR");
    fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    snprintf(f->path, sizeof f->path, "%s/choices.%ld", folder ? folder : "/tmp", (long)getpid());
    f->config = (nets_backend_config){.algorithms_path = f->path, .log = {note, f, MM_LOG_WARNING}};
    f->terms = (nets_conv_terms){.limit_bytes = 1000, .tensor_core_limit_bytes = 9000};
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    unlink(f->path);
    free(f);
    return 0;
}

static void open_choices(fixture *f, nets_algorithm_cache *choices, const char *device) {
    assert_int_equal(nets_algorithm_cache_init(choices, &f->config, device), MM_OK);
}

static void keep_one(fixture *f) {
    nets_algorithm_cache choices;
    open_choices(f, &choices, DEVICE);
    assert_int_equal(nets_algorithm_cache_store(&choices, &SHAPE, &f->terms, &FRONT), MM_OK);
    nets_algorithm_cache_fini(&choices);
}

static bool finds(fixture *f, const char *device, const nets_conv_shape *shape) {
    nets_algorithm_cache choices;
    open_choices(f, &choices, device);
    const nets_conv_pareto *found = nets_algorithm_cache_find(&choices, shape, &f->terms);
    if (found) assert_memory_equal(found, &FRONT, sizeof FRONT);
    nets_algorithm_cache_fini(&choices);
    return found != NULL;
}

static void what_was_kept_is_found_in_the_file(void **state) {
    fixture *f = *state;
    assert_false(finds(f, DEVICE, &SHAPE));
    keep_one(f);
    assert_true(finds(f, DEVICE, &SHAPE));
    assert_int_equal(f->warnings, 0);
}

static void check_kept(fixture *f, const nets_conv_pareto *front) {
    nets_algorithm_cache choices;
    open_choices(f, &choices, DEVICE);
    assert_int_equal(nets_algorithm_cache_store(&choices, &SHAPE, &f->terms, front), MM_OK);
    nets_algorithm_cache_fini(&choices);
    open_choices(f, &choices, DEVICE);
    const nets_conv_pareto *found = nets_algorithm_cache_find(&choices, &SHAPE, &f->terms);
    assert_non_null(found);
    assert_memory_equal(found, front, sizeof *front);
    assert_int_equal(f->warnings, 0);
    nets_algorithm_cache_fini(&choices);
}

static void
an_algorithm_a_product_and_as_many_engines_as_can_be_with_the_most_and_longest_knobs_are_found(void **state) {
    nets_conv_pareto longest;
    memset(&longest, 0, sizeof longest);
    longest.n = NETS_WORKSPACES;
    for (int a = 0; a < NETS_WORKSPACES; a++) {
        nets_conv_choice *c = &longest.of[a];
        c->api = NETS_CONV_GRAPH;
        c->algorithm = INT32_MAX;
        c->workspace_bytes = INT64_MAX - a;
        c->ns = INT64_MAX - NETS_WORKSPACES + a;
        c->n_knobs = NETS_CONV_KNOBS;
        for (int i = 0; i < NETS_CONV_KNOBS; i++) {
            c->knobs[i].type = INT32_MAX - i;
            c->knobs[i].value = INT64_MIN + i;
        }
    }
    check_kept(*state, &longest);
    check_kept(*state, &(nets_conv_pareto){
                           1, {{.api = NETS_CONV_LEGACY, .algorithm = 5, .math = 3, .workspace_bytes = 7, .ns = 1}}});
    check_kept(*state, &(nets_conv_pareto){1,
                                           {{.api = NETS_CONV_PRODUCT,
                                             .algorithm = 21,
                                             .workspace_bytes = 7,
                                             .ns = 9,
                                             .n_knobs = 3,
                                             .knobs = {{1, 20}, {2, 4}, {8, 65535}}}}});
}

static void each_part_of_the_key_counts(void **state) {
    fixture *f = *state;
    keep_one(f);
    for (size_t i = 0; i < sizeof SHAPE / sizeof(int); i++) {
        nets_conv_shape other = SHAPE;
        ((int *)&other)[i]++;
        assert_false(finds(f, DEVICE, &other));
    }
    assert_false(finds(f, "NVIDIA_H200/cudnn-91900/cublas-130101", &SHAPE));
    f->config.precision = NETS_TF32;
    assert_false(finds(f, DEVICE, &SHAPE));
    f->config.precision = NETS_FP32;
    const nets_conv_terms terms = f->terms, others[] = {{true, 1000, 9000}, {false, 1001, 9000}, {false, 1000, 9001}};
    for (int i = 0; i < 3; i++) {
        f->terms = others[i];
        assert_false(finds(f, DEVICE, &SHAPE));
    }
    f->terms = terms;
    assert_true(finds(f, DEVICE, &SHAPE));
}

static void without_a_device_those_of_any_count(void **state) {
    fixture *f = *state;
    keep_one(f);
    assert_true(finds(f, "", &SHAPE));
}

static void a_choice_takes_the_place_of_the_one_before(void **state) {
    fixture *f = *state;
    nets_algorithm_cache choices;
    const nets_conv_pareto before = {1, {{.api = NETS_CONV_LEGACY, .algorithm = 7}}};
    open_choices(f, &choices, DEVICE);
    assert_int_equal(nets_algorithm_cache_store(&choices, &SHAPE, &f->terms, &before), MM_OK);
    assert_int_equal(nets_algorithm_cache_store(&choices, &SHAPE, &f->terms, &FRONT), MM_OK);
    assert_int_equal(choices.n, 1);
    nets_algorithm_cache_fini(&choices);
    assert_true(finds(f, DEVICE, &SHAPE));
}

static size_t read_text(const fixture *f, char *text, size_t capacity) {
    FILE *file = fopen(f->path, "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, capacity, file);
    fclose(file);
    return n;
}

static void write_text(const fixture *f, const char *text, size_t n) {
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
}

static void check_ignored(fixture *f) {
    f->warnings = 0;
    assert_false(finds(f, DEVICE, &SHAPE));
    assert_int_equal(f->warnings, 1);
    assert_non_null(strstr(f->warning, f->path));
}

static void a_file_cut_off_or_changed_anywhere_is_ignored_with_a_warning(void **state) {
    fixture *f = *state;
    char text[4096], damaged[4096];
    keep_one(f);
    size_t n = read_text(f, text, sizeof text);
    for (size_t i = 0; i < n; i++) {
        write_text(f, text, i);
        check_ignored(f);
        memcpy(damaged, text, n);
        damaged[i] ^= 1 << (i % 7);
        write_text(f, damaged, n);
        check_ignored(f);
    }
    write_text(f, text, n);
    assert_true(finds(f, DEVICE, &SHAPE));
}

/* Versions 1 to 4. Version 2 added engines, 3 products, 4 the tensor cores' limit, 5 several choices for a shape. */
static void an_older_file_is_ignored_with_a_warning(void **state) {
    fixture *f = *state;
    static const char *const OLD[] = {
        "mm: algorithms of convolutions, 1\n"
        "NVIDIA_H200/cudnn-91900 0 0 1000 0 2 7 6 5 2 4 3 8 3 3 2 2 1 1 1 1 1 1 3 5000\n"
        "end 1 04bc78ea23facf23\n",
        "mm: algorithms of convolutions, 2\n"
        "NVIDIA_H200/cudnn-91900 0 0 1000 0 2 7 6 5 2 4 3 8 3 3 2 2 1 1 1 1 1 0 1 1 0 5000 0\n"
        "end 1 a849fe4ec1c51912\n",
        "mm: algorithms of convolutions, 3\n"
        "NVIDIA_H200/cudnn-91900/cublas-130100 0 0 1000 0 2 7 6 5 2 4 3 8 3 3 2 2 1 1 1 1 1 0 2 1 0 5000 0\n"
        "end 1 a8a5c4502a461545\n",
        "mm: algorithms of convolutions, 4\n"
        "NVIDIA_H200/cudnn-91900/cublas-130100 0 0 1000 9000 0 2 7 6 5 2 4 3 8 3 3 2 2 1 1 1 1 1 0 2 1 0 5000 0\n"
        "end 1 c3491190490735db\n",
    };
    for (size_t i = 0; i < sizeof OLD / sizeof OLD[0]; i++) {
        write_text(f, OLD[i], strlen(OLD[i]));
        check_ignored(f);
    }
}

/* No choice; two with equal workspace; two with equal time. */
static void a_file_whose_choices_are_no_front_is_ignored_with_a_warning(void **state) {
    fixture *f = *state;
    nets_conv_pareto none[3] = {FRONT, FRONT, FRONT};
    none[0].n = 0;
    none[1].of[1].workspace_bytes = none[1].of[0].workspace_bytes;
    none[2].of[1].ns = none[2].of[0].ns;
    for (int i = 0; i < 3; i++) {
        nets_algorithm_cache choices;
        unlink(f->path);
        open_choices(f, &choices, DEVICE);
        assert_int_equal(nets_algorithm_cache_store(&choices, &SHAPE, &f->terms, &none[i]), MM_OK);
        nets_algorithm_cache_fini(&choices);
        check_ignored(f);
    }
}

static void a_damaged_file_is_written_anew(void **state) {
    fixture *f = *state;
    write_text(f, "something else\n", 15);
    keep_one(f);
    assert_int_equal(f->warnings, 1);
    assert_true(finds(f, DEVICE, &SHAPE));
    assert_int_equal(f->warnings, 1);
}

static void a_file_that_cannot_be_written_is_a_warning(void **state) {
    fixture *f = *state;
    nets_algorithm_cache choices;
    f->config.algorithms_path = "/nowhere/at/all";
    open_choices(f, &choices, DEVICE);
    assert_int_equal(nets_algorithm_cache_store(&choices, &SHAPE, &f->terms, &FRONT), MM_OK);
    assert_int_equal(f->warnings, 1);
    assert_non_null(nets_algorithm_cache_find(&choices, &SHAPE, &f->terms));
    nets_algorithm_cache_fini(&choices);
}

static void without_a_file_choices_are_kept_in_memory(void **state) {
    fixture *f = *state;
    nets_algorithm_cache choices;
    f->config.algorithms_path = NULL;
    open_choices(f, &choices, DEVICE);
    for (int i = 1; i < 200; i++) {
        nets_conv_shape shape = SHAPE;
        shape.x[0] = i;
        assert_int_equal(nets_algorithm_cache_store(&choices, &shape, &f->terms, &FRONT), MM_OK);
        assert_non_null(nets_algorithm_cache_find(&choices, &shape, &f->terms));
    }
    assert_int_equal(f->warnings, 0);
    nets_algorithm_cache_fini(&choices);
}

/* ---------------------------------------------------------------- fronts */

static void check_front(const nets_pareto_point *points, int n, double slack, const char *expected) {
    int chosen[4];
    char text[16] = "";
    const int n_chosen = nets_pareto_of(points, n, slack, 4, chosen);
    for (int i = 0; i < n_chosen; i++) snprintf(text + i, sizeof text - (size_t)i, "%d", chosen[i]);
    assert_string_equal(text, expected);
}

static void a_front_has_the_fastest_within_each_workspace(void **state) {
    (void)state;
    /* Point 3 is fastest. 0 and 4 take less workspace and more time. 1 is worse than 0; 2 equals 0. */
    static const nets_pareto_point POINTS[] = {{500, 20}, {600, 30}, {500, 20}, {900, 10}, {0, 40}};
    check_front(POINTS, 5, 1, "304");
    check_front(POINTS, 3, 1, "0");
    check_front(POINTS, 0, 1, "");
    check_front(POINTS, 5, 1.5, "304");
    check_front(POINTS, 5, 2, "04"); /* 0 takes twice the time of 3; 4 twice that of 0, and more than twice that of 3 */
    check_front(POINTS, 5, 4, "4");
}

/* Points 0 and 5, the ends, stay. Without point i, workspaces of at least its bytes, but fewer than those of i-1, would
 * run i+1. So the cost of removing i is (time of i+1 - time of i) * (bytes of i-1 - bytes of i): 10, 100, 900 and 90
 * for points 1 to 4; i-1 and i+1 are the nearest points that are not removed. */
static void a_front_of_too_many_keeps_its_ends_and_what_is_worth_most(void **state) {
    (void)state;
    static const nets_pareto_point POINTS[] = {{1000, 1}, {990, 2}, {890, 3}, {880, 4}, {790, 94}, {0, 95}};
    check_front(POINTS, 6, 1, "0235");
    static const nets_pareto_point EVEN[] = {{50, 10}, {40, 11}, {30, 13}, {20, 14}, {0, 15}};
    check_front(EVEN, 5, 1, "0134");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(what_was_kept_is_found_in_the_file),
        CASE(an_algorithm_a_product_and_as_many_engines_as_can_be_with_the_most_and_longest_knobs_are_found),
        CASE(each_part_of_the_key_counts),
        CASE(without_a_device_those_of_any_count),
        CASE(a_choice_takes_the_place_of_the_one_before),
        CASE(a_file_cut_off_or_changed_anywhere_is_ignored_with_a_warning),
        CASE(an_older_file_is_ignored_with_a_warning),
        CASE(a_file_whose_choices_are_no_front_is_ignored_with_a_warning),
        CASE(a_damaged_file_is_written_anew),
        CASE(a_file_that_cannot_be_written_is_a_warning),
        CASE(without_a_file_choices_are_kept_in_memory),
        cmocka_unit_test(a_front_has_the_fastest_within_each_workspace),
        cmocka_unit_test(a_front_of_too_many_keeps_its_ends_and_what_is_worth_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
