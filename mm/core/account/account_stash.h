/* SPDX-License-Identifier: MIT */
/* Which maps wait for the backward pass (the stash), what could be done with each, and what a plan does. */
#ifndef MM_CORE_ACCOUNT_ACCOUNT_STASH_H
#define MM_CORE_ACCOUNT_ACCOUNT_STASH_H

#include "mm/core/plan/plan.h"

/* Ways to save the memory of a map between its last forward and its first backward use. */
typedef enum mm_remedy_kind {
    MM_REMEDY_KEEP,
    MM_REMEDY_MASK,      /* a code of the signs, exact; for maps of which the backward pass reads the signs alone */
    MM_REMEDY_COMPRESS,  /* a smaller code; also the exact signs, if the code is lossy and the backward pass reads the
                            signs */
    MM_REMEDY_RECOMPUTE, /* recomputed, from tensors on the device, by layers whose forward step can run again with the
                            same result */
    MM_REMEDY_SWAP,      /* copied to host memory and back */
    MM_REMEDY_COMPRESS_SWAP, /* a code as of COMPRESS, copied to host memory and back; exact signs, if any, stay on the
                                device */
    MM_REMEDY_KINDS
} mm_remedy_kind;

const char *mm_remedy_kind_name(mm_remedy_kind kind);

typedef struct mm_remedy {
    mm_remedy_kind kind;
    int codec;            /* MASK, COMPRESS, COMPRESS_SWAP: index in the facts; else -1 */
    int sign_codec;       /* COMPRESS, COMPRESS_SWAP: codec of the exact signs; -1: none */
    uint32_t layer_kinds; /* RECOMPUTE: bit k: layers of mm_layer_kind k run again */
    /* Bytes that stay on the device, including a code's reserve for its body. RECOMPUTE: bytes of the tensors that must
     * be kept so that the map can be recomputed, without the tensors that the backward pass reads anyway. */
    int64_t bytes_left;
    /* Time, by the facts, of the codecs, the copies or the layers that run again, whether or not the computation waits
     * for them; 0: not known. */
    int64_t ns;
} mm_remedy;

typedef struct mm_stash_reader {
    int step;
    mm_form form;
} mm_stash_reader;

/* A storage that the forward pass writes and the backward pass reads. */
typedef struct mm_stash_map {
    mm_tensor tensor; /* the root of its aliases */
    int64_t bytes;
    /* Bytes that the map takes on the device between the passes under this plan: the map itself, its codes, or both.
     * Bodies of codes, which share a pool, do not count. */
    int64_t held_bytes;
    const mm_stash_reader *readers; /* backward steps that read it, in order */
    int n_readers;
    mm_remedy *remedies; /* KEEP first; the figures of each assume that it is applied to this map alone */
    int n_remedies;
} mm_stash_map;

typedef struct mm_stash_account {
    mm_stash_map *maps; /* largest first */
    int n_maps;
    mm_stash_reader *readers;
    mm_remedy *remedies;
} mm_stash_account;

/* Lists the managed maps that a plan's graph stashes. facts: of the same graph; they may have other codecs than the
 * plan's. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_account_init(const mm_plan *plan, const mm_graph_facts *facts,
                                           mm_stash_account *stash_out);
void mm_stash_account_fini(mm_stash_account *stash);

/* What a plan's nodes do with a stashed map. */
typedef struct mm_decision {
    uint32_t kinds; /* bit k: mm_remedy_kind k is applied. Several may be, but none beside KEEP */
    int codec;      /* index in the facts of the codec for its elements; -1: none */
    int sign_codec; /* of the codec for its signs alone; -1: none */
    /* Time, each running alone, of the operations on the map and of the steps that recompute it. A step that recomputes
     * several maps counts with each of these maps. */
    int64_t ns;
} mm_decision;

/* *decisions_out: one for each map of `stash`, which must be of the same plan; the caller frees them. facts: those that
 * the plan was made from, with or without times. A map that stays on the device between the passes counts as kept, even
 * if a step that recomputes another map writes it, too. MM_ERR_NOMEM. O(nodes * uses). */
MM_CHECKED mm_status mm_account_decide(const mm_plan *plan, const mm_graph_facts *facts, const mm_stash_account *stash,
                                       mm_decision **decisions_out);

#endif
