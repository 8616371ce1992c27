/* SPDX-License-Identifier: MIT */
/* Files in the safetensors format: named tensors in a flat little-endian file.
 *
 *      8 bytes  length of the header, n
 *      n bytes  JSON: {"name": {"dtype": "F32", "shape": [16, 3], "data_offsets": [0, 192]}, ...,
 *                      "__metadata__": {"key": "text", ...}}, padded with spaces
 *      the rest data; offsets count from its beginning; the tensors fill it without holes or overlap
 *
 * Writing is deterministic: equal tensors and metadata give equal bytes. Tensors are sorted by falling element size,
 * then by name, so each is aligned to its elements.
 *
 * Threads: a builder belongs to one thread at a time; an open file may be read by any. */
#ifndef NETS_IO_SAFETENSORS_H
#define NETS_IO_SAFETENSORS_H

#include "mm/mm.h"

enum { NETS_SAFETENSORS_MAX_RANK = 8 };

typedef enum nets_safetensors_dtype {
    NETS_SAFETENSORS_F64,
    NETS_SAFETENSORS_I64,
    NETS_SAFETENSORS_U64,
    NETS_SAFETENSORS_F32,
    NETS_SAFETENSORS_I32,
    NETS_SAFETENSORS_U32,
    NETS_SAFETENSORS_F16,
    NETS_SAFETENSORS_BF16,
    NETS_SAFETENSORS_I16,
    NETS_SAFETENSORS_U16,
    NETS_SAFETENSORS_I8,
    NETS_SAFETENSORS_U8,
    NETS_SAFETENSORS_BOOL,
    NETS_SAFETENSORS_DTYPES
} nets_safetensors_dtype;

typedef struct nets_safetensors_tensor {
    const char *name;
    nets_safetensors_dtype dtype;
    int rank; /* 0: one element */
    int64_t dims[NETS_SAFETENSORS_MAX_RANK];
    const void *data; /* in a file that was opened, perhaps not aligned to its elements (nets_safetensors_read) */
} nets_safetensors_tensor;

/* The type's name in files, such as "F32". */
const char *nets_safetensors_dtype_name(nets_safetensors_dtype dtype);

/* The bytes of an element. */
int64_t nets_safetensors_dtype_bytes(nets_safetensors_dtype dtype);

/* The bytes of the tensor's data. MM_ERR_INVALID: dtype, rank or dims are out of range, or the bytes overflow. */
MM_CHECKED mm_status nets_safetensors_bytes(const nets_safetensors_tensor *tensor, int64_t *bytes_out);

/* ---------------------------------------------------------------- writing */

typedef struct nets_safetensors_builder nets_safetensors_builder;

MM_CHECKED mm_status nets_safetensors_builder_create(nets_safetensors_builder **builder_out);
void nets_safetensors_builder_destroy(nets_safetensors_builder *builder); /* NULL is legal */

/* Adds a tensor. Its name is copied; its data is borrowed until the last write. Data NULL: nets_safetensors_write_from
 * fetches it. MM_ERR_INVALID: the name is used twice or not UTF-8, or as nets_safetensors_bytes. */
MM_CHECKED mm_status nets_safetensors_add(nets_safetensors_builder *builder, const nets_safetensors_tensor *tensor);

/* Adds a line of metadata (copied); a key given again replaces its text. MM_ERR_INVALID: not UTF-8. */
MM_CHECKED mm_status nets_safetensors_add_metadata(nets_safetensors_builder *builder, const char *key,
                                                   const char *text);

/* Writes the file `path`: a new file in the same folder, which replaces `path` when it is complete and on disk. On
 * failure `path` is unchanged and the new file is removed. MM_ERR_IO: the message names the path and the reason. */
MM_CHECKED mm_status nets_safetensors_write(nets_safetensors_builder *builder, const char *path);

/* Gives `bytes` of a tensor's data from `offset` on. If it fails, the write fails with the same status. */
typedef mm_status (*nets_safetensors_fetch)(void *ctx, const nets_safetensors_tensor *tensor, int64_t offset,
                                            void *data_out, int64_t bytes);

/* The same; the data of tensors added without data is fetched in pieces of at most `piece_bytes`, in order, one tensor
 * after the other. It allocates one piece. `path` NULL: all is fetched, and nothing written; for ranks that only help
 * another one to fetch. */
MM_CHECKED mm_status nets_safetensors_write_from(nets_safetensors_builder *builder, const char *path,
                                                 int64_t piece_bytes, nets_safetensors_fetch fetch, void *ctx);

/* ---------------------------------------------------------------- reading */

typedef struct nets_safetensors_file nets_safetensors_file;

/* Maps a file and checks everything but the data. MM_ERR_IO: it cannot be read. MM_ERR_FORMAT: it is not a safetensors
 * file, or damaged; the message says what is wrong and where. */
MM_CHECKED mm_status nets_safetensors_open(const char *path, nets_safetensors_file **file_out);
void nets_safetensors_close(nets_safetensors_file *file); /* NULL is legal; pointers into the file become invalid */

/* How many tensors there are. */
int64_t nets_safetensors_count(const nets_safetensors_file *file);

/* The tensor of that name, NULL if there is none. Valid until close. */
const nets_safetensors_tensor *nets_safetensors_find(const nets_safetensors_file *file, const char *name);

/* Finds the data of the tensor with want's name, and checks its dtype, rank and dims; want->data is ignored.
 * MM_ERR_FORMAT: the file has no such tensor, or it differs, as in a file of another network. */
MM_CHECKED mm_status nets_safetensors_get(const nets_safetensors_file *file, const nets_safetensors_tensor *want,
                                          const void **data_out);

/* Copies `bytes` of data that was found in the file, from `offset` on; the data must have as many. It reads the file,
 * so the mapping's pages do not stay in memory. MM_ERR_IO: the file cannot be read. */
MM_CHECKED mm_status nets_safetensors_read(const nets_safetensors_file *file, const void *data, int64_t offset,
                                           void *values_out, int64_t bytes);

/* The metadata's text, NULL if there is no such key. Valid until close. */
const char *nets_safetensors_metadata(const nets_safetensors_file *file, const char *key);

#endif
