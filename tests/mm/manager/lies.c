/* SPDX-License-Identifier: MIT */
#include "tests/mm/manager/lies.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/status.h"

enum { ELEMS = 3000, USES = 6, STEPS = 11, TENSORS = 18, BUDGET = 1 << 20 };

/* ---------------------------------------------------------------- the network */

typedef struct tensor_row {
    const char *name;
    mm_tensor_kind kind;
    mm_ownership ownership;
    mm_dtype dtype;
} tensor_row;

static const tensor_row tensor_rows[TENSORS] = {
    {"images", MM_INPUT, MM_EXTERNAL, MM_F32},         {"x", MM_FEATURE_MAP, MM_MANAGED, MM_F32},
    {"norm.out", MM_FEATURE_MAP, MM_MANAGED, MM_F32},  {"norm.saved", MM_SAVED, MM_MANAGED, MM_I32},
    {"drop.out", MM_FEATURE_MAP, MM_MANAGED, MM_F32},  {"drop.mask", MM_SAVED, MM_MANAGED, MM_U8},
    {"sum.out", MM_FEATURE_MAP, MM_MANAGED, MM_F32},   {"half.out", MM_FEATURE_MAP, MM_MANAGED, MM_BF16},
    {"running", MM_STATE, MM_PERSISTENT, MM_F32},      {"w", MM_WEIGHT, MM_PERSISTENT, MM_F32},
    {"dw", MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32}, {"loss", MM_STATE, MM_PERSISTENT, MM_F32},
    {"d.sum", MM_GRADIENT_MAP, MM_MANAGED, MM_F32},    {"d.drop", MM_GRADIENT_MAP, MM_MANAGED, MM_F32},
    {"d.skip", MM_GRADIENT_MAP, MM_MANAGED, MM_F32},   {"d.norm", MM_GRADIENT_MAP, MM_MANAGED, MM_F32},
    {"d.x", MM_GRADIENT_MAP, MM_MANAGED, MM_F32},      {"unused", MM_STATE, MM_PERSISTENT, MM_F32},
};

/* Uses: "=t" writes, "+t" modifies, "t" reads. Pairs: "i>o" in place, "i~o" equal. */
typedef struct step_row {
    const char *layer;
    mm_layer_kind kind;
    mm_phase phase;
    const char *uses[USES], *pairs[2], *given;
} step_row;

static const step_row step_rows[STEPS] = {
    {"data", MM_LAYER_DATA, MM_FORWARD, {"images", "=x"}, {0}, 0},
    {"norm", MM_LAYER_BATCH_NORM, MM_FORWARD, {"x", "+running", "=norm.saved", "=norm.out"}, {0}, "norm.saved"},
    {"drop", MM_LAYER_DROPOUT, MM_FORWARD, {"norm.out", "=drop.mask", "=drop.out"}, {0}, 0},
    {"sum", MM_LAYER_ADD, MM_FORWARD, {"drop.out", "norm.out", "=sum.out"}, {"drop.out>sum.out"}, 0},
    {"half", MM_LAYER_RELU, MM_FORWARD, {"sum.out", "=half.out"}, {0}, 0},
    {"last", MM_LAYER_LOSS, MM_FORWARD, {"half.out", "w", "=loss"}, {0}, 0},
    {"last", MM_LAYER_LOSS, MM_BACKWARD, {"half.out", "w", "=dw", "=d.sum", "unused"}, {0}, 0},
    {"sum", MM_LAYER_ADD, MM_BACKWARD, {"d.sum", "=d.drop", "=d.skip"}, {"d.sum~d.drop", "d.sum~d.skip"}, 0},
    {"drop", MM_LAYER_DROPOUT, MM_BACKWARD, {"drop.mask", "drop.out", "d.drop", "=d.norm"}, {0}, 0},
    {"norm", MM_LAYER_BATCH_NORM, MM_BACKWARD, {"x", "norm.out", "norm.saved", "d.skip", "+d.norm", "=d.x"}, {0}, 0},
    {"update", MM_LAYER_UPDATE, MM_UPDATE, {"dw", "d.x", "+w"}, {0}, 0},
};

static mm_access access_of(const char *use) { return *use == '=' ? MM_WRITE : *use == '+' ? MM_MODIFY : MM_READ; }
static const char *name_of(const char *use) { return use + (*use == '=' || *use == '+'); }
static int count_of(const step_row *row) {
    int n = 0;
    while (n < USES && row->uses[n]) n++;
    return n;
}

static mm_tensor find(const mm_graph *graph, const char *name) {
    mm_tensor tensor;
    expect_ok(mm_graph_find_tensor(graph, name, &tensor));
    return tensor;
}

static void add_pair(mm_graph *graph, const char *pair) {
    char input[32];
    const size_t length = strcspn(pair, ">~");
    memcpy(input, pair, length);
    input[length] = '\0';
    const mm_tensor i = find(graph, input), o = find(graph, pair + length + 1);
    expect_ok(pair[length] == '~' ? mm_graph_allow_alias(graph, i, o) : mm_graph_allow_inplace(graph, i, o));
}

static void add_step(mm_graph *graph, const step_row *row, mm_layer *layers) {
    mm_use uses[USES];
    const int n = count_of(row);
    int layer = 0;
    while (layers[layer] >= 0 && strcmp(mm_graph_layer(graph, layers[layer])->name, row->layer) != 0) layer++;
    if (layers[layer] < 0) expect_ok(mm_graph_add_layer(graph, row->layer, row->kind, &layers[layer]));
    if (row->kind == MM_LAYER_DROPOUT)
        expect_ok(mm_graph_set_properties(graph, layers[layer], &(mm_layer_properties){MM_LAYER_CHEAP, true}));
    for (int u = 0; u < n; u++) uses[u] = (mm_use){find(graph, name_of(row->uses[u])), access_of(row->uses[u]), 0};
    expect_ok(mm_graph_add_step(graph, layers[layer], row->phase, uses, (size_t)n, 64));
    for (int i = 0; i < 2 && row->pairs[i]; i++) add_pair(graph, row->pairs[i]);
    if (row->given) expect_ok(mm_graph_allow_given(graph, find(graph, row->given)));
}

static mm_graph *create_graph(void) {
    mm_graph *graph;
    mm_layer layers[STEPS + 1];
    mm_tensor tensor;
    for (int i = 0; i <= STEPS; i++) layers[i] = -1;
    expect_ok(mm_graph_create("lies", &graph));
    for (int t = 0; t < TENSORS; t++) {
        const tensor_row *row = &tensor_rows[t];
        const mm_tensor_desc desc = {row->name, row->kind, row->ownership, row->dtype, 1, {ELEMS}};
        expect_ok(mm_graph_add_tensor(graph, &desc, &tensor));
    }
    for (int s = 0; s < STEPS; s++) add_step(graph, &step_rows[s], layers);
    expect_ok(mm_graph_freeze(graph));
    return graph;
}

/* ---------------------------------------------------------------- what the steps compute */

typedef struct task {
    const step_row *row;
    const lie *told; /* NULL: it does what it declares */
    bool again;
    int number; /* of the computation: what a dropout that draws anew differs by */
    struct {
        void *data;
        mm_dtype dtype;
        bool given, shared; /* shared: an output that equals an input, and has its storage */
    } at[USES];
    void *asked; /* memory that the step does not declare */
    const float *remembered;
} task;

static float get(const void *data, mm_dtype dtype, int i) {
    if (dtype == MM_F32) return ((const float *)data)[i];
    if (dtype == MM_I32) return (float)((const int32_t *)data)[i];
    if (dtype == MM_U8) return (float)((const uint8_t *)data)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *data, mm_dtype dtype, int i, float value) {
    uint32_t bits;
    if (dtype == MM_F32) ((float *)data)[i] = value;
    if (dtype == MM_I32) ((int32_t *)data)[i] = (int32_t)value;
    if (dtype == MM_U8) ((uint8_t *)data)[i] = (uint8_t)((int)value & 1);
    if (dtype != MM_BF16) return;
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
}

/* An output is an input times 3/4, or the sum of the inputs, by its place; an equal one is a copy. */
static float value_of(const task *t, int i) {
    const bool copies = t->row->pairs[0] && strchr(t->row->pairs[0], '~');
    float sum = 0;
    for (int u = 0; u < count_of(t->row); u++)
        if (access_of(t->row->uses[u]) == MM_READ) sum += get(t->at[u].data, t->at[u].dtype, i);
    return copies ? sum : sum * 0.75F + (float)(i % 7);
}

static void compute_use(const task *t, int u) {
    const mm_access access = access_of(t->row->uses[u]);
    const bool lies = t->told && strcmp(t->told->tensor, name_of(t->row->uses[u])) == 0;
    const deed deed = lies ? t->told->deed : DEED_NONE;
    const bool keeps = t->at[u].given || t->at[u].shared || (t->again && access == MM_MODIFY) || deed == DEED_SKIPS;
    for (int i = 0; i < ELEMS && !keeps && access != MM_READ; i++) {
        if ((deed == DEED_LEAVES_1 && i == ELEMS / 3) || (deed == DEED_LEAVES && i >= ELEMS * 2 / 3)) continue;
        const bool adds = access == MM_MODIFY || deed == DEED_ADDS;
        put(t->at[u].data, t->at[u].dtype, i,
            adds ? get(t->at[u].data, t->at[u].dtype, i) + value_of(t, i) / 64 : value_of(t, i));
    }
    if (deed == DEED_CHANGES) put(t->at[u].data, t->at[u].dtype, 5, (float)(1000 + t->number));
}

static mm_status compute(void *arg) {
    const task *t = *(task *const *)arg;
    if (t->remembered) *(const volatile float *)(t->remembered + ELEMS / 2); /* in a page of its own */
    for (int u = 0; u < count_of(t->row); u++) compute_use(t, u);
    if (t->asked && t->told->deed == DEED_CHANGES) ((float *)t->asked)[5] += 1;
    return MM_OK;
}

/* ---------------------------------------------------------------- the loop */

static sigjmp_buf back; /* to what faulted */
static volatile sig_atomic_t may_fault;
static char fault_text[512];
static struct sigaction fault_before;

static void keep_fault(const char *message) { snprintf(fault_text, sizeof fault_text, "%s", message); }

static void jump_back(int signal_number) {
    if (may_fault) siglongjmp(back, 1);
    signal(signal_number, SIG_DFL);
}

/* Calls fn, which may fault. */
static mm_status call(mm_status (*fn)(void *arg), void *arg) {
    mm_status status = MM_ERR_INVALID;
    fault_text[0] = '\0';
    may_fault = true;
    if (sigsetjmp(back, 1) == 0)
        status = fn(arg);
    else
        mm_fail_set("%s", fault_text[0] ? fault_text : "a fault that the library does not explain");
    may_fault = false;
    return status;
}

struct lies_loop {
    mm_graph *graph;
    mm_manager *manager;
    lies_mode mode;
    const lie *lie;
    int told, number;
    float images[ELEMS];
    void *places[TENSORS];
    task tasks[2 * STEPS];
};

static bool is_output_of_alias(const step_row *row, const char *use) {
    for (int i = 0; i < 2 && row->pairs[i]; i++)
        if (strchr(row->pairs[i], '~') && strcmp(strchr(row->pairs[i], '~') + 1, name_of(use)) == 0) return true;
    return false;
}

/* Whether the step is the one that lies. */
static bool lies_at(const lies_loop *l, const step_row *row, bool again) {
    char name[64];
    if (!l->lie || (l->lie->again && !again)) return false;
    snprintf(name, sizeof name, "%s %s", row->layer, mm_phase_name(row->phase));
    return strcmp(name, l->lie->step) == 0;
}

static mm_status run(lies_loop *l, int s, bool again, mm_stream *stream) {
    task *t = &l->tasks[2 * s + again];
    const step_row *row = &step_rows[s];
    *t = (task){.row = row, .told = lies_at(l, row, again) ? l->lie : NULL, .again = again, .number = l->number++};
    if (t->told) l->told++;
    bool declared = false;
    for (int u = 0; u < count_of(row); u++) {
        const mm_tensor tensor = find(l->graph, name_of(row->uses[u]));
        t->at[u].data = mm_tensor_data(l->manager, tensor);
        t->at[u].dtype = mm_graph_tensor(l->graph, tensor)->dtype;
        t->at[u].given = mm_tensor_given(l->manager, tensor);
        assert_non_null(t->at[u].data);
        l->places[tensor] = t->at[u].data;
        declared |= t->told && strcmp(t->told->tensor, name_of(row->uses[u])) == 0;
        if (!is_output_of_alias(row, row->uses[u])) continue;
        for (int v = 0; v < u; v++) t->at[u].shared |= t->at[v].data == t->at[u].data;
    }
    if (t->told && t->told->deed == DEED_REMEMBERS)
        t->remembered = lies_place(l, t->told->tensor);
    else if (t->told && !declared)
        t->asked = mm_tensor_data(l->manager, find(l->graph, t->told->tensor));
    return stream ? rig_device_used()->launch(stream, compute, &t, sizeof t) : call(compute, &t);
}

static mm_status again(void *ctx, mm_manager *m, mm_layer layer, mm_stream *stream) {
    lies_loop *l = ctx;
    (void)m;
    return run(l, mm_graph_layer(l->graph, layer)->step[MM_FORWARD], true, stream);
}

lies_loop *lies_create(const char *policy, lies_mode mode, const lie *told) {
    lies_loop *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->graph = create_graph();
    l->lie = told;
    l->mode = rig_device_used()->cpu_reaches_memory ? mode : LIES_STREAM;
    const mm_options options = {.device = rig_device_used()->name,
                                .device_bytes = BUDGET,
                                .pinned_bytes = BUDGET,
                                .policy = policy,
                                .self_check = true,
                                .fault_fn = keep_fault};
    struct sigaction jumps = {.sa_handler = jump_back};
    sigaction(SIGSEGV, &jumps, &fault_before);
    if (mm_manager_create(&options, &l->manager) != MM_OK) fail_msg("%s: %s", policy, mm_last_error());
    for (int i = 0; i < ELEMS; i++) l->images[i] = (float)(i % 13) - 6;
    expect_ok(mm_recompute_set(l->manager, l->graph, again, l));
    expect_ok(mm_external_set(l->manager, l->graph, find(l->graph, "images"), l->images));
    return l;
}

void lies_destroy(lies_loop *l) {
    mm_manager_destroy(l->manager);
    mm_graph_destroy(l->graph);
    free(l);
    sigaction(SIGSEGV, &fault_before, NULL);
}

static mm_status step(lies_loop *l, int s) {
    const mm_step_info *info = mm_graph_step(l->graph, s);
    mm_stream *stream = l->mode == LIES_STREAM ? mm_compute_stream(l->manager) : NULL;
    MM_TRY(mm_layer_begin(l->manager, info->layer, info->phase, stream));
    MM_TRY(run(l, s, false, stream));
    return mm_layer_end(l->manager, info->layer, info->phase);
}

mm_status lies_iterate(lies_loop *l) {
    mm_status status = mm_iteration_begin(l->manager, l->graph);
    for (int s = 0; status == MM_OK && s < STEPS; s++) status = step(l, s);
    if (status == MM_OK) return mm_iteration_end(l->manager);
    mm_iteration_abort(l->manager);
    return status;
}

const float *lies_place(const lies_loop *l, const char *tensor) { return l->places[find(l->graph, tensor)]; }

typedef struct reading {
    const float *element;
    float value;
} reading;

static mm_status read_element(void *arg) {
    reading *r = arg;
    r->value = *(const volatile float *)r->element;
    return MM_OK;
}

mm_status lies_read(const float *element, float *value_out) {
    reading r = {element, 0};
    MM_TRY(call(read_element, &r));
    *value_out = r.value;
    return MM_OK;
}

int lies_told(const lies_loop *l) { return l->told; }

uint64_t lies_digest(lies_loop *l) {
    uint64_t digest = 0;
    for (int t = 0; t < TENSORS; t++) {
        float values[ELEMS];
        if (tensor_rows[t].ownership != MM_PERSISTENT) continue;
        expect_ok(mm_persistent_get(l->manager, tensor_rows[t].name, 0, values, sizeof values));
        for (int i = 0; i < ELEMS; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof bits);
            digest = (digest ^ bits) * UINT64_C(0x100000001b3);
        }
    }
    return digest;
}
