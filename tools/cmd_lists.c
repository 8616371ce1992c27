/* SPDX-License-Identifier: MIT */
/* mm policies and mm codecs: list the policies and the codecs. */
#include <stdio.h>
#include <string.h>

#include "mm/core/facts/facts.h"
#include "pipeline/codec/codec.h"
#include "policies/policy.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/table.h"

static const char *text_or(const char *text, const char *otherwise) { return text && *text ? text : otherwise; }

/* True if the command is done: help was printed, or the options are wrong (*exit_out says which). */
static bool only_help(int argc, char **argv, const char *usage, const char *text, int *exit_out) {
    static const arg none[] = {{0}};
    bool help;
    mm_status status = args_parse(argc, argv, none, usage, text, &help);
    *exit_out = status == MM_OK ? EXIT_OK : command_failed(argv[0], status);
    return status != MM_OK || help;
}

static void print_entry(int indent, int width, const char *name, const char *text) {
    int at = printf("%*s%-*s ", indent, "", width, name);
    table_wrap(stdout, at, at, text);
    printf("\n");
}

/* Codec i of the table. NULL: past the end, or an earlier entry is the same codec for another device. */
static const mm_codec_ops *codec_once(size_t i) {
    const mm_codec_ops *ops = mm_codec_table(i);
    for (size_t j = 0; ops && j < i; j++)
        if (strcmp(mm_codec_table(j)->name, ops->name) == 0) return NULL;
    return ops;
}

/* Adds a row for the codec in one of its formats. Only the first format's row has the codec's summary. */
static mm_status add_codec(table *t, const mm_codec_ops *ops, const char *format, bool first) {
    const mm_shape map = {MM_F32, 4, {16, 32, 32, 48}}; /* any shape of whole blocks */
    char spec[MM_SPEC_CAPACITY];
    mm_codec *codec;
    mm_body_nominal body;
    int64_t bytes;
    snprintf(spec, sizeof spec, "%s%s%s", ops->name, *format ? ":" : "", format);
    MM_TRY(mm_codec_create(spec, ops->device, &codec));
    mm_status status = mm_codec_bound(codec, &map, &bytes);
    if (status == MM_OK) status = mm_codec_body_nominal(codec, &map, &body);
    const mm_codec_flags flags = codec->flags;
    mm_codec_destroy(codec);
    MM_TRY(status);
    table_row(t);
    table_cell(t, "%s", spec);
    table_cell(t, "%s", flags.lossless ? "lossless" : "lossy");
    table_cell(t, "%s", flags.fixed_size ? "fixed" : "variable");
    table_cell(t, "%.4g", 8.0 * (double)(bytes + body.typical_bytes) / (16 * 32 * 32 * 48));
    table_cell(t, "%s", first ? ops->summary : "");
    return MM_OK;
}

int cmd_codecs(int argc, char **argv) {
    static const table_column columns[] = {
        {"codec", true, 0}, {"kind", true, 0}, {"size", true, 0}, {"bits a value", false, 0}, {"what it is", true, 0}};
    int code;
    if (args_given(argc, argv, "--study")) return cmd_study(argc, argv);
    if (only_help(argc, argv, "mm codecs",
                  "Lists the codecs that a policy's codec= takes, and the bits that each needs for a value.\n"
                  "'mm codecs --study' measures them on a network's maps; see its --help.",
                  &code))
        return code;
    table *t = NULL;
    mm_status status = table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t);
    for (size_t i = 0; status == MM_OK && mm_codec_table(i); i++) {
        const mm_codec_ops *ops = codec_once(i);
        const char *format;
        for (size_t f = 0; status == MM_OK && ops && (format = mm_codec_format(ops, f)); f++)
            status = add_codec(t, ops, format, f == 0);
    }
    if (status == MM_OK) status = table_print(stdout, t);
    table_destroy(t);
    return status == MM_OK ? EXIT_OK : command_failed(argv[0], status);
}

static void print_option(const mm_option_desc *o) {
    char range[64] = "", text[256];
    if (o->min < o->max) snprintf(range, sizeof range, "%lld..%lld", (long long)o->min, (long long)o->max);
    snprintf(text, sizeof text, "%s (%s%s%s; %s)", o->help, text_or(o->choices, ""), o->choices && *range ? "|" : "",
             o->choices ? range : text_or(range, "text"), *o->fallback ? o->fallback : "not set");
    print_entry(4, 10, o->key, text);
}

/* Lists all kinds of layers, wrapped and indented for the help text of mm policies. */
static const char *wrap_kinds(char text_out[2 * MM_POLICY_KINDS_CAPACITY]) {
    enum { INDENT = 12, WIDTH = 84 };
    char kinds[MM_POLICY_KINDS_CAPACITY];
    size_t line = 0, n = 0;
    for (const char *at = mm_policy_kinds(kinds); *at; at++) {
        text_out[n++] = *at;
        if (*at != ' ' || ++line + strcspn(at + 1, " ") < WIDTH) {
            line += *at != ' ';
            continue;
        }
        text_out[n - 1] = '\n';
        memset(text_out + n, ' ', INDENT);
        n += INDENT;
        line = 0;
    }
    text_out[n] = '\0';
    return text_out;
}

int cmd_policies(int argc, char **argv) {
    int code;
    char kinds[2 * MM_POLICY_KINDS_CAPACITY], text[1280];
    snprintf(
        text, sizeof text,
        "Lists the policies that --policy takes, each with its options: NAME:key=value,key=value.\n"
        "\n"
        "The rules of 'rules' are SELECTOR=ACTION; the first that matches a map's layer applies:\n"
        "  SELECTOR  *, a kind of layer, or names of layers, with * and ? (layer1.*.conv2). With -in: the maps that\n"
        "            such a layer reads (conv-in). Kinds:\n"
        "            %s\n"
        "            (bn and relu also match bn-relu: a batch norm and its ReLU in one layer)\n"
        "  ACTION    keep, mask, recompute, swap, lean-swap, compress(CODEC) or compress-swap(CODEC), as\n"
        "            compress(zfp)\n"
        "\n"
        "  mm plan --policy 'rules:conv=compress(zfp:rate=4);relu=mask;*=swap'",
        wrap_kinds(kinds));
    if (only_help(argc, argv, "mm policies", text, &code)) return code;
    for (size_t i = 0; mm_policy_table(i); i++) {
        const mm_policy_ops *ops = mm_policy_table(i);
        print_entry(0, 14, ops->name, ops->summary);
        for (const mm_option_desc *o = ops->options; o && o->key; o++) print_option(o);
    }
    return EXIT_OK;
}
