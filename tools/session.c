#include "tools/session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mm/core/graph.h"
#include "mm/device/device.h"
#include "tools/requirement.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------- making */

static mm_status open_data(session *s) {
    const session_config *c = &s->config;
    const nets_layer *data = nets_net_layer(c->net, 0);
    nets_reader_options options = {.split = NETS_SPLIT_TRAIN,
                                   .batch = c->batch,
                                   .seed = c->seed,
                                   .drop_last = !c->whole_epochs,
                                   .wanted = {.height = data->shape[0],
                                              .width = data->shape[1],
                                              .channels = data->shape[2],
                                              .classes = nets_net_classes(c->net)}};
    if (nets_net_labels(c->net) > 1) {
        const int64_t *map = nets_net_layer(c->net, nets_net_layers(c->net) - 1)->shape;
        options.label_map[0] = map[0];
        options.label_map[1] = map[1];
    }
    MM_TRY(nets_reader_create(c->data, &options, &s->train_data));
    nets_reader_size_get(s->train_data, &s->train_size);
    if (!c->evaluate) return MM_OK;
    options.split = NETS_SPLIT_TEST;
    options.drop_last = false;
    MM_TRY(nets_reader_create(c->data, &options, &s->test_data));
    nets_reader_size_get(s->test_data, &s->test_size);
    return MM_OK;
}

/* The graphs that will share the arena: {batch, mode}, the training graph first. */
typedef struct graph_wanted {
    int64_t batch;
    nets_mode mode;
    nets_exec **exec;
} graph_wanted;

static int list_graphs(session *s, graph_wanted wanted[4]) {
    int n = 0;
    int64_t batch = s->config.batch;
    wanted[n++] = (graph_wanted){batch, NETS_TRAIN, &s->train};
    if (s->config.whole_epochs && s->train_size.last != batch)
        wanted[n++] = (graph_wanted){s->train_size.last, NETS_TRAIN, &s->train_last};
    if (!s->test_data) return n;
    if (s->test_size.batches > (s->test_size.last != batch)) wanted[n++] = (graph_wanted){batch, NETS_EVAL, &s->eval};
    if (s->test_size.last != batch) wanted[n++] = (graph_wanted){s->test_size.last, NETS_EVAL, &s->eval_last};
    return n;
}

/* By one plan: its least, and the host memory that the policy takes in the budget. */
static mm_status raise_by(session *s, requirement *r) {
    if (r->planned.plan->pinned_bytes > s->pinned_most_bytes) MM_TRY(requirement_limit(r, 0, s->pinned_most_bytes));
    const mm_plan *plan = r->planned.plan;
    if (plan->peak_bytes > s->minimum_bytes) {
        s->minimum_bytes = plan->peak_bytes;
        mm_graph_step_name(plan->graph, plan->peak_step, s->holder, sizeof s->holder);
    }
    if (s->config.budget_bytes > plan->peak_bytes)
        MM_TRY(requirement_limit(r, s->config.budget_bytes, s->pinned_most_bytes));
    plan = r->planned.plan;
    if (plan->pinned_bytes > s->pinned_most_bytes)
        return mm_fail(MM_ERR_INFEASIBLE, "infeasible: %s needs %lld bytes of pinned host memory, %lld are %s",
                       plan->policy, (long long)plan->pinned_bytes, (long long)s->pinned_most_bytes,
                       s->config.pinned_bytes > 0 ? "given" : "half of what is free; --pinned sets it");
    if (plan->pinned_bytes > s->pinned_needed_bytes) s->pinned_needed_bytes = plan->pinned_bytes;
    return MM_OK;
}

/* Raises the minimum to the largest plan of a graph under any policy. *base_bytes: what the persistent tensors of all
 * graphs take, 0 if that is not known: then it becomes what this graph's take. */
static mm_status raise_minimum(session *s, int64_t batch, nets_mode mode, int64_t *base_bytes) {
    for (int p = 0; p < s->config.policies.n; p++) {
        requirement r;
        MM_TRY(requirement_init(&r, s->config.net, batch, mode, s->config.device, s->config.policies.text[p],
                                *base_bytes, NULL));
        *base_bytes = r.planned.plan->base_bytes;
        mm_status status = raise_by(s, &r);
        requirement_fini(&r);
        MM_TRY(status);
    }
    return MM_OK;
}

static mm_status check_device_memory(const session *s) {
    mm_device *device;
    mm_memory_info info;
    char size[32];
    int64_t wanted = s->config.budget_bytes > 0 ? s->config.budget_bytes : s->minimum_bytes;
    MM_TRY(mm_device_create(s->config.device, NULL, &device));
    mm_device_memory_info(device, &info);
    mm_device_destroy(device);
    if (wanted <= info.free_bytes) return MM_OK;
    return mm_fail(MM_ERR_NOMEM, "%s %lld bytes (%s), device %s has %lld",
                   s->config.budget_bytes > 0 ? "the budget is" : "this needs", (long long)wanted,
                   mm_size_format(wanted, size, sizeof size), s->config.device, (long long)info.free_bytes);
}

static mm_status check_budget(const session *s) {
    if (s->config.budget_bytes == 0 || s->config.budget_bytes >= s->minimum_bytes) return check_device_memory(s);
    return mm_fail(MM_ERR_INFEASIBLE, "infeasible: needs at least %lld bytes, held by %s", (long long)s->minimum_bytes,
                   s->holder);
}

static mm_status open_manager(session *s) {
    const session_config *c = &s->config;
    mm_options options = {.device = c->device,
                          .device_bytes = c->budget_bytes,
                          .pinned_bytes = c->pinned_bytes,
                          .link_bytes_per_s = c->link_bytes_per_s,
                          .policy = c->policies.text[0],
                          .issue = c->issue,
                          .self_check = c->self_check,
                          .measure_touched = c->measure,
                          .measure_times = c->measure_times,
                          .alloc_cost_ns = c->alloc_cost_ns};
    MM_TRY(mm_manager_create(&options, &s->manager));
    graph_wanted wanted[4];
    int n = list_graphs(s, wanted);
    for (int g = 0; g < n; g++)
        MM_TRY(
            nets_exec_create(c->net, wanted[g].batch, wanted[g].mode, s->manager, c->device, &c->sgd, wanted[g].exec));
    nets_exec_init(s->train, c->seed);
    return MM_OK;
}

/* The training graph comes before the data: a batch that no memory holds is refused before its images take some. It has
 * all persistent tensors, so its base is all graphs' base. */
static mm_status init(session *s) {
    int64_t base = 0;
    s->pinned_most_bytes = s->config.pinned_bytes > 0 ? s->config.pinned_bytes : requirement_pinned_most();
    MM_TRY(raise_minimum(s, s->config.batch, NETS_TRAIN, &base));
    MM_TRY(check_budget(s));
    MM_TRY(open_data(s));
    graph_wanted wanted[4];
    int n = list_graphs(s, wanted);
    for (int g = 1; g < n; g++) MM_TRY(raise_minimum(s, wanted[g].batch, wanted[g].mode, &base));
    MM_TRY(check_budget(s));
    if (s->config.budget_bytes == 0) s->config.budget_bytes = s->minimum_bytes;
    if (s->config.pinned_bytes == 0) s->config.pinned_bytes = s->pinned_needed_bytes;
    return open_manager(s);
}

mm_status session_init(session *s, const session_config *config) {
    memset(s, 0, sizeof *s);
    s->config = *config;
    mm_status status = init(s);
    if (status != MM_OK) session_fini(s);
    return status;
}

void session_fini(session *s) {
    nets_exec_destroy(s->eval_last);
    nets_exec_destroy(s->eval);
    nets_exec_destroy(s->train_last);
    nets_exec_destroy(s->train);
    mm_manager_destroy(s->manager);
    nets_reader_destroy(s->test_data);
    nets_reader_destroy(s->train_data);
    s->eval_last = s->eval = s->train_last = s->train = NULL;
    s->manager = NULL;
    s->test_data = s->train_data = NULL;
}

/* ---------------------------------------------------------------- training */

/* The state of a run that the row is made of. Of a fixed size, since the heap is counted as outside_bytes. */
enum { TIMES = 4096 };

typedef struct tally {
    double seconds[TIMES]; /* of the last full batches: that of the i-th at i % TIMES */
    int64_t full, labels, correct;
    mm_stats before;
} tally;

/* How many labels n images have: one each, or one for each pixel of a map. */
static int64_t labels_of(const session *s, int64_t n) { return n * nets_net_labels(s->config.net); }

static bool stopped(const session *s) { return s->config.stop && *s->config.stop; }

static void log_line(FILE *log, int64_t iteration, const nets_result *result, int64_t labels, double seconds) {
    if (log)
        fprintf(log, "%lld,%.6g,%.4f,%.6f\n", (long long)iteration, (double)result->loss,
                (double)result->correct / (double)labels, seconds);
}

static mm_status iterate(session *s, const session_run *run, tally *t, row *r) {
    nets_batch batch;
    MM_TRY(nets_reader_next(s->train_data, &batch));
    bool full = batch.n == s->config.batch;
    float rate = nets_schedule_rate(&run->schedule, s->iteration);
    nets_result result;
    double start = now();
    MM_TRY(nets_exec_iteration(full ? s->train : s->train_last, batch.images, batch.labels, batch.n, rate, &result));
    double seconds = now() - start;
    s->iteration++;
    if (full) t->seconds[t->full++ % TIMES] = seconds;
    t->labels += labels_of(s, batch.n);
    t->correct += result.correct;
    if (r->iterations++ == 0) r->loss_first = result.loss;
    r->loss_last = result.loss;
    log_line(run->log, s->iteration, &result, labels_of(s, batch.n), seconds);
    return MM_OK;
}

static mm_status iterate_all(session *s, const session_run *run, progress *p, tally *t, row *r) {
    while (s->iteration < run->iterations && !stopped(s)) {
        if (run->hook) MM_TRY(run->hook(run->hook_ctx, s));
        MM_TRY(iterate(s, run, t, r));
        double mean = 0;
        int64_t window = t->full < 20 ? t->full : 20;
        for (int64_t i = t->full - window; i < t->full; i++) mean += t->seconds[i % TIMES];
        progress_show(p, s->iteration, "loss %.4f, accuracy %.1f%%, %.0f img/s", r->loss_last,
                      100.0 * (double)t->correct / (double)t->labels,
                      mean > 0 ? (double)(window * s->config.batch) / mean : 0);
    }
    return MM_OK;
}

/* The share of the codecs' time during which the computation did not wait for them; it may have waited for others. */
static double hidden_share(const mm_stats *before, const mm_stats *after) {
    double busy = (double)(after->codec_busy_ns - before->codec_busy_ns);
    double wait = (double)(after->codec_wait_ns - before->codec_wait_ns);
    if (busy <= 0) return -1;
    return wait >= busy ? 0 : 1 - wait / busy;
}

static mm_status fill_row(session *s, tally *t, row *r) {
    mm_stats after;
    mm_stats_get(s->manager, &after);
    row_times(r, t->seconds, t->full < TIMES ? t->full : TIMES);
    r->predicted_peak_bytes = after.predicted_peak_bytes;
    r->outside_bytes = after.outside_bytes;
    r->stash_bytes = after.stash_bytes;
    r->codec_hidden_share = hidden_share(&t->before, &after);
    if (r->iterations > 0)
        r->codec_busy_seconds = (double)(after.codec_busy_ns - t->before.codec_busy_ns) * 1e-9 / (double)r->iterations;
    if (!s->config.measure || r->iterations == 0) return MM_OK;
    mm_touched touched;
    MM_TRY(mm_touched_get(s->manager, &touched));
    r->peak_bytes = touched.total_bytes;
    if (touched.stray_bytes == 0) return MM_OK;
    return mm_fail(MM_ERR_PLAN, "%lld bytes were written where no plan puts anything: a bug of mm",
                   (long long)touched.stray_bytes);
}

static void copy_text(char *to, size_t capacity, const char *from) { snprintf(to, capacity, "%s", from); }

static void name_row(const session *s, row *r) {
    copy_text(r->net, sizeof r->net, nets_net_name(s->config.net));
    copy_text(r->device, sizeof r->device, s->config.device);
    copy_text(r->policy, sizeof r->policy, s->config.policies.text[0]);
    mm_policy policy;
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    if (mm_policy_parse(r->policy, &policy) == MM_OK && policy.ops->codecs &&
        policy.ops->codecs(policy.ops, &policy.options, specs, MM_MAX_CODECS) > 0)
        copy_text(r->codec, sizeof r->codec, specs[0]);
    r->batch = s->config.batch;
    r->budget_bytes = s->config.budget_bytes;
    r->minimum_bytes = s->minimum_bytes;
}

mm_status session_train(session *s, const session_run *run, row *r) {
    name_row(s, r);
    r->codec_hidden_share = r->test_accuracy = -1;
    if (s->iteration > 0)
        MM_TRY(nets_reader_seek(s->train_data, s->iteration / s->train_size.batches,
                                s->iteration % s->train_size.batches));
    tally t = {.full = 0};
    mm_stats_get(s->manager, &t.before);
    progress p;
    progress_begin(&p, r->policy, run->iterations, run->quiet);
    mm_status status = iterate_all(s, run, &p, &t, r);
    progress_end(&p);
    return status == MM_OK ? fill_row(s, &t, r) : status;
}

/* ---------------------------------------------------------------- evaluation */

typedef struct score {
    int64_t images, labels, correct;
    double loss;
} score;

static mm_status evaluate_batch(session *s, score *all) {
    nets_batch batch;
    nets_result result;
    MM_TRY(nets_reader_next(s->test_data, &batch));
    nets_exec *exec = batch.n == s->config.batch ? s->eval : s->eval_last;
    MM_TRY(nets_exec_iteration(exec, batch.images, batch.labels, batch.n, 0, &result));
    all->images += batch.n;
    all->labels += labels_of(s, batch.n);
    all->correct += result.correct;
    all->loss += (double)result.loss * (double)batch.n;
    return MM_OK;
}

mm_status session_evaluate(session *s, bool quiet, double *accuracy_out, double *loss_out) {
    score all = {0};
    progress p;
    int64_t done = 0;
    MM_TRY(nets_reader_seek(s->test_data, 0, 0));
    progress_begin(&p, "evaluation", s->test_size.batches, quiet);
    mm_status status = MM_OK;
    while (done < s->test_size.batches && !stopped(s) && (status = evaluate_batch(s, &all)) == MM_OK)
        progress_show(&p, ++done, "accuracy %.2f%%", 100.0 * (double)all.correct / (double)all.labels);
    progress_end(&p);
    MM_TRY(status);
    bool whole = done == s->test_size.batches;
    *accuracy_out = whole ? (double)all.correct / (double)all.labels : -1;
    *loss_out = whole ? all.loss / (double)all.images : -1;
    return MM_OK;
}
