/* SPDX-License-Identifier: MIT */
/* The file: read, checked, and made into lists of nodes and values. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mm/core/nearest.h"
#include "mm/core/status.h"
#include "nets/io/onnx/onnx_import.h"
#include "pipeline/codec/block/half_value.h"

/* Chosen: as many nodes as a net may have layers, and four tensors a node. */
enum { OLDEST_OPSET = 13, NODES_MOST = 1 << 16, VALUES_MOST = 4 * NODES_MOST };

/* ---------------------------------------------------------------- files */

/* Reads `bytes` of an open file from `offset` on. False: it ends before, or errno says why. */
static bool read_part(int fd, void *out, int64_t bytes, int64_t offset) {
    errno = 0;
    for (int64_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += n;
    }
    return true;
}

static mm_status cannot_read(const char *path) {
    return mm_fail(MM_ERR_IO, "cannot read %s: %s", path, errno ? strerror(errno) : "it ends too early");
}

static mm_status open_file(const char *path, int *fd_out, int64_t *bytes_out) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return mm_fail(MM_ERR_IO, "cannot read %s: %s%s", path, strerror(errno), MM_DID_YOU_MEAN_FILE(path));
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return mm_fail(MM_ERR_IO, "cannot read %s: not a regular file", path);
    }
    *fd_out = fd;
    *bytes_out = info.st_size;
    return MM_OK;
}

mm_status onnx_file_read(const char *path, uint8_t **data_out, int64_t *bytes_out) {
    int fd;
    int64_t bytes;
    MM_TRY(open_file(path, &fd, &bytes));
    uint8_t *data = malloc(bytes ? (size_t)bytes : 1);
    mm_status status = MM_OK;
    if (!data)
        status = mm_fail(MM_ERR_NOMEM, "%s: no memory for its %lld bytes", path, (long long)bytes);
    else if (!read_part(fd, data, bytes, 0))
        status = cannot_read(path);
    close(fd);
    if (status != MM_OK) {
        free(data);
        return status;
    }
    *data_out = data;
    *bytes_out = bytes;
    return MM_OK;
}

/* ---------------------------------------------------------------- constants */

typedef enum element {
    FLOAT = 1,
    UINT8,
    INT8,
    UINT16,
    INT16,
    INT32,
    INT64,
    BOOL = 9,
    FLOAT16,
    DOUBLE,
    BFLOAT16 = 16,
    ELEMENTS
} element;

static const uint8_t ELEMENT_BYTES[ELEMENTS] = {
    [FLOAT] = 4, [UINT8] = 1, [INT8] = 1,    [UINT16] = 2, [INT16] = 2,   [INT32] = 4,
    [INT64] = 8, [BOOL] = 1,  [FLOAT16] = 2, [DOUBLE] = 8, [BFLOAT16] = 2};

static bool is_real(int type) { return type == FLOAT || type == FLOAT16 || type == DOUBLE || type == BFLOAT16; }

static float widen(uint16_t half, int type) {
    const uint32_t bits = mm_half_widen(half, type == BFLOAT16 ? MM_BF16 : MM_F16);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Element i of little-endian bytes. */
static void take_element(onnx_tensor *tensor, int64_t i, const uint8_t *raw, int type) {
    raw += i * ELEMENT_BYTES[type];
    union {
        float f;
        double d;
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
    } v;
    memcpy(&v, raw, (size_t)ELEMENT_BYTES[type]);
    switch (type) {
    case FLOAT:
        tensor->reals[i] = v.f;
        break;
    case DOUBLE:
        tensor->reals[i] = (float)v.d;
        break;
    case FLOAT16:
    case BFLOAT16:
        tensor->reals[i] = widen(v.u16, type);
        break;
    case UINT8:
        tensor->wholes[i] = v.u8;
        break;
    case INT8:
        tensor->wholes[i] = (int)v.i8;
        break;
    case UINT16:
        tensor->wholes[i] = v.u16;
        break;
    case INT16:
        tensor->wholes[i] = v.i16;
        break;
    case INT32:
        tensor->wholes[i] = v.i32;
        break;
    case INT64:
        tensor->wholes[i] = v.i64;
        break;
    default:
        tensor->wholes[i] = v.u8 != 0;
        break;
    }
}

static mm_status damaged(const onnx_import *m, const char *name, const char *what) {
    return mm_fail(MM_ERR_FORMAT, "%s: constant %.64s: %s", m->path, name, what);
}

/* Elements in the message's own lists of numbers. */
static mm_status take_lists(const onnx_import *m, const Onnx__TensorProto *proto, const char *name,
                            onnx_tensor *tensor) {
    const int type = proto->data_type;
    const size_t n = type == FLOAT    ? proto->n_float_data
                     : type == DOUBLE ? proto->n_double_data
                     : type == INT64  ? proto->n_int64_data
                                      : proto->n_int32_data;
    if (n != (size_t)tensor->elems) return damaged(m, name, "it has fewer or more elements than its shape");
    for (int64_t i = 0; i < tensor->elems; i++)
        if (type == FLOAT)
            tensor->reals[i] = proto->float_data[i];
        else if (type == DOUBLE)
            tensor->reals[i] = (float)proto->double_data[i];
        else if (is_real(type))
            tensor->reals[i] = widen((uint16_t)proto->int32_data[i], type);
        else
            tensor->wholes[i] = type == INT64 ? proto->int64_data[i] : proto->int32_data[i];
    return MM_OK;
}

static const char *entry(const Onnx__TensorProto *proto, const char *key) {
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *e = proto->external_data[i];
        if (e->key && e->value && strcmp(e->key, key) == 0) return e->value;
    }
    return NULL;
}

/* "a" in "a/b": a file of weights lies in the model's folder, or below it. */
static bool leads_out(const char *location) {
    if (*location == '/' || !*location) return true;
    for (const char *part = location; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || !part[2])) return true;
    }
    return false;
}

/* Elements in another file. */
static mm_status take_external(const onnx_import *m, const Onnx__TensorProto *proto, const char *name,
                               onnx_tensor *tensor) {
    const char *location = entry(proto, "location"), *slash = strrchr(m->path, '/');
    const char *from = entry(proto, "offset");
    char path[4096], *end = NULL;
    errno = 0;
    const long long offset = from ? strtoll(from, &end, 10) : 0;
    if (!location || leads_out(location)) return damaged(m, name, "its file of weights must lie beside this file");
    if (errno || offset < 0 || (end && *end)) return damaged(m, name, "the offset in its file of weights is no number");
    const int folder = slash ? (int)(slash + 1 - m->path) : 0;
    if ((size_t)snprintf(path, sizeof path, "%.*s%s", folder, m->path, location) >= sizeof path)
        return damaged(m, name, "the path of its file of weights is too long");
    int fd;
    int64_t bytes, wanted = tensor->elems * ELEMENT_BYTES[proto->data_type];
    mm_status status = open_file(path, &fd, &bytes);
    if (status != MM_OK) return mm_fail_in(status, "%s", m->path);
    uint8_t *raw = NULL;
    if (offset > bytes || wanted > bytes - offset)
        status = mm_fail(MM_ERR_FORMAT, "%s: constant %.64s: it ends beyond the end of %s", m->path, name, path);
    else if (!(raw = malloc(wanted ? (size_t)wanted : 1)))
        status = mm_fail(MM_ERR_NOMEM, "%s: no memory for constant %.64s", m->path, name);
    else if (!read_part(fd, raw, wanted, offset))
        status = cannot_read(path);
    close(fd);
    for (int64_t i = 0; status == MM_OK && i < tensor->elems; i++) take_element(tensor, i, raw, proto->data_type);
    free(raw);
    return status;
}

mm_status onnx_tensor_read(onnx_import *m, const Onnx__TensorProto *proto, onnx_tensor **tensor_out) {
    const char *name = proto->name ? proto->name : "";
    int64_t elems = 1;
    const int type = proto->data_type;
    if (type < 0 || type >= ELEMENTS || !ELEMENT_BYTES[type])
        return mm_fail(MM_ERR_UNSUPPORTED, "%s: constant %.64s: its elements are of ONNX's type %d, which is not read",
                       m->path, name, type);
    for (size_t d = 0; d < proto->n_dims; d++) elems = nets_mul(elems, proto->dims[d]);
    if (elems < 0) return damaged(m, name, "its shape is no shape");
    if (proto->n_dims > ONNX_RANK_MAX) return damaged(m, name, "it has more than 8 dimensions");
    /* Before memory is taken: a short file can claim a large shape. */
    const bool external = proto->data_location == 1, raw = proto->has_raw_data;
    if (raw && !external && (uint64_t)elems * (uint64_t)ELEMENT_BYTES[type] != proto->raw_data.len)
        return damaged(m, name, "it has fewer or more bytes than its shape");
    if (!raw && !external &&
        (size_t)elems > proto->n_float_data + proto->n_double_data + proto->n_int64_data + proto->n_int32_data)
        return damaged(m, name, "it has fewer or more elements than its shape");
    if (elems > m->tensors.largest) m->tensors.largest = elems;
    onnx_tensor *tensor;
    MM_TRY(onnx_tensor_create(&m->tensors, is_real(type), (int)proto->n_dims, proto->dims, &tensor));
    tensor->name = proto->name;
    if (external)
        MM_TRY(take_external(m, proto, name, tensor));
    else if (raw)
        for (int64_t i = 0; i < elems; i++) take_element(tensor, i, proto->raw_data.data, type);
    else
        MM_TRY(take_lists(m, proto, name, tensor));
    *tensor_out = tensor;
    return MM_OK;
}

mm_status onnx_constant(onnx_import *m, onnx_value *value, onnx_tensor **tensor_out) {
    if (!value->constant) {
        MM_TRY(onnx_tensor_read(m, value->initializer, &value->constant));
        free(value->initializer->raw_data.data); /* weights are large: they are in memory once */
        value->initializer->raw_data = (ProtobufCBinaryData){0, NULL};
    }
    *tensor_out = value->constant;
    return MM_OK;
}

/* ---------------------------------------------------------------- values and nodes */

/* The value of that name, made if it is new; there is room for it. */
static mm_status value_of(onnx_import *m, const char *name, int *value_out) {
    int value = mm_names_find(&m->names, name);
    if (value < 0) {
        value = m->n_values++;
        m->values[value].name = name;
        MM_TRY(mm_names_add(&m->names, name, value));
    }
    *value_out = value;
    return MM_OK;
}

static mm_status link_node(onnx_import *m, const Onnx__NodeProto *proto, int *n_links) {
    onnx_node *node = &m->nodes[m->n_nodes++];
    *node = (onnx_node){.proto = proto,
                        .op = proto->op_type ? proto->op_type : "",
                        .first_value = *n_links,
                        .n_inputs = (int)proto->n_input,
                        .n_outputs = (int)proto->n_output};
    node->name = proto->name && *proto->name            ? proto->name
                 : proto->n_output && *proto->output[0] ? proto->output[0]
                                                        : node->op;
    for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const char *name = i < node->n_inputs ? proto->input[i] : proto->output[i - node->n_inputs];
        int value = -1;
        if (*name) {
            MM_TRY(value_of(m, name, &value));
            m->values[value].uses += i < node->n_inputs;
        }
        m->links[(*n_links)++] = value;
    }
    return MM_OK;
}

static bool is_initializer(const onnx_import *m, const char *name) {
    const int value = mm_names_find(&m->names, name);
    return value >= 0 && m->values[value].initializer;
}

/* The graph's input: its shape becomes the data, draft 0. */
static mm_status take_input(onnx_import *m, const Onnx__ValueInfoProto *info) {
    const Onnx__TensorTypeProto *type = info->type ? info->type->tensor_type : NULL;
    const char *name = info->name;
    if (!type || !type->shape) return mm_fail(MM_ERR_UNSUPPORTED, "%s: input %.64s has no shape", m->path, name);
    const int rank = (int)type->shape->n_dim;
    m->tokens = !is_real(type->elem_type);
    int64_t dims[ONNX_RANK_MAX] = {0};
    if (m->tokens ? rank != 2 : rank < 2 || rank > 4)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "%s: input %.64s has %d dimensions; here it is [n, channels, height, width], [n, tokens, "
                       "channels], [n, channels], or whole numbers of [n, tokens]",
                       m->path, name, rank);
    for (int d = 0; d < rank; d++) {
        const Onnx__DimensionProto *dim = type->shape->dim[d];
        dims[d] = dim->has_dim_value ? dim->dim_value : d == 0 ? 1 : 0;
        if (dims[d] < 1 || dims[d] > INT32_MAX)
            return mm_fail(MM_ERR_UNSUPPORTED,
                           "%s: dimension %d of input %.64s is not fixed%s%.32s; export with fixed sizes of all but "
                           "the batch",
                           m->path, d, name, dim->dim_param ? ": " : "", dim->dim_param ? dim->dim_param : "");
    }
    nets_shape shape = {3, {1, 1, dims[1]}};
    if (m->tokens) shape = (nets_shape){3, {1, dims[1], 1}};
    if (rank == 3) shape = (nets_shape){3, {1, dims[1], dims[2]}};
    if (rank == 4) shape = (nets_shape){3, {dims[2], dims[3], dims[1]}};
    m->batch = dims[0];
    int value, draft;
    MM_TRY(value_of(m, name, &value));
    MM_TRY(onnx_draft_special(m, NULL, ONNX_LAYER, &shape, -1, &draft));
    onnx_view view = onnx_view_map(&shape, m->batch, rank == 4 ? 4 : 2);
    if (m->tokens || rank == 3) {
        view = (onnx_view){rank, 0, {onnx_dim_of(m->batch, nets_shape_elems(&shape))}};
        view.dims[1] = onnx_dim_of(dims[1], shape.dims[2]);
        if (rank == 3) view.dims[2] = onnx_dim_of(dims[2], 1);
    }
    onnx_give_map(&m->values[value], draft, &view);
    return MM_OK;
}

static mm_status take_inputs(onnx_import *m, const Onnx__GraphProto *graph) {
    const Onnx__ValueInfoProto *input = NULL;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfoProto *info = graph->input[i];
        if (!info->name || is_initializer(m, info->name)) continue; /* old files list initializers, too */
        const int value = mm_names_find(&m->names, info->name);
        if (value < 0) continue; /* no node reads it */
        if (input)
            return mm_fail(MM_ERR_UNSUPPORTED, "%s: two inputs, %.64s and %.64s; networks here have one", m->path,
                           input->name, info->name);
        input = info;
    }
    if (!input) return mm_fail(MM_ERR_FORMAT, "%s: its graph has no input", m->path);
    return take_input(m, input);
}

/* Messages are one line, and have names in them. */
static void make_line(char *text) {
    for (; text && *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7F) *text = '?';
}

static void make_lines(Onnx__GraphProto *graph) {
    for (size_t i = 0; i < graph->n_node; i++) {
        Onnx__NodeProto *node = graph->node[i];
        make_line(node->name);
        make_line(node->op_type);
        for (size_t k = 0; k < node->n_input; k++) make_line(node->input[k]);
        for (size_t k = 0; k < node->n_output; k++) make_line(node->output[k]);
        for (size_t k = 0; k < node->n_attribute; k++) {
            make_line(node->attribute[k]->name);
            if (node->attribute[k]->t) make_line(node->attribute[k]->t->name);
        }
    }
    for (size_t i = 0; i < graph->n_initializer; i++) {
        make_line(graph->initializer[i]->name);
        for (size_t k = 0; k < graph->initializer[i]->n_external_data; k++)
            make_line(graph->initializer[i]->external_data[k]->value);
    }
    for (size_t i = 0; i < graph->n_input; i++) {
        Onnx__ValueInfoProto *input = graph->input[i];
        make_line(input->name);
        if (!input->type || !input->type->tensor_type || !input->type->tensor_type->shape) continue;
        for (size_t d = 0; d < input->type->tensor_type->shape->n_dim; d++)
            make_line(input->type->tensor_type->shape->dim[d]->dim_param);
    }
    for (size_t i = 0; i < graph->n_output; i++) make_line(graph->output[i]->name);
}

static mm_status link_all(onnx_import *m, const Onnx__GraphProto *graph) {
    size_t n_links = 0;
    for (size_t i = 0; i < graph->n_node; i++) n_links += graph->node[i]->n_input + graph->node[i]->n_output;
    const size_t n_values = n_links + graph->n_initializer + graph->n_input + 1;
    if (graph->n_node > NODES_MOST || n_values > VALUES_MOST)
        return mm_fail(MM_ERR_UNSUPPORTED, "%s: more than %d nodes or %d tensors", m->path, NODES_MOST, VALUES_MOST);
    m->values = calloc(n_values, sizeof *m->values);
    m->links = calloc(n_links + 1, sizeof *m->links);
    m->nodes = calloc(graph->n_node + 1, sizeof *m->nodes);
    m->joined = calloc(3 * n_links + 1, sizeof *m->joined); /* attention joins three where it has two inputs */
    if (!m->values || !m->links || !m->nodes || !m->joined)
        return mm_fail(MM_ERR_NOMEM, "%s: no memory for its nodes", m->path);
    int linked = 0, value;
    for (size_t i = 0; i < graph->n_node; i++) MM_TRY(link_node(m, graph->node[i], &linked));
    for (size_t i = 0; i < graph->n_initializer; i++) {
        if (!graph->initializer[i]->name) continue;
        MM_TRY(value_of(m, graph->initializer[i]->name, &value));
        m->values[value].kind = ONNX_CONSTANT;
        m->values[value].initializer = graph->initializer[i];
    }
    MM_TRY(take_inputs(m, graph));
    m->output = graph->n_output && graph->output[0]->name ? mm_names_find(&m->names, graph->output[0]->name) : -1;
    if (m->output < 0) return mm_fail(MM_ERR_FORMAT, "%s: no node gives its output", m->path);
    m->values[m->output].uses++;
    return MM_OK;
}

mm_status onnx_model_unpack(onnx_import *m, const uint8_t *data, int64_t bytes) {
    m->model = onnx__model_proto__unpack(NULL, (size_t)bytes, data);
    /* protobuf-c does not say whether memory ran out or the file is none. */
    if (m->model) return MM_OK;
    return mm_fail(MM_ERR_FORMAT, "%s: not an ONNX file, or damaged, or too large for the memory", m->path);
}

mm_status onnx_model_link(onnx_import *m) {
    for (size_t i = 0; i < m->model->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = m->model->opset_import[i];
        if (!set->domain || !*set->domain || strcmp(set->domain, "ai.onnx") == 0) m->opset = set->version;
    }
    if (!m->model->graph || !m->opset) return mm_fail(MM_ERR_FORMAT, "%s: not an ONNX file, or damaged", m->path);
    if (m->opset < OLDEST_OPSET)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "%s: its operations are of version %lld; export again with opset_version=%d or a later one",
                       m->path, (long long)m->opset, OLDEST_OPSET);
    make_lines(m->model->graph);
    return link_all(m, m->model->graph);
}
