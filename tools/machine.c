#include "tools/machine.h"

#include <string.h>

#include "mm/core/graph.h"
#include "mm/core/status.h"

static const char format_name[] = "mm machine";

bool machine_is(const json_t *root) {
    const char *format = json_string_value(json_object_get(root, "format"));
    return format && strcmp(format, format_name) == 0;
}

/* ---------------------------------------------------------------- the file */

typedef struct reader {
    const char *path;
} reader;

static mm_status get_number(const reader *r, const json_t *object, const char *where, const char *key, double low,
                            double high, double *out) {
    const json_t *value = json_object_get(object, key);
    if (!value) return mm_fail(MM_ERR_FORMAT, "machine file %s: %s%s is missing", r->path, where, key);
    if (!json_is_number(value))
        return mm_fail(MM_ERR_FORMAT, "machine file %s: %s%s is not a number", r->path, where, key);
    double number = json_number_value(value);
    if (!(number >= low && number <= high))
        return mm_fail(MM_ERR_FORMAT, "machine file %s: %s%s is %g, must be %g to %g", r->path, where, key, number, low,
                       high);
    *out = number;
    return MM_OK;
}

static mm_status get_integer(const reader *r, const json_t *object, const char *where, const char *key, double high,
                             int64_t *out) {
    double number;
    MM_TRY(get_number(r, object, where, key, 0, high, &number));
    *out = (int64_t)number;
    return MM_OK;
}

static const double LEAST_RATE = 1e3, MOST_RATE = 1e18; /* a second */

static mm_status get_rate(const reader *r, const json_t *object, const char *where, const char *key, double *out) {
    return get_number(r, object, where, key, LEAST_RATE, MOST_RATE, out);
}

static mm_status read_link(const reader *r, const json_t *link, machine *m) {
    const struct {
        const char *key;
        int64_t *rate;
    } rates[] = {{"out_bytes_per_s", &m->out_bytes_per_s},
                 {"in_bytes_per_s", &m->in_bytes_per_s},
                 {"out_both_bytes_per_s", &m->out_both_bytes_per_s},
                 {"in_both_bytes_per_s", &m->in_both_bytes_per_s}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        double rate;
        MM_TRY(get_rate(r, link, "link: ", rates[i].key, &rate));
        *rates[i].rate = (int64_t)rate;
    }
    return MM_OK;
}

static mm_status read_passes(const reader *r, const json_t *passes, machine *m) {
    for (int kind = 0; kind < MM_LAYER_KINDS; kind++) {
        m->passes[kind] = kind == MM_LAYER_BATCH_NORM_RELU ? m->passes[MM_LAYER_BATCH_NORM] : 1;
        if (json_object_get(passes, mm_layer_kind_name(kind)))
            MM_TRY(get_number(r, passes, "passes: ", mm_layer_kind_name(kind), 0, 100, &m->passes[kind]));
    }
    return MM_OK;
}

static mm_status read_codecs(const reader *r, const json_t *codecs, machine *m) {
    const char *spec;
    json_t *entry;
    json_object_foreach((json_t *)codecs, spec, entry) {
        if (m->n_codecs == MACHINE_CODECS)
            return mm_fail(MM_ERR_FORMAT, "machine file %s: codecs: there are %zu, must be at most %d", r->path,
                           json_object_size(codecs), MACHINE_CODECS);
        if (strlen(spec) >= MM_SPEC_CAPACITY)
            return mm_fail(MM_ERR_FORMAT, "machine file %s: codecs: the name %s has %zu characters, at most %d",
                           r->path, MM_BRIEF(spec), strlen(spec), MM_SPEC_CAPACITY - 1);
        machine_codec *codec = &m->codecs[m->n_codecs++];
        strcpy(codec->spec, spec);
        MM_TRY(get_rate(r, entry, "codecs: ", "encode_bytes_per_s", &codec->encode_bytes_per_s));
        MM_TRY(get_rate(r, entry, "codecs: ", "decode_bytes_per_s", &codec->decode_bytes_per_s));
    }
    return MM_OK;
}

mm_status machine_read(const char *path, const json_t *root, machine *machine_out) {
    static const double MOST_NS = 1e9;
    const reader r = {.path = path};
    machine m = {0};
    double version;
    const char *name = json_string_value(json_object_get(root, "name"));
    if (!name || !*name) return mm_fail(MM_ERR_FORMAT, "machine file %s: name is missing", path);
    if (strlen(name) >= sizeof m.name)
        return mm_fail(MM_ERR_FORMAT, "machine file %s: name has %zu characters, at most %zu", path, strlen(name),
                       sizeof m.name - 1);
    strcpy(m.name, name);
    MM_TRY(get_number(&r, root, "", "version", 1, 1, &version));
    MM_TRY(get_integer(&r, root, "", "memory_bytes", MOST_RATE, &m.memory_bytes));
    MM_TRY(get_rate(&r, root, "", "conv_flops_per_s", &m.conv_flops_per_s));
    MM_TRY(get_rate(&r, root, "", "winograd_flops_per_s", &m.winograd_flops_per_s));
    MM_TRY(get_rate(&r, root, "", "linear_flops_per_s", &m.linear_flops_per_s));
    MM_TRY(get_rate(&r, root, "", "memory_bytes_per_s", &m.memory_bytes_per_s));
    MM_TRY(get_integer(&r, root, "", "launch_ns", MOST_NS, &m.launch_ns));
    MM_TRY(read_passes(&r, json_object_get(root, "passes"), &m));
    MM_TRY(read_link(&r, json_object_get(root, "link"), &m));
    MM_TRY(get_integer(&r, root, "", "contention_permille", MM_CONTENTION_MOST, &m.contention_permille));
    MM_TRY(get_integer(&r, root, "", "link_contention_permille", MM_CONTENTION_MOST, &m.link_contention_permille));
    MM_TRY(get_integer(&r, root, "", "issue_ns", MOST_NS, &m.issue_ns));
    MM_TRY(get_integer(&r, root, "", "alloc_ns", MOST_NS, &m.alloc_ns));
    MM_TRY(read_codecs(&r, json_object_get(root, "codecs"), &m));
    *machine_out = m;
    return MM_OK;
}

/* ---------------------------------------------------------------- steps */

static double elems(const mm_tensor_info *t) { return (double)t->bytes / (double)mm_dtype_bytes(t->dtype); }

/* The tensor of a forward step of that kind and access, of the highest rank; NULL. */
static const mm_tensor_info *find_use(const mm_graph *graph, const mm_step_info *step, mm_tensor_kind kind,
                                      mm_access access) {
    const mm_tensor_info *found = NULL;
    for (int u = 0; u < step->n_uses; u++) {
        const mm_tensor_info *t = mm_graph_tensor(graph, step->uses[u].tensor);
        if (t->kind == kind && step->uses[u].access == access && (!found || t->rank > found->rank)) found = t;
    }
    return found;
}

typedef struct product {
    double multiply_adds; /* of the forward pass; 0: the layer multiplies nothing */
    bool winograd;
} product;

/* A convolution's multiply-adds: each element of the output times a filter. A transposed one's: each of the input,
 * whose channels its weight's first dimension then counts. */
static product product_of(const mm_graph *graph, mm_layer layer) {
    const mm_layer_info *info = mm_graph_layer(graph, layer);
    int forward = info->step[MM_FORWARD];
    if (forward < 0 || (info->kind != MM_LAYER_CONV && info->kind != MM_LAYER_LINEAR)) return (product){0};
    const mm_step_info *step = mm_graph_step(graph, forward);
    const mm_tensor_info *w = find_use(graph, step, MM_WEIGHT, MM_READ);
    const mm_tensor_info *y = find_use(graph, step, MM_FEATURE_MAP, MM_WRITE);
    const mm_tensor_info *x = find_use(graph, step, MM_FEATURE_MAP, MM_READ);
    if (!x) x = find_use(graph, step, MM_INPUT, MM_READ);
    if (!w || !x || !y) return (product){0};
    bool transposed = info->kind == MM_LAYER_CONV && w->dims[0] != y->dims[3];
    bool winograd = info->kind == MM_LAYER_CONV && w->dims[2] == 3 && w->dims[3] == 3 && y->dims[1] == x->dims[1] &&
                    y->dims[2] == x->dims[2];
    return (product){elems(transposed ? x : y) * elems(w) / (double)w->dims[0], winograd};
}

static double arithmetic_s(const machine *m, const mm_graph *graph, const mm_step_info *step) {
    product p = product_of(graph, step->layer);
    if (p.multiply_adds == 0 || step->phase == MM_UPDATE) return 0;
    bool linear = mm_graph_layer(graph, step->layer)->kind == MM_LAYER_LINEAR;
    double rate = linear ? m->linear_flops_per_s : p.winograd ? m->winograd_flops_per_s : m->conv_flops_per_s;
    bool by_input = step->phase == MM_BACKWARD && find_use(graph, step, MM_GRADIENT_MAP, MM_WRITE);
    return 2 * p.multiply_adds * (1 + by_input) / rate;
}

/* Whether the step only passes it on: it is given its input's storage, and writes nothing. */
static bool is_passed_on(const mm_step_info *step, mm_tensor tensor) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].alias && step->pairs[p].output == tensor) return true;
    return false;
}

static double traffic_bytes(const mm_graph *graph, const mm_step_info *step) {
    double bytes = 0;
    bool writes = false;
    for (int u = 0; u < step->n_uses; u++) {
        if (is_passed_on(step, step->uses[u].tensor)) continue;
        writes |= step->uses[u].access != MM_READ;
        bytes +=
            (double)mm_graph_tensor(graph, step->uses[u].tensor)->bytes * (1 + (step->uses[u].access == MM_MODIFY));
    }
    return writes ? bytes : 0;
}

static int64_t nanoseconds(double seconds) { return seconds < 1e3 ? (int64_t)(seconds * 1e9) : INT64_C(1000000000000); }

static int64_t step_ns(const machine *m, const mm_graph *graph, const mm_step_info *step) {
    if (mm_graph_layer(graph, step->layer)->kind == MM_LAYER_DATA) return 0; /* beside the training */
    double arithmetic = arithmetic_s(m, graph, step);
    double passes = m->passes[mm_graph_layer(graph, step->layer)->kind];
    double traffic = passes * traffic_bytes(graph, step) / m->memory_bytes_per_s;
    return nanoseconds(arithmetic > traffic ? arithmetic : traffic) + m->launch_ns;
}

/* ---------------------------------------------------------------- codecs */

static const machine_codec *find_codec(const machine *m, const char *spec) {
    size_t name = strcspn(spec, ":");
    for (int pass = 0; pass < 2; pass++)
        for (int c = 0; c < m->n_codecs; c++) {
            const char *known = m->codecs[c].spec;
            if (pass == 0 ? strcmp(known, spec) == 0 : strlen(known) == name && strncmp(known, spec, name) == 0)
                return &m->codecs[c];
        }
    return NULL;
}

void machine_facts(const machine *m, const mm_graph *graph, mm_facts *facts) {
    for (int s = 0; s < facts->n_steps; s++)
        for (int v = facts->variant_first[s]; v < facts->variant_first[s + 1]; v++)
            facts->variants[v].ns = step_ns(m, graph, mm_graph_step(graph, s));
    for (int c = 0; c < facts->n_codecs; c++) {
        const machine_codec *codec = find_codec(m, facts->codecs[c].spec);
        for (int t = 0; codec && t < facts->n_tensors; t++) {
            mm_code_facts *code = &facts->codes[(size_t)c * (size_t)facts->n_tensors + (size_t)t];
            double bytes = (double)mm_graph_tensor(graph, t)->bytes;
            code->encode_ns = nanoseconds(bytes / codec->encode_bytes_per_s) + m->launch_ns;
            code->decode_ns = nanoseconds(bytes / codec->decode_bytes_per_s) + m->launch_ns;
        }
    }
    facts->out_bytes_per_s = m->out_bytes_per_s;
    facts->in_bytes_per_s = m->in_bytes_per_s;
    facts->out_both_bytes_per_s = m->out_both_bytes_per_s;
    facts->in_both_bytes_per_s = m->in_both_bytes_per_s;
    facts->contention_permille = (int)m->contention_permille;
    facts->link_contention_permille = (int)m->link_contention_permille;
    facts->issue_ns = m->issue_ns;
    facts->alloc_ns = m->alloc_ns;
}
