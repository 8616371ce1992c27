/* SPDX-License-Identifier: MIT */
/* Facts as a JSON file:
 *
 *   { "format": "mm facts", "version": 2,
 *     "graph": { "name": "resnet32 train 128", "steps": 214, "tensors": 402, "tensor_bytes": 1234567 },
 *     "link": { "out_bytes_per_s": ..., "in_bytes_per_s": ...,
 *       "out_both_bytes_per_s": ..., "in_both_bytes_per_s": ... },
 *     "host_sum_bytes_per_s": 0, "link_sharers": 0,
 *     "contention_permille": 50, "link_contention_permille": 20, "issue_ns": 2000, "alloc_ns": 0,
 *     "contention": { "dear": { "encode": 90, "decode": 80, "link": 20 }, "cheap": { ... },
 *       "encode": { "dear": 50, "cheap": 70, "decode": 500, "link": 10 }, "decode": { ... },
 *       "link": { "dear": 0, "cheap": 0, "encode": 0, "decode": 0 } },
 *     "cache_bytes": 33554432, "far_ps_per_byte": 60, "threads": 2,
 *     "steps": [ { "layer": "conv1", "phase": "forward", "variants": [
 *       { "id": 0, "deterministic": true, "workspace_bytes": 0, "ns": 1000 } ] } ],
 *     "codecs": [ { "spec": "zfp:rate=4", "lossless": false, "fixed_size": true, "gives_value": true,
 *       "gives_sign": false, "drops_zeros": false,
 *       "codes": { "conv1.out": { "code_bytes": 4096, "scratch_bytes": 0, "encode_ns": 500, "decode_ns": 500,
 *         "body_bound_bytes": 0, "body_reserve_bytes": 0, "body_typical_bytes": 0,
 *         "body_is_measured": false } } } ],
 *     "codec_rates": { "zvc": { "encode_bytes_per_s": ..., "decode_bytes_per_s": ..., "launch_ns": 2000 } } }
 *
 * codec_rates, by a codec's whole spec or its name, are for codes without an entry of their own; no file that mm writes
 * has them. Steps, codes, codec_rates and `contention` (mm_contention) may be left out; an entry must have all of its
 * keys, but drops_zeros and body_is_measured, which are false if left out: older files have neither. Version 1 has no
 * sizes of bodies. The counts and the sum of the tensors' bytes identify the graph; its name does not matter. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/atomic_file.h"
#include "mm/core/facts/facts.h"
#include "mm/core/graph/graph.h"
#include "mm/core/json_text.h"
#include "mm/core/status.h"
#include "mm/core/text.h"

static const char format_name[] = "mm facts";
enum { FORMAT_OLDEST = 1, FORMAT_BODIES = 2, FORMAT_VERSION = 2 }; /* FORMAT_BODIES: the first with sizes of bodies */

/* ---------------------------------------------------------------- save */

static json_t *variant_json(const mm_variant *v) {
    return json_pack("{s:i, s:b, s:I, s:I}", "id", (int)v->id, "deterministic", (int)v->deterministic,
                     "workspace_bytes", (json_int_t)v->workspace_bytes, "ns", (json_int_t)v->ns);
}

static json_t *step_json(const mm_graph *graph, const mm_graph_facts *facts, int step) {
    const mm_step_info *info = mm_graph_step(graph, step);
    json_t *variants = json_array();
    for (int v = facts->variant_first[step]; v < facts->variant_first[step + 1]; v++)
        if (json_array_append_new(variants, variant_json(&facts->variants[v])) != 0) {
            json_decref(variants);
            return NULL;
        }
    return json_pack("{s:s, s:s, s:o}", "layer", mm_graph_layer(graph, info->layer)->name, "phase",
                     mm_phase_name(info->phase), "variants", variants);
}

static json_t *codec_json(const mm_graph *graph, const mm_graph_facts *facts, int codec) {
    const mm_codec_facts *c = &facts->codecs[codec];
    json_t *codes = json_object();
    for (int t = 0; t < facts->n_tensors; t++) {
        const mm_code_facts *code = mm_facts_code(facts, codec, t);
        if (code->code_bytes < 0) continue;
        json_t *entry =
            json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "code_bytes", (json_int_t)code->code_bytes,
                      "scratch_bytes", (json_int_t)code->scratch_bytes, "encode_ns", (json_int_t)code->encode_ns,
                      "decode_ns", (json_int_t)code->decode_ns, "body_bound_bytes", (json_int_t)code->body_bound_bytes,
                      "body_reserve_bytes", (json_int_t)code->body_reserve_bytes, "body_typical_bytes",
                      (json_int_t)code->body_typical_bytes, "body_is_measured", (int)code->body_is_measured);
        if (json_object_set_new(codes, mm_graph_tensor(graph, t)->name, entry) != 0) {
            json_decref(codes);
            return NULL;
        }
    }
    return json_pack("{s:s, s:b, s:b, s:b, s:b, s:b, s:o}", "spec", c->spec, "lossless", (int)c->lossless, "fixed_size",
                     (int)c->fixed_size, "gives_value", (int)c->gives_value, "gives_sign", (int)c->gives_sign,
                     "drops_zeros", (int)c->drops_zeros, "codes", codes);
}

/* Adds "contention", a table by pairs of kinds of work. False: out of memory. */
static bool add_contention(json_t *root, const mm_graph_facts *facts) {
    json_t *table = json_object();
    bool whole = table != NULL;
    for (mm_work of = 0; whole && of < MM_WORK_KINDS; of++) {
        json_t *row = json_object();
        whole = json_object_set_new(table, mm_work_name(of), row) == 0;
        for (mm_work beside = 0; whole && beside < MM_WORK_KINDS; beside++)
            if (mm_work_can_run_beside(of, beside))
                whole = json_object_set_new(row, mm_work_name(beside),
                                            json_integer(mm_facts_contention(facts, of, beside))) == 0;
    }
    return json_object_set_new(root, "contention", table) == 0 && whole;
}

/* The file's content. NULL: out of memory, or a name is not UTF-8. */
static json_t *facts_json(const mm_graph *graph, const mm_graph_facts *facts) {
    json_t *steps = json_array(), *codecs = json_array();
    bool whole = steps && codecs;
    for (int s = 0; whole && s < facts->n_steps; s++)
        whole = json_array_append_new(steps, step_json(graph, facts, s)) == 0;
    for (int c = 0; whole && c < facts->n_codecs; c++)
        whole = facts->codecs[c].spec[0] == '\0' || json_array_append_new(codecs, codec_json(graph, facts, c)) == 0;
    if (!whole) {
        json_decref(steps);
        json_decref(codecs);
        return NULL;
    }
    json_t *root =
        json_pack("{s:s, s:i, s:{s:s, s:i, s:i, s:I}, s:{s:I, s:I, s:I, s:I}, s:i, s:i, s:I, s:i, s:I, s:I, s:I, s:I, "
                  "s:i, s:o, s:o}",
                  "format", format_name, "version", FORMAT_VERSION, "graph", "name", mm_graph_name(graph), "steps",
                  facts->n_steps, "tensors", facts->n_tensors, "tensor_bytes", (json_int_t)mm_facts_tensor_bytes(graph),
                  "link", "out_bytes_per_s", (json_int_t)facts->out_bytes_per_s, "in_bytes_per_s",
                  (json_int_t)facts->in_bytes_per_s, "out_both_bytes_per_s", (json_int_t)facts->out_both_bytes_per_s,
                  "in_both_bytes_per_s", (json_int_t)facts->in_both_bytes_per_s, "contention_permille",
                  facts->contention_permille, "link_contention_permille", facts->link_contention_permille,
                  "host_sum_bytes_per_s", (json_int_t)facts->host_sum_bytes_per_s, "link_sharers", facts->link_sharers,
                  "issue_ns", (json_int_t)facts->issue_ns, "alloc_ns", (json_int_t)facts->alloc_ns, "cache_bytes",
                  (json_int_t)facts->cache_bytes, "far_ps_per_byte", (json_int_t)facts->far_ps_per_byte, "threads",
                  facts->threads, "steps", steps, "codecs", codecs);
    const bool host =
        !root || facts->host_bytes_per_s == 0 ||
        json_object_set_new(root, "host_bytes_per_s", json_integer((json_int_t)facts->host_bytes_per_s)) == 0;
    const bool disk =
        !root || (facts->store_bytes_per_s == 0 && facts->load_bytes_per_s == 0) ||
        json_object_set_new(root, "disk",
                            json_pack("{s:I, s:I, s:I}", "store_bytes_per_s", (json_int_t)facts->store_bytes_per_s,
                                      "load_bytes_per_s", (json_int_t)facts->load_bytes_per_s, "disk_ns",
                                      (json_int_t)facts->disk_ns)) == 0;
    if (!root || (host && disk && (!facts->contention.known || add_contention(root, facts)))) return root;
    json_decref(root);
    return NULL;
}

/* An mm_file_writer. */
static mm_status write_json(const void *ctx, FILE *file) {
    if (json_dumpf(ctx, file, JSON_INDENT(1)) == 0 || ferror(file)) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "out of memory for saving facts");
}

/* ---------------------------------------------------------------- load */

/* An entry of the file's "steps". */
typedef struct step_entry {
    const char *layer;
    mm_phase phase;
    const json_t *variants;
} step_entry;

typedef struct loader {
    const char *path;
    int version;
    mm_facts *file;        /* what is loaded */
    mm_graph_facts *facts; /* its by_name */
    step_entry *steps;
    json_t *tensors; /* object: name → index */
} loader;

static mm_status bad(const loader *l, const char *where, const char *what) {
    return mm_fail(MM_ERR_FORMAT, "facts file %s: %s%s%s", l->path, where, *where ? ": " : "", what);
}

static mm_status no_memory(const loader *l) {
    return mm_fail(MM_ERR_NOMEM, "out of memory for facts file %s", l->path);
}

static mm_status get_integer(const loader *l, const json_t *object, const char *where, const char *key, int64_t low,
                             int64_t high, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (!value) return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: %s is missing", l->path, where, key);
    if (!json_is_integer(value))
        return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: %s is not an integer", l->path, where, key);
    int64_t integer = json_integer_value(value);
    if (integer < low || integer > high)
        return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: %s is %lld, must be %lld to %lld", l->path, where, key,
                       (long long)integer, (long long)low, (long long)high);
    *out = integer;
    return MM_OK;
}

/* get_integer for an int. */
static mm_status get_int(const loader *l, const json_t *object, const char *where, const char *key, int low, int high,
                         int *out) {
    int64_t integer;
    MM_TRY(get_integer(l, object, where, key, low, high, &integer));
    *out = (int)integer;
    return MM_OK;
}

static mm_status get_bool(const loader *l, const json_t *object, const char *where, const char *key, bool *out) {
    const json_t *value = json_object_get(object, key);
    if (!value) return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: %s is missing", l->path, where, key);
    if (!json_is_boolean(value))
        return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: %s is not true or false", l->path, where, key);
    *out = json_is_true(value);
    return MM_OK;
}

static const int64_t MAX_BYTES = INT64_C(1) << 62;
/* Most bytes of a code. Chosen: far above the bytes of any map, and small enough that a sum of 2^18 such numbers fits
 * 64 bits. */
static const int64_t MAX_CODE_BYTES = INT64_C(1) << 44;
/* Chosen: far more than any policies have, and codes, of which each codec has one for each tensor, of 300 MB. */
enum { MOST_CODECS = 1024, MOST_CODES = 1 << 22 };

static mm_status load_header(loader *l, const json_t *root) {
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, format_name) != 0) return bad(l, "", "its format is not \"mm facts\"");
    MM_TRY(get_int(l, root, "format", "version", FORMAT_OLDEST, FORMAT_VERSION, &l->version));
    const json_t *graph = json_object_get(root, "graph");
    const char *name = json_string_value(json_object_get(graph, "name"));
    mm_facts *file = l->file;
    if (!(file->path = strdup(l->path)) || !(file->graph = strdup(name ? name : ""))) return no_memory(l);
    MM_TRY(get_int(l, graph, "graph", "steps", 0, INT32_MAX, &file->steps_of_all));
    MM_TRY(get_int(l, graph, "graph", "tensors", 0, INT32_MAX, &file->tensors_of_all));
    return get_integer(l, graph, "graph", "tensor_bytes", 0, INT64_MAX, &file->tensor_bytes);
}

/* Loads "contention". A file of facts in which contention is not known has no such key, or null. */
static mm_status load_contention(loader *l, const json_t *table) {
    if (!table || json_is_null(table)) return MM_OK;
    for (mm_work of = 0; of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++) {
            char where[64];
            snprintf(where, sizeof where, "contention of %s", mm_work_name(of));
            if (mm_work_can_run_beside(of, beside))
                MM_TRY(get_int(l, json_object_get(table, mm_work_name(of)), where, mm_work_name(beside), 0,
                               MM_CONTENTION_MOST, &l->facts->contention.permille[of][beside]));
        }
    l->facts->contention.known = true;
    return MM_OK;
}

static mm_status load_link(loader *l, const json_t *root) {
    const json_t *link = json_object_get(root, "link");
    mm_graph_facts *f = l->facts;
    MM_TRY(get_integer(l, link, "link", "out_bytes_per_s", 0, MAX_BYTES, &f->out_bytes_per_s));
    MM_TRY(get_integer(l, link, "link", "in_bytes_per_s", 0, MAX_BYTES, &f->in_bytes_per_s));
    MM_TRY(get_integer(l, link, "link", "out_both_bytes_per_s", 0, MAX_BYTES, &f->out_both_bytes_per_s));
    MM_TRY(get_integer(l, link, "link", "in_both_bytes_per_s", 0, MAX_BYTES, &f->in_both_bytes_per_s));
    if (!mm_facts_link_is_possible(f))
        return bad(l, "link", "with both ways busy, a rate is less than a tenth of it alone");
    MM_TRY(get_int(l, root, "device", "contention_permille", 0, MM_CONTENTION_MOST, &f->contention_permille));
    if (json_object_get(root, "link_contention_permille")) /* older files have none */
        MM_TRY(get_int(l, root, "device", "link_contention_permille", 0, MM_CONTENTION_MOST,
                       &f->link_contention_permille));
    MM_TRY(load_contention(l, json_object_get(root, "contention")));
    if (json_object_get(root, "host_sum_bytes_per_s")) /* older files have neither of these two */
        MM_TRY(get_integer(l, root, "device", "host_sum_bytes_per_s", 0, MAX_BYTES, &f->host_sum_bytes_per_s));
    if (json_object_get(root, "host_bytes_per_s")) /* of steps on the host; few files have it */
        MM_TRY(get_integer(l, root, "device", "host_bytes_per_s", 0, MAX_BYTES, &f->host_bytes_per_s));
    if (json_object_get(root, "disk")) { /* measured only if a disk was named */
        const json_t *disk = json_object_get(root, "disk");
        MM_TRY(get_integer(l, disk, "disk", "store_bytes_per_s", 0, MAX_BYTES, &f->store_bytes_per_s));
        MM_TRY(get_integer(l, disk, "disk", "load_bytes_per_s", 0, MAX_BYTES, &f->load_bytes_per_s));
        MM_TRY(get_integer(l, disk, "disk", "disk_ns", 0, MM_ALLOC_NS_MOST, &f->disk_ns));
    }
    if (json_object_get(root, "link_sharers"))
        MM_TRY(get_int(l, root, "device", "link_sharers", 0, MM_RANKS_MOST, &f->link_sharers));
    MM_TRY(get_integer(l, root, "device", "issue_ns", 0, MM_ALLOC_NS_MOST, &f->issue_ns));
    if (json_object_get(root, "alloc_ns")) /* older files have none */
        MM_TRY(get_integer(l, root, "device", "alloc_ns", 0, MM_ALLOC_NS_MOST, &f->alloc_ns));
    if (json_object_get(root, "threads")) MM_TRY(get_int(l, root, "device", "threads", 0, INT32_MAX, &f->threads));
    if (!json_object_get(root, "cache_bytes")) return MM_OK; /* older files have neither of these two */
    MM_TRY(get_integer(l, root, "device", "cache_bytes", 0, MAX_BYTES, &f->cache_bytes));
    return get_integer(l, root, "device", "far_ps_per_byte", 0, MM_FAR_PS_MOST, &f->far_ps_per_byte);
}

static int by_layer_and_phase(const void *a, const void *b) {
    const step_entry *x = a, *y = b;
    int order = strcmp(x->layer, y->layer);
    return order ? order : (int)x->phase - (int)y->phase;
}

static mm_status read_step(const loader *l, const json_t *entry, step_entry *out) {
    const char *phase = json_string_value(json_object_get(entry, "phase"));
    out->layer = json_string_value(json_object_get(entry, "layer"));
    out->variants = json_object_get(entry, "variants");
    if (!out->layer || !phase) return bad(l, "steps", "an entry has no layer or phase");
    if (json_array_size(out->variants) == 0) return bad(l, out->layer, "has no variants");
    for (int p = MM_FORWARD; p <= MM_UPDATE; p++)
        if (strcmp(phase, mm_phase_name(p)) == 0) {
            out->phase = p;
            return MM_OK;
        }
    return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: there is no phase %s", l->path, out->layer, MM_BRIEF(phase));
}

static mm_status load_variant(const loader *l, const json_t *entry, const step_entry *step, mm_variant *out) {
    char where[256];
    snprintf(where, sizeof where, "%.200s %s", step->layer, mm_phase_name(step->phase));
    MM_TRY(get_int(l, entry, where, "id", INT32_MIN, INT32_MAX, &out->id));
    MM_TRY(get_bool(l, entry, where, "deterministic", &out->deterministic));
    MM_TRY(get_integer(l, entry, where, "workspace_bytes", 0, MAX_BYTES, &out->workspace_bytes));
    return get_integer(l, entry, where, "ns", 0, MM_NS_MOST, &out->ns);
}

/* Refuses a file in which no step has a time: predictions would be 0. A single 0 means "not known". */
static mm_status check_timed(const loader *l) {
    const mm_graph_facts *f = l->facts;
    for (int v = 0; v < f->variant_first[f->n_steps]; v++)
        if (f->variants[v].ns > 0) return MM_OK;
    return f->n_steps == 0 ? MM_OK : bad(l, "steps", "ns is 0 in every entry: no step was measured");
}

static mm_status fill_steps(loader *l) {
    mm_graph_facts *f = l->facts;
    int n = 0;
    for (int s = 0; s < f->n_steps; s++) {
        const step_entry *step = &l->steps[s];
        if (!(l->file->layers[s] = strdup(step->layer))) return no_memory(l);
        l->file->phases[s] = step->phase;
        for (size_t v = 0; v < json_array_size(step->variants); v++)
            MM_TRY(load_variant(l, json_array_get(step->variants, v), step, &f->variants[n++]));
        f->variant_first[s + 1] = n;
    }
    return check_timed(l);
}

static mm_status load_steps(loader *l, const json_t *steps) {
    size_t n = json_array_size(steps), variants = 0;
    mm_graph_facts *f = l->facts;
    if (n > INT32_MAX) return bad(l, "steps", "there are too many");
    l->steps = calloc(n + 1, sizeof *l->steps);
    f->variant_first = calloc(n + 1, sizeof *f->variant_first);
    l->file->layers = calloc(n + 1, sizeof *l->file->layers);
    l->file->phases = calloc(n + 1, sizeof *l->file->phases);
    if (!l->steps || !f->variant_first || !l->file->layers || !l->file->phases) return no_memory(l);
    for (size_t s = 0; s < n; s++) {
        MM_TRY(read_step(l, json_array_get(steps, s), &l->steps[s]));
        variants += json_array_size(l->steps[s].variants);
    }
    qsort(l->steps, n, sizeof *l->steps, by_layer_and_phase);
    for (size_t s = 1; s < n; s++)
        if (by_layer_and_phase(&l->steps[s - 1], &l->steps[s]) == 0)
            return bad(l, l->steps[s].layer, "has two entries for one phase");
    if (variants > INT32_MAX) return bad(l, "steps", "too many variants");
    f->variants = calloc(variants + 1, sizeof *f->variants);
    if (!f->variants) return no_memory(l);
    f->n_steps = (int)n;
    return fill_steps(l);
}

/* Numbers the tensors that have codes in the file. */
static mm_status index_tensors(loader *l, const json_t *codecs) {
    mm_graph_facts *f = l->facts;
    const char *name;
    json_t *entry;
    l->tensors = json_object();
    for (size_t c = 0; c < json_array_size(codecs); c++) {
        json_t *codes = json_object_get(json_array_get(codecs, c), "codes");
        json_object_foreach(
            codes, name,
            entry) if (!json_object_get(l->tensors, name) &&
                       json_object_set_new(l->tensors, name, json_integer((json_int_t)json_object_size(l->tensors))) !=
                           0) return no_memory(l);
    }
    size_t n = json_object_size(l->tensors), n_codecs = json_array_size(codecs);
    if (n_codecs > MOST_CODECS || n_codecs * n > MOST_CODES)
        return mm_fail(MM_ERR_FORMAT,
                       "facts file %s: codecs: %zu codecs and %zu tensors: there must be at most %d codecs "
                       "and %d codes",
                       l->path, n_codecs, n, MOST_CODECS, MOST_CODES);
    l->file->tensors = calloc(n + 1, sizeof *l->file->tensors);
    f->codecs = calloc(n_codecs + 1, sizeof *f->codecs);
    f->codes = calloc(n_codecs * n + 1, sizeof *f->codes);
    if (!l->tensors || !l->file->tensors || !f->codecs || !f->codes) return no_memory(l);
    f->n_tensors = (int)n;
    f->n_codecs = (int)n_codecs;
    for (size_t i = 0; i < n_codecs * n; i++) f->codes[i].code_bytes = -1;
    json_object_foreach(l->tensors, name,
                        entry) if (!(l->file->tensors[json_integer_value(entry)] = strdup(name))) return no_memory(l);
    return MM_OK;
}

static mm_status load_body(const loader *l, const json_t *entry, const char *where, const mm_codec_facts *codec,
                           mm_code_facts *code) {
    if (l->version < FORMAT_BODIES) return MM_OK;
    MM_TRY(get_integer(l, entry, where, "body_bound_bytes", 0, MAX_CODE_BYTES, &code->body_bound_bytes));
    MM_TRY(get_integer(l, entry, where, "body_reserve_bytes", 0, MAX_CODE_BYTES, &code->body_reserve_bytes));
    MM_TRY(get_integer(l, entry, where, "body_typical_bytes", 0, MAX_CODE_BYTES, &code->body_typical_bytes));
    if (json_object_get(entry, "body_is_measured")) /* older files have none */
        MM_TRY(get_bool(l, entry, where, "body_is_measured", &code->body_is_measured));
    if (mm_facts_body_is_possible(codec, code)) return MM_OK;
    return mm_fail(MM_ERR_FORMAT,
                   "facts file %s: %s: a body of at most %lld bytes, %lld typical, %lld reserved: typical and reserve "
                   "must be at most the bound, the reserve at least 1, and all 0 where the codec is of fixed size",
                   l->path, where, (long long)code->body_bound_bytes, (long long)code->body_typical_bytes,
                   (long long)code->body_reserve_bytes);
}

static mm_status load_codes(loader *l, const json_t *codes, int codec) {
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)codes, name, entry) {
        size_t tensor = (size_t)json_integer_value(json_object_get(l->tensors, name));
        mm_code_facts *code = &l->facts->codes[(size_t)codec * (size_t)l->facts->n_tensors + tensor];
        char where[256];
        snprintf(where, sizeof where, "codec %s: %.128s", l->facts->codecs[codec].spec, name);
        MM_TRY(get_integer(l, entry, where, "code_bytes", 1, MAX_CODE_BYTES, &code->code_bytes));
        MM_TRY(get_integer(l, entry, where, "scratch_bytes", 0, MAX_CODE_BYTES, &code->scratch_bytes));
        MM_TRY(get_integer(l, entry, where, "encode_ns", 0, MM_NS_MOST, &code->encode_ns));
        MM_TRY(get_integer(l, entry, where, "decode_ns", 0, MM_NS_MOST, &code->decode_ns));
        MM_TRY(load_body(l, entry, where, &l->facts->codecs[codec], code));
    }
    return MM_OK;
}

static mm_status load_codec(loader *l, const json_t *entry, int codec) {
    const char *spec = json_string_value(json_object_get(entry, "spec"));
    if (!spec || !*spec) return bad(l, "codecs", "a spec is missing");
    if (strlen(spec) >= MM_SPEC_CAPACITY)
        return mm_fail(MM_ERR_FORMAT, "facts file %s: codecs: the spec %s has %zu characters, at most %d", l->path,
                       MM_BRIEF(spec), strlen(spec), MM_SPEC_CAPACITY - 1);
    const json_t *codes = json_object_get(entry, "codes");
    if (!json_is_object(codes)) return bad(l, spec, "has no codes");
    if (mm_facts_codec(l->facts, spec) >= 0) return bad(l, spec, "has two entries");
    mm_codec_facts *c = &l->facts->codecs[codec];
    snprintf(c->spec, sizeof c->spec, "%s", spec);
    MM_TRY(get_bool(l, entry, spec, "lossless", &c->lossless));
    MM_TRY(get_bool(l, entry, spec, "fixed_size", &c->fixed_size));
    MM_TRY(get_bool(l, entry, spec, "gives_value", &c->gives_value));
    MM_TRY(get_bool(l, entry, spec, "gives_sign", &c->gives_sign));
    if (json_object_get(entry, "drops_zeros")) /* older files have none */
        MM_TRY(get_bool(l, entry, spec, "drops_zeros", &c->drops_zeros));
    return load_codes(l, codes, codec);
}

static mm_status load_all(loader *l, const json_t *root) {
    MM_TRY(load_header(l, root));
    const json_t *steps = json_object_get(root, "steps"), *codecs = json_object_get(root, "codecs");
    if (!json_is_array(steps) || !json_is_array(codecs)) return bad(l, "", "steps or codecs are missing");
    MM_TRY(load_link(l, root));
    MM_TRY(load_steps(l, steps));
    MM_TRY(index_tensors(l, codecs));
    for (int c = 0; c < l->facts->n_codecs; c++) MM_TRY(load_codec(l, json_array_get(codecs, (size_t)c), c));
    return mm_codec_rates_parse(l->path, json_object_get(root, "codec_rates"), &l->file->rates, &l->file->n_rates);
}

mm_status mm_facts_parse(const char *path, const json_t *root, mm_facts **facts_out) {
    loader l = {.path = path, .file = calloc(1, sizeof *l.file)};
    if (l.file) l.facts = &l.file->by_name;
    mm_status status = l.file ? load_all(&l, root) : no_memory(&l);
    json_decref(l.tensors);
    free(l.steps);
    if (status == MM_OK)
        *facts_out = l.file;
    else
        mm_facts_destroy(l.file);
    return status;
}

mm_status mm_facts_load(const char *path, mm_facts **facts_out) {
    json_t *root;
    MM_TRY(mm_check_given(path, "mm_facts_load", "path"));
    MM_TRY(mm_check_given(facts_out, "mm_facts_load", "facts_out"));
    MM_TRY(mm_json_read("facts file ", path, JSON_REJECT_DUPLICATES, &root));
    const mm_status status = mm_facts_parse(path, root, facts_out);
    json_decref(root);
    return status;
}

/* ---------------------------------------------------------------- mm_facts_write */

/* Refuses a graph in which two steps have one layer name and phase: they could not be told apart in the file. */
static mm_status check_names(const mm_graph *graph) {
    int n = mm_graph_steps(graph);
    step_entry *steps = malloc(((size_t)n + 1) * sizeof *steps);
    if (!steps) return mm_fail(MM_ERR_NOMEM, "out of memory for saving facts");
    for (int s = 0; s < n; s++) {
        const mm_step_info *info = mm_graph_step(graph, s);
        steps[s] = (step_entry){mm_graph_layer(graph, info->layer)->name, info->phase, NULL};
    }
    qsort(steps, (size_t)n, sizeof *steps, by_layer_and_phase);
    mm_status status = MM_OK;
    for (int s = 1; status == MM_OK && s < n; s++)
        if (by_layer_and_phase(&steps[s - 1], &steps[s]) == 0)
            status = mm_fail(MM_ERR_INVALID, "graph %s has two layers named %s: facts cannot tell them apart",
                             mm_graph_name(graph), steps[s].layer);
    free(steps);
    return status;
}

mm_status mm_facts_write(const mm_graph_facts *facts, const mm_graph *graph, const char *path) {
    MM_TRY(check_names(graph));
    json_t *json = facts_json(graph, facts);
    if (!json)
        return mm_fail(MM_ERR_NOMEM, "cannot save facts of %s: out of memory, or a name is not UTF-8",
                       mm_graph_name(graph));
    mm_status status = mm_atomic_file_print(path, write_json, json);
    json_decref(json);
    return status;
}
