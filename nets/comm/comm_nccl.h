/* SPDX-License-Identifier: MIT */
/* Private to the backend nccl. */
#ifndef NETS_COMM_COMM_NCCL_H
#define NETS_COMM_COMM_NCCL_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* sums[i] = the all[r * elems + i] of all ranks r, added up as COMM_COUNT says. All in device memory. */
cudaError_t comm_nccl_add_counts(cudaStream_t stream, const int32_t *all, int ranks, int elems, int32_t *sums);

#ifdef __cplusplus
}
#endif

#endif
