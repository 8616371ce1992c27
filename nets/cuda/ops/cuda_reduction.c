/* SPDX-License-Identifier: MIT */
/* Describes a layer's reductions: how its map is cut, and the backend's counters of blocks (reduce.h). All ops share
 * the counters, because a backend's ops run one at a time and a launch leaves the counters at 0. */
#include "nets/cuda/cuda_ops.h"

/* 256 KiB: enough to sum 170000 channels with two groups of blocks, far more than layers have. */
enum { COUNTERS = 1 << 16 };

/* Sets memory to zero and waits. It uses a stream of its own, because the kernels' streams do not wait for the default
 * stream. */
static mm_status clear(void *memory, size_t bytes) {
    cudaStream_t stream;
    MM_TRY(
        mm_cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority"));
    mm_status status = mm_cuda_check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
    if (status == MM_OK) status = mm_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    (void)cudaStreamDestroy(stream);
    return status;
}

/* Allocates the counters when the first op needs them. */
static mm_status take_counters(nets_cuda_backend *cuda) {
    void *counters = NULL;
    if (cuda->counters) return MM_OK;
    MM_TRY(mm_cuda_check(cudaMalloc(&counters, COUNTERS * sizeof *cuda->counters), "cudaMalloc"));
    const mm_status status = clear(counters, COUNTERS * sizeof *cuda->counters);
    if (status != MM_OK) {
        (void)cudaFree(counters);
        return status;
    }
    cuda->counters = counters;
    return MM_OK;
}

mm_status nets_cuda_reduction_init(nets_cuda_reduction *over, nets_cuda_backend *cuda, const nets_shape *map) {
    const int64_t channels = nets_shape_channels(map), rows = nets_shape_rows(map);
    const nets_strips strips = map->rank == 4 ? nets_strips_of(map->dims[0], map->dims[1], map->dims[2], channels)
                                              : nets_strips_of(1, rows, 1, channels);
    char text[NETS_SHAPE_TEXT_CAPACITY];
    if (nets_strips_counters(&strips) > COUNTERS)
        return mm_fail(MM_ERR_UNSUPPORTED, "to sum over the pixels of %s takes %lld counters of blocks; there are %d",
                       nets_shape_text(map, text), (long long)nets_strips_counters(&strips), (int)COUNTERS);
    if (cuda->gpu) MM_TRY(take_counters(cuda));
    *over = (nets_cuda_reduction){.strips = strips, .counters = cuda->counters};
    return MM_OK;
}
