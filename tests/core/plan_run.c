/* SPDX-License-Identifier: MIT */
#include "tests/core/plan_run.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_codes.h"
#include "tests/core/random_graph.h"

typedef struct runner {
    const mm_plan *plan;
    const mm_graph_facts *facts;
    unsigned char *memory[MM_MEMORY_COUNT];
    void **dynamic;   /* per segment */
    int64_t *used;    /* per pool: position behind the body that this iteration put there last */
    void **external;  /* per tensor: memory of an external one */
    int32_t *node_at; /* nodes by stream: those of stream s from first[s] on */
    int32_t first[MM_STREAM_COUNT + 1];
    plan_order order;
    uint64_t random;
    uint64_t measured; /* checksum of what measures found */
} runner;

static void *allocate(int64_t bytes, int fill) {
    void *memory = malloc((size_t)bytes + 1);
    if (!memory) abort();
    memset(memory, fill, (size_t)bytes + 1);
    return memory;
}

static void *segment_data(const runner *r, int segment) {
    const mm_segment *s = &r->plan->segments[segment];
    return s->dynamic ? r->dynamic[segment] : r->memory[s->memory] + s->offset;
}

/* Address of a persistent or an external tensor. */
static void *fixed_data(const runner *r, mm_tensor t) {
    const int segment = mm_graph_tensor(r->plan->graph, t)->persistent;
    return segment >= 0 ? segment_data(r, segment) : r->external[t];
}

/* ---------------------------------------------------------------- codecs */

static void make_mask(const unsigned char *elements, size_t n, unsigned char *mask) {
    memset(mask, 0, (n + 31) / 32 * 4);
    for (size_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, elements + 4 * i, 4);
        if (value > 0) mask[i / 8] |= (unsigned char)(1u << i % 8);
    }
}

/* Encodes and decodes: applied twice, it gives the bytes back, but for the low bytes that the lossy codec drops. */
static void transform(int codec, const unsigned char *from, size_t bytes, unsigned char *to) {
    for (size_t i = 0; i < bytes; i++)
        to[i] = codec == RANDOM_LOSSY && i % 4 < 2 ? 0x5a : (unsigned char)(from[i] ^ 0x5a);
}

/* ---------------------------------------------------------------- codes with bodies
 *
 * A chunk's code is one bit for each word, set if the word is not 0, followed by the words that are not 0; or, if that
 * takes less, all words as they are. The head has a number for each chunk: twice the position where its code begins,
 * plus 1 if the words are as they are. */

enum { CHUNK_WORDS = MM_CHUNK_BYTES / 4 };

static size_t pack_chunk(const uint32_t *words, size_t n, uint32_t *packed) {
    size_t masks = (n + 31) / 32, used = masks;
    memset(packed, 0, 4 * masks);
    for (size_t i = 0; i < n; i++) {
        if (words[i] == 0) continue;
        packed[i / 32] |= UINT32_C(1) << i % 32;
        packed[used++] = words[i];
    }
    return used;
}

static void unpack_chunk(const uint32_t *packed, size_t n, uint32_t *words) {
    size_t used = (n + 31) / 32;
    for (size_t i = 0; i < n; i++) words[i] = packed[i / 32] >> i % 32 & 1 ? packed[used++] : 0;
}

/* Address of a chunk's code by its position in a pool; NULL: it is not within the pool or its spill. */
static void *chunk_data(const runner *r, int pool, int64_t position, int64_t bytes) {
    const mm_segment *p = &r->plan->segments[pool];
    if (position < 0 || position > INT64_C(1) << 40) return NULL;
    if (position + bytes <= p->bytes) return (char *)segment_data(r, pool) + position;
    if (p->spill < 0) return NULL;
    int64_t at = position - p->bytes + MM_CHUNK_BYTES;
    return at >= 0 && at + bytes <= r->plan->segments[p->spill].bytes ? (char *)segment_data(r, p->spill) + at : NULL;
}

static void encode_body(const runner *r, const mm_node *n) {
    const int pool = r->plan->segments[n->dst].pool;
    const unsigned char *elements = segment_data(r, n->src);
    unsigned char *head = segment_data(r, n->dst);
    size_t left = (size_t)mm_graph_tensor(r->plan->graph, n->tensor)->bytes / 4;
    int64_t position = mm_align(r->used[pool]);
    for (; left > 0; head += 8) {
        uint32_t words[CHUNK_WORDS], packed[CHUNK_WORDS + CHUNK_WORDS / 32];
        const size_t count = left < CHUNK_WORDS ? left : CHUNK_WORDS;
        memcpy(words, elements, 4 * count);
        size_t size = pack_chunk(words, count, packed);
        const bool raw = size >= count;
        if (raw) size = count;
        const uint64_t begin = (uint64_t)position << 1 | raw;
        void *to = chunk_data(r, pool, position, 4 * (int64_t)size);
        if (!to) abort(); /* a plan whose pools are too small was accepted */
        memcpy(to, raw ? words : packed, 4 * size);
        memcpy(head, &begin, 8);
        position += 4 * (int64_t)size;
        elements += 4 * count;
        left -= count;
    }
    r->used[pool] = position;
}

/* Gives zeros for a code that is no longer valid: plans with too few waits are run, too. */
static void decode_body(const runner *r, const mm_node *n) {
    const int pool = r->plan->segments[n->src].pool;
    const unsigned char *head = segment_data(r, n->src);
    unsigned char *elements = segment_data(r, n->dst);
    size_t left = (size_t)mm_graph_tensor(r->plan->graph, n->tensor)->bytes / 4;
    for (; left > 0; head += 8) {
        uint32_t words[CHUNK_WORDS] = {0}, packed[CHUNK_WORDS + CHUNK_WORDS / 32];
        const size_t count = left < CHUNK_WORDS ? left : CHUNK_WORDS, masks = (count + 31) / 32;
        uint64_t begin;
        memcpy(&begin, head, 8);
        const int64_t position = (int64_t)(begin >> 1);
        size_t size = count;
        const void *from = chunk_data(r, pool, position, 4 * (int64_t)(begin & 1 ? count : masks));
        if (from && !(begin & 1)) {
            memcpy(packed, from, 4 * masks);
            size = masks;
            for (size_t i = 0; i < masks; i++) size += (size_t)__builtin_popcount(packed[i]);
            from = size <= count ? chunk_data(r, pool, position, 4 * (int64_t)size) : NULL;
        }
        if (from) memcpy(begin & 1 ? words : packed, from, 4 * size);
        if (from && !(begin & 1)) unpack_chunk(packed, count, words);
        memcpy(elements, words, 4 * count);
        elements += 4 * count;
        left -= count;
    }
}

static void run_op(const runner *r, const mm_node *n) {
    if (n->kind != MM_NODE_ENCODE && n->kind != MM_NODE_DECODE) {
        memcpy(segment_data(r, n->dst), segment_data(r, n->src), (size_t)r->plan->segments[n->dst].bytes);
        return;
    }
    bool encode = n->kind == MM_NODE_ENCODE;
    const mm_segment *code = &r->plan->segments[encode ? n->dst : n->src];
    size_t bytes = (size_t)mm_graph_tensor(r->plan->graph, n->tensor)->bytes;
    unsigned char *target = segment_data(r, n->stage >= 0 ? n->stage : n->dst);
    if (code->pool >= 0) {
        (encode ? encode_body : decode_body)(r, n);
        return;
    }
    if (n->work >= 0) memset(segment_data(r, n->work), 0xee, (size_t)r->plan->segments[n->work].bytes);
    if (code->codec == RANDOM_MASK)
        make_mask(segment_data(r, n->src), bytes / 4, target);
    else
        transform(code->codec, segment_data(r, n->src), bytes, target);
    if (n->stage >= 0) memcpy(segment_data(r, n->dst), target, (size_t)code->bytes);
}

/* Makes the codes that the step itself writes, of elements that it has read or written. */
static void write_codes(const runner *r, const mm_node *n, const random_operand *operands) {
    const mm_step_info *step = mm_graph_step(r->plan->graph, n->step);
    for (int u = 0; u < step->n_uses; u++) {
        const int code = mm_node_code(r->plan, n, u);
        if (code < 0) continue;
        const size_t bytes = (size_t)mm_graph_tensor(r->plan->graph, step->uses[u].tensor)->bytes;
        const int codec = r->plan->segments[code].codec;
        if (codec == RANDOM_MASK)
            make_mask(operands[u].data, bytes / 4, segment_data(r, code));
        else
            transform(codec, operands[u].data, bytes, segment_data(r, code));
    }
}

static void run_step(const runner *r, const mm_node *n) {
    const mm_step_info *step = mm_graph_step(r->plan->graph, n->step);
    random_operand operands[32];
    /* Per use: what the step decoded from a code; or, if it runs again, a copy of the tensor that it would change. */
    void *copies[32] = {NULL};
    for (int u = 0; u < step->n_uses; u++) {
        int segment = r->plan->bindings[n->first_binding + u];
        bool coded = segment >= 0 && r->plan->segments[segment].content == MM_CONTENT_CODED;
        operands[u] =
            (random_operand){.data = segment >= 0 ? segment_data(r, segment) : r->external[step->uses[u].tensor],
                             .form = coded && step->uses[u].form == MM_FORM_SIGN ? MM_FORM_SIGN : MM_FORM_VALUE};
        if (!coded || step->uses[u].form == MM_FORM_SIGN) continue;
        const int64_t bytes = mm_graph_tensor(r->plan->graph, step->uses[u].tensor)->bytes;
        copies[u] = allocate(bytes, 0);
        transform(r->plan->segments[segment].codec, operands[u].data, (size_t)bytes, copies[u]);
        operands[u].data = copies[u];
    }
    void *work = n->work >= 0 ? segment_data(r, n->work) : NULL;
    for (int u = 0; n->kind == MM_NODE_RECOMPUTE && u < step->n_uses; u++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->plan->graph, step->uses[u].tensor);
        if (tensor->ownership == MM_MANAGED || step->uses[u].access == MM_READ) continue;
        copies[u] = allocate(tensor->bytes, 0);
        memcpy(copies[u], operands[u].data, (size_t)tensor->bytes);
        operands[u].data = copies[u];
    }
    random_graph_run_step(r->plan->graph, n->step, operands, work, (size_t)step->workspace_bytes);
    write_codes(r, n, operands);
    for (int u = 0; u < 32; u++) free(copies[u]);
}

/* ---------------------------------------------------------------- order */

static void sort_by_stream(runner *r) {
    int32_t next[MM_STREAM_COUNT];
    for (int s = 0; s < MM_STREAM_COUNT; s++) r->first[s + 1] = r->first[s] + r->plan->stream_nodes[s];
    memcpy(next, r->first, sizeof next);
    for (int i = 0; i < r->plan->n_nodes; i++) r->node_at[next[r->plan->nodes[i].stream]++] = i;
}

/* The next node that may run; -1 at the end. */
static int choose(runner *r, const int32_t *ended) {
    int ready[MM_STREAM_COUNT], n = 0;
    for (int s = 0; s < MM_STREAM_COUNT; s++) {
        int at = r->first[s] + ended[s];
        if (at == r->first[s + 1]) continue;
        const mm_node *node = &r->plan->nodes[r->node_at[at]];
        bool waits = false;
        for (int t = 0; t < MM_STREAM_COUNT; t++) waits |= node->wait[t] >= ended[t];
        if (!waits) ready[n++] = r->node_at[at];
    }
    if (n == 0) return -1;
    int chosen = r->order == PLAN_ORDER_EAGER ? ready[n - 1] : ready[0]; /* the compute stream is the first */
    if (r->order == PLAN_ORDER_RANDOM) chosen = ready[random_below(&r->random, n)];
    for (int i = 0; r->order == PLAN_ORDER_ISSUE && i < n; i++)
        if (ready[i] < chosen) chosen = ready[i];
    return chosen;
}

static void run_iteration(runner *r) {
    int32_t ended[MM_STREAM_COUNT] = {0};
    memset(r->used, 0, (size_t)r->plan->n_segments * sizeof *r->used);
    for (int node; (node = choose(r, ended)) >= 0;) {
        const mm_node *n = &r->plan->nodes[node];
        if (mm_node_runs_step(n))
            run_step(r, n);
        else if (n->kind == MM_NODE_MEASURE)
            r->measured = random_graph_digest(r->measured, segment_data(r, n->src),
                                              (size_t)mm_graph_tensor(r->plan->graph, n->tensor)->bytes);
        else
            run_op(r, n);
        ended[n->stream]++;
    }
}

uint64_t plan_run(const mm_plan *plan, const mm_graph_facts *facts, uint64_t seed, int iterations, plan_order order,
                  uint64_t order_seed, uint64_t *measured_out) {
    int n_tensors = mm_graph_tensors(plan->graph);
    runner r = {.plan = plan, .facts = facts, .order = order, .random = order_seed};
    r.memory[0] = allocate(plan->extent_bytes, 0xcd);
    r.memory[1] = allocate(plan->pinned_bytes, 0xcd);
    r.memory[2] = allocate(plan->disk_bytes, 0xcd);
    r.dynamic = allocate(plan->n_segments * (int64_t)sizeof *r.dynamic, 0);
    r.used = allocate(plan->n_segments * (int64_t)sizeof *r.used, 0);
    r.external = allocate(n_tensors * (int64_t)sizeof *r.external, 0);
    r.node_at = allocate(plan->n_nodes * (int64_t)sizeof *r.node_at, 0);
    for (int i = 0; i < plan->n_segments; i++)
        if (plan->segments[i].dynamic) r.dynamic[i] = allocate(plan->segments[i].bytes, 0xcd);
    for (int t = 0; t < n_tensors; t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        if (tensor->ownership == MM_MANAGED) continue;
        if (tensor->ownership == MM_EXTERNAL) r.external[t] = allocate(tensor->bytes, 0);
        random_graph_fill(plan->graph, t, seed, fixed_data(&r, t));
    }
    sort_by_stream(&r);
    for (int i = 0; i < iterations; i++) run_iteration(&r);
    if (measured_out) *measured_out = r.measured;
    uint64_t digest = 0;
    for (int t = 0; t < n_tensors; t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(plan->graph, t);
        if (tensor->ownership == MM_PERSISTENT)
            digest = random_graph_digest(digest, fixed_data(&r, t), (size_t)tensor->bytes);
        free(r.external[t]);
    }
    for (int i = 0; i < plan->n_segments; i++) free(r.dynamic[i]);
    for (int m = 0; m < MM_MEMORY_COUNT; m++) free(r.memory[m]);
    free(r.dynamic);
    free(r.used);
    free(r.external);
    free(r.node_at);
    return digest;
}
