/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "mm/device/contract/clock.h"
#include "mm/manager/figures.h"
#include "nets/rng.h"
#include "tools/args/speed.h"
#include "tools/train/codec_log.h"
#include "tools/train/session_parts.h"
#include "tools/train/session_view.h"

static double now(void) { return (double)mm_now_ns() * 1e-9; }

/* How many iterations' times a run keeps. The arrays are not on the heap, which would count as outside_bytes. */
enum { TIMES = 4096 };

/* An iteration that was submitted and not yet collected, or has ended and is not yet counted. */
typedef struct flight {
    nets_exec *exec;
    int64_t n; /* images */
    float rate;
    int64_t planned_bytes; /* peak of the largest plan, by which it runs */
    double host_seconds;
    nets_result result;
} flight;

typedef struct tally {
    flight flight[NETS_AHEAD]; /* oldest first */
    int flying;
    double ended;          /* when the last iteration ended; if none is in flight, when the next is submitted */
    double seconds[TIMES]; /* of the last full batches; full batch i is at i % TIMES */
    double host_seconds[TIMES];
    int64_t full_images; /* images of a full batch, or of all data if that is smaller */
    int64_t full, labels, correct;
    int64_t begun; /* sums_begun() when the last iteration was submitted */
    mm_stats before;
    char what[MM_SPEC_CAPACITY + 64]; /* the policy that runs, and run->told */
} tally;

static void log_line(const session *s, FILE *log, int64_t iteration, const flight *one, double seconds) {
    if (log)
        fprintf(log, "%lld,%.6g,%.4f,%.6f,%.6g,%lld,%lld%s\n", (long long)iteration, (double)one->result.loss,
                (double)one->result.correct / (double)session_labels(s, one->n), seconds, (double)one->rate,
                (long long)one->n, (long long)one->planned_bytes, s->config.evaluate ? ",," : "");
}

static int64_t planned_bytes(const session *s) {
    mm_stats stats;
    mm_stats_get(s->manager, &stats);
    return stats.predicted_peak_bytes;
}

/* Time that this thread has spent issuing iterations so far, without waiting. */
static int64_t host_ns(const session *s, const nets_exec *exec) {
    return nets_exec_enqueue_ns(exec) - mm_host_wait_ns(s->manager);
}

/* Warns at the first iteration whose loss or gradient is not finite. Later ones rarely recover. */
static void report_diverged(session *s, int64_t iteration, const nets_result *result) {
    char message[384];
    if (s->diverged_iteration > 0) return;
    s->diverged_iteration = iteration;
    snprintf(message, sizeof message, "%.64s, batch %lld, %.64s: diverged: the loss of iteration %lld is %g%s%s",
             nets_net_name(s->config.net), (long long)s->config.batch,
             s->n_ran > 0 ? s->ran[s->n_ran - 1] : s->config.policies.text[0], (long long)iteration,
             (double)result->loss,
             result->halted && isfinite(result->loss) ? ", a gradient or running statistic overflows" : "",
             s->config.keep_going          ? ""
             : result->halted == NETS_TORN ? "; training ends amid that iteration's update"
                                           : "; training ends without that iteration's update");
    session_say(NULL, MM_LOG_WARNING, message);
}

bool session_diverged(const session *s) { return s->diverged_iteration > 0 && !s->config.keep_going; }

/* Reduces a batch to this rank's part. */
static void take_part(const session *s, nets_batch *batch) {
    const int64_t rank = s->config.ranks ? comm_rank(s->config.ranks) : 0;
    nets_shape image;
    batch->n = session_part(s, batch->n);
    if (rank == 0 || !batch->images || nets_net_shape(s->config.net, 0, 1, &image) != MM_OK) return;
    batch->images += rank * batch->n * nets_shape_elems(&image);
    batch->labels += rank * session_labels(s, batch->n);
}

/* How many all-reduces this rank has begun so far. */
static int64_t sums_begun(const session *s) {
    comm_stats stats = {0};
    if (s->config.ranks) comm_stats_get(s->config.ranks, &stats);
    return stats.begun;
}

static mm_status start_iteration(session *s, const session_run *run, progress *p, tally *t) {
    nets_batch batch = {.n = s->config.batch};
    MM_TRY(session_note_policy(s, &p->what));
    if (run->told) {
        snprintf(t->what, sizeof t->what, "%.*s, %s", MM_SPEC_CAPACITY, p->what, run->told);
        p->what = t->what;
    }
    if (!s->config.same_batches || !s->ahead || s->iteration < NETS_AHEAD)
        MM_TRY(nets_reader_next(s->train_data, &batch));
    nets_exec *exec = batch.n == s->config.batch ? s->train : s->train_last;
    float rate = nets_schedule_rate(&run->schedule, s->iteration);
    if (t->flying == 0) t->ended = now();
    flight *next = &t->flight[t->flying];
    *next = (flight){.exec = exec, .n = batch.n, .rate = rate};
    /* The number of the iteration's first pass. Evaluations do not count. */
    const int64_t part = session_part(s, s->config.batch), passes = nets_exec_passes(part, session_sub_batch(s, part));
    MM_TRY(mm_iteration_number_set(s->manager, s->iteration * passes));
    int64_t host = host_ns(s, exec);
    take_part(s, &batch);
    if (s->config.ranks) nets_exec_set_word(exec, s->config.stop && *s->config.stop);
    MM_TRY(s->ahead ? nets_exec_submit(exec, batch.images, batch.labels, batch.n, rate)
                    : nets_exec_iteration(exec, batch.images, batch.labels, batch.n, rate, &next->result));
    t->begun = sums_begun(s);
    next->planned_bytes = planned_bytes(s); /* known from the first iteration on */
    next->host_seconds = (double)(host_ns(s, exec) - host) * 1e-9;
    t->flying++;
    s->iteration++;
    return run->codec_log ? codec_log_write(run->codec_log, s->manager, exec, s->iteration) : MM_OK;
}

/* Discards all iterations in flight, after an earlier one was undone. */
static void drop_flights(session *s, tally *t) {
    for (int i = 0; i < t->flying; i++) nets_exec_drop(t->flight[i].exec);
    s->iteration -= t->flying;
    t->flying = 0;
}

/* Finishes the oldest iteration, whose time is counted from the end of the iteration before it. */
static mm_status finish_iteration(session *s, const session_run *run, progress *p, tally *t, row *r) {
    flight oldest = t->flight[0];
    if (s->ahead) MM_TRY(nets_exec_collect(oldest.exec, &oldest.result));
    if (s->config.ranks) MM_TRY(comm_check(s->config.ranks));
    if (isnan(oldest.result.loss)) oldest.result.loss = NAN; /* drop the sign, which would be printed */
    const nets_result result = oldest.result;
    s->stopped |= result.words > 0;
    double end = now(), seconds = end - t->ended, mean = 0;
    t->ended = end;
    memmove(t->flight, t->flight + 1, (size_t)--t->flying * sizeof *t->flight);
    if (oldest.n == t->full_images) {
        t->host_seconds[t->full % TIMES] = oldest.host_seconds;
        t->seconds[t->full++ % TIMES] = seconds;
    }
    t->labels += session_labels(s, oldest.n);
    t->correct += result.correct;
    if (r->iterations++ == 0) r->loss_first = result.loss;
    r->loss_last = result.loss;
    int64_t iteration = s->iteration - t->flying, window = t->full < 20 ? t->full : 20;
    log_line(s, run->log, iteration, &oldest, seconds);
    for (int64_t i = t->full - window; i < t->full; i++) mean += t->seconds[i % TIMES];
    const double images_per_second = mean > 0 ? (double)(window * t->full_images) / mean : 0;
    progress_show(p, iteration, "loss %.4f, accuracy %.1f%%, %.0f %s", r->loss_last,
                  100.0 * (double)t->correct / (double)t->labels, speed_of(images_per_second, r->sample_tokens),
                  speed_unit_brief(r->sample_tokens));
    if (isfinite(result.loss) && !result.halted) return MM_OK;
    report_diverged(s, iteration, &result);
    if (!session_diverged(s)) return MM_OK;
    drop_flights(s, t);
    s->iteration--;
    return MM_OK;
}

/* Finishes all iterations in flight. If one fails, discards it and the later ones. */
static mm_status land(session *s, const session_run *run, progress *p, tally *t, row *r) {
    mm_status status = MM_OK;
    while (status == MM_OK && t->flying > 0) status = finish_iteration(s, run, p, t, r);
    drop_flights(s, t);
    return status;
}

/* Saves the state if that is due. First finishes the iterations in flight; if one of them diverged, saves nothing,
 * because the run then went back. */
static mm_status save_if_due(session *s, const session_run *run, progress *p, tally *t, row *r) {
    const session_period *period = &run->save_period;
    if (period->every == 0 || (s->iteration + period->shift) % period->every != 0) return MM_OK;
    MM_TRY(land(s, run, p, t, r));
    return session_diverged(s) ? MM_OK : run->save(run->hook_ctx, s);
}

/* Plans again where that is due and further iterations follow. Times under plans that do not run any more are not
 * counted, unless there are no others. */
static void plan_again(session *s, const session_run *run, tally *t) {
    bool changed;
    if (s->iteration >= (run->whole ? run->whole : run->iterations)) return;
    session_plan_again(s, &changed);
    if (changed && s->iteration < run->iterations) t->full = 0;
}

/* Each rank sends with each iteration whether it is stopped, and gets the others' answer with the result. So all end
 * with the same iteration, provided that what they do next depends only on results. */
static mm_status iterate_all(session *s, const session_run *run, progress *p, tally *t, row *r) {
    while (s->iteration < run->iterations && !session_diverged(s)) {
        if (session_is_stopped(s)) break;
        if (run->hook) MM_TRY(run->hook(run->hook_ctx, s));
        MM_TRY(start_iteration(s, run, p, t));
        if (t->flying == (s->ahead ? NETS_AHEAD : 1)) MM_TRY(finish_iteration(s, run, p, t, r));
        plan_again(s, run, t);
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

/* Trains to the end. If memory runs out and the manager finds a plan that needs less, goes back to the number of
 * updates made, and repeats the iterations that were lost. Does not if other ranks have taken part in one of them. */
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

mm_status session_train(session *s, const session_run *run, row *r) {
    MM_TRY(session_name_row(s, r));
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
    MM_TRY(status);
    row_times(r, t.full_images, t.seconds, t.host_seconds, t.full < TIMES ? t.full : TIMES);
    return session_fill_row(s, &t.before, r);
}
