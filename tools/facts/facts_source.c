/* SPDX-License-Identifier: MIT */
#include "tools/facts/facts_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/graph/graph.h"
#include "mm/core/json_text.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

/* Takes network and batch from a training graph's name, which nets/lower/lower.c makes: "resnet32 train 128". */
static void read_subject(const char *name, facts_source *source) {
    static const char mode[] = " train ";
    const char *end = strstr(name, mode);
    long long batch;
    if (!end || (size_t)(end - name) >= sizeof source->net || sscanf(end + strlen(mode), "%lld", &batch) != 1) return;
    snprintf(source->net, sizeof source->net, "%.*s", (int)(end - name), name);
    source->batch = batch;
}

mm_status facts_source_open_gpu(const char *name, facts_source *source_out) {
    facts_source source = {.path = name, .is_machine = true};
    json_t *root;
    MM_TRY(gpu_find(name, &source.gpu));
    MM_TRY(gpu_machine_json(source.gpu, &root));
    mm_status status = machine_read(source.gpu->name, root, &source.machine);
    json_decref(root);
    MM_TRY(status);
    *source_out = source;
    return MM_OK;
}

/* Whether to look for a GPU of that name: there is no such file, and it does not look like a path. */
static bool may_be_gpu(const char *path) { return !strpbrk(path, "/.") && access(path, F_OK) != 0 && errno == ENOENT; }

static mm_status open_one(const char *path, facts_source *source_out) {
    facts_source source = {.path = path};
    json_t *root;
    mm_failure no_gpu = {0};
    if (may_be_gpu(path)) {
        const mm_status found = facts_source_open_gpu(path, source_out);
        if (found != MM_ERR_NOT_FOUND) return found;
        mm_failure_save(&no_gpu, found);
    }
    mm_status status = mm_json_read("facts file ", path, JSON_REJECT_DUPLICATES, &root);
    if (status != MM_OK && no_gpu.status != MM_OK) {
        mm_failure no_file;
        mm_failure_save(&no_file, status);
        return mm_fail(status, "%s; %s", no_file.message, no_gpu.message);
    }
    MM_TRY(status);
    source.is_machine = machine_is(root);
    status = source.is_machine ? machine_read(path, root, &source.machine) : mm_facts_parse(path, root, source.facts);
    json_decref(root);
    MM_TRY(status);
    if (!source.is_machine) {
        source.n_facts = 1;
        read_subject(source.facts[0]->graph, &source);
        source.threads = source.facts[0]->by_name.threads;
    }
    *source_out = source;
    return MM_OK;
}

/* Adds the facts of one more file. */
static mm_status add(const char *path, const char *all, facts_source *source) {
    facts_source one;
    if (source->n_facts == FACTS_FILES_MOST)
        return mm_fail(MM_ERR_INVALID, "%s: more than %d files of facts", MM_BRIEF(all), FACTS_FILES_MOST);
    if (!*path) return mm_fail(MM_ERR_INVALID, "%s: a name between commas is empty", MM_BRIEF(all));
    const mm_status status = open_one(path, &one);
    if (status != MM_OK) return mm_fail_in(status, "%s", MM_BRIEF(all));
    const char *why = one.is_machine || one.batch == 0 ? "does not hold measured facts of a network and batch" : NULL;
    if (!why && source->n_facts > 0 && strcmp(one.net, source->net) != 0)
        why = "is of another network than the first file";
    if (!why && source->n_facts > 0 && one.threads != source->threads)
        why = "was measured with other threads than the first file";
    for (int i = 0; !why && i < source->n_facts; i++)
        if (source->facts[i]->tensor_bytes == one.facts[0]->tensor_bytes) why = "is of the same batch as another file";
    if (why) {
        facts_source_close(&one);
        return mm_fail(MM_ERR_INVALID, "%s: %s", path, why);
    }
    if (source->n_facts == 0)
        *source = one;
    else
        source->facts[source->n_facts++] = one.facts[0];
    return MM_OK;
}

bool facts_source_is_list(const char *path) { return strchr(path, ',') && access(path, F_OK) != 0; }

mm_status facts_source_open(const char *path, facts_source *source_out) {
    if (!facts_source_is_list(path)) return open_one(path, source_out);
    facts_source source = {0};
    mm_status status = MM_OK;
    for (const char *at = path; status == MM_OK && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char one[4096];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ","), at);
        status = add(one, path, &source);
    }
    source.path = path;
    if (status == MM_OK)
        *source_out = source;
    else
        facts_source_close(&source);
    return status;
}

void facts_source_close(facts_source *source) {
    for (int i = 0; i < source->n_facts; i++) mm_facts_destroy(source->facts[i]);
    json_decref(source->study);
    source->n_facts = 0;
    source->study = NULL;
}

/* ---------------------------------------------------------------- studies */

/* The compression ratio of the row's map under the codec of `spec`; 0: the row has none. */
static double ratio_of(const json_t *row, const char *spec, const char *layout) {
    char name[MM_SPEC_CAPACITY];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(spec, ":"), spec);
    return json_number_value(json_object_get(json_object_get(json_object_get(row, "ratio"), name), layout));
}

mm_status facts_source_study(facts_source *source, const char *text) {
    static const char *const layouts[] = {"nhwc", "nchw", "chwn"};
    if (!text) return MM_OK;
    const char *comma = strrchr(text, ',');
    const char *layout = comma ? comma + 1 : layouts[0];
    char path[4096];
    snprintf(path, sizeof path, "%.*s", (int)(comma ? comma - text : (ptrdiff_t)strlen(text)), text);
    size_t known = 0;
    while (known < 3 && strcmp(layout, layouts[known]) != 0) known++;
    if (known == 3) return mm_fail(MM_ERR_INVALID, "--study %s: the layout must be nhwc, nchw or chwn", text);
    json_t *rows;
    MM_TRY(mm_json_read("study file ", path, JSON_REJECT_DUPLICATES, &rows));
    const json_t *last = json_is_array(rows) ? json_array_get(rows, json_array_size(rows) - 1) : NULL;
    if (!(ratio_of(last, "zvc", layout) > 0)) {
        json_decref(rows);
        return mm_fail(MM_ERR_FORMAT, "study file %s: does not hold rows of 'mm codecs --study --json'", path);
    }
    source->study = rows;
    strcpy(source->layout, layout);
    return MM_OK;
}

/* Sets the typical sizes of one map's codes from its row of the study. */
static void take_ratio(const facts_source *source, const json_t *row, const mm_graph *graph, mm_graph_facts *facts) {
    char name[256];
    mm_tensor t;
    const char *layer = json_string_value(json_object_get(row, "layer"));
    if (!layer) return;
    snprintf(name, sizeof name, "%s.out", layer);
    if (mm_graph_find_tensor(graph, name, &t) != MM_OK) return;
    for (int c = 0; c < facts->n_codecs; c++) {
        mm_code_facts *code = &facts->codes[(size_t)c * (size_t)facts->n_tensors + (size_t)t];
        const double ratio = ratio_of(row, facts->codecs[c].spec, source->layout);
        if (code->body_bound_bytes == 0 || !(ratio > 0)) continue;
        code->body_typical_bytes =
            ratio > 1 ? (int64_t)((double)code->body_bound_bytes / ratio) : code->body_bound_bytes;
        code->body_is_measured = true;
    }
}

/* Whether the step may exchange something with the other ranks (nets/exchange.h). Such steps are of layers that compute
 * nothing. */
static bool may_exchange(const mm_graph *graph, const mm_step_info *step) {
    return mm_graph_layer(graph, step->layer)->kind == MM_LAYER_UPDATE && step->phase != MM_FORWARD;
}

/* Whether an earlier step adds up the gradient: then only its sum may arrive during a later one. */
static bool is_added_up_before(const mm_graph *graph, int before, mm_tensor gradient) {
    for (int s = before - 1; s >= 0; s--) {
        const mm_step_info *step = mm_graph_step(graph, s);
        for (int u = 0; may_exchange(graph, step) && u < step->n_uses; u++)
            if (step->uses[u].tensor == gradient) return true;
    }
    return false;
}

/* The bytes of the weight whose gradient the step adds up in parts (nets/lower/param_parts.h); 0: it does not. */
static int64_t added_up_in_parts(const mm_graph *graph, const mm_step_info *step) {
    for (int u = 0; step->phase == MM_BACKWARD && u < step->n_uses; u++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, step->uses[u].tensor);
        if (tensor->kind == MM_WEIGHT && step->uses[u].access == MM_READ) return tensor->bytes;
    }
    return 0;
}

/* The bytes of the gradients that a step of the backward pass adds up, or of the weights that a step behind the update
 * gathers; 0: it exchanges nothing. */
static int64_t exchanged_bytes(const mm_graph *graph, int s) {
    const mm_step_info *step = mm_graph_step(graph, s);
    if (!may_exchange(graph, step)) return 0;
    int64_t bytes = added_up_in_parts(graph, step);
    if (bytes > 0) return bytes;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        const mm_tensor_info *tensor = mm_graph_tensor(graph, use->tensor);
        if (tensor->kind != (step->phase == MM_BACKWARD ? MM_WEIGHT_GRADIENT : MM_WEIGHT)) return 0;
        if (step->phase == MM_UPDATE)
            bytes += use->access == MM_MODIFY ? tensor->bytes : 0; /* a copy is only written */
        else if (tensor->weight >= 0 && !is_added_up_before(graph, s, use->tensor))
            bytes += tensor->bytes;
    }
    return bytes;
}

static double seconds_of(double bytes, int64_t rate) { return rate > 0 ? bytes / (double)rate : 0; }

/* Nothing of it is taken to run beside other steps. A rank sends all gradients and gets its share of the sums, or sends
 * its share of the weights and gets the others'. */
static int64_t exchange_ns(const mm_graph_facts *facts, bool gathers, int64_t bytes) {
    if (facts->sum_at == MM_SUM_IN_PLACE) return mm_facts_sum_ns(facts, bytes) / 2; /* half an all-reduce */
    const double share = (double)bytes / facts->ranks, out = gathers ? share : (double)bytes,
                 in = gathers ? (double)bytes - share : share;
    const double link = seconds_of(out, facts->out_bytes_per_s) + seconds_of(in, facts->in_bytes_per_s);
    return (int64_t)(link * 1e9) + (gathers ? 0 : mm_facts_sum_ns(facts, bytes));
}

static void add_exchanges(const mm_graph *graph, mm_graph_facts *facts) {
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        const int64_t bytes = exchanged_bytes(graph, s);
        for (int v = facts->variant_first[s]; bytes > 0 && v < facts->variant_first[s + 1]; v++)
            facts->variants[v].ns += exchange_ns(facts, step->phase == MM_UPDATE, bytes);
    }
}

/* Whether the graph trains the measured network. */
static bool is_of_network(const facts_source *source, const mm_graph *graph) {
    facts_source subject = {0};
    read_subject(mm_graph_name(graph), &subject);
    return subject.batch > 0 && strcmp(subject.net, source->net) == 0;
}

/* Takes the facts of the file that was measured on this graph. If there is none, they follow from those of other
 * batches. Of graphs that are no batch of the measured network, the error says what differs. */
static mm_status fill_measured(const facts_source *source, const mm_graph *graph, mm_graph_facts *facts) {
    const mm_facts *same = is_of_network(source, graph) ? NULL : source->facts[0];
    for (int i = 0; !source->only_between && !same && i < source->n_facts; i++)
        if (strcmp(source->facts[i]->graph, mm_graph_name(graph)) == 0) same = source->facts[i];
    if (same) return mm_facts_apply(same, graph, source->for_run ? MM_FACTS_TIMES : MM_FACTS_ALL, facts);
    return mm_facts_apply_between((const mm_facts *const *)source->facts, source->n_facts, graph, facts);
}

mm_status facts_source_fill(const facts_source *source, const mm_graph *graph, mm_graph_facts *facts) {
    size_t i;
    json_t *row;
    if (source->is_machine) MM_TRY(machine_facts(&source->machine, graph, facts));
    if (source->is_machine && source->link_bytes_per_s > 0) {
        facts->out_bytes_per_s = facts->in_bytes_per_s = source->link_bytes_per_s;
        facts->out_both_bytes_per_s = facts->in_both_bytes_per_s = 0;
    } else if (!source->is_machine)
        MM_TRY(fill_measured(source, graph, facts));
    json_array_foreach(source->study, i, row) take_ratio(source, row, graph, facts);
    if (source->ranks > 1) {
        mm_facts_set_ranks(facts, source->ranks, source->sum_at);
        add_exchanges(graph, facts);
    }
    return MM_OK;
}

static mm_status fill(const void *source, const mm_graph *graph, mm_graph_facts *facts) {
    return facts_source_fill(source, graph, facts);
}

mm_status facts_source_facts(const facts_source *source, mm_facts **facts_out) {
    return mm_facts_of(fill, source, facts_out);
}
