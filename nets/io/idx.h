/* SPDX-License-Identifier: MIT */
/* Reads IDX files, the format of MNIST (LeCun et al. 1998) and of data sets like it: unsigned bytes, plain or
 * compressed by gzip. */
#ifndef NETS_IO_IDX_H
#define NETS_IO_IDX_H

#include "mm/core/status.h"

enum { NETS_IDX_MAX_RANK = 3 };

/* Reads the whole array into bytes_out, which has room for the product of `dims`, below 4 GiB; nothing is written
 * beyond it, whatever the file holds. MM_ERR_IO: the file is missing or unreadable. MM_ERR_FORMAT: it is not an array
 * of these dims, is damaged or too short, or has bytes behind its last element. Messages name the path. */
MM_CHECKED mm_status nets_idx_read(const char *path, int rank, const int64_t dims[], uint8_t *bytes_out);

#endif
