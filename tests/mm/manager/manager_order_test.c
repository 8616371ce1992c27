/* SPDX-License-Identifier: MIT */
/* Calls out of order, aborted iterations, external tensors. A refusal says what was expected, and changes nothing. */
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "mm/core/status.h"
#include "tests/core/test_case.h"
#include "tests/mm/manager/manager_rig.h"

enum { SEED = 7, LAYERS = 8, BUDGET = 1 << 20 };

typedef struct fixture {
    mm_graph *graph, *other; /* other: NULL unless a test sets it */
    mm_manager *manager;
    rig rig;
} fixture;

static void init_with(fixture *f, mm_options options) {
    f->graph = rig_random_graph(SEED, LAYERS, 4);
    f->other = NULL;
    f->manager = rig_manager(&options);
    rig_init(&f->rig, f->graph, SEED);
}

static void init(fixture *f, const char *policy) {
    init_with(f, (mm_options){.device_bytes = BUDGET, .policy = policy, .self_check = true});
}

static void fini(fixture *f) {
    mm_manager_destroy(f->manager);
    rig_fini(&f->rig);
    mm_graph_destroy(f->graph);
    mm_graph_destroy(f->other);
}

static mm_layer layer_of(const fixture *f, int step) { return mm_graph_step(f->graph, step)->layer; }

static mm_phase phase_of(const fixture *f, int step) { return mm_graph_step(f->graph, step)->phase; }

/* Checks that the call failed with MM_ERR_ORDER, and that its message has both words. */
static void assert_out_of_order(mm_status status, const char *word, const char *other) {
    assert_int_equal(status, MM_ERR_ORDER);
    if (!strstr(mm_last_error(), word) || !strstr(mm_last_error(), other))
        fail_msg("'%s' does not say '%s' and '%s'", mm_last_error(), word, other);
}

/* ---------------------------------------------------------------- order */

TEST_CASE(layer_calls_outside_of_an_iteration_are_refused) {
    fixture f;
    init(&f, "liveness");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_out_of_order(mm_layer_begin(f.manager, 0, MM_FORWARD, NULL), "mm_layer_begin", "no iteration");
    assert_out_of_order(mm_layer_end(f.manager, 0, MM_FORWARD), "mm_layer_end", "no iteration");
    assert_out_of_order(mm_iteration_end(f.manager), "mm_iteration_end", "no iteration");
    assert_null(mm_tensor_data(f.manager, 0));
    assert_non_null(strstr(mm_last_error(), "no iteration is under way"));
    assert_null(mm_workspace_data(f.manager));
    assert_int_equal(mm_current_step(f.manager), -1);
    mm_iteration_abort(f.manager); /* legal, does nothing */
    assert_int_equal(rig_iteration(&f.rig, f.manager, RIG_INLINE), MM_OK);
    fini(&f);
}

TEST_CASE(a_step_before_its_turn_is_refused_naming_the_one_that_is_due) {
    fixture f;
    char due[256];
    init(&f, "liveness");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    mm_graph_step_name(f.graph, 0, due, sizeof due);
    assert_out_of_order(mm_layer_begin(f.manager, layer_of(&f, 1), phase_of(&f, 1), NULL), due, "next");
    assert_out_of_order(mm_layer_begin(f.manager, layer_of(&f, 0), MM_BACKWARD, NULL), due, "next");
    assert_out_of_order(mm_layer_begin(f.manager, 99999, MM_FORWARD, NULL), due, "unknown");
    assert_out_of_order(mm_layer_begin(f.manager, -1, (mm_phase)17, NULL), due, "unknown");
    assert_out_of_order(mm_layer_end(f.manager, layer_of(&f, 0), phase_of(&f, 0)), due, "mm_layer_end");
    assert_out_of_order(mm_iteration_end(f.manager), due, "has not been run");
    assert_int_equal(rig_steps(&f.rig, f.manager, RIG_INLINE, 0, mm_graph_steps(f.graph)), MM_OK);
    assert_int_equal(mm_iteration_end(f.manager), MM_OK);
    fini(&f);
}

TEST_CASE(a_step_under_way_must_be_ended_first) {
    fixture f;
    char due[256];
    init(&f, "liveness");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    assert_int_equal(mm_layer_begin(f.manager, layer_of(&f, 0), phase_of(&f, 0), NULL), MM_OK);
    mm_graph_step_name(f.graph, 0, due, sizeof due);
    assert_out_of_order(mm_layer_begin(f.manager, layer_of(&f, 0), phase_of(&f, 0), NULL), due, "under way");
    assert_out_of_order(mm_layer_begin(f.manager, layer_of(&f, 1), phase_of(&f, 1), NULL), due, "under way");
    assert_out_of_order(mm_layer_end(f.manager, layer_of(&f, 1), phase_of(&f, 1)), due, "under way");
    assert_out_of_order(mm_iteration_end(f.manager), due, "has not ended");
    mm_iteration_abort(f.manager);
    assert_int_equal(rig_iteration(&f.rig, f.manager, RIG_INLINE), MM_OK);
    fini(&f);
}

TEST_CASE(after_the_last_step_only_the_end_is_due) {
    fixture f;
    init(&f, "liveness");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    assert_int_equal(rig_steps(&f.rig, f.manager, RIG_INLINE, 0, mm_graph_steps(f.graph)), MM_OK);
    assert_out_of_order(mm_layer_begin(f.manager, layer_of(&f, 0), phase_of(&f, 0), NULL), "mm_iteration_end", "next");
    assert_out_of_order(mm_layer_end(f.manager, layer_of(&f, 0), phase_of(&f, 0)), "mm_iteration_end", "next");
    assert_int_equal(mm_iteration_end(f.manager), MM_OK);
    assert_out_of_order(mm_iteration_end(f.manager), "mm_iteration_end", "no iteration");
    fini(&f);
}

TEST_CASE(what_belongs_between_iterations_is_refused_within_one) {
    fixture f;
    mm_touched touched;
    init(&f, "liveness");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    const char *name = mm_graph_name(f.graph);
    assert_out_of_order(mm_iteration_begin(f.manager, f.graph), "mm_iteration_begin", name);
    assert_out_of_order(mm_manager_prepare(f.manager, f.graph), "mm_manager_prepare", name);
    assert_out_of_order(mm_manager_forget(f.manager, f.graph), "mm_manager_forget", name);
    assert_out_of_order(mm_policy_set(f.manager, "naive"), "mm_policy_set", name);
    assert_out_of_order(mm_external_set(f.manager, f.graph, 0, NULL), "mm_external_set", name);
    assert_out_of_order(mm_touched_get(f.manager, &touched), "mm_touched_get", name);
    assert_int_equal(rig_steps(&f.rig, f.manager, RIG_INLINE, 0, mm_graph_steps(f.graph)), MM_OK);
    assert_int_equal(mm_iteration_end(f.manager), MM_OK);
    fini(&f);
}

TEST_CASE(a_stream_of_another_manager_is_refused) {
    fixture f, other;
    init(&f, "liveness");
    init(&other, "liveness");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    mm_stream *foreign = mm_compute_stream(other.manager);
    assert_int_equal(mm_layer_begin(f.manager, layer_of(&f, 0), phase_of(&f, 0), foreign), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "mm_compute_stream"));
    assert_int_equal(rig_steps(&f.rig, f.manager, RIG_STREAM, 0, mm_graph_steps(f.graph)), MM_OK);
    assert_int_equal(mm_iteration_end(f.manager), MM_OK);
    fini(&other);
    fini(&f);
}

TEST_CASE(only_what_the_step_uses_has_an_address) {
    fixture f;
    init(&f, "naive");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    const mm_step_info *step = mm_graph_step(f.graph, 0);
    assert_int_equal(mm_layer_begin(f.manager, step->layer, step->phase, NULL), MM_OK);
    int unused = 0;
    for (int t = 0; t < mm_graph_tensors(f.graph); t++) {
        bool named = mm_graph_tensor(f.graph, t)->ownership != MM_MANAGED;
        for (int u = 0; u < step->n_uses; u++) named |= step->uses[u].tensor == t;
        assert_int_equal(mm_tensor_data(f.manager, t) != NULL, named);
        unused += !named;
        if (named) continue;
        char step_name[256];
        assert_non_null(strstr(mm_last_error(), mm_graph_step_name(f.graph, 0, step_name, sizeof step_name)));
        assert_non_null(strstr(mm_last_error(), mm_graph_tensor(f.graph, t)->name));
        assert_non_null(strstr(mm_last_error(), "; it uses "));
        assert_non_null(strstr(mm_last_error(), mm_graph_tensor(f.graph, step->uses[0].tensor)->name));
    }
    assert_true(unused > 0);
    assert_null(mm_tensor_data(f.manager, -1));
    assert_non_null(strstr(mm_last_error(), "has no tensor -1"));
    assert_null(mm_tensor_data(f.manager, mm_graph_tensors(f.graph)));
    fini(&f); /* the manager is destroyed within a step */
}

/* ---------------------------------------------------------------- abort */

/* Whether step s writes a persistent tensor: under self_check, its contents are lost when the step begins. */
static bool writes_persistent(const mm_graph *graph, int s) {
    if (s >= mm_graph_steps(graph)) return false;
    const mm_step_info *step = mm_graph_step(graph, s);
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].access == MM_WRITE && mm_graph_tensor(graph, step->uses[u].tensor)->persistent >= 0)
            return true;
    return false;
}

static void abort_at_step(const char *policy, rig_mode mode, int steps) {
    fixture f;
    plain expected;
    init(&f, policy);
    if (writes_persistent(f.graph, steps)) {
        fini(&f);
        init_with(&f, (mm_options){.device_bytes = BUDGET, .policy = policy});
    }
    plain_init(&expected, f.graph, SEED);
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    int all = mm_graph_steps(f.graph);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    assert_int_equal(rig_steps(&f.rig, f.manager, mode, 0, steps), MM_OK);
    /* The next step has begun and not ended. */
    if (steps < all) assert_int_equal(mm_layer_begin(f.manager, layer_of(&f, steps), phase_of(&f, steps), NULL), MM_OK);
    mm_iteration_abort(f.manager);
    plain_steps(&expected, 0, steps);
    if (rig_digest(&f.rig, f.manager) != plain_digest(&expected))
        fail_msg("%s given up after %d of %d steps: persistent tensors are not as the steps left them", policy, steps,
                 all);
    assert_int_equal(rig_iteration(&f.rig, f.manager, mode), MM_OK);
    plain_steps(&expected, 0, all);
    if (rig_digest(&f.rig, f.manager) != plain_digest(&expected))
        fail_msg("%s given up after %d of %d steps: the next iteration computed something else", policy, steps, all);
    plain_fini(&expected);
    fini(&f);
}

TEST_CASE(abort_at_any_step_keeps_persistents_and_the_next_iteration_is_right) {
    static const char *const policies[] = {
        "liveness",
        "freelunch:codec=raw,eligible=all,when=always",
        "freelunch:codec=raw,eligible=all,buffers=naive,workspace=naive,when=always",
    };
    mm_graph *graph = rig_random_graph(SEED, LAYERS, 4);
    int steps = mm_graph_steps(graph);
    mm_graph_destroy(graph);
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int s = 0; s <= steps; s++) abort_at_step(policies[p], (rig_mode)(s % RIG_MODES), s);
}

TEST_CASE(destroy_within_an_iteration_drains) {
    fixture f;
    init(&f, "freelunch:codec=raw,eligible=all,when=always");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    assert_int_equal(rig_steps(&f.rig, f.manager, RIG_STREAM, 0, mm_graph_steps(f.graph) / 2), MM_OK);
    fini(&f);
}

/* ---------------------------------------------------------------- iterations that have ended and still run */

/* Takes so long that a call that does not wait returns meanwhile. */
static mm_status linger(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    atomic_store(*(atomic_bool **)arg, true);
    return MM_OK;
}

static mm_status steps_behind_one_that_lingers(fixture *f, atomic_bool *through) {
    MM_TRY(rig_device_used()->launch(mm_compute_stream(f->manager), linger, &through, sizeof through));
    return rig_steps(&f->rig, f->manager, RIG_STREAM, 0, mm_graph_steps(f->graph));
}

static mm_status run_ahead(fixture *f, atomic_bool *through) {
    MM_TRY(mm_iteration_begin(f->manager, f->graph));
    MM_TRY(steps_behind_one_that_lingers(f, through));
    return mm_iteration_end_async(f->manager);
}

/* Runs an iteration, then records the next and replays it. *can is set to false if the device cannot record. */
static mm_status replay_ahead(fixture *f, atomic_bool *through, bool *can) {
    MM_TRY(rig_iteration(&f->rig, f->manager, RIG_STREAM));
    *can = mm_replay_state(f->manager, f->graph) == MM_REPLAY_MAY;
    if (!*can) return MM_OK;
    MM_TRY(mm_record_begin(f->manager, f->graph));
    MM_TRY(steps_behind_one_that_lingers(f, through));
    MM_TRY(mm_record_end(f->manager));
    return mm_iteration_replay(f->manager, f->graph);
}

static mm_status sync_all(fixture *f) { return mm_manager_sync(f->manager); }
static mm_status smaller_budget(fixture *f) { return mm_budget_set(f->manager, rig_minimum(f->graph, "liveness")); }
static mm_status other_policy(fixture *f) { return mm_policy_set(f->manager, "naive"); }
static mm_status add_persistent(fixture *f) { return mm_persistent_add(f->manager, "mine", 1000); }
static mm_status recompute_by_nobody(fixture *f) { return mm_recompute_set(f->manager, f->graph, NULL, NULL); }
static mm_status forget(fixture *f) { return mm_manager_forget(f->manager, f->graph); }

static mm_status remove_persistent(fixture *f) {
    mm_status status = mm_persistent_remove(f->manager, "mine");
    return status == MM_ERR_NOT_FOUND ? MM_OK : status; /* the call waits before it looks for the tensor */
}

static mm_status other_memory(fixture *f) {
    mm_tensor labels;
    MM_TRY(mm_graph_find_tensor(f->graph, "labels", &labels));
    return mm_external_set(f->manager, f->graph, labels, f->rig.external[labels]);
}

/* Prepares another graph with the same persistent tensors. */
static mm_status prepare_another(fixture *f) {
    f->other = rig_random_graph(SEED, LAYERS, 4);
    return mm_manager_prepare(f->manager, f->other);
}

/* Checks that the weights are those after `iterations` iterations without a manager. */
static void expect_weights(fixture *f, int iterations) {
    uint64_t expected;
    expected = random_graph_reference(f->graph, SEED, iterations);
    assert_true(rig_digest(&f->rig, f->manager) == expected);
}

TEST_CASE(calls_between_iterations_wait_for_those_that_still_run) {
    static const struct {
        const char *name;
        mm_status (*call)(fixture *f);
    } calls[] = {
        {"mm_manager_sync", sync_all},
        {"mm_budget_set", smaller_budget},
        {"mm_policy_set", other_policy},
        {"mm_persistent_add", add_persistent},
        {"mm_recompute_set", recompute_by_nobody},
        {"mm_persistent_remove", remove_persistent},
        {"mm_external_set", other_memory},
        {"mm_manager_prepare", prepare_another},
        {"mm_manager_forget", forget},
    };
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (int replayed = 0; replayed < 2; replayed++) {
            fixture f;
            atomic_bool through = false;
            bool ran = true;
            init_with(&f, (mm_options){.device_bytes = BUDGET, .policy = "liveness", .issue = MM_ISSUE_INLINE});
            assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
            if ((replayed ? replay_ahead(&f, &through, &ran) : run_ahead(&f, &through)) != MM_OK)
                fail_msg("%s", mm_last_error());
            if (calls[c].call(&f) != MM_OK) fail_msg("%s: %s", calls[c].name, mm_last_error());
            if (ran && !atomic_load(&through)) fail_msg("%s did not wait (replayed: %d)", calls[c].name, replayed);
            expect_weights(&f, replayed && ran ? 2 : 1);
            fini(&f);
        }
}

/* ---------------------------------------------------------------- external tensors */

TEST_CASE(an_external_tensor_without_memory_is_named) {
    fixture f;
    mm_tensor labels;
    init(&f, "liveness");
    assert_int_equal(mm_graph_find_tensor(f.graph, "labels", &labels), MM_OK);
    assert_int_equal(mm_manager_prepare(f.manager, f.graph), MM_OK);
    assert_out_of_order(mm_iteration_begin(f.manager, f.graph), "labels", "mm_external_set");
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(rig_iteration(&f.rig, f.manager, RIG_INLINE), MM_OK);
    assert_int_equal(mm_external_set(f.manager, f.graph, labels, NULL), MM_OK);
    assert_out_of_order(mm_iteration_begin(f.manager, f.graph), "labels", "mm_external_set");
    fini(&f);
}

TEST_CASE(memory_for_a_tensor_that_is_not_external_is_refused) {
    fixture f;
    int memory = 0;
    mm_tensor loss;
    init(&f, "liveness");
    assert_int_equal(mm_graph_find_tensor(f.graph, "loss", &loss), MM_OK);
    assert_int_equal(mm_external_set(f.manager, f.graph, loss, &memory), MM_ERR_INVALID);
    assert_int_equal(mm_external_set(f.manager, f.graph, -1, &memory), MM_ERR_INVALID);
    assert_int_equal(mm_external_set(f.manager, f.graph, mm_graph_tensors(f.graph), &memory), MM_ERR_INVALID);
    fini(&f);
}

TEST_CASE(steps_find_the_users_own_pointer_also_after_a_switch) {
    fixture f;
    mm_tensor labels;
    init(&f, "liveness");
    assert_int_equal(mm_graph_find_tensor(f.graph, "labels", &labels), MM_OK);
    assert_int_equal(rig_bind(&f.rig, f.manager), MM_OK);
    assert_int_equal(mm_policy_set(f.manager, "naive"), MM_OK);
    assert_int_equal(mm_iteration_begin(f.manager, f.graph), MM_OK);
    assert_ptr_equal(mm_tensor_data(f.manager, labels), f.rig.external[labels]);
    fini(&f);
}

/* A graph of one step, which modifies persistent tensors of 100 floats. Each letter of `names` is a tensor's name. */
static mm_graph *modifier(const char *names) {
    mm_graph *graph;
    mm_layer layer;
    mm_use uses[8];
    size_t n = 0;
    assert_int_equal(mm_graph_create(names, &graph), MM_OK);
    for (const char *c = names; *c; c++) {
        const char name[] = {*c, 0};
        const mm_tensor_desc desc = {name, MM_STATE, MM_PERSISTENT, MM_F32, 1, {100}};
        uses[n] = (mm_use){.access = MM_MODIFY};
        assert_int_equal(mm_graph_add_tensor(graph, &desc, &uses[n++].tensor), MM_OK);
    }
    assert_int_equal(mm_graph_add_layer(graph, "all", MM_LAYER_OTHER, &layer), MM_OK);
    assert_int_equal(mm_graph_add_step(graph, layer, MM_FORWARD, uses, n, 0), MM_OK);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    return graph;
}

/* A tensor stays where it was placed first, whatever is declared around it, in whatever order. */
TEST_CASE(graphs_find_shared_persistent_tensors_at_one_place) {
    static const char *const names[] = {"abc", "dcxa", "xbd"};
    mm_graph *graphs[3];
    mm_manager *m = rig_manager(&(mm_options){.device_bytes = 1 << 20, .policy = "liveness", .self_check = true});
    for (int g = 0; g < 3; g++) graphs[g] = modifier(names[g]);
    for (int round = 0; round < 6; round++) {
        const char *all = names[round % 3];
        assert_int_equal(mm_iteration_begin(m, graphs[round % 3]), MM_OK);
        assert_int_equal(mm_layer_begin(m, 0, MM_FORWARD, mm_compute_stream(m)), MM_OK);
        for (int t = 0; all[t]; t++) {
            const char name[] = {all[t], 0};
            assert_non_null(mm_tensor_data(m, t));
            assert_ptr_equal(mm_tensor_data(m, t), mm_persistent_data(m, name, NULL));
            assert_false(mm_tensor_exact(m, t)); /* true only of managed tensors */
            for (int other = 0; other < t; other++)
                assert_ptr_not_equal(mm_tensor_data(m, t), mm_tensor_data(m, other));
        }
        assert_int_equal(mm_layer_end(m, 0, MM_FORWARD), MM_OK);
        assert_int_equal(mm_iteration_end(m), MM_OK);
    }
    mm_manager_destroy(m);
    for (int g = 0; g < 3; g++) mm_graph_destroy(graphs[g]);
}

TEST_CASE(a_persistent_tensor_of_no_manager_is_unknown) {
    size_t bytes = 17;
    assert_null(mm_persistent_data(NULL, "w", &bytes));
    assert_int_equal(bytes, 17);
}
