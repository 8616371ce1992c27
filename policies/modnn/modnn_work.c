/* SPDX-License-Identifier: MIT */
/* The variants that steps may run, and the least workspace that they need. */
#include "policies/modnn/modnn.h"

void mm_modnn_choice(const modnn *m, int step, int *from_out, int *to_out) {
    const int n = m->facts->variant_first[step + 1] - m->facts->variant_first[step];
    int least = 0;
    for (int v = 1; v < n; v++)
        if (mm_modnn_variant(m, step, v)->workspace_bytes < mm_modnn_variant(m, step, least)->workspace_bytes)
            least = v;
    *from_out = m->algorithms == MM_ALGORITHMS_LEAST ? least : 0;
    *to_out = m->algorithms == MM_ALGORITHMS_FASTEST ? 1 : least + 1;
}

int64_t mm_modnn_least_work(const modnn *m, int step) {
    int from, to;
    mm_modnn_choice(m, step, &from, &to);
    return mm_align(mm_modnn_variant(m, step, to - 1)->workspace_bytes);
}
