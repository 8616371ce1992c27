/* A machine as a few rates, from which facts of any graph follow: what its steps, codecs and copies would take there.
 * For machines that are not at hand; facts that were measured are better (mm bench --facts).
 *
 *   { "format": "mm machine", "version": 1, "name": "titanx", "memory_bytes": 12884901888,
 *     "conv_flops_per_s": ..., "winograd_flops_per_s": ..., "linear_flops_per_s": ..., "memory_bytes_per_s": ...,
 *     "launch_ns": ..., "passes": { "batch_norm": 1.6, ... },
 *     "link": { "out_bytes_per_s": ..., "in_bytes_per_s": ...,
 *       "out_both_bytes_per_s": ..., "in_both_bytes_per_s": ... },
 *     "contention_permille": ..., "link_contention_permille": ..., "issue_ns": ..., "alloc_ns": ...,
 *     "codecs": { "zfp:rate=4": { "encode_bytes_per_s": ..., "decode_bytes_per_s": ... }, "zfp": { ... } } }
 *
 * A step takes the longer of its arithmetic and its traffic, and a launch:
 *   arithmetic   two for each multiply-add of convolutions and linear layers, at their rate; winograd_flops_per_s is
 *                that of 3x3 convolutions of stride 1. The backward pass does it twice, once without a gradient by the
 *                input
 *   traffic      the bytes of every tensor that it reads and writes, at memory_bytes_per_s; times `passes` of its
 *                layer's kind (1; of "bn-relu" those of "bn"): a batch norm reads its input twice
 * What only shares storage (the gradient of a sum) costs nothing but the launch. A codec takes the map's bytes at its
 * rate, and a launch. Codecs are looked up by their whole spec, else by name. */
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

/* Whether a file's content is that of a machine. */
bool machine_is(const json_t *root);

/* MM_ERR_FORMAT says what is wrong in `path`. */
MM_CHECKED mm_status machine_read(const char *path, const json_t *root, machine *machine_out);

/* Every time in the facts, which have their codecs and codes' sizes already. */
void machine_facts(const machine *machine, const mm_graph *graph, mm_facts *facts);

#endif
