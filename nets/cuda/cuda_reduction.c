/* What a layer's sums go over: the cut of its map, and counters of blocks (reduce.h). */
#include "nets/cuda/cuda_ops.h"

/* On a stream of its own: the kernels' streams do not wait for the default one. */
static mm_status clear(void *memory, size_t bytes) {
    cudaStream_t stream;
    MM_TRY(
        mm_cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), "cudaStreamCreateWithPriority"));
    mm_status status = mm_cuda_check(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
    if (status == MM_OK) status = mm_cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    (void)cudaStreamDestroy(stream);
    return status;
}

static mm_status take_counters(nets_cuda_reduction *over) {
    const size_t bytes = (size_t)nets_strips_counters(&over->strips) * sizeof *over->counters;
    void *counters = NULL;
    MM_TRY(mm_cuda_check(cudaMalloc(&counters, bytes), "cudaMalloc"));
    over->counters = counters;
    return clear(counters, bytes);
}

mm_status nets_cuda_reduction_init(nets_cuda_reduction *over, nets_cuda_backend *cuda, const nets_shape *map) {
    const int64_t channels = nets_shape_channels(map), rows = nets_shape_rows(map);
    *over = (nets_cuda_reduction){.strips = map->rank == 4
                                                ? nets_strips_of(map->dims[0], map->dims[1], map->dims[2], channels)
                                                : nets_strips_of(rows, 1, 1, channels),
                                  .gpu = cuda->gpu};
    return cuda->gpu ? take_counters(over) : MM_OK;
}

void nets_cuda_reduction_fini(nets_cuda_reduction *over) {
    bool entered;
    if (!over->counters || mm_cuda_gpu_enter(over->gpu, true, &entered) != MM_OK) return;
    (void)cudaFree(over->counters);
    if (entered) mm_cuda_gpu_leave(over->gpu);
    over->counters = NULL;
}
