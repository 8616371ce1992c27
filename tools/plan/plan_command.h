/* SPDX-License-Identifier: MIT */
/* Private to 'mm plan': its options and its plans (cmd_plan.c), and what it prints and writes (plan_output.c). */
#ifndef TOOLS_PLAN_PLAN_COMMAND_H
#define TOOLS_PLAN_PLAN_COMMAND_H

#include "tools/args/args.h"
#include "tools/plan/explain.h"
#include "tools/plan/plan_case.h"

typedef struct plan_command {
    const char *net, *graph, *policy_list, *facts, *gpu, *study, *json, *svg, *html, *trace, *save_graph, *save_facts,
        *save_plan, *sub_batch, *ranks_list, *sum, *sum_at, *divide;
    int64_t batch, budget_bytes, pinned_bytes, effort;
    const volatile sig_atomic_t *interrupted;
    target target;
    bool no_advice, help, explain, explain_all, minimum, chart, max_batch, fastest_batch, max_context, which_gpu;
    /* derived from the options */
    plan_search search;
    int ranks; /* number of devices; `batch` is then one device's part */
    arg_texts policies;
    texts texts; /* owns policies' texts with an effort added, and texts of the cases */
    nets_net *network;
    plan_case *cases; /* one for each policy */
    int n_cases;
    facts_source source; /* the file of --facts, or the GPU of --gpu */
    bool gpu_budget;     /* the budget is that of the GPU: none was given */
    explain_bound image; /* lower bound of one image, if `explain` */
} plan_command;

/* Prints the plans' figures and explanations. chart: with pictures of their memory. */
MM_CHECKED mm_status plan_output_print(FILE *file, const plan_command *c, bool chart);
/* Writes all files that the options name. The first one that fails is the failure. */
MM_CHECKED mm_status plan_output_save(const plan_command *c);

#endif
