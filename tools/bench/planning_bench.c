/* SPDX-License-Identifier: MIT */
/* Measures the CPU time from a net to a checked plan, before the first step of training.
 *
 * For each net: lowering (graph and primitives). For each net, budget and policy: planning (with the sizes of codes),
 * checking, and both together; the goal is at most a second for any net. Where a policy does not fit the budget, also
 * the advice in the refusal: the search for a policy that fits. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mm/core/account/account_bound.h"
#include "mm/core/plan/program.h"
#include "mm/core/size.h"
#include "mm/core/time/simulate.h"
#include "nets/lower/lower.h"
#include "nets/zoo/zoo.h"
#include "tools/args/args.h"
#include "tools/bench/samples.h"
#include "tools/facts/facts_source.h"
#include "tools/need/need.h"

enum { GOAL_NS = 1000000000 };

/* Budgets are given as shares. 0: the budget that no plan can undercut; 1: what liveness needs; UNLIMITED: none. */
static const double UNLIMITED = -1;

typedef struct bench {
    const char *net_list, *policy_list, *share_list, *facts_path;
    int64_t batch, rounds;
    target target;
    bool help;
    arg_texts nets, policies, share_texts;
    double shares[ARG_TEXTS_MAX]; /* {UNLIMITED} if none were given */
    int n_shares;
    facts_source source;
    const facts_source *facts; /* NULL: no --facts */
} bench;

/* A policy in a budget. */
typedef struct subject {
    const char *policy_name;
    double share;
    int64_t budget_bytes;
    mm_policy policy;
    samples plan, check, both, refusal;
    int nodes, segments;
    int64_t peak_bytes, step_ns;
} subject;

static int64_t cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static mm_status simulate(const mm_planned *planned, subject *s) {
    mm_simulation sim;
    MM_TRY(mm_simulate(planned->plan, planned->facts, &sim));
    s->step_ns = sim.iteration_ns;
    mm_simulation_fini(&sim);
    return MM_OK;
}

static need_case case_of(const bench *b, const nets_net *net) {
    return (need_case){.net = net,
                       .batch = b->batch,
                       .mode = NETS_TRAIN,
                       .target = &b->target,
                       .policy = "liveness",
                       .facts = b->facts,
                       .pinned = {.bytes = INT64_MAX}};
}

/* Searches the advice of a refusal, as a command does. */
static mm_status measure_refusal(const bench *b, const nets_net *net, subject *s, bool keep) {
    const int64_t start = cpu_ns();
    mm_status refused = mm_fail(MM_ERR_INFEASIBLE, "refused");
    need_case c = case_of(b, net);
    c.budget_bytes = s->budget_bytes;
    refused = need_advise(&c, NULL, 0);
    if (refused != MM_ERR_INFEASIBLE) return refused;
    return keep ? samples_add(&s->refusal, (double)(cpu_ns() - start)) : MM_OK;
}

static mm_status plan_and_check(const bench *b, const mm_graph *graph, subject *s, mm_planned *planned, int64_t start,
                                bool keep) {
    const mm_limits limits = {
        .device_bytes = s->budget_bytes, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(graph)};
    MM_TRY(need_add_times(b->facts, &b->target, graph, planned->facts));
    MM_TRY(mm_policy_plan(&s->policy, graph, planned->facts, &limits, &planned->plan));
    const mm_plan *plan = planned->plan;
    const mm_limits own = {
        .device_bytes = plan->peak_bytes, .pinned_bytes = plan->pinned_bytes, .base_bytes = limits.base_bytes};
    const int64_t made = cpu_ns();
    mm_program program;
    MM_TRY(mm_program_init(plan, planned->facts, &program));
    mm_status status = mm_program_prove(&program, planned->facts, &own, NULL);
    mm_program_fini(&program);
    MM_TRY(status);
    const int64_t checked = cpu_ns();
    s->nodes = plan->n_nodes;
    s->segments = plan->n_segments;
    s->peak_bytes = plan->peak_bytes;
    if (b->facts) MM_TRY(simulate(planned, s));
    if (!keep) return MM_OK;
    MM_TRY(samples_add(&s->plan, (double)(made - start)));
    MM_TRY(samples_add(&s->check, (double)(checked - made)));
    return samples_add(&s->both, (double)(checked - start));
}

static mm_status measure_one(const bench *b, const nets_net *net, const mm_graph *graph, subject *s, bool keep) {
    mm_planned planned;
    const int64_t start = cpu_ns();
    MM_TRY(mm_planned_init(&planned, &s->policy, graph, b->target.device));
    mm_status status = plan_and_check(b, graph, s, &planned, start, keep);
    mm_planned_fini(&planned);
    return status == MM_OK && s->peak_bytes > s->budget_bytes ? measure_refusal(b, net, s, keep) : status;
}

static mm_status lower(const bench *b, const nets_net *net, samples *lowering, bool keep, nets_lowered **lowered_out) {
    const int64_t start = cpu_ns();
    const nets_lowering how = target_lowering(&b->target, NETS_TRAIN);
    MM_TRY(nets_lower(net, b->target.backend, b->batch, &how, lowered_out));
    return keep ? samples_add(lowering, (double)(cpu_ns() - start)) : MM_OK;
}

/* ---------------------------------------------------------------- results */

static void report_head(const bench *b, const subject *s) {
    char budget[32], peak[32];
    printf("  %s", s->policy_name);
    if (s->share != UNLIMITED)
        printf(" in %s (share %g)", mm_size_format(s->budget_bytes, budget, sizeof budget), s->share);
    if (s->peak_bytes > s->budget_bytes)
        printf(": refused, needs %s\n", mm_size_format(s->peak_bytes, peak, sizeof peak));
    else if (b->facts)
        printf(": %d nodes, %d segments, a simulated step of %.3f ms\n", s->nodes, s->segments,
               (double)s->step_ns * 1e-6);
    else
        printf(": %d nodes, %d segments\n", s->nodes, s->segments);
}

static void report(const bench *b, const char *net, const nets_lowered *lowered, samples *lowering, subject *subjects) {
    char title[96];
    snprintf(title, sizeof title, "%s, batch %lld, %d steps, %d tensors", net, (long long)b->batch,
             mm_graph_steps(lowered->graph), mm_graph_tensors(lowered->graph));
    samples_print_head(stdout, title);
    samples_print(stdout, lowering, "lowering", 1e-6, "ms", 0, NULL);
    for (int i = 0; i < b->policies.n * b->n_shares; i++) {
        subject *s = &subjects[i];
        report_head(b, s);
        samples_print(stdout, &s->plan, "  plan", 1e-6, "ms", 0, NULL);
        samples_print(stdout, &s->check, "  check", 1e-6, "ms", 0, NULL);
        samples_print(stdout, &s->both, "  plan + check", 1e-6, "ms", samples_summarize(&s->both).median / GOAL_NS,
                      "the goal of 1 s");
        if (s->refusal.n > 0)
            samples_print(stdout, &s->refusal, "  advice", 1e-6, "ms", samples_summarize(&s->refusal).median / GOAL_NS,
                          "the goal of 1 s");
    }
    printf("\n");
    fflush(stdout);
}

/* ---------------------------------------------------------------- rounds */

/* Sets the budgets of share 0 (what no plan can undercut) and 1 (what liveness needs). */
static mm_status find_range(const bench *b, const nets_net *net, int64_t *least_out, int64_t *most_out) {
    const need_case c = case_of(b, net);
    need n;
    MM_TRY(need_init(&n, &c));
    *least_out = mm_lower_bound_of(need_most(&n)->lowered->graph, need_most(&n)->planned.facts).bytes;
    *most_out = need_most(&n)->minimum_bytes;
    need_fini(&n);
    return MM_OK;
}

static mm_status set_budgets(const bench *b, const nets_net *net, subject *subjects) {
    int64_t least, most;
    MM_TRY(find_range(b, net, &least, &most));
    for (int i = 0; i < b->policies.n * b->n_shares; i++)
        subjects[i].budget_bytes =
            subjects[i].share == UNLIMITED ? INT64_MAX : least + (int64_t)(subjects[i].share * (double)(most - least));
    return MM_OK;
}

/* Each round measures all policies, so that a slow phase of the machine affects all of them. The first warms up. */
static mm_status measure_net(const bench *b, const char *name, const nets_net *net, subject *subjects) {
    samples lowering = {0};
    nets_lowered *lowered = NULL;
    mm_status status = set_budgets(b, net, subjects);
    for (int64_t r = 0; status == MM_OK && r <= b->rounds; r++) {
        nets_lowered_destroy(lowered);
        lowered = NULL;
        status = lower(b, net, &lowering, r > 0, &lowered);
        for (int i = 0; status == MM_OK && i < b->policies.n * b->n_shares; i++)
            status = measure_one(b, net, lowered->graph, &subjects[i], r > 0);
    }
    if (lowered && status == MM_OK) report(b, name, lowered, &lowering, subjects);
    nets_lowered_destroy(lowered);
    samples_fini(&lowering);
    return status;
}

static mm_status run_net(const bench *b, const char *name) {
    const int n = b->policies.n * b->n_shares;
    nets_net *net;
    MM_TRY(nets_zoo_build(name, &net));
    subject *subjects = calloc((size_t)n, sizeof *subjects);
    mm_status status = subjects ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for %d policies", b->policies.n);
    for (int i = 0; status == MM_OK && i < n; i++) {
        subjects[i].policy_name = b->policies.text[i / b->n_shares];
        subjects[i].share = b->shares[i % b->n_shares];
        status = mm_policy_parse(subjects[i].policy_name, &subjects[i].policy);
    }
    if (status == MM_OK) status = measure_net(b, name, net, subjects);
    for (int i = 0; subjects && i < n; i++) {
        mm_policy_fini(&subjects[i].policy);
        samples_fini(&subjects[i].plan);
        samples_fini(&subjects[i].check);
        samples_fini(&subjects[i].both);
        samples_fini(&subjects[i].refusal);
    }
    free(subjects);
    nets_net_destroy(net);
    return status;
}

/* ---------------------------------------------------------------- options */

static mm_status read_shares(bench *b) {
    b->shares[0] = UNLIMITED;
    b->n_shares = 1;
    if (!b->share_list) return MM_OK;
    MM_TRY(args_split("--budget-shares", b->share_list, &b->share_texts));
    b->n_shares = b->share_texts.n;
    for (int i = 0; i < b->n_shares; i++) {
        const arg share = {"--budget-shares", NULL, NULL, ARG_NUMBER, &b->shares[i], 0, 1};
        MM_TRY(args_set(&share, b->share_texts.text[i]));
    }
    return MM_OK;
}

static mm_status open_all(bench *b) {
    MM_TRY(args_split("--net", b->net_list, &b->nets));
    MM_TRY(args_split("--policies", b->policy_list, &b->policies));
    MM_TRY(read_shares(b));
    if (b->facts_path) {
        MM_TRY(facts_source_open(b->facts_path, &b->source));
        b->facts = &b->source;
    }
    return target_init(&b->target);
}

static mm_status run(bench *b) {
    mm_status status = open_all(b);
    for (int i = 0; status == MM_OK && i < b->nets.n; i++) status = run_net(b, b->nets.text[i]);
    target_fini(&b->target);
    facts_source_close(&b->source);
    args_texts_fini(&b->nets);
    args_texts_fini(&b->policies);
    args_texts_fini(&b->share_texts);
    return status;
}

int main(int argc, char **argv) {
    bench b = {.net_list = "resnet20,resnet32,resnet56,resnet110,resnet1202",
               .policy_list = "naive,liveness,freelunch:when=always,freelunch:eligible=all,when=always,"
                              "freelunch:workspace=naive,buffers=naive,when=always",
               .target = TARGET_DEFAULTS,
               .batch = 128,
               .rounds = 5};
    const arg table[] = {
        {"--net", "A,B", "networks (resnet20 to resnet1202)", ARG_TEXT, &b.net_list, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &b.batch, 1, 1 << 20},
        {"--policies", "P,Q", "policies with their options", ARG_TEXT, &b.policy_list, 0, 0},
        {"--budget-shares", "X,Y", "budgets: 0 is what any plan needs, 1 what liveness does (no limit)", ARG_TEXT,
         &b.share_list, 0, 0},
        {"--facts", "FILE", "measured times, or a machine's rates, to plan and simulate with", ARG_TEXT, &b.facts_path,
         0, 0},
        {"--rounds", "N", "rounds to measure (5)", ARG_COUNT, &b.rounds, 1, 1e6},
        TARGET_ARGS(&b.target),
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "planning [OPTIONS]",
                                  "Measures the CPU time from a net to a checked plan, without a device and data.\n"
                                  "Where a policy does not fit a budget, also that of finding one that would.",
                                  &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = run(&b);
    if (status != MM_OK) fprintf(stderr, "planning: %s\n", mm_last_error());
    if (status == MM_ERR_INVALID || status == MM_ERR_NOT_FOUND) return 2;
    return status == MM_OK ? 0 : 1;
}
