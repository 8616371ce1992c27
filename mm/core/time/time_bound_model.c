/* SPDX-License-Identifier: MIT */
#include "mm/core/time/time_bound_prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_codes.h"
#include "mm/core/status.h"

/* Most ns by which the simulator's roundings shorten a step, and an operation with all its pieces. */
enum { STEP_ROUNDING = 1, OPERATION_ROUNDING = 16 };

/* ---------------------------------------------------------------- what is fixed */

static double at_least_zero(double x) { return x > 0 ? x : 0; }

/* Time of bytes over the link, to the host (side 0) or back (1). */
static double link_ns(const mm_graph_facts *facts, int side, double bytes) {
    const int64_t rate = side == 0 ? facts->out_bytes_per_s : facts->in_bytes_per_s;
    return rate > 0 ? bytes / (double)rate * 1e9 : 0;
}

static int64_t fastest_ns(const mm_graph_facts *facts, int step) {
    int64_t least = INT64_MAX;
    for (int v = facts->variant_first[step]; v < facts->variant_first[step + 1]; v++)
        if (facts->variants[v].ns < least) least = facts->variants[v].ns;
    return least;
}

static bool writes_managed(const mm_bound_model *m, const mm_use *use) {
    return use->access != MM_READ && m->storage_of[use->tensor] >= 0;
}

static bool can_run_again(const mm_bound_model *m, int step) {
    const mm_step_info *info = mm_graph_step(m->graph, step);
    return info->phase == MM_FORWARD && mm_graph_step_properties(m->graph, step)->repeatable;
}

static bool reads_storage(const mm_bound_model *m, const mm_step_info *step, int storage) {
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].access != MM_WRITE && m->storage_of[step->uses[u].tensor] == storage) return true;
    return false;
}

static void time_steps(mm_bound_model *m) {
    for (int s = 0; s < mm_graph_steps(m->graph); s++) {
        const int64_t ns = fastest_ns(m->facts, s);
        m->step_ns[s] = at_least_zero((double)(ns - STEP_ROUNDING));
        m->again_ns[s] = -1;
        if (!can_run_again(m, s)) continue;
        const bool given = mm_graph_step(m->graph, s)->given != 0;
        m->again_ns[s] = at_least_zero((double)((given ? ns - ns / 3 : ns) - STEP_ROUNDING));
    }
}

static mm_tensor root_of(mm_tensor *parent, mm_tensor t) {
    while (parent[t] != t) t = parent[t] = parent[parent[t]];
    return t;
}

static void reduce(double *least, double value) {
    if (value < *least) *least = value;
}

/* Lowers the bytes of the storage's signs to `bytes`, if these are fewer. */
static void mask_in(const mm_bound_model *m, mm_bound_storage *storage, double bytes) {
    reduce(&storage->mask_bytes, bytes);
    storage->mask_ns = at_least_zero(link_ns(m->facts, 0, storage->mask_bytes) - OPERATION_ROUNDING);
}

static mm_bound_storage storage_like(const mm_bound_model *m, const mm_tensor_info *tensor) {
    mm_bound_storage storage = {
        .bytes = (double)tensor->bytes, .mask_bytes = HUGE_VAL, .plain = true, .first = INT32_MAX};
    mask_in(m, &storage, storage.bytes / (double)mm_dtype_bytes(tensor->dtype) / 8);
    for (int side = 0; side < 2; side++)
        storage.copy_ns[side] =
            at_least_zero(link_ns(m->facts, side, storage.bytes) + (double)m->facts->issue_ns - OPERATION_ROUNDING);
    return storage;
}

/* Whether use u of the step can read a code of the tensor, by any codec of the facts. */
static bool reads_code(const mm_bound_model *m, const mm_step_info *step, int u) {
    for (int c = 0; step->n_codes > 0 && c < m->facts->n_codecs; c++)
        if (mm_step_code_of(m->facts, step, u, MM_READ, c, step->uses[u].tensor)) return true;
    return false;
}

static void add_code(mm_bound_model *m, int codec, mm_tensor t) {
    const mm_code_facts *facts = mm_facts_code(m->facts, codec, t);
    if (facts->code_bytes >= 0 && m->facts->codecs[codec].gives_sign)
        mask_in(m, &m->storages[m->storage_of[t]], (double)facts->code_bytes);
    if (!mm_facts_gives_value(m->facts, m->graph, codec, t)) return;
    const bool body = facts->body_bound_bytes > 0;
    const double moved = (double)(body ? facts->body_typical_bytes : facts->code_bytes);
    const double ns[2] = {(double)facts->encode_ns, (double)facts->decode_ns};
    mm_bound_code *code = &m->codes[m->storage_of[t] * m->facts->n_codecs + codec];
    if (!code->possible) *code = (mm_bound_code){true, HUGE_VAL, HUGE_VAL, {HUGE_VAL, HUGE_VAL}, {HUGE_VAL, HUGE_VAL}};
    reduce(&code->device_bytes, moved); /* the head of a code with a body may lie in pinned memory */
    reduce(&code->pinned_bytes, body ? 0 : moved);
    for (int side = 0; side < 2; side++) {
        reduce(&code->ns[side], at_least_zero(ns[side] - OPERATION_ROUNDING));
        reduce(&code->link_ns[side], at_least_zero(link_ns(m->facts, side, moved) - OPERATION_ROUNDING));
    }
}

/* If steps read or write a code by themselves, the time of its codec counts as 0, because such a step may take less
 * additional time than a codec. */
static void let_steps_code(mm_bound_model *m) {
    for (int s = 0; s < mm_graph_steps(m->graph); s++) {
        const mm_step_info *step = mm_graph_step(m->graph, s);
        for (int i = 0; i < step->n_codes * m->facts->n_codecs; i++) {
            const int at = i / m->facts->n_codecs, c = i % m->facts->n_codecs;
            const mm_tensor t = step->uses[step->codes[at].use].tensor;
            if (m->storage_of[t] >= 0 && mm_facts_gives_value(m->facts, m->graph, c, t) &&
                mm_step_code_of(m->facts, step, step->codes[at].use, step->codes[at].access, c, t))
                memset(m->codes[m->storage_of[t] * m->facts->n_codecs + c].ns, 0, sizeof m->codes->ns);
        }
    }
}

/* Gives one storage to all tensors that may be aliases of each other. */
static void find_storages(mm_bound_model *m, mm_tensor *parent) {
    const int n = mm_graph_tensors(m->graph);
    for (mm_tensor t = 0; t < n; t++) parent[t] = t;
    for (int s = 0; s < mm_graph_steps(m->graph); s++) {
        const mm_step_info *step = mm_graph_step(m->graph, s);
        for (int p = 0; p < step->n_pairs; p++)
            if (step->pairs[p].alias)
                parent[root_of(parent, step->pairs[p].output)] = root_of(parent, step->pairs[p].input);
    }
    for (mm_tensor t = 0; t < n; t++) m->storage_of[t] = -1;
    for (mm_tensor t = 0; t < n; t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(m->graph, t);
        if (tensor->ownership != MM_MANAGED) continue;
        int32_t *of = &m->storage_of[root_of(parent, t)];
        if (*of < 0) {
            *of = m->n_storages++;
            m->storages[*of] = storage_like(m, tensor);
        }
        m->storage_of[t] = *of;
        for (int c = 0; c < m->facts->n_codecs; c++) add_code(m, c, t);
    }
}

/* Finds the writers and readers of the storages. writes: zeros, per storage. */
static void find_users(mm_bound_model *m, int32_t *writes) {
    for (int s = 0; s < mm_graph_steps(m->graph); s++) {
        const mm_step_info *step = mm_graph_step(m->graph, s);
        for (int u = 0; u < step->n_uses; u++) {
            const int at = m->storage_of[step->uses[u].tensor];
            if (at < 0) continue;
            mm_bound_storage *storage = &m->storages[at];
            if (step->uses[u].access == MM_READ) {
                storage->readers += can_run_again(m, s) && step->uses[u].form == MM_FORM_VALUE;
                continue;
            }
            if (s < storage->first) storage->first = s;
            storage->plain &= step->uses[u].access == MM_WRITE;
            writes[at] += !reads_storage(m, step, at);
            storage->plain &= writes[at] <= 1 && mm_graph_tensor(m->graph, step->uses[u].tensor)->writes == 1;
        }
    }
}

/* Adds the inputs, then the outputs, of a step that can be recomputed, except outputs that share an input's storage. */
static void add_links(mm_bound_model *m, int s) {
    const mm_step_info *step = mm_graph_step(m->graph, s);
    int n = m->first_link[s];
    double bytes = 0;
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].access == MM_READ && step->uses[u].form == MM_FORM_VALUE &&
            m->storage_of[step->uses[u].tensor] >= 0)
            m->links[n++] = (mm_bound_link){m->storage_of[step->uses[u].tensor], -1};
    const int outputs = n;
    for (int u = 0; u < step->n_uses; u++) {
        const int at = m->storage_of[step->uses[u].tensor];
        if (at < 0 || step->uses[u].access != MM_WRITE || reads_storage(m, step, at)) continue;
        m->links[n++] = (mm_bound_link){at, m->storages[at].bytes};
        bytes += m->storages[at].bytes;
    }
    for (int i = outputs; i < n; i++) m->links[i].part /= bytes;
    m->first_link[s + 1] = n;
}

static void find_links(mm_bound_model *m) {
    m->first_link[0] = 0;
    for (int s = 0; s < mm_graph_steps(m->graph); s++) {
        m->first_link[s + 1] = m->first_link[s];
        if (can_run_again(m, s)) add_links(m, s);
    }
}

static size_t count_uses(const mm_graph *graph) {
    size_t n = 1;
    for (int s = 0; s < mm_graph_steps(graph); s++) n += (size_t)mm_graph_step(graph, s)->n_uses;
    return n;
}

mm_status mm_bound_model_init(const mm_graph *graph, const mm_graph_facts *facts, const mm_limits *limits,
                              bool homes_move, mm_bound_model *m) {
    const size_t tensors = (size_t)mm_graph_tensors(graph) + 1, steps = (size_t)mm_graph_steps(graph) + 1;
    *m = (mm_bound_model){.graph = graph, .facts = facts, .pinned = limits->pinned_bytes > 0};
    m->storage_of = malloc(tensors * sizeof *m->storage_of);
    m->storages = malloc(tensors * sizeof *m->storages);
    m->codes = calloc(tensors * (size_t)(facts->n_codecs + 1), sizeof *m->codes);
    m->step_ns = malloc(steps * sizeof *m->step_ns);
    m->again_ns = malloc(steps * sizeof *m->again_ns);
    m->first_link = malloc((steps + 1) * sizeof *m->first_link);
    m->links = malloc(count_uses(graph) * sizeof *m->links);
    m->gone = malloc(tensors * sizeof *m->gone);
    int32_t *scratch = calloc(2 * tensors, sizeof *scratch);
    const bool enough = m->storage_of && m->storages && m->codes && m->step_ns && m->again_ns && m->first_link &&
                        m->links && m->gone && scratch;
    if (enough) {
        find_storages(m, scratch);
        let_steps_code(m);
        find_users(m, scratch + tensors);
        find_links(m);
        time_steps(m);
    } else
        mm_bound_model_fini(m);
    free(scratch);
    mm_status status = enough ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a bound of %s", mm_graph_name(graph));
    if (status == MM_OK && homes_move) status = mm_bound_visitors_init(m);
    if (status != MM_OK && enough) mm_bound_model_fini(m);
    return status;
}

void mm_bound_model_fini(mm_bound_model *m) {
    free(m->storage_of);
    free(m->storages);
    free(m->codes);
    free(m->step_ns);
    free(m->again_ns);
    free(m->first_link);
    free(m->links);
    free(m->gone);
    free(m->visitors);
    free(m->visitor_of);
    *m = (mm_bound_model){0};
}

/* ---------------------------------------------------------------- the cut */

static bool may_share(const mm_step_info *step, mm_tensor output) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].output == output) return true;
    return false;
}

/* Adds what the step reads, as far as these are values that were written before the cut. */
static void add_needs(mm_bound_model *m, int s) {
    const mm_step_info *step = mm_graph_step(m->graph, s);
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        const int at = m->storage_of[use->tensor];
        if (at < 0 || m->gone[use->tensor]) continue;
        m->gone[use->tensor] = use->access != MM_READ; /* the tensor has another value from this step on */
        mm_bound_storage *storage = &m->storages[at];
        if (use->access == MM_WRITE || storage->first >= m->cut) continue;
        const mm_bound_need needed = use->form == MM_FORM_SIGN                ? MM_BOUND_SIGN
                                     : s == m->cut && !reads_code(m, step, u) ? MM_BOUND_NOW
                                                                              : MM_BOUND_VALUE;
        if (needed > storage->need) storage->need = needed;
    }
}

/* Bytes of the outputs of c that cannot take an input's bytes. */
static double output_bytes(const mm_bound_model *m) {
    const mm_step_info *step = mm_graph_step(m->graph, m->cut);
    double bytes = 0;
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].access == MM_WRITE && writes_managed(m, &step->uses[u]) &&
            !may_share(step, step->uses[u].tensor))
            bytes += (double)mm_graph_tensor(m->graph, step->uses[u].tensor)->bytes;
    return bytes;
}

static double least_workspace(const mm_graph_facts *facts, int step) {
    int64_t least = INT64_MAX;
    for (int v = facts->variant_first[step]; v < facts->variant_first[step + 1]; v++)
        if (facts->variants[v].workspace_bytes < least) least = facts->variants[v].workspace_bytes;
    return (double)least;
}

void mm_bound_cut(mm_bound_model *m, int cut) {
    m->cut = cut;
    m->before_ns = m->after_ns = 0;
    memset(m->gone, 0, (size_t)mm_graph_tensors(m->graph) * sizeof *m->gone);
    for (int i = 0; i < m->n_storages; i++) m->storages[i].need = MM_BOUND_NOTHING;
    for (int s = 0; s < mm_graph_steps(m->graph); s++) *(s < cut ? &m->before_ns : &m->after_ns) += m->step_ns[s];
    for (int s = cut; s < mm_graph_steps(m->graph); s++) add_needs(m, s);
    m->fixed_bytes = output_bytes(m) + least_workspace(m->facts, cut);
    for (int i = 0; i < m->n_storages; i++)
        if (m->storages[i].need == MM_BOUND_NOW) m->fixed_bytes += m->storages[i].bytes;
    m->fixed_bytes += m->staying_bytes + mm_bound_visitors_cut(m);
}
