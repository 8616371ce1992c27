#include "nets/onednn.h"

/* libgomp's, which oneDNN runs on. Declared here because not every compiler that can build this ships omp.h. */
extern int omp_get_max_threads(void);
extern void omp_set_num_threads(int threads);

static mm_status dnn_fail(dnnl_status_t status, const char *what) {
    if (status == dnnl_out_of_memory) return mm_fail(MM_ERR_NOMEM, "oneDNN has no memory for %s", what);
    if (status == dnnl_unimplemented) return mm_fail(MM_ERR_UNSUPPORTED, "oneDNN does not implement %s", what);
    return mm_fail(MM_ERR_DEVICE, "oneDNN: %s failed with status %d", what, (int)status);
}

#define DNN_TRY(expression, what)                                                                                      \
    do {                                                                                                               \
        dnnl_status_t dnn_status_ = (expression);                                                                      \
        if (dnn_status_ != dnnl_success) return dnn_fail(dnn_status_, what);                                           \
    } while (0)

mm_status nets_dnn_init(nets_dnn *dnn) {
    *dnn = (nets_dnn){0};
    DNN_TRY(dnnl_engine_create(&dnn->engine, dnnl_cpu, 0), "an engine");
    dnnl_status_t status = dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags);
    if (status == dnnl_success) return MM_OK;
    dnnl_engine_destroy(dnn->engine);
    return dnn_fail(status, "a stream");
}

void nets_dnn_fini(nets_dnn *dnn) {
    dnnl_stream_destroy(dnn->stream);
    dnnl_engine_destroy(dnn->engine);
}

/* ---------------------------------------------------------------- kernels */

static mm_status add_memories(const nets_dnn *dnn, const_dnnl_primitive_desc_t pd, nets_dnn_kernel *kernel) {
    static const int ARGS[] = {
        DNNL_ARG_SRC,       DNNL_ARG_DST,        DNNL_ARG_WEIGHTS,    DNNL_ARG_BIAS,
        DNNL_ARG_MEAN,      DNNL_ARG_VARIANCE,   DNNL_ARG_SCALE,      DNNL_ARG_SHIFT,
        DNNL_ARG_WORKSPACE, DNNL_ARG_DIFF_SRC,   DNNL_ARG_DIFF_DST,   DNNL_ARG_DIFF_WEIGHTS,
        DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT, DNNL_ARG_SCRATCHPAD,
    };
    for (size_t i = 0; i < sizeof ARGS / sizeof ARGS[0]; i++) {
        const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, ARGS[i]);
        if (!md || dnnl_memory_desc_get_size(md) == 0) continue;
        if (kernel->n_args == NETS_DNN_ARGS) return mm_fail(MM_ERR_DEVICE, "oneDNN: a primitive of too many arguments");
        dnnl_exec_arg_t *arg = &kernel->args[kernel->n_args];
        DNN_TRY(dnnl_memory_create(&arg->memory, md, dnn->engine, DNNL_MEMORY_NONE), "a memory object");
        arg->arg = ARGS[i];
        kernel->n_args++;
        if (ARGS[i] == DNNL_ARG_SCRATCHPAD) kernel->scratch_bytes = (int64_t)dnnl_memory_desc_get_size(md);
    }
    return MM_OK;
}

/* The primitive of a description, which it consumes, with its memories. */
static mm_status make_kernel(const nets_dnn *dnn, dnnl_primitive_desc_t pd, const char *what,
                             nets_dnn_kernel *kernel_out) {
    nets_dnn_kernel kernel = {0};
    dnnl_status_t status = dnnl_primitive_create(&kernel.primitive, pd);
    mm_status result = status == dnnl_success ? add_memories(dnn, pd, &kernel) : dnn_fail(status, what);
    dnnl_primitive_desc_destroy(pd);
    if (result != MM_OK) {
        nets_dnn_kernel_fini(&kernel);
        return result;
    }
    *kernel_out = kernel;
    return MM_OK;
}

void nets_dnn_kernel_fini(nets_dnn_kernel *kernel) {
    for (int i = 0; i < kernel->n_args; i++) dnnl_memory_destroy(kernel->args[i].memory);
    if (kernel->primitive) dnnl_primitive_destroy(kernel->primitive);
    *kernel = (nets_dnn_kernel){0};
}

/* Scratchpads are given by us, and there is one thread: oneDNN fixes both when a description is made. */
static mm_status make_attr(dnnl_primitive_attr_t *attr_out) {
    DNN_TRY(dnnl_primitive_attr_create(attr_out), "attributes");
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(*attr_out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success) return MM_OK;
    dnnl_primitive_attr_destroy(*attr_out);
    return dnn_fail(status, "attributes");
}

static mm_status describe(const nets_dnn *dnn, const_dnnl_op_desc_t op, const_dnnl_primitive_desc_t hint,
                          const char *what, dnnl_primitive_desc_t *pd_out) {
    dnnl_primitive_attr_t attr;
    MM_TRY(make_attr(&attr));
    dnnl_status_t status = dnnl_primitive_desc_create(pd_out, op, attr, dnn->engine, hint);
    dnnl_primitive_attr_destroy(attr);
    return status == dnnl_success ? MM_OK : dnn_fail(status, what);
}

/* A kernel from an operation descriptor; `forward` not NULL: the forward operation that a backward one refers to. */
static mm_status build(const nets_dnn *dnn, const_dnnl_op_desc_t op, const_dnnl_op_desc_t forward, const char *what,
                       nets_dnn_kernel *kernel_out) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    dnnl_primitive_desc_t hint = NULL, pd;
    mm_status status = forward ? describe(dnn, forward, NULL, what, &hint) : MM_OK;
    if (status == MM_OK) status = describe(dnn, op, hint, what, &pd);
    if (status == MM_OK) status = make_kernel(dnn, pd, what, kernel_out);
    if (hint) dnnl_primitive_desc_destroy(hint);
    omp_set_num_threads(threads);
    return status;
}

static const dnnl_memory_desc_t *md_of(const nets_dnn_kernel *kernel, int arg) {
    const dnnl_memory_desc_t *md;
    for (int i = 0; i < kernel->n_args; i++)
        if (kernel->args[i].arg == arg && dnnl_memory_get_memory_desc(kernel->args[i].memory, &md) == dnnl_success)
            return md;
    return NULL;
}

int64_t nets_dnn_arg_bytes(const nets_dnn_kernel *kernel, int arg) {
    const dnnl_memory_desc_t *md = md_of(kernel, arg);
    return md ? (int64_t)dnnl_memory_desc_get_size(md) : 0;
}

mm_status nets_dnn_bind(nets_dnn_kernel *kernel, int arg, const void *data) {
    for (int i = 0; i < kernel->n_args; i++)
        if (kernel->args[i].arg == arg)
            DNN_TRY(dnnl_memory_set_data_handle(kernel->args[i].memory, (void *)data), "binding memory");
    return MM_OK;
}

mm_status nets_dnn_run(const nets_dnn *dnn, nets_dnn_kernel *kernel, void *scratch) {
    omp_set_num_threads(1); /* of the calling thread: what a primitive left to be decided at run time */
    MM_TRY(nets_dnn_bind(kernel, DNNL_ARG_SCRATCHPAD, scratch));
    DNN_TRY(dnnl_primitive_execute(kernel->primitive, dnn->stream, kernel->n_args, kernel->args), "a primitive");
    DNN_TRY(dnnl_stream_wait(dnn->stream), "a stream");
    return MM_OK;
}

/* ---------------------------------------------------------------- descriptors */

/* NHWC dims as oneDNN's logical NCHW, laid out channels last. */
static mm_status nhwc(const int64_t dims[4], dnnl_memory_desc_t *md_out) {
    const dnnl_dims_t logical = {dims[0], dims[3], dims[1], dims[2]};
    DNN_TRY(dnnl_memory_desc_init_by_tag(md_out, 4, logical, dnnl_f32, dnnl_nhwc), "describing an image");
    return MM_OK;
}

/* Pairs as the arrays of full length that oneDNN declares. */
typedef struct window_dims {
    dnnl_dims_t kernel, stride, pad;
} window_dims;

static window_dims dims_of(const nets_dnn_windows *w) {
    return (window_dims){
        .kernel = {w->kernel[0], w->kernel[1]}, .stride = {w->stride[0], w->stride[1]}, .pad = {w->pad[0], w->pad[1]}};
}

typedef struct conv_mds {
    dnnl_memory_desc_t x, y, weights, bias;
    const dnnl_memory_desc_t *bias_or_null;
    window_dims dims;
} conv_mds;

static mm_status describe_conv(const nets_dnn_windows *w, bool bias, conv_mds *mds) {
    const dnnl_dims_t weights = {w->y[3], w->x[3], w->kernel[0], w->kernel[1]}, channels = {w->y[3]};
    MM_TRY(nhwc(w->x, &mds->x));
    MM_TRY(nhwc(w->y, &mds->y));
    DNN_TRY(dnnl_memory_desc_init_by_tag(&mds->weights, 4, weights, dnnl_f32, dnnl_format_tag_any), "weights");
    DNN_TRY(dnnl_memory_desc_init_by_tag(&mds->bias, 1, channels, dnnl_f32, dnnl_a), "a bias");
    mds->bias_or_null = bias ? &mds->bias : NULL;
    mds->dims = dims_of(w);
    return MM_OK;
}

static mm_status describe_conv_forward(const nets_dnn_windows *w, bool bias, dnnl_convolution_desc_t *desc) {
    conv_mds mds;
    MM_TRY(describe_conv(w, bias, &mds));
    DNN_TRY(dnnl_convolution_forward_desc_init(desc, dnnl_forward_training, dnnl_convolution_direct, &mds.x,
                                               &mds.weights, mds.bias_or_null, &mds.y, mds.dims.stride, mds.dims.pad,
                                               mds.dims.pad),
            "a convolution");
    return MM_OK;
}

mm_status nets_dnn_conv_forward(const nets_dnn *dnn, const nets_dnn_windows *w, bool bias,
                                nets_dnn_kernel *kernel_out) {
    dnnl_convolution_desc_t forward;
    MM_TRY(describe_conv_forward(w, bias, &forward));
    return build(dnn, &forward, NULL, "a convolution", kernel_out);
}

mm_status nets_dnn_conv_backward_data(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_kernel *kernel_out) {
    dnnl_convolution_desc_t forward, backward;
    conv_mds mds;
    MM_TRY(describe_conv_forward(w, false, &forward));
    MM_TRY(describe_conv(w, false, &mds));
    DNN_TRY(dnnl_convolution_backward_data_desc_init(&backward, dnnl_convolution_direct, &mds.x, &mds.weights, &mds.y,
                                                     mds.dims.stride, mds.dims.pad, mds.dims.pad),
            "a convolution's gradient by its input");
    return build(dnn, &backward, &forward, "a convolution's gradient by its input", kernel_out);
}

mm_status nets_dnn_conv_backward_weights(const nets_dnn *dnn, const nets_dnn_windows *w, bool bias,
                                         nets_dnn_kernel *kernel_out) {
    dnnl_convolution_desc_t forward, backward;
    conv_mds mds;
    MM_TRY(describe_conv_forward(w, bias, &forward));
    MM_TRY(describe_conv(w, bias, &mds));
    DNN_TRY(dnnl_convolution_backward_weights_desc_init(&backward, dnnl_convolution_direct, &mds.x, &mds.weights,
                                                        mds.bias_or_null, &mds.y, mds.dims.stride, mds.dims.pad,
                                                        mds.dims.pad),
            "a convolution's gradient by its weights");
    return build(dnn, &backward, &forward, "a convolution's gradient by its weights", kernel_out);
}

static mm_status build_reorder(const nets_dnn *dnn, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                               nets_dnn_kernel *reorder_out) {
    dnnl_primitive_attr_t attr;
    MM_TRY(make_attr(&attr));
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&pd, from, dnn->engine, to, dnn->engine, attr);
    dnnl_primitive_attr_destroy(attr);
    if (status != dnnl_success) return dnn_fail(status, "a reorder of weights");
    return make_kernel(dnn, pd, "a reorder of weights", reorder_out);
}

mm_status nets_dnn_weights_reorder(const nets_dnn *dnn, const nets_dnn_kernel *kernel, int arg, bool to_plain,
                                   nets_dnn_kernel *reorder_out) {
    const dnnl_memory_desc_t *wanted = md_of(kernel, arg);
    dnnl_memory_desc_t plain;
    if (!wanted) return mm_fail(MM_ERR_DEVICE, "oneDNN: a convolution without weights");
    DNN_TRY(dnnl_memory_desc_init_by_tag(&plain, 4, wanted->dims, dnnl_f32, dnnl_oihw), "weights");
    *reorder_out = (nets_dnn_kernel){0};
    if (dnnl_memory_desc_equal(wanted, &plain)) return MM_OK;
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    mm_status status =
        to_plain ? build_reorder(dnn, wanted, &plain, reorder_out) : build_reorder(dnn, &plain, wanted, reorder_out);
    omp_set_num_threads(threads);
    return status;
}

static mm_status describe_pool(const nets_dnn_windows *w, nets_dnn_pool kind, bool training,
                               dnnl_pooling_desc_t *forward, dnnl_pooling_desc_t *backward) {
    static const dnnl_alg_kind_t ALGORITHMS[] = {dnnl_pooling_max, dnnl_pooling_avg_include_padding,
                                                 dnnl_pooling_avg_exclude_padding};
    dnnl_memory_desc_t x, y;
    const window_dims d = dims_of(w);
    MM_TRY(nhwc(w->x, &x));
    MM_TRY(nhwc(w->y, &y));
    DNN_TRY(dnnl_pooling_forward_desc_init(forward, training ? dnnl_forward_training : dnnl_forward_inference,
                                           ALGORITHMS[kind], &x, &y, d.stride, d.kernel, d.pad, d.pad),
            "a pool");
    if (backward)
        DNN_TRY(dnnl_pooling_backward_desc_init(backward, ALGORITHMS[kind], &x, &y, d.stride, d.kernel, d.pad, d.pad),
                "a pool's gradient");
    return MM_OK;
}

mm_status nets_dnn_pool_forward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_pool kind, bool training,
                                nets_dnn_kernel *kernel_out) {
    dnnl_pooling_desc_t forward;
    MM_TRY(describe_pool(w, kind, training, &forward, NULL));
    return build(dnn, &forward, NULL, "a pool", kernel_out);
}

mm_status nets_dnn_pool_backward(const nets_dnn *dnn, const nets_dnn_windows *w, nets_dnn_pool kind,
                                 nets_dnn_kernel *kernel_out) {
    dnnl_pooling_desc_t forward, backward;
    MM_TRY(describe_pool(w, kind, true, &forward, &backward));
    return build(dnn, &backward, &forward, "a pool's gradient", kernel_out);
}

static const unsigned BATCH_NORM_FLAGS = dnnl_use_scale | dnnl_use_shift;

mm_status nets_dnn_batch_norm_forward(const nets_dnn *dnn, const int64_t x[4], float eps, bool training,
                                      nets_dnn_kernel *kernel_out) {
    dnnl_memory_desc_t md;
    dnnl_batch_normalization_desc_t forward;
    MM_TRY(nhwc(x, &md));
    DNN_TRY(dnnl_batch_normalization_forward_desc_init(
                &forward, training ? dnnl_forward_training : dnnl_forward_inference, &md, eps,
                BATCH_NORM_FLAGS | (training ? 0u : (unsigned)dnnl_use_global_stats)),
            "a batch norm");
    return build(dnn, &forward, NULL, "a batch norm", kernel_out);
}

mm_status nets_dnn_batch_norm_backward(const nets_dnn *dnn, const int64_t x[4], float eps,
                                       nets_dnn_kernel *kernel_out) {
    dnnl_memory_desc_t md;
    dnnl_batch_normalization_desc_t forward, backward;
    MM_TRY(nhwc(x, &md));
    DNN_TRY(dnnl_batch_normalization_forward_desc_init(&forward, dnnl_forward_training, &md, eps, BATCH_NORM_FLAGS),
            "a batch norm");
    DNN_TRY(dnnl_batch_normalization_backward_desc_init(&backward, dnnl_backward, &md, &md, eps, BATCH_NORM_FLAGS),
            "a batch norm's gradient");
    return build(dnn, &backward, &forward, "a batch norm's gradient", kernel_out);
}
