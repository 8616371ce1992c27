#include "mm/core/time_bound_prices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/simulate.h"
#include "mm/core/status.h"

/* Most that the simulator's roundings take from a step, and from an operation in all its pieces, in ns. */
enum { STEP_ROUNDING = 1, OPERATION_ROUNDING = 16 };

/* What the steps from c on need of a storage. */
typedef enum need { NEED_NOTHING, NEED_SIGN, NEED_VALUE, NEED_NOW } need; /* NOW: c reads its elements */

/* Tensors that may share one storage, because each equals the others. */
struct mm_bound_storage {
    double bytes, mask_bytes;
    double copy_ns[2], mask_ns; /* to the host, and back; of a mask, to the host */
    bool plain;                 /* one step alone writes elements to it, once: all readers read that value */
    int32_t first;              /* first step that writes it */
    int32_t readers;            /* steps that can run again and read its elements */
    need need;
    double price[2]; /* of its cheapest way to give signs, and elements */
    int way[2];      /* that way */
    double taken[2]; /* how much of it is taken: of what is needed, and by steps that run again */
};

/* Ways to hold a storage. Codec k: WAY_CODES + 2 k on the device, and the next in pinned memory. The step that writes it
 * again: its number below 0. */
enum { WAY_KEPT, WAY_SWAPPED, WAY_MASK, WAY_PINNED_MASK, WAY_CODES };

enum { SIGNS, ELEMENTS };

/* The least that any tensor of the storage takes as a code. */
struct mm_bound_code {
    bool possible;
    double device_bytes; /* on the device: of the body, if it has one */
    double pinned_bytes; /* in pinned memory, without a body */
    double ns[2];        /* encode, decode */
    double link_ns[2];   /* of what a codec moves that writes to pinned memory and reads from there */
};

/* A storage whose elements a step that can run again reads, or writes. */
struct mm_bound_link {
    int32_t storage;
    double part; /* of what the step writes; < 0: it reads it */
};

/* ---------------------------------------------------------------- what is fixed */

static double at_least_zero(double x) { return x > 0 ? x : 0; }

/* Bytes over the link, to the host (0) or back (1). */
static double link_ns(const mm_facts *facts, int side, double bytes) {
    const int64_t rate = side == 0 ? facts->out_bytes_per_s : facts->in_bytes_per_s;
    return rate > 0 ? bytes / (double)rate * 1e9 : 0;
}

static int64_t fastest_ns(const mm_facts *facts, int step) {
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

/* The storage's signs take no more than so many bytes. */
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

static void add_code(mm_bound_model *m, int codec, mm_tensor t) {
    const mm_code_facts *facts = mm_facts_code(m->facts, codec, t);
    const mm_codec_facts *codec_facts = &m->facts->codecs[codec];
    if (facts->code_bytes >= 0 && codec_facts->gives_sign)
        mask_in(m, &m->storages[m->storage_of[t]], (double)facts->code_bytes);
    if (facts->code_bytes < 0 || !codec_facts->gives_value) return;
    if (!codec_facts->lossless && !mm_tensor_takes_loss(mm_graph_tensor(m->graph, t))) return;
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

/* Gives tensors that may be aliases of each other one storage. */
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

/* Who writes and reads the storages. */
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

/* The inputs and outputs of steps that can run again; not what shares an input's storage. */
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

mm_status mm_bound_model_init(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                              mm_bound_model *m) {
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
        find_users(m, scratch + tensors);
        find_links(m);
        time_steps(m);
    } else
        mm_bound_model_fini(m);
    free(scratch);
    return enough ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for a bound of %s", mm_graph_name(graph));
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
    *m = (mm_bound_model){0};
}

/* ---------------------------------------------------------------- the cut */

static bool may_share(const mm_step_info *step, mm_tensor output) {
    for (int p = 0; p < step->n_pairs; p++)
        if (step->pairs[p].output == output) return true;
    return false;
}

/* What the step reads, if it is the value that was there at the cut. */
static void add_needs(mm_bound_model *m, int s) {
    const mm_step_info *step = mm_graph_step(m->graph, s);
    for (int u = 0; u < step->n_uses; u++) {
        const mm_use *use = &step->uses[u];
        const int at = m->storage_of[use->tensor];
        if (at < 0 || m->gone[use->tensor]) continue;
        m->gone[use->tensor] = use->access != MM_READ; /* it has another value from here on */
        mm_bound_storage *storage = &m->storages[at];
        if (use->access == MM_WRITE || storage->first >= m->cut) continue;
        need needed = use->form == MM_FORM_SIGN ? NEED_SIGN : s == m->cut ? NEED_NOW : NEED_VALUE;
        if (needed > storage->need) storage->need = needed;
    }
}

/* Bytes of what c writes beside what it reads. */
static double output_bytes(const mm_bound_model *m) {
    const mm_step_info *step = mm_graph_step(m->graph, m->cut);
    double bytes = 0;
    for (int u = 0; u < step->n_uses; u++)
        if (step->uses[u].access == MM_WRITE && writes_managed(m, &step->uses[u]) &&
            !may_share(step, step->uses[u].tensor))
            bytes += (double)mm_graph_tensor(m->graph, step->uses[u].tensor)->bytes;
    return bytes;
}

static double least_workspace(const mm_facts *facts, int step) {
    int64_t least = INT64_MAX;
    for (int v = facts->variant_first[step]; v < facts->variant_first[step + 1]; v++)
        if (facts->variants[v].workspace_bytes < least) least = facts->variants[v].workspace_bytes;
    return (double)least;
}

void mm_bound_cut(mm_bound_model *m, int cut) {
    m->cut = cut;
    m->before_ns = m->after_ns = 0;
    memset(m->gone, 0, (size_t)mm_graph_tensors(m->graph) * sizeof *m->gone);
    for (int i = 0; i < m->n_storages; i++) m->storages[i].need = NEED_NOTHING;
    for (int s = 0; s < mm_graph_steps(m->graph); s++) *(s < cut ? &m->before_ns : &m->after_ns) += m->step_ns[s];
    for (int s = cut; s < mm_graph_steps(m->graph); s++) add_needs(m, s);
    m->fixed_bytes = output_bytes(m) + least_workspace(m->facts, cut);
    for (int i = 0; i < m->n_storages; i++)
        if (m->storages[i].need == NEED_NOW) m->fixed_bytes += m->storages[i].bytes;
}

/* ---------------------------------------------------------------- the cheapest ways */

static double larger(double a, double b) { return a > b ? a : b; }

/* A code in pinned memory: copied by the link, or by the codec as it works, whatever is cheaper on each side. */
static mm_bound_amounts pinned_code(const mm_bound_amounts *prices, const double codec[2], const double link[2]) {
    static const mm_bound_resource on_codec[2] = {MM_BOUND_ENCODE, MM_BOUND_DECODE};
    static const mm_bound_resource on_link[2] = {MM_BOUND_OUT, MM_BOUND_IN};
    mm_bound_amounts way = {{0}};
    for (int side = 0; side < 2; side++) {
        const double direct = prices->of[on_codec[side]] * larger(codec[side], link[side]);
        const double copied = prices->of[on_codec[side]] * codec[side] + prices->of[on_link[side]] * link[side];
        way.of[on_codec[side]] = direct < copied ? larger(codec[side], link[side]) : codec[side];
        way.of[on_link[side]] = direct < copied ? 0 : link[side];
    }
    return way;
}

static mm_bound_amounts code_amounts(const mm_bound_model *m, int at, int way, const mm_bound_amounts *prices) {
    const mm_bound_code *code = &m->codes[at * m->facts->n_codecs + (way - WAY_CODES) / 2];
    mm_bound_amounts amounts;
    if ((way - WAY_CODES) % 2 == 0)
        return (mm_bound_amounts){.of = {[MM_BOUND_ENCODE] = code->ns[0],
                                         [MM_BOUND_DECODE] = code->ns[1],
                                         [MM_BOUND_DEVICE] = code->device_bytes}};
    amounts = pinned_code(prices, code->ns, code->link_ns);
    amounts.of[MM_BOUND_PINNED] = code->pinned_bytes;
    return amounts;
}

/* What a way but recomputation takes. */
static mm_bound_amounts amounts_of(const mm_bound_model *m, int at, int way, const mm_bound_amounts *prices) {
    static const double codec[2] = {0, 0};
    const mm_bound_storage *storage = &m->storages[at];
    const double link[2] = {storage->mask_ns, 0}; /* a step reads a mask in pinned memory from there */
    mm_bound_amounts amounts = {{0}};
    switch (way) {
    case WAY_KEPT:
        amounts.of[MM_BOUND_DEVICE] = storage->bytes;
        break;
    case WAY_SWAPPED:
        amounts.of[MM_BOUND_OUT] = storage->copy_ns[0];
        amounts.of[MM_BOUND_IN] = storage->copy_ns[1];
        amounts.of[MM_BOUND_PINNED] = storage->bytes;
        break;
    case WAY_MASK:
        amounts.of[MM_BOUND_DEVICE] = storage->mask_bytes;
        break;
    case WAY_PINNED_MASK:
        amounts = pinned_code(prices, codec, link);
        amounts.of[MM_BOUND_PINNED] = storage->mask_bytes;
        break;
    default:
        return code_amounts(m, at, way, prices);
    }
    return amounts;
}

static void consider(const mm_bound_model *m, int at, int form, int way, const mm_bound_amounts *prices) {
    mm_bound_storage *storage = &m->storages[at];
    const mm_bound_amounts amounts = amounts_of(m, at, way, prices);
    double price = 0;
    for (int i = 0; i < MM_BOUND_RESOURCES; i++) price += amounts.of[i] * prices->of[i];
    if (price >= storage->price[form]) return;
    storage->price[form] = price;
    storage->way[form] = way;
}

/* All ways but recomputation. */
static void price_held(const mm_bound_model *m, int at, const mm_bound_amounts *prices) {
    mm_bound_storage *storage = &m->storages[at];
    storage->taken[SIGNS] = storage->taken[ELEMENTS] = 0;
    storage->price[SIGNS] = HUGE_VAL;
    const double *price = prices->of;
    storage->price[ELEMENTS] = storage->bytes * price[MM_BOUND_DEVICE];
    storage->way[ELEMENTS] = WAY_KEPT;
    const double swapped = storage->copy_ns[0] * price[MM_BOUND_OUT] + storage->copy_ns[1] * price[MM_BOUND_IN] +
                           storage->bytes * price[MM_BOUND_PINNED];
    if (m->pinned && swapped < storage->price[ELEMENTS]) {
        storage->price[ELEMENTS] = swapped;
        storage->way[ELEMENTS] = WAY_SWAPPED;
    }
    if (storage->need == NEED_SIGN) consider(m, at, SIGNS, WAY_MASK, prices);
    if (storage->need == NEED_SIGN && m->pinned) consider(m, at, SIGNS, WAY_PINNED_MASK, prices);
    for (int c = 0; c < m->facts->n_codecs; c++) {
        if (!m->codes[at * m->facts->n_codecs + c].possible) continue;
        consider(m, at, ELEMENTS, WAY_CODES + 2 * c, prices);
        if (m->pinned) consider(m, at, ELEMENTS, WAY_CODES + 2 * c + 1, prices);
    }
}

/* The share of an input that a step which runs again is charged: of what its elements take beyond what is needed of it
 * anyway. 0: it is charged nothing. */
static double share_of(const mm_bound_storage *input) {
    if (!input->plain || input->readers == 0 || input->need >= NEED_VALUE) return 0;
    return input->need == NEED_SIGN && input->price[SIGNS] >= input->price[ELEMENTS] ? 0 : 1.0 / input->readers;
}

/* Considers that the step runs again. Its price is divided among its outputs by their bytes. */
static void price_again(mm_bound_model *m, int s, const mm_bound_amounts *prices) {
    double price = m->again_ns[s] * prices->of[MM_BOUND_AGAIN];
    for (int i = m->first_link[s]; i < m->first_link[s + 1]; i++) {
        mm_bound_storage *storage = &m->storages[m->links[i].storage];
        if (m->links[i].part < 0) { /* inputs come first */
            const double share = share_of(storage);
            if (share == 0) continue;
            price += share * (storage->price[ELEMENTS] - (storage->need == NEED_SIGN ? storage->price[SIGNS] : 0));
        } else if (price * m->links[i].part < storage->price[ELEMENTS]) {
            storage->price[ELEMENTS] = price * m->links[i].part;
            storage->way[ELEMENTS] = -1 - s;
        }
    }
}

/* Takes of the step that runs again, and of its inputs, what its outputs take of it. */
static void take_again(mm_bound_model *m, int s, mm_bound_amounts *sum) {
    double taken = 0;
    for (int i = m->first_link[s + 1] - 1; i >= m->first_link[s]; i--) {
        mm_bound_storage *storage = &m->storages[m->links[i].storage];
        if (m->links[i].part >= 0) {
            if (storage->way[ELEMENTS] == -1 - s) taken += storage->taken[ELEMENTS] * m->links[i].part;
            continue;
        }
        const double share = taken > 0 ? share_of(storage) : 0;
        storage->taken[ELEMENTS] += share * taken;
        if (storage->need == NEED_SIGN) storage->taken[SIGNS] -= share * taken;
    }
    sum->of[MM_BOUND_AGAIN] += taken * m->again_ns[s];
}

/* Adds what is taken of the storage in a form, if it is held so. */
static void add_held(const mm_bound_model *m, int at, int form, const mm_bound_amounts *prices, mm_bound_amounts *sum) {
    const mm_bound_storage *storage = &m->storages[at];
    if (storage->taken[form] == 0 || storage->way[form] < 0) return;
    const mm_bound_amounts amounts = amounts_of(m, at, storage->way[form], prices);
    for (int i = 0; i < MM_BOUND_RESOURCES; i++) sum->of[i] += storage->taken[form] * amounts.of[i];
}

mm_bound_amounts mm_bound_cheapest(mm_bound_model *m, const mm_bound_amounts *prices) {
    mm_bound_amounts sum = {{0}};
    for (int i = 0; i < m->n_storages; i++)
        if (m->storages[i].first < m->cut) price_held(m, i, prices);
    for (int s = 0; s < m->cut; s++)
        if (m->again_ns[s] >= 0) price_again(m, s, prices);
    for (int i = 0; i < m->n_storages; i++) {
        mm_bound_storage *storage = &m->storages[i];
        const bool sign = storage->need == NEED_SIGN && storage->price[SIGNS] < storage->price[ELEMENTS];
        if (storage->need == NEED_SIGN || storage->need == NEED_VALUE) storage->taken[sign ? SIGNS : ELEMENTS] = 1;
    }
    for (int s = m->cut - 1; s >= 0; s--)
        if (m->again_ns[s] >= 0) take_again(m, s, &sum);
    for (int i = 0; i < m->n_storages; i++)
        for (int form = 0; form < 2 && m->storages[i].first < m->cut; form++) add_held(m, i, form, prices, &sum);
    return sum;
}
