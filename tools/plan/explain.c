/* SPDX-License-Identifier: MIT */
#include "tools/plan/explain.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/account/plan_memory.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "tools/args/table.h"
#include "tools/plan/explain_homes.h"
#include "tools/plan/explain_plan.h"

/* ---------------------------------------------------------------- bounds */

static void name_bound(const mm_graph *graph, int64_t batch, const mm_graph_facts *facts, explain_bound *out) {
    out->batch = batch;
    out->bound = mm_lower_bound_of(graph, facts);
    mm_graph_step_name(graph, out->bound.step, out->held_by, sizeof out->held_by);
    mm_graph_step_name(graph, out->bound.offloaded_step, out->offloaded_held_by, sizeof out->offloaded_held_by);
}

mm_status explain_bound_of(const nets_net *net, const target *target, int64_t batch, const facts_source *source,
                           explain_bound *bound_out) {
    const need_case c = {.net = net, .batch = batch, .mode = NETS_TRAIN, .target = target};
    const nets_exec_graph graph = need_last(&c);
    nets_lowered *lowered;
    mm_graph_facts *facts = NULL;
    MM_TRY(need_lower(&c, &graph, &lowered));
    const bool known = source && source->is_machine;
    mm_status status = known ? mm_graph_facts_create(lowered->graph, 0, &facts) : MM_OK;
    if (status == MM_OK && known) status = facts_source_fill(source, lowered->graph, facts);
    if (status == MM_OK) name_bound(lowered->graph, batch, facts, bound_out);
    mm_graph_facts_destroy(facts);
    nets_lowered_destroy(lowered);
    return status;
}

static explain_bound bound_of_case(const plan_case *c) {
    explain_bound bound;
    name_bound(plan_case_plan(c)->graph, c->asked.batch, plan_case_need(c)->planned.facts, &bound);
    return bound;
}

static void print_bound(FILE *file, const explain_bound *b) {
    char size[32];
    fprintf(file, "  %10s  batch %lld: weights and state, and what %s uses\n",
            mm_size_format(b->bound.bytes, size, sizeof size), (long long)b->batch, b->held_by);
    fprintf(file, "  %10s  batch %lld, weights offloaded: what %s uses\n",
            mm_size_format(b->bound.offloaded_bytes, size, sizeof size), (long long)b->batch, b->offloaded_held_by);
}

/* ---------------------------------------------------------------- stash */

/* "bn, relu" */
static const char *kinds_text(uint32_t kinds, char *buffer, size_t capacity) {
    size_t used = 0;
    buffer[0] = '\0';
    for (int k = 0; k < MM_LAYER_KINDS; k++)
        if (kinds & 1u << k && used < capacity)
            used += (size_t)snprintf(buffer + used, capacity - used, "%s%s", used ? ", " : "", mm_layer_kind_name(k));
    return buffer;
}

static void print_code(FILE *file, const mm_graph_facts *facts, const mm_remedy *r) {
    fprintf(file, "as %s%s%s%s", facts->codecs[r->codec].spec, facts->codecs[r->codec].lossless ? "" : " (lossy)",
            r->sign_codec >= 0 ? " and " : "", r->sign_codec >= 0 ? facts->codecs[r->sign_codec].spec : "");
}

static void print_remedy(FILE *file, const mm_graph_facts *facts, const mm_remedy *r) {
    char size[32], kinds[128];
    switch (r->kind) {
    case MM_REMEDY_KEEP:
    case MM_REMEDY_KINDS:
        return;
    case MM_REMEDY_MASK:
        fprintf(file, "as %s, because only the sign is read", facts->codecs[r->codec].spec);
        break;
    case MM_REMEDY_COMPRESS:
        print_code(file, facts, r);
        break;
    case MM_REMEDY_COMPRESS_SWAP:
        fputs("swapped ", file);
        print_code(file, facts, r);
        break;
    case MM_REMEDY_RECOMPUTE:
        fprintf(file, "recomputed (%s)", kinds_text(r->layer_kinds, kinds, sizeof kinds));
        break;
    case MM_REMEDY_SWAP:
        fputs("swapped", file);
    }
    fprintf(file, ": %s", mm_size_format(r->bytes_left, size, sizeof size));
    if (r->ns > 0) fprintf(file, ", %.3g ms", (double)r->ns * 1e-6);
}

/* The index of a tensor's map; -1: it is not stashed. */
static int find_map(const mm_stash_account *stash, mm_tensor tensor) {
    for (int i = 0; i < stash->n_maps; i++)
        if (stash->maps[i].tensor == tensor) return i;
    return -1;
}

static const char *form_name(mm_form form) { return form == MM_FORM_SIGN ? "sign" : "value"; }

/* A line that is printed as a label and a wrapped text: what is written to `text` between told_begin and told_end. */
typedef struct told {
    FILE *text;
    char *bytes;
    size_t n_bytes;
} told;

static mm_status told_begin(told *t) {
    t->text = open_memstream(&t->bytes, &t->n_bytes);
    return t->text ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the explanation");
}

static mm_status told_end(told *t, FILE *file, const char *label) {
    bool whole = fclose(t->text) == 0;
    if (whole) {
        int at = fprintf(file, "  %10s    %-9s", "", label);
        table_wrap(file, at, at, t->bytes);
        fputc('\n', file);
    }
    free(t->bytes);
    return whole ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the explanation");
}

static mm_status print_readers(FILE *file, const mm_graph *graph, const mm_stash_map *map) {
    char step[256];
    told t;
    MM_TRY(told_begin(&t));
    for (int i = 0; i < map->n_readers; i++)
        fprintf(t.text, "%s%s (%s)", i ? ", " : "", mm_graph_step_name(graph, map->readers[i].step, step, sizeof step),
                form_name(map->readers[i].form));
    return told_end(&t, file, "read by");
}

static mm_status print_remedies(FILE *file, const mm_graph_facts *facts, const mm_stash_map *map) {
    told t;
    MM_TRY(told_begin(&t));
    for (int i = 1; i < map->n_remedies; i++) {
        fputs(i > 1 ? "; " : "", t.text);
        print_remedy(t.text, facts, &map->remedies[i]);
    }
    return told_end(&t, file, "could be");
}

static mm_status print_held(FILE *file, const plan_case *cases, const explained *e, int n, mm_tensor tensor) {
    char size[32], kinds[EXPLAINED_KINDS];
    told t;
    MM_TRY(told_begin(&t));
    for (int i = 0; i < n; i++) {
        const int map = find_map(&e[i].stash, tensor);
        fprintf(t.text, "%s%s by %s", i ? "; " : "",
                mm_size_format(map >= 0 ? e[i].stash.maps[map].held_bytes : 0, size, sizeof size),
                plan_case_plan(&cases[i])->policy);
        const mm_decision *decision = map >= 0 ? &e[i].decisions[map] : NULL;
        if (decision) fprintf(t.text, ": %s", explained_kinds(decision->kinds, kinds));
        if (decision && decision->ns > 0) fprintf(t.text, ", %.3g ms", (double)decision->ns * 1e-6);
        if (map >= 0 && map < e[i].whys.n && e[i].whys.maps[map].room) fputs(", there is room", t.text);
    }
    return told_end(&t, file, "held");
}

/* What would come of other actions, by each policy that has reasons. */
static mm_status print_whys(FILE *file, const plan_case *cases, const explained *e, int n, mm_tensor tensor) {
    for (int i = 0; i < n; i++) {
        const int map = find_map(&e[i].stash, tensor);
        told t;
        if (map < 0 || map >= e[i].whys.n || e[i].whys.maps[map].n == 0) continue;
        MM_TRY(told_begin(&t));
        if (n > 1) fprintf(t.text, "(%s) ", plan_case_plan(&cases[i])->policy);
        explain_why_print(t.text, &cases[i], &e[i].whys, map);
        MM_TRY(told_end(&t, file, "instead"));
    }
    return MM_OK;
}

static mm_status print_map(FILE *file, const plan_case *cases, const explained *e, int n, const mm_stash_map *map) {
    const mm_graph *graph = plan_case_plan(cases)->graph;
    const mm_tensor_info *tensor = mm_graph_tensor(graph, map->tensor);
    const mm_layer_info *producer = mm_graph_layer(graph, tensor->producer);
    char size[32];
    fprintf(file, "  %10s  %s, made by %s (%s)\n", mm_size_format(map->bytes, size, sizeof size), tensor->name,
            producer->name, mm_layer_kind_name(producer->kind));
    MM_TRY(print_readers(file, graph, map));
    MM_TRY(print_remedies(file, e->facts, map));
    MM_TRY(print_held(file, cases, e, n, map->tensor));
    return print_whys(file, cases, e, n, map->tensor);
}

enum { CASES_MAX = 64 };

/* Prints stashed maps by class, and all maps without weights, workspaces and the batch, as papers count them. */
static mm_status print_classes(FILE *file, const plan_case *c, const explained *e) {
    mm_map_account account;
    char whole[32], held[32], placed[32];
    MM_TRY(mm_map_account_init(plan_case_plan(c), plan_case_need(c)->planned.facts, &e->stash, &account));
    fprintf(file, "%s, batch %lld, %s: stashed maps by who writes and reads them, and bytes held of them\n", c->net,
            (long long)c->asked.batch, plan_case_plan(c)->policy);
    for (int i = 0; i < MM_STASH_CLASSES; i++)
        if (account.stash[i].bytes > 0)
            fprintf(file, "  %10s  %10s  %s\n", mm_size_format(account.stash[i].bytes, whole, sizeof whole),
                    mm_size_format(account.stash[i].held_bytes, held, sizeof held),
                    mm_stash_class_name((mm_stash_class)i));
    fprintf(file, "  maps without weights, workspaces and the batch: %s as placed, %s allocated dynamically\n",
            mm_size_format(account.placed_bytes, placed, sizeof placed),
            mm_size_format(account.dynamic_bytes, held, sizeof held));
    return MM_OK;
}

static mm_status print_maps(FILE *file, const plan_case *cases, const explained *e, int n) {
    char size[32];
    const mm_stash_account *stash = &e[0].stash;
    const int most = cases->explains_all ? stash->n_maps : EXPLAIN_MAPS;
    int64_t total = 0, rest = 0;
    for (int i = 0; i < stash->n_maps; i++) {
        total += stash->maps[i].bytes;
        rest += i >= most ? stash->maps[i].bytes : 0;
    }
    fprintf(file, "%s, batch %lld: the largest of %d stashed maps of %s; bytes that stay on the device\n", cases->net,
            (long long)cases->asked.batch, stash->n_maps, mm_size_format(total, size, sizeof size));
    for (int i = 0; i < stash->n_maps && i < most; i++) MM_TRY(print_map(file, cases, e, n, &stash->maps[i]));
    if (rest > 0)
        fprintf(file, "  %10s  in %d smaller ones\n", mm_size_format(rest, size, sizeof size), stash->n_maps - most);
    return MM_OK;
}

mm_status explain_print(FILE *file, const plan_case *cases, int n, const explain_bound *image) {
    explained e[CASES_MAX] = {0};
    int made = 0;
    mm_status status =
        n <= CASES_MAX ? MM_OK : mm_fail(MM_ERR_INVALID, "--explain takes at most %d policies", CASES_MAX);
    while (status == MM_OK && made < n) {
        status = explained_init(&e[made], &cases[made]);
        made += status == MM_OK;
    }
    if (status == MM_OK) status = print_maps(file, cases, e, n);
    for (int i = 0; status == MM_OK && i < n; i++) status = print_classes(file, &cases[i], &e[i]);
    for (int i = 0; status == MM_OK && i < n; i++)
        status = explain_homes_print(file, plan_case_plan(&cases[i]), cases->explains_all ? INT_MAX : EXPLAIN_MAPS);
    for (int i = 0; status == MM_OK && i < n; i++) status = explain_plan_print(file, &cases[i], &e[i]);
    if (status == MM_OK) {
        explain_bound own = bound_of_case(cases);
        fprintf(file, "%s: lower bounds (moDNN, equation 7)\n", cases->net);
        print_bound(file, image);
        if (own.batch != image->batch) print_bound(file, &own);
    }
    for (int i = 0; i < made; i++) explained_fini(&e[i]);
    return status;
}

/* ---------------------------------------------------------------- json */

static json_t *kinds_json(const mm_account *account) {
    json_t *object = json_object();
    for (int k = 0; k < MM_ACCOUNT_KINDS; k++)
        json_object_set_new(object, mm_account_kind_name(k),
                            json_pack("{sI sI}", "declared_bytes", (json_int_t)account->declared[k], "at_peak_bytes",
                                      (json_int_t)account->at_peak[k]));
    json_object_set_new(object, "idle",
                        json_pack("{si sI}", "declared_bytes", 0, "at_peak_bytes", (json_int_t)account->idle_bytes));
    return object;
}

static json_t *segments_json(const mm_account *account) {
    json_t *array = json_array();
    char name[320];
    for (int i = 0; i < account->n_segments; i++) {
        const mm_segment *s = &account->plan->segments[account->segments[i]];
        json_array_append_new(array,
                              json_pack("{ss ss sI}", "name",
                                        mm_account_segment_name(account->plan, account->segments[i], name, sizeof name),
                                        "content", mm_content_name(s->content), "bytes", (json_int_t)s->bytes));
    }
    return array;
}

static json_t *remedies_json(const mm_graph_facts *facts, const mm_stash_map *map) {
    json_t *array = json_array();
    for (int i = 0; i < map->n_remedies; i++) {
        const mm_remedy *r = &map->remedies[i];
        json_t *object = json_pack(
            "{ss sI so}", "action", mm_remedy_kind_name(r->kind), "bytes_left", (json_int_t)r->bytes_left, "seconds",
            r->kind == MM_REMEDY_KEEP || r->ns > 0 ? json_real((double)r->ns * 1e-9) : json_null());
        if (r->codec >= 0) json_object_set_new(object, "codec", json_string(facts->codecs[r->codec].spec));
        if (r->sign_codec >= 0)
            json_object_set_new(object, "sign_codec", json_string(facts->codecs[r->sign_codec].spec));
        char kinds[128];
        if (r->kind == MM_REMEDY_RECOMPUTE)
            json_object_set_new(object, "layers", json_string(kinds_text(r->layer_kinds, kinds, sizeof kinds)));
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *readers_json(const mm_graph *graph, const mm_stash_map *map) {
    json_t *array = json_array();
    char step[256];
    for (int i = 0; i < map->n_readers; i++)
        json_array_append_new(array, json_pack("{ss ss}", "step",
                                               mm_graph_step_name(graph, map->readers[i].step, step, sizeof step),
                                               "form", form_name(map->readers[i].form)));
    return array;
}

static json_t *maps_json(const plan_case *c, const explained *e) {
    const mm_graph *graph = plan_case_plan(c)->graph;
    json_t *array = json_array();
    for (int i = 0; i < e->stash.n_maps; i++) {
        const mm_stash_map *map = &e->stash.maps[i];
        const mm_tensor_info *tensor = mm_graph_tensor(graph, map->tensor);
        const mm_layer_info *producer = mm_graph_layer(graph, tensor->producer);
        json_array_append_new(
            array, json_pack("{ss ss ss sI sI so so so sf so}", "name", tensor->name, "producer", producer->name,
                             "producer_kind", mm_layer_kind_name(producer->kind), "bytes", (json_int_t)map->bytes,
                             "held_bytes", (json_int_t)map->held_bytes, "readers", readers_json(graph, map), "remedies",
                             remedies_json(e->facts, map), "decided", explained_kinds_json(e->decisions[i].kinds),
                             "decided_seconds", (double)e->decisions[i].ns * 1e-9, "instead",
                             explain_why_json(c, &e->whys, i)));
    }
    return array;
}

static mm_status add_map_account(json_t *row, const plan_case *c, const explained *e) {
    mm_map_account account;
    MM_TRY(mm_map_account_init(plan_case_plan(c), plan_case_need(c)->planned.facts, &e->stash, &account));
    json_t *object =
        json_pack("{sI sI sI}", "placed_bytes", (json_int_t)account.placed_bytes, "dynamic_bytes",
                  (json_int_t)account.dynamic_bytes, "undecoded_bytes", (json_int_t)account.undecoded_bytes);
    for (int i = 0; i < MM_STASH_CLASSES; i++)
        json_object_set_new(object, mm_stash_class_name((mm_stash_class)i),
                            json_pack("{sI sI}", "bytes", (json_int_t)account.stash[i].bytes, "held_bytes",
                                      (json_int_t)account.stash[i].held_bytes));
    return json_object_set_new(row, "maps", object) == 0 ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the rows");
}

/* Adds a bound as four keys that begin with `prefix`. */
static int add_bound(json_t *row, const char *prefix, const explain_bound *b) {
    char key[64];
    int failed = 0;
#define KEY(suffix) (snprintf(key, sizeof key, "%s%s", prefix, suffix), key)
    failed |= json_object_set_new(row, KEY("_bytes"), json_integer(b->bound.bytes));
    failed |= json_object_set_new(row, KEY("_held_by"), json_string(b->held_by));
    failed |= json_object_set_new(row, KEY("_offloaded_bytes"), json_integer(b->bound.offloaded_bytes));
    failed |= json_object_set_new(row, KEY("_offloaded_held_by"), json_string(b->offloaded_held_by));
#undef KEY
    return failed;
}

/* For each kind, an array of the live bytes at every step, in order. */
static json_t *timeline_json(const mm_account *account) {
    json_t *object = json_object();
    for (int k = 0; k < MM_ACCOUNT_KINDS; k++) {
        json_t *array = json_array();
        for (int i = 0; i < account->n_steps; i++)
            json_array_append_new(array, json_integer(account->steps[i].bytes[k]));
        json_object_set_new(object, mm_account_kind_name(k), array);
    }
    return object;
}

mm_status explain_row(json_t *row, const plan_case *c, const explain_bound *image) {
    explained e;
    explain_bound own = bound_of_case(c);
    MM_TRY(explained_init(&e, c));
    int failed = json_object_set_new(row, "kinds", kinds_json(&c->account));
    failed |= json_object_set_new(row, "peak_segments", segments_json(&c->account));
    failed |= json_object_set_new(row, "stashed_maps", maps_json(c, &e));
    failed |= add_bound(row, "lower_bound", image);
    failed |= add_bound(row, "batch_lower_bound", &own);
    failed |= json_object_set_new(row, "timeline", timeline_json(&c->account));
    failed |= json_object_set_new(row, "homes", explain_homes_json(plan_case_plan(c)));
    json_t *memory = NULL;
    mm_status status = add_map_account(row, c, &e);
    if (status == MM_OK) status = mm_plan_memory(plan_case_plan(c), &e.times, &memory);
    if (status == MM_OK) status = explain_plan_row(row, c, &e);
    explained_fini(&e);
    MM_TRY(status);
    failed |= json_object_set_new(row, "memory", memory);
    return failed ? mm_fail(MM_ERR_NOMEM, "out of memory for the rows") : MM_OK;
}
