#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net_file.h"
#include "nets/safetensors.h"
#include "tools/collect.h"
#include "tools/commands.h"
#include "tools/requirement.h"
#include "tools/session.h"

typedef struct bench {
    const char *net_list, *batch_list, *policy_list, *budget_list, *data, *device, *json, *facts, *issue;
    int64_t iterations, seed, alloc_cost_us, pinned_bytes, link_bytes;
    bool no_ladder, quiet, help;
    arg_texts nets, batches, policies, budgets;
    collector *collector; /* of facts; NULL: not asked for */
    row *rows;
    int n_rows, capacity;
    bool failed; /* some run failed, other than by its budget */
    const volatile sig_atomic_t *interrupted;
} bench;

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

/* ---------------------------------------------------------------- budgets */

static mm_status minimum_of(const bench *b, const nets_net *net, int64_t batch, const char *policy, int64_t *bytes) {
    requirement r;
    MM_TRY(requirement_init(&r, net, batch, NETS_TRAIN, b->device, policy, 0, NULL));
    *bytes = r.planned.plan->peak_bytes;
    requirement_fini(&r);
    return MM_OK;
}

static int by_size_falling(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x < *y) - (*x > *y);
}

static mm_status read_budget(const char *text, int64_t *bytes_out) {
    int64_t bytes;
    if (mm_size_parse(text, &bytes) != MM_OK) return mm_fail_in(MM_ERR_INVALID, "--budgets, beside 'own' and 'plans'");
    if (bytes == 0) return mm_fail(MM_ERR_INVALID, "--budgets %s: must be more than nothing", text);
    *bytes_out = bytes;
    return MM_OK;
}

/* The budgets of one net and batch: sizes as given; "plans" stands for what the plan of each policy needs, falling;
 * "own" (0) for what the policy that runs needs. */
static mm_status list_budgets(const bench *b, const nets_net *net, int64_t batch, int64_t *budgets, int *n_out) {
    int n = 0;
    for (int i = 0; i < b->budgets.n; i++) {
        const char *text = b->budgets.text[i];
        if (strcmp(text, "own") == 0)
            budgets[n++] = 0;
        else if (strcmp(text, "plans") == 0) {
            int first = n;
            for (int p = 0; p < b->policies.n; p++)
                MM_TRY(minimum_of(b, net, batch, b->policies.text[p], &budgets[n++]));
            qsort(budgets + first, (size_t)(n - first), sizeof *budgets, by_size_falling);
        } else
            MM_TRY(read_budget(text, &budgets[n++]));
    }
    *n_out = n;
    return MM_OK;
}

/* ---------------------------------------------------------------- runs */

static mm_status train_once(const bench *b, session *s, row *r) {
    session_run run = {.iterations = b->iterations, .schedule = {.rate = 0.1f, .factor = 1}, .quiet = b->quiet};
    return session_train(s, &run, r);
}

/* One cell of the table. What cannot run becomes a row that says why. */
static mm_status run_one(bench *b, const nets_net *net, int64_t batch, const char *policy, int64_t budget) {
    row *r = next_row(b);
    if (!r) return mm_fail(MM_ERR_NOMEM, "out of memory for the table");
    session_config config = {.net = net,
                             .data = b->data,
                             .batch = batch,
                             .device = b->device,
                             .budget_bytes = budget,
                             .pinned_bytes = b->pinned_bytes,
                             .link_bytes_per_s = b->link_bytes,
                             .seed = (uint64_t)b->seed,
                             .sgd = {.momentum = 0.9f, .weight_decay = 1e-4f},
                             .no_ladder = b->no_ladder,
                             .measure = true,
                             .measure_times = b->facts != NULL,
                             .issue = strcmp(b->issue, "inline") == 0 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
                             .stop = b->interrupted,
                             .alloc_cost_ns = b->alloc_cost_us * 1000};
    snprintf(config.policies.text[config.policies.n++], ARG_TEXT_CAPACITY, "%s", policy);
    session s;
    mm_status status = session_init(&s, &config);
    if (status == MM_OK) {
        status = train_once(b, &s, r);
        if (status == MM_OK && b->collector) status = collector_add(b->collector, &s);
        session_fini(&s);
    } else {
        snprintf(r->net, sizeof r->net, "%s", nets_net_name(net));
        snprintf(r->policy, sizeof r->policy, "%s", policy);
        snprintf(r->device, sizeof r->device, "%s", b->device);
        r->batch = batch;
        r->budget_bytes = budget;
        r->minimum_bytes = s.minimum_bytes;
    }
    const char *good = *b->interrupted ? "interrupted" : "ok";
    snprintf(r->status, sizeof r->status, "%s", status == MM_OK ? good : mm_last_error());
    if (status == MM_OK || status == MM_ERR_INFEASIBLE) return MM_OK;
    b->failed = true;
    fprintf(stderr, "mm bench: %s, batch %lld, %s: %s\n", r->net, (long long)batch, policy, mm_last_error());
    return MM_OK;
}

static mm_status read_batch(const char *text, int64_t *batch_out) {
    char *end;
    long long batch = strtoll(text, &end, 10);
    if (end == text || *end || batch < 1 || batch > 1 << 20)
        return mm_fail(MM_ERR_INVALID, "--batch %s: must be whole numbers from 1 to %d", text, 1 << 20);
    *batch_out = batch;
    return MM_OK;
}

static mm_status run_batch(bench *b, const nets_net *net, int64_t batch) {
    int64_t budgets[2 * ARG_TEXTS_MAX + ARG_TEXTS_MAX * ARG_TEXTS_MAX];
    int n;
    MM_TRY(list_budgets(b, net, batch, budgets, &n));
    collector c;
    if (b->facts) {
        MM_TRY(collector_init(&c, net, batch, b->device, &b->policies));
        b->collector = &c;
    }
    mm_status status = MM_OK;
    for (int i = 0; i < n; i++)
        for (int p = 0; status == MM_OK && !*b->interrupted && p < b->policies.n; p++)
            status = run_one(b, net, batch, b->policies.text[p], budgets[i]);
    if (!b->facts) return status;
    if (status == MM_OK && !*b->interrupted) status = collector_save(&c, b->facts);
    collector_fini(&c);
    b->collector = NULL;
    return status;
}

static mm_status run_all(bench *b) {
    for (int i = 0; i < b->nets.n; i++) {
        nets_net *net;
        MM_TRY(nets_open(b->nets.text[i], &net));
        mm_status status = MM_OK;
        for (int j = 0; status == MM_OK && !*b->interrupted && j < b->batches.n; j++) {
            int64_t batch;
            status = read_batch(b->batches.text[j], &batch);
            if (status == MM_OK) status = run_batch(b, net, batch);
        }
        nets_net_destroy(net);
        MM_TRY(status);
    }
    return MM_OK;
}

/* Where `liveness` ran in the same table, hidden is measured against it: 1 - (step - liveness's step) / codec time. */
static void compare_with_liveness(bench *b) {
    for (int i = 0; i < b->n_rows; i++) {
        row *r = &b->rows[i];
        for (int j = 0; r->codec_hidden_share >= 0 && j < b->n_rows; j++) {
            const row *base = &b->rows[j];
            if (strcmp(base->policy, "liveness") != 0 || strcmp(base->net, r->net) != 0 || base->batch != r->batch ||
                base->iteration_seconds_median <= 0)
                continue;
            double longer = r->iteration_seconds_median - base->iteration_seconds_median;
            double share = 1 - longer / r->codec_busy_seconds;
            r->codec_hidden_share = share < 0 ? 0 : share > 1 ? 1 : share;
            break;
        }
    }
}

/* Every list is read through before the first run, so that no long table ends at a misspelt name. */
static mm_status read_lists(bench *b) {
    MM_TRY(args_split("--net", b->net_list, &b->nets));
    MM_TRY(args_split("--batch", b->batch_list, &b->batches));
    MM_TRY(args_split("--policies", b->policy_list, &b->policies));
    MM_TRY(args_split("--budgets", b->budget_list, &b->budgets));
    for (int i = 0; i < b->nets.n; i++) {
        nets_net *net;
        MM_TRY(nets_open(b->nets.text[i], &net));
        nets_net_destroy(net);
    }
    int64_t number;
    for (int i = 0; i < b->batches.n; i++) MM_TRY(read_batch(b->batches.text[i], &number));
    for (int i = 0; i < b->policies.n; i++) {
        mm_policy policy;
        MM_TRY(mm_policy_parse(b->policies.text[i], &policy));
    }
    for (int i = 0; i < b->budgets.n; i++)
        if (strcmp(b->budgets.text[i], "own") != 0 && strcmp(b->budgets.text[i], "plans") != 0)
            MM_TRY(read_budget(b->budgets.text[i], &number));
    return MM_OK;
}

static mm_status prepare(bench *b) {
    MM_TRY(read_lists(b));
    MM_TRY(requirement_device(b->device));
    if (strcmp(b->issue, "thread") != 0 && strcmp(b->issue, "inline") != 0)
        return mm_fail(MM_ERR_INVALID, "--issue %s: must be thread or inline", b->issue);
    if (b->facts && (b->nets.n > 1 || b->batches.n > 1))
        return mm_fail(MM_ERR_INVALID, "--facts: facts are of one network and one batch; give one of each");
    if (b->facts) MM_TRY(nets_safetensors_writable(b->facts));
    return b->json ? nets_safetensors_writable(b->json) : MM_OK;
}

static const char help_text[] =
    "Trains every combination of networks, batches, policies and budgets for some iterations, and prints one table.\n"
    "A policy that does not fit a budget is a row that says what it needs. --budgets takes sizes, 'own' (what the\n"
    "policy's plan needs) and 'plans' (what each listed policy's plan needs, one after the other). Ctrl-C ends it\n"
    "with the rows so far. Columns:\n"
    "  predicted, measured   peak bytes on the device: of the plan, and touched\n"
    "  outside               bytes that libraries took elsewhere\n"
    "  stash                 bytes held from the forward to the backward pass\n"
    "  img/s                 images a second, by the median iteration\n"
    "  hidden                share of the codecs' time that did not lengthen the step; measured against the step of\n"
    "                        liveness if that is in the table, else by how long computation waited\n"
    "  loss                  of the first iteration and of the last\n"
    "\n"
    "  mm bench --net resnet32 --policies naive,liveness,freelunch:rate=4 --budgets plans";

int cmd_bench(int argc, char **argv) {
    bench b = {.net_list = "resnet32",
               .batch_list = "128",
               .policy_list = "naive,liveness,freelunch",
               .budget_list = "own",
               .data = "synthetic",
               .device = "host",
               .issue = "thread",
               .iterations = 10,
               .seed = 1};
    const arg table[] = {
        {"--net", "A,B", "networks (resnet32)", ARG_TEXT, &b.net_list, 0, 0},
        {"--batch", "N,M", "batch sizes (128)", ARG_TEXT, &b.batch_list, 0, 0},
        {"--policies", "P,Q", "policies with their options (naive,liveness,freelunch)", ARG_TEXT, &b.policy_list, 0, 0},
        {"--budgets", "X,Y", "budgets: 300MiB, own, plans (own)", ARG_TEXT, &b.budget_list, 0, 0},
        {"--iterations", "N", "of each run (10)", ARG_COUNT, &b.iterations, 1, 1e9},
        {"--data", "SPEC", "cifar10:DIR, synthetic (synthetic)", ARG_TEXT, &b.data, 0, 0},
        {"--device", "NAME", "host (host)", ARG_TEXT, &b.device, 0, 0},
        {"--seed", "N", "of weights and data (1)", ARG_COUNT, &b.seed, 0, 9e15},
        {"--pinned", "SIZE", "host memory for offloaded maps (what the plan needs, at most half of what is free)",
         ARG_SIZE, &b.pinned_bytes, 0, 0},
        {"--link", "SIZE", "bytes a second between device and host memory, as 12GB (as fast as memcpy)", ARG_SIZE,
         &b.link_bytes, 0, 0},
        {"--alloc-cost", "US", "what an unplanned allocation costs, in microseconds; a GPU: 200 (0)", ARG_COUNT,
         &b.alloc_cost_us, 0, 1e6},
        {"--issue", "HOW", "thread or inline (thread)", ARG_TEXT, &b.issue, 0, 0},
        {"--facts", "FILE", "write the times of steps, codecs and link in these runs, for 'mm plan --facts'", ARG_TEXT,
         &b.facts, 0, 0},
        {"--json", "FILE", "the rows as an array", ARG_TEXT, &b.json, 0, 0},
        {"--no-ladder", NULL, "if memory is short, fail: no plan that does with less stands in", ARG_FLAG, &b.no_ladder,
         0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &b.quiet, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm bench [OPTIONS]", help_text, &b.help);
    if (status != MM_OK) return command_failed("bench", status);
    if (b.help) return EXIT_OK;
    b.interrupted = command_interruptible();
    status = prepare(&b);
    if (status == MM_OK) {
        status = run_all(&b);
        compare_with_liveness(&b);
        rows_print(stdout, b.rows, b.n_rows);
    }
    if (status == MM_OK && b.json) status = rows_save(b.json, b.rows, b.n_rows);
    int code = b.failed ? EXIT_FAILED : *b.interrupted ? EXIT_INTERRUPTED : EXIT_OK;
    if (status != MM_OK) code = command_failed("bench", status);
    free(b.rows);
    return code;
}
