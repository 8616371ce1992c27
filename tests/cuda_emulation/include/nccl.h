/* SPDX-License-Identifier: MIT */
/* The part of NCCL that the communicator nccl calls. tests/cuda_emulation/nccl.c implements it: a library that is
 * opened at run time, as NCCL is. */
#ifndef TESTS_CUDA_EMULATION_INCLUDE_NCCL_H
#define TESTS_CUDA_EMULATION_INCLUDE_NCCL_H

#include <stddef.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_UNIQUE_ID_BYTES 128

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef enum { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidArgument = 4, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclSum = 0, ncclAvg = 4 } ncclRedOp_t;
typedef enum { ncclInt32 = 2, ncclFloat32 = 7 } ncclDataType_t;

#define NCCL_CALL __attribute__((visibility("default")))
NCCL_CALL ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
NCCL_CALL ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
NCCL_CALL ncclResult_t ncclCommDestroy(ncclComm_t comm);
NCCL_CALL ncclResult_t ncclCommAbort(ncclComm_t comm);
NCCL_CALL ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
NCCL_CALL ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     ncclComm_t comm, cudaStream_t stream);
NCCL_CALL ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                         ncclComm_t comm, cudaStream_t stream);
NCCL_CALL ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                     cudaStream_t stream);
NCCL_CALL ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                     ncclComm_t comm, cudaStream_t stream);
NCCL_CALL ncclResult_t ncclGroupStart(void);
NCCL_CALL ncclResult_t ncclGroupEnd(void);
NCCL_CALL const char *ncclGetErrorString(ncclResult_t result);

#ifdef __cplusplus
}
#endif

#endif
