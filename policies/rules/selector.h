/* SPDX-License-Identifier: MIT */
/* The selectors of rules: which maps a rule names. A selector is one term, or several joined by '&', of which each must
 * name the map: relu&conv-in is what a ReLU writes and a convolution reads. A term names layers, and so maps:
 *
 *   *             every layer
 *   conv          layers of a kind (mm_layer_kind_name); bn and relu both name a bn-relu
 *   layer1.*.bn?  layers by name: * stands for any text, ? for one character. A fused layer matches by the names of its
 *                 parts too (mm_graph_add_part)
 *   TERM-in       the maps that such layers read in the forward pass, rather than those that they write */
#ifndef POLICIES_RULES_SELECTOR_H
#define POLICIES_RULES_SELECTOR_H

#include "mm/core/graph/graph.h"

typedef struct mm_selector_term {
    const char *text; /* the term, as given; points into mm_selector.text */
    int length;       /* length of `text` without its -in */
    uint32_t kinds;   /* bit per mm_layer_kind; 0: layers are matched by `text` */
    bool reads;       /* -in: maps that the layers read, rather than those that they write */
} mm_selector_term;

enum { MM_SELECTOR_TERMS = 4 }; /* most terms of a selector: one for a map's writer, some for its readers */

typedef struct mm_selector {
    char *text; /* the whole selector, as given */
    mm_selector_term terms[MM_SELECTOR_TERMS];
    int n_terms;
} mm_selector;

/* Parses a selector. mm_selector_find finds out whether it names any layer. MM_ERR_INVALID: a term without text, or too
 * many; MM_ERR_NOMEM. The caller frees it with mm_selector_fini. */
MM_CHECKED mm_status mm_selector_parse(const char *text, mm_selector *selector_out);
void mm_selector_fini(mm_selector *selector);

/* Whether, in every graph, it names all maps that the other names. False where that depends on the graph. */
bool mm_selector_covers(const mm_selector *selector, const mm_selector *other);

/* Whether one of its terms names the maps that layers of this kind write, by the kind; `*` does not. */
bool mm_selector_has_kind(const mm_selector *selector, mm_layer_kind kind);

/* named_out[t * layers + l]: whether term t names layer l, for all MM_SELECTOR_TERMS terms. MM_ERR_INVALID: a term is
 * no kind, and no layer has such a name; the message suggests the nearest. */
MM_CHECKED mm_status mm_selector_find(const mm_selector *selector, const mm_graph *graph, uint8_t *named_out);

/* Writes the names of all kinds of layers, "conv, linear, ..."; returns text_out. */
enum { MM_POLICY_KINDS_CAPACITY = 192 };
const char *mm_policy_kinds(char text_out[MM_POLICY_KINDS_CAPACITY]);

#endif
