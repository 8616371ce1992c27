/* SPDX-License-Identifier: MIT */
/* A stash learns the order of an iteration and plans it; later iterations follow the plan or leave it, and no byte is
 * lost. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "mm/stash/stash.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/rig_device.h"
#include "tests/mm/stash/stash_rig.h"

enum { KIB = 1 << 10, LAYERS = 12, MAP = 16 * KIB };

/* How an iteration deviates from the plain one, which puts one entry for each layer, and then, from the last layer to
 * the first, gets, returns and drops it. */
typedef enum deviation {
    PLAIN,
    SMALLER,   /* a smaller batch */
    DROPPED,   /* layers 4 and 5 are left out */
    UNUSED,    /* layer 6 is never got */
    SWAPPED,   /* layers 7 and 8 are got in another order */
    TWICE,     /* layer 3 is got again at the end */
    RETAINED,  /* entries are dropped only after all were got twice */
    ABANDONED, /* nothing is got */
    BROKEN,    /* the backward pass ends in the middle */
    TOGETHER,  /* layer 9's entry is got, and not returned until layer 10's has been got and returned */
    TWO,       /* two forward passes before the two backward passes */
    HELD_LONG, /* layer 2 is returned at the end */
    DEVIATIONS
} deviation;

static const char *const producers[] = {"ConvolutionBackward0", "NativeBatchNormBackward0", "ReluBackward0",
                                        "AddBackward0"};

static mm_stash_tensor layer_like(deviation d, int i) {
    mm_stash_tensor like = stash_tensor_f32(producers[i % 4], (d == SMALLER ? MAP / 2 : MAP) / 4);
    if (i % 5 == 4) {
        like.dtype = MM_U8;
        like.dims[0] = KIB * (i + 1);
    }
    return like;
}

static void forward(stash_rig *r, deviation d, stash_item *items) {
    for (int i = 0; i < LAYERS; i++) {
        items[i] = (stash_item){0};
        if (d == DROPPED && (i == 4 || i == 5)) continue;
        const mm_stash_tensor like = layer_like(d, i);
        stash_expect_ok(stash_rig_put(r, &like, &items[i]));
    }
}

/* Entries that the thread that reads them hands over to the thread that drops them. */
typedef struct stash_handover {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    stash_item *handed[LAYERS];
    int n_handed, n_dropped;
    bool waits; /* the reader goes on only once the other thread has dropped the entry */
    bool over;
} stash_handover;

static void drop(stash_rig *r, stash_item *item) {
    stash_handover *h = r->handover;
    if (!h) {
        stash_rig_drop(r, item);
        return;
    }
    if (item->kept) stash_rig_check(r); /* reads must have ended before the drop, which frees the memory */
    pthread_mutex_lock(&h->lock);
    h->handed[h->n_handed++] = item;
    pthread_cond_broadcast(&h->changed);
    while (h->waits && h->n_dropped < h->n_handed) pthread_cond_wait(&h->changed, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

static bool was_handed(const stash_rig *r, const stash_item *item) {
    for (int i = 0; r->handover && i < r->handover->n_handed; i++)
        if (r->handover->handed[i] == item) return true;
    return false;
}

static void visit(stash_rig *r, deviation d, stash_item *item) {
    if (was_handed(r, item) || !item->entry) return;
    stash_expect_ok(stash_rig_get(r, item));
    stash_rig_give_back(r, item);
    if (d != RETAINED && d != TWICE) drop(r, item);
}

static void backward(stash_rig *r, deviation d, stash_item *items) {
    for (int i = LAYERS; i-- > 0;) {
        if ((d == UNUSED && i == 6) || d == ABANDONED || (d == BROKEN && i < 5)) continue;
        if (d == SWAPPED && i == 8) visit(r, d, &items[7]);
        if (d == TOGETHER && i == 10) stash_expect_ok(stash_rig_get(r, &items[9]));
        if (d == HELD_LONG && i == 2) {
            stash_expect_ok(stash_rig_get(r, &items[2]));
            continue;
        }
        visit(r, d, &items[i]);
        if (d == TOGETHER && i == 10) stash_rig_give_back(r, &items[9]);
    }
    if (d == TWICE) visit(r, d, &items[3]);
    for (int i = LAYERS; d == RETAINED && i-- > 0;) visit(r, d, &items[i]);
    if (d == HELD_LONG) stash_rig_give_back(r, &items[2]);
    for (int i = 0; i < LAYERS; i++)
        if (!was_handed(r, &items[i]) && items[i].entry) drop(r, &items[i]);
}

static int count_moved(const stash_item *items) {
    int n = 0;
    for (int i = 0; i < LAYERS; i++) n += !items[i].kept;
    return n;
}

/* Returns whether an iteration with this deviation leaves its plan. Entries that the caller kept may be read at any
 * time. A smaller batch begins with another tensor, so it follows no plan. If all entries are dropped, the plan's
 * remaining steps are skipped. */
static bool leaves_plan(deviation d, const stash_item *items) {
    switch (d) {
    case DROPPED:
    case TWO:
        return true;
    case UNUSED:
        return !items[6].kept;
    case SWAPPED:
        return !items[7].kept && !items[8].kept;
    case TOGETHER:
        return !items[9].kept;
    case HELD_LONG:
        return !items[2].kept;
    case TWICE:
    case RETAINED:
        return count_moved(items) > 0;
    default:
        return false;
    }
}

/* Runs an iteration. Returns whether it must leave its plan. */
static bool iterate(stash_rig *r, deviation d) {
    stash_item items[LAYERS], more[LAYERS];
    forward(r, d, items);
    const bool leaves = leaves_plan(d, items);
    if (d == TWO) forward(r, d, more);
    backward(r, d, items);
    if (d == TWO) backward(r, d, more);
    assert_int_equal(stash_stats_of(r->stash).entries, 0);
    assert_int_equal(stash_stats_of(r->stash).kept_bytes, 0);
    return leaves;
}

/* Policies, and the budget of each as a number of maps. */
static const struct {
    const char *spec;
    int maps;
} POLICIES[] = {
    {"swap-async", 6},
    {"rules:*=swap,depth=2,when=always", 6},
    {"liveness", LAYERS + 2},
    {"freelunch:codec=zvc,eligible=all,when=always", 11},
    {"rules:relu=compress(zvc);*=swap,depth=1,when=always", 9},
    {"auto", 6},
};
enum { POLICIES_N = sizeof POLICIES / sizeof *POLICIES };

TEST_CASE(an_order_is_planned_once_and_then_followed) {
    for (int p = 0; p < POLICIES_N; p++) {
        const int64_t budget = POLICIES[p].maps * MAP;
        mm_stash *s = stash_create((mm_stash_options){.device_bytes = budget,
                                                      .pinned_bytes = (LAYERS + 2) * MAP,
                                                      .policy = POLICIES[p].spec,
                                                      .measure_touched = true});
        stash_rig r;
        mm_touched touched;
        stash_rig_init(&r, s, 21 + p);
        iterate(&r, PLAIN);
        mm_status settled = mm_stash_wait_planned(s);
        if (settled != MM_OK) fail_msg("%s: %s", POLICIES[p].spec, mm_last_error());
        for (int i = 0; i < 4; i++) iterate(&r, PLAIN);
        const mm_stash_stats stats = stash_stats_of(s);
        if (stats.planned != 4) fail_msg("%s: %lld planned", POLICIES[p].spec, (long long)stats.planned);
        assert_int_equal(stats.off_plan, 0);
        assert_int_equal(stats.plans, 1);
        assert_int_equal(stats.iterations, 5);
        assert_true(stats.peak_bytes <= budget);
        assert_true(stats.predicted_bytes <= budget && stats.predicted_bytes > 0);
        assert_true(stats.predicted_kept_bytes >= 0 && stats.predicted_kept_bytes <= stats.predicted_bytes);
        stash_expect_ok(mm_stash_touched_get(s, &touched));
        assert_int_equal(touched.stray_bytes, 0);
        assert_true(touched.total_bytes <= stats.predicted_bytes - stats.predicted_kept_bytes);
        stash_rig_fini(&r);
        mm_stash_destroy(s);
    }
}

static void settle(mm_stash *s) {
    mm_status settled = mm_stash_wait_planned(s);
    (void)settled; /* may fail: some deviations need more than the budget, and run unplanned */
}

/* Pages of the arena that are in memory. */
static size_t resident_pages(const mm_stash *s) {
    enum { PAGE = 4096, PAGES = 64 * MAP / PAGE };
    unsigned char in_memory[PAGES];
    size_t n = 0;
    assert_true(mm_pool_bytes(s->pool) == (int64_t)PAGES * PAGE);
    assert_int_equal(mincore(mm_pool_base(s->pool), (size_t)PAGES * PAGE, in_memory), 0);
    for (int i = 0; i < PAGES; i++) n += in_memory[i] & 1;
    return n;
}

/* Where everything fits, the first iteration, whose order is not known, is copied to the arena; then callers keep. */
TEST_CASE(a_roomy_budget_costs_no_memory_once_it_is_planned) {
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 64 * MAP});
    stash_rig r;
    stash_rig_init(&r, s, 5);
    iterate(&r, PLAIN);
    const mm_stash_stats first = stash_stats_of(s);
    if (s->is_inline) assert_true(resident_pages(s) > 0);
    settle(s);
    for (int i = 0; i < 3; i++) {
        stash_item items[LAYERS];
        forward(&r, PLAIN, items);
        assert_int_equal(count_moved(items), 0);
        if (s->is_inline) assert_int_equal(resident_pages(s), 0);
        backward(&r, PLAIN, items);
    }
    assert_int_equal(stash_stats_of(s).planned, 3);
    if (s->is_inline) assert_true(stash_stats_of(s).peak_bytes <= first.peak_bytes);
    /* The arena is still usable for an order that is not known. */
    iterate(&r, SMALLER);
    settle(s);
    iterate(&r, SMALLER);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* For loops with one set of buffers; the rig overwrites each tensor that was taken. */
TEST_CASE(take_always_leaves_the_caller_nothing_to_keep) {
    static const int budgets[] = {6, 11, 64};
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        mm_stash *s = stash_create((mm_stash_options){
            .device_bytes = budgets[b] * MAP, .pinned_bytes = (LAYERS + 2) * MAP, .modes = MM_STASH_TAKE_ALWAYS});
        stash_rig r;
        stash_rig_init(&r, s, 8);
        for (int i = 0; i < 4; i++) {
            stash_item items[LAYERS];
            forward(&r, PLAIN, items);
            assert_int_equal(count_moved(items), LAYERS);
            assert_int_equal(stash_stats_of(s).kept_bytes, 0);
            backward(&r, PLAIN, items);
            settle(s);
        }
        assert_int_equal(stash_stats_of(s).planned, 3);
        assert_int_equal(stash_stats_of(s).off_plan, 0);
        assert_true(stash_stats_of(s).peak_bytes <= budgets[b] * MAP);
        stash_rig_fini(&r);
        mm_stash_destroy(s);
    }
}

static int64_t reserved_bytes(void) {
    return rig_device_used()->reserved_bytes ? rig_device_used()->reserved_bytes() : 0;
}

TEST_CASE(iterations_that_leave_their_plan_lose_nothing_and_are_learned) {
    for (int p = 0; p < POLICIES_N; p++) {
        const int64_t budget = POLICIES[p].maps * MAP;
        mm_stash *s = stash_create(
            (mm_stash_options){.device_bytes = budget, .pinned_bytes = (LAYERS + 2) * MAP, .policy = POLICIES[p].spec});
        stash_rig r;
        stash_rig_init(&r, s, 31 + p);
        iterate(&r, PLAIN);
        const int64_t reserved = reserved_bytes();
        stash_expect_ok(mm_stash_wait_planned(s));
        for (int d = PLAIN; d < DEVIATIONS; d++) {
            const int64_t before = stash_stats_of(s).off_plan;
            const int64_t expected = iterate(&r, (deviation)d);
            if (stash_stats_of(s).off_plan - before != expected)
                fail_msg("%s: deviation %d: %lld off plan", POLICIES[p].spec, d,
                         (long long)(stash_stats_of(s).off_plan - before));
            /* The deviation gets a plan of its own, unless it needs more than the budget. */
            const bool fits = mm_stash_wait_planned(s) == MM_OK;
            const int64_t planned = stash_stats_of(s).planned;
            iterate(&r, (deviation)d);
            if (fits && stash_stats_of(s).planned == planned)
                fail_msg("%s: deviation %d is not planned", POLICIES[p].spec, d);
            settle(s);
            iterate(&r, PLAIN);
            iterate(&r, PLAIN);
        }
        assert_true(stash_stats_of(s).peak_bytes <= budget);
        /* A new plan takes a little memory for its counters; leaving a plan takes none for good. */
        assert_true(reserved_bytes() - reserved < 4 * MAP);
        stash_rig_fini(&r);
        mm_stash_destroy(s);
    }
}

/* A backward pass that runs on a thread and streams of its own. */
typedef struct backward_pass {
    stash_rig *rig;
    deviation d;
    stash_item *items;
} backward_pass;

static void *run_backward(void *arg) {
    const backward_pass *pass = arg;
    stash_handover *h = pass->rig->handover;
    backward(pass->rig, pass->d, pass->items);
    pthread_mutex_lock(&h->lock);
    h->over = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

/* Drops the entries that are handed over, until the backward pass has ended. */
static void drop_handed(stash_rig *r, stash_handover *h) {
    pthread_mutex_lock(&h->lock);
    while (!h->over || h->n_dropped < h->n_handed) {
        if (h->n_dropped == h->n_handed) {
            pthread_cond_wait(&h->changed, &h->lock);
            continue;
        }
        stash_item *item = h->handed[h->n_dropped];
        pthread_mutex_unlock(&h->lock);
        stash_rig_drop(r, item);
        pthread_mutex_lock(&h->lock);
        h->n_dropped++;
        pthread_cond_broadcast(&h->changed);
    }
    pthread_mutex_unlock(&h->lock);
}

/* While the backward pass runs, puts and reads an entry that the learned order does not have. */
static void meddle(stash_rig *r) {
    const mm_stash_tensor like = stash_tensor_f32("Random", 64);
    stash_item item;
    stash_expect_ok(stash_rig_put(r, &like, &item));
    visit(r, PLAIN, &item);
}

/* Runs an iteration whose forward pass and drops run on this thread, and whose backward pass runs on another. exactly:
 * the order of its calls does not depend on which thread is faster. */
static void iterate_on_two(stash_rig *forwards, stash_rig *backwards, deviation d, bool exactly) {
    stash_item items[LAYERS];
    stash_handover h = {.waits = exactly || random_chance(&forwards->random, 80)};
    backward_pass pass = {.rig = backwards, .d = d, .items = items};
    pthread_t thread;
    pthread_mutex_init(&h.lock, NULL);
    pthread_cond_init(&h.changed, NULL);
    backwards->handover = &h;
    forward(forwards, d, items);
    assert_int_equal(pthread_create(&thread, NULL, run_backward, &pass), 0);
    if (d == PLAIN && !exactly && random_chance(&forwards->random, 20)) meddle(forwards);
    drop_handed(forwards, &h);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&h.changed);
    pthread_mutex_destroy(&h.lock);
    assert_int_equal(stash_stats_of(forwards->stash).entries, 0);
    assert_int_equal(stash_stats_of(forwards->stash).kept_bytes, 0);
}

/* While the iterations run, orders are learned and planned, and some iterations leave their plan. */
TEST_CASE(random_iterations_of_two_threads_are_planned_and_give_every_byte_back) {
    enum { ITERATIONS = 62 };
    for (int p = 0; p < POLICIES_N; p++) {
        const int64_t budget = POLICIES[p].maps * MAP;
        mm_touched touched;
        mm_stash *s = stash_create((mm_stash_options){.device_bytes = budget,
                                                      .pinned_bytes = (LAYERS + 2) * MAP,
                                                      .policy = POLICIES[p].spec,
                                                      .measure_touched = true});
        stash_rig forwards, backwards;
        stash_rig_init(&forwards, s, 41 + p);
        stash_rig_init(&backwards, s, 51 + p);
        iterate_on_two(&forwards, &backwards, PLAIN, true);
        stash_expect_ok(mm_stash_wait_planned(s));
        iterate_on_two(&forwards, &backwards, PLAIN, true);
        assert_int_equal(stash_stats_of(s).planned, 1);
        for (int i = 2; i < ITERATIONS; i++) {
            const bool plain = random_chance(&forwards.random, 80);
            const int d = plain ? PLAIN : random_below(&forwards.random, DEVIATIONS);
            iterate_on_two(&forwards, &backwards, d == TWO ? PLAIN : (deviation)d, false);
            if (random_chance(&forwards.random, 10)) settle(s);
        }
        const mm_stash_stats stats = stash_stats_of(s);
        assert_int_equal(stats.iterations, ITERATIONS);
        if (stats.off_plan == 0 || stats.planned <= ITERATIONS / 10)
            fail_msg("%s: of %d iterations %lld planned, %lld off plan", POLICIES[p].spec, ITERATIONS,
                     (long long)stats.planned, (long long)stats.off_plan);
        assert_true(stats.peak_bytes <= budget);
        stash_expect_ok(mm_stash_touched_get(s, &touched));
        assert_int_equal(touched.stray_bytes, 0);
        stash_rig_fini(&forwards);
        stash_rig_fini(&backwards);
        mm_stash_destroy(s);
    }
}

static void expect_signs(mm_dtype dtype) {
    enum { N = 9, BYTES = 16 * KIB };
    const int elem_bytes = dtype == MM_F32 ? 4 : 2;
    mm_stash *s = stash_create(
        (mm_stash_options){.device_bytes = N * BYTES, .policy = "freelunch:rate=4,eligible=all,when=always"});
    stash_rig r;
    stash_item items[N];
    int fates[MM_STASH_FATE_BOTH + 1] = {0}, with_signs = 0;
    stash_rig_init(&r, s, 41);
    for (int iteration = 0; iteration < 3; iteration++) {
        for (int i = 0; i < N; i++) {
            mm_stash_tensor like = {.dtype = dtype, .rank = 2, .producer = producers[i % 3]};
            like.dims[0] = BYTES / elem_bytes / 64;
            like.dims[1] = 64;
            like.flags = i % 3 == 0 ? 0 : i % 3 == 1 ? MM_STASH_EXACT : MM_STASH_SIGNS;
            stash_expect_ok(stash_rig_put(&r, &like, &items[i]));
            const bool exact = iteration == 0 || like.flags == MM_STASH_EXACT;
            items[i].back = exact ? STASH_BITS : like.flags ? STASH_SIGNS_ALONE : STASH_SOMETHING;
        }
        for (int i = N; i-- > 0;) {
            stash_expect_ok(stash_rig_get(&r, &items[i]));
            stash_rig_give_back(&r, &items[i]);
            stash_rig_drop(&r, &items[i]);
        }
        stash_expect_ok(mm_stash_wait_planned(s));
    }
    assert_int_equal(stash_stats_of(s).planned, 2);
    assert_true(stash_stats_of(s).lossy_gets >= 2 * N / 3);
    mm_stash_line line;
    for (int i = 0; mm_stash_report(s, i, &line); i++) {
        fates[line.fate]++;
        with_signs += strncmp(line.codec, "signs:zfp", 9) == 0;
        assert_string_equal(line.producer, producers[i % 3]);
        assert_int_equal(line.gets, 1);
        assert_int_equal(line.lossy, line.fate == MM_STASH_FATE_ENCODED);
        assert_int_equal(line.bytes, BYTES);
        if (line.fate == MM_STASH_FATE_ENCODED)
            assert_true(line.code_bytes > 0 && line.code_bytes < BYTES / elem_bytes);
        if (line.flags == MM_STASH_EXACT) assert_string_equal(line.codec, "");
    }
    assert_true(with_signs >= N / 3 - 1);
    assert_int_equal(fates[MM_STASH_FATE_ENCODED] + fates[MM_STASH_FATE_STAYED] + fates[MM_STASH_FATE_KEPT], N);
    mm_stash_segment segment;
    int segments = 0, of_entries = 0;
    for (; mm_stash_plan_segment(s, segments, &segment); segments++) {
        assert_true(segment.first <= segment.last && segment.last < 3 * N);
        of_entries += segment.entry >= 0;
    }
    assert_true(of_entries >= 2 * N / 3);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(lossy_codes_keep_signs_that_are_asked_for_and_exact_entries) {
    expect_signs(MM_F32);
    expect_signs(MM_F16);
    expect_signs(MM_BF16);
}

TEST_CASE(what_does_not_fit_is_refused_with_numbers_and_a_policy_that_would) {
    mm_stash *s = stash_create(
        (mm_stash_options){.device_bytes = 6 * MAP, .pinned_bytes = (LAYERS + 2) * MAP, .policy = "liveness"});
    stash_rig r;
    stash_item item;
    mm_stash_refusal refusal;
    const mm_stash_tensor like = layer_like(PLAIN, 0);
    stash_rig_init(&r, s, 51);
    assert_false(mm_stash_refusal_get(s, &refusal));
    iterate(&r, PLAIN);
    stash_expect_refused(mm_stash_wait_planned(s), MM_ERR_INFEASIBLE, "liveness on stash needs at least");
    stash_expect_refused(stash_rig_put(&r, &like, &item), MM_ERR_INFEASIBLE, "would fit");
    assert_int_equal(stash_stats_of(s).entries, 0);
    assert_true(mm_stash_refusal_get(s, &refusal));
    assert_int_equal(refusal.device_bytes, 6 * MAP);
    assert_true(refusal.needed_bytes > 6 * MAP && refusal.tensor_bytes > 0);
    assert_non_null(strstr(refusal.producer, "Backward0"));
    assert_string_equal(refusal.policy, "swap-async");
    /* A smaller batch begins with another tensor, so it is not refused. */
    iterate(&r, SMALLER);
    assert_int_equal(stash_stats_of(s).iterations, 2);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
    mm_stash *none;
    const mm_stash_options recomputes = {.device = rig_device_used()->name, .device_bytes = MAP, .policy = "recompute"};
    stash_expect_refused(mm_stash_create(&recomputes, &none), MM_ERR_UNSUPPORTED, "torch.utils.checkpoint");
    const mm_stash_options unknown = {.device = rig_device_used()->name, .device_bytes = MAP, .policy = "swop"};
    stash_expect_refused(mm_stash_create(&unknown, &none), MM_ERR_NOT_FOUND, "swop");
}

/* Puts that the plan does not have fill the arena. An entry that was got before, and is not yet returned, is neither
 * moved nor overwritten, though the plan has no later reader for it. */
TEST_CASE(what_is_held_while_a_plan_is_left_stays) {
    mm_stash *s = stash_create(
        (mm_stash_options){.device_bytes = 6 * MAP, .pinned_bytes = 2 * (LAYERS + 2) * MAP, .policy = "swap-async"});
    stash_rig r;
    stash_item items[LAYERS], more[LAYERS];
    stash_rig_init(&r, s, 53);
    iterate(&r, PLAIN);
    stash_expect_ok(mm_stash_wait_planned(s));
    forward(&r, PLAIN, items);
    int at = LAYERS - 1;
    while (items[at].kept) visit(&r, PLAIN, &items[at--]);
    stash_expect_ok(stash_rig_get(&r, &items[at]));
    forward(&r, PLAIN, more);
    stash_expect_ok(stash_rig_get(&r, &items[at])); /* stash_rig_get checks the entry's bytes */
    stash_rig_give_back(&r, &items[at]);
    stash_rig_give_back(&r, &items[at]);
    stash_rig_drop(&r, &items[at]);
    for (int i = 0; i < at; i++) visit(&r, PLAIN, &items[i]);
    backward(&r, PLAIN, more);
    assert_int_equal(stash_stats_of(s).off_plan, 1);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* The budget that a refusal says would be enough contains the entries that the caller keeps, and what the stash places
 * at run time. */
TEST_CASE(what_is_kept_counts_in_what_would_be_enough) {
    mm_stash *s = stash_create(
        (mm_stash_options){.device_bytes = 6 * MAP, .pinned_bytes = (LAYERS + 2) * MAP, .policy = "swap-async"});
    stash_rig r;
    stash_item items[LAYERS];
    mm_stash_entry none;
    mm_stash_answer answer;
    mm_stash_refusal refusal;
    stash_rig_init(&r, s, 52);
    iterate(&r, PLAIN);
    stash_expect_ok(mm_stash_wait_planned(s));
    forward(&r, PLAIN, items);
    const int64_t kept = stash_stats_of(s).kept_bytes;
    assert_true(kept > 0);
    mm_stash_tensor large = stash_tensor_f32("Large", 6 * MAP / 4);
    large.data = r.tensor[0];
    stash_expect_refused(mm_stash_put(s, &large, r.handles[0], &none, &answer), MM_ERR_INFEASIBLE, "would be enough");
    assert_true(mm_stash_refusal_get(s, &refusal));
    assert_int_equal(refusal.needed_bytes, 6 * MAP + kept);
    backward(&r, PLAIN, items);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

static mm_status linger(void *arg) {
    nanosleep(arg, NULL);
    return MM_OK;
}

/* A plan needs the pinned memory, so entries are moved on from there, but only after they have been copied to it
 * completely. */
TEST_CASE(entries_on_their_way_to_pinned_memory_are_moved_on_whole) {
    enum { LEFT = 6 };
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = LEFT * MAP, .pinned_bytes = (LAYERS + 2) * MAP});
    stash_rig r;
    stash_item left[LEFT];
    mm_stash_entry late, first;
    mm_stash_answer answer;
    mm_stash_tensor like = stash_tensor_f32("Left", MAP / 4), begins = layer_like(PLAIN, 0);
    const struct timespec time = {.tv_nsec = 20000000};
    stash_rig_init(&r, s, 62);
    iterate(&r, PLAIN);
    stash_expect_ok(mm_stash_wait_planned(s));
    for (int i = 0; i < LEFT; i++) stash_expect_ok(stash_rig_put(&r, &like, &left[i]));
    if (r.streams[0]) stash_expect_ok(rig_device_used()->launch(r.streams[0], linger, &time, sizeof time));
    like.data = r.tensor[0];
    stash_expect_ok(mm_stash_put(s, &like, r.handles[0], &late, &answer)); /* left[0] is moved out, after `linger` */
    mm_stash_iteration_end(s);
    begins.data = r.tensor[1];
    stash_expect_ok(mm_stash_put(s, &begins, r.handles[1], &first, &answer));
    assert_int_equal(answer, MM_STASH_TAKEN); /* the rig uses the tensor's memory again */
    mm_stash_drop(s, late);
    mm_stash_drop(s, first);
    for (int i = 0; i < LEFT; i++) {
        stash_expect_ok(stash_rig_get(&r, &left[i]));
        stash_rig_give_back(&r, &left[i]);
        stash_rig_drop(&r, &left[i]);
    }
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

TEST_CASE(entries_that_a_mark_leaves_are_served_while_plans_go_on) {
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 6 * MAP, .pinned_bytes = (LAYERS + 2) * MAP});
    stash_rig r;
    stash_item left[3];
    const mm_stash_tensor like = stash_tensor_f32("Left", MAP / 4);
    stash_rig_init(&r, s, 61);
    for (int i = 0; i < 3; i++) stash_expect_ok(stash_rig_put(&r, &like, &left[i]));
    for (int i = 0; i < 4; i++) {
        stash_item items[LAYERS];
        mm_stash_iteration_end(s);
        forward(&r, PLAIN, items);
        if (i == 3) { /* an entry of an earlier iteration: the plan is left */
            stash_expect_ok(stash_rig_get(&r, &left[1]));
            stash_rig_give_back(&r, &left[1]);
        }
        backward(&r, PLAIN, items);
        mm_stash_iteration_end(s);
        if (i == 0) {
            const mm_stash_tensor one = stash_tensor_f32("One", 64);
            stash_item item;
            stash_expect_ok(stash_rig_put(&r, &one, &item));
            stash_rig_drop(&r, &item);
        }
        stash_expect_ok(mm_stash_wait_planned(s));
    }
    for (int i = 0; i < 3; i++) {
        stash_expect_ok(stash_rig_get(&r, &left[i]));
        stash_rig_give_back(&r, &left[i]);
        stash_rig_drop(&r, &left[i]);
    }
    assert_int_equal(stash_stats_of(s).entries, 0);
    assert_true(stash_stats_of(s).planned >= 2);
    assert_int_equal(stash_stats_of(s).off_plan, 1);
    assert_true(stash_stats_of(s).peak_bytes <= 6 * MAP);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* A faulty policy: all segments lie at offset 0. */
static mm_status plan_in_one_place(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                                   const mm_engine_config *config, mm_plan **plan_out) {
    const mm_policy_ops *ops = NULL;
    for (size_t i = 0; !ops || strcmp(ops->name, "liveness") != 0; i++) ops = mm_policy_table(i);
    mm_status status = ops->plan(graph, facts, limits, config, plan_out);
    if (status != MM_OK) return status;
    for (int i = 0; i < (*plan_out)->n_segments; i++) (*plan_out)->segments[i].offset = 0;
    return MM_OK;
}

TEST_CASE(an_order_whose_plan_the_check_refuses_runs_unplanned_and_is_told_once) {
    int warnings = 0;
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 6 * MAP,
                                                  .pinned_bytes = (LAYERS + 2) * MAP,
                                                  .policy = "liveness",
                                                  .log = {stash_count_warnings, &warnings, MM_LOG_WARNING}});
    mm_policy_ops faulty = *s->learner.policy.ops;
    faulty.plan = plan_in_one_place;
    s->learner.policy.ops = &faulty;
    stash_rig r;
    stash_rig_init(&r, s, 61);
    iterate(&r, PLAIN);
    stash_expect_ok(mm_stash_wait_planned(s));
    for (int i = 0; i < 3; i++) iterate(&r, PLAIN);
    assert_int_equal(stash_stats_of(s).iterations, 4);
    assert_int_equal(stash_stats_of(s).planned, 0);
    assert_int_equal(stash_stats_of(s).plans, 0);
    assert_int_equal(warnings, 1);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* A planner that waits, on the thread that plans, until `goes` is set. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool works, goes;
    int planned;
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static mm_status plan_slowly(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                             const mm_engine_config *config, mm_plan **plan_out) {
    pthread_mutex_lock(&slow.lock);
    slow.thread = pthread_self();
    slow.works = true;
    slow.planned++;
    pthread_cond_broadcast(&slow.changed);
    while (!slow.goes) pthread_cond_wait(&slow.changed, &slow.lock);
    pthread_mutex_unlock(&slow.lock);
    const mm_policy_ops *ops = NULL;
    for (size_t i = 0; !ops || strcmp(ops->name, "swap-async") != 0; i++) ops = mm_policy_table(i);
    return ops->plan(graph, facts, limits, config, plan_out);
}

TEST_CASE(iterations_go_on_while_another_thread_plans) {
    mm_stash *s = stash_create(
        (mm_stash_options){.device_bytes = 6 * MAP, .pinned_bytes = (LAYERS + 2) * MAP, .policy = "swap-async"});
    mm_policy_ops ops = *s->learner.policy.ops;
    ops.plan = plan_slowly;
    s->learner.policy.ops = s->learner.signing.ops = &ops;
    stash_rig r;
    stash_rig_init(&r, s, 71);
    iterate(&r, PLAIN);
    pthread_mutex_lock(&slow.lock);
    while (!slow.works) pthread_cond_wait(&slow.changed, &slow.lock);
    pthread_mutex_unlock(&slow.lock);
    for (int i = 0; i < 3; i++) iterate(&r, PLAIN); /* would hang if an iteration waited for the plan */
    assert_int_equal(stash_stats_of(s).iterations, 4);
    assert_int_equal(stash_stats_of(s).planned, 0);
    assert_false(pthread_equal(slow.thread, pthread_self()));
    pthread_mutex_lock(&slow.lock);
    slow.goes = true;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
    stash_expect_ok(mm_stash_wait_planned(s));
    const int planned = slow.planned;
    iterate(&r, PLAIN);
    assert_int_equal(stash_stats_of(s).planned, 1);
    stash_expect_ok(mm_stash_wait_planned(s));
    assert_int_equal(slow.planned, planned);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* Runs an iteration of one entry, whose size depends on `number`: so each number has its own order. Returns whether the
 * iteration ran as planned. */
static bool iterate_kind(stash_rig *r, int number) {
    const mm_stash_tensor like = stash_tensor_f32("One", 64 * (1 + number));
    const int64_t planned = stash_stats_of(r->stash).planned;
    stash_item item;
    stash_expect_ok(stash_rig_put(r, &like, &item));
    stash_expect_ok(stash_rig_get(r, &item));
    stash_rig_give_back(r, &item);
    stash_rig_drop(r, &item);
    stash_expect_ok(mm_stash_wait_planned(r->stash));
    return stash_stats_of(r->stash).planned > planned;
}

TEST_CASE(sixteen_orders_are_remembered_and_the_longest_unused_is_forgotten) {
    mm_stash *s = stash_create((mm_stash_options){.device_bytes = 6 * MAP});
    stash_rig r;
    stash_rig_init(&r, s, 81);
    for (int i = 0; i < MM_LEARNED_MOST; i++) {
        assert_false(iterate_kind(&r, i));
        assert_true(iterate_kind(&r, i)); /* it comes again, so that the next one is planned, too */
    }
    for (int i = MM_LEARNED_MOST; i-- > 0;) assert_true(iterate_kind(&r, i));
    assert_int_equal(stash_stats_of(s).plans, MM_LEARNED_MOST);
    assert_false(iterate_kind(&r, MM_LEARNED_MOST)); /* its order replaces that of number MM_LEARNED_MOST - 1 */
    for (int i = 0; i <= MM_LEARNED_MOST; i++)
        if (i != MM_LEARNED_MOST - 1) assert_true(iterate_kind(&r, i));
    assert_int_equal(stash_stats_of(s).plans, MM_LEARNED_MOST + 1);
    assert_false(iterate_kind(&r, MM_LEARNED_MOST - 1));
    assert_int_equal(stash_stats_of(s).off_plan, 0);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}

/* Like iterate_kind, but all orders begin alike. */
static bool iterate_variant(stash_rig *r, int number) {
    const mm_stash_tensor first = stash_tensor_f32("First", 64), second = stash_tensor_f32("Second", 64 * (1 + number));
    const int64_t planned = stash_stats_of(r->stash).planned;
    stash_item items[2];
    stash_expect_ok(stash_rig_put(r, &first, &items[0]));
    stash_expect_ok(stash_rig_put(r, &second, &items[1]));
    for (int i = 2; i-- > 0;) {
        stash_expect_ok(stash_rig_get(r, &items[i]));
        stash_rig_give_back(r, &items[i]);
        stash_rig_drop(r, &items[i]);
    }
    stash_expect_ok(mm_stash_wait_planned(r->stash));
    return stash_stats_of(r->stash).planned > planned;
}

static void count_in_vain(void *ctx, mm_log_level level, const char *message) {
    *(int *)ctx += level == MM_LOG_WARNING && strstr(message, "never came again");
}

TEST_CASE(orders_that_never_come_again_are_told_once_and_planned_no_more_until_one_does) {
    int told = 0;
    mm_stash *s =
        stash_create((mm_stash_options){.device_bytes = 6 * MAP, .log = {count_in_vain, &told, MM_LOG_WARNING}});
    stash_rig r;
    stash_rig_init(&r, s, 82);
    for (int i = 0; i < MM_LEARNED_IN_VAIN; i++) assert_false(iterate_variant(&r, i));
    assert_int_equal(told, 1);
    const int64_t off_plan = stash_stats_of(s).off_plan;
    for (int i = MM_LEARNED_IN_VAIN; i < 3 * MM_LEARNED_IN_VAIN; i++) assert_false(iterate_variant(&r, i));
    assert_int_equal(stash_stats_of(s).plans, MM_LEARNED_IN_VAIN);
    assert_int_equal(stash_stats_of(s).off_plan, off_plan); /* no plan is tried in vain either */
    assert_false(iterate_variant(&r, 2 * MM_LEARNED_IN_VAIN));
    assert_int_equal(stash_stats_of(s).plans, MM_LEARNED_IN_VAIN + 1);
    assert_false(iterate_variant(&r, 2 * MM_LEARNED_IN_VAIN)); /* twice might be chance */
    assert_true(iterate_variant(&r, 2 * MM_LEARNED_IN_VAIN));
    assert_false(iterate_variant(&r, 3 * MM_LEARNED_IN_VAIN)); /* now orders come again: a new one is planned at once */
    assert_int_equal(stash_stats_of(s).plans, MM_LEARNED_IN_VAIN + 2);
    assert_int_equal(told, 1);
    stash_rig_fini(&r);
    mm_stash_destroy(s);
}
