/* SPDX-License-Identifier: MIT */
/* The state of a training as a safetensors file. Tensors: parameters that are not frozen, under torchvision's names,
 * adapters under peft's; the optimizer's states
 * (nets/optimizer.h) as "<state>.<parameter>", and if that is codes (nets/state_codes.h) "absmax.<state>.<parameter>",
 * for blocks in the device's order; counts; and error bounds that a policy chose (mm/manager/bounds.h) as
 * "bound.<map>", or "bound.last.<map>" for an epoch's last, smaller batch. With sub-batches, "first." or "next." before
 * <map> means the first or a middle sub-batch. Metadata: the progress, and the options of the run. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/hash.h"
#include "mm/manager/bounds.h"
#include "mm/manager/sampled.h"
#include "nets/io/safetensors.h"
#include "tools/train/session.h"
#include "tools/train/weights.h"

enum { NAME_CAPACITY = NETS_PARAM_NAME_CAPACITY + 80, RNG_WORDS = 4, VERSION = 1 };
#define STATE_BLOCKS "state_blocks"

/* The parts of a parameter that are saved: all but the gradient. ABSMAX + i: that of the i-th state. */
enum { ABSMAX = NETS_PARTS };
static const int PARTS[] = {NETS_VALUE, NETS_STATE, NETS_STATE + 1, ABSMAX, ABSMAX + 1};
enum { N_PARTS = sizeof PARTS / sizeof *PARTS };
_Static_assert(NETS_STATE_LAST == NETS_STATE + 1, "PARTS has all states");

/* The tensor with the largest magnitudes of a state's blocks; -1: the state is not codes. */
static mm_tensor absmax_of(const session *s, int param, int state) {
    return nets_exec_lowered(s->train)->params[param].absmax[state];
}

static nets_safetensors_tensor describe_absmax(const session *s, int param, int state, const char *name) {
    const mm_graph *graph = nets_exec_lowered(s->train)->graph;
    return (nets_safetensors_tensor){.name = name,
                                     .dtype = NETS_SAFETENSORS_F32,
                                     .rank = 1,
                                     .dims = {mm_graph_tensor(graph, absmax_of(s, param, state))->dims[0]}};
}

/* Name, type and dims of a parameter's part in the file. */
static nets_safetensors_tensor describe(const session *s, int index, int part, char name[NAME_CAPACITY]) {
    const nets_param *param = nets_net_param(s->config.net, index);
    const nets_optimizer_traits *optimizer = nets_optimizer_traits_of(s->config.target.optimizer.id);
    if (part == NETS_VALUE)
        snprintf(name, NAME_CAPACITY, "%s%s", nets_param_trains(param) ? s->adapters_prefix : "", param->name);
    else
        snprintf(name, NAME_CAPACITY, "%s%s.%s", part >= ABSMAX ? "absmax." : "",
                 optimizer->states[part >= ABSMAX ? part - ABSMAX : part - NETS_STATE], param->name);
    if (part >= ABSMAX) return describe_absmax(s, index, part - ABSMAX, name);
    nets_safetensors_tensor tensor = {.name = name, .dtype = NETS_SAFETENSORS_F32, .rank = param->rank};
    memcpy(tensor.dims, param->dims, sizeof param->dims);
    if (part >= NETS_STATE && absmax_of(s, index, part - NETS_STATE) >= 0) tensor.dtype = NETS_SAFETENSORS_U8;
    return tensor;
}

/* Count i. 0: seed and number of iterations; 1: number of updates, if the optimizer counts them. name NULL: none. */
static nets_safetensors_tensor describe_count(const session *s, int i) {
    static const nets_safetensors_tensor COUNTS[] = {
        {.name = "rng", .dtype = NETS_SAFETENSORS_U32, .rank = 1, .dims = {RNG_WORDS}},
        {.name = NETS_STEP_NAME, .dtype = NETS_SAFETENSORS_U32, .rank = 1, .dims = {1}}};
    int n = nets_optimizer_traits_of(s->config.target.optimizer.id)->counts ? 2 : 1;
    return i < n ? COUNTS[i] : (nets_safetensors_tensor){0};
}

/* The name in the graph of a tensor that is called so in the file. */
static const char *name_in_graph(const session *s, const char *name) {
    const size_t length = strlen(s->adapters_prefix);
    return strncmp(name, s->adapters_prefix, length) == 0 ? name + length : name;
}

static bool has_part(const session *s, int param, int part) {
    if (part >= ABSMAX) return absmax_of(s, param, part - ABSMAX) >= 0;
    return part == NETS_VALUE || nets_exec_has_part(s->train, param, part);
}

/* What is frozen is not saved. */
static bool saves_part(const session *s, int param, int part) {
    return !nets_net_param(s->config.net, param)->frozen && has_part(s, param, part);
}

/* ---------------------------------------------------------------- error bounds */

/* A graph that may have error bounds. */
typedef struct bounded {
    const char *prefix;    /* of the names of its bounds */
    const char *age;       /* metadata key: iterations since it sampled */
    const mm_graph *graph; /* NULL: the session does not have it */
} bounded;

enum { BOUNDED = 2 * NETS_PASSES };

/* Lists all graphs in the order in which find_bound compares prefixes: a prefix that begins with another prefix comes
 * before it. */
static void list_bounded(const session *s, bounded list_out[BOUNDED]) {
    static const char *const WORDS[BOUNDED][2] = {{"bound.last.first.", "sampled_age_last_first"},
                                                  {"bound.last.next.", "sampled_age_last_next"},
                                                  {"bound.last.", "sampled_age_last"},
                                                  {"bound.first.", "sampled_age_first"},
                                                  {"bound.next.", "sampled_age_next"},
                                                  {"bound.", "sampled_age"}};
    for (int i = 0; i < BOUNDED; i++) {
        const nets_exec *exec = i < NETS_PASSES ? s->train_last : s->train;
        const nets_lowered *lowered = exec ? nets_exec_lowered_pass(exec, (i + 1) % NETS_PASSES) : NULL;
        list_out[i] = (bounded){WORDS[i][0], WORDS[i][1], lowered ? lowered->graph : NULL};
    }
}

static nets_safetensors_tensor describe_bound(const bounded *b, mm_tensor tensor, char name[NAME_CAPACITY]) {
    snprintf(name, NAME_CAPACITY, "%s%s", b->prefix, mm_graph_tensor(b->graph, tensor)->name);
    return (nets_safetensors_tensor){.name = name, .dtype = NETS_SAFETENSORS_F32, .rank = 1, .dims = {1}};
}

/* Adds the bounds of one graph. A bound of 0 means that the tensor has none. */
static mm_status add_bounds_of(const session *s, const bounded *b, nets_safetensors_builder *builder) {
    for (mm_tensor t = 0; t < mm_graph_tensors(b->graph); t++) {
        char name[NAME_CAPACITY];
        float bound;
        MM_TRY(mm_bound_get(s->manager, b->graph, t, &bound));
        if (bound == 0) continue;
        const nets_safetensors_tensor tensor = describe_bound(b, t, name);
        MM_TRY(nets_safetensors_add(builder, &tensor));
    }
    return MM_OK;
}

static mm_status add_count(nets_safetensors_builder *builder, const char *key, int64_t count);

static mm_status add_bounds(const session *s, nets_safetensors_builder *builder) {
    bounded list[BOUNDED];
    list_bounded(s, list);
    for (int i = 0; i < BOUNDED; i++) {
        int64_t age;
        if (!list[i].graph) continue;
        MM_TRY(mm_sampling_age(s->manager, list[i].graph, &age));
        if (age < 0) continue;
        MM_TRY(add_count(builder, list[i].age, age));
        MM_TRY(add_bounds_of(s, &list[i], builder));
    }
    return MM_OK;
}

/* Finds a bound by its name in the file. False: the name is not a bound's. */
static bool find_bound(const session *s, const char *name, float *bound_out) {
    bounded list[BOUNDED];
    list_bounded(s, list);
    for (int i = 0; i < BOUNDED; i++) {
        const size_t length = strlen(list[i].prefix);
        mm_tensor tensor;
        if (!list[i].graph || strncmp(name, list[i].prefix, length) != 0) continue;
        return mm_graph_find_tensor(list[i].graph, name + length, &tensor) == MM_OK &&
               mm_bound_get(s->manager, list[i].graph, tensor, bound_out) == MM_OK;
    }
    return false;
}

static mm_status take_bounds_of(const session *s, const bounded *b, const nets_safetensors_file *file) {
    for (mm_tensor t = 0; t < mm_graph_tensors(b->graph); t++) {
        char name[NAME_CAPACITY];
        const void *data;
        float bound = 0;
        const nets_safetensors_tensor want = describe_bound(b, t, name);
        if (nets_safetensors_find(file, name)) {
            MM_TRY(nets_safetensors_get(file, &want, &data));
            MM_TRY(nets_safetensors_read(file, data, 0, &bound, sizeof bound));
        }
        mm_status status = mm_bound_set(s->manager, b->graph, t, bound);
        if (status != MM_OK) return mm_fail_in(status == MM_ERR_NOMEM ? status : MM_ERR_FORMAT, "%s", name);
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- saving */

/* Adds names and dims of all tensors. Their elements are fetched when the file is written. */
static mm_status add_tensors(const session *s, nets_safetensors_builder *builder) {
    for (int i = 0; i < nets_net_params(s->config.net); i++)
        for (int p = 0; p < N_PARTS; p++) {
            char name[NAME_CAPACITY];
            if (!saves_part(s, i, PARTS[p])) continue;
            nets_safetensors_tensor tensor = describe(s, i, PARTS[p], name);
            MM_TRY(nets_safetensors_add(builder, &tensor));
        }
    for (int i = 0; describe_count(s, i).name; i++) {
        nets_safetensors_tensor count = describe_count(s, i);
        MM_TRY(nets_safetensors_add(builder, &count));
    }
    return add_bounds(s, builder);
}

static mm_status add_count(nets_safetensors_builder *builder, const char *key, int64_t count) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)count);
    return nets_safetensors_add_metadata(builder, key, text);
}

static mm_status add_options(const arg *options, nets_safetensors_builder *builder) {
    for (const arg *a = options; a && a->kind != ARG_END; a++) {
        char *text = args_text(a);
        if (!text) return mm_fail(MM_ERR_NOMEM, "out of memory to save %s", a->name);
        mm_status status = nets_safetensors_add_metadata(builder, a->name + 2, text);
        free(text);
        MM_TRY(status);
    }
    return MM_OK;
}

/* What blocks of codes are in, if it is not the order of the file. A device in another order has other blocks. */
static const char *order_of_blocks(const session *s) {
    const nets_lowered *lowered = nets_exec_lowered(s->train);
    for (int i = 0; i < nets_net_params(s->config.net); i++)
        if (absmax_of(s, i, 0) >= 0 && !nets_order_is_plain(&lowered->params[i].order)) return "channels last";
    return NULL;
}

/* The position in the data is saved in images, so that a run with another batch size can go on there. */
static mm_status add_metadata(const session *s, const arg *options, nets_safetensors_builder *builder) {
    const nets_reader_size *size = &s->train_size;
    int64_t at = s->iteration + s->data_shift;
    MM_TRY(add_options(options, builder));
    MM_TRY(nets_safetensors_add_metadata(builder, "net", nets_net_name(s->config.net)));
    MM_TRY(add_count(builder, "version", VERSION));
    MM_TRY(add_count(builder, "iteration", s->iteration));
    MM_TRY(add_count(builder, "epoch", at / size->batches));
    MM_TRY(add_count(builder, "position", at % size->batches * s->config.batch));
    if (order_of_blocks(s)) MM_TRY(nets_safetensors_add_metadata(builder, STATE_BLOCKS, order_of_blocks(s)));
    return nets_safetensors_add_metadata(builder, "last_batch", s->config.whole_epochs ? "trained" : "left out");
}

/* A nets_safetensors_fetch. */
static mm_status fetch(void *ctx, const nets_safetensors_tensor *tensor, int64_t offset, void *data, int64_t bytes) {
    const session *s = ctx;
    const float *values = data;
    float bound;
    if (find_bound(s, tensor->name, &bound)) {
        memcpy(data, &bound, sizeof bound);
        return MM_OK;
    }
    MM_TRY(nets_exec_values_get(s->train, name_in_graph(s, tensor->name), offset, data, bytes));
    if (s->config.keep_going || tensor->dtype != NETS_SAFETENSORS_F32) return MM_OK;
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *values; i++)
        if (!isfinite(values[i]))
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "the state after iteration %lld is not saved: training diverged, %s has elements that are "
                           "NaN or infinite; lower --lr, or save it all the same with --keep-going",
                           (long long)s->iteration, tensor->name);
    return MM_OK;
}

static bool divides(const session *s) { return s->config.ranks && s->config.target.allreduce.divide; }

mm_status session_save(session *s, const char *path, const arg *options) {
    nets_safetensors_builder *builder;
    int64_t updates;
    const mm_status whole = nets_exec_updates(s->train, &updates);
    if (whole != MM_OK) return mm_fail_in(whole, "no state is saved");
    MM_TRY(nets_safetensors_builder_create(&builder));
    mm_status status = add_tensors(s, builder);
    if (status == MM_OK) status = add_metadata(s, options, builder);
    if (divides(s) && comm_rank(s->config.ranks) > 0) path = NULL; /* this rank only gives its shares */
    if (status == MM_OK) status = nets_safetensors_write_from(builder, path, NETS_TRANSFER_BYTES, fetch, s);
    nets_safetensors_builder_destroy(builder);
    return status;
}

/* Adds a tensor's elements to a digest, four bytes at a time. piece: a buffer of NETS_TRANSFER_BYTES. */
static mm_status digest_one(session *s, const nets_safetensors_tensor *tensor, uint32_t *piece, uint64_t *digest) {
    int64_t bytes;
    MM_TRY(nets_safetensors_bytes(tensor, &bytes));
    for (int64_t at = 0; at < bytes; at += NETS_TRANSFER_BYTES) {
        const int64_t n = bytes - at < NETS_TRANSFER_BYTES ? bytes - at : NETS_TRANSFER_BYTES;
        MM_TRY(nets_exec_values_get(s->train, name_in_graph(s, tensor->name), at, piece, n));
        memset((char *)piece + n, 0, (size_t)(-n & 3));
        for (int64_t i = 0; i < (n + 3) / (int64_t)sizeof *piece; i++) *digest = mm_hash_word(*digest, piece[i]);
    }
    return MM_OK;
}

/* Without divided states: a rank whose others have failed must not wait for their shares. */
static mm_status digest_all(session *s, uint32_t *piece, uint64_t *digest) {
    char name[NAME_CAPACITY];
    for (int i = 0; i < nets_net_params(s->config.net); i++)
        for (int p = 0; p < N_PARTS; p++) {
            if (!has_part(s, i, PARTS[p]) || (PARTS[p] != NETS_VALUE && divides(s))) continue;
            const nets_safetensors_tensor tensor = describe(s, i, PARTS[p], name);
            MM_TRY(digest_one(s, &tensor, piece, digest));
        }
    for (int i = 0; describe_count(s, i).name; i++) {
        const nets_safetensors_tensor count = describe_count(s, i);
        MM_TRY(digest_one(s, &count, piece, digest));
    }
    return MM_OK;
}

mm_status session_digest(session *s, uint64_t *digest_out) {
    uint32_t *piece = malloc(NETS_TRANSFER_BYTES);
    *digest_out = MM_HASH_BEGIN;
    mm_status status =
        piece ? digest_all(s, piece, digest_out) : mm_fail(MM_ERR_NOMEM, "out of memory to read the state");
    free(piece);
    return status;
}

/* Copies a tensor from the file to the manager through `piece`, a buffer of NETS_TRANSFER_BYTES. */
static mm_status copy_in(session *s, const nets_safetensors_file *file, const nets_safetensors_tensor *tensor,
                         const void *data, void *piece) {
    int64_t bytes;
    MM_TRY(nets_safetensors_bytes(tensor, &bytes));
    for (int64_t at = 0; at < bytes; at += NETS_TRANSFER_BYTES) {
        int64_t n = bytes - at < NETS_TRANSFER_BYTES ? bytes - at : NETS_TRANSFER_BYTES;
        MM_TRY(nets_safetensors_read(file, data, at, piece, n));
        MM_TRY(nets_exec_values_set(s->train, tensor->name, at, piece, n));
    }
    return MM_OK;
}

/* Copies a parameter from the file's tensor, as floats. */
static mm_status copy_weights(session *s, const nets_safetensors_file *file, const nets_safetensors_tensor *tensor,
                              const nets_param *param, char *piece) {
    enum { AT_ONCE = NETS_TRANSFER_BYTES / 12 }; /* elements: of up to 8 bytes in the file, 4 as a float */
    float *values = (float *)(piece + 8 * AT_ONCE);
    int64_t elems = 1;
    for (int i = 0; i < param->rank; i++) elems *= param->dims[i];
    for (int64_t at = 0; at < elems; at += AT_ONCE) {
        const int64_t n = elems - at < AT_ONCE ? elems - at : AT_ONCE;
        MM_TRY(weights_read(file, tensor, at, n, piece, values));
        MM_TRY(nets_exec_values_set(s->train, param->name, at * 4, values, n * 4));
    }
    return MM_OK;
}

static mm_status take_one(session *s, const nets_safetensors_file *file, const nets_safetensors_tensor *want,
                          void *piece) {
    const void *data;
    MM_TRY(nets_safetensors_get(file, want, &data));
    return piece ? copy_in(s, file, want, data, piece) : MM_OK;
}

/* Loads all parameters that match. */
static mm_status take_weights(session *s, const nets_safetensors_file *file, char *piece) {
    const weights_prefix prefix = weights_find_prefix(file, s->config.net);
    for (int i = 0; i < nets_net_params(s->config.net); i++) {
        const nets_param *param = nets_net_param(s->config.net, i);
        const nets_safetensors_tensor *tensor = weights_find(file, &prefix, param);
        if (tensor) MM_TRY(copy_weights(s, file, tensor, param, piece));
    }
    return MM_OK;
}

/* Loads the optimizer's states and counts. piece NULL: only checks those that the file has. A file of weights alone is
 * legal: the optimizer's states stay zero. */
static mm_status take_states(session *s, const nets_safetensors_file *file, void *piece) {
    for (int i = 0; i < nets_net_params(s->config.net); i++)
        for (int p = 0; p < N_PARTS; p++) {
            char name[NAME_CAPACITY];
            if (PARTS[p] == NETS_VALUE || !has_part(s, i, PARTS[p]) || s->config.reset_optimizer) continue;
            nets_safetensors_tensor want = describe(s, i, PARTS[p], name);
            if (nets_safetensors_find(file, name)) MM_TRY(take_one(s, file, &want, piece));
        }
    for (int i = 0; i < (s->config.reset_optimizer ? 1 : 2) && describe_count(s, i).name; i++) {
        nets_safetensors_tensor want = describe_count(s, i);
        if (nets_safetensors_find(file, want.name)) MM_TRY(take_one(s, file, &want, piece));
    }
    return MM_OK;
}

/* Refuses codes whose blocks are of other elements here. */
static mm_status check_blocks(const session *s, const nets_safetensors_file *file) {
    const char *then = nets_safetensors_metadata(file, STATE_BLOCKS), *now = order_of_blocks(s);
    if (s->config.reset_optimizer || !nets_optimizer_traits_of(s->config.target.optimizer.id)->coded) return MM_OK;
    if (strcmp(then ? then : "", now ? now : "") == 0) return MM_OK;
    return mm_fail(MM_ERR_FORMAT,
                   "its 8-bit states are in blocks %s, those of device %s are not: use --reset-optimizer to take only "
                   "its weights",
                   then ? then : "in the file's order", s->config.target.device);
}

/* Reads a count from the metadata; 0 if there is none, as in a file of weights alone. */
static mm_status read_count(const nets_safetensors_file *file, const char *path, const char *key, int64_t most,
                            int64_t *count_out) {
    const char *text = nets_safetensors_metadata(file, key);
    char *end;
    errno = 0;
    long long count = text ? strtoll(text, &end, 10) : 0;
    if (text && (errno || end == text || *end || count < 0 || count > most))
        return mm_fail(MM_ERR_FORMAT, "%s: metadata %s is '%.32s', not a count from 0 to %lld", path, key, text,
                       (long long)most);
    *count_out = count;
    return MM_OK;
}

/* Loads the error bounds. With --reset-optimizer, the policy chooses them anew instead. */
static mm_status take_bounds(const session *s, const nets_safetensors_file *file, const char *path) {
    bounded list[BOUNDED];
    list_bounded(s, list);
    for (int i = 0; i < BOUNDED && !s->config.reset_optimizer; i++) {
        int64_t age;
        if (!list[i].graph || !nets_safetensors_metadata(file, list[i].age)) continue;
        MM_TRY(read_count(file, path, list[i].age, SESSION_ITERATIONS_MAX, &age));
        MM_TRY(take_bounds_of(s, &list[i], file));
        MM_TRY(mm_sampling_age_set(s->manager, list[i].graph, age));
    }
    return MM_OK;
}

/* Number of the batch, over all epochs, that has the image where the state stopped. */
static int64_t place_in_data(const session *s, int64_t epoch, int64_t position) {
    int64_t index = position / s->config.batch;
    return epoch * s->train_size.batches + (index < s->train_size.batches ? index : s->train_size.batches);
}

static mm_status load(session *s, const nets_safetensors_file *file, const char *path, void *piece) {
    const uint32_t seed[2] = {(uint32_t)s->config.seed, (uint32_t)(s->config.seed >> 32)};
    int64_t iteration, epoch, position;
    MM_TRY(read_count(file, path, "iteration", SESSION_ITERATIONS_MAX, &iteration));
    MM_TRY(read_count(file, path, "epoch", SESSION_ITERATIONS_MAX, &epoch));
    MM_TRY(read_count(file, path, "position", INT32_MAX, &position));
    if (s->config.only_matching) return take_weights(s, file, piece);
    MM_TRY(weights_check(file, s->config.net, WEIGHTS_STATE));
    MM_TRY(check_blocks(s, file));
    MM_TRY(take_states(s, file, NULL));
    MM_TRY(take_weights(s, file, piece));
    MM_TRY(take_states(s, file, piece));
    MM_TRY(take_bounds(s, file, path));
    s->iteration = iteration;
    if (!nets_safetensors_metadata(file, "version")) return MM_OK;
    s->data_shift = place_in_data(s, epoch, position) - iteration;
    return mm_persistent_set(s->manager, describe_count(s, 0).name, 0, seed, sizeof seed);
}

mm_status session_load(session *s, const nets_safetensors_file *file, const char *path) {
    void *piece = malloc(NETS_TRANSFER_BYTES);
    mm_status status = piece ? load(s, file, path, piece) : mm_fail(MM_ERR_NOMEM, "out of memory to load %s", path);
    free(piece);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "not a state of %s", nets_net_name(s->config.net));
}

mm_status session_load_base(session *s, const nets_safetensors_file *file) {
    const weights_prefix prefix = weights_find_prefix(file, s->config.net);
    void *piece = malloc(NETS_TRANSFER_BYTES);
    if (!piece) return mm_fail(MM_ERR_NOMEM, "out of memory to load frozen weights");
    const mm_status status = take_weights(s, file, piece);
    free(piece);
    if (s->config.target.lora && *s->config.target.lora)
        snprintf(s->adapters_prefix, sizeof s->adapters_prefix, "base_model.model.%s", prefix.text);
    return status;
}

/* ---------------------------------------------------------------- options of the saved run */

static mm_status take_options(const nets_safetensors_file *file, const char *path, const arg *options, int argc,
                              char **argv) {
    int64_t version;
    MM_TRY(read_count(file, path, "version", INT32_MAX, &version));
    if (version > VERSION)
        return mm_fail(MM_ERR_FORMAT,
                       "%s: the state has version %lld, but this mm reads versions up to %d: use a newer mm", path,
                       (long long)version, VERSION);
    for (const arg *a = options; version > 0 && a->kind != ARG_END; a++) {
        const char *then = nets_safetensors_metadata(file, a->name + 2);
        if (!then || args_given(argc, argv, a->name)) continue;
        const mm_status status = args_set(a, then);
        if (status == MM_ERR_NOMEM) return status;
        if (status != MM_OK) return mm_fail_in(MM_ERR_FORMAT, "%s: what it says of its run cannot be", path);
    }
    return MM_OK;
}

mm_status session_state_open(const char *path, const arg *options, int argc, char **argv,
                             nets_safetensors_file **file_out) {
    nets_safetensors_file *file;
    MM_TRY(nets_safetensors_open(path, &file));
    mm_status status = take_options(file, path, options, argc, argv);
    if (status != MM_OK) {
        nets_safetensors_close(file);
        return status;
    }
    *file_out = file;
    return MM_OK;
}

mm_status session_state_check(const nets_safetensors_file *file, const nets_net *net) {
    const mm_status status = weights_check(file, net, WEIGHTS_STATE);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "not a state of %s", nets_net_name(net));
}

mm_status session_base_check(const nets_safetensors_file *file, const char *path, const nets_net *net) {
    const mm_status status = weights_check(file, net, WEIGHTS_BASE);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "--base %s: not of %s", path, nets_net_name(net));
}

mm_status session_state_report(const nets_safetensors_file *file, const char *path, const arg *options, int argc,
                               char **argv) {
    for (const arg *a = options; nets_safetensors_metadata(file, "version") && a->kind != ARG_END; a++) {
        const char *then = nets_safetensors_metadata(file, a->name + 2);
        if (!then || !args_given(argc, argv, a->name)) continue;
        char *now = args_text(a);
        if (!now) return mm_fail(MM_ERR_NOMEM, "out of memory to compare %s", a->name);
        if (strcmp(now, then) != 0)
            fprintf(stderr, "mm train: %s%s%s: %s was trained with%s%s\n", a->name, *now ? " " : "", now, path,
                    *then ? " " : "out", then);
        free(now);
    }
    return MM_OK;
}

const char *session_state_says(const nets_safetensors_file *file, const char *key) {
    return file ? nets_safetensors_metadata(file, key) : NULL;
}

void session_state_close(nets_safetensors_file *file) { nets_safetensors_close(file); }
