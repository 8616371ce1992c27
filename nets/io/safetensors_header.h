/* SPDX-License-Identifier: MIT */
/* A safetensors file's header as data: its parser, and functions that reading and writing share. */
#ifndef NETS_IO_SAFETENSORS_HEADER_H
#define NETS_IO_SAFETENSORS_HEADER_H

#include "nets/io/safetensors.h"

#define NETS_SAFETENSORS_METADATA "__metadata__"
/* The limit of the format's reference implementation. */
#define NETS_SAFETENSORS_MAX_HEADER_BYTES 100000000

typedef struct nets_safetensors_header {
    struct json_t *json;              /* owns the names and the metadata */
    nets_safetensors_tensor *tensors; /* in the order of the data; `data` points into the parsed bytes */
    int64_t *order;                   /* indices of the tensors, sorted by name */
    int64_t n_tensors;
} nets_safetensors_header;

/* Parses a whole file in memory; `bytes` must outlive the header. `label` names the file in messages. MM_ERR_FORMAT:
 * the message says what is wrong. Free with fini; on failure nothing is left to free. */
MM_CHECKED mm_status nets_safetensors_header_init(nets_safetensors_header *header, const char *label,
                                                  const uint8_t *bytes, int64_t n_bytes);
void nets_safetensors_header_fini(nets_safetensors_header *header);

const nets_safetensors_tensor *nets_safetensors_header_find(const nets_safetensors_header *header, const char *name);

/* The type of a name in files; NETS_SAFETENSORS_DTYPES: there is none. */
nets_safetensors_dtype nets_safetensors_dtype_find(const char *name);

/* A tensor's type and shape as text, "F32 [16,3,3,3]". Returns `buffer`. */
const char *nets_safetensors_describe(const nets_safetensors_tensor *tensor, char *buffer, size_t capacity);

#endif
