/* SPDX-License-Identifier: MIT */
#include "mm/manager/policy_thread.h"

#include <string.h>

static void *plan(void *argument) {
    mm_policy_thread *t = argument;
    mm_failure_save(&t->result, mm_fallback_draft(t->set, &t->request, &t->draft));
    atomic_store(&t->done, true);
    return NULL;
}

mm_status mm_policy_thread_start(mm_policy_thread *t, const mm_plan_set *set, const mm_fallback_request *request) {
    t->stop = 0;
    atomic_store(&t->done, false);
    t->set = set;
    t->request = *request;
    t->request.policy = &t->policy;
    t->request.refusal = &t->refusal;
    t->request.limits.stop = &t->stop;
    const int error = pthread_create(&t->thread, NULL, plan, t);
    if (error) return mm_fail(MM_ERR_NOMEM, "no thread to plan policy %s: %s", t->policy.spec, strerror(error));
    t->planning = true;
    return MM_OK;
}

bool mm_policy_thread_done(const mm_policy_thread *t) { return t->planning && atomic_load(&t->done); }

mm_status mm_policy_thread_join(mm_policy_thread *t) {
    pthread_join(t->thread, NULL);
    t->planning = false;
    return mm_failure_restore(&t->result);
}

void mm_policy_thread_interrupt(mm_policy_thread *t) {
    if (!t->planning) return;
    t->stop = 1;
    pthread_join(t->thread, NULL);
    t->planning = false;
    if (t->result.status == MM_OK) mm_draft_fini(&t->draft);
}

void mm_policy_thread_cancel(mm_policy_thread *t) {
    mm_policy_thread_interrupt(t);
    if (t->wanted) mm_policy_fini(&t->policy);
    t->wanted = false;
}
