/* SPDX-License-Identifier: MIT */
/* self_check finds touches that are not what a slot says. The fixture's managers have it on. */
#include "tests/mm/loop/loop_fixture.h"

typedef enum lie { TRUTH, READ_ADDS, WRITE_ADDS, WRITE_LEAVES, GIVEN_ADDS, LIES } lie;

/* Sums two gradients into dx, the first of which it equals at first. The step tells one lie. */
static mm_status iterate(const fixture *f, lie told) {
    bool again = false;
    mm_slot given[] = {mm_slot_read("dy", 0, &a), mm_slot_add("dz", 0, &b, BYTES)};
    given[1].over = &a;
    expect_ok(mm_loop_begin(f->loop, 0));
    if (STEP(f, "loss", MM_BACKWARD, mm_slot_write("dy", 0, &a, BYTES))) {
        for (int i = 0; i < N - (told == WRITE_LEAVES); i++) a[i] = (float)i;
        mm_loop_leave(f->loop);
    }
    if (STEP(f, "relu", MM_BACKWARD, mm_slot_read("dy", 0, &a), mm_slot_write("dx", 0, &b, BYTES))) {
        for (int i = 0; i < N; i++) b[i] = told == WRITE_ADDS ? b[i] + a[i] : a[i];
        if (told == READ_ADDS) a[3] += 1;
        mm_loop_leave(f->loop);
    }
    if (step(f, "sum", MM_BACKWARD, given, 2)) {
        for (int i = 0; i < N && (told == GIVEN_ADDS || !mm_loop_given(f->loop, &b)); i++) b[i] += a[i];
        mm_loop_leave(f->loop);
    }
    if (STEP(f, "use", MM_BACKWARD, mm_slot_read("dz", 0, &a), mm_slot_read("dx", 0, &b))) mm_loop_leave(f->loop);
    mm_status status = mm_loop_end(f->loop, &again);
    return status == MM_OK && again ? iterate(f, told) : status;
}

TEST_CASE(a_touch_that_is_another_is_found_with_its_step_and_tensor) {
    static const char *const says[LIES][3] = {
        [READ_ADDS] = {"relu.0 backward writes tensor dy.0", "declares MM_READ", "declare MM_MODIFY"},
        [WRITE_ADDS] = {"relu.0 backward declares MM_WRITE of tensor dx.0", "adds to what was there", "MM_TOUCH_ADD"},
        [WRITE_LEAVES] = {"loss.0 backward declares MM_WRITE of tensor dy.0", "byte 252 of 256", "write every byte"},
        [GIVEN_ADDS] = {"sum.0 backward writes", "other bits", "mm_graph_allow_alias"},
    };
    static const char *const policies[] = {"liveness", "naive", "swap-async:when=always"};
    for (size_t p = 0; p < COUNT(policies); p++)
        for (lie told = TRUTH; told < LIES; told++) {
            fixture f = start_with(policies[p], MM_LOOP_RECORD_ONLY);
            const mm_status status = iterate(&f, told);
            if (status != (told == TRUTH ? MM_OK : MM_ERR_INVALID))
                fail_msg("%s, lie %d: %s: %s", policies[p], (int)told, mm_status_name(status), mm_last_error());
            for (int w = 0; w < 3 && told != TRUTH; w++)
                if (!strstr(mm_last_error(), says[told][w]))
                    fail_msg("%s: '%s' does not say '%s'", policies[p], mm_last_error(), says[told][w]);
            finish(&f);
        }
}

TEST_CASE(a_first_add_that_is_declared_a_modification_is_refused_with_what_to_declare) {
    fixture f = start();
    expect_ok(mm_loop_begin(f.loop, 0));
    assert_false(STEP(&f, "relu", MM_BACKWARD, mm_slot_modify("dx", 0, &a)));
    EXPECT_FAILURE(&f, MM_ERR_INVALID, "relu.0 backward modifies dx.0", "declare MM_TOUCH_ADD");
    finish(&f);
}
