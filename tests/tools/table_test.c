/* SPDX-License-Identifier: MIT */
/* Tables as text, and how a bench prints its rows. */
#include <stdlib.h>
#include <string.h>

#include "tests/core/expect.h"
#include "tests/core/test_case.h"
#include "tools/args/args.h"
#include "tools/args/table.h"
#include "tools/args/terminal.h"
#include "tools/compare/bench_grid.h"

/* Text printed between begin() and end(). */
static char *printed;
static size_t printed_bytes;

/* The tests' texts are for 100 columns, if `page` says no other width. */
static int page = 100;

static FILE *begin(void) {
    char columns[16];
    snprintf(columns, sizeof columns, "%d", page);
    setenv("COLUMNS", columns, 1);
    FILE *file = open_memstream(&printed, &printed_bytes);
    assert_non_null(file);
    return file;
}

/* Ends printing; checks that every line fits the width, and that none ends in a space. */
static void end(FILE *file) {
    fclose(file);
    for (const char *line = printed; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strcspn(line, "\n");
        if ((int)length > page || (length > 0 && line[length - 1] == ' '))
            fail_msg("a line of %zu: %.*s", length, (int)length, line);
    }
}

static void expect_text(const char *text) {
    if (strcmp(printed, text) != 0) fail_msg("printed:\n%s\nexpected:\n%s", printed, text);
    free(printed);
}

static void says(const char *text) {
    if (!strstr(printed, text)) fail_msg("'%s' is not in:\n%s", text, printed);
}

static void print(const table_column *columns, int n, table_shape shape, const char *const *cells, int rows) {
    table *t;
    expect_ok(table_create(columns, n, shape, &t));
    for (int r = 0; r < rows; r++) {
        table_row(t);
        for (int c = 0; c < n; c++) table_cell(t, "%s", cells[r * n + c]);
    }
    FILE *file = begin();
    expect_ok(table_print(file, t));
    end(file);
    table_destroy(t);
}

TEST_CASE(columns_are_aligned_and_those_without_figures_left_out) {
    static const table_column columns[] = {{"name", true, 0}, {"bytes", false, 0}, {"host", false, 0}, {"s", true, 0}};
    static const char *const cells[] = {"a", "1", "-", "ok", "longer", "1234567", "-", "not"};
    print(columns, 4, TABLE_DROPPING, cells, 2);
    expect_text("name      bytes  s\n"
                "a             1  ok\n"
                "longer  1234567  not\n");
}

TEST_CASE(what_has_no_room_is_dropped_in_order_and_named) {
    static const char wide[] = "3333333333333333333333333333333333333333";
    static const table_column columns[] = {
        {"kept", true, 0}, {"second", false, 2}, {"first", false, 1}, {"z", false, 0}};
    const char *const cells[] = {"x", wide, wide, "1"};
    print(columns, 4, TABLE_DROPPING, cells, 1);
    says("second");
    says(wide);
    free(printed);
    const char *const wider[] = {wide, wide, wide, wide};
    print(columns, 4, TABLE_DROPPING, wider, 1);
    says("\n(columns left out: second, first; --json has all)\n");
    free(printed);
}

TEST_CASE(a_cell_that_is_too_wide_goes_on_below_and_nothing_is_cut) {
    static const table_column columns[] = {{"policy", true, 0}, {"img/s", false, 0}};
    static const char *const cells[] = {"swap", "12.5", "rules:conv=compress(zfp:rate=4);relu=mask;*=swap", "100.0"};
    print(columns, 2, TABLE_DROPPING, cells, 2);
    expect_text("policy  img/s\n"
                "swap     12.5\n"
                "rules:conv=compress(zfp:rate=4);relu=mask;*=swap\n"
                "        100.0\n");
}

TEST_CASE(a_last_word_keeps_its_line_and_costs_a_column) {
    static const char wide[] = "3333333333333333333333333333333333333333";
    static const table_column columns[] = {
        {"first", false, 1}, {"policy", true, 0}, {"host", true, 0}, {"status", true, 0}};
    const char *const cells[] = {"12345", wide, wide, "interrupted"};
    print(columns, 4, TABLE_DROPPING, cells, 1);
    says("3  interrupted\n(columns left out: first; --json has all)\n");
    free(printed);
    const char *const words[] = {"12345", wide, wide, "out of memory for a table"};
    print(columns, 4, TABLE_DROPPING, words, 1);
    says("12345");
    says("out of\n    memory for a table\n");
    free(printed);
}

TEST_CASE(a_note_of_any_length_is_wrapped) {
    static const table_column columns[] = {{"policy", true, 0}, {"img/s", false, 0}};
    table *t;
    char words[40 * 8 + 1] = "";
    for (int i = 0; i < 40; i++) strcat(words, "needing ");
    expect_ok(table_create(columns, 2, TABLE_DROPPING, &t));
    table_row(t);
    table_cell(t, "naive");
    table_note(t, "%s", words);
    FILE *file = begin();
    expect_ok(table_print(file, t));
    end(file);
    table_destroy(t);
    int found = 0;
    for (const char *at = printed; (at = strstr(at, "needing")); at++) found++;
    assert_int_equal(found, 40);
    says("\n        needing");
    free(printed);
}

TEST_CASE(a_folded_table_repeats_its_first_column) {
    table_column columns[31] = {{"policy", true, 0}};
    const char *cells[31] = {"liveness"};
    for (int c = 1; c < 31; c++) columns[c].head = "100MiB", cells[c] = c % 2 ? "1000.5" : "-";
    print(columns, 31, TABLE_FOLDED, cells, 1);
    int heads = 0, values = 0;
    for (const char *at = printed; (at = strstr(at, "100MiB")); at++) heads++;
    for (const char *at = printed; (at = strstr(at, "1000.5")); at++) values++;
    assert_int_equal(heads, 30);
    assert_int_equal(values, 15);
    says("\nliveness");
    says("\npolicy");
    free(printed);
}

TEST_CASE(lines_fit_every_width_that_a_terminal_may_have) {
    static const table_column columns[] = {{"net", true, 0},    {"first", false, 1}, {"second", false, 2},
                                           {"third", false, 3}, {"policy", true, 0}, {"status", true, 0}};
    static const char *const cells[] = {
        "resnet20",
        "1234567890",
        "1234567890",
        "1234567890",
        "freelunch:when=always (lossy)",
        "infeasible: needs at least 61349376 bytes (58.5MiB), held by layer3.2.conv2 backward"};
    for (page = 60; page <= 160; page += 20) {
        print(columns, 6, TABLE_DROPPING, cells, 1);
        says("61349376");
        if (page == 80) says("(columns left out: first; --json has all)\n");
        if (page >= 100) assert_null(strstr(printed, "left out"));
        free(printed);
    }
    page = 100;
}

TEST_CASE(without_a_terminal_and_columns_lines_have_eighty) {
    static const char *const no_widths[] = {"", "0", "1", "wide", "80x", "-3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof no_widths / sizeof *no_widths; i++) {
        setenv("COLUMNS", no_widths[i], 1);
        assert_int_equal(terminal_columns(-1), 80);
    }
    unsetenv("COLUMNS");
    assert_int_equal(terminal_columns(-1), 80);
    setenv("COLUMNS", "43", 1);
    assert_int_equal(terminal_columns(-1), 43);
    setenv("TERM", "xterm", 1);
    assert_false(terminal_redraws(-1));
}

/* ---------------------------------------------------------------- rows */

static row make_row(const char *policy, const char *now, double speed) {
    return (row){.net = "resnet20",
                 .device = "host",
                 .policy = policy,
                 .policy_now = now,
                 .batch = 32,
                 .budget_bytes = 123456789,
                 .predicted_peak_bytes = 123456789,
                 .peak_bytes = 123456789,
                 .outside_bytes = 123456789,
                 .stash_bytes = 123456789,
                 .images_per_second = speed,
                 .iteration_seconds_median = 1,
                 .codec_hidden_share = 0.5,
                 .test_accuracy = -1,
                 .loss_first = 2.5,
                 .loss_last = 1.5,
                 .status = "ok"};
}

TEST_CASE(a_stand_in_is_named_in_the_ranking_and_marked_in_the_grid) {
    row rows[] = {make_row("naive", "liveness", 20), make_row("swap", "swap", 10), make_row("swap", "swap", 11)};
    FILE *file = begin();
    expect_ok(grid_print_orders(file, rows, 2));
    end(file);
    expect_text("\nresnet20, batch 32, each in its own budget: images/s, fastest first\n"
                "  naive -> liveness 20.0 > swap 10.0\n");
    rows[2].asked_bytes = 1 << 20;
    grid *grids;
    int n;
    expect_ok(grids_make(rows, 3, &grids, &n));
    assert_int_equal(n, 1);
    file = begin();
    expect_ok(grid_print(file, &grids[0]));
    end(file);
    free(grids);
    says("naive   20.0*     -\n");
    says("* speed of the substitute policy that ran instead");
    free(printed);
}

TEST_CASE(rows_fit_the_page_whatever_the_policys_length) {
    static const char rules[] =
        "rules:rules=conv=compress(zfp:rate=4);linear=compress(zfp:rate=8);relu=mask;bn=recompute;"
        "pool=swap;add=swap;dropout=recompute;concat=swap;*=swap,depth=1,when=needed";
    row rows[] = {make_row("naive", NULL, 1), make_row("freelunch:rate=4", rules, 123456.7), make_row(rules, NULL, 0)};
    char ran[512];
    snprintf(ran, sizeof ran, "freelunch:rate=4 (lossy) -> %s (lossy)", rules);
    rows[1].ran = ran;
    strcpy(rows[2].status,
           "infeasible: needs at least 61349376 bytes (58.5MiB), held by layer3.2.conv2 backward; policy "
           "recompute-swap would fit");
    FILE *file = begin();
    expect_ok(rows_print(file, rows, 3));
    end(file);
    says("\n    concat=swap;*=swap,depth=1,when=needed (lossy)\n");
    says("123456.7");
    says("(columns left out: outside; --json has all)\n");
    free(printed);
}

TEST_CASE(a_loss_without_bound_keeps_its_cell_narrow) {
    row rows[] = {make_row("swap", NULL, 1), make_row("naive", NULL, 1)};
    rows[0].loss_last = 73073762684318515200.0;
    rows[1].loss_last = 9999.0;
    FILE *file = begin();
    expect_ok(rows_print(file, rows, 2));
    end(file);
    says("  2.50 -> 7.31e+19  ok\n");
    says("  2.50 -> 9999.00   ok\n");
    free(printed);
}

/* ---------------------------------------------------------------- lists */

TEST_CASE(lists_of_policies_have_no_longest_text) {
    char text[4096] = "naive,,rules:", *end_ = text + strlen(text);
    for (int i = 0; i < 200; i++) end_ += sprintf(end_, "conv=swap;");
    strcpy(end_, "*=keep,depth=1,k=2,swap:when=always");
    arg_texts texts;
    expect_ok(args_split("--policies", text, &texts));
    assert_int_equal(texts.n, 3);
    assert_string_equal(texts.text[0], "naive");
    assert_int_equal(strlen(texts.text[1]), strlen("rules:*=keep,depth=1,k=2") + 2000);
    assert_string_equal(texts.text[2], "swap:when=always");
    args_texts_fini(&texts);
    assert_int_equal(args_split("--policies", ",,", &texts), MM_ERR_INVALID);
    assert_string_equal(mm_last_error(), "--policies ,,: the list is empty");
}
