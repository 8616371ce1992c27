/* SPDX-License-Identifier: MIT */
/* The presets: published strategies as configurations of the one engine.
 *
 *   freelunch   FreeLunch: compresses maps beside the computation, with tensor buffers and the sliding workspace
 *   swap-async  FreeLunch's comparison: the same workflow with a copy to host memory instead of a codec
 *   hybrid      FreeLunch's Table III: compresses convolutions' outputs, swaps all other maps asynchronously
 *   swap        SuperNeurons: swaps the maps used longest ago when memory is short; the computation waits for them
 *   vdnn-all    vDNN: offloads each map at once, prefetches one layer ahead; a transfer overlaps with one layer only
 *   vdnn-conv   the same for maps that convolutions read
 *   cdma        cDMA: vdnn-all with codes on the link. cDMA's engine reads memory at most three times as fast as the
 *               link, so that the computation keeps its bandwidth. Here throttle=N paces the encoder by the link: it is
 *               never more than N pieces ahead. Codes of variable size are one piece and need no copy; codec=zvc:sms=N
 *               paces their encoder by the multiprocessors that it may use
 *   comet       Jin et al.: compresses what convolutions read within error bounds that follow from what it measures
 *               (comet.h)
 *   recompute   drops outputs of cheap layers, and makes them again when the backward pass needs them (SuperNeurons);
 *               or does so with all layers of a segment (Chen et al.)
 *   recompute-swap  recomputes within segments, and swaps the segments' inputs asynchronously. Mostly needs less
 *               memory than recompute:mode=sqrt at little more time, because each copy has the time of a whole segment.
 *               Not published, as far as we know
 *   gist        Gist: a code for each pair of layers. ReLU -> pool: signs (Binarize; the pool keeps an index map,
 *               whatever the policy). ReLU or pool -> convolution: sparse rows (SSDC). All other maps: kept;
 *               lossy forms store them, and the values of sparse rows, with fewer bits (DPR). Codecs run in line with
 *               the steps, as published (depth=0)
 *   rules       the user's own rules
 *   rotor       for comparison: the optimal checkpointing of heterogeneous chains (Beaumont et al.), over blocks
 *   knapsack    for comparison: which maps to keep by runtime a byte, as torch's activation memory budget
 *
 * Each acts on no more of the maps that its rules name than the budget forces (when=needed), or on all, as published
 * (when=always). */
#include <stddef.h>

#include "policies/comet.h"
#include "policies/engine/engine.h"
#include "policies/option_tables.h"
#include "policies/policy_table.h"

#define FIELD(name) .field = offsetof(mm_engine_config, name)
#define WHEN                                                                                                           \
    {                                                                                                                  \
        .key = "when", .fallback = "needed", .type = MM_OPTION_CHOICE, FIELD(when), .choices = "always|needed",        \
        .values = {MM_WHEN_ALWAYS, MM_WHEN_NEEDED},                                                                    \
        .help = "act on no more maps than the budget forces, or on all, as published"                                  \
    }
#define DEPTH DEPTH_OF("2")
#define DEPTH_OF(otherwise)                                                                                            \
    {                                                                                                                  \
        .key = "depth", .fallback = otherwise, .type = MM_OPTION_NUMBER, FIELD(depth), .min = 0, .max = 1024,          \
        .help = "maps fetched ahead of the backward pass; when=needed may begin earlier. 0: steps wait for each map"   \
    }
#define BUFFERS                                                                                                        \
    {                                                                                                                  \
        .key = "k", .fallback = "0", .type = MM_OPTION_NUMBER, FIELD(k), .min = 0, .max = 4096,                        \
        .help = "how many tensor buffers; 0: as many as needed"                                                        \
    }
#define CODEC(otherwise)                                                                                               \
    {                                                                                                                  \
        .key = "codec", .fallback = otherwise, .type = MM_OPTION_CODEC,                                                \
        .help = "codec of the maps' elements, as in 'mm codecs'"                                                       \
    }
#define RATE                                                                                                           \
    { .key = "rate", .fallback = "", .type = MM_OPTION_RATE, .help = "short for codec=zfp:rate=R, bits per value" }
#define RATIO                                                                                                          \
    {                                                                                                                  \
        .key = "ratio", .fallback = "", .type = MM_OPTION_RATIO, .min = 1, .max = 60,                                  \
        .help = "the same as papers count: ratio=5 is rate=6.4, 32 bits over 5"                                        \
    }
#define MODE(otherwise)                                                                                                \
    {                                                                                                                  \
        .key = "mode", .fallback = otherwise, .type = MM_OPTION_CHOICE, FIELD(recompute),                              \
        .choices = "speed|memory|cost|sqrt|nested",                                                                    \
        .values = {MM_RECOMPUTE_SPEED, MM_RECOMPUTE_MEMORY, MM_RECOMPUTE_COST, MM_RECOMPUTE_SQRT,                      \
                   MM_RECOMPUTE_NESTED},                                                                               \
        .help = "cheap layers run again once, anew for each use, or as their bytes allow; sqrt, nested: all layers, "  \
                "in about sqrt(n) segments or in segments of segments"                                                 \
    }

static const mm_option_desc freelunch_options[] = {
    CODEC("zfp:rate=6.4"),
    RATE,
    RATIO,
    {.key = "eligible",
     .fallback = "conv",
     .type = MM_OPTION_ELIGIBLE,
     .choices = "conv|all",
     .help = "maps to compress: convolutions' outputs, or every map that the backward reads"},
    DEPTH,
    {.key = "buffers",
     .fallback = "persistent",
     .type = MM_OPTION_CHOICE,
     FIELD(buffers),
     .choices = "persistent|naive",
     .values = {MM_REGION_BUFFERS, MM_REGION_HEAP},
     .help = "k tensor buffers for all maps, or an allocation for each"},
    BUFFERS,
    {.key = "workspace",
     .fallback = "sliding",
     .type = MM_OPTION_CHOICE,
     FIELD(codes),
     .choices = "sliding|naive",
     .values = {MM_REGION_CODES, MM_REGION_HEAP},
     .help = "codes one after the other, or an allocation and a copy for each"},
    {.key = "codes",
     .fallback = "beside",
     .type = MM_OPTION_CHOICE,
     FIELD(coding),
     .choices = "auto|in-step|beside",
     .values = {MM_CODES_AUTO, MM_CODES_IN_STEP, MM_CODES_BESIDE},
     .help = "in-step: steps that can write and read codes do so; beside: codecs beside the steps; auto: the faster "
             "that fits"},
    WHEN,
    MM_OPTION_RESIDENT("all"),
    {0},
};

static const mm_option_desc vdnn_options[] = {
    {.key = "algorithms",
     .fallback = "fastest",
     .type = MM_OPTION_CHOICE,
     FIELD(algorithms),
     .choices = "least|fastest",
     .values = {MM_ALGORITHMS_LEAST, MM_ALGORITHMS_FASTEST},
     .help = "of a layer's algorithms, the one with the least workspace (vDNN's m), or the fastest (its p)"},
    MM_OPTION_SUB_BATCH("off"),
    WHEN,
    {0},
};
static const mm_option_desc swap_async_options[] = {DEPTH, BUFFERS, WHEN, MM_OPTION_RESIDENT("all"), {0}};
static const mm_option_desc hybrid_options[] = {CODEC("zfp:rate=4"),       RATE, RATIO, DEPTH, BUFFERS, WHEN,
                                                MM_OPTION_RESIDENT("all"), {0}};
static const mm_option_desc plain_options[] = {WHEN, {0}};
static const mm_option_desc recompute_options[] = {MODE("cost"), WHEN, MM_OPTION_RESIDENT("all"), {0}};
static const mm_option_desc recompute_swap_options[] = {MODE("sqrt"), DEPTH, BUFFERS, WHEN, MM_OPTION_RESIDENT("all"),
                                                        {0}};
static const mm_option_desc cdma_options[] = {
    CODEC("raw"),
    RATE,
    RATIO,
    {.key = "throttle",
     .fallback = "2",
     .type = MM_OPTION_NUMBER,
     FIELD(throttle),
     .min = 0,
     .max = 1024,
     .help =
         "pieces of maps that may be compressed and not copied yet: paces the codec by the link; 0: no limit. A code "
         "of variable size is written straight to host memory, in one piece: its codec's sms= paces it"},
    {.key = "signs",
     .fallback = "mask",
     .type = MM_OPTION_CHOICE,
     FIELD(signs_whole),
     .choices = "mask|whole",
     .values = {false, true},
     .help =
         "maps whose signs alone are read: a mask stays; or, if the codec is lossless, they move too, as published"},
    WHEN,
    {0},
};
static const mm_option_desc comet_options[] = {
    CODEC("eb"),
    {.key = "every",
     .fallback = "1000",
     .type = MM_OPTION_NUMBER,
     FIELD(comet.every),
     .min = 1,
     .max = 1000000000,
     .help = "iterations from one that samples, which sets the bounds, to the next"},
    {.key = "sigma",
     .fallback = "0.01",
     .type = MM_OPTION_REAL,
     FIELD(comet.sigma),
     .max = 1,
     .help = "target: standard deviation of the error of a weight's gradient, as a share of mean |momentum|"},
    {.key = "bound",
     .fallback = "sum",
     .type = MM_OPTION_CHOICE,
     FIELD(comet.rule),
     .choices = "sum|eq9",
     .values = {MM_BOUND_SUM, MM_BOUND_EQ9},
     .help = "how a bound follows from sigma: by the sum of the gradient's squares, or by equation 9 as published"},
    {.key = "a", .fallback = "0.32", .type = MM_OPTION_REAL, FIELD(comet.a), .max = 1000, .help = "coefficient of eq9"},
    {.key = "guard",
     .fallback = "on",
     .type = MM_OPTION_CHOICE,
     FIELD(comet.guard),
     .choices = "on|off",
     .values = {1, 0},
     .help = "tighten a bound whose measured error exceeds the target"},
    DEPTH,
    BUFFERS,
    WHEN,
    {0},
};
/* A map goes to the first rule that names and can serve it. A mask serves only maps of which signs alone are read. */
#define GIST_RULES(csr, rest) "relu&pool-in=mask;relu&conv-in=compress(" csr "%s);pool&conv-in=compress(" csr "%s)" rest
#define GIST_LOSSY(format)    GIST_RULES("csr:values=" format, ";*=compress(dpr:" format ")")
static const mm_option_desc gist_options[] = {
    {.key = "codes",
     .fallback = "lossless",
     .type = MM_OPTION_RULE_SET,
     .choices = "lossless|lossy=fp16|lossy=fp10|lossy=fp8",
     .rules = {GIST_RULES("csr", ""), GIST_LOSSY("fp16"), GIST_LOSSY("fp10"), GIST_LOSSY("fp8")},
     .help = "signs and sparse rows alone, or also fewer bits for their values and for all other maps"},
    {.key = "reserve",
     .fallback = "",
     .type = MM_OPTION_RESERVE,
     .min = 1,
     .max = 100,
     .help = "room on the device for sparse rows, in per cent of their maps (default: csr's own); more goes to host "
             "memory"},
    DEPTH_OF("0"),
    MM_OPTION_INPLACE,
    MM_OPTION_LAYOUT,
    MM_OPTION_STASH,
    WHEN,
    {0},
};
static const mm_option_desc rules_options[] = {
    {.key = "rules",
     .fallback = "*=swap",
     .type = MM_OPTION_RULES,
     .help = "SELECTOR=ACTION;...: the first rule that names a map's layer counts; weights=host, states=host, "
             "gradients=host: these have their homes in host memory"},
    MODE("cost"),
    DEPTH,
    BUFFERS,
    MM_OPTION_INPLACE,
    MM_OPTION_LAYOUT,
    MM_OPTION_STASH,
    WHEN,
    MM_OPTION_RESIDENT("all"),
    {0},
};

/* The configuration of a preset: how it fetches and evicts, and where maps lie. */
#define CONFIG(fetches, leaves, region)                                                                                \
    {                                                                                                                  \
        .fetch = fetches, .leave_steps = leaves, .buffers = region, .codes = MM_REGION_CODES,                          \
        .recompute = MM_RECOMPUTE_COST, .sub_batch = MM_SUB_BATCH_OFF                                                  \
    }
/* A policy for comparison, which recomputes alone, in a mode of its own. */
#define PEER(symbol, word, text, mode)                                                                                 \
    const mm_policy_ops symbol = {.name = word,                                                                        \
                                  .summary = text,                                                                     \
                                  .options = plain_options,                                                            \
                                  .rules = "*=recompute",                                                              \
                                  .config = {.fetch = MM_FETCH_DEMAND,                                                 \
                                             .buffers = MM_REGION_GENERAL,                                             \
                                             .codes = MM_REGION_CODES,                                                 \
                                             .recompute = mode,                                                        \
                                             .sub_batch = MM_SUB_BATCH_OFF},                                           \
                                  .plan = mm_engine_plan,                                                              \
                                  .not_in_auto = "it is for comparison alone",                                         \
                                  .peer = true}
#define AHEAD     CONFIG(MM_FETCH_DEPTH, 0, MM_REGION_BUFFERS)
#define LAYERWISE CONFIG(MM_FETCH_LAYER, 2, MM_REGION_GENERAL)

#define PRESET(symbol, word, text, table, its_rules, ...)                                                              \
    const mm_policy_ops symbol = {.name = word,                                                                        \
                                  .summary = text,                                                                     \
                                  .options = table,                                                                    \
                                  .rules = its_rules,                                                                  \
                                  .config = __VA_ARGS__,                                                               \
                                  .plan = mm_engine_plan}

PRESET(mm_policy_freelunch, "freelunch", "maps compressed and decompressed beside the computation", freelunch_options,
       "conv=compress(%s)", AHEAD);
PRESET(mm_policy_swap_async, "swap-async", "maps copied to host memory and back beside the computation",
       swap_async_options, "*=swap", AHEAD);
PRESET(mm_policy_hybrid, "hybrid", "convolutions' outputs compressed, other maps swapped, beside the computation",
       hybrid_options, "conv=compress(%s);*=swap", AHEAD);
PRESET(mm_policy_swap, "swap", "maps used longest ago are copied to host memory; the computation waits (SuperNeurons)",
       plain_options, "*=swap", CONFIG(MM_FETCH_DEMAND, 1, MM_REGION_GENERAL));
PRESET(mm_policy_vdnn_all, "vdnn-all", "every map offloaded at once, prefetched one layer ahead", vdnn_options,
       "*=swap", LAYERWISE);
PRESET(mm_policy_vdnn_conv, "vdnn-conv", "maps that convolutions read offloaded at once, prefetched one layer ahead",
       vdnn_options, "conv-in=swap", LAYERWISE);
PRESET(mm_policy_recompute, "recompute", "outputs of cheap layers, or all of a segment, dropped and made again",
       recompute_options, "*=recompute", CONFIG(MM_FETCH_DEMAND, 0, MM_REGION_GENERAL));
PRESET(mm_policy_recompute_swap, "recompute-swap",
       "layers of about sqrt(n) segments run again, their inputs swapped beside the computation",
       recompute_swap_options, "*=recompute;*=swap", AHEAD);
PRESET(mm_policy_cdma, "cdma", "vdnn-all with a compressing copy", cdma_options, "*=compress-swap(%s)", LAYERWISE);
const mm_policy_ops mm_policy_comet = {
    .name = "comet",
    .summary = "maps that convolutions read, compressed within error bounds that follow from measurements",
    .options = comet_options,
    .rules = "conv-in=compress(%s)",
    .config = AHEAD,
    .plan = mm_engine_plan,
    .not_in_auto = "auto does not sample, so a map would have no error bound",
    .observer = &mm_comet_observer};
const mm_policy_ops mm_policy_gist = {.name = "gist",
                                      .summary =
                                          "signs, sparse rows or fewer bits, by the layers that write and read a map",
                                      .options = gist_options,
                                      .takes_text = true,
                                      .config = {.fetch = MM_FETCH_DEPTH,
                                                 .buffers = MM_REGION_GENERAL,
                                                 .codes = MM_REGION_GENERAL,
                                                 .recompute = MM_RECOMPUTE_COST,
                                                 .sub_batch = MM_SUB_BATCH_OFF},
                                      .plan = mm_engine_plan};
const mm_policy_ops mm_policy_rules = {.name = "rules",
                                       .summary = "as you say: rules:conv=compress(zfp:rate=4);relu=mask;*=swap",
                                       .options = rules_options,
                                       .takes_text = true,
                                       .asks = true,
                                       .config = AHEAD,
                                       .plan = mm_engine_plan};

PEER(mm_policy_rotor, "rotor", "for comparison: the optimal checkpointing of a chain of blocks (Beaumont et al.)",
     MM_RECOMPUTE_BLOCKS);
PEER(mm_policy_knapsack, "knapsack", "for comparison: a knapsack of maps by runtime a byte (torch's memory budget)",
     MM_RECOMPUTE_KNAPSACK);
