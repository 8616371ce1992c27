/* A machine described by a few rates, from which the times of any graph's steps, codecs and copies follow. For
 * machines that are not at hand; measured facts are better (mm bench --facts).
 *
 *   { "format": "mm machine", "version": 1, "name": "titanx", "memory_bytes": 12884901888,
 *     "conv_flops_per_s": ..., "winograd_flops_per_s": ..., "linear_flops_per_s": ..., "memory_bytes_per_s": ...,
 *     "launch_ns": ..., "passes": { "batch_norm": 1.6, ... },
 *     "link": { "out_bytes_per_s": ..., "in_bytes_per_s": ...,
 *       "out_both_bytes_per_s": ..., "in_both_bytes_per_s": ... },
 *     "contention_permille": ..., "link_contention_permille": ..., "issue_ns": ..., "alloc_ns": ...,
 *     "codecs": { "zfp:rate=4": { "encode_bytes_per_s": ..., "decode_bytes_per_s": ... }, "zfp": { ... } } }
 *
 * A step takes the longer of its arithmetic and its traffic, plus a launch:
 *   arithmetic   two operations for each multiply-add of convolutions and linear layers, at their rate;
 *                winograd_flops_per_s is for 3x3 convolutions of stride 1. A backward step does it twice, or once if no
 *                gradient with respect to the input is needed
 *   traffic      the bytes of all tensors that it reads and writes, at memory_bytes_per_s, times `passes` of its
 *                layer's kind (default 1; bn-relu has those of bn): a batch norm reads its input twice
 * A step whose output only shares storage (the gradient of a sum) costs just the launch. A codec takes the map's bytes
 * at its rate, plus a launch. Codecs are looked up by their whole spec, then by name. */
#ifndef TOOLS_MACHINE_H
#define TOOLS_MACHINE_H

#include <jansson.h>

#include "mm/core/facts.h"

enum { MACHINE_CODECS = 16 };

typedef struct machine_codec {
    char spec[MM_SPEC_CAPACITY]; /* or name */
    double encode_bytes_per_s, decode_bytes_per_s;
} machine_codec;

typedef struct machine {
    char name[16];
    int64_t memory_bytes;
    double conv_flops_per_s, winograd_flops_per_s, linear_flops_per_s;
    double memory_bytes_per_s;
    int64_t launch_ns;
    double passes[MM_LAYER_KINDS];
    int64_t out_bytes_per_s, in_bytes_per_s, out_both_bytes_per_s, in_both_bytes_per_s;
    int64_t contention_permille, link_contention_permille, issue_ns, alloc_ns;
    machine_codec codecs[MACHINE_CODECS];
    int n_codecs;
} machine;

/* Whether a file's content describes a machine. */
bool machine_is(const json_t *root);

/* Reads a machine. path: for messages. MM_ERR_FORMAT: the message says what is wrong. */
MM_CHECKED mm_status machine_read(const char *path, const json_t *root, machine *machine_out);

/* Sets all times in the facts. Codecs and sizes of codes must be there already. */
void machine_facts(const machine *machine, const mm_graph *graph, mm_facts *facts);

#endif
