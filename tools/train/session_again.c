/* SPDX-License-Identifier: MIT */
/* Plans again once, by the times of a session's first iterations. All plans of a lossless policy give the same bits, so
 * this changes none. */
#include <stdio.h>
#include <string.h>

#include "tools/train/session_parts.h"

enum { GRAPHS_MOST = NETS_PASSES };

static int list_graphs(const session *s, const mm_graph *graphs[GRAPHS_MOST]) {
    const nets_lowered *pass;
    int n = 0;
    while (n < GRAPHS_MOST && (pass = nets_exec_lowered_pass(s->train, n))) graphs[n++] = pass->graph;
    return n;
}

static void tell(const mm_again *again, mm_status status) {
    char message[512];
    if (status != MM_OK)
        snprintf(message, sizeof message, "the plan stays: %.480s", mm_last_error());
    else if (again->refused)
        snprintf(message, sizeof message, "the plan stays, by the times of iterations 2 to %d: %s",
                 HOST_RATES_ITERATIONS, again->refused);
    else
        snprintf(message, sizeof message,
                 "planned again by the times of iterations 2 to %d: by these, an iteration takes %.3g ms, not %.3g",
                 HOST_RATES_ITERATIONS, (double)again->next_ns * 1e-6, (double)again->now_ns * 1e-6);
    session_say(NULL, MM_LOG_INFO, message);
}

void session_plan_again(session *s, bool *changed_out) {
    const mm_graph *graphs[GRAPHS_MOST];
    mm_again again = {.refused = NULL};
    *changed_out = false;
    if (!session_plans_again(s) || s->measured < 0 || ++s->measured < HOST_RATES_ITERATIONS) return;
    s->measured = -1;
    if (strcmp(mm_policy_now(s->manager), s->config.policies.text[0]) != 0) return; /* a switch, or the ladder */
    int threads = s->config.target.backend->threads;
    const mm_status status =
        mm_measured_plan_again(s->manager, graphs, list_graphs(s, graphs), host_rates_learn, &threads, &again);
    *changed_out = status == MM_OK && !again.refused;
    tell(&again, status);
}
