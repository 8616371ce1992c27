/* SPDX-License-Identifier: MIT */
/* Measures the CPU time that a stash's thread takes to plan and prove an order of entries, which it does once for each
 * order. The goal for 2000 entries is half a second. The order is that of a training step: entries of several sizes and
 * producers are put; then, the last one first, each is got, released and dropped. At every eighth entry, another entry,
 * from the middle of those left, is got and released too, long before its own turn. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/core/graph/dtype.h"
#include "mm/mm.h"
#include "tools/args/args.h"

enum { GOAL_NS = 500000000, UNIT = 4096 };

typedef struct bench {
    const char *policy_list;
    int64_t entries;
    double share;
    bool help;
} bench;

static int64_t bytes_of(int64_t i) { return UNIT * (1 + i * 7 % 13); }

static int64_t total(const bench *b) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < b->entries; i++) bytes += bytes_of(i);
    return bytes;
}

static mm_status put(mm_stash *s, int64_t i, void *data, mm_stash_entry *entry_out) {
    static const char *const producers[] = {"ConvolutionBackward0", "NativeBatchNormBackward0", "ReluBackward0",
                                            "AddBackward0"};
    const mm_stash_tensor tensor = {
        .data = data, .dtype = MM_F32, .rank = 1, .dims = {bytes_of(i) / 4}, .producer = producers[i % 4]};
    mm_stash_answer answer;
    return mm_stash_put(s, &tensor, NULL, entry_out, &answer);
}

static mm_status read_entry(mm_stash *s, mm_stash_entry entry) {
    void *data;
    MM_TRY(mm_stash_get(s, entry, NULL, &data));
    mm_stash_release(s, entry, NULL);
    return MM_OK;
}

static mm_status iterate(const bench *b, mm_stash *s, void *data, mm_stash_entry *entries) {
    for (int64_t i = 0; i < b->entries; i++) MM_TRY(put(s, i, data, &entries[i]));
    for (int64_t i = b->entries; i-- > 0;) {
        MM_TRY(read_entry(s, entries[i]));
        if (i % 8 == 0 && i > 0) MM_TRY(read_entry(s, entries[i / 2]));
        mm_stash_drop(s, entries[i]);
    }
    return MM_OK;
}

static mm_status measure(const bench *b, const char *policy, void *data, mm_stash_entry *entries) {
    const mm_stash_options options = {.device = "host",
                                      .device_bytes = (int64_t)(b->share * (double)total(b)),
                                      .pinned_bytes = 2 * total(b),
                                      .policy = policy};
    mm_stash *s;
    mm_stash_stats stats;
    MM_TRY(mm_stash_create(&options, &s));
    mm_status status = iterate(b, s, data, entries);
    if (status == MM_OK) status = mm_stash_wait_planned(s);
    if (status == MM_OK) status = iterate(b, s, data, entries);
    mm_stash_stats_get(s, &stats);
    mm_stash_destroy(s);
    MM_TRY(status);
    const double seconds = (double)stats.planning_ns * 1e-9;
    printf("%-48s %8.1f ms, %.2f of the goal; %lld of 2 iterations by the plan\n", policy, 1e3 * seconds,
           (double)stats.planning_ns / GOAL_NS, (long long)stats.planned);
    return MM_OK;
}

static mm_status run(const bench *b) {
    arg_texts policies;
    MM_TRY(args_split("--policies", b->policy_list, &policies));
    void *data = calloc(13, UNIT);
    mm_stash_entry *entries = calloc((size_t)b->entries, sizeof *entries);
    mm_status status = data && entries ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the entries");
    printf("%lld entries, budget: %g of their bytes\n", (long long)b->entries, b->share);
    for (int i = 0; status == MM_OK && i < policies.n; i++) status = measure(b, policies.text[i], data, entries);
    free(entries);
    free(data);
    args_texts_fini(&policies);
    return status;
}

int main(int argc, char **argv) {
    bench b = {.policy_list = "swap-async,auto", .entries = 2000, .share = 0.5};
    const arg table[] = {
        {"--entries", "N", "entries of the order (2000)", ARG_COUNT, &b.entries, 1, 1 << 20},
        {"--policies", "P,Q", "policies with their options", ARG_TEXT, &b.policy_list, 0, 0},
        {"--share", "X", "the budget, as a share of all bytes (0.5)", ARG_NUMBER, &b.share, 0.001, 4},
        {0},
    };
    mm_status status =
        args_parse(argc, argv, table, "stash [OPTIONS]",
                   "Measures the CPU time that a stash's thread takes to plan and prove an order.", &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = run(&b);
    if (status != MM_OK) fprintf(stderr, "stash: %s\n", mm_last_error());
    if (status == MM_ERR_INVALID || status == MM_ERR_NOT_FOUND) return 2;
    return status == MM_OK ? 0 : 1;
}
