/* SPDX-License-Identifier: MIT */
#include "mm/core/size.h"
#include "nets/host/onednn_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Functions of libgomp, on whose threads oneDNN would run. Declared here because not every compiler that can build this
 * ships omp.h. */
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int threads);

mm_status nets_dnn_fail(dnnl_status_t status, const char *what) {
    if (status == dnnl_out_of_memory) return mm_fail(MM_ERR_NOMEM, "oneDNN has no memory for %s", what);
    if (status == dnnl_unimplemented) return mm_fail(MM_ERR_UNSUPPORTED, "oneDNN does not implement %s", what);
    return mm_fail(MM_ERR_DEVICE, "oneDNN: %s failed with status %d", what, (int)status);
}

mm_status nets_dnn_init(nets_dnn *dnn, mm_host_pool *pool, bool plans_only) {
    *dnn = (nets_dnn){.pool = pool, .plans_only = plans_only};
    int threads = mm_host_pool_threads(pool);
    dnn->streams = calloc((size_t)threads, sizeof *dnn->streams);
    if (!dnn->streams) return mm_fail(MM_ERR_NOMEM, "no memory for the streams of %d threads", threads);
    dnnl_status_t status = dnnl_engine_create(&dnn->engine, dnnl_cpu, 0);
    for (int i = 0; status == dnnl_success && i < threads; i++)
        status = dnnl_stream_create(&dnn->streams[i], dnn->engine, dnnl_stream_default_flags);
    if (status == dnnl_success) return MM_OK;
    nets_dnn_fini(dnn);
    return nets_dnn_fail(status, "an engine and its streams");
}

void nets_dnn_fini(nets_dnn *dnn) {
    for (int i = 0; dnn->streams && i < mm_host_pool_threads(dnn->pool); i++)
        if (dnn->streams[i]) dnnl_stream_destroy(dnn->streams[i]);
    if (dnn->engine) dnnl_engine_destroy(dnn->engine);
    free(dnn->streams);
    *dnn = (nets_dnn){0};
}

/* The effective instruction set respects ONEDNN_MAX_CPU_ISA. Its value has the bits of all instruction sets that it
 * includes. */
bool nets_dnn_has_bf16(void) {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

/* ---------------------------------------------------------------- kernels */

static const int ARGS[] = {
    DNNL_ARG_SRC,      DNNL_ARG_DST,          DNNL_ARG_WEIGHTS,    DNNL_ARG_WORKSPACE, DNNL_ARG_DIFF_SRC,
    DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS,
};
enum { N_ARGS = sizeof ARGS / sizeof ARGS[0] };

/* The layout of a primitive's argument; NULL: the primitive has no such argument. */
static nets_dnn_md md_of(const_dnnl_primitive_desc_t pd, int arg) {
    nets_dnn_md md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
    return md && dnnl_memory_desc_get_size(md) > 0 ? md : NULL;
}

static mm_status add_memories(const nets_dnn *dnn, const_dnnl_primitive_desc_t pd, nets_dnn_kernel *kernel) {
    kernel->threads = dnn->plans_only ? 1 : mm_host_pool_threads(dnn->pool);
    for (int i = 0; i < N_ARGS; i++) kernel->n_args += md_of(pd, ARGS[i]) != NULL;
    kernel->args = calloc((size_t)(kernel->threads * kernel->n_args) + 1, sizeof *kernel->args);
    if (!kernel->args) return mm_fail(MM_ERR_NOMEM, "no memory for a primitive's arguments");
    dnnl_exec_arg_t *arg = kernel->args;
    for (int thread = 0; thread < kernel->threads; thread++)
        for (int i = 0; i < N_ARGS; i++) {
            nets_dnn_md md = md_of(pd, ARGS[i]);
            if (!md) continue;
            DNN_TRY(dnnl_memory_create(&arg->memory, md, dnn->engine, DNNL_MEMORY_NONE), "a memory object");
            arg++->arg = ARGS[i];
            if (ARGS[i] == DNNL_ARG_SCRATCHPAD) kernel->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(md);
        }
    return MM_OK;
}

/* Makes a kernel from a description, which it destroys. */
static mm_status make_kernel(const nets_dnn *dnn, dnnl_primitive_desc_t pd, const char *what,
                             nets_dnn_kernel *kernel_out) {
    nets_dnn_kernel kernel = {0};
    dnnl_status_t status = dnn->plans_only ? dnnl_success : dnnl_primitive_create(&kernel.primitive, pd);
    mm_status result = status == dnnl_success ? add_memories(dnn, pd, &kernel) : nets_dnn_fail(status, what);
    dnnl_primitive_desc_destroy(pd);
    if (result != MM_OK) {
        nets_dnn_kernel_fini(&kernel);
        return result;
    }
    *kernel_out = kernel;
    return MM_OK;
}

void nets_dnn_kernel_fini(nets_dnn_kernel *kernel) {
    for (int i = 0; kernel->args && i < kernel->threads * kernel->n_args; i++)
        if (kernel->args[i].memory) dnnl_memory_destroy(kernel->args[i].memory);
    free(kernel->args);
    if (kernel->primitive) dnnl_primitive_destroy(kernel->primitive);
    *kernel = (nets_dnn_kernel){0};
}

static dnnl_status_t set_sum(dnnl_primitive_attr_t attr) {
    dnnl_post_ops_t ops;
    dnnl_status_t status = dnnl_post_ops_create(&ops);
    if (status != dnnl_success) return status;
    status = nets_dnn_append_sum(ops);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    return status;
}

/* We provide scratchpads, and a primitive uses one thread. oneDNN fixes both when a description is made. */
static mm_status make_attr(bool adds, dnnl_primitive_attr_t *attr_out) {
    DNN_TRY(dnnl_primitive_attr_create(attr_out), "attributes");
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(*attr_out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && adds) status = set_sum(*attr_out);
    if (status == dnnl_success) return MM_OK;
    dnnl_primitive_attr_destroy(*attr_out);
    return nets_dnn_fail(status, "attributes");
}

static bool is_depthwise(const nets_dnn_layout *weights) {
    return weights->rank == 5 && weights->dims[1] == 1 && weights->dims[2] == 1;
}

/* Whether the primitive multiplies with the CPU's units for bf16. The implementation's name tells: implementations of
 * other names convert to f32, or are oneDNN's reference. "gemm" uses such units if the CPU has them. For a depthwise
 * convolution the name says so, too: the others of oneDNN 3 take thirty times as long. */
static bool uses_bf16(const nets_dnn_op *op, const_dnnl_primitive_desc_t description) {
    const char *name = NULL;
    if (dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) != dnnl_success || !name)
        return false;
    if (op->kind == dnnl_matmul && strstr(name, "gemm:jit")) return nets_dnn_has_bf16();
    if (is_depthwise(&op->forward_weights) && !strstr(name, "dw")) return false;
    return strstr(name, "avx512_core_bf16") || strstr(name, "amx");
}

static mm_status describe(const nets_dnn *dnn, const nets_dnn_op *op, const_dnnl_primitive_desc_t hint,
                          dnnl_primitive_desc_t *description_out) {
    dnnl_primitive_attr_t attr;
    MM_TRY(make_attr(op->adds, &attr));
    dnnl_status_t status = nets_dnn_describe(dnn->engine, op, hint, attr, description_out);
    dnnl_primitive_attr_destroy(attr);
    if (status == dnnl_success && op->half && !uses_bf16(op, *description_out)) {
        dnnl_primitive_desc_destroy(*description_out);
        *description_out = NULL;
        status = dnnl_unimplemented;
    }
    return status == dnnl_success ? MM_OK : nets_dnn_fail(status, op->what);
}

/* The forward operation that a backward one refers to; NULL for a forward one. */
static mm_status describe_hint(const nets_dnn *dnn, const nets_dnn_op *op, dnnl_primitive_desc_t *hint_out) {
    *hint_out = NULL;
    if (op->direction != dnnl_backward_data && op->direction != dnnl_backward_weights) return MM_OK;
    nets_dnn_op forward = *op;
    forward.direction = dnnl_forward_training;
    if (op->half) forward.x.half = forward.y.half = forward.weights.half = true;
    if (op->half && op->direction == dnnl_backward_weights) /* op->weights is the gradient, which is f32 */
        forward.weights = op->forward_weights;
    return describe(dnn, &forward, NULL, hint_out);
}

/* oneDNN crashes by a division by zero for larger images: some of its code counts pixels, and rows of 16 channels of
 * all images, in 32 bits. The limit of elements is the largest number that was tried. */
static mm_status check_countable(const nets_dnn_layout *image) {
    const int64_t *dims = image->dims;
    if (image->rank != 4) return MM_OK;
    const double pixels = (double)dims[2] * (double)dims[3], elems = (double)dims[0] * (double)dims[1] * pixels;
    const double blocks = (double)dims[0] * (double)dims[2] * (double)((dims[1] + 15) / 16);
    if (pixels <= INT32_MAX && blocks <= INT32_MAX && elems <= (double)(INT64_C(1) << 43)) return MM_OK;
    return mm_fail(MM_ERR_UNSUPPORTED,
                   "oneDNN cannot count %lld images of %lldx%lldx%lld: take a smaller batch or image",
                   (long long)dims[0], (long long)dims[2], (long long)dims[3], (long long)dims[1]);
}

/* Before it computes anything, oneDNN goes through the columns of an image, and through the elements of the kernel at
 * each of them. Measured (2.6.3, EPYC Zen 5): a convolution takes 2.5 us and 1.2 KiB for each column, and 3 ns for each
 * step; a pool 0.8 us and 150 bytes, and 0.6 ns. So each limit stands for some 0.3 to 0.8 s and 160 MiB. It also
 * divides by zero for pools of images that do not fit 32 bits, with 16 channels of 4 bytes. */
static mm_status check_preparable(const nets_dnn_op *op) {
    static const struct limits {
        double columns, steps, pixels;
    } conv = {1 << 17, 1 << 26, 0x1p62}, pool = {1 << 20, 1 << 29, 1 << 27};
    const nets_dnn_window_dims *w = &op->windows;
    if (w->kernel[1] == 0) return MM_OK; /* it has no windows */
    const bool is_conv = op->kind == dnnl_convolution;
    const struct limits *most = is_conv ? &conv : &pool;
    const double padded = (double)op->x.dims[3] + (double)w->pad[1] + (double)w->pad_end[1];
    const double y = (double)op->y.dims[3], kernel = (double)w->kernel[1];
    const double steps = kernel * y * (is_conv ? (double)w->kernel[0] : 1);
    const double columns = padded > y ? (padded > kernel ? padded : kernel) : (y > kernel ? y : kernel);
    if (columns <= most->columns && steps <= most->steps &&
        (double)op->x.dims[2] * (double)op->x.dims[3] <= most->pixels)
        return MM_OK;
    return mm_fail(
        MM_ERR_UNSUPPORTED,
        "oneDNN cannot prepare, in a second and 200 MiB, windows of %lldx%lld over images of %lldx%lld, padded "
        "to rows of %.0f: take a smaller kernel, image or padding",
        (long long)w->kernel[0], (long long)w->kernel[1], (long long)op->x.dims[2], (long long)op->x.dims[3], padded);
}

/* oneDNN does not check that it gets memory for the code that it generates, and crashes if it does not. That happens
 * only under a limit of the process's address space, since the system overcommits. */
static mm_status check_addresses(void) {
    enum { CODE_BYTES = 4 << 20 }; /* many times one primitive's code; chosen */
    struct rlimit limit;
    char size[32];
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return MM_OK;
    void *room = mmap(NULL, CODE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return mm_fail(MM_ERR_NOMEM,
                       "oneDNN needs %d MiB to write its code in, and the process's limit of %s of addresses leaves "
                       "less; raise it (ulimit -v)",
                       CODE_BYTES >> 20, mm_size_format((int64_t)limit.rlim_cur, size, sizeof size));
    munmap(room, CODE_BYTES);
    return MM_OK;
}

mm_status nets_dnn_build(const nets_dnn *dnn, const nets_dnn_op *op, nets_dnn_kernel *kernel_out) {
    MM_TRY(check_countable(&op->x));
    MM_TRY(check_countable(&op->y));
    MM_TRY(check_preparable(op));
    MM_TRY(check_addresses());
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_primitive_desc_t hint, description;
    mm_status status = describe_hint(dnn, op, &hint);
    if (status == MM_OK) status = describe(dnn, op, hint, &description);
    if (status == MM_OK) status = make_kernel(dnn, description, op->what, kernel_out);
    if (hint) dnnl_primitive_desc_destroy(hint);
    omp_set_num_threads(threads);
    return status;
}

nets_dnn_md nets_dnn_arg_md(const nets_dnn_kernel *kernel, int arg) {
    nets_dnn_md md;
    for (int i = 0; i < kernel->n_args; i++)
        if (kernel->args[i].arg == arg && dnnl_memory_get_memory_desc(kernel->args[i].memory, &md) == dnnl_success)
            return md;
    return NULL;
}

int64_t nets_dnn_arg_bytes(const nets_dnn_kernel *kernel, int arg) {
    nets_dnn_md md = nets_dnn_arg_md(kernel, arg);
    return md ? (int64_t)dnnl_memory_desc_get_size(md) : 0;
}

mm_status nets_dnn_bind(nets_dnn_kernel *kernel, int thread, int arg, const void *data) {
    if (!kernel->primitive) return mm_fail(MM_ERR_ORDER, "a kernel was made for planning alone, and cannot run");
    dnnl_exec_arg_t *args = kernel->args + thread * kernel->n_args;
    for (int i = 0; i < kernel->n_args; i++)
        if (args[i].arg == arg) DNN_TRY(dnnl_memory_set_data_handle(args[i].memory, (void *)data), "binding memory");
    return MM_OK;
}

mm_status nets_dnn_run(const nets_dnn *dnn, nets_dnn_kernel *kernel, int thread, void *scratch) {
    omp_set_num_threads(1); /* of the calling thread: some primitives choose theirs only now */
    MM_TRY(nets_dnn_bind(kernel, thread, DNNL_ARG_SCRATCHPAD, scratch));
    DNN_TRY(dnnl_primitive_execute(kernel->primitive, dnn->streams[thread], kernel->n_args,
                                   kernel->args + thread * kernel->n_args),
            "a primitive");
    DNN_TRY(dnnl_stream_wait(dnn->streams[thread]), "a stream");
    return MM_OK;
}

nets_dnn_layout nets_dnn_nhwc(const int64_t dims[4]) {
    return (nets_dnn_layout){.rank = 4, .dims = {dims[0], dims[3], dims[1], dims[2]}, .tag = dnnl_nhwc};
}

nets_dnn_window_dims nets_dnn_window_dims_of(const nets_dnn_windows *w) {
    nets_dnn_window_dims dims;
    memset(&dims, 0, sizeof dims);
    for (int d = 0; d < 2; d++) {
        int64_t end = (w->y[1 + d] - 1) * w->stride[d] + w->dilation[d] * (w->kernel[d] - 1) + 1;
        int64_t rest = end - w->x[1 + d] - w->pad[d];
        dims.kernel[d] = w->kernel[d];
        dims.stride[d] = w->stride[d];
        dims.pad[d] = w->pad[d];
        dims.pad_end[d] = rest > w->pad_end_least[d] ? rest : w->pad_end_least[d];
        dims.dilation[d] = w->dilation[d] - 1;
    }
    return dims;
}
