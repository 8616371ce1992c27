/* The header of a safetensors file as data, apart from files: what both directions share, and the parser. */
#ifndef NETS_IO_SAFETENSORS_HEADER_H
#define NETS_IO_SAFETENSORS_HEADER_H

#include "nets/io/safetensors.h"

#define NETS_SAFETENSORS_METADATA "__metadata__"
/* The format's own limit. */
#define NETS_SAFETENSORS_MAX_HEADER_BYTES 100000000

typedef struct nets_safetensors_header {
    struct json_t *json;              /* owns the names and the metadata */
    nets_safetensors_tensor *tensors; /* in the order of the data; their data points into the parsed bytes */
    int64_t *order;                   /* indices of tensors, sorted by name */
    int64_t n_tensors;
} nets_safetensors_header;

/* Parses a whole file in memory, which must stay as long as the header. `label` names it in messages.
 * MM_ERR_FORMAT: what is wrong. Free with fini; nothing to free on failure. */
MM_CHECKED mm_status nets_safetensors_header_init(nets_safetensors_header *header, const char *label,
                                                  const uint8_t *bytes, int64_t n_bytes);
void nets_safetensors_header_fini(nets_safetensors_header *header);

const nets_safetensors_tensor *nets_safetensors_header_find(const nets_safetensors_header *header, const char *name);

/* NETS_SAFETENSORS_DTYPES if there is none of that name. */
nets_safetensors_dtype nets_safetensors_dtype_find(const char *name);
int64_t nets_safetensors_dtype_bytes(nets_safetensors_dtype dtype);

/* "F32 [16,3,3,3]". Returns buffer. */
const char *nets_safetensors_describe(const nets_safetensors_tensor *tensor, char *buffer, size_t capacity);

#endif
