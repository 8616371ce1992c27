/* SPDX-License-Identifier: MIT */
/* mm policies and mm codecs: list the policies and the codecs. */
#include <stdio.h>
#include <string.h>

#include "mm/core/facts/facts.h"
#include "pipeline/codec/codec.h"
#include "policies/policy.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/json_file.h"
#include "tools/args/table.h"

static const char *text_or(const char *text, const char *otherwise) { return text && *text ? text : otherwise; }

/* Writes the array to --json's FILE, or to standard output if that is left out (""). */
static mm_status save(const char *path, json_t *all) { return json_file_save(*path ? path : "-", all); }

static int exit_of(const char *command, mm_status status) {
    return status == MM_OK ? EXIT_OK : command_failed(command, status);
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

/* A codec in one of its formats. Only the first has the codec's summary. */
typedef struct codec_line {
    char spec[MM_SPEC_CAPACITY];
    mm_codec_flags flags;
    double bits; /* a value */
    const char *summary;
} codec_line;

static mm_status describe(const mm_codec_ops *ops, const char *format, bool first, codec_line *line_out) {
    const mm_shape map = {MM_F32, 4, {16, 32, 32, 48}}; /* any shape of whole blocks */
    mm_codec *codec;
    mm_body_nominal body;
    int64_t bytes;
    snprintf(line_out->spec, sizeof line_out->spec, "%s%s%s", ops->name, *format ? ":" : "", format);
    MM_TRY(mm_codec_create(line_out->spec, ops->device, &codec));
    mm_status status = mm_codec_bound(codec, &map, &bytes);
    if (status == MM_OK) status = mm_codec_body_nominal(codec, &map, &body);
    line_out->flags = codec->flags;
    line_out->summary = first ? ops->summary : "";
    mm_codec_destroy(codec);
    MM_TRY(status);
    line_out->bits = 8.0 * (double)(bytes + body.typical_bytes) / (16 * 32 * 32 * 48);
    return MM_OK;
}

static void add_row(table *t, const codec_line *line) {
    table_row(t);
    table_cell(t, "%s", line->spec);
    table_cell(t, "%s", line->flags.lossless ? "lossless" : "lossy");
    table_cell(t, "%s", line->flags.fixed_size ? "fixed" : "variable");
    table_cell(t, "%.4g", line->bits);
    table_cell(t, "%s", line->summary);
}

static json_t *codec_json(const codec_line *line) {
    return json_pack("{ss sb sb sf ss}", "codec", line->spec, "lossless", line->flags.lossless, "fixed_size",
                     line->flags.fixed_size, "bits_per_value", line->bits, "summary", line->summary);
}

/* Adds all codecs to the table and to the array. */
static mm_status list_codecs(table *t, json_t *all) {
    for (size_t i = 0; mm_codec_table(i); i++) {
        const mm_codec_ops *ops = codec_once(i);
        const char *format;
        for (size_t f = 0; ops && (format = mm_codec_format(ops, f)); f++) {
            codec_line line;
            MM_TRY(describe(ops, format, f == 0, &line));
            add_row(t, &line);
            if (json_array_append_new(all, codec_json(&line)) != 0) return mm_fail(MM_ERR_NOMEM, "out of memory");
        }
    }
    return MM_OK;
}

int cmd_codecs(int argc, char **argv) {
    static const table_column columns[] = {
        {"codec", true, 0}, {"kind", true, 0}, {"size", true, 0}, {"bits a value", false, 0}, {"what it is", true, 0}};
    const char *json = NULL;
    bool help;
    const arg options[] = {LIST_JSON_ARG(&json), {0}};
    table *t = NULL;
    if (args_given(argc, argv, "--study")) return cmd_study(argc, argv);
    mm_status status =
        args_parse(argc, argv, options, "mm codecs [OPTIONS]",
                   "Lists the codecs that a policy's codec= takes, and the bits that each needs for a value.\n"
                   "\n"
                   "'mm codecs --study' measures them on a network's maps; 'mm codecs --study --help' has its options.",
                   &help);
    if (status != MM_OK || help) return exit_of("codecs", status);
    json_t *all = json_array();
    status = table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t);
    if (status == MM_OK) status = list_codecs(t, all);
    if (status == MM_OK) status = json ? save(json, json_incref(all)) : table_print(stdout, t);
    table_destroy(t);
    json_decref(all);
    return exit_of("codecs", status);
}

static void print_option(const mm_option_desc *o) {
    char range[64] = "", text[256];
    if (o->min < o->max) snprintf(range, sizeof range, "%lld..%lld", (long long)o->min, (long long)o->max);
    snprintf(text, sizeof text, "%s (%s%s%s; %s)", o->help, text_or(o->choices, ""), o->choices && *range ? "|" : "",
             o->choices ? range : text_or(range, "text"), *o->fallback ? o->fallback : "not set");
    print_entry(4, 10, o->key, text);
}

static json_t *option_json(const mm_option_desc *o) {
    const bool ranged = o->min < o->max;
    return json_pack("{ss ss so so so so}", "key", o->key, "help", o->help, "choices",
                     o->choices ? json_string(o->choices) : json_null(), "min",
                     ranged ? json_integer(o->min) : json_null(), "max", ranged ? json_integer(o->max) : json_null(),
                     "default", *o->fallback ? json_string(o->fallback) : json_null());
}

static json_t *policies_json(void) {
    json_t *all = json_array();
    for (size_t i = 0; mm_policy_table(i); i++) {
        const mm_policy_ops *ops = mm_policy_table(i);
        json_t *options = json_array();
        for (const mm_option_desc *o = ops->options; o && o->key; o++) json_array_append_new(options, option_json(o));
        json_array_append_new(
            all, json_pack("{ss ss so}", "policy", ops->name, "summary", ops->summary, "options", options));
    }
    return all;
}

static void print_policies(void) {
    for (size_t i = 0; mm_policy_table(i); i++) {
        const mm_policy_ops *ops = mm_policy_table(i);
        print_entry(0, 14, ops->name, ops->summary);
        for (const mm_option_desc *o = ops->options; o && o->key; o++) print_option(o);
    }
}

int cmd_policies(int argc, char **argv) {
    const char *json = NULL;
    bool help;
    const arg options[] = {LIST_JSON_ARG(&json), {0}};
    char kinds[MM_POLICY_KINDS_CAPACITY], text[1280];
    snprintf(
        text, sizeof text,
        "Lists the policies that --policy takes, each with its options: NAME:key=value,key=value.\n"
        "\n"
        "The rules of 'rules' are SELECTOR=ACTION; the first that matches a map's layer applies:\n"
        "\n"
        "  SELECTOR  *, a kind of layer, or names of layers, with * and ? (layer1.*.conv2). With -in: the maps that\n"
        "            such a layer reads (conv-in). Kinds: %s (bn and relu also match bn-relu: a batch norm and its\n"
        "            ReLU in one layer)\n"
        "  ACTION    keep, mask, recompute, swap, lean-swap, compress(CODEC) or compress-swap(CODEC), as\n"
        "            compress(zfp)\n"
        "\n"
        "  mm plan --policy 'rules:conv=compress(zfp:rate=4);relu=mask;*=swap'",
        mm_policy_kinds(kinds));
    mm_status status = args_parse(argc, argv, options, "mm policies [OPTIONS]", text, &help);
    if (status != MM_OK || help) return exit_of("policies", status);
    if (json)
        status = save(json, policies_json());
    else
        print_policies();
    return exit_of("policies", status);
}
