/* How long it takes from a net to a checked plan, before the first step of a training.
 *
 * Per net: lowering (graph and primitives). Per net and policy: planning (with what it needs to know of the codecs),
 * checking, and both together, for which the goal is at most a second for any net. */
#include <stdio.h>
#include <stdlib.h>

#include "mm/device/clock.h"
#include "mm/planning.h"
#include "nets/lower.h"
#include "nets/zoo/zoo.h"
#include "tools/args.h"
#include "tools/bench/samples.h"

enum { GOAL_NS = 1000000000 };

typedef struct bench {
    const char *net_list, *policy_list;
    int64_t batch, rounds;
    bool help;
    arg_texts nets, policies;
    nets_backend *backend;
} bench;

typedef struct subject {
    const char *policy_name;
    mm_policy policy;
    samples plan, check, both;
    int nodes, segments;
} subject;

static mm_status plan_and_check(const mm_graph *graph, subject *s, mm_planned *planned, int64_t start, bool keep) {
    const mm_limits unlimited = {
        .device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(graph)};
    MM_TRY(mm_policy_plan(&s->policy, graph, planned->facts, &unlimited, &planned->plan));
    const mm_plan *plan = planned->plan;
    const mm_limits own = {
        .device_bytes = plan->peak_bytes, .pinned_bytes = plan->pinned_bytes, .base_bytes = unlimited.base_bytes};
    const int64_t made = mm_now_ns();
    MM_TRY(mm_plan_check(plan, planned->facts, &own));
    const int64_t checked = mm_now_ns();
    s->nodes = plan->n_nodes;
    s->segments = plan->n_segments;
    if (!keep) return MM_OK;
    MM_TRY(samples_add(&s->plan, (double)(made - start)));
    MM_TRY(samples_add(&s->check, (double)(checked - made)));
    return samples_add(&s->both, (double)(checked - start));
}

static mm_status measure_one(const mm_graph *graph, subject *s, bool keep) {
    mm_planned planned;
    const int64_t start = mm_now_ns();
    MM_TRY(mm_planned_init(&planned, &s->policy, graph, "host"));
    mm_status status = plan_and_check(graph, s, &planned, start, keep);
    mm_planned_fini(&planned);
    return status;
}

static mm_status lower(const bench *b, const nets_net *net, samples *lowering, bool keep, nets_lowered **lowered_out) {
    const int64_t start = mm_now_ns();
    MM_TRY(nets_lower(net, b->backend, b->batch, NETS_TRAIN, NETS_SGD, lowered_out));
    return keep ? samples_add(lowering, (double)(mm_now_ns() - start)) : MM_OK;
}

static void report(const bench *b, const char *net, const nets_lowered *lowered, samples *lowering, subject *subjects) {
    char title[96];
    snprintf(title, sizeof title, "%s, batch %lld, %d steps, %d tensors", net, (long long)b->batch,
             mm_graph_steps(lowered->graph), mm_graph_tensors(lowered->graph));
    samples_print_head(stdout, title);
    samples_print(stdout, lowering, "lowering", 1e-6, "ms", 0, NULL);
    for (int p = 0; p < b->policies.n; p++) {
        subject *s = &subjects[p];
        printf("  %s: %d nodes, %d segments\n", s->policy_name, s->nodes, s->segments);
        samples_print(stdout, &s->plan, "  plan", 1e-6, "ms", 0, NULL);
        samples_print(stdout, &s->check, "  check", 1e-6, "ms", 0, NULL);
        samples_print(stdout, &s->both, "  plan + check", 1e-6, "ms", samples_summarize(&s->both).median / GOAL_NS,
                      "the goal of 1 s");
    }
    printf("\n");
    fflush(stdout);
}

/* Rounds over all policies, so that what slows the machine down for a while slows all of them; one to warm up. */
static mm_status measure_net(const bench *b, const char *name, const nets_net *net, subject *subjects) {
    samples lowering = {0};
    nets_lowered *lowered = NULL;
    mm_status status = MM_OK;
    for (int64_t r = 0; status == MM_OK && r <= b->rounds; r++) {
        nets_lowered_destroy(lowered);
        lowered = NULL;
        status = lower(b, net, &lowering, r > 0, &lowered);
        for (int p = 0; status == MM_OK && p < b->policies.n; p++)
            status = measure_one(lowered->graph, &subjects[p], r > 0);
    }
    if (lowered && status == MM_OK) report(b, name, lowered, &lowering, subjects);
    nets_lowered_destroy(lowered);
    samples_fini(&lowering);
    return status;
}

static mm_status run_net(const bench *b, const char *name) {
    nets_net *net;
    MM_TRY(nets_zoo_build(name, &net));
    subject *subjects = calloc((size_t)b->policies.n, sizeof *subjects);
    mm_status status = subjects ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for %d policies", b->policies.n);
    for (int p = 0; status == MM_OK && p < b->policies.n; p++) {
        subjects[p].policy_name = b->policies.text[p];
        status = mm_policy_parse(b->policies.text[p], &subjects[p].policy);
    }
    if (status == MM_OK) status = measure_net(b, name, net, subjects);
    for (int p = 0; subjects && p < b->policies.n; p++) {
        mm_policy_fini(&subjects[p].policy);
        samples_fini(&subjects[p].plan);
        samples_fini(&subjects[p].check);
        samples_fini(&subjects[p].both);
    }
    free(subjects);
    nets_net_destroy(net);
    return status;
}

static mm_status run(bench *b) {
    MM_TRY(args_split("--net", b->net_list, &b->nets));
    MM_TRY(args_split("--policies", b->policy_list, &b->policies));
    MM_TRY(nets_backend_open("host", NULL, &b->backend));
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < b->nets.n; i++) status = run_net(b, b->nets.text[i]);
    nets_backend_close(b->backend);
    args_texts_fini(&b->nets);
    args_texts_fini(&b->policies);
    return status;
}

int main(int argc, char **argv) {
    bench b = {.net_list = "resnet20,resnet32,resnet56,resnet110,resnet1202",
               .policy_list = "naive,liveness,freelunch:when=always,freelunch:eligible=all,when=always,"
                              "freelunch:workspace=naive,buffers=naive,when=always",
               .batch = 128,
               .rounds = 5};
    const arg table[] = {
        {"--net", "A,B", "networks (resnet20 to resnet1202)", ARG_TEXT, &b.net_list, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &b.batch, 1, 1 << 20},
        {"--policies", "P,Q", "policies with their options", ARG_TEXT, &b.policy_list, 0, 0},
        {"--rounds", "N", "how often (5)", ARG_COUNT, &b.rounds, 1, 1e6},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "planning [OPTIONS]",
                                  "Time from a net to a checked plan, without a device and without data.", &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = run(&b);
    if (status != MM_OK) fprintf(stderr, "planning: %s\n", mm_last_error());
    return status == MM_OK ? 0 : 1;
}
