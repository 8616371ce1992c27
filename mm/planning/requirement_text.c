/* SPDX-License-Identifier: MIT */
/* A requirement for people and for programs (mm/mm_plan.h). */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/json_text.h"
#include "mm/core/size.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

static mm_status no_memory(void) { return mm_fail(MM_ERR_NOMEM, "out of memory for the text of a requirement"); }

/* ---------------------------------------------------------------- text */

static void print_bytes(FILE *file, const char *label, int64_t bytes, const char *more) {
    char size[32];
    fprintf(file, "  %-22s %14lld  %s%s\n", label, (long long)bytes, mm_size_format(bytes, size, sizeof size), more);
}

/* The first line: what was planned, whether it fits, what it needs on the device and takes of the host. */
static void print_verdict(FILE *file, const mm_requirement *r) {
    const bool judged = r->device_bytes > 0 || !r->fits;
    char size[32];
    fputs(r->graphs[0].graph, file);
    if (r->n_graphs > 1) fprintf(file, " and %d more", r->n_graphs - 1);
    fprintf(file, ", %s%s: ", r->policy, r->lossy ? " (lossy)" : "");
    if (judged) fputs(r->fits ? "fits" : "does not fit", file);
    if (r->device_bytes > 0) fprintf(file, " %s", mm_size_format(r->device_bytes, size, sizeof size));
    fprintf(file, "%sneeds %s", judged ? " (" : "", mm_size_format(r->least_bytes, size, sizeof size));
    fprintf(file, "; takes %s of pinned host memory", mm_size_format(r->pinned_bytes, size, sizeof size));
    if (r->disk_bytes > 0) fprintf(file, ", %s of the disk", mm_size_format(r->disk_bytes, size, sizeof size));
    if (r->needs_recompute_set) fputs("; needs mm_recompute_set", file);
    fputs(judged ? ")\n" : "\n", file);
}

static void print_graph(FILE *file, const mm_graph_requirement *g) {
    char label[64];
    print_bytes(file, MM_BRIEF(g->graph), g->least_bytes, "");
    fprintf(file, "  %-22s %s, step %d of %d\n", "  held by", g->held_by, g->held_step, g->steps);
    for (int k = 0; k < MM_HELD_KINDS; k++) {
        if (g->held[k] == 0) continue;
        snprintf(label, sizeof label, "    %s", mm_held_kind_name((mm_held_kind)k));
        print_bytes(file, label, g->held[k], "");
    }
    if (g->other_bytes > 0) print_bytes(file, "  of other graphs", g->other_bytes, ", persistent tensors");
    if (g->stash_bytes > 0) print_bytes(file, "  stash", g->stash_bytes, "");
    if (g->moved_bytes > 0) print_bytes(file, "  moved over the link", g->moved_bytes, "");
    if (g->stored_bytes > 0) print_bytes(file, "  to the disk and back", g->stored_bytes, "");
    if (g->steps_again > 0) fprintf(file, "  %-22s %14d  of %d steps\n", "  computed again", g->steps_again, g->steps);
    if (g->iteration_ns > 0)
        fprintf(file, "  %-22s %14.3f  ms\n", "  predicted iteration", (double)g->iteration_ns * 1e-6);
    if (g->bound_ns > 0)
        fprintf(file, "  %-22s %14.3f  ms, of any plan of these bytes and codecs\n", "  bound",
                (double)g->bound_ns * 1e-6);
}

static void print(FILE *file, const mm_requirement *r) {
    print_verdict(file, r);
    print_bytes(file, "minimum budget", r->least_bytes, "");
    if (r->planned_bytes != r->least_bytes) print_bytes(file, "planned in the budget", r->planned_bytes, "");
    if (r->persistent_bytes > 0) print_bytes(file, "persistent tensors", r->persistent_bytes, "");
    if (r->pinned_bytes > 0) print_bytes(file, "pinned host memory", r->pinned_bytes, "");
    if (r->disk_bytes > 0) print_bytes(file, "disk", r->disk_bytes, "");
    for (int i = 0; i < r->n_graphs; i++) print_graph(file, &r->graphs[i]);
    if (r->refusal[0]) fprintf(file, "  %s\n", r->refusal);
}

mm_status mm_requirement_text(const mm_requirement *r, char **text_out) {
    MM_TRY(mm_check_given(r, "mm_requirement_text", "requirement"));
    MM_TRY(mm_check_given(text_out, "mm_requirement_text", "text_out"));
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    if (!file) return no_memory();
    print(file, r);
    const bool whole = !ferror(file);
    if (fclose(file) != 0 || !whole) {
        free(text);
        return no_memory();
    }
    *text_out = text;
    return MM_OK;
}

/* ---------------------------------------------------------------- json: NULL means that there is no memory */

static json_t *time_json(int64_t ns) { return ns > 0 ? json_integer(ns) : json_null(); }

static json_t *advised_json(const mm_advised *a) {
    static const char *const kinds[] = {[MM_ADVICE_FITS] = "fits",
                                        [MM_ADVICE_PINNED] = "fits with more pinned memory",
                                        [MM_ADVICE_NEEDS_LEAST] = "needs least"};
    if (a->kind == MM_ADVICE_NONE) return json_null();
    return json_pack("{s:s, s:s, s:I, s:I, s:b, s:b}", "kind", kinds[a->kind], "policy", a->policy, "device_bytes",
                     (json_int_t)a->device_bytes, "pinned_bytes", (json_int_t)a->pinned_bytes, "lossy", (int)a->lossy,
                     "needs_recompute_set", (int)a->needs_recompute_set);
}

static json_t *held_json(const int64_t held[MM_HELD_KINDS]) {
    json_t *object = json_object();
    for (int k = 0; object && k < MM_HELD_KINDS; k++) {
        char key[64];
        snprintf(key, sizeof key, "%s", mm_held_kind_name((mm_held_kind)k));
        for (char *c = key; *c; c++) *c = *c == ' ' ? '_' : *c;
        if (json_object_set_new(object, key, json_integer(held[k])) == 0) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *timeline_json(const mm_graph_requirement *g) {
    json_t *array = json_array();
    for (int i = 0; array && i < g->n_timeline; i++) {
        const mm_held_step *step = &g->timeline[i];
        json_t *object = json_pack("{s:i, s:s, s:I, s:o}", "step", step->step, "phase", mm_phase_name(step->phase),
                                   "live_bytes", (json_int_t)step->live_bytes, "held", held_json(step->held));
        if (json_array_append_new(array, object) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *actions_json(uint32_t actions) {
    json_t *array = json_array();
    for (int a = 0; array && a < MM_MAP_ACTIONS; a++) {
        if (!(actions >> a & 1)) continue;
        if (json_array_append_new(array, json_string(mm_map_action_name((mm_map_action)a))) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *stashed_json(const mm_graph_requirement *g) {
    json_t *array = json_array();
    for (int i = 0; array && i < g->n_stashed; i++) {
        const mm_stashed *map = &g->stashed[i];
        json_t *object =
            json_pack("{s:s, s:I, s:I, s:o, s:s?, s:o}", "tensor", map->name, "bytes", (json_int_t)map->bytes,
                      "held_bytes", (json_int_t)map->held_bytes, "actions", actions_json(map->actions), "codec",
                      map->codec[0] ? map->codec : NULL, "ns", time_json(map->ns));
        if (json_array_append_new(array, object) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *visits_json(const mm_housed *home) {
    json_t *array = json_array();
    for (int i = 0; array && i < home->n_visits; i++) {
        const mm_home_visit *visit = &home->visits[i];
        if (json_array_append_new(array, json_pack("{s:i, s:i}", "begin", visit->begin, "end", visit->end)) == 0)
            continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *housed_json(const mm_graph_requirement *g) {
    json_t *array = json_array();
    for (int i = 0; array && i < g->n_housed; i++) {
        const mm_housed *home = &g->housed[i];
        json_t *object = json_pack("{s:s, s:s, s:s, s:I, s:o}", "tensor", home->name, "kind",
                                   mm_tensor_kind_name(home->kind), "home", mm_home_memory_name(home->home), "bytes",
                                   (json_int_t)home->bytes, "visits", visits_json(home));
        if (json_array_append_new(array, object) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *graph_json(const mm_graph_requirement *g) {
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:i, s:i, s:i, s:s, s:I, s:o, s:o, s:o, s:o}", "graph",
        g->graph, "least_bytes", (json_int_t)g->least_bytes, "planned_bytes", (json_int_t)g->planned_bytes,
        "pinned_bytes", (json_int_t)g->pinned_bytes, "disk_bytes", (json_int_t)g->disk_bytes, "moved_bytes",
        (json_int_t)g->moved_bytes, "stored_bytes", (json_int_t)g->stored_bytes, "stash_bytes",
        (json_int_t)g->stash_bytes, "other_bytes", (json_int_t)g->other_bytes, "iteration_ns",
        time_json(g->iteration_ns), "bound_ns", time_json(g->bound_ns), "steps", g->steps, "steps_again",
        g->steps_again, "held_step", g->held_step, "held_by", g->held_by, "live_bytes", (json_int_t)g->live_bytes,
        "held", held_json(g->held), "timeline", timeline_json(g), "stashed", stashed_json(g), "housed", housed_json(g));
}

static json_t *graphs_json(const mm_requirement *r) {
    json_t *array = json_array();
    for (int i = 0; array && i < r->n_graphs; i++) {
        if (json_array_append_new(array, graph_json(&r->graphs[i])) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static json_t *requirement_json(const mm_requirement *r) {
    return json_pack("{s:s, s:b, s:b, s:b, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:i, s:o, s:o, s:o, s:s}",
                     "policy", r->policy, "lossy", (int)r->lossy, "fits", (int)r->fits, "needs_recompute_set",
                     (int)r->needs_recompute_set, "device_bytes", (json_int_t)r->device_bytes, "pinned_limit_bytes",
                     r->pinned_limit_bytes < INT64_MAX ? json_integer(r->pinned_limit_bytes) : json_null(),
                     "disk_limit_bytes", (json_int_t)r->disk_limit_bytes, "least_bytes", (json_int_t)r->least_bytes,
                     "planned_bytes", (json_int_t)r->planned_bytes, "pinned_bytes", (json_int_t)r->pinned_bytes,
                     "disk_bytes", (json_int_t)r->disk_bytes, "persistent_bytes", (json_int_t)r->persistent_bytes,
                     "iteration_ns", time_json(r->iteration_ns), "most", r->most, "graphs", graphs_json(r), "advised",
                     advised_json(&r->advised), "recomputing", advised_json(&r->recomputing), "refusal", r->refusal);
}

mm_status mm_requirement_json(const mm_requirement *r, char **text_out) {
    MM_TRY(mm_check_given(r, "mm_requirement_json", "requirement"));
    MM_TRY(mm_check_given(text_out, "mm_requirement_json", "text_out"));
    errno = 0;
    json_t *json = requirement_json(r);
    char *text = json ? mm_json_print(json, JSON_INDENT(1)) : NULL;
    const bool lacks_memory = errno == ENOMEM;
    json_decref(json);
    if (lacks_memory) {
        free(text);
        return no_memory();
    }
    if (!text) return mm_fail(MM_ERR_INVALID, "mm_requirement_json: a name of a graph or a layer is not UTF-8");
    *text_out = text;
    return MM_OK;
}
