/* SPDX-License-Identifier: MIT */
/* An iteration leaves its plan. The bytes of each entry are found where the plan has them at that moment; they stay
 * there, and the entry becomes an unplanned one. Codes are decoded to host memory. */
#include "mm/stash/stash_off_plan.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/log.h"
#include "mm/stash/stash.h"
#include "mm/stash/stash_arena.h"
#include "mm/stash/stash_desc.h"
#include "mm/stash/stash_host.h"
#include "mm/stash/stash_unplanned.h"

/* ---------------------------------------------------------------- where bytes are */

static bool is_done(const mm_stash *s, const mm_plan *plan, int node) {
    const mm_node *n = &plan->nodes[node];
    return n->kind == MM_NODE_STEP ? n->step < s->follow.step : mm_dispatch_has_issued(s->dispatch, node);
}

/* The segment that holds a tensor now. That is the segment of its next reader; or, if an operation has yet to write
 * that segment, the segment that the operation reads. The plan's proof guarantees that the segment holds the value. -1:
 * nothing reads the tensor any more. */
static int32_t segment_now(const mm_stash *s, const mm_plan *plan, mm_tensor tensor) {
    int at = 0;
    int32_t segment = -1;
    for (; at < plan->n_nodes && segment < 0; at++) {
        const mm_node *n = &plan->nodes[at];
        if (n->kind != MM_NODE_STEP || is_done(s, plan, at)) continue;
        const mm_use *use = mm_graph_step(plan->graph, n->step)->uses;
        if (use->tensor == tensor && use->access == MM_READ) segment = plan->bindings[n->first_binding];
    }
    while (segment >= 0 && at-- > 0) {
        const mm_node *n = &plan->nodes[at];
        if (n->kind != MM_NODE_STEP && n->dst == segment && !is_done(s, plan, at)) segment = n->src;
    }
    return segment;
}

/* ---------------------------------------------------------------- codes */

/* Pinned memory for one decoded map, for a codec's scratch, and for a code that is on the disk. */
typedef struct staging {
    uint8_t *map, *scratch, *code;
    int64_t map_bytes, scratch_bytes, code_bytes;
} staging;

static mm_status stage(mm_stash *s, int64_t bytes, uint8_t **memory, int64_t *capacity) {
    void *larger = NULL;
    if (bytes <= *capacity) return MM_OK;
    MM_TRY(mm_device_reserve(s->device, MM_MEMORY_PINNED, mm_align(bytes), &larger));
    mm_device_release(s->device, MM_MEMORY_PINNED, *memory, *capacity);
    *memory = larger;
    *capacity = mm_align(bytes);
    return MM_OK;
}

/* Where the code in a segment can be read. */
static mm_status reach(mm_stash *s, int32_t segment, staging *t, const void **code_out) {
    const mm_segment *from = &s->follow.order->plan.planned.plan->segments[segment];
    *code_out = mm_dispatch_address(s->dispatch, segment);
    if (from->memory != MM_MEM_DISK) return MM_OK;
    MM_TRY(stage(s, from->bytes, &t->code, &t->code_bytes));
    s->stats.load_bytes += from->bytes;
    *code_out = t->code;
    return mm_disk_read(s->disk, from->offset, t->code, from->bytes);
}

static mm_status decode(mm_stash *s, mm_stash_slot *e, int32_t segment, staging *t) {
    const void *code;
    MM_TRY(stage(s, e->kind.bytes, &t->map, &t->map_bytes));
    MM_TRY(stage(s, mm_dispatch_decode_scratch(s->dispatch, segment), &t->scratch, &t->scratch_bytes));
    MM_TRY(reach(s, segment, t, &code));
    MM_TRY(mm_stash_host_ordinary(s, e, &e->host));
    mm_status status = mm_dispatch_decode_paused(s->dispatch, segment, code, t->map, t->scratch);
    if (status == MM_OK)
        memcpy(e->host.memory, t->map, (size_t)e->kind.bytes);
    else
        mm_stash_unplanned_free(s, e);
    const mm_planned *planned = &s->follow.order->plan.planned;
    e->lossy = !planned->exact[segment] || !planned->facts->codecs[planned->plan->segments[segment].codec].lossless;
    return status;
}

/* ---------------------------------------------------------------- entries */

static mm_status take_over(mm_stash *s, mm_stash_slot *e, staging *t) {
    const mm_plan *plan = s->follow.order->plan.planned.plan;
    if (e->held > 0 && e->place) {
        e->offset = (uint8_t *)e->place - (uint8_t *)mm_pool_base(s->pool);
        return MM_OK;
    }
    const int32_t at = segment_now(s, plan, s->follow.order->plan.graph.tensor[e->number]);
    if (at < 0)
        return mm_fail(MM_ERR_PLAN, "the plan has no segment that holds tensor %d of %s", e->number,
                       mm_stash_producer(&e->kind));
    const mm_segment *segment = &plan->segments[at];
    if (segment->content == MM_CONTENT_CODED) return decode(s, e, at, t);
    e->lossy = !s->follow.order->plan.planned.exact[at];
    if (segment->memory == MM_MEM_PINNED)
        e->host = (mm_stash_host){MM_STASH_IN_PINNED, mm_dispatch_address(s->dispatch, at), segment->offset};
    else if (segment->memory == MM_MEM_DISK)
        e->host = (mm_stash_host){MM_STASH_ON_DISK, NULL, segment->offset};
    else
        e->offset = segment->offset;
    return MM_OK;
}

static void take_over_all(mm_stash *s, const mm_failure *broken) {
    staging t = {0};
    const mm_learned_order *o = s->follow.order;
    for (int i = 0; i < o->order.n_entries; i++) {
        mm_stash_slot *e = s->follow.slots[i];
        if (!e || e->kept) continue;
        mm_failure why = *broken;
        if (why.status == MM_OK) mm_failure_save(&why, take_over(s, e, &t));
        if (why.status != MM_OK && broken->status == MM_OK)
            mm_failure_save(&why, take_over(s, e, &t)); /* a second try */
        if (why.status == MM_OK) continue;
        e->lost = true;
        s->lost = why;
        mm_log_send(&s->options.log, MM_LOG_ERROR, "tensor %d of %s is lost: %s", i, mm_stash_producer(&e->kind),
                    why.message);
    }
    mm_device_release(s->device, MM_MEMORY_PINNED, t.map, t.map_bytes);
    mm_device_release(s->device, MM_MEMORY_PINNED, t.scratch, t.scratch_bytes);
    mm_device_release(s->device, MM_MEMORY_PINNED, t.code, t.code_bytes);
}

void mm_stash_go_off_plan(mm_stash *s) {
    mm_stash_planned *f = &s->follow;
    mm_failure told, broken = {.status = MM_OK};
    mm_failure_save(&told, MM_ERR_ORDER); /* saves the thread's message */
    mm_log_send(&s->options.log, MM_LOG_WARNING, "an iteration leaves its plan (off_plan): %s", f->why);
    if (f->order->execution) {
        mm_failure_save(&broken, mm_dispatch_pause(s->dispatch));
        take_over_all(s, &broken);
        mm_dispatch_abort(s->dispatch);
    }
    mm_status counted = mm_stash_cover(s, NULL); /* from now on, entries are placed without a plan */
    (void)counted;
    s->left_plan = true;
    mm_stash_unplanned_take_over(s, f->slots, f->order->order.n_entries);
    free(f->slots);
    f->order = NULL;
    mm_failure_restore(&told);
}
