/* SPDX-License-Identifier: MIT */
/* mm_program_prove on tensors that share storage, and on storage that is written more than once. */
#include <string.h>

#include "mm/core/plan/plan.h"
#include "tests/core/plan_proof.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

enum { BYTES = 1024 };

/* r is made twice, by FIRST and by AGAIN; a and b, which equal r at first, may share its storage.
 * step    reads    writes
 * FIRST            r
 * SPLIT   r        a, b    (each equals r)
 * CHANGE  (r)      a       modified; reads r too if `reads_root`
 * JOIN    a b      sum
 * AGAIN            r       written anew
 * LAST    r        sum     modified */
enum { FIRST, SPLIT, CHANGE, JOIN, AGAIN, LAST, STEPS };

typedef struct fixture {
    mm_graph *graph;
    mm_tensor r, a, b, sum;
    mm_graph_facts *facts;
    mm_plan *plan;
    mm_limits limits;
    int raw[3]; /* segments of r, a, b */
} fixture;

static mm_use reads(mm_tensor t) { return (mm_use){t, MM_READ, MM_FORM_VALUE}; }
static mm_use writes(mm_tensor t) { return (mm_use){t, MM_WRITE, MM_FORM_VALUE}; }
static mm_use modifies(mm_tensor t) { return (mm_use){t, MM_MODIFY, MM_FORM_VALUE}; }

static void add_step(fixture *f, const char *name, const mm_use *uses, size_t n) {
    small_step(f->graph, small_layer(f->graph, name, MM_LAYER_OTHER), MM_FORWARD, uses, n, 0);
}

static int new_raw(fixture *f, mm_tensor tensor) {
    int segment = mm_plan_segment(f->plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, tensor, BYTES);
    f->plan->segments[segment].offset = segment * BYTES;
    return segment;
}

/* share_a, share_b: whether that tensor shares r's storage; if not, it has a segment of its own. */
static fixture fixture_create(bool reads_root, bool share_a, bool share_b) {
    fixture f = {.limits = {.device_bytes = 1 << 20}};
    assert_int_equal(mm_graph_create("twins", &f.graph), MM_OK);
    f.r = small_tensor(f.graph, "r", MM_GRADIENT_MAP, MM_MANAGED, BYTES);
    f.a = small_tensor(f.graph, "a", MM_GRADIENT_MAP, MM_MANAGED, BYTES);
    f.b = small_tensor(f.graph, "b", MM_GRADIENT_MAP, MM_MANAGED, BYTES);
    f.sum = small_tensor(f.graph, "sum", MM_STATE, MM_PERSISTENT, 4);
    add_step(&f, "first", (mm_use[]){writes(f.r)}, 1);
    add_step(&f, "split", (mm_use[]){reads(f.r), writes(f.a), writes(f.b)}, 3);
    assert_int_equal(mm_graph_allow_alias(f.graph, f.r, f.a), MM_OK);
    assert_int_equal(mm_graph_allow_alias(f.graph, f.r, f.b), MM_OK);
    add_step(&f, "change", (mm_use[]){modifies(f.a), reads(f.r)}, reads_root ? 2 : 1);
    add_step(&f, "join", (mm_use[]){reads(f.a), reads(f.b), writes(f.sum)}, 3);
    add_step(&f, "again", (mm_use[]){writes(f.r)}, 1);
    add_step(&f, "last", (mm_use[]){reads(f.r), modifies(f.sum)}, 2);
    assert_int_equal(mm_graph_freeze(f.graph), MM_OK);
    assert_int_equal(mm_graph_facts_create(f.graph, 1, &f.facts), MM_OK);
    f.facts->codecs[0] = (mm_codec_facts){.spec = "exact", .lossless = true, .gives_value = true};
    f.facts->codes[f.r].code_bytes = f.facts->codes[f.a].code_bytes = 512;
    f.limits.base_bytes = mm_plan_base(f.graph);
    assert_int_equal(mm_plan_create(f.graph, &f.limits, &f.plan), MM_OK);
    f.raw[0] = new_raw(&f, f.r);
    if (share_a) f.plan->alias[f.a] = f.r;
    if (share_b) f.plan->alias[f.b] = f.r;
    f.raw[1] = share_a ? f.raw[0] : new_raw(&f, f.a);
    f.raw[2] = share_b ? f.raw[0] : new_raw(&f, f.b);
    return f;
}

static int32_t *binding(fixture *f, int node, int use) {
    return &f->plan->bindings[f->plan->nodes[node].first_binding + use];
}

/* The step's node, its uses bound to where the tensors are. */
static int plan_step(fixture *f, int step) {
    int node = mm_plan_step(f->plan, step);
    const mm_step_info *info = mm_graph_step(f->graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        mm_tensor t = info->uses[u].tensor;
        if (t != f->sum) *binding(f, node, u) = t == f->r ? f->raw[0] : t == f->a ? f->raw[1] : f->raw[2];
    }
    return node;
}

static void plan_steps(fixture *f) {
    for (int s = 0; s < STEPS; s++) plan_step(f, s);
}

/* Checks the plan, and ends the fixture. */
static void expect(fixture *f, mm_status status, const char *first, const char *second) {
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    mm_status got = plan_check(f->plan, f->facts, &f->limits);
    if (got != status) fail_msg("%s: %s", mm_status_name(got), mm_last_error());
    if (status != MM_OK && (!strstr(mm_last_error(), first) || !strstr(mm_last_error(), second)))
        fail_msg("no '%s', '%s' in: %s", first, second, mm_last_error());
    mm_plan_destroy(f->plan);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->graph);
}

TEST_CASE(each_with_storage_of_its_own) {
    fixture f = fixture_create(true, false, false);
    plan_steps(&f);
    expect(&f, MM_OK, "", "");
}

TEST_CASE(one_that_does_not_change_shares) {
    fixture f = fixture_create(true, false, true);
    plan_steps(&f);
    expect(&f, MM_OK, "", "");
}

TEST_CASE(one_that_changes_shares_when_nobody_reads_the_other_after) {
    fixture f = fixture_create(false, true, false);
    plan_steps(&f);
    expect(&f, MM_OK, "", "");
}

TEST_CASE(change_of_one_makes_the_others_stale) {
    fixture f = fixture_create(false, true, true);
    plan_steps(&f);
    expect(&f, MM_ERR_PLAN, "join forward, tensor b", "another value");
}

TEST_CASE(step_changes_the_storage_that_it_also_reads) {
    fixture f = fixture_create(true, true, false);
    plan_steps(&f);
    expect(&f, MM_ERR_PLAN, "change forward, tensor a", "change forward, which uses it");
}

/* Encodes what node `writer` wrote to `raw`, and decodes it into a new segment, *copy_out. Returns the decode. */
static int add_copy(fixture *f, int raw, int writer, int *copy_out) {
    mm_tensor tensor = f->plan->segments[raw].tensor;
    int code = mm_plan_segment(f->plan, MM_CONTENT_CODED, MM_CAT_CODE, tensor, 512);
    f->plan->segments[code].codec = 0;
    f->plan->segments[code].offset = 16384;
    *copy_out = new_raw(f, tensor);
    int encode = mm_plan_op(f->plan, MM_NODE_ENCODE, tensor, raw, code);
    int decode = mm_plan_op(f->plan, MM_NODE_DECODE, tensor, code, *copy_out);
    mm_plan_wait(f->plan, encode, writer);
    mm_plan_wait(f->plan, decode, encode);
    return decode;
}

/* Plans step FIRST, and an encode of r with its decode into *copy_out. Returns the decode. */
static int plan_copy(fixture *f, int *copy_out) { return add_copy(f, f->raw[0], plan_step(f, FIRST), copy_out); }

TEST_CASE(output_shares_the_other_copy_of_its_input) {
    for (int wrong = 0; wrong < 2; wrong++) {
        fixture f = fixture_create(false, false, true);
        int copy, decode = plan_copy(&f, &copy);
        int split = plan_step(&f, SPLIT);
        mm_plan_wait(f.plan, split, decode);
        *binding(&f, split, 2) = copy;
        if (!wrong) *binding(&f, split, 0) = copy;
        plan_step(&f, CHANGE);
        *binding(&f, plan_step(&f, JOIN), 1) = copy;
        plan_step(&f, AGAIN);
        plan_step(&f, LAST);
        expect(&f, wrong ? MM_ERR_PLAN : MM_OK, "split forward, tensor b", "not bound to the segment");
    }
}

TEST_CASE(decoded_copy_is_overwritten_before_anyone_reads_it) {
    fixture f = fixture_create(false, false, false);
    int copy, decode = plan_copy(&f, &copy);
    for (int s = SPLIT; s <= JOIN; s++) plan_step(&f, s);
    int again = plan_step(&f, AGAIN);
    mm_plan_wait(f.plan, again, decode);
    *binding(&f, again, 0) = *binding(&f, plan_step(&f, LAST), 0) = copy;
    expect(&f, MM_ERR_PLAN, "decode of r", "overwritten before anything has used it");
}

TEST_CASE(writer_does_not_wait_for_a_decode_into_its_segment) {
    fixture f = fixture_create(false, false, false);
    int copy;
    plan_copy(&f, &copy);
    for (int s = SPLIT; s <= JOIN; s++) plan_step(&f, s);
    int again = plan_step(&f, AGAIN);
    *binding(&f, again, 0) = *binding(&f, plan_step(&f, LAST), 0) = copy;
    expect(&f, MM_ERR_PLAN, "again forward, tensor r", "without a wait for decode of r");
}

TEST_CASE(writer_does_not_wait_for_an_encode_of_what_it_overwrites) {
    fixture f = fixture_create(false, false, false);
    int copy;
    plan_copy(&f, &copy);
    for (int s = SPLIT; s <= LAST; s++) plan_step(&f, s);
    expect(&f, MM_ERR_PLAN, "again forward, tensor r", "without a wait for encode of r");
}

TEST_CASE(decoded_value_is_older_than_what_was_written_since) {
    fixture f = fixture_create(false, false, false);
    int copy, decode = plan_copy(&f, &copy);
    for (int s = SPLIT; s <= AGAIN; s++) mm_plan_wait(f.plan, plan_step(&f, s), decode);
    int last = plan_step(&f, LAST);
    mm_plan_wait(f.plan, last, decode);
    *binding(&f, last, 0) = copy;
    expect(&f, MM_ERR_PLAN, "last forward, tensor r", "another value");
}

/* Checks that the proof accepts the plan, and calls every segment exact, but `copy` only if `exact`. Ends the
 * fixture. */
static void expect_exact(fixture *f, int copy, bool exact) {
    bool told[8];
    assert_true(f->plan->n_segments <= 8);
    assert_int_equal(mm_plan_finish(f->plan), MM_OK);
    if (plan_prove(f->plan, f->facts, &f->limits, told) != MM_OK) fail_msg("%s", mm_last_error());
    for (int i = 0; i < f->plan->n_segments; i++) assert_int_equal(told[i], i != copy || exact);
    expect(f, MM_OK, "", "");
}

TEST_CASE(what_a_lossy_code_gave_back_is_not_exact_for_being_written_anew_after_its_reader) {
    for (int lossless = 0; lossless < 2; lossless++) {
        fixture f = fixture_create(false, false, false);
        f.facts->codecs[0].lossless = lossless;
        int copy, decode = plan_copy(&f, &copy);
        int split = plan_step(&f, SPLIT);
        mm_plan_wait(f.plan, split, decode);
        *binding(&f, split, 0) = copy;
        for (int s = CHANGE; s <= JOIN; s++) plan_step(&f, s);
        *binding(&f, plan_step(&f, AGAIN), 0) = copy;
        *binding(&f, plan_step(&f, LAST), 0) = copy;
        expect_exact(&f, copy, lossless);
    }
}

TEST_CASE(what_a_lossy_code_gave_back_is_not_exact_for_being_modified) {
    for (int lossless = 0; lossless < 2; lossless++) {
        fixture f = fixture_create(false, false, false);
        f.facts->codecs[0].lossless = lossless;
        plan_step(&f, FIRST);
        int copy, decode = add_copy(&f, f.raw[1], plan_step(&f, SPLIT), &copy);
        int change = plan_step(&f, CHANGE);
        mm_plan_wait(f.plan, change, decode);
        *binding(&f, change, 0) = copy;
        *binding(&f, plan_step(&f, JOIN), 0) = copy;
        for (int s = AGAIN; s <= LAST; s++) plan_step(&f, s);
        expect_exact(&f, copy, lossless);
    }
}

TEST_CASE(shares_with_a_tensor_that_shares_itself) {
    fixture f = fixture_create(false, true, true);
    plan_steps(&f);
    f.plan->alias[f.b] = f.a;
    expect(&f, MM_ERR_PLAN, "tensor b", "which shares another's");
}

TEST_CASE(shares_with_no_tensor) {
    fixture f = fixture_create(false, false, false);
    plan_steps(&f);
    f.plan->alias[f.b] = 1000;
    expect(&f, MM_ERR_PLAN, "tensor b", "does not exist");
}
