/* SPDX-License-Identifier: MIT */
/* What each call of a loop does, and what it refuses. */
#include <string.h>

#include "tests/core/expect.h"
#include "tests/mm/loop/loop_toy.h"

enum { N = 64, BYTES = N * 4, ARENA = 1 << 20 };

/* Pointers that slots fill: file scope, as results outlive a step. */
static float *a, *b, *c;

typedef struct fixture {
    mm_manager *m;
    mm_loop *loop;
} fixture;

static fixture start_with(const char *policy, mm_loop_record record) {
    fixture f;
    const mm_options options = {.device_bytes = ARENA, .pinned_bytes = ARENA, .policy = policy, .self_check = true};
    expect_ok(mm_manager_create(&options, &f.m));
    expect_ok(mm_loop_create(f.m, &(mm_loop_options){.record = record}, &f.loop));
    a = b = c = NULL;
    return f;
}

static fixture start(void) { return start_with("liveness", MM_LOOP_RECORD_ONLY); }

static void finish(const fixture *f) {
    mm_loop_destroy(f->loop);
    mm_manager_destroy(f->m);
}

static bool step(const fixture *f, const char *name, mm_phase phase, const mm_slot *slots, size_t n) {
    return mm_loop_enter(f->loop, &(mm_loop_step){.name = name, .phase = phase, .kind = MM_LAYER_RELU}, slots, n);
}

#define COUNT(slots) (sizeof(slots) / sizeof *(slots))
#define SLOTS(...)                                                                                                     \
    (const mm_slot[]) { __VA_ARGS__ }
#define STEP(f, name, phase, ...) step(f, name, phase, SLOTS(__VA_ARGS__), COUNT((SLOTS(__VA_ARGS__))))

/* Ends an iteration that must fail so, with all of `words` in its message. */
static void expect_failure(const fixture *f, mm_status wanted, const char *const *words) {
    bool again;
    const mm_status status = mm_loop_end(f->loop, &again);
    if (status != wanted) fail_msg("%s: %s", mm_status_name(status), mm_last_error());
    for (; *words; words++)
        if (!strstr(mm_last_error(), *words)) fail_msg("'%s' does not say '%s'", mm_last_error(), *words);
}
#define EXPECT_FAILURE(f, status, ...) expect_failure(f, status, (const char *const[]){__VA_ARGS__, NULL})

/* ---------------------------------------------------------------- recording and running */

/* write; read and write. Returns whether the steps computed. */
static bool pass(const fixture *f, int64_t key) {
    bool again;
    expect_ok(mm_loop_begin(f->loop, key));
    if (STEP(f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES))) {
        assert_non_null(a);
        for (int i = 0; i < N; i++) a[i] = (float)i;
        mm_loop_leave(f->loop);
    }
    assert_null(a);
    if (STEP(f, "double", MM_FORWARD, mm_slot_read("x", 0, &a), mm_slot_result("y", 0, &b, BYTES))) {
        for (int i = 0; i < N; i++) b[i] = 2 * a[i];
        mm_loop_leave(f->loop);
    }
    assert_null(a);
    expect_ok(mm_loop_end(f->loop, &again));
    return !again;
}

TEST_CASE(a_new_key_is_recorded_and_then_run) {
    fixture f = start();
    mm_stats stats;
    assert_null(mm_loop_graph(f.loop, 5));
    assert_false(pass(&f, 5));
    assert_null(b);
    mm_stats_get(f.m, &stats);
    assert_int_equal(stats.iterations, 0);
    assert_non_null(mm_loop_graph(f.loop, 5));
    for (int i = 0; i < 3; i++) assert_true(pass(&f, 5));
    mm_stats_get(f.m, &stats);
    assert_int_equal(stats.iterations, 3);
    finish(&f);
}

TEST_CASE(a_recording_that_runs_computes_on_plain_memory_and_is_not_run_again) {
    fixture f = start_with("liveness", MM_LOOP_RECORD_RUN);
    mm_stats stats;
    for (int i = 0; i < 3; i++) {
        assert_true(pass(&f, -1));
        assert_true(b[N - 1] == 2 * (N - 1));
        mm_stats_get(f.m, &stats);
        assert_int_equal(stats.iterations, i);
    }
    finish(&f);
}

TEST_CASE(a_result_is_readable_until_the_next_iteration_begins) {
    fixture f = start();
    pass(&f, 0);
    pass(&f, 0);
    expect_ok(mm_policy_set(f.m, "naive"));
    expect_ok(mm_budget_set(f.m, ARENA / 2));
    for (int i = 0; i < N; i++) assert_true(b[i] == 2 * (float)i);
    expect_ok(mm_loop_begin(f.loop, 1));
    assert_null(b);
    mm_loop_abort(f.loop);
    finish(&f);
}

TEST_CASE(results_of_two_keys_share_their_memory_and_of_two_loops_do_not) {
    fixture f = start(), g = f;
    pass(&f, 0);
    pass(&f, 0);
    const float *first = b;
    pass(&f, 1);
    pass(&f, 1);
    assert_ptr_equal(b, first);
    expect_ok(mm_loop_create(f.m, NULL, &g.loop));
    pass(&g, 0);
    pass(&g, 0);
    assert_ptr_not_equal(b, first);
    assert_true(first[N - 1] == 2 * (N - 1));
    mm_loop_destroy(g.loop);
    finish(&f);
}

/* A result that a later step reads keeps its pointer, too. */
TEST_CASE(a_result_can_be_read_by_a_later_step_through_the_same_pointer) {
    fixture f = start();
    for (int i = 0; i < 2; i++) {
        bool again;
        expect_ok(mm_loop_begin(f.loop, 0));
        if (STEP(&f, "make", MM_FORWARD, mm_slot_result("x", 0, &a, BYTES))) {
            a[3] = 5;
            mm_loop_leave(f.loop);
        }
        if (STEP(&f, "use", MM_FORWARD, mm_slot_read("x", 0, &a), mm_slot_write("y", 0, &b, BYTES))) {
            b[0] = a[3];
            mm_loop_leave(f.loop);
            assert_null(b);
        }
        expect_ok(mm_loop_end(f.loop, &again));
    }
    assert_true(a[3] == 5);
    finish(&f);
}

TEST_CASE(names_are_compared_as_text_not_as_addresses) {
    fixture f = start();
    char name[16] = "make", tensor[16] = "x";
    for (int i = 0; i < 2; i++) {
        bool again;
        expect_ok(mm_loop_begin(f.loop, 0));
        strcpy(name, "make");
        if (STEP(&f, name, MM_FORWARD, mm_slot_write(tensor, 0, &a, BYTES))) mm_loop_leave(f.loop);
        strcpy(name, "next");
        if (STEP(&f, name, MM_FORWARD, mm_slot_read(tensor, 0, &a))) mm_loop_leave(f.loop);
        expect_ok(mm_loop_end(f.loop, &again));
    }
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_true(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    mm_loop_leave(f.loop);
    strcpy(name, "other");
    assert_false(STEP(&f, name, MM_FORWARD, mm_slot_read(tensor, 0, &a)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "step 1 of key 0", "other.0 forward", "next.0 forward");
    finish(&f);
}

/* ---------------------------------------------------------------- touches */

TEST_CASE(the_first_add_of_an_iteration_finds_zeros_and_later_ones_the_sum) {
    fixture f = start();
    for (int i = 0; i < 4; i++) {
        bool again;
        expect_ok(mm_loop_begin(f.loop, 0));
        if (STEP(&f, "first", MM_BACKWARD, mm_slot_add("dx", 0, &a, BYTES))) {
            for (int k = 0; k < N; k++) assert_true(a[k] == 0);
            for (int k = 0; k < N; k++) a[k] += 3;
            mm_loop_leave(f.loop);
        }
        if (STEP(&f, "second", MM_BACKWARD, mm_slot_add("dx", 0, &a, 0))) {
            for (int k = 0; k < N; k++) a[k] += 4;
            mm_loop_leave(f.loop);
        }
        if (STEP(&f, "third", MM_BACKWARD, mm_slot_modify("dx", 0, &a))) {
            for (int k = 0; k < N; k++) a[k] *= 2;
            mm_loop_leave(f.loop);
        }
        if (STEP(&f, "fourth", MM_BACKWARD, mm_slot_read("dx", 0, &a))) {
            for (int k = 0; k < N; k++) assert_true(a[k] == 14);
            mm_loop_leave(f.loop);
        }
        expect_ok(mm_loop_end(f.loop, &again));
    }
    finish(&f);
}

/* Returns whether both lay in one place. */
static bool run_given(const fixture *f) {
    bool again, same = false;
    mm_slot slots[] = {mm_slot_read("dy", 0, &a), mm_slot_add("dx", 0, &b, BYTES)};
    slots[1].over = 1;
    expect_ok(mm_loop_begin(f->loop, 0));
    if (STEP(f, "make", MM_BACKWARD, mm_slot_write("dy", 0, &a, BYTES))) {
        for (int k = 0; k < N; k++) a[k] = k % 2 ? -0.0F : (float)k;
        mm_loop_leave(f->loop);
    }
    if (step(f, "split", MM_BACKWARD, slots, 2)) {
        assert_true(mm_loop_given(f->loop, 1));
        assert_false(mm_loop_given(f->loop, 0));
        assert_false(mm_loop_given(f->loop, 2));
        assert_memory_equal(a, b, BYTES);
        same = a == b;
        mm_loop_leave(f->loop);
    }
    assert_false(mm_loop_given(f->loop, 1));
    if (STEP(f, "use", MM_BACKWARD, mm_slot_read("dy", 0, &a), mm_slot_read("dx", 0, &b))) {
        assert_memory_equal(a, b, BYTES);
        mm_loop_leave(f->loop);
    }
    expect_ok(mm_loop_end(f->loop, &again));
    return same;
}

TEST_CASE(a_first_add_that_equals_another_slot_is_given_by_one_place_or_by_a_copy) {
    fixture f = start();
    assert_false(run_given(&f));
    assert_true(run_given(&f));
    expect_ok(mm_policy_set(f.m, "naive"));
    assert_false(run_given(&f));
    finish(&f);
}

TEST_CASE(a_write_may_lie_over_what_the_step_reads_last) {
    fixture f = start();
    bool again, over = false;
    for (int i = 0; i < 2; i++) {
        mm_slot slots[] = {mm_slot_read("x", 0, &a), mm_slot_write("y", 0, &b, BYTES)};
        slots[1].over = 1;
        expect_ok(mm_loop_begin(f.loop, 0));
        if (STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES))) mm_loop_leave(f.loop);
        if (step(&f, "relu", MM_FORWARD, slots, 2)) {
            over = a == b;
            mm_loop_leave(f.loop);
        }
        if (STEP(&f, "use", MM_FORWARD, mm_slot_read("y", 0, &a))) mm_loop_leave(f.loop);
        expect_ok(mm_loop_end(f.loop, &again));
    }
    assert_true(over);
    finish(&f);
}

TEST_CASE(scratch_belongs_to_one_step_and_blocks_of_it_do_not_overlap) {
    fixture f = start();
    bool again, ran = false;
    for (int i = 0; i < 2; i++) {
        expect_ok(mm_loop_begin(f.loop, 0));
        if (STEP(&f, "one", MM_FORWARD, mm_slot_scratch(&a, BYTES), mm_slot_write("x", 0, &b, BYTES),
                 mm_slot_scratch(&c, 12))) {
            memset(a, 1, BYTES);
            memset(b, 2, BYTES);
            memset(c, 3, 12);
            assert_int_equal(*(char *)a, 1);
            assert_int_equal(((char *)a)[BYTES - 1], 1);
            assert_int_equal((uintptr_t)c % 256, 0);
            ran = true;
            mm_loop_leave(f.loop);
            assert_null(a);
            assert_null(c);
        }
        expect_ok(mm_loop_end(f.loop, &again));
    }
    assert_true(ran);
    finish(&f);
}

TEST_CASE(a_read_of_signs_says_in_which_form_they_are) {
    fixture f = start_with("freelunch:eligible=all,rate=8,when=always", MM_LOOP_RECORD_ONLY);
    static const char *const names[] = {"p", "q", "r", "s"};
    bool again, ran = false;
    for (int i = 0; i < 2; i++) {
        mm_slot sign = mm_slot_read("x", 0, &a);
        sign.form = MM_FORM_SIGN;
        expect_ok(mm_loop_begin(f.loop, 0));
        if (STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES))) {
            for (int k = 0; k < N; k++) a[k] = k % 3 ? 1 : -1;
            mm_loop_leave(f.loop);
        }
        for (int l = 0; l < 4; l++)
            if (STEP(&f, names[l], MM_FORWARD, mm_slot_write("y", l, &b, BYTES))) mm_loop_leave(f.loop);
        if (step(&f, "back", MM_BACKWARD, &sign, 1)) {
            const bool mask = mm_loop_form(f.loop, 0) == MM_FORM_SIGN;
            const uint32_t *bits = (const uint32_t *)(const void *)a;
            for (int k = 0; k < N; k++) assert_int_equal(mask ? bits[k / 32] >> k % 32 & 1 : a[k] > 0, k % 3 != 0);
            ran = true;
            mm_loop_leave(f.loop);
        }
        expect_ok(mm_loop_end(f.loop, &again));
    }
    assert_true(ran);
    finish(&f);
}

/* ---------------------------------------------------------------- tables */

TEST_CASE(a_tables_pointers_lead_to_a_row_by_the_programs_own_arithmetic) {
    enum { ROWS = 3 };
    static const char *const names[] = {"in", "map", "out"};
    static const size_t bytes[] = {BYTES, ROWS * BYTES, ROWS * BYTES};
    struct {
        float *in, *map, *out;
    } at = {0};
    const mm_table table = {names, &at, bytes, 3, ROWS, 6, MM_F32};
    fixture f = start();
    bool again;
    for (int i = 0; i < 2; i++) {
        mm_slot slots[64];
        size_t n = mm_table_slots(&table, 1, 7, MM_TOUCH_WRITE, slots);
        assert_int_equal(n, 1);
        assert_int_equal(slots[0].row, 0);
        expect_ok(mm_loop_begin(f.loop, 0));
        if (step(&f, "in", MM_FORWARD, slots, n)) {
            for (int k = 0; k < N; k++) at.in[k] = (float)k;
            mm_loop_leave(f.loop);
        }
        for (int l = 0; l < ROWS; l++) {
            n = mm_table_slots(&table, 1, l, MM_TOUCH_READ, slots);
            n += mm_table_slots(&table, 6, l, MM_TOUCH_WRITE, slots + n);
            assert_int_equal(n, 3);
            if (!mm_loop_enter(f.loop, &(mm_loop_step){.name = "block", .row = l}, slots, n)) continue;
            for (int k = 0; k < N; k++) (at.map + l * N)[k] = at.in[k] + (float)l;
            for (int k = 0; k < N; k++) (at.out + l * N)[k] = 2 * (at.map + l * N)[k];
            mm_loop_leave(f.loop);
            assert_null(at.map);
        }
        for (int l = ROWS - 1; l >= 0; l--) {
            n = mm_table_slots(&table, 6 | UINT64_C(1) << 63, l, MM_TOUCH_READ, slots);
            assert_int_equal(n, 2);
            const mm_loop_step back = {.name = "block", .row = l, .phase = MM_BACKWARD};
            if (!mm_loop_enter(f.loop, &back, slots, n)) continue;
            for (int k = 0; k < N; k++) assert_true((at.out + l * N)[k] == 2 * (float)(k + l));
            for (int k = 0; k < N; k++) assert_true((at.map + l * N)[k] == (float)(k + l));
            mm_loop_leave(f.loop);
        }
        expect_ok(mm_loop_end(f.loop, &again));
    }
    finish(&f);
}

/* ---------------------------------------------------------------- refusals */

static void record(const fixture *f) {
    if (!pass(f, 0)) pass(f, 0);
}

TEST_CASE(another_step_than_recorded_is_refused_with_both_names_and_does_not_run) {
    fixture f = start();
    bool again = true;
    record(&f);
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_true(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    mm_loop_leave(f.loop);
    assert_false(STEP(&f, "triple", MM_FORWARD, mm_slot_read("x", 0, &a), mm_slot_result("y", 0, &b, BYTES)));
    assert_false(STEP(&f, "double", MM_FORWARD, mm_slot_read("x", 0, &a), mm_slot_result("y", 0, &b, BYTES)));
    mm_loop_leave(f.loop);
    assert_null(a);
    assert_null(b);
    assert_int_equal(mm_loop_end(f.loop, &again), MM_ERR_ORDER);
    assert_string_equal(mm_last_error(), "step 1 of key 0 is triple.0 forward, recorded was double.0 forward; begin "
                                         "another key for another order");
    assert_true(again);
    assert_int_equal(mm_loop_end(f.loop, &again), MM_ERR_ORDER);
    assert_true(pass(&f, 0));
    assert_true(b[1] == 2);
    finish(&f);
}

TEST_CASE(another_size_tensor_touch_or_number_of_slots_is_refused_with_both) {
    fixture f = start();
    record(&f);
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, 2 * BYTES)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "make.0 forward", "write x.0, 512 bytes", "write x.0, 256 bytes", "another key");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_write("z", 0, &a, BYTES)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "z.0", "x.0");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 1, &a, BYTES)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "x.1", "x.0");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_add("x", 0, &a, BYTES)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "add x.0", "write x.0");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES), mm_slot_scratch(&b, 4)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "make.0 forward", "2 slots", "recorded were 1");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, NULL, BYTES)));
    EXPECT_FAILURE(&f, MM_ERR_INVALID, "make.0 forward", "no pointer");
    assert_true(pass(&f, 0));
    finish(&f);
}

TEST_CASE(an_iteration_that_is_too_short_or_too_long_is_refused) {
    fixture f = start();
    record(&f);
    expect_ok(mm_loop_begin(f.loop, 0));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "2 more steps", "make.0 forward");
    expect_ok(mm_loop_begin(f.loop, 0));
    if (STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES))) mm_loop_leave(f.loop);
    if (STEP(&f, "double", MM_FORWARD, mm_slot_read("x", 0, &a), mm_slot_result("y", 0, &b, BYTES)))
        mm_loop_leave(f.loop);
    assert_false(STEP(&f, "more", MM_FORWARD, mm_slot_read("x", 0, &a)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "more.0 forward", "the end");
    assert_null(b);
    finish(&f);
}

TEST_CASE(a_declaration_that_makes_no_sense_is_refused_and_the_key_stays_new) {
    static const mm_loop_step again = {.name = "make"}, nameless = {.name = ""};
    fixture f = start();
    const mm_slot x = mm_slot_write("x", 0, &a, BYTES),
                  wrong_touch = {.name = "x", .touch = (mm_loop_touch)9, .where = &a};
    mm_slot over = mm_slot_write("y", 0, &b, BYTES), larger = mm_slot_write("y", 0, &b, 2 * BYTES);
    over.over = 3;
    larger.over = 1;
    const struct {
        mm_loop_step step;
        mm_slot slots[2];
        size_t n;
        const char *words[2];
    } cases[] = {
        {{.name = "use"}, {mm_slot_read("z", 3, &a)}, 1, {"use.0 forward reads z.3", "no step before"}},
        {{.name = "use"}, {mm_slot_modify("z", 3, &a)}, 1, {"use.0 forward modifies z.3", "no step before"}},
        {{.name = "use"}, {mm_slot_write("z", 0, &a, 6)}, 1, {"z.0", "6 bytes of f32"}},
        {{.name = "use"}, {mm_slot_add("z", 0, &a, 0)}, 1, {"z.0", "0 bytes"}},
        {{.name = "use"}, {mm_slot_write("x", 0, &a, 8)}, 1, {"x.0 has 8 bytes", "256"}},
        {{.name = "use"}, {mm_slot_result("x", 0, &a, BYTES)}, 1, {"x.0 is a result here", "first"}},
        {{.name = "use"}, {mm_slot_scratch(&a, 0)}, 1, {"use.0 forward", "scratch of 0 bytes"}},
        {{.name = "use"}, {mm_slot_read("x", 0, &a), mm_slot_scratch(&a, 4)}, 2, {"slots 1 and 2", "same pointer"}},
        {{.name = "use"}, {mm_slot_read("x", 0, &a), mm_slot_modify("x", 0, &b)}, 2, {"x.0", "twice"}},
        {{.name = "use"}, {mm_slot_read("x", 0, NULL)}, 1, {"slot 1", "no pointer"}},
        {{.name = "use"}, {mm_slot_read("", 0, &a)}, 1, {"slot 1", "no name"}},
        {{.name = "use"}, {mm_slot_read("x", 0, &a), over}, 2, {"slot 2", "over slot 3"}},
        {{.name = "use"}, {mm_slot_read("x", 0, &a), larger}, 2, {"y.0 of 512 bytes", "x.0 of 256"}},
        {{.name = "use"}, {wrong_touch}, 1, {"slot 1", "touch 9"}},
        {again, {mm_slot_read("x", 0, &a)}, 1, {"make.0 forward", "already"}},
        {nameless, {mm_slot_read("x", 0, &a)}, 1, {"no name", "step"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_ok(mm_loop_begin(f.loop, 0));
        assert_false(STEP(&f, "make", MM_FORWARD, x));
        assert_false(mm_loop_enter(f.loop, &cases[i].step, cases[i].slots, cases[i].n));
        assert_false(STEP(&f, "other", MM_FORWARD, mm_slot_read("x", 0, &a)));
        EXPECT_FAILURE(&f, MM_ERR_INVALID, cases[i].words[0], cases[i].words[1]);
        assert_null(mm_loop_graph(f.loop, 0));
    }
    assert_false(pass(&f, 0));
    finish(&f);
}

TEST_CASE(calls_out_of_order_are_refused) {
    fixture f = start();
    bool again;
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "make.0 forward", "no iteration");
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "no iteration");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_int_equal(mm_loop_begin(f.loop, 0), MM_ERR_ORDER);
    EXPECT_FAILURE(&f, MM_ERR_INVALID, "has no step");
    record(&f);
    expect_ok(mm_loop_begin(f.loop, 0));
    mm_loop_leave(f.loop);
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "mm_loop_leave", "no step");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_true(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    assert_int_equal(mm_loop_forget(f.loop, 0), MM_ERR_ORDER);
    assert_false(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    assert_null(a);
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "make.0 forward is under way");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_true(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "mm_loop_end", "make.0 forward is under way");
    assert_null(a);
    expect_ok(mm_loop_forget(f.loop, 0));
    assert_int_equal(mm_loop_forget(f.loop, 0), MM_ERR_NOT_FOUND);
    assert_false(pass(&f, 0));
    assert_int_equal(mm_loop_begin(NULL, 0), MM_ERR_INVALID);
    assert_int_equal(mm_loop_end(NULL, &again), MM_ERR_INVALID);
    mm_loop_abort(NULL);
    mm_loop_destroy(NULL);
    finish(&f);
}

TEST_CASE(another_iteration_of_the_manager_is_told_and_nothing_is_lost) {
    fixture f = start(), g = f;
    expect_ok(mm_loop_create(f.m, NULL, &g.loop));
    record(&f);
    record(&g);
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_int_equal(mm_loop_begin(g.loop, 0), MM_ERR_ORDER);
    assert_false(STEP(&g, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    EXPECT_FAILURE(&g, MM_ERR_ORDER, "under way");
    mm_loop_abort(f.loop);
    assert_true(pass(&g, 0));
    assert_true(pass(&f, 0));
    mm_loop_destroy(g.loop);
    finish(&f);
}

static mm_status refuse(void *ctx, int32_t row) {
    (void)ctx;
    return row == 0 ? MM_ERR_UNSUPPORTED : MM_OK;
}

TEST_CASE(a_function_that_fails_fails_the_iteration) {
    fixture f = start();
    const mm_slot x = mm_slot_write("x", 0, &a, BYTES);
    bool again;
    for (int i = 0; i < 2; i++) {
        expect_ok(mm_loop_begin(f.loop, 0));
        mm_loop_run(f.loop, &(mm_loop_step){.name = "make", .run = refuse}, &x, 1);
        if (i == 0) expect_ok(mm_loop_end(f.loop, &again));
    }
    assert_null(a);
    EXPECT_FAILURE(&f, MM_ERR_UNSUPPORTED, "make.0 forward returned");
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "make", MM_FORWARD, x));
    EXPECT_FAILURE(&f, MM_ERR_ORDER, "make.0 forward", "no function");
    finish(&f);
}

TEST_CASE(options_of_a_newer_header_and_wrong_ones_are_refused) {
    fixture f = start();
    struct {
        mm_loop_options known;
        char newer[8];
    } options = {.newer = {0}};
    mm_loop *loop = NULL;
    expect_ok(mm_loop_create_sized(f.m, &options.known, sizeof options, &loop));
    mm_loop_destroy(loop);
    options.newer[3] = 1;
    assert_int_equal(mm_loop_create_sized(f.m, &options.known, sizeof options, &loop), MM_ERR_UNSUPPORTED);
    assert_int_equal(mm_loop_create(f.m, &(mm_loop_options){.record = (mm_loop_record)7}, &loop), MM_ERR_INVALID);
    assert_int_equal(mm_loop_create(f.m, &(mm_loop_options){.stream = &f}, &loop), MM_ERR_INVALID);
    assert_int_equal(mm_loop_create(NULL, NULL, &loop), MM_ERR_INVALID);
    finish(&f);
}
