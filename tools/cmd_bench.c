#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/safetensors.h"
#include "nets/zoo.h"
#include "tools/collect.h"
#include "tools/commands.h"
#include "tools/requirement.h"
#include "tools/session.h"

typedef struct bench {
    const char *net_list, *batch_list, *policy_list, *budget_list, *data, *device, *json, *facts, *issue;
    int64_t iterations, seed, alloc_cost_us;
    bool quiet, help;
    arg_texts nets, batches, policies, budgets;
    collector *collector; /* of facts; NULL: not asked for */
    row *rows;
    int n_rows, capacity;
    bool failed; /* some run failed, other than by its budget */
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
            MM_TRY(mm_size_parse(text, &budgets[n++]));
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
                             .seed = (uint64_t)b->seed,
                             .sgd = {.momentum = 0.9f, .weight_decay = 1e-4f},
                             .measure = true,
                             .measure_times = b->facts != NULL,
                             .issue = strcmp(b->issue, "inline") == 0 ? MM_ISSUE_INLINE : MM_ISSUE_THREAD,
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
    snprintf(r->status, sizeof r->status, "%s", status == MM_OK ? "ok" : mm_last_error());
    b->failed |= status != MM_OK && status != MM_ERR_INFEASIBLE;
    return MM_OK;
}

static mm_status run_batch(bench *b, const nets_net *net, const char *batch_text) {
    char *end;
    long long batch = strtoll(batch_text, &end, 10);
    if (end == batch_text || *end || batch < 1 || batch > 1 << 20)
        return mm_fail(MM_ERR_INVALID, "--batch %s: must be whole numbers from 1 to %d", batch_text, 1 << 20);
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
        for (int p = 0; status == MM_OK && p < b->policies.n; p++)
            status = run_one(b, net, batch, b->policies.text[p], budgets[i]);
    if (!b->facts) return status;
    if (status == MM_OK) status = collector_save(&c, b->facts);
    collector_fini(&c);
    b->collector = NULL;
    return status;
}

static mm_status run_all(bench *b) {
    for (int i = 0; i < b->nets.n; i++) {
        nets_net *net;
        MM_TRY(nets_zoo_build(b->nets.text[i], &net));
        mm_status status = MM_OK;
        for (int j = 0; status == MM_OK && j < b->batches.n; j++) status = run_batch(b, net, b->batches.text[j]);
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

static mm_status prepare(bench *b) {
    MM_TRY(args_split(b->net_list, &b->nets));
    MM_TRY(args_split(b->batch_list, &b->batches));
    MM_TRY(args_split(b->policy_list, &b->policies));
    MM_TRY(args_split(b->budget_list, &b->budgets));
    if (strcmp(b->issue, "thread") != 0 && strcmp(b->issue, "inline") != 0)
        return mm_fail(MM_ERR_INVALID, "--issue %s: must be thread or inline", b->issue);
    for (int i = 0; i < b->policies.n; i++) {
        mm_policy policy;
        MM_TRY(mm_policy_parse(b->policies.text[i], &policy));
    }
    if (b->facts && (b->nets.n > 1 || b->batches.n > 1))
        return mm_fail(MM_ERR_INVALID, "--facts: facts are of one network and one batch; give one of each");
    if (b->facts) MM_TRY(nets_safetensors_writable(b->facts));
    return b->json ? nets_safetensors_writable(b->json) : MM_OK;
}

static const char help_text[] =
    "Runs every combination of networks, batches, policies and budgets, and prints one table. A policy that does not\n"
    "fit a budget is a row that says what it needs. --budgets takes sizes, 'own' (what the policy's plan needs) and\n"
    "'plans' (what each listed policy's plan needs, one after the other). Columns:\n"
    "  predicted, measured   peak device bytes: of the plan, and touched; outside: taken by libraries elsewhere\n"
    "  stash                 bytes held from the forward to the backward pass\n"
    "  hidden                share of the codecs' time that did not lengthen the step\n\n"
    "  mm bench --net resnet32 --batch 128 --policies naive,liveness,freelunch:rate=4 --budgets plans --iterations 10";

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
        {"--alloc-cost", "US", "what an unplanned allocation costs, in microseconds; a GPU: 200 (0)", ARG_COUNT,
         &b.alloc_cost_us, 0, 1e6},
        {"--issue", "HOW", "thread or inline (thread)", ARG_TEXT, &b.issue, 0, 0},
        {"--facts", "FILE", "write what was measured of steps and codecs, for 'mm plan --facts'", ARG_TEXT, &b.facts, 0,
         0},
        {"--json", "FILE", "the rows as an array", ARG_TEXT, &b.json, 0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &b.quiet, 0, 0},
        {0},
    };
    if (args_parse(argc, argv, table, "mm bench [OPTIONS]", help_text, &b.help) != MM_OK) return command_usage("bench");
    if (b.help) return EXIT_OK;
    mm_status status = prepare(&b);
    if (status == MM_OK) status = run_all(&b);
    if (status == MM_OK) {
        compare_with_liveness(&b);
        rows_print(stdout, b.rows, b.n_rows);
        if (b.json) status = rows_save(b.json, b.rows, b.n_rows);
    }
    int code = status != MM_OK ? command_failed("bench", status) : b.failed ? EXIT_FAILED : EXIT_OK;
    free(b.rows);
    return code;
}
