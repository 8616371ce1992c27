/* SPDX-License-Identifier: MIT */
#include "tests/mm/loop/loop_fixture.h"

float *a, *b, *c;

fixture start_with(const char *policy, mm_loop_record record) {
    fixture f;
    const mm_options options = {.device_bytes = ARENA, .pinned_bytes = ARENA, .policy = policy, .self_check = true};
    expect_ok(mm_manager_create(&options, &f.m));
    expect_ok(mm_loop_create(f.m, &(mm_loop_options){.record = record}, &f.loop));
    a = b = c = NULL;
    return f;
}

fixture start(void) { return start_with("liveness", MM_LOOP_RECORD_ONLY); }

void finish(const fixture *f) {
    mm_loop_destroy(f->loop);
    mm_manager_destroy(f->m);
}

bool step(const fixture *f, const char *name, mm_phase phase, const mm_slot *slots, size_t n) {
    return mm_loop_enter(f->loop, &(mm_loop_step){.name = name, .phase = phase, .kind = MM_LAYER_RELU}, slots, n);
}

void leave_written(const fixture *f, float *output) {
    memset(output, 0, BYTES);
    mm_loop_leave(f->loop);
}

void expect_failure(const fixture *f, mm_status wanted, const char *const *words) {
    bool again;
    const mm_status status = mm_loop_end(f->loop, &again);
    if (status != wanted) fail_msg("%s: %s", mm_status_name(status), mm_last_error());
    for (; *words; words++)
        if (!strstr(mm_last_error(), *words)) fail_msg("'%s' does not say '%s'", mm_last_error(), *words);
}
bool pass(const fixture *f, int64_t key) {
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

void record(const fixture *f) {
    if (!pass(f, 0)) pass(f, 0);
}
