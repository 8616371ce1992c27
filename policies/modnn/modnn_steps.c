/* SPDX-License-Identifier: MIT */
/* Algorithm 1 of moDNN: simulates the training, step by step. */
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/modnn/modnn.h"

/* ---------------------------------------------------------------- what is known beforehand */

/* Time of a variant; that of the step's first variant if it has none. */
static int64_t variant_ns(const modnn *m, int step, int v) {
    const int64_t ns = mm_modnn_variant(m, step, v)->ns;
    return ns > 0 ? ns : mm_modnn_variant(m, step, 0)->ns;
}

static bool is_managed(const modnn *m, mm_tensor tensor) {
    return mm_graph_tensor(m->graph, tensor)->ownership == MM_MANAGED;
}

/* Adds the step's needs, each storage once, after the first n. Returns the new number. */
static int add_needs(modnn *m, int step, int n) {
    const mm_step_info *info = mm_graph_step(m->graph, step);
    const int first = n;
    for (int u = 0; u < info->n_uses; u++) {
        const mm_tensor tensor = info->uses[u].tensor, root = m->schedule->plan->alias[tensor];
        if (!is_managed(m, tensor)) continue;
        int i = first;
        while (i < n && m->needs[i].root != root) i++;
        if (i == n) m->needs[n++] = (modnn_need){.root = root, .made = -1};
        const bool shares = tensor != root && info->uses[u].access == MM_WRITE;
        m->needs[i].writes |= info->uses[u].access != MM_READ && !shares;
        m->needs[i].use |= info->uses[u].access != MM_WRITE || shares; /* for now: whether it reads */
    }
    return n;
}

static int number_of_uses(const mm_graph *graph) {
    int n = 0;
    for (int s = 0; s < mm_graph_steps(graph); s++) n += mm_graph_step(graph, s)->n_uses;
    return n;
}

/* Gives each storage the list of its uses. */
static void list_uses(modnn *m) {
    const int n_tensors = mm_graph_tensors(m->graph);
    int32_t end = 0;
    for (int i = 0; i < m->first_need[m->n_steps]; i++) m->tensors[m->needs[i].root].end++;
    for (int t = 0; t < n_tensors; t++) {
        const int32_t n = m->tensors[t].end;
        m->tensors[t].next = m->tensors[t].end = end;
        end += n;
    }
    for (int s = 0; s < m->n_steps; s++)
        for (int i = m->first_need[s]; i < m->first_need[s + 1]; i++) {
            modnn_need *need = &m->needs[i];
            modnn_tensor *t = &m->tensors[need->root];
            m->uses[t->end] = (modnn_use){.step = s, .reads = need->use};
            need->use = t->end++;
            need->inplace = need->use == t->next && m->schedule->tensors[need->root].over >= 0;
        }
}

static int64_t sum_needs(const modnn *m, int step) {
    int64_t bytes = mm_modnn_least_work(m, step);
    for (int i = m->first_need[step]; i < m->first_need[step + 1]; i++)
        if (!m->needs[i].inplace) bytes += m->tensors[m->needs[i].root].bytes;
    return bytes;
}

static void *zeros(size_t n, size_t size) { return calloc(n + 1, size); }

static bool allocate(modnn *m) {
    const size_t steps = (size_t)m->n_steps, tensors = (size_t)mm_graph_tensors(m->graph);
    const size_t uses = (size_t)number_of_uses(m->graph);
    m->uses = zeros(uses, sizeof *m->uses);
    m->needs = zeros(uses, sizeof *m->needs);
    m->first_need = zeros(steps, sizeof *m->first_need);
    m->need_bytes = zeros(steps, sizeof *m->need_bytes);
    m->due_ns = zeros(steps, sizeof *m->due_ns);
    m->tensors = zeros(tensors, sizeof *m->tensors);
    m->away = zeros(tensors, sizeof *m->away);
    m->loads = zeros(tensors, sizeof *m->loads);
    m->variant = zeros(steps, sizeof *m->variant);
    m->work_offset = zeros(steps, sizeof *m->work_offset);
    return m->uses && m->needs && m->first_need && m->need_bytes && m->due_ns && m->tensors && m->away && m->loads &&
           m->variant && m->work_offset;
}

mm_status mm_modnn_init(modnn *m, mm_schedule *schedule, const mm_graph_facts *facts, mm_algorithms algorithms,
                        int64_t *least_out) {
    const mm_graph *graph = schedule->graph;
    *m = (modnn){.graph = graph,
                 .facts = facts,
                 .algorithms = algorithms,
                 .schedule = schedule,
                 .n_steps = mm_graph_steps(graph)};
    if (!allocate(m)) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(graph));
    int64_t least = 0;
    const bool links = facts->out_bytes_per_s > 0; /* else nothing is copied */
    for (int t = 0; t < mm_graph_tensors(graph); t++)
        m->tensors[t] = (modnn_tensor){.bytes = mm_align(mm_graph_tensor(graph, t)->bytes),
                                       .out_ns = links ? mm_modnn_copy_ns(m, t, facts->out_bytes_per_s) : 0,
                                       .offset = -1,
                                       .written = -1,
                                       .copy = -1,
                                       .fetch = -1};
    for (int s = 0, n = 0; s < m->n_steps; s++) m->first_need[s + 1] = n = add_needs(m, s, n);
    list_uses(m);
    for (int s = 0; s < m->n_steps; s++) {
        m->need_bytes[s] = sum_needs(m, s);
        if (m->need_bytes[s] > least) least = m->need_bytes[s];
        int from, to;
        mm_modnn_choice(m, s, &from, &to);
        m->due_ns[s + 1] = m->due_ns[s] + variant_ns(m, s, from);
    }
    *least_out = least;
    return MM_OK;
}

void mm_modnn_fini(modnn *m) {
    mm_modnn_memory_fini(&m->memory);
    free(m->uses);
    free(m->needs);
    free(m->first_need);
    free(m->need_bytes);
    free(m->due_ns);
    free(m->tensors);
    free(m->away);
    free(m->loads);
    free(m->outs.list);
    free(m->ins.list);
    free(m->variant);
    free(m->work_offset);
    *m = (modnn){0};
}

/* ---------------------------------------------------------------- a step's algorithm */

/* Delay until a workspace of `bytes` is free; -1: there is no room for it, even if other blocks leave. */
static int64_t work_delay_ns(modnn *m, int64_t bytes) {
    modnn_scheme scheme;
    if (bytes == 0) return 0;
    const int64_t offset = mm_ranges_take(&m->memory.free, bytes, MM_ALIGN, m->memory.fit);
    if (offset >= 0) {
        mm_ranges_give(&m->memory.free, offset, bytes);
        const int64_t ready_ns = mm_modnn_memory_ready(&m->memory, offset, bytes);
        return ready_ns > m->now ? ready_ns - m->now : 0;
    }
    return mm_modnn_find_scheme(m, bytes, m->step, m->now, &scheme) ? scheme.ready_ns - m->now : -1;
}

/* The variant with the largest gain (equation 10): the time that it saves over the one with the least workspace, less
 * the delays that its workspace causes, to this step and to fetches for a later one. There is at least one variant that
 * fits: room for the least workspace was found. */
static int choose_variant(modnn *m) {
    int from, to, best = -1;
    mm_modnn_choice(m, m->step, &from, &to);
    if (to - from == 1) return from;
    const int64_t base_ns = variant_ns(m, m->step, to - 1), set_back = mm_modnn_set_back_ns(m, 0);
    int64_t most = 0;
    for (int v = from; v < to; v++) {
        const int64_t bytes = mm_align(mm_modnn_variant(m, m->step, v)->workspace_bytes);
        const int64_t delay = work_delay_ns(m, bytes);
        if (delay < 0) continue;
        const int64_t gain = base_ns - variant_ns(m, m->step, v) - delay - (mm_modnn_set_back_ns(m, bytes) - set_back);
        if (best >= 0 && gain <= most) continue;
        best = v;
        most = gain;
    }
    return best;
}

/* Chooses the variant, and takes its workspace. */
static mm_status take_work(modnn *m) {
    modnn_scheme scheme;
    const int v = m->variant[m->step] = choose_variant(m);
    const int64_t bytes = mm_align(mm_modnn_variant(m, m->step, v)->workspace_bytes);
    if (bytes == 0) return MM_OK;
    int64_t offset = mm_modnn_memory_take(&m->memory, bytes, -1);
    if (offset < 0) {
        if (mm_modnn_find_scheme(m, bytes, m->step, m->now, &scheme)) MM_TRY(mm_modnn_offload(m, &scheme));
        offset = mm_modnn_memory_take(&m->memory, bytes, -1);
    }
    m->work_offset[m->step] = offset;
    const int64_t ready_ns = mm_modnn_memory_ready(&m->memory, offset, bytes);
    if (ready_ns > m->now) m->now = ready_ns;
    return MM_OK;
}

/* ---------------------------------------------------------------- a step */

/* Waits until what the step reads is there, and the bytes that it writes to are free. */
static void wait_for_needs(modnn *m) {
    for (int i = m->first_need[m->step]; i < m->first_need[m->step + 1]; i++) {
        const modnn_need *need = &m->needs[i];
        const modnn_tensor *t = &m->tensors[need->root];
        int64_t ready_ns = 0;
        if (m->uses[need->use].reads)
            ready_ns = t->ready_ns;
        else if (need->made >= 0)
            ready_ns = mm_modnn_memory_ready(&m->memory, need->made, t->bytes);
        if (ready_ns > m->now) m->now = ready_ns;
    }
}

/* An output takes the bytes of the input that it is written over. */
static void hand_over(modnn *m, mm_tensor output) {
    modnn_tensor *from = &m->tensors[m->schedule->tensors[output].over];
    m->tensors[output].offset = from->offset;
    mm_modnn_memory_at(&m->memory, from->offset)->tensor = output;
    from->offset = -1;
}

/* The step has ended: what it wrote is there, and what no later step reads is given back. */
static void end_step(modnn *m) {
    const int first = m->first_need[m->step], end = m->first_need[m->step + 1];
    for (int i = first; i < end; i++)
        if (m->needs[i].inplace) hand_over(m, m->needs[i].root);
    for (int i = first; i < end; i++) {
        const modnn_need *need = &m->needs[i];
        modnn_tensor *t = &m->tensors[need->root];
        t->next = need->use + 1;
        t->used = true;
        t->fetch = -1;
        if (need->writes) {
            t->written = m->step;
            t->copy = -1;
            t->ready_ns = m->now;
            t->used = mm_modnn_is_for_later(m, m->step, t->next, need->root);
        }
        const bool lives = mm_modnn_has_next(m, need->root) && m->uses[t->next].reads;
        if (lives || t->offset < 0) continue;
        mm_modnn_memory_give(&m->memory, t->offset, m->now);
        t->offset = -1;
    }
    if (mm_modnn_variant(m, m->step, m->variant[m->step])->workspace_bytes > 0)
        mm_modnn_memory_give(&m->memory, m->work_offset[m->step], m->now);
}

static mm_status run_step(modnn *m) {
    m->began_ns = m->now;
    MM_TRY(mm_modnn_place_needs(m));
    MM_TRY(mm_modnn_load(m));
    wait_for_needs(m);
    MM_TRY(take_work(m));
    const int64_t end_ns = m->now + variant_ns(m, m->step, m->variant[m->step]);
    MM_TRY(mm_modnn_prefetch(m, end_ns));
    m->now = end_ns;
    end_step(m);
    return MM_OK;
}

mm_status mm_modnn_run(modnn *m, int64_t bytes, modnn_way way) {
    m->way = way;
    MM_TRY(mm_modnn_memory_init(&m->memory, bytes, way.closest ? MM_FIT_CLOSEST : MM_FIT_EXACT_LOWEST,
                                mm_graph_tensors(m->graph) + 1));
    for (m->step = 0; m->step < m->n_steps; m->step++) MM_TRY(run_step(m));
    return m->memory.failed ? mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(m->graph)) : MM_OK;
}
