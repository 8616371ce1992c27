/* SPDX-License-Identifier: MIT */
/* Measures what mm_layer_begin + mm_layer_end cost the training thread.
 *
 * The graph is a chain of convolutions over tiny maps. Under freelunch with codec raw, nearly every forward step waits
 * for one encode (of the map whose buffer it takes) and issues one encode; nearly every backward step waits for one
 * decode and issues one. Under liveness the same steps wait for nothing and issue nothing.
 *
 * Between steps the training thread spins for --host-us, as a thread that launches kernels would. On the compute stream
 * a step sleeps for --step-us, as if it ran on another device, so that the device is behind the host and begin has no
 * reason to wait for it. "back to back" has neither: it shows the cost of calls that come faster than the workers can
 * follow. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mm/device/contract/clock.h"
#include "mm/device/host/device_host.h"
#include "mm/planning/planning.h"
#include "tools/args/args.h"
#include "tools/bench/overhead_loop.h"
#include "tools/bench/samples.h"

enum { LAYERS = 64, GOAL_NS = 5000 };

/* How many waits and operations a step of the plan has. */
typedef struct step_class {
    int waits, ops;
} step_class;

typedef struct config {
    const char *label, *policy;
    mm_issue issue;
    bool back_to_back;
    step_class wanted;
} config;

static const config configs[] = {
    {"wait + operation, issue=thread", "freelunch:codec=raw,when=always", MM_ISSUE_THREAD, false, {1, 1}},
    {"wait + operation, issue=inline", "freelunch:codec=raw,when=always", MM_ISSUE_INLINE, false, {1, 1}},
    {"neither", "liveness", MM_ISSUE_THREAD, false, {0, 0}},
    {"wait + operation, issue=thread, back to back", "freelunch:codec=raw,when=always", MM_ISSUE_THREAD, true, {1, 1}},
    {"wait + operation, issue=inline, back to back", "freelunch:codec=raw,when=always", MM_ISSUE_INLINE, true, {1, 1}},
    {"neither, back to back", "liveness", MM_ISSUE_THREAD, true, {0, 0}},
};

enum { CONFIGS = sizeof configs / sizeof configs[0] };

typedef struct run {
    const config *config;
    mm_manager *manager;
    step_class *classes; /* of each step */
    samples begin, end, both;
} run;

typedef struct bench {
    int64_t iterations, host_us, step_us;
    bool help;
    mm_graph *graph;
    run runs[CONFIGS];
    samples mutex, launch_busy, launch_idle;
    overhead_loop *loop;
} bench;

/* ---------------------------------------------------------------- the graph */

static mm_status add_map(mm_graph *graph, const char *prefix, int i, mm_tensor_kind kind, mm_tensor *tensor_out) {
    char name[32];
    snprintf(name, sizeof name, "%s%d", prefix, i);
    const mm_tensor_desc desc = {.name = name, .kind = kind, .dtype = MM_F32, .rank = 4, .dims = {1, 4, 4, 16}};
    return mm_graph_add_tensor(graph, &desc, tensor_out);
}

static mm_status fill_graph(mm_graph *graph) {
    mm_tensor map[LAYERS], gradient[LAYERS], weight;
    mm_layer layer[LAYERS];
    const mm_tensor_desc weight_desc = {
        .name = "dw", .kind = MM_WEIGHT_GRADIENT, .ownership = MM_PERSISTENT, .dtype = MM_F32, .rank = 1, .dims = {16}};
    MM_TRY(mm_graph_add_tensor(graph, &weight_desc, &weight));
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "conv%d", i);
        MM_TRY(mm_graph_add_layer(graph, name, MM_LAYER_CONV, &layer[i]));
        MM_TRY(add_map(graph, "map", i, MM_FEATURE_MAP, &map[i]));
        if (i > 0) MM_TRY(add_map(graph, "gradient", i, MM_GRADIENT_MAP, &gradient[i]));
        const mm_use uses[] = {{map[i], MM_WRITE, MM_FORM_VALUE}, {map[i ? i - 1 : 0], MM_READ, MM_FORM_VALUE}};
        MM_TRY(mm_graph_add_step(graph, layer[i], MM_FORWARD, uses, i ? 2 : 1, 0));
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        mm_use uses[3] = {{map[i], MM_READ, MM_FORM_VALUE}, {i ? gradient[i] : weight, MM_WRITE, MM_FORM_VALUE}};
        const bool last = i == LAYERS - 1;
        if (!last) uses[2] = (mm_use){gradient[i + 1], MM_READ, MM_FORM_VALUE};
        MM_TRY(mm_graph_add_step(graph, layer[i], MM_BACKWARD, uses, last ? 2 : 3, 0));
    }
    return mm_graph_freeze(graph);
}

/* ---------------------------------------------------------------- set-up */

/* Plans as the manager will, and sets the class of each step and the budget. */
static mm_status classify(const bench *b, run *r, int64_t *budget_out) {
    mm_policy policy;
    mm_planned planned;
    MM_TRY(mm_policy_parse(r->config->policy, &policy));
    mm_status gathered = mm_planned_init(&planned, &policy, b->graph, "host");
    if (gathered != MM_OK) mm_policy_fini(&policy);
    MM_TRY(gathered);
    const mm_limits limits = {
        .device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(b->graph)};
    mm_status status = mm_planned_make(&planned, &policy, b->graph, &limits);
    if (status == MM_OK) {
        const mm_plan *plan = planned.plan;
        for (int i = 0, step = 0; i < plan->n_nodes; i++) {
            if (plan->nodes[i].kind != MM_NODE_STEP) {
                r->classes[step].ops++;
                continue;
            }
            step = plan->nodes[i].step;
            for (int s = 0; s < MM_STREAM_COUNT; s++) r->classes[step].waits += plan->nodes[i].wait[s] >= 0;
        }
        *budget_out = plan->peak_bytes;
    }
    mm_planned_fini(&planned);
    mm_policy_fini(&policy);
    return status;
}

static mm_status open_run(bench *b, run *r) {
    r->classes = calloc((size_t)mm_graph_steps(b->graph), sizeof *r->classes);
    if (!r->classes) return mm_fail(MM_ERR_NOMEM, "out of memory for %d steps", mm_graph_steps(b->graph));
    mm_options options = {.policy = r->config->policy, .issue = r->config->issue};
    MM_TRY(classify(b, r, &options.device_bytes));
    MM_TRY(mm_manager_create(&options, &r->manager));
    return mm_manager_prepare(r->manager, b->graph);
}

/* ---------------------------------------------------------------- measuring */

static void spin(int64_t ns) {
    for (int64_t until = mm_now_ns() + ns; mm_now_ns() < until;) {}
}

static mm_status sleep_for(void *arg) {
    const int64_t *ns = arg;
    struct timespec left = {.tv_sec = *ns / 1000000000, .tv_nsec = *ns % 1000000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
    return MM_OK;
}

static mm_status run_step(const bench *b, run *r, int step, bool keep) {
    const mm_step_info *info = mm_graph_step(b->graph, step);
    const int64_t step_ns = r->config->back_to_back ? 0 : b->step_us * 1000;
    mm_stream *stream = mm_compute_stream(r->manager);
    if (!r->config->back_to_back) spin(b->host_us * 1000);
    const int64_t t0 = mm_now_ns();
    MM_TRY(mm_layer_begin(r->manager, info->layer, info->phase, stream));
    const int64_t t1 = mm_now_ns();
    if (step_ns > 0) MM_TRY(mm_host_launch(stream, sleep_for, &step_ns, sizeof step_ns));
    const int64_t t2 = mm_now_ns();
    MM_TRY(mm_layer_end(r->manager, info->layer, info->phase));
    const int64_t t3 = mm_now_ns();
    if (!keep || r->classes[step].waits != r->config->wanted.waits || r->classes[step].ops != r->config->wanted.ops)
        return MM_OK;
    MM_TRY(samples_add(&r->begin, (double)(t1 - t0)));
    MM_TRY(samples_add(&r->end, (double)(t3 - t2)));
    return samples_add(&r->both, (double)(t1 - t0 + t3 - t2));
}

static mm_status run_iteration(const bench *b, run *r, bool keep) {
    MM_TRY(mm_iteration_begin(r->manager, b->graph));
    for (int s = 0; s < mm_graph_steps(b->graph); s++) MM_TRY(run_step(b, r, s, keep));
    return mm_iteration_end(r->manager);
}

static mm_status nothing(void *arg) {
    (void)arg;
    return MM_OK;
}

/* Measures two costs to compare with: a lock; and enqueuing a task, on a busy stream and on a sleeping one, which must
 * be woken. */
static mm_status measure_peers(bench *b, mm_stream *stream) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 100; i++) {
        const int64_t start = mm_now_ns();
        for (int j = 0; j < 100; j++) {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
        }
        MM_TRY(samples_add(&b->mutex, (double)(mm_now_ns() - start) / 100));
    }
    const int64_t busy_ns = 5000000;
    MM_TRY(mm_host_launch(stream, sleep_for, &busy_ns, sizeof busy_ns));
    for (int i = 0; i < 100; i++) {
        const int64_t start = mm_now_ns();
        MM_TRY(mm_host_launch(stream, nothing, NULL, 0));
        MM_TRY(samples_add(&b->launch_busy, (double)(mm_now_ns() - start)));
    }
    MM_TRY(mm_stream_sync(stream));
    for (int i = 0; i < 100; i++) {
        spin(50000);
        const int64_t start = mm_now_ns();
        MM_TRY(mm_host_launch(stream, nothing, NULL, 0));
        MM_TRY(samples_add(&b->launch_idle, (double)(mm_now_ns() - start)));
    }
    return mm_stream_sync(stream);
}

/* Configurations take turns, so that a slow phase of the machine affects all of them. */
static mm_status measure(bench *b) {
    mm_device *device;
    mm_stream *stream;
    MM_TRY(mm_device_create("host", NULL, &device));
    mm_status status = mm_stream_create(device, "peer", 0, &stream);
    if (status == MM_OK) {
        for (int64_t i = 0; status == MM_OK && i <= b->iterations; i++) {
            status = measure_peers(b, stream);
            for (int c = 0; status == MM_OK && c < CONFIGS; c++) status = run_iteration(b, &b->runs[c], i > 0);
            if (status == MM_OK) status = overhead_loop_measure(b->loop, b->host_us * 1000, i > 0);
        }
        mm_stream_destroy(stream);
    }
    mm_device_destroy(device);
    return status;
}

static void report(bench *b) {
    const double mutex = samples_summarize(&b->mutex).median, launch = samples_summarize(&b->launch_busy).median;
    const double wake = samples_summarize(&b->launch_idle).median;
    samples_print_head(stdout, "peers");
    samples_print(stdout, &b->mutex, "mutex lock + unlock", 1, "ns", 0, NULL);
    samples_print(stdout, &b->launch_busy, "launch on a busy stream", 1, "ns", launch / mutex, "a mutex pair");
    samples_print(stdout, &b->launch_idle, "launch that wakes a sleeping stream", 1, "ns", wake / mutex,
                  "a mutex pair");
    for (int c = 0; c < CONFIGS; c++) {
        run *r = &b->runs[c];
        const double both = samples_summarize(&r->both).median;
        mm_stats stats;
        mm_stats_get(r->manager, &stats);
        printf("\n");
        samples_print_head(stdout, r->config->label);
        samples_print(stdout, &r->begin, "layer_begin", 1, "ns", 0, NULL);
        samples_print(stdout, &r->end, "layer_end", 1, "ns", 0, NULL);
        samples_print(stdout, &r->both, "both", 1, "ns", both / GOAL_NS, "the goal of 5 us");
        printf("    %.1f mutex pairs, %.1f launches, %.2f wakes; begin waited for a worker in %.1f %% of all steps\n",
               both / mutex, both / launch, both / wake,
               100.0 * (double)stats.host_waits / (double)(stats.iterations * mm_graph_steps(b->graph)));
    }
    overhead_loop_report(b->loop);
}

static mm_status prepare(bench *b) {
    MM_TRY(mm_graph_create("chain", &b->graph));
    MM_TRY(fill_graph(b->graph));
    for (int c = 0; c < CONFIGS; c++) {
        b->runs[c].config = &configs[c];
        MM_TRY(open_run(b, &b->runs[c]));
    }
    return overhead_loop_create(&b->loop);
}

static void fini(bench *b) {
    for (int c = 0; c < CONFIGS; c++) {
        run *r = &b->runs[c];
        mm_manager_destroy(r->manager);
        free(r->classes);
        samples_fini(&r->begin);
        samples_fini(&r->end);
        samples_fini(&r->both);
    }
    overhead_loop_destroy(b->loop);
    samples_fini(&b->mutex);
    samples_fini(&b->launch_busy);
    samples_fini(&b->launch_idle);
    mm_graph_destroy(b->graph);
}

int main(int argc, char **argv) {
    bench b = {.iterations = 50, .host_us = 20, .step_us = 60};
    const arg table[] = {
        {"--iterations", "N", "iterations of each configuration (50)", ARG_COUNT, &b.iterations, 1, 1e6},
        {"--host-us", "US", "the training thread's own work between steps (20)", ARG_COUNT, &b.host_us, 0, 1e6},
        {"--step-us", "US", "a step's time on the compute stream (60)", ARG_COUNT, &b.step_us, 0, 1e6},
        {0},
    };
    mm_status status =
        args_parse(argc, argv, table, "overhead [OPTIONS]",
                   "Host time of mm_layer_begin + mm_layer_end, with one wait and one operation.", &b.help);
    if (status == MM_OK && b.help) return 0;
    if (status == MM_OK) status = prepare(&b);
    if (status == MM_OK) status = measure(&b);
    if (status == MM_OK) report(&b);
    fini(&b);
    if (status != MM_OK) fprintf(stderr, "overhead: %s\n", mm_last_error());
    return status == MM_OK ? 0 : 1;
}
