/* The selectors of rules: which layers a rule names.
 *
 *   *             every layer
 *   conv          layers of a kind (mm_layer_kind_name); bn and relu both name a bn-relu
 *   layer1.*.bn?  layers by name: * stands for any text, ? for one character. A fused layer matches by the names of its
 *                 parts too (mm_graph_add_part)
 *   SELECTOR-in   the maps that such layers read in the forward pass, rather than those that they write */
#ifndef POLICIES_SELECTOR_H
#define POLICIES_SELECTOR_H

#include "mm/core/graph.h"

typedef struct mm_selector {
    char *text;     /* as given */
    uint32_t kinds; /* bit per mm_layer_kind; 0: layers are matched by `text`, without its -in */
    bool reads;     /* -in: maps that the layers read, rather than those that they write */
} mm_selector;

/* Parses a selector; whether it names any layer is found by mm_selector_find. MM_ERR_INVALID: empty text; MM_ERR_NOMEM.
 * The caller frees it with mm_selector_fini. */
MM_CHECKED mm_status mm_selector_parse(const char *text, mm_selector *selector_out);
void mm_selector_fini(mm_selector *selector);

/* Whether it names, whatever the graph, all maps that the other names. False where that hangs on the graph. */
bool mm_selector_covers(const mm_selector *selector, const mm_selector *other);

bool mm_selector_names(const mm_selector *selector, const mm_layer_info *layer);

/* named_out[l]: whether the selector names layer l. MM_ERR_INVALID: it is no kind, and no layer has such a name; the
 * message suggests the nearest. */
MM_CHECKED mm_status mm_selector_find(const mm_selector *selector, const mm_graph *graph, uint8_t *named_out);

/* Writes the names of all kinds of layers, "conv, linear, ..."; returns text_out. */
enum { MM_POLICY_KINDS_CAPACITY = 192 };
const char *mm_policy_kinds(char text_out[MM_POLICY_KINDS_CAPACITY]);

#endif
