/* SPDX-License-Identifier: MIT */
/* A machine file describes a machine by a few rates, from which the times of any graph's steps, codecs and copies
 * follow. It is for machines that you do not have; measured facts are better (mm bench --facts).
 *
 *   { "format": "mm machine", "version": 1, "name": "titanx", "memory_bytes": 12884901888,
 *     "conv_flops_per_s": ..., "winograd_flops_per_s": ..., "linear_flops_per_s": ..., "memory_bytes_per_s": ...,
 *     "launch_ns": ..., "step_ns": ..., "passes": { "batch_norm": 1.6, ... },
 *     "link": { "out_bytes_per_s": ..., "in_bytes_per_s": ...,
 *       "out_both_bytes_per_s": ..., "in_both_bytes_per_s": ... },
 *     "host_bytes_per_s": ..., "host_sum_bytes_per_s": ..., "link_sharers": ...,
 *     "contention_permille": ..., "link_contention_permille": ..., "issue_ns": ..., "alloc_ns": ...,
 *     "contention": { "dear": { "encode": ..., "decode": ..., "link": ... }, ... },
 *     "codecs": { "zfp:rate=4": { "encode_bytes_per_s": ..., "decode_bytes_per_s": ... }, "zfp": { ... } },
 *     "types": { "bf16": { "conv_flops_per_s": ..., "codecs": { ... } }, ... }, "lacks": [ "bf16", ... ],
 *     "half_rate_elems": ..., "linear_half_rate_elems": ..., "attention_half_rate_elems": ...,
 *     "algorithms": { "implicit GEMM": { "flops_per_s": ... },
 *       "GEMM": { "flops_per_s": ..., "workspace": { "im2col_images": 1 } },
 *       "Winograd": { "kernel": 3, "stride": 1, "flops_per_s": ..., "workspace": { "tile": 6, "tile_bytes": 144 } } } }
 *
 * A step takes the longer of its arithmetic and its traffic, plus a launch, plus step_ns (default 0): what a framework
 * does around a layer's kernels, such as looking the layer up and allocating. Codecs and copies do not take step_ns.
 *   arithmetic   two operations for each multiply-add of convolutions and linear layers, at their rate.
 *                winograd_flops_per_s is for 3x3 convolutions of stride 1. A backward step takes twice the operations
 *                of the forward step; if it computes no gradient of the input, or none of the weights, only as many.
 *                Attention is flash attention's: two products of the causal half forward, five backward, at
 *                attention_flops_per_s (default linear_flops_per_s)
 *   traffic      the bytes of all tensors that it reads and writes, at memory_bytes_per_s, times `passes` of its
 *                layer's kind (default 1; bn-relu defaults to bn's): a batch norm reads its input twice
 * A step whose output only shares storage (the gradient of a sum) costs just the launch and step_ns. A codec takes the
 * map's bytes at its rate, plus a launch. A codec is looked up by its whole spec, then by its name.
 *
 * types (default none): rates of arithmetic and codecs by the element type of maps (f32, bf16, ...). What a type does
 * not list is as for the whole machine.
 *
 * lacks (default none): element types that the machine does not multiply; networks with such maps are refused.
 *
 * host_sum_bytes_per_s (default none: adding takes no time) and link_sharers (default 1), if several devices each train
 * a part of a batch: how fast a core of the host adds the gradients that the devices send, and how many devices share
 * the link's rates (mm_graph_facts).
 *
 * store_bytes_per_s and load_bytes_per_s (default MM_DISK_BYTES_PER_S): rates of a disk (--disk), of writes and reads.
 *
 * host_bytes_per_s (default MM_HOST_BYTES_PER_S): what updates on the host (--optimizer on=host) read and write.
 *
 * contention (default none): permille by kinds of work, as in facts files (mm/core/facts/facts_file.c). It replaces
 * contention_permille and link_contention_permille.
 *
 * half_rate_elems (default 0) slows down convolutions that are too small to fill the device: one whose output has n
 * elements runs at n / (n + half_rate_elems) of its rate. linear_half_rate_elems and attention_half_rate_elems (default
 * 0) do the same for linear layers and attention. Both directions count the output of the forward step. A loss with a
 * product counts its scores, n rows of all classes.
 *
 * algorithms (default none): ways to compute a convolution. flops_per_s replaces conv_flops_per_s and
 * winograd_flops_per_s; it counts the operations of direct convolution. kernel and stride limit the algorithm to one
 * kernel size or stride (input height over output height, rounded; of a transposed convolution, output over input). The
 * workspace, by default none, is one of:
 *   im2col_images      the im2col matrix of so many images, or of the batch if that is smaller
 *   tile, tile_bytes   all maps and filters as transformed tiles of tile_bytes each. A channel of an output of h x h
 *                      elements has ceil(h / (tile - k + 1)) tiles each way with a kernel of k x k; a filter has one
 *                      tile a channel. The step also writes and reads them once. flops_per_s holds for tiles that lie
 *                      wholly inside the output
 * Each convolution's step, forward or backward, gets as variants the algorithms worth having: each is slower than the
 * one before, with less workspace. Variants that the graph declares are dropped: they are the present device's. */
#ifndef TOOLS_FACTS_MACHINE_H
#define TOOLS_FACTS_MACHINE_H

#include <jansson.h>

#include "mm/core/facts/facts.h"

enum { MACHINE_CODECS = 64, MACHINE_ALGORITHMS = 16, MACHINE_ANY_TYPE = MM_DTYPES, MACHINE_NAME_CAPACITY = 24 };

/* Operations (multiplications and additions) a second, by kind of product. */
typedef struct machine_rates {
    double conv, winograd, linear, attention;
} machine_rates;

typedef struct machine_codec {
    char spec[MM_SPEC_CAPACITY]; /* the codec's whole spec, or its name alone */
    int type;                    /* mm_dtype of the maps, or MACHINE_ANY_TYPE */
    double encode_bytes_per_s, decode_bytes_per_s;
} machine_codec;

typedef struct machine_algorithm {
    double kernel, stride; /* the kernel size and stride to which the algorithm is limited; 0: any */
    double flops_per_s;
    double im2col_images;    /* workspace: the im2col matrix of so many images; 0: none */
    double tile, tile_bytes; /* workspace: transformed tiles; 0: none */
} machine_algorithm;

typedef struct machine {
    char name[MACHINE_NAME_CAPACITY];
    int64_t memory_bytes;
    machine_rates rates[MM_DTYPES]; /* by the element type of maps */
    bool lacks[MM_DTYPES];          /* element types that it does not multiply */
    double memory_bytes_per_s;
    int64_t launch_ns, step_ns;
    double passes[MM_LAYER_KINDS];
    int64_t out_bytes_per_s, in_bytes_per_s, out_both_bytes_per_s, in_both_bytes_per_s;
    int64_t contention_permille, link_contention_permille, issue_ns, alloc_ns;
    mm_contention contention;
    double host_bytes_per_s, host_sum_bytes_per_s, store_bytes_per_s, load_bytes_per_s, link_sharers;
    machine_codec codecs[MACHINE_CODECS];
    int n_codecs;
    double half_rate_elems, linear_half_rate_elems, attention_half_rate_elems; /* elements of the output */
    machine_algorithm algorithms[MACHINE_ALGORITHMS];
    int n_algorithms;
} machine;

/* Whether a JSON file is a machine file. root: its content. */
bool machine_is(const json_t *root);

/* Reads a machine file's content. path: for messages. MM_ERR_FORMAT: the message says what is wrong. */
MM_CHECKED mm_status machine_read(const char *path, const json_t *root, machine *machine_out);

/* Sets all times in the facts, and the variants of steps for which the machine has algorithms. The facts must already
 * have codecs and sizes of codes. MM_ERR_NOMEM, MM_ERR_INVALID (the machine lacks an element type that a layer
 * multiplies): nothing is changed. */
MM_CHECKED mm_status machine_facts(const machine *machine, const mm_graph *graph, mm_graph_facts *facts);

#endif
