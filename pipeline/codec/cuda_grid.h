/* SPDX-License-Identifier: MIT */
/* How codecs' kernels are cut into blocks, for *_cuda.cu only. Every kernel of a codec takes its grid from here, and
 * steps over its work by gridDim.x * blockDim.x threads. A stride is what a block takes at one step.
 *
 * All multiprocessors (no sms=): many blocks of 256 threads, each of which takes about 64 KiB of values in at most 8
 * strides, and ends. Priorities of streams act only where a block begins: one that runs is not pre-empted. If 528
 * blocks (4 on each of an H200's 132 multiprocessors, where zfp's take 57 Ki of 64 Ki registers) stepped over a map of
 * 411 MB, convolutions would find no room for 200 us. With 2 TB/s a multiprocessor takes 15 KB of values a us, so that
 * its four blocks of 64 KiB end within 17 us, one every 4 us, and what is more urgent begins there. All numbers are
 * calculated, none is measured. The size of a stride depends on the codec:
 *
 *      zfp, 2-D         16 KiB     4 strides       1-D 4 KiB, 8; 3-D 64 KiB, 1
 *      dpr, mx, group   4 to 8     8
 *      mask             32         2
 *      chunks           32         2               a warp takes a chunk of 4 KiB; an encode's block eight by a ticket
 *
 * What a block does once (tables, its place: some 200 instructions a thread in zfp) is 7 % of 4 strides of 700. Where a
 * map is too small for as many blocks as run at once, blocks take fewer strides, then have fewer threads, that all
 * multiprocessors have some.
 *
 * sms=N: at most N blocks of 1024 threads, which step over all. A block is on one multiprocessor, so that they are on
 * at most N; blocks of 256 threads, of which 4 N run at once, would be spread over 4 N multiprocessors first. Kernels
 * of more than 64 registers (zfp's of 3 dimensions: 128) have 512 threads: as many as a multiprocessor has registers
 * for. */
#ifndef PIPELINE_CODEC_CUDA_GRID_H
#define PIPELINE_CODEC_CUDA_GRID_H

#include <stdint.h>

#include "mm/device/cuda/cuda_launch.h"

namespace {

constexpr unsigned LEAN_THREADS = 256, FAT_THREADS = 1024, THREADS_OF_WARP = 32;
constexpr unsigned MOST_STRIDES = 8, BLOCK_BYTES = 64 << 10;
constexpr unsigned TOGETHER = 4; /* lean blocks of 64 registers a thread that a multiprocessor runs at once */
constexpr size_t SHARED_UNASKED = 48 << 10;      /* which a block may have of shared memory without asking */
constexpr uint64_t MOST_BLOCKS = (1u << 31) - 1; /* of a launch */

/* What a kernel has to do, and what it takes. */
struct grid_request {
    uint64_t threads;      /* each of which does one step's work */
    unsigned thread_bytes; /* of values that a thread takes at a step */
    int sms;               /* most multiprocessors; 0: all */
    unsigned fat_threads;  /* of a block with sms=: the kernel's __launch_bounds__ */
    unsigned least_warps;  /* of a block, however little work there is */
    size_t warp_bytes;     /* dynamic shared memory of a warp */
    size_t static_bytes;   /* shared memory of a block beside that */
};

struct codec_grid {
    unsigned blocks, threads;
    size_t shared_bytes;      /* dynamic */
    size_t most_shared_bytes; /* of a block, static and dynamic, if it asks for that */
};

inline unsigned warps_within(size_t bytes, const grid_request &of, unsigned warps) {
    if (of.warp_bytes == 0 || warps * of.warp_bytes + of.static_bytes <= bytes) return warps;
    return bytes < of.static_bytes + of.warp_bytes ? 1 : (unsigned)((bytes - of.static_bytes) / of.warp_bytes);
}

/* For a GPU of so many multiprocessors, whose blocks may ask for that much shared memory. */
inline codec_grid grid_on(unsigned multiprocessors, size_t most_shared_bytes, const grid_request &of) {
    codec_grid grid = {};
    unsigned warps;
    if (of.sms > 0) {
        const uint64_t most = (unsigned)of.sms < multiprocessors ? (unsigned)of.sms : multiprocessors;
        warps = warps_within(most_shared_bytes, of, of.fat_threads / THREADS_OF_WARP);
        const uint64_t needed = (of.threads + warps * THREADS_OF_WARP - 1) / (warps * THREADS_OF_WARP);
        grid.blocks = (unsigned)(needed < most ? needed : most);
    } else {
        const uint64_t each = (of.threads + multiprocessors - 1) / multiprocessors;
        const uint64_t each_warps = (each + THREADS_OF_WARP - 1) / THREADS_OF_WARP;
        warps = LEAN_THREADS / THREADS_OF_WARP;
        if (each_warps < warps) warps = (unsigned)each_warps;
        if (warps < of.least_warps) warps = of.least_warps;
        warps = warps_within(SHARED_UNASKED, of, warps);
        const uint64_t threads = warps * THREADS_OF_WARP, strides = (of.threads + threads - 1) / threads;
        const uint64_t stride_bytes = threads * of.thread_bytes, at_once = (uint64_t)multiprocessors * TOGETHER;
        uint64_t each_strides = stride_bytes < BLOCK_BYTES ? BLOCK_BYTES / stride_bytes : 1;
        if (each_strides > MOST_STRIDES) each_strides = MOST_STRIDES;
        if (each_strides > strides / at_once) each_strides = strides < at_once ? 1 : strides / at_once;
        const uint64_t blocks = (strides + each_strides - 1) / each_strides;
        grid.blocks = (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    }
    grid.threads = warps * THREADS_OF_WARP;
    grid.shared_bytes = warps * of.warp_bytes;
    grid.most_shared_bytes = most_shared_bytes;
    return grid;
}

/* On the current device. */
inline cudaError_t grid_of(const grid_request &of, codec_grid *grid_out) {
    int device, multiprocessors, shared_bytes;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess) *grid_out = grid_on((unsigned)multiprocessors, (size_t)shared_bytes, of);
    return error;
}

/* To be called before a launch whose blocks may have more shared memory than they may without asking. It asks for all
 * there is: the limit is the kernel's, not the launch's, so that a lower one would be in the way of launches of other
 * threads and of recorded ones. The kernel's static shared memory is asked of CUDA: the compiler aligns and pads it. */
template <typename KERNEL> cudaError_t ask_for_shared(KERNEL *kernel, const grid_request &of, const codec_grid &grid) {
    if (grid.shared_bytes + of.static_bytes <= SHARED_UNASKED) return cudaSuccess;
    cudaFuncAttributes has;
    const cudaError_t error = cudaFuncGetAttributes(&has, kernel);
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)(grid.most_shared_bytes - has.sharedSizeBytes));
}

} // namespace

#endif
