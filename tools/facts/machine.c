/* SPDX-License-Identifier: MIT */
#include "tools/facts/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "tools/facts/machine_work.h"

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

/* Leaves *out unchanged if the object does not have the key. */
static mm_status get_if_there(const reader *r, const json_t *object, const char *where, const char *key, double low,
                              double high, double *out) {
    return json_object_get(object, key) ? get_number(r, object, where, key, low, high, out) : MM_OK;
}

static mm_status read_codecs(const reader *r, const json_t *codecs, int type, machine *m) {
    const char *spec;
    json_t *entry;
    json_object_foreach((json_t *)codecs, spec, entry) {
        if (m->n_codecs == MACHINE_CODECS)
            return mm_fail(MM_ERR_FORMAT, "machine file %s: codecs: more than %d entries", r->path, MACHINE_CODECS);
        if (strlen(spec) >= MM_SPEC_CAPACITY)
            return mm_fail(MM_ERR_FORMAT, "machine file %s: codecs: the name %s has %zu characters, at most %d",
                           r->path, MM_BRIEF(spec), strlen(spec), MM_SPEC_CAPACITY - 1);
        machine_codec *codec = &m->codecs[m->n_codecs++];
        strcpy(codec->spec, spec);
        codec->type = type;
        MM_TRY(get_rate(r, entry, "codecs: ", "encode_bytes_per_s", &codec->encode_bytes_per_s));
        MM_TRY(get_rate(r, entry, "codecs: ", "decode_bytes_per_s", &codec->decode_bytes_per_s));
    }
    return MM_OK;
}

/* Rates that the object does not have stay as they are. */
static mm_status read_rates_if_there(const reader *r, const json_t *object, const char *where, machine_rates *rates) {
    MM_TRY(get_if_there(r, object, where, "conv_flops_per_s", LEAST_RATE, MOST_RATE, &rates->conv));
    MM_TRY(get_if_there(r, object, where, "winograd_flops_per_s", LEAST_RATE, MOST_RATE, &rates->winograd));
    MM_TRY(get_if_there(r, object, where, "linear_flops_per_s", LEAST_RATE, MOST_RATE, &rates->linear));
    return get_if_there(r, object, where, "attention_flops_per_s", LEAST_RATE, MOST_RATE, &rates->attention);
}

/* Reads the machine's rates as those of every type. read_types then overwrites the rates that a type has of its own. */
static mm_status read_rates(const reader *r, const json_t *root, machine *m) {
    machine_rates own;
    MM_TRY(get_rate(r, root, "", "conv_flops_per_s", &own.conv));
    MM_TRY(get_rate(r, root, "", "winograd_flops_per_s", &own.winograd));
    MM_TRY(get_rate(r, root, "", "linear_flops_per_s", &own.linear));
    own.attention = own.linear;
    MM_TRY(read_rates_if_there(r, root, "", &own));
    for (int type = 0; type < MM_DTYPES; type++) m->rates[type] = own;
    return MM_OK;
}

/* where: the key that has the type's name. */
static mm_status read_type(const reader *r, const char *where, const char *name, int *type_out) {
    int type = 0;
    while (type < MM_DTYPES && strcmp(name, mm_dtype_name((mm_dtype)type)) != 0) type++;
    if (type == MM_DTYPES)
        return mm_fail(MM_ERR_FORMAT, "machine file %s: %s: %s is not an element type (f32, bf16, ...)", r->path, where,
                       MM_BRIEF(name));
    *type_out = type;
    return MM_OK;
}

static mm_status read_types(const reader *r, const json_t *types, machine *m) {
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)types, name, entry) {
        char where[64];
        int type;
        MM_TRY(read_type(r, "types", name, &type));
        snprintf(where, sizeof where, "types: %s: ", name);
        MM_TRY(read_rates_if_there(r, entry, where, &m->rates[type]));
        MM_TRY(read_codecs(r, json_object_get(entry, "codecs"), type, m));
    }
    return MM_OK;
}

static mm_status read_lacks(const reader *r, const json_t *lacks, machine *m) {
    size_t i;
    json_t *entry;
    json_array_foreach(lacks, i, entry) {
        const char *name = json_string_value(entry);
        int type;
        MM_TRY(read_type(r, "lacks", name ? name : "what is no text", &type));
        m->lacks[type] = true;
    }
    return MM_OK;
}

/* Reads the sizes of work that runs at half of its rate. */
static mm_status read_half_rates(const reader *r, const json_t *root, machine *m) {
    MM_TRY(get_if_there(r, root, "", "half_rate_elems", 0, MOST_RATE, &m->half_rate_elems));
    MM_TRY(get_if_there(r, root, "", "linear_half_rate_elems", 0, MOST_RATE, &m->linear_half_rate_elems));
    return get_if_there(r, root, "", "attention_half_rate_elems", 0, MOST_RATE, &m->attention_half_rate_elems);
}

/* Reads the contention between kinds of work (mm_contention). table NULL: the file has none. */
static mm_status read_contention(const reader *r, const json_t *table, mm_contention *out) {
    out->known = table != NULL;
    for (mm_work of = 0; table && of < MM_WORK_KINDS; of++)
        for (mm_work beside = 0; beside < MM_WORK_KINDS; beside++) {
            char where[64];
            double permille = 0;
            snprintf(where, sizeof where, "contention of %s: ", mm_work_name(of));
            if (mm_work_can_run_beside(of, beside))
                MM_TRY(get_number(r, json_object_get(table, mm_work_name(of)), where, mm_work_name(beside), 0,
                                  MM_CONTENTION_MOST, &permille));
            out->permille[of][beside] = (int)permille;
        }
    return MM_OK;
}

static mm_status read_workspace(const reader *r, const json_t *formula, const char *where, machine_algorithm *a) {
    static const double MOST_IMAGES = 1e9, MOST_TILE = 4096, MOST_TILE_BYTES = 1e9;
    if (!formula || json_object_get(formula, "im2col_images"))
        return get_if_there(r, formula, where, "im2col_images", 0, MOST_IMAGES, &a->im2col_images);
    MM_TRY(get_number(r, formula, where, "tile", 2, MOST_TILE, &a->tile));
    return get_number(r, formula, where, "tile_bytes", 1, MOST_TILE_BYTES, &a->tile_bytes);
}

static mm_status read_algorithms(const reader *r, const json_t *algorithms, machine *m) {
    static const double MOST_KERNEL = 4096;
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)algorithms, name, entry) {
        char where[128];
        if (m->n_algorithms == MACHINE_ALGORITHMS)
            return mm_fail(MM_ERR_FORMAT, "machine file %s: algorithms: %zu entries, at most %d are allowed", r->path,
                           json_object_size(algorithms), MACHINE_ALGORITHMS);
        machine_algorithm *a = &m->algorithms[m->n_algorithms++];
        snprintf(where, sizeof where, "algorithms: %.64s: ", name);
        MM_TRY(get_rate(r, entry, where, "flops_per_s", &a->flops_per_s));
        MM_TRY(get_if_there(r, entry, where, "kernel", 1, MOST_KERNEL, &a->kernel));
        MM_TRY(get_if_there(r, entry, where, "stride", 1, MOST_KERNEL, &a->stride));
        snprintf(where, sizeof where, "algorithms: %.64s: workspace: ", name);
        MM_TRY(read_workspace(r, json_object_get(entry, "workspace"), where, a));
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
    MM_TRY(read_rates(&r, root, &m));
    MM_TRY(get_rate(&r, root, "", "memory_bytes_per_s", &m.memory_bytes_per_s));
    MM_TRY(get_integer(&r, root, "", "launch_ns", MOST_NS, &m.launch_ns));
    if (json_object_get(root, "step_ns")) MM_TRY(get_integer(&r, root, "", "step_ns", MOST_NS, &m.step_ns));
    MM_TRY(read_passes(&r, json_object_get(root, "passes"), &m));
    MM_TRY(read_link(&r, json_object_get(root, "link"), &m));
    MM_TRY(get_integer(&r, root, "", "contention_permille", MM_CONTENTION_MOST, &m.contention_permille));
    MM_TRY(get_integer(&r, root, "", "link_contention_permille", MM_CONTENTION_MOST, &m.link_contention_permille));
    MM_TRY(get_if_there(&r, root, "", "host_sum_bytes_per_s", LEAST_RATE, MOST_RATE, &m.host_sum_bytes_per_s));
    MM_TRY(get_if_there(&r, root, "", "host_bytes_per_s", LEAST_RATE, MOST_RATE, &m.host_bytes_per_s));
    MM_TRY(get_if_there(&r, root, "", "store_bytes_per_s", LEAST_RATE, MOST_RATE, &m.store_bytes_per_s));
    MM_TRY(get_if_there(&r, root, "", "load_bytes_per_s", LEAST_RATE, MOST_RATE, &m.load_bytes_per_s));
    MM_TRY(get_if_there(&r, root, "", "link_sharers", 1, MM_RANKS_MOST, &m.link_sharers));
    MM_TRY(read_contention(&r, json_object_get(root, "contention"), &m.contention));
    MM_TRY(get_integer(&r, root, "", "issue_ns", MOST_NS, &m.issue_ns));
    MM_TRY(get_integer(&r, root, "", "alloc_ns", MOST_NS, &m.alloc_ns));
    MM_TRY(read_codecs(&r, json_object_get(root, "codecs"), MACHINE_ANY_TYPE, &m));
    MM_TRY(read_types(&r, json_object_get(root, "types"), &m));
    MM_TRY(read_lacks(&r, json_object_get(root, "lacks"), &m));
    MM_TRY(read_algorithms(&r, json_object_get(root, "algorithms"), &m));
    MM_TRY(read_half_rates(&r, root, &m));
    *machine_out = m;
    return MM_OK;
}

/* ---------------------------------------------------------------- steps */

/* Number of tiles into which an algorithm cuts one channel of one image. */
static double tiles_of(const machine_algorithm *a, const machine_product *p) {
    return ceil((double)p->y->dims[1] / (a->tile - (double)p->w->dims[2] + 1)) *
           ceil((double)p->y->dims[2] / (a->tile - (double)p->w->dims[3] + 1));
}

/* The share of the tiles' results that are elements of the output; the rest is cut off at the edges. */
static double used_share(const machine_algorithm *a, const machine_product *p) {
    const double results = (a->tile - (double)p->w->dims[2] + 1) * (a->tile - (double)p->w->dims[3] + 1);
    return (double)(p->y->dims[1] * p->y->dims[2]) / (tiles_of(a, p) * results);
}

static int64_t workspace_bytes(const machine_algorithm *a, const machine_product *p) {
    static const double MOST = 0x1p61;
    const mm_tensor_info *w = p->w, *y = p->y;
    const double batch = (double)y->dims[0];
    double bytes = fmin(a->im2col_images / batch, 1) * (double)mm_dtype_bytes(w->dtype) * p->multiply_adds /
                   (double)p->filtered->dims[3];
    if (a->tile > 0) {
        double maps = batch * (double)(p->x->dims[3] + y->dims[3]);
        double filters = machine_elems(w) / (double)(w->dims[2] * w->dims[3]);
        bytes = a->tile_bytes * (tiles_of(a, p) * maps + filters);
    }
    return (int64_t)fmin(ceil(bytes), MOST);
}

/* How many elements of output run at half of the rate of this kind of product. */
static double half_rate_elems(const machine *m, const machine_product *p) {
    return p->attention ? m->attention_half_rate_elems : p->linear ? m->linear_half_rate_elems : m->half_rate_elems;
}

/* The time of a step's arithmetic. algorithm NULL: at the machine's rate for this kind of product. */
static double arithmetic_s(const machine *m, const mm_graph *graph, const mm_step_info *step, const machine_product *p,
                           const machine_algorithm *algorithm) {
    if (p->multiply_adds == 0 || step->phase == MM_UPDATE) return 0;
    const machine_rates *rates = &m->rates[p->type];
    double rate = algorithm      ? algorithm->flops_per_s
                  : p->attention ? rates->attention
                  : p->linear    ? rates->linear
                  : p->winograd  ? rates->winograd
                                 : rates->conv;
    rate *= p->outputs / (p->outputs + half_rate_elems(m, p));
    if (algorithm && algorithm->tile > 0) rate *= used_share(algorithm, p);
    return 2 * p->multiply_adds * machine_times(graph, step) / rate;
}

static int64_t nanoseconds(double seconds) { return seconds < 1e3 ? (int64_t)(seconds * 1e9) : INT64_C(1000000000000); }

static int64_t time_of_step(const machine *m, const mm_graph *graph, const mm_step_info *step, const machine_product *p,
                            const machine_algorithm *algorithm) {
    if (mm_graph_layer(graph, step->layer)->kind == MM_LAYER_DATA) return 0; /* runs beside the training */
    double arithmetic = arithmetic_s(m, graph, step, p, algorithm);
    double passes = m->passes[mm_graph_layer(graph, step->layer)->kind];
    double bytes = passes * machine_traffic_bytes(graph, step);
    if (algorithm && algorithm->tile > 0)
        bytes += 2.0 * (1 + machine_is_twice(graph, step)) * (double)workspace_bytes(algorithm, p);
    double traffic = bytes / m->memory_bytes_per_s;
    return nanoseconds(arithmetic > traffic ? arithmetic : traffic) + m->launch_ns + m->step_ns;
}

/* ---------------------------------------------------------------- algorithms */

static bool computes(const machine_algorithm *a, const machine_product *p) {
    const double height = (double)p->w->dims[2], width = (double)p->w->dims[3];
    if (a->kernel > 0 && (a->kernel != height || a->kernel != width)) return false;
    if (a->tile > 0 && (a->tile < height || a->tile < width)) return false;
    const double ratio = (double)p->x->dims[1] / (double)p->y->dims[1];
    return a->stride == 0 || a->stride == fmax(1, round(p->filtered == p->x ? 1 / ratio : ratio));
}

static int by_time(const void *a, const void *b) {
    const mm_variant *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
    return (x->workspace_bytes > y->workspace_bytes) - (x->workspace_bytes < y->workspace_bytes);
}

/* The algorithms worth having for a convolution's step: each is slower than the one before, with less workspace.
 * Returns their number; 0: the machine has none for this step. */
static int algorithms_of(const machine *m, const mm_graph *graph, const mm_step_info *step, const machine_product *p,
                         mm_variant out[MACHINE_ALGORITHMS]) {
    int n = 0, kept = 0;
    if (p->multiply_adds == 0 || p->linear || step->phase == MM_UPDATE) return 0;
    for (int i = 0; i < m->n_algorithms; i++)
        if (computes(&m->algorithms[i], p))
            out[n++] = (mm_variant){.deterministic = true,
                                    .workspace_bytes = workspace_bytes(&m->algorithms[i], p),
                                    .ns = time_of_step(m, graph, step, p, &m->algorithms[i])};
    qsort(out, (size_t)n, sizeof *out, by_time);
    for (int i = 0; i < n; i++)
        if (kept == 0 || out[i].workspace_bytes < out[kept - 1].workspace_bytes) {
            out[kept] = out[i];
            out[kept].id = kept;
            kept++;
        }
    return kept;
}

/* Gives each step its variants, with their times. */
static mm_status set_variants(const machine *m, const mm_graph *graph, mm_graph_facts *facts) {
    const size_t most = (size_t)facts->variant_first[facts->n_steps] + (size_t)facts->n_steps * MACHINE_ALGORITHMS;
    mm_variant *variants = malloc((most + 1) * sizeof *variants);
    if (!variants) return mm_fail(MM_ERR_NOMEM, "out of memory for %zu variants of steps", most);
    int n = 0;
    for (int s = 0; s < facts->n_steps; s++) {
        const mm_step_info *step = mm_graph_step(graph, s);
        const machine_product p = machine_product_of(graph, step->layer);
        const int first = facts->variant_first[s], end = facts->variant_first[s + 1];
        facts->variant_first[s] = n;
        const int found = algorithms_of(m, graph, step, &p, &variants[n]);
        n += found;
        for (int v = first; found == 0 && v < end; v++) {
            variants[n] = facts->variants[v];
            variants[n++].ns = step->on_host ? 0 : time_of_step(m, graph, step, &p, NULL);
        }
    }
    facts->variant_first[facts->n_steps] = n;
    free(facts->variants);
    facts->variants = variants;
    return MM_OK;
}

/* ---------------------------------------------------------------- codecs */

/* The entry for a codec and element type. Entries of that type come before those of any type; of the former and of the
 * latter, one with the whole spec comes before one with the codec's name alone. */
static const machine_codec *find_codec(const machine *m, const char *spec, mm_dtype type) {
    const machine_codec *found = NULL;
    int found_rank = 0;
    const size_t name = strcspn(spec, ":");
    for (int c = 0; c < m->n_codecs; c++) {
        const machine_codec *codec = &m->codecs[c];
        const bool whole = strcmp(codec->spec, spec) == 0;
        if (!whole && (strlen(codec->spec) != name || strncmp(codec->spec, spec, name) != 0)) continue;
        if (codec->type != MACHINE_ANY_TYPE && codec->type != (int)type) continue;
        const int rank = 1 + whole + 2 * (codec->type != MACHINE_ANY_TYPE);
        if (rank > found_rank) {
            found = codec;
            found_rank = rank;
        }
    }
    return found;
}

/* Refuses a graph with products of an element type that the machine lacks. */
static mm_status check_types(const machine *m, const mm_graph *graph) {
    for (int s = 0; s < mm_graph_steps(graph); s++) {
        const machine_product p = machine_product_of(graph, mm_graph_step(graph, s)->layer);
        if (p.multiply_adds > 0 && m->lacks[p.type])
            return mm_fail(MM_ERR_INVALID, "%s does not multiply %s: take another precision or another machine",
                           m->name, mm_dtype_name(p.type));
    }
    return MM_OK;
}

mm_status machine_facts(const machine *m, const mm_graph *graph, mm_graph_facts *facts) {
    MM_TRY(check_types(m, graph));
    MM_TRY(set_variants(m, graph, facts));
    for (int c = 0; c < facts->n_codecs; c++)
        for (int t = 0; t < facts->n_tensors; t++) {
            const machine_codec *codec = find_codec(m, facts->codecs[c].spec, mm_graph_tensor(graph, t)->dtype);
            if (!codec) continue;
            mm_code_facts *code = &facts->codes[(size_t)c * (size_t)facts->n_tensors + (size_t)t];
            double bytes = (double)mm_graph_tensor(graph, t)->bytes;
            code->encode_ns = nanoseconds(bytes / codec->encode_bytes_per_s) + m->launch_ns;
            code->decode_ns = nanoseconds(bytes / codec->decode_bytes_per_s) + m->launch_ns;
        }
    facts->out_bytes_per_s = m->out_bytes_per_s;
    facts->in_bytes_per_s = m->in_bytes_per_s;
    facts->out_both_bytes_per_s = m->out_both_bytes_per_s;
    facts->in_both_bytes_per_s = m->in_both_bytes_per_s;
    facts->contention_permille = (int)m->contention_permille;
    facts->link_contention_permille = (int)m->link_contention_permille;
    facts->contention = m->contention;
    facts->host_bytes_per_s = (int64_t)m->host_bytes_per_s;
    facts->host_sum_bytes_per_s = (int64_t)m->host_sum_bytes_per_s;
    facts->store_bytes_per_s = (int64_t)m->store_bytes_per_s;
    facts->load_bytes_per_s = (int64_t)m->load_bytes_per_s;
    facts->link_sharers = (int)m->link_sharers;
    facts->issue_ns = m->issue_ns;
    facts->alloc_ns = m->alloc_ns;
    return MM_OK;
}
