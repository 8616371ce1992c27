/* SPDX-License-Identifier: MIT */
#include "mm/manager/tensor_refusal.h"

#include <stdio.h>

#include "mm/core/log.h"
#include "mm/core/text.h"
#include "mm/manager/claims.h"
#include "mm/manager/states.h"

/* Lists the tensors that a step uses: "a, b, c". */
static void list_uses(const mm_graph *graph, const mm_step_info *step, char *text, size_t capacity) {
    size_t length = 0;
    int n = 0;
    text[0] = '\0';
    for (int u = 0; u < step->n_uses && length < capacity; u++) {
        const char *name = mm_graph_tensor(graph, step->uses[u].tensor)->name;
        n = snprintf(text + length, capacity - length, "%s%s", u > 0 ? ", " : "", name);
        length += (size_t)n;
    }
    mm_text_mark_cut(text, capacity, (int)length);
}

static void refuse_use(mm_manager *m, const mm_graph *graph, mm_tensor tensor) {
    const int s = m->now.planned->plan->nodes[m->now.node].step;
    char step[2 * MM_BRIEF_CAPACITY], uses[MM_MESSAGE_CAPACITY / 2];
    mm_graph_step_name(graph, s, step, sizeof step);
    list_uses(graph, mm_graph_step(graph, s), uses, sizeof uses);
    mm_fail_set("mm_tensor_data: %s does not use tensor %s; it uses %s", step,
                MM_BRIEF(mm_graph_tensor(graph, tensor)->name), uses[0] ? uses : "none");
    mm_claims_undeclared(m);
    mm_log_send(&m->options.log, MM_LOG_ERROR, "%s", mm_last_error());
}

void mm_tensor_refuse(mm_manager *m, mm_tensor tensor) {
    const mm_graph *graph = m && m->state != MM_STATE_IDLE ? m->now.ready->prepared->graph : NULL;
    if (!graph)
        mm_fail_set("mm_tensor_data: tensor %d has no address: no iteration is under way", tensor);
    else if (tensor < 0 || tensor >= mm_graph_tensors(graph))
        mm_fail_set("mm_tensor_data: %s has no tensor %d", mm_graph_name(graph), tensor);
    else if (!mm_state_in_step(m))
        mm_fail_set("mm_tensor_data: tensor %s of %s has an address only within a step that uses it",
                    mm_graph_tensor(graph, tensor)->name, mm_graph_name(graph));
    else
        refuse_use(m, graph, tensor);
}
