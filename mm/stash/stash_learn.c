/* SPDX-License-Identifier: MIT */
#include "mm/stash/stash_learn.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the thread */

static void plan_one(mm_learner *l, mm_learned_order *o) {
    mm_failure_save(&o->failure, mm_stash_plan_make(&l->terms, &o->order, &o->plan, &o->refused));
}

static void *run(void *arg) {
    mm_learner *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->ends) {
        if (l->queued == 0) {
            pthread_cond_wait(&l->changed, &l->lock);
            continue;
        }
        mm_learned_order *o = l->planning = l->queue[0];
        memmove(&l->queue[0], &l->queue[1], (size_t)--l->queued * sizeof(mm_learned_order *));
        pthread_mutex_unlock(&l->lock);
        plan_one(l, o);
        pthread_mutex_lock(&l->lock);
        o->state = o->failure.status == MM_OK ? MM_LEARNED_PLANNED : MM_LEARNED_REFUSED;
        l->planning = NULL;
        l->plans += o->failure.status == MM_OK;
        l->planning_ns += o->plan.cpu_ns;
        l->needed_bytes = o->plan.needed_bytes;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

void mm_learner_init(mm_learner *l) {
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    l->terms.policy = &l->policy;
    l->terms.stop = &l->stop;
}

static bool start(mm_learner *l) {
    if (!l->has_thread) l->has_thread = pthread_create(&l->thread, NULL, run, l) == 0;
    return l->has_thread;
}

bool mm_learner_is_idle(mm_learner *l) {
    pthread_mutex_lock(&l->lock);
    const bool idle = l->queued == 0 && !l->planning;
    pthread_mutex_unlock(&l->lock);
    return idle;
}

void mm_learner_wait(mm_learner *l) {
    pthread_mutex_lock(&l->lock);
    while (l->queued > 0 || l->planning) pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static void destroy(mm_learner *l, mm_learned_order *o) {
    mm_status synced = o->execution ? mm_dispatch_sync(l->dispatch) : MM_OK; /* its last iteration may still run */
    (void)synced;
    mm_execution_destroy(o->execution);
    mm_stash_plan_fini(&o->plan);
    mm_order_fini(&o->order);
    free(o);
}

void mm_learner_fini(mm_learner *l) {
    if (l->has_thread) {
        __atomic_store_n(&l->stop, 1, __ATOMIC_RELAXED);
        pthread_mutex_lock(&l->lock);
        l->ends = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    for (int i = 0; i < l->n; i++) destroy(l, l->orders[i]);
    mm_policy_fini(&l->policy);
    mm_policy_fini(&l->signing);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
}

/* ---------------------------------------------------------------- what is known */

/* An order whose planning ran out of memory is planned again when it comes again. */
static bool is_tried_again(const mm_learned_order *o) { return o->failure.status == MM_ERR_NOMEM; }

bool mm_learned_fits_not(const mm_learned_order *o) { return o->failure.status == MM_ERR_INFEASIBLE; }

static mm_learned_order *known(mm_learner *l, const mm_order *order) {
    mm_learned_order *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n; i++) {
        mm_learned_order *o = l->orders[i];
        if (mm_order_equal(&o->order, order) && (o->state == MM_LEARNED_NEW || !is_tried_again(o))) found = o;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

/* Makes room for one more order: forgets the least recently used one that does not wait to be planned. */
static bool make_room(mm_learner *l) {
    int oldest = -1;
    if (l->n < MM_LEARNED_MOST) return true;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n; i++)
        if (l->orders[i]->state != MM_LEARNED_NEW && (oldest < 0 || l->orders[i]->used < l->orders[oldest]->used))
            oldest = i;
    pthread_mutex_unlock(&l->lock);
    if (oldest < 0) return false;
    mm_learned_order *gone = l->orders[oldest];
    l->orders[oldest] = l->orders[--l->n];
    for (int i = 0; i < l->n; i++)
        if (l->orders[i]->next == gone) l->orders[i]->next = NULL;
    if (l->last == gone) l->last = NULL;
    destroy(l, gone);
    return true;
}

static mm_learned_order *learn(mm_learner *l, mm_order *order) {
    mm_learned_order *o = start(l) && make_room(l) ? calloc(1, sizeof *o) : NULL;
    if (!o) return NULL;
    o->order = *order;
    *order = (mm_order){0};
    l->orders[l->n++] = o;
    pthread_mutex_lock(&l->lock);
    l->queue[l->queued++] = o;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return o;
}

static bool plans_in_vain(const mm_learner *l) { return l->in_vain >= MM_LEARNED_IN_VAIN; }

/* Whether a new order is worth a plan: it has come before, or orders do come again. */
static bool is_worth_it(mm_learner *l, const mm_order *order) {
    if (!plans_in_vain(l)) return true;
    const uint64_t hash = mm_order_hash(order);
    for (int i = 0; i < MM_LEARNED_SEEN; i++)
        if (l->seen[i] == hash) return true;
    l->seen[l->next_seen++ % MM_LEARNED_SEEN] = hash;
    return false;
}

bool mm_learner_gives_up(mm_learner *l) {
    const bool now = plans_in_vain(l) && !l->told_in_vain;
    l->told_in_vain |= now;
    return now;
}

bool mm_learner_add(mm_learner *l, mm_order *order) {
    mm_learned_order *o = known(l, order);
    if (!o && is_worth_it(l, order)) {
        o = learn(l, order);
        l->in_vain += o != NULL;
    }
    if (o) mm_learner_note(l, o);
    return o != NULL;
}

void mm_learner_note(mm_learner *l, mm_learned_order *o) {
    o->used = ++l->clock;
    if (o->comes++ > 0) l->in_vain = 0;
    if (l->last) l->last->next = o;
    l->last = o;
    l->last_known = true;
}

mm_learned_order *mm_learner_find(mm_learner *l, const mm_stash_desc *first) {
    mm_learned_order *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n; i++) {
        mm_learned_order *o = l->orders[i];
        const bool refused = o->state == MM_LEARNED_REFUSED;
        if (o->state == MM_LEARNED_NEW || (refused && (o != l->last || !mm_learned_fits_not(o)))) continue;
        if (plans_in_vain(l) && o->comes < 2) continue;
        if (!mm_stash_desc_equal(&o->order.entries[0], first)) continue;
        if (l->last && l->last->next == o && !refused) {
            found = o;
            break;
        }
        if (!found || found->state == MM_LEARNED_REFUSED || (!refused && o->used > found->used)) found = o;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

mm_learned_order *mm_learner_untold(mm_learner *l) {
    mm_learned_order *found = NULL;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n && !found; i++) {
        mm_learned_order *o = l->orders[i];
        if (o->state == MM_LEARNED_REFUSED && !o->told && !mm_learned_fits_not(o)) found = o;
    }
    pthread_mutex_unlock(&l->lock);
    if (found) found->told = true;
    return found;
}
