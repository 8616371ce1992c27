/* SPDX-License-Identifier: MIT */
#include "policies/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/plan/program.h"
#include "mm/core/status.h"
#include "policies/schedule/visits.h"

static bool is_managed(const mm_graph *graph, mm_tensor t) {
    return mm_graph_tensor(graph, t)->ownership == MM_MANAGED;
}

static bool may_share(const mm_schedule *s, mm_tensor t) {
    return s->inplace == MM_INPLACE_ON ||
           (s->inplace == MM_INPLACE_GRADIENTS && mm_graph_tensor(s->graph, t)->kind == MM_GRADIENT_MAP);
}

/* An output that equals its input shares the input's storage, if neither is written again. */
static void recognise_aliases(mm_schedule *s) {
    for (int i = 0; i < mm_graph_steps(s->graph); i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int p = 0; p < step->n_pairs; p++) {
            const mm_pair *pair = &step->pairs[p];
            mm_tensor root = s->plan->alias[pair->input];
            if (pair->alias && may_share(s, pair->output) && s->plan->alias[pair->output] == pair->output &&
                mm_graph_tensor(s->graph, pair->output)->writes == 1 && mm_graph_tensor(s->graph, root)->writes == 1)
                s->plan->alias[pair->output] = root;
        }
    }
}

static void find_last_steps(mm_schedule *s) {
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        int32_t *last = &s->tensors[s->plan->alias[t]].last_step;
        int own = mm_graph_tensor(s->graph, t)->last_use;
        if (own > *last) *last = own;
    }
}

static bool has_pair(const mm_step_info *step, mm_tensor input, mm_tensor output) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].input == input && step->pairs[p].output == output) return true;
    return false;
}

/* True if every input of the step that lies in this storage may be overwritten by the output. */
static bool may_be_over(const mm_schedule *s, const mm_step_info *step, mm_tensor root, mm_tensor output) {
    for (int u = 0; u < step->n_uses; u++)
        if (s->plan->alias[step->uses[u].tensor] == root && !has_pair(step, step->uses[u].tensor, output)) return false;
    return true;
}

/* An output is written in place over an input that no later step uses. Each input is overwritten by one output at most,
 * and each output overwrites one input at most. */
static void recognise_inplace(mm_schedule *s) {
    for (int i = 0; i < mm_graph_steps(s->graph); i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int p = 0; p < step->n_pairs; p++) {
            const mm_pair *pair = &step->pairs[p];
            mm_tensor root = s->plan->alias[pair->input];
            if (!may_share(s, pair->output)) continue;
            if (pair->alias || s->plan->alias[pair->output] != pair->output || s->tensors[pair->output].over >= 0)
                continue;
            if (s->tensors[root].last_step != i || mm_graph_tensor(s->graph, pair->output)->first_use != i) continue;
            if (mm_graph_tensor(s->graph, root)->bytes != mm_graph_tensor(s->graph, pair->output)->bytes) continue;
            bool taken = !may_be_over(s, step, root, pair->output);
            for (int u = 0; u < step->n_uses; u++) taken |= s->tensors[step->uses[u].tensor].over == root;
            if (!taken) s->tensors[pair->output].over = root;
        }
    }
}

/* Begins a plan of which nothing is known yet. */
static mm_status begin(mm_schedule *s, const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits) {
    memset(s, 0, sizeof *s);
    s->graph = graph;
    s->facts = facts;
    s->workspace_group = -1;
    s->device_bytes = limits->device_bytes;
    s->pinned_bytes = limits->pinned_bytes;
    s->ahead_bytes = limits->ahead_bytes;
    MM_TRY(mm_plan_create(graph, limits, &s->plan));
    s->tensors = malloc(((size_t)mm_graph_tensors(graph) + 1) * sizeof *s->tensors);
    if (s->tensors) return MM_OK;
    mm_schedule_fini(s);
    return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
}

mm_status mm_schedule_init(mm_schedule *s, const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                           const mm_sharing *sharing) {
    MM_TRY(begin(s, graph, facts, limits));
    s->layout = sharing->layout == MM_PLACING_GROUPS ? MM_LAYOUT_GROUPS : MM_LAYOUT_BEST;
    s->inplace = sharing->inplace;
    s->apart = sharing->stash == MM_STASH_APART;
    for (int t = 0; t < mm_graph_tensors(graph); t++) s->tensors[t] = (mm_schedule_tensor){-1, -1, -1, -1, -1, -1};
    recognise_aliases(s);
    find_last_steps(s);
    recognise_inplace(s);
    mm_status status = mm_visits_init(s);
    if (status != MM_OK) mm_schedule_fini(s);
    return status;
}

mm_status mm_schedule_init_as(mm_schedule *s, const mm_schedule *model, const mm_limits *limits) {
    const size_t n = (size_t)mm_graph_tensors(model->graph);
    MM_TRY(begin(s, model->graph, model->facts, limits));
    s->layout = model->layout;
    s->inplace = model->inplace;
    s->apart = model->apart;
    memcpy(s->plan->alias, model->plan->alias, n * sizeof *s->plan->alias);
    memcpy(s->tensors, model->tensors, n * sizeof *s->tensors);
    return MM_OK;
}

void mm_schedule_fini(mm_schedule *s) {
    mm_visits_fini(s->visits);
    mm_plan_destroy(s->plan);
    free(s->tensors);
    free(s->variant);
    free(s->segment_group);
    free(s->groups);
    free(s->lives);
    memset(s, 0, sizeof *s);
}

static mm_category raw_category(const mm_graph *graph, mm_tensor tensor, mm_region region) {
    if (mm_graph_tensor(graph, tensor)->persistent >= 0) return MM_CAT_VISIT;
    if (region == MM_REGION_BUFFERS) return MM_CAT_BUFFER;
    const mm_tensor_kind kind = mm_graph_tensor(graph, tensor)->kind;
    return kind == MM_GRADIENT_MAP || kind == MM_WEIGHT_GRADIENT ? MM_CAT_GRADIENT_MAP : MM_CAT_FEATURE_MAP;
}

/* The segment that a tensor is first written to: in place over another tensor's, or in a new group. */
static int make_segment(mm_schedule *s, mm_tensor root, const uint8_t *region_of) {
    int64_t bytes = mm_graph_tensor(s->graph, root)->bytes;
    int group;
    if (s->tensors[root].over >= 0)
        group = s->segment_group[s->tensors[s->tensors[root].over].value];
    else
        group = mm_schedule_group(
            s, region_of && is_managed(s->graph, root) ? (mm_region)region_of[root] : MM_REGION_GENERAL, bytes);
    if (group < 0) return -1;
    mm_category category = raw_category(s->graph, root, s->groups[group].region);
    return s->tensors[root].value = mm_schedule_segment(s, MM_CONTENT_RAW, category, root, bytes, group);
}

static int bind_use(mm_schedule *s, int node, const mm_use *use, int32_t *binding, const uint8_t *region_of) {
    mm_tensor root = s->plan->alias[use->tensor];
    if (!is_managed(s->graph, root) && !mm_plan_visits(s->plan, root)) return 0;
    if (use->form == MM_FORM_SIGN && s->tensors[root].sign >= 0) {
        *binding = s->tensors[root].sign;
        if (s->tensors[root].sign_node >= 0) mm_plan_wait(s->plan, node, s->tensors[root].sign_node);
        return 0;
    }
    if (s->tensors[root].value < 0 && make_segment(s, root, region_of) < 0) return -1;
    *binding = s->tensors[root].value;
    if (s->tensors[root].value_node >= 0) mm_plan_wait(s->plan, node, s->tensors[root].value_node);
    return 0;
}

mm_status mm_schedule_least_workspaces(mm_schedule *s) {
    const int32_t *first = s->facts->variant_first;
    s->variant = calloc((size_t)s->facts->n_steps + 1, sizeof *s->variant);
    if (!s->variant) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    for (int step = 0; step < s->facts->n_steps; step++)
        for (int v = first[step]; v < first[step + 1]; v++)
            if (s->facts->variants[v].workspace_bytes <
                s->facts->variants[first[step] + s->variant[step]].workspace_bytes)
                s->variant[step] = v - first[step];
    return MM_OK;
}

mm_status mm_schedule_take_variants(mm_schedule *s, const int32_t *variants) {
    const size_t bytes = ((size_t)s->facts->n_steps + 1) * sizeof *s->variant;
    s->variant = malloc(bytes);
    if (!s->variant) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(s->graph));
    memcpy(s->variant, variants, (size_t)s->facts->n_steps * sizeof *s->variant);
    return MM_OK;
}

static int make_workspace(mm_schedule *s, int node, int step) {
    s->plan->nodes[node].variant = s->variant ? s->variant[step] : 0;
    int64_t bytes = mm_node_work_bytes(s->plan, s->facts, &s->plan->nodes[node]);
    if (bytes == 0) return 0;
    int group = s->workspace_group >= 0 ? s->workspace_group : mm_schedule_group(s, MM_REGION_GENERAL, bytes);
    if (group < 0) return -1;
    int segment = mm_schedule_segment(s, MM_CONTENT_WORK, MM_CAT_WORKSPACE, -1, bytes, group);
    s->plan->nodes[node].work = segment;
    return segment < 0 ? -1 : 0;
}

int mm_schedule_step(mm_schedule *s, int step, const uint8_t *region_of) {
    const mm_step_info *info = mm_graph_step(s->graph, step);
    int node = mm_visits_before(s, step) ? mm_plan_step(s->plan, step) : -1;
    if (node < 0) return -1;
    if (info->on_host) { /* bound to its homes */
        mm_visits_use_homes(s, step, node);
        return mm_visits_after(s, step, node) ? node : -1;
    }
    /* Binds inputs first, because an output written in place looks up where its input lies. */
    for (int pass = 0; pass < 2; pass++)
        for (int u = 0; u < info->n_uses; u++) {
            if ((info->uses[u].access == MM_WRITE) != (pass == 1)) continue;
            int32_t *binding = &s->plan->bindings[s->plan->nodes[node].first_binding + u];
            if (bind_use(s, node, &info->uses[u], binding, region_of) < 0) return -1;
        }
    return make_workspace(s, node, step) < 0 || !mm_visits_after(s, step, node) ? -1 : node;
}

/* Whether the step, when it runs again, can read the output of use `u` instead of writing it: the tensor is still
 * there, and was written only once. */
static bool is_given(const mm_schedule *s, const mm_step_info *info, int u, const uint8_t *wanted, int when) {
    mm_tensor tensor = info->uses[u].tensor;
    return u < MM_GIVEN_USES && info->given >> u & 1 && !wanted[tensor] && s->plan->alias[tensor] == tensor &&
           mm_graph_tensor(s->graph, tensor)->writes == 1 && s->tensors[tensor].last_step >= when &&
           s->tensors[tensor].value >= 0;
}

int mm_schedule_recompute(mm_schedule *s, int step, const uint8_t *wanted, int when) {
    const mm_step_info *info = mm_graph_step(s->graph, step);
    int node = mm_visits_before_again(s, step) ? mm_plan_recompute(s->plan, step) : -1;
    if (node < 0) return -1;
    /* Binds inputs first, because an output written in place looks up where its input lies. */
    for (int u = 0; u < info->n_uses; u++) {
        int32_t *binding = &s->plan->bindings[s->plan->nodes[node].first_binding + u];
        if (info->uses[u].access != MM_WRITE && bind_use(s, node, &info->uses[u], binding, NULL) < 0) return -1;
    }
    for (int u = 0; u < info->n_uses; u++) {
        const mm_use *use = &info->uses[u];
        int binding = s->plan->nodes[node].first_binding + u;
        if (use->access != MM_WRITE) continue;
        if (is_given(s, info, u, wanted, when)) {
            s->plan->nodes[node].given |= UINT64_C(1) << u;
            if (bind_use(s, node, use, &s->plan->bindings[binding], NULL) < 0) return -1;
            continue;
        }
        mm_tensor input = s->tensors[use->tensor].over;
        bool over = wanted[use->tensor] && input >= 0 && wanted[input];
        int64_t bytes = mm_graph_tensor(s->graph, use->tensor)->bytes;
        int group = over ? s->segment_group[s->tensors[input].value] : mm_schedule_group(s, MM_REGION_GENERAL, bytes);
        if (group < 0) return -1;
        mm_category category = raw_category(s->graph, use->tensor, MM_REGION_GENERAL);
        int segment = mm_schedule_segment(s, MM_CONTENT_RAW, category, use->tensor, bytes, group);
        if (segment < 0) return -1;
        s->plan->bindings[binding] = segment;
        if (!wanted[use->tensor]) continue;
        s->tensors[use->tensor].value = segment;
        s->tensors[use->tensor].value_node = node;
    }
    mm_visits_after_again(s, step, when);
    return make_workspace(s, node, step) < 0 ? -1 : node;
}

/* ---------------------------------------------------------------- codes */

/* Enlarges the step's workspace for a code that it writes. */
static int fit_workspace(mm_schedule *s, int node) {
    const int work = s->plan->nodes[node].work;
    const int64_t bytes = mm_node_work_bytes(s->plan, s->facts, &s->plan->nodes[node]);
    if (work < 0) return make_workspace(s, node, s->plan->nodes[node].step);
    s->plan->segments[work].bytes = bytes;
    mm_group *group = &s->groups[s->segment_group[work]];
    if (group->bytes < bytes) group->bytes = bytes;
    return 0;
}

int mm_schedule_code(mm_schedule *s, int node, mm_tensor tensor, int codec, mm_region region) {
    const mm_step_info *info = mm_graph_step(s->graph, s->plan->nodes[node].step);
    const int64_t bytes = mm_facts_code(s->facts, codec, tensor)->code_bytes;
    int use = 0;
    while (info->uses[use].tensor != tensor) use++;
    const int group = mm_schedule_group(s, region, bytes);
    const int code = group < 0 ? -1 : mm_schedule_segment(s, MM_CONTENT_CODED, MM_CAT_CODE, tensor, bytes, group);
    if (code < 0) return -1;
    s->plan->segments[code].codec = codec;
    if (!mm_plan_write_code(s->plan, node, use, code)) return -1;
    return fit_workspace(s, node) < 0 ? -1 : code;
}

mm_status mm_schedule_scratch(mm_schedule *s) {
    int group[MM_STREAM_COUNT];
    for (int t = 0; t < MM_STREAM_COUNT; t++) group[t] = -1;
    for (int i = 0; i < s->plan->n_nodes; i++) {
        const mm_node *node = &s->plan->nodes[i];
        const mm_node_cost cost = mm_node_table[node->kind].cost;
        if (cost != MM_COST_ENCODE && cost != MM_COST_DECODE) continue;
        int codec = s->plan->segments[mm_program_stored(node)].codec;
        int64_t bytes = mm_facts_code(s->facts, codec, node->tensor)->scratch_bytes;
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
