/* SPDX-License-Identifier: MIT */
/* Each rule of mm_program_prove about recomputation, shown on a plan made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/plan/plan.h"
#include "tests/core/plan_proof.h"

/* step        reads                     writes            modifies
 * CONV_F      images weight             map
 * NORM_F      map                       out               stats
 * HEAD_F      out                       saved
 * LOSS_F      saved                     loss              (out, in one of the tests)
 * HEAD_B      out saved                 d_out
 * NORM_B      out (sign) map d_out      d_map
 * CONV_B      images d_map              d_weight
 * UPDATE      d_weight                                    weight */
enum { CONV_F, NORM_F, HEAD_F, LOSS_F, HEAD_B, NORM_B, CONV_B, UPDATE, STEPS };
enum { MAP_BYTES = 4096, BASE = 1024, CODE_BYTES = 1024 };
enum { LOSSY, LOSSLESS, CODECS };

typedef struct fixture {
    mm_graph *graph;
    mm_tensor images, weight, stats, loss, d_weight, map, out, saved, d_out, d_map;
    mm_graph_facts *facts;
    mm_plan *plan;
    int nodes[STEPS], again; /* the step's nodes; again: the node of NORM_F's second run */
    int64_t used;            /* bytes used, of the device and of pinned memory */
    int64_t pinned;
    int seg_map, seg_out, seg_saved, seg_again; /* segments; seg_again: `out` from the second run */
} fixture;

static mm_tensor tensor(fixture *f, const char *name, mm_tensor_kind kind, mm_ownership ownership, int64_t bytes) {
    mm_tensor_desc desc = {
        .name = name, .kind = kind, .ownership = ownership, .dtype = MM_F32, .rank = 1, .dims = {bytes / 4}};
    mm_tensor made;
    assert_int_equal(mm_graph_add_tensor(f->graph, &desc, &made), MM_OK);
    return made;
}

static void add_tensors(fixture *f) {
    f->images = tensor(f, "images", MM_INPUT, MM_EXTERNAL, 256);
    f->weight = tensor(f, "weight", MM_WEIGHT, MM_PERSISTENT, 64);
    f->stats = tensor(f, "stats", MM_STATE, MM_PERSISTENT, 64);
    f->loss = tensor(f, "loss", MM_STATE, MM_PERSISTENT, 4);
    f->d_weight = tensor(f, "d_weight", MM_WEIGHT_GRADIENT, MM_PERSISTENT, 64);
    f->map = tensor(f, "map", MM_FEATURE_MAP, MM_MANAGED, MAP_BYTES);
    f->out = tensor(f, "out", MM_FEATURE_MAP, MM_MANAGED, MAP_BYTES);
    f->saved = tensor(f, "saved", MM_SAVED, MM_MANAGED, MAP_BYTES);
    f->d_out = tensor(f, "d_out", MM_GRADIENT_MAP, MM_MANAGED, MAP_BYTES);
    f->d_map = tensor(f, "d_map", MM_GRADIENT_MAP, MM_MANAGED, MAP_BYTES);
}

#define STEP(f, layer, phase, ...)                                                                                     \
    assert_int_equal(mm_graph_add_step((f)->graph, layer, phase, (const mm_use[]){__VA_ARGS__},                        \
                                       sizeof((const mm_use[]){__VA_ARGS__}) / sizeof(mm_use), 0),                     \
                     MM_OK)

static void add_steps(fixture *f, bool out_changes, bool gives) {
    mm_layer conv, norm, head, loss;
    assert_int_equal(mm_graph_add_layer(f->graph, "conv", MM_LAYER_CONV, &conv), MM_OK);
    assert_int_equal(mm_graph_add_layer(f->graph, "norm", MM_LAYER_BATCH_NORM, &norm), MM_OK);
    assert_int_equal(mm_graph_add_layer(f->graph, "head", MM_LAYER_POOL, &head), MM_OK);
    assert_int_equal(mm_graph_add_layer(f->graph, "loss", MM_LAYER_LOSS, &loss), MM_OK);
    /* So that its recomputation is refused for what it writes. */
    assert_int_equal(mm_graph_set_properties(f->graph, loss, &(mm_layer_properties){MM_LAYER_CHEAP, true}), MM_OK);
    STEP(f, conv, MM_FORWARD, {f->images, MM_READ, 0}, {f->weight, MM_READ, 0}, {f->map, MM_WRITE, 0});
    STEP(f, norm, MM_FORWARD, {f->map, MM_READ, 0}, {f->out, MM_WRITE, 0}, {f->stats, MM_MODIFY, 0});
    STEP(f, head, MM_FORWARD, {f->out, MM_READ, 0}, {f->saved, MM_WRITE, 0});
    if (gives) assert_int_equal(mm_graph_allow_given(f->graph, f->saved), MM_OK);
    if (out_changes)
        STEP(f, loss, MM_FORWARD, {f->saved, MM_READ, 0}, {f->loss, MM_WRITE, 0}, {f->out, MM_MODIFY, 0});
    else
        STEP(f, loss, MM_FORWARD, {f->saved, MM_READ, 0}, {f->loss, MM_WRITE, 0});
    STEP(f, head, MM_BACKWARD, {f->out, MM_READ, 0}, {f->saved, MM_READ, 0}, {f->d_out, MM_WRITE, 0});
    STEP(f, norm, MM_BACKWARD, {f->out, MM_READ, MM_FORM_SIGN}, {f->map, MM_READ, 0}, {f->d_out, MM_READ, 0},
         {f->d_map, MM_WRITE, 0});
    STEP(f, conv, MM_BACKWARD, {f->images, MM_READ, 0}, {f->d_map, MM_READ, 0}, {f->d_weight, MM_WRITE, 0});
    STEP(f, conv, MM_UPDATE, {f->d_weight, MM_READ, 0}, {f->weight, MM_MODIFY, 0});
    assert_int_equal(mm_graph_freeze(f->graph), MM_OK);
}

static int setup_graph(void **state, bool out_changes, bool gives) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(mm_graph_create("by hand", &f->graph), MM_OK);
    add_tensors(f);
    add_steps(f, out_changes, gives);
    assert_int_equal(mm_graph_facts_create(f->graph, CODECS, &f->facts), MM_OK);
    f->facts->codecs[LOSSY] = (mm_codec_facts){.spec = "lossy", .gives_value = true};
    f->facts->codecs[LOSSLESS] = (mm_codec_facts){.spec = "lossless", .gives_value = true, .lossless = true};
    for (int c = 0; c < CODECS; c++)
        f->facts->codes[c * f->facts->n_tensors + f->map] = (mm_code_facts){.code_bytes = CODE_BYTES};
    const mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = BASE};
    assert_int_equal(mm_plan_create(f->graph, &limits, &f->plan), MM_OK);
    f->used = BASE;
    *state = f;
    return 0;
}

static int setup(void **state) { return setup_graph(state, false, false); }
static int setup_changing(void **state) { return setup_graph(state, true, false); }
static int setup_giving(void **state) { return setup_graph(state, false, true); }

static int teardown(void **state) {
    fixture *f = *state;
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->graph);
    free(f);
    return 0;
}

/* ---------------------------------------------------------------- a plan */

/* Adds a segment that shares no bytes with others. */
static int segment(fixture *f, mm_content content, mm_tensor of, int codec, bool pinned) {
    int64_t bytes = content == MM_CONTENT_CODED ? CODE_BYTES : MAP_BYTES;
    int s = mm_plan_segment(f->plan, content, MM_CAT_FEATURE_MAP, of, bytes);
    assert_true(s >= 0);
    int64_t *used = pinned ? &f->pinned : &f->used;
    f->plan->segments[s].offset = *used;
    f->plan->segments[s].memory = pinned ? MM_MEM_PINNED : MM_MEM_DEVICE;
    f->plan->segments[s].codec = codec;
    *used += mm_align(bytes);
    return s;
}

static int raw(fixture *f, mm_tensor of) { return segment(f, MM_CONTENT_RAW, of, -1, false); }

/* Binds use number `use` of a node to the segment `to`. */
static void bind(fixture *f, int node, int use, int to) {
    f->plan->bindings[f->plan->nodes[node].first_binding + use] = to;
}

/* Adds the forward steps, every tensor in a segment of its own. */
static void run_forward(fixture *f) {
    f->seg_map = raw(f, f->map);
    f->seg_out = raw(f, f->out);
    f->seg_saved = raw(f, f->saved);
    for (int s = CONV_F; s <= LOSS_F; s++) f->nodes[s] = mm_plan_step(f->plan, s);
    bind(f, f->nodes[CONV_F], 2, f->seg_map);
    bind(f, f->nodes[NORM_F], 0, f->seg_map);
    bind(f, f->nodes[NORM_F], 1, f->seg_out);
    bind(f, f->nodes[HEAD_F], 0, f->seg_out);
    bind(f, f->nodes[HEAD_F], 1, f->seg_saved);
    bind(f, f->nodes[LOSS_F], 0, f->seg_saved);
    if (mm_graph_step(f->graph, LOSS_F)->n_uses == 3) bind(f, f->nodes[LOSS_F], 2, f->seg_out);
}

/* Adds a second run of NORM_F, which reads `map` from the given segment. */
static void norm_again(fixture *f, int map) {
    f->seg_again = raw(f, f->out);
    f->again = mm_plan_recompute(f->plan, NORM_F);
    bind(f, f->again, 0, map);
    bind(f, f->again, 1, f->seg_again);
}

/* Adds the backward steps, which read `out` and `map` from the given segments. */
static void run_backward(fixture *f, int out, int map) {
    int d_out = raw(f, f->d_out), d_map = raw(f, f->d_map);
    for (int s = HEAD_B; s < STEPS; s++) f->nodes[s] = mm_plan_step(f->plan, s);
    bind(f, f->nodes[HEAD_B], 0, out);
    bind(f, f->nodes[HEAD_B], 1, f->seg_saved);
    bind(f, f->nodes[HEAD_B], 2, d_out);
    bind(f, f->nodes[NORM_B], 0, out);
    bind(f, f->nodes[NORM_B], 1, map);
    bind(f, f->nodes[NORM_B], 2, d_out);
    bind(f, f->nodes[NORM_B], 3, d_map);
    bind(f, f->nodes[CONV_B], 1, d_map);
}

/* Proves a finished plan: the proof must return `status`, and a message with all the words ("a|b|c"). */
static void expect_finished(fixture *f, mm_status status, const char *words) {
    const mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = BASE};
    char copy[200];
    mm_status got = plan_check(f->plan, f->facts, &limits);
    if (got != status)
        fail_msg("expected %s, got %s: %s", mm_status_name(status), mm_status_name(got), mm_last_error());
    strcpy(copy, words);
    for (char *rest = copy, *word; (word = strtok_r(rest, "|", &rest));)
        if (!strstr(mm_last_error(), word)) fail_msg("no '%s' in: %s", word, mm_last_error());
}

static void expect(fixture *f, mm_status status, const char *words) {
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    expect_finished(f, status, words);
}

/* ---------------------------------------------------------------- right plans */

static void step_run_again_from_a_kept_map_serves_elements_and_signs(void **state) {
    fixture *f = *state;
    run_forward(f);
    norm_again(f, f->seg_map);
    run_backward(f, f->seg_again, f->seg_map);
    expect(f, MM_OK, "");
}

static void step_run_again_may_look_at_persistents_that_it_changed_itself(void **state) {
    fixture *f = *state;
    run_forward(f);
    norm_again(f, f->seg_map); /* NORM_F has itself changed `stats` */
    int second = mm_plan_recompute(f->plan, NORM_F), out = raw(f, f->out);
    bind(f, second, 0, f->seg_map);
    bind(f, second, 1, out);
    run_backward(f, f->seg_again, f->seg_map);
    bind(f, f->nodes[NORM_B], 0, out);
    expect(f, MM_OK, "");
}

static void chain_is_run_again_in_its_order(void **state) {
    fixture *f = *state;
    run_forward(f);
    int map = raw(f, f->map), conv = mm_plan_recompute(f->plan, CONV_F);
    bind(f, conv, 2, map);
    norm_again(f, map);
    run_backward(f, f->seg_again, map);
    expect(f, MM_OK, "");
}

/* ---------------------------------------------------------------- what may not be run again */

static void step_that_has_not_run_is_not_recomputed(void **state) {
    fixture *f = *state;
    run_forward(f);
    norm_again(f, f->seg_map);
    run_backward(f, f->seg_again, f->seg_map);
    expect(f, MM_OK, "");
    f->plan->nodes[f->again].step = HEAD_B;
    expect_finished(f, MM_ERR_PLAN, "recomputes step 4|has not run");
    f->plan->nodes[f->again].step = -1;
    expect_finished(f, MM_ERR_PLAN, "recomputes step -1|has not run");
    f->plan->nodes[f->again].step = STEPS;
    expect_finished(f, MM_ERR_PLAN, "recomputes step 8|has not run");
}

static void backward_step_is_not_recomputed(void **state) {
    fixture *f = *state;
    run_forward(f);
    run_backward(f, f->seg_out, f->seg_map);
    int again = mm_plan_recompute(f->plan, NORM_B);
    bind(f, again, 0, f->seg_out);
    expect(f, MM_ERR_PLAN, "only a forward step");
}

static void step_that_writes_a_persistent_is_not_recomputed(void **state) {
    fixture *f = *state;
    run_forward(f);
    int again = mm_plan_recompute(f->plan, LOSS_F);
    bind(f, again, 0, f->seg_saved);
    run_backward(f, f->seg_out, f->seg_map);
    expect(f, MM_ERR_PLAN, "loss forward|tensor loss|cannot be recomputed");
}

static void step_that_modifies_a_map_is_not_recomputed(void **state) {
    fixture *f = *state; /* setup_changing; LOSS_F could run again if it did not modify `out` */
    run_forward(f);
    int again = mm_plan_recompute(f->plan, LOSS_F);
    bind(f, again, 0, f->seg_saved);
    bind(f, again, 2, f->seg_out);
    run_backward(f, f->seg_out, f->seg_map);
    expect(f, MM_ERR_PLAN, "loss forward|cannot be recomputed");
}

/* ---------------------------------------------------------------- what a step that runs again reads */

static void weight_that_was_updated_since_is_not_the_same_input(void **state) {
    fixture *f = *state;
    run_forward(f);
    run_backward(f, f->seg_out, f->seg_map);
    int map = raw(f, f->map), again = mm_plan_recompute(f->plan, CONV_F);
    bind(f, again, 2, map);
    expect(f, MM_ERR_PLAN, "conv forward|tensor weight|has changed since the step ran");
}

static void map_that_was_modified_since_is_not_the_same_input(void **state) {
    fixture *f = *state; /* setup_changing */
    run_forward(f);
    int saved = raw(f, f->saved), again = mm_plan_recompute(f->plan, HEAD_F);
    bind(f, again, 0, f->seg_out);
    bind(f, again, 1, saved);
    run_backward(f, f->seg_out, f->seg_map);
    bind(f, f->nodes[HEAD_B], 1, saved);
    expect(f, MM_ERR_PLAN, "head forward|tensor out|another value");
}

static void result_made_before_a_change_does_not_serve_a_reader_after_it(void **state) {
    fixture *f = *state; /* setup_changing: HEAD_B reads `out` as LOSS_F left it */
    run_forward(f);
    norm_again(f, f->seg_map);
    run_backward(f, f->seg_again, f->seg_map);
    expect(f, MM_ERR_PLAN, "head backward|tensor out|another value");
}

/* ---------------------------------------------------------------- results of the first run that the second run is
 * given */

/* Adds a second run of HEAD_F, which writes nothing: it is given `saved` in segment `to`. */
static void head_again(fixture *f, int to, uint64_t given) {
    int head = mm_plan_recompute(f->plan, HEAD_F);
    bind(f, head, 0, f->seg_out);
    bind(f, head, 1, to);
    f->plan->nodes[head].given = given;
}

static void what_is_given_is_read_and_is_no_result(void **state) {
    fixture *f = *state; /* setup_giving */
    run_forward(f);
    head_again(f, f->seg_saved, UINT64_C(2));
    run_backward(f, f->seg_out, f->seg_map);
    expect(f, MM_ERR_PLAN, "head forward|not used by anything");
}

static void what_is_given_must_be_there_as_it_was_written_first(void **state) {
    fixture *f = *state; /* setup_giving */
    run_forward(f);
    int other = raw(f, f->saved);
    head_again(f, other, UINT64_C(2));
    run_backward(f, f->seg_out, f->seg_map);
    expect(f, MM_ERR_PLAN, "head forward|tensor saved|before anything was written");
}

static void a_step_is_given_only_what_it_says_it_can_do_with(void **state) {
    fixture *f = *state; /* HEAD_F allows nothing to be given */
    run_forward(f);
    head_again(f, f->seg_saved, UINT64_C(2));
    run_backward(f, f->seg_out, f->seg_map);
    expect(f, MM_ERR_PLAN, "head forward|tensor saved|is given to a step");
}

static void what_is_given_is_bound(void **state) {
    fixture *f = *state; /* setup_giving */
    run_forward(f);
    head_again(f, -1, UINT64_C(2));
    run_backward(f, f->seg_out, f->seg_map);
    expect(f, MM_ERR_PLAN, "head forward|tensor saved|not bound to a segment");
}

/* The proof reads no binding before it knows that it lies within the array. */
static void bindings_of_what_is_given_lie_within_the_plans(void **state) {
    fixture *f = *state; /* setup_giving */
    static const int32_t wild[] = {INT32_MIN, -1, 1 << 30, INT32_MAX};
    run_forward(f);
    head_again(f, f->seg_saved, UINT64_C(2));
    int again = f->plan->n_nodes - 1;
    run_backward(f, f->seg_out, f->seg_map);
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        f->plan->nodes[again].first_binding = wild[i];
        expect_finished(f, MM_ERR_PLAN, "head forward|its bindings are out of range");
    }
}

/* ---------------------------------------------------------------- what a step that runs again makes, and when */

static void result_that_nobody_reads_is_refused(void **state) {
    fixture *f = *state;
    run_forward(f);
    norm_again(f, f->seg_map);
    run_backward(f, f->seg_out, f->seg_map);
    expect(f, MM_ERR_PLAN, "norm forward|not used by anything");
}

static void input_must_have_been_written(void **state) {
    fixture *f = *state;
    run_forward(f);
    int map = raw(f, f->map);
    norm_again(f, map);
    run_backward(f, f->seg_again, f->seg_map);
    expect(f, MM_ERR_PLAN, "norm forward|tensor map|before anything was written");
}

/* Adds an offload of `map` after the forward pass, and its prefetch. Returns the prefetch's node. */
static int fetch_map(fixture *f, int *back_out) {
    int away = segment(f, MM_CONTENT_RAW, f->map, -1, true);
    *back_out = raw(f, f->map);
    int out = mm_plan_op(f->plan, MM_NODE_OUT, f->map, f->seg_map, away);
    mm_plan_wait(f->plan, out, f->nodes[NORM_F]);
    int in = mm_plan_op(f->plan, MM_NODE_IN, f->map, away, *back_out);
    mm_plan_wait(f->plan, in, out);
    return in;
}

static void fetched_input_is_waited_for(void **state) {
    fixture *f = *state;
    int back;
    run_forward(f);
    int in = fetch_map(f, &back);
    norm_again(f, back);
    mm_plan_wait(f->plan, f->again, in);
    run_backward(f, f->seg_again, back);
    expect(f, MM_OK, "");
    f->plan->nodes[f->again].wait[MM_STREAM_IN] = -1;
    expect(f, MM_ERR_PLAN, "norm forward|tensor map|without a wait for prefetch of map");
}

static void result_is_not_written_over_what_another_stream_still_reads(void **state) {
    fixture *f = *state;
    int back;
    run_forward(f);
    int in = fetch_map(f, &back);
    norm_again(f, f->seg_map);
    run_backward(f, f->seg_again, back);
    mm_plan_wait(f->plan, f->nodes[NORM_B], in);
    expect(f, MM_OK, "");
    f->plan->segments[f->seg_again].offset = f->plan->segments[back].offset;
    expect(f, MM_ERR_PLAN, "norm forward|tensor out|is put over|norm backward may still use");
}

/* ---------------------------------------------------------------- how exact the result of a second run is */

/* Adds all steps, with a second run of NORM_F that reads a decoded code of `map`. */
static void norm_again_from_code(fixture *f, int codec) {
    run_forward(f);
    int code = segment(f, MM_CONTENT_CODED, f->map, codec, false), back = raw(f, f->map);
    int encode = mm_plan_op(f->plan, MM_NODE_ENCODE, f->map, f->seg_map, code);
    mm_plan_wait(f->plan, encode, f->nodes[NORM_F]);
    int decode = mm_plan_op(f->plan, MM_NODE_DECODE, f->map, code, back);
    mm_plan_wait(f->plan, decode, encode);
    norm_again(f, back);
    mm_plan_wait(f->plan, f->again, decode);
    run_backward(f, f->seg_again, back);
}

static void signs_are_not_read_from_a_map_made_again_from_a_lossy_copy(void **state) {
    fixture *f = *state;
    norm_again_from_code(f, LOSSY);
    expect(f, MM_ERR_PLAN, "norm backward|tensor out|lossy");
    bind(f, f->nodes[NORM_B], 0, f->seg_out); /* now NORM_B reads signs from the first run's `out` */
    expect(f, MM_OK, "");
}

static void signs_are_read_from_a_map_made_again_from_a_lossless_copy(void **state) {
    fixture *f = *state;
    norm_again_from_code(f, LOSSLESS);
    expect(f, MM_OK, "");
}

static void result_is_not_written_into_a_code(void **state) {
    fixture *f = *state;
    f->facts->codes[LOSSLESS * f->facts->n_tensors + f->out] = (mm_code_facts){.code_bytes = CODE_BYTES};
    run_forward(f);
    norm_again(f, f->seg_map);
    run_backward(f, f->seg_out, f->seg_map);
    bind(f, f->again, 1, segment(f, MM_CONTENT_CODED, f->out, LOSSLESS, false));
    expect(f, MM_ERR_PLAN, "norm forward|tensor out|code");
}

int main(void) {
#define TEST(name)     cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CHANGING(name) cmocka_unit_test_setup_teardown(name, setup_changing, teardown)
#define GIVING(name)   cmocka_unit_test_setup_teardown(name, setup_giving, teardown)
    const struct CMUnitTest tests[] = {
        TEST(step_run_again_from_a_kept_map_serves_elements_and_signs),
        TEST(step_run_again_may_look_at_persistents_that_it_changed_itself),
        TEST(chain_is_run_again_in_its_order),
        TEST(step_that_has_not_run_is_not_recomputed),
        GIVING(what_is_given_is_read_and_is_no_result),
        GIVING(what_is_given_must_be_there_as_it_was_written_first),
        GIVING(what_is_given_is_bound),
        GIVING(bindings_of_what_is_given_lie_within_the_plans),
        TEST(a_step_is_given_only_what_it_says_it_can_do_with),
        TEST(backward_step_is_not_recomputed),
        TEST(step_that_writes_a_persistent_is_not_recomputed),
        CHANGING(step_that_modifies_a_map_is_not_recomputed),
        TEST(weight_that_was_updated_since_is_not_the_same_input),
        CHANGING(map_that_was_modified_since_is_not_the_same_input),
        CHANGING(result_made_before_a_change_does_not_serve_a_reader_after_it),
        TEST(result_that_nobody_reads_is_refused),
        TEST(input_must_have_been_written),
        TEST(fetched_input_is_waited_for),
        TEST(result_is_not_written_over_what_another_stream_still_reads),
        TEST(signs_are_not_read_from_a_map_made_again_from_a_lossy_copy),
        TEST(signs_are_read_from_a_map_made_again_from_a_lossless_copy),
        TEST(result_is_not_written_into_a_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
