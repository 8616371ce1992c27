/* SPDX-License-Identifier: MIT */
/* This host's rates: when the cache of them holds, what a run plans by, and that rates fitted to times give these
 * back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/json_text.h"
#include "nets/io/net_file.h"
#include "nets/lower/lower.h"
#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tools/host_rates/host_rates.h"
#include "tools/measure/host_fit.h"

/* A machine on whose products arithmetic takes long against traffic, and a launch takes no time. */
static const char MACHINE[] =
    "{\"format\": \"mm machine\", \"version\": 1, \"name\": \"host\", \"memory_bytes\": 1000000000,"
    " \"conv_flops_per_s\": 2e7, \"winograd_flops_per_s\": 3e7, \"linear_flops_per_s\": 1e7,"
    " \"attention_flops_per_s\": 5e6, \"memory_bytes_per_s\": 1e10, \"launch_ns\": 0,"
    " \"passes\": {\"bn\": 3, \"bn-relu\": 2, \"gelu\": 4},"
    " \"link\": {\"out_bytes_per_s\": 4e9, \"in_bytes_per_s\": 5e9, \"out_both_bytes_per_s\": 2e9,"
    " \"in_both_bytes_per_s\": 3e9}, \"contention_permille\": 300, \"link_contention_permille\": 200,"
    " \"issue_ns\": 1000, \"alloc_ns\": 0, \"codecs\": {}}";

static json_t *machine_json(void) {
    json_error_t error;
    json_t *root = json_loads(MACHINE, 0, &error);
    assert_non_null(root);
    return root;
}

static target host_of(int64_t threads) {
    target t = TARGET_DEFAULTS;
    t.threads = threads;
    expect_ok(target_init(&t));
    return t;
}

/* ---------------------------------------------------------------- the cache */

static char folder[PATH_MAX];

static void begin(void) {
    const char *below = getenv("TEST_TMPDIR");
    snprintf(folder, sizeof folder, "%s/rates.XXXXXX", below ? below : "/tmp");
    assert_non_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void end(void) {
    char path[PATH_MAX], below[PATH_MAX + 8];
    for (int threads = 1; threads <= 2; threads++)
        if (host_rates_path(threads, path) == MM_OK) (void)unlink(path);
    snprintf(below, sizeof below, "%s/mm", folder);
    (void)rmdir(below);
    assert_int_equal(rmdir(folder), 0); /* no other file is left */
}

/* What a run of these policies on this target plans by. */
static host_rates_from from_of(host_rates *r, const target *t, const char *rates, const char *policy, int ranks) {
    arg_texts policies = {.n = 1, .text = {policy}};
    const host_rates_case c = {.rates = rates, .policies = &policies, .target = t, .quiet = true, .ranks = ranks};
    expect_ok(host_rates_open(r, "train", &c));
    return r->from;
}

static void expect_from(const target *t, const char *rates, const char *policy, int ranks, host_rates_from expected) {
    host_rates r;
    assert_int_equal(from_of(&r, t, rates, policy, ranks), expected);
    assert_int_equal(host_rates_source(&r) != NULL, expected == HOST_RATES_CACHE);
    host_rates_close(&r);
}

TEST_CASE(a_run_plans_by_the_cache_if_there_is_one_) {
    char path[PATH_MAX];
    begin();
    target one = host_of(1), two = host_of(2);
    json_t *root = machine_json();
    expect_from(&one, NULL, "auto", 1, HOST_RATES_RUN);
    expect_ok(host_rates_save(&one, root, path));
    expect_from(&one, NULL, "auto", 1, HOST_RATES_CACHE);
    expect_from(&one, "host", "auto:codecs=zvc", 1, HOST_RATES_CACHE);
    expect_from(&two, NULL, "auto", 1, HOST_RATES_RUN); /* measured with one thread */
    expect_from(&one, "nominal", "auto", 1, HOST_RATES_NOMINAL);
    expect_from(&one, NULL, "auto", 2, HOST_RATES_NOMINAL);
    expect_from(&one, NULL, "auto:codecs=zfp:rate=4", 1, HOST_RATES_NOMINAL);
    expect_from(&one, NULL, "liveness", 1, HOST_RATES_NONE);
    arg_texts policies = {.n = 1, .text = {"auto"}};
    host_rates r;
    host_rates_case c = {.rates = "fast", .policies = &policies, .target = &one, .ranks = 1};
    assert_int_equal(host_rates_open(&r, "train", &c), MM_ERR_INVALID);
    c = (host_rates_case){.policies = &policies, .target = &one, .has_facts = true, .ranks = 1};
    expect_ok(host_rates_open(&r, "train", &c));
    assert_int_equal(r.from, HOST_RATES_NONE);
    json_decref(root);
    target_fini(&one);
    target_fini(&two);
    end();
}

TEST_CASE(rates_of_another_host_or_version_are_ignored_) {
    static const char *const keys[] = {"cpu", "threads", "library", "mm"};
    char path[PATH_MAX];
    begin();
    target t = host_of(1);
    json_t *root = machine_json();
    expect_ok(host_rates_save(&t, root, path));
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        json_t *other = json_deep_copy(root);
        json_object_set_new(json_object_get(other, "host"), keys[k], json_string("another"));
        assert_int_equal(json_dump_file(other, path, 0), 0);
        expect_from(&t, NULL, "auto", 1, HOST_RATES_RUN);
        if (!strstr(mm_last_error(), "another") || !strstr(mm_last_error(), "mm device --facts"))
            fail_msg("%s: %s", keys[k], mm_last_error());
        json_object_del(json_object_get(other, "host"), keys[k]);
        assert_int_equal(json_dump_file(other, path, 0), 0);
        expect_from(&t, NULL, "auto", 1, HOST_RATES_RUN);
        json_decref(other);
    }
    FILE *file = fopen(path, "w"); /* a file that is cut */
    fputs("{\"format\": \"mm mach", file);
    fclose(file);
    expect_from(&t, NULL, "auto", 1, HOST_RATES_RUN);
    json_decref(root);
    target_fini(&t);
    end();
}

TEST_CASE(the_cache_is_where_users_have_theirs_) {
    char path[PATH_MAX];
    const char *home = getenv("HOME");
    char *before = home ? strdup(home) : NULL;
    setenv("XDG_CACHE_HOME", "/var/cache/user", 1);
    expect_ok(host_rates_path(3, path));
    assert_string_equal(path, "/var/cache/user/mm/host-3.json");
    setenv("XDG_CACHE_HOME", "relative", 1); /* not used, by the specification */
    setenv("HOME", "/home/user", 1);
    expect_ok(host_rates_path(3, path));
    assert_string_equal(path, "/home/user/.cache/mm/host-3.json");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(host_rates_path(3, path), MM_ERR_NOT_FOUND);
    if (before) setenv("HOME", before, 1);
    free(before);
}

/* ---------------------------------------------------------------- the fit */

static machine machine_of(json_t *root) {
    machine m;
    expect_ok(machine_read("host", root, &m));
    json_decref(root);
    return m;
}

/* Adds a network with the times that the machine gives it. */
static void add(host_fit *fit, const machine *m, const char *name, nets_lowered **lowered_out) {
    nets_net *net;
    mm_graph_facts *facts;
    target t = host_of(1);
    const nets_lowering how = target_lowering(&t, NETS_TRAIN);
    expect_ok(nets_open(name, &net));
    expect_ok(nets_lower(net, t.backend, 2, &how, lowered_out));
    expect_ok(mm_graph_facts_create((*lowered_out)->graph, 0, &facts));
    expect_ok(machine_facts(m, (*lowered_out)->graph, facts));
    host_fit_add(fit, (*lowered_out)->graph, facts);
    mm_graph_facts_destroy(facts);
    nets_net_destroy(net);
    target_fini(&t);
}

static void near_to(const char *what, double value, double expected) {
    if (fabs(value - expected) > 0.01 * expected) fail_msg("%s is %g, not %g", what, value, expected);
}

/* The sum of a graph's times by a machine, in ns. */
static double sum_of(const machine *m, const mm_graph *graph) {
    mm_graph_facts *facts;
    double sum = 0;
    expect_ok(mm_graph_facts_create(graph, 0, &facts));
    expect_ok(machine_facts(m, graph, facts));
    for (int s = 0; s < facts->n_steps; s++) sum += (double)facts->variants[facts->variant_first[s]].ns;
    mm_graph_facts_destroy(facts);
    return sum;
}

TEST_CASE(rates_come_back_from_the_times_that_they_give_) {
    const machine m = machine_of(machine_json());
    host_fit fit = {.n = 0};
    nets_lowered *cnn, *gpt;
    add(&fit, &m, "resnet8", &cnn);
    add(&fit, &m, "gpt,layers=1", &gpt);
    const device_speed speed = {.n_codecs = 2, .codec = {{"mask", 100000, 0}, {"zfp:rate=6.4", 300000, 200000}}};
    const device_pairs pairs = {
        .permille = {[MM_WORK_CHEAP] = {[MM_WORK_LINK] = 700}, [MM_WORK_LINK] = {DEVICE_PAIRS_UNKNOWN, 8000}}};
    json_t *root;
    expect_ok(host_fit_machine(&fit, &speed, &pairs, 1 << 30, &root));
    const machine back = machine_of(root);
    near_to("conv", back.rates[MM_F32].conv, 2e7);
    near_to("winograd", back.rates[MM_F32].winograd, 3e7);
    near_to("linear", back.rates[MM_F32].linear, 1e7);
    near_to("attention", back.rates[MM_F32].attention, 5e6);
    near_to("gelu", back.memory_bytes_per_s / back.passes[MM_LAYER_GELU], 1e10 / 4);
    near_to("add", back.memory_bytes_per_s / back.passes[MM_LAYER_ADD], 1e10);
    near_to("link", (double)back.in_both_bytes_per_s, 3e9);
    assert_true(back.contention.known);
    assert_int_equal(back.contention.permille[MM_WORK_CHEAP][MM_WORK_LINK], 700);
    assert_int_equal(back.contention.permille[MM_WORK_LINK][MM_WORK_CHEAP], 1000);
    assert_int_equal(back.contention.permille[MM_WORK_LINK][MM_WORK_EXPENSIVE], 0);
    assert_int_equal(back.contention_permille, 300);
    assert_int_equal(back.link_contention_permille, 200);
    assert_string_equal(back.codecs[1].spec, "zfp");
    near_to("encode", back.codecs[1].encode_bytes_per_s, 3e5);
    near_to("decode of signs", back.codecs[0].decode_bytes_per_s, 1e5);
    near_to("the CNN's time", sum_of(&back, cnn->graph), sum_of(&m, cnn->graph));
    near_to("the GPT's time", sum_of(&back, gpt->graph), sum_of(&m, gpt->graph));
    nets_lowered_destroy(cnn);
    nets_lowered_destroy(gpt);
}

TEST_CASE(rates_without_a_kind_of_products_are_refused_) {
    const machine m = machine_of(machine_json());
    host_fit fit = {.n = 0};
    nets_lowered *cnn;
    json_t *root;
    add(&fit, &m, "resnet8", &cnn);
    const device_speed speed = {.n_codecs = 0};
    const device_pairs pairs = {.permille = {{0}}};
    assert_int_equal(host_fit_machine(&fit, &speed, &pairs, 1 << 30, &root), MM_ERR_INVALID);
    nets_lowered_destroy(cnn);
}
