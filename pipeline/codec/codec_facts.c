/* SPDX-License-Identifier: MIT */
#include "pipeline/codec/codec_facts.h"

#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/plan/plan.h"

/* The smallest number of rows after which the codec can split a code, and map and code are aligned to MM_ALIGN. 0:
 * there is none. *code_bytes_out: bytes of these rows' code. */
static int64_t split_rows(const mm_codec *codec, mm_shape shape, int64_t map_bytes, int64_t *code_bytes_out) {
    int64_t split = mm_codec_split(codec, &shape), all = shape.dims[0], row_bytes = map_bytes / all;
    if (split <= 0) return 0;
    for (shape.dims[0] = split; shape.dims[0] < all; shape.dims[0] += split) {
        if (shape.dims[0] * row_bytes % MM_ALIGN != 0) continue;
        if (mm_codec_bound(codec, &shape, code_bytes_out) != MM_OK) return 0;
        if (*code_bytes_out % MM_ALIGN == 0) return shape.dims[0];
    }
    return 0;
}

static void fill_code(const mm_codec *codec, const mm_tensor_info *tensor, mm_code_facts *facts) {
    const mm_shape shape = mm_codec_shape(tensor);
    int64_t bytes;
    /* if the codec cannot encode this tensor, the facts stay as initialised */
    if (mm_codec_bound(codec, &shape, &bytes) != MM_OK) return;
    mm_body_nominal body;
    if (mm_codec_body_bound(codec, &shape, &facts->body_bound_bytes) != MM_OK) return;
    if (mm_codec_body_nominal(codec, &shape, &body) != MM_OK) return;
    facts->body_typical_bytes = body.typical_bytes;
    facts->body_reserve_bytes = body.reserve_bytes;
    facts->code_bytes = bytes;
    facts->scratch_bytes = mm_codec_scratch(codec, &shape);
    facts->split_rows = split_rows(codec, shape, tensor->bytes, &bytes);
    facts->split_bytes = facts->split_rows > 0 ? bytes : 0;
    mm_codec_strips strips;
    if (mm_codec_strips_of(codec, &shape, &strips)) facts->strip_elems = strips.strips.strip_elems;
}

mm_codec_facts mm_codec_facts_of(const mm_codec *codec, const char *spec) {
    const mm_codec_flags *flags = &codec->flags;
    mm_codec_facts facts = {.lossless = flags->lossless,
                            .fixed_size = flags->fixed_size,
                            .gives_value = flags->gives_value,
                            .gives_sign = flags->gives_sign,
                            .drops_zeros = flags->drops_zeros};
    strcpy(facts.spec, spec);
    return facts;
}

mm_status mm_codec_facts_create(const mm_graph *graph, mm_codec *const *codecs, const char (*specs)[MM_SPEC_CAPACITY],
                                int n_codecs, mm_graph_facts **facts_out) {
    mm_graph_facts *facts;
    MM_TRY(mm_graph_facts_create(graph, n_codecs, &facts));
    for (int c = 0; c < n_codecs; c++) {
        facts->codecs[c] = mm_codec_facts_of(codecs[c], specs[c]);
        for (int t = 0; t < facts->n_tensors; t++)
            fill_code(codecs[c], mm_graph_tensor(graph, t), &facts->codes[(size_t)c * (size_t)facts->n_tensors + t]);
    }
    *facts_out = facts;
    return MM_OK;
}
