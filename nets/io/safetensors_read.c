/* SPDX-License-Identifier: MIT */
/* An open safetensors file: a private mapping, and the parsed header over it. */
#include "nets/io/safetensors.h"

#include "mm/core/nearest.h"
#include "mm/core/status.h"
#include "nets/io/safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct nets_safetensors_file {
    char *path;
    void *mapping;
    size_t mapping_bytes;
    int fd;
    nets_safetensors_header header;
};

static mm_status map_descriptor(const char *path, nets_safetensors_file *file) {
    int fd = file->fd;
    struct stat info;
    if (fstat(fd, &info) != 0) return mm_fail(MM_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return mm_fail(MM_ERR_FORMAT, "%s: not a regular file", path);
    if (info.st_size == 0) return mm_fail(MM_ERR_FORMAT, "%s: empty, not a safetensors file", path);
    void *mapping = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED) return mm_fail(MM_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    file->mapping = mapping;
    file->mapping_bytes = (size_t)info.st_size;
    return MM_OK;
}

static mm_status map_file(const char *path, nets_safetensors_file *file) {
    /* O_NONBLOCK: if the path is a FIFO, open would otherwise wait for a writer before the FIFO can be refused. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) return mm_fail(MM_ERR_IO, "%s: %s%s", path, strerror(errno), MM_DID_YOU_MEAN_FILE(path));
    return map_descriptor(path, file);
}

mm_status nets_safetensors_open(const char *path, nets_safetensors_file **file_out) {
    nets_safetensors_file *file = calloc(1, sizeof *file);
    mm_status status = MM_OK;
    if (file) file->fd = -1;
    if (file) file->path = strdup(path);
    if (!file || !file->path) status = mm_fail(MM_ERR_NOMEM, "%s: no memory to open it", path);
    if (status == MM_OK) status = map_file(path, file);
    if (status == MM_OK)
        status = nets_safetensors_header_init(&file->header, path, file->mapping, (int64_t)file->mapping_bytes);
    if (status != MM_OK) {
        nets_safetensors_close(file);
        return status;
    }
    *file_out = file;
    return MM_OK;
}

void nets_safetensors_close(nets_safetensors_file *file) {
    if (!file) return;
    nets_safetensors_header_fini(&file->header);
    if (file->mapping) munmap(file->mapping, file->mapping_bytes);
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    free(file);
}

int64_t nets_safetensors_count(const nets_safetensors_file *file) { return file->header.n_tensors; }

const nets_safetensors_tensor *nets_safetensors_find(const nets_safetensors_file *file, const char *name) {
    return nets_safetensors_header_find(&file->header, name);
}

mm_status nets_safetensors_get(const nets_safetensors_file *file, const nets_safetensors_tensor *want,
                               const void **data_out) {
    char wanted[160], found[160];
    const nets_safetensors_tensor *tensor = nets_safetensors_find(file, want->name);
    if (!tensor)
        return mm_fail(MM_ERR_FORMAT, "%s: of another network: it has no tensor %s (%s)", file->path, want->name,
                       nets_safetensors_describe(want, wanted, sizeof wanted));
    if (tensor->dtype != want->dtype || tensor->rank != want->rank ||
        memcmp(tensor->dims, want->dims, (size_t)want->rank * sizeof *want->dims) != 0)
        return mm_fail(MM_ERR_FORMAT, "%s: of another network: its tensor %s is %s, expected %s", file->path,
                       want->name, nets_safetensors_describe(tensor, found, sizeof found),
                       nets_safetensors_describe(want, wanted, sizeof wanted));
    *data_out = tensor->data;
    return MM_OK;
}

mm_status nets_safetensors_read(const nets_safetensors_file *file, const void *data, int64_t offset, void *values_out,
                                int64_t bytes) {
    off_t at = (const char *)data - (const char *)file->mapping + offset;
    for (char *to = values_out; bytes > 0;) {
        ssize_t n = pread(file->fd, to, (size_t)bytes, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return mm_fail(MM_ERR_IO, "%s: cannot be read: %s", file->path,
                           n < 0 ? strerror(errno) : "it was cut short meanwhile");
        to += n;
        at += n;
        bytes -= n;
    }
    return MM_OK;
}

const char *nets_safetensors_metadata(const nets_safetensors_file *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header.json, NETS_SAFETENSORS_METADATA), key));
}
