/* SPDX-License-Identifier: MIT */
/* Private to the simulation: its state; how long and how fast pieces are (simulate_speed.c), and the sums of
 * all-reduces (simulate_sums.c). */
#ifndef MM_CORE_TIME_SIMULATOR_H
#define MM_CORE_TIME_SIMULATOR_H

#include "mm/core/plan/plan_allreduce.h"
#include "mm/core/time/simulate.h"

/* Work is counted in millionths of a ns at full speed, so that a piece whose speed changes continues from where it is.
 * Rounding errors are less than 1 ns, and MM_NS_MOST ns of work in this unit fit 64 bits. */
enum { MM_SIM_FULL_SPEED = 1000000 };

typedef struct mm_simulator {
    const mm_plan *plan;
    const mm_graph_facts *facts;
    const mm_program *program;
    mm_sim_node *nodes;
    mm_period *spans;                 /* per piece */
    int64_t *miss_bytes;              /* per node; NULL: not known */
    int64_t *summed_ns;               /* per seq of the OUT stream: when the sum of that all-reduced piece ends; NULL:
                                         one device */
    int64_t sums_ns;                  /* when the last of the sums that have begun will end; sums run one after the
                                         other */
    mm_allreduce_groups groups;       /* all-reduces in place */
    int begun;                        /* number of groups whose sums have begun */
    int outs_left;                    /* OUT pieces of all-reduced tensors that have not ended yet */
    int64_t *link_bytes;              /* per segment with a code: bytes its codec moves over the link; NULL: none */
    int32_t ended[MM_STREAM_COUNT];   /* number of pieces that have ended */
    int32_t running[MM_STREAM_COUNT]; /* the piece that runs; -1: none */
    int64_t left[MM_STREAM_COUNT];    /* remaining work of the piece that runs */
    int64_t began[MM_STREAM_COUNT];   /* when the piece began; if that is later than now, it waits for a sum until
                                         then */
    int64_t *ended_ns;                /* per piece */
    int64_t busy_ns[MM_STREAM_COUNT];
    mm_work work[MM_STREAM_COUNT]; /* kind of work of the piece that runs */
    int contention[MM_WORK_KINDS][MM_WORK_KINDS];
    int64_t now;
} mm_simulator;

/* ---------------------------------------------------------------- simulate_speed.c */

/* Find how many bytes each step reads from beyond the cache (miss_bytes), and how many bytes of each code its codec
 * moves over the link itself (link_bytes). MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_sim_find_far(mm_simulator *simulator);
MM_CHECKED mm_status mm_sim_find_link_bytes(mm_simulator *simulator);

/* Time of a piece at full speed. MM_ERR_INVALID: it is out of range. */
MM_CHECKED mm_status mm_sim_piece_ns(const mm_simulator *simulator, const mm_piece *piece, int64_t *ns_out);

mm_work mm_sim_work_of(const mm_plan *plan, const mm_node *node);

/* The speed of the piece that a stream runs now, beside what the other streams run; at most MM_SIM_FULL_SPEED. */
int64_t mm_sim_speed(const mm_simulator *simulator, mm_stream_id stream);

/* ---------------------------------------------------------------- simulate_sums.c */

/* Counts the pieces that bring all-reduced tensors to the host. MM_ERR_NOMEM. */
MM_CHECKED mm_status mm_sim_find_sums(mm_simulator *simulator);

/* Whether a piece copies back a sum of the first device, and not all tensors have reached the host yet. */
bool mm_sim_waits_for_all(const mm_simulator *simulator, const mm_piece *piece);

/* When a piece that starts now begins its work. A copy back of a sum, and an update, hold up their stream until the sum
 * is there. */
int64_t mm_sim_work_begins_ns(const mm_simulator *simulator, const mm_piece *piece);

/* Called when a piece has ended: begins the sums that may begin now. */
void mm_sim_begin_sums(mm_simulator *simulator, const mm_piece *piece);

#endif
