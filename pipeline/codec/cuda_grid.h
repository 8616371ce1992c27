/* SPDX-License-Identifier: MIT */
/* The grids of codecs' kernels, for *_cuda.cu only. Every kernel loops over its work in steps of gridDim.x * blockDim.x
 * threads. A stride is the work of one block in one step.
 *
 * Without sms=, on all multiprocessors: many blocks of 256 threads, each of which processes about 64 KiB of values in
 * at most 8 strides, and ends. Blocks are short because priorities of streams act only when a block begins: a running
 * one is not pre-empted. If 528 blocks (4 on each of an H200's 132 multiprocessors; zfp's 4 take 57 Ki of its 64 Ki
 * registers) looped over a map of 411 MB, convolutions would find no room for 200 us. At 2 TB/s a multiprocessor
 * processes 15 KB of values per us, so its four blocks of 64 KiB end within 17 us, one every 4 us, and more urgent
 * blocks begin then. All numbers are calculated, not measured. The size of a stride depends on the codec:
 *
 *      zfp, 2-D         16 KiB     4 strides       1-D 4 KiB, 8; 3-D 64 KiB, 1
 *      dpr, mx, group   4 to 8     8
 *      mask             32         2
 *      chunks           32         2               a warp takes a chunk of 4 KiB; a block of encode takes 8 per ticket
 *
 * The set-up of a block (tables, its position: some 200 instructions per thread in zfp) is 7 % of 4 strides of 700
 * instructions. If a map is too small for as many blocks as run at once, blocks first take fewer strides, then have
 * fewer threads, so that all multiprocessors have some.
 *
 * With sms=N: at most N blocks of 1024 threads loop over all the work. A block runs on one multiprocessor, so they use
 * at most N. 4 N blocks of 256 threads would be spread over 4 N multiprocessors. Kernels of more than 64 registers per
 * thread (zfp's in 3 dimensions: 128) have 512 threads: as many as a multiprocessor has registers for. */
#ifndef PIPELINE_CODEC_CUDA_GRID_H
#define PIPELINE_CODEC_CUDA_GRID_H

#include <stdint.h>

#include "mm/device/cuda/cuda_launch.h"

namespace {

constexpr unsigned LEAN_THREADS = 256, FAT_THREADS = 1024, THREADS_OF_WARP = 32;
constexpr unsigned MOST_STRIDES = 8, BLOCK_BYTES = 64 << 10;
constexpr unsigned TOGETHER = 4; /* lean blocks of 64 registers a thread that a multiprocessor runs at once */
constexpr size_t SHARED_UNASKED = 48 << 10;      /* shared memory that a block may have by default */
constexpr uint64_t MOST_BLOCKS = (1u << 31) - 1; /* of a launch */

/* A kernel's work, and its limits. */
struct grid_request {
    uint64_t threads;      /* threads needed if each did a single step */
    unsigned thread_bytes; /* values that a thread takes in a step */
    int sms;               /* most multiprocessors; 0: all */
    unsigned fat_threads;  /* threads of a block with sms=: the kernel's __launch_bounds__ */
    unsigned least_warps;  /* fewest warps of a block, however little work there is */
    size_t warp_bytes;     /* dynamic shared memory of a warp */
    size_t static_bytes;   /* static shared memory of a block */
};

struct codec_grid {
    unsigned blocks, threads;
    size_t shared_bytes;      /* dynamic */
    size_t most_shared_bytes; /* the most that a block can get, static and dynamic */
};

inline unsigned warps_within(size_t bytes, const grid_request &of, unsigned warps) {
    if (of.warp_bytes == 0 || warps * of.warp_bytes + of.static_bytes <= bytes) return warps;
    return bytes < of.static_bytes + of.warp_bytes ? 1 : (unsigned)((bytes - of.static_bytes) / of.warp_bytes);
}

/* The grid on a GPU with so many multiprocessors, whose blocks can get so much shared memory. */
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

/* The grid on the current device. */
inline cudaError_t grid_of(const grid_request &of, codec_grid *grid_out) {
    int device, multiprocessors, shared_bytes;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess) *grid_out = grid_on((unsigned)multiprocessors, (size_t)shared_bytes, of);
    return error;
}

/* Call it before a launch. If blocks need more shared memory than by default, raises the kernel's limit to all there
 * is. The limit belongs to the kernel, not to the launch, so lowering it would break launches by other threads, and
 * recorded launches. The size of the kernel's static shared memory comes from CUDA, because the compiler aligns and
 * pads it. */
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
