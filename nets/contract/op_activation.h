/* SPDX-License-Identifier: MIT */
/* Shared by activations' implementations. */
#ifndef NETS_CONTRACT_OP_ACTIVATION_H
#define NETS_CONTRACT_OP_ACTIVATION_H

#include "nets/activation.h"
#include "nets/role.h"

/* The activation that an operation computes; `op` must compute one. */
static inline nets_activation nets_activation_of(nets_op_kind op, const nets_attrs *attrs) {
    static const nets_op_kind ops[NETS_ACTIVATION_KINDS] = {
#define NETS_ACTIVATION_OP(NAME, name, OP, BY) NETS_##OP,
        NETS_ACTIVATIONS(NETS_ACTIVATION_OP)
#undef NETS_ACTIVATION_OP
    };
    int a = 0;
    while (ops[a] != op) a++;
    return a == NETS_ACTIVATION_GELU && attrs->tanh ? NETS_ACTIVATION_GELU_TANH : (nets_activation)a;
}

/* What the derivative is a function of: NETS_X or NETS_Y. */
static inline nets_role nets_activation_by(nets_activation a) {
    static const nets_role by[NETS_ACTIVATION_KINDS] = {
#define NETS_ACTIVATION_BY(NAME, name, OP, BY) NETS_##BY,
        NETS_ACTIVATIONS(NETS_ACTIVATION_BY)
#undef NETS_ACTIVATION_BY
    };
    return by[a];
}

#endif
