/* SPDX-License-Identifier: MIT */
#include "tests/suite/suite_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mm/core/philox.h"
#include "mm/core/plan/plan.h"
#include "mm/device/contract/device.h"
#include "mm/planning/together.h"
#include "nets/adapt.h"
#include "nets/zoo/zoo.h"
#include "tests/nets/algorithms_file.h"

int suite_on_each_device(int (*run)(const char *device)) {
    int failed = 0;
    const char *only = getenv("MM_SUITE_DEVICE");
    for (size_t i = 0; mm_device_table(i); i++)
        if (!only || strcmp(only, mm_device_table(i)->name) == 0) failed += run(mm_device_table(i)->name);
    return failed;
}

static void need_device(const char *name) {
    mm_device *device;
    if (mm_device_create(name, NULL, &device) != MM_OK) {
        print_message("%s\n", mm_last_error());
        skip();
    }
    mm_device_destroy(device);
}

/* Sets up s, which then owns the net, with random images and labels. */
static void take_net(suite_net *s, const char *device, nets_net *net, int64_t batch) {
    const uint32_t key[2] = {4, 99};
    uint32_t words[4];
    *s = (suite_net){.device = device, .net = net, .batch = batch};
    const int64_t *shape = nets_net_layer(s->net, 0)->shape.dims;
    int64_t elems = batch * shape[0] * shape[1] * shape[2], labels = batch * nets_net_labels(s->net);
    s->images = malloc((size_t)elems * sizeof *s->images);
    s->labels = malloc((size_t)labels * sizeof *s->labels);
    assert_true(s->images && s->labels);
    for (int64_t i = 0; i < elems; i++) {
        mm_philox(key, (const uint32_t[4]){(uint32_t)i, 0, 0, 0}, words);
        s->images[i] = nets_net_tokens(net) ? (float)(words[0] % (uint32_t)nets_net_classes(net))
                                            : (float)((double)words[0] / 2147483648.0 - 1.0);
    }
    for (int64_t i = 0; i < labels; i++) {
        mm_philox(key, (const uint32_t[4]){(uint32_t)i, 1, 0, 0}, words);
        s->labels[i] = (int32_t)(words[0] % (uint32_t)nets_net_classes(s->net));
    }
}

void suite_net_init(suite_net *s, const char *device, const char *name, int64_t batch) {
    nets_net *net;
    nets_lora lora;
    const size_t length = strcspn(name, " ");
    const char *adapted = name + length, *option = strchr(adapted, ':');
    char plain[128];
    need_device(device);
    assert_true(length < sizeof plain && (!*adapted || option));
    snprintf(plain, sizeof plain, "%.*s", (int)length, name);
    mm_status status = nets_zoo_build(plain, &net);
    if (status == MM_OK && strncmp(adapted, " freeze:", 8) == 0) status = nets_freeze_layers(net, option + 1);
    if (status == MM_OK && strncmp(adapted, " lora:", 6) == 0) {
        status = nets_lora_parse(option + 1, &lora);
        if (status == MM_OK) status = nets_lora_add(&lora, &net);
    }
    if (status != MM_OK) fail_msg("%s", mm_last_error());
    take_net(s, device, net, batch);
}

void suite_net_init_dropped(suite_net *s, const char *device, int64_t batch) {
    nets_net *net;
    need_device(device);
    assert_int_equal(nets_net_create("dropped", &net), MM_OK);
    const nets_attrs conv = {.out_channels = 8, .kernel = {3, 3}, .pad = {1, 1}};
    int x = nets_add_data(net, 8, 8, 3, 5);
    x = nets_add1(net, "conv1", NETS_CONV, &conv, x);
    x = nets_add1(net, "bn1", NETS_BATCH_NORM, NULL, x);
    x = nets_add1(net, "relu1", NETS_RELU, NULL, x);
    x = nets_add1(net, "drop", NETS_DROPOUT, &(nets_attrs){.p = 0.4f}, x);
    x = nets_add1(net, "conv2", NETS_CONV, &conv, x);
    x = nets_add1(net, "bn2", NETS_BATCH_NORM, NULL, x);
    x = nets_add1(net, "relu2", NETS_RELU, NULL, x);
    x = nets_add1(net, "pool", NETS_GLOBAL_AVG_POOL, NULL, x);
    x = nets_add1(net, "fc", NETS_LINEAR, &(nets_attrs){.out_channels = 5, .bias = true}, x);
    nets_add1(net, "loss", NETS_LOSS, NULL, x);
    if (nets_net_finish(net) != MM_OK) fail_msg("%s", mm_last_error());
    take_net(s, device, net, batch);
}

void suite_net_fini(suite_net *s) {
    nets_net_destroy(s->net);
    free(s->images);
    free(s->labels);
}

nets_backend *suite_backend(const suite_net *s) { return suite_backend_on(s, s->device); }

nets_backend *suite_backend_on(const suite_net *s, const char *device) {
    nets_backend *backend;
    const nets_backend_config config = {.deterministic = !s->several,
                                        .precision = s->precision,
                                        .workspace_limit_bytes = 8 << 20,
                                        .threads = strcmp(device, "host") == 0 ? SUITE_THREADS : 0,
                                        .algorithms_path = algorithms_file()};
    if (nets_backend_open(device, &config, &backend) != MM_OK) fail_msg("%s", mm_last_error());
    return backend;
}

/* Gives the planner the device's rates of memory and link, as the manager does. */
static mm_status tell_rates(mm_planned *planned, const char *name) {
    mm_device *device;
    mm_device_description description;
    MM_TRY(mm_device_create(name, NULL, &device));
    mm_device_describe(device, &description);
    mm_device_destroy(device);
    mm_planned_set_rates(planned, &(mm_rates){.memory_bytes_per_s = description.memory_bytes_per_s,
                                              .link_bytes_per_s = description.link_bytes_per_s});
    return MM_OK;
}

static const nets_optimizer *optimizer_of(const suite_net *s) { return s->optimizer ? s->optimizer : &SUITE_SGD; }

/* Plans one graph. base: the largest base of the graphs planned so far, which this call may enlarge. */
static mm_status plan(const suite_net *s, const nets_exec_graph *graph, const char *spec, int64_t budget,
                      int64_t pinned, int64_t *base, nets_lowered **lowered, mm_planned *planned,
                      nets_backend *backend) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    const nets_lowering how = {.mode = NETS_TRAIN,
                               .optimizer = optimizer_of(s)->id,
                               .update = s->update,
                               .on_host = optimizer_of(s)->on_host,
                               .pass = graph->pass,
                               .no_fuse = s->no_fuse,
                               .strip_elems = s->strip_elems};
    MM_TRY(nets_lower(s->net, backend, graph->batch, &how, lowered));
    const int64_t own = mm_plan_base((*lowered)->graph);
    if (own > *base) *base = own;
    mm_limits limits = {.device_bytes = budget, .pinned_bytes = pinned, .base_bytes = *base};
    MM_TRY(mm_planned_init(planned, &policy, (*lowered)->graph, s->device));
    mm_status status = tell_rates(planned, s->device);
    if (status == MM_OK) status = mm_planned_make_housed(planned, &policy, (*lowered)->graph, &limits);
    mm_policy_fini(&policy);
    return status;
}

suite_need suite_needs(const suite_net *s, const char *policy, int64_t budget) {
    return suite_needs_within(s, policy, budget, INT64_MAX);
}

/* Finds out whether codes vary in size, and whether some must spill: zvc's code of an element takes at least 1 of its
 * elem_bits bits. */
static void look_at_pools(const mm_plan *plan, int elem_bits, suite_need *need) {
    for (int i = 0; i < plan->n_segments; i++) {
        const int32_t pool = plan->segments[i].pool;
        if (pool < 0) continue;
        const mm_segment *p = &plan->segments[pool];
        need->bodies = true;
        need->spills |= p->memory == MM_MEM_PINNED ||
                        (p->spill >= 0 && elem_bits * p->bytes < p->bytes + plan->segments[p->spill].bytes);
    }
}

static void add_need(const nets_lowered *lowered, const mm_plan *plan, int elem_bits, suite_need *need) {
    if (plan->peak_bytes > need->device_bytes) need->device_bytes = plan->peak_bytes;
    if (plan->pinned_bytes > need->pinned_bytes) need->pinned_bytes = plan->pinned_bytes;
    look_at_pools(plan, elem_bits, need);
    for (int i = 0; i < plan->n_nodes; i++) {
        const mm_node *node = &plan->nodes[i];
        need->operations += !mm_node_runs_step(node);
        if (node->kind == MM_NODE_OUT) need->out_bytes += plan->segments[node->dst].bytes;
        if (node->kind == MM_NODE_IN) need->in_bytes += plan->segments[node->dst].bytes;
        if (node->kind != MM_NODE_RECOMPUTE) continue;
        need->recomputed++;
        need->recomputed_kind[mm_graph_layer(lowered->graph, mm_graph_step(lowered->graph, node->step)->layer)->kind]++;
    }
}

suite_need suite_needs_within(const suite_net *s, const char *policy, int64_t budget, int64_t pinned) {
    nets_backend *backend = suite_backend(s);
    nets_exec_graph graphs[3];
    suite_need need = {0};
    int64_t base = 0;
    for (int i = nets_exec_graphs(s->batch, s->sub_batch ? s->sub_batch : s->batch, graphs) - 1; i >= 0; i--) {
        nets_lowered *lowered = NULL;
        mm_planned planned = {0};
        if (plan(s, &graphs[i], policy, budget, pinned, &base, &lowered, &planned, backend) != MM_OK)
            fail_msg("%s, %s: %s", nets_net_name(s->net), policy, mm_last_error());
        add_need(lowered, planned.plan, s->precision == NETS_BF16 ? 16 : 32, &need);
        mm_planned_fini(&planned);
        nets_lowered_destroy(lowered);
    }
    nets_backend_close(backend);
    return need;
}

static mm_status create_exec(suite_run *r) {
    const suite_net *s = r->s;
    const nets_exec_options options = {
        .sub_batch = s->sub_batch, .no_fuse = s->no_fuse, .update = s->update, .strip_elems = s->strip_elems};
    return nets_exec_create_with(s->net, s->batch, NETS_TRAIN, r->manager, r->backend, optimizer_of(s), &options,
                                 &r->exec);
}

void suite_run_init(suite_run *r, const suite_net *s, const mm_options *options) {
    *r = (suite_run){.s = s, .backend = suite_backend(s)};
    mm_options own = *options;
    own.device = s->device;
    if (mm_manager_create(&own, &r->manager) != MM_OK || create_exec(r) != MM_OK)
        fail_msg("%s, %s, %lld bytes: %s", nets_net_name(s->net), options->policy, (long long)options->device_bytes,
                 mm_last_error());
    if (nets_exec_init(r->exec, SUITE_SEED) != MM_OK) fail_msg("%s", mm_last_error());
}

void suite_run_fini(suite_run *r) {
    nets_exec_destroy(r->exec);
    mm_manager_destroy(r->manager);
    nets_backend_close(r->backend);
}

bool suite_same_learned(const suite_net *s, const float *a, const float *b) {
    for (nets_part part = NETS_VALUE; part < NETS_PARTS; part++)
        for (int p = 0; p < nets_net_params(s->net); p++) {
            size_t elems = (size_t)nets_net_param(s->net, p)->elems;
            if (part != NETS_GRADIENT && memcmp(a, b, elems * sizeof *a) != 0) return false;
            a += elems;
            b += elems;
        }
    return true;
}

float suite_iterate(suite_run *r) {
    nets_result result;
    if (nets_exec_iteration(r->exec, r->s->images, r->s->labels, r->s->batch, SUITE_RATE, &result) != MM_OK)
        fail_msg("%s: %s", nets_net_name(r->s->net), mm_last_error());
    return result.loss;
}

static float *read_all(const suite_run *r, bool gradients, size_t *n_out) {
    const nets_net *net = r->s->net;
    size_t n = 0, at = 0;
    for (int p = 0; p < nets_net_params(net); p++) n += (size_t)nets_net_param(net, p)->elems;
    float *weights = calloc(NETS_PARTS * n, sizeof *weights); /* zero for a parameter without a gradient */
    assert_non_null(weights);
    for (nets_part part = NETS_VALUE; part < NETS_PARTS; part++)
        for (int p = 0; p < nets_net_params(net); p++) {
            const mm_status status =
                part == NETS_GRADIENT && !gradients ? MM_OK : nets_exec_param_get(r->exec, p, part, weights + at);
            if (status != MM_OK && status != MM_ERR_NOT_FOUND) fail_msg("%s", mm_last_error());
            at += (size_t)nets_net_param(net, p)->elems;
        }
    *n_out = at;
    return weights;
}

float *suite_weights(const suite_run *r, size_t *n_out) { return read_all(r, true, n_out); }

float *suite_learned(const suite_run *r, size_t *n_out) { return read_all(r, false, n_out); }

void suite_check_touched(const suite_run *r, int64_t bytes) {
    mm_touched touched;
    assert_int_equal(mm_touched_get(r->manager, &touched), MM_OK);
    assert_int_equal(touched.stray_bytes, 0);
    assert_true(touched.total_bytes <= bytes);
}

void suite_switch(const suite_run *r, const char *policy, int64_t budget) {
    const mm_status status = mm_policy_set(r->manager, policy);
    if (status != MM_OK && status != MM_ERR_INFEASIBLE) fail_msg("%s: %s", policy, mm_last_error());
    const mm_status set = mm_budget_set(r->manager, budget);
    if (set != MM_OK && set != MM_ERR_INFEASIBLE) fail_msg("%s: %s", policy, mm_last_error());
}

void suite_expect_end(suite_run *r, int64_t most, const float *expected) {
    size_t n;
    suite_check_touched(r, most);
    float *weights = suite_weights(r, &n);
    if (!suite_same_learned(r->s, weights, expected)) fail_msg("%s: other weights", nets_net_name(r->s->net));
    free(weights);
    suite_run_fini(r);
}

static void expect_refused(const suite_net *s, nets_optimizer optimizer, const suite_refused *c, mm_manager *manager,
                           nets_backend *backend) {
    const nets_exec_options how = {.update = c->update, .sub_batch = c->sub_batch, .allreduce = c->allreduce};
    nets_exec *exec;
    optimizer.clip_norm = c->clip_norm;
    assert_int_equal(mm_policy_set(manager, c->policy ? c->policy : "liveness"), MM_OK);
    assert_int_equal(nets_exec_create_with(s->net, s->batch, NETS_TRAIN, manager, backend, &optimizer, &how, &exec),
                     MM_ERR_UNSUPPORTED);
    if (!strstr(mm_last_error(), c->why)) fail_msg("%s", mm_last_error());
}

void suite_expect_refused(const suite_net *s, const nets_optimizer *optimizer, const suite_refused *cases, size_t n) {
    mm_manager *manager;
    nets_backend *backend = suite_backend(s);
    const mm_options options = {.device = s->device, .device_bytes = 64 << 20, .policy = "liveness"};
    assert_int_equal(mm_manager_create(&options, &manager), MM_OK);
    for (size_t i = 0; i < n; i++) expect_refused(s, *optimizer, &cases[i], manager, backend);
    mm_manager_destroy(manager);
    nets_backend_close(backend);
}

float *suite_train(const suite_net *s, const char *policy, int iterations, float *loss_out, size_t *n_out) {
    const suite_need need = suite_needs(s, policy, 0);
    suite_run r;
    suite_run_init(&r, s,
                   &(mm_options){.device_bytes = need.device_bytes,
                                 .pinned_bytes = need.pinned_bytes,
                                 .policy = policy,
                                 .self_check = true,
                                 .measure_touched = true});
    for (int i = 0; i < iterations; i++) *loss_out = suite_iterate(&r);
    suite_check_touched(&r, need.device_bytes);
    float *weights = suite_weights(&r, n_out);
    suite_run_fini(&r);
    return weights;
}

float *suite_expected(const suite_net *s, const char *policy, int iterations, size_t *n_out) {
    suite_need need = suite_needs(s, policy, 0);
    suite_run r;
    suite_run_init(&r, s,
                   &(mm_options){.device_bytes = need.device_bytes + (1 << 20),
                                 .pinned_bytes = need.pinned_bytes,
                                 .policy = policy});
    for (int i = 0; i < iterations; i++) suite_iterate(&r);
    float *weights = suite_weights(&r, n_out);
    suite_run_fini(&r);
    return weights;
}
