/* SPDX-License-Identifier: MIT */
#include "nets/io/net_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mm/core/nearest.h"
#include "mm/core/text.h"
#include "nets/io/onnx/onnx.h"
#include "nets/net_attrs.h"
#include "nets/net_ops.h"
#include "nets/zoo/zoo.h"

enum { MAX_FILE_BYTES = 16 << 20 };

/* ---------------------------------------------------------------- print */

/* Prints a JSON string. */
static mm_status print_string(FILE *stream, const char *text) {
    errno = 0;
    json_t *string = json_string(text);
    bool printed = string && json_dumpf(string, stream, JSON_ENCODE_ANY) == 0;
    json_decref(string);
    if (printed || (string && ferror(stream))) return MM_OK; /* the caller looks for errors of the stream */
    if (errno == ENOMEM) return mm_fail(MM_ERR_NOMEM, "out of memory for a network file");
    return mm_fail(MM_ERR_UNSUPPORTED, "the name '%s' is not UTF-8", text);
}

/* Prints the names of the layer's parameters, if they are not "<layer>.<name>". */
static mm_status print_params(FILE *stream, const nets_net *net, const nets_layer *layer) {
    bool named = false;
    for (int i = 0; i < layer->n_params; i++) {
        const nets_param *param = nets_net_param(net, layer->first_param + i);
        const size_t length = strlen(layer->name);
        named |= strncmp(param->name, layer->name, length) != 0 || param->name[length] != '.' ||
                 strcmp(param->name + length + 1, nets_param_spec_of(layer->op, param->place)->name) != 0;
    }
    for (int i = 0; named && i < layer->n_params; i++) {
        fprintf(stream, "%s", i ? ", " : ", \"parameters\": [");
        MM_TRY(print_string(stream, nets_net_param(net, layer->first_param + i)->name));
    }
    if (named) fprintf(stream, "]");
    return MM_OK;
}

static mm_status print_layer(FILE *stream, const nets_net *net, int index) {
    const nets_layer *layer = nets_net_layer(net, index);
    nets_attrs told;
    MM_TRY(nets_attrs_given(net, index, &told));
    fprintf(stream, "    {\"name\": ");
    MM_TRY(print_string(stream, layer->name));
    fprintf(stream, ", \"op\": \"%s\", \"inputs\": [", nets_op_name(layer->op));
    for (int i = 0; i < layer->n_inputs; i++) {
        if (i) fprintf(stream, ", ");
        MM_TRY(print_string(stream, nets_net_layer(net, layer->inputs[i])->name));
    }
    fprintf(stream, "]");
    MM_TRY(print_params(stream, net, layer));
    const nets_attr *attr;
    char text[NETS_ATTR_TEXT_CAPACITY];
    for (size_t i = 0; (attr = nets_attr_of(layer->op, i)); i++)
        if (nets_attr_is_given(attr, &told))
            fprintf(stream, ", \"%s\": %s", attr->name, nets_attr_text(attr, &told, text));
    fprintf(stream, "}%s\n", index + 1 < nets_net_layers(net) ? "," : "");
    return MM_OK;
}

mm_status nets_net_print(const nets_net *net, FILE *stream) {
    const int64_t *image = nets_net_layer(net, 0)->shape.dims;
    fprintf(stream, "{\n  \"format\": \"%s\",\n  \"version\": %d,\n  \"name\": ", NETS_NET_FILE_FORMAT,
            NETS_NET_FILE_VERSION);
    MM_TRY(print_string(stream, nets_net_name(net)));
    fprintf(stream, ",\n  \"input\": {\"height\": %lld, \"width\": %lld, \"channels\": %lld, \"classes\": %lld},\n",
            (long long)image[0], (long long)image[1], (long long)image[2], (long long)nets_net_classes(net));
    fprintf(stream, "  \"layers\": [\n");
    for (int i = 1; i < nets_net_layers(net); i++) MM_TRY(print_layer(stream, net, i));
    fprintf(stream, "  ]\n}\n");
    return MM_OK;
}

/* ---------------------------------------------------------------- load */

static mm_status cannot_read(const char *path, int error) {
    return mm_fail(MM_ERR_IO, "cannot read %s: %s", path, strerror(error));
}

/* Reads up to the limit and one byte more, since a pipe's size is not known. */
static mm_status read_all(int fd, const char *path, char **text_out, size_t *n_bytes_out) {
    size_t n_bytes = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    while (text) {
        ssize_t n = read(fd, text + n_bytes, capacity - n_bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int error = errno;
            free(text);
            return cannot_read(path, error);
        }
        n_bytes += (size_t)n;
        if (n_bytes > MAX_FILE_BYTES) {
            free(text);
            return mm_fail(MM_ERR_FORMAT, "%s: larger than the %d MiB that a network file may have", path,
                           MAX_FILE_BYTES >> 20);
        }
        if (n == 0) {
            *text_out = text;
            *n_bytes_out = n_bytes;
            return MM_OK;
        }
        if (n_bytes < capacity) continue;
        char *grown = realloc(text, capacity *= 2);
        if (!grown) free(text);
        text = grown;
    }
    return mm_fail(MM_ERR_NOMEM, "%s: no memory for its %zu bytes", path, capacity);
}

mm_status nets_net_load(const char *path, nets_net **net_out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return mm_fail(MM_ERR_IO, "cannot read %s: %s%s", path, strerror(errno), MM_DID_YOU_MEAN_FILE(path));
    char *text;
    size_t n_bytes;
    mm_status status = read_all(fd, path, &text, &n_bytes);
    close(fd);
    MM_TRY(status);
    status = nets_net_parse(path, text, n_bytes, net_out);
    free(text);
    return status;
}

/* ---------------------------------------------------------------- open */

mm_status nets_open(const char *name, nets_net **net_out) {
    static const struct {
        const char *prefix, *suffix;
        mm_status (*load)(const char *path, nets_net **net_out);
    } files[] = {{"file:", ".json", nets_net_load}, {"onnx:", ".onnx", nets_onnx_load}};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strncmp(name, files[i].prefix, strlen(files[i].prefix)) == 0)
            return files[i].load(name + strlen(files[i].prefix), net_out);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const size_t end = strlen(files[i].suffix);
        if (length > end && strcmp(name + length - end, files[i].suffix) == 0)
            return mm_fail(MM_ERR_NOT_FOUND, "no net %s; a network file is given as %s%s", MM_BRIEF(name),
                           files[i].prefix, name);
    }
    return nets_zoo_build(name, net_out);
}
