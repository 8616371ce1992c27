/* SPDX-License-Identifier: MIT */
#include "mm/core/graph/graph_words.h"

static const char *tensor_kind(int value) { return mm_tensor_kind_name((mm_tensor_kind)value); }
static const char *dtype(int value) { return mm_dtype_name((mm_dtype)value); }
static const char *layer_kind(int value) { return mm_layer_kind_name((mm_layer_kind)value); }
static const char *phase(int value) { return mm_phase_name((mm_phase)value); }

static const char *const ownerships[] = {
    [MM_MANAGED] = "managed", [MM_PERSISTENT] = "persistent", [MM_EXTERNAL] = "external"};
static const char *const costs[] = {[MM_LAYER_CHEAP] = "cheap", [MM_LAYER_EXPENSIVE] = "expensive"};
static const char *const accesses[] = {[MM_READ] = "read", [MM_WRITE] = "write", [MM_MODIFY] = "modify"};
static const char *const forms[] = {[MM_FORM_VALUE] = "value", [MM_FORM_SIGN] = "sign"};
static const char *const pairs[] = {"inplace", "alias"}; /* by mm_pair.alias */
static const char *const whens[] = {
    [MM_ALLREDUCE_NOT] = "not",
    [MM_ALLREDUCE_AT_ONCE] = "at once",
    [MM_ALLREDUCE_AT_END] = "at end",
    [MM_ALLREDUCE_IN_PLACE_AT_ONCE] = "in place at once",
    [MM_ALLREDUCE_IN_PLACE_AT_END] = "in place at end",
};
static const char *const ops[] = {[MM_REDUCE_SUM] = "sum", [MM_REDUCE_MEAN] = "mean"};

static const char *ownership(int value) { return ownerships[value]; }
static const char *cost(int value) { return costs[value]; }
static const char *access(int value) { return accesses[value]; }
static const char *form(int value) { return forms[value]; }
static const char *pair(int value) { return pairs[value]; }
static const char *when(int value) { return whens[value]; }
static const char *as(int value) { return ops[value]; }

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

const mm_graph_words mm_words_tensor_kind = {tensor_kind, MM_TENSOR_KINDS};
const mm_graph_words mm_words_ownership = {ownership, LENGTH(ownerships)};
const mm_graph_words mm_words_dtype = {dtype, MM_DTYPES};
const mm_graph_words mm_words_layer_kind = {layer_kind, MM_LAYER_KINDS};
const mm_graph_words mm_words_cost = {cost, LENGTH(costs)};
const mm_graph_words mm_words_phase = {phase, MM_UPDATE + 1};
const mm_graph_words mm_words_access = {access, LENGTH(accesses)};
const mm_graph_words mm_words_form = {form, LENGTH(forms)};
const mm_graph_words mm_words_pair = {pair, LENGTH(pairs)};
const mm_graph_words mm_words_when = {when, LENGTH(whens)};
const mm_graph_words mm_words_as = {as, LENGTH(ops)};
