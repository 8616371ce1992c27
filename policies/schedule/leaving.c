/* SPDX-License-Identifier: MIT */
#include "policies/schedule/leaving.h"

#include <stdlib.h>

#include "mm/core/status.h"

mm_status mm_leaving_init(mm_leaving *l, int n, int64_t most) {
    *l = (mm_leaving){.most = most, .copies = malloc(((size_t)n + 1) * sizeof *l->copies)};
    return l->copies ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for planning %d copies", n);
}

void mm_leaving_fini(mm_leaving *l) { free(l->copies); }

void mm_leaving_add(mm_leaving *l, const mm_schedule *s, int segment, int64_t begins_ns, int64_t ns) {
    if (l->most == 0) return;
    if (l->free_ns < begins_ns) l->free_ns = begins_ns;
    l->free_ns += ns;
    const int64_t bytes = s->plan->segments[segment].bytes;
    l->copies[l->n++] = (mm_leaving_copy){s->segment_group[segment], bytes, l->free_ns};
    l->bytes += bytes;
}

void mm_leaving_look(mm_leaving *l, mm_schedule *s, int64_t now_ns) {
    for (; l->first < l->n; l->first++) {
        const mm_leaving_copy *copy = &l->copies[l->first];
        mm_group *group = &s->groups[copy->group];
        if (copy->ends_ns > now_ns && l->bytes <= l->most) return;
        if (group->hold < s->plan->n_nodes - 1) group->hold = s->plan->n_nodes - 1;
        l->bytes -= copy->bytes;
    }
}
