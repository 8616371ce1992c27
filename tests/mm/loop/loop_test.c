/* SPDX-License-Identifier: MIT */
/* What a loop records and runs, what each touch means, and tables. */
#include <string.h>

#include "tests/mm/loop/loop_fixture.h"

/* ---------------------------------------------------------------- recording and running */

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
    pass(&f, 0);
    assert_non_null(b);
    expect_ok(mm_loop_forget(f.loop, 0));
    assert_null(b);
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
            for (int k = 0; k < N; k++) a[k] = 5;
            mm_loop_leave(f.loop);
        }
        if (STEP(&f, "use", MM_FORWARD, mm_slot_read("x", 0, &a), mm_slot_write("y", 0, &b, BYTES))) {
            memcpy(b, a, BYTES);
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
        if (STEP(&f, name, MM_FORWARD, mm_slot_write(tensor, 0, &a, BYTES))) leave_written(&f, a);
        strcpy(name, "next");
        if (STEP(&f, name, MM_FORWARD, mm_slot_read(tensor, 0, &a))) mm_loop_leave(f.loop);
        expect_ok(mm_loop_end(f.loop, &again));
    }
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_true(STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES)));
    leave_written(&f, a);
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

/* made: what dy is made as. Returns whether both lay in one place. */
static bool run_given(const fixture *f, int64_t key, mm_slot made) {
    bool again, same = false;
    mm_slot slots[] = {mm_slot_read("dy", 0, &a), mm_slot_add("dx", 0, &b, BYTES)};
    slots[1].over = &a;
    expect_ok(mm_loop_begin(f->loop, key));
    if (step(f, "make", MM_BACKWARD, &made, 1)) {
        for (int k = 0; k < N; k++) a[k] = k % 2 ? -0.0F : (float)k;
        mm_loop_leave(f->loop);
    }
    if (step(f, "split", MM_BACKWARD, slots, 2)) {
        assert_true(mm_loop_given(f->loop, &b));
        assert_false(mm_loop_given(f->loop, &a));
        assert_false(mm_loop_given(f->loop, &c));
        assert_memory_equal(a, b, BYTES);
        same = a == b;
        mm_loop_leave(f->loop);
    }
    assert_false(mm_loop_given(f->loop, &b));
    if (STEP(f, "use", MM_BACKWARD, mm_slot_read("dy", 0, &a), mm_slot_read("dx", 0, &b))) {
        assert_memory_equal(a, b, BYTES);
        mm_loop_leave(f->loop);
    }
    expect_ok(mm_loop_end(f->loop, &again));
    return same;
}

TEST_CASE(a_first_add_that_equals_another_slot_is_given_by_one_place_or_by_a_copy) {
    fixture f = start();
    const mm_slot map = mm_slot_write("dy", 0, &a, BYTES), result = mm_slot_result("dy", 0, &a, BYTES);
    assert_false(run_given(&f, 0, map));
    assert_true(run_given(&f, 0, map));
    assert_false(run_given(&f, 1, result));
    assert_false(run_given(&f, 1, result)); /* what is computed on dx later must not change the result */
    expect_ok(mm_policy_set(f.m, "naive"));
    assert_false(run_given(&f, 0, map));
    finish(&f);
}

TEST_CASE(a_write_may_lie_over_what_the_step_reads_last) {
    fixture f = start();
    bool again, over = false;
    for (int i = 0; i < 2; i++) {
        mm_slot slots[] = {mm_slot_read("x", 0, &a), mm_slot_write("y", 0, &b, BYTES)};
        slots[1].over = &a;
        expect_ok(mm_loop_begin(f.loop, 0));
        if (STEP(&f, "make", MM_FORWARD, mm_slot_write("x", 0, &a, BYTES))) leave_written(&f, a);
        if (step(&f, "relu", MM_FORWARD, slots, 2)) {
            over = a == b;
            leave_written(&f, b);
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
            if (STEP(&f, names[l], MM_FORWARD, mm_slot_write("y", l, &b, BYTES))) leave_written(&f, b);
        if (step(&f, "back", MM_BACKWARD, &sign, 1)) {
            const bool mask = mm_loop_form(f.loop, &a) == MM_FORM_SIGN;
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
