/* The selectors of rules: which layers a rule names.
 *
 *   *             every layer
 *   conv          layers of a kind (mm_layer_kind_name); bn and relu name a bn-relu, too
 *   layer1.*.bn?  layers by name: * stands for any text, ? for one character. What a layer computes besides
 *                 (mm_graph_add_part) counts as its name, too
 *   SELECTOR-in   what such layers read in the forward pass, in place of what they write */
#ifndef POLICIES_SELECTOR_H
#define POLICIES_SELECTOR_H

#include "mm/core/graph.h"

typedef struct mm_selector {
    char *text;     /* as given */
    uint32_t kinds; /* bit per mm_layer_kind; 0: names layers by `text`, without its -in */
    bool reads;     /* what the layers read, in place of what they write */
} mm_selector;

/* MM_ERR_INVALID: empty; MM_ERR_NOMEM. The caller ends it. Whether it names anything, the graph tells. */
MM_CHECKED mm_status mm_selector_parse(const char *text, mm_selector *selector_out);
void mm_selector_fini(mm_selector *selector);

bool mm_selector_names(const mm_selector *selector, const mm_layer_info *layer);

/* Sets named_out[l] for each layer of the graph: whether the selector names it. MM_ERR_INVALID: it is no kind, and no
 * layer has such a name; the message says what it could be. */
MM_CHECKED mm_status mm_selector_find(const mm_selector *selector, const mm_graph *graph, uint8_t *named_out);

/* The kinds of layers: "conv, linear, ...". Returns the text. */
enum { MM_POLICY_KINDS_CAPACITY = 192 };
const char *mm_policy_kinds(char text_out[MM_POLICY_KINDS_CAPACITY]);

#endif
