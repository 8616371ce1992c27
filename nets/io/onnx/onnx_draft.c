/* SPDX-License-Identifier: MIT */
/* Drafts of layers, and the net that is built of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"

/* ---------------------------------------------------------------- names */

bool onnx_module_name(const char *name) { return name && strchr(name, '.') && !strchr(name, ':') && *name != '/'; }

/* The module of a node that torch's older exporter named, "layer1.0.conv1" of "/layer1/layer1.0/conv1/Conv"; each part
 * has the one before in it, or continues it. */
static bool path_of(const char *node, char text_out[NETS_NAME_CAPACITY]) {
    size_t length = 0, before = 0; /* of the text; where its last part begins */
    if (*node != '/') return false;
    for (const char *part = node + 1, *end; (end = strchr(part, '/')); part = end + 1) {
        const size_t n = (size_t)(end - part), last = length - before;
        const bool has = length && n > last && strncmp(part, text_out + before, last) == 0 && part[last] == '.';
        const size_t at = has ? before : length + (length > 0);
        if (at + n >= NETS_NAME_CAPACITY) return false;
        if (!has && length) text_out[length] = '.';
        memcpy(text_out + at, part, n);
        before = at;
        length = at + n;
        text_out[length] = '\0';
    }
    return length > 0;
}

/* The module of a node that torch's newer exporter noted: the last but one of "['', 'layer1', 'layer1.0.relu',
 * 'relu']". */
static bool scope_of(const onnx_node *node, char text_out[NETS_NAME_CAPACITY]) {
    for (size_t i = 0; i < node->proto->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = node->proto->metadata_props[i];
        if (!entry->key || !entry->value || strcmp(entry->key, "pkg.torch.onnx.name_scopes") != 0) continue;
        const char *end = strrchr(entry->value, ',');
        if (!end || end - entry->value < 2) continue;
        const char *begin = end - 1; /* its closing quote */
        while (begin > entry->value && begin[-1] != '\'') begin--;
        const size_t n = (size_t)(end - 1 - begin);
        if (*(end - 1) != '\'' || !n || n >= NETS_NAME_CAPACITY) continue;
        memcpy(text_out, begin, n);
        text_out[n] = '\0';
        return true;
    }
    return false;
}

/* "fc" of "fc.weight". */
static bool prefix_of(const onnx_tensor *weight, char text_out[NETS_NAME_CAPACITY]) {
    if (!weight || !onnx_module_name(weight->name)) return false;
    const char *dot = strrchr(weight->name, '.');
    const size_t n = (size_t)(dot - weight->name);
    if (!n || n >= NETS_NAME_CAPACITY) return false;
    memcpy(text_out, weight->name, n);
    text_out[n] = '\0';
    return true;
}

/* Names consist of printable ASCII, since JSON and messages hold them. */
static void make_printable(char *text) {
    for (; *text; text++)
        if (*text <= ' ' || *text > '~' || *text == '"' || *text == '\\') *text = '_';
}

mm_status onnx_remember(onnx_import *m, mm_names *names, const char *name, int index) {
    const size_t bytes = strlen(name) + 1;
    onnx_text *copy = malloc(sizeof *copy + bytes);
    if (!copy) return mm_fail(MM_ERR_NOMEM, "%s: no memory for a name", m->path);
    memcpy(copy->text, name, bytes);
    copy->next = m->texts;
    m->texts = copy;
    return mm_names_add(names, copy->text, index);
}

/* Names a layer: by its weight, or its module and operation, or its node; with a number if the name is taken. */
static void name_layer(onnx_import *m, const onnx_node *node, const onnx_tensor *weight, onnx_draft *draft, int index) {
    char *name = draft->layer.name, base[NETS_NAME_CAPACITY];
    const char *op = nets_op_name(draft->layer.op);
    const bool module = path_of(node->name, base) || scope_of(node, base);
    /* An embedding's weight may have the name of the last layer, which has it, too. */
    bool named = !(module && draft->layer.op == NETS_EMBEDDING) && prefix_of(weight, name) &&
                 mm_names_find(&m->layer_names, name) < 0;
    if (!named && module) {
        const char *last = strrchr(base, '.');
        const bool whole = nets_param_spec_of(draft->layer.op, 0) || strstr(last ? last : base, op);
        named = snprintf(name, NETS_NAME_CAPACITY, whole ? "%s" : "%s.%s", base, op) < NETS_NAME_CAPACITY;
    }
    if (!named && (size_t)snprintf(name, NETS_NAME_CAPACITY, "%s", node->name) >= NETS_NAME_CAPACITY)
        snprintf(name, NETS_NAME_CAPACITY, "%s", op);
    make_printable(name);
    if (mm_names_find(&m->layer_names, name) >= 0) {
        snprintf(base, sizeof base, "%.80s", name); /* room for the number */
        snprintf(name, NETS_NAME_CAPACITY, "%.80s_%d", base, index);
    }
}

/* ---------------------------------------------------------------- drafts */

static mm_status append(onnx_import *m, int *draft_out) {
    if (m->n_drafts == m->drafts_capacity) {
        const int capacity = m->drafts_capacity ? 2 * m->drafts_capacity : 64;
        onnx_draft *grown = realloc(m->drafts, (size_t)capacity * sizeof *grown);
        if (!grown) return mm_fail(MM_ERR_NOMEM, "%s: no memory for %d layers", m->path, capacity);
        m->drafts = grown;
        m->drafts_capacity = capacity;
    }
    m->drafts[m->n_drafts] = (onnx_draft){0};
    *draft_out = m->n_drafts++;
    return MM_OK;
}

mm_status onnx_draft_add(onnx_import *m, const onnx_node *node, nets_op_kind op, const nets_attrs *attrs,
                         const int inputs[], int n_inputs, const onnx_tensor *weight, int *draft_out) {
    nets_shape in[NETS_MAX_INPUTS];
    onnx_draft draft = {.node = node->name, .layer = {.op = op, .n_inputs = n_inputs, .tied_param = -1}};
    if (attrs) draft.layer.attrs = *attrs;
    for (int i = 0; i < n_inputs; i++) {
        draft.layer.inputs[i] = inputs[i];
        in[i] = *onnx_shape(m, inputs[i]);
    }
    name_layer(m, node, weight, &draft, m->n_drafts);
    const mm_status status = nets_op_infer(&draft.layer, in);
    if (status != MM_OK) return onnx_refused(m, node, status);
    for (int d = 0; d < draft.layer.shape.rank; d++)
        if (draft.layer.shape.dims[d] < 1 || draft.layer.shape.dims[d] > INT32_MAX)
            return onnx_refuse(m, node, "its output is too large");
    MM_TRY(append(m, draft_out));
    m->drafts[*draft_out] = draft;
    return onnx_remember(m, &m->layer_names, draft.layer.name, *draft_out);
}

mm_status onnx_draft_special(onnx_import *m, const onnx_node *node, onnx_draft_kind kind, const nets_shape *shape,
                             int input, int *draft_out) {
    MM_TRY(append(m, draft_out));
    onnx_draft *draft = &m->drafts[*draft_out];
    *draft =
        (onnx_draft){.kind = kind, .node = node ? node->name : "input", .layer = {.op = NETS_DATA, .shape = *shape}};
    draft->layer.n_inputs = input >= 0;
    draft->layer.inputs[0] = input;
    return MM_OK;
}

const nets_shape *onnx_shape(const onnx_import *m, int draft) { return &m->drafts[draft].layer.shape; }

/* How far back a joining layer is looked for that has the first maps of another. Chosen: DenseNet-264's longest block
 * has some 350 drafts. */
enum { DRAFTS_BACK = 1024 };

/* The draft that joins the first maps of the list, as many as possible, but not all; -1: none. */
static int joins_first(const onnx_import *m, const int drafts[], int n) {
    int found = -1, covered = 1;
    for (int d = m->n_drafts - 1; d >= 0 && d >= m->n_drafts - DRAFTS_BACK; d--) {
        const onnx_draft *draft = &m->drafts[d];
        if (draft->n_joined <= covered || draft->n_joined >= n) continue;
        if (memcmp(m->joined + draft->first_joined, drafts, (size_t)draft->n_joined * sizeof *drafts) != 0) continue;
        found = d;
        covered = draft->n_joined;
    }
    return found;
}

mm_status onnx_join(onnx_import *m, const onnx_node *node, const int drafts[], int n, int *draft_out) {
    int list[NETS_MAX_INPUTS] = {0}, n_list = 0, next = 0;
    const int first = joins_first(m, drafts, n);
    *draft_out = first;
    if (first >= 0) {
        list[n_list++] = first;
        next = m->drafts[first].n_joined;
    }
    while (next < n) {
        while (next < n && n_list < NETS_MAX_INPUTS) list[n_list++] = drafts[next++];
        MM_TRY(onnx_draft_add(m, node, NETS_CONCAT, NULL, list, n_list, NULL, draft_out));
        list[0] = *draft_out;
        n_list = 1;
    }
    memcpy(m->joined + m->n_joined, drafts, (size_t)n * sizeof *drafts);
    m->drafts[*draft_out].first_joined = m->n_joined;
    m->drafts[*draft_out].n_joined = n;
    m->n_joined += n;
    return MM_OK;
}

/* ---------------------------------------------------------------- values */

/* Clears what an output means, but keeps its name and uses. */
static void clear(onnx_value *out, onnx_kind kind) {
    *out = (onnx_value){.name = out->name, .uses = out->uses, .kind = kind};
}

void onnx_give_map(onnx_value *out, int draft, const onnx_view *view) {
    const onnx_view kept = *view; /* it may be the output's own */
    clear(out, ONNX_MAP);
    out->draft = draft;
    out->view = kept;
    out->sole = true;
    for (int i = 0; i < ONNX_POINTS; i++) out->function[i] = onnx_point(i);
}

void onnx_give_view(onnx_value *out, const onnx_value *in, const onnx_view *view) {
    const onnx_value kept = *in;
    const onnx_view seen = *view;
    clear(out, ONNX_MAP);
    out->draft = kept.draft;
    out->view = seen;
    out->sole = kept.sole && kept.uses == 1;
    memcpy(out->function, kept.function, sizeof out->function);
}

void onnx_give_constant(onnx_value *out, onnx_tensor *tensor) {
    clear(out, ONNX_CONSTANT);
    out->constant = tensor;
}

/* The activation of a draft's output that is there already; -1: none. */
static int activation_of(const onnx_import *m, int draft, nets_op_kind op, const nets_attrs *attrs) {
    for (int d = draft + 1; d < m->n_drafts && m->drafts[d].layer.n_inputs; d++) {
        const nets_layer *layer = &m->drafts[d].layer;
        if (layer->op == op && layer->inputs[0] == draft && layer->attrs.tanh == attrs->tanh &&
            (op != NETS_LEAKY_RELU || layer->attrs.slope == attrs->slope))
            return d;
    }
    return -1;
}

mm_status onnx_whole(onnx_import *m, const onnx_node *node, onnx_value *value, int *draft_out) {
    const onnx_draft *draft = &m->drafts[value->draft];
    if (draft->kind == ONNX_PADDING)
        return onnx_refuse(m, node, "zeros around a map are supported before a convolution or average pool only");
    if (draft->kind == ONNX_SOFTMAX)
        return onnx_refuse(m, node, "a softmax is supported of the output only, and in attention");
    if (value->view.offset || onnx_view_elems(&value->view) != m->batch * nets_shape_elems(&draft->layer.shape))
        return onnx_refuse(m, node, "its input %.64s is a part of the channels of a map; layers here read whole maps",
                           value->name);
    *draft_out = value->draft;
    if (onnx_is_identity(value->function)) return MM_OK;
    nets_attrs attrs;
    const nets_op_kind op = onnx_activation(value->function, &attrs);
    if (op == NETS_OP_KINDS)
        return onnx_refuse(m, node,
                           "the function of single elements that gives its input %.64s is no activation here "
                           "('mm nets --ops' lists them)",
                           value->name);
    *draft_out = activation_of(m, value->draft, op, &attrs);
    return *draft_out >= 0 ? MM_OK : onnx_draft_add(m, node, op, &attrs, &value->draft, 1, NULL, draft_out);
}
