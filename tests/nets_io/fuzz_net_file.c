/* SPDX-License-Identifier: MIT */
/* Thousands of damaged network files: each is refused in one line that names the file, or accepted as a net that prints
 * and reads back. Each lies in memory of exactly its size, so that a sanitizer sees reads beyond it. */
#include "nets/io/net_file.h"
#include "nets/io/reader_random.h"
#include "tests/core/test_case.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 12000, MAX_EDITS = 4, CAPACITY = 8192 };

typedef struct random_numbers {
    uint64_t key, counter;
} random_numbers;

static size_t below(random_numbers *random, size_t n) {
    return (size_t)nets_random_below(nets_random_at(random->key, random->counter++), n);
}

static char *print(const nets_net *net, size_t *n_bytes_out) {
    char *text;
    FILE *stream = open_memstream(&text, n_bytes_out);
    assert_non_null(stream);
    if (nets_net_print(net, stream) != MM_OK) fail_msg("%s", mm_last_error());
    assert_int_equal(fclose(stream), 0);
    return text;
}

/* Replaces the `n` bytes at `at` by `with`. Returns the new length; does nothing if the text would be too long. */
static size_t replace(char *text, size_t n_bytes, size_t at, size_t n, const char *with) {
    size_t length = strlen(with);
    if (n_bytes - n + length > CAPACITY) return n_bytes;
    memmove(text + at + length, text + at + n, n_bytes - at - n);
    memcpy(text + at, with, length);
    return n_bytes - n + length;
}

/* Changes one byte; JSON's own characters come more often than by chance. */
static size_t change_byte(random_numbers *random, char *text, size_t n_bytes) {
    static const char meaning[] = "{}[]\",:0123456789-.eE\\u \n\0tfn";
    size_t at = below(random, n_bytes);
    text[at] = below(random, 3) ? meaning[below(random, sizeof meaning - 1)] : (char)below(random, 256);
    return n_bytes;
}

/* Changes a number, string, name or list. The file stays JSON, so it gets past the JSON parser. */
static size_t change_value(random_numbers *random, char *text, size_t n_bytes) {
    static const char *const values[] = {"0",
                                         "-1",
                                         "1",
                                         "3",
                                         "10",
                                         "255",
                                         "16777216",
                                         "2147483647",
                                         "2147483648",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "0.5",
                                         "-0.0",
                                         "1e-60",
                                         "1e308",
                                         "true",
                                         "false",
                                         "null",
                                         "\"\"",
                                         "\"data\"",
                                         "\"conv1\"",
                                         "\"loss\"",
                                         "\"add\"",
                                         "\"max_pool\"",
                                         "\"crop\"",
                                         "\"concat\"",
                                         "\"conv_transpose\"",
                                         "[]",
                                         "{}",
                                         "[2, 3]",
                                         "[\"data\", \"data\"]",
                                         "[9223372036854775807, 9223372036854775807]"};
    size_t at = below(random, n_bytes);
    while (at < n_bytes && text[at] != ':') at++;
    if (n_bytes - at < 3) return n_bytes;
    at += 2;
    size_t n = 0;
    bool list = text[at] == '[';
    while (at + n < n_bytes && !strchr(list ? "]\n" : ",]}\n", text[at + n])) n++;
    n += list && at + n < n_bytes;
    return replace(text, n_bytes, at, n, values[below(random, sizeof values / sizeof *values)]);
}

/* Removes, moves or doubles a piece. */
static size_t change_piece(random_numbers *random, char *text, size_t n_bytes) {
    size_t at = below(random, n_bytes), from = below(random, n_bytes), length = 1 + below(random, 64);
    if (length > n_bytes - at) length = n_bytes - at;
    if (below(random, 2)) return replace(text, n_bytes, at, length, "");
    char piece[65];
    size_t n = 0;
    for (; n < length && from + n < n_bytes && text[from + n]; n++) piece[n] = text[from + n];
    piece[n] = '\0';
    return replace(text, n_bytes, at, below(random, 2) ? length : 0, piece);
}

/* Removes a line (a layer), or swaps it with the next. */
static size_t change_line(random_numbers *random, char *text, size_t n_bytes) {
    size_t begin = below(random, n_bytes), end;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    for (end = begin; end < n_bytes && text[end] != '\n';) end++;
    if (end == n_bytes) return n_bytes;
    end++;
    char line[CAPACITY + 1];
    size_t n = 0;
    for (; begin + n < end && text[begin + n]; n++) line[n] = text[begin + n];
    line[n] = '\0';
    n_bytes = replace(text, n_bytes, begin, end - begin, "");
    if (below(random, 3) == 0) return n_bytes;
    size_t next = begin;
    while (next < n_bytes && text[next] != '\n') next++;
    return replace(text, n_bytes, next < n_bytes ? next + 1 : next, 0, line);
}

static size_t mutate(random_numbers *random, char *text, size_t n_bytes) {
    if (n_bytes == 0) return 0;
    switch (below(random, 8)) {
    case 0:
        return change_byte(random, text, n_bytes);
    case 1:
        return change_piece(random, text, n_bytes);
    case 2:
        return change_line(random, text, n_bytes);
    case 3:
        return below(random, 8) ? n_bytes : below(random, n_bytes); /* cut, but seldom, as that hides other changes */
    default:
        return change_value(random, text, n_bytes);
    }
}

static void check_refused(mm_status status) {
    assert_true(status == MM_ERR_FORMAT || status == MM_ERR_UNSUPPORTED);
    assert_int_equal(strncmp(mm_last_error(), "mutant: ", 8), 0);
    for (const char *c = mm_last_error(); *c; c++) assert_true((unsigned char)*c >= ' ');
}

/* Parses a copy of exactly this size; true if it was accepted. */
static bool parse_copy(const char *text, size_t n_bytes) {
    char *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, n_bytes);
    nets_net *net, *reread;
    mm_status status = nets_net_parse("mutant", copy, n_bytes, &net);
    free(copy);
    if (status != MM_OK) {
        check_refused(status);
        return false;
    }
    size_t n_printed, n_again;
    char *printed = print(net, &n_printed);
    assert_int_equal(nets_net_parse("printed", printed, n_printed, &reread), MM_OK);
    char *again = print(reread, &n_again);
    assert_string_equal(printed, again);
    free(printed);
    free(again);
    nets_net_destroy(net);
    nets_net_destroy(reread);
    return true;
}

static void mutants_of(const char *valid, size_t n_valid, uint64_t seed) {
    char mutant[CAPACITY];
    assert_true(n_valid < CAPACITY / 2);
    assert_true(parse_copy(valid, n_valid));
    int accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        random_numbers random = {.key = seed + (uint64_t)round};
        size_t n_bytes = n_valid;
        memcpy(mutant, valid, n_valid);
        for (size_t edits = 1 + below(&random, MAX_EDITS); edits > 0; edits--)
            n_bytes = mutate(&random, mutant, n_bytes);
        accepted += parse_copy(mutant, n_bytes);
    }
    /* Some changes are harmless, most are not. */
    assert_in_range(accepted, ROUNDS / 200, ROUNDS / 2);
}

TEST_CASE(mutants_of_a_built_in_are_refused_or_come_back) {
    nets_net *net;
    size_t n_valid;
    assert_int_equal(nets_open("resnet8", &net), MM_OK);
    char *valid = print(net, &n_valid);
    nets_net_destroy(net);
    mutants_of(valid, n_valid, 0);
    free(valid);
}

/* clang-format off */
static const char of_every_op[] =
    "{\n  \"format\": \"mm net\",\n  \"version\": 1,\n  \"name\": \"every\",\n"
    "  \"input\": {\"height\": 12, \"width\": 12, \"channels\": 4, \"classes\": 5},\n  \"layers\": [\n"
    "    {\"name\": \"conv1\", \"op\": \"conv\", \"inputs\": [\"data\"], \"out_channels\": 8, \"kernel\": 3, "
    "\"stride\": 1, \"pad\": [2, 2], \"dilation\": 2, \"groups\": 2, \"bias\": true},\n"
    "    {\"name\": \"lrn\", \"op\": \"lrn\", \"inputs\": [\"conv1\"], \"size\": 3, \"alpha\": 0.001, \"beta\": 0.5, "
    "\"k\": 2},\n"
    "    {\"name\": \"bn\", \"op\": \"batch_norm\", \"inputs\": [\"conv1\"], \"eps\": 0.001, \"momentum\": 0.5},\n"
    "    {\"name\": \"add\", \"op\": \"add\", \"inputs\": [\"lrn\", \"bn\"]},\n"
    "    {\"name\": \"relu\", \"op\": \"relu\", \"inputs\": [\"add\"]},\n"
    "    {\"name\": \"pool1\", \"op\": \"max_pool\", \"inputs\": [\"relu\"], \"kernel\": 3, \"stride\": 2, "
    "\"ceil_mode\": true},\n"
    "    {\"name\": \"up\", \"op\": \"upsample\", \"inputs\": [\"pool1\"], \"scale\": 2, \"bilinear\": true},\n"
    "    {\"name\": \"pool2\", \"op\": \"avg_pool\", \"inputs\": [\"relu\"], \"kernel\": 2, \"pad\": 1, "
    "\"exclude_pad\": true},\n"
    "    {\"name\": \"back\", \"op\": \"conv_transpose\", \"inputs\": [\"pool2\"], \"out_channels\": 6, \"kernel\": 3, "
    "\"stride\": 2, \"pad\": 1, \"output_pad\": 1},\n"
    "    {\"name\": \"crop\", \"op\": \"crop\", \"inputs\": [\"back\"], \"out_size\": 12, \"center\": true},\n"
    "    {\"name\": \"cut\", \"op\": \"crop\", \"inputs\": [\"back\"], \"out_size\": [12, 12], \"offset\": [1, 0]},\n"
    "    {\"name\": \"cat\", \"op\": \"concat\", \"inputs\": [\"up\", \"crop\", \"cut\"]},\n"
    "    {\"name\": \"drop\", \"op\": \"dropout\", \"inputs\": [\"cat\"], \"p\": 0.5},\n"
    "    {\"name\": \"gap\", \"op\": \"global_avg_pool\", \"inputs\": [\"drop\"]},\n"
    "    {\"name\": \"fc\", \"op\": \"linear\", \"inputs\": [\"gap\"], \"out_channels\": 5, \"bias\": true},\n"
    "    {\"name\": \"loss\", \"op\": \"loss\", \"inputs\": [\"fc\"]}\n  ]\n}\n";

static const char of_tokens[] =
    "{\n  \"format\": \"mm net\",\n  \"version\": 1,\n  \"name\": \"tokens\",\n"
    "  \"input\": {\"height\": 1, \"width\": 12, \"channels\": 1, \"classes\": 7},\n  \"layers\": [\n"
    "    {\"name\": \"wte\", \"op\": \"embedding\", \"inputs\": [\"data\"], \"vocabulary\": 7, \"out_channels\": 8},\n"
    "    {\"name\": \"wpe\", \"op\": \"position\", \"inputs\": [\"wte\"], \"deviation\": 0.5},\n"
    "    {\"name\": \"ln\", \"op\": \"layer_norm\", \"inputs\": [\"wpe\"], \"eps\": 0.001},\n"
    "    {\"name\": \"qkv\", \"op\": \"project\", \"inputs\": [\"ln\"], \"out_channels\": 24, \"bias\": true},\n"
    "    {\"name\": \"turn\", \"op\": \"rotary\", \"inputs\": [\"qkv\"], \"heads\": 2, \"base\": 500},\n"
    "    {\"name\": \"attn\", \"op\": \"attention\", \"inputs\": [\"turn\"], \"heads\": 2, \"kv_heads\": 2},\n"
    "    {\"name\": \"act\", \"op\": \"gelu\", \"inputs\": [\"attn\"], \"tanh\": true},\n"
    "    {\"name\": \"loss\", \"op\": \"token_loss\", \"inputs\": [\"act\"], \"out_channels\": 7, \"tied\": true}\n  ]\n}\n";

static const char of_gates[] =
    "{\n  \"format\": \"mm net\",\n  \"version\": 1,\n  \"name\": \"gates\",\n"
    "  \"input\": {\"height\": 4, \"width\": 4, \"channels\": 4, \"classes\": 5},\n  \"layers\": [\n"
    "    {\"name\": \"gn\", \"op\": \"group_norm\", \"inputs\": [\"data\"], \"groups\": 2, \"eps\": 0.001},\n"
    "    {\"name\": \"leaky\", \"op\": \"leaky_relu\", \"inputs\": [\"gn\"], \"slope\": 0.1},\n"
    "    {\"name\": \"scale\", \"op\": \"scale\", \"inputs\": [\"leaky\"], \"slope\": 2},\n"
    "    {\"name\": \"silu\", \"op\": \"silu\", \"inputs\": [\"scale\"]},\n"
    "    {\"name\": \"hs\", \"op\": \"hard_swish\", \"inputs\": [\"silu\"]},\n"
    "    {\"name\": \"relu6\", \"op\": \"relu6\", \"inputs\": [\"hs\"]},\n"
    "    {\"name\": \"pool\", \"op\": \"global_avg_pool\", \"inputs\": [\"relu6\"]},\n"
    "    {\"name\": \"low\", \"op\": \"hard_sigmoid\", \"inputs\": [\"pool\"]},\n"
    "    {\"name\": \"gate\", \"op\": \"sigmoid\", \"inputs\": [\"low\"]},\n"
    "    {\"name\": \"mul\", \"op\": \"mul\", \"inputs\": [\"relu6\", \"gate\"]},\n"
    "    {\"name\": \"deep\", \"op\": \"dropout\", \"inputs\": [\"mul\"], \"p\": 0.5, \"by_sample\": true},\n"
    "    {\"name\": \"tokens\", \"op\": \"class_token\", \"inputs\": [\"deep\"], \"deviation\": 0.5, "
    "\"parameters\": [\"class_token\", \"place\"]},\n"
    "    {\"name\": \"rms\", \"op\": \"rms_norm\", \"inputs\": [\"tokens\"], \"eps\": 0.001},\n"
    "    {\"name\": \"qkv\", \"op\": \"project\", \"inputs\": [\"rms\"], \"out_channels\": 12, \"by_output\": true, "
    "\"zero\": true},\n"
    "    {\"name\": \"attn\", \"op\": \"attention\", \"inputs\": [\"qkv\"], \"heads\": 2, \"full\": true},\n"
    "    {\"name\": \"fc\", \"op\": \"linear\", \"inputs\": [\"attn\"], \"out_channels\": 5},\n"
    "    {\"name\": \"loss\", \"op\": \"loss\", \"inputs\": [\"fc\"]}\n  ]\n}\n";
/* clang-format on */

TEST_CASE(mutants_with_every_operation_are_refused_or_come_back) {
    for (int op = 0; op < NETS_OP_KINDS; op++) {
        char text[64];
        snprintf(text, sizeof text, "\"op\": \"%s\"", nets_op_name((nets_op_kind)op));
        assert_true(op == NETS_DATA || strstr(of_every_op, text) || strstr(of_tokens, text) || strstr(of_gates, text));
    }
    mutants_of(of_every_op, sizeof of_every_op - 1, ROUNDS);
    mutants_of(of_tokens, sizeof of_tokens - 1, ROUNDS / 4);
    mutants_of(of_gates, sizeof of_gates - 1, ROUNDS / 4);
}
