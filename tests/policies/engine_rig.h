/* SPDX-License-Identifier: MIT */
/* Helpers that the tests of the engine share. To be included after <cmocka.h>. */
#ifndef TESTS_POLICIES_ENGINE_RIG_H
#define TESTS_POLICIES_ENGINE_RIG_H

#include <string.h>

#include "mm/core/status.h"
#include "tests/policies/terse_graph.h"

enum { MAP = 8, CODE = 2 }; /* units */

static inline void assert_says(const char *word) {
    if (!strstr(mm_last_error(), word)) fail_msg("'%s' does not say '%s'", mm_last_error(), word);
}

/* x0 -> conv1 -> x1 -> ... -> conv4 -> x4 -> loss, and the backward pass. updates: an update follows each backward
 * step. */
static inline mm_graph *row(bool updates) {
    terse_graph g;
    terse_init(&g, "row");
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x0", MM_INPUT, 1);
    for (g.i = 1; g.i <= 4; g.i++) {
        terse_map(&g, "x#", MM_FEATURE_MAP, MAP);
        terse_map(&g, "d#", MM_GRADIENT_MAP, MAP);
        terse_persistent(&g, "w#", 1);
    }
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x0");
    for (g.i = 1; g.i <= 4; g.i++) terse_step(&g, "conv#", MM_LAYER_CONV, MM_FORWARD, "x< w# =x#");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "x4 +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "x4 =d4");
    for (g.i = 4; g.i >= 1; g.i--) {
        terse_step(&g, "conv#", MM_LAYER_CONV, MM_BACKWARD, g.i > 1 ? "x< w# d# =d<" : "x< w# d#");
        if (updates) terse_step(&g, "conv#", MM_LAYER_CONV, MM_UPDATE, "+w#");
    }
    return terse_freeze(&g);
}

#endif
