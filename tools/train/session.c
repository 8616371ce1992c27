/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/size.h"
#include "mm/device/contract/device.h"
#include "mm/manager/tracing_calls.h"
#include "tools/args/terminal.h"
#include "tools/train/session_memory.h"
#include "tools/train/session_parts.h"

static mm_status open_data(session *s) {
    const session_config *c = &s->config;
    const nets_layer *data = nets_net_layer(c->net, 0);
    nets_reader_options options = {.split = NETS_SPLIT_TRAIN,
                                   .batch = c->batch,
                                   .seed = c->seed,
                                   .drop_last = !c->whole_epochs,
                                   .wanted = {.height = data->shape.dims[0],
                                              .width = data->shape.dims[1],
                                              .channels = data->shape.dims[2],
                                              .classes = nets_net_classes(c->net),
                                              .tokens = nets_net_tokens(c->net) > 0}};
    if (nets_net_labels(c->net) > 1) {
        const int64_t *map = nets_net_layer(c->net, nets_net_layers(c->net) - 1)->shape.dims;
        options.label_map[0] = map[0];
        options.label_map[1] = map[1];
    }
    s->refused_data = true;
    MM_TRY(nets_reader_create(c->data, &options, &s->train_data));
    s->refused_data = false;
    nets_reader_size_get(s->train_data, &s->train_size);
    if (!c->evaluate) return MM_OK;
    options.split = NETS_SPLIT_TEST;
    options.drop_last = false;
    options.batch = session_eval_batch(s);
    MM_TRY(nets_reader_create(c->test_data ? c->test_data : c->data, &options, &s->test_data));
    nets_reader_size_get(s->test_data, &s->test_size);
    return MM_OK;
}

/* A graph that will share the arena. list_graphs lists the training graph first. */
typedef struct graph_wanted {
    int64_t batch;
    nets_mode mode;
    nets_exec **exec;
} graph_wanted;

static int list_graphs(session *s, graph_wanted wanted[4]) {
    int n = 0;
    int64_t batch = s->config.batch;
    wanted[n++] = (graph_wanted){session_part(s, batch), NETS_TRAIN, &s->train};
    if (s->config.whole_epochs && s->train_size.last != batch)
        wanted[n++] = (graph_wanted){session_part(s, s->train_size.last), NETS_TRAIN, &s->train_last};
    if (!s->test_data) return n;
    batch = session_eval_batch(s);
    if (s->test_size.batches > (s->test_size.last != batch)) wanted[n++] = (graph_wanted){batch, NETS_EVAL, &s->eval};
    if (s->test_size.last != batch) wanted[n++] = (graph_wanted){s->test_size.last, NETS_EVAL, &s->eval_last};
    return n;
}

/* On a terminal, first clears the line, where the progress bar may be. */
void session_say(void *ctx, mm_log_level level, const char *message) {
    (void)ctx, (void)level;
    fprintf(stderr, "%smm: %s\n", terminal_clear(), message);
}

static mm_status create_exec(session *s, const graph_wanted *wanted) {
    const session_config *c = &s->config;
    nets_exec_options options = {
        .no_fuse = c->target.apart, .update = c->target.update, .allreduce = c->target.allreduce};
    if (wanted->mode == NETS_TRAIN) options.sub_batch = session_sub_batch(s, wanted->batch);
    return nets_exec_create_with(c->net, wanted->batch, wanted->mode, s->manager, c->target.backend,
                                 &c->target.optimizer, &options, wanted->exec);
}

static mm_status raise_memory(session *s, const graph_wanted *wanted, int64_t *base) {
    const int64_t parts = wanted->mode == NETS_TRAIN ? session_sub_batch(s, wanted->batch) : wanted->batch;
    return session_memory_raise(s, wanted->batch, parts, wanted->mode, base);
}

static mm_status start_trace(session *s) {
    const session_config *c = &s->config;
    char name[TRACES_NAME_CAPACITY];
    traces_name(nets_net_name(c->net), c->batch, c->policies.text[0], c->budget_bytes, name);
    return mm_trace_start(s->manager, name);
}

static mm_status open_manager(session *s) {
    const session_config *c = &s->config;
    if (c->facts) MM_TRY(facts_source_facts(c->facts, &s->facts));
    mm_options options = {.device = c->target.device,
                          .device_bytes = c->budget_bytes,
                          .pinned_bytes = s->pinned_needed_bytes, /* the manager reserves it at once */
                          .link_bytes_per_s = c->target.link_bytes_per_s,
                          .disk = c->target.disk_bytes > 0 ? c->target.disk : NULL,
                          .disk_bytes = c->target.disk_bytes,
                          .disk_bytes_per_s = c->target.disk_bytes_per_s,
                          .policy = c->policies.text[0],
                          .no_ladder = c->no_ladder,
                          .log = {.fn = session_say, .level = MM_LOG_WARNING},
                          .issue = c->issue,
                          .self_check = c->self_check,
                          .verify_issued = c->verify_issued,
                          .fault_fn = mm_fault_print, /* this process is ours */
                          .equal_streams = c->equal_streams,
                          .measure_touched = c->measure,
                          .measure_times = c->measure_times || session_plans_again(s),
                          .alloc_cost_ns = c->alloc_cost_ns,
                          .codec_threads = (int)c->target.codec_threads,
                          .facts = s->facts,
                          .stop_search = c->stop,
                          .trace_bytes = c->trace || c->replan_percent > 0 ? MM_TIMELINE_BYTES : 0};
    MM_TRY(mm_manager_create(&options, &s->manager));
    MM_TRY(session_memory_offer(s));
    session_memory_end(s);
    s->ahead = !mm_compute_stream(s->manager)->device->ops->cpu_reaches_memory;
    graph_wanted wanted[4];
    int n = list_graphs(s, wanted);
    for (int g = 0; g < n; g++) {
        MM_TRY(session_go_on(s));
        MM_TRY(create_exec(s, &wanted[g]));
    }
    MM_TRY(session_memory_stage(s));
    MM_TRY(nets_exec_init(s->train, c->seed));
    if (c->replan_percent > 0)
        MM_TRY(mm_observe(s->manager, &(mm_observe_options){.replan_permille = 10 * c->replan_percent}));
    return c->trace ? start_trace(s) : MM_OK;
}

/* Warns that layers are not fused. Called once the plans are known to fit. */
static void report_unfused(const session *s) {
    char message[384];
    if (s->fused_bytes == 0) return;
    const bool fit = s->budget_given && s->config.budget_bytes >= s->fused_bytes;
    snprintf(message, sizeof message, "%.64s, batch %lld, %.64s: layers are not fused: %s%s; the weights are the same",
             nets_net_name(s->config.net), (long long)s->config.batch, s->config.policies.text[0],
             fit ? "that is faster in this budget" : "fused, it needs at least ",
             fit ? "" : MM_SIZE_TEXT(s->fused_bytes));
    session_say(NULL, MM_LOG_WARNING, message);
}

static mm_status check_last_batch(const session *s) {
    const int ranks = s->config.ranks ? comm_size(s->config.ranks) : 1;
    if (!s->config.whole_epochs || s->train_size.last % ranks == 0) return MM_OK;
    return mm_fail(
        MM_ERR_INVALID,
        "--epochs: an epoch's last batch has %lld images, which %d ranks cannot share; --iterations omits that batch",
        (long long)s->train_size.last, ranks);
}

/* Plans the training graph before it opens the data, so that a batch too large for memory is refused before its images
 * are allocated. The training graph has all persistent tensors, so `base` is the same for all graphs. */
static mm_status init(session *s) {
    int64_t base = 0;
    session_memory_begin(s);
    MM_TRY(raise_memory(s, &(graph_wanted){.batch = session_part(s, s->config.batch), .mode = NETS_TRAIN}, &base));
    MM_TRY(session_find_effects(s, need_most(&s->needs[0])->lowered->graph));
    MM_TRY(session_memory_check(s));
    MM_TRY(open_data(s));
    MM_TRY(check_last_batch(s));
    graph_wanted wanted[4];
    int n = list_graphs(s, wanted);
    for (int g = 1; g < n; g++) MM_TRY(raise_memory(s, &wanted[g], &base));
    MM_TRY(session_memory_check(s));
    MM_TRY(session_memory_check_switches(s));
    MM_TRY(session_memory_default(s));
    report_unfused(s);
    MM_TRY(session_memory_pin(s));
    const mm_status status = open_manager(s);
    s->refused_by_manager = status != MM_OK;
    return status;
}

mm_status session_init(session *s, const session_config *config) {
    memset(s, 0, sizeof *s);
    s->config = *config;
    host_memory_begin(&s->host_before);
    s->config.target.optimizer.only_finite = !config->keep_going;
    mm_status status = init(s);
    if (status != MM_OK) session_fini(s);
    return status;
}

void session_fini(session *s) {
    session_memory_end(s);
    nets_exec_destroy(s->eval_last);
    nets_exec_destroy(s->eval);
    nets_exec_destroy(s->train_last);
    nets_exec_destroy(s->train);
    mm_manager_destroy(s->manager);
    mm_facts_destroy(s->facts);
    nets_reader_destroy(s->test_data);
    nets_reader_destroy(s->train_data);
    s->eval_last = s->eval = s->train_last = s->train = NULL;
    s->manager = NULL;
    s->facts = NULL;
    s->test_data = s->train_data = NULL;
}

mm_status session_trace(session *s, traces *all) {
    mm_timeline *timeline;
    if (!s->config.trace) return MM_OK;
    MM_TRY(mm_trace_take(s->manager, &timeline));
    return traces_add(all, timeline);
}
