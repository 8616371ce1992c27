/* SPDX-License-Identifier: MIT */
/* Every small plan: mm_program_prove's verdict equals that of an enumeration of all executions.
 *
 * The plans have up to NODES nodes on three streams (compute, out, in) over two tensors. The first tensor is managed;
 * the second is managed, or persistent with its home on the device, or in pinned memory. Steps read, write or modify
 * either tensor, in one of two segments of it; copies go between these and one pinned segment of each tensor. Segments
 * of the device lie in one of two slots, those of pinned memory too. Waits are all that there can be.
 *
 * Symmetries are removed: segments and slots are numbered as they are first used, and the first tensor is used first
 * if both are managed. A plan that goes wrong in its order of issue is not continued: it goes wrong with any waits, so
 * one set of waits, all that there can be, is tried.
 *
 * An execution is an order of the starts and ends of the nodes (SPECIFICATION.md, part 2). Memory is slots that hold a
 * segment's value; a node that starts finds what it reads there, or goes wrong; so it does if it starts while another
 * node that uses the same slot runs, and one of the two writes there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/check/plan_rules.h"
#include "mm/core/plan/plan.h"
#include "mm/core/status.h"
#include "tests/core/deep.h"
#include "tests/core/plan_proof.h"
#include "tests/core/small_graph.h"
#include "tests/core/test_case.h"

enum {
    NODES = 5,
    TENSORS = 2,
    SLOT_BYTES = MM_ALIGN,
    PLACES = 4,   /* per tensor: two segments on the device, one in pinned memory, and a home */
    PINNED = 2,   /* the third place */
    HOME = 3,     /* the fourth */
    SLOTS = 6,    /* two on the device, two in pinned memory, and a home in either */
    NEVER = -100, /* a value that nobody reads */
};

typedef enum second { MANAGED, AT_HOME, PINNED_HOME, SECONDS } second;

/* A node. Steps: per tensor, the access (-1: none) and the place. Copies: the tensor, from and to a place. */
typedef struct shape {
    mm_node_kind kind;
    int access[TENSORS], place[TENSORS];
    int tensor, from, to;
} shape;

/* What a slot holds, in the order of issue or in an execution. */
typedef struct cell {
    int segment; /* tensor * PLACES + place; -1: nothing */
    int value;
} cell;

typedef struct skeleton {
    second second;
    int n;
    shape nodes[NODES];
    int slot[TENSORS * PLACES];   /* -1: not used yet */
    int expected[NODES][TENSORS]; /* the value that a step's read must find; a copy's: [0] */
    int written[NODES][TENSORS];  /* the value that it writes */
    /* The walk in the order of issue. */
    cell memory[SLOTS];
    int present[TENSORS], values;
    int steps;
    bool fresh[TENSORS * PLACES]; /* not used yet */
} skeleton;

typedef struct counts {
    int64_t skeletons, plans, right, wrong_in_order;
} counts;

static counts counted;
static int most_nodes;

/* ---------------------------------------------------------------- the plan itself */

static bool has_home(const skeleton *k, int tensor) { return tensor == 1 && k->second != MANAGED; }

static mm_graph *make_graph(const skeleton *k, mm_tensor tensors[TENSORS]) {
    mm_graph *graph;
    bool used[TENSORS] = {false};
    for (int i = 0; i < k->n; i++)
        for (int t = 0; t < TENSORS; t++) used[t] |= k->nodes[i].kind == MM_NODE_STEP && k->nodes[i].access[t] >= 0;
    assert_int_equal(mm_graph_create("tiny", &graph), MM_OK);
    for (int t = 0; t < TENSORS; t++) {
        tensors[t] = -1;
        if (used[t])
            tensors[t] = small_tensor(graph, t ? "b" : "a", has_home(k, t) ? MM_STATE : MM_FEATURE_MAP,
                                      has_home(k, t) ? MM_PERSISTENT : MM_MANAGED, SLOT_BYTES);
    }
    for (int i = 0; i < k->n; i++) {
        const shape *node = &k->nodes[i];
        if (node->kind != MM_NODE_STEP) continue;
        mm_use uses[TENSORS];
        size_t n = 0;
        char name[16];
        for (int t = 0; t < TENSORS; t++)
            if (node->access[t] >= 0) uses[n++] = (mm_use){tensors[t], (mm_access)node->access[t], MM_FORM_VALUE};
        snprintf(name, sizeof name, "step%d", i);
        small_step(graph, small_layer(graph, name, MM_LAYER_OTHER), MM_FORWARD, uses, n, 0);
    }
    if (mm_graph_freeze(graph) == MM_OK) return graph;
    mm_graph_destroy(graph);
    return NULL;
}

static int add_segment(mm_plan *plan, const skeleton *k, mm_tensor tensor, int which) {
    const int place = which % PLACES;
    const int segment = mm_plan_segment(plan, MM_CONTENT_RAW, MM_CAT_FEATURE_MAP, tensor, SLOT_BYTES);
    assert_true(segment >= 0);
    plan->segments[segment].memory = place == PINNED ? MM_MEM_PINNED : MM_MEM_DEVICE;
    /* Slots 0 and 1 of either memory lie above its base, which a home takes. */
    plan->segments[segment].offset = (k->slot[which] % 2 + 1) * SLOT_BYTES;
    return segment;
}

/* Makes the plan, without waits. */
static mm_plan *make_plan(const skeleton *k, const mm_graph *graph, const mm_tensor *tensors, const mm_limits *limits) {
    mm_plan *plan;
    int segments[TENSORS * PLACES];
    assert_int_equal(mm_plan_create(graph, limits, &plan), MM_OK);
    for (int i = 0; i < TENSORS * PLACES; i++) {
        const int tensor = i / PLACES;
        segments[i] = -1;
        if (i % PLACES == HOME)
            segments[i] = 0;
        else if (k->slot[i] >= 0)
            segments[i] = add_segment(plan, k, tensors[tensor], i);
    }
    for (int i = 0, step = 0; i < k->n; i++) {
        const shape *s = &k->nodes[i];
        if (s->kind != MM_NODE_STEP) {
            mm_plan_op(plan, s->kind, tensors[s->tensor], segments[s->tensor * PLACES + s->from],
                       segments[s->tensor * PLACES + s->to]);
            continue;
        }
        const int node = mm_plan_step(plan, step++);
        for (int t = 0, use = 0; t < TENSORS; t++)
            if (s->access[t] >= 0)
                plan->bindings[plan->nodes[node].first_binding + use++] = segments[t * PLACES + s->place[t]];
    }
    return plan;
}

/* ---------------------------------------------------------------- all executions of a plan */

typedef struct run {
    const skeleton *k;
    const mm_plan *plan;
    int started[MM_STREAM_COUNT], ended[MM_STREAM_COUNT]; /* number of nodes of each stream */
    int node_at[MM_STREAM_COUNT][NODES];
    cell memory[SLOTS];
} run;

/* The slots that a node reads and writes, as bits. */
static void slots_of(const skeleton *k, const shape *s, int *reads, int *writes) {
    *reads = *writes = 0;
    for (int t = 0; t < TENSORS; t++) {
        if (s->kind != MM_NODE_STEP || s->access[t] < 0) continue;
        const int slot = k->slot[t * PLACES + s->place[t]];
        if (s->access[t] != MM_WRITE) *reads |= 1 << slot;
        if (s->access[t] != MM_READ) *writes |= 1 << slot;
    }
    if (s->kind == MM_NODE_STEP) return;
    *reads = 1 << k->slot[s->tensor * PLACES + s->from];
    *writes = 1 << k->slot[s->tensor * PLACES + s->to];
}

/* Whether the node finds what it must read. */
static bool reads_right(const run *r, int node) {
    const skeleton *k = r->k;
    const shape *s = &k->nodes[node];
    for (int t = 0; s->kind == MM_NODE_STEP && t < TENSORS; t++) {
        const int segment = t * PLACES + s->place[t];
        if (s->access[t] < 0 || s->access[t] == MM_WRITE) continue;
        const cell *found = &r->memory[k->slot[segment]];
        if (found->segment != segment || found->value != k->expected[node][t]) return false;
    }
    if (s->kind == MM_NODE_STEP) return true;
    const int from = s->tensor * PLACES + s->from;
    return r->memory[k->slot[from]].segment == from && r->memory[k->slot[from]].value == k->expected[node][0];
}

static void write_all(run *r, int node) {
    const skeleton *k = r->k;
    const shape *s = &k->nodes[node];
    for (int t = 0; s->kind == MM_NODE_STEP && t < TENSORS; t++) {
        const int segment = t * PLACES + s->place[t];
        if (s->access[t] >= 0 && s->access[t] != MM_READ)
            r->memory[k->slot[segment]] = (cell){segment, k->written[node][t]};
    }
    if (s->kind == MM_NODE_STEP) return;
    const int to = s->tensor * PLACES + s->to;
    r->memory[k->slot[to]] = (cell){to, k->written[node][0]};
}

static bool may_start(const run *r, int stream) {
    if (r->started[stream] != r->ended[stream] || r->started[stream] == r->plan->stream_nodes[stream]) return false;
    const mm_node *n = &r->plan->nodes[r->node_at[stream][r->started[stream]]];
    for (int s = 0; s < MM_STREAM_COUNT; s++)
        if (n->wait[s] >= r->ended[s]) return false;
    return true;
}

/* Whether the node may start now and nothing goes wrong: no running node touches what it touches, and it finds what it
 * reads; the iteration before has ended if it uses a home. */
static bool starts_right(const run *r, int node) {
    const shape *s = &r->k->nodes[node];
    int reads, writes, others_read, others_write;
    slots_of(r->k, s, &reads, &writes);
    for (int t = 0; t < MM_STREAM_COUNT; t++) {
        if (r->started[t] == r->ended[t]) continue;
        slots_of(r->k, &r->k->nodes[r->node_at[t][r->ended[t]]], &others_read, &others_write);
        if ((writes & (others_read | others_write)) || (reads & others_write)) return false;
    }
    if (s->kind != MM_NODE_STEP && (s->from == HOME || s->to == HOME) && r->started[MM_STREAM_COMPUTE] == 0)
        return false;
    return reads_right(r, node);
}

/* Whether no execution that continues this one goes wrong. */
static bool all_right(const run *r) {
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        run next = *r;
        if (r->started[s] > r->ended[s]) {
            write_all(&next, r->node_at[s][r->ended[s]]);
            next.ended[s]++;
        } else if (may_start(r, s)) {
            if (!starts_right(r, r->node_at[s][r->started[s]])) return false;
            next.started[s]++;
        } else
            continue;
        if (!all_right(&next)) return false;
    }
    return true;
}

static bool runs_right(const skeleton *k, const mm_plan *plan) {
    run r = {.k = k, .plan = plan};
    for (int i = 0; i < plan->n_nodes; i++) r.node_at[plan->nodes[i].stream][plan->nodes[i].seq] = i;
    for (int i = 0; i < SLOTS; i++) r.memory[i] = (cell){-1, NEVER};
    if (k->second != MANAGED) r.memory[k->slot[PLACES + HOME]] = (cell){PLACES + HOME, 0};
    return all_right(&r);
}

/* ---------------------------------------------------------------- what a right plan must be besides */

static bool touches(const shape *s, int segment, bool *reads) {
    const int t = segment / PLACES, place = segment % PLACES;
    *reads = false;
    if (s->kind == MM_NODE_STEP) {
        *reads = s->access[t] == MM_READ || s->access[t] == MM_MODIFY;
        return s->access[t] >= 0 && s->place[t] == place;
    }
    *reads = s->tensor == t && s->from == place;
    return s->tensor == t && (s->from == place || s->to == place);
}

/* Whether each copy's result is used before it is overwritten (a home's: at the latest by the next iteration), and the
 * home holds its tensor's present value at the end. */
static bool is_tidy(const skeleton *k) {
    for (int i = 0; i < k->n; i++) {
        if (k->nodes[i].kind == MM_NODE_STEP) continue;
        const int to = k->nodes[i].tensor * PLACES + k->nodes[i].to;
        bool reads = false, touched = false;
        for (int j = i + 1; j < k->n && !touched; j++) touched = touches(&k->nodes[j], to, &reads);
        if (touched ? !reads : k->nodes[i].to != HOME) return false;
    }
    if (k->second == MANAGED) return true;
    return k->memory[k->slot[PLACES + HOME]].value == k->present[1];
}

/* ---------------------------------------------------------------- all waits */

static void compare(const skeleton *k, const mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits,
                    bool tidy) {
    const bool right = tidy && runs_right(k, plan);
    const mm_status status = plan_check(plan, facts, limits);
    counted.plans++;
    counted.right += right;
    if (right == (status == MM_OK)) return;
    for (int i = 0; i < k->n; i++) {
        const shape *s = &k->nodes[i];
        const mm_node *n = &plan->nodes[i];
        print_message("%s a%d@%d b%d@%d, t%d %d>%d, waits %d %d %d\n", mm_node_kind_name(s->kind), s->access[0],
                      s->place[0], s->access[1], s->place[1], s->tensor, s->from, s->to, n->wait[MM_STREAM_COMPUTE],
                      n->wait[MM_STREAM_OUT], n->wait[MM_STREAM_IN]);
    }
    fail_msg("executions say %s, the check says: %s", right ? "right" : "wrong",
             status == MM_OK ? "right" : mm_last_error());
}

/* Tries all waits of the nodes from `node` on. */
static void try_waits(const skeleton *k, mm_plan *plan, const mm_graph_facts *facts, const mm_limits *limits, bool tidy,
                      int node, int stream, const int issued[MM_STREAM_COUNT]) {
    if (node == k->n) {
        compare(k, plan, facts, limits, tidy);
        return;
    }
    mm_node *n = &plan->nodes[node];
    if (stream == MM_STREAM_COUNT) {
        int next[MM_STREAM_COUNT];
        memcpy(next, issued, sizeof next);
        next[n->stream]++;
        try_waits(k, plan, facts, limits, tidy, node + 1, 0, next);
        return;
    }
    const int most = stream == (int)n->stream ? -1 : issued[stream] - 1;
    for (n->wait[stream] = -1; n->wait[stream] <= most; n->wait[stream]++)
        try_waits(k, plan, facts, limits, tidy, node, stream + 1, issued);
    n->wait[stream] = -1;
}

static void wait_for_all(mm_plan *plan) {
    int issued[MM_STREAM_COUNT] = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        mm_node *n = &plan->nodes[i];
        for (int s = 0; s < MM_STREAM_COUNT; s++) n->wait[s] = s == (int)n->stream ? -1 : issued[s] - 1;
        issued[n->stream]++;
    }
}

/* right: in the order of issue, all goes well. */
static void judge(const skeleton *k, bool right) {
    mm_tensor tensors[TENSORS];
    mm_graph_facts *facts;
    mm_graph *graph = make_graph(k, tensors);
    const int home = has_home(k, 1) && graph && tensors[1] >= 0;
    const mm_place place = {.memory = k->second == PINNED_HOME ? MM_MEM_PINNED : MM_MEM_DEVICE};
    const mm_limits limits = {.device_bytes = INT64_MAX,
                              .pinned_bytes = INT64_MAX,
                              .base_bytes = SLOT_BYTES,
                              .pinned_base_bytes = SLOT_BYTES,
                              .places = home ? &place : NULL};
    bool copies_unknown = false;
    for (int i = 0; i < k->n; i++)
        copies_unknown |= k->nodes[i].kind != MM_NODE_STEP && tensors[k->nodes[i].tensor] < 0;
    if (!graph || copies_unknown) {
        mm_graph_destroy(graph);
        return; /* a copy of a tensor that no step uses: no such graph */
    }
    counted.skeletons++;
    assert_int_equal(mm_graph_facts_create(graph, 0, &facts), MM_OK);
    mm_plan *plan = make_plan(k, graph, tensors, &limits);
    assert_int_equal(mm_plan_finish(plan), MM_OK);
    if (right)
        try_waits(k, plan, facts, &limits, is_tidy(k), 0, 0, (const int[MM_STREAM_COUNT]){0});
    else {
        counted.wrong_in_order++;
        wait_for_all(plan);
        if (plan_check(plan, facts, &limits) == MM_OK) fail_msg("wrong in the order of issue, but accepted");
    }
    mm_plan_destroy(plan);
    mm_graph_facts_destroy(facts);
    mm_graph_destroy(graph);
}

/* ---------------------------------------------------------------- all nodes */

/* Reads a segment in the order of issue. False: it does not hold its tensor's value. */
static bool read_in_order(const skeleton *k, int segment, int *value) {
    const cell *c = &k->memory[k->slot[segment]];
    *value = c->value;
    return c->segment == segment;
}

static void extend(const skeleton *k);

/* Adds the node in the order of issue, and goes on. All its segments have slots. */
static void take(const skeleton *before, const shape *s) {
    skeleton k = *before;
    bool right = true;
    const int node = k.n++;
    k.nodes[node] = *s;
    if (s->kind == MM_NODE_STEP) {
        k.steps++;
        for (int t = 0; t < TENSORS; t++) {
            const int segment = t * PLACES + s->place[t];
            if (s->access[t] < 0 || s->access[t] == MM_WRITE) continue;
            right = read_in_order(&k, segment, &k.expected[node][t]) && k.expected[node][t] == k.present[t] && right;
        }
        for (int t = 0; t < TENSORS; t++) {
            const int segment = t * PLACES + s->place[t];
            if (s->access[t] < 0) continue;
            /* A segment that lost its bytes does not get them back: the check refuses that, too (rule 8.1). */
            right = right && (k.fresh[segment] || k.memory[k.slot[segment]].segment == segment);
            /* What another step of the same node wrote into the slot, or reads there, is lost. */
            for (int u = 0; u < t; u++)
                if (s->access[u] >= 0 && k.slot[u * PLACES + s->place[u]] == k.slot[segment]) right = false;
            k.fresh[segment] = false;
            if (s->access[t] == MM_READ) continue;
            k.written[node][t] = k.present[t] = k.values++;
            k.memory[k.slot[segment]] = (cell){segment, k.present[t]};
        }
    } else {
        const int from = s->tensor * PLACES + s->from, to = s->tensor * PLACES + s->to;
        right = read_in_order(&k, from, &k.expected[node][0]) && (k.fresh[to] || s->to == HOME) &&
                k.slot[from] != k.slot[to];
        k.fresh[from] = k.fresh[to] = false;
        k.written[node][0] = k.expected[node][0];
        k.memory[k.slot[to]] = (cell){to, k.written[node][0]};
    }
    if (k.steps > 0) judge(&k, right);
    if (right) extend(&k);
}

/* Gives each segment that the node is the first to use a slot, in all ways, and then adds the node. */
static void give_slots(const skeleton *k, const shape *s, const int *segments, int n) {
    if (n == 0) {
        take(k, s);
        return;
    }
    if (k->slot[segments[0]] >= 0) {
        give_slots(k, s, segments + 1, n - 1);
        return;
    }
    const int first = segments[0] % PLACES == PINNED ? 2 : 0;
    bool others = false;
    for (int i = 0; i < TENSORS * PLACES; i++)
        others |= i % PLACES != HOME && k->slot[i] >= first && k->slot[i] < first + 2;
    for (int slot = first; slot < first + (others ? 2 : 1); slot++) {
        skeleton next = *k;
        next.slot[segments[0]] = slot;
        give_slots(&next, s, segments + 1, n - 1);
    }
}

/* Whether a node may name this segment now: the second of a tensor comes after the first. */
static bool is_next(const skeleton *k, int tensor, int place) { return place != 1 || k->slot[tensor * PLACES] >= 0; }

static void try_step(const skeleton *k, const int access[TENSORS], const int place[TENSORS]) {
    shape s = {.kind = MM_NODE_STEP, .tensor = -1};
    int segments[TENSORS], n = 0;
    for (int t = 0; t < TENSORS; t++) {
        s.access[t] = access[t];
        s.place[t] = place[t];
        if (access[t] < 0) continue;
        if (!is_next(k, t, place[t])) return;
        if (has_home(k, t) && (place[t] == HOME) != (k->second == AT_HOME)) return; /* where steps may use it */
        segments[n++] = t * PLACES + place[t];
    }
    /* Of two managed tensors the first is used first. */
    if (n == 0 || (k->second == MANAGED && access[0] < 0 && k->slot[0] < 0)) return;
    give_slots(k, &s, segments, n);
}

static void try_steps(const skeleton *k) {
    static const int places[] = {0, 1, HOME};
    for (int a = -1; a <= MM_MODIFY; a++)
        for (int b = -1; b <= MM_MODIFY; b++)
            for (int p = 0; p < (a < 0 ? 1 : 2); p++)
                for (int q = 0; q < (b < 0 ? 1 : 3); q++) {
                    if (b >= 0 && places[q] == HOME && k->second == MANAGED) continue;
                    try_step(k, (const int[]){a, b}, (const int[]){places[p], places[q]});
                }
}

static void try_copy(const skeleton *k, mm_node_kind kind, int tensor, int from, int to) {
    const shape s = {.kind = kind, .access = {-1, -1}, .tensor = tensor, .from = from, .to = to};
    const int segments[] = {tensor * PLACES + from, tensor * PLACES + to};
    if (!is_next(k, tensor, from) || !is_next(k, tensor, to)) return;
    if (k->slot[segments[0]] < 0) return; /* nothing was ever there: rule 6.1, which random plans break often */
    give_slots(k, &s, segments, 2);
}

static void extend(const skeleton *k) {
    if (k->n == most_nodes) return;
    try_steps(k);
    for (int t = 0; t < TENSORS; t++)
        for (int place = 0; place < 2; place++) {
            try_copy(k, MM_NODE_OUT, t, place, PINNED);
            try_copy(k, MM_NODE_IN, t, PINNED, place);
            if (!has_home(k, t)) continue;
            if (k->second == AT_HOME) {
                try_copy(k, MM_NODE_OUT, t, HOME, PINNED);
                try_copy(k, MM_NODE_IN, t, PINNED, HOME);
            } else {
                try_copy(k, MM_NODE_OUT, t, place, HOME);
                try_copy(k, MM_NODE_IN, t, HOME, place);
            }
            if (k->second == AT_HOME && place == 1) continue;
        }
}

static void try_all(second second) {
    skeleton k = {.second = second, .values = 1, .present = {-1, second == MANAGED ? -1 : 0}};
    for (int i = 0; i < TENSORS * PLACES; i++) {
        k.slot[i] = -1;
        k.fresh[i] = true;
    }
    for (int i = 0; i < SLOTS; i++) k.memory[i] = (cell){-1, NEVER};
    if (second != MANAGED) {
        k.slot[PLACES + HOME] = second == AT_HOME ? 4 : 5;
        k.memory[k.slot[PLACES + HOME]] = (cell){PLACES + HOME, 0};
    }
    counted = (counts){0};
    extend(&k);
    print_message("second tensor %s: %lld plans of up to %d nodes with their waits, %lld of them right; %lld of %lld "
                  "orders of issue are wrong whatever the waits\n",
                  second == MANAGED   ? "managed"
                  : second == AT_HOME ? "at home on the device"
                                      : "at home in pinned memory",
                  (long long)counted.plans, most_nodes, (long long)counted.right, (long long)counted.wrong_in_order,
                  (long long)counted.skeletons);
    assert_true(counted.right > 0 && counted.wrong_in_order > 0);
}

TEST_CASE(check_and_all_executions_agree_on_every_small_plan) {
    most_nodes = test_depth(test_is_sanitized() ? 3 : 4, NODES);
    for (int s = 0; s < SECONDS; s++) try_all((second)s);
}
