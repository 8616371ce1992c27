/* SPDX-License-Identifier: MIT */
/* Facts about codes of a graph's tensors, for planners. */
#ifndef PIPELINE_CODEC_CODEC_FACTS_H
#define PIPELINE_CODEC_CODEC_FACTS_H

#include "mm/core/facts/facts.h"
#include "pipeline/codec/codec.h"

/* What is known of a codec itself. spec: as written in the policy. */
mm_codec_facts mm_codec_facts_of(const mm_codec *codec, const char *spec);

/* Creates facts of a graph with these codecs: sizes of codes and of scratch, no times. specs: as written in the policy.
 * The caller destroys them. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_codec_facts_create(const mm_graph *graph, mm_codec *const *codecs,
                                           const char (*specs)[MM_SPEC_CAPACITY], int n_codecs,
                                           mm_graph_facts **facts_out);

#endif
