/* SPDX-License-Identifier: MIT */
#include "tools/train/train.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"
#include "tools/args/files.h"
#include "tools/need/policy_marks.h"

/* The options that decide the bits of the result: RUN_OPTIONS always, LOSSY_OPTIONS only if a code is lossy. */
static const char *const RUN_OPTIONS[] = {"--data",         "--batch",       "--seed",      "--lr",
                                          "--lr-step",      "--lr-schedule", "--optimizer", "--momentum",
                                          "--weight-decay", "--clip-norm",   "--threads",   "--sub-batch",
                                          "--precision",    "--lora",        "--freeze",    "--base"},
                         *const LOSSY_OPTIONS[] = {"--policy", "--switch", "--budget"};

enum {
    RUN_OPTIONS_N = sizeof RUN_OPTIONS / sizeof *RUN_OPTIONS,
    LOSSY_OPTIONS_N = sizeof LOSSY_OPTIONS / sizeof *LOSSY_OPTIONS
};
_Static_assert(RUN_OPTIONS_N + LOSSY_OPTIONS_N + 4 <= TRAIN_STATE_OPTIONS, "a state has room for all options");

/* No option: the iteration at which the schedule of the state's run ends, if it is a cosine. */
#define SCHEDULE_END "lr-schedule-end"
/* No options, so that they do not count as differences: the run's length, as one of the two, and the network's file. */
#define RUN_ITERATIONS "run-iterations"
#define RUN_EPOCHS     "run-epochs"
#define NET_PATH       "net-path"

/* Lists the options that a state holds, ending with ARG_END. */
static void list_options(const train *t, bool lossy, arg options[TRAIN_STATE_OPTIONS + 1]) {
    int n = 0;
    for (int i = 0; i < RUN_OPTIONS_N; i++) options[n++] = *args_find(t->table, RUN_OPTIONS[i]);
    for (int i = 0; lossy && i < LOSSY_OPTIONS_N; i++) options[n++] = *args_find(t->table, LOSSY_OPTIONS[i]);
    options[n] = (arg){0};
    for (arg *a = options; a->kind != ARG_END; a++) {
        if (t->data_path && a->target == &t->data) a->target = (void *)&t->data_path;
        if (t->base_path && a->target == &t->base) a->target = (void *)&t->base_path;
    }
}

static mm_status uses_lossy(const train *t, bool *lossy_out) {
    bool lossy;
    MM_TRY(policy_find_lossy(t->policy, &lossy));
    for (int i = 0; i < t->n_switches && !lossy; i++) MM_TRY(policy_find_lossy(t->switches[i].policy, &lossy));
    *lossy_out = lossy;
    return MM_OK;
}

static mm_status find_net_path(train *t) {
    const char *path = files_net(t->net);
    char absolute[PATH_MAX];
    if (!path || !realpath(path, absolute)) return MM_OK;
    t->net_path = mm_text_format("%.*s%s", (int)(path - t->net), t->net, absolute);
    return t->net_path ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the path of %s", t->net);
}

/* The state of a run in whole batches has an empty --sub-batch. */
mm_status train_set_options(train *t) {
    bool lossy;
    MM_TRY(uses_lossy(t, &lossy));
    t->sub_batch_text = t->sub_batch < t->part ? t->sub_batch_number : "";
    list_options(t, lossy, t->options);
    int n = 0;
    while (t->options[n].kind != ARG_END) n++;
    t->options[n++] = (arg){.name = "--" RUN_ITERATIONS, .kind = ARG_COUNT, .target = &t->iterations, .min = 1};
    t->options[n++] = (arg){.name = "--" RUN_EPOCHS, .kind = ARG_COUNT, .target = &t->epochs, .min = 1};
    MM_TRY(find_net_path(t));
    if (t->net_path) t->options[n++] = (arg){.name = "--" NET_PATH, .kind = ARG_TEXT, .target = (void *)&t->net_path};
    if (*t->lr_schedule && strcmp(t->lr_schedule, "constant") != 0)
        t->options[n] =
            (arg){.name = "--" SCHEDULE_END, .kind = ARG_COUNT, .target = &t->schedule_end}; /* set when it is read */
    return MM_OK;
}

mm_status train_read_of_state(const train *t, const char *option, mm_status status) {
    if (status == MM_OK || !session_state_says(t->state, option + 2) || args_given(t->argc, t->argv, option))
        return status;
    bool wrong = status == MM_ERR_INVALID || status == MM_ERR_NOT_FOUND;
    return mm_fail_in(wrong ? MM_ERR_FORMAT : status, "%s: what it says of its run cannot be", t->load);
}

/* The optimizer of a state's run. A state of a run that names none, because it is older than the option, is of sgd.
 * NULL: the file has weights alone. */
static const char *state_optimizer(const train *t) {
    const char *optimizer = session_state_says(t->state, "optimizer");
    return optimizer ? optimizer : session_state_says(t->state, "iteration") ? "sgd" : NULL;
}

/* Whether the optimizer's states are codes. */
static bool is_coded(const char *optimizer) {
    nets_optimizer parsed;
    return nets_optimizer_parse(optimizer, &parsed) == MM_OK && nets_optimizer_traits_of(parsed.id)->coded;
}

/* Options that are not given are as in the state, except: --optimizer resets its own options and, if it is another
 * optimizer, the learning rate; and --lr-step and --lr-schedule each override the state's other one. */
static mm_status open_optimizer(train *t) {
    const char *then = state_optimizer(t), *now = t->target.optimizer_text ? t->target.optimizer_text : "sgd";
    nets_optimizer parsed;
    MM_TRY(train_read_of_state(t, "--optimizer", nets_optimizer_parse(now, &parsed)));
    const size_t length = strcspn(now, ",");
    if (args_given(t->argc, t->argv, "--lr-step") && !args_given(t->argc, t->argv, "--lr-schedule"))
        t->lr_schedule = "";
    if (args_given(t->argc, t->argv, "--lr-schedule") && !args_given(t->argc, t->argv, "--lr-step"))
        args_texts_fini(&t->lr_texts);
    if (args_given(t->argc, t->argv, "--optimizer")) { /* --optimizer sets all its options */
        if (!args_given(t->argc, t->argv, "--momentum")) t->momentum = -1;
        if (!args_given(t->argc, t->argv, "--weight-decay")) t->weight_decay = -1;
        if (!args_given(t->argc, t->argv, "--clip-norm")) t->clip_norm = -1;
    }
    const bool same_name = then && strcspn(then, ",") == length && memcmp(then, now, length) == 0;
    if (!then || (same_name && is_coded(then) == is_coded(now))) return MM_OK;
    if (!t->reset_optimizer && !t->load_matching)
        return mm_fail(MM_ERR_INVALID,
                       "--optimizer %s: %s was trained with %s; use --reset-optimizer to take only its weights", now,
                       t->load, then);
    if (!same_name && !args_given(t->argc, t->argv, "--lr")) t->lr = 0;
    return MM_OK;
}

/* A length that the state says; 0: none. */
static int64_t state_length(const train *t, const char *key) {
    const char *text = session_state_says(t->state, key);
    char *end;
    errno = 0;
    const long long n = text ? strtoll(text, &end, 10) : 0;
    return text && !errno && end != text && !*end && n > 0 && n <= SESSION_ITERATIONS_MAX ? n : 0;
}

/* Without --iterations and --epochs, a run is as long as that of its state; a new one has 100 iterations. */
static void set_length(train *t) {
    if (t->iterations || t->epochs) return;
    if (!t->load_matching) {
        t->epochs = state_length(t, RUN_EPOCHS);
        if (!t->epochs) t->iterations = state_length(t, RUN_ITERATIONS);
        if (!t->epochs && !t->iterations) t->iterations = state_length(t, SCHEDULE_END); /* an older state */
    }
    if (!t->epochs && !t->iterations) t->iterations = 100;
}

const char *train_state_net(const train *t) {
    return args_given(t->argc, t->argv, "--net") ? NULL : session_state_says(t->state, NET_PATH);
}

mm_status train_open_state(train *t) {
    arg options[TRAIN_STATE_OPTIONS + 1];
    if (!t->load) {
        set_length(t);
        return MM_OK;
    }
    list_options(t, true, options);
    MM_TRY(session_state_open(t->load, options, t->argc, t->argv, &t->state));
    const char *net = session_state_says(t->state, "version") ? session_state_says(t->state, "net") : NULL;
    if (net && !args_given(t->argc, t->argv, "--net")) t->net = train_state_net(t) ? train_state_net(t) : net;
    set_length(t);
    /* Another policy does not follow the state's switches. */
    if (args_given(t->argc, t->argv, "--policy") && !args_given(t->argc, t->argv, "--switch"))
        args_texts_fini(&t->switch_texts);
    MM_TRY(open_optimizer(t));
    const bool other = target_is_host(t->target.device) && strcmp(t->target.precision, "tf32") == 0;
    if (other && !args_given(t->argc, t->argv, "--precision"))
        t->target.precision = "fp32"; /* the host rounds as fp32 */
    /* Only the host device has threads to set. */
    if (!target_is_host(t->target.device) && !args_given(t->argc, t->argv, "--threads")) t->target.threads = 0;
    return MM_OK;
}

bool train_has_last_batch(const train *t) {
    const char *last = session_state_says(t->state, "last_batch");
    return t->epochs > 0 || (last && strcmp(last, "trained") == 0);
}

mm_status train_log_differences(const train *t, const session *s) {
    const char *last = session_state_says(t->state, "last_batch"), *net = session_state_says(t->state, "net");
    arg options[TRAIN_STATE_OPTIONS + 1];
    list_options(t, true, options);
    if (last && net && strcmp(net, nets_net_name(t->network)) != 0)
        fprintf(stderr, "mm train: --net %s: %s was trained with %s\n", t->net, t->load, net);
    if (s->train_last && last && strcmp(last, "trained") != 0)
        fprintf(stderr,
                "mm train: --epochs %lld: this run also trains on an epoch's last, smaller batch, which the run of %s "
                "left out\n",
                (long long)t->epochs, t->load);
    return session_state_report(t->state, t->load, options, t->argc, t->argv);
}

void train_report_schedule(train *t, const session *s, const nets_schedule *schedule) {
    const char *text = session_state_says(t->state, SCHEDULE_END);
    nets_schedule before = *schedule;
    t->schedule_end = schedule->iterations;
    if (!text || schedule->id != NETS_SCHEDULE_COSINE) return;
    before.iterations = strtoll(text, NULL, 10);
    if (before.iterations == schedule->iterations) return;
    const double now = nets_schedule_rate(schedule, s->iteration), then = nets_schedule_rate(&before, s->iteration);
    fprintf(stderr,
            "mm train: the schedule --lr-schedule %s ends at iteration %lld; in the run of %s it would end at %lld",
            t->lr_schedule, (long long)schedule->iterations, t->load, (long long)before.iterations);
    if (now != then)
        fprintf(stderr, ". At iteration %lld the learning rate is %g in place of %g", (long long)s->iteration, now,
                then);
    fputc('\n', stderr);
}
