/* The state of a training as a safetensors file: parameters under torchvision's names, "momentum.<parameter>", "rng",
 * and the iteration in the metadata. */
#include <errno.h>
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

/* Bytes of all tensors of a state. */
static size_t state_bytes(const session *s) {
    size_t bytes = RNG_WORDS * sizeof(uint32_t);
    for (int i = 0; i < nets_net_params(s->config.net); i++)
        for (int p = 0; p < 2; p++)
            if (has_part(s, i, PARTS[p])) bytes += (size_t)nets_net_param(s->config.net, i)->elems * sizeof(float);
    return bytes;
}

/* Copies the tensors out of the manager, into `values`, which must live until the builder has written. */
static mm_status add_tensors(session *s, float *values, nets_safetensors_builder *builder) {
    for (int i = 0; i < nets_net_params(s->config.net); i++) {
        const nets_param *param = nets_net_param(s->config.net, i);
        for (int p = 0; p < 2; p++) {
            char name[NAME_CAPACITY];
            if (!has_part(s, i, PARTS[p])) continue;
            nets_safetensors_tensor tensor = describe(param, PARTS[p], name);
            tensor.data = values;
            MM_TRY(nets_exec_param_get(s->train, i, PARTS[p], values));
            MM_TRY(nets_safetensors_add(builder, &tensor));
            values += param->elems;
        }
    }
    nets_safetensors_tensor rng = describe_rng();
    rng.data = values;
    MM_TRY(mm_persistent_get(s->manager, rng.name, 0, values, RNG_WORDS * sizeof(uint32_t)));
    MM_TRY(nets_safetensors_add(builder, &rng));
    char iteration[32];
    snprintf(iteration, sizeof iteration, "%lld", (long long)s->iteration);
    MM_TRY(nets_safetensors_add_metadata(builder, "net", nets_net_name(s->config.net)));
    return nets_safetensors_add_metadata(builder, "iteration", iteration);
}

mm_status session_save(session *s, const char *path) {
    nets_safetensors_builder *builder;
    size_t bytes = state_bytes(s);
    float *values = malloc(bytes);
    if (!values) return mm_fail(MM_ERR_NOMEM, "no memory for a state of %zu bytes", bytes);
    mm_status status = nets_safetensors_builder_create(&builder);
    if (status == MM_OK) {
        status = add_tensors(s, values, builder);
        if (status == MM_OK) status = nets_safetensors_write(builder, path);
        nets_safetensors_builder_destroy(builder);
    }
    free(values);
    return status;
}

/* Visits everything that a state has: first to see that the file has it all (copy false), then to take it. A file of
 * weights alone leaves the momentum at zero. */
static mm_status take(session *s, const nets_safetensors_file *file, bool copy) {
    for (int i = 0; i < nets_net_params(s->config.net); i++) {
        const nets_param *param = nets_net_param(s->config.net, i);
        for (int p = 0; p < 2; p++) {
            char name[NAME_CAPACITY];
            nets_safetensors_tensor want = describe(param, PARTS[p], name);
            const void *data;
            if (!has_part(s, i, PARTS[p]) || (PARTS[p] == NETS_MOMENTUM && !nets_safetensors_find(file, name)))
                continue;
            MM_TRY(nets_safetensors_get(file, &want, &data));
            /* a part has the same name in the manager as in the file, where it need not be aligned */
            if (copy) MM_TRY(mm_persistent_set(s->manager, name, 0, data, param->elems * (int64_t)sizeof(float)));
        }
    }
    nets_safetensors_tensor want = describe_rng();
    const void *data;
    if (!nets_safetensors_find(file, want.name)) return MM_OK;
    MM_TRY(nets_safetensors_get(file, &want, &data));
    return copy ? mm_persistent_set(s->manager, want.name, 0, data, RNG_WORDS * sizeof(uint32_t)) : MM_OK;
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

mm_status session_load(session *s, const char *path) {
    nets_safetensors_file *file;
    int64_t iteration;
    MM_TRY(nets_safetensors_open(path, &file));
    mm_status status = read_iteration(file, path, &iteration);
    if (status == MM_OK) status = take(s, file, false);
    if (status == MM_OK) status = take(s, file, true);
    if (status == MM_OK) s->iteration = iteration;
    nets_safetensors_close(file);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "not a state of %s", nets_net_name(s->config.net));
}
