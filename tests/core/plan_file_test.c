/* SPDX-License-Identifier: MIT */
/* A plan that is read back is the one that was written: the same bytes when it is written again, the same verdict of
 * the proof, the same predicted time. A file that cannot be read is refused in one line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_file.h"
#include "mm/core/time/simulate.h"
#include "tests/core/alloc_fault.h"
#include "tests/core/deep.h"
#include "tests/core/expect.h"
#include "tests/core/graph_files.h"
#include "tests/core/plan_files.h"
#include "tests/core/plan_mutate.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/plan_proof.h"

/* Writes plans, reads them, and writes them again: both files are the same. The caller frees what was read. */
static void round_trip(const mm_plan_view *plans, size_t n, mm_plan_file **files_out) {
    char path[GRAPH_PATH];
    mm_plan_view again[4];
    size_t n_read, n_first, n_second;
    expect_ok(mm_plan_file_write(plans, n, graph_files_path("plans.jsonl", path)));
    char *first = graph_files_read(path, &n_first);
    expect_ok(mm_plan_files_read(path, files_out, &n_read));
    assert_int_equal(n_read, n);
    for (size_t i = 0; i < n; i++) again[i] = plan_files_view(&(*files_out)[i]);
    expect_ok(mm_plan_file_write(again, n, path));
    char *second = graph_files_read(path, &n_second);
    assert_string_equal(first, second);
    assert_int_equal(remove(path), 0);
    free(first);
    free(second);
}

static int64_t predict(const mm_program *program, const mm_graph_facts *facts) {
    mm_simulation simulation;
    expect_ok(mm_program_simulate(program, facts, &simulation));
    const int64_t ns = simulation.iteration_ns;
    mm_simulation_fini(&simulation);
    return ns;
}

TEST_CASE(a_random_plan_comes_back_is_proved_and_takes_as_long) {
    const int plans = test_depth(test_is_sanitized() ? 16 : 32, 400);
    int pieces = 0, heaps = 0, pools = 0, measures = 0, aliases = 0, pinned_homes = 0, codes = 0;
    for (int seed = 0; seed < plans; seed++) {
        plan_world w = plan_world_create((uint64_t)seed);
        const mm_plan_view view = plan_world_view(&w);
        mm_plan_file *files;
        round_trip(&view, 1, &files);
        assert_string_equal(files->plan->policy, "random");
        graph_files_expect_same(w.graph, files->graph);
        assert_int_equal(files->program->n, w.program.n);
        for (int i = 0; i < w.program.n; i++) {
            const mm_piece *a = &w.program.pieces[i], *b = &files->program->pieces[i];
            assert_memory_equal(a, b, sizeof *a);
        }
        for (int i = 0; i < w.plan->n_segments; i++) {
            const mm_segment *a = &w.plan->segments[i], *b = &files->plan->segments[i];
            assert_memory_equal(a, b, sizeof *a);
            heaps += a->dynamic;
            pools += a->spill >= 0;
        }
        for (int i = 0; i < w.plan->n_nodes; i++) {
            measures += w.plan->nodes[i].kind == MM_NODE_MEASURE;
            codes += w.plan->nodes[i].first_code >= 0;
        }
        assert_int_equal(w.plan->live_peak_bytes, files->plan->live_peak_bytes);
        assert_int_equal(w.plan->stash_bytes, files->plan->stash_bytes);
        expect_ok(mm_program_prove(files->program, files->facts, &files->limits, NULL));
        assert_int_equal(predict(&w.program, w.facts), predict(files->program, files->facts));
        pieces += w.program.n - w.plan->n_nodes;
        for (int i = 0; i < mm_graph_persistents(w.graph); i++)
            pinned_homes += w.plan->segments[i].memory == MM_MEM_PINNED;
        for (int t = 0; t < mm_graph_tensors(w.graph); t++) aliases += w.plan->alias[t] != t;
        mm_plan_files_destroy(files, 1);
        plan_world_destroy(&w);
    }
    print_message("%d further pieces, %d in heaps, %d spills, %d measures, %d aliases, %d homes in pinned memory, %d "
                  "nodes that write codes\n",
                  pieces, heaps, pools, measures, aliases, pinned_homes, codes);
    assert_true(pieces > 10 && heaps > 10 && pools > 3 && measures > 10 && aliases > 3 && pinned_homes > 10);
    assert_true(codes > 0);
}

TEST_CASE(several_plans_come_back_in_their_order) {
    plan_world worlds[3];
    mm_plan_view views[3];
    mm_plan_file *files;
    for (int i = 0; i < 3; i++) {
        worlds[i] = plan_world_create(40 + (uint64_t)i);
        views[i] = plan_world_view(&worlds[i]);
    }
    round_trip(views, 3, &files);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(mm_graph_name(files[i].graph), mm_graph_name(worlds[i].graph));
        plan_world_destroy(&worlds[i]);
    }
    mm_plan_files_destroy(files, 3);
    mm_plan_files_destroy(NULL, 0);
}

/* A plan that is wrong can be written too: the proof says of what was read what it says of what was written. */
TEST_CASE(a_broken_plan_comes_back_broken_in_the_same_way) {
    const int plans = test_depth(test_is_sanitized() ? 1 : 2, 60);
    char path[GRAPH_PATH], message[512];
    int refused = 0, right = 0, unreadable = 0;
    graph_files_path("broken.jsonl", path);
    for (int seed = 0; seed < plans; seed++) {
        plan_world w = plan_world_create((uint64_t)seed);
        for (int i = 0; mutation_at(i); i++) {
            if (strcmp(mutation_at(i)->name, "wrong_life") == 0 || strcmp(mutation_at(i)->name, "keep_all") == 0)
                continue; /* the file does not say first and last uses */
            mutant m = {.plan = plan_clone(w.plan), .limits = w.limits, .facts = w.facts, .random = (uint64_t)i};
            mm_program program = {0};
            if (mutation_at(i)->apply(&m) && plan_walkable(m.plan) &&
                (m.keep_sums || mm_plan_finish(m.plan) == MM_OK) && plan_is_formed(m.plan, m.facts, &m.limits) &&
                mm_program_init(m.plan, m.facts, &program) == MM_OK) {
                const mm_status wanted = mm_program_prove(&program, m.facts, &m.limits, NULL);
                snprintf(message, sizeof message, "%s", wanted == MM_OK ? "" : mm_last_error());
                const mm_plan_view view = {&program, m.facts, &m.limits};
                mm_plan_file *files;
                size_t n;
                mm_status status = mm_plan_file_write(&view, 1, path);
                if (status == MM_OK) status = mm_plan_files_read(path, &files, &n);
                if (status == MM_OK) {
                    if (mm_program_prove(files->program, files->facts, &files->limits, NULL) != wanted)
                        fail_msg("%s: %s", mutation_at(i)->name, message);
                    if (wanted != MM_OK) assert_string_equal(mm_last_error(), message);
                    mm_plan_files_destroy(files, n);
                } else {
                    if (wanted == MM_OK) fail_msg("%s: %s", mutation_at(i)->name, mm_last_error());
                }
                unreadable += status != MM_OK;
                *(wanted == MM_OK ? &right : &refused) += status == MM_OK;
                mm_program_fini(&program);
            }
            mm_plan_destroy(m.plan);
        }
        plan_world_destroy(&w);
    }
    remove(path);
    print_message("%d broken plans and %d right ones came back; %d could not be saved\n", refused, right, unreadable);
    assert_true(refused > 10 * plans && right > 2 * plans && unreadable * 5 < refused);
}

/* ---------------------------------------------------------------- the example of FORMAT.md */

TEST_CASE(the_example_is_proved_is_what_is_lowered_and_stands_in_the_documentation) {
    static const char EXAMPLE[] = "mm/core/plan/plan_example.jsonl", FORMAT[] = "mm/core/plan/FORMAT.md";
    char path[GRAPH_PATH];
    mm_plan_file *files;
    mm_program lowered;
    size_t n, n_bytes;
    expect_ok(mm_plan_files_read(EXAMPLE, &files, &n));
    assert_int_equal(n, 1);
    expect_ok(mm_program_prove(files->program, files->facts, &files->limits, NULL));
    expect_ok(mm_program_init(files->plan, files->facts, &lowered));
    assert_int_equal(lowered.n, files->program->n);
    assert_memory_equal(lowered.pieces, files->program->pieces, (size_t)lowered.n * sizeof *lowered.pieces);
    const mm_plan_view view = plan_files_view(files);
    expect_ok(mm_plan_file_write(&view, 1, graph_files_path("example.jsonl", path)));
    char *example = graph_files_read(EXAMPLE, &n_bytes), *written = graph_files_read(path, &n_bytes);
    char *format = graph_files_read(FORMAT, &n_bytes);
    assert_string_equal(example, written);
    for (char *rest, *line = strtok_r(example, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (!strstr(format, line)) fail_msg("%s lacks the line %s", FORMAT, line);
    remove(path);
    free(example);
    free(written);
    free(format);
    mm_program_fini(&lowered);
    mm_plan_files_destroy(files, n);
}

static void expect_word(const char *text, const char *mark, const char *word) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "%s%s%s", mark, word, mark);
    if (!strstr(text, quoted)) fail_msg("FORMAT.md lacks the word %s", quoted);
}

TEST_CASE(the_documentation_has_all_words) {
    size_t n;
    char *format = graph_files_read("mm/core/plan/FORMAT.md", &n);
    for (int i = 0; i < MM_NODE_KINDS; i++) expect_word(format, "`", mm_node_kind_name((mm_node_kind)i));
    for (int i = 0; i < MM_STREAM_COUNT; i++) expect_word(format, "\"", mm_stream_id_name((mm_stream_id)i));
    for (int i = 0; i < MM_CONTENTS; i++) expect_word(format, "\"", mm_content_name((mm_content)i));
    for (int i = 0; i < MM_CATEGORIES; i++) expect_word(format, "\"", mm_category_name((mm_category)i));
    free(format);
}

/* ---------------------------------------------------------------- refusals */

static void expect_refused(mm_status status, mm_status wanted, const char *says) {
    if (status != wanted || !strstr(mm_last_error(), says))
        fail_msg("%s: '%s' does not say '%s'", mm_status_name(status), mm_last_error(), says);
    for (const char *c = mm_last_error(); *c; c++) assert_true((unsigned char)*c >= ' ');
}

/* Replaces the first `from` after `after` by `to`. The caller frees the result. */
static char *edit(const char *text, const char *after, const char *from, const char *to) {
    const char *begin = strstr(text, after), *at = begin ? strstr(begin, from) : NULL;
    if (!at) fail_msg("there is no '%s' after '%s'", from, after);
    char *edited = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(edited);
    sprintf(edited, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return edited;
}

TEST_CASE(a_wrong_file_is_refused_and_the_message_names_the_line_and_the_key) {
    static const struct {
        const char *after, *from, *to, *says;
    } cases[] = {
        {"", "{\"format\"", "[\"format\"", "line 1: "},
        {"", "\"mm plan\"", "\"mm graph\"", "line 1: \"format\" is not \"mm plan\""},
        {"", "\"version\": 1", "\"version\": 2", "is of version 2; mm " MM_VERSION " reads versions 1 to 1"},
        {"", "\"version\": 1", "\"version\": 0", "is of version 0"},
        {"", "\"version\": 1, ", "", "line 1: \"version\" is missing"},
        {"", "\"plan\": 0", "\"plan\": 1", "is plan 1 of 1, where plan 0 is due"},
        {"", "\"plans\": 1", "\"plans\": 2", "ends after 1 of 2 plans"},
        {"", "\"policy\"", "\"police\"", "line 1: \"police\" is not one of its keys"},
        {"\"graph\"", "\"mm graph\"", "\"mm plan\"", "line 2: the file: \"format\" is not"},
        {"\"graph\"", "\"dtype\"", "\"type\"", "line 2: graph 0, tensor 0: \"type\" is not one of its keys"},
        {"\"is\": \"limits\"", "\"limits\"", "\"limit\"", "line 3: \"is\" cannot be 'limit'"},
        {"\"is\": \"limits\"", "\"device_bytes\": ", "\"device_bytes\": -", "line 3: \"device_bytes\" is -"},
        {"\"is\": \"limits\"",
         "\"base_bytes\": ", "\"base_bytes\": 9223372036854775807, \"other\": ", "\"other\" is not"},
        {"\"is\": \"home\"", "\"place\": \"", "\"place\": \"heap\", \"of\": \"", "\"of\" is not one of its keys"},
        {"", "{\"is\": \"home\"", "{\"is\": \"facts\"", "lines that are \"home\" before it, not"},
        {"", "{\"is\": \"facts\"", "{\"is\": \"plan\"", "there are 0 lines that are \"facts\""},
        {"\"is\": \"facts\"", "\"piece_bytes\": ", "\"piece_bytes\": -", "\"piece_bytes\" is -"},
        {"\"is\": \"codec\"", "\"lossless\": ", "\"lossless\": 1, \"spec \": ", "\"spec \" is not one of its keys"},
        {"\"is\": \"code\"", "\"codec\": \"", "\"codec\": \"no ", "\"codec\" is no codec of the plan"},
        {"\"is\": \"code\"", "\"tensor\": \"", "\"tensor\": \"no ", "\"tensor\" names no tensor of the graph: no "},
        {"\"is\": \"variants\"", "\"step\": 0", "\"step\": 1", "\"step\" is 1 where 0 is due"},
        {"\"is\": \"variants\"", "\"variants\": [", "\"variants\": [7, ", "is not an object"},
        {"\"is\": \"plan\"", "\"segments\": ", "\"segments\": 1", "lines that are \"segment\" before it, not 1"},
        {"\"is\": \"plan\"", "\"nodes\": ", "\"nodes\": 1", "lines that are \"node\" before it, not 1"},
        {"\"is\": \"plan\"", "\"pieces\": ", "\"pieces\": 1", "the end: there are"},
        {"\"is\": \"segment\"", "\"index\": 0", "\"index\": 2", "\"index\" is 2 where 0 is due"},
        {"\"is\": \"segment\"",
         "\"bytes\": ", "\"bytes\": 2305843009213693952, \"pool\": 9, \"s\": ", "\"s\" is not one"},
        {"\"is\": \"segment\"", "\"offset\": ", "\"spill\": 99999, \"offset\": ", "\"spill\" is 99999, but there are"},
        {"\"is\": \"segment\"", "\"content\": \"raw\"", "\"content\": \"ripe\"", "\"content\" cannot be 'ripe'"},
        {"\"is\": \"segment\"", "\"place\": \"", "\"place\": \"un", "\"place\" cannot be 'un"},
        {"\"is\": \"node\"", "\"kind\": \"step\"", "\"kind\": \"stop\"", "\"kind\" cannot be 'stop'"},
        {"\"is\": \"node\"", "\"stream\": \"", "\"stream\": \"down", "\"stream\" cannot be 'down"},
        {"\"is\": \"node\"", "\"step\": 0", "\"step\": 99999", "\"step\" is missing, or no step of the graph"},
        {"\"is\": \"node\"", "\"step\": 0", "\"step\": 0, \"variant\": -1", "\"variant\" is -1, must be 0 to"},
        {"\"is\": \"node\"", "\"segments\": [", "\"segments\": [99999, ", "\"segments\" is not an array of"},
        {"\"is\": \"node\"", "\"waits\": {", "\"waits\": {\"up\": 0", "\"waits\" names an unknown stream"},
        {"\"is\": \"node\"", "\"waits\": {", "\"waits\": {\"in\": -1", "\"waits\" is -1, must be 0 to"},
        {"\"is\": \"node\"", "\"waits\": {}", "\"work\": 99999", "\"waits\" is missing"},
        {"\"is\": \"node\"", "\"kind\": \"step\"", "\"kind\": \"offload\"", "has segments for the uses of a step"},
        {"\"is\": \"piece\"", "\"node\": 0", "\"node\": 99999", "\"node\" is no node of the plan"},
        {"\"is\": \"piece\"", "\"number\": 0", "\"number\": 0.5", "\"number\" is not an integer"},
        {"", "{\"is\": \"piece\"", "{\"is\": \"node\"", "there are more than"},
        {"\"is\": \"piece\"", "\"waits\": {}}\n", "\"waits\": {}}\n\n", "line "},
    };
    char path[GRAPH_PATH];
    plan_world w = plan_world_create(4);
    const mm_plan_view view = plan_world_view(&w);
    mm_plan_file *files = NULL;
    size_t n = 7;
    expect_ok(mm_plan_file_write(&view, 1, graph_files_path("wrong.jsonl", path)));
    char *right = graph_files_read(path, &n);
    n = 7;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *wrong = edit(right, cases[i].after, cases[i].from, cases[i].to);
        graph_files_write(path, wrong, strlen(wrong));
        expect_refused(mm_plan_files_read(path, &files, &n), MM_ERR_FORMAT, cases[i].says);
        assert_non_null(strstr(mm_last_error(), path));
        assert_null(files);
        free(wrong);
    }
    graph_files_write(path, "", 0);
    expect_refused(mm_plan_files_read(path, &files, &n), MM_ERR_FORMAT, "is empty");
    remove(path);
    expect_refused(mm_plan_files_read(path, &files, &n), MM_ERR_IO, "cannot be read");
    assert_int_equal(n, 7);
    free(right);
    plan_world_destroy(&w);
}

TEST_CASE(a_file_that_ends_at_any_line_is_refused) {
    char path[GRAPH_PATH];
    plan_world w = plan_world_create(4);
    const mm_plan_view view = plan_world_view(&w);
    mm_plan_file *files;
    size_t n, n_read;
    expect_ok(mm_plan_file_write(&view, 1, graph_files_path("short.jsonl", path)));
    char *text = graph_files_read(path, &n);
    for (const char *end = strchr(text, '\n'); end[1]; end = strchr(end + 1, '\n')) {
        graph_files_write(path, text, (size_t)(end + 1 - text));
        expect_refused(mm_plan_files_read(path, &files, &n_read), MM_ERR_FORMAT, "the end: there are");
    }
    remove(path);
    free(text);
    plan_world_destroy(&w);
}

TEST_CASE(what_cannot_be_written_is_refused_and_leaves_no_file) {
    char path[GRAPH_PATH];
    plan_world w = plan_world_create(4);
    const mm_plan_view view = plan_world_view(&w);
    graph_files_path("refused.jsonl", path);
    expect_refused(mm_plan_file_write(&view, 0, path), MM_ERR_INVALID, "0 plans");
    expect_refused(mm_plan_file_write(&view, 1, "/nowhere/p.jsonl"), MM_ERR_IO, "/nowhere/p.jsonl");
    const int64_t offset = w.plan->segments[0].offset;
    w.plan->segments[0].offset = -1;
    expect_refused(mm_plan_file_write(&view, 1, path), MM_ERR_INVALID, "\"offset\" is out of range");
    w.plan->segments[0].offset = offset;
    w.plan->segments[0].bytes = INT64_MAX;
    expect_refused(mm_plan_file_write(&view, 1, path), MM_ERR_INVALID, "too large");
    expect_ok(mm_plan_name(w.plan, "two\nlines"));
    expect_refused(mm_plan_file_write(&view, 1, path), MM_ERR_INVALID, "control characters");
    assert_int_not_equal(remove(path), 0);
    plan_world_destroy(&w);
}

/* ---------------------------------------------------------------- memory */

TEST_CASE(a_lack_of_memory_is_a_status_and_leaves_nothing) {
    const int step = test_depth(test_is_sanitized() ? 61 : 7, 1);
    char path[GRAPH_PATH];
    plan_world w = plan_world_create(4);
    const mm_plan_view view = plan_world_view(&w);
    int failed = 0;
    graph_files_path("short_of_memory.jsonl", path);
    for (int nth = 1; nth > 0; nth += step) {
        alloc_fault_set(nth);
        const mm_status status = mm_plan_file_write(&view, 1, path);
        const bool happened = alloc_fault_happened();
        alloc_fault_set(0);
        if (!happened) break;
        assert_true(status == MM_ERR_NOMEM || status == MM_ERR_IO);
        failed++;
    }
    expect_ok(mm_plan_file_write(&view, 1, path));
    for (int nth = 1; nth > 0; nth += step) {
        mm_plan_file *files = NULL;
        size_t n = 0;
        alloc_fault_set(nth);
        const mm_status status = mm_plan_files_read(path, &files, &n);
        const bool happened = alloc_fault_happened();
        alloc_fault_set(0);
        if (status == MM_OK) mm_plan_files_destroy(files, n);
        if (!happened) break;
        assert_true(status == MM_ERR_NOMEM || status == MM_ERR_IO);
        failed++;
    }
    print_message("%d allocations failed\n", failed);
    assert_true(failed > 5);
    remove(path);
    plan_world_destroy(&w);
}
