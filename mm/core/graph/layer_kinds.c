/* SPDX-License-Identifier: MIT */
/* The table of layer kinds: name, properties of layers that declare none of their own, and zeros of the outputs. */
#include "mm/core/graph/graph.h"

static const struct {
    const char *name;
    mm_layer_properties properties;
    mm_layer_zeros zeros;
} kinds[MM_LAYER_KINDS] = {
    [MM_LAYER_OTHER] = {"other", {MM_LAYER_CHEAP, false}, MM_ZEROS_NONE},
    [MM_LAYER_DATA] = {"data", {MM_LAYER_CHEAP, false}, MM_ZEROS_NONE},
    [MM_LAYER_CONV] = {"conv", {MM_LAYER_EXPENSIVE, true}, MM_ZEROS_NONE},
    [MM_LAYER_LINEAR] = {"linear", {MM_LAYER_EXPENSIVE, true}, MM_ZEROS_NONE},
    [MM_LAYER_BATCH_NORM] = {"bn", {MM_LAYER_CHEAP, true}, MM_ZEROS_NONE},
    [MM_LAYER_BATCH_NORM_RELU] = {"bn-relu", {MM_LAYER_CHEAP, true}, MM_ZEROS_MADE},
    [MM_LAYER_LRN] = {"lrn", {MM_LAYER_CHEAP, true}, MM_ZEROS_NONE},
    [MM_LAYER_RELU] = {"relu", {MM_LAYER_CHEAP, true}, MM_ZEROS_MADE},
    [MM_LAYER_POOL] = {"pool", {MM_LAYER_CHEAP, true}, MM_ZEROS_PASSED},
    [MM_LAYER_ADD] = {"add", {MM_LAYER_CHEAP, true}, MM_ZEROS_NONE},
    [MM_LAYER_CONCAT] = {"concat", {MM_LAYER_CHEAP, true}, MM_ZEROS_PASSED},
    [MM_LAYER_CROP] = {"crop", {MM_LAYER_CHEAP, true}, MM_ZEROS_PASSED},
    [MM_LAYER_UPSAMPLE] = {"upsample", {MM_LAYER_CHEAP, true}, MM_ZEROS_PASSED},
    [MM_LAYER_DROPOUT] = {"dropout", {MM_LAYER_CHEAP, false}, MM_ZEROS_MADE},
    [MM_LAYER_LOSS] = {"loss", {MM_LAYER_CHEAP, false}, MM_ZEROS_NONE},
    [MM_LAYER_UPDATE] = {"update", {MM_LAYER_CHEAP, false}, MM_ZEROS_NONE},
    [MM_LAYER_EMBEDDING] = {"embedding", {MM_LAYER_CHEAP, true}, MM_ZEROS_NONE},
    [MM_LAYER_LAYER_NORM] = {"ln", {MM_LAYER_CHEAP, true}, MM_ZEROS_NONE},
    [MM_LAYER_GELU] = {"gelu", {MM_LAYER_CHEAP, true}, MM_ZEROS_NONE},
    [MM_LAYER_ATTENTION] = {"attention", {MM_LAYER_EXPENSIVE, true}, MM_ZEROS_NONE},
};

const char *mm_layer_kind_name(mm_layer_kind kind) {
    return (unsigned)kind < MM_LAYER_KINDS ? kinds[kind].name : "unknown";
}

mm_layer_properties mm_layer_kind_properties(mm_layer_kind kind) {
    return kinds[(unsigned)kind < MM_LAYER_KINDS ? kind : MM_LAYER_OTHER].properties;
}

mm_layer_zeros mm_layer_kind_zeros(mm_layer_kind kind) {
    return (unsigned)kind < MM_LAYER_KINDS ? kinds[kind].zeros : MM_ZEROS_NONE;
}
