/* Choosing a convolution's algorithm: cuDNN runs those that it has in memory that is taken for that time, and lists them by
 * time. It is the only work of this backend that allocates and waits; it happens when an op is created. */
#include "nets/cudnn_conv.h"

enum { CANDIDATES = 16 };

static const float NO_SLOWER = 1.02f;

/* What cuDNN's three lists say of an algorithm. */
typedef struct candidate {
    int algorithm, math;
    cudnnStatus_t status;
    cudnnDeterminism_t determinism;
    size_t memory;
    float time; /* ms, of those that were run */
} candidate;

typedef struct candidates {
    candidate of[CANDIDATES];
    int n;
} candidates;

/* What the algorithms are tried on. */
typedef struct trial {
    void *x, *y, *weights, *workspace; /* of the device */
} trial;

static mm_status take(int64_t bytes, void **memory_out) {
    cudaError_t error = cudaMalloc(memory_out, (size_t)nets_larger(bytes, 1));
    if (error != cudaSuccess) *memory_out = NULL;
    return mm_cuda_check(error, "cudaMalloc");
}

/* Of small numbers: some data take longer, and none at all would be garbage that is read. */
static mm_status take_tensor(int64_t bytes, void **memory_out) {
    MM_TRY(take(bytes, memory_out));
    return mm_cuda_check(cudaMemset(*memory_out, 0x3c, (size_t)bytes), "cudaMemset");
}

static mm_status start_trial(const nets_cudnn_conv *c, trial *t) {
    MM_TRY(take_tensor(c->x_bytes, &t->x));
    MM_TRY(take_tensor(c->y_bytes, &t->y));
    MM_TRY(take_tensor(c->weights_bytes, &t->weights));
    return take(c->cuda->config.workspace_limit_bytes, &t->workspace);
}

static void end_trial(trial *t) {
    void *const memory[] = {t->x, t->y, t->weights, t->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i]) (void)cudaFree(memory[i]);
}

/* The three structs have the same members. */
#define COPY_LIST(from, list)                                                                                          \
    for (int i = 0; i < (list)->n; i++) (list)->of[i] = (candidate) {                                                  \
            .algorithm = (int)(from)[i].algo, .math = (int)(from)[i].mathType, .status = (from)[i].status,             \
            .determinism = (from)[i].determinism, .memory = (from)[i].memory, .time = (from)[i].time                   \
        }

/* `t` NULL: not by running them, but as cuDNN expects it. */
static cudnnStatus_t list_forward(const nets_cudnn_conv *c, const trial *t, size_t limit, candidates *list) {
    cudnnConvolutionFwdAlgoPerf_t found[CANDIDATES];
    cudnnStatus_t status =
        t ? cudnnFindConvolutionForwardAlgorithmEx(c->cuda->dnn, c->x, t->x, c->weights, t->weights, c->conv, c->y,
                                                   t->y, CANDIDATES, &list->n, found, t->workspace, limit)
          : cudnnGetConvolutionForwardAlgorithm_v7(c->cuda->dnn, c->x, c->weights, c->conv, c->y, CANDIDATES, &list->n,
                                                   found);
    if (status == CUDNN_STATUS_SUCCESS) COPY_LIST(found, list);
    return status;
}

static cudnnStatus_t list_by_input(const nets_cudnn_conv *c, const trial *t, size_t limit, candidates *list) {
    cudnnConvolutionBwdDataAlgoPerf_t found[CANDIDATES];
    cudnnStatus_t status =
        t ? cudnnFindConvolutionBackwardDataAlgorithmEx(c->cuda->dnn, c->weights, t->weights, c->y, t->y, c->conv, c->x,
                                                        t->x, CANDIDATES, &list->n, found, t->workspace, limit)
          : cudnnGetConvolutionBackwardDataAlgorithm_v7(c->cuda->dnn, c->weights, c->y, c->conv, c->x, CANDIDATES,
                                                        &list->n, found);
    if (status == CUDNN_STATUS_SUCCESS) COPY_LIST(found, list);
    return status;
}

static cudnnStatus_t list_by_weights(const nets_cudnn_conv *c, const trial *t, size_t limit, candidates *list) {
    cudnnConvolutionBwdFilterAlgoPerf_t found[CANDIDATES];
    cudnnStatus_t status =
        t ? cudnnFindConvolutionBackwardFilterAlgorithmEx(c->cuda->dnn, c->x, t->x, c->y, t->y, c->conv, c->weights,
                                                          t->weights, CANDIDATES, &list->n, found, t->workspace, limit)
          : cudnnGetConvolutionBackwardFilterAlgorithm_v7(c->cuda->dnn, c->x, c->y, c->conv, c->weights, CANDIDATES,
                                                          &list->n, found);
    if (status == CUDNN_STATUS_SUCCESS) COPY_LIST(found, list);
    return status;
}

static mm_status list_candidates(const nets_cudnn_conv *c, const trial *t, candidates *list) {
    cudnnStatus_t (*const of[])(const nets_cudnn_conv *, const trial *, size_t, candidates *) = {
        [NETS_CONV_FORWARD] = list_forward,
        [NETS_CONV_BY_INPUT] = list_by_input,
        [NETS_CONV_BY_WEIGHTS] = list_by_weights,
    };
    list->n = 0;
    cudnnStatus_t status = of[c->direction](c, t, (size_t)c->cuda->config.workspace_limit_bytes, list);
    return nets_cuda_dnn_check(status, t ? "timing algorithms" : "listing algorithms");
}

/* Lists may call an algorithm's precision a wider one than that which was set, and give the bytes of that. */
static void round_as_configured(const nets_cudnn_conv *c, candidate *a) {
    if (c->cuda->config.precision != NETS_FP32 || a->math == CUDNN_FMA_MATH || a->status != CUDNN_STATUS_SUCCESS)
        return;
    int64_t bytes = nets_cudnn_bytes(c, a->algorithm, CUDNN_FMA_MATH);
    a->math = CUDNN_FMA_MATH;
    if (bytes < 0)
        a->status = CUDNN_STATUS_NOT_SUPPORTED;
    else if ((size_t)bytes > a->memory)
        a->memory = (size_t)bytes;
}

static bool allowed(const nets_backend_config *config, const candidate *a) {
    return a->status == CUDNN_STATUS_SUCCESS && a->memory <= (size_t)config->workspace_limit_bytes &&
           (!config->deterministic || a->determinism == CUDNN_DETERMINISTIC);
}

/* Of those that take no longer than the fastest, but for what the timing is not sure of, the one with the least workspace. */
static mm_status choose_from(nets_cudnn_conv *c, const candidates *list, bool timed) {
    const nets_backend_config *config = &c->cuda->config;
    const candidate *fastest = NULL, *best = NULL;
    for (int i = 0; i < list->n; i++) {
        const candidate *a = &list->of[i];
        if (!allowed(config, a)) continue;
        if (!fastest) fastest = best = a;
        if (timed && a->time <= NO_SLOWER * fastest->time && a->memory < best->memory) best = a;
    }
    if (!best)
        return mm_fail(MM_ERR_UNSUPPORTED,
                       "cuDNN has no %salgorithm for this convolution within %lld bytes of workspace",
                       config->deterministic ? "deterministic " : "", (long long)config->workspace_limit_bytes);
    c->choice = (nets_conv_choice){best->algorithm, best->math, (int64_t)best->memory};
    return MM_OK;
}

/* Timed twice: a kernel is loaded when it first runs, and that would count. */
static mm_status list_by_time(const nets_cudnn_conv *c, const trial *t, candidates *list) {
    MM_TRY(list_candidates(c, t, list));
    return list_candidates(c, t, list);
}

/* Once: it is the same for all. */
static void tell_untimed(const nets_cudnn_conv *c) {
    if (!c->cuda->told_untimed)
        mm_log_send(&c->cuda->config.log, MM_LOG_WARNING,
                    "a convolution's algorithms are not timed, cuDNN's guess is taken: %s", mm_last_error());
    c->cuda->told_untimed = true;
}

mm_status nets_cudnn_choose(nets_cudnn_conv *c, bool *timed_out) {
    trial t = {0};
    candidates list;
    /* The one it ran on last may be gone with its manager. */
    MM_TRY(nets_cuda_dnn_check(cudnnSetStream(c->cuda->dnn, NULL), "setting a stream"));
    mm_status status = start_trial(c, &t);
    if (status == MM_OK) status = list_by_time(c, &t, &list);
    end_trial(&t);
    *timed_out = status == MM_OK;
    if (status != MM_OK) {
        tell_untimed(c);
        MM_TRY(list_candidates(c, NULL, &list));
    }
    for (int i = 0; i < list.n; i++) round_as_configured(c, &list.of[i]);
    return choose_from(c, &list, *timed_out);
}
