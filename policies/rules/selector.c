/* SPDX-License-Identifier: MIT */
#include "policies/rules/selector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/nearest.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

static const char READS[] = "-in";
enum { READS_LENGTH = sizeof READS - 1, ALL_KINDS = (1u << MM_LAYER_KINDS) - 1 };

const char *mm_policy_kinds(char text_out[MM_POLICY_KINDS_CAPACITY]) {
    size_t used = 0;
    for (int k = 0; k < MM_LAYER_KINDS && used < MM_POLICY_KINDS_CAPACITY; k++)
        used += (size_t)snprintf(text_out + used, MM_POLICY_KINDS_CAPACITY - used, "%s%s", k > 0 ? ", " : "",
                                 mm_layer_kind_name(k));
    return text_out;
}

/* The kinds that `text`, of this length, names: a kind's name, or * for all; 0: none. A bn-relu counts as both. */
static uint32_t kinds_named(const char *text, size_t length) {
    if (length == 1 && *text == '*') return ALL_KINDS;
    for (int k = 0; k < MM_LAYER_KINDS; k++) {
        const char *name = mm_layer_kind_name(k);
        if (strlen(name) != length || memcmp(name, text, length) != 0) continue;
        bool in_both = k == MM_LAYER_BATCH_NORM || k == MM_LAYER_RELU;
        return 1u << k | (in_both ? 1u << MM_LAYER_BATCH_NORM_RELU : 0);
    }
    return 0;
}

static mm_status parse_term(const char *selector, const char *text, size_t length, mm_selector_term *term) {
    mm_selector_term t = {.text = text};
    t.reads = length >= READS_LENGTH && memcmp(text + length - READS_LENGTH, READS, READS_LENGTH) == 0;
    if (t.reads) length -= READS_LENGTH;
    char kinds[MM_POLICY_KINDS_CAPACITY];
    if (length == 0)
        return mm_fail(MM_ERR_INVALID,
                       "rule '%s=...': must name *, a kind of layer (%s) or layers by name (layer1.*), or with -in "
                       "what such a layer reads (conv-in), or several of these joined by & (relu&conv-in)",
                       MM_BRIEF(selector), mm_policy_kinds(kinds));
    t.kinds = kinds_named(text, length);
    t.length = (int)length;
    *term = t;
    return MM_OK;
}

static mm_status parse_terms(mm_selector *s) {
    const char *text = s->text;
    for (bool more = true; more;) {
        if (s->n_terms == MM_SELECTOR_TERMS)
            return mm_fail(MM_ERR_INVALID, "rule '%s=...': at most %d selectors may be joined by &", MM_BRIEF(s->text),
                           MM_SELECTOR_TERMS);
        size_t length = strcspn(text, "&");
        MM_TRY(parse_term(s->text, text, length, &s->terms[s->n_terms++]));
        more = text[length] == '&';
        text += length + more;
    }
    return MM_OK;
}

mm_status mm_selector_parse(const char *text, mm_selector *selector_out) {
    mm_selector s = {.text = strdup(text)};
    if (!s.text) return mm_fail(MM_ERR_NOMEM, "out of memory for a rule");
    mm_status status = parse_terms(&s);
    if (status == MM_OK)
        *selector_out = s;
    else
        mm_selector_fini(&s);
    return status;
}

void mm_selector_fini(mm_selector *selector) {
    free(selector->text);
    *selector = (mm_selector){0};
}

bool mm_selector_has_kind(const mm_selector *s, mm_layer_kind kind) {
    for (int i = 0; i < s->n_terms; i++) {
        const mm_selector_term *t = &s->terms[i];
        if (t->kinds != ALL_KINDS && t->kinds >> kind & 1 && !t->reads) return true;
    }
    return false;
}

/* `*` covers `conv-in`, too: every map has a layer that writes it. */
static bool covers(const mm_selector_term *t, const mm_selector_term *other) {
    if (t->kinds == ALL_KINDS && !t->reads) return true;
    if (t->reads != other->reads) return false;
    bool same = t->length == other->length && memcmp(t->text, other->text, (size_t)t->length) == 0;
    return same || t->kinds == ALL_KINDS || (other->kinds && !(other->kinds & ~t->kinds));
}

/* Each term must cover one of the other's terms: a map that `other` names is named by every term of `other`. */
bool mm_selector_covers(const mm_selector *s, const mm_selector *other) {
    for (int i = 0; i < s->n_terms; i++) {
        bool covered = false;
        for (int j = 0; j < other->n_terms; j++) covered |= covers(&s->terms[i], &other->terms[j]);
        if (!covered) return false;
    }
    return true;
}

static bool names(const mm_selector_term *t, const mm_layer_info *layer) {
    if (t->kinds) return t->kinds >> layer->kind & 1;
    bool named = mm_text_matches(t->text, (size_t)t->length, layer->name);
    for (int p = 0; p < layer->n_parts && !named; p++)
        named = mm_text_matches(t->text, (size_t)t->length, layer->parts[p]);
    return named;
}

/* ---------------------------------------------------------------- suggestions */

/* The nearest name of a kind or a layer; NULL: none is near. */
static const char *nearest(const mm_selector_term *t, const mm_graph *graph) {
    mm_nearest n = {.text = t->text, .length = (size_t)t->length};
    for (int k = 0; k < MM_LAYER_KINDS; k++) mm_nearest_try(&n, mm_layer_kind_name(k));
    for (int l = 0; l < mm_graph_layers(graph); l++) mm_nearest_try(&n, mm_graph_layer(graph, l)->name);
    return n.found;
}

static mm_status refuse(const mm_selector *s, const mm_selector_term *t, const mm_graph *graph) {
    enum { SHOWN = 4 };
    char kinds[MM_POLICY_KINDS_CAPACITY], layers[SHOWN * (MM_BRIEF_CAPACITY + 2) + 8] = "";
    const char *near = nearest(t, graph);
    if (near)
        return mm_fail(MM_ERR_INVALID,
                       "rule '%s=...': graph %s has no such layer, and there is no such kind: is it %s%s?",
                       MM_BRIEF(s->text), mm_graph_name(graph), near, t->reads ? READS : "");
    for (int l = 0; l < mm_graph_layers(graph) && l < SHOWN; l++)
        snprintf(layers + strlen(layers), sizeof layers - strlen(layers), "%s%s", l ? ", " : "",
                 MM_BRIEF(mm_graph_layer(graph, l)->name));
    return mm_fail(
        MM_ERR_INVALID,
        "rule '%s=...': graph %s has no such layer, and there is no such kind: its layers are %s%s; kinds are "
        "%s",
        MM_BRIEF(s->text), mm_graph_name(graph), layers, mm_graph_layers(graph) > SHOWN ? ", ..." : "",
        mm_policy_kinds(kinds));
}

mm_status mm_selector_find(const mm_selector *s, const mm_graph *graph, uint8_t *named_out) {
    const int layers = mm_graph_layers(graph);
    memset(named_out, 0, (size_t)MM_SELECTOR_TERMS * (size_t)layers);
    for (int t = 0; t < s->n_terms; t++) {
        const mm_selector_term *term = &s->terms[t];
        bool any = term->kinds != 0;
        for (int l = 0; l < layers; l++) any |= named_out[t * layers + l] = names(term, mm_graph_layer(graph, l));
        if (!any) return refuse(s, term, graph);
    }
    return MM_OK;
}
