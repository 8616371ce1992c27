/* SPDX-License-Identifier: MIT */
#include "tools/train/session_view.h"

#include <stdio.h>
#include <string.h>

#include "mm/core/account/account.h"
#include "mm/core/graph/graph.h"
#include "mm/core/size.h"
#include "mm/device/contract/clock.h"
#include "mm/manager/prepare.h"

void session_view_begin(session_view *v, const session *s) {
    *v = (session_view){.session = s, .last_ns = mm_now_ns()};
    mm_stats_get(s->manager, &v->begun);
    v->last = v->begun;
}

/* Appends to a line, as far as there is room. */
static void add(char line[PROGRESS_LINE_BYTES], const char *what, const char *value) {
    const size_t used = strlen(line);
    snprintf(line + used, PROGRESS_LINE_BYTES - used, "%s%s", what, value);
}

static void add_size(char line[PROGRESS_LINE_BYTES], const char *what, int64_t bytes) {
    char size[32];
    add(line, what, mm_size_format(bytes, size, sizeof size));
}

/* Writes the memory line, for the pass over full batches. Persistent kinds are added up to one figure. */
static void report_memory(const session *s, char line[PROGRESS_LINE_BYTES]) {
    const mm_plan *plan = mm_plan_now(s->manager, nets_exec_lowered(s->train)->graph);
    mm_account account;
    char what[64];
    strcpy(line, " memory   ");
    add_size(line, "budget ", mm_manager_device_bytes(s->manager));
    if (!plan || mm_account_init(plan, &account) != MM_OK) return;
    add_size(line, ", planned ", plan->peak_bytes);
    int64_t lasting = 0;
    for (int k = 0; k < MM_ACCOUNT_STASH; k++) lasting += account.at_peak[k];
    add_size(line, ": weights and state ", lasting);
    for (int k = MM_ACCOUNT_STASH; k < MM_ACCOUNT_KINDS; k++) {
        snprintf(what, sizeof what, ", %s ", mm_account_kind_name((mm_account_kind)k));
        if (account.at_peak[k] > 0) add_size(line, what, account.at_peak[k]);
    }
    mm_account_fini(&account);
}

static void add_rate(char line[PROGRESS_LINE_BYTES], const char *what, int64_t bytes, double seconds) {
    if (bytes == 0) return;
    add_size(line, what, (int64_t)((double)bytes / seconds));
    add(line, "/s", "");
}

static void add_share(char line[PROGRESS_LINE_BYTES], const char *what, double share) {
    char percent[32];
    snprintf(percent, sizeof percent, "%.0f%%", 100 * (share < 0 ? 0 : share > 1 ? 1 : share));
    add(line, what, percent);
}

static void report_streams(session_view *v, char line[PROGRESS_LINE_BYTES]) {
    mm_stats now;
    const int64_t now_ns = mm_now_ns();
    const double ns = now_ns > v->last_ns ? (double)(now_ns - v->last_ns) : 1;
    mm_stats_get(v->session->manager, &now);
    const double codecs = (double)(now.codec_busy_ns - v->begun.codec_busy_ns);
    strcpy(line, " streams  ");
    if (now.compute_busy_ns > 0)
        add_share(line, "compute ", (double)(now.compute_busy_ns - v->last.compute_busy_ns) / ns);
    else
        add(line, "compute is not timed on this device", "");
    if (codecs > 0) {
        add_share(line, ", codecs ", (double)(now.codec_busy_ns - v->last.codec_busy_ns) / ns);
        add_share(line, ", hidden ", 1 - (double)(now.codec_wait_ns - v->begun.codec_wait_ns) / codecs);
    }
    add_rate(line, ", out ", now.out_bytes - v->last.out_bytes, ns * 1e-9);
    add_rate(line, ", in ", now.in_bytes - v->last.in_bytes, ns * 1e-9);
    v->last = now;
    v->last_ns = now_ns;
}

int session_view_lines(void *view, char lines[PROGRESS_LINES][PROGRESS_LINE_BYTES]) {
    session_view *v = view;
    const char *policy = mm_policy_now(v->session->manager);
    snprintf(lines[0], PROGRESS_LINE_BYTES, " policy   %.200s, batch %lld on %.40s", policy,
             (long long)v->session->config.batch, v->session->config.target.device);
    report_memory(v->session, lines[1]);
    report_streams(v, lines[2]);
    return PROGRESS_LINES;
}
