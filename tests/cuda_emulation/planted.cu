// SPDX-License-Identifier: MIT
#include "mm/device/cuda/cuda_launch.h"
#include "tests/cuda_emulation/planted.h"

namespace {

constexpr unsigned ALL = 0xffffffff;

/* The index of the thread's element: among all of the launch (own), and among its block's (mine). */
__device__ inline int own() { return (int)(blockIdx.x * blockDim.x + threadIdx.x); }
__device__ inline int mine() { return (int)threadIdx.x; }

/* ---------------------------------------------------------------- memcheck */

__global__ void past_the_end(planted_memory m, bool faulty) { m.out[own() + faulty] = 1; }

__global__ void before_the_beginning(planted_memory m, bool faulty) { m.out[own()] = m.values[own() - faulty]; }

__global__ void past_dynamic_shared(planted_memory m, bool faulty) {
    MM_DYNAMIC_SHARED(int, tile);
    tile[mine() + faulty] = 1;
    m.out[own()] = 1;
}

__global__ void past_an_array(planted_memory m, bool faulty) {
    __shared__ int tile[PLANTED_THREADS];
    tile[mine()] = 1;
    m.out[own()] = tile[faulty && mine() == 63 ? 64 : mine()];
}

__global__ void misaligned(planted_memory m, bool faulty) {
    if (mine() > 0) return;
    const int4 four = *reinterpret_cast<const int4 *>(m.values + (faulty ? 1 : 4));
    m.out[own()] = four.x + four.w;
}

__global__ void memory_of_the_host(planted_memory m, bool faulty) {
    m.out[own()] = (faulty ? m.host : m.values)[mine()];
}

__global__ void stack_of_another(planted_memory m, bool faulty) {
    __shared__ int *place;
    int local = mine();
    if (mine() == 0) place = faulty ? &local : m.values;
    __syncthreads();
    m.out[own()] = mine() ? *place : 0;
    __syncthreads();
}

__constant__ const int constant[PLANTED_THREADS] = {1, 2, 3};

__global__ void writes_a_constant(planted_memory m, bool faulty) {
    int *to = faulty ? const_cast<int *>(constant) : m.out + blockIdx.x * blockDim.x;
    to[mine()] = constant[mine()];
}

/* ---------------------------------------------------------------- initcheck */

__global__ void unwritten_shared(planted_memory m, bool faulty) {
    MM_DYNAMIC_SHARED(int, tile);
    if (!faulty || blockIdx.x == 0) tile[mine()] = 1; /* what an earlier block wrote does not count */
    m.out[own()] = tile[mine()];
}

__global__ void unwritten_variable(planted_memory m, bool faulty) {
    __shared__ int tile[PLANTED_THREADS];
    if (!faulty || mine() != 33) tile[mine()] = 1;
    m.out[own()] = tile[mine()];
}

__global__ void unwritten_device(planted_memory m, bool faulty) { m.out[own()] = (faulty ? m.fresh : m.values)[own()]; }

/* ---------------------------------------------------------------- racecheck */

__global__ void read_before_barrier(planted_memory m, bool faulty) {
    __shared__ int tile[PLANTED_THREADS];
    tile[mine()] = 0;
    __syncthreads();
    tile[mine()] = mine();
    if (!faulty) __syncthreads();
    m.out[own()] = tile[PLANTED_THREADS - 1 - mine()];
}

__global__ void write_before_barrier(planted_memory m, bool faulty) {
    __shared__ int tile[PLANTED_THREADS];
    tile[mine()] = mine();
    __syncthreads();
    const int other = tile[PLANTED_THREADS - 1 - mine()];
    if (!faulty) __syncthreads();
    tile[mine()] = other;
    m.out[own()] = other;
}

__global__ void shuffle_for_syncwarp(planted_memory m, bool faulty) {
    __shared__ int tile[PLANTED_THREADS];
    tile[mine()] = mine();
    if (faulty)
        __shfl_sync(ALL, 1, 0);
    else
        __syncwarp();
    m.out[own()] = tile[mine() ^ 1];
}

__global__ void syncwarp_of_others(planted_memory m, bool faulty) {
    __shared__ int tile[PLANTED_THREADS];
    tile[mine()] = mine();
    const unsigned half = mine() % 32 < 16 ? 0xffff : 0xffff0000;
    __syncwarp(half);
    m.out[own()] = tile[mine() ^ (faulty ? 16 : 8)];
}

__global__ void blocks_write_one_place(planted_memory m, bool faulty) { m.out[faulty ? mine() : own()] = 1; }

__global__ void block_reads_of_another(planted_memory m, bool faulty) {
    m.values[own()] = 1;
    m.out[own()] = m.values[faulty ? PLANTED_ELEMS - 1 - own() : own()];
}

__global__ void threads_write_one_byte(planted_memory m, bool faulty) {
    reinterpret_cast<char *>(m.out)[faulty ? own() / 2 : own()] = 1;
}

__global__ void plain_beside_atomic(planted_memory m, bool faulty) {
    atomicAdd(&m.values[0], 1);
    if (faulty && own() == 5) m.out[0] = m.values[0];
}

__global__ void order_of_blocks(planted_memory m, bool faulty) {
    const int ticket = atomicAdd(&m.values[0], 1);
    m.out[own()] = faulty ? ticket : 0;
}

/* ---------------------------------------------------------------- synccheck */

__global__ void half_at_barrier(planted_memory m, bool faulty) {
    if (!faulty || mine() < 32)
        __syncthreads();
    else
        __syncthreads();
    m.out[own()] = 1;
}

__global__ void half_has_ended(planted_memory m, bool faulty) {
    m.out[own()] = 1;
    if (faulty && mine() >= 32) return;
    __syncthreads();
}

__global__ void half_in_the_mask(planted_memory m, bool faulty) {
    m.out[own()] = 1;
    if (!faulty || mine() % 32 < 16) m.out[own()] = (int)__ballot_sync(ALL, 1);
    __syncthreads();
}

} // namespace

#define X(name)                                                                                                        \
    void planted_##name(cudaStream_t stream, planted_memory memory, bool faulty) {                                     \
        MM_LAUNCH(name, PLANTED_BLOCKS, PLANTED_THREADS, PLANTED_THREADS * sizeof(int), stream, memory, faulty);       \
    }
PLANTED(X)
