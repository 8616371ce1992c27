// SPDX-License-Identifier: MIT
/* A program with a CUDA stream of its own, on which all its kernels run, moves into a budget: mm_layer_begin_on makes
 * that stream wait for what a step needs, mm_layer_end makes mm wait for what the step enqueued. Kernels and launches
 * stay as they are. The weights are those of the program without mm, bit for bit.
 *
 *     nvcc own_stream.cu $(pkg-config --cflags --libs mm) -o own_stream && ./own_stream */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/mm.h"

#ifndef MM_LAUNCH /* mm's own tests bring one that runs on the CPU */
#define MM_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                  \
    kernel<<<blocks, threads, shared_bytes, stream>>>(__VA_ARGS__)
#endif

enum { DEPTH = 8, BATCH = 16, WIDTH = 16, MAP = BATCH * WIDTH, MATRIX = WIDTH * WIDTH, STEPS = 12 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "own_stream: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}
static void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "own_stream: %s\n", cudaGetErrorString(error));
    exit(1);
}

/* ---- kernels, one thread an element: layers x[l + 1] = tanh(x[l] w[l]) */

#define ELEMENT_BELOW(n)                                                                                               \
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);                                                        \
    if (i >= (n)) return

__global__ void layer(const float *x, const float *w, float *y) {
    ELEMENT_BELOW(MAP);
    float sum = 0;
    for (int c = 0; c < WIDTH; c++) sum += x[i / WIDTH * WIDTH + c] * w[c * WIDTH + i % WIDTH];
    y[i] = tanhf(sum);
}
/* dz: the gradient of x w */
__global__ void tanh_back(const float *y, const float *dy, float *dz) {
    ELEMENT_BELOW(MAP);
    dz[i] = dy[i] * (1 - y[i] * y[i]);
}
__global__ void layer_dx(const float *w, const float *dz, float *dx) {
    ELEMENT_BELOW(MAP);
    float sum = 0;
    for (int o = 0; o < WIDTH; o++) sum += dz[i / WIDTH * WIDTH + o] * w[i % WIDTH * WIDTH + o];
    dx[i] = sum;
}
__global__ void layer_update(const float *x, const float *dz, float *w) {
    ELEMENT_BELOW(MATRIX);
    float sum = 0;
    for (int s = 0; s < BATCH; s++) sum += x[s * WIDTH + i / WIDTH] * dz[s * WIDTH + i % WIDTH];
    w[i] -= sum;
}
__global__ void error_back(const float *y, const float *targets, float *dy) {
    ELEMENT_BELOW(MAP);
    dy[i] = 2 * (y[i] - targets[i]) / MAP;
}

/* ---- the program: everything is enqueued on `stream`, and nothing waits but for the result */

static cudaStream_t stream;
static float *weights, *images, *targets; /* device memory of the program's own, also with mm */

#define LAUNCH(kernel, n, ...) MM_LAUNCH(kernel, ((n) + 63) / 64, 64, 0, stream, __VA_ARGS__)

/* Each gets its maps by pointer; without mm they lie in one allocation. dz is scratch. */
static void forward(int l, const float *x, float *y) { LAUNCH(layer, MAP, x, weights + l * MATRIX, y); }
static void compare(const float *y, float *dy) { LAUNCH(error_back, MAP, y, targets, dy); }
static void backward(int l, const float *x, const float *y, const float *dy, float *dz, float *dx) {
    LAUNCH(tanh_back, MAP, y, dy, dz);
    if (l > 0) LAUNCH(layer_dx, MAP, weights + l * MATRIX, dz, dx); /* the images have no gradient */
    LAUNCH(layer_update, MATRIX, x, dz, weights + l * MATRIX);
}

static void iterate_plain(float *maps) { /* x[1] to x[DEPTH], then two gradients by turns, then dz */
    float *x[DEPTH + 1] = {images}, *d[] = {maps + DEPTH * MAP, maps + (DEPTH + 1) * MAP};
    for (int l = 0; l < DEPTH; l++) forward(l, x[l], x[l + 1] = maps + l * MAP);
    compare(x[DEPTH], d[DEPTH % 2]);
    for (int l = DEPTH - 1; l >= 0; l--)
        backward(l, x[l], x[l + 1], d[(l + 1) % 2], maps + (DEPTH + 2) * MAP, d[l % 2]);
}

/* ---- inside a budget */

static mm_tensor x[DEPTH + 1], dx[DEPTH + 1]; /* from 1: the images are the program's */

static mm_use use(mm_tensor tensor, mm_access access) { return {tensor, access, MM_FORM_VALUE}; }

static mm_graph *declare() {
    mm_graph *graph;
    mm_layer number;
    check(mm_graph_create("network", &graph));
    for (int l = 0; l <= DEPTH; l++) {
        char name[24];
        snprintf(name, sizeof name, "%d", l);
        check(mm_graph_add_layer(graph, name, l < DEPTH ? MM_LAYER_LINEAR : MM_LAYER_LOSS, &number));
        if (l == 0) continue;
        snprintf(name, sizeof name, "x.%d", l);
        const mm_tensor_desc map = {name, MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, WIDTH}};
        check(mm_graph_add_tensor(graph, &map, &x[l]));
        snprintf(name, sizeof name, "dx.%d", l);
        const mm_tensor_desc gradient = {name, MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 2, {BATCH, WIDTH}};
        check(mm_graph_add_tensor(graph, &gradient, &dx[l]));
    }
    for (int l = 0; l < DEPTH; l++) {
        const mm_use uses[] = {use(x[l + 1], MM_WRITE), use(x[l], MM_READ)};
        check(mm_graph_add_step(graph, l, MM_FORWARD, uses, l ? 2 : 1, 0));
    }
    const mm_use uses[] = {use(x[DEPTH], MM_READ), use(dx[DEPTH], MM_WRITE)};
    check(mm_graph_add_step(graph, DEPTH, MM_BACKWARD, uses, 2, 0));
    for (int l = DEPTH - 1; l >= 0; l--) {
        const mm_use uses[] = {use(x[l + 1], MM_READ), use(dx[l + 1], MM_READ), use(x[l], MM_READ),
                               use(dx[l], MM_WRITE)};
        check(mm_graph_add_step(graph, l, MM_BACKWARD, uses, l ? 4 : 2, MAP * sizeof(float))); /* workspace: dz */
    }
    check(mm_graph_freeze(graph));
    return graph;
}

#define AT(t) ((float *)mm_tensor_data(m, t))
#define STEP(l, phase, enqueue)                                                                                        \
    do {                                                                                                               \
        check(mm_layer_begin_on(m, l, phase, stream)); /* makes the stream wait, not this thread */                    \
        enqueue;                                                                                                       \
        check(cudaGetLastError());                                                                                     \
        check(mm_layer_end(m, l, phase));                                                                              \
    } while (0)

static void iterate(mm_manager *m, const mm_graph *graph) {
    check(mm_iteration_begin(m, graph));
    for (int l = 0; l < DEPTH; l++) STEP(l, MM_FORWARD, forward(l, l ? AT(x[l]) : images, AT(x[l + 1])));
    STEP(DEPTH, MM_BACKWARD, compare(AT(x[DEPTH]), AT(dx[DEPTH])));
    for (int l = DEPTH - 1; l >= 0; l--)
        STEP(l, MM_BACKWARD,
             backward(l, l ? AT(x[l]) : images, AT(x[l + 1]), AT(dx[l + 1]), (float *)mm_workspace_data(m),
                      l ? AT(dx[l]) : NULL));
    check(mm_iteration_end_async(m)); /* does not wait either */
}

static void upload(float *to, const float *from, size_t n) {
    check(cudaMemcpyAsync(to, from, n * sizeof *to, cudaMemcpyHostToDevice, stream));
}

int main() {
    static const char *const policies[] = {"liveness", "swap-async:when=always", "naive"};
    static float start[DEPTH * MATRIX], wanted[DEPTH * MATRIX], got[DEPTH * MATRIX], data[2][MAP], last[MAP];
    float *memory, *maps, loss = 0;
    bool equal = true;
    for (int i = 0; i < DEPTH * MATRIX; i++) start[i] = sinf((float)(i % 1543 * i % 7919)) * 0.4F;
    for (int i = 0; i < MAP; i++) data[0][i] = sinf((float)(3 * i)), data[1][i] = cosf((float)(i % WIDTH)) / 2;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    check(cudaMalloc((void **)&memory, sizeof start + sizeof data));
    check(cudaMalloc((void **)&maps, (DEPTH + 3) * MAP * sizeof *maps));
    weights = memory, images = weights + DEPTH * MATRIX, targets = images + MAP;
    upload(images, data[0], 2 * MAP);

    upload(weights, start, DEPTH * MATRIX);
    for (int i = 0; i < STEPS; i++) iterate_plain(maps);
    check(cudaMemcpyAsync(wanted, weights, sizeof wanted, cudaMemcpyDeviceToHost, stream));
    check(cudaMemcpyAsync(last, maps + (DEPTH - 1) * MAP, sizeof last, cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaFree(maps));
    for (int i = 0; i < MAP; i++) loss += (last[i] - data[1][i]) * (last[i] - data[1][i]) / MAP;
    printf("plain: %d bytes of maps, loss %.4f\n", (int)((DEPTH + 3) * MAP * sizeof *maps), loss);

    mm_graph *graph = declare();
    for (const char *policy : policies) {
        mm_options options = mm_options();
        options.device = "cuda";
        options.device_bytes = options.pinned_bytes = 32768;
        options.policy = policy;
        mm_manager *m;
        mm_stats stats;
        check(mm_manager_create(&options, &m));
        upload(weights, start, DEPTH * MATRIX);
        for (int i = 0; i < STEPS; i++) iterate(m, graph);
        check(cudaMemcpyAsync(got, weights, sizeof got, cudaMemcpyDeviceToHost, stream)); /* after all steps */
        check(cudaStreamSynchronize(stream));
        check(mm_manager_sync(m)); /* returns the failure of an iteration, if there was one */
        mm_stats_get(m, &stats);
        const bool same = memcmp(got, wanted, sizeof got) == 0;
        printf("%-23s peak %lld, weights %s\n", policy, (long long)stats.predicted_peak_bytes,
               same ? "equal" : "DIFFER");
        equal = equal && same;
        mm_manager_destroy(m);
    }
    mm_graph_destroy(graph);
    check(cudaFree(memory));
    check(cudaStreamDestroy(stream));
    return equal ? 0 : 1;
}
