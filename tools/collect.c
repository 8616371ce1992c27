#include "tools/collect.h"

#include <string.h>

#include "mm/core/graph.h"
#include "mm/measured.h"
#include "pipeline/codec/codec_facts.h"

/* Adds the codecs that a policy uses and that are not listed yet. */
static mm_status add_specs(const char *policy_spec, char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY], int *n) {
    mm_policy policy;
    char used[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    MM_TRY(mm_policy_parse(policy_spec, &policy));
    int n_used = policy.ops->codecs ? policy.ops->codecs(policy.ops, &policy.options, used, MM_MAX_CODECS) : 0;
    for (int u = 0; u < n_used; u++) {
        int known = 0;
        while (known < *n && strcmp(specs[known], used[u]) != 0) known++;
        if (known < *n) continue;
        if (*n == MM_MAX_CODECS)
            return mm_fail(MM_ERR_UNSUPPORTED, "facts of more than %d codecs at once", MM_MAX_CODECS);
        strcpy(specs[(*n)++], used[u]);
    }
    return MM_OK;
}

static mm_status make(collector *c, const nets_net *net, int64_t batch, const char *device, const arg_texts *policies) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n = 0;
    for (int p = 0; p < policies->n; p++) MM_TRY(add_specs(policies->text[p], specs, &n));
    for (int i = 0; i < n; i++) MM_TRY(mm_codec_create(specs[i], device, &c->codecs[i]));
    MM_TRY(nets_backend_open(device, &c->backend));
    MM_TRY(nets_lower(net, c->backend, batch, NETS_TRAIN, &c->lowered));
    return mm_codec_facts_create(c->lowered->graph, c->codecs, (const char(*)[MM_SPEC_CAPACITY])specs, n, &c->facts);
}

mm_status collector_init(collector *c, const nets_net *net, int64_t batch, const char *device,
                         const arg_texts *policies) {
    memset(c, 0, sizeof *c);
    mm_status status = make(c, net, batch, device, policies);
    if (status != MM_OK) collector_fini(c);
    return status;
}

void collector_fini(collector *c) {
    mm_facts_destroy(c->facts);
    nets_lowered_destroy(c->lowered);
    nets_backend_close(c->backend);
    for (int i = 0; i < MM_MAX_CODECS; i++) mm_codec_destroy(c->codecs[i]);
    memset(c, 0, sizeof *c);
}

static void add_operation(collector *c, const mm_measured *m, const mm_node *node, int64_t ns) {
    int code = node->kind == MM_NODE_ENCODE ? node->dst : node->src;
    const char *spec = m->facts->codecs[m->plan->segments[code].codec].spec;
    int codec = mm_facts_codec(c->facts, spec);
    if (codec < 0) return;
    mm_code_facts *facts = &c->facts->codes[(size_t)codec * (size_t)c->facts->n_tensors + (size_t)node->tensor];
    *(node->kind == MM_NODE_ENCODE ? &facts->encode_ns : &facts->decode_ns) = ns;
}

/* The link's rate is that of the largest copy. */
static void add_copy(collector *c, const mm_measured *m, const mm_node *node, int64_t ns) {
    bool out = node->kind == MM_NODE_OUT;
    int64_t bytes = m->plan->segments[node->dst].bytes;
    if (ns <= 0 || bytes < c->copied_bytes[out]) return;
    c->copied_bytes[out] = bytes;
    *(out ? &c->facts->out_bytes_per_s : &c->facts->in_bytes_per_s) = (int64_t)((double)bytes * 1e9 / (double)ns);
}

mm_status collector_add(collector *c, session *s) {
    mm_measured m;
    MM_TRY(mm_measured_get(s->manager, nets_exec_lowered(s->train)->graph, &m));
    int64_t compute = 0, side = 0;
    for (int i = 0; i < m.plan->n_nodes; i++) /* what runs again is no part of either: other runs do not have it */
        if (m.plan->nodes[i].kind != MM_NODE_RECOMPUTE)
            *(m.plan->nodes[i].kind == MM_NODE_STEP ? &compute : &side) += mm_program_ns(m.program, i);
    for (int i = 0; i < m.plan->n_nodes; i++) {
        const mm_node *node = &m.plan->nodes[i];
        int64_t ns = mm_program_ns(m.program, i);
        if (node->kind == MM_NODE_ENCODE || node->kind == MM_NODE_DECODE)
            add_operation(c, &m, node, ns);
        else if (node->kind == MM_NODE_OUT || node->kind == MM_NODE_IN)
            add_copy(c, &m, node, ns);
        else if (node->kind == MM_NODE_STEP && (side == 0 || c->alone_ns == 0))
            c->facts->variants[c->facts->variant_first[node->step]].ns = ns;
    }
    if (side == 0)
        c->alone_ns = compute;
    else {
        c->beside_ns = compute;
        c->side_ns = side;
    }
    return MM_OK;
}

/* A disturbed machine may seem to slow compute down without end; simulations take no more than this. */
enum { MOST_CONTENTION = 9000 };

static int contention(const collector *c) {
    if (c->alone_ns == 0 || c->beside_ns <= c->alone_ns) return 0;
    int64_t together = c->side_ns < c->beside_ns ? c->side_ns : c->beside_ns;
    int64_t permille = 1000 * (c->beside_ns - c->alone_ns) / together;
    return permille < MOST_CONTENTION ? (int)permille : MOST_CONTENTION;
}

mm_status collector_fill(const void *ctx, const mm_graph *graph, mm_facts *facts) {
    const collector *c = ctx;
    const mm_facts *from = c->facts;
    if (facts->n_steps != from->n_steps || facts->n_tensors != from->n_tensors)
        return mm_fail(MM_ERR_INVALID, "facts of %s: measured of another graph", mm_graph_name(graph));
    for (int s = 0; s < facts->n_steps; s++)
        facts->variants[facts->variant_first[s]].ns = from->variants[from->variant_first[s]].ns;
    for (int codec = 0; codec < facts->n_codecs; codec++) {
        int known = mm_facts_codec(from, facts->codecs[codec].spec);
        for (int t = 0; known >= 0 && t < facts->n_tensors; t++) {
            mm_code_facts *to = &facts->codes[(size_t)codec * (size_t)facts->n_tensors + (size_t)t];
            to->encode_ns = mm_facts_code(from, known, t)->encode_ns;
            to->decode_ns = mm_facts_code(from, known, t)->decode_ns;
        }
    }
    facts->out_bytes_per_s = from->out_bytes_per_s;
    facts->in_bytes_per_s = from->in_bytes_per_s;
    facts->contention_permille = contention(c);
    return MM_OK;
}

mm_status collector_save(const collector *c, const char *path) {
    c->facts->contention_permille = contention(c);
    return mm_facts_save(path, c->lowered->graph, c->facts);
}
