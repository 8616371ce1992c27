/* SPDX-License-Identifier: MIT */
#include "tools/train/train.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/text.h"
#include "nets/io/net_file.h"
#include "policies/policy.h"
#include "tools/args/files.h"
#include "tools/need/effort.h"
#include "tools/need/policy_marks.h"
#include "tools/need/sub_batch.h"
#include "tools/need/update_when.h"
#include "tools/train/weights.h"

/* Reads --save-every: a number of iterations or of epochs: "100", "1epoch", "5epochs". */
static mm_status read_save_every(train *t) {
    const char *text = t->save_every;
    char *end;
    if (!text) return MM_OK;
    if (!t->save) return mm_fail(MM_ERR_INVALID, "--save-every %s: needs --save FILE", text);
    errno = 0;
    long long n = strtoll(text, &end, 10);
    t->save_epochs = strcmp(end, "epoch") == 0 || strcmp(end, "epochs") == 0;
    if (errno || end == text || (*end && !t->save_epochs) || n < 1 || n > SESSION_ITERATIONS_MAX)
        return mm_fail(MM_ERR_INVALID, "--save-every %s: must be iterations or epochs, from 1 to %d: 100, 1epoch", text,
                       SESSION_ITERATIONS_MAX);
    t->save_period = (session_period){.every = n};
    return MM_OK;
}

static mm_status read_switch(train *t, const char *text) {
    char *colon;
    if (t->n_switches == SWITCHES_MAX)
        return mm_fail(MM_ERR_INVALID, "--switch is given more than %d times: give fewer", SWITCHES_MAX);
    errno = 0;
    long long iteration = strtoll(text, &colon, 10);
    if (errno || colon == text || *colon != ':' || iteration < 0)
        return mm_fail(MM_ERR_INVALID, "--switch %s: must be ITERATION:POLICY, for example 100:freelunch:rate=4", text);
    const mm_status status = mm_policy_check(colon + 1);
    if (status != MM_OK) return mm_fail_in(status == MM_ERR_NOMEM ? status : MM_ERR_INVALID, "--switch %s", text);
    t->switches[t->n_switches++] = (policy_switch){.iteration = iteration, .policy = colon + 1};
    return MM_OK;
}

/* Applies --plan-effort to the first policy and those of switches. */
static mm_status apply_effort(train *t) {
    const char *policies[SWITCHES_MAX + 1] = {t->policy};
    for (int i = 0; i < t->n_switches; i++) policies[i + 1] = t->switches[i].policy;
    MM_TRY(effort_apply(t->effort, policies, t->n_switches + 1, &t->texts));
    t->policy = policies[0];
    for (int i = 0; i < t->n_switches; i++) t->switches[i].policy = policies[i + 1];
    return MM_OK;
}

/* Merges --momentum, --weight-decay and --clip-norm into the parsed --optimizer, and writes the values in use back to
 * these options, for the saved state. */
static mm_status read_optimizer(train *t) {
    nets_optimizer *optimizer = &t->target.optimizer;
    if (t->reset_optimizer && !t->load) return mm_fail(MM_ERR_INVALID, "--reset-optimizer: needs --load FILE");
    if (t->load_matching && !t->load) return mm_fail(MM_ERR_INVALID, "--load-matching: needs --load FILE");
    if (t->momentum >= 0 && nets_optimizer_set(optimizer, "momentum", t->momentum) != MM_OK)
        return mm_fail_in(MM_ERR_INVALID, "--momentum %g", t->momentum);
    if (t->weight_decay >= 0) MM_TRY(nets_optimizer_set(optimizer, "weight-decay", t->weight_decay));
    if (t->clip_norm >= 0) MM_TRY(nets_optimizer_set(optimizer, "clip-norm", t->clip_norm));
    if (t->lr <= 0) t->lr = nets_optimizer_traits_of(optimizer->id)->rate;
    if (!nets_optimizer_traits_of(optimizer->id)->counts) t->momentum = optimizer->momentum;
    t->weight_decay = optimizer->weight_decay;
    t->clip_norm = optimizer->clip_norm;
    nets_optimizer_text(optimizer, t->optimizer_text);
    t->target.optimizer_text = t->optimizer_text;
    return MM_OK;
}

/* Reads the schedule. Each --lr-step is an iteration at which the rate falls to a tenth. iterations: of the whole
 * run. */
static mm_status read_schedule(const train *t, int64_t iterations, nets_schedule *schedule) {
    *schedule = (nets_schedule){.rate = (float)t->lr, .factor = 0.1f, .iterations = iterations};
    if (*t->lr_schedule && t->lr_texts.n > 0)
        return mm_fail(MM_ERR_INVALID, "--lr-schedule %s and --lr-step: give one of them", t->lr_schedule);
    if (*t->lr_schedule && nets_schedule_parse(t->lr_schedule, schedule) != MM_OK)
        return mm_fail_in(MM_ERR_INVALID, "--lr-schedule %s", t->lr_schedule);
    for (int i = 0; i < t->lr_texts.n; i++) {
        char *end;
        errno = 0;
        long long at = strtoll(t->lr_texts.text[i], &end, 10);
        if (errno || end == t->lr_texts.text[i] || *end || at < 0)
            return mm_fail(MM_ERR_INVALID, "--lr-step %s: must be an iteration, a whole number from 0 to %lld",
                           t->lr_texts.text[i], LLONG_MAX);
        if (i == NETS_SCHEDULE_STEPS)
            return mm_fail(MM_ERR_INVALID, "--lr-step is given %d times: at most %d", t->lr_texts.n,
                           NETS_SCHEDULE_STEPS);
        schedule->at[schedule->n++] = at;
    }
    return nets_schedule_check(schedule);
}

mm_status train_read_schedule(const train *t, int64_t iterations, nets_schedule *schedule) {
    return train_read_of_state(t, t->lr_texts.n > 0 ? "--lr-step" : "--lr-schedule",
                               read_schedule(t, iterations, schedule));
}

static mm_status open_net(train *t) {
    const char *net = session_state_says(t->state, "net"), *file = train_state_net(t);
    mm_status status = nets_open(t->net, &t->network);
    if (status == MM_OK && file && net && strcmp(nets_net_name(t->network), net) != 0)
        return mm_fail(MM_ERR_INVALID, "%s is a state of net %s, but %s has net %s; name its file: --net %.5sPATH",
                       t->load, net, file, nets_net_name(t->network), file);
    if (status == MM_OK || status == MM_ERR_NOMEM || !net || args_given(t->argc, t->argv, "--net")) return status;
    if (file)
        return mm_fail(status,
                       "%s is a state of net %s, which %s does not give any more; name its file: --net %.5sPATH",
                       t->load, net, file, file);
    return mm_fail(status,
                   "%s is a state of net %s, which mm does not have; name its file: --net file:PATH or onnx:PATH",
                   t->load, net);
}

/* Gives the network its adapters, or freezes layers, and opens the file of frozen weights. */
static mm_status adapt(train *t) {
    const bool adapts = *t->target.lora || *t->target.freeze;
    const char *option = *t->target.lora ? "--lora" : "--freeze";
    if (*t->base && !adapts)
        return mm_fail(MM_ERR_INVALID,
                       "--base %s: is for the frozen weights of --lora or --freeze; --load takes weights to train on",
                       t->base);
    MM_TRY(train_read_of_state(t, option, target_adapt(&t->target, &t->network)));
    if (!*t->base) return MM_OK;
    MM_TRY(nets_safetensors_open(t->base, &t->base_file));
    MM_TRY(session_base_check(t->base_file, t->base, t->network));
    t->base_path = realpath(t->base, NULL);
    return t->load || *t->target.lora ? MM_OK : weights_report(t->base_file, t->network, "--base", t->base);
}

/* Checks the files that options name. --save may overwrite --load's file. */
static mm_status check_files(const train *t) {
    bool over = t->load && t->save && files_are_same(t->load, t->save);
    data_files data, test_data;
    files_data(t->data, &data);
    files_data(t->test_data, &test_data);
    const named_file files[] = {{"--save", t->save, FILE_WRITTEN},
                                {"--json", t->json, FILE_WRITTEN},
                                {"--log", t->log_path, FILE_WRITTEN},
                                {"--codec-log", t->codec_log_path, FILE_WRITTEN},
                                {"--trace", t->trace, FILE_WRITTEN},
                                {"--facts-save", t->facts_save, FILE_WRITTEN},
                                {"--save-plan", t->save_plan, FILE_WRITTEN},
                                {"--plan", t->plan, FILE_READ},
                                {"--facts", t->facts, FILE_READ},
                                {"--load", over ? NULL : t->load, FILE_READ},
                                {"--base", *t->base ? t->base : NULL, FILE_READ},
                                {"--net", files_net(t->net), FILE_READ},
                                {"--algorithms", t->target.algorithms, FILE_KEPT},
                                {"--data", data.images, FILE_READ},
                                {"--data", data.labels, FILE_READ},
                                {"--test-data", test_data.images, FILE_READ},
                                {"--test-data", test_data.labels, FILE_READ}};
    return files_check(files, sizeof files / sizeof *files);
}

/* Checks that --codec-log has something to log: a policy of the run samples. Call it once all policies are read. */
static mm_status check_codec_log(const train *t) {
    bool samples = !t->codec_log_path;
    for (int i = -1; i < t->n_switches && !samples; i++)
        MM_TRY(policy_find_samples(i < 0 ? t->policy : t->switches[i].policy, &samples));
    if (samples) return MM_OK;
    return mm_fail(MM_ERR_INVALID, "--codec-log %s: needs a policy that samples, as comet; --policy %s does not",
                   t->codec_log_path, MM_BRIEF(t->policy));
}

/* Refuses what needs whole states or gradients; policies keep what is divided on the device. */
static mm_status check_divide(train *t) {
    if (train_ranks(t) < 2 || !t->divides) return MM_OK;
    if (t->divides == NETS_DIVIDE_GRADIENTS && t->clip_norm > 0)
        return mm_fail(MM_ERR_INVALID, "--clip-norm %g: adds up the squares of whole gradients; give --divide states",
                       t->clip_norm);
    for (int i = -1; i < t->n_switches; i++) {
        const char **policy = i < 0 ? &t->policy : &t->switches[i].policy;
        bool samples;
        MM_TRY(policy_find_samples(*policy, &samples));
        if (samples)
            return mm_fail(MM_ERR_INVALID, "--divide %s: policy %s samples whole momenta and gradients; leave it out",
                           t->divide, MM_BRIEF(*policy));
        MM_TRY(policy_stay_text(policy, &t->texts));
    }
    return MM_OK;
}

static mm_status check_data(const train *t) {
    if (t->test_data && !t->eval)
        return mm_fail(MM_ERR_INVALID, "--test-data %s: is what --eval evaluates on; add --eval", t->test_data);
    if (t->eval && !t->test_data && !nets_reader_has_test(t->data))
        return mm_fail(MM_ERR_INVALID, "--eval: --data %s has no test set; give one with --test-data", t->data);
    return MM_OK;
}

/* Prints the sub-batch, unless the user gave a number, and its effect on batch norms. */
static mm_status report_of_sub_batch(const train *t) {
    int64_t given;
    const char *source = t->sub_batch_text ? "--sub-batch auto" : t->policy;
    MM_TRY(sub_batch_read(t->sub_batch_text, t->policy, t->part, false, &given));
    if (given == 0)
        fprintf(stderr, "mm train: %s: %lld image%s at a time\n", MM_BRIEF(source), (long long)t->sub_batch,
                t->sub_batch == 1 ? "" : "s");
    sub_batch_warn("train", t->network, t->part, t->sub_batch);
    return MM_OK;
}

need_case train_need_case(const train *t) {
    return (need_case){.net = t->network,
                       .batch = t->part,
                       .sub_batch = t->sub_batch,
                       .mode = NETS_TRAIN,
                       .target = &t->target,
                       .policy = t->policy,
                       .facts = t->facts ? &t->source : NULL,
                       .budget_bytes = t->budget_bytes,
                       .pinned = target_pinned_beside(&t->target, t->pinned_bytes, t->budget_bytes),
                       .may_unfuse = true};
}

static mm_status read_sub_batch(train *t) {
    need_case c = train_need_case(t);
    mm_status status = sub_batch_find(t->sub_batch_text, &c, &t->sub_batch);
    if (status == MM_ERR_INFEASIBLE) {
        c.sub_batch = 1;
        c.facts = NULL;
        return need_advise(&c, NULL, 0);
    }
    MM_TRY(train_read_of_state(t, t->sub_batch_text ? "--sub-batch" : "--policy", status));
    MM_TRY(sub_batch_check_facts("--facts", c.facts, t->part, t->sub_batch));
    if (t->sub_batch == t->part) return MM_OK;
    MM_TRY(report_of_sub_batch(t));
    snprintf(t->sub_batch_number, sizeof t->sub_batch_number, "%lld", (long long)t->sub_batch);
    return MM_OK;
}

/* Reads --update and --on-overflow. */
static mm_status read_update(train *t) {
    const bool stop = strcmp(t->on_overflow, "stop") == 0;
    update_runs runs = {.command = "train", .undo = !stop && !t->keep_going};
    if (!stop && strcmp(t->on_overflow, "undo") != 0)
        return mm_fail(MM_ERR_INVALID, "--on-overflow %s: must be undo or stop", t->on_overflow);
    if (stop && t->keep_going) return mm_fail(MM_ERR_INVALID, "--on-overflow stop and --keep-going: give one of them");
    MM_TRY(update_runs_add(&runs, t->sub_batch_text, t->policy, t->part, t->facts && !facts_source_is_list(t->facts),
                           t->budget_bytes > 0));
    for (int i = 0; i < t->n_switches; i++)
        MM_TRY(update_runs_add(&runs, "", t->switches[i].policy, t->part, false, false));
    MM_TRY(update_when_read(&t->target, &runs));
    if (stop && t->target.update != NETS_UPDATE_IN_BACKWARD)
        fprintf(stderr, "mm train: --on-overflow stop: the same as undo: weights are updated at the end\n");
    return MM_OK;
}

/* Reads --plan, which stands for a policy. */
static mm_status read_plan(train *t) {
    if (!t->plan) return MM_OK;
    if (args_given(t->argc, t->argv, "--policy"))
        return mm_fail(MM_ERR_INVALID, "--plan and --policy: give one of them");
    char *policy = mm_text_format("plan:%s", t->plan);
    if (!policy) return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
    t->policy = texts_keep(&t->texts, policy);
    free(policy);
    return t->policy ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
}

static mm_status open_facts(train *t) {
    if (!t->facts) return MM_OK;
    MM_TRY(facts_source_open(t->facts, &t->source));
    if (t->source.is_machine)
        return mm_fail(MM_ERR_INVALID, "--facts %s: is a %s; give measured facts, which 'mm bench --facts' writes",
                       t->facts, t->source.gpu ? "GPU's name" : "machine file");
    t->source.for_run = true;
    target_log_threads(&t->target, t->facts, t->source.threads);
    return need_follow_facts(&t->target, t->network, &t->source);
}

/* Rates of this host, if there are no facts. Sub-batches, which decide the bits of a result, are chosen before, and do
 * not depend on them. In a run of few iterations nothing is left to plan again. */
static mm_status open_rates(train *t, session_config *config) {
    const bool is_short = t->iterations > 0 && t->iterations <= HOST_RATES_ITERATIONS;
    const host_rates_case c = {.rates = t->rates_text,
                               .policies = &config->policies,
                               .target = &t->target,
                               .has_facts = t->facts != NULL,
                               .same_plan = t->self_check || is_short,
                               .ranks = train_ranks(t)};
    MM_TRY(host_rates_open(&t->rates, "train", &c));
    config->rates = &t->rates;
    config->facts = t->facts ? &t->source : host_rates_source(&t->rates);
    return MM_OK;
}

mm_status train_configure(train *t, session_config *config) {
    if (t->iterations && t->epochs) return mm_fail(MM_ERR_INVALID, "--iterations and --epochs: give one of them");
    MM_TRY(train_ranks_divide(t));
    MM_TRY(check_data(t));
    MM_TRY(files_absolute(t->data, &t->data_path));
    if (strcmp(t->progress, "bar") != 0 && strcmp(t->progress, "full") != 0)
        return mm_fail(MM_ERR_INVALID, "--progress %s: must be bar or full", t->progress);
    mm_issue issue;
    MM_TRY(target_init(&t->target));
    train_ranks_set_target(t);
    MM_TRY(read_optimizer(t));
    MM_TRY(target_probe(&t->target));
    MM_TRY(target_issue(&t->target, t->issue, &issue));
    MM_TRY(read_plan(t));
    if (!*t->policy) t->policy = t->budget_bytes > 0 ? "auto" : "liveness";
    MM_TRY(train_read_of_state(t, "--policy", mm_policy_check(t->policy)));
    for (int i = 0; i < t->switch_texts.n; i++)
        MM_TRY(train_read_of_state(t, "--switch", read_switch(t, t->switch_texts.text[i])));
    MM_TRY(apply_effort(t));
    MM_TRY(check_codec_log(t));
    MM_TRY(check_divide(t));
    MM_TRY(read_save_every(t));
    MM_TRY(open_net(t));
    MM_TRY(adapt(t));
    if (t->load_matching) MM_TRY(weights_report(t->state, t->network, "--load-matching", t->load));
    if (t->state && !t->load_matching) MM_TRY(session_state_check(t->state, t->network));
    MM_TRY(check_files(t));
    MM_TRY(read_update(t));
    MM_TRY(open_facts(t));
    if (t->replan && !t->facts)
        return mm_fail(MM_ERR_INVALID,
                       "--replan %lld: needs measured times to compare iterations with: --facts FILE, which "
                       "'mm bench --facts FILE' writes",
                       (long long)t->replan);
    MM_TRY(read_sub_batch(t));
    if (t->facts_save && t->sub_batch < t->part)
        return mm_fail(MM_ERR_INVALID,
                       "--facts-save %s: facts need whole batches, but this computes %lld of %lld images at a time",
                       t->facts_save, (long long)t->sub_batch, (long long)t->part);
    *config = (session_config){.net = t->network,
                               .data = t->data,
                               .test_data = t->test_data,
                               .batch = t->batch,
                               .ranks = t->ranks,
                               .sub_batch = t->sub_batch,
                               .target = t->target,
                               .budget_bytes = t->budget_bytes,
                               .pinned_bytes = t->pinned_bytes,
                               .seed = (uint64_t)t->seed,
                               .only_matching = t->load_matching,
                               .reset_optimizer = t->reset_optimizer || t->load_matching,
                               .whole_epochs = train_has_last_batch(t),
                               .evaluate = t->eval,
                               .keep_going = t->keep_going,
                               .no_ladder = t->no_ladder,
                               .self_check = t->self_check,
                               .verify_issued = t->verify_issued,
                               .measure = !t->no_measure,
                               .trace = t->trace != NULL,
                               .measure_times = t->facts_save && !t->replan, /* --replan measures times anyway */
                               .replan_percent = (int)t->replan,
                               .stop = t->interrupted,
                               .issue = issue,
                               .texts = &t->texts};
    config->policies.text[config->policies.n++] = t->policy;
    for (int i = 0; i < t->n_switches; i++) {
        if (t->iterations > 0 && t->switches[i].iteration >= t->iterations) continue; /* it is after the end */
        config->policies.text[config->policies.n++] = t->switches[i].policy;
    }
    return open_rates(t, config);
}
