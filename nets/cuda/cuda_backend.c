/* SPDX-License-Identifier: MIT */
/* The CUDA backend: its table of ops, and the libraries' handles. */
#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/cuda/cuda_ops.h"

static void close_cuda(nets_backend *backend) {
    nets_cuda_backend *cuda = (nets_cuda_backend *)backend;
    bool entered = false;
    if (cuda->gpu) (void)!mm_cuda_gpu_enter(cuda->gpu, true, &entered);
    if (cuda->counters) (void)cudaFree(cuda->counters);
    if (cuda->norm) (void)cudaFree(cuda->norm);
    if (cuda->dnn) cudnnDestroy(cuda->dnn);
    if (cuda->lt) cublasLtDestroy(cuda->lt);
    if (entered) mm_cuda_gpu_leave(cuda->gpu);
    mm_cuda_gpu_close(cuda->gpu);
    nets_algorithm_cache_fini(&cuda->choices);
    free(cuda);
}

/* Names the device and the versions of the libraries, as one word. */
static mm_status name_device(int ordinal, char name[128]) {
    struct cudaDeviceProp properties;
    MM_TRY(mm_cuda_check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
    snprintf(name, 128, "%.80s/cudnn-%zu/cublas-%zu", properties.name, cudnnGetVersion(), cublasLtGetVersion());
    for (char *c = name; *c; c++)
        if (*c <= ' ') *c = '_';
    return MM_OK;
}

static mm_status make_handles(nets_cuda_backend *cuda) {
    MM_TRY(nets_cuda_dnn_check(cudnnCreate(&cuda->dnn), "opening the library"));
    return nets_cuda_blas_check(cublasLtCreate(&cuda->lt), "opening the library");
}

/* Allocates the norm when the backend opens, because updates may not allocate. */
static mm_status take_norm(nets_cuda_backend *cuda) {
    void *norm = NULL;
    MM_TRY(mm_cuda_check(cudaMalloc(&norm, sizeof *cuda->norm), "cudaMalloc"));
    cuda->norm = norm;
    return MM_OK;
}

static mm_status enter(nets_backend *backend, bool *entered_out) {
    const nets_cuda_backend *cuda = (const nets_cuda_backend *)backend;
    *entered_out = false;
    return cuda->gpu ? mm_cuda_gpu_enter(cuda->gpu, false, entered_out) : MM_OK;
}

static void leave(nets_backend *backend) { mm_cuda_gpu_leave(((nets_cuda_backend *)backend)->gpu); }

/* Creates the libraries' handles. A handle belongs to the GPU that is current when the handle is created. */
static mm_status open_gpu(nets_cuda_backend *cuda, int ordinal) {
    bool entered;
    MM_TRY(mm_cuda_gpu_open(ordinal, &cuda->gpu));
    MM_TRY(enter(&cuda->base, &entered));
    mm_status status = make_handles(cuda);
    if (status == MM_OK) status = take_norm(cuda);
    if (entered) leave(&cuda->base);
    return status;
}

/* Loads libnvrtc-builtins, so that cuDNN can compile kernels: all of attention's, some of convolutions'. NVRTC opens it
 * by its name alone, and the loader does not look for a library's libraries where this program's are (RUNPATH). It lies
 * beside the CUDA runtime or cuDNN, and stays loaded. Where it is not, the loader may still find it. */
static void load_builtins(void) {
    void *const beside[] = {(void *)cudaRuntimeGetVersion, (void *)cudnnGetVersion};
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        Dl_info library;
        char pattern[4096];
        glob_t found;
        const char *end = dladdr(beside[i], &library) ? strrchr(library.dli_fname, '/') : NULL;
        if (!end) continue;
        snprintf(pattern, sizeof pattern, "%.*s/libnvrtc-builtins.so.*", (int)(end - library.dli_fname),
                 library.dli_fname);
        if (glob(pattern, 0, NULL, &found) != 0) continue;
        for (size_t k = 0; k < found.gl_pathc; k++) (void)dlopen(found.gl_pathv[k], RTLD_LAZY | RTLD_LOCAL);
        globfree(&found);
    }
}

static mm_status fill(nets_cuda_backend *cuda, int ordinal, const nets_backend_config *config) {
    char device[128] = "";
    const int devices = mm_cuda_count();
    cuda->config = *config;
    const int64_t limit = config->workspace_limit_bytes;
    cuda->terms = (nets_conv_terms){config->deterministic, limit, limit};
    if (!limit) {
        cuda->terms.limit_bytes = cuda->config.workspace_limit_bytes = NETS_WORKSPACE_LIMIT_BYTES;
        cuda->terms.tensor_core_limit_bytes = NETS_WORKSPACE_TENSOR_CORE_LIMIT_BYTES;
    }
    load_builtins();
    if (devices) MM_TRY(name_device(ordinal, device));
    MM_TRY(nets_algorithm_cache_init(&cuda->choices, config, device));
    cuda->config.algorithms_path = cuda->choices.path;
    return devices && !config->untimed ? open_gpu(cuda, ordinal) : MM_OK;
}

static mm_status open_cuda(int ordinal, const nets_backend_config *config, nets_backend **backend_out) {
    nets_cuda_backend *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return mm_fail(MM_ERR_NOMEM, "no memory for CUDA's network operations");
    cuda->base.ops = &nets_cuda_backend_ops;
    cuda->base.channels_last = true; /* as cuDNN's fast kernels want it */
    mm_status status = fill(cuda, ordinal, config);
    if (status != MM_OK) {
        close_cuda(&cuda->base);
        return status;
    }
    *backend_out = &cuda->base;
    return MM_OK;
}

static const nets_backend_config *config_of(const nets_backend *backend) {
    const nets_cuda_backend *cuda = (const nets_cuda_backend *)backend;
    return cuda->dnn ? &cuda->config : NULL;
}

const nets_backend_ops nets_cuda_backend_ops = {
    .name = "cuda",
    .open = open_cuda,
    .close = close_cuda,
    .update = nets_cuda_update_step,
    .check = nets_cuda_check_step,
    .pass_on = nets_cuda_pass_on_step,
    .add = nets_cuda_add_step,
    .pad = nets_cuda_pad_step,
    .convert = nets_cuda_convert_step,
    .config = config_of,
    .enter = enter,
    .leave = leave,
    .impls =
        {
#define IMPL(NAME, name) [NETS_##NAME] = &nets_cuda_op_##name,
            NETS_OPS(IMPL)
#undef IMPL
        },
};
