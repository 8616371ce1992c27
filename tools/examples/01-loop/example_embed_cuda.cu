// SPDX-License-Identifier: MIT
/* example_embed.c on a GPU: the same net, with kernels of one's own on mm's compute stream, on data in memory of one's
 * own.
 *
 *     nvcc example_embed_cuda.cu $(pkg-config --cflags --libs mm) -o example_embed_cuda
 *     ./example_embed_cuda [POLICY [BUDGET_BYTES]]
 *
 * What is other than on the host: steps take a stream, and enqueue on it (STEP); iterations end without waiting; memory
 * of mm's is reached by mm_persistent_get and _set; and once an iteration has run it is recorded and replayed
 * (train). */
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mm/mm.h"

#ifndef MM_LAUNCH /* mm's own tests bring one that runs on the CPU */
#define MM_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                                                  \
    kernel<<<blocks, threads, shared_bytes, stream>>>(__VA_ARGS__)
#endif

enum { BATCH = 32, INPUTS = 32, HIDDEN = 128, CLASSES = 8, ITERATIONS = 40 };

static void check(mm_status status) {
    if (status == MM_OK) return;
    fprintf(stderr, "example_embed_cuda: %s: %s\n", mm_status_name(status), mm_last_error());
    exit(1);
}
static void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "example_embed_cuda: %s\n", cudaGetErrorString(error));
    exit(1);
}

/* ---- the graph */

enum { X, LABELS, W1, W2, DW1, DW2, LOSS, H, R, Y, DY, DR, DH, TENSORS };
static const mm_tensor_desc tensors[TENSORS] = {
    {"x", MM_INPUT, MM_EXTERNAL, MM_F32, 2, {BATCH, INPUTS}},
    {"labels", MM_INPUT, MM_EXTERNAL, MM_I32, 1, {BATCH}},
    {"w1", MM_WEIGHT, MM_PERSISTENT, MM_F32, 2, {INPUTS, HIDDEN}},
    {"w2", MM_WEIGHT, MM_PERSISTENT, MM_F32, 2, {HIDDEN, CLASSES}},
    {"dw1", MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32, 2, {INPUTS, HIDDEN}},
    {"dw2", MM_WEIGHT_GRADIENT, MM_PERSISTENT, MM_F32, 2, {HIDDEN, CLASSES}},
    {"losses", MM_STATE, MM_PERSISTENT, MM_F32, 1, {BATCH}},
    {"h", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}},
    {"r", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}},
    {"y", MM_FEATURE_MAP, MM_MANAGED, MM_F32, 2, {BATCH, CLASSES}},
    {"dy", MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 2, {BATCH, CLASSES}},
    {"dr", MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}},
    {"dh", MM_GRADIENT_MAP, MM_MANAGED, MM_F32, 2, {BATCH, HIDDEN}},
};
enum { LINEAR1, RELU1, LINEAR2, SOFTMAX2 };

#define READ(t)   (mm_use{t, MM_READ, MM_FORM_VALUE})
#define SIGN(t)   (mm_use{t, MM_READ, MM_FORM_SIGN})
#define WRITE(t)  (mm_use{t, MM_WRITE, MM_FORM_VALUE})
#define MODIFY(t) (mm_use{t, MM_MODIFY, MM_FORM_VALUE})
template <size_t N> static void add_step(mm_graph *graph, mm_layer layer, mm_phase phase, const mm_use (&uses)[N]) {
    check(mm_graph_add_step(graph, layer, phase, uses, N, 0));
}
static mm_graph *declare() {
    mm_graph *graph;
    mm_layer layer;
    check(mm_graph_create("example", &graph));
    for (mm_tensor t = 0, number; t < TENSORS; t++) check(mm_graph_add_tensor(graph, &tensors[t], &number));
    check(mm_graph_add_layer(graph, "linear1", MM_LAYER_LINEAR, &layer));
    check(mm_graph_add_layer(graph, "relu1", MM_LAYER_RELU, &layer));
    check(mm_graph_add_layer(graph, "linear2", MM_LAYER_LINEAR, &layer));
    check(mm_graph_add_layer(graph, "softmax2", MM_LAYER_LOSS, &layer));
    add_step(graph, LINEAR1, MM_FORWARD, {READ(X), READ(W1), WRITE(H)});
    add_step(graph, RELU1, MM_FORWARD, {READ(H), WRITE(R)});
    add_step(graph, LINEAR2, MM_FORWARD, {READ(R), READ(W2), WRITE(Y)});
    add_step(graph, SOFTMAX2, MM_BACKWARD, {READ(Y), READ(LABELS), WRITE(DY), WRITE(LOSS)});
    add_step(graph, LINEAR2, MM_BACKWARD, {READ(R), MODIFY(W2), READ(DY), WRITE(DR), WRITE(DW2)});
    add_step(graph, RELU1, MM_BACKWARD, {SIGN(R), READ(DR), WRITE(DH)});
    add_step(graph, LINEAR1, MM_BACKWARD, {READ(X), MODIFY(W1), READ(DH), WRITE(DW1)});
    check(mm_graph_freeze(graph));
    return graph;
}

/* ---- kernels, one thread an element */

#define ELEMENT_BELOW(n)                                                                                               \
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);                                                              \
    if (i >= (n)) return

__global__ void linear(const float *x, const float *w, float *y, int in, int out) {
    ELEMENT_BELOW(BATCH * out);
    float sum = 0;
    for (int p = 0; p < in; p++) sum += x[i / out * in + p] * w[p * out + i % out];
    y[i] = sum;
}
__global__ void linear_dx(const float *w, const float *dy, float *dx, int in, int out) {
    ELEMENT_BELOW(BATCH * in);
    float sum = 0;
    for (int q = 0; q < out; q++) sum += dy[i / in * out + q] * w[i % in * out + q];
    dx[i] = sum;
}
__global__ void linear_dw(const float *x, const float *dy, float *w, float *dw, int in, int out) {
    ELEMENT_BELOW(in * out);
    float sum = 0;
    for (int s = 0; s < BATCH; s++) sum += x[s * in + i / out] * dy[s * out + i % out];
    dw[i] = sum;
    w[i] -= 0.1F * sum;
}
__global__ void relu(const float *x, float *y) {
    ELEMENT_BELOW(BATCH * HIDDEN);
    y[i] = x[i] > 0 ? x[i] : 0;
}
__global__ void relu_back(const void *y, mm_form form, const float *dy, float *dx) {
    ELEMENT_BELOW(BATCH * HIDDEN);
    const float *value = (const float *)y;
    const uint32_t *mask = (const uint32_t *)y; /* the exact signs of values that were compressed */
    dx[i] = (form == MM_FORM_SIGN ? mask[i / 32] >> i % 32 & 1 : value[i] > 0) ? dy[i] : 0;
}
__global__ void softmax(const float *x, const int32_t *labels, float *dx, float *losses) {
    ELEMENT_BELOW(BATCH);
    float sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += expf(x[i * CLASSES + c]);
    for (int c = 0; c < CLASSES; c++)
        dx[i * CLASSES + c] = (expf(x[i * CLASSES + c]) / sum - (float)(c == labels[i])) / BATCH;
    losses[i] = logf(sum) - x[i * CLASSES + labels[i]];
}

/* ---- the loop */

#define AT(t) ((float *)mm_tensor_data(m, t)) /* until the step ends; in another step it may lie elsewhere */
#define LAUNCH(kernel, n, ...)                                                                                         \
    MM_LAUNCH(kernel, ((n) + 127) / 128, 128, 0, (cudaStream_t)mm_stream_handle(stream), __VA_ARGS__)
#define STEP(layer, phase, ...)                                                                                        \
    do {                                                                                                               \
        check(mm_layer_begin(m, layer, phase, stream)); /* makes the stream, not this thread, wait for the inputs */   \
        __VA_ARGS__;                                                                                                   \
        check(cudaGetLastError());                                                                                     \
        check(mm_layer_end(m, layer, phase));                                                                          \
    } while (0)

static void enqueue_steps(mm_manager *m) {
    mm_stream *stream = mm_compute_stream(m);
    STEP(LINEAR1, MM_FORWARD, LAUNCH(linear, BATCH * HIDDEN, AT(X), AT(W1), AT(H), INPUTS, HIDDEN));
    STEP(RELU1, MM_FORWARD, LAUNCH(relu, BATCH * HIDDEN, AT(H), AT(R)));
    STEP(LINEAR2, MM_FORWARD, LAUNCH(linear, BATCH * CLASSES, AT(R), AT(W2), AT(Y), HIDDEN, CLASSES));
    STEP(SOFTMAX2, MM_BACKWARD, LAUNCH(softmax, BATCH, AT(Y), (const int32_t *)AT(LABELS), AT(DY), AT(LOSS)));
    STEP(LINEAR2, MM_BACKWARD, LAUNCH(linear_dx, BATCH * HIDDEN, AT(W2), AT(DY), AT(DR), HIDDEN, CLASSES);
         LAUNCH(linear_dw, HIDDEN * CLASSES, AT(R), AT(DY), AT(W2), AT(DW2), HIDDEN, CLASSES));
    STEP(RELU1, MM_BACKWARD, LAUNCH(relu_back, BATCH * HIDDEN, AT(R), mm_tensor_form(m, R), AT(DR), AT(DH)));
    STEP(LINEAR1, MM_BACKWARD, LAUNCH(linear_dw, INPUTS * HIDDEN, AT(X), AT(DH), AT(W1), AT(DW1), INPUTS, HIDDEN));
}

static void train(mm_manager *m, const mm_graph *graph) {
    if (mm_replay_state(m, graph) == MM_REPLAY_MAY) {
        check(mm_record_begin(m, graph));
        enqueue_steps(m);
        check(mm_record_end(m));
    }
    if (mm_replay_state(m, graph) == MM_REPLAY_READY) {
        check(mm_iteration_replay(m, graph));
        return;
    }
    check(mm_iteration_begin(m, graph));
    enqueue_steps(m);
    check(mm_iteration_end_async(m));
}

static float loss_now(mm_manager *m) {
    float losses[BATCH], sum = 0;
    check(mm_persistent_get(m, "losses", 0, losses, sizeof losses)); /* waits for what is enqueued */
    for (int s = 0; s < BATCH; s++) sum += losses[s] / BATCH;
    return sum;
}

int main(int argc, char **argv) {
    static float w1[INPUTS * HIDDEN], w2[HIDDEN * CLASSES], images[BATCH * INPUTS], first;
    static int32_t labels[BATCH];
    for (int i = 0; i < INPUTS * HIDDEN; i++) w1[i] = sinf((float)(7 * i * i + 3 * i)) / 6;
    for (int i = 0; i < HIDDEN * CLASSES; i++) w2[i] = sinf((float)(5 * i * i + i)) / 16;
    for (int s = 0; s < BATCH; s++) labels[s] = s % CLASSES;
    for (int i = 0; i < BATCH * INPUTS; i++) images[i] = sinf((float)i) + (float)(i % CLASSES == labels[i / INPUTS]);

    mm_options options = mm_options();
    options.device = "cuda";
    options.policy = argc > 1 ? argv[1] : NULL;
    options.device_bytes = argc > 2 ? atoll(argv[2]) : 400000;
    options.pinned_bytes = 1 << 20;  /* policies that swap need it */
    options.issue = MM_ISSUE_INLINE; /* as recording needs */
    mm_graph *graph = declare();
    mm_manager *m;
    void *x, *y;
    check(mm_manager_create(&options, &m));
    check(mm_manager_prepare(m, graph));
    check(cudaMalloc(&x, sizeof images));
    check(cudaMalloc(&y, sizeof labels));
    cudaStream_t stream = (cudaStream_t)mm_stream_handle(mm_compute_stream(m));
    check(cudaMemcpyAsync(x, images, sizeof images, cudaMemcpyHostToDevice, stream));
    check(cudaMemcpyAsync(y, labels, sizeof labels, cudaMemcpyHostToDevice, stream));
    check(mm_external_set(m, graph, X, x));
    check(mm_external_set(m, graph, LABELS, y));
    check(mm_persistent_set(m, "w1", 0, w1, sizeof w1));
    check(mm_persistent_set(m, "w2", 0, w2, sizeof w2));
    for (int i = 0; i < ITERATIONS; i++) {
        if (i == ITERATIONS / 2) check(mm_policy_set(m, "swap-async:when=always")); /* needs a new recording */
        train(m, graph);
        if (i == 0) first = loss_now(m);
    }
    float last = loss_now(m);
    mm_stats stats;
    mm_stats_get(m, &stats);
    printf("budget %lld, predicted peak %lld, loss %.9g -> %.9g\n", (long long)options.device_bytes,
           (long long)stats.predicted_peak_bytes, first, last);
    printf("%lld of %d iterations replayed\n", (long long)stats.replays, ITERATIONS);
    mm_manager_destroy(m);
    mm_graph_destroy(graph);
    cudaFree(x);
    cudaFree(y);
}
