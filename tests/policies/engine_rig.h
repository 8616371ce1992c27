/* What tests of the engine of rules have in common; behind <cmocka.h>. */
#ifndef TESTS_POLICIES_ENGINE_RIG_H
#define TESTS_POLICIES_ENGINE_RIG_H

#include <string.h>

#include "mm/core/status.h"
#include "tests/policies/terse_graph.h"

enum { MAP = 8, CODE = 2 }; /* units */

static inline void assert_says(const char *word) {
    if (!strstr(mm_last_error(), word)) fail_msg("'%s' does not say '%s'", mm_last_error(), word);
}

/* x0 -> conv1 -> x1 -> ... -> conv4 -> x4 -> loss, and back; `updates`: each backward step is followed by an update. */
static inline mm_graph *row(bool updates) {
    terse_graph g;
    char layer[24], text[64];
    terse_init(&g, "row");
    terse_persistent(&g, "loss", 1);
    terse_map(&g, "x0", MM_INPUT, 1);
    for (int i = 1; i <= 4; i++) {
        snprintf(text, sizeof text, "x%d", i);
        terse_map(&g, text, MM_FEATURE_MAP, MAP);
        snprintf(text, sizeof text, "d%d", i);
        terse_map(&g, text, MM_GRADIENT_MAP, MAP);
        snprintf(text, sizeof text, "w%d", i);
        terse_persistent(&g, text, 1);
    }
    terse_step(&g, "data", MM_LAYER_DATA, MM_FORWARD, "=x0");
    for (int i = 1; i <= 4; i++) {
        snprintf(layer, sizeof layer, "conv%d", i);
        snprintf(text, sizeof text, "x%d w%d =x%d", i - 1, i, i);
        terse_step(&g, layer, MM_LAYER_CONV, MM_FORWARD, text);
    }
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_FORWARD, "x4 +loss");
    terse_step(&g, "loss", MM_LAYER_LOSS, MM_BACKWARD, "x4 =d4");
    for (int i = 4; i >= 1; i--) {
        snprintf(layer, sizeof layer, "conv%d", i);
        snprintf(text, sizeof text, i > 1 ? "x%d w%d d%d =d%d" : "x%d w%d d%d", i - 1, i, i, i - 1);
        terse_step(&g, layer, MM_LAYER_CONV, MM_BACKWARD, text);
        snprintf(text, sizeof text, "+w%d", i);
        if (updates) terse_step(&g, layer, MM_LAYER_CONV, MM_UPDATE, text);
    }
    return terse_freeze(&g);
}

#endif
