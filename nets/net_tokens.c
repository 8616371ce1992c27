/* SPDX-License-Identifier: MIT */
/* A network of tokens with another context: the same layers over longer or shorter samples. */
#include "nets/net.h"

/* The data's shape with this many tokens. Data of more than one dimension besides its channels have no context. */
static mm_status reshape(const nets_net *net, int64_t tokens, nets_shape *shape_out) {
    const nets_shape *given = &nets_net_layer(net, 0)->shape;
    int along = given->rank - 2, longer = 0;
    for (int d = 0; d < given->rank - 1; d++)
        if (given->dims[d] > 1) along = d, longer++;
    if (nets_net_tokens(net) == 0)
        return mm_fail(MM_ERR_INVALID, "net %s: has no context: its samples are not tokens", nets_net_name(net));
    if (longer > 1 || along < 0)
        return mm_fail(MM_ERR_INVALID, "net %s: has no context: its tokens are no row", nets_net_name(net));
    *shape_out = *given;
    shape_out->dims[along] = tokens;
    return MM_OK;
}

mm_status nets_net_with_tokens(const nets_net *net, int64_t tokens, nets_net **net_out) {
    nets_shape shape;
    nets_net *copy;
    MM_TRY(reshape(net, tokens, &shape));
    MM_TRY(nets_net_create(nets_net_name(net), &copy));
    nets_add_samples(copy, &shape, nets_net_classes(net));
    mm_status status = nets_net_status(copy);
    for (int i = 1; status == MM_OK && i < nets_net_layers(net); i++)
        status = nets_copy_layer(net, i, nets_net_layer(net, i)->inputs, copy);
    if (status == MM_OK) status = nets_net_finish(copy);
    if (status == MM_OK)
        *net_out = copy;
    else
        nets_net_destroy(copy);
    return status;
}
