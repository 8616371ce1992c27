/* SPDX-License-Identifier: MIT */
/* Which tensors of a safetensors file are a network's parameters. Published files have the names of torchvision and of
 * GPT-2's, perhaps with a prefix that a wrapper added (DataParallel's "module.", torch.compile's "_orig_mod."), and
 * elements of 16 bits. */
#ifndef TOOLS_TRAIN_WEIGHTS_H
#define TOOLS_TRAIN_WEIGHTS_H

#include "nets/io/safetensors.h"
#include "nets/net.h"

enum { WEIGHTS_PREFIX_CAPACITY = 48 };
typedef struct weights_prefix {
    char text[WEIGHTS_PREFIX_CAPACITY]; /* "": names are the network's own */
} weights_prefix;

/* The prefix of the file's names: of those that wrappers make, the one with which it has most of the network's
 * parameters. */
weights_prefix weights_find_prefix(const nets_safetensors_file *file, const nets_net *net);

/* Finds a parameter in the file: a tensor with the prefix and its name, of its shape, of type F32, F16, BF16 or F64.
 * NULL: there is none, or it differs (weights_check says how). */
const nets_safetensors_tensor *weights_find(const nets_safetensors_file *file, const weights_prefix *prefix,
                                            const nets_param *param);

/* Which parameters a file must have: a state all but frozen ones, a base (--base) those alone. */
typedef enum weights_need { WEIGHTS_STATE, WEIGHTS_BASE } weights_need;

/* Checks that the file has these parameters. MM_ERR_FORMAT: some are missing or differ; the message says which, and how
 * the first one does. */
MM_CHECKED mm_status weights_check(const nets_safetensors_file *file, const nets_net *net, weights_need need);

/* Prints on stderr how many parameters the file of this option has, and names those that it does not have, which start
 * from their initial values. MM_ERR_FORMAT: it has none. */
MM_CHECKED mm_status weights_report(const nets_safetensors_file *file, const nets_net *net, const char *option,
                                    const char *path);

/* Reads n elements of a tensor of the file, from element `first` on, as floats. F64 is rounded. raw: memory of at least
 * 8 * n bytes. MM_ERR_IO. */
MM_CHECKED mm_status weights_read(const nets_safetensors_file *file, const nets_safetensors_tensor *tensor,
                                  int64_t first, int64_t n, void *raw, float *values_out);

#endif
