/* SPDX-License-Identifier: MIT */
/* Learned orders with their plans, and the thread that makes the plans. */
#ifndef MM_STASH_STASH_LEARN_H
#define MM_STASH_STASH_LEARN_H

#include <pthread.h>

#include "mm/stash/stash_plan.h"
#include "pipeline/dispatch.h"

enum {
    MM_LEARNED_MOST = 16,
    MM_LEARNED_IN_VAIN = 8, /* after so many new orders in a row, an order is planned only when it comes again */
    MM_LEARNED_SEEN = 64    /* so many of those are remembered */
};

typedef enum mm_learned_state {
    MM_LEARNED_NEW,     /* waits for the thread */
    MM_LEARNED_PLANNED, /* has a plan */
    MM_LEARNED_REFUSED, /* has none; `failure` says why */
} mm_learned_state;

/* A learned order. The thread writes plan, failure and refused before it sets the state; nobody else reads them
 * before. */
typedef struct mm_learned_order {
    mm_order order;
    mm_stash_plan plan;
    mm_failure failure;
    mm_stash_refused refused;
    mm_learned_state state;        /* under the lock */
    mm_execution *execution;       /* NULL: not made yet, or all entries are kept */
    bool told;                     /* mm_learner_untold has returned this order */
    int comes;                     /* number of iterations with this order */
    int64_t used;                  /* counter value when an iteration last began it, or when it was learned; larger is
                                      later */
    struct mm_learned_order *next; /* the order that followed it last time; NULL: not known */
} mm_learned_order;

typedef struct mm_learner {
    mm_dispatch *dispatch; /* runs the executions */
    mm_stash_terms terms;
    mm_policy policy, signing;                 /* parsed; terms.policy and terms.signing point to these two */
    mm_learned_order *orders[MM_LEARNED_MOST]; /* changed only by the call that is inside the stash */
    int n;
    int64_t clock;
    mm_learned_order *last;         /* the order of the last iteration whose order is known; NULL: there was none */
    bool last_known;                /* `last` is the order of the iteration that ended last, not of an earlier one */
    int in_vain;                    /* number of new orders that were planned since an order came again */
    bool told_in_vain;              /* mm_learner_gives_up has returned true */
    uint64_t seen[MM_LEARNED_SEEN]; /* hashes of the orders that came last and were not planned, in a ring */
    int next_seen;
    volatile int stop; /* mm_limits.stop */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock */
    mm_learned_order *planning; /* the order that the thread plans; NULL: none */
    mm_learned_order *queue[MM_LEARNED_MOST];
    int queued;
    bool ends;
    int64_t plans, planning_ns, needed_bytes;
} mm_learner;

/* The terms' policy is learner->policy, which must be parsed. */
void mm_learner_init(mm_learner *learner);
/* Stops the thread, and frees. Executions must be idle. */
void mm_learner_fini(mm_learner *learner);

/* Takes over the order of an ended iteration (and leaves *order empty), unless the same order is known already, and has
 * the thread plan it. If there are too many orders, forgets the least recently used one. After MM_LEARNED_IN_VAIN new
 * orders in a row, a new order is planned only when it comes a second time, until an order comes again. False: it is
 * not planned for that reason; out of memory; or no order can be forgotten now. */
bool mm_learner_add(mm_learner *learner, mm_order *order);

/* The order to follow in an iteration that begins with this entry: the one that followed `last` the time before, or
 * else the one that was used most recently. NULL: none is known, or none is planned yet. An order that does not fit is
 * returned only if it is `last`, and there is no other. While orders are planned in vain, only one that came twice is
 * returned. */
mm_learned_order *mm_learner_find(mm_learner *learner, const mm_stash_desc *first);

/* Whether the order has no plan because it does not fit the budget. Orders without a plan for other reasons (a policy's
 * fault) run unplanned. */
bool mm_learned_fits_not(const mm_learned_order *order);
/* An order that runs unplanned for such another reason, which order->failure says; each is returned once. NULL: there
 * is none. */
mm_learned_order *mm_learner_untold(mm_learner *learner);

/* True once: MM_LEARNED_IN_VAIN new orders came in a row. */
bool mm_learner_gives_up(mm_learner *learner);

/* Says that an iteration has followed the order. */
void mm_learner_note(mm_learner *learner, mm_learned_order *order);

/* Whether nothing is left to be planned. */
bool mm_learner_is_idle(mm_learner *learner);
/* Waits until all added orders are planned. */
void mm_learner_wait(mm_learner *learner);

#endif
