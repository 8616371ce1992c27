/* SPDX-License-Identifier: MIT */
#include "mm/core/account/account_stash.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"

const char *mm_remedy_kind_name(mm_remedy_kind kind) {
    static const char *const names[] = {"keep", "mask", "compress", "recompute", "swap", "compress-swap"};
    return (unsigned)kind < MM_REMEDY_KINDS ? names[kind] : "unknown";
}

/* A storage, indexed by its root tensor. */
typedef struct storage {
    bool stashed;
    int value_reads, sign_reads; /* numbers of reads in the backward pass */
    int map;                     /* index in the stash; -1: not stashed */
    /* Recomputing the storage: */
    bool again;           /* whether it is possible */
    uint32_t layer_kinds; /* the kinds of layers that run again */
    int64_t kept_bytes;   /* bytes of storages that would have to be kept so that this one can be recomputed */
    int64_t ns;           /* time of the layers that run again */
} storage;

typedef struct accountant {
    const mm_plan *plan;
    const mm_graph *graph;
    const mm_graph_facts *facts;
    storage *storages;
    mm_stash_account *stash;
} accountant;

static bool in_backward(const mm_step_info *step, const mm_use *use) {
    return step->phase == MM_BACKWARD && use->access != MM_WRITE;
}

/* ---------------------------------------------------------------- which maps, and who reads them */

static void count_reads(accountant *a) {
    for (int i = 0; i < mm_graph_steps(a->graph); i++) {
        const mm_step_info *step = mm_graph_step(a->graph, i);
        for (int u = 0; u < step->n_uses; u++) {
            storage *s = &a->storages[mm_plan_root(a->plan, step->uses[u].tensor)];
            if (!in_backward(step, &step->uses[u])) continue;
            *(step->uses[u].form == MM_FORM_SIGN ? &s->sign_reads : &s->value_reads) += 1;
        }
    }
}

/* A loss may write its weight's gradient in its forward step, to which another layer then adds: this is no map. */
static bool is_stashed(const accountant *a, mm_tensor root) {
    const mm_tensor_info *tensor = mm_graph_tensor(a->graph, root);
    const storage *s = &a->storages[root];
    return tensor->ownership == MM_MANAGED && mm_plan_root(a->plan, root) == root && tensor->last_forward >= 0 &&
           tensor->kind != MM_GRADIENT_MAP && tensor->kind != MM_WEIGHT_GRADIENT && s->value_reads + s->sign_reads > 0;
}

static mm_status find_maps(accountant *a) {
    size_t n = (size_t)mm_graph_tensors(a->graph), reads = 0;
    for (size_t t = 0; t < n; t++) {
        a->storages[t].stashed = is_stashed(a, (mm_tensor)t);
        a->storages[t].map = -1;
        if (!a->storages[t].stashed) continue;
        a->storages[t].map = a->stash->n_maps++;
        reads += (size_t)(a->storages[t].value_reads + a->storages[t].sign_reads);
    }
    a->stash->maps = calloc((size_t)a->stash->n_maps + 1, sizeof *a->stash->maps);
    a->stash->readers = malloc((reads + 1) * sizeof *a->stash->readers);
    const size_t most = 3 + 2 * (size_t)a->facts->n_codecs; /* KEEP, RECOMPUTE, SWAP; MASK, or two per codec */
    a->stash->remedies = malloc(((size_t)a->stash->n_maps * most + 1) * sizeof *a->stash->remedies);
    if (!a->stash->maps || !a->stash->readers || !a->stash->remedies)
        return mm_fail(MM_ERR_NOMEM, "out of memory for the accounts of %d maps", a->stash->n_maps);
    mm_stash_reader *next = a->stash->readers;
    for (size_t t = 0; t < n; t++) {
        const storage *s = &a->storages[t];
        if (!s->stashed) continue;
        a->stash->maps[s->map] = (mm_stash_map){.tensor = (mm_tensor)t,
                                                .bytes = mm_graph_tensor(a->graph, (mm_tensor)t)->bytes,
                                                .readers = next,
                                                .remedies = &a->stash->remedies[(size_t)s->map * most]};
        next += s->value_reads + s->sign_reads;
    }
    return MM_OK;
}

static void list_readers(accountant *a) {
    for (int i = 0; i < mm_graph_steps(a->graph); i++) {
        const mm_step_info *step = mm_graph_step(a->graph, i);
        for (int u = 0; u < step->n_uses; u++) {
            int index = a->storages[mm_plan_root(a->plan, step->uses[u].tensor)].map;
            if (index < 0 || !in_backward(step, &step->uses[u])) continue;
            mm_stash_map *map = &a->stash->maps[index];
            a->stash->readers[(map->readers - a->stash->readers) + map->n_readers++] =
                (mm_stash_reader){i, step->uses[u].form};
        }
    }
}

/* Sums up held_bytes as of the end of the forward pass. At any later node, some maps may be decoded already. */
static void find_held(accountant *a) {
    const mm_plan *plan = a->plan;
    int last_forward, first_backward;
    mm_plan_turning_point(plan, &last_forward, &first_backward);
    for (int i = 0; i < plan->n_segments; i++) {
        const mm_segment *s = &plan->segments[i];
        int map = s->tensor >= 0 ? a->storages[mm_plan_root(plan, s->tensor)].map : -1;
        if (map >= 0 && s->memory == MM_MEM_DEVICE && s->first_node >= 0 && s->first_node <= last_forward &&
            s->live_last > last_forward)
            a->stash->maps[map].held_bytes += s->bytes;
    }
}

/* ---------------------------------------------------------------- recomputation */

/* Finds what recomputing `output` by its forward step takes. Each input either waits for the backward pass anyway, or
 * is recomputed, too, or must be kept so that `output` can be recomputed. */
static void consider_step(accountant *a, const mm_step_info *step, mm_tensor output) {
    const mm_layer_info *layer = mm_graph_layer(a->graph, step->layer);
    storage made = {.again = layer->properties.repeatable,
                    .layer_kinds = 1u << layer->kind,
                    .ns = a->facts->variants[a->facts->variant_first[layer->step[MM_FORWARD]]].ns};
    for (int u = 0; u < step->n_uses && made.again; u++) {
        mm_tensor input = mm_plan_root(a->plan, step->uses[u].tensor);
        const mm_tensor_info *tensor = mm_graph_tensor(a->graph, input);
        const storage *s = &a->storages[input];
        if (step->uses[u].access == MM_WRITE || tensor->ownership != MM_MANAGED) continue;
        if (step->uses[u].access == MM_MODIFY) made.again = false;
        if (s->stashed && s->value_reads > 0) continue;
        if (s->again && s->kept_bytes < tensor->bytes) {
            made.layer_kinds |= s->layer_kinds;
            made.kept_bytes += s->kept_bytes;
            made.ns += s->ns;
        } else
            made.kept_bytes += tensor->bytes;
    }
    storage *out = &a->storages[output];
    made.again &= mm_graph_tensor(a->graph, output)->writes == 1;
    out->again = made.again;
    out->layer_kinds = made.layer_kinds;
    out->kept_bytes = made.kept_bytes;
    out->ns = made.ns;
}

static void find_recomputable(accountant *a) {
    for (int i = 0; i < mm_graph_steps(a->graph); i++) {
        const mm_step_info *step = mm_graph_step(a->graph, i);
        for (int u = 0; step->phase == MM_FORWARD && u < step->n_uses; u++)
            if (step->uses[u].access == MM_WRITE && mm_plan_root(a->plan, step->uses[u].tensor) == step->uses[u].tensor)
                consider_step(a, step, step->uses[u].tensor);
    }
}

/* ---------------------------------------------------------------- remedies */

/* Adds a remedy without codecs. */
static mm_remedy *add_remedy(mm_stash_map *map, mm_remedy_kind kind, int64_t bytes_left, int64_t ns) {
    mm_remedy *remedy = &map->remedies[map->n_remedies++];
    *remedy = (mm_remedy){.kind = kind, .codec = -1, .sign_codec = -1, .bytes_left = bytes_left, .ns = ns};
    return remedy;
}

/* Time to copy bytes to host memory and back; 0: not known. */
static int64_t link_ns(const mm_graph_facts *facts, int64_t bytes) {
    const double out = (double)facts->out_bytes_per_s, in = (double)facts->in_bytes_per_s;
    if (!(out > 0 && in > 0)) return 0;
    return 2 * facts->issue_ns + (int64_t)((double)bytes / out * 1e9 + (double)bytes / in * 1e9);
}

/* The codec of the smallest code that serves readers of the sign; -1: none does. */
static int sign_codec(const mm_graph_facts *facts, mm_tensor tensor) {
    int best = -1;
    for (int c = 0; c < facts->n_codecs; c++) {
        int64_t bytes = mm_facts_code(facts, c, tensor)->code_bytes;
        if (!facts->codecs[c].gives_sign || bytes < 0) continue;
        if (best < 0 || bytes < mm_facts_code(facts, best, tensor)->code_bytes) best = c;
    }
    return best;
}

/* Adds remedies with each codec that gives the elements back and whose code is smaller than the map. If the codec is
 * lossy and the signs are read too, the exact signs take bytes in addition to its code. */
static void add_codes(const accountant *a, mm_stash_map *map, int sign) {
    for (int c = 0; c < a->facts->n_codecs; c++) {
        const mm_codec_facts *codec = &a->facts->codecs[c];
        const mm_code_facts *code = mm_facts_code(a->facts, c, map->tensor);
        const bool beside = a->storages[map->tensor].sign_reads > 0 && !codec->lossless;
        if (!mm_facts_gives_value(a->facts, a->graph, c, map->tensor) || (beside && sign < 0)) continue;
        const mm_code_facts *signs = beside ? mm_facts_code(a->facts, sign, map->tensor) : NULL;
        const int64_t beside_bytes = signs ? signs->code_bytes : 0;
        const int64_t bytes = code->code_bytes + code->body_reserve_bytes + beside_bytes;
        const int64_t ns = code->encode_ns + code->decode_ns + (signs ? signs->encode_ns : 0);
        if (bytes >= map->bytes) continue;
        const int64_t moved = link_ns(a->facts, code->code_bytes + code->body_typical_bytes);
        for (int swapped = 0; swapped < 2; swapped++) {
            mm_remedy *r = swapped ? add_remedy(map, MM_REMEDY_COMPRESS_SWAP, beside_bytes, ns + moved)
                                   : add_remedy(map, MM_REMEDY_COMPRESS, bytes, ns);
            r->codec = c;
            r->sign_codec = beside ? sign : -1;
        }
    }
}

static void add_mask(const accountant *a, mm_stash_map *map, int sign) {
    const mm_code_facts *code = mm_facts_code(a->facts, sign, map->tensor);
    add_remedy(map, MM_REMEDY_MASK, code->code_bytes, code->encode_ns)->codec = sign;
}

static void add_remedies(const accountant *a, mm_stash_map *map) {
    const storage *s = &a->storages[map->tensor];
    int sign = sign_codec(a->facts, map->tensor);
    add_remedy(map, MM_REMEDY_KEEP, map->bytes, 0);
    if (s->value_reads > 0)
        add_codes(a, map, sign);
    else if (sign >= 0)
        add_mask(a, map, sign);
    if (s->again && s->kept_bytes < map->bytes)
        add_remedy(map, MM_REMEDY_RECOMPUTE, s->kept_bytes, s->ns)->layer_kinds = s->layer_kinds;
    add_remedy(map, MM_REMEDY_SWAP, 0, link_ns(a->facts, map->bytes));
}

/* ---------------------------------------------------------------- whole */

static int larger_first(const void *a, const void *b) {
    const mm_stash_map *x = a, *y = b;
    if (x->bytes != y->bytes) return (x->bytes < y->bytes) - (x->bytes > y->bytes);
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

mm_status mm_stash_account_init(const mm_plan *plan, const mm_graph_facts *facts, mm_stash_account *stash_out) {
    mm_stash_account stash = {0};
    accountant a = {.plan = plan, .graph = plan->graph, .facts = facts, .stash = &stash};
    a.storages = calloc((size_t)mm_graph_tensors(plan->graph) + 1, sizeof *a.storages);
    if (!a.storages) return mm_fail(MM_ERR_NOMEM, "out of memory for the accounts of a stash");
    count_reads(&a);
    mm_status status = find_maps(&a);
    if (status == MM_OK) {
        list_readers(&a);
        find_held(&a);
        find_recomputable(&a);
        for (int i = 0; i < stash.n_maps; i++) add_remedies(&a, &stash.maps[i]);
        qsort(stash.maps, (size_t)stash.n_maps, sizeof *stash.maps, larger_first);
        *stash_out = stash;
    } else
        mm_stash_account_fini(&stash);
    free(a.storages);
    return status;
}

void mm_stash_account_fini(mm_stash_account *stash) {
    free(stash->maps);
    free(stash->readers);
    free(stash->remedies);
    memset(stash, 0, sizeof *stash);
}
