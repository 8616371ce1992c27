/* SPDX-License-Identifier: MIT */
/* Accounts of a plan's memory: which segments make up the peak, which maps wait for the backward pass (the stash), and
 * a lower bound. Pure arithmetic on the plan, its graph and its facts. Thread-safe. */
#ifndef MM_CORE_ACCOUNT_ACCOUNT_H
#define MM_CORE_ACCOUNT_ACCOUNT_H

#include "mm/core/plan/plan.h"

/* Purposes of bytes. The first five are on the device for the whole iteration, the others for a part of it. */
typedef enum mm_account_kind {
    MM_ACCOUNT_WEIGHT,
    MM_ACCOUNT_WEIGHT_GRADIENT,
    MM_ACCOUNT_OPTIMIZER,
    MM_ACCOUNT_STATE,
    MM_ACCOUNT_REST,  /* the rest of the plan's base: alignment, and persistent tensors of other graphs */
    MM_ACCOUNT_STASH, /* inputs, feature maps and saved tensors that wait for the backward pass, not as codes */
    MM_ACCOUNT_CODE,
    MM_ACCOUNT_BUFFER,      /* maps in the region of tensor buffers (mm_plan.buffers) */
    MM_ACCOUNT_FEATURE_MAP, /* inputs, feature maps and saved tensors that only one pass uses */
    MM_ACCOUNT_GRADIENT_MAP,
    MM_ACCOUNT_WORKSPACE, /* workspaces of steps, scratch of codecs */
    MM_ACCOUNT_KINDS
} mm_account_kind;

const char *mm_account_kind_name(mm_account_kind kind);

/* Memory of a step: the node with the most live bytes, among the step's own node and those of the operations queued
 * after it. */
typedef struct mm_account_step {
    int step; /* index in the graph */
    int node; /* the node with the most live bytes */
    int64_t live_bytes;
    int64_t bytes[MM_ACCOUNT_KINDS]; /* live_bytes by kind */
} mm_account_step;

typedef struct mm_account {
    const mm_plan *plan; /* borrowed */
    /* Bytes of all tensors that the graph declares, whatever the plan does with them. STASH: tensors that the forward
     * pass uses and the backward pass reads. WORKSPACE: the most at one time. CODE: the sum of all codes. BUFFER: the
     * region of tensor buffers. REST: as in the plan. */
    int64_t declared[MM_ACCOUNT_KINDS];
    int peak_node;                     /* first node at which live bytes are plan->live_peak_bytes */
    int64_t at_peak[MM_ACCOUNT_KINDS]; /* live bytes at peak_node, by kind; their sum is plan->live_peak_bytes */
    int64_t lasting[MM_ACCOUNT_KINDS]; /* bytes that are on the device during the whole iteration: the base and external
                                          tensors */
    int last_forward, first_backward;  /* nodes: mm_plan_turning_point */
    int64_t idle_bytes; /* plan->peak_bytes less plan->live_peak_bytes: free parts of regions, gaps between segments */
    int *segments;      /* indices of the segments that are alive on the device at the peak, largest first */
    int n_segments;
    mm_account_step *steps; /* in the order of the plan */
    int n_steps;
} mm_account;

/* Makes the account of a finished plan, which it borrows. MM_ERR_NOMEM. O(nodes + segments log segments). */
MM_CHECKED mm_status mm_account_init(const mm_plan *plan, mm_account *account_out);
void mm_account_fini(mm_account *account);

/* Writes the name of a segment: its tensor's, "workspace of STEP", or "pool of codes". Returns buffer. */
const char *mm_account_segment_name(const mm_plan *plan, int segment, char *buffer, size_t capacity);

/* What a segment's bytes are for. For the segment of a persistent tensor: by the kind of the tensor. */
mm_account_kind mm_account_segment_kind(const mm_account *account, int segment);

/* Bytes of a plan's pools, in which the bodies of codes lie (plan.h). */
typedef struct mm_pool_sums {
    int64_t reserve_bytes; /* pools on the device */
    int64_t spill_bytes;   /* spills, in pinned memory */
    int64_t pinned_bytes;  /* other pools in pinned memory */
    int64_t bound_bytes;   /* the most that bodies may take in all pools and spills */
} mm_pool_sums;

mm_pool_sums mm_account_pools(const mm_plan *plan);

/* What a plan moves over the link in one iteration. */
typedef struct mm_moves {
    int64_t offloads, prefetches; /* copies to and from pinned memory */
    int64_t bytes; /* bytes of these copies. Bodies of codes that encoders write to pinned memory themselves are not
                      counted: their size is not known beforehand */
} mm_moves;

mm_moves mm_account_moves(const mm_plan *plan);

/* Number of recomputed steps in one iteration. */
int mm_account_steps_again(const mm_plan *plan);

/* ---------------------------------------------------------------- stash */

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
MM_CHECKED mm_status mm_stash_account_init(const mm_plan *plan, const mm_facts *facts, mm_stash_account *stash_out);
void mm_stash_account_fini(mm_stash_account *stash);

/* What a plan's nodes do with a stashed map. */
typedef struct mm_decision {
    uint32_t kinds; /* bit k: mm_remedy_kind k is applied. Several may be, but none beside KEEP */
    int codec;      /* index in the facts of the codec for its elements; -1: none */
    /* Time, each running alone, of the operations on the map and of the steps that recompute it. A step that recomputes
     * several maps counts with each of these maps. */
    int64_t ns;
} mm_decision;

/* *decisions_out: one for each map of `stash`, which must be of the same plan; the caller frees them. facts: those that
 * the plan was made from, with or without times. A map that stays on the device between the passes counts as kept, even
 * if a step that recomputes another map writes it, too. MM_ERR_NOMEM. O(nodes * uses). */
MM_CHECKED mm_status mm_account_decide(const mm_plan *plan, const mm_facts *facts, const mm_stash_account *stash,
                                       mm_decision **decisions_out);

/* ---------------------------------------------------------------- maps */

/* Classes of stashed tensors, by the layers that write and read them, as in Gist (Jain et al., ISCA 2018, Figure 3). */
typedef enum mm_stash_class {
    MM_STASH_RELU_POOL, /* a ReLU's output that a pool reads, and no convolution */
    MM_STASH_RELU_CONV, /* a ReLU's output that a convolution reads */
    MM_STASH_POOL_CONV, /* a pool's output that a convolution reads */
    MM_STASH_OTHER,     /* other feature maps */
    MM_STASH_SAVED,     /* saved tensors: index maps of pools, statistics */
    MM_STASH_BATCH,     /* inputs */
    MM_STASH_CLASSES
} mm_stash_class;

const char *mm_stash_class_name(mm_stash_class class);

typedef struct mm_stash_sum {
    int64_t bytes;      /* bytes of the maps */
    int64_t held_bytes; /* bytes that the maps take under the plan between the passes, with the reserves of bodies */
} mm_stash_sum;

/* A plan's maps as papers on feature maps count them: feature maps, gradient maps, saved tensors and codes; without
 * weights, their gradients and states, and without the batch. */
typedef struct mm_map_account {
    int64_t placed_bytes;    /* bytes of the region in which the plan places the maps, without the batch, with the
                                workspaces that lie among the maps */
    int64_t dynamic_bytes;   /* most bytes at a time, without workspaces, if each map and code were allocated at its
                                first use and freed after its last */
    int64_t undecoded_bytes; /* as dynamic_bytes, if layers computed on codes directly, so that no map were decoded */
    mm_stash_sum stash[MM_STASH_CLASSES];
} mm_map_account;

/* stash: of the same plan and facts. The facts have the plan's codecs. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_map_account_init(const mm_plan *plan, const mm_facts *facts, const mm_stash_account *stash,
                                         mm_map_account *account_out);

/* ---------------------------------------------------------------- lower bound */

/* moDNN's lower bound (Chen et al., DATE 2018, equation 7). A step needs its inputs, its outputs and a workspace; so
 * every plan needs at least the largest such sum, and the tensors that never leave the device. moDNN computes it for a
 * sub-batch of one image; for that figure, pass a graph of batch 1.
 *
 * A step counts each managed tensor that it uses, and its smallest workspace of the facts' variants. To stay below
 * every plan, a tensor whose sign alone is read counts one bit per element, and an output that may share an input's
 * bytes (in place, or as an alias) counts nothing.
 *   bytes            the largest sum, plus all persistent and external tensors
 *   offloaded_bytes  the largest sum, plus the step's own persistent and external tensors only. Steps of phase
 *                    MM_UPDATE are left out, because they work element by element, and so can run in parts
 * Bytes are not rounded up to MM_ALIGN. */
typedef struct mm_lower_bound {
    int64_t bytes, offloaded_bytes;
    int step, offloaded_step; /* the steps with the largest sums; -1: none */
    int64_t persistent_bytes; /* of `bytes`: persistent and external tensors */
} mm_lower_bound;

/* facts NULL: uses the workspaces that the graph declares. */
mm_lower_bound mm_lower_bound_of(const mm_graph *graph, const mm_facts *facts);

/* The bytes by which moDNN chooses the sub-batch (Chen et al., equation 8): the most that any window of consecutive
 * steps uses together. A window has `permille` of all steps (1 to 1000), at least one. Each managed tensor that its
 * steps use counts once. Added are the largest workspace of the steps' fastest variants (facts NULL: as the graph
 * declares it), and all persistent and external tensors. MM_ERR_NOMEM. O(uses + steps * length). */
MM_CHECKED mm_status mm_window_bytes(const mm_graph *graph, const mm_facts *facts, int permille, int64_t *bytes_out);

#endif
