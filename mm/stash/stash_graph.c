/* SPDX-License-Identifier: MIT */
#include "mm/stash/stash_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/dtype.h"
#include "mm/stash/stash_desc.h"

const char mm_stash_signs_part[] = "mm.signs";

enum { NAME_BYTES = MM_STASH_PRODUCER_CAPACITY + 32 };

/* Layer kinds, found by a word in the operation's name; the first match counts. Rules name layers by their kind. */
static const struct {
    const char *word;
    mm_layer_kind kind;
} producers[] = {
    {"onvolution", MM_LAYER_CONV},
    {"onv", MM_LAYER_CONV},
    {"atch_norm", MM_LAYER_BATCH_NORM},
    {"atchNorm", MM_LAYER_BATCH_NORM},
    {"elu", MM_LAYER_RELU},
    {"ropout", MM_LAYER_DROPOUT},
    {"ool", MM_LAYER_POOL},
    {"ddmm", MM_LAYER_LINEAR},
    {"inear", MM_LAYER_LINEAR},
    {"bmm", MM_LAYER_LINEAR},
    {"Mm", MM_LAYER_LINEAR},
    {"Cat", MM_LAYER_CONCAT},
    {"Add", MM_LAYER_ADD},
};

static mm_layer_kind kind_of(const char *producer) {
    const char *path_end = strrchr(producer, ' '), *operation = path_end ? path_end + 1 : producer;
    for (size_t i = 0; i < sizeof producers / sizeof *producers; i++)
        if (strstr(operation, producers[i].word)) return producers[i].kind;
    return MM_LAYER_OTHER;
}

/* What is being built. */
typedef struct build {
    const mm_order *order;
    uint32_t exact; /* flags; an entry with any of them must not lose anything */
    mm_stash_graph *out;
    mm_layer *layer;    /* per entry; -1: the layer has its backward step already */
    int32_t *readers;   /* per entry: number of steps that read it so far */
    int first_backward; /* event */
    int n_steps;
} build;

/* ---------------------------------------------------------------- the backward part
 *
 * Policies expect no feature map after the first backward step, and move a map between its last forward and its first
 * backward use. So an entry that is put in the backward part is never moved, and one that is read in the forward part
 * is not moved before its last forward read. */

/* Sets the event with which the backward part begins: among the events at which nothing is held, the one for which the
 * fewest bytes cannot be moved. (At an event at which an entry is held, policies would move the held entry.) Returns
 * the bytes that cannot be moved. b->readers: scratch. */
static int64_t find_backward(build *b, const bool *kept) {
    enum { UNREAD, READ, HELD };
    const mm_order *o = b->order;
    int held = 0;
    int64_t stays = 0, least = INT64_MAX;
    for (int i = 0; i < o->n_entries; i++) stays += kept[i] ? 0 : o->entries[i].bytes;
    for (int i = 0; i < o->n_events; i++) {
        const mm_order_event *e = &o->events[i];
        const int64_t bytes = o->entries[e->entry].bytes;
        if (kept[e->entry]) continue;
        if (e->kind == MM_ORDER_PUT) {
            stays -= bytes;
            continue;
        }
        if (held == 0 && stays < least) {
            least = stays;
            b->first_backward = i;
        }
        int32_t *state = &b->readers[e->entry];
        if (*state == UNREAD) stays += bytes;
        held += (e->kind == MM_ORDER_GET) - (*state == HELD);
        *state = e->kind == MM_ORDER_GET ? HELD : READ;
    }
    memset(b->readers, 0, (size_t)o->n_entries * sizeof *b->readers);
    return least;
}

/* ---------------------------------------------------------------- its parts */

static mm_status add_layer(const build *b, const char *name, mm_layer_kind kind, mm_layer *layer_out) {
    MM_TRY(mm_graph_add_layer(b->out->graph, name, kind, layer_out));
    mm_layer_properties properties = mm_layer_kind_properties(kind);
    properties.repeatable = false; /* a stash has no function that could run the layer again */
    return mm_graph_set_properties(b->out->graph, *layer_out, &properties);
}

/* Has rules name the layer by the path of its entry's module, and by those of the modules around it: layers.3.mlp.0,
 * layers.3.mlp, layers.3, layers. */
static mm_status add_path(const build *b, mm_layer layer, const char *producer) {
    char path[MM_STASH_PRODUCER_CAPACITY];
    snprintf(path, sizeof path, "%s", producer);
    for (char *end = strrchr(path, ' '); end && end != path; end = strrchr(path, '.')) {
        *end = '\0';
        MM_TRY(mm_graph_add_part(b->out->graph, layer, path));
    }
    return MM_OK;
}

static mm_status add_entry(const build *b, int entry, bool backward) {
    const mm_stash_desc *kind = &b->order->entries[entry];
    const bool bytes = (kind->flags & b->exact) || !mm_dtype_table[kind->dtype].has_sign;
    char name[NAME_BYTES];
    mm_tensor_desc desc = {.name = name, .kind = backward ? MM_SAVED : MM_FEATURE_MAP, .ownership = MM_MANAGED};
    desc.dtype = bytes ? MM_U8 : kind->dtype;
    desc.rank = bytes ? 1 : kind->rank;
    memcpy(desc.dims, bytes ? &kind->bytes : kind->dims, (size_t)desc.rank * sizeof *desc.dims);
    snprintf(name, sizeof name, "tensor %d of %s", entry, mm_stash_producer(kind));
    MM_TRY(mm_graph_add_tensor(b->out->graph, &desc, &b->out->tensor[entry]));
    MM_TRY(add_layer(b, name, kind_of(kind->producer), &b->layer[entry]));
    MM_TRY(add_path(b, b->layer[entry], kind->producer));
    if (bytes || !(kind->flags & MM_STASH_SIGNS)) return MM_OK;
    return mm_graph_add_part(b->out->graph, b->layer[entry], mm_stash_signs_part);
}

static mm_status add_step(build *b, int entry, mm_layer layer, mm_phase phase, mm_access access) {
    const mm_use use = {b->out->tensor[entry], access, MM_FORM_VALUE};
    MM_TRY(mm_graph_add_step(b->out->graph, layer, phase, &use, 1, 0));
    b->out->step_entry[b->n_steps++] = entry;
    return MM_OK;
}

/* Adds a step that reads an entry. The first in the backward part is the backward step of the entry's layer; every
 * other one gets a layer of its own. */
static mm_status add_reader(build *b, int entry, bool backward) {
    mm_layer layer = b->layer[entry];
    char name[NAME_BYTES];
    const int reader = b->readers[entry]++;
    if (backward && layer >= 0) {
        b->layer[entry] = -1;
    } else {
        snprintf(name, sizeof name, "tensor %d again, %d", entry, reader);
        MM_TRY(add_layer(b, name, MM_LAYER_OTHER, &layer));
    }
    return add_step(b, entry, layer, backward ? MM_BACKWARD : MM_FORWARD, MM_READ);
}

/* The event that ends the step of a get: the next one, not counting events of kept entries, if it is the same entry's;
 * else the get itself. */
static int end_of(const build *b, int get) {
    const mm_order *o = b->order;
    int next = get + 1;
    while (next < o->n_events && b->out->tensor[o->events[next].entry] < 0 && o->events[next].kind != MM_ORDER_PUT)
        next++;
    if (next == o->n_events || o->events[next].entry != o->events[get].entry) return get;
    return next;
}

static mm_status add_event(build *b, const bool *kept, int event) {
    const mm_order_event *e = &b->order->events[event];
    mm_stash_graph *out = b->out;
    const bool backward = event >= b->first_backward;
    if (kept[e->entry] || out->begins[event] == -2) { /* kept by the caller, or part of the step that a get has begun */
        out->begins[event] = -1;
        return MM_OK;
    }
    out->begins[event] = b->n_steps;
    if (e->kind == MM_ORDER_PUT) {
        MM_TRY(add_entry(b, e->entry, backward));
        MM_TRY(add_step(b, e->entry, b->layer[e->entry], MM_FORWARD, MM_WRITE));
        out->ends[event] = out->begins[event];
        return MM_OK;
    }
    MM_TRY(add_reader(b, e->entry, backward));
    const int end = e->kind == MM_ORDER_GET ? end_of(b, event) : event;
    out->ends[end] = out->begins[event];
    out->step_holds[out->begins[event]] = e->kind == MM_ORDER_GET && end == event;
    if (end != event) out->begins[end] = -2;
    return MM_OK;
}

static mm_status reserve(build *b, const bool *kept) {
    const mm_order *o = b->order;
    const size_t entries = (size_t)o->n_entries + 1, events = (size_t)o->n_events + 1;
    mm_stash_graph *out = b->out;
    out->tensor = malloc(entries * sizeof *out->tensor);
    out->begins = malloc(events * sizeof *out->begins);
    out->ends = malloc(events * sizeof *out->ends);
    out->step_entry = malloc(events * sizeof *out->step_entry);
    out->step_holds = calloc(events, sizeof *out->step_holds);
    b->layer = malloc(entries * sizeof *b->layer);
    b->readers = calloc(entries, sizeof *b->readers);
    if (!out->tensor || !out->begins || !out->ends || !out->step_entry || !out->step_holds || !b->layer || !b->readers)
        return mm_fail(MM_ERR_NOMEM, "out of memory for an order of %d entries", o->n_entries);
    for (int i = 0; i < o->n_entries; i++) out->tensor[i] = -1;
    for (int i = 0; i < o->n_events; i++) out->begins[i] = out->ends[i] = -1;
    out->by_turns = find_backward(b, kept) > 0;
    return MM_OK;
}

mm_status mm_stash_graph_init(const mm_order *order, const bool *kept, uint32_t exact, mm_stash_graph *graph_out) {
    *graph_out = (mm_stash_graph){0};
    build b = {.order = order, .exact = exact, .out = graph_out};
    mm_status status = reserve(&b, kept);
    if (status == MM_OK) status = mm_graph_create("stash", &graph_out->graph);
    for (int i = 0; status == MM_OK && i < order->n_events; i++) status = add_event(&b, kept, i);
    free(b.layer);
    free(b.readers);
    MM_TRY(status);
    if (b.n_steps > 0) return mm_graph_freeze(graph_out->graph);
    mm_graph_destroy(graph_out->graph);
    graph_out->graph = NULL;
    return MM_OK;
}

void mm_stash_graph_fini(mm_stash_graph *g) {
    mm_graph_destroy(g->graph);
    free(g->tensor);
    free(g->begins);
    free(g->ends);
    free(g->step_entry);
    free(g->step_holds);
    *g = (mm_stash_graph){0};
}
