#include "tools/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mm/core/account.h"
#include "mm/core/graph.h"
#include "mm/device/clock.h"
#include "mm/device/device.h"
#include "mm/measured.h"
#include "tools/codec_log.h"
#include "tools/requirement.h"
#include "tools/session_memory.h"
#include "tools/session_view.h"
#include "tools/speed.h"

static double now(void) { return (double)mm_now_ns() * 1e-9; }

/* ---------------------------------------------------------------- making */

/* A batch that is smaller than a sub-batch is trained on as a whole. */
static int64_t sub_batch_of(const session *s, int64_t batch) {
    return s->config.sub_batch > 0 && s->config.sub_batch < batch ? s->config.sub_batch : batch;
}

/* Images are evaluated independently of each other, so in no more than are trained on at a time. */
static int64_t eval_batch(const session *s) { return sub_batch_of(s, session_part(s, s->config.batch)); }

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
    options.batch = eval_batch(s);
    MM_TRY(nets_reader_create(c->test_data ? c->test_data : c->data, &options, &s->test_data));
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
    wanted[n++] = (graph_wanted){session_part(s, batch), NETS_TRAIN, &s->train};
    if (s->config.whole_epochs && s->train_size.last != batch)
        wanted[n++] = (graph_wanted){session_part(s, s->train_size.last), NETS_TRAIN, &s->train_last};
    if (!s->test_data) return n;
    batch = eval_batch(s);
    if (s->test_size.batches > (s->test_size.last != batch)) wanted[n++] = (graph_wanted){batch, NETS_EVAL, &s->eval};
    if (s->test_size.last != batch) wanted[n++] = (graph_wanted){s->test_size.last, NETS_EVAL, &s->eval_last};
    return n;
}

/* On a line of its own, whatever the progress has left on it. */
static void say(void *ctx, mm_log_level level, const char *message) {
    (void)ctx, (void)level;
    fprintf(stderr, "%smm: %s\n", isatty(fileno(stderr)) ? "\r\033[K" : "", message);
}

static mm_status create_exec(session *s, const graph_wanted *wanted) {
    const session_config *c = &s->config;
    if (wanted->mode == NETS_TRAIN)
        return nets_exec_create_sub(c->net, wanted->batch, sub_batch_of(s, wanted->batch), s->manager,
                                    c->target.backend, &c->target.optimizer, wanted->exec);
    return nets_exec_create_on(c->net, wanted->batch, wanted->mode, s->manager, c->target.backend, &c->target.optimizer,
                               wanted->exec);
}

static mm_status raise_memory(session *s, const graph_wanted *wanted, int64_t *base) {
    const int64_t parts = wanted->mode == NETS_TRAIN ? sub_batch_of(s, wanted->batch) : wanted->batch;
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
    mm_options options = {.device = c->target.device,
                          .device_bytes = c->budget_bytes,
                          .pinned_bytes = s->pinned_needed_bytes, /* taken at once: no more than what is used */
                          .link_bytes_per_s = c->target.link_bytes_per_s,
                          .policy = c->policies.text[0],
                          .no_ladder = c->no_ladder,
                          .log = {.fn = say, .level = MM_LOG_WARNING},
                          .issue = c->issue,
                          .self_check = c->self_check,
                          .equal_streams = c->equal_streams,
                          .measure_touched = c->measure,
                          .measure_times = c->measure_times,
                          .alloc_cost_ns = c->alloc_cost_ns,
                          .codec_threads = (int)c->target.codec_threads,
                          .facts = c->facts ? c->facts->facts : NULL,
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

/* Told once it is clear that the plans fit. */
static void tell_unfused(const session *s) {
    char message[384];
    if (s->fused_bytes == 0) return;
    const bool fit = s->budget_given && s->config.budget_bytes >= s->fused_bytes;
    snprintf(message, sizeof message, "%.64s, batch %lld, %.64s: layers are not fused: %s%s; the weights are the same",
             nets_net_name(s->config.net), (long long)s->config.batch, s->config.policies.text[0],
             fit ? "that is faster in this budget" : "fused, it needs at least ",
             fit ? "" : MM_SIZE_TOLD(s->fused_bytes));
    say(NULL, MM_LOG_WARNING, message);
}

static mm_status check_last_batch(const session *s) {
    const int ranks = s->config.ranks ? multi_ranks(s->config.ranks) : 1;
    if (!s->config.whole_epochs || s->train_size.last % ranks == 0) return MM_OK;
    return mm_fail(
        MM_ERR_INVALID,
        "--epochs: an epoch's last batch has %lld images, which %d ranks cannot share; --iterations leaves it out",
        (long long)s->train_size.last, ranks);
}

/* The training graph comes before the data: a batch that no memory holds is refused before its images take some. It has
 * all persistent tensors, so its base is all graphs' base. */
static mm_status init(session *s) {
    int64_t base = 0;
    session_memory_begin(s);
    MM_TRY(raise_memory(s, &(graph_wanted){.batch = session_part(s, s->config.batch), .mode = NETS_TRAIN}, &base));
    MM_TRY(session_memory_check(s));
    MM_TRY(open_data(s));
    MM_TRY(check_last_batch(s));
    graph_wanted wanted[4];
    int n = list_graphs(s, wanted);
    for (int g = 1; g < n; g++) MM_TRY(raise_memory(s, &wanted[g], &base));
    MM_TRY(session_memory_check(s));
    MM_TRY(session_memory_check_switches(s));
    MM_TRY(session_memory_default(s));
    tell_unfused(s);
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
    if (s->fused_bytes > 0) target_set_fused(&s->config.target, true);
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

/* An iteration that was submitted and not collected; or run to its end, and not yet accounted for. */
typedef struct flight {
    nets_exec *exec;
    int64_t n; /* images */
    double host_seconds;
    nets_result result;
} flight;

typedef struct tally {
    flight flight[NETS_AHEAD]; /* oldest first */
    int flying;
    double ended;          /* when the last one was collected, or, before the first, submitted */
    double seconds[TIMES]; /* of the last full batches: that of the i-th at i % TIMES */
    double host_seconds[TIMES];
    int64_t full_images; /* in a full batch: all that there are, if they are fewer */
    int64_t full, labels, correct;
    int64_t begun; /* sums, when the last iteration was submitted that could be */
    mm_stats before;
} tally;

/* How many labels n images have: one each, or one for each pixel of a map. */
static int64_t labels_of(const session *s, int64_t n) { return n * nets_net_labels(s->config.net); }

static void log_line(FILE *log, int64_t iteration, const nets_result *result, int64_t labels, double seconds) {
    if (log)
        fprintf(log, "%lld,%.6g,%.4f,%.6f\n", (long long)iteration, (double)result->loss,
                (double)result->correct / (double)labels, seconds);
}

/* What this thread itself has done for iterations so far, waiting left out. */
static int64_t host_ns(const session *s, const nets_exec *exec) {
    return nets_exec_enqueue_ns(exec) - mm_host_wait_ns(s->manager);
}

/* Told once: a loss does not come back from there, as a rule. */
static void tell_diverged(session *s, int64_t iteration, const nets_result *result) {
    char message[384];
    if (s->diverged_iteration > 0) return;
    s->diverged_iteration = iteration;
    snprintf(message, sizeof message, "%.64s, batch %lld, %.64s: diverged: the loss of iteration %lld is %g%s%s",
             nets_net_name(s->config.net), (long long)s->config.batch, s->config.policies.text[0], (long long)iteration,
             (double)result->loss,
             result->halted && isfinite(result->loss) ? ", a gradient or running statistic overflows" : "",
             s->config.keep_going ? "" : "; training ends, that iteration's update is not taken");
    say(NULL, MM_LOG_WARNING, message);
}

bool session_diverged(const session *s) { return s->diverged_iteration > 0 && !s->config.keep_going; }

/* This rank's part of a batch. */
static void take_part(const session *s, nets_batch *batch) {
    const int64_t rank = s->config.ranks ? multi_rank(s->config.ranks) : 0;
    nets_shape image;
    batch->n = session_part(s, batch->n);
    if (rank == 0 || !batch->images || nets_net_shape(s->config.net, 0, 1, &image) != MM_OK) return;
    batch->images += rank * batch->n * nets_shape_elems(&image);
    batch->labels += rank * labels_of(s, batch->n);
}

/* How many sums this rank has begun so far. */
static int64_t sums_begun(const session *s) {
    multi_stats stats = {0};
    if (s->config.ranks) multi_stats_get(s->config.ranks, &stats);
    return stats.begun;
}

static mm_status start_iteration(session *s, const session_run *run, tally *t) {
    nets_batch batch = {.n = s->config.batch};
    if (!s->config.same_batches || !s->ahead || s->iteration < NETS_AHEAD)
        MM_TRY(nets_reader_next(s->train_data, &batch));
    nets_exec *exec = batch.n == s->config.batch ? s->train : s->train_last;
    float rate = nets_schedule_rate(&run->schedule, s->iteration);
    if (t->flying == 0) t->ended = now();
    flight *next = &t->flight[t->flying];
    *next = (flight){.exec = exec, .n = batch.n};
    /* Of the first pass; evaluations are not counted. */
    const int64_t part = session_part(s, s->config.batch), passes = nets_exec_passes(part, sub_batch_of(s, part));
    MM_TRY(mm_iteration_number_set(s->manager, s->iteration * passes));
    int64_t host = host_ns(s, exec);
    take_part(s, &batch);
    if (s->config.ranks) nets_exec_tell(exec, s->config.stop && *s->config.stop);
    MM_TRY(s->ahead ? nets_exec_submit(exec, batch.images, batch.labels, batch.n, rate)
                    : nets_exec_iteration(exec, batch.images, batch.labels, batch.n, rate, &next->result));
    t->begun = sums_begun(s);
    next->host_seconds = (double)(host_ns(s, exec) - host) * 1e-9;
    t->flying++;
    s->iteration++;
    return run->codec_log ? codec_log_write(run->codec_log, s->manager, exec, s->iteration) : MM_OK;
}

/* What is under way behind an iteration that was undone never was, either. */
static void drop_flights(session *s, tally *t) {
    for (int i = 0; i < t->flying; i++) nets_exec_drop(t->flight[i].exec);
    s->iteration -= t->flying;
    t->flying = 0;
}

/* Its time is that since the end of the one before it. */
static mm_status finish_iteration(session *s, const session_run *run, progress *p, tally *t, row *r) {
    const flight oldest = t->flight[0];
    nets_result result = oldest.result;
    if (s->ahead) MM_TRY(nets_exec_collect(oldest.exec, &result));
    if (s->config.ranks) MM_TRY(multi_check(s->config.ranks));
    if (isnan(result.loss)) result.loss = NAN; /* without a sign */
    s->stopped |= result.told > 0;
    double end = now(), seconds = end - t->ended, mean = 0;
    t->ended = end;
    memmove(t->flight, t->flight + 1, (size_t)--t->flying * sizeof *t->flight);
    if (oldest.n == t->full_images) {
        t->host_seconds[t->full % TIMES] = oldest.host_seconds;
        t->seconds[t->full++ % TIMES] = seconds;
    }
    t->labels += labels_of(s, oldest.n);
    t->correct += result.correct;
    if (r->iterations++ == 0) r->loss_first = result.loss;
    r->loss_last = result.loss;
    int64_t iteration = s->iteration - t->flying, window = t->full < 20 ? t->full : 20;
    log_line(run->log, iteration, &result, labels_of(s, oldest.n), seconds);
    for (int64_t i = t->full - window; i < t->full; i++) mean += t->seconds[i % TIMES];
    const double images_per_second = mean > 0 ? (double)(window * t->full_images) / mean : 0;
    progress_show(p, iteration, "loss %.4f, accuracy %.1f%%, %.0f %s", r->loss_last,
                  100.0 * (double)t->correct / (double)t->labels, speed_of(images_per_second, r->sample_tokens),
                  speed_unit_brief(r->sample_tokens));
    if (isfinite(result.loss) && !result.halted) return MM_OK;
    tell_diverged(s, iteration, &result);
    if (!session_diverged(s)) return MM_OK;
    drop_flights(s, t);
    s->iteration--;
    return MM_OK;
}

/* The device catches up. What failed, and what was behind it, did not happen. */
static mm_status land(session *s, const session_run *run, progress *p, tally *t, row *r) {
    mm_status status = MM_OK;
    while (status == MM_OK && t->flying > 0) status = finish_iteration(s, run, p, t, r);
    drop_flights(s, t);
    return status;
}

/* A diverged run is at an earlier iteration by then. */
static mm_status save_if_due(session *s, const session_run *run, progress *p, tally *t, row *r) {
    const session_period *period = &run->save_period;
    if (period->every == 0 || (s->iteration + period->shift) % period->every != 0) return MM_OK;
    MM_TRY(land(s, run, p, t, r));
    return session_diverged(s) ? MM_OK : run->save(run->hook_ctx, s);
}

/* Ranks tell each other with each iteration whether they are stopped, and hear it with its result; so all end with the same
 * one. For that, what they do next must follow from results alone. */
static mm_status iterate_all(session *s, const session_run *run, progress *p, tally *t, row *r) {
    while (s->iteration < run->iterations && !session_diverged(s)) {
        if (session_is_stopped(s)) break;
        if (run->hook) MM_TRY(run->hook(run->hook_ctx, s));
        MM_TRY(start_iteration(s, run, t));
        if (t->flying == (s->ahead ? NETS_AHEAD : 1)) MM_TRY(finish_iteration(s, run, p, t, r));
        if (!session_diverged(s)) MM_TRY(save_if_due(s, run, p, t, r));
    }
    return MM_OK;
}

static mm_status seek(session *s) {
    int64_t at = s->iteration + s->data_shift;
    return nets_reader_seek(s->train_data, at / s->train_size.batches, at % s->train_size.batches);
}

static int64_t ladder_steps(const session *s) {
    mm_stats stats;
    mm_stats_get(s->manager, &stats);
    return stats.ladder_steps;
}

/* Where memory ran out and the manager has found a plan that needs less, what was lost is run again: the weights say
 * how far it came. Not if other ranks have part of what is lost. */
static mm_status iterate_to_the_end(session *s, const session_run *run, progress *p, tally *t, row *r) {
    for (;;) {
        int64_t steps = ladder_steps(s);
        mm_status status = iterate_all(s, run, p, t, r), landed = land(s, run, p, t, r);
        if (status == MM_OK) status = landed;
        if (status != MM_ERR_NOMEM || ladder_steps(s) == steps || sums_begun(s) != t->begun) return status;
        MM_TRY(nets_exec_updates(s->train, &s->iteration));
        MM_TRY(seek(s));
    }
}

/* The share of the codecs' time during which the computation did not wait for them; it may have waited for others. */
static double hidden_share(const mm_stats *before, const mm_stats *after) {
    double busy = (double)(after->codec_busy_ns - before->codec_busy_ns);
    double wait = (double)(after->codec_wait_ns - before->codec_wait_ns);
    if (busy <= 0) return -1;
    return wait >= busy ? 0 : 1 - wait / busy;
}

static void copy_text(char *to, size_t capacity, const char *from) { snprintf(to, capacity, "%s", from); }

/* What the plan explains of the process's memory: on the host device the arena is part of it, and external tensors. */
static void fill_host_memory(const session *s, row *r) {
    r->host_planned_bytes = r->pinned_bytes + (s->ahead ? 0 : r->predicted_peak_bytes);
    r->host_peak_bytes = host_memory_peak(&s->host_before);
}

/* An iteration's share. The device has ended them all. */
static void fill_code_bytes(const mm_stats *before, const mm_stats *after, row *r) {
    const double n = (double)r->iterations;
    r->encoded_bytes = (double)(after->encoded_bytes - before->encoded_bytes) / n;
    r->coded_bytes = (double)(after->coded_bytes - before->coded_bytes) / n;
    r->spilled_bytes = (double)(after->spilled_bytes - before->spilled_bytes) / n;
}

/* Of the plans of full batches, whatever ran last: the most that a pass over a sub-batch holds, and what an iteration moves
 * and runs again. */
static void fill_plans(const session *s, row *r) {
    const nets_lowered *pass;
    r->stash_bytes = r->moved_bytes = r->steps_again = 0;
    for (int i = 0; (pass = nets_exec_lowered_pass(s->train, i)); i++) {
        const int64_t passes = i < 2 ? 1 : nets_exec_passes(row_part(r), r->sub_batch) - 2;
        const mm_plan *plan = mm_plan_now(s->manager, pass->graph);
        if (plan->stash_bytes > r->stash_bytes) r->stash_bytes = plan->stash_bytes;
        r->moved_bytes += passes * mm_account_moves(plan).bytes;
        r->steps_again += passes * mm_account_steps_again(plan);
    }
}

static mm_status fill_row(session *s, tally *t, row *r) {
    const mm_graph *graph = nets_exec_lowered(s->train)->graph;
    mm_stats after;
    mm_stats_get(s->manager, &after);
    row_times(r, t->full_images, t->seconds, t->host_seconds, t->full < TIMES ? t->full : TIMES);
    r->staged_bytes = s->staged_bytes;
    r->layers = mm_graph_layers(graph);
    r->predicted_peak_bytes = after.predicted_peak_bytes;
    r->outside_bytes = after.outside_bytes;
    fill_plans(s, r);
    r->pinned_bytes = after.pinned_bytes;
    fill_host_memory(s, r);
    r->codec_hidden_share = hidden_share(&t->before, &after);
    r->ladder_steps = after.ladder_steps;
    r->replans = after.replans;
    r->diverged_iteration = s->diverged_iteration;
    r->replays = after.replays;
    if (s->config.texts) r->policy_now = texts_keep(s->config.texts, mm_policy_now(s->manager));
    if (s->config.texts && !r->policy_now) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
    if (r->iterations > 0) fill_code_bytes(&t->before, &after, r);
    if (r->iterations > 0)
        r->codec_busy_seconds = (double)(after.codec_busy_ns - t->before.codec_busy_ns) * 1e-9 / (double)r->iterations;
    if (r->iterations > 0)
        r->compute_busy_seconds =
            (double)(after.compute_busy_ns - t->before.compute_busy_ns) * 1e-9 / (double)r->iterations;
    if (!s->config.measure || r->iterations == 0) return MM_OK;
    mm_touched touched;
    MM_TRY(mm_touched_get(s->manager, &touched));
    r->peak_bytes = touched.total_bytes;
    if (touched.stray_bytes == 0) return MM_OK;
    return mm_fail(MM_ERR_PLAN, "%lld bytes were written where no plan puts anything: a bug of mm",
                   (long long)touched.stray_bytes);
}

void session_name_row(const session *s, row *r) {
    copy_text(r->net, sizeof r->net, nets_net_name(s->config.net));
    copy_text(r->device, sizeof r->device, s->config.target.device);
    r->threads = s->config.target.backend->threads;
    copy_text(r->precision, sizeof r->precision, s->config.target.precision);
    copy_text(r->fuse, sizeof r->fuse, target_fuse_text(&s->config.target));
    r->policy = s->config.policies.text[0];
    for (int p = 1; p < s->config.policies.n; p++) r->lossy |= requirement_is_lossy(s->config.policies.text[p]);
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n_codecs;
    if (mm_policy_codecs(r->policy, specs, &n_codecs) == MM_OK && n_codecs > 0)
        copy_text(r->codec, sizeof r->codec, specs[0]);
    r->batch = s->config.batch;
    r->sub_batch = sub_batch_of(s, session_part(s, s->config.batch));
    r->workspace_limit_bytes = s->config.target.workspace_bytes;
    r->budget_bytes = s->config.budget_bytes;
    r->minimum_bytes = s->minimum_bytes;
    r->sample_tokens = nets_net_tokens(s->config.net);
    r->codec_hidden_share = r->test_accuracy = -1;
}

mm_status session_train(session *s, const session_run *run, row *r) {
    session_name_row(s, r);
    s->together = s->config.ranks != NULL;
    MM_TRY(seek(s));
    const int64_t samples = s->train_size.samples;
    tally t = {.full_images = samples < s->config.batch ? samples : s->config.batch};
    mm_stats_get(s->manager, &t.before);
    progress p;
    progress_begin(&p, r->policy, s->iteration, run->whole ? run->whole : run->iterations, run->quiet);
    session_view view;
    if (run->view) {
        session_view_begin(&view, s);
        p.details = session_view_lines;
        p.details_ctx = &view;
    }
    mm_status status = iterate_to_the_end(s, run, &p, &t, r);
    progress_end(&p);
    return status == MM_OK ? fill_row(s, &t, r) : status;
}

mm_status session_trace(session *s, traces *all) {
    mm_timeline *timeline;
    if (!s->config.trace) return MM_OK;
    MM_TRY(mm_trace_take(s->manager, &timeline));
    return traces_add(all, timeline);
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
    nets_exec *exec = batch.n == eval_batch(s) ? s->eval : s->eval_last;
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
    progress_begin(&p, "evaluation", 0, s->test_size.batches, quiet);
    mm_status status = MM_OK;
    while (done < s->test_size.batches && !session_is_stopped(s) && (status = evaluate_batch(s, &all)) == MM_OK)
        progress_show(&p, ++done, "accuracy %.2f%%", 100.0 * (double)all.correct / (double)all.labels);
    progress_end(&p);
    MM_TRY(status);
    bool whole = done == s->test_size.batches;
    *accuracy_out = whole ? (double)all.correct / (double)all.labels : -1;
    *loss_out = whole ? all.loss / (double)all.images : -1;
    return MM_OK;
}
