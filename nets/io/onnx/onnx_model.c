/* SPDX-License-Identifier: MIT */
/* The file: its bytes, its message, and its constants. */
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

mm_status onnx_model_unpack(onnx_import *m, const uint8_t *data, int64_t bytes) {
    m->model = onnx__model_proto__unpack(NULL, (size_t)bytes, data);
    /* protobuf-c does not say whether memory ran out or the file is none. */
    if (m->model) return MM_OK;
    return mm_fail(MM_ERR_FORMAT, "%s: not an ONNX file, or damaged, or too large for the memory", m->path);
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

bool onnx_is_real(int type) { return type == FLOAT || type == FLOAT16 || type == DOUBLE || type == BFLOAT16; }

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
        else if (onnx_is_real(type))
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
    MM_TRY(onnx_tensor_create(&m->tensors, onnx_is_real(type), (int)proto->n_dims, proto->dims, &tensor));
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
    onnx_initializer *from = value->initializer;
    if (!value->constant && !from->tensor) {
        MM_TRY(onnx_tensor_read(m, from->proto, &from->tensor));
        free(from->proto->raw_data.data); /* weights are large: they are in memory once */
        from->proto->raw_data = (ProtobufCBinaryData){0, NULL};
    }
    if (!value->constant) value->constant = from->tensor;
    *tensor_out = value->constant;
    return MM_OK;
}
