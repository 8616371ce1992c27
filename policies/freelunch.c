/* FreeLunch: eligible feature maps are compressed while the forward pass goes on, and decompressed ahead of the
 * backward pass, on streams of their own.
 *
 *   forward    a map's ENCODE is queued after the last forward step that uses it
 *   backward   the first `depth` maps are decoded when the backward pass begins, then one more each time the backward
 *              has finished with one
 *
 * The raw maps pass through k persistent tensor buffers; codes follow one another in the sliding compression workspace,
 * laid out by first backward use. A reader of a map's sign gets the exact mask, never a lossy map's signs; a map of
 * which only the sign is needed is not decoded at all. `workspace=naive` and `buffers=naive` are the unoptimised
 * workflow: allocate, compress, copy out, free, for each tensor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/schedule.h"
#include "policies/strategies.h"

static const mm_option_desc options_table[] = {
    {.key = "codec", .fallback = "zfp:rate=6.4", .help = "codec of the maps' elements, as in 'mm codecs'"},
    {.key = "rate", .fallback = "", .help = "short for codec=zfp:rate=R, bits per value"},
    {.key = "eligible",
     .fallback = "conv",
     .choices = "conv|all",
     .help = "maps to compress: convolutions' outputs, or every map that the backward reads"},
    {.key = "depth", .fallback = "2", .min = 1, .max = 1024, .help = "maps decoded ahead of the backward pass"},
    {.key = "buffers",
     .fallback = "persistent",
     .choices = "persistent|naive",
     .help = "k tensor buffers for all maps, or an allocation for each"},
    {.key = "k", .fallback = "0", .min = 0, .max = 4096, .help = "how many buffers; 0: as many as needed"},
    {.key = "workspace",
     .fallback = "sliding",
     .choices = "sliding|naive",
     .help = "codes one after the other, or an allocation and a copy for each"},
    {0},
};

static const char mask_spec[] = "mask";

static const char *option(const mm_policy_options *options, const char *key) {
    return mm_policy_option(&mm_policy_freelunch, options, key);
}

static void codec_spec(const mm_policy_options *options, char spec_out[MM_SPEC_CAPACITY]) {
    const char *rate = option(options, "rate");
    if (*rate)
        snprintf(spec_out, MM_SPEC_CAPACITY, "zfp:rate=%s", rate);
    else
        snprintf(spec_out, MM_SPEC_CAPACITY, "%s", option(options, "codec"));
}

static int freelunch_codecs(const mm_policy_options *options, char specs_out[][MM_SPEC_CAPACITY], int capacity) {
    if (capacity < 2) return 0;
    codec_spec(options, specs_out[0]);
    strcpy(specs_out[1], mask_spec);
    return strcmp(specs_out[0], mask_spec) == 0 ? 1 : 2;
}

/* One eligible map. */
typedef struct map {
    mm_tensor tensor;
    int last_forward;              /* step after which it is encoded */
    int first_backward;            /* step that first needs it again */
    int last_value;                /* last backward step that reads its elements; -1: only its sign is read */
    bool value, sign;              /* what is coded: elements, mask */
    int value_encode, sign_encode; /* nodes */
    int value_code, sign_code;     /* segments */
} map;

typedef struct freelunch {
    mm_schedule schedule;
    int codec, mask; /* in the facts */
    bool all, naive_workspace;
    int depth;
    uint8_t *region_of;
    map *maps; /* in the order of tensors */
    int n_maps;
    int *map_of; /* per tensor; -1 */
    int *queue;  /* maps whose elements must be decoded, by first backward use */
    int n_queue, issued;
} freelunch;

/* ---------------------------------------------------------------- which maps */

static bool made_by_conv(const freelunch *f, mm_tensor tensor) {
    /* Through whatever was written in its place: conv -> bn -> relu in one storage is a convolution's output too. */
    for (; tensor >= 0; tensor = f->schedule.over[tensor]) {
        mm_layer producer = mm_graph_tensor(f->schedule.graph, tensor)->producer;
        if (mm_graph_layer(f->schedule.graph, producer)->kind == MM_LAYER_CONV) return true;
    }
    return false;
}

/* Which forms of a tensor the backward pass reads, and when. */
static void backward_reads(const freelunch *f, mm_tensor tensor, map *m) {
    const mm_graph *graph = f->schedule.graph;
    m->last_value = -1;
    for (int s = m->first_backward; s <= f->schedule.last_step[tensor]; s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        for (int u = 0; u < step->n_uses; u++) {
            if (step->uses[u].tensor != tensor) continue;
            m->value |= step->uses[u].form == MM_FORM_VALUE;
            m->sign |= step->uses[u].form == MM_FORM_SIGN;
            if (step->uses[u].form == MM_FORM_VALUE) m->last_value = s;
        }
    }
}

static bool is_eligible(const freelunch *f, mm_tensor tensor, map *m) {
    const mm_schedule *s = &f->schedule;
    const mm_tensor_info *info = mm_graph_tensor(s->graph, tensor);
    if (info->kind != MM_FEATURE_MAP || info->ownership != MM_MANAGED || info->dtype != MM_F32) return false;
    if (s->plan->alias[tensor] != tensor || info->writes != 1) return false;
    if (info->last_forward < 0 || info->first_backward <= info->last_forward) return false;
    if (!f->all && !made_by_conv(f, tensor)) return false;
    *m = (map){.tensor = tensor, .last_forward = info->last_forward, .first_backward = info->first_backward};
    backward_reads(f, tensor, m);
    if (m->value && mm_facts_code(s->facts, f->codec, tensor)->code_bytes < 0) return false;
    /* Signs come with the elements when those come back exactly. */
    if (m->value && m->sign && s->facts->codecs[f->codec].lossless) {
        m->sign = false;
        m->last_value = s->last_step[tensor];
    }
    return !m->sign || mm_facts_code(s->facts, f->mask, tensor)->code_bytes >= 0;
}

static int by_first_backward(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static mm_status order_decodes(freelunch *f) {
    int64_t *keys = malloc(((size_t)f->n_maps + 1) * sizeof *keys);
    if (!keys) return mm_fail(MM_ERR_NOMEM, "out of memory for a plan");
    for (int i = 0; i < f->n_maps; i++)
        if (f->maps[i].value) keys[f->n_queue++] = ((int64_t)f->maps[i].first_backward << 32) | i;
    qsort(keys, (size_t)f->n_queue, sizeof *keys, by_first_backward);
    for (int i = 0; i < f->n_queue; i++) f->queue[i] = (int)(keys[i] & INT32_MAX);
    free(keys);
    return MM_OK;
}

static mm_status choose_maps(freelunch *f, mm_region region) {
    mm_schedule *s = &f->schedule;
    size_t n = (size_t)mm_graph_tensors(s->graph) + 1;
    f->region_of = calloc(n, sizeof *f->region_of);
    f->maps = malloc(n * sizeof *f->maps);
    f->map_of = malloc(n * sizeof *f->map_of);
    f->queue = malloc(n * sizeof *f->queue);
    if (!f->region_of || !f->maps || !f->map_of || !f->queue)
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        f->map_of[t] = -1;
        if (!is_eligible(f, t, &f->maps[f->n_maps])) continue;
        f->map_of[t] = f->n_maps++;
        /* The whole storage that leads to the map goes through a buffer; an allocation of its own has no such past. */
        if (region == MM_REGION_HEAP) mm_schedule_split(s, t);
        for (mm_tensor part = t; part >= 0; part = s->over[part]) f->region_of[part] = (uint8_t)region;
    }
    /* What would be written over an eligible map in the backward pass finds its decoded copy there, or only its mask.
     */
    for (int t = 0; t < mm_graph_tensors(s->graph); t++)
        if (s->over[t] >= 0 && f->map_of[s->over[t]] >= 0) mm_schedule_split(s, t);
    return order_decodes(f);
}

/* ---------------------------------------------------------------- operations */

/* Appends an ENCODE of the map with a codec; returns the node, or -1. */
static int encode(freelunch *f, const map *m, int codec, int after, int *code_out) {
    mm_schedule *s = &f->schedule;
    const mm_code_facts *facts = mm_facts_code(s->facts, codec, m->tensor);
    mm_region region = f->naive_workspace ? MM_REGION_HEAP : MM_REGION_CODES;
    int group = mm_schedule_group(s, region, facts->code_bytes);
    if (group < 0) return -1;
    s->groups[group].rank = m->first_backward;
    int code = mm_schedule_segment(s, MM_CONTENT_CODED, MM_CAT_CODE, m->tensor, facts->code_bytes, group);
    if (code < 0) return -1;
    s->plan->segments[code].codec = codec;
    int node = mm_plan_op(s->plan, MM_NODE_ENCODE, m->tensor, s->value[m->tensor], code);
    if (node < 0) return -1;
    mm_plan_wait(s->plan, node, after);
    if (f->naive_workspace) {
        int stage_group = mm_schedule_group(s, MM_REGION_HEAP, facts->code_bytes);
        if (stage_group < 0) return -1;
        int stage = mm_schedule_segment(s, MM_CONTENT_WORK, MM_CAT_WORKSPACE, -1, facts->code_bytes, stage_group);
        if (stage < 0) return -1;
        s->plan->nodes[node].stage = stage;
    }
    *code_out = code;
    return node;
}

static mm_status encode_map(freelunch *f, map *m, int after) {
    mm_schedule *s = &f->schedule;
    if (m->sign) {
        m->sign_encode = encode(f, m, f->mask, after, &m->sign_code);
        if (m->sign_encode < 0) return MM_ERR_NOMEM;
        s->sign[m->tensor] = m->sign_code;
        s->sign_node[m->tensor] = m->sign_encode;
    }
    if (m->value) {
        m->value_encode = encode(f, m, f->codec, after, &m->value_code);
        if (m->value_encode < 0) return MM_ERR_NOMEM;
    }
    return MM_OK;
}

/* Encodes what this forward step used last. */
static mm_status encode_after(freelunch *f, int step, int node, mm_tensor *waiting) {
    const mm_step_info *info = mm_graph_step(f->schedule.graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        int index = f->map_of[info->uses[u].tensor];
        if (index < 0 || f->maps[index].last_forward != step) continue;
        MM_TRY(encode_map(f, &f->maps[index], node));
        /* A map's buffer is held until the next map is encoded: one encode in flight never stops the compute stream. */
        if (*waiting >= 0) {
            mm_group *group = &f->schedule.groups[f->schedule.segment_group[f->schedule.value[*waiting]]];
            group->hold = f->schedule.plan->n_nodes - 1;
        }
        *waiting = f->maps[index].tensor;
    }
    return MM_OK;
}

/* Queues the next DECODE, if there is one. */
static mm_status decode_next(freelunch *f) {
    mm_schedule *s = &f->schedule;
    if (f->issued == f->n_queue) return MM_OK;
    map *m = &f->maps[f->queue[f->issued++]];
    int64_t bytes = mm_graph_tensor(s->graph, m->tensor)->bytes;
    mm_region region = (mm_region)f->region_of[m->tensor];
    int group = mm_schedule_group(s, region, bytes);
    if (group < 0) return MM_ERR_NOMEM;
    mm_category category = region == MM_REGION_BUFFERS ? MM_CAT_BUFFER : MM_CAT_FEATURE_MAP;
    int segment = mm_schedule_segment(s, MM_CONTENT_RAW, category, m->tensor, bytes, group);
    if (segment < 0) return MM_ERR_NOMEM;
    int node = mm_plan_op(s->plan, MM_NODE_DECODE, m->tensor, m->value_code, segment);
    if (node < 0) return MM_ERR_NOMEM;
    mm_plan_wait(s->plan, node, m->value_encode);
    s->value[m->tensor] = segment;
    s->value_node[m->tensor] = node;
    return MM_OK;
}

/* What this backward step reads must have been queued, however small the depth. */
static mm_status decode_needed(freelunch *f, int step) {
    const mm_step_info *info = mm_graph_step(f->schedule.graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        int index = f->map_of[info->uses[u].tensor];
        if (index < 0 || (info->uses[u].form == MM_FORM_SIGN && f->maps[index].sign)) continue;
        while (f->schedule.value_node[f->maps[index].tensor] < 0) MM_TRY(decode_next(f));
    }
    return MM_OK;
}

/* One more for each map that this backward step was the last to read. */
static mm_status decode_after(freelunch *f, int step) {
    const mm_step_info *info = mm_graph_step(f->schedule.graph, step);
    for (int u = 0; u < info->n_uses; u++) {
        int index = f->map_of[info->uses[u].tensor];
        if (index >= 0 && f->maps[index].last_value == step) MM_TRY(decode_next(f));
    }
    return MM_OK;
}

/* Codecs' scratch: one region for each stream, since a stream runs one operation at a time. */
static mm_status add_scratch(freelunch *f) {
    mm_schedule *s = &f->schedule;
    int group[MM_STREAM_COUNT] = {-1, -1, -1, -1, -1};
    for (int i = 0; i < s->plan->n_nodes; i++) {
        mm_node *node = &s->plan->nodes[i];
        if (node->kind == MM_NODE_STEP) continue;
        int code = node->kind == MM_NODE_ENCODE ? node->dst : node->src;
        int64_t bytes = mm_facts_code(s->facts, s->plan->segments[code].codec, node->tensor)->scratch_bytes;
        if (bytes == 0) continue;
        int *g = &group[node->stream];
        if (*g < 0) *g = mm_schedule_group(s, MM_REGION_GENERAL, 0);
        if (*g < 0) return MM_ERR_NOMEM;
        int segment = mm_schedule_segment(s, MM_CONTENT_WORK, MM_CAT_WORKSPACE, -1, bytes, *g);
        if (segment < 0) return MM_ERR_NOMEM;
        s->plan->nodes[i].work = segment;
    }
    return MM_OK;
}

static mm_status build(freelunch *f) {
    mm_schedule *s = &f->schedule;
    mm_tensor waiting = -1;
    bool backward = false;
    for (int step = 0; step < mm_graph_steps(s->graph); step++) {
        mm_phase phase = mm_graph_step(s->graph, step)->phase;
        for (int i = 0; phase == MM_BACKWARD && !backward && i < f->depth; i++) MM_TRY(decode_next(f));
        backward |= phase == MM_BACKWARD;
        if (phase == MM_BACKWARD) MM_TRY(decode_needed(f, step));
        int node = mm_schedule_step(s, step, f->region_of);
        if (node < 0) return MM_ERR_NOMEM;
        if (phase == MM_FORWARD) MM_TRY(encode_after(f, step, node, &waiting));
        if (phase == MM_BACKWARD) MM_TRY(decode_after(f, step));
    }
    return add_scratch(f);
}

static void fini(freelunch *f) {
    mm_schedule_fini(&f->schedule);
    free(f->region_of);
    free(f->maps);
    free(f->map_of);
    free(f->queue);
}

static mm_status freelunch_plan(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                                const mm_policy_options *options, mm_plan **plan_out) {
    char spec[MM_SPEC_CAPACITY];
    codec_spec(options, spec);
    freelunch f = {.codec = mm_facts_codec(facts, spec),
                   .mask = mm_facts_codec(facts, mask_spec),
                   .all = strcmp(option(options, "eligible"), "all") == 0,
                   .naive_workspace = strcmp(option(options, "workspace"), "naive") == 0,
                   .depth = atoi(option(options, "depth"))};
    if (f.codec < 0 || f.mask < 0)
        return mm_fail(MM_ERR_INVALID, "policy freelunch: the facts know no codec '%s'",
                       f.codec < 0 ? spec : mask_spec);
    if (!facts->codecs[f.codec].gives_value)
        return mm_fail(MM_ERR_INVALID, "policy freelunch: codec '%s' does not give the elements back", spec);
    MM_TRY(mm_schedule_init(&f.schedule, graph, facts, limits, true));
    bool naive_buffers = strcmp(option(options, "buffers"), "naive") == 0;
    mm_status status = choose_maps(&f, naive_buffers ? MM_REGION_HEAP : MM_REGION_BUFFERS);
    if (status == MM_OK) status = build(&f);
    if (status == MM_OK) status = mm_schedule_finish(&f.schedule, atoi(option(options, "k")), false, plan_out);
    fini(&f);
    return status;
}

const mm_policy_ops mm_policy_freelunch = {
    .name = "freelunch",
    .summary = "feature maps compressed and decompressed beside the computation",
    .options = options_table,
    .codecs = freelunch_codecs,
    .plan = freelunch_plan,
};
