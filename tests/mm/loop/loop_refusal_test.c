/* SPDX-License-Identifier: MIT */
/* What a loop refuses, and that it can go on afterwards. */
#include <string.h>

#include "tests/mm/loop/loop_fixture.h"

TEST_CASE(another_step_than_recorded_is_refused_with_both_names_and_does_not_run) {
    fixture f = start();
    bool again = true;
    record(&f);
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_true(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    leave_written(&f, a);
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
    if (STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES))) leave_written(&f, a);
    if (STEP(&f, "double", MM_FORWARD, mm_slot_read("x", 0, &a), mm_slot_result("y", 0, &b, BYTES)))
        leave_written(&f, b);
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
    over.over = &c;
    larger.over = &a;
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
        {{.name = "use"}, {mm_slot_read("x", 0, &a), over}, 2, {"slot 2", "wrong `over`"}},
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
