/* The state of a training as a safetensors file: parameters under torchvision's names, "momentum.<parameter>", "rng",
 * and the iteration in the metadata. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/io/safetensors.h"
#include "tools/session.h"

enum { NAME_CAPACITY = NETS_PARAM_NAME_CAPACITY + 16, RNG_WORDS = 4 };

static const nets_part PARTS[] = {NETS_VALUE, NETS_MOMENTUM};

/* A parameter's part as the file has it. */
static nets_safetensors_tensor describe(const nets_param *param, nets_part part, char name[NAME_CAPACITY]) {
    snprintf(name, NAME_CAPACITY, "%s%s", part == NETS_MOMENTUM ? "momentum." : "", param->name);
    nets_safetensors_tensor tensor = {.name = name, .dtype = NETS_SAFETENSORS_F32, .rank = param->rank};
    memcpy(tensor.dims, param->dims, sizeof param->dims);
    return tensor;
}

static nets_safetensors_tensor describe_rng(void) {
    return (nets_safetensors_tensor){.name = "rng", .dtype = NETS_SAFETENSORS_U32, .rank = 1, .dims = {RNG_WORDS}};
}

static bool has_part(const session *s, int param, nets_part part) {
    return nets_exec_param(s->train, param, part) != NULL;
}

/* Names and dims of all tensors: their elements are fetched when the file is written. */
static mm_status add_tensors(const session *s, nets_safetensors_builder *builder) {
    for (int i = 0; i < nets_net_params(s->config.net); i++)
        for (int p = 0; p < 2; p++) {
            char name[NAME_CAPACITY];
            if (!has_part(s, i, PARTS[p])) continue;
            nets_safetensors_tensor tensor = describe(nets_net_param(s->config.net, i), PARTS[p], name);
            MM_TRY(nets_safetensors_add(builder, &tensor));
        }
    nets_safetensors_tensor rng = describe_rng();
    return nets_safetensors_add(builder, &rng);
}

static mm_status add_metadata(const session *s, nets_safetensors_builder *builder) {
    char iteration[32];
    snprintf(iteration, sizeof iteration, "%lld", (long long)s->iteration);
    MM_TRY(nets_safetensors_add_metadata(builder, "net", nets_net_name(s->config.net)));
    return nets_safetensors_add_metadata(builder, "iteration", iteration);
}

/* nets_safetensors_fetch: a tensor has the same name in the manager as in the file. */
static mm_status fetch(void *ctx, const nets_safetensors_tensor *tensor, int64_t offset, void *data, int64_t bytes) {
    const session *s = ctx;
    const float *values = data;
    MM_TRY(mm_persistent_get(s->manager, tensor->name, offset, data, bytes));
    if (s->config.keep_going || tensor->dtype != NETS_SAFETENSORS_F32) return MM_OK;
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *values; i++)
        if (!isfinite(values[i]))
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "the state after iteration %lld is not saved: training diverged, %s has elements that are "
                           "NaN or infinite; lower --lr, or --keep-going saves it all the same",
                           (long long)s->iteration, tensor->name);
    return MM_OK;
}

mm_status session_save(session *s, const char *path) {
    nets_safetensors_builder *builder;
    MM_TRY(nets_safetensors_builder_create(&builder));
    mm_status status = add_tensors(s, builder);
    if (status == MM_OK) status = add_metadata(s, builder);
    if (status == MM_OK) status = nets_safetensors_write_from(builder, path, NETS_TRANSFER_BYTES, fetch, s);
    nets_safetensors_builder_destroy(builder);
    return status;
}

/* From the file into the manager, through `piece` of NETS_TRANSFER_BYTES. */
static mm_status copy_in(session *s, const nets_safetensors_file *file, const nets_safetensors_tensor *tensor,
                         const void *data, void *piece) {
    int64_t bytes;
    MM_TRY(nets_safetensors_bytes(tensor, &bytes));
    for (int64_t at = 0; at < bytes; at += NETS_TRANSFER_BYTES) {
        int64_t n = bytes - at < NETS_TRANSFER_BYTES ? bytes - at : NETS_TRANSFER_BYTES;
        MM_TRY(nets_safetensors_read(file, data, at, piece, n));
        MM_TRY(mm_persistent_set(s->manager, tensor->name, at, piece, n));
    }
    return MM_OK;
}

static mm_status take_one(session *s, const nets_safetensors_file *file, const nets_safetensors_tensor *want,
                          void *piece) {
    const void *data;
    MM_TRY(nets_safetensors_get(file, want, &data));
    return piece ? copy_in(s, file, want, data, piece) : MM_OK;
}

/* Visits everything that a state has: first to see that the file has it all (piece NULL), then to take it. A file of
 * weights alone leaves the momentum at zero. */
static mm_status take(session *s, const nets_safetensors_file *file, void *piece) {
    for (int i = 0; i < nets_net_params(s->config.net); i++)
        for (int p = 0; p < 2; p++) {
            char name[NAME_CAPACITY];
            nets_safetensors_tensor want = describe(nets_net_param(s->config.net, i), PARTS[p], name);
            bool there = PARTS[p] == NETS_VALUE || nets_safetensors_find(file, name);
            if (has_part(s, i, PARTS[p]) && there) MM_TRY(take_one(s, file, &want, piece));
        }
    nets_safetensors_tensor want = describe_rng();
    return nets_safetensors_find(file, want.name) ? take_one(s, file, &want, piece) : MM_OK;
}

/* A file of weights alone has none: the training begins. */
static mm_status read_iteration(const nets_safetensors_file *file, const char *path, int64_t *iteration_out) {
    const char *text = nets_safetensors_metadata(file, "iteration");
    char *end;
    errno = 0;
    long long iteration = text ? strtoll(text, &end, 10) : 0;
    if (text && (errno || end == text || *end || iteration < 0 || iteration > SESSION_ITERATIONS_MAX))
        return mm_fail(MM_ERR_FORMAT, "%s: its iteration is '%.32s', not a count", path, text);
    *iteration_out = iteration;
    return MM_OK;
}

static mm_status load(session *s, const nets_safetensors_file *file, const char *path, void *piece) {
    int64_t iteration;
    MM_TRY(read_iteration(file, path, &iteration));
    MM_TRY(take(s, file, NULL));
    MM_TRY(take(s, file, piece));
    s->iteration = iteration;
    return MM_OK;
}

mm_status session_load(session *s, const char *path) {
    nets_safetensors_file *file;
    MM_TRY(nets_safetensors_open(path, &file));
    void *piece = malloc(NETS_TRANSFER_BYTES);
    mm_status status = piece ? load(s, file, path, piece) : mm_fail(MM_ERR_NOMEM, "no memory to load %s", path);
    free(piece);
    nets_safetensors_close(file);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "not a state of %s", nets_net_name(s->config.net));
}
