/* SPDX-License-Identifier: MIT */
#include "tests/core/random_plan.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"
#include "tests/core/plan_oracle.h"
#include "tests/core/random_graph.h"

/* What is done to a storage in its gap, the longest time between two uses of it. */
typedef enum action { KEEP, SWAP, LOSSLESS, LOSSY, MASK, RECOMPUTE, VARIABLE } action;

enum { POOLS = 2 };

typedef struct storage { /* of a root tensor */
    action action;
    bool mask;         /* a mask is made, too, for steps that read signs after the gap */
    bool travels;      /* its code goes to pinned memory and back */
    int before, after; /* the last step before the gap, the first after it */
    int raw;           /* segment that has the elements now; -1: none */
    int code;          /* segment of the code or copy made for the gap; -1: none */
    int sign;          /* segment of the mask, while its signs are the present ones; -1: none */
    int maker;         /* RECOMPUTE: the step that is run again */
    bool exact;        /* the elements come back bit for bit */
    bool dropped;      /* RECOMPUTE: the elements are gone, and to be made again */
    bool keeps_raw;    /* after the encode, `raw` stays allocated, for the step that writes next */
    int kept;          /* the segment that stays so, while its elements are the present ones; -1 */
    bool read;         /* `raw` was read since it was decoded */
    bool changes;      /* of a tensor that visits the device: its home is to get what was written */
} storage;

typedef struct planner {
    const mm_graph *graph;
    const mm_graph_facts *facts;
    const random_plan_options *options;
    mm_plan *plan;
    storage *storages; /* per tensor */
    int pools[POOLS];  /* their segments; -1: not made yet */
    int *variant;      /* per step: the variant that it must take, since it is run again; -1: any */
    uint64_t random;
} planner;

static bool chance(planner *p, int percent) { return random_chance(&p->random, percent); }

/* ---------------------------------------------------------------- aliases */

/* Whether any step from `from` on writes to a tensor of the storage, other than as an alias. */
static bool written_after(const planner *p, mm_tensor root, int from) {
    for (int s = from; s < mm_graph_steps(p->graph); s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor t = step->uses[u].tensor;
            bool shared = p->plan->alias[t] != t && step->uses[u].access == MM_WRITE;
            if (p->plan->alias[t] == root && step->uses[u].access != MM_READ && !shared) return true;
        }
    }
    return false;
}

static void choose_aliases(planner *p) {
    for (int s = 0; s < mm_graph_steps(p->graph); s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        for (int k = 0; k < step->n_pairs; k++) {
            mm_tensor output = step->pairs[k].output, root = p->plan->alias[step->pairs[k].input];
            if (!step->pairs[k].alias || p->plan->alias[output] != output || chance(p, 25)) continue;
            /* A storage with two names must not change. */
            p->plan->alias[output] = root;
            if (mm_graph_tensor(p->graph, output)->writes > 1 || written_after(p, root, s))
                p->plan->alias[output] = output;
        }
    }
}

/* ---------------------------------------------------------------- actions */

/* How a step uses a storage. */
typedef struct usage {
    bool any, elements, signs; /* read */
    bool changed;              /* written or modified */
} usage;

enum { RANDOM_MOST_USES = 64 }; /* of a step on the host */

static usage used_at(const planner *p, mm_tensor root, int s) {
    const mm_step_info *step = mm_graph_step(p->graph, s);
    usage result = {0};
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        if (p->plan->alias[use->tensor] != root) continue;
        bool shared = use->tensor != root && use->access == MM_WRITE;
        result.any = true;
        result.changed |= use->access != MM_READ && !shared;
        result.signs |= use->form == MM_FORM_SIGN;
        result.elements |= use->form == MM_FORM_VALUE && (use->access != MM_WRITE || shared);
    }
    return result;
}

/* The longest time that a storage lies unused; and how its value is used after that, until it changes. */
static usage find_gap(const planner *p, mm_tensor root, int *before_out, int *after_out) {
    int last = -1;
    usage later = {0};
    *before_out = *after_out = 0;
    for (int s = 0; s < mm_graph_steps(p->graph); s++) {
        if (!used_at(p, root, s).any) continue;
        if (last >= 0 && s - last > *after_out - *before_out) {
            *before_out = last;
            *after_out = s;
        }
        last = s;
    }
    for (int s = *after_out; s <= last && !later.changed; s++) {
        usage now = used_at(p, root, s);
        later.any |= now.any;
        later.elements |= now.elements;
        later.signs |= now.signs;
        later.changed |= now.changed;
    }
    return later;
}

/* Whether a step strictly between the two changes the storage. */
static bool changed_between(const planner *p, mm_tensor root, int from, int to) {
    for (int s = from + 1; s < to; s++)
        if (used_at(p, root, s).changed) return true;
    return false;
}

/* Whether a step from `from` up to `to` writes a tensor that is in no storage. */
static bool written_between(const planner *p, mm_tensor tensor, int from, int to) {
    for (int s = from; s < to; s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        for (int u = 0; u < step->n_uses; u++)
            if (step->uses[u].tensor == tensor && step->uses[u].access != MM_READ) return true;
    }
    return false;
}

/* Whether the tensor of a step's use stays as it is, or comes back (bit for bit if `exact`), until step `to`. */
static bool stays_for(const planner *p, const mm_use *use, int s, int to, bool exact) {
    mm_tensor root = p->plan->alias[use->tensor];
    const storage *st = &p->storages[root];
    if (mm_graph_tensor(p->graph, root)->ownership != MM_MANAGED) return !written_between(p, use->tensor, s, to);
    return st->action != MASK && (st->exact || !exact) && !changed_between(p, root, s, to);
}

/* Whether a step can be run again before step `to`. */
static bool runs_again(const planner *p, int s, int to, bool exact) {
    const mm_step_info *step = mm_graph_step(p->graph, s);
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        bool managed = mm_graph_tensor(p->graph, use->tensor)->ownership == MM_MANAGED;
        bool shared = use->access == MM_WRITE && p->plan->alias[use->tensor] != use->tensor;
        if (use->access == (managed ? MM_MODIFY : MM_WRITE) || shared) return false;
        if (use->access == MM_READ && !stays_for(p, use, s, to, exact)) return false;
    }
    return step->phase == MM_FORWARD;
}

/* A variant of the step that gives the same bits when it is run again; -1: it has none. */
static int deterministic_variant(const planner *p, int s) {
    int first = p->facts->variant_first[s];
    if (p->variant[s] >= 0) return p->variant[s];
    for (int v = first; v < p->facts->variant_first[s + 1]; v++)
        if (p->facts->variants[v].deterministic) return v - first;
    return -1;
}

/* Decides to recompute a tensor, if that is possible. Called for tensors in the order in which they are made, so that
 * the actions of those that its maker reads are final. */
static bool choose_recompute(planner *p, mm_tensor root, bool exact) {
    storage *st = &p->storages[root];
    st->maker = st->before;
    while (st->maker > 0 && !used_at(p, root, st->maker).changed) st->maker--;
    if (!used_at(p, root, st->maker).changed) return false;
    if (!mm_graph_step_properties(p->graph, st->maker)->repeatable) return false;
    if (!runs_again(p, st->maker, st->after, exact)) return false;
    if (exact && deterministic_variant(p, st->maker) < 0) return false;
    if (exact) p->variant[st->maker] = deterministic_variant(p, st->maker);
    st->action = RECOMPUTE;
    st->exact = exact;
    return true;
}

/* Replaces, by chance, another action that gives the same bits back by a code with a body. */
static void choose_variable(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    if (!p->options->pools || (st->action != SWAP && st->action != LOSSLESS) || chance(p, 40)) return;
    if (mm_facts_code(p->facts, RANDOM_VARIABLE, root)->code_bytes < 0) return;
    st->action = VARIABLE;
    st->travels = false;
}

/* Chooses for a persistent tensor, by chance, a copy that is made after a use of it and put back before the next. */
static void choose_trip(planner *p, mm_tensor tensor) {
    storage *st = &p->storages[tensor];
    st->raw = mm_graph_tensor(p->graph, tensor)->persistent;
    find_gap(p, tensor, &st->before, &st->after);
    if (st->after == st->before || !chance(p, 50)) return;
    st->action = chance(p, 60) ? SWAP : LOSSLESS;
    st->travels = chance(p, 50);
    choose_variable(p, tensor);
}

/* Whether the tensor is persistent and has its home in pinned memory. */
static bool visits(const planner *p, mm_tensor tensor) { return mm_plan_visits(p->plan, tensor); }

static void choose_action(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    *st = (storage){
        .action = KEEP, .raw = -1, .code = -1, .sign = -1, .kept = -1, .exact = true, .keeps_raw = chance(p, 40)};
    const mm_tensor_info *tensor = mm_graph_tensor(p->graph, root);
    if (tensor->persistent >= 0 && !visits(p, root)) choose_trip(p, root);
    if (tensor->ownership != MM_MANAGED || p->plan->alias[root] != root) return;
    usage later = find_gap(p, root, &st->before, &st->after);
    if (st->after - st->before < 2 || !(later.elements || later.signs)) return;
    bool floats = tensor->dtype == MM_F32, map = tensor->kind == MM_FEATURE_MAP || tensor->kind == MM_GRADIENT_MAP;
    st->mask = later.signs && chance(p, 50);
    if (later.elements && chance(p, 35) && choose_recompute(p, root, (later.signs && !st->mask) || chance(p, 70)))
        return;
    if (!later.elements && chance(p, 70))
        st->action = MASK;
    else if (later.elements && floats && map && p->options->lossy && chance(p, 50))
        st->action = LOSSY;
    else if (chance(p, 60))
        st->action = chance(p, 35) ? SWAP : LOSSLESS;
    st->exact = st->action != LOSSY;
    st->travels = chance(p, 40);
    choose_variable(p, root);
    st->mask = later.signs &&
               (st->action == MASK || st->action == LOSSY || (st->action >= SWAP && later.elements && chance(p, 50)));
}

/* ---------------------------------------------------------------- nodes */

static int add_segment(planner *p, mm_content content, mm_tensor tensor, int64_t bytes, int codec) {
    static const mm_category categories[] = {MM_CAT_FEATURE_MAP, MM_CAT_CODE, MM_CAT_WORKSPACE, MM_CAT_CODE};
    mm_category category = categories[content];
    if (content == MM_CONTENT_RAW && mm_graph_tensor(p->graph, tensor)->kind == MM_GRADIENT_MAP)
        category = MM_CAT_GRADIENT_MAP;
    if (content == MM_CONTENT_RAW && mm_graph_tensor(p->graph, tensor)->persistent >= 0) category = MM_CAT_VISIT;
    int segment = mm_plan_segment(p->plan, content, category, tensor, bytes);
    if (segment < 0) abort();
    p->plan->segments[segment].codec = codec;
    return segment;
}

static int add_raw(planner *p, mm_tensor root) {
    return add_segment(p, MM_CONTENT_RAW, root, mm_graph_tensor(p->graph, root)->bytes, -1);
}

static void add_work(planner *p, int node, int64_t bytes) {
    if (bytes == 0 && !chance(p, 5)) return;
    int segment = add_segment(p, MM_CONTENT_WORK, -1, bytes + 1 + random_below(&p->random, 100), -1);
    p->plan->nodes[node].work = segment;
}

static int latest_node(const planner *p, mm_stream_id stream) {
    for (int i = p->plan->n_nodes - 1; i >= 0; i--)
        if (p->plan->nodes[i].stream == stream) return i;
    return -1;
}

/* Adds waits that no data needs: the bytes that the awaited nodes use can then be used again sooner. */
static void add_idle_waits(planner *p, int node) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int latest = latest_node(p, s);
        if (latest >= 0 && latest != node && chance(p, 30)) mm_plan_wait(p->plan, node, latest);
    }
}

/* Adds an operation. One that touches a persistent tensor must wait for some step. */
static int add_node(planner *p, mm_node_kind kind, mm_tensor root, int src, int dst) {
    int node = mm_plan_op(p->plan, kind, root, src, dst);
    if (node < 0) abort();
    const int persistents = mm_graph_persistents(p->graph);
    if (src < persistents || (dst >= 0 && dst < persistents))
        mm_plan_wait(p->plan, node, chance(p, 50) ? latest_node(p, MM_STREAM_COMPUTE) : 0);
    return node;
}

static int add_op(planner *p, mm_node_kind kind, mm_tensor root, int src, int dst, int codec) {
    int node = add_node(p, kind, root, src, dst);
    add_work(p, node, mm_facts_code(p->facts, codec, root)->scratch_bytes);
    if (kind == MM_NODE_ENCODE && p->options->dynamic && codec != RANDOM_VARIABLE && chance(p, 30))
        p->plan->nodes[node].stage = add_segment(p, MM_CONTENT_WORK, -1, p->plan->segments[dst].bytes, -1);
    add_idle_waits(p, node);
    return node;
}

static int add_encode(planner *p, mm_tensor root, int codec) {
    int64_t bytes = mm_facts_code(p->facts, codec, root)->code_bytes;
    int code = add_segment(p, MM_CONTENT_CODED, root, bytes, codec);
    if (codec == RANDOM_VARIABLE) {
        int *pool = &p->pools[random_below(&p->random, POOLS)];
        if (*pool < 0) *pool = add_segment(p, MM_CONTENT_POOL, -1, 1, -1);
        p->plan->segments[code].pool = *pool;
    }
    add_op(p, MM_NODE_ENCODE, root, p->storages[root].raw, code, codec);
    return code;
}

/* The index of the step's use of that tensor; -1: it has none. */
static int use_of(const mm_step_info *step, mm_tensor tensor) {
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].tensor == tensor) return u;
    return -1;
}

/* Whether a step declares that it can read or write such a code by itself. */
static bool codes(const planner *p, const mm_step_info *step, int use, mm_access access, int codec, mm_tensor tensor) {
    if (use < 0 || mm_facts_code(p->facts, codec, tensor)->strip_elems == 0) return false;
    const char *spec = p->facts->codecs[codec].spec;
    for (int i = 0; i < step->n_codes; i++)
        if (step->codes[i].use == use && step->codes[i].access == access &&
            strncmp(spec, step->codes[i].codec, strlen(step->codes[i].codec)) == 0)
            return true;
    return false;
}

/* Makes room in a step's workspace for the codes that it reads and writes. */
static void fit_work(planner *p, int node) {
    const int64_t bytes = mm_node_work_bytes(p->plan, p->facts, &p->plan->nodes[node]);
    const int work = p->plan->nodes[node].work;
    if (work < 0)
        add_work(p, node, bytes);
    else if (p->plan->segments[work].bytes < bytes)
        p->plan->segments[work].bytes = bytes + random_below(&p->random, 100);
}

/* Adds a code of what the latest step has read or written. The step writes it, if it can and by chance; else a codec
 * does. Returns the code's segment. */
static int add_code(planner *p, mm_tensor root, int codec) {
    const int node = latest_node(p, MM_STREAM_COMPUTE);
    const mm_node *n = &p->plan->nodes[node];
    const mm_step_info *step = mm_graph_step(p->graph, n->step);
    const int use = use_of(step, root);
    if (n->kind != MM_NODE_STEP || !codes(p, step, use, MM_WRITE, codec, root) || mm_node_code(p->plan, n, use) >= 0 ||
        p->plan->segments[p->plan->bindings[n->first_binding + use]].content != MM_CONTENT_RAW || chance(p, 30))
        return add_encode(p, root, codec);
    const int code = add_segment(p, MM_CONTENT_CODED, root, mm_facts_code(p->facts, codec, root)->code_bytes, codec);
    if (!mm_plan_write_code(p->plan, node, use, code)) abort();
    fit_work(p, node);
    return code;
}

/* Where the elements of a tensor come back to. */
static int home_of(planner *p, mm_tensor root) {
    const int home = mm_graph_tensor(p->graph, root)->persistent;
    return home >= 0 ? home : add_raw(p, root);
}

/* Copies a segment over the link, or to the disk and back; returns the copy. */
static int add_move(planner *p, mm_node_kind kind, int src) {
    const mm_segment from = p->plan->segments[src];
    const bool home = kind == MM_NODE_IN && from.content == MM_CONTENT_RAW;
    int dst = home ? home_of(p, from.tensor) : add_segment(p, from.content, from.tensor, from.bytes, from.codec);
    const mm_memory memory = kind == MM_NODE_STORE ? MM_MEM_DISK : kind == MM_NODE_IN ? MM_MEM_DEVICE : MM_MEM_PINNED;
    if (!home) p->plan->segments[dst].memory = memory;
    add_idle_waits(p, add_node(p, kind, from.tensor, src, dst));
    return dst;
}

/* Copies a segment to pinned memory and, by chance, on to the disk; returns the copy. */
static int add_out(planner *p, int src) {
    const int there = add_move(p, MM_NODE_OUT, src);
    return p->options->disk && chance(p, 50) ? add_move(p, MM_NODE_STORE, there) : there;
}

/* Copies a segment back to the device, from wherever it is; returns the copy. */
static int add_in(planner *p, int src) {
    if (p->plan->segments[src].memory == MM_MEM_DISK) src = add_move(p, MM_NODE_LOAD, src);
    return p->plan->segments[src].memory == MM_MEM_PINNED ? add_move(p, MM_NODE_IN, src) : src;
}

static void put_away_sign(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    if (st->mask) st->sign = add_code(p, root, RANDOM_MASK);
    if (st->mask && st->travels) st->sign = add_out(p, st->sign);
}

static void put_away_after(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    bool mask_first = chance(p, 50);
    if (mask_first) put_away_sign(p, root);
    if (st->action == SWAP) st->code = st->raw;
    if (st->action == LOSSLESS || st->action == LOSSY)
        st->code = add_code(p, root, st->action == LOSSY ? RANDOM_LOSSY : RANDOM_LOSSLESS);
    if (st->action == VARIABLE) st->code = add_encode(p, root, RANDOM_VARIABLE);
    if (st->code >= 0 && (st->action == SWAP || st->travels)) st->code = add_out(p, st->code);
    if (!mask_first) put_away_sign(p, root);
    st->dropped = st->action == RECOMPUTE;
    st->kept = st->keeps_raw ? st->raw : -1;
    st->raw = -1;
    st->read = false;
}

static void recompute(planner *p, mm_tensor root);

/* Whether a code stands for the elements. */
static bool is_coded(const planner *p, mm_tensor root) {
    const int raw = p->storages[root].raw;
    return raw >= 0 && p->plan->segments[raw].content == MM_CONTENT_CODED;
}

static void decode(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    const int code = st->raw;
    st->raw = home_of(p, root);
    add_op(p, MM_NODE_DECODE, root, code, st->raw, p->plan->segments[code].codec);
}

static void fetch(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    int code = st->code;
    if (st->dropped) {
        recompute(p, root);
        return;
    }
    st->code = -1;
    code = add_in(p, code);
    st->raw = code;
    if (p->plan->segments[code].content == MM_CONTENT_RAW) return;
    const bool persists = mm_graph_tensor(p->graph, root)->persistent >= 0;
    if (persists || p->plan->segments[code].pool >= 0 || chance(p, 60)) decode(p, root);
}

/* Decodes the tensor of a step's use, unless the step can read the code; fetches the mask if it reads that. */
static void decode_for(planner *p, const mm_step_info *step, int u) {
    const mm_use *use = &step->uses[u];
    const mm_tensor root = p->plan->alias[use->tensor];
    storage *st = &p->storages[root];
    const bool signs = use->form == MM_FORM_SIGN && st->sign >= 0;
    if (signs) st->sign = add_in(p, st->sign);
    if (!is_coded(p, root) || signs) return;
    if (use->access == MM_WRITE && use->tensor == root) return;
    const int codec = p->plan->segments[st->raw].codec;
    const bool direct = use->access == MM_READ && use->form == MM_FORM_VALUE;
    if (!direct || !codes(p, step, u, MM_READ, codec, root)) decode(p, root);
}

static int bind(planner *p, const mm_use *use) {
    mm_tensor root = p->plan->alias[use->tensor];
    storage *st = &p->storages[root];
    if (visits(p, root)) return st->raw;
    if (mm_graph_tensor(p->graph, root)->ownership != MM_MANAGED) return mm_graph_tensor(p->graph, root)->persistent;
    if (use->form == MM_FORM_SIGN && st->sign >= 0) return st->sign;
    bool write = use->access == MM_WRITE && use->tensor == root, change = write || use->access == MM_MODIFY;
    if (write && is_coded(p, root)) st->raw = -1;
    if (change && st->kept >= 0 && (st->raw < 0 || st->read)) {
        st->raw = st->kept;
    } else if (write && (st->raw < 0 || chance(p, 50))) {
        st->raw = add_raw(p, root);
    }
    if (change) st->sign = st->kept = -1;
    st->read = true;
    return st->raw;
}

/* ---------------------------------------------------------------- tensors that visit the device */

/* The next step from `from` on that uses the tensor; the number of steps: none does. */
static int next_step(const planner *p, mm_tensor tensor, int from) {
    while (from < mm_graph_steps(p->graph) && !used_at(p, tensor, from).any) from++;
    return from;
}

/* Copies the tensor of a step's use from its home, through pinned memory if that is on the disk; or makes room for it,
 * unless it is there. */
static void begin_visit(planner *p, const mm_use *use) {
    storage *st = &p->storages[use->tensor];
    if (!visits(p, use->tensor) || st->raw >= 0) return;
    st->raw = add_raw(p, use->tensor);
    if (use->access == MM_WRITE) return;
    int from = mm_graph_tensor(p->graph, use->tensor)->persistent;
    if (p->plan->segments[from].memory == MM_MEM_DISK) from = add_move(p, MM_NODE_LOAD, from);
    add_idle_waits(p, add_node(p, MM_NODE_IN, use->tensor, from, st->raw));
}

static void begin_visits(planner *p, int s) {
    const mm_step_info *step = mm_graph_step(p->graph, s);
    for (int u = 0; u < step->n_uses; u++) begin_visit(p, &step->uses[u]);
}

/* Begins visits for steps that come later. */
static void begin_early(planner *p, int s) {
    for (mm_tensor t = 0; s > 0 && t < mm_graph_tensors(p->graph); t++) {
        const int next = next_step(p, t, s);
        if (!visits(p, t) || p->storages[t].raw >= 0 || next > s + 3 || next == mm_graph_steps(p->graph)) continue;
        const mm_step_info *step = mm_graph_step(p->graph, next);
        if (step->on_host) continue;
        for (int u = 0; u < step->n_uses; u++)
            if (step->uses[u].tensor == t && step->uses[u].access != MM_WRITE && chance(p, 30))
                begin_visit(p, &step->uses[u]);
    }
}

static void go_home(planner *p, mm_tensor tensor) {
    storage *st = &p->storages[tensor];
    const int home = mm_graph_tensor(p->graph, tensor)->persistent;
    const bool through = st->changes && p->plan->segments[home].memory == MM_MEM_DISK;
    if (through)
        add_idle_waits(p, add_node(p, MM_NODE_STORE, tensor, add_move(p, MM_NODE_OUT, st->raw), home));
    else if (st->changes)
        add_idle_waits(p, add_node(p, MM_NODE_OUT, tensor, st->raw, home));
    st->changes = false;
    st->raw = -1;
}

/* Ends the visit of a tensor after step `s` by chance, and if no later step uses the tensor. */
static void end_visit(planner *p, mm_tensor tensor, int s, bool changed) {
    if (!visits(p, tensor)) return;
    p->storages[tensor].changes |= changed;
    if (next_step(p, tensor, s + 1) == mm_graph_steps(p->graph) || !chance(p, 40)) go_home(p, tensor);
}

/* The segment that a step which is run again writes to: a new one, or one that still has the same elements. */
static int bind_again(planner *p, mm_tensor tensor, const storage *wanted) {
    const storage *st = &p->storages[tensor];
    bool there = st->action == KEEP && st->raw >= 0 && !changed_between(p, tensor, wanted->maker, wanted->after);
    return there && wanted->exact && chance(p, 40) ? st->raw : add_raw(p, tensor);
}

/* Makes a tensor again: fetches what its maker reads, and runs that step again. */
static void recompute(planner *p, mm_tensor root) {
    storage *st = &p->storages[root];
    const mm_step_info *step = mm_graph_step(p->graph, st->maker);
    st->dropped = false;
    for (int u = 0; u < step->n_uses; u++) {
        mm_tensor input = p->plan->alias[step->uses[u].tensor];
        bool sign = step->uses[u].form == MM_FORM_SIGN && p->storages[input].sign >= 0;
        bool managed = mm_graph_tensor(p->graph, input)->ownership == MM_MANAGED;
        if (managed && step->uses[u].access == MM_READ && !sign && p->storages[input].raw < 0) fetch(p, input);
        if (step->uses[u].access == MM_READ) decode_for(p, step, u);
    }
    begin_visits(p, st->maker);
    int node = mm_plan_recompute(p->plan, st->maker);
    if (node < 0) abort();
    int first = p->facts->variant_first[st->maker], variants = p->facts->variant_first[st->maker + 1] - first;
    int variant = st->exact ? p->variant[st->maker] : random_below(&p->random, variants);
    p->plan->nodes[node].variant = variant;
    add_work(p, node, p->facts->variants[first + variant].workspace_bytes);
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        int32_t binding = mm_graph_tensor(p->graph, use->tensor)->persistent;
        if (use->access == MM_READ || visits(p, use->tensor))
            binding = bind(p, use);
        else if (mm_graph_tensor(p->graph, use->tensor)->ownership == MM_MANAGED)
            binding = use->tensor == root ? (st->raw = add_raw(p, root)) : bind_again(p, use->tensor, st);
        p->plan->bindings[p->plan->nodes[node].first_binding + u] = binding;
    }
    fit_work(p, node);
    add_idle_waits(p, node);
}

/* Fetches what step `s` needs, and sometimes what a later one will. */
static void fetch_before(planner *p, int s, int ahead) {
    for (mm_tensor t = 0; t < mm_graph_tensors(p->graph); t++) {
        storage *st = &p->storages[t];
        if (st->after < s || st->after > s + ahead) continue;
        if (st->sign >= 0 && used_at(p, t, st->after).signs) st->sign = add_in(p, st->sign);
        if (st->code >= 0 || st->dropped) fetch(p, t);
    }
}

static void add_step(planner *p, int s) {
    const mm_step_info *step = mm_graph_step(p->graph, s);
    for (int u = 0; u < step->n_uses; u++) decode_for(p, step, u);
    int node = mm_plan_step(p->plan, s);
    if (node < 0) abort();
    int first = p->facts->variant_first[s], variants = p->facts->variant_first[s + 1] - first;
    p->plan->nodes[node].variant = p->variant[s] >= 0 ? p->variant[s] : random_below(&p->random, variants);
    add_work(p, node, p->facts->variants[first + p->plan->nodes[node].variant].workspace_bytes);
    for (int u = 0; u < step->n_uses; u++)
        p->plan->bindings[p->plan->nodes[node].first_binding + u] = bind(p, &step->uses[u]);
    fit_work(p, node);
    add_idle_waits(p, node);
}

/* Measures the tensor of a use, after the step, if its bits are those that were first computed. */
static void measure_after(planner *p, const mm_use *use) {
    const mm_tensor root = p->plan->alias[use->tensor];
    const storage *st = &p->storages[root];
    if (mm_graph_tensor(p->graph, root)->dtype != MM_F32 || st->raw < 0 || is_coded(p, root)) return;
    if (use->access == MM_READ && !st->exact) return;
    const int node = add_node(p, MM_NODE_MEASURE, root, st->raw, -1);
    mm_plan_wait(p->plan, node, latest_node(p, MM_STREAM_COMPUTE));
    add_idle_waits(p, node);
}

/* Where a step on the host uses a tensor: its home, or a copy of one on the disk, which the step then changes. */
static int32_t host_segment(planner *p, const mm_step_info *step, mm_tensor tensor, bool *stores_out) {
    const int home = mm_graph_tensor(p->graph, tensor)->persistent;
    bool reads = false, writes = false;
    for (int u = 0; u < step->n_uses; u++) {
        reads |= step->uses[u].tensor == tensor && step->uses[u].access != MM_WRITE;
        writes |= step->uses[u].tensor == tensor && step->uses[u].access != MM_READ;
    }
    *stores_out = writes && p->plan->segments[home].memory == MM_MEM_DISK;
    if (p->plan->segments[home].memory != MM_MEM_DISK) return home;
    if (reads) return add_move(p, MM_NODE_LOAD, home);
    const int there = add_raw(p, tensor);
    p->plan->segments[there].memory = MM_MEM_PINNED;
    return there;
}

/* Appends a step on the host, for which its tensors go home, or come from the disk. */
static void add_host_step(planner *p, int s) {
    const mm_step_info *step = mm_graph_step(p->graph, s);
    for (int u = 0; u < step->n_uses; u++)
        if (p->storages[step->uses[u].tensor].raw >= 0) go_home(p, step->uses[u].tensor);
    int32_t bound[RANDOM_MOST_USES];
    bool stores[RANDOM_MOST_USES];
    if (step->n_uses > RANDOM_MOST_USES) abort();
    for (int u = 0; u < step->n_uses; u++) {
        const int first = use_of(step, step->uses[u].tensor);
        bound[u] = first < u ? bound[first] : host_segment(p, step, step->uses[u].tensor, &stores[u]);
        if (first < u) stores[u] = false;
    }
    const int node = mm_plan_step(p->plan, s);
    if (node < 0) abort();
    p->plan->nodes[node].variant =
        random_below(&p->random, p->facts->variant_first[s + 1] - p->facts->variant_first[s]);
    mm_plan_wait(p->plan, node, chance(p, 50) ? latest_node(p, MM_STREAM_COMPUTE) : 0);
    for (int u = 0; u < step->n_uses; u++) p->plan->bindings[p->plan->nodes[node].first_binding + u] = bound[u];
    add_idle_waits(p, node);
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor tensor = step->uses[u].tensor;
        const int home = mm_graph_tensor(p->graph, tensor)->persistent;
        if (stores[u]) add_idle_waits(p, add_node(p, MM_NODE_STORE, tensor, bound[u], home));
    }
}

static void add_nodes(planner *p) {
    for (int s = 0; s < mm_graph_steps(p->graph); s++) {
        const mm_step_info *step = mm_graph_step(p->graph, s);
        if (step->on_host) {
            add_host_step(p, s);
            continue;
        }
        fetch_before(p, s, chance(p, 40) ? random_below(&p->random, 4) : 0);
        begin_visits(p, s);
        begin_early(p, s);
        add_step(p, s);
        for (int u = 0; p->options->measures && u < step->n_uses; u++)
            if (chance(p, 15)) measure_after(p, &step->uses[u]);
        for (int u = 0; u < step->n_uses; u++) {
            mm_tensor root = p->plan->alias[step->uses[u].tensor];
            const storage *st = &p->storages[root];
            if (st->action != KEEP && st->before == s && st->raw >= 0) put_away_after(p, root);
        }
        for (mm_tensor t = 0; t < mm_graph_tensors(p->graph); t++)
            if (visits(p, t) && used_at(p, t, s).any) end_visit(p, t, s, used_at(p, t, s).changed);
    }
}

/* Gives the pools just the bytes that their bodies need: in pinned memory, on the device, or there with a spill. */
static void size_pools(planner *p) {
    for (int i = 0; i < POOLS; i++) {
        const int pool = p->pools[i];
        int64_t needed = 0;
        if (pool < 0) continue;
        for (int s = 0; s < p->plan->n_segments; s++)
            if (p->plan->segments[s].pool == pool)
                needed +=
                    mm_align(mm_facts_code(p->facts, RANDOM_VARIABLE, p->plan->segments[s].tensor)->body_bound_bytes);
        if (needed == 0) abort(); /* every pool has a code */
        p->plan->segments[pool].bytes = needed;
        p->plan->segments[pool].memory = chance(p, 25) ? MM_MEM_PINNED : MM_MEM_DEVICE;
        if (p->plan->segments[pool].memory == MM_MEM_PINNED || chance(p, 35)) continue;
        p->plan->segments[pool].bytes = 1 + random_below(&p->random, (int)needed);
        const int64_t rest = needed + MM_CHUNK_BYTES - p->plan->segments[pool].bytes;
        const int spill = add_segment(p, MM_CONTENT_POOL, -1, rest, -1);
        p->plan->segments[spill].memory = MM_MEM_PINNED;
        p->plan->segments[pool].spill = spill;
    }
}

/* Adds the waits between nodes that use one segment; not of a pool, in which bodies lie apart. */
static void add_needed_waits(planner *p) {
    int n;
    access *list = plan_accesses(p->plan, &n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (list[i].segment == list[j].segment && (list[i].write || list[j].write) &&
                list[i].node != list[j].node && p->plan->segments[list[i].segment].content != MM_CONTENT_POOL)
                mm_plan_wait(p->plan, list[i].node, list[j].node);
    free(list);
}

mm_status random_plan_create(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                             const random_plan_options *options, mm_plan **plan_out) {
    planner p = {.graph = graph, .facts = facts, .options = options, .random = options->seed, .pools = {-1, -1}};
    MM_TRY(mm_plan_create(graph, limits, &p.plan));
    p.storages = calloc((size_t)mm_graph_tensors(graph) + 1, sizeof *p.storages);
    p.variant = calloc((size_t)mm_graph_steps(graph) + 1, sizeof *p.variant);
    if (!p.storages || !p.variant) abort();
    for (int step = 0; step < mm_graph_steps(graph); step++) p.variant[step] = -1;
    choose_aliases(&p);
    for (mm_tensor t = 0; t < mm_graph_tensors(graph); t++) choose_action(&p, t);
    add_nodes(&p);
    size_pools(&p);
    add_needed_waits(&p);
    mm_status status = random_place(p.plan, options, limits, &p.random);
    free(p.storages);
    free(p.variant);
    if (status == MM_OK)
        *plan_out = p.plan;
    else
        mm_plan_destroy(p.plan);
    return status;
}
