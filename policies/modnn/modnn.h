/* SPDX-License-Identifier: MIT */
/* Private to the policy modnn: the simulated training of moDNN's Algorithm 1 (Chen et al., section 5.2). It runs the
 * steps in order, with the facts' times and an allocator that knows addresses. On the way it decides what is copied to
 * pinned memory and back, when, and which algorithm each step runs. modnn_write.c makes a plan from these decisions. A
 * root is a tensor that aliases no other: it stands for its storage.
 *
 *   modnn.c            the policy: options, plans that keep all maps, and the choice among plans
 *   modnn_steps.c      Algorithm 1: prepares each step, chooses its algorithm, ends it
 *   modnn_transfers.c  what leaves for another tensor's bytes, defragmentation, prefetching
 *   modnn_work.c       which algorithms a step may run, and the least workspace that it needs
 *   modnn_memory.c     the allocator
 *   modnn_write.c      the plan */
#ifndef POLICIES_MODNN_MODNN_H
#define POLICIES_MODNN_MODNN_H

#include "buffers/layout/ranges.h"
#include "mm/core/plan/interval_map.h"
#include "policies/schedule/schedule.h"

/* ---------------------------------------------------------------- allocator */

typedef struct modnn_block {
    int64_t offset, bytes;
    mm_tensor tensor; /* -1: a workspace */
} modnn_block;

/* The device's memory above the plan's base. */
typedef struct modnn_memory {
    int64_t bytes;
    mm_fit fit;
    mm_ranges free;
    mm_interval_map ready; /* tag: time from which the bytes may be used, in ns */
    modnn_block *blocks;   /* blocks in use, by address */
    int n;
    bool failed; /* out of memory for `ready` */
} modnn_memory;

/* most: most blocks that are ever in use at a time. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_modnn_memory_init(modnn_memory *memory, int64_t bytes, mm_fit fit, int most);
void mm_modnn_memory_fini(modnn_memory *memory);

/* Takes a block. Returns its offset; -1: no free span has room. */
int64_t mm_modnn_memory_take(modnn_memory *memory, int64_t bytes, mm_tensor tensor);
/* Gives the block at the offset back; its bytes may be used from ready_ns on. */
void mm_modnn_memory_give(modnn_memory *memory, int64_t offset, int64_t ready_ns);
/* The block at the offset; there must be one. */
modnn_block *mm_modnn_memory_at(const modnn_memory *memory, int64_t offset);
/* The time from which all of these bytes may be used, in ns. */
int64_t mm_modnn_memory_ready(const modnn_memory *memory, int64_t offset, int64_t bytes);

/* ---------------------------------------------------------------- what is known of steps and tensors */

/* A step that uses a storage. The entries of one root follow each other, in order of steps. */
typedef struct modnn_use {
    int32_t step;
    bool reads; /* the step reads the storage; false: it writes it, whatever it holds */
} modnn_use;

/* A storage that a step uses. */
typedef struct modnn_need {
    mm_tensor root;
    int32_t use;  /* index of the use in modnn.uses */
    bool writes;  /* changes the value */
    bool inplace; /* first written here, in place over another tensor (mm_schedule_tensor.over) */
    int64_t made; /* decided: offset at which the step allocates the storage; -1: the storage was there, or is in place
                   * over another */
} modnn_need;

/* A root's storage, at the present step of the simulation. */
typedef struct modnn_tensor {
    int64_t bytes;    /* aligned */
    int64_t out_ns;   /* time that copying it out takes */
    int64_t offset;   /* on the device; -1: it is not there */
    int64_t ready_ns; /* when its value is, or will be, there */
    int32_t written;  /* last step that wrote it */
    int32_t copy;     /* index of the offload that made the copy in pinned memory which has the storage's
                       * value; -1: none */
    int32_t fetch;    /* index of the prefetch that brought it; -1: a step made it, or has used it since */
    int32_t next;     /* index of its next use: that of the present step, if that uses it */
    int32_t end;      /* index past its last use */
    bool used;        /* a step has used it since it was made or fetched; or it was made for the backward pass alone */
} modnn_tensor;

/* Decided: a copy over the link. Copies of a direction take place in the order of their list. */
typedef struct modnn_transfer {
    mm_tensor root;
    int32_t after;   /* issued right after this step */
    int32_t written; /* offload: the step that wrote what is copied */
    int32_t copy;    /* prefetch: the offload that made the copy */
    bool cancelled;  /* prefetch: what it brought has left again unused */
    int64_t offset;  /* prefetch: where to */
    int64_t end_ns;
} modnn_transfer;

typedef struct modnn_transfers {
    modnn_transfer *list;
    int n, capacity;
    int64_t free_ns; /* when its last copy ends */
} modnn_transfers;

/* Decisions that the paper leaves open, or that may be taken otherwise. No way is best for all networks and budgets. */
typedef struct modnn_way {
    bool closest; /* an allocation takes the smallest free span that has room (best fit); false: one of exactly its
                     size, else the first that has room, as in the paper */
    bool fewest; /* of blocks whose leaving delays equally, those with the fewest bytes to copy leave; false: those that
                    are needed again last */
} modnn_way;

typedef struct modnn {
    const mm_graph *graph;
    const mm_graph_facts *facts; /* with times */
    mm_algorithms algorithms;
    modnn_way way;
    mm_schedule *schedule; /* aliases and in-place pairs; borrowed */
    int n_steps;
    modnn_use *uses;
    modnn_need *needs; /* those of step s: first_need[s] to first_need[s + 1] - 1 */
    int32_t *first_need;
    int64_t *need_bytes; /* per step: its storages and its least workspace */
    int64_t *due_ns;     /* per step: when it starts if all steps run their fastest variant and none waits */
    modnn_tensor *tensors;
    modnn_memory memory;
    int step;
    int64_t began_ns; /* when the previous step ended: transfers that are decided on now may start then */
    int64_t now;
    mm_tensor *away; /* tensors whose value is in pinned memory alone, by their next use */
    int n_away;
    mm_tensor *loads; /* tensors that the present step waits for */
    int n_loads;
    /* decided */
    modnn_transfers outs, ins;
    int32_t *variant;     /* per step */
    int64_t *work_offset; /* per step; unset for a step without a workspace */
    int defragmentations;
} modnn;

/* Prepares the simulation. *least_out: the least memory above the base that a plan can do with. Borrows its arguments.
 * MM_ERR_NOMEM. The caller frees it with mm_modnn_fini, even after a failure. */
MM_CHECKED mm_status mm_modnn_init(modnn *m, mm_schedule *schedule, const mm_graph_facts *facts,
                                   mm_algorithms algorithms, int64_t *least_out);
void mm_modnn_fini(modnn *m);

/* Runs Algorithm 1 in `bytes` of memory above the base, at least *least_out of mm_modnn_init. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_modnn_run(modnn *m, int64_t bytes, modnn_way way);

/* Writes what was decided to the schedule, and makes the plan. The caller destroys it. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_modnn_write(modnn *m, mm_plan **plan_out);

/* ---------------------------------------------------------------- shared by its files */

static inline bool mm_modnn_has_next(const modnn *m, mm_tensor root) {
    return m->tensors[root].next < m->tensors[root].end;
}

/* The step of a storage's next use. */
static inline int mm_modnn_next_step(const modnn *m, mm_tensor root) { return m->uses[m->tensors[root].next].step; }

static inline const mm_variant *mm_modnn_variant(const modnn *m, int step, int variant) {
    return &m->facts->variants[m->facts->variant_first[step] + variant];
}

/* The variants that the step may run by: [from, to). */
void mm_modnn_choice(const modnn *m, int step, int *from_out, int *to_out);

/* The least workspace of the variants that the step may run by, aligned. */
int64_t mm_modnn_least_work(const modnn *m, int step);

/* Whether what a step makes counts as used at once, because the step is in the forward pass and the next use is not.
 * use: index of the next use. */
static inline bool mm_modnn_is_for_later(const modnn *m, int step, int32_t use, mm_tensor root) {
    return use < m->tensors[root].end && mm_graph_step(m->graph, step)->phase == MM_FORWARD &&
           mm_graph_step(m->graph, m->uses[use].step)->phase != MM_FORWARD;
}

/* ---------------------------------------------------------------- transfers */

/* Time that copying a storage takes, over a link of this rate. */
int64_t mm_modnn_copy_ns(const modnn *m, mm_tensor root, int64_t bytes_per_s);

/* Which blocks leave for an allocation: blocks[from] to blocks[to]. */
typedef struct modnn_scheme {
    int from, to;
    int64_t ready_ns; /* when they have left */
} modnn_scheme;

/* Finds contiguous blocks whose leaving makes room for `bytes`, and least delays what is to start at `start_ns`. Blocks
 * that were not used since they were made or fetched do not leave, nor do those that a step up to `until` uses. m->way
 * decides between equal ones. False: there are none. */
bool mm_modnn_find_scheme(const modnn *m, int64_t bytes, int until, int64_t start_ns, modnn_scheme *scheme_out);

/* Lets the blocks of a scheme leave. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_modnn_offload(modnn *m, const modnn_scheme *scheme);

/* Places what the present step needs and is not on the device, so that its least workspace has room, too. Lets other
 * blocks leave for that, and defragments if that is not enough. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_modnn_place_needs(modnn *m);

/* Fetches what the present step waits for (m->loads). MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_modnn_load(modnn *m);

/* Time by which fetches for the next step that needs any are set back if the present step's workspace takes
 * `work_bytes`. */
int64_t mm_modnn_set_back_ns(modnn *m, int64_t work_bytes);

/* Fetches for later steps beside the present one, which ends at end_ns. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_modnn_prefetch(modnn *m, int64_t end_ns);

#endif
