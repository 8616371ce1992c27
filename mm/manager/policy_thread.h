/* SPDX-License-Identifier: MIT */
/* Plans the prepared graphs under a policy that searches (auto), on a thread of its own, while iterations run.
 *
 * The thread only reads the plan set. Whoever is about to change that, or the table of persistent tensors, calls
 * mm_policy_thread_interrupt first: the thread stops, and what it has planned is dropped. The policy stays wanted, and
 * planning begins anew with the next iteration (settings.c). */
#ifndef MM_MANAGER_POLICY_THREAD_H
#define MM_MANAGER_POLICY_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "mm/planning/fallback_draft.h"

typedef struct mm_policy_thread {
    bool wanted;      /* `policy` is to be set */
    bool planning;    /* the thread runs, or has ended and was not joined */
    mm_policy policy; /* owned while it is wanted */
    pthread_t thread;
    volatile int stop;
    atomic_bool done; /* the thread has written what follows */
    const mm_plan_set *set;
    mm_fallback_request request;
    mm_failure result; /* MM_OK: there is a draft */
    mm_draft draft;
    mm_refusal refusal;
    mm_failure owed; /* failure of the last policy that could not be set, which mm_policy_wait returns */
} mm_policy_thread;

/* Begins to plan the policy that is wanted; `request` has all but the policy. MM_ERR_NOMEM: there is no thread. */
MM_CHECKED mm_status mm_policy_thread_start(mm_policy_thread *t, const mm_plan_set *set,
                                            const mm_fallback_request *request);
/* Whether planning has ended, so that a join does not wait. */
bool mm_policy_thread_done(const mm_policy_thread *t);
/* Waits for the thread. MM_OK: t->draft has plans, which the caller frees (mm_draft_fini). MM_ERR_INFEASIBLE:
 * t->refusal says why. */
MM_CHECKED mm_status mm_policy_thread_join(mm_policy_thread *t);
void mm_policy_thread_interrupt(mm_policy_thread *t);
/* Interrupts, and wants no policy any more. */
void mm_policy_thread_cancel(mm_policy_thread *t);

#endif
