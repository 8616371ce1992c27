/* SPDX-License-Identifier: MIT */
#include "policies/saved.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph_write.h"
#include "mm/core/plan/plan_file.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "policies/option_tables.h"
#include "policies/policy_table.h"
#include "policies/rules/rules.h"

/* ---------------------------------------------------------------- configuration */

/* Adds a rule that names the codec, so that there are facts of it. The planner reads no rules. */
static mm_status add_codec(mm_engine_config *config, const char *spec) {
    char specs[MM_MAX_CODECS + 1][MM_SPEC_CAPACITY];
    mm_rule *rules = realloc(config->rules, ((size_t)config->n_rules + 1) * sizeof *rules);
    if (!rules) return mm_fail(MM_ERR_NOMEM, "out of memory for the codecs of a plan");
    config->rules = rules;
    mm_rule *rule = &rules[config->n_rules];
    *rule = (mm_rule){.action = MM_ACTION_CODE, .mask = strcmp(spec, mm_mask_spec) == 0};
    strcpy(rule->codec, spec);
    MM_TRY(mm_selector_parse("*", &rule->selector));
    config->n_rules++;
    if (mm_engine_codecs(config, specs, MM_MAX_CODECS + 1) <= MM_MAX_CODECS) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "plan file %s: its plans have more than %d codecs", config->file, MM_MAX_CODECS);
}

static bool is_named(const mm_engine_config *config, const char *spec) {
    bool named = false;
    for (int r = 0; r < config->n_rules; r++) named |= strcmp(config->rules[r].codec, spec) == 0;
    return named;
}

static mm_status add_codecs(mm_engine_config *config, const mm_plan_file *file) {
    for (int c = 0; c < file->facts->n_codecs; c++)
        if (!is_named(config, file->facts->codecs[c].spec)) MM_TRY(add_codec(config, file->facts->codecs[c].spec));
    for (int i = 0; i < mm_graph_persistents(file->graph); i++)
        if (file->places[i].memory != MM_MEM_DEVICE) config->resident = MM_RESIDENT_NEEDED;
    return MM_OK;
}

mm_status mm_saved_configure(const char *path, mm_engine_config *config) {
    mm_plan_file *files;
    size_t n;
    MM_TRY(mm_plan_files_read(path, &files, &n));
    config->file = strdup(path);
    mm_status status = config->file ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the name of a plan file");
    for (size_t i = 0; status == MM_OK && i < n; i++) status = add_codecs(config, &files[i]);
    if (status != MM_OK) mm_rules_fini(config);
    mm_plan_files_destroy(files, n);
    return status;
}

/* ---------------------------------------------------------------- the graph */

/* The file's plans, and the one of a graph. */
typedef struct saved {
    const char *path;
    mm_plan_file *files;
    size_t n;
    mm_plan_file *own; /* among the files */
} saved;

/* Names the first of an array's items in which two graphs differ. */
static mm_status tell_difference(const saved *s, const char *what, const json_t *here, const json_t *there) {
    const size_t n = json_array_size(here), m = json_array_size(there);
    for (size_t i = 0; i < n && i < m; i++) {
        const json_t *item = json_array_get(here, i);
        if (json_equal(item, json_array_get(there, i))) continue;
        const char *name = json_string_value(json_object_get(item, "name"));
        return mm_fail(MM_ERR_INVALID, "plan file %s: its graph %s has another %s %zu%s%s", s->path,
                       mm_graph_name(s->own->graph), what, i, name ? ", here " : "", name ? name : "");
    }
    if (n == m) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "plan file %s: its graph %s has %zu %ss, this one %zu", s->path,
                   mm_graph_name(s->own->graph), m, what, n);
}

static mm_status compare_graphs(const saved *s, const mm_graph *graph) {
    json_t *here = mm_graph_json(graph), *there = mm_graph_json(s->own->graph);
    mm_status status = here && there ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for comparing two graphs");
    static const char *const parts[][2] = {{"tensors", "tensor"}, {"layers", "layer"}, {"steps", "step"}};
    for (int i = 0; status == MM_OK && i < 3; i++)
        status =
            tell_difference(s, parts[i][1], json_object_get(here, parts[i][0]), json_object_get(there, parts[i][0]));
    json_decref(here);
    json_decref(there);
    return status;
}

static void close_saved(saved *s) { mm_plan_files_destroy(s->files, s->n); }

/* Reads the file, and finds the graph's plan. The caller closes it. */
static mm_status open_saved(const mm_graph *graph, const mm_engine_config *config, saved *s) {
    *s = (saved){.path = config->file};
    MM_TRY(mm_plan_files_read(s->path, &s->files, &s->n));
    for (size_t i = 0; i < s->n && !s->own; i++)
        if (strcmp(mm_graph_name(s->files[i].graph), mm_graph_name(graph)) == 0) s->own = &s->files[i];
    mm_status status =
        s->own ? compare_graphs(s, graph)
               : mm_fail(MM_ERR_INVALID, "plan file %s: has no plan of the graph %s; its first is of %s", s->path,
                         MM_BRIEF(mm_graph_name(graph)), MM_BRIEF(mm_graph_name(s->files[0].graph)));
    if (status != MM_OK) close_saved(s);
    return status;
}

/* ---------------------------------------------------------------- sizes */

static mm_status other_size(const saved *s, const char *of, const char *what, int64_t here, int64_t there) {
    return mm_fail(MM_ERR_INVALID, "plan file %s: %s: %s is %lld there, and %lld here", s->path, of, what,
                   (long long)there, (long long)here);
}

/* Checks that a code has the sizes that the plan was made with. */
static mm_status compare_code(const saved *s, const mm_graph_facts *facts, int codec, mm_tensor tensor) {
    const mm_code_facts *here = mm_facts_code(facts, codec, tensor);
    const char *spec = facts->codecs[codec].spec;
    const mm_code_facts *there = mm_facts_code(s->own->facts, mm_facts_codec(s->own->facts, spec), tensor);
    const struct {
        const char *what;
        int64_t here, there;
    } sizes[] = {{"code_bytes", here->code_bytes, there->code_bytes},
                 {"body_bound_bytes", here->body_bound_bytes, there->body_bound_bytes},
                 {"scratch_bytes", here->scratch_bytes, there->scratch_bytes},
                 {"strip_elems", here->strip_elems, there->strip_elems}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].here != sizes[i].there) {
            char of[MM_BRIEF_CAPACITY + MM_SPEC_CAPACITY + 16];
            snprintf(of, sizeof of, "tensor %s, codec %s", MM_BRIEF(mm_graph_tensor(s->own->graph, tensor)->name),
                     spec);
            return other_size(s, of, sizes[i].what, sizes[i].here, sizes[i].there);
        }
    return MM_OK;
}

/* Gives codecs the numbers that they have in the facts. */
static mm_status translate_codecs(const saved *s, const mm_graph_facts *facts) {
    for (int i = 0; i < s->own->plan->n_segments; i++) {
        mm_segment *segment = &s->own->plan->segments[i];
        if (segment->codec < 0) continue;
        const char *spec = s->own->facts->codecs[segment->codec].spec;
        segment->codec = mm_facts_codec(facts, spec);
        if (segment->codec < 0 || segment->tensor < 0)
            return mm_fail(MM_ERR_INVALID, "plan file %s: segment %d: there is no codec %s here", s->path, i, spec);
        MM_TRY(compare_code(s, facts, segment->codec, segment->tensor));
    }
    return MM_OK;
}

/* Gives variants the numbers that they have in the facts. */
static mm_status translate_variants(const saved *s, const mm_graph_facts *facts) {
    const mm_graph_facts *own = s->own->facts;
    for (int i = 0; i < s->own->plan->n_nodes; i++) {
        mm_node *n = &s->own->plan->nodes[i];
        if (!mm_node_runs_step(n)) continue;
        const int given = own->variant_first[n->step] + n->variant, first = facts->variant_first[n->step];
        int v = first;
        char name[256];
        if (n->variant < 0 || given >= own->variant_first[n->step + 1])
            return mm_fail(MM_ERR_INVALID, "plan file %s: node %d has no variant %d", s->path, i, n->variant);
        while (v < facts->variant_first[n->step + 1] && facts->variants[v].id != own->variants[given].id) v++;
        mm_graph_step_name(s->own->graph, n->step, name, sizeof name);
        if (v == facts->variant_first[n->step + 1])
            return mm_fail(MM_ERR_INVALID, "plan file %s: %s: there is no variant %d of it here", s->path, name,
                           own->variants[given].id);
        if (facts->variants[v].workspace_bytes != own->variants[given].workspace_bytes)
            return other_size(s, name, "its workspace", facts->variants[v].workspace_bytes,
                              own->variants[given].workspace_bytes);
        n->variant = v - first;
    }
    return MM_OK;
}

/* Checks that homes are where the plan has them. */
static mm_status compare_places(const saved *s, const mm_limits *limits) {
    const mm_plan *plan = s->own->plan;
    int64_t packed = 0;
    if (plan->base_bytes < limits->base_bytes)
        return other_size(s, mm_graph_name(s->own->graph), "base_bytes", limits->base_bytes, plan->base_bytes);
    if (plan->pinned_base_bytes < limits->pinned_base_bytes)
        return other_size(s, mm_graph_name(s->own->graph), "pinned_base_bytes", limits->pinned_base_bytes,
                          plan->pinned_base_bytes);
    if (plan->disk_base_bytes < limits->disk_base_bytes)
        return other_size(s, mm_graph_name(s->own->graph), "disk_base_bytes", limits->disk_base_bytes,
                          plan->disk_base_bytes);
    for (int i = 0; i < mm_graph_persistents(s->own->graph); i++) {
        const mm_segment *home = &plan->segments[i];
        const mm_place place = limits->places ? limits->places[i] : (mm_place){.offset = packed};
        if (home->tensor < 0) continue; /* the proof refuses it */
        const mm_tensor_info *tensor = mm_graph_tensor(s->own->graph, home->tensor);
        packed += mm_align(tensor->bytes);
        if (home->memory != place.memory)
            return mm_fail(MM_ERR_INVALID, "plan file %s: %s has its home %s there, and not here", s->path,
                           MM_BRIEF(tensor->name), mm_memory_where(home->memory));
        if (home->offset != place.offset)
            return other_size(s, MM_BRIEF(tensor->name), "the offset of its home", place.offset, home->offset);
    }
    return MM_OK;
}

/* Checks that the plan is lowered here to the pieces that the file has. */
static mm_status compare_pieces(const saved *s, const mm_graph_facts *facts) {
    const mm_program *there = s->own->program;
    mm_program here;
    mm_status status = mm_program_init(s->own->plan, facts, &here);
    if (status != MM_OK) return status;
    if (here.n != there->n)
        status = other_size(s, mm_graph_name(s->own->graph), "the number of its pieces", here.n, there->n);
    for (int i = 0; status == MM_OK && i < here.n; i++)
        if (memcmp(&here.pieces[i], &there->pieces[i], sizeof here.pieces[i]) != 0)
            status = mm_fail(MM_ERR_INVALID, "plan file %s: %s: piece %d is cut in another way here", s->path,
                             mm_graph_name(s->own->graph), i);
    mm_program_fini(&here);
    return status;
}

/* ---------------------------------------------------------------- planning */

/* Makes the plan one for these facts and limits. */
static mm_status translate(const saved *s, const mm_graph_facts *facts, const mm_limits *limits) {
    bool *exact = NULL; /* not of interest */
    mm_limits own = s->own->limits;
    own.device_bytes = own.pinned_bytes = own.disk_bytes = INT64_MAX;
    MM_TRY(mm_program_prove(s->own->program, s->own->facts, &own, exact));
    MM_TRY(translate_codecs(s, facts));
    MM_TRY(translate_variants(s, facts));
    MM_TRY(compare_places(s, limits));
    return compare_pieces(s, facts);
}

static mm_status saved_plan(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                            const mm_engine_config *config, mm_plan **plan_out) {
    saved s;
    MM_TRY(open_saved(graph, config, &s));
    const mm_status status = translate(&s, facts, limits);
    if (status == MM_OK) {
        *plan_out = s.own->plan;
        (*plan_out)->graph = graph;
        s.own->plan = NULL;
    }
    close_saved(&s);
    return status;
}

static mm_status saved_places(const mm_graph *graph, const mm_engine_config *config, mm_place *places_out) {
    saved s;
    MM_TRY(open_saved(graph, config, &s));
    memcpy(places_out, s.own->places, (size_t)mm_graph_persistents(graph) * sizeof *places_out);
    close_saved(&s);
    return MM_OK;
}

static const mm_option_desc saved_options[] = {
    {.key = "file",
     .fallback = "",
     .type = MM_OPTION_FILE,
     .help = "a file of plans, which --save-plan or mm_plan_save wrote; no commas in its name"},
    {0}};

const mm_policy_ops mm_policy_plan_file = {
    .name = "plan",
    .summary = "as saved: plan:FILE; proved anew, and refused for another graph or other sizes",
    .options = saved_options,
    .takes_text = true,
    .asks = true,
    .config = {.sub_batch = MM_SUB_BATCH_OFF},
    .plan = saved_plan,
    .places = saved_places,
    .not_in_auto = "it is somebody's own plan",
};
