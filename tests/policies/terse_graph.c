/* SPDX-License-Identifier: MIT */
#include "tests/policies/terse_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/plan/plan_fits.h"
#include "mm/core/status.h"
#include "tests/core/plan_proof.h"

static void must(mm_status status) {
    if (status != MM_OK) fail_msg("%s", mm_last_error());
}

void terse_init(terse_graph *g, const char *name) {
    memset(g, 0, sizeof *g);
    must(mm_graph_create(name, &g->graph));
}

enum { TEXT = 256 };

/* The text with numbers in the place of '#' and '<'. */
static const char *spell(const terse_graph *g, const char *text, char out[TEXT]) {
    size_t n = 0;
    for (; *text; text++) {
        if (*text == '#' || *text == '<')
            n += (size_t)snprintf(out + n, TEXT - n, "%d", g->i - (*text == '<'));
        else
            out[n++] = *text;
        assert_true(n < TEXT);
    }
    out[n] = 0;
    return out;
}

static void add(terse_graph *g, const char *name, mm_tensor_kind kind, mm_ownership ownership, int units) {
    mm_tensor tensor;
    char text[TEXT];
    mm_tensor_desc desc = {.name = spell(g, name, text),
                           .kind = kind,
                           .ownership = ownership,
                           .dtype = MM_F32,
                           .rank = 2,
                           .dims = {units, UNIT / 4}};
    must(mm_graph_add_tensor(g->graph, &desc, &tensor));
}

void terse_persistent(terse_graph *g, const char *name, int units) { add(g, name, MM_STATE, MM_PERSISTENT, units); }

void terse_map(terse_graph *g, const char *name, mm_tensor_kind kind, int units) {
    add(g, name, kind, MM_MANAGED, units);
}

mm_tensor terse_tensor(const mm_graph *graph, const char *name) {
    mm_tensor tensor = -1;
    must(mm_graph_find_tensor(graph, name, &tensor));
    return tensor;
}

static mm_layer layer_of(terse_graph *g, const char *pattern, mm_layer_kind kind) {
    char text[TEXT];
    const char *name = spell(g, pattern, text);
    for (int i = 0; i < g->n_layers; i++)
        if (strcmp(g->names[i], name) == 0) return g->layers[i];
    assert_true(g->n_layers < 256 && strlen(name) < sizeof g->names[0]);
    strcpy(g->names[g->n_layers], name);
    must(mm_graph_add_layer(g->graph, name, kind, &g->layers[g->n_layers]));
    return g->layers[g->n_layers++];
}

void terse_step(terse_graph *g, const char *layer, mm_layer_kind kind, mm_phase phase, const char *text) {
    char words[TEXT], *rest = NULL;
    mm_use uses[16];
    size_t n = 0;
    spell(g, text, words);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(n < 16);
        bool plain = !strchr("?=+", *word);
        uses[n++] = (mm_use){.tensor = terse_tensor(g->graph, plain ? word : word + 1),
                             .access = *word == '='   ? MM_WRITE
                                       : *word == '+' ? MM_MODIFY
                                                      : MM_READ,
                             .form = *word == '?' ? MM_FORM_SIGN : MM_FORM_VALUE};
    }
    must(mm_graph_add_step(g->graph, layer_of(g, layer, kind), phase, uses, n, g->workspace_bytes));
}

void terse_inplace(terse_graph *g, const char *input, const char *output) {
    must(mm_graph_allow_inplace(g->graph, terse_tensor(g->graph, input), terse_tensor(g->graph, output)));
}

void terse_alias(terse_graph *g, const char *input, const char *output) {
    must(mm_graph_allow_alias(g->graph, terse_tensor(g->graph, input), terse_tensor(g->graph, output)));
}

mm_graph *terse_freeze(terse_graph *g) {
    must(mm_graph_freeze(g->graph));
    return g->graph;
}

/* ---------------------------------------------------------------- plans */

mm_graph_facts *terse_facts(const mm_graph *graph, int64_t code_bytes) {
    mm_graph_facts *facts;
    must(mm_graph_facts_create(graph, 2, &facts));
    facts->codecs[0] = (mm_codec_facts){.spec = "zfp:rate=8", .fixed_size = true, .gives_value = true};
    facts->codecs[1] = (mm_codec_facts){.spec = "mask", .lossless = true, .fixed_size = true, .gives_sign = true};
    for (int t = 0; t < facts->n_tensors; t++) {
        facts->codes[t].code_bytes = code_bytes;
        facts->codes[facts->n_tensors + t].code_bytes = mm_graph_tensor(graph, t)->bytes / 32;
    }
    return facts;
}

/* Parses a policy; where its spec has no `when`, with when=always, the published form. */
static void parse_published(const char *spec, mm_policy *policy) {
    char text[512];
    must(mm_policy_parse(spec, policy));
    bool chooses = false;
    for (const mm_option_desc *d = policy->ops->options; d && d->key; d++) chooses |= strcmp(d->key, "when") == 0;
    if (!chooses || strstr(spec, "when=")) return;
    snprintf(text, sizeof text, "%s%cwhen=always", spec, strchr(spec, ':') ? ',' : ':');
    mm_policy_fini(policy);
    must(mm_policy_parse(text, policy));
}

void plan_terse(planned *p, const mm_graph *graph, const char *spec, int64_t code_bytes) {
    plan_terse_within(p, graph, spec, code_bytes, INT64_C(1) << 40);
}

void plan_terse_within(planned *p, const mm_graph *graph, const char *spec, int64_t code_bytes, int64_t device_bytes) {
    mm_policy policy;
    mm_limits limits = {.device_bytes = device_bytes, .pinned_bytes = INT64_C(1) << 40};
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        if (mm_graph_tensor(graph, t)->ownership == MM_PERSISTENT)
            limits.base_bytes += mm_align(mm_graph_tensor(graph, t)->bytes);
    p->facts = terse_facts(graph, code_bytes);
    parse_published(spec, &policy);
    must(mm_policy_plan(&policy, graph, p->facts, &limits, &p->plan));
    must(mm_plan_name(p->plan, spec));
    mm_policy_fini(&policy);
    limits.device_bytes = p->plan->peak_bytes;
    limits.pinned_bytes = p->plan->pinned_bytes;
    must(plan_check(p->plan, p->facts, &limits));
    must(mm_plan_fits(p->plan, &limits));
    limits.device_bytes--;
    assert_int_equal(mm_plan_fits(p->plan, &limits), MM_ERR_INFEASIBLE);
}

void planned_done(planned *p) {
    mm_plan_destroy(p->plan);
    mm_graph_facts_destroy(p->facts);
}

const mm_segment *segment_of(const planned *p, const char *tensor, int n) {
    mm_tensor t = terse_tensor(p->plan->graph, tensor);
    for (int i = 0; i < p->plan->n_segments; i++)
        if (p->plan->segments[i].tensor == t && n-- == 0) return &p->plan->segments[i];
    return NULL;
}

bool same_place(const planned *p, const char *a, const char *b) {
    const mm_segment *x = segment_of(p, a, 0), *y = segment_of(p, b, 0);
    assert_non_null(x);
    assert_non_null(y);
    return x->offset == y->offset;
}

/* ---------------------------------------------------------------- in words */

static void append(char *text, size_t capacity, const char *prefix, const char *name, const char *suffix) {
    size_t used = strlen(text);
    snprintf(text + used, capacity - used, "%s%s%s%s", used ? " " : "", prefix, name, suffix);
}

const char *terse_tell(const mm_plan *plan, char *text, size_t capacity) {
    text[0] = '\0';
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (mm_node_runs_step(n)) {
            const mm_step_info *step = mm_graph_step(plan->graph, n->step);
            append(text, capacity, n->kind == MM_NODE_RECOMPUTE ? "~" : "",
                   mm_graph_layer(plan->graph, step->layer)->name, step->phase == MM_BACKWARD ? "'" : "");
            continue;
        }
        const char *prefix = n->kind == MM_NODE_ENCODE ? "(" : n->kind == MM_NODE_OUT ? ">" : "<";
        bool decode = n->kind == MM_NODE_DECODE;
        append(text, capacity, decode ? "" : prefix, mm_graph_tensor(plan->graph, n->tensor)->name, decode ? ")" : "");
    }
    return text;
}
