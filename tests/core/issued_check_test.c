/* SPDX-License-Identifier: MIT */
/* Logs of issued work against plans: what a dispatcher issues is right; each fault is found, and the message names the
 * node, its stream, and what is missing. Of waits that are left out, brute force says whether the order suffers. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/check/issued_check.h"
#include "mm/core/plan/plan_file.h"
#include "mm/core/status.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/plan_files.h"
#include "tests/core/random.h"
#include "tests/core/test_case.h"

/* Numbers of streams, of events, and addresses of both memories. */
enum { STREAM = 1000, JOIN = 2000, EVENT = 3000, SUMS = 999 };
static const uint64_t DEVICE = UINT64_C(0x7f0000000000), PINNED = UINT64_C(0x7e0000000000);

typedef struct issue {
    mm_issued_plan plan;
    mm_issued *log;
    int n, capacity;
    bool threads; /* workers issue the side streams */
    int32_t caller;
} issue;

static void add(issue *x, mm_issued entry) {
    if (x->n == x->capacity) {
        x->capacity = x->capacity ? 2 * x->capacity : 256;
        x->log = realloc(x->log, (size_t)x->capacity * sizeof *x->log);
        assert_non_null(x->log);
    }
    entry.caller = x->caller;
    x->log[x->n++] = entry;
}

static issue issue_create(const mm_program *program, bool threads) {
    issue x = {.plan = {.program = program, .device = DEVICE, .pinned = PINNED, .sums = SUMS}, .threads = threads};
    for (int s = 0; s < MM_STREAM_COUNT; s++) x.plan.streams[s] = (uint64_t)(STREAM + s);
    return x;
}

static uint64_t at(const mm_segment *s) { return (s->memory == MM_MEM_PINNED ? PINNED : DEVICE) + (uint64_t)s->offset; }

static uint64_t at_heap(const mm_plan *plan, const mm_segment *s) {
    return s->dynamic ? DEVICE + (uint64_t)plan->heap_offset : at(s);
}

/* What a piece enqueues. */
static void add_work(issue *x, const mm_piece *piece) {
    const mm_plan *plan = x->plan.program->plan;
    const mm_node *n = &plan->nodes[piece->node];
    const uint64_t stream = (uint64_t)(STREAM + piece->stream), from = (uint64_t)piece->stored_offset;
    if (n->kind != MM_NODE_OUT && n->kind != MM_NODE_IN) {
        add(x, (mm_issued){.kind = MM_ISSUED_TASK, .stream = stream});
        if (n->stage >= 0)
            add(x, (mm_issued){.kind = MM_ISSUED_COPY,
                               .stream = stream,
                               .dst = at_heap(plan, &plan->segments[n->dst]),
                               .src = at_heap(plan, &plan->segments[n->stage]),
                               .bytes = plan->segments[n->dst].bytes});
        return;
    }
    add(x, (mm_issued){.kind = MM_ISSUED_COPY,
                       .stream = stream,
                       .dst = at_heap(plan, &plan->segments[n->dst]) + from,
                       .src = at_heap(plan, &plan->segments[n->src]) + from,
                       .bytes = piece->stored_bytes});
}

/* What a dispatcher issues of an iteration, and, where the next one begins, makes the compute stream wait for. */
static void add_iteration(issue *x, bool computed) {
    const mm_program *p = x->plan.program;
    if (computed) add(x, (mm_issued){.kind = MM_ISSUED_SYNC, .stream = STREAM + MM_STREAM_COMPUTE});
    for (int i = 0; i < p->n; i++) {
        const mm_piece *piece = &p->pieces[i];
        const bool inline_step = computed && piece->stream == MM_STREAM_COMPUTE;
        const uint64_t stream = (uint64_t)(STREAM + piece->stream);
        x->caller = x->threads && piece->stream != MM_STREAM_COMPUTE ? 1 + (int32_t)piece->stream : 0;
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (piece->wait[s] >= 0)
                add(x, (mm_issued){.kind = inline_step ? MM_ISSUED_SYNC : MM_ISSUED_WAIT,
                                   .stream = stream,
                                   .event = (uint64_t)(EVENT + p->at[s][piece->wait[s]])});
        add(x, (mm_issued){.kind = MM_ISSUED_BEGIN, .piece = i, .computed = inline_step});
        if (!inline_step) add_work(x, piece);
        add(x, (mm_issued){.kind = MM_ISSUED_END, .piece = i});
        add(x, (mm_issued){.kind = MM_ISSUED_RECORD, .stream = stream, .event = (uint64_t)(EVENT + i)});
    }
    x->caller = 0;
}

static void add_joins(issue *x) {
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++) {
        if (x->plan.program->count[s] == 0) continue;
        add(x, (mm_issued){.kind = MM_ISSUED_RECORD, .stream = (uint64_t)(STREAM + s), .event = (uint64_t)(JOIN + s)});
        add(x,
            (mm_issued){.kind = MM_ISSUED_WAIT, .stream = STREAM + MM_STREAM_COMPUTE, .event = (uint64_t)(JOIN + s)});
    }
}

/* The verdict on the log alone, when everything before has ended. */
static mm_status verdict(const issue *x) {
    mm_issued_order order = {0};
    const mm_status status = mm_issued_check(&x->plan, x->log, (size_t)x->n, &order);
    mm_issued_order_fini(&order);
    return status;
}

/* ---------------------------------------------------------------- what a dispatcher issues */

TEST_CASE(the_log_of_a_dispatcher_is_right_however_it_issues) {
    const int plans = test_depth(test_is_sanitized() ? 10 : 60, 1000);
    int kinds[MM_NODE_KINDS] = {0};
    for (int seed = 0; seed < plans; seed++) {
        plan_world w = plan_world_create((uint64_t)seed);
        for (int i = 0; i < w.plan->n_nodes; i++) kinds[w.plan->nodes[i].kind]++;
        for (int how = 0; how < 3; how++) {
            issue x = issue_create(&w.program, how == 1);
            mm_issued_order order = {0};
            for (int i = 0; i < 3; i++) {
                x.n = 0;
                add_iteration(&x, how == 2);
                expect_ok(mm_issued_check(&x.plan, x.log, (size_t)x.n, &order));
                x.n = 0;
                add_joins(&x);
                expect_ok(mm_issued_follow(x.log, (size_t)x.n, &order));
                expect_ok(mm_issued_replay(&x.plan, &order));
            }
            mm_issued_order_fini(&order);
            free(x.log);
        }
        plan_world_destroy(&w);
    }
    for (int k = 0; k < MM_NODE_KINDS; k++) assert_true(kinds[k] > 0);
}

/* ---------------------------------------------------------------- waits that are left out, against brute force */

/* Whether each piece still comes after all that the plan says: a search along streams and the waits that are left. */
static bool is_ordered(const mm_program *p, const issue *x) {
    bool *before = calloc((size_t)p->n * (size_t)p->n, sizeof *before); /* [a * n + b]: b ends before a starts */
    bool ordered = true;
    assert_non_null(before);
    int waits_from = 0;
    for (int i = 0; i < x->n && ordered; i++) {
        if (x->log[i].kind != MM_ISSUED_BEGIN) continue;
        const int a = x->log[i].piece;
        bool *row = &before[a * p->n];
        for (int k = waits_from; k < i; k++) {
            if (x->log[k].kind != MM_ISSUED_WAIT) continue;
            const int b = (int)(x->log[k].event - EVENT);
            row[b] = true;
            for (int c = 0; c < p->n; c++) row[c] |= before[b * p->n + c];
        }
        waits_from = i;
        const mm_piece *piece = &p->pieces[a];
        if (piece->seq > 0) {
            const int b = p->at[piece->stream][piece->seq - 1];
            row[b] = true;
            for (int c = 0; c < p->n; c++) row[c] |= before[b * p->n + c];
        }
        for (int s = 0; s < MM_STREAM_COUNT; s++)
            if (piece->wait[s] >= 0) ordered &= row[p->at[s][piece->wait[s]]];
    }
    free(before);
    return ordered;
}

TEST_CASE(a_wait_that_is_left_out_is_found_if_and_only_if_the_order_suffers) {
    const int plans = test_depth(test_is_sanitized() ? 10 : 60, 2000);
    int found = 0, harmless = 0;
    for (int seed = 0; seed < plans; seed++) {
        plan_world w = plan_world_create((uint64_t)seed);
        issue x = issue_create(&w.program, false);
        add_iteration(&x, false);
        for (int i = 0; i < x.n; i++) {
            if (x.log[i].kind != MM_ISSUED_WAIT) continue;
            const mm_issued wait = x.log[i];
            x.log[i] = (mm_issued){.kind = MM_ISSUED_SYNC, .stream = 1}; /* orders nothing */
            const bool right = is_ordered(&w.program, &x);
            if ((verdict(&x) == MM_OK) != right)
                fail_msg("seed %d, entry %d: %s", seed, i, right ? mm_last_error() : "not found");
            if (!right && !strstr(mm_last_error(), "nothing makes it wait for ")) fail_msg("%s", mm_last_error());
            *(right ? &harmless : &found) += 1;
            x.log[i] = wait;
        }
        free(x.log);
        plan_world_destroy(&w);
    }
    assert_true(found > 5 * plans && harmless > 0);
}

/* ---------------------------------------------------------------- faults, one by one, in the example of FORMAT.md */

typedef struct example {
    mm_plan_file *file;
    size_t n;
    issue x;
} example;

static example example_create(void) {
    example e;
    expect_ok(mm_plan_files_read("mm/core/plan/plan_example.jsonl", &e.file, &e.n));
    e.x = issue_create(e.file->program, false);
    add_iteration(&e.x, false);
    return e;
}

static void example_destroy(example *e) {
    free(e->x.log);
    mm_plan_files_destroy(e->file, e->n);
}

/* The first entry of that kind from the piece's begin on; with WAIT, the last before it. */
static mm_issued *entry(const issue *x, int piece, mm_issued_kind kind) {
    int begin = 0;
    while (begin < x->n && (x->log[begin].kind != MM_ISSUED_BEGIN || x->log[begin].piece != piece)) begin++;
    assert_true(begin < x->n);
    if (kind == MM_ISSUED_WAIT) {
        while (x->log[begin].kind != kind) assert_true(begin-- > 0);
        return &x->log[begin];
    }
    while (x->log[begin].kind != kind) assert_true(++begin < x->n);
    return &x->log[begin];
}

static void nothing(mm_issued *e) { *e = (mm_issued){.kind = MM_ISSUED_SYNC, .stream = 1}; }

/* The example's pieces: 1 and 2 encode h, 3 and 4 copy its code out, 6 and 7 back, 8 and 9 decode it. */
enum { ENCODED = 2, SENT = 3, SENT_2 = 4, BACK = 6, BACK_2 = 7, DECODED = 8, READER = 11, LAST = 12 };

static void leave_out_the_wait(issue *x) { nothing(entry(x, BACK, MM_ISSUED_WAIT)); }
static void record_on_the_wrong_stream(issue *x) {
    entry(x, ENCODED, MM_ISSUED_RECORD)->stream = STREAM + MM_STREAM_COMPUTE;
}
static void record_before_the_work(issue *x) {
    mm_issued *record = entry(x, SENT_2, MM_ISSUED_RECORD), *begin = entry(x, SENT_2, MM_ISSUED_BEGIN);
    const mm_issued early = *record;
    memmove(begin + 1, begin, (size_t)(record - begin) * sizeof *begin);
    *begin = early;
}
static void record_anew_elsewhere(issue *x) {
    mm_issued again = *entry(x, SENT_2, MM_ISSUED_RECORD);
    again.stream = STREAM + MM_STREAM_ENCODE;
    add(x, again); /* makes room */
    mm_issued *wait = entry(x, BACK, MM_ISSUED_WAIT);
    memmove(wait + 1, wait, (size_t)(&x->log[x->n - 1] - wait) * sizeof *wait);
    *wait = again;
}
static void copy_to_a_wrong_address(issue *x) { entry(x, SENT_2, MM_ISSUED_COPY)->dst -= 256; }
static void copy_from_a_wrong_address(issue *x) { entry(x, BACK_2, MM_ISSUED_COPY)->src += 256; }
static void copy_too_short(issue *x) { entry(x, SENT, MM_ISSUED_COPY)->bytes -= 4; }
static void copy_on_the_wrong_stream(issue *x) { entry(x, BACK, MM_ISSUED_COPY)->stream = STREAM + MM_STREAM_OUT; }
static void leave_out_the_copy(issue *x) { nothing(entry(x, BACK, MM_ISSUED_COPY)); }
static void leave_out_the_kernel(issue *x) { nothing(entry(x, DECODED, MM_ISSUED_TASK)); }
static void leave_out_the_node(issue *x) {
    mm_issued *begin = entry(x, LAST, MM_ISSUED_BEGIN), *end = entry(x, LAST, MM_ISSUED_END);
    for (; begin <= end; begin++) nothing(begin);
}
static void swap_two_pieces(issue *x) {
    for (int i = 0; i < x->n; i++)
        if ((x->log[i].kind == MM_ISSUED_BEGIN || x->log[i].kind == MM_ISSUED_END) &&
            (x->log[i].piece == BACK || x->log[i].piece == BACK_2))
            x->log[i].piece = x->log[i].piece == BACK ? BACK_2 : BACK;
}
static void issue_a_node_twice(issue *x) {
    add(x, (mm_issued){.kind = MM_ISSUED_BEGIN, .piece = SENT});
    add(x, (mm_issued){.kind = MM_ISSUED_END, .piece = SENT});
}
static void issue_what_no_plan_has(issue *x) {
    add(x, (mm_issued){.kind = MM_ISSUED_TASK, .stream = STREAM + MM_STREAM_OUT});
}
static void issue_on_a_stream_of_none(issue *x) { add(x, (mm_issued){.kind = MM_ISSUED_TASK, .stream = 77}); }
static void copy_twice(issue *x) { *entry(x, SENT, MM_ISSUED_END) = *entry(x, SENT, MM_ISSUED_COPY); }
static void fill_what_is_not_its_own(issue *x) {
    *entry(x, READER, MM_ISSUED_TASK) =
        (mm_issued){.kind = MM_ISSUED_FILL, .stream = STREAM, .dst = DEVICE + 256, .bytes = 64};
}
static void work_before_the_wait(issue *x) {
    mm_issued *wait = entry(x, READER, MM_ISSUED_WAIT), *begin = entry(x, READER, MM_ISSUED_BEGIN),
              *task = entry(x, READER, MM_ISSUED_TASK);
    const mm_issued late = *wait;
    assert_true(wait + 1 == begin && begin + 1 == task);
    *wait = *begin;
    *begin = *task;
    *task = late;
}
static void overwrite_the_plan_at_the_end(issue *x) {
    add(x, (mm_issued){.kind = MM_ISSUED_COPY, .stream = STREAM, .dst = DEVICE + 512, .src = 64, .bytes = 8});
}

TEST_CASE(each_fault_is_found_and_the_message_says_what_is_missing) {
    static const struct {
        void (*plant)(issue *x);
        const char *says;
    } faults[] = {
        {leave_out_the_wait, "piece 1 of 2 of prefetch of h after mix forward, on the in stream: nothing makes it wait "
                             "for piece 2 of 2 of offload of h after conv forward, on the out stream"},
        {record_on_the_wrong_stream,
         "piece 2 of 2 of offload of h after conv forward, on the out stream: nothing makes "
         "it wait for piece 2 of 2 of encode of h after conv forward, on the encode stream"},
        {record_before_the_work, "prefetch of h after mix forward, on the in stream: nothing makes it wait for piece 2 "
                                 "of 2 of offload of h after conv forward, on the out stream"},
        {record_anew_elsewhere, "prefetch of h after mix forward, on the in stream: nothing makes it wait for"},
        {copy_to_a_wrong_address, "piece 2 of 2 of offload of h after conv forward, on the out stream: copies to byte "
                                  "0 of pinned memory, where byte 256 is planned"},
        {copy_from_a_wrong_address, "on the in stream: copies from byte 512 of pinned memory, where byte 256"},
        {copy_too_short, "on the out stream: copies 252 bytes of 256"},
        {copy_on_the_wrong_stream, "prefetch of h after mix forward, on the in stream: work on stream out"},
        {leave_out_the_copy, "prefetch of h after mix forward, on the in stream: nothing is issued for it"},
        {leave_out_the_kernel, "decode of h after mix forward, on the decode stream: nothing is issued for it"},
        {leave_out_the_node, "conv update, on the compute stream: it is not issued"},
        {swap_two_pieces, "piece 2 of 2 of prefetch of h after mix forward, on the in stream: is issued where piece 1 "
                          "of 2 of prefetch of h"},
        {issue_a_node_twice, "offload of h after conv forward, on the out stream: is issued twice"},
        {issue_what_no_plan_has, "work on the out stream that is no node's"},
        {issue_on_a_stream_of_none, "work on a stream that the plan does not have"},
        {copy_twice, "on the out stream: more is issued than its one copy"},
        {fill_what_is_not_its_own, "conv backward, on the compute stream: overwrites 64 bytes at byte 256 of device"},
        {work_before_the_wait,
         "conv backward, on the compute stream: nothing makes it wait for piece 2 of 2 of decode"},
        {overwrite_the_plan_at_the_end, "after the last step, 8 bytes of the plan are overwritten"},
    };
    example right = example_create();
    expect_ok(verdict(&right.x));
    example_destroy(&right);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        example e = example_create();
        faults[i].plant(&e.x);
        if (verdict(&e.x) != MM_ERR_PLAN) fail_msg("fault %d is not found: %s", (int)i, faults[i].says);
        if (!strstr(mm_last_error(), faults[i].says)) fail_msg("%s\nwhere due: %s", mm_last_error(), faults[i].says);
        if (strchr(mm_last_error(), '\n')) fail_msg("%s: more than a line", mm_last_error());
        example_destroy(&e);
    }
}

TEST_CASE(the_callers_own_work_may_follow_the_last_step) {
    example e = example_create();
    add(&e.x, (mm_issued){.kind = MM_ISSUED_TASK, .stream = STREAM});
    add(&e.x, (mm_issued){.kind = MM_ISSUED_COPY, .stream = STREAM, .dst = 64, .src = DEVICE, .bytes = 8});
    add(&e.x, (mm_issued){.kind = MM_ISSUED_TASK, .stream = SUMS});
    expect_ok(verdict(&e.x));
    example_destroy(&e);
}

/* ---------------------------------------------------------------- one iteration after the other */

/* Whether the last step comes after all other pieces. */
static bool ends_with_a_step(const mm_program *p) {
    int32_t(*clocks)[MM_STREAM_COUNT] = malloc((size_t)p->n * sizeof *clocks);
    bool all = true;
    assert_non_null(clocks);
    mm_program_clocks(p, clocks);
    const int last = p->at[MM_STREAM_COMPUTE][p->count[MM_STREAM_COMPUTE] - 1];
    for (int s = 0; s < MM_STREAM_COUNT; s++) all &= clocks[last][s] == p->count[s] - 1;
    free(clocks);
    return all;
}

TEST_CASE(an_iteration_must_wait_for_all_streams_of_the_one_before) {
    const int plans = test_depth(test_is_sanitized() ? 10 : 60, 1000);
    int refused = 0;
    for (int trial = 0; trial < 4 * plans; trial++) {
        const bool replayed = trial % 2, joined = trial / 2 % 2;
        plan_world w = plan_world_create((uint64_t)(trial / 4));
        issue x = issue_create(&w.program, false);
        mm_issued_order order = {0};
        add_iteration(&x, false);
        expect_ok(mm_issued_check(&x.plan, x.log, (size_t)x.n, &order));
        x.n = 0;
        if (joined) add_joins(&x);
        expect_ok(mm_issued_follow(x.log, (size_t)x.n, &order));
        x.n = 0;
        add_iteration(&x, false);
        const bool right = joined || ends_with_a_step(&w.program);
        const mm_status status =
            replayed ? mm_issued_replay(&x.plan, &order) : mm_issued_check(&x.plan, x.log, (size_t)x.n, &order);
        if (status != (right ? MM_OK : MM_ERR_PLAN)) fail_msg("trial %d: status %d", trial, (int)status);
        if (!right && !strstr(mm_last_error(), "stream of the iteration before")) fail_msg("%s", mm_last_error());
        refused += !right;
        mm_issued_order_fini(&order);
        free(x.log);
        plan_world_destroy(&w);
    }
    assert_true(refused > 0);
}

TEST_CASE(a_caller_that_has_waited_orders_what_it_issues_next) {
    example e = example_create();
    mm_issued_order order = {0};
    expect_ok(mm_issued_check(&e.x.plan, e.x.log, (size_t)e.x.n, &order));
    e.x.n = 0;
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        add(&e.x, (mm_issued){.kind = MM_ISSUED_SYNC, .stream = (uint64_t)(STREAM + s)});
    expect_ok(mm_issued_follow(e.x.log, (size_t)e.x.n, &order));
    e.x.n = 0;
    add_iteration(&e.x, false);
    expect_ok(mm_issued_check(&e.x.plan, e.x.log, (size_t)e.x.n, &order));
    mm_issued_order_fini(&order);
    example_destroy(&e);
}
