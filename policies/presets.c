/* The published strategies, as settings of one engine.
 *
 *   freelunch   compressed beside the computation, through persistent buffers and the sliding workspace
 *   swap-async  FreeLunch's comparison: the same workflow with a copy to host memory instead of a codec
 *   hybrid      FreeLunch's Table III: convolutions' outputs compressed, everything else swapped asynchronously
 *   swap        SuperNeurons: maps used longest ago leave when memory is short, and the computation waits for them
 *   vdnn-all    vDNN: offloaded at once, prefetched one layer ahead; a transfer overlaps with one layer only
 *   vdnn-conv   the same for what convolutions read
 *   cdma        vdnn-all with a code instead of the map on the link. Its engine compresses what it reads at up to three
 *               times the link's rate and no faster (bandwidth-aware), so as not to take the memory's bandwidth from
 *               the computation; throttle=N paces the encoder by the link itself: it is never more than N pieces ahead
 *   recompute   cheap layers' outputs dropped, and made again when the backward pass needs them (SuperNeurons), or
 *               all layers' within segments (Chen et al.)
 *   recompute-swap  the same, and what all is made of is swapped asynchronously: as a rule less memory than
 *               recompute:mode=sqrt, at little more time, since between segments there is time for the link. Not
 *               published, as far as we know
 *   rules       whatever the user writes
 *
 * Each acts on no more of the maps that its rules name than the budget forces (when=needed), or on all, as published
 * (when=always). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/engine.h"
#include "policies/strategies.h"

#define WHEN                                                                                                           \
    {                                                                                                                  \
        .key = "when", .fallback = "needed", .choices = "always|needed",                                               \
        .help = "act on no more maps than the budget forces, or on all, as published"                                  \
    }
#define DEPTH                                                                                                          \
    {                                                                                                                  \
        .key = "depth", .fallback = "2", .min = 1, .max = 1024,                                                        \
        .help = "maps fetched ahead of the backward pass; when=needed may begin earlier"                               \
    }
#define BUFFERS                                                                                                        \
    { .key = "k", .fallback = "0", .min = 0, .max = 4096, .help = "how many tensor buffers; 0: as many as needed" }
#define CODEC(otherwise)                                                                                               \
    { .key = "codec", .fallback = otherwise, .help = "codec of the maps' elements, as in 'mm codecs'" }
#define RATE                                                                                                           \
    { .key = "rate", .fallback = "", .help = "short for codec=zfp:rate=R, bits per value" }
#define MODE(otherwise)                                                                                                \
    {                                                                                                                  \
        .key = "mode", .fallback = otherwise, .choices = "speed|memory|cost|sqrt",                                     \
        .help = "cheap layers once, anew for each use, or by what it takes; or all of about sqrt(n) segments"          \
    }

static const mm_option_desc freelunch_options[] = {
    CODEC("zfp:rate=6.4"),
    RATE,
    {.key = "eligible",
     .fallback = "conv",
     .choices = "conv|all",
     .help = "maps to compress: convolutions' outputs, or every map that the backward reads"},
    DEPTH,
    {.key = "buffers",
     .fallback = "persistent",
     .choices = "persistent|naive",
     .help = "k tensor buffers for all maps, or an allocation for each"},
    BUFFERS,
    {.key = "workspace",
     .fallback = "sliding",
     .choices = "sliding|naive",
     .help = "codes one after the other, or an allocation and a copy for each"},
    WHEN,
    {0},
};

static const mm_option_desc swap_async_options[] = {DEPTH, BUFFERS, WHEN, {0}};
static const mm_option_desc hybrid_options[] = {CODEC("zfp:rate=4"), RATE, DEPTH, BUFFERS, WHEN, {0}};
static const mm_option_desc plain_options[] = {WHEN, {0}};
static const mm_option_desc recompute_options[] = {MODE("cost"), WHEN, {0}};
static const mm_option_desc recompute_swap_options[] = {MODE("sqrt"), DEPTH, BUFFERS, WHEN, {0}};
static const mm_option_desc cdma_options[] = {
    CODEC("raw"),
    RATE,
    {.key = "throttle",
     .fallback = "2",
     .min = 0,
     .max = 1024,
     .help = "pieces of maps that may be compressed and not copied yet: paces the codec by the link; 0: no limit"},
    WHEN,
    {0},
};
static const mm_option_desc rules_options[] = {
    {.key = "rules", .fallback = "*=swap", .help = "SELECTOR=ACTION;...: the first that names a map's layer counts"},
    MODE("cost"),
    DEPTH,
    BUFFERS,
    WHEN,
    {0},
};

/* What is fixed of a preset; the rest are options. */
typedef struct preset {
    const mm_policy_ops *ops;
    const char *rules; /* %s: the codec */
    mm_fetch fetch;
    int leave_steps;
    mm_region buffers;
} preset;

static const preset presets[] = {
    {&mm_policy_freelunch, NULL, MM_FETCH_DEPTH, 0, MM_REGION_BUFFERS},
    {&mm_policy_swap_async, "*=swap", MM_FETCH_DEPTH, 0, MM_REGION_BUFFERS},
    {&mm_policy_hybrid, "conv=compress(%s);*=swap", MM_FETCH_DEPTH, 0, MM_REGION_BUFFERS},
    {&mm_policy_swap, "*=swap", MM_FETCH_DEMAND, 1, MM_REGION_GENERAL},
    {&mm_policy_vdnn_all, "*=swap", MM_FETCH_LAYER, 2, MM_REGION_GENERAL},
    {&mm_policy_vdnn_conv, "conv-in=swap", MM_FETCH_LAYER, 2, MM_REGION_GENERAL},
    {&mm_policy_cdma, "*=compress-swap(%s)", MM_FETCH_LAYER, 2, MM_REGION_GENERAL},
    {&mm_policy_recompute, "*=recompute", MM_FETCH_DEMAND, 0, MM_REGION_GENERAL},
    {&mm_policy_recompute_swap, "*=recompute;*=swap", MM_FETCH_DEPTH, 0, MM_REGION_BUFFERS},
    {&mm_policy_rules, NULL, MM_FETCH_DEPTH, 0, MM_REGION_BUFFERS},
};

/* NULL for a policy that is none. */
static const preset *find_preset(const mm_policy_ops *ops) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (presets[i].ops == ops) return &presets[i];
    return NULL;
}

static bool is_option(const mm_policy_ops *ops, const mm_policy_options *options, const char *key, const char *value) {
    return strcmp(mm_policy_option(ops, options, key), value) == 0;
}

static bool is_given(const mm_policy_options *options, const char *key) {
    for (int i = 0; i < options->n; i++)
        if (strcmp(options->key[i], key) == 0) return true;
    return false;
}

static mm_status codec_spec(const mm_policy_ops *ops, const mm_policy_options *options,
                            char spec_out[MM_SPEC_CAPACITY]) {
    const char *rate = mm_policy_option(ops, options, "rate"), *codec = mm_policy_option(ops, options, "codec");
    if (*rate && is_given(options, "codec"))
        return mm_fail(MM_ERR_INVALID, "policy %s: rate is short for codec=zfp:rate=%s; give one of codec and rate",
                       ops->name, rate);
    int n = *rate ? snprintf(spec_out, MM_SPEC_CAPACITY, "zfp:rate=%s", rate)
                  : snprintf(spec_out, MM_SPEC_CAPACITY, "%s", codec);
    if (n >= MM_SPEC_CAPACITY)
        return mm_fail(MM_ERR_INVALID, "policy %s: its codec's name is too long, more than %d characters", ops->name,
                       MM_SPEC_CAPACITY - 1);
    return MM_OK;
}

/* The rules in their own language, which the caller frees. */
static mm_status rules_text(const mm_policy_ops *ops, const mm_policy_options *options, char **text_out) {
    char codec[MM_SPEC_CAPACITY], *text;
    MM_TRY(codec_spec(ops, options, codec));
    if (ops == &mm_policy_freelunch)
        text = mm_text_format("%s=compress(%s)", is_option(ops, options, "eligible", "all") ? "*" : "conv", codec);
    else if (ops == &mm_policy_rules)
        text = mm_text_format("%s", mm_policy_option(ops, options, "rules"));
    else
        text = mm_text_format(find_preset(ops)->rules, codec);
    if (!text) return mm_fail(MM_ERR_NOMEM, "out of memory for the rules of %s", ops->name);
    *text_out = text;
    return MM_OK;
}

/* Policies without the option recompute by cost. */
static mm_recompute_mode recompute_mode(const char *name) {
    static const char *const names[] = {
        [MM_RECOMPUTE_SPEED] = "speed", [MM_RECOMPUTE_MEMORY] = "memory", [MM_RECOMPUTE_SQRT] = "sqrt"};
    for (size_t mode = 0; mode < sizeof names / sizeof *names; mode++)
        if (names[mode] && strcmp(names[mode], name) == 0) return (mm_recompute_mode)mode;
    return MM_RECOMPUTE_COST;
}

static mm_status configure(const mm_policy_ops *ops, const mm_policy_options *options, mm_engine_config *config) {
    const preset *p = find_preset(ops);
    char *rules;
    MM_TRY(rules_text(ops, options, &rules));
    *config = (mm_engine_config){.fetch = p->fetch, .leave_steps = p->leave_steps, .buffers = p->buffers};
    config->depth = atoi(mm_policy_option(ops, options, "depth"));
    config->k = atoi(mm_policy_option(ops, options, "k"));
    config->throttle = atoi(mm_policy_option(ops, options, "throttle"));
    config->always = is_option(ops, options, "when", "always");
    config->recompute = recompute_mode(mm_policy_option(ops, options, "mode"));
    config->codes = is_option(ops, options, "workspace", "naive") ? MM_REGION_HEAP : MM_REGION_CODES;
    if (is_option(ops, options, "buffers", "naive")) config->buffers = MM_REGION_HEAP;
    mm_status status = mm_rules_parse(rules, config);
    free(rules);
    return status;
}

mm_status mm_policy_rules_text(const mm_policy *policy, char **text_out) {
    if (find_preset(policy->ops)) return rules_text(policy->ops, &policy->options, text_out);
    char *none = strdup("");
    if (!none) return mm_fail(MM_ERR_NOMEM, "out of memory for the rules of %s", policy->ops->name);
    *text_out = none;
    return MM_OK;
}

static int codecs(const mm_policy_ops *ops, const mm_policy_options *options, char specs_out[][MM_SPEC_CAPACITY],
                  int capacity) {
    mm_engine_config config;
    if (configure(ops, options, &config) != MM_OK) return 0;
    int n = mm_engine_codecs(&config, specs_out, capacity);
    mm_rules_fini(&config);
    return n;
}

static mm_status check(const mm_policy_ops *ops, const mm_policy_options *options) {
    mm_engine_config config;
    char specs[MM_MAX_CODECS + 1][MM_SPEC_CAPACITY];
    MM_TRY(configure(ops, options, &config));
    int n = mm_engine_codecs(&config, specs, MM_MAX_CODECS + 1);
    mm_rules_fini(&config);
    if (n <= MM_MAX_CODECS) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "policy %s: its rules name more than %d codecs, the mask among them", ops->name,
                   MM_MAX_CODECS);
}

static mm_status plan(const mm_policy_ops *ops, const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                      const mm_policy_options *options, mm_plan **plan_out) {
    mm_engine_config config;
    MM_TRY(configure(ops, options, &config));
    mm_status status = mm_engine_plan(graph, facts, limits, &config, plan_out);
    mm_rules_fini(&config);
    return status;
}

#define PRESET(symbol, word, text, table)                                                                              \
    const mm_policy_ops symbol = {                                                                                     \
        .name = word, .summary = text, .options = table, .check = check, .codecs = codecs, .plan = plan}

PRESET(mm_policy_freelunch, "freelunch", "maps compressed and decompressed beside the computation", freelunch_options);
PRESET(mm_policy_swap_async, "swap-async", "maps copied to host memory and back beside the computation",
       swap_async_options);
PRESET(mm_policy_hybrid, "hybrid", "convolutions' outputs compressed, other maps swapped, beside the computation",
       hybrid_options);
PRESET(mm_policy_swap, "swap", "maps used longest ago leave for host memory; the computation waits (SuperNeurons)",
       plain_options);
PRESET(mm_policy_vdnn_all, "vdnn-all", "every map offloaded at once, prefetched one layer ahead", plain_options);
PRESET(mm_policy_vdnn_conv, "vdnn-conv", "what convolutions read offloaded at once, prefetched one layer ahead",
       plain_options);
PRESET(mm_policy_recompute, "recompute", "outputs of cheap layers, or all of a segment, dropped and made again",
       recompute_options);
PRESET(mm_policy_recompute_swap, "recompute-swap",
       "layers of about sqrt(n) segments run again, what is kept for that swapped beside the computation",
       recompute_swap_options);
PRESET(mm_policy_cdma, "cdma", "vdnn-all with a compressing copy", cdma_options);
const mm_policy_ops mm_policy_rules = {.name = "rules",
                                       .summary = "as you say: rules:conv=compress(zfp:rate=4);relu=mask;*=swap",
                                       .options = rules_options,
                                       .takes_text = true,
                                       .check = check,
                                       .codecs = codecs,
                                       .plan = plan};
