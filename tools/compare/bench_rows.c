/* SPDX-License-Identifier: MIT */
/* The rows of the table: adds, ends, compares and saves them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/compare/bench.h"

static row *next_row(bench *b) {
    if (b->n_rows == b->capacity) {
        int capacity = b->capacity ? 2 * b->capacity : 16;
        row *rows = realloc(b->rows, (size_t)capacity * sizeof *rows);
        if (!rows) return NULL;
        b->rows = rows;
        b->capacity = capacity;
    }
    row *r = &b->rows[b->n_rows++];
    *r = (row){.codec_hidden_share = -1, .test_accuracy = -1};
    return r;
}

row *bench_row(bench *b, const nets_net *net, int64_t batch, const char *policy, int64_t budget) {
    row *r = next_row(b);
    if (!r) return NULL;
    snprintf(r->net, sizeof r->net, "%s", nets_net_name(net));
    r->sample_tokens = nets_net_tokens(net);
    r->policy = policy;
    for (int p = 0; p < b->policies.n; p++) {
        if (b->policies.text[p] != policy) continue;
        r->lossy = b->effects[p].lossy;
        r->idle = b->effects[p].idle;
        r->would = b->effects[p].would;
    }
    const char *device = b->source ? facts_source_machine(b->source) : b->target.device;
    snprintf(r->device, sizeof r->device, "%s", device);
    snprintf(r->fuse, sizeof r->fuse, "%s", target_fuse_text(&b->target));
    r->batch = batch * b->n_ranks;
    r->sub_batch = batch;
    r->ranks = b->n_ranks;
    r->workspace_limit_bytes = b->target.workspace_bytes;
    r->asked_bytes = r->budget_bytes = budget;
    return r;
}

void bench_end_row(bench *b, row *r, mm_status status) {
    if (status == MM_OK)
        row_end(r, *b->interrupted);
    else
        snprintf(r->status, sizeof r->status, "%s", mm_last_error());
    if (status == MM_OK || status == MM_ERR_INFEASIBLE) return;
    r->images_per_second = 0;
    b->failed = true;
    fprintf(stderr, "mm bench: %s, batch %lld, %s: %s\n", r->net, (long long)r->batch, r->policy, mm_last_error());
}

void bench_show_row(bench *b, const row *r) {
    if (isatty(fileno(b->out))) return;
    if (row_print_line(b->out, r) != MM_OK) {
        b->failed = true;
        fprintf(stderr, "mm bench: %s\n", mm_last_error());
    }
    fflush(b->out);
}

/* Sets the row's ratios to `base`, the row of liveness: of the iteration's time, and of the compute stream's busy time,
 * which codecs and copies beside it prolong. */
static void compare(row *r, const row *base) {
    r->step_ratio = r->iteration_seconds_median / base->iteration_seconds_median;
    if (base->compute_busy_seconds > 0) r->compute_ratio = r->compute_busy_seconds / base->compute_busy_seconds;
}

static void compare_with_liveness(bench *b) {
    for (int i = 0; i < b->n_rows; i++) {
        row *r = &b->rows[i];
        for (int j = 0; r->iteration_seconds_median > 0 && j < b->n_rows; j++) {
            const row *base = &b->rows[j];
            if (strcmp(base->policy, "liveness") != 0 || strcmp(base->net, r->net) != 0 || base->batch != r->batch ||
                base->sub_batch != r->sub_batch || base->ranks != r->ranks || base->simulated != r->simulated ||
                base->iteration_seconds_median <= 0)
                continue;
            compare(r, base);
            break;
        }
    }
}

static bool has_same_plan(const row *a, const row *b) {
    return a->work.digest != 0 && a->work.digest == b->work.digest && strcmp(a->net, b->net) == 0 &&
           a->batch == b->batch && a->sub_batch == b->sub_batch && a->ranks == b->ranks &&
           a->asked_bytes == b->asked_bytes && a->simulated == b->simulated && strcmp(a->device, b->device) == 0;
}

static void mark_same_plans(bench *b) {
    for (int i = 1; i < b->n_rows; i++) {
        row *r = &b->rows[i];
        r->same_plan_as = NULL;
        for (int j = 0; j < i && !r->same_plan_as; j++)
            if (has_same_plan(&b->rows[j], r)) r->same_plan_as = b->rows[j].policy;
    }
}

mm_status bench_save_rows(bench *b) {
    mark_same_plans(b);
    compare_with_liveness(b);
    return b->json ? rows_save(b->json, b->rows, b->n_rows) : MM_OK;
}
