/* SPDX-License-Identifier: MIT */
/* The iteration under way: whether it has failed, and where its segments lie. */
#include "pipeline/running.h"

#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"
#include "pipeline/runtime_alloc.h"

mm_status mm_dispatch_failure(mm_dispatch *d) {
    pthread_mutex_lock(&d->lock);
    mm_status status = mm_failure_restore(&d->failure);
    pthread_mutex_unlock(&d->lock);
    return status;
}

void *mm_dispatch_address(mm_dispatch *d, int segment) {
    const mm_segment *s = &d->execution->plan->segments[segment];
    if (s->memory == MM_MEM_DISK) return NULL; /* it has no address */
    if (!s->dynamic) return (s->memory == MM_MEM_PINNED ? d->pinned : d->base) + s->offset;
    mm_runtime_alloc *u = &d->execution->runtime_alloc;
    pthread_mutex_lock(&u->lock);
    void *address = u->address[segment];
    pthread_mutex_unlock(&u->lock);
    return address;
}
