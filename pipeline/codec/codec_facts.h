/* What codecs will make of a graph's tensors, as facts for planners. */
#ifndef PIPELINE_CODEC_CODEC_FACTS_H
#define PIPELINE_CODEC_CODEC_FACTS_H

#include "mm/core/facts.h"
#include "pipeline/codec/codec.h"

/* Facts of a graph with these codecs (specs as the policy wrote them): code and scratch sizes, no times. */
MM_CHECKED mm_status mm_codec_facts_create(const mm_graph *graph, mm_codec *const *codecs,
                                           const char (*specs)[MM_SPEC_CAPACITY], int n_codecs, mm_facts **facts_out);

#endif
