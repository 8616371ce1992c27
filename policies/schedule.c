#include "policies/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "buffers/heap_size.h"
#include "buffers/layout.h"
#include "mm/core/status.h"

static bool is_managed(const mm_graph *graph, mm_tensor t) {
    return mm_graph_tensor(graph, t)->ownership == MM_MANAGED;
}

/* An output that equals its input takes the input's storage, if nothing writes to either again. */
static void recognise_aliases(mm_schedule *s) {
    for (int i = 0; i < mm_graph_steps(s->graph); i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int p = 0; p < step->n_pairs; p++) {
            const mm_pair *pair = &step->pairs[p];
            mm_tensor root = s->plan->alias[pair->input];
            if (pair->alias && s->plan->alias[pair->output] == pair->output &&
                mm_graph_tensor(s->graph, pair->output)->writes == 1 && mm_graph_tensor(s->graph, root)->writes == 1)
                s->plan->alias[pair->output] = root;
        }
    }
}

static void find_last_steps(mm_schedule *s) {
    for (int t = 0; t < mm_graph_tensors(s->graph); t++) {
        int32_t *last = &s->last_step[s->plan->alias[t]];
        int own = mm_graph_tensor(s->graph, t)->last_use;
        if (own > *last) *last = own;
    }
}

/* An output is written over an input whose last use this step is. One heir for each input, one input for each heir. */
static void recognise_inplace(mm_schedule *s) {
    for (int i = 0; i < mm_graph_steps(s->graph); i++) {
        const mm_step_info *step = mm_graph_step(s->graph, i);
        for (int p = 0; p < step->n_pairs; p++) {
            const mm_pair *pair = &step->pairs[p];
            mm_tensor root = s->plan->alias[pair->input];
            if (pair->alias || s->plan->alias[pair->output] != pair->output || s->over[pair->output] >= 0) continue;
            if (s->last_step[root] != i || mm_graph_tensor(s->graph, pair->output)->first_use != i) continue;
            if (mm_graph_tensor(s->graph, root)->bytes != mm_graph_tensor(s->graph, pair->output)->bytes) continue;
            bool taken = false;
            for (int u = 0; u < step->n_uses; u++) taken |= s->over[step->uses[u].tensor] == root;
            if (!taken) s->over[pair->output] = root;
        }
    }
}

static int32_t *filled(size_t n, int32_t value) {
    int32_t *array = malloc((n + 1) * sizeof *array);
    for (size_t i = 0; array && i < n; i++) array[i] = value;
    return array;
}

mm_status mm_schedule_init(mm_schedule *s, const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                           bool share) {
    memset(s, 0, sizeof *s);
    s->graph = graph;
    s->facts = facts;
    s->workspace_group = -1;
    MM_TRY(mm_plan_create(graph, limits, &s->plan));
    size_t n = (size_t)mm_graph_tensors(graph);
    s->last_step = filled(n, -1);
    s->over = filled(n, -1);
    s->value = filled(n, -1);
    s->sign = filled(n, -1);
    s->value_node = filled(n, -1);
    s->sign_node = filled(n, -1);
    if (!s->last_step || !s->over || !s->value || !s->sign || !s->value_node || !s->sign_node) {
        mm_schedule_fini(s);
        return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    }
    if (share) recognise_aliases(s);
    find_last_steps(s);
    if (share) recognise_inplace(s);
    return MM_OK;
}

void mm_schedule_fini(mm_schedule *s) {
    mm_plan_destroy(s->plan);
    free(s->last_step);
    free(s->over);
    free(s->value);
    free(s->sign);
    free(s->value_node);
    free(s->sign_node);
    free(s->segment_group);
    free(s->groups);
    memset(s, 0, sizeof *s);
}

static int no_memory(void) {
    mm_fail_set("out of memory for a plan");
    return -1;
}

int mm_schedule_group(mm_schedule *s, mm_region region, int64_t bytes) {
    if (s->n_groups == s->group_capacity) {
        int capacity = s->group_capacity ? 2 * s->group_capacity : 64;
        mm_group *groups = realloc(s->groups, (size_t)capacity * sizeof *groups);
        if (!groups) return no_memory();
        s->groups = groups;
        s->group_capacity = capacity;
    }
    s->groups[s->n_groups] = (mm_group){.region = region, .bytes = bytes, .hold = -1};
    return s->n_groups++;
}

int mm_schedule_segment(mm_schedule *s, mm_content content, mm_category category, mm_tensor tensor, int64_t bytes,
                        int group) {
    int index = mm_plan_segment(s->plan, content, category, tensor, bytes);
    if (index < 0) return -1;
    if (index >= s->segment_capacity) {
        int capacity = s->segment_capacity ? 2 * s->segment_capacity : 64;
        int32_t *array = realloc(s->segment_group, (size_t)capacity * sizeof *array);
        if (!array) return no_memory();
        s->segment_group = array;
        s->segment_capacity = capacity;
    }
    s->segment_group[index] = group;
    s->plan->segments[index].dynamic = s->groups[group].region == MM_REGION_HEAP;
    s->plan->segments[index].pinned = s->groups[group].region == MM_REGION_PINNED;
    if (s->groups[group].bytes < bytes) s->groups[group].bytes = bytes;
    return index;
}

static mm_category raw_category(const mm_graph *graph, mm_tensor tensor, mm_region region) {
    if (region == MM_REGION_BUFFERS) return MM_CAT_BUFFER;
    return mm_graph_tensor(graph, tensor)->kind == MM_GRADIENT_MAP ? MM_CAT_GRADIENT_MAP : MM_CAT_FEATURE_MAP;
}

/* The segment that a tensor is first written to: over another one's in place, or new. */
static int make_segment(mm_schedule *s, mm_tensor root, const uint8_t *region_of) {
    int64_t bytes = mm_graph_tensor(s->graph, root)->bytes;
    int group;
    if (s->over[root] >= 0)
        group = s->segment_group[s->value[s->over[root]]];
    else
        group = mm_schedule_group(s, region_of ? (mm_region)region_of[root] : MM_REGION_GENERAL, bytes);
    if (group < 0) return -1;
    mm_category category = raw_category(s->graph, root, s->groups[group].region);
    return s->value[root] = mm_schedule_segment(s, MM_CONTENT_RAW, category, root, bytes, group);
}

static int bind_use(mm_schedule *s, int node, const mm_use *use, int32_t *binding, const uint8_t *region_of) {
    mm_tensor root = s->plan->alias[use->tensor];
    if (!is_managed(s->graph, root)) return 0;
    if (use->form == MM_FORM_SIGN && s->sign[root] >= 0) {
        *binding = s->sign[root];
        if (s->sign_node[root] >= 0) mm_plan_wait(s->plan, node, s->sign_node[root]);
        return 0;
    }
    if (s->value[root] < 0 && make_segment(s, root, region_of) < 0) return -1;
    *binding = s->value[root];
    if (s->value_node[root] >= 0) mm_plan_wait(s->plan, node, s->value_node[root]);
    return 0;
}

static int make_workspace(mm_schedule *s, int node, int step) {
    int64_t bytes = s->facts->variants[s->facts->variant_first[step]].workspace_bytes;
    if (bytes == 0) return 0;
    int group = s->workspace_group >= 0 ? s->workspace_group : mm_schedule_group(s, MM_REGION_GENERAL, bytes);
    if (group < 0) return -1;
    int segment = mm_schedule_segment(s, MM_CONTENT_WORK, MM_CAT_WORKSPACE, -1, bytes, group);
    s->plan->nodes[node].work = segment;
    return segment < 0 ? -1 : 0;
}

int mm_schedule_step(mm_schedule *s, int step, const uint8_t *region_of) {
    const mm_step_info *info = mm_graph_step(s->graph, step);
    int node = mm_plan_step(s->plan, step);
    if (node < 0) return -1;
    /* Reads first: an output written in place looks up where its input lies. */
    for (int pass = 0; pass < 2; pass++)
        for (int u = 0; u < info->n_uses; u++) {
            if ((info->uses[u].access == MM_WRITE) != (pass == 1)) continue;
            int32_t *binding = &s->plan->bindings[s->plan->nodes[node].first_binding + u];
            if (bind_use(s, node, &info->uses[u], binding, region_of) < 0) return -1;
        }
    return make_workspace(s, node, step) < 0 ? -1 : node;
}

int mm_schedule_recompute(mm_schedule *s, int step, const uint8_t *wanted) {
    const mm_step_info *info = mm_graph_step(s->graph, step);
    int node = mm_plan_recompute(s->plan, step);
    if (node < 0) return -1;
    /* Reads first: an output written in place looks up where its input lies. */
    for (int u = 0; u < info->n_uses; u++) {
        int32_t *binding = &s->plan->bindings[s->plan->nodes[node].first_binding + u];
        if (info->uses[u].access != MM_WRITE && bind_use(s, node, &info->uses[u], binding, NULL) < 0) return -1;
    }
    for (int u = 0; u < info->n_uses; u++) {
        const mm_use *use = &info->uses[u];
        int binding = s->plan->nodes[node].first_binding + u;
        if (use->access != MM_WRITE) continue;
        mm_tensor input = s->over[use->tensor];
        bool over = wanted[use->tensor] && input >= 0 && wanted[input];
        int64_t bytes = mm_graph_tensor(s->graph, use->tensor)->bytes;
        int group = over ? s->segment_group[s->value[input]] : mm_schedule_group(s, MM_REGION_GENERAL, bytes);
        if (group < 0) return -1;
        mm_category category = raw_category(s->graph, use->tensor, MM_REGION_GENERAL);
        int segment = mm_schedule_segment(s, MM_CONTENT_RAW, category, use->tensor, bytes, group);
        if (segment < 0) return -1;
        s->plan->bindings[binding] = segment;
        if (!wanted[use->tensor]) continue;
        s->value[use->tensor] = segment;
        s->value_node[use->tensor] = node;
    }
    return make_workspace(s, node, step) < 0 ? -1 : node;
}

/* ---------------------------------------------------------------- placement */

/* Groups of one region as intervals; `which` maps interval to group. */
typedef struct region_items {
    mm_interval *items;
    int32_t *which;
    int32_t *extra; /* rank, or buffer */
    size_t n;
} region_items;

static void items_fini(region_items *r) {
    free(r->items);
    free(r->which);
    free(r->extra);
}

static mm_status items_init(const mm_schedule *s, const mm_interval *lives, mm_region region, region_items *r) {
    size_t n = (size_t)s->n_groups + 1;
    *r = (region_items){.items = malloc(n * sizeof *r->items),
                        .which = malloc(n * sizeof *r->which),
                        .extra = malloc(n * sizeof *r->extra)};
    if (!r->items || !r->which || !r->extra) {
        items_fini(r);
        return mm_fail(MM_ERR_NOMEM, "out of memory for a layout");
    }
    for (int g = 0; g < s->n_groups; g++) {
        if (s->groups[g].region != region || lives[g].first < 0) continue;
        r->items[r->n] = lives[g];
        r->which[r->n] = g;
        r->extra[r->n++] = s->groups[g].rank;
    }
    return MM_OK;
}

/* Each group's life in issue order; first -1 if nothing uses it. */
static mm_interval *group_lives(const mm_schedule *s, bool keep_all) {
    mm_interval *lives = malloc(((size_t)s->n_groups + 1) * sizeof *lives);
    if (!lives) return NULL;
    for (int g = 0; g < s->n_groups; g++)
        lives[g] = (mm_interval){.bytes = s->groups[g].bytes, .first = -1, .last = s->groups[g].hold};
    for (int i = 0; i < s->plan->n_segments; i++) {
        const mm_segment *segment = &s->plan->segments[i];
        mm_interval *life = &lives[s->segment_group[i]];
        if (segment->first_node < 0) continue;
        if (life->first < 0 || segment->first_node < life->first) life->first = segment->first_node;
        if (segment->last_node > life->last) life->last = segment->last_node;
    }
    for (int g = 0; keep_all && g < s->n_groups; g++)
        if (lives[g].first >= 0) lives[g].first = 0, lives[g].last = s->plan->n_nodes - 1;
    return lives;
}

static mm_status place_by_life(const mm_schedule *s, mm_region region, mm_interval *lives, int64_t *end) {
    region_items r;
    int64_t height = 0;
    MM_TRY(items_init(s, lives, region, &r));
    mm_status status = mm_layout_place(r.items, r.n, s->quick ? MM_LAYOUT_QUICK : MM_LAYOUT_BEST, MM_ALIGN, &height);
    for (size_t i = 0; i < r.n; i++) lives[r.which[i]].offset = *end + r.items[i].offset;
    *end += height;
    items_fini(&r);
    return status;
}

static mm_status place_codes(const mm_schedule *s, mm_interval *lives, int64_t *end) {
    region_items r;
    int64_t height = 0;
    MM_TRY(items_init(s, lives, MM_REGION_CODES, &r));
    mm_status status = mm_layout_sliding(r.items, r.extra, r.n, MM_ALIGN, &height);
    for (size_t i = 0; i < r.n; i++) lives[r.which[i]].offset = *end + r.items[i].offset;
    s->plan->code_region_bytes = height;
    *end += height;
    items_fini(&r);
    return status;
}

static mm_status place_buffers(const mm_schedule *s, mm_interval *lives, int wanted, int64_t *end) {
    region_items r;
    int64_t height = 0;
    int k = 0;
    MM_TRY(items_init(s, lives, MM_REGION_BUFFERS, &r));
    mm_status status = mm_layout_buffers(r.items, r.n, wanted, MM_ALIGN, r.extra, &k, &height);
    for (size_t i = 0; i < r.n; i++) lives[r.which[i]].offset = *end + r.items[i].offset;
    s->plan->buffers = k;
    s->plan->buffer_region_bytes = height;
    *end += height;
    items_fini(&r);
    return status;
}

/* Whether a group holds codes, which live long; what else is placed at run time comes and goes. */
static bool holds_code(const mm_schedule *s, int group) {
    for (int i = 0; i < s->plan->n_segments; i++)
        if (s->segment_group[i] == group) return s->plan->segments[i].content == MM_CONTENT_CODED;
    return false;
}

/* Heap bytes for the most of these items that can be alive at once. */
static mm_status heap_part(const mm_interval *items, size_t n, int64_t *bytes_out) {
    int64_t largest = 0;
    for (size_t i = 0; i < n; i++)
        if (items[i].bytes > largest) largest = items[i].bytes;
    int64_t live = mm_layout_lower_bound(items, n, 1);
    if (live < 0) return mm_fail(MM_ERR_NOMEM, "out of memory for a layout");
    *bytes_out = mm_heap_region_bytes(live, largest);
    return MM_OK;
}

static mm_status place_heap(const mm_schedule *s, const mm_interval *lives, int64_t *end) {
    enum { PAGE = 4096 };
    region_items r;
    MM_TRY(items_init(s, lives, MM_REGION_HEAP, &r));
    /* Codes to the front. */
    size_t codes = 0;
    for (size_t i = 0; i < r.n; i++) {
        r.items[i].bytes = mm_heap_class_bytes(r.items[i].bytes);
        if (!holds_code(s, r.which[i])) continue;
        mm_interval item = r.items[i];
        r.items[i] = r.items[codes];
        r.items[codes] = item;
        int32_t which = r.which[i];
        r.which[i] = r.which[codes];
        r.which[codes++] = which;
    }
    mm_status status = MM_OK;
    if (r.n > 0) {
        int64_t code_bytes = 0, rest_bytes = 0;
        status = heap_part(r.items, codes, &code_bytes);
        if (status == MM_OK) status = heap_part(r.items + codes, r.n - codes, &rest_bytes);
        s->plan->heap_offset = (*end + PAGE - 1) / PAGE * PAGE;
        s->plan->heap_code_bytes = code_bytes;
        s->plan->heap_bytes = code_bytes + rest_bytes;
        *end = s->plan->heap_offset + s->plan->heap_bytes;
    }
    items_fini(&r);
    return status;
}

mm_status mm_schedule_finish(mm_schedule *s, int wanted_buffers, bool keep_all, mm_plan **plan_out) {
    mm_plan *plan = s->plan;
    plan->keeps_all = keep_all;
    MM_TRY(mm_plan_finish(plan));
    mm_interval *lives = group_lives(s, keep_all);
    if (!lives) return mm_fail(MM_ERR_NOMEM, "out of memory for a layout");
    int64_t end = mm_align(plan->base_bytes), pinned_end = 0;
    mm_status status = place_by_life(s, MM_REGION_GENERAL, lives, &end);
    if (status == MM_OK) status = place_by_life(s, MM_REGION_PINNED, lives, &pinned_end);
    if (status == MM_OK) status = place_codes(s, lives, &end);
    if (status == MM_OK) status = place_buffers(s, lives, wanted_buffers, &end);
    if (status == MM_OK) status = place_heap(s, lives, &end);
    for (int i = 0; status == MM_OK && i < plan->n_segments; i++)
        if (!plan->segments[i].dynamic) plan->segments[i].offset = lives[s->segment_group[i]].offset;
    free(lives);
    if (status == MM_OK) status = mm_plan_finish(plan);
    if (status == MM_OK) status = mm_schedule_guard(plan);
    if (status != MM_OK) return status;
    s->plan = NULL;
    *plan_out = plan;
    return MM_OK;
}
