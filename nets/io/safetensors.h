/* Files in the safetensors format: named tensors in a flat little-endian file.
 *
 *      8 bytes  length of the header, n
 *      n bytes  JSON: {"name": {"dtype": "F32", "shape": [16, 3], "data_offsets": [0, 192]}, ...,
 *                      "__metadata__": {"key": "text", ...}}, padded with spaces
 *      the rest data; offsets count from its beginning; the tensors fill it without holes or overlap
 *
 * Writing is deterministic: equal tensors and metadata give equal bytes. Tensors lie by falling element size, then by
 * name, so that each is aligned to its elements.
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
    const void *data; /* of a file without alignment to its elements: copy it out (nets_safetensors_read) */
} nets_safetensors_tensor;

/* "F32" and so on. */
const char *nets_safetensors_dtype_name(nets_safetensors_dtype dtype);

/* The tensor's data in bytes. MM_ERR_INVALID: dtype, rank or dims out of range, or too many bytes to count. */
MM_CHECKED mm_status nets_safetensors_bytes(const nets_safetensors_tensor *tensor, int64_t *bytes_out);

/* ---------------------------------------------------------------- writing */

typedef struct nets_safetensors_builder nets_safetensors_builder;

MM_CHECKED mm_status nets_safetensors_builder_create(nets_safetensors_builder **builder_out);
void nets_safetensors_builder_destroy(nets_safetensors_builder *builder); /* NULL is legal */

/* Adds a tensor. Its data is borrowed until the last write; its name is copied.
 * Data NULL: it is asked for when the file is written (nets_safetensors_write_from).
 * MM_ERR_INVALID: a name used twice or not UTF-8, see nets_safetensors_bytes. */
MM_CHECKED mm_status nets_safetensors_add(nets_safetensors_builder *builder, const nets_safetensors_tensor *tensor);

/* Adds a line of metadata (copied); a key given again replaces its text. MM_ERR_INVALID: not UTF-8. */
MM_CHECKED mm_status nets_safetensors_add_metadata(nets_safetensors_builder *builder, const char *key,
                                                   const char *text);

/* Writes all of it to `path`: into a new file of the same folder, which replaces `path` when it is complete and on
 * disk. On failure `path` is as it was and nothing is left over. MM_ERR_IO: names the path and the reason. */
MM_CHECKED mm_status nets_safetensors_write(nets_safetensors_builder *builder, const char *path);

/* Gives `bytes` of a tensor's data, from `offset` on. What it fails with is what the writing fails with. */
typedef mm_status (*nets_safetensors_fetch)(void *ctx, const nets_safetensors_tensor *tensor, int64_t offset,
                                            void *data_out, int64_t bytes);

/* The same, with the data of tensors that have none of their own in pieces of at most `piece_bytes`, from the first
 * to the last, of one tensor after the other: as much memory is taken meanwhile. */
MM_CHECKED mm_status nets_safetensors_write_from(nets_safetensors_builder *builder, const char *path,
                                                 int64_t piece_bytes, nets_safetensors_fetch fetch, void *ctx);

/* Whether nets_safetensors_write could write there now, so that a long run need not end with finding out. Leaves
 * nothing. MM_ERR_IO as above. */
MM_CHECKED mm_status nets_safetensors_writable(const char *path);

/* ---------------------------------------------------------------- reading */

typedef struct nets_safetensors_file nets_safetensors_file;

/* Maps a file and checks all of it but the data. MM_ERR_IO: cannot be read. MM_ERR_FORMAT: not a safetensors file, or
 * a damaged one: the message says what is wrong where. */
MM_CHECKED mm_status nets_safetensors_open(const char *path, nets_safetensors_file **file_out);
void nets_safetensors_close(nets_safetensors_file *file); /* NULL is legal; what was found in it is gone */

/* How many tensors there are. */
int64_t nets_safetensors_count(const nets_safetensors_file *file);

/* The tensor of that name, NULL if there is none. Valid until close. */
const nets_safetensors_tensor *nets_safetensors_find(const nets_safetensors_file *file, const char *name);

/* The data of the tensor of want's name, dtype, rank and dims (want->data is not looked at).
 * MM_ERR_FORMAT: the file has no such tensor, or it is another: a file of another network. */
MM_CHECKED mm_status nets_safetensors_get(const nets_safetensors_file *file, const nets_safetensors_tensor *want,
                                          const void **data_out);

/* Copies `bytes` from `offset` on of data found in the file, which must have as many. Reads the file, rather than having
 * its pages in memory. MM_ERR_IO: that cannot be. */
MM_CHECKED mm_status nets_safetensors_read(const nets_safetensors_file *file, const void *data, int64_t offset,
                                           void *values_out, int64_t bytes);

/* The metadata's text, NULL if there is no such key. Valid until close. */
const char *nets_safetensors_metadata(const nets_safetensors_file *file, const char *key);

#endif
