/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "mm/core/status.h"
#include "tests/core/random_graph.h"
#include "tests/core/small_graph.h"

/* A directory of its own for each test; the file that it uses. */
typedef struct fixture {
    char directory[4096], path[4200];
    small_graph g;
    mm_graph_facts *facts;
} fixture;

static int setup(void **state) {
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    const char *root = getenv("TEST_TMPDIR");
    snprintf(f->directory, sizeof f->directory, "%s/factsXXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof f->path, "%s/facts.json", f->directory);
    f->g = small_graph_create();
    assert_int_equal(mm_graph_facts_create(f->g.graph, 1, &f->facts), MM_OK);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    unlink(f->path);
    /* Fails if anything was left behind. */
    assert_int_equal(rmdir(f->directory), 0);
    mm_graph_facts_destroy(f->facts);
    mm_graph_destroy(f->g.graph);
    free(f);
    return 0;
}

static void write_text(const fixture *f, const char *text) {
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* Writes a facts file of the small graph: header, a link of 100 and 200 bytes a second, then `rest`. */
static void write_version(const fixture *f, int version, int out_both, int contention, const char *rest) {
    char text[4096];
    int64_t sum = 0;
    for (int t = 0; t < mm_graph_tensors(f->g.graph); t++) sum += mm_graph_tensor(f->g.graph, t)->bytes;
    snprintf(text, sizeof text,
             "{\"format\": \"mm facts\", \"version\": %d,"
             "\"graph\": {\"name\": \"whatever\", \"steps\": %d, \"tensors\": %d, \"tensor_bytes\": %lld},"
             "\"link\": {\"out_bytes_per_s\": 100, \"in_bytes_per_s\": 200, \"out_both_bytes_per_s\": %d,"
             " \"in_both_bytes_per_s\": 150}, \"contention_permille\": %d, \"issue_ns\": 6, %s}",
             version, mm_graph_steps(f->g.graph), mm_graph_tensors(f->g.graph), (long long)sum, out_both, contention,
             rest);
    write_text(f, text);
}

static void write_device(const fixture *f, int out_both, int contention, const char *rest) {
    write_version(f, 1, out_both, contention, rest);
}

static void write_file(const fixture *f, const char *rest) { write_device(f, 90, 5, rest); }

/* Writes a facts file in which the code of `out` has a head of 16 bytes, and a body of these sizes. */
static void write_body(const fixture *f, int version, bool fixed_size, int bound, int reserve, int typical) {
    char rest[512];
    snprintf(rest, sizeof rest,
             "\"steps\": [], \"codecs\": [{\"spec\": \"c\", \"lossless\": true, \"fixed_size\": %s,"
             " \"gives_value\": true, \"gives_sign\": false, \"codes\": {\"out\": {\"code_bytes\": 16,"
             " \"scratch_bytes\": 0, \"encode_ns\": 1, \"decode_ns\": 1, \"body_bound_bytes\": %d,"
             " \"body_reserve_bytes\": %d, \"body_typical_bytes\": %d}}}]",
             fixed_size ? "true" : "false", bound, reserve, typical);
    write_version(f, version, 90, 5, rest);
}

/* Loads the file, and takes that part of it over into `facts`, which are of the graph. */
static mm_status load_part(const char *path, const mm_graph *graph, mm_facts_part part, mm_graph_facts *facts) {
    mm_facts *file;
    MM_TRY(mm_facts_load(path, &file));
    mm_status status = mm_facts_apply(file, graph, part, facts);
    mm_facts_destroy(file);
    return status;
}

static mm_status load(const char *path, const mm_graph *graph, mm_graph_facts *facts) {
    return load_part(path, graph, MM_FACTS_ALL, facts);
}

static void expect_format_error(fixture *f, const char *words) {
    mm_graph_facts before = *f->facts;
    mm_status status = load(f->path, f->g.graph, f->facts);
    if (status != MM_ERR_FORMAT) fail_msg("%s: %s", words, mm_status_name(status));
    if (!strstr(mm_last_error(), words)) fail_msg("no '%s' in: %s", words, mm_last_error());
    assert_non_null(strstr(mm_last_error(), f->path));
    assert_memory_equal(&before, f->facts, sizeof before); /* the facts still have the same arrays */
}

static void assert_same_facts(const mm_graph_facts *a, const mm_graph_facts *b) {
    assert_int_equal(a->n_steps, b->n_steps);
    assert_int_equal(a->n_tensors, b->n_tensors);
    assert_int_equal(a->n_codecs, b->n_codecs);
    for (int s = 0; s <= a->n_steps; s++) assert_int_equal(a->variant_first[s], b->variant_first[s]);
    for (int v = 0; v < a->variant_first[a->n_steps]; v++) {
        assert_int_equal(a->variants[v].id, b->variants[v].id);
        assert_int_equal(a->variants[v].deterministic, b->variants[v].deterministic);
        assert_int_equal(a->variants[v].workspace_bytes, b->variants[v].workspace_bytes);
        assert_int_equal(a->variants[v].ns, b->variants[v].ns);
    }
    for (int c = 0; c < a->n_codecs; c++) {
        assert_string_equal(a->codecs[c].spec, b->codecs[c].spec);
        assert_int_equal(a->codecs[c].lossless, b->codecs[c].lossless);
        assert_int_equal(a->codecs[c].fixed_size, b->codecs[c].fixed_size);
        assert_int_equal(a->codecs[c].gives_value, b->codecs[c].gives_value);
        assert_int_equal(a->codecs[c].gives_sign, b->codecs[c].gives_sign);
        assert_int_equal(a->codecs[c].drops_zeros, b->codecs[c].drops_zeros);
    }
    for (int i = 0; i < a->n_codecs * a->n_tensors; i++) {
        assert_int_equal(a->codes[i].code_bytes, b->codes[i].code_bytes);
        if (a->codes[i].code_bytes < 0) continue;
        assert_int_equal(a->codes[i].scratch_bytes, b->codes[i].scratch_bytes);
        assert_int_equal(a->codes[i].encode_ns, b->codes[i].encode_ns);
        assert_int_equal(a->codes[i].decode_ns, b->codes[i].decode_ns);
        assert_int_equal(a->codes[i].body_bound_bytes, b->codes[i].body_bound_bytes);
        assert_int_equal(a->codes[i].body_reserve_bytes, b->codes[i].body_reserve_bytes);
        assert_int_equal(a->codes[i].body_typical_bytes, b->codes[i].body_typical_bytes);
        assert_int_equal(a->codes[i].body_is_measured, b->codes[i].body_is_measured);
    }
    assert_int_equal(a->out_bytes_per_s, b->out_bytes_per_s);
    assert_int_equal(a->in_bytes_per_s, b->in_bytes_per_s);
    assert_int_equal(a->out_both_bytes_per_s, b->out_both_bytes_per_s);
    assert_int_equal(a->in_both_bytes_per_s, b->in_both_bytes_per_s);
    assert_int_equal(a->contention_permille, b->contention_permille);
    assert_int_equal(a->link_contention_permille, b->link_contention_permille);
    assert_int_equal(a->contention.known, b->contention.known);
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++)
            assert_int_equal(mm_facts_contention(a, of, beside), mm_facts_contention(b, of, beside));
    assert_int_equal(a->host_sum_bytes_per_s, b->host_sum_bytes_per_s);
    assert_int_equal(a->link_sharers, b->link_sharers);
    assert_int_equal(a->issue_ns, b->issue_ns);
    assert_int_equal(a->alloc_ns, b->alloc_ns);
    assert_int_equal(a->cache_bytes, b->cache_bytes);
    assert_int_equal(a->far_ps_per_byte, b->far_ps_per_byte);
}

static void save_then_load_gives_the_same_facts(void **state) {
    fixture *f = *state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        mm_graph *graph;
        mm_graph_facts *facts, *loaded;
        random_graph_options options = {.seed = seed, .layers = 10, .max_channels = 4};
        assert_int_equal(random_graph_create(&options, &graph), MM_OK);
        assert_int_equal(random_facts_create(graph, seed, &facts), MM_OK);
        facts->out_bytes_per_s = 55000000000;
        facts->in_bytes_per_s = 54000000000;
        facts->out_both_bytes_per_s = 46000000000;
        facts->in_both_bytes_per_s = 45000000000;
        facts->issue_ns = 2000;
        facts->alloc_ns = 100 * (int64_t)seed;
        facts->cache_bytes = (int64_t)seed << 40;
        facts->far_ps_per_byte = 10 * (int64_t)seed;
        facts->link_contention_permille = (int)seed;
        facts->host_sum_bytes_per_s = (int64_t)seed << 30;
        facts->link_sharers = (int)seed;
        facts->contention.known = seed % 2;
        for (mm_work of = 0; of < MM_WORK_KINDS; of++)
            for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++)
                facts->contention.permille[of][beside] = (int)seed * 100 + 10 * (int)of + (int)beside;
        facts->codecs[RANDOM_LOSSY].fixed_size = false;
        facts->codecs[RANDOM_LOSSY].drops_zeros = true;
        facts->codes[RANDOM_LOSSY * facts->n_tensors].body_bound_bytes = 1000;
        facts->codes[RANDOM_LOSSY * facts->n_tensors].body_reserve_bytes = 700 + (int64_t)seed;
        facts->codes[RANDOM_LOSSY * facts->n_tensors].body_typical_bytes = 500 + (int64_t)seed;
        facts->codes[RANDOM_LOSSY * facts->n_tensors].body_is_measured = true;
        assert_int_equal(mm_facts_write(facts, graph, f->path), MM_OK);
        assert_int_equal(mm_graph_facts_create(graph, 0, &loaded), MM_OK);
        assert_int_equal(load(f->path, graph, loaded), MM_OK);
        assert_same_facts(facts, loaded);
        mm_graph_facts_destroy(loaded);
        mm_graph_facts_destroy(facts);
        mm_graph_destroy(graph);
    }
}

static void saved_file_is_readable_by_others(void **state) {
    fixture *f = *state;
    struct stat status;
    assert_int_equal(mm_facts_write(f->facts, f->g.graph, f->path), MM_OK);
    assert_int_equal(stat(f->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0644);
}

static void what_the_file_leaves_out_stays(void **state) {
    fixture *f = *state;
    strcpy(f->facts->codecs[0].spec, "mine");
    f->facts->codes[f->g.map] = (mm_code_facts){.code_bytes = 77, .split_rows = 4};
    f->facts->piece_bytes = 1000;
    f->facts->variants[LOSS_F].ns = 123;
    write_file(f, "\"steps\": [{\"layer\": \"conv\", \"phase\": \"backward\", \"variants\": ["
                  "{\"id\": 3, \"deterministic\": false, \"workspace_bytes\": 5, \"ns\": 10},"
                  "{\"id\": 4, \"deterministic\": true, \"workspace_bytes\": 6, \"ns\": 20}]}],"
                  "\"codecs\": [{\"spec\": \"theirs\", \"lossless\": true, \"fixed_size\": true,"
                  " \"gives_value\": true, \"gives_sign\": false, \"codes\": {\"out\": {\"code_bytes\": 9,"
                  " \"scratch_bytes\": 8, \"encode_ns\": 7, \"decode_ns\": 6}}}]");
    assert_int_equal(load(f->path, f->g.graph, f->facts), MM_OK);
    const mm_graph_facts *facts = f->facts;
    assert_int_equal(facts->variants[facts->variant_first[LOSS_F]].ns, 123);
    assert_int_equal(facts->variant_first[CONV_B + 1] - facts->variant_first[CONV_B], 2);
    assert_int_equal(facts->variants[facts->variant_first[CONV_B] + 1].id, 4);
    assert_int_equal(facts->variants[facts->variant_first[CONV_B] + 1].workspace_bytes, 6);
    assert_int_equal(facts->n_codecs, 2);
    assert_int_equal(mm_facts_codec(facts, "mine"), 0);
    assert_int_equal(mm_facts_code(facts, 0, f->g.map)->code_bytes, 77);
    assert_int_equal(mm_facts_codec(facts, "theirs"), 1);
    assert_int_equal(mm_facts_code(facts, 1, f->g.out)->decode_ns, 6);
    assert_int_equal(mm_facts_code(facts, 1, f->g.map)->code_bytes, -1);
    assert_int_equal(facts->in_bytes_per_s, 200);
    assert_int_equal(facts->contention_permille, 5);
    assert_int_equal(facts->link_contention_permille, 0); /* a file of an old version has no such number */
    assert_int_equal(facts->alloc_ns, 0);                 /* nor has it these three */
    assert_int_equal(facts->cache_bytes, 0);
    assert_int_equal(facts->far_ps_per_byte, 0);
    assert_int_equal(facts->codes[f->g.map].split_rows, 4);
    assert_int_equal(facts->piece_bytes, 1000);
}

/* MM_FACTS_TIMES, for a plan that is run, takes times alone, and no sizes. */
static void times_alone_are_taken_where_sizes_are_the_same(void **state) {
    fixture *f = *state;
    mm_graph_facts *facts = f->facts;
    strcpy(facts->codecs[0].spec, "mine");
    facts->codes[f->g.map] = (mm_code_facts){.code_bytes = 77, .scratch_bytes = 5};
    facts->variants[facts->variant_first[CONV_B]].ns = 10;
    facts->codes[f->g.map].encode_ns = 7;
    facts->out_bytes_per_s = 100;
    assert_int_equal(mm_facts_write(facts, f->g.graph, f->path), MM_OK);

    facts->variants[facts->variant_first[CONV_B]].ns = 0;
    facts->codes[f->g.map].encode_ns = 0;
    facts->codecs[0].lossless = true; /* the file says otherwise */
    facts->out_bytes_per_s = 0;
    if (load_part(f->path, f->g.graph, MM_FACTS_TIMES, facts) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(facts->variants[facts->variant_first[CONV_B]].ns, 10);
    assert_int_equal(facts->codes[f->g.map].encode_ns, 7);
    assert_true(facts->codecs[0].lossless);
    assert_int_equal(facts->out_bytes_per_s, 100);

    facts->codes[f->g.map].code_bytes = 78;
    mm_graph_facts before = *facts;
    assert_int_equal(load_part(f->path, f->g.graph, MM_FACTS_TIMES, facts), MM_ERR_FORMAT);
    assert_non_null(
        strstr(mm_last_error(), "the mine code of map takes 77 bytes and 5 of scratch there, 78 and 5 here"));
    facts->codes[f->g.map].code_bytes = 77;
    facts->variants[facts->variant_first[CONV_B]].workspace_bytes++;
    assert_int_equal(load_part(f->path, f->g.graph, MM_FACTS_TIMES, facts), MM_ERR_FORMAT);
    assert_non_null(strstr(mm_last_error(), "conv backward has other workspaces there than here"));
    assert_memory_equal(&before, facts, sizeof before);

    facts->codes[f->g.map].body_bound_bytes++;
    assert_int_equal(load_part(f->path, f->g.graph, MM_FACTS_TIMES, facts), MM_ERR_FORMAT);
    facts->codes[f->g.map].body_bound_bytes--;
    strcpy(facts->codecs[0].spec, "another"); /* the file's codec is not this plan's */
    facts->variants[facts->variant_first[CONV_B]].workspace_bytes--;
    assert_int_equal(load_part(f->path, f->g.graph, MM_FACTS_TIMES, facts), MM_OK);
    assert_int_equal(facts->n_codecs, 1);
    assert_string_equal(facts->codecs[0].spec, "another");
}

static void codec_takes_the_slot_of_its_spec_or_an_empty_one(void **state) {
    fixture *f = *state;
    write_file(f, "\"steps\": [], \"codecs\": [{\"spec\": \"theirs\", \"lossless\": true, \"fixed_size\": true,"
                  " \"gives_value\": true, \"gives_sign\": false, \"codes\": {}}]");
    assert_int_equal(load(f->path, f->g.graph, f->facts), MM_OK);
    assert_int_equal(f->facts->n_codecs, 1);
    assert_string_equal(f->facts->codecs[0].spec, "theirs");
    f->facts->codecs[0].lossless = false;
    assert_int_equal(load(f->path, f->g.graph, f->facts), MM_OK);
    assert_int_equal(f->facts->n_codecs, 1);
    assert_true(f->facts->codecs[0].lossless);
}

/* A code without times of its own gets those of its codec's rates; the rates of the whole spec come first. */
static void rates_of_codecs_give_codes_their_times(void **state) {
    fixture *f = *state;
    mm_graph_facts *facts = f->facts;
    mm_tensor out;
    assert_int_equal(mm_graph_find_tensor(f->g.graph, "out", &out), MM_OK);
    mm_code_facts *code = &facts->codes[out];
    const int64_t bytes = mm_graph_tensor(f->g.graph, out)->bytes;
    static const struct {
        const char *spec;
        int64_t bytes_per_s, more_ns;
    } rows[] = {{"zfp:rate=4", 1000, 7}, {"zfp:rate=8", 500, 3}, {"zvc", 0, 0}};
    write_file(f, "\"steps\": [], \"codecs\": [], \"codec_rates\": {"
                  "\"zfp\": {\"encode_bytes_per_s\": 500, \"decode_bytes_per_s\": 250, \"launch_ns\": 3},"
                  "\"zfp:rate=4\": {\"encode_bytes_per_s\": 1000, \"decode_bytes_per_s\": 500, \"launch_ns\": 7}}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        facts->codecs[0] = (mm_codec_facts){.lossless = true, .fixed_size = true, .gives_value = true};
        strcpy(facts->codecs[0].spec, rows[i].spec);
        code = &facts->codes[out];
        *code = (mm_code_facts){.code_bytes = 16};
        assert_int_equal(load_part(f->path, f->g.graph, MM_FACTS_TIMES, facts), MM_OK);
        code = &facts->codes[out];
        const int64_t ns = rows[i].bytes_per_s ? bytes * 1000000000 / rows[i].bytes_per_s : 0;
        assert_in_range(code->encode_ns, ns ? ns + rows[i].more_ns : 0, ns ? ns + rows[i].more_ns + 1 : 0);
        assert_in_range(code->decode_ns, ns ? 2 * ns + rows[i].more_ns : 0, ns ? 2 * ns + rows[i].more_ns + 1 : 0);
    }
    *code = (mm_code_facts){.code_bytes = 16, .encode_ns = 5, .decode_ns = 6}; /* measured times stay */
    strcpy(facts->codecs[0].spec, "zfp");
    assert_int_equal(load_part(f->path, f->g.graph, MM_FACTS_TIMES, facts), MM_OK);
    assert_int_equal(facts->codes[out].encode_ns, 5);
    write_file(f, "\"steps\": [], \"codecs\": [], \"codec_rates\": {\"zfp\": {\"encode_bytes_per_s\": 0}}");
    expect_format_error(f, "codec_rates: zfp: encode_bytes_per_s");
    write_file(f, "\"steps\": [], \"codecs\": [], \"codec_rates\": 3");
    expect_format_error(f, "codec_rates is not an object");
}

static void file_of_another_graph_is_refused(void **state) {
    fixture *f = *state;
    mm_graph *other;
    mm_graph_facts *facts;
    random_graph_options options = {.seed = 5, .layers = 5, .max_channels = 4};
    assert_int_equal(random_graph_create(&options, &other), MM_OK);
    assert_int_equal(mm_graph_facts_create(other, 0, &facts), MM_OK);
    facts->variants[0].ns = 1;
    assert_int_equal(mm_facts_write(facts, other, f->path), MM_OK);
    expect_format_error(f, "another graph");
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(other);
}

static void names_that_the_graph_lacks_are_refused(void **state) {
    fixture *f = *state;
#define VARIANTS                                                                                                       \
    "\"variants\": [{\"id\": 0, \"deterministic\": true, \"workspace_bytes\": 0, \"ns\": 1}]}], \"codecs\": []"
    write_file(f, "\"steps\": [{\"layer\": \"pool\", \"phase\": \"forward\", " VARIANTS);
    expect_format_error(f, "no step pool forward");
    write_file(f, "\"steps\": [{\"layer\": \"relu\", \"phase\": \"update\", " VARIANTS);
    expect_format_error(f, "no step relu update");
    write_file(f, "\"steps\": [], \"codecs\": [{\"spec\": \"c\", \"lossless\": true, \"fixed_size\": true,"
                  " \"gives_value\": true, \"gives_sign\": false, \"codes\": {\"elsewhere\": {\"code_bytes\": 9,"
                  " \"scratch_bytes\": 8, \"encode_ns\": 7, \"decode_ns\": 6}}}]");
    expect_format_error(f, "no tensor elsewhere");
}

static void corrupt_files_are_refused(void **state) {
    fixture *f = *state;
    static const struct {
        const char *rest, *words;
    } cases[] = {
        {"\"steps\": []", "codecs are missing"},
        {"\"steps\": 7, \"codecs\": []", "steps or codecs"},
        {"\"steps\": [7], \"codecs\": []", "no layer or phase"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": []}], \"codecs\": []", "no variants"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{\"id\": 1,"
         " \"deterministic\": true, \"workspace_bytes\": -1, \"ns\": 0}]}], \"codecs\": []",
         "workspace_bytes is -1"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{\"id\": 1,"
         " \"deterministic\": 1, \"workspace_bytes\": 1, \"ns\": 0}]}], \"codecs\": []",
         "deterministic is not true or false"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{\"id\": 1,"
         " \"deterministic\": true, \"workspace_bytes\": 1, \"ns\": 1.5}]}], \"codecs\": []",
         "ns is not an integer"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{\"id\": 1,"
         " \"deterministic\": true, \"workspace_bytes\": 1}]}], \"codecs\": []",
         "conv forward: ns is missing"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{\"id\": 1,"
         " \"deterministic\": true, \"workspace_bytes\": 1, \"ns\": 0}]}], \"codecs\": []",
         "steps: ns is 0 in every entry"},
        {"\"steps\": [], \"codecs\": [{\"spec\": \"c\", \"lossless\": true, \"fixed_size\": true,"
         " \"gives_value\": true, \"gives_sign\": false, \"codes\": {\"out\": {\"code_bytes\": 0,"
         " \"scratch_bytes\": 0, \"encode_ns\": 1, \"decode_ns\": 1}}}]",
         "codec c: out: code_bytes is 0, must be 1 to"},
        {"\"steps\": [], \"codecs\": [{\"spec\": \"c\", \"lossless\": true, \"fixed_size\": true,"
         " \"gives_value\": true, \"gives_sign\": false, \"codes\": {\"out\": {\"code_bytes\": 17592186044417,"
         " \"scratch_bytes\": 0, \"encode_ns\": 1, \"decode_ns\": 1}}}]",
         "codec c: out: code_bytes is 17592186044417, must be 1 to 17592186044416"},
        {"\"steps\": [], \"codecs\": [{}]", "spec is missing"},
        {"\"steps\": [], \"codecs\": [{\"spec\": \"c\"}]", "has no codes"},
        {"\"steps\": [], \"steps\": []", "duplicate"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"sideways\", \"variants\": [{}]}], \"codecs\": []",
         "conv: there is no phase sideways"},
        {"\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{}]},"
         " {\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{}]}], \"codecs\": []",
         "conv: has two entries for one phase"},
        {"\"steps\": [", "line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(f, cases[i].rest);
        expect_format_error(f, cases[i].words);
    }
    write_text(f, "");
    expect_format_error(f, "line 1");
    write_text(f, "[]");
    expect_format_error(f, "its format is not");
    write_text(f, "{\"format\": \"mm facts\", \"version\": 3}");
    expect_format_error(f, "version is 3, must be 1 to 2");
}

static void bodies_are_read_since_version_2(void **state) {
    fixture *f = *state;
    write_body(f, 2, false, 100, 60, 50);
    assert_int_equal(load(f->path, f->g.graph, f->facts), MM_OK);
    const mm_code_facts *code = mm_facts_code(f->facts, 0, f->g.out);
    assert_int_equal(code->body_bound_bytes, 100);
    assert_int_equal(code->body_reserve_bytes, 60);
    assert_int_equal(code->body_typical_bytes, 50);
    /* What a body takes is measured, as times are. */
    write_body(f, 2, false, 100, 70, 65);
    assert_int_equal(load_part(f->path, f->g.graph, MM_FACTS_TIMES, f->facts), MM_OK);
    code = mm_facts_code(f->facts, 0, f->g.out);
    assert_int_equal(code->body_reserve_bytes, 70);
    assert_int_equal(code->body_typical_bytes, 65);
    write_body(f, 1, false, 100, 60, 50);
    assert_int_equal(load(f->path, f->g.graph, f->facts), MM_OK);
    assert_int_equal(mm_facts_code(f->facts, 0, f->g.out)->body_bound_bytes, 0);
}

static void impossible_bodies_are_refused(void **state) {
    fixture *f = *state;
    static const struct {
        bool fixed_size;
        int bound, reserve, typical;
        const char *words;
    } cases[] = {
        {false, 100, 60, 101, "out: a body of at most 100 bytes, 101 typical"},
        {false, 100, 101, 50, "101 reserved"},
        {false, 100, 0, 50, "the reserve at least 1"},
        {false, 0, 0, 1, "a body of at most 0 bytes, 1 typical"},
        {true, 100, 60, 50, "where the codec is of fixed size"},
        {false, 100, 60, -1, "body_typical_bytes is -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_body(f, 2, cases[i].fixed_size, cases[i].bound, cases[i].reserve, cases[i].typical);
        expect_format_error(f, cases[i].words);
    }
    write_version(f, 2, 90, 5,
                  "\"steps\": [], \"codecs\": [{\"spec\": \"c\", \"lossless\": true, \"fixed_size\": true,"
                  " \"gives_value\": true, \"gives_sign\": false, \"codes\": {\"out\": {\"code_bytes\": 9,"
                  " \"scratch_bytes\": 8, \"encode_ns\": 7, \"decode_ns\": 6}}}]");
    expect_format_error(f, "body_bound_bytes is missing");
    write_version(f, 2, 90, 5,
                  "\"steps\": [], \"codecs\": [{\"spec\": \"c\", \"lossless\": true, \"fixed_size\": false,"
                  " \"gives_value\": true, \"gives_sign\": false, \"codes\": {\"out\": {\"code_bytes\": 9,"
                  " \"scratch_bytes\": 8, \"encode_ns\": 7, \"decode_ns\": 6, \"body_bound_bytes\": 17592186044417,"
                  " \"body_reserve_bytes\": 1, \"body_typical_bytes\": 1}}}]");
    expect_format_error(f, "body_bound_bytes is 17592186044417, must be 0 to 17592186044416");
}

static void what_simulations_refuse_is_refused(void **state) {
    fixture *f = *state;
    const char *nothing = "\"steps\": [], \"codecs\": []";
    write_device(f, 9, 5, nothing);
    expect_format_error(f, "less than a tenth");
    write_device(f, 90, MM_CONTENTION_MOST + 1, nothing);
    expect_format_error(f, "contention_permille is 9001");
    write_file(f, "\"link_contention_permille\": 9001, \"steps\": [], \"codecs\": []");
    expect_format_error(f, "link_contention_permille is 9001");
    write_file(f, "\"contention\": {\"dear\": {\"encode\": 1, \"decode\": 2}}, \"steps\": [], \"codecs\": []");
    expect_format_error(f, "contention of dear: link is missing");
    write_file(f, "\"contention\": {\"dear\": {\"encode\": -1}}, \"steps\": [], \"codecs\": []");
    expect_format_error(f, "contention of dear: encode is -1, must be 0 to 9000");
    write_file(f, "\"steps\": [{\"layer\": \"conv\", \"phase\": \"forward\", \"variants\": [{\"id\": 1,"
                  " \"deterministic\": true, \"workspace_bytes\": 1, \"ns\": 1000000000001}]}], \"codecs\": []");
    expect_format_error(f, "ns is 1000000000001");
    write_device(f, 10, MM_CONTENTION_MOST, nothing);
    assert_int_equal(load(f->path, f->g.graph, f->facts), MM_OK);
}

static void every_cut_of_a_file_is_refused(void **state) {
    fixture *f = *state;
    assert_int_equal(mm_facts_write(f->facts, f->g.graph, f->path), MM_OK);
    FILE *file = fopen(f->path, "r");
    char text[8192];
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    assert_true(n > 500 && n < sizeof text);
    while (n > 0 && text[n - 1] != '}') n--;
    while (n-- > 0) {
        text[n] = '\0';
        write_text(f, text);
        assert_int_equal(load(f->path, f->g.graph, f->facts), MM_ERR_FORMAT);
    }
}

static void missing_file_says_its_name(void **state) {
    fixture *f = *state;
    assert_int_equal(load(f->path, f->g.graph, f->facts), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), f->path));
}

static void save_that_fails_leaves_nothing(void **state) {
    fixture *f = *state;
    char path[4200];
    snprintf(path, sizeof path, "%s/nowhere/facts.json", f->directory);
    assert_int_equal(mm_facts_write(f->facts, f->g.graph, path), MM_ERR_IO);
    assert_non_null(strstr(mm_last_error(), path));
    /* A directory cannot be replaced by a file; the new file must not stay. */
    assert_int_equal(mkdir(f->path, 0755), 0);
    assert_int_equal(mm_facts_write(f->facts, f->g.graph, f->path), MM_ERR_IO);
    assert_int_equal(rmdir(f->path), 0);
}

static void layers_of_one_name_are_refused(void **state) {
    fixture *f = *state;
    mm_graph *graph;
    mm_graph_facts *facts;
    assert_int_equal(mm_graph_create("twins", &graph), MM_OK);
    mm_use use = {small_tensor(graph, "t", MM_STATE, MM_PERSISTENT, 4), MM_WRITE, MM_FORM_VALUE};
    for (int i = 0; i < 2; i++) small_step(graph, small_layer(graph, "twin", MM_LAYER_OTHER), MM_FORWARD, &use, 1, 0);
    assert_int_equal(mm_graph_freeze(graph), MM_OK);
    assert_int_equal(mm_graph_facts_create(graph, 0, &facts), MM_OK);
    assert_int_equal(mm_facts_write(facts, graph, f->path), MM_ERR_INVALID);
    assert_non_null(strstr(mm_last_error(), "twin"));
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(save_then_load_gives_the_same_facts),
        CASE(saved_file_is_readable_by_others),
        CASE(what_the_file_leaves_out_stays),
        CASE(times_alone_are_taken_where_sizes_are_the_same),
        CASE(codec_takes_the_slot_of_its_spec_or_an_empty_one),
        CASE(rates_of_codecs_give_codes_their_times),
        CASE(file_of_another_graph_is_refused),
        CASE(names_that_the_graph_lacks_are_refused),
        CASE(what_simulations_refuse_is_refused),
        CASE(corrupt_files_are_refused),
        CASE(bodies_are_read_since_version_2),
        CASE(impossible_bodies_are_refused),
        CASE(every_cut_of_a_file_is_refused),
        CASE(missing_file_says_its_name),
        CASE(save_that_fails_leaves_nothing),
        CASE(layers_of_one_name_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
