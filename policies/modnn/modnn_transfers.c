/* SPDX-License-Identifier: MIT */
/* What leaves the device to make room, and what comes back ahead of its use. */
#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "policies/modnn/modnn.h"

int64_t mm_modnn_copy_ns(const modnn *m, mm_tensor root, int64_t bytes_per_s) {
    return m->facts->issue_ns + (int64_t)((double)mm_graph_tensor(m->graph, root)->bytes / (double)bytes_per_s * 1e9);
}

static int64_t in_ns(const modnn *m, mm_tensor root) { return mm_modnn_copy_ns(m, root, m->facts->in_bytes_per_s); }

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* Adds a copy. Copies of a direction are issued in order, so it is issued no earlier than the one added last. */
static int add_transfer(modnn_transfers *t, modnn_transfer transfer) {
    if (t->n == t->capacity) {
        const int capacity = 2 * t->capacity + 64;
        modnn_transfer *list = realloc(t->list, (size_t)capacity * sizeof *list);
        if (!list) {
            mm_fail_set("out of memory for the transfers of a plan");
            return -1;
        }
        t->list = list;
        t->capacity = capacity;
    }
    if (t->n > 0 && transfer.after < t->list[t->n - 1].after) transfer.after = t->list[t->n - 1].after;
    t->free_ns = transfer.end_ns;
    t->list[t->n] = transfer;
    return t->n++;
}

/* ---------------------------------------------------------------- leaving */

static void add_away(modnn *m, mm_tensor root) {
    int low = 0, high = m->n_away;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (mm_modnn_next_step(m, m->away[middle]) <= mm_modnn_next_step(m, root))
            low = middle + 1;
        else
            high = middle;
    }
    memmove(&m->away[low + 1], &m->away[low], (size_t)(m->n_away - low) * sizeof *m->away);
    m->away[low] = root;
    m->n_away++;
}

static void remove_away(modnn *m, mm_tensor root) {
    int i = 0;
    while (m->away[i] != root) i++;
    m->n_away--;
    memmove(&m->away[i], &m->away[i + 1], (size_t)(m->n_away - i) * sizeof *m->away);
}

static bool may_leave(const modnn *m, const modnn_block *block, int until) {
    return block->tensor >= 0 && m->tensors[block->tensor].used && mm_modnn_next_step(m, block->tensor) > until;
}

/* The time at which the block has left, if it leaves next. *free_ns: when the link is free; advanced if the block must
 * be copied. */
static int64_t leave_ns(const modnn *m, mm_tensor root, int64_t *free_ns) {
    const modnn_tensor *t = &m->tensors[root];
    if (t->copy >= 0) return m->outs.list[t->copy].end_ns;
    *free_ns = later(*free_ns, t->ready_ns) + t->out_ns;
    return *free_ns;
}

typedef struct score {
    int64_t delay_ns, bytes;
    int soonest; /* next use of the block that is needed first */
} score;

static bool is_better(const modnn *m, const score *a, const score *b) {
    if (a->delay_ns != b->delay_ns) return a->delay_ns < b->delay_ns;
    if (m->way.fewest && a->bytes != b->bytes) return a->bytes < b->bytes;
    return a->soonest != b->soonest ? a->soonest > b->soonest : a->bytes < b->bytes;
}

bool mm_modnn_find_scheme(const modnn *m, int64_t bytes, int until, int64_t start_ns, modnn_scheme *scheme_out) {
    const modnn_memory *memory = &m->memory;
    const modnn_block *blocks = memory->blocks;
    score best = {.delay_ns = INT64_MAX};
    for (int from = 0; from < memory->n; from++) {
        const int64_t begin = from > 0 ? blocks[from - 1].offset + blocks[from - 1].bytes : 0;
        int64_t free_ns = m->outs.free_ns, ready_ns = 0, end = begin;
        score s = {.soonest = INT_MAX};
        int to = from;
        for (; to < memory->n && end - begin < bytes && may_leave(m, &blocks[to], until); to++) {
            const mm_tensor root = blocks[to].tensor;
            ready_ns = later(ready_ns, leave_ns(m, root, &free_ns));
            if (m->tensors[root].copy < 0) s.bytes += blocks[to].bytes;
            if (mm_modnn_next_step(m, root) < s.soonest) s.soonest = mm_modnn_next_step(m, root);
            end = to + 1 < memory->n ? blocks[to + 1].offset : memory->bytes;
            s.delay_ns = later(0, ready_ns - start_ns);
            if (is_better(m, &best, &s)) break; /* more blocks would not make the scheme better than the best */
        }
        if (end - begin < bytes) continue;
        s.delay_ns = later(0, later(ready_ns, mm_modnn_memory_ready(memory, begin, end - begin)) - start_ns);
        if (!is_better(m, &s, &best)) continue;
        best = s;
        *scheme_out = (modnn_scheme){.from = from, .to = to - 1, .ready_ns = start_ns + s.delay_ns};
    }
    return best.delay_ns < INT64_MAX;
}

/* Lets a block leave. If it was fetched and not used since, that fetch is cancelled. */
static mm_status leave(modnn *m, const modnn_block *block) {
    const mm_tensor root = block->tensor;
    modnn_tensor *t = &m->tensors[root];
    int64_t free_ns = m->outs.free_ns;
    const int64_t left_ns = leave_ns(m, root, &free_ns);
    if (t->copy < 0)
        t->copy = add_transfer(
            &m->outs, (modnn_transfer){.root = root, .after = t->written, .written = t->written, .end_ns = left_ns});
    if (t->copy < 0) return MM_ERR_NOMEM;
    if (t->fetch >= 0 && !t->used) m->ins.list[t->fetch].cancelled = true;
    mm_modnn_memory_give(&m->memory, t->offset, left_ns);
    t->offset = -1;
    add_away(m, root);
    return MM_OK;
}

mm_status mm_modnn_offload(modnn *m, const modnn_scheme *scheme) {
    for (int i = scheme->from; i <= scheme->to; i++) MM_TRY(leave(m, &m->memory.blocks[scheme->from]));
    return MM_OK;
}

/* ---------------------------------------------------------------- what a step needs */

/* Takes a block; if there is no room, lets others leave for it. *offset_out: -1: there is no room even so. */
static mm_status take(modnn *m, int64_t bytes, mm_tensor root, int until, int64_t start_ns, int64_t *offset_out) {
    modnn_scheme scheme;
    *offset_out = mm_modnn_memory_take(&m->memory, bytes, root);
    if (*offset_out >= 0 || !mm_modnn_find_scheme(m, bytes, until, start_ns, &scheme)) return MM_OK;
    MM_TRY(mm_modnn_offload(m, &scheme));
    *offset_out = mm_modnn_memory_take(&m->memory, bytes, root);
    return MM_OK;
}

/* Places what the present step needs and is not there yet. *placed_out: whether that and its workspace have room. */
static mm_status place_rest(modnn *m, bool *placed_out) {
    *placed_out = false;
    for (int i = m->first_need[m->step]; i < m->first_need[m->step + 1]; i++) {
        modnn_need *need = &m->needs[i];
        modnn_tensor *t = &m->tensors[need->root];
        if (t->offset >= 0 || need->inplace) continue;
        MM_TRY(take(m, t->bytes, need->root, m->step, m->now, &t->offset));
        if (t->offset < 0) return MM_OK;
        t->used = false;
        if (!m->uses[need->use].reads) {
            need->made = t->offset;
            continue;
        }
        remove_away(m, need->root);
        m->loads[m->n_loads++] = need->root;
    }
    const int64_t work = mm_modnn_least_work(m, m->step);
    int64_t offset = 0;
    if (work > 0) {
        MM_TRY(take(m, work, -1, m->step, m->now, &offset));
        if (offset < 0) return MM_OK;
        mm_modnn_memory_give(&m->memory, offset, mm_modnn_memory_ready(&m->memory, offset, work));
    }
    *placed_out = true;
    return MM_OK;
}

/* Gives back the blocks that were placed for the present step and have not been fetched or made yet. */
static void take_back(modnn *m) {
    for (int i = 0; i < m->n_loads; i++) {
        modnn_tensor *t = &m->tensors[m->loads[i]];
        mm_modnn_memory_give(&m->memory, t->offset, mm_modnn_memory_ready(&m->memory, t->offset, t->bytes));
        t->offset = -1;
        add_away(m, m->loads[i]);
    }
    m->n_loads = 0;
    for (int i = m->first_need[m->step]; i < m->first_need[m->step + 1]; i++) {
        modnn_need *need = &m->needs[i];
        if (need->made < 0) continue;
        mm_modnn_memory_give(&m->memory, need->made,
                             mm_modnn_memory_ready(&m->memory, need->made, m->tensors[need->root].bytes));
        m->tensors[need->root].offset = need->made = -1;
    }
}

/* Lets all blocks leave; with `but_needed`, all but those that the present step uses. */
static mm_status put_all_out(modnn *m, bool but_needed) {
    for (int i = 0; i < m->memory.n;) {
        const modnn_block *block = &m->memory.blocks[i];
        if (but_needed && mm_modnn_next_step(m, block->tensor) == m->step)
            i++;
        else
            MM_TRY(leave(m, block));
    }
    return MM_OK;
}

/* Lets all blocks leave, and places what the present step needs, from the lowest address on. First tries a smaller
 * change: storages that the step needs and that are on the device stay, and the rest is placed around them. */
static mm_status defragment(modnn *m) {
    bool placed;
    m->defragmentations++;
    take_back(m);
    MM_TRY(put_all_out(m, true));
    MM_TRY(place_rest(m, &placed));
    if (placed) return MM_OK;
    take_back(m);
    MM_TRY(put_all_out(m, false));
    MM_TRY(place_rest(m, &placed));
    assert(placed); /* it cannot fail: the memory is empty, and large enough for the step's needs */
    return MM_OK;
}

mm_status mm_modnn_place_needs(modnn *m) {
    bool placed;
    MM_TRY(place_rest(m, &placed));
    return placed ? MM_OK : defragment(m);
}

/* ---------------------------------------------------------------- coming back */

/* Adds the prefetch, issued before the present step, of a tensor that has a place. */
static mm_status fetch(modnn *m, mm_tensor root) {
    modnn_tensor *t = &m->tensors[root];
    int64_t start = later(later(m->ins.free_ns, m->began_ns), m->outs.list[t->copy].end_ns);
    start = later(start, mm_modnn_memory_ready(&m->memory, t->offset, t->bytes));
    t->ready_ns = start + in_ns(m, root);
    t->fetch = add_transfer(
        &m->ins, (modnn_transfer){
                     .root = root, .after = m->step - 1, .copy = t->copy, .offset = t->offset, .end_ns = t->ready_ns});
    t->used = false;
    return t->fetch < 0 ? MM_ERR_NOMEM : MM_OK;
}

mm_status mm_modnn_load(modnn *m) {
    for (int i = 0; i < m->n_loads; i++) MM_TRY(fetch(m, m->loads[i]));
    m->n_loads = 0;
    return MM_OK;
}

/* Inequality 9 of the paper, for all storages that are to be fetched, in order: whether some step would be late if
 * fetching began when the present one has ended. Stops at what memory cannot hold at once. */
static bool is_late(const modnn *m) {
    int64_t ns = 0, bytes = 0;
    for (int i = 0; i < m->n_away; i++) {
        ns += in_ns(m, m->away[i]);
        bytes += m->tensors[m->away[i]].bytes;
        if (i > 0 && bytes > m->memory.bytes) return false;
        if (ns > m->due_ns[mm_modnn_next_step(m, m->away[i])] - m->due_ns[m->step + 1]) return true;
    }
    return false;
}

/* Whether `step` will have to defragment, because what may not leave before it takes too much. What may leave counts as
 * gone; so does what steps in between make, unless its first use comes after `step`. */
static bool will_defragment(const modnn *m, int step) {
    int64_t bytes = m->memory.bytes - m->need_bytes[step];
    for (int i = 0; i < m->memory.n; i++) {
        const mm_tensor root = m->memory.blocks[i].tensor;
        if (root >= 0 && !m->tensors[root].used && mm_modnn_next_step(m, root) > step) bytes -= m->tensors[root].bytes;
    }
    for (int i = m->first_need[m->step + 1]; i < m->first_need[step]; i++) {
        const modnn_need *need = &m->needs[i];
        const int32_t next = need->use + 1;
        if (need->writes && next < m->tensors[need->root].end && m->uses[next].reads && m->uses[next].step > step &&
            !mm_modnn_is_for_later(m, m->uses[need->use].step, next, need->root))
            bytes -= m->tensors[need->root].bytes;
    }
    return bytes < 0;
}

int64_t mm_modnn_set_back_ns(modnn *m, int64_t work_bytes) {
    if (m->n_away == 0 || !is_late(m)) return 0;
    mm_ranges *free = &m->memory.free;
    const int step = mm_modnn_next_step(m, m->away[0]);
    const int64_t work = work_bytes > 0 ? mm_ranges_take(free, work_bytes, MM_ALIGN, m->memory.fit) : -1;
    int64_t ns = 0;
    int n = 0;
    for (; n < m->n_away && mm_modnn_next_step(m, m->away[n]) == step; n++) {
        modnn_tensor *t = &m->tensors[m->away[n]];
        t->offset = mm_ranges_take(free, t->bytes, MM_ALIGN, m->memory.fit);
        if (t->offset < 0) ns += in_ns(m, m->away[n]);
    }
    while (n-- > 0) {
        modnn_tensor *t = &m->tensors[m->away[n]];
        if (t->offset >= 0) mm_ranges_give(free, t->offset, t->bytes);
        t->offset = -1;
    }
    if (work >= 0) mm_ranges_give(free, work, work_bytes);
    return ns;
}

mm_status mm_modnn_prefetch(modnn *m, int64_t end_ns) {
    /* If the link is busy until the step ends, more fetches gain nothing. */
    while (m->n_away > 0 && m->ins.free_ns < end_ns && is_late(m)) {
        const mm_tensor root = m->away[0];
        modnn_tensor *t = &m->tensors[root];
        const int step = mm_modnn_next_step(m, root);
        if (will_defragment(m, step)) break;
        MM_TRY(take(m, t->bytes, root, step, later(m->ins.free_ns, m->began_ns), &t->offset));
        if (t->offset < 0) break;
        remove_away(m, root);
        MM_TRY(fetch(m, root));
    }
    return MM_OK;
}
