/* SPDX-License-Identifier: MIT */
/* A machine described by a few rates, from which the times of any graph's steps, codecs and copies follow. For
 * machines that are not at hand; measured facts are better (mm bench --facts).
 *
 *   { "format": "mm machine", "version": 1, "name": "titanx", "memory_bytes": 12884901888,
 *     "conv_flops_per_s": ..., "winograd_flops_per_s": ..., "linear_flops_per_s": ..., "memory_bytes_per_s": ...,
 *     "launch_ns": ..., "passes": { "batch_norm": 1.6, ... },
 *     "link": { "out_bytes_per_s": ..., "in_bytes_per_s": ...,
 *       "out_both_bytes_per_s": ..., "in_both_bytes_per_s": ... },
 *     "host_sum_bytes_per_s": ..., "link_sharers": ...,
 *     "contention_permille": ..., "link_contention_permille": ..., "issue_ns": ..., "alloc_ns": ...,
 *     "contention": { "dear": { "encode": ..., "decode": ..., "link": ... }, ... },
 *     "codecs": { "zfp:rate=4": { "encode_bytes_per_s": ..., "decode_bytes_per_s": ... }, "zfp": { ... } },
 *     "types": { "bf16": { "conv_flops_per_s": ..., "codecs": { ... } }, ... },
 *     "half_rate_elems": ...,
 *     "algorithms": { "implicit GEMM": { "flops_per_s": ... },
 *       "GEMM": { "flops_per_s": ..., "workspace": { "im2col_images": 1 } },
 *       "Winograd": { "kernel": 3, "stride": 1, "flops_per_s": ..., "workspace": { "tile": 6, "tile_bytes": 144 } } } }
 *
 * A step takes the longer of its arithmetic and its traffic, plus a launch:
 *   arithmetic   two operations for each multiply-add of convolutions and linear layers, at their rate;
 *                winograd_flops_per_s is for 3x3 convolutions of stride 1. A backward step does it twice, or once if no
 *                gradient with respect to the input is needed. Attention's are flash attention's: two products of the
 *                causal half going forward, five going back, at attention_flops_per_s (default linear_flops_per_s)
 *   traffic      the bytes of all tensors that it reads and writes, at memory_bytes_per_s, times `passes` of its
 *                layer's kind (default 1; bn-relu has those of bn): a batch norm reads its input twice
 * A step whose output only shares storage (the gradient of a sum) costs just the launch. A codec takes the map's bytes
 * at its rate, plus a launch. Codecs are looked up by their whole spec, then by name.
 *
 * types (default none): other rates of arithmetic and codecs by the element type of maps (f32, bf16, ...). The four
 * rates above hold for steps whose maps are of no listed type, or where the type does not say; codecs likewise.
 *
 * host_sum_bytes_per_s (default none: that takes no time) and link_sharers (default 1): of several devices that train
 * parts of a batch: how fast a core of the host adds what they send, and how many of them share the link's rates
 * (mm_facts).
 *
 * contention (default none): permille by kinds of work, as in files of facts (mm/core/facts/facts_file.c); it stands in the
 * place of the two numbers.
 *
 * half_rate_elems (default 0) makes convolutions that are too small to fill the device slower: one with n elements of
 * output has n / (n + half_rate_elems) of its rate.
 *
 * algorithms (default none): ways to compute a convolution. Each has a rate in the place of conv_flops_per_s and
 * winograd_flops_per_s, counted as if computed directly; may be for one kernel size or stride (of the input's height
 * over the output's, rounded; of a transposed one the other way round); and has a workspace, none by default:
 *   im2col_images      the matrix whose rows are what each filter reads, of so many images, or of all if they are fewer
 *   tile, tile_bytes   all maps and filters in transformed tiles: a map of h x h elements of output and a kernel of k
 *                      has ceil(h / (tile - k + 1)) tiles each way, of tile_bytes each, and a filter has one a channel.
 *                      They are written and read once; the rate is that of tiles of which nothing is cut off
 * A convolution's step, forward or backward, then has the variants of the facts that are worth having: each slower than
 * the one before, with less workspace. What the graph declares for it is of the device at hand, and does not count. */
#ifndef TOOLS_FACTS_MACHINE_H
#define TOOLS_FACTS_MACHINE_H

#include <jansson.h>

#include "mm/core/facts/facts.h"

enum { MACHINE_CODECS = 64, MACHINE_ALGORITHMS = 16, MACHINE_ANY_TYPE = MM_DTYPES };

/* Multiplications and additions of a step, a second. */
typedef struct machine_rates {
    double conv, winograd, linear, attention;
} machine_rates;

typedef struct machine_codec {
    char spec[MM_SPEC_CAPACITY]; /* or name */
    int type;                    /* mm_dtype of the maps; MACHINE_ANY_TYPE */
    double encode_bytes_per_s, decode_bytes_per_s;
} machine_codec;

typedef struct machine_algorithm {
    double kernel, stride; /* of the convolutions that it computes; 0: any */
    double flops_per_s;
    double im2col_images;    /* workspace: im2col's matrix of so many */
    double tile, tile_bytes; /* or transformed tiles; 0: none */
} machine_algorithm;

typedef struct machine {
    char name[16];
    int64_t memory_bytes;
    machine_rates rates[MM_DTYPES]; /* by the element type of maps */
    double memory_bytes_per_s;
    int64_t launch_ns;
    double passes[MM_LAYER_KINDS];
    int64_t out_bytes_per_s, in_bytes_per_s, out_both_bytes_per_s, in_both_bytes_per_s;
    int64_t contention_permille, link_contention_permille, issue_ns, alloc_ns;
    mm_contention contention;
    double host_sum_bytes_per_s, link_sharers;
    machine_codec codecs[MACHINE_CODECS];
    int n_codecs;
    double half_rate_elems;
    machine_algorithm algorithms[MACHINE_ALGORITHMS];
    int n_algorithms;
} machine;

/* Whether a file's content describes a machine. */
bool machine_is(const json_t *root);

/* Reads a machine. path: for messages. MM_ERR_FORMAT: the message says what is wrong. */
MM_CHECKED mm_status machine_read(const char *path, const json_t *root, machine *machine_out);

/* Sets all times in the facts, and the variants of steps that the machine has algorithms for. Codecs and sizes of codes
 * must be there already. MM_ERR_NOMEM: nothing is changed. */
MM_CHECKED mm_status machine_facts(const machine *machine, const mm_graph *graph, mm_facts *facts);

#endif
