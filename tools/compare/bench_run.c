/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/device/contract/clock.h"
#include "nets/io/net_file.h"
#include "tools/args/json_file.h"
#include "tools/args/terminal.h"
#include "tools/compare/bench.h"
#include "tools/need/sub_batch.h"

/* Sets the row's sub-batch. If none fits the budget, sets one image, so that the run in sub-batches of one image fails
 * and says what it needs. */
static mm_status choose_sub_batch(bench *b, row *r) {
    need_case one = bench_need(b, r->policy, 0, b->pinned_bytes);
    one.budget_bytes = r->asked_bytes;
    one.only_facts = false;
    one.may_unfuse = true;
    MM_TRY(bench_sub_batch(b, r->policy, b->batch, &r->sub_batch));
    if (r->sub_batch > 0) return MM_OK;
    mm_status status = sub_batch_find(b->sub_batch, &one, &r->sub_batch);
    return status == MM_ERR_INFEASIBLE ? MM_OK : status;
}

/* Says once how long all runs take, by those that ended, if that is long. */
static void tell_time(bench *b) {
    enum { LONG_S = 30 }; /* chosen */
    const double took = (double)(mm_now_ns() - b->began_ns) * 1e-9,
                 all = took * (double)b->cells / (double)++b->cells_done;
    if (b->told || b->quiet || all < LONG_S || b->cells_done == b->cells) return;
    b->told = true;
    fprintf(stderr, "%smm bench: %lld of %lld runs took %.1f s: all take about %.0f %s\n", terminal_clear(),
            (long long)b->cells_done, (long long)b->cells, took, all < 120 ? all : all / 60, all < 120 ? "s" : "min");
}

/* Says beforehand how many runs a large table has. */
static void tell_size(bench *b) {
    enum { MANY = 12 }; /* chosen: more than the defaults with a few budgets */
    b->cells = bench_cells(b);
    b->began_ns = mm_now_ns();
    if (b->quiet || b->cells < MANY) return;
    fprintf(stderr, "mm bench: up to %lld runs", (long long)b->cells);
    if (b->sources.n == 0)
        fprintf(stderr, " of %lld iteration%s", (long long)b->iterations, b->iterations > 1 ? "s" : "");
    fprintf(stderr, "; Ctrl-C ends the table with those that are done\n");
}

/* Runs one cell of the table. If it cannot run, its row says why. */
static mm_status run_one(bench *b, const nets_net *net, int64_t batch, int index, int64_t budget) {
    row *r = bench_row(b, net, batch, b->policies.text[index], budget);
    if (!r) return mm_fail(MM_ERR_NOMEM, "out of memory for the table");
    mm_status status = choose_sub_batch(b, r);
    if (status == MM_OK && r->sub_batch < batch && !b->source && !b->warned) {
        sub_batch_warn("bench", net, batch, r->sub_batch);
        b->warned = true;
    }
    if (status == MM_OK) status = b->source ? bench_simulate(b, index, r) : bench_measure(b, net, r);
    bench_end_row(b, r, status);
    tell_time(b);
    if (b->source) return MM_OK;
    bench_show_row(b, r);
    return json_file_is_stream(b->json) ? MM_OK : bench_save_rows(b);
}

static void show_progress(const bench *b, progress *p, int done) {
    const row *r = &b->rows[b->n_rows - 1];
    char size[32], parts[48] = "", budget[48] = "";
    if (r->sub_batch < b->batch) snprintf(parts, sizeof parts, ", sub-batch %lld", (long long)r->sub_batch);
    if (r->asked_bytes > 0)
        snprintf(budget, sizeof budget, ", budget %s", mm_size_format(r->asked_bytes, size, sizeof size));
    progress_show(p, done, "%s%s%s", r->policy, parts, budget);
}

static mm_status run_cells(bench *b, const nets_net *net, int64_t batch) {
    int64_t budgets[BENCH_VALUES_MAX];
    int n, done = 0;
    char what[96];
    progress p;
    MM_TRY(bench_budgets(b, budgets, &n));
    snprintf(what, sizeof what, "%.60s, batch %lld", nets_net_name(net), (long long)batch);
    progress_begin(&p, what, 0, (int64_t)n * b->policies.n, b->quiet || !b->source);
    mm_status status = MM_OK;
    for (int i = 0; i < n; i++)
        for (int j = 0; status == MM_OK && !*b->interrupted && j < b->policies.n; j++) {
            status = run_one(b, net, batch, j, budgets[i]);
            if (b->source) show_progress(b, &p, ++done);
        }
    progress_end(&p);
    return status;
}

/* Runs the cells of a network and batch; with --facts, collects facts in these runs and saves them. */
static mm_status run_collecting(bench *b, const nets_net *net, int64_t batch) {
    if (b->predict) return bench_predict(b, net, batch);
    if (!b->facts) return run_cells(b, net, batch);
    collector c;
    MM_TRY(collector_init(&c, net, batch, &b->target, &b->policies));
    b->collector = &c;
    mm_status status = b->source ? facts_source_fill(b->source, c.lowered->graph, c.facts) : MM_OK;
    if (status == MM_OK) status = run_cells(b, net, batch);
    if (status == MM_OK && !b->source && !*b->interrupted && c.steps_from == COLLECT_NONE)
        status = mm_fail(MM_ERR_INFEASIBLE,
                         "--facts %s: no policy fitted its budget, so nothing was measured; give larger --budgets",
                         b->facts);
    if (status == MM_OK && !b->source) status = bench_calibrate_variants(b, net, batch, &c);
    bool saved = !*b->interrupted;
    if (status == MM_OK && saved && !b->source) status = collector_measure_device(&c, &b->target);
    if (status == MM_OK && saved) status = collector_save(&c, b->facts);
    collector_fini(&c);
    b->collector = NULL;
    return status;
}

/* Finds what each policy does in the network. A network that cannot be lowered is one error that ends the command,
 * instead of one for each row. */
static mm_status find_effects(bench *b) {
    const need_case c = bench_need(b, NULL, b->batch, PINNED_OPEN);
    const nets_exec_graph graph = need_last(&c);
    nets_lowered *lowered;
    MM_TRY(need_lower(&c, &graph, &lowered));
    mm_status status = MM_OK;
    for (int p = 0; status == MM_OK && p < b->policies.n; p++)
        status = policy_effect_find(b->policies.text[p], lowered->graph, b->target.device, &b->texts, &b->effects[p]);
    nets_lowered_destroy(lowered);
    return status;
}

/* Runs a batch of `whole` images on n_ranks devices. */
static mm_status run_batch(bench *b, const nets_net *net, int64_t whole, int n_ranks) {
    int64_t batch;
    MM_TRY(ranks_part(whole, n_ranks, &batch));
    ranks_use(&b->ranks, n_ranks, &b->target, b->source);
    b->net = net;
    b->batch = batch;
    b->n_ranks = n_ranks;
    b->warned = false;
    memset(b->least, 0, sizeof b->least);
    MM_TRY(find_effects(b));
    return run_collecting(b, net, batch);
}

static mm_status run_net(bench *b, const char *name, int64_t only_batch) {
    nets_net *net;
    int64_t batches[BENCH_VALUES_MAX] = {only_batch};
    int n = 1;
    MM_TRY(nets_open(name, &net));
    mm_status status = target_adapt(&b->target, &net);
    if (status == MM_OK) status = need_follow_facts(&b->target, net, b->source);
    if (status == MM_OK && only_batch <= 0) status = bench_batches(b, net, batches, &n);
    for (int i = 0; i < n; i++)
        for (int k = 0; status == MM_OK && !*b->interrupted && k < b->ranks.count; k++)
            status = run_batch(b, net, batches[i], b->ranks.n[k]);
    nets_net_destroy(net);
    return status;
}

static mm_status run_nets(bench *b) {
    for (int i = 0; i < b->nets.n && !*b->interrupted; i++) MM_TRY(run_net(b, b->nets.text[i], 0));
    return MM_OK;
}

mm_status bench_open_source(const bench *b, const char *name, facts_source *source_out) {
    return b->gpu_list ? facts_source_open_gpu(name, source_out) : facts_source_open(name, source_out);
}

/* Simulates with one file. A machine's rates hold for all listed networks and batches; measured facts only for the
 * network and batch that they name. */
static mm_status run_source(bench *b, const char *path) {
    facts_source source;
    MM_TRY(bench_open_source(b, path, &source));
    if (source.gpu) fprintf(b->out, "%s: times are " GPU_ESTIMATED " ('mm gpus')\n", source.machine.name);
    b->source = &source;
    mm_status status = facts_source_study(&source, b->study);
    if (status == MM_OK) status = source.is_machine ? run_nets(b) : run_net(b, source.net, source.batch);
    b->source = NULL;
    facts_source_close(&source);
    target_forget_facts(&b->target);
    return status;
}

mm_status bench_run(bench *b) {
    if (!b->predict) tell_size(b);
    if (b->sources.n == 0) return run_nets(b);
    for (int i = 0; i < b->sources.n && !*b->interrupted; i++) MM_TRY(run_source(b, b->sources.text[i]));
    return MM_OK;
}
