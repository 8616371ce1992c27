/* SPDX-License-Identifier: MIT */
/* Orders that were learned, with their plans, and the thread that makes these. */
#ifndef MM_STASH_STASH_LEARN_H
#define MM_STASH_STASH_LEARN_H

#include <pthread.h>

#include "mm/stash/stash_plan.h"
#include "pipeline/dispatch.h"

enum { MM_LEARNED_MOST = 16 };

typedef enum mm_learned_state {
    MM_LEARNED_NEW,     /* waits for the thread */
    MM_LEARNED_PLANNED, /* has a plan */
    MM_LEARNED_REFUSED, /* has none; `failure` says why */
} mm_learned_state;

/* Of one order. The thread writes plan, failure and refused before it sets the state; nobody else reads them before. */
typedef struct mm_learned_order {
    mm_order order;
    mm_stash_plan plan;
    mm_failure failure;
    mm_stash_refused refused;
    mm_learned_state state;        /* under the lock */
    mm_execution *execution;       /* NULL: not made yet, or all entries are kept */
    bool told;                     /* mm_learner_untold has returned it */
    int64_t used;                  /* when it was last begun or learned; larger is later */
    struct mm_learned_order *next; /* what followed it last time; NULL: not known */
} mm_learned_order;

typedef struct mm_learner {
    mm_dispatch *dispatch; /* of the executions */
    mm_stash_terms terms;
    mm_policy policy, signing;                 /* of the terms */
    mm_learned_order *orders[MM_LEARNED_MOST]; /* only whoever has the stash's turn changes these */
    int n;
    int64_t clock;
    mm_learned_order *last; /* of the last iteration whose order is known; NULL: there was none */
    bool last_known;        /* that was the iteration before */
    volatile int stop;      /* mm_limits.stop */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    mm_learned_order *planning; /* that the thread works on */
    mm_learned_order *queue[MM_LEARNED_MOST];
    int queued;
    bool ends;
    int64_t plans, planning_ns, needed_bytes;
} mm_learner;

/* The terms' policy is learner->policy, which must be parsed. */
void mm_learner_init(mm_learner *learner);
/* Stops the thread, and frees. Executions must be idle. */
void mm_learner_fini(mm_learner *learner);

/* Takes over an order that has ended (and leaves *order empty), unless it is known, and has it planned. Forgets the
 * order that was longest not used, if there are too many. False: there was no memory for it. */
bool mm_learner_add(mm_learner *learner, mm_order *order);

/* The order that an iteration may follow that begins with this entry: the one that came behind the last one the time
 * before, or else the one that was used last. NULL: none is known, or it is not planned yet. One that does not fit is
 * returned if it is that of the iteration before, and there is no other. */
mm_learned_order *mm_learner_find(mm_learner *learner, const mm_stash_desc *first);

/* Whether it has no plan because it does not fit the budget. Orders without a plan for other reasons (a policy's fault)
 * run unplanned. */
bool mm_learned_fits_not(const mm_learned_order *order);
/* An order that runs unplanned for such a reason, which failure says; each is returned once. NULL: there is none. */
mm_learned_order *mm_learner_untold(mm_learner *learner);

/* An iteration has followed an order. */
void mm_learner_note(mm_learner *learner, mm_learned_order *order);

/* Whether nothing is left to be planned. */
bool mm_learner_is_idle(mm_learner *learner);
/* Waits until all that was added is planned. */
void mm_learner_wait(mm_learner *learner);

#endif
