#include <stdio.h>
#include <string.h>

#include "mm/core/simulate.h"
#include "nets/net_file.h"
#include "nets/safetensors.h"
#include "tools/args.h"
#include "tools/commands.h"
#include "tools/json_file.h"
#include "tools/requirement.h"

typedef struct plan_command {
    const char *net, *policy_list, *device, *facts, *json;
    int64_t batch, budget_bytes;
    bool help;
    json_t *rows;
    bool misfit;
} plan_command;

/* The first node at which a graph step runs. */
static int node_of(const mm_plan *plan, int step) {
    for (int i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == MM_NODE_STEP && plan->nodes[i].step == step) return i;
    return 0;
}

static void print_size(const char *what, int64_t bytes) {
    char size[32];
    printf("  %-22s %12lld  %s\n", what, (long long)bytes, mm_size_format(bytes, size, sizeof size));
}

static void print_plan(const plan_command *c, const mm_plan *plan, const mm_simulation *sim) {
    char step[256];
    int64_t live[MM_CATEGORIES];
    printf("%s, batch %lld, %s\n", c->net, (long long)c->batch, plan->policy);
    print_size("minimum budget", plan->peak_bytes);
    print_size("live bytes at the peak", plan->live_peak_bytes);
    printf("  %-22s %s\n", "held by", mm_graph_step_name(plan->graph, plan->peak_step, step, sizeof step));
    mm_plan_live_at(plan, node_of(plan, plan->peak_step), live);
    for (int i = 0; i < MM_CATEGORIES; i++) {
        char label[32];
        snprintf(label, sizeof label, "  %s", mm_category_name(i));
        if (live[i] > 0) print_size(label, live[i]);
    }
    print_size("stash", plan->stash_bytes);
    if (plan->code_region_bytes > 0) print_size("compression workspace", plan->code_region_bytes);
    if (plan->buffers > 0) {
        char label[32];
        snprintf(label, sizeof label, "%d tensor buffers", plan->buffers);
        print_size(label, plan->buffer_region_bytes);
    }
    if (sim)
        printf("  %-22s %12.3f  ms, %.1f images/s, %d%% of side streams hidden\n", "predicted step",
               (double)sim->iteration_ns * 1e-6, (double)c->batch * 1e9 / (double)sim->iteration_ns,
               sim->hidden_permille / 10);
    if (c->budget_bytes > 0)
        printf("  %-22s %s\n", "fits the budget", plan->peak_bytes <= c->budget_bytes ? "yes" : "no");
}

static mm_status add_row(plan_command *c, const mm_plan *plan, const mm_simulation *sim) {
    char step[256];
    int64_t live[MM_CATEGORIES];
    mm_plan_live_at(plan, node_of(plan, plan->peak_step), live);
    json_t *at_peak = json_object();
    for (int i = 0; i < MM_CATEGORIES; i++) json_object_set_new(at_peak, mm_category_name(i), json_integer(live[i]));
    bool fits = c->budget_bytes == 0 || plan->peak_bytes <= c->budget_bytes;
    json_t *row = json_pack(
        "{ss sI ss ss sI sI sI sI ss so sI sI si so ss}", "net", c->net, "batch", (json_int_t)c->batch, "device",
        c->device, "policy", plan->policy, "budget_bytes", (json_int_t)c->budget_bytes, "predicted_peak_bytes",
        (json_int_t)plan->peak_bytes, "minimum_bytes", (json_int_t)plan->peak_bytes, "live_peak_bytes",
        (json_int_t)plan->live_peak_bytes, "held_by",
        mm_graph_step_name(plan->graph, plan->peak_step, step, sizeof step), "at_peak", at_peak, "stash_bytes",
        (json_int_t)plan->stash_bytes, "compression_workspace_bytes", (json_int_t)plan->code_region_bytes, "buffers",
        plan->buffers, "iteration_seconds_predicted", sim ? json_real((double)sim->iteration_ns * 1e-9) : json_null(),
        "status", fits ? "ok" : "infeasible");
    if (!row || json_array_append_new(c->rows, row) != 0) return mm_fail(MM_ERR_NOMEM, "out of memory for the rows");
    return MM_OK;
}

static mm_status plan_one(plan_command *c, const nets_net *net, const char *policy) {
    requirement r;
    MM_TRY(requirement_init(&r, net, c->batch, NETS_TRAIN, c->device, policy, 0, c->facts));
    const mm_plan *plan = r.planned.plan;
    mm_simulation sim = {0};
    mm_status status = c->facts ? mm_simulate(plan, r.planned.facts, &sim) : MM_OK;
    if (status == MM_OK) {
        print_plan(c, plan, c->facts ? &sim : NULL);
        status = add_row(c, plan, c->facts ? &sim : NULL);
    }
    c->misfit |= c->budget_bytes > 0 && plan->peak_bytes > c->budget_bytes;
    if (c->facts) mm_simulation_fini(&sim);
    requirement_fini(&r);
    return status;
}

static mm_status run_plan(plan_command *c) {
    arg_texts policies;
    nets_net *net;
    MM_TRY(requirement_device(c->device));
    MM_TRY(args_split("--policy", c->policy_list, &policies));
    if (c->json) MM_TRY(nets_safetensors_writable(c->json));
    MM_TRY(nets_open(c->net, &net));
    c->rows = json_array();
    mm_status status = c->rows ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the rows");
    for (int i = 0; status == MM_OK && i < policies.n; i++) status = plan_one(c, net, policies.text[i]);
    if (status == MM_OK && c->json) status = json_file_save(c->json, json_incref(c->rows));
    json_decref(c->rows);
    nets_net_destroy(net);
    return status;
}

static const char help_text[] =
    "Plans a training iteration without a device and without data: the smallest budget in which each policy runs,\n"
    "which step holds it, and what lies in memory at that step. With --budget, exits with 1 if a policy does not\n"
    "fit. With --facts (times that 'mm bench --facts' measured) also the step time to expect.\n"
    "\n"
    "  mm plan --net resnet32 --batch 128 --policy naive,liveness,freelunch:rate=4 --budget 300MiB";

int cmd_plan(int argc, char **argv) {
    plan_command c = {.net = "resnet32", .policy_list = "naive,liveness,freelunch", .device = "host", .batch = 128};
    const arg table[] = {
        {"--net", "NAME", "network (resnet32)", ARG_TEXT, &c.net, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &c.batch, 1, 1 << 20},
        {"--policy", "P,Q", "policies with their options (naive,liveness,freelunch)", ARG_TEXT, &c.policy_list, 0, 0},
        {"--budget", "SIZE", "does it fit?", ARG_SIZE, &c.budget_bytes, 0, 0},
        {"--device", "NAME", "whose workspaces to plan for (host)", ARG_TEXT, &c.device, 0, 0},
        {"--facts", "FILE", "measured times", ARG_TEXT, &c.facts, 0, 0},
        {"--json", "FILE", "the figures, as an array", ARG_TEXT, &c.json, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm plan [OPTIONS]", help_text, &c.help);
    if (status != MM_OK) return command_failed("plan", status);
    if (c.help) return EXIT_OK;
    status = run_plan(&c);
    if (status != MM_OK) return command_failed("plan", status);
    return c.misfit ? EXIT_FAILED : EXIT_OK;
}
