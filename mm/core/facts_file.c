/* Facts as JSON:
 *
 *   { "format": "mm facts", "version": 1,
 *     "graph": { "name": "resnet32 train 128", "steps": 214, "tensors": 402, "tensor_bytes": 1234567 },
 *     "link": { "out_bytes_per_s": ..., "in_bytes_per_s": ...,
 *       "out_both_bytes_per_s": ..., "in_both_bytes_per_s": ... },
 *     "contention_permille": 50, "link_contention_permille": 20, "issue_ns": 2000, "alloc_ns": 0,
 *     "cache_bytes": 33554432, "far_ps_per_byte": 60, "threads": 2,
 *     "steps": [ { "layer": "conv1", "phase": "forward", "variants": [
 *       { "id": 0, "deterministic": true, "workspace_bytes": 0, "ns": 1000 } ] } ],
 *     "codecs": [ { "spec": "zvc", "lossless": true, "fixed_size": false, "gives_value": true, "gives_sign": false,
 *       "codes": { "conv1.out": { "code_bytes": 4096, "scratch_bytes": 0, "encode_ns": 500, "decode_ns": 500 } } } ] }
 *
 * Steps and codes may be left out; what is there must be whole. The counts and the sum of the tensors' bytes tell
 * whether the file is of the same graph: its name does not matter. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mm/core/facts.h"
#include "mm/core/graph.h"
#include "mm/core/status.h"

static const char format_name[] = "mm facts";
enum { FORMAT_VERSION = 1 };

static int64_t tensor_bytes_sum(const mm_graph *graph) {
    uint64_t sum = 0; /* a fingerprint: it may wrap */
    for (int t = 0; t < mm_graph_tensors(graph); t++) sum += (uint64_t)mm_graph_tensor(graph, t)->bytes;
    return (int64_t)(sum & INT64_MAX);
}

/* ---------------------------------------------------------------- save */

static json_t *variant_json(const mm_variant *v) {
    return json_pack("{s:i, s:b, s:I, s:I}", "id", (int)v->id, "deterministic", (int)v->deterministic,
                     "workspace_bytes", (json_int_t)v->workspace_bytes, "ns", (json_int_t)v->ns);
}

static json_t *step_json(const mm_graph *graph, const mm_facts *facts, int step) {
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

static json_t *codec_json(const mm_graph *graph, const mm_facts *facts, int codec) {
    const mm_codec_facts *c = &facts->codecs[codec];
    json_t *codes = json_object();
    for (int t = 0; t < facts->n_tensors; t++) {
        const mm_code_facts *code = mm_facts_code(facts, codec, t);
        if (code->code_bytes < 0) continue;
        json_t *entry = json_pack("{s:I, s:I, s:I, s:I}", "code_bytes", (json_int_t)code->code_bytes, "scratch_bytes",
                                  (json_int_t)code->scratch_bytes, "encode_ns", (json_int_t)code->encode_ns,
                                  "decode_ns", (json_int_t)code->decode_ns);
        if (json_object_set_new(codes, mm_graph_tensor(graph, t)->name, entry) != 0) {
            json_decref(codes);
            return NULL;
        }
    }
    return json_pack("{s:s, s:b, s:b, s:b, s:b, s:o}", "spec", c->spec, "lossless", (int)c->lossless, "fixed_size",
                     (int)c->fixed_size, "gives_value", (int)c->gives_value, "gives_sign", (int)c->gives_sign, "codes",
                     codes);
}

/* NULL: out of memory, or a name is not UTF-8. */
static json_t *facts_json(const mm_graph *graph, const mm_facts *facts) {
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
    return json_pack(
        "{s:s, s:i, s:{s:s, s:i, s:i, s:I}, s:{s:I, s:I, s:I, s:I}, s:i, s:i, s:I, s:I, s:I, s:I, s:i, s:o, s:o}",
        "format", format_name, "version", FORMAT_VERSION, "graph", "name", mm_graph_name(graph), "steps",
        facts->n_steps, "tensors", facts->n_tensors, "tensor_bytes", (json_int_t)tensor_bytes_sum(graph), "link",
        "out_bytes_per_s", (json_int_t)facts->out_bytes_per_s, "in_bytes_per_s", (json_int_t)facts->in_bytes_per_s,
        "out_both_bytes_per_s", (json_int_t)facts->out_both_bytes_per_s, "in_both_bytes_per_s",
        (json_int_t)facts->in_both_bytes_per_s, "contention_permille", facts->contention_permille,
        "link_contention_permille", facts->link_contention_permille, "issue_ns", (json_int_t)facts->issue_ns,
        "alloc_ns", (json_int_t)facts->alloc_ns, "cache_bytes", (json_int_t)facts->cache_bytes, "far_ps_per_byte",
        (json_int_t)facts->far_ps_per_byte, "threads", facts->threads, "steps", steps, "codecs", codecs);
}

/* Writes to a new file beside `path`; the caller renames or removes it. */
static mm_status write_temporary(const char *temporary, int fd, const json_t *json) {
    bool good = fchmod(fd, 0644) == 0 && json_dumpfd(json, fd, JSON_INDENT(1)) == 0 && fsync(fd) == 0;
    int error = errno;
    if (close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    return good ? MM_OK : mm_fail(MM_ERR_IO, "facts: writing %s: %s", temporary, strerror(error));
}

static mm_status write_atomically(const char *path, const json_t *json) {
    size_t capacity = strlen(path) + sizeof ".XXXXXX";
    char *temporary = malloc(capacity);
    if (!temporary) return mm_fail(MM_ERR_NOMEM, "out of memory for saving facts");
    snprintf(temporary, capacity, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    mm_status status = MM_OK;
    if (fd < 0) {
        status = mm_fail(MM_ERR_IO, "facts: no file can be made beside %s: %s", path, strerror(errno));
    } else {
        status = write_temporary(temporary, fd, json);
        if (status == MM_OK && rename(temporary, path) != 0)
            status = mm_fail(MM_ERR_IO, "facts: %s cannot be replaced: %s", path, strerror(errno));
        if (status != MM_OK) unlink(temporary);
    }
    free(temporary);
    return status;
}

/* ---------------------------------------------------------------- load */

typedef struct step_key {
    const char *layer;
    mm_phase phase;
    int step;
} step_key;

/* What a file says, until all of it is known to be good. */
typedef struct loader {
    const char *path;
    const mm_graph *graph;
    mm_facts *facts;              /* new */
    step_key *keys;               /* steps by layer name and phase */
    const json_t **step_variants; /* per step; NULL: the file has none */
} loader;

static mm_status bad(const loader *l, const char *where, const char *what) {
    return mm_fail(MM_ERR_FORMAT, "facts file %s: %s%s%s", l->path, where, *where ? ": " : "", what);
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

static mm_status get_bool(const loader *l, const json_t *object, const char *where, const char *key, bool *out) {
    const json_t *value = json_object_get(object, key);
    if (!value) return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: %s is missing", l->path, where, key);
    if (!json_is_boolean(value))
        return mm_fail(MM_ERR_FORMAT, "facts file %s: %s: %s is not true or false", l->path, where, key);
    *out = json_is_true(value);
    return MM_OK;
}

static const int64_t MAX_BYTES = INT64_C(1) << 62;

static mm_status load_header(loader *l, const json_t *root) {
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, format_name) != 0) return bad(l, "", "this is no file of facts");
    int64_t version, steps, tensors, bytes;
    MM_TRY(get_integer(l, root, "format", "version", FORMAT_VERSION, FORMAT_VERSION, &version));
    const json_t *graph = json_object_get(root, "graph");
    MM_TRY(get_integer(l, graph, "graph", "steps", 0, INT32_MAX, &steps));
    MM_TRY(get_integer(l, graph, "graph", "tensors", 0, INT32_MAX, &tensors));
    MM_TRY(get_integer(l, graph, "graph", "tensor_bytes", 0, INT64_MAX, &bytes));
    if (steps == mm_graph_steps(l->graph) && tensors == mm_graph_tensors(l->graph) &&
        bytes == tensor_bytes_sum(l->graph))
        return MM_OK;
    return mm_fail(MM_ERR_FORMAT,
                   "facts file %s is for another graph: %lld steps, %lld tensors, %lld bytes; %s has %d, %d, %lld",
                   l->path, (long long)steps, (long long)tensors, (long long)bytes, mm_graph_name(l->graph),
                   mm_graph_steps(l->graph), mm_graph_tensors(l->graph), (long long)tensor_bytes_sum(l->graph));
}

static mm_status load_link(loader *l, const json_t *root) {
    const json_t *link = json_object_get(root, "link");
    mm_facts *f = l->facts;
    int64_t contention, link_contention = 0;
    MM_TRY(get_integer(l, link, "link", "out_bytes_per_s", 0, MAX_BYTES, &f->out_bytes_per_s));
    MM_TRY(get_integer(l, link, "link", "in_bytes_per_s", 0, MAX_BYTES, &f->in_bytes_per_s));
    MM_TRY(get_integer(l, link, "link", "out_both_bytes_per_s", 0, MAX_BYTES, &f->out_both_bytes_per_s));
    MM_TRY(get_integer(l, link, "link", "in_both_bytes_per_s", 0, MAX_BYTES, &f->in_both_bytes_per_s));
    if (!mm_facts_link_is_possible(f)) return bad(l, "link", "less than a tenth of a rate is left with both ways busy");
    MM_TRY(get_integer(l, root, "device", "contention_permille", 0, MM_CONTENTION_MOST, &contention));
    if (json_object_get(root, "link_contention_permille")) /* older files have none */
        MM_TRY(get_integer(l, root, "device", "link_contention_permille", 0, MM_CONTENTION_MOST, &link_contention));
    f->contention_permille = (int)contention;
    f->link_contention_permille = (int)link_contention;
    MM_TRY(get_integer(l, root, "device", "issue_ns", 0, MM_ALLOC_NS_MOST, &f->issue_ns));
    if (json_object_get(root, "alloc_ns")) /* older files have none */
        MM_TRY(get_integer(l, root, "device", "alloc_ns", 0, MM_ALLOC_NS_MOST, &f->alloc_ns));
    int64_t threads = 0;
    if (json_object_get(root, "threads")) MM_TRY(get_integer(l, root, "device", "threads", 0, INT32_MAX, &threads));
    f->threads = (int)threads;
    if (!json_object_get(root, "cache_bytes")) return MM_OK; /* nor these */
    MM_TRY(get_integer(l, root, "device", "cache_bytes", 0, MAX_BYTES, &f->cache_bytes));
    return get_integer(l, root, "device", "far_ps_per_byte", 0, MM_FAR_PS_MOST, &f->far_ps_per_byte);
}

static int by_layer_and_phase(const void *a, const void *b) {
    const step_key *x = a, *y = b;
    int order = strcmp(x->layer, y->layer);
    return order ? order : (int)x->phase - (int)y->phase;
}

static mm_status index_steps(loader *l) {
    int n = mm_graph_steps(l->graph);
    for (int s = 0; s < n; s++) {
        const mm_step_info *info = mm_graph_step(l->graph, s);
        l->keys[s] = (step_key){mm_graph_layer(l->graph, info->layer)->name, info->phase, s};
    }
    qsort(l->keys, (size_t)n, sizeof *l->keys, by_layer_and_phase);
    for (int s = 1; s < n; s++)
        if (by_layer_and_phase(&l->keys[s - 1], &l->keys[s]) == 0)
            return mm_fail(MM_ERR_INVALID, "graph %s has two layers named %s: facts cannot tell them apart",
                           mm_graph_name(l->graph), l->keys[s].layer);
    return MM_OK;
}

/* Finds the step that an entry of "steps" is about, and keeps the entry's variants for it. */
static mm_status load_step(loader *l, const json_t *entry) {
    const char *layer = json_string_value(json_object_get(entry, "layer"));
    const char *phase = json_string_value(json_object_get(entry, "phase"));
    const json_t *variants = json_object_get(entry, "variants");
    if (!layer || !phase) return bad(l, "steps", "an entry has no layer or phase");
    if (json_array_size(variants) == 0) return bad(l, layer, "has no variants");
    for (int p = MM_FORWARD; p <= MM_UPDATE; p++) {
        if (strcmp(phase, mm_phase_name(p)) != 0) continue;
        step_key wanted = {.layer = layer, .phase = p};
        const step_key *found =
            bsearch(&wanted, l->keys, (size_t)mm_graph_steps(l->graph), sizeof wanted, by_layer_and_phase);
        if (!found) break;
        if (l->step_variants[found->step]) return bad(l, layer, "has two entries for one phase");
        l->step_variants[found->step] = variants;
        return MM_OK;
    }
    return mm_fail(MM_ERR_FORMAT, "facts file %s is for another graph: %s has no step %s %s", l->path,
                   mm_graph_name(l->graph), layer, phase);
}

static mm_status load_variant(const loader *l, const json_t *entry, int step, mm_variant *out) {
    char where[256];
    int64_t id;
    mm_graph_step_name(l->graph, step, where, sizeof where);
    MM_TRY(get_integer(l, entry, where, "id", INT32_MIN, INT32_MAX, &id));
    out->id = (int32_t)id;
    MM_TRY(get_bool(l, entry, where, "deterministic", &out->deterministic));
    MM_TRY(get_integer(l, entry, where, "workspace_bytes", 0, MAX_BYTES, &out->workspace_bytes));
    return get_integer(l, entry, where, "ns", 0, MM_NS_MOST, &out->ns);
}

/* The new facts' variants: the file's where it has any, else those of `old`. */
static mm_status load_variants(loader *l, const mm_facts *old) {
    size_t n = 0;
    for (int s = 0; s < old->n_steps; s++) {
        l->facts->variant_first[s] = (int)n;
        n += l->step_variants[s] ? json_array_size(l->step_variants[s])
                                 : (size_t)(old->variant_first[s + 1] - old->variant_first[s]);
        if (n > INT32_MAX) return bad(l, "steps", "too many variants");
    }
    l->facts->variant_first[old->n_steps] = (int)n;
    mm_variant *variants = realloc(l->facts->variants, (n + 1) * sizeof *variants);
    if (!variants) return mm_fail(MM_ERR_NOMEM, "out of memory for loading facts");
    l->facts->variants = variants;
    for (int s = 0; s < old->n_steps; s++) {
        for (int v = l->facts->variant_first[s]; v < l->facts->variant_first[s + 1]; v++) {
            int i = v - l->facts->variant_first[s];
            if (l->step_variants[s])
                MM_TRY(load_variant(l, json_array_get(l->step_variants[s], (size_t)i), s, &variants[v]));
            else
                variants[v] = old->variants[old->variant_first[s] + i];
        }
    }
    return MM_OK;
}

static mm_status load_codes(loader *l, const json_t *codes, int codec) {
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)codes, name, entry) {
        mm_tensor tensor;
        if (mm_graph_find_tensor(l->graph, name, &tensor) != MM_OK)
            return mm_fail(MM_ERR_FORMAT, "facts file %s is for another graph: %s has no tensor %s", l->path,
                           mm_graph_name(l->graph), name);
        mm_code_facts *code = &l->facts->codes[(size_t)codec * (size_t)l->facts->n_tensors + (size_t)tensor];
        char where[256];
        snprintf(where, sizeof where, "codec %s: %.128s", l->facts->codecs[codec].spec, name);
        MM_TRY(get_integer(l, entry, where, "code_bytes", 1, MAX_BYTES, &code->code_bytes));
        MM_TRY(get_integer(l, entry, where, "scratch_bytes", 0, MAX_BYTES, &code->scratch_bytes));
        MM_TRY(get_integer(l, entry, where, "encode_ns", 0, MM_NS_MOST, &code->encode_ns));
        MM_TRY(get_integer(l, entry, where, "decode_ns", 0, MM_NS_MOST, &code->decode_ns));
    }
    return MM_OK;
}

/* Steps that take no time would be predicted to run infinitely fast. A zero alone means "not known". */
static mm_status check_timed(const loader *l, const json_t *steps) {
    for (int s = 0; s < l->facts->n_steps; s++)
        for (int v = l->facts->variant_first[s]; l->step_variants[s] && v < l->facts->variant_first[s + 1]; v++)
            if (l->facts->variants[v].ns > 0) return MM_OK;
    return json_array_size(steps) == 0 ? MM_OK : bad(l, "steps", "ns is 0 in every entry: no step was measured");
}

/* Into the slot of that spec; else into an empty one: there is one for each codec of the file. */
static mm_status load_codec(loader *l, const json_t *entry) {
    const char *spec = json_string_value(json_object_get(entry, "spec"));
    if (!spec || !*spec) return bad(l, "codecs", "a spec is missing");
    if (strlen(spec) >= MM_SPEC_CAPACITY)
        return mm_fail(MM_ERR_FORMAT, "facts file %s: codecs: the spec %s has %zu characters, at most %d", l->path,
                       MM_BRIEF(spec), strlen(spec), MM_SPEC_CAPACITY - 1);
    const json_t *codes = json_object_get(entry, "codes");
    if (!json_is_object(codes)) return bad(l, spec, "has no codes");
    int codec = mm_facts_codec(l->facts, spec);
    if (codec < 0) codec = mm_facts_codec(l->facts, "");
    mm_codec_facts *c = &l->facts->codecs[codec];
    snprintf(c->spec, sizeof c->spec, "%s", spec);
    MM_TRY(get_bool(l, entry, spec, "lossless", &c->lossless));
    MM_TRY(get_bool(l, entry, spec, "fixed_size", &c->fixed_size));
    MM_TRY(get_bool(l, entry, spec, "gives_value", &c->gives_value));
    MM_TRY(get_bool(l, entry, spec, "gives_sign", &c->gives_sign));
    return load_codes(l, codes, codec);
}

/* How many codecs of the file the facts have no slot for. */
static int missing_slots(const mm_facts *old, const json_t *codecs) {
    int unknown = 0, empty = 0;
    for (size_t i = 0; i < json_array_size(codecs); i++) {
        const char *spec = json_string_value(json_object_get(json_array_get(codecs, i), "spec"));
        unknown += !spec || mm_facts_codec(old, spec) < 0;
    }
    for (int c = 0; c < old->n_codecs; c++) empty += old->codecs[c].spec[0] == '\0';
    return unknown > empty ? unknown - empty : 0;
}

static mm_status load_all(loader *l, const json_t *root, const mm_facts *old) {
    const json_t *steps = json_object_get(root, "steps"), *codecs = json_object_get(root, "codecs");
    if (!json_is_array(steps) || !json_is_array(codecs)) return bad(l, "", "steps or codecs are missing");
    MM_TRY(mm_facts_create(l->graph, old->n_codecs + missing_slots(old, codecs), &l->facts));
    memcpy(l->facts->codecs, old->codecs, (size_t)old->n_codecs * sizeof *old->codecs);
    memcpy(l->facts->codes, old->codes, (size_t)old->n_codecs * (size_t)old->n_tensors * sizeof *old->codes);
    l->facts->piece_bytes = old->piece_bytes;
    MM_TRY(load_link(l, root));
    MM_TRY(index_steps(l));
    for (size_t i = 0; i < json_array_size(steps); i++) MM_TRY(load_step(l, json_array_get(steps, i)));
    MM_TRY(load_variants(l, old));
    MM_TRY(check_timed(l, steps));
    for (size_t i = 0; i < json_array_size(codecs); i++) MM_TRY(load_codec(l, json_array_get(codecs, i)));
    return MM_OK;
}

static mm_status parse(const char *path, json_t **root_out) {
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root) {
        *root_out = root;
        return MM_OK;
    }
    if (json_error_code(&error) == json_error_cannot_open_file)
        return mm_fail(MM_ERR_IO, "facts: cannot open %s: %s", path, strerror(errno)); /* error.text cuts names */
    if (json_error_code(&error) == json_error_out_of_memory)
        return mm_fail(MM_ERR_NOMEM, "out of memory for facts file %s", path);
    return mm_fail(MM_ERR_FORMAT, "facts file %s, line %d: %s", path, error.line, error.text);
}

mm_status mm_facts_load(const char *path, const mm_graph *graph, mm_facts *facts) {
    json_t *root;
    MM_TRY(parse(path, &root));
    size_t n = (size_t)mm_graph_steps(graph) + 1;
    loader l = {.path = path,
                .graph = graph,
                .keys = malloc(n * sizeof *l.keys),
                .step_variants = calloc(n, sizeof *l.step_variants)};
    mm_status status = l.keys && l.step_variants ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for loading facts");
    if (status == MM_OK) status = load_header(&l, root);
    if (status == MM_OK) status = load_all(&l, root, facts);
    if (status == MM_OK) {
        mm_facts old = *facts;
        *facts = *l.facts;
        *l.facts = old;
    }
    mm_facts_destroy(l.facts);
    free(l.keys);
    free(l.step_variants);
    json_decref(root);
    return status;
}

mm_status mm_facts_save(const char *path, const mm_graph *graph, const mm_facts *facts) {
    json_t *json = facts_json(graph, facts);
    if (!json) return mm_fail(MM_ERR_NOMEM, "facts of %s: out of memory, or a name is not UTF-8", mm_graph_name(graph));
    mm_status status = write_atomically(path, json);
    json_decref(json);
    return status;
}
