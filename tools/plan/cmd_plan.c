/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/size.h"
#include "mm/core/status.h"
#include "nets/io/net_file.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/files.h"
#include "tools/args/json_file.h"
#include "tools/facts/facts_source.h"
#include "tools/need/effort.h"
#include "tools/need/ranks.h"
#include "tools/need/sub_batch.h"
#include "tools/need/update_when.h"
#include "tools/plan/graph_plan.h"
#include "tools/plan/plan_command.h"
#include "tools/plan/which_gpu.h"

/* ---------------------------------------------------------------- planning */

static need_case case_of(const plan_command *c, const char *policy) {
    return (need_case){.net = c->network,
                       .batch = c->batch,
                       .mode = NETS_TRAIN,
                       .target = &c->target,
                       .policy = policy,
                       .facts = c->facts ? &c->source : NULL,
                       .budget_bytes = c->budget_bytes,
                       .pinned = target_pinned(&c->target, c->pinned_bytes, c->facts && c->source.is_machine),
                       .may_unfuse = true};
}

/* Finds the sub-batch. If none fits (MM_ERR_INFEASIBLE), it is one image, so that the plan shows what that needs. */
static mm_status find_sub_batch(const plan_command *c, need_case *asked) {
    mm_status status = sub_batch_find(c->sub_batch, asked, &asked->sub_batch);
    if (status != MM_ERR_INFEASIBLE) MM_TRY(status);
    return sub_batch_check_facts("--facts", asked->facts, c->batch, asked->sub_batch);
}

static mm_status plan_one(plan_command *c, const char *policy) {
    plan_case *one = &c->cases[c->n_cases];
    *one = (plan_case){.net = c->net,
                       .asked = case_of(c, policy),
                       .ranks = c->ranks,
                       .search = c->search,
                       .offers = !c->search && !c->sub_batch && c->target.update != NETS_UPDATE_IN_BACKWARD,
                       .explained = c->explain,
                       .explains_all = c->explain_all,
                       .texts = &c->texts};
    mm_status status = c->search ? plan_case_search(one) : find_sub_batch(c, &one->asked);
    one->asked.wants_fastest = true;
    one->asked.wants_least = c->minimum || c->explain || c->budget_bytes == 0;
    one->asked.wants_plan = !one->asked.wants_least;
    if (status == MM_OK) status = plan_case_init(one);
    if (status != MM_OK) {
        nets_net_destroy(one->own_net);
        return status;
    }
    c->n_cases++;
    return MM_OK;
}

static mm_status plan_all(plan_command *c) {
    c->cases = calloc((size_t)c->policies.n, sizeof *c->cases);
    if (!c->cases) return mm_fail(MM_ERR_NOMEM, "out of memory for %d plans", c->policies.n);
    MM_TRY(nets_open(c->net, &c->network));
    MM_TRY(target_adapt(&c->target, &c->network));
    if (c->facts) MM_TRY(need_follow_facts(&c->target, c->network, &c->source));
    for (int i = 0; i < c->policies.n && (i == 0 || !*c->interrupted); i++) MM_TRY(plan_one(c, c->policies.text[i]));
    for (int i = c->n_cases; i < c->policies.n; i++)
        fprintf(stderr, "mm plan: interrupted: %s was not planned\n", c->policies.text[i]);
    return c->explain ? explain_bound_of(c->network, &c->target, 1, c->facts ? &c->source : NULL, &c->image) : MM_OK;
}

static void fini(plan_command *c) {
    for (int i = 0; i < c->n_cases; i++) plan_case_fini(&c->cases[i]);
    free(c->cases);
    args_texts_fini(&c->policies);
    texts_fini(&c->texts);
    target_fini(&c->target);
    facts_source_close(&c->source);
    nets_net_destroy(c->network);
}

/* ---------------------------------------------------------------- the command */

/* Opens --facts. Measured facts hold for one batch only, so a search needs a machine's rates. A GPU has a budget of its
 * own. */
static mm_status open_facts(plan_command *c, const char *path) {
    MM_TRY(c->gpu ? facts_source_open_gpu(path, &c->source) : facts_source_open(path, &c->source));
    c->gpu_budget = c->source.gpu && c->budget_bytes == 0;
    if (c->gpu_budget) c->budget_bytes = gpu_budget_bytes(c->source.gpu);
    MM_TRY(facts_source_study(&c->source, c->study));
    if (c->source.is_machine) return MM_OK;
    target_log_threads(&c->target, path, c->source.threads);
    if (!c->search) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--facts %s: was measured for one batch; with %s, give a machine file", path,
                   plan_search_option(c->search));
}

static mm_status check_sub_batch(const plan_command *c) {
    const facts_source *facts = c->facts ? &c->source : NULL;
    int64_t n;
    if (c->sub_batch && c->search)
        return mm_fail(MM_ERR_INVALID, "--sub-batch and %s: give one of them", plan_search_option(c->search));
    for (int i = 0; !c->search && i < c->policies.n; i++) {
        MM_TRY(sub_batch_read(c->sub_batch, c->policies.text[i], c->batch, sub_batch_is_measured_once(facts), &n));
        if (n > 0) MM_TRY(sub_batch_check_facts("--facts", facts, c->batch, n));
    }
    return MM_OK;
}

static mm_status read_update(plan_command *c) {
    const bool whole = sub_batch_is_measured_once(c->facts ? &c->source : NULL);
    update_runs runs = {.command = "plan"};
    for (int i = 0; i < c->policies.n; i++)
        MM_TRY(update_runs_add(&runs, c->search ? "" : c->sub_batch, c->policies.text[i], c->batch, whole,
                               c->budget_bytes > 0 || c->which_gpu));
    return update_when_read(&c->target, &runs);
}

/* Reads --ranks. From now on c->batch is one device's part. */
static mm_status read_ranks(plan_command *c) {
    ranks asked;
    int64_t part;
    MM_TRY(ranks_read(c->ranks_list, c->sum, c->sum_at, c->divide, &asked));
    c->ranks = asked.n[0];
    if (asked.count > 1)
        return mm_fail(MM_ERR_INVALID, "--ranks %s: give one number; mm bench takes several", c->ranks_list);
    if (c->ranks_list && c->search)
        return mm_fail(MM_ERR_INVALID, "--ranks and %s: give one of them", plan_search_option(c->search));
    MM_TRY(ranks_part(c->batch, c->ranks, &part));
    c->batch = part;
    ranks_use(&asked, c->ranks, &c->target, &c->source);
    if (c->ranks == 1 || !c->facts || c->source.is_machine) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--facts %s: was measured on one device; with --ranks, give a machine file",
                   c->facts);
}

/* Which of the searches was asked for. */
static mm_status read_search(plan_command *c) {
    const bool asked[PLAN_SEARCHES] = {
        [PLAN_MAX_BATCH] = c->max_batch, [PLAN_FASTEST_BATCH] = c->fastest_batch, [PLAN_MAX_CONTEXT] = c->max_context};
    for (plan_search s = PLAN_MAX_BATCH; s < PLAN_SEARCHES; s++) {
        if (asked[s] && c->search)
            return mm_fail(MM_ERR_INVALID, "%s and %s: give one of them", plan_search_option(c->search),
                           plan_search_option(s));
        if (asked[s]) c->search = s;
    }
    if (!c->search || c->search == PLAN_MAX_CONTEXT || c->batch == 0) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "%s finds the batch, and --batch %lld gives it: give one of them",
                   plan_search_option(c->search), (long long)c->batch);
}

static mm_status check(plan_command *c) {
    MM_TRY(read_search(c));
    c->explain |= c->explain_all;
    if (c->batch == 0) c->batch = 128;
    c->target.plans_only = true;
    MM_TRY(target_init(&c->target));
    target_log_lossy(&c->target);
    MM_TRY(args_split("--policy", c->policy_list, &c->policies));
    MM_TRY(effort_apply(c->effort, c->policies.text, c->policies.n, &c->texts));
    if (c->gpu && c->facts) return mm_fail(MM_ERR_INVALID, "--gpu and --facts: give one of them");
    if (c->gpu) c->facts = c->gpu;
    if (c->study && !c->facts) return mm_fail(MM_ERR_INVALID, "--study: needs --facts");
    if (c->trace && !c->facts) return mm_fail(MM_ERR_INVALID, "--trace: needs --facts, for the times to simulate");
    if (c->save_facts && !c->facts)
        return mm_fail(MM_ERR_INVALID, "--save-facts: needs --facts, whose times it writes");
    if (c->search == PLAN_FASTEST_BATCH && !c->facts)
        return mm_fail(MM_ERR_INVALID,
                       "--fastest-batch needs times: --gpu NAME ('mm gpus' lists them), or a machine file: "
                       "--facts FILE");
    if (c->facts) MM_TRY(open_facts(c, c->facts));
    if (c->search && c->budget_bytes == 0)
        return mm_fail(MM_ERR_INVALID, "%s needs a --budget to fit into, or a GPU's: --gpu",
                       plan_search_option(c->search));
    MM_TRY(read_ranks(c));
    MM_TRY(check_sub_batch(c));
    MM_TRY(read_update(c));
    const named_file files[] = {{"--json", c->json, FILE_WRITTEN},
                                {"--svg", c->svg, FILE_WRITTEN},
                                {"--html", c->html, FILE_WRITTEN},
                                {"--trace", c->trace, FILE_WRITTEN},
                                {"--save-graph", c->save_graph, FILE_WRITTEN},
                                {"--save-facts", c->save_facts, FILE_WRITTEN},
                                {"--save-plan", c->save_plan, FILE_WRITTEN},
                                {"--facts", c->gpu ? NULL : c->facts, FILE_READ},
                                {"--net", files_net(c->net), FILE_READ},
                                {"--algorithms", c->target.algorithms, FILE_KEPT}};
    return files_check(files, sizeof files / sizeof *files);
}

/* Refuses as 'mm train' does. */
static mm_status refuse(const plan_command *c) {
    const plan_case *first = &c->cases[0];
    if (c->n_cases > 1) return mm_fail(MM_ERR_INFEASIBLE, "none of these policies fits");
    mm_status refused = plan_case_refuse(first);
    if (first->asked.sub_batch != 1 || c->batch == 1) return refused;
    char bound[320];
    mm_failure failure;
    mm_failure_save(&failure, refused);
    return mm_fail(MM_ERR_INFEASIBLE, "%s; %s", failure.message, need_bound_text(&first->need, bound, sizeof bound));
}

/* If none of the policies fits, refuses, and names a policy that does. */
static mm_status advise(const plan_command *c) {
    for (int i = 0; i < c->n_cases; i++)
        if (plan_case_fits(&c->cases[i])) return MM_OK;
    const plan_case *first = &c->cases[0];
    const need_pass *most = plan_case_need(first);
    mm_status misfit = refuse(c);
    if (c->budget_bytes == 0 || c->search || c->no_advice) return misfit;
    const bool known = c->n_cases == 1 && plan_case_plan(first)->pinned_bytes <= first->asked.pinned.bytes;
    need_case refused = case_of(c, c->policies.text[0]);
    refused.sub_batch = first->asked.sub_batch;
    misfit = need_advise(&refused, known && first->need.n == 1 ? &most->policy : NULL, known ? most->minimum_bytes : 0);
    return misfit == MM_ERR_INFEASIBLE ? need_advise_own(&refused) : misfit;
}

static mm_status plan_which_gpu(plan_command *c, bool *fits_out) {
    MM_TRY(check(c));
    MM_TRY(nets_open(c->net, &c->network));
    MM_TRY(target_adapt(&c->target, &c->network));
    const need_case asked = {.net = c->network,
                             .batch = c->batch,
                             .mode = NETS_TRAIN,
                             .target = &c->target,
                             .pinned = target_pinned(&c->target, c->pinned_bytes, true),
                             .may_unfuse = true};
    const which_gpu which = {.net = c->net,
                             .sub_batch = c->sub_batch,
                             .asked = asked,
                             .policies = &c->policies,
                             .ranks = c->ranks,
                             .sum_at = c->source.sum_at,
                             .texts = &c->texts,
                             .interrupted = c->interrupted,
                             .json = c->json};
    return which_gpu_run(&which, fits_out);
}

static mm_status run_plan(plan_command *c) {
    MM_TRY(check(c));
    MM_TRY(plan_all(c));
    FILE *file = json_file_beside(c->json);
    MM_TRY(plan_output_print(file, c, c->chart || (c->explain && isatty(fileno(file)))));
    MM_TRY(plan_output_save(c));
    return *c->interrupted ? MM_OK : advise(c); /* advice takes time: it plans too */
}

/* Plans the graphs of a file. */
static mm_status plan_graphs(plan_command *c, graph_plan *plan) {
    MM_TRY(target_read_disk(&c->target));
    *plan = (graph_plan){.path = c->graph,
                         .facts = c->facts,
                         .policy_list = c->policy_list,
                         .effort = c->effort,
                         .pinned_bytes = c->pinned_bytes,
                         .limits = {.device = c->target.device,
                                    .device_bytes = c->budget_bytes,
                                    .disk_bytes = c->target.disk_bytes,
                                    .disk_bytes_per_s = c->target.disk_bytes_per_s,
                                    .link_bytes_per_s = c->target.link_bytes_per_s,
                                    .no_advice = c->no_advice,
                                    .stop_search = c->interrupted},
                         .chart = c->chart,
                         .json = c->json,
                         .svg = c->svg,
                         .html = c->html};
    return graph_plan_run(plan);
}

static const char help_text[] =
    "Plans a training iteration without a device and without data. Prints the smallest budget in which each policy\n"
    "runs, the step that needs it, and what lies in memory at that step. With --budget, plans for that budget, and\n"
    "exits with 1 if a policy does not fit; the smallest budget is found where it does not, and with --minimum or\n"
    "--explain. With --facts, also predicts the time of an iteration; FILE is what\n"
    "'mm bench --facts' measured for this network, batch and the policies' codecs, or a machine file, such as\n"
    "tools/facts/titanx.json. FILE,FILE are what it measured with several batches: times of any batch, and of\n"
    "sub-batches, follow from these. --link replaces the link's speed.\n"
    "\n"
    "--gpu A100-40 takes a GPU's rates, estimated from data sheet and assumptions; 'mm gpus' lists the names. Without\n"
    "--budget, the budget is the GPU's memory, less 1 GiB for the CUDA context and libraries. --pinned says how much\n"
    "memory its host has for offloaded maps. --which-gpu plans for all of them, and lists those that the training\n"
    "fits, the fastest first, each with the fastest policy of those given.\n"
    "\n"
    "For cuda, a plan has room for the next batch, which is copied in while an iteration runs, if the budget has\n"
    "that room. Without --budget, 'mm train' and 'mm bench' take that room if the device has the memory free. The\n"
    "minimum budget is without it.\n"
    "\n"
    "--max-batch finds the largest batch that fits the budget; --fastest-batch the one with the most images or tokens\n"
    "a second: it plans some sizes up to the largest, then closer ones, to a tenth of the best. --max-context finds\n"
    "the longest context of a network of tokens at the given batch, in steps of 64 tokens; a table of positions grows\n"
    "with it.\n"
    "\n"
    "--ranks N plans for one of N devices that each train an N-th of the batch. Gradients that are added up also\n"
    "take pinned memory. images/s are those of all devices.\n"
    "\n"
    "--explain shows what needs the memory: bytes by kind, and the largest stashed maps with what could be done with\n"
    "each, what was decided, and what would come of another action instead; where the time goes, by facts or nominal\n"
    "times; how much faster more memory would be; and bounds that no plan can undercut. --explain-all lists all maps.\n"
    "--svg and --chart draw the memory over the steps of the iteration; --html has the figures, too.\n"
    "\n"
    "--graph plans the graphs of a loop of your own, all in one arena: run your program with MM_SAVE_GRAPH=FILE, or\n"
    "call mm_graph_save. FILE of --facts is then what mm_facts_save wrote. Policies that recompute layers are "
    "planned,\n"
    "too; they need mm_recompute_set. --save-graph and --save-facts write a network's graph, and what --facts says of\n"
    "it, as such files: for planners of your own. --save-plan writes the plan as text that anyone can read and check;\n"
    "mm/core/plan/FORMAT.md describes it. 'mm train --plan' runs it.\n"
    "\n"
    "  mm plan --net resnet32 --batch 128 --policy naive,liveness,freelunch:rate=4 --budget 300MiB --explain\n"
    "  mm plan --net resnet32 --budget 12GiB --max-batch --svg memory.svg\n"
    "  mm plan --net resnet152 --gpu a100-40 --max-batch --policy liveness\n"
    "  mm plan --net resnet152 --gpu l4 --fastest-batch --policy liveness,recompute\n"
    "  mm plan --net gpt2 --batch 1 --budget 24GiB --max-context --policy liveness\n"
    "  mm plan --net gpt2 --batch 16 --policy liveness --which-gpu";

int cmd_plan(int argc, char **argv) {
    plan_command c = {.net = "resnet32",
                      .policy_list = "naive,liveness,freelunch",
                      .target = TARGET_DEFAULTS,
                      .pinned_bytes = PINNED_OPEN,
                      .effort = EFFORT_OPEN};
    graph_plan graphs = {0};
    bool any_gpu = false;
    const arg table[] = {
        {"--net", "NET", "network (resnet32)", ARG_TEXT, &c.net, 0, 0},
        {"--graph", "FILE", "graphs that a program of yours wrote, in place of a network", ARG_TEXT, &c.graph, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &c.batch, 1, BATCH_MAX},
        {"--sub-batch", "N|auto", "compute N images at a time; plan the pass that needs most (policy's subbatch=)",
         ARG_TEXT, &c.sub_batch, 0, 0},
        RANKS_ARGS(&c.ranks_list, &c.sum, &c.sum_at, &c.divide),
        {"--policy", "POLICY,..", "policies with their options (naive,liveness,freelunch)", ARG_TEXT, &c.policy_list, 0,
         0},
        {"--budget", "SIZE", "plan for this budget, and check that it fits", ARG_SIZE, &c.budget_bytes, 0, 0},
        {"--minimum", NULL, "with --budget: find each policy's smallest budget, too", ARG_FLAG, &c.minimum, 0, 0},
        {"--pinned", "SIZE",
         "host memory for offloaded maps (half of what is free, with --disk a quarter; with a machine file no limit)",
         ARG_SIZE, &c.pinned_bytes, -1, 0},
        {"--max-batch", NULL, "plan the largest batch that fits the budget instead", ARG_FLAG, &c.max_batch, 0, 0},
        {"--fastest-batch", NULL, "plan the batch with the most images or tokens a second that fits the budget",
         ARG_FLAG, &c.fastest_batch, 0, 0},
        {"--max-context", NULL, "plan the longest context of a transformer that fits the budget", ARG_FLAG,
         &c.max_context, 0, 0},
        {"--gpu", "GPU", "a GPU by name: predict times, and without --budget plan for its memory ('mm gpus')", ARG_TEXT,
         &c.gpu, 0, 0},
        {"--which-gpu", NULL, "which GPUs it fits, and how fast each is", ARG_FLAG, &c.which_gpu, 0, 0},
        EFFORT_ARG(&c.effort),
        {"--explain", NULL, "explain what needs the memory and what could be done", ARG_FLAG, &c.explain, 0, 0},
        {"--explain-all", NULL, "the same, of all stashed maps, not only the largest", ARG_FLAG, &c.explain_all, 0, 0},
        {"--no-advice", NULL, "where no policy fits, do not look for one that would", ARG_FLAG, &c.no_advice, 0, 0},
        {"--chart", NULL, "draw memory over the steps (also by --explain on a terminal)", ARG_FLAG, &c.chart, 0, 0},
        {"--svg", "FILE", "draw memory over the steps as a picture", ARG_TEXT, &c.svg, 0, 0},
        {"--html", "FILE", "the figures and the picture as a page", ARG_TEXT, &c.html, 0, 0},
        {"--trace", "FILE", "with --facts: write the predicted iteration as a timeline, for Perfetto", ARG_TEXT,
         &c.trace, 0, 0},
        {"--save-graph", "FILE", "write the network's graph, for --graph", ARG_TEXT, &c.save_graph, 0, 0},
        {"--save-plan", "FILE", "write the first policy's plan: to check, and for 'mm train --plan'", ARG_TEXT,
         &c.save_plan, 0, 0},
        {"--save-facts", "FILE", "with --facts: write the times of this graph and the first policy's codecs", ARG_TEXT,
         &c.save_facts, 0, 0},
        TARGET_ARGS(&c.target),
        TARGET_ADAPT_ARGS(&c.target),
        TARGET_DISK_ARG(&c.target),
        TARGET_LINK_ARG(&c.target),
        TARGET_OPTIMIZER_ARG(&c.target),
        TARGET_UPDATE_ARG(&c.target),
        {"--facts", "FILE", "predict times: measured facts, a machine file, or a GPU (--gpu)", ARG_TEXT, &c.facts, 0,
         0},
        {"--study", "FILE[,LAYOUT]", "with --facts: sizes of variable codes, from 'mm codecs --study'", ARG_TEXT,
         &c.study, 0, 0},
        {"--json", "FILE", "write the figures as an array; -: to standard output", ARG_TEXT, &c.json, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm plan [OPTIONS]", help_text, &c.help);
    if (status == MM_OK && !c.help) {
        c.interrupted = c.target.stop = command_interruptible();
        if (c.graph) status = graph_plan_check_options(argc, argv, table);
        if (status == MM_OK && c.which_gpu) status = which_gpu_check_options(argc, argv);
        if (status == MM_OK)
            status = c.graph ? plan_graphs(&c, &graphs) : c.which_gpu ? plan_which_gpu(&c, &any_gpu) : run_plan(&c);
    }
    const bool interrupted = c.interrupted && *c.interrupted;
    bool misfit = graphs.misfit || (c.which_gpu && !any_gpu);
    for (int i = 0; i < c.n_cases; i++) misfit |= !plan_case_fits(&c.cases[i]);
    fini(&c);
    if (status != MM_OK) return command_failed("plan", status);
    if (interrupted && misfit) fprintf(stderr, "mm plan: interrupted: a plan that fits may not have been found yet\n");
    return interrupted ? EXIT_INTERRUPTED : misfit ? EXIT_FAILED : EXIT_OK;
}
