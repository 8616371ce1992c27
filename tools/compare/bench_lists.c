/* SPDX-License-Identifier: MIT */
/* Parses mm bench's lists of networks, batches, policies and budgets, and expands the sweeps in them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "nets/io/net_file.h"
#include "tools/compare/bench.h"
#include "tools/need/effort.h"
#include "tools/need/largest.h"
#include "tools/need/sub_batch.h"

enum { SWEEP = 6, SWEEP_MAX = 32, BATCH_SPAN = 16, BATCHES_MAX = SWEEP_MAX + ARG_TEXTS_MAX };

/* Parses "sweep" or "sweep:N". *n_out = 0: the text is something else. */
static mm_status read_sweep(const char *option, const char *text, int *n_out) {
    *n_out = 0;
    if (strncmp(text, "sweep", 5) != 0) return MM_OK;
    char *end;
    long n = text[5] == ':' ? strtol(text + 6, &end, 10) : SWEEP;
    if (text[5] == ':' ? end == text + 6 || *end || n < 2 || n > SWEEP_MAX : text[5] != '\0')
        return mm_fail(MM_ERR_INVALID, "%s %s: must be sweep, or sweep:N with N from 2 to %d", option, text, SWEEP_MAX);
    *n_out = (int)n;
    return MM_OK;
}

static int by_size_falling(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

/* Sets up to n values from `low` to `high` inclusive, each larger than the one before by the same factor. Returns their
 * number, which is smaller if values coincide. */
static int spread(int64_t low, int64_t high, int n, int64_t *values) {
    int found = 0;
    for (int i = 0; i < n; i++) {
        double share = (double)i / (n - 1);
        int64_t value = (int64_t)((double)low * pow((double)high / (double)low, share) + 0.5);
        if (i == 0 || high <= low) value = low;
        if (i == n - 1 && high > low) value = high;
        if (found == 0 || value > values[found - 1]) values[found++] = value;
    }
    return found;
}

/* ---------------------------------------------------------------- sub-batches */

mm_status bench_sub_batch(const bench *b, const char *policy, int64_t batch, int64_t *sub_batch_out) {
    const bool whole = b->facts || b->predict;
    MM_TRY(sub_batch_read(b->sub_batch, policy, batch, whole || sub_batch_is_measured_once(b->source), sub_batch_out));
    if (!whole || *sub_batch_out == batch) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--%s measures whole batches only; it cannot go with %s",
                   b->facts ? "facts" : "predict", b->sub_batch ? "--sub-batch" : policy);
}

static mm_status check_sub_batches_of(const bench *b, int64_t batch) {
    for (int p = 0; p < b->policies.n; p++) {
        int64_t n;
        MM_TRY(bench_sub_batch(b, b->policies.text[p], batch, &n));
        for (int i = 0; n == 0 && b->sub_batch && i < b->budgets.n; i++)
            if (strcmp(b->budgets.text[i], "own") == 0)
                return mm_fail(MM_ERR_INVALID, "--sub-batch auto: needs sizes in --budgets, not 'own'");
    }
    return MM_OK;
}

mm_status bench_check_sub_batches(const bench *b, int64_t batch) {
    if (batch > 0) return check_sub_batches_of(b, batch);
    for (int i = 0; i < b->batches.n; i++) {
        int sweep;
        MM_TRY(read_sweep("--batch", b->batches.text[i], &sweep));
        if (sweep > 0 && b->sub_batch)
            return mm_fail(MM_ERR_INVALID, "--batch sweep: chooses whole batches; it cannot go with --sub-batch");
        if (sweep == 0) MM_TRY(check_sub_batches_of(b, strtoll(b->batches.text[i], NULL, 10)));
    }
    return MM_OK;
}

mm_status bench_check_ranks(const bench *b) {
    for (int i = 0; b->ranks_list && i < b->batches.n; i++) {
        int sweep;
        int64_t part;
        MM_TRY(read_sweep("--batch", b->batches.text[i], &sweep));
        if (sweep > 0)
            return mm_fail(MM_ERR_INVALID, "--batch sweep: chooses batches of one device; it cannot go with --ranks");
        for (int k = 0; k < b->ranks.count; k++)
            MM_TRY(ranks_part(strtoll(b->batches.text[i], NULL, 10), b->ranks.n[k], &part));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- batches */

static mm_status read_batch(const char *text, int64_t *batch_out) {
    char *end;
    long long batch = strtoll(text, &end, 10);
    if (end == text || *end || batch < 1 || batch > BATCH_MAX)
        return mm_fail(MM_ERR_INVALID, "--batch %s: must be whole numbers from 1 to %d, or sweep", text, BATCH_MAX);
    *batch_out = batch;
    return MM_OK;
}

/* Sets the budget of a batch sweep: --budgets must be one size. */
static mm_status only_budget(const bench *b, int64_t *bytes_out) {
    if (b->budgets.n == 1 && mm_size_parse(b->budgets.text[0], bytes_out) == MM_OK) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--batch sweep: needs one size in --budgets");
}

static int by_size_rising(const void *a, const void *b) { return by_size_falling(b, a); }

/* Sets n batches up to the largest that any policy fits into the budget, and each policy's own largest. */
static mm_status sweep_batches(const bench *b, const nets_net *net, int n, int64_t batches[BATCHES_MAX], int *n_out) {
    int64_t budget, most = 0;
    int n_own = 0;
    MM_TRY(only_budget(b, &budget));
    for (int p = 0; p < b->policies.n && !*b->interrupted; p++) {
        largest found;
        const need_case c = {.net = net,
                             .mode = NETS_TRAIN,
                             .target = &b->target,
                             .policy = b->policies.text[p],
                             .facts = b->source,
                             .budget_bytes = budget,
                             .pinned = target_pinned(&b->target, b->pinned_bytes, bench_is_elsewhere(b)),
                             .may_unfuse = true};
        MM_TRY(largest_batch_find(&c, &found));
        if (found.n > 0) batches[n_own++] = found.n;
        if (found.n > most) most = found.n;
    }
    if (most == 0) most = 1; /* no policy fits: the rows of batch 1 say what they need */
    *n_out = n_own + spread(most > BATCH_SPAN ? most / BATCH_SPAN : 1, most, n, batches + n_own);
    qsort(batches, (size_t)*n_out, sizeof *batches, by_size_rising);
    return MM_OK;
}

/* Adds a value, if it is not in the list yet. bench_read_lists checked that all values have room. */
static void add_value(int64_t values[BENCH_VALUES_MAX], int *n, int64_t value) {
    for (int i = 0; i < *n; i++)
        if (values[i] == value) return;
    values[(*n)++] = value;
}

mm_status bench_batches(const bench *b, const nets_net *net, int64_t batches[BENCH_VALUES_MAX], int *n_out) {
    int n = 0;
    for (int i = 0; i < b->batches.n; i++) {
        int64_t found[BATCHES_MAX];
        int sweep, n_found = 0;
        MM_TRY(read_sweep("--batch", b->batches.text[i], &sweep));
        if (sweep > 0)
            MM_TRY(sweep_batches(b, net, sweep, found, &n_found));
        else
            MM_TRY(read_batch(b->batches.text[i], &found[n_found++]));
        for (int f = 0; f < n_found; f++) add_value(batches, &n, found[f]);
    }
    *n_out = n;
    return MM_OK;
}

/* ---------------------------------------------------------------- budgets */

static mm_status read_budget(const char *text, int64_t *bytes_out) {
    int64_t bytes;
    if (mm_size_parse(text, &bytes) != MM_OK)
        return mm_fail_in(MM_ERR_INVALID, "--budgets takes sizes, 'own', 'plans' and 'sweep'");
    MM_TRY(args_size("--budgets", text, &bytes));
    if (bytes == 0) return mm_fail(MM_ERR_INVALID, "--budgets %s: must be more than nothing", text);
    *bytes_out = bytes;
    return MM_OK;
}

/* Bytes that a trained run adds to its plan's need, for the next batch: see session_memory_default. Nothing is added
 * in simulations. */
static int64_t room(const bench *b, int64_t sub_batch) {
    return b->source ? 0 : target_staged_bytes(&b->target, b->net, sub_batch);
}

/* Sets what a policy needs without a budget. *sub_batch: the sub-batch to plan with if the policy would choose its
 * sub-batch by the budget; receives the sub-batch that was planned. */
static mm_status find_need(const bench *b, const char *policy, int64_t *sub_batch, int64_t *bytes_out) {
    bench_planned planned;
    int64_t own;
    MM_TRY(bench_sub_batch(b, policy, b->batch, &own));
    *sub_batch = own > 0 ? own : sub_batch_is_measured_once(b->source) ? b->batch : *sub_batch;
    const need_case c = bench_need(b, policy, *sub_batch, b->pinned_bytes);
    MM_TRY(bench_plan(&c, &planned));
    *bytes_out = planned.as.peak_bytes;
    return MM_OK;
}

/* Sets n budgets from the least that any policy needs to what liveness needs, which evicts nothing. */
static mm_status sweep_budgets(const bench *b, int n, int64_t budgets[SWEEP_MAX], int *n_out) {
    int64_t low = INT64_MAX, high, sub_batch = b->batch;
    MM_TRY(find_need(b, "liveness", &sub_batch, &high));
    for (int p = 0; p < b->policies.n && !*b->interrupted; p++) {
        int64_t bytes;
        sub_batch = 1;
        MM_TRY(find_need(b, b->policies.text[p], &sub_batch, &bytes));
        if (bytes < low) low = bytes;
    }
    *n_out = spread(low, high + room(b, sub_batch), n, budgets);
    return MM_OK;
}

/* Sets what the plan of each policy needs, largest first. */
static mm_status plan_budgets(const bench *b, int64_t budgets[ARG_TEXTS_MAX], int *n_out) {
    *n_out = b->policies.n;
    for (int p = 0; p < b->policies.n && !*b->interrupted; p++) {
        int64_t sub_batch = b->batch;
        MM_TRY(find_need(b, b->policies.text[p], &sub_batch, &budgets[p]));
        budgets[p] += room(b, sub_batch);
    }
    qsort(budgets, (size_t)b->policies.n, sizeof *budgets, by_size_falling);
    return MM_OK;
}

mm_status bench_budgets(const bench *b, int64_t budgets[BENCH_VALUES_MAX], int *n_out) {
    int n = 0;
    for (int i = 0; i < b->budgets.n; i++) {
        const char *text = b->budgets.text[i];
        int64_t found[ARG_TEXTS_MAX] = {0};
        int sweep, n_found = 1;
        MM_TRY(read_sweep("--budgets", text, &sweep));
        if (sweep > 0)
            MM_TRY(sweep_budgets(b, sweep, found, &n_found));
        else if (strcmp(text, "plans") == 0)
            MM_TRY(plan_budgets(b, found, &n_found));
        else if (strcmp(text, "own") != 0)
            MM_TRY(read_budget(text, &found[0]));
        for (int f = 0; f < n_found; f++) add_value(budgets, &n, found[f]);
    }
    *n_out = n;
    return MM_OK;
}

/* ---------------------------------------------------------------- checks */

/* Replaces "all" with every policy with its defaults, except those that ask for an option, as `rules` does for rules,
 * and those for comparison alone; "peers" with these. */
static mm_status expand_policies(bench *b) {
    arg_texts given = b->policies;
    b->policies.n = 0;
    for (int i = 0; i < given.n; i++) {
        const char *name = given.text[i];
        const bool all = strcmp(name, "all") == 0, peers = strcmp(name, "peers") == 0;
        const mm_policy_ops *ops;
        if (!all && !peers) MM_TRY(args_texts_add("--policies", &b->policies, name));
        for (size_t p = 0; (all || peers) && (ops = mm_policy_table(p)); p++)
            if (ops->peer == peers && !ops->asks) MM_TRY(args_texts_add("--policies", &b->policies, ops->name));
    }
    return MM_OK;
}

static mm_status check_policies(bench *b) {
    MM_TRY(expand_policies(b));
    MM_TRY(effort_apply(b->effort, b->policies.text, b->policies.n, &b->texts));
    for (int i = 0; i < b->policies.n; i++) MM_TRY(mm_policy_check(b->policies.text[i]));
    return MM_OK;
}

mm_status bench_check_codecs(const bench *b) {
    for (int i = 0; i < b->policies.n; i++) {
        mm_policy policy;
        MM_TRY(mm_policy_parse(b->policies.text[i], &policy));
        mm_status status = mm_planned_try_codecs(&policy, b->target.device);
        mm_policy_fini(&policy);
        if (status != MM_OK) return mm_fail_in(status, "policy %s", b->policies.text[i]);
    }
    return MM_OK;
}

static mm_status check_number(const char *option, int n) {
    if (n <= BENCH_VALUES_MAX) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "%s: %d values, at most %d", option, n, BENCH_VALUES_MAX);
}

static mm_status check_batches(const bench *b) {
    int64_t number;
    int sweep, n = 0;
    for (int i = 0; i < b->batches.n; i++) {
        MM_TRY(read_sweep("--batch", b->batches.text[i], &sweep));
        if (sweep > 0)
            MM_TRY(only_budget(b, &number));
        else
            MM_TRY(read_batch(b->batches.text[i], &number));
        n += sweep > 0 ? sweep + b->policies.n : 1;
    }
    return check_number("--batch", n);
}

static mm_status check_budgets(const bench *b) {
    int64_t number;
    int sweep, n = 0;
    for (int i = 0; i < b->budgets.n; i++) {
        const char *text = b->budgets.text[i];
        bool plans = strcmp(text, "plans") == 0;
        MM_TRY(read_sweep("--budgets", text, &sweep));
        if (sweep == 0 && !plans && strcmp(text, "own") != 0) MM_TRY(read_budget(text, &number));
        n += sweep > 0 ? sweep : plans ? b->policies.n : 1;
    }
    return check_number("--budgets", n);
}

mm_status bench_read_lists(bench *b) {
    MM_TRY(args_split("--net", b->net_list ? b->net_list : "resnet32", &b->nets));
    MM_TRY(args_split("--batch", b->batch_list ? b->batch_list : "128", &b->batches));
    MM_TRY(args_split("--policies", b->policy_list, &b->policies));
    MM_TRY(args_split("--budgets", b->budget_list, &b->budgets));
    if (b->simulate_list) MM_TRY(args_split("--simulate", b->simulate_list, &b->sources));
    for (int i = 0; i < b->nets.n; i++) {
        nets_net *net;
        MM_TRY(nets_open(b->nets.text[i], &net));
        const mm_status status = target_adapt(&b->target, &net);
        nets_net_destroy(net);
        MM_TRY(status);
    }
    MM_TRY(check_policies(b));
    MM_TRY(check_batches(b));
    return check_budgets(b);
}

/* Values of a list; a sweep has the most that it may have. `more`: values that a sweep or "plans" adds. */
static int values_of(const bench *b, const arg_texts *list, int more) {
    int n = 0;
    for (int i = 0; i < list->n; i++) {
        int sweep = 0;
        if (read_sweep("", list->text[i], &sweep) != MM_OK) sweep = 0; /* it was read without fault before */
        n += sweep > 0 ? sweep + more : strcmp(list->text[i], "plans") == 0 ? b->policies.n : 1;
    }
    return n;
}

int64_t bench_cells(const bench *b) {
    const int64_t sources = b->sources.n > 0 ? b->sources.n : 1;
    return sources * b->nets.n * b->ranks.count * b->policies.n * values_of(b, &b->batches, b->policies.n) *
           values_of(b, &b->budgets, 0);
}

void bench_free_lists(bench *b) {
    arg_texts *const lists[] = {&b->nets, &b->batches, &b->policies, &b->budgets, &b->sources};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) args_texts_fini(lists[i]);
}
