/* SPDX-License-Identifier: MIT */
/* Running a convolution: with which of its algorithms, in how much workspace. */
#include "mm/core/graph/dtype.h"
#include "nets/cuda/libraries/cudnn_conv.h"

/* The fastest algorithm whose workspace fits in `bytes`; NULL: every algorithm takes more. */
static const nets_conv_algorithm *fastest_within(const nets_cudnn_conv *conv, int64_t bytes) {
    for (int i = 0; i < conv->n; i++)
        if (conv->of[i].choice.workspace_bytes <= bytes) return &conv->of[i];
    return NULL;
}

/* Gives the workspace and the time of the parts if each runs its fastest algorithm that takes at most `within` bytes.
 * False: a part has no such algorithm. */
static bool step_within(const nets_cudnn_conv *const parts[], int n_parts, int64_t within, nets_pareto_point *p) {
    *p = (nets_pareto_point){0, 0};
    for (int i = 0; i < n_parts; i++) {
        const nets_conv_algorithm *a = parts[i]->n ? fastest_within(parts[i], within) : NULL;
        if (parts[i]->n && !a) return false;
        if (a) p->bytes = nets_larger(p->bytes, a->choice.workspace_bytes);
        if (a) p->ns += a->choice.ns;
    }
    return true;
}

static int64_t whole_bytes(nets_conv_room room, int64_t library) {
    const int64_t bytes = nets_larger(room.before + library, room.least);
    return room.behind ? nets_aligned(bytes) + room.behind : bytes;
}

void nets_cudnn_conv_set_workspaces(nets_op *op, mm_phase phase, const nets_cudnn_conv *const parts[], int n_parts,
                                    nets_conv_room room) {
    nets_pareto_point points[NETS_FRONT_POINTS] = {{0, 0}};
    int n = 0, chosen[NETS_WORKSPACES];
    int64_t within = INT64_MAX;
    for (; within >= 0 && step_within(parts, n_parts, within, &points[n]); n++) within = points[n].bytes - 1;
    n = nets_pareto_of(points, n, 1, NETS_WORKSPACES, chosen);
    nets_workspaces *w = &op->workspaces[phase];
    for (int i = 0; i < n; i++) {
        const int64_t bytes = whole_bytes(room, points[chosen[i]].bytes);
        if (w->n == 0 || bytes < w->bytes[w->n - 1]) w->bytes[w->n++] = bytes;
    }
}

mm_status nets_cudnn_conv_launch(const nets_cudnn_conv *conv, const nets_conv_algorithm *a, const nets_conv_tensors *at,
                                 cudaStream_t stream) {
    if (a->choice.api == NETS_CONV_PRODUCT)
        return nets_gemm_enqueue(&conv->product, &a->product, at->x, at->y, at->weights, at->extra, at->workspace,
                                 stream);
    if (a->choice.api == NETS_CONV_GRAPH)
        return nets_cudnn_plan_enqueue(&a->plan, at->x, at->y, at->weights, at->workspace);
    return nets_cudnn_legacy_launch(conv, &a->choice, at->x, at->y, at->weights, at->workspace);
}

mm_status nets_cudnn_conv_enqueue(const nets_cudnn_conv *conv, const nets_conv_tensors *at, mm_stream *stream) {
    const nets_conv_algorithm *a = fastest_within(conv, at->workspace_bytes);
    cudnnHandle_t dnn;
    if (!a)
        return mm_fail(MM_ERR_INVALID,
                       "a convolution got %lld bytes for the library's workspace; it takes at least %lld",
                       (long long)at->workspace_bytes, (long long)conv->of[conv->n - 1].choice.workspace_bytes);
    MM_TRY(nets_cuda_dnn_on(conv->cuda, stream, &dnn));
    return nets_cudnn_conv_launch(conv, a, at, mm_cuda_stream(stream));
}

/* ---------------------------------------------------------------- earlier contributions */

mm_status nets_cuda_check_earlier(const nets_op_args *args, bool adds) {
    if ((args->at[NETS_EARLIER] != NULL) == adds) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "EARLIER does not match: a product was created %s an earlier contribution to its gradient",
                   adds ? "with" : "without");
}

mm_status nets_cuda_put_earlier(const nets_op_args *args, mm_dtype maps, int64_t elems, mm_stream *stream) {
    const void *earlier = args->at[NETS_EARLIER];
    if (!earlier || earlier == args->at[NETS_DX]) return MM_OK;
    return mm_cuda_check(cudaMemcpyAsync(args->at[NETS_DX], earlier, (size_t)(elems * mm_dtype_table[maps].bytes),
                                         cudaMemcpyDefault, mm_cuda_stream(stream)),
                         "cudaMemcpyAsync");
}
