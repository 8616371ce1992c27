/* SPDX-License-Identifier: MIT */
/* Shapes: whether two are equal, and as text. */
#include <stdio.h>
#include <string.h>

#include "nets/net.h"

bool nets_shape_equal(const nets_shape *a, const nets_shape *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

const char *nets_shape_text(const nets_shape *shape, char text_out[NETS_SHAPE_TEXT_CAPACITY]) {
    size_t at = 0;
    text_out[0] = '\0';
    for (int d = 0; d < shape->rank && at < NETS_SHAPE_TEXT_CAPACITY; d++)
        at += (size_t)snprintf(text_out + at, NETS_SHAPE_TEXT_CAPACITY - at, "%s%lld", d ? "x" : "",
                               (long long)shape->dims[d]);
    return text_out;
}
