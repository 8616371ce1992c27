/* SPDX-License-Identifier: MIT */
#include "mm/core/account/plan_memory.h"

#include <stdlib.h>

#include "mm/core/status.h"

/* The plan to describe, its accounts, and whether memory ran out. */
typedef struct described {
    const mm_plan *plan;
    const mm_graph_facts *facts;
    mm_account account;
    mm_stash_account stash;
    mm_decision *decisions; /* per map of the stash */
    bool failed;
} described;

static void append(described *d, json_t *array, json_t *value) {
    d->failed |= json_array_append_new(array, value) != 0;
}

static void set(described *d, json_t *object, const char *key, json_t *value) {
    d->failed |= json_object_set_new(object, key, value) != 0;
}

static const char *layer_name(const mm_graph *graph, mm_layer layer) {
    return layer >= 0 ? mm_graph_layer(graph, layer)->name : "";
}

static const char *producer_name(const mm_graph *graph, mm_tensor tensor) {
    return layer_name(graph, mm_graph_tensor(graph, tensor)->producer);
}

static json_t *lasting_json(described *d) {
    json_t *object = json_object();
    for (int k = 0; k < MM_ACCOUNT_KINDS; k++)
        if (d->account.lasting[k] != 0) set(d, object, mm_account_kind_name(k), json_integer(d->account.lasting[k]));
    return object;
}

/* ---------------------------------------------------------------- nodes */

static const char *node_layer(const mm_graph *graph, const mm_node *node) {
    if (!mm_node_runs_step(node)) return producer_name(graph, node->tensor);
    return layer_name(graph, mm_graph_step(graph, node->step)->layer);
}

static json_t *node_json(const mm_graph *graph, const mm_node *node) {
    const char *stream = mm_stream_id_name(node->stream), *layer = node_layer(graph, node);
    char step[256], name[320];
    if (!mm_node_runs_step(node)) {
        const char *tensor = mm_graph_tensor(graph, node->tensor)->name;
        snprintf(name, sizeof name, "%s %s", mm_node_kind_name(node->kind), tensor);
        return json_pack("{ss ss ss ss}", "name", name, "stream", stream, "layer", layer, "tensor", tensor);
    }
    mm_graph_step_name(graph, node->step, step, sizeof step);
    snprintf(name, sizeof name, "%s%s", node->kind == MM_NODE_RECOMPUTE ? "recompute " : "", step);
    return json_pack("{ss ss ss ss}", "name", name, "stream", stream, "layer", layer, "phase",
                     mm_phase_name(mm_graph_step(graph, node->step)->phase));
}

static json_t *nodes_json(described *d) {
    json_t *array = json_array();
    for (int i = 0; i < d->plan->n_nodes; i++) append(d, array, node_json(d->plan->graph, &d->plan->nodes[i]));
    return array;
}

/* ---------------------------------------------------------------- segments */

static const char *action_of(const mm_plan *plan, const mm_segment *s) {
    static const char *const made[MM_NODE_KINDS] = {
        [MM_NODE_STEP] = "computed",  [MM_NODE_ENCODE] = "encoded",
        [MM_NODE_DECODE] = "decoded", [MM_NODE_OUT] = "offloaded",
        [MM_NODE_IN] = "fetched",     [MM_NODE_RECOMPUTE] = "recomputed",
        [MM_NODE_STORE] = "stored",   [MM_NODE_LOAD] = "loaded",
        [MM_NODE_MEASURE] = "unused", /* a measure writes to no segment, so this word never appears */
    };
    if (s->category == MM_CAT_PERSISTENT) return "lasting";
    if (s->content == MM_CONTENT_WORK) return "workspace";
    if (s->content == MM_CONTENT_POOL) return "pool";
    return made[plan->nodes[s->first_node].kind];
}

static json_t *segment_json(described *d, int i) {
    const mm_plan *plan = d->plan;
    const mm_segment *s = &plan->segments[i];
    char name[320];
    json_t *object = json_pack(
        "{ss ss ss ss ss sI sI si si si}", "name", mm_account_segment_name(plan, i, name, sizeof name), "layer",
        s->tensor >= 0 ? producer_name(plan->graph, s->tensor) : node_layer(plan->graph, &plan->nodes[s->first_node]),
        "kind", mm_account_kind_name(mm_account_segment_kind(&d->account, i)), "content", mm_content_name(s->content),
        "action", action_of(plan, s), "offset", (json_int_t)s->offset, "bytes", (json_int_t)s->bytes, "first",
        s->first_node, "last", s->last_node, "live_last", s->live_last);
    if (s->codec >= 0) set(d, object, "codec", json_string(d->facts->codecs[s->codec].spec));
    if (s->memory == MM_MEM_PINNED) set(d, object, "pinned", json_true());
    if (s->dynamic) set(d, object, "dynamic", json_true());
    return object;
}

static json_t *segments_json(described *d) {
    json_t *array = json_array();
    for (int i = 0; i < d->plan->n_segments; i++) {
        const mm_segment *s = &d->plan->segments[i];
        if (s->memory == MM_MEM_DISK) continue; /* pictures are of memory */
        if (s->first_node >= 0 || s->category == MM_CAT_PERSISTENT) append(d, array, segment_json(d, i));
    }
    return array;
}

/* ---------------------------------------------------------------- maps */

static json_t *actions_json(described *d, uint32_t kinds) {
    static const mm_remedy_kind order[MM_REMEDY_KINDS] = {MM_REMEDY_KEEP, MM_REMEDY_MASK,          MM_REMEDY_COMPRESS,
                                                          MM_REMEDY_SWAP, MM_REMEDY_COMPRESS_SWAP, MM_REMEDY_RECOMPUTE};
    json_t *array = json_array();
    for (int k = 0; k < MM_REMEDY_KINDS; k++)
        if (kinds & 1u << order[k]) append(d, array, json_string(mm_remedy_kind_name(order[k])));
    return array;
}

static json_t *map_json(described *d, const mm_stash_map *map, const mm_decision *decided) {
    const mm_graph *graph = d->plan->graph;
    const mm_tensor_info *tensor = mm_graph_tensor(graph, map->tensor);
    const mm_layer_info *producer = tensor->producer >= 0 ? mm_graph_layer(graph, tensor->producer) : NULL;
    json_t *readers = json_array();
    char step[256];
    for (int r = 0; r < map->n_readers; r++)
        append(d, readers, json_string(mm_graph_step_name(graph, map->readers[r].step, step, sizeof step)));
    json_t *object =
        json_pack("{ss ss ss sI sI so so}", "name", tensor->name, "layer", producer ? producer->name : "", "layer_kind",
                  producer ? mm_layer_kind_name(producer->kind) : "", "bytes", (json_int_t)map->bytes, "held_bytes",
                  (json_int_t)map->held_bytes, "readers", readers, "actions", actions_json(d, decided->kinds));
    const int codec = decided->codec >= 0 ? decided->codec : decided->sign_codec;
    if (codec >= 0) set(d, object, "codec", json_string(d->facts->codecs[codec].spec));
    return object;
}

static json_t *maps_json(described *d) {
    json_t *array = json_array();
    for (int i = 0; i < d->stash.n_maps; i++) append(d, array, map_json(d, &d->stash.maps[i], &d->decisions[i]));
    return array;
}

/* ---------------------------------------------------------------- homes */

/* When copies of the tensor are on the device: pairs of nodes, the first and the last that use one. */
static json_t *visits_json(described *d, mm_tensor tensor) {
    json_t *array = json_array();
    for (int i = mm_graph_persistents(d->plan->graph); i < d->plan->n_segments; i++) {
        const mm_segment *s = &d->plan->segments[i];
        if (s->tensor == tensor && s->memory == MM_MEM_DEVICE && s->first_node >= 0)
            append(d, array, json_pack("[ii]", s->first_node, s->last_node));
    }
    return array;
}

/* The persistent tensors that visit the device. */
static json_t *homes_json(described *d) {
    const mm_plan *plan = d->plan;
    json_t *array = json_array();
    for (int i = 0; i < mm_graph_persistents(plan->graph); i++) {
        const mm_segment *home = &plan->segments[i];
        if (home->memory == MM_MEM_DEVICE) continue;
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, home->tensor);
        append(d, array,
               json_pack("{ss ss sI ss so}", "name", tensor->name, "kind", mm_tensor_kind_name(tensor->kind), "bytes",
                         (json_int_t)home->bytes, "place", mm_memory_name(home->memory), "visits",
                         visits_json(d, home->tensor)));
    }
    return array;
}

/* ---------------------------------------------------------------- all */

static json_t *describe(described *d) {
    json_t *object = json_object();
    set(d, object, "lasting", lasting_json(d));
    set(d, object, "nodes", nodes_json(d));
    set(d, object, "segments", segments_json(d));
    set(d, object, "maps", maps_json(d));
    set(d, object, "homes", homes_json(d));
    return object;
}

mm_status mm_plan_memory(const mm_plan *plan, const mm_graph_facts *facts, json_t **memory_out) {
    described d = {.plan = plan, .facts = facts};
    MM_TRY(mm_account_init(plan, &d.account));
    mm_status status = mm_stash_account_init(plan, facts, &d.stash);
    if (status == MM_OK) status = mm_account_decide(plan, facts, &d.stash, &d.decisions);
    json_t *memory = status == MM_OK ? describe(&d) : NULL;
    if (status == MM_OK && (d.failed || !memory))
        status = mm_fail(MM_ERR_NOMEM, "out of memory for the memory of a plan of %d nodes", plan->n_nodes);
    free(d.decisions);
    mm_stash_account_fini(&d.stash);
    mm_account_fini(&d.account);
    if (status != MM_OK)
        json_decref(memory);
    else
        *memory_out = memory;
    return status;
}
