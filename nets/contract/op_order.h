/* SPDX-License-Identifier: MIT */
/* The order of a parameter's elements on a device. In files, in calls and on the host it is torchvision's: for a
 * convolution's weights [outer][inner][window], the last being the kernel's pixels. A device may want them as
 * [outer][window][there], whose elements from `inner` to `there` are zero and stay so; gradients and the optimizer's
 * states have the order of the weights. nets/ reorders parameters when it gets, sets, initialises, saves and loads them
 * (exec_params.c); steps never do. */
#ifndef NETS_CONTRACT_OP_ORDER_H
#define NETS_CONTRACT_OP_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct nets_order {
    int64_t outer, inner, window;
    int64_t there; /* at least `inner` */
} nets_order;

/* channels_last: the backend's. padded: with how many channels the layer reads padded images; 0: it reads none. A
 * parameter of another rank than 4 is no convolution's weight and is not reordered: `window` is all its elements. */
static inline nets_order nets_order_of(int rank, const int64_t *dims, bool channels_last, int64_t padded) {
    nets_order o = {1, 1, 1, 1};
    if (channels_last && rank == 4)
        return (nets_order){dims[0], dims[1], dims[2] * dims[3], padded > dims[1] ? padded : dims[1]};
    for (int d = 0; d < rank; d++) o.window *= dims[d];
    return o;
}

static inline bool nets_order_is_plain(const nets_order *o) {
    return o->there == o->inner && (o->inner == 1 || o->window == 1);
}

/* The number of elements on the device. */
static inline int64_t nets_order_elems(const nets_order *o) { return o->outer * o->window * o->there; }

/* The index on the device of element e. */
static inline int64_t nets_order_place(const nets_order *o, int64_t e) {
    const int64_t row = e / o->window;
    return (row / o->inner * o->window + e % o->window) * o->there + row % o->inner;
}

#endif
