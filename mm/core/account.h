/* What holds the memory of a plan: pure arithmetic on the plan, its graph and its facts. */
#ifndef MM_CORE_ACCOUNT_H
#define MM_CORE_ACCOUNT_H

#include "mm/core/plan.h"

/* What bytes are for. The first five are on the device throughout, the others come and go. */
typedef enum mm_account_kind {
    MM_ACCOUNT_WEIGHT,
    MM_ACCOUNT_WEIGHT_GRADIENT,
    MM_ACCOUNT_OPTIMIZER,
    MM_ACCOUNT_STATE,
    MM_ACCOUNT_REST,         /* of the plan's base: alignment, and persistent tensors of other graphs */
    MM_ACCOUNT_STASH,        /* inputs, feature maps and saved tensors that wait for the backward pass, as they are */
    MM_ACCOUNT_CODE,         /* codes of such */
    MM_ACCOUNT_BUFFER,       /* maps in persistent tensor buffers */
    MM_ACCOUNT_FEATURE_MAP,  /* inputs, feature maps and saved tensors within one pass */
    MM_ACCOUNT_GRADIENT_MAP, /* */
    MM_ACCOUNT_WORKSPACE,    /* of steps and codecs */
    MM_ACCOUNT_KINDS
} mm_account_kind;

const char *mm_account_kind_name(mm_account_kind kind);

/* A step of the plan, with the operations queued after it: the moment at which most is alive. */
typedef struct mm_account_step {
    int step; /* of the graph */
    int node; /* the moment */
    int64_t live_bytes;
    int64_t bytes[MM_ACCOUNT_KINDS]; /* live_bytes by kind */
} mm_account_step;

typedef struct mm_account {
    const mm_plan *plan; /* borrowed */
    /* Of tensors what the graph declares, whatever the plan does with them (a tensor of kind STASH is one that the
     * backward pass reads and the forward pass made). WORKSPACE: the largest at one time. CODE: all that are made.
     * BUFFER: the buffers. REST: as in the plan. */
    int64_t declared[MM_ACCOUNT_KINDS];
    int peak_node;                     /* first moment at which live bytes are plan->live_peak_bytes */
    int64_t at_peak[MM_ACCOUNT_KINDS]; /* sum: plan->live_peak_bytes */
    int64_t idle_bytes;     /* what the plan needs beyond: regions set apart but not full then, gaps between segments */
    int *segments;          /* alive on the device at the peak, largest first */
    int n_segments;         /* */
    mm_account_step *steps; /* in the order of the plan */
    int n_steps;
} mm_account;

/* Of a finished plan, which must outlive it. MM_ERR_NOMEM. O(nodes + segments log segments). */
MM_CHECKED mm_status mm_account_init(const mm_plan *plan, mm_account *account_out);
void mm_account_fini(mm_account *account);

/* What a segment is: its tensor's name, or whose workspace. Returns buffer. */
const char *mm_account_segment_name(const mm_plan *plan, int segment, char *buffer, size_t capacity);

/* ---------------------------------------------------------------- stash */

/* What can be done with a map between its last forward and its first backward use. */
typedef enum mm_remedy_kind {
    MM_REMEDY_KEEP,
    MM_REMEDY_MASK,      /* the backward pass needs its sign only: a code that gives it, exact */
    MM_REMEDY_COMPRESS,  /* a smaller code, and the sign's beside it where a reader of the sign would get a lossy one */
    MM_REMEDY_RECOMPUTE, /* made again by cheap layers from what is on the device then */
    MM_REMEDY_SWAP,      /* to host memory and back */
} mm_remedy_kind;

const char *mm_remedy_kind_name(mm_remedy_kind kind);

typedef struct mm_remedy {
    mm_remedy_kind kind;
    int codec;            /* MASK, COMPRESS: in the facts; else -1 */
    int sign_codec;       /* COMPRESS: beside it; else -1 */
    uint32_t layer_kinds; /* RECOMPUTE: bit k: runs layers of mm_layer_kind k again */
    int64_t bytes_left;   /* on the device meanwhile. RECOMPUTE: what would have to be kept for it that the backward
                             pass does not read anyway */
} mm_remedy;

typedef struct mm_stash_reader {
    int step;
    mm_form form;
} mm_stash_reader;

enum { MM_REMEDIES_MAX = 12 };

/* A storage that the forward pass writes and the backward pass reads. */
typedef struct mm_stash_map {
    mm_tensor tensor; /* the root of its aliases */
    int64_t bytes;
    int64_t held_bytes;             /* what this plan holds of it between the two passes: the map, its codes, or both */
    const mm_stash_reader *readers; /* in the backward pass, in order */
    int n_readers;
    mm_remedy remedies[MM_REMEDIES_MAX]; /* KEEP first; each as if it were done with this map alone */
    int n_remedies;
} mm_stash_map;

typedef struct mm_stash {
    mm_stash_map *maps; /* largest first */
    int n_maps;
    mm_stash_reader *readers;
} mm_stash;

/* The managed maps that a plan's graph stashes. `facts` are of the same graph, and may know other codecs than the
 * plan's. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_stash_init(const mm_plan *plan, const mm_facts *facts, mm_stash *stash_out);
void mm_stash_fini(mm_stash *stash);

/* ---------------------------------------------------------------- lower bound */

/* moDNN's bound (Chen et al., DATE 2018, equation 7): a step cannot run without its inputs, its outputs and a
 * workspace, so no plan needs less than the step for which they are largest, and what never leaves the device beside.
 * moDNN means it of one sub-batch of one image: give a graph of batch 1.
 *
 * Of a step are counted: each tensor that it uses, once; its smallest workspace (over the facts' variants). To stay
 * below every plan, a reader of the sign counts a bit an element, and an output that may share an input's bytes
 * (in place, or as an alias) nothing.
 *   bytes      the largest such sum of managed tensors + all persistent and external tensors
 *   offloaded  the largest such sum, the step's own persistent and external tensors included; nothing beside. Steps of
 *              phase MM_UPDATE are left out: they go element by element, and so piece by piece.
 * Bytes are not rounded up to MM_ALIGN. */
typedef struct mm_lower_bound {
    int64_t bytes, offloaded_bytes;
    int step, offloaded_step; /* which steps hold them; -1: none */
    int64_t persistent_bytes; /* of `bytes`: persistent and external tensors */
} mm_lower_bound;

/* facts NULL: the graph's workspaces. */
mm_lower_bound mm_lower_bound_of(const mm_graph *graph, const mm_facts *facts);

#endif
