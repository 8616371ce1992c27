/* SPDX-License-Identifier: MIT */
#include "nets/io/onnx/onnx_view.h"

#include <string.h>

/* Appends a digit below the dimension's others. False: there is no room. */
static bool push(onnx_dim *dim, int64_t size, int64_t stride) {
    if (size == 1) return true;
    onnx_pair *last = dim->n ? &dim->pairs[dim->n - 1] : NULL;
    if (last && last->stride == size * stride) {
        *last = (onnx_pair){last->size * size, stride};
        return true;
    }
    if (dim->n == ONNX_PAIRS_MAX) return false;
    dim->pairs[dim->n++] = (onnx_pair){size, stride};
    return true;
}

onnx_dim onnx_dim_of(int64_t size, int64_t stride) {
    onnx_dim dim = {0};
    push(&dim, size, stride);
    return dim;
}

bool onnx_dim_equal(const onnx_dim *a, const onnx_dim *b) {
    return a->n == b->n && memcmp(a->pairs, b->pairs, (size_t)a->n * sizeof *a->pairs) == 0;
}

int64_t onnx_dim_size(const onnx_dim *dim) {
    int64_t size = 1;
    for (int i = 0; i < dim->n; i++) size *= dim->pairs[i].size;
    return size;
}

int64_t onnx_view_elems(const onnx_view *view) {
    int64_t elems = 1;
    for (int d = 0; d < view->rank; d++) elems *= onnx_dim_size(&view->dims[d]);
    return elems;
}

bool onnx_view_equal(const onnx_view *a, const onnx_view *b) {
    if (a->rank != b->rank || a->offset != b->offset) return false;
    for (int d = 0; d < a->rank; d++)
        if (!onnx_dim_equal(&a->dims[d], &b->dims[d])) return false;
    return true;
}

onnx_view onnx_view_map(const nets_shape *shape, int64_t batch, int rank) {
    const int64_t h = shape->dims[0], w = shape->dims[1], c = shape->dims[2];
    return (onnx_view){
        .rank = rank,
        .dims = {onnx_dim_of(batch, h * w * c), onnx_dim_of(c, 1), onnx_dim_of(h, w * c), onnx_dim_of(w, c)}};
}

onnx_dim onnx_dim_sample(const nets_shape *shape) {
    onnx_dim dim = onnx_dim_of(shape->dims[2], 1);
    push(&dim, shape->dims[0], shape->dims[1] * shape->dims[2]);
    push(&dim, shape->dims[1], shape->dims[2]);
    return dim;
}

bool onnx_view_reshape(const onnx_view *view, int rank, const int64_t dims[], onnx_view *out) {
    onnx_pair pairs[ONNX_RANK_MAX * ONNX_PAIRS_MAX + 1];
    int n = 0, next = 0;
    for (int d = 0; d < view->rank; d++)
        for (int i = 0; i < view->dims[d].n; i++) {
            const onnx_pair *p = &view->dims[d].pairs[i];
            if (n && pairs[n - 1].stride == p->size * p->stride)
                pairs[n - 1] = (onnx_pair){pairs[n - 1].size * p->size, p->stride};
            else
                pairs[n++] = *p;
        }
    *out = (onnx_view){.rank = rank, .offset = view->offset};
    for (int d = 0; d < rank; d++)
        for (int64_t left = dims[d]; left > 1;) {
            if (next == n) return false;
            onnx_pair *p = &pairs[next];
            if (left % p->size == 0) { /* the whole pair, and more */
                if (!push(&out->dims[d], p->size, p->stride)) return false;
                left /= p->size;
                next++;
            } else if (p->size % left == 0) { /* its outer part */
                p->size /= left;
                if (!push(&out->dims[d], left, p->size * p->stride)) return false;
                left = 1;
            } else {
                return false;
            }
        }
    return next == n;
}

onnx_view onnx_view_transpose(const onnx_view *view, const int order[]) {
    onnx_view out = {.rank = view->rank, .offset = view->offset};
    for (int d = 0; d < view->rank; d++) out.dims[d] = view->dims[order[d]];
    return out;
}

/* ---------------------------------------------------------------- to another map */

/* The strides of channels, width, height and samples. */
typedef struct axes {
    int64_t strides[4], extents[4];
} axes;

static axes axes_of(const nets_shape *shape) {
    const int64_t h = shape->dims[0], w = shape->dims[1], c = shape->dims[2];
    return (axes){{1, c, w * c, h * w * c}, {c, w, h, INT64_MAX}};
}

/* Moves one pair, which may cover several axes, outermost first. */
static bool move_pair(onnx_dim *dim, onnx_pair pair, const axes *from, const axes *to) {
    for (int a = 3; a >= 0; a--) {
        const int64_t step = from->strides[a];
        /* the part of the pair's digits that steps by at least this axis's stride, but not by the next one's */
        if (pair.size == 1 || from->extents[a] == 1 || pair.size * pair.stride <= step) continue;
        const int64_t inner = pair.stride >= step ? 1 : step / pair.stride;
        if (pair.stride < step && (step % pair.stride || pair.size % inner)) return false;
        const int64_t outer = pair.size / inner, stride = pair.stride * inner;
        if (stride % step || (a < 3 && outer * (stride / step) > from->extents[a])) return false;
        if (!push(dim, outer, stride / step * to->strides[a])) return false;
        pair.size = inner;
    }
    return pair.size == 1;
}

bool onnx_view_move(onnx_view *view, const nets_shape *from, const nets_shape *to) {
    const axes old = axes_of(from), new = axes_of(to);
    if (view->offset) return false;
    for (int d = 0; d < view->rank; d++) {
        onnx_dim moved = {0};
        for (int i = 0; i < view->dims[d].n; i++)
            if (!move_pair(&moved, view->dims[d].pairs[i], &old, &new)) return false;
        view->dims[d] = moved;
    }
    return true;
}
