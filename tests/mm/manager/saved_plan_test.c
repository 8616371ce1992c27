/* SPDX-License-Identifier: MIT */
/* A manager runs plans that another saved: the same plans, and the same bits. What is not the file's is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policies/policy.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/mm/manager/manager_rig.h"

enum { LAYERS = 8, CHANNELS = 6, SEED = 5, ITERATIONS = 2 };
#define BUDGET (INT64_C(64) << 20)

static mm_manager *manager_of(const char *policy, int64_t device_bytes) {
    return rig_manager(&(mm_options){.device_bytes = device_bytes, .pinned_bytes = BUDGET, .policy = policy});
}

/* The policy of plans in a file. */
typedef struct spec {
    char text[GRAPH_PATH + 8];
} spec;

static spec plan_in(const char *path) {
    spec s;
    snprintf(s.text, sizeof s.text, "plan:%s", path);
    return s;
}

/* Runs iterations, and returns the checksum of the persistent tensors. */
static uint64_t run(const mm_graph *graph, mm_manager *m) {
    rig r;
    rig_init(&r, graph, SEED);
    expect_ok(mm_recompute_set(m, graph, rig_again, &r));
    expect_ok(rig_bind(&r, m));
    for (int i = 0; i < ITERATIONS; i++) expect_ok(rig_iteration(&r, m, RIG_MIXED));
    const uint64_t digest = rig_digest(&r, m);
    rig_fini(&r);
    return digest;
}

/* The file's text but for its first line, which names the policy. */
static char *read_plan(const char *path) {
    size_t n;
    char *text = graph_files_read(path, &n), *end = strchr(text, '\n');
    assert_non_null(end);
    memmove(text, end + 1, strlen(end + 1) + 1);
    return text;
}

/* Runs the policy, saves its plan, and runs that. Returns the bytes that the plan takes of the device. */
static void save_and_run(const char *policy, const mm_graph *graph, const char *path) {
    char again[GRAPH_PATH];
    mm_manager *m = manager_of(policy, BUDGET);
    const uint64_t wanted = run(graph, m);
    expect_ok(mm_plan_save(m, NULL, 0, path));
    mm_manager_destroy(m);
    m = manager_of(plan_in(path).text, BUDGET);
    const uint64_t digest = run(graph, m);
    expect_ok(mm_plan_save(m, &graph, 1, graph_files_path("again.jsonl", again)));
    mm_manager_destroy(m);
    char *first = read_plan(path), *second = read_plan(again);
    if (strcmp(first, second) != 0) fail_msg("%s: another plan runs", policy);
    if (digest != wanted) fail_msg("%s: other bits", policy);
    assert_int_equal(remove(again), 0);
    free(first);
    free(second);
}

TEST_CASE(a_saved_plan_runs_as_it_is_and_gives_the_same_bits) {
    static const char *const policies[] = {
        "liveness",
        "naive",
        "swap:when=always",
        "freelunch:rate=4,when=always",
        "freelunch:codec=zvc,eligible=all,when=always,buffers=naive",
        "cdma:codec=zvc,when=always",
        "recompute:mode=memory,when=always",
        "gist",
        "liveness:resident=none",
        "rules:*=lean-swap",
    };
    const int n = (int)(sizeof policies / sizeof *policies);
    char path[GRAPH_PATH];
    mm_graph *graph = rig_random_graph(SEED, LAYERS, CHANNELS);
    graph_files_path("saved.jsonl", path);
    for (int i = 0; i < n; i += test_is_sanitized() ? 2 : 1) save_and_run(policies[i], graph, path);
    remove(path);
    mm_graph_destroy(graph);
}

TEST_CASE(a_manager_switches_to_a_saved_plan_and_back) {
    char path[GRAPH_PATH];
    mm_graph *graph = rig_random_graph(SEED, LAYERS, CHANNELS);
    mm_manager *m = manager_of("swap:when=always", BUDGET);
    rig r;
    rig_init(&r, graph, SEED);
    expect_ok(rig_bind(&r, m));
    expect_ok(mm_plan_save(m, NULL, 0, graph_files_path("switch.jsonl", path)));
    expect_ok(mm_policy_set(m, "liveness"));
    expect_ok(mm_policy_wait(m));
    expect_ok(rig_iteration(&r, m, RIG_INLINE));
    expect_ok(mm_policy_set(m, plan_in(path).text));
    expect_ok(mm_policy_wait(m));
    assert_string_equal(mm_policy_now(m), plan_in(path).text);
    expect_ok(rig_iteration(&r, m, RIG_INLINE));
    expect_ok(mm_policy_set(m, "liveness"));
    expect_ok(mm_policy_wait(m));
    expect_ok(rig_iteration(&r, m, RIG_INLINE));
    assert_true(rig_digest(&r, m) == random_graph_reference(graph, SEED, 3));
    rig_fini(&r);
    mm_manager_destroy(m);
    remove(path);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- refusals */

static void expect_refused(mm_status status, mm_status wanted, const char *says) {
    if (status != wanted || !strstr(mm_last_error(), says))
        fail_msg("%s: '%s' does not say '%s'", mm_status_name(status), mm_last_error(), says);
    for (const char *c = mm_last_error(); *c; c++) assert_true((unsigned char)*c >= ' ');
}

static void refuse_graph(const char *path, const mm_graph *graph, int64_t device_bytes, mm_status wanted,
                         const char *says) {
    mm_manager *m = manager_of(plan_in(path).text, device_bytes);
    expect_refused(mm_manager_prepare(m, graph), wanted, says);
    mm_manager_destroy(m);
}

/* Replaces the first `from` after `after` by `to` in the file. */
static void edit(const char *path, const char *text, const char *after, const char *from, const char *to) {
    const char *begin = strstr(text, after), *at = begin ? strstr(begin, from) : NULL;
    if (!at) fail_msg("there is no '%s' after '%s'", from, after);
    const size_t n = strlen(text) + strlen(to) + 1;
    char *edited = malloc(n);
    assert_non_null(edited);
    snprintf(edited, n, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    graph_files_write(path, edited, strlen(edited));
    free(edited);
}

TEST_CASE(what_is_not_the_files_is_refused_by_name) {
    static const struct {
        const char *after, *from, *to, *says;
        mm_status status;
    } cases[] = {
        {"\"is\": \"graph\"", "\"dtype\": \"f32\"", "\"dtype\": \"i32\"", "has another tensor 1, here loss",
         MM_ERR_INVALID},
        {"\"is\": \"graph\"", "\"repeatable\": true", "\"repeatable\": false", "has another layer", MM_ERR_INVALID},
        {"\"is\": \"graph\"", "\"name\": \"random", "\"name\": \"chance", "has no plan of the graph random",
         MM_ERR_INVALID},
        {"\"is\": \"code\"", "\"strip_elems\": ", "\"strip_elems\": 1", "codec zfp:rate=4: strip_elems is 1",
         MM_ERR_INVALID},
        {"\"is\": \"variants\"", "\"workspace_bytes\": 0", "\"workspace_bytes\": 1", "needs 1 bytes", MM_ERR_PLAN},
        {"\"is\": \"variants\"", "\"id\": 0", "\"id\": 9", "there is no variant 9 of it here", MM_ERR_INVALID},
        {"\"is\": \"home\"", "\"offset\": 0", "\"offset\": 256", "its place is at 256", MM_ERR_PLAN},
        {"\"is\": \"piece\"", "\"waits\": {}", "\"waits\": {\"compute\": 0}", "which is not issued before it",
         MM_ERR_PLAN},
    };
    char path[GRAPH_PATH];
    size_t n;
    mm_graph *graph = rig_random_graph(SEED, LAYERS, CHANNELS), *other = rig_random_graph(SEED + 1, LAYERS, CHANNELS);
    mm_manager *m = manager_of("freelunch:rate=4,when=always", BUDGET);
    expect_ok(mm_manager_prepare(m, graph));
    expect_ok(mm_plan_save(m, NULL, 0, graph_files_path("refused.jsonl", path)));
    expect_refused(mm_plan_save(m, (const mm_graph *[]){other}, 1, path), MM_ERR_NOT_FOUND, "is not prepared");
    mm_manager_destroy(m);
    char *text = graph_files_read(path, &n);
    refuse_graph(path, other, BUDGET, MM_ERR_INVALID, "has no plan of the graph random6; its first is of random5");
    refuse_graph(path, graph, 4096, MM_ERR_INFEASIBLE, "needs at least");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        edit(path, text, cases[i].after, cases[i].from, cases[i].to);
        refuse_graph(path, graph, BUDGET, cases[i].status, cases[i].says);
    }
    remove(path);
    free(text);
    mm_graph_destroy(graph);
    mm_graph_destroy(other);
}

TEST_CASE(a_file_that_cannot_be_read_is_no_policy) {
    char path[GRAPH_PATH];
    graph_files_path("none.jsonl", path);
    expect_refused(mm_policy_check(plan_in(path).text), MM_ERR_IO, "cannot be read");
    expect_refused(mm_policy_check("plan"), MM_ERR_INVALID, "give a file: plan:FILE");
    graph_files_write(path, "{}\n", 3);
    expect_refused(mm_policy_check(plan_in(path).text), MM_ERR_FORMAT, "line 1: \"format\" is not \"mm plan\"");
    remove(path);
}
