/* SPDX-License-Identifier: MIT */
#include "tools/plan/explain_plan.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_touch.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "policies/schedule/nominal.h"
#include "tools/args/table.h"

/* ---------------------------------------------------------------- facts and decisions */

static bool gives_values(const mm_graph_facts *facts) {
    for (int c = 0; c < facts->n_codecs; c++)
        if (facts->codecs[c].gives_value) return true;
    return false;
}

static mm_status gather_codecs(explained *e, const plan_case *c) {
    const mm_graph *graph = plan_case_plan(c)->graph;
    mm_policy policy;
    MM_TRY(mm_policy_parse("freelunch", &policy));
    mm_status status = mm_planned_init(&e->codecs, &policy, graph, c->asked.target->device);
    mm_policy_fini(&policy);
    MM_TRY(status);
    MM_TRY(need_add_times(c->asked.facts, c->asked.target, graph, e->codecs.facts));
    mm_planned_set_rates(&e->codecs, &c->asked.target->rates);
    if (e->nominal) mm_nominal_times(graph, e->codecs.facts);
    e->facts = e->codecs.facts;
    return MM_OK;
}

static mm_status init(explained *e, const plan_case *c) {
    const mm_planned *planned = &plan_case_need(c)->planned;
    e->nominal = mm_nominal_is_due(planned->facts);
    if (e->nominal) MM_TRY(mm_nominal_init(planned->plan->graph, planned->facts, &e->times));
    if (!e->nominal) e->times = *planned->facts;
    e->facts = &e->times;
    if (!gives_values(e->facts)) MM_TRY(gather_codecs(e, c));
    MM_TRY(mm_stash_account_init(planned->plan, e->facts, &e->stash));
    MM_TRY(mm_account_decide(planned->plan, &e->times, &e->stash, &e->decisions));
    return explain_why_find(c, &e->stash, e->decisions, &e->times, c->explains_all ? e->stash.n_maps : EXPLAIN_MAPS,
                            &e->whys);
}

mm_status explained_init(explained *e, const plan_case *c) {
    memset(e, 0, sizeof *e);
    mm_status status = init(e, c);
    if (status != MM_OK) explained_fini(e);
    return status;
}

void explained_fini(explained *e) {
    explain_why_fini(&e->whys);
    free(e->decisions);
    mm_stash_account_fini(&e->stash);
    mm_planned_fini(&e->codecs);
    if (e->nominal) mm_nominal_fini(&e->times);
    memset(e, 0, sizeof *e);
}

const char *explained_kinds(uint32_t kinds, char buffer[EXPLAINED_KINDS]) {
    size_t used = 0;
    buffer[0] = '\0';
    for (int k = 0; k < MM_REMEDY_KINDS; k++)
        if (kinds & 1u << k && used < EXPLAINED_KINDS)
            used += (size_t)snprintf(buffer + used, EXPLAINED_KINDS - used, "%s%s", used ? " and " : "",
                                     mm_remedy_kind_name(k));
    return buffer;
}

json_t *explained_kinds_json(uint32_t kinds) {
    json_t *array = json_array();
    for (int k = 0; k < MM_REMEDY_KINDS; k++)
        if (kinds & 1u << k) json_array_append_new(array, json_string(mm_remedy_kind_name(k)));
    return array;
}

/* ---------------------------------------------------------------- sums */

/* Sums over the maps with the same decision. */
typedef struct decided {
    uint32_t kinds;
    int maps;
    int64_t bytes, ns;
} decided;

enum { DECIDED = 1 << MM_REMEDY_KINDS };

static int larger_first(const void *a, const void *b) {
    const decided *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* Fills in the sums, sorted by bytes, the largest first. Those without maps come last. */
static void sum_decisions(const explained *e, decided sums[DECIDED]) {
    for (uint32_t k = 0; k < DECIDED; k++) sums[k] = (decided){.kinds = k};
    for (int i = 0; i < e->stash.n_maps; i++) {
        decided *sum = &sums[e->decisions[i].kinds];
        sum->maps++;
        sum->bytes += e->stash.maps[i].bytes;
        sum->ns += e->decisions[i].ns;
    }
    qsort(sums, DECIDED, sizeof *sums, larger_first);
}

/* Sums over the maps of one element type that a codec could compress. */
typedef struct coding {
    int codec, maps;
    mm_dtype type;
    int64_t map_bytes, code_bytes, encode_ns, decode_ns;
} coding;

static bool could_be_held(const mm_stash_map *map, int codec) {
    for (int r = 0; r < map->n_remedies; r++)
        if (map->remedies[r].codec == codec || map->remedies[r].sign_codec == codec) return true;
    return false;
}

static coding sum_coding(const explained *e, const mm_graph *graph, int codec, mm_dtype type) {
    coding sum = {.codec = codec, .type = type};
    for (int i = 0; i < e->stash.n_maps; i++) {
        const mm_stash_map *map = &e->stash.maps[i];
        if (mm_graph_tensor(graph, map->tensor)->dtype != type || !could_be_held(map, codec)) continue;
        const mm_code_facts *code = mm_facts_code(e->facts, codec, map->tensor);
        sum.maps++;
        sum.map_bytes += map->bytes;
        sum.code_bytes += code->code_bytes + code->body_typical_bytes;
        sum.encode_ns += code->encode_ns;
        sum.decode_ns += code->decode_ns;
    }
    return sum;
}

/* Iterates over pairs of codec and type that have maps. *at: 0 at first; moved past the pair that is returned. False:
 * no more. */
static bool next_coding(const explained *e, const plan_case *c, int *at, coding *coding_out) {
    const mm_graph *graph = plan_case_plan(c)->graph;
    const int n = e->facts->n_codecs;
    coding_out->maps = 0;
    for (; coding_out->maps == 0 && *at < MM_DTYPES * n; ++*at)
        *coding_out = sum_coding(e, graph, *at % n, (mm_dtype)(*at / n));
    return coding_out->maps > 0;
}

static double ratio_of(const coding *k) { return (double)k->map_bytes / (double)k->code_bytes; }

/* Bytes of maps a second; 0: unknown. */
static double rate_of(const coding *k, int64_t ns) { return ns > 0 ? (double)k->map_bytes / (double)ns * 1e9 : 0; }

/* Where the time of an iteration goes; with sub-batches, the time of the pass that has the largest minimum. */
typedef struct spent {
    int64_t steps_ns, again_ns; /* of steps and recomputed steps, without contention */
    int64_t slowed_ns;          /* slowdown by side streams and cache misses */
} spent;

static spent sum_times(const plan_case *c, const explained *e) {
    const mm_plan *plan = plan_case_plan(c);
    spent t = {0};
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *n = &plan->nodes[i];
        if (mm_node_computes(n))
            *(n->kind == MM_NODE_STEP ? &t.steps_ns : &t.again_ns) += mm_simulate_node_ns(plan, &e->times, n);
    }
    t.slowed_ns = c->sim.compute_ns - t.steps_ns - t.again_ns;
    return t;
}

/* The bytes alive at the peak. */
typedef struct peak {
    int64_t step_bytes;       /* what the step reads and writes, with its workspace */
    int64_t persistent_bytes; /* the base, and external tensors */
    int64_t other_bytes;      /* kept for other steps */
    char step[256];
} peak;

static peak find_peak(const plan_case *c) {
    const mm_plan *plan = plan_case_plan(c);
    peak p = {.persistent_bytes = plan->base_bytes + plan->external_bytes};
    int node = c->account.peak_node;
    while (node > 0 && !mm_node_runs_step(&plan->nodes[node])) node--;
    mm_graph_step_name(plan->graph, plan->nodes[node].step, p.step, sizeof p.step);
    for (int i = 0; i < c->account.n_segments; i++) {
        const int segment = c->account.segments[i];
        mm_touch touch;
        bool touched = false;
        for (int t = 0; !touched && mm_node_next_touch(plan, &plan->nodes[node], &t, &touch);)
            touched = touch.segment == segment;
        const mm_segment *s = &plan->segments[segment];
        if (s->category == MM_CAT_PERSISTENT) continue;
        *(touched ? &p.step_bytes : &p.other_bytes) += s->bytes;
    }
    return p;
}

/* If other_bytes are at most this share of the peak, swapping is said not to help. Chosen. */
enum { LITTLE_PERMILLE = 50 };

static bool is_all_needed(const peak *p, const mm_plan *plan) {
    return p->other_bytes * 1000 <= plan->live_peak_bytes * LITTLE_PERMILLE;
}

/* ---------------------------------------------------------------- text */

static void print_ms(FILE *file, const char *what, int64_t ns) {
    fprintf(file, "  %-24s %12.3f ms\n", what, (double)ns * 1e-6);
}

static void print_decisions(FILE *file, const plan_case *c, const explained *e) {
    decided sums[DECIDED];
    char kinds[EXPLAINED_KINDS], size[32];
    sum_decisions(e, sums);
    fprintf(file, "%s, batch %lld, %s: what is done with stashed maps, and how long that takes by itself\n", c->net,
            (long long)c->asked.batch, plan_case_plan(c)->policy);
    for (int i = 0; i < DECIDED && sums[i].maps > 0; i++)
        fprintf(file, "  %10s  %5d  %10.3f ms  %s\n", mm_size_format(sums[i].bytes, size, sizeof size), sums[i].maps,
                (double)sums[i].ns * 1e-6, explained_kinds(sums[i].kinds, kinds));
}

static void print_codings(FILE *file, const plan_case *c, const explained *e) {
    coding k;
    for (int at = 0, n = 0; next_coding(e, c, &at, &k); n++) {
        const mm_codec_facts *codec = &e->facts->codecs[k.codec];
        if (n == 0)
            fprintf(file, "%s, batch %lld, %s: compression of maps, by codec and element type%s\n", c->net,
                    (long long)c->asked.batch, plan_case_plan(c)->policy, e->nominal ? ", by nominal times" : "");
        fprintf(file, "  %10s  %9.2fx", mm_dtype_name(k.type), ratio_of(&k));
        if (k.encode_ns > 0 && k.decode_ns > 0)
            fprintf(file, "  encode %7.1f GB/s, decode %7.1f GB/s", rate_of(&k, k.encode_ns) * 1e-9,
                    rate_of(&k, k.decode_ns) * 1e-9);
        fprintf(file, "  %s%s\n", codec->spec, codec->lossless ? "" : " (lossy)");
    }
}

static void print_streams(FILE *file, const plan_case *c, const explained *e) {
    const spent t = sum_times(c, e);
    const mm_simulation *sim = &c->sim;
    fprintf(file, "%s, batch %lld, %s: where an iteration%s of %.3f ms goes%s\n", c->net, (long long)c->asked.batch,
            plan_case_plan(c)->policy, c->need.n > 1 ? " (a pass)" : "", (double)sim->iteration_ns * 1e-6,
            e->nominal ? ", by nominal times" : "");
    print_ms(file, "steps, alone", t.steps_ns);
    if (t.again_ns > 0) print_ms(file, "steps that run again", t.again_ns);
    if (t.slowed_ns > 0) print_ms(file, "slower beside the rest", t.slowed_ns);
    if (sim->stall_ns > 0) print_ms(file, "waits", sim->stall_ns);
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++)
        if (sim->busy_ns[s] > 0)
            fprintf(file, "  stream %-17s %12.3f ms, %.3f hidden, %.3f exposed\n", mm_stream_id_name(s),
                    (double)sim->busy_ns[s] * 1e-6, (double)(sim->busy_ns[s] - sim->exposed_ns[s]) * 1e-6,
                    (double)sim->exposed_ns[s] * 1e-6);
}

static void print_more(FILE *file, const plan_case *c) {
    char more[32], label[64];
    snprintf(label, sizeof label, "with %s more", mm_size_format(c->more_bytes, more, sizeof more));
    if (c->more_ns == 0)
        fprintf(file, "  %-24s it does not fit either\n", label);
    else if (!plan_case_fits(c))
        fprintf(file, "  %-24s %12.3f ms: it fits then\n", label, (double)c->more_ns * 1e-6);
    else
        fprintf(file, "  %-24s %12.3f ms, in place of %.3f: %.1f%% less\n", label, (double)c->more_ns * 1e-6,
                (double)c->forecast.iteration_ns * 1e-6,
                100 * (double)(c->forecast.iteration_ns - c->more_ns) / (double)c->forecast.iteration_ns);
}

static void print_peak(FILE *file, const plan_case *c) {
    const peak p = find_peak(c);
    char own[32], rest[32], others[32], text[640];
    mm_size_format(p.step_bytes, own, sizeof own);
    mm_size_format(p.persistent_bytes, rest, sizeof rest);
    mm_size_format(p.other_bytes, others, sizeof others);
    if (is_all_needed(&p, plan_case_plan(c)))
        snprintf(text, sizeof text,
                 "swapping cannot help: the peak is at %s, where %s of what it reads and writes are needed at once, "
                 "beside %s of weights and state",
                 p.step, own, rest);
    else
        snprintf(
            text, sizeof text,
            "the peak is at %s: %s of what it reads and writes, %s of weights and state, and %s that wait for other "
            "steps",
            p.step, own, rest, others);
    fputs("  ", file);
    table_wrap(file, 2, 2, text);
    fputc('\n', file);
}

mm_status explain_plan_print(FILE *file, const plan_case *c, const explained *e) {
    print_codings(file, c, e);
    print_decisions(file, c, e);
    explain_why_print_anew(file, c, &e->whys);
    if (!c->forecast.untimed[0]) {
        print_streams(file, c, e);
        print_more(file, c);
    }
    print_peak(file, c);
    return MM_OK;
}

/* ---------------------------------------------------------------- json */

static json_t *decisions_json(const explained *e) {
    decided sums[DECIDED];
    json_t *array = json_array();
    sum_decisions(e, sums);
    for (int i = 0; i < DECIDED && sums[i].maps > 0; i++)
        json_array_append_new(array, json_pack("{so si sI sf}", "decided", explained_kinds_json(sums[i].kinds), "maps",
                                               sums[i].maps, "bytes", (json_int_t)sums[i].bytes, "seconds",
                                               (double)sums[i].ns * 1e-9));
    return array;
}

static json_t *codings_json(const plan_case *c, const explained *e) {
    json_t *array = json_array();
    coding k;
    for (int at = 0; next_coding(e, c, &at, &k);)
        json_array_append_new(array,
                              json_pack("{ss ss sf sf sf}", "codec", e->facts->codecs[k.codec].spec, "type",
                                        mm_dtype_name(k.type), "ratio", ratio_of(&k), "encode_bytes_per_s",
                                        rate_of(&k, k.encode_ns), "decode_bytes_per_s", rate_of(&k, k.decode_ns)));
    return array;
}

static json_t *iteration_json(const plan_case *c, const explained *e) {
    const spent t = sum_times(c, e);
    json_t *streams = json_object();
    for (int s = MM_STREAM_COMPUTE + 1; s < MM_STREAM_COUNT; s++)
        json_object_set_new(streams, mm_stream_id_name(s),
                            json_pack("{sf sf}", "busy_seconds", (double)c->sim.busy_ns[s] * 1e-9, "exposed_seconds",
                                      (double)c->sim.exposed_ns[s] * 1e-9));
    return json_pack("{sb sf sf sf sf so}", "nominal", (int)e->nominal, "steps_seconds", (double)t.steps_ns * 1e-9,
                     "again_seconds", (double)t.again_ns * 1e-9, "slowed_seconds", (double)t.slowed_ns * 1e-9,
                     "wait_seconds", (double)c->sim.stall_ns * 1e-9, "streams", streams);
}

static json_t *more_json(const plan_case *c) {
    return json_pack("{sI so sf}", "bytes", (json_int_t)c->more_bytes, "iteration_seconds",
                     c->more_ns > 0 ? json_real((double)c->more_ns * 1e-9) : json_null(), "in_place_of_seconds",
                     (double)c->forecast.iteration_ns * 1e-9);
}

static json_t *peak_json(const plan_case *c) {
    const peak p = find_peak(c);
    return json_pack("{ss sI sI sI sb}", "step", p.step, "step_bytes", (json_int_t)p.step_bytes, "persistent_bytes",
                     (json_int_t)p.persistent_bytes, "other_bytes", (json_int_t)p.other_bytes, "all_needed",
                     (int)is_all_needed(&p, plan_case_plan(c)));
}

mm_status explain_plan_row(json_t *row, const plan_case *c, const explained *e) {
    int failed = json_object_set_new(row, "decisions", decisions_json(e));
    failed |= json_object_set_new(row, "codecs", codings_json(c, e));
    failed |= json_object_set_new(row, "iteration", c->forecast.untimed[0] ? json_null() : iteration_json(c, e));
    failed |= json_object_set_new(row, "more", c->forecast.untimed[0] ? json_null() : more_json(c));
    failed |= json_object_set_new(row, "peak", peak_json(c));
    return failed ? mm_fail(MM_ERR_NOMEM, "out of memory for the rows") : MM_OK;
}
