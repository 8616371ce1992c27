/* SPDX-License-Identifier: MIT */
/* Codes of variable size: where each body begins, and how many bytes it took. Each code has a record in pinned memory,
 * at an address that is constant for the execution's life, so that recordings stay valid. */
#include "pipeline/variable_codes.h"

#include <stdlib.h>

#include "pipeline/dispatch_state.h"
#include "pipeline/execution.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the sizes of codes that vary"); }

static bool has_body(const mm_plan *plan, int segment) { return segment >= 0 && plan->segments[segment].pool >= 0; }

/* Numbers the codes, and chains those of each pool, in the order in which they are encoded. last: scratch; per pool (a
 * segment), the code encoded into it last; -1: none. */
static void number(const mm_plan *plan, mm_variable_codes *b, int32_t *last) {
    for (int i = 0; i < plan->n_segments; i++) b->of_segment[i] = last[i] = -1;
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        if (node->kind == MM_NODE_DECODE && has_body(plan, node->src)) b->decodes[b->of_segment[node->src]]++;
        if (node->kind != MM_NODE_ENCODE || !has_body(plan, node->dst)) continue;
        const int32_t pool = plan->segments[node->dst].pool;
        b->before[b->n] = last[pool];
        last[pool] = b->of_segment[node->dst] = b->n++;
    }
}

static mm_status make_records(mm_execution *p, int n) {
    const mm_plan *plan = p->plan;
    mm_variable_codes *b = &p->variable_codes;
    void *records;
    b->of_segment = malloc(((size_t)plan->n_segments + 1) * sizeof *b->of_segment);
    b->before = malloc((size_t)n * sizeof *b->before);
    b->decodes = calloc((size_t)n, sizeof *b->decodes);
    int32_t *last = malloc(((size_t)plan->n_segments + 1) * sizeof *last);
    if (!b->of_segment || !b->before || !b->decodes || !last) {
        free(last);
        return no_memory();
    }
    number(plan, b, last);
    free(last);
    MM_TRY(mm_device_reserve(p->dispatch->config.device, MM_MEMORY_PINNED, n * (int64_t)sizeof *b->records, &records));
    b->records = records; /* reserved memory is zero */
    return MM_OK;
}

mm_status mm_variable_codes_init(mm_execution *p) {
    int n = 0;
    for (int i = 0; i < p->plan->n_segments; i++) n += has_body(p->plan, i);
    if (n == 0) return MM_OK;
    MM_TRY(make_records(p, n));
    mm_dispatch *d = p->dispatch;
    pthread_mutex_lock(&d->lock);
    p->variable_codes.next = d->with_bodies;
    d->with_bodies = p;
    pthread_mutex_unlock(&d->lock);
    return MM_OK;
}

/* Reads a figure that the device may be writing. */
static int64_t read_now(const int64_t *figure) { return __atomic_load_n(figure, __ATOMIC_RELAXED); }

static void add_bodies(const mm_variable_codes *b, mm_dispatch_stats *stats) {
    for (int i = 0; i < b->n; i++) {
        const int64_t spilled = read_now(&b->records[i].all_spilled);
        stats->coded_bytes += read_now(&b->records[i].all_bytes);
        stats->spilled_bytes += spilled;
        stats->out_bytes += spilled;
        stats->in_bytes += spilled * b->decodes[i];
    }
}

void mm_variable_codes_add(const mm_dispatch *d, mm_dispatch_stats *stats) {
    for (const mm_execution *p = d->with_bodies; p; p = p->variable_codes.next) add_bodies(&p->variable_codes, stats);
}

void mm_variable_codes_fini(mm_execution *p) {
    mm_dispatch *d = p->dispatch;
    mm_variable_codes *b = &p->variable_codes;
    if (b->records) {
        pthread_mutex_lock(&d->lock);
        mm_execution **at = &d->with_bodies;
        while (*at != p) at = &(*at)->variable_codes.next;
        *at = b->next;
        add_bodies(b, &d->stats);
        pthread_mutex_unlock(&d->lock);
        mm_device_release(d->config.device, MM_MEMORY_PINNED, b->records, b->n * (int64_t)sizeof *b->records);
    }
    free(b->of_segment);
    free(b->before);
    free(b->decodes);
}

const mm_code_body *mm_body_of(const mm_dispatch *d, int code, mm_code_body *body_out) {
    const mm_execution *p = d->execution;
    if (!has_body(p->plan, code)) return NULL;
    const mm_variable_codes *b = &p->variable_codes;
    const int32_t index = b->of_segment[code];
    const mm_segment *pool = &p->plan->segments[p->plan->segments[code].pool];
    const mm_segment *spill = pool->spill >= 0 ? &p->plan->segments[pool->spill] : NULL;
    *body_out = (mm_code_body){
        .pool = (pool->memory == MM_MEM_PINNED ? d->pinned : d->base) + pool->offset,
        .pool_bytes = pool->bytes,
        .spill = spill ? d->pinned + spill->offset : NULL,
        .spill_bytes = spill ? spill->bytes : 0,
        .pool_pinned = pool->memory == MM_MEM_PINNED,
        .before = b->before[index] >= 0 ? &b->records[b->before[index]] : NULL,
        .record = &b->records[index],
    };
    return body_out;
}

void mm_execution_code(const mm_execution *p, int node, mm_code_size *size_out) {
    const int32_t segment = mm_program_stored(&p->plan->nodes[node]);
    const mm_segment *code = &p->plan->segments[segment];
    *size_out =
        (mm_code_size){.tensor = code->tensor, .codec = p->facts->codecs[code->codec].spec, .bytes = code->bytes};
    if (code->pool < 0) return;
    const mm_body_record *record = &p->variable_codes.records[p->variable_codes.of_segment[segment]];
    size_out->body_bytes = read_now(&record->bytes);
    size_out->spilled_bytes = read_now(&record->spilled);
    size_out->bytes += size_out->body_bytes;
}

int mm_execution_codes(const mm_execution *p, mm_code_size *sizes_out, int capacity) {
    int n = 0;
    for (int i = 0; i < p->plan->n_nodes; i++)
        if (p->plan->nodes[i].kind == MM_NODE_ENCODE && n++ < capacity) mm_execution_code(p, i, &sizes_out[n - 1]);
    return n;
}
