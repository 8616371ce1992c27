/* SPDX-License-Identifier: MIT */
/* How a tensor of an ONNX graph lies in a layer's map. ONNX reshapes and transposes tensors; a map stays where it is,
 * [n, height, width, channels], and only the view of it changes: so such nodes need no layer.
 *
 * Each dimension of a view is a list of pairs {size, stride}, outermost first: its index is split as in a number with
 * digits of these sizes, and each digit steps by its stride through the map. Examples, of a map of n x h x w x c:
 *
 *      ONNX's [n, c, h, w]               {n: hwc} {c: 1} {h: wc} {w: c}
 *      the same flattened to [n, chw]    {n: hwc} {c: 1, h: wc, w: c}; h and w join: {c: 1, hw: c}
 *      tokens [n, hw, c]                 {n: hwc} {hw: c} {c: 1}
 *
 * Pairs of size 1 are left out, and neighbours that step as one are joined, so equal views have equal pairs. */
#ifndef NETS_IO_ONNX_VIEW_H
#define NETS_IO_ONNX_VIEW_H

#include "nets/net.h"

enum { ONNX_RANK_MAX = 8, ONNX_PAIRS_MAX = 6 };

typedef struct onnx_pair {
    int64_t size, stride;
} onnx_pair;

typedef struct onnx_dim {
    int n;
    onnx_pair pairs[ONNX_PAIRS_MAX];
} onnx_dim;

typedef struct onnx_view {
    int rank;
    int64_t offset; /* of its first element in the map */
    onnx_dim dims[ONNX_RANK_MAX];
} onnx_view;

/* A dimension of one pair, {} if `size` is 1. */
onnx_dim onnx_dim_of(int64_t size, int64_t stride);
bool onnx_dim_equal(const onnx_dim *a, const onnx_dim *b);
/* How many elements the dimension, or the whole view, has. */
int64_t onnx_dim_size(const onnx_dim *dim);
int64_t onnx_view_elems(const onnx_view *view);
bool onnx_view_equal(const onnx_view *a, const onnx_view *b);

/* ONNX's [n, channels, height, width] of a map of `batch` samples of `shape` {height, width, channels}; of a map of
 * rank 2, [n, channels]. */
onnx_view onnx_view_map(const nets_shape *shape, int64_t batch, int rank);
/* The dimension that has a whole sample in torch's order: channel, height, width. */
onnx_dim onnx_dim_sample(const nets_shape *shape);

/* False: the new dimensions would cut through a pair, or have too many; *out is undefined then. `dims` are all above 0
 * and have as many elements as the view. */
bool onnx_view_reshape(const onnx_view *view, int rank, const int64_t dims[], onnx_view *out);
onnx_view onnx_view_transpose(const onnx_view *view, const int order[]);

/* Moves a view of a map of samples `from` to a map of samples `to`: each pair keeps its axis. Pairs of an axis whose
 * extent differs must have been removed or replaced first. False: a pair belongs to no axis, or lies across two. */
bool onnx_view_move(onnx_view *view, const nets_shape *from, const nets_shape *to);

#endif
