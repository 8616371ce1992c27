/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/io/net_file.h"
#include "tools/args/commands.h"
#include "tools/args/json_file.h"
#include "tools/need/effort.h"
#include "tools/need/ranks.h"
#include "tools/train/train.h"

/* Switches to the policy of the latest switch that is due. A loaded state may be past several switches. */
static mm_status apply_switches(void *ctx, session *s) {
    train *t = ctx;
    const policy_switch *latest = NULL;
    for (int i = 0; i < t->n_switches; i++) {
        const policy_switch *candidate = &t->switches[i];
        if (candidate->iteration <= s->iteration && (!latest || candidate->iteration >= latest->iteration))
            latest = candidate;
    }
    if (!latest || latest->policy == t->policy_now) return MM_OK;
    MM_TRY(mm_policy_set(s->manager, latest->policy));
    MM_TRY(mm_policy_wait(s->manager)); /* the switch is at the iteration that was asked for */
    t->policy_now = latest->policy;
    return MM_OK;
}

static mm_status evaluate(const train *t, session *s, row *r) {
    MM_TRY(session_evaluate(s, t->quiet, &r->test_accuracy, &r->test_loss));
    if (r->test_accuracy < 0) return MM_OK;
    if (t->log) fprintf(t->log, "%lld,,,,,,,%.6g,%.4f\n", (long long)s->iteration, r->test_loss, r->test_accuracy);
    FILE *out = json_file_beside(t->json);
    fprintf(out, "iteration %lld: test accuracy %.2f%%, test loss %.4f", (long long)s->iteration,
            100 * r->test_accuracy, r->test_loss);
    if (r->sample_tokens) fprintf(out, ", perplexity %.4f", exp(r->test_loss));
    fprintf(out, "\n");
    fflush(out);
    return MM_OK;
}

/* The number of iterations at which the run ends, including those of a loaded state. */
static int64_t last_iteration(const train *t, const session *s) {
    return t->epochs ? t->epochs * s->train_size.batches - s->data_shift : t->iterations;
}

/* The next iteration at which training pauses to evaluate: each --eval-every, with --epochs each epoch, or the end. */
static int64_t next_stop(const train *t, const session *s, int64_t end) {
    const int64_t epoch = s->train_size.batches, shift = t->eval_every ? 0 : s->data_shift;
    const int64_t every = t->eval_every ? t->eval_every : t->epochs ? epoch : end;
    const int64_t stop = s->iteration + every - (s->iteration + shift) % every;
    return t->eval && stop < end ? stop : end;
}

/* Trains to the end, and with --eval evaluates at each stop. A loaded state that is already at the end is only
 * evaluated. */
static mm_status train_all(train *t, session *s, session_run *run, row *r) {
    const int64_t end = last_iteration(t, s);
    row all = {0};
    t->end = run->whole = end;
    do {
        run->iterations = next_stop(t, s, end);
        row one = {0};
        MM_TRY(session_train(s, run, &one));
        if (all.iterations > 0) {
            one.loss_first = all.loss_first;
            one.iterations += all.iterations;
        }
        all = one;
        if (t->eval && !session_is_stopped(s) && !session_diverged(s)) MM_TRY(evaluate(t, s, &all));
    } while (s->iteration < end && !session_is_stopped(s) && !session_diverged(s));
    *r = all;
    return MM_OK;
}

static mm_status save(void *ctx, session *s) {
    train *t = ctx;
    if (s->iteration == 0 || s->iteration == t->saved_iteration) return MM_OK;
    MM_TRY(session_save(s, t->save, t->options));
    t->saved_iteration = s->iteration;
    return MM_OK;
}

/* Saves the state also after a failure: it is as the last whole iteration left it. But if a run diverged, keeps what
 * --save-every wrote before, because the loss was further from overflow then. */
static mm_status save_at_end(train *t, session *s, mm_status status) {
    if (!t->save || (t->ranks && comm_gpu(t->ranks) >= 0 && comm_check(t->ranks) != MM_OK)) return status;
    if (t->divides && status != MM_OK) return status; /* the others may be gone, with their shares */
    bool diverged = session_diverged(s);
    mm_failure ended;
    mm_failure_save(&ended, status);
    mm_status saved = diverged && t->saved_iteration > 0 ? MM_OK : save(t, s);
    if ((diverged || status != MM_OK) && saved != MM_OK) fprintf(stderr, "mm train: %s\n", mm_last_error());
    if (diverged && t->saved_iteration > 0)
        fprintf(json_file_beside(t->json), "%s: the state after iteration %lld\n", t->save,
                (long long)t->saved_iteration);
    if (status != MM_OK) return mm_failure_restore(&ended);
    return diverged ? status : saved;
}

/* Says which policies act on nothing in this network. */
static void report_idle(const session *s) {
    for (int p = 0; p < s->config.policies.n; p++)
        if (s->effects[p].idle) fprintf(stderr, "mm train: %s\n", s->effects[p].idle);
}

static mm_status run_session(train *t, session *s, row *r) {
    session_run run = {.hook = apply_switches,
                       .hook_ctx = t,
                       .log = t->log,
                       .codec_log = t->codec_log,
                       .quiet = t->quiet,
                       .view = strcmp(t->progress, "full") == 0,
                       .save = save};
    MM_TRY(train_read_schedule(t, last_iteration(t, s), &run.schedule));
    train_report_schedule(t, s, &run.schedule);
    if (t->state) MM_TRY(train_log_differences(t, s));
    report_idle(s);
    if (train_ranks(t) == 1 || comm_rank(t->ranks) == 0) {
        target_log_lossy(&t->target);
        host_rates_tell(&t->rates, "train", t->policy);
    }
    run.save_period = t->save_period;
    if (t->save_epochs) {
        run.save_period.every *= s->train_size.batches;
        run.save_period.shift = s->data_shift;
    }
    t->target.threads = t->target.backend->threads; /* the actual number, for the saved state */
    mm_status status = train_all(t, s, &run, r);
    t->trained = status == MM_OK;
    if (status == MM_OK && r->iterations == 0) train_say_nothing_ran(t, s);
    return save_at_end(t, s, status);
}

/* Adds to the refusal a policy that would fit the budget. The refused policy is passed on only for whole batches: with
 * sub-batches its minimum is the largest pass's, while other policies are planned for the last pass. */
static mm_status advise_another(const need_case *c, const train *t, const session *s) {
    const bool whole = t->sub_batch == 0 || t->sub_batch >= t->part;
    const bool known = s->minimum_bytes > s->config.budget_bytes;
    mm_policy policy;
    if (known && whole) MM_TRY(mm_policy_parse(c->policy, &policy));
    mm_status status = need_advise(c, known && whole ? &policy : NULL, known ? s->minimum_bytes : 0);
    if (known && whole) mm_policy_fini(&policy);
    return status;
}

static mm_status advise(const train *t, const session *s, mm_status status) {
    if (status != MM_ERR_INFEASIBLE || s->refused_switch || t->budget_bytes == 0) return status;
    need_case c = train_need_case(t);
    if (!s->refused_by_manager) {
        const mm_status advised = advise_another(&c, t, s);
        (void)advised; /* its advice is in mm_last_error */
    }
    return need_advise_own(&c);
}

/* Writes the trace of what ran, even if the run failed. */
static mm_status save_trace(const train *t, session *s, mm_status status) {
    traces all = {0};
    if (!t->trace) return status;
    mm_failure failure;
    mm_failure_save(&failure, status);
    mm_status traced = session_trace(s, &all);
    if (traced == MM_OK) traced = traces_save(&all, "train", t->trace);
    traces_fini(&all);
    return failure.status != MM_OK ? mm_failure_restore(&failure) : traced;
}

/* Writes the facts measured under the policy that ran last. */
static mm_status save_facts(const train *t, session *s, const row *r) {
    if (!t->facts_save || r->iterations == 0) return MM_OK;
    return mm_facts_save(s->manager, nets_exec_lowered(s->train)->graph, t->facts_save);
}

/* Writes the plans that ran last. */
static mm_status save_plan(const train *t, const session *s) {
    if (!t->save_plan || (t->ranks && comm_rank(t->ranks) > 0)) return MM_OK;
    return mm_plan_save(s->manager, NULL, 0, t->save_plan);
}

static void say_verified(const train *t, const session *s) {
    mm_stats stats;
    if (!t->verify_issued) return;
    mm_stats_get(s->manager, &stats);
    fprintf(stderr, "mm train: what was issued is what the plans say: %lld steps and parts of operations\n",
            (long long)stats.verified);
}

/* Does everything that may refuse the run. *ended_out: the run was stopped before its first iteration; the session then
 * needs no session_fini. */
static mm_status begin(train *t, session *s, row *r, bool *ended_out) {
    session_config config;
    MM_TRY(train_configure(t, &config));
    MM_TRY(train_set_options(t));
    mm_status begun = session_init(s, &config);
    *ended_out = session_stopped_early(s, begun);
    if (*ended_out) {
        MM_TRY(session_name_row(s, r));
        train_say_nothing_ran(t, s);
        return MM_OK;
    }
    if (s->refused_data) return train_read_of_state(t, "--data", begun);
    if (begun != MM_OK) return advise(t, s, begun);
    if (t->base_file) begun = session_load_base(s, t->base_file);
    if (begun == MM_OK && t->state) begun = session_load(s, t->state, t->load);
    if (begun != MM_OK) session_fini(s);
    return begun;
}

/* After a failure of one of several ranks the session stays as it is, until train_ranks_end ends the process: the
 * communicators of this rank and of others may still read and write the gradients of the iteration that failed. */
static mm_status run_train(train *t, session *s, row *r) {
    bool ended = false;
    mm_status begun = begin(t, s, r, &ended);
    const bool open = begun == MM_OK && !ended;
    mm_status status = train_ranks_agree(t, open ? s : NULL, begun, &ended);
    t->stopped = ended;
    if (status != MM_OK || ended) {
        if (open) session_fini(s);
        return status;
    }
    status = train_open_logs(t, s);
    if (status == MM_OK) status = run_session(t, s, r);
    if (status == MM_OK) status = save_facts(t, s, r);
    if (status == MM_OK) status = save_plan(t, s);
    if (status == MM_OK) say_verified(t, s);
    status = save_trace(t, s, status);
    t->stopped = session_is_stopped(s);
    t->done = s->iteration;
    if (status != MM_OK && t->ranks) return status;
    session_fini(s);
    return status == MM_OK ? train_check_logs(t) : status;
}

static const char help_text[] =
    "Trains a network, and keeps all that it needs on the device inside --budget: weights, gradients, optimizer\n"
    "state, feature maps, workspaces. The policy decides what happens to feature maps between the forward and the\n"
    "backward pass. Its plan is proved to fit before the first step. If the budget is too small, mm names the\n"
    "smallest one that would do and the layer that needs it ('mm plan' shows this beforehand). Without --budget, the\n"
    "budget is what the plan needs. If the device has less memory, or memory runs out later, a plan that needs less\n"
    "takes over (with more swapping, recomputation and so on; never a lossy plan for a lossless one), and a line on\n"
    "stderr says so.\n"
    "\n"
    "--data files: reads images as uint8 [images, height, width, channels] and labels as uint8, int32 or int64\n"
    "[images], or [images, height, width] for a network with a label for each pixel, as numpy.save writes them. The "
    "network gets pixels\n"
    "scaled to -1 to 1, not augmented. The files are read during training, not held in memory.\n"
    "\n"
    "--data text: takes a file's bytes as tokens, tokens: its 16-bit numbers, for networks such as gpt. The last\n"
    "tenth is for --eval. The rest is cut into rows of the network's context length; an epoch reads each row once,\n"
    "in an order set by --seed.\n"
    "\n"
    "--load continues from a saved state, bit for bit. The state holds network, data and the position in it, batch,\n"
    "seed, learning rate and its steps or schedule, optimizer and threads, and if codes are lossy, policies and\n"
    "budget. Its data paths are absolute, with links followed. Options given with --load replace the state's; a line\n"
    "on stderr names those that differ. --iterations and --epochs count those of the state too; without them the run\n"
    "goes on to the end that it had. Network files are found where they were. --save-every also saves during the\n"
    "run; a run that is killed while it saves leaves the previous state. A --log that ends where the state does, or\n"
    "later, goes on from there: later lines are cut, as their iterations run again. Any other file is overwritten.\n"
    "\n"
    "If a loss or gradient is NaN or infinite, training ends with status diverged and exit 1, without that\n"
    "iteration's update; --save then has the state before it, or what --save-every wrote last. --keep-going trains\n"
    "on. --update in-backward needs --on-overflow stop (or --keep-going): weights may be updated before a gradient\n"
    "overflows, and then the state is not saved, nor if the iteration fails amid its updates. Clipping, sub-batches\n"
    "and ranks need whole gradients, and refuse it; --update auto then updates at the end. All ways to update give\n"
    "the same weights, bit for bit, and go on from each other's states.\n"
    "\n"
    "--save-plan writes the plans as text that anyone can read and check; mm/core/plan/FORMAT.md describes it. --plan\n"
    "runs them as they are: for the same network, batch, sub-batch, --fuse and device, else it says what differs.\n"
    "--verify-issued holds what is issued against them: at the first difference training ends, and a line names the\n"
    "node, its stream and what is missing.\n"
    "\n"
    "Ctrl-C (or SIGTERM) finishes the iteration, saves if --save is given, and exits with 130; a second Ctrl-C\n"
    "ends mm at once. Before the first iteration, while auto searches for its plan, the first Ctrl-C ends the run\n"
    "without saving. Other exit codes: 0 done, 1 failed or does not fit, 2 the command line is wrong.\n"
    "\n"
    "With --ranks N, or under your own mpirun (--comm mpi), each of N processes (ranks) trains an N-th of every\n"
    "batch, in its own --budget. They add up their gradients, in the same order on every run. Rank 0 reports,\n"
    "evaluates and saves; any number of ranks can load its state. Batch norms normalise each rank's part; running\n"
    "statistics are the mean over ranks. With --device cuda, --ranks gives each rank a GPU, and NCCL adds up there,\n"
    "in its own order; --comm mpi adds up as on the host. Figures are of the whole batch, memory is rank 0's.\n"
    "After Ctrl-C at the mm that started the ranks, or SIGINT to any of them, all finish the same iteration. Your\n"
    "own mpirun kills them a second or two after Ctrl-C. If one rank fails, all end.\n"
    "\n"
    "--divide states: each rank holds and updates an N-th of the optimizer's states; gradients: it also keeps only\n"
    "an N-th of the gradients' sums. Weights keep their bits. Saved states are whole; all ranks need --save for them,\n"
    "and if one rank fails, nothing is saved. Divided gradients exclude --clip-norm, --sub-batch and --sum end.\n"
    "\n"
    "  mm train --net resnet32 --data cifar10:DIR --epochs 3 --eval --policy freelunch:rate=4 --budget 200MiB\n"
    "  mm train --net resnet20 --data files:x.npy,y.npy --test-data files:tx.npy,ty.npy --epochs 9 --eval\n"
    "  mm train --net gpt --data text:FILE --optimizer adamw --lr 6e-4 --lr-schedule cosine,warmup=20 --eval\n"
    "  mm train --net resnet20 --iterations 300 --switch 100:freelunch --switch 200:liveness --save state\n"
    "  mm train --net resnet20 --iterations 400 --load state --save state\n"
    "  mm train --net resnet20 --ranks 2 --threads 1\n"
    "  mpirun -n 2 mm train --net resnet20 --threads 1 --comm mpi";

static void report_of_plan(const train *t) {
    char sub_batch[48] = "";
    if (t->sub_batch > 0 && t->sub_batch < t->part)
        snprintf(sub_batch, sizeof sub_batch, " --sub-batch %lld", (long long)t->sub_batch);
    fprintf(stderr, "'mm plan --net %s --batch %lld%s' shows what each policy needs\n", t->net, (long long)t->batch,
            sub_batch);
}

/* Prints why the run failed. Once the ranks are connected, only one of them prints. */
static int failed(train *t, mm_status status) {
    const char *rank = t->ranks ? NULL : train_ranks_variable(TRAIN_RANK);
    t->told |= t->ranks && comm_lost(t->ranks);
    if (t->told) return command_status(status);
    if (t->agreed) mm_fail_prefix("rank %d", comm_rank(t->ranks));
    if (rank && strncmp(mm_last_error(), "rank ", 5) != 0) mm_fail_prefix("rank %s", rank);
    return command_failed("train", status);
}

/* Reads the command line into *t, which has the defaults. */
static mm_status read_options(train *t, int argc, char **argv) {
    const arg table[] = {
        {"--net", "NET", "network: 'mm nets' lists them (resnet32)", ARG_TEXT, &t->net, 0, 0},
        {"--data", "SPEC", "cifar10:DIR, fashion-mnist, synthetic, files:X.npy,Y.npy, text|tokens:FILE (synthetic)",
         ARG_TEXT, &t->data, 0, 0},
        {"--test-data", "SPEC", "what --eval evaluates on (the test set of --data)", ARG_TEXT, &t->test_data, 0, 0},
        {"--batch", "N", "images an iteration (128)", ARG_COUNT, &t->batch, 1, 1 << 20},
        {"--sub-batch", "N|auto",
         "compute N images at a time, add up gradients; auto: by --budget (policy's subbatch=)", ARG_TEXT,
         &t->sub_batch_text, 0, 0},
        {"--iterations", "N", "train until this many iterations are done (100; with --load as that run)", ARG_COUNT,
         &t->iterations, 1, 1e9},
        {"--epochs", "N", "... or this many passes over the data", ARG_COUNT, &t->epochs, 1, 1e6},
        {"--comm", "mpi|nccl", "how ranks communicate: mpi, or nccl: a GPU each; without --ranks: mpirun started them",
         ARG_TEXT, &t->comm, 0, 0},
        {"--engine", "mpi|nccl", "the old name of --comm, until 0.17", ARG_TEXT, &t->comm, 0, 0},
        {"--ranks", "N", "start N processes, each of which trains an N-th of every batch", ARG_COUNT, &t->ranks_wanted,
         1, 1024},
        {"--sum", "overlap|end",
         "when ranks add up gradients: overlap: during the backward pass; end: after it (overlap)", ARG_TEXT, &t->sum,
         0, 0},
        {"--sum-at", "ranks|root", "who adds up gradients: ranks: each rank a part; root: rank 0 all (ranks)", ARG_TEXT,
         &t->sum_at, 0, 0},
        RANKS_DIVIDE_ARG(&t->divide),
        TARGET_ARGS(&t->target),
        TARGET_ADAPT_ARGS(&t->target),
        TARGET_CODEC_THREADS_ARG(&t->target),
        {"--budget", "SIZE", "bytes on the device, never exceeded: 300MiB (what --policy's plan needs)", ARG_SIZE,
         &t->budget_bytes, 0, 0},
        {"--pinned", "SIZE",
         "host memory for offloaded maps; 0: none (what the plan needs, at most half of what is free; with --disk a "
         "quarter)",
         ARG_SIZE, &t->pinned_bytes, -1, 0},
        TARGET_DISK_ARG(&t->target),
        TARGET_LINK_ARG(&t->target),
        {"--policy", "POLICY[:k=v,..]", "policy: 'mm policies' lists them (liveness; with --budget auto)", ARG_TEXT,
         &t->policy, 0, 0},
        EFFORT_ARG(&t->effort),
        {"--plan", "FILE", "run the plan of a file of --save-plan, in place of a policy; proved anew", ARG_TEXT,
         &t->plan, 0, 0},
        {"--save-plan", "FILE", "write the plans that ran last: to check, and for --plan", ARG_TEXT, &t->save_plan, 0,
         0},
        {"--switch", "ITER:POLICY", "switch to POLICY after ITER iterations", ARG_TEXTS, &t->switch_texts, 0, 0},
        {"--seed", "N", "random seed of weights, shuffling, augmentation and dropout (1)", ARG_COUNT, &t->seed, 0,
         9e15},
        TARGET_OPTIMIZER_ARG(&t->target),
        TARGET_UPDATE_ARG(&t->target),
        {"--base", "FILE", "the frozen weights of --lora or --freeze, which --save leaves out (safetensors)", ARG_TEXT,
         &t->base, 0, 0},
        {"--load-matching", NULL,
         "of --load's file take the weights of equal name and shape, as for a new head; begin anew with the others",
         ARG_FLAG, &t->load_matching, 0, 0},
        {"--reset-optimizer", NULL, "take only the weights of --load's state, not its optimizer's state", ARG_FLAG,
         &t->reset_optimizer, 0, 0},
        {"--lr", "X", "learning rate (sgd 0.1, adamw 0.001)", ARG_NUMBER, &t->lr, 1e-9, 1e3},
        {"--lr-step", "ITER", "divide the learning rate by ten at ITER", ARG_TEXTS, &t->lr_texts, 0, 0},
        {"--lr-schedule", "HOW", "constant, or cosine[,warmup=N]: rises for N iterations, then falls to 0 (constant)",
         ARG_TEXT, &t->lr_schedule, 0, 0},
        {"--momentum", "X", "sgd's momentum (0.9)", ARG_NUMBER, &t->momentum, 0, 1},
        {"--weight-decay", "X", "for weights, biases and batch norms; for gpt, matrices only (sgd 0.0001, adamw 0.01)",
         ARG_NUMBER, &t->weight_decay, 0, 1},
        {"--clip-norm", "X", "scale all gradients down if their joint norm is larger; 0: never (0)", ARG_NUMBER,
         &t->clip_norm, 0, 1e30},
        {"--eval", NULL, "print test accuracy, loss (and perplexity) at the end, with --epochs after each", ARG_FLAG,
         &t->eval, 0, 0},
        {"--eval-every", "N", "... and after each N iterations", ARG_COUNT, &t->eval_every, 1, 1e9},
        {"--load", "FILE", "continue from a saved state (safetensors)", ARG_TEXT, &t->load, 0, 0},
        {"--save", "FILE", "save weights and optimizer state at the end (safetensors)", ARG_TEXT, &t->save, 0, 0},
        {"--save-every", "N", "... and after each N iterations, or epochs: 1epoch", ARG_TEXT, &t->save_every, 0, 0},
        {"--log", "FILE",
         "write a line of CSV for each iteration, and for each evaluation; with --load, go on with that run's",
         ARG_TEXT, &t->log_path, 0, 0},
        {"--codec-log", "FILE", "write a line of JSON for each iteration in which a policy samples (comet)", ARG_TEXT,
         &t->codec_log_path, 0, 0},
        {"--trace", "FILE", "write when each step and operation ran, for Perfetto", ARG_TEXT, &t->trace, 0, 0},
        {"--json", "FILE", "write the figures as an array of one row; -: to standard output", ARG_TEXT, &t->json, 0, 0},
        {"--facts", "FILE",
         "plan with times that 'mm bench --facts' measured for this network and batch, or for others: FILE,FILE",
         ARG_TEXT, &t->facts, 0, 0},
        HOST_RATES_ARG(&t->rates_text),
        {"--facts-save", "FILE", "write the times that this run measures, for --facts and 'mm plan'", ARG_TEXT,
         &t->facts_save, 0, 0},
        {"--replan", "PERCENT", "plan again if iterations take PERCENT more or less time than planned (needs --facts)",
         ARG_COUNT, &t->replan, 1, 1000},
        {"--no-measure", NULL, "do not measure the peak (measuring touches all bytes that plans use)", ARG_FLAG,
         &t->no_measure, 0, 0},
        {"--keep-going", NULL, "train on, updates included, if a loss or gradient is NaN or infinite", ARG_FLAG,
         &t->keep_going, 0, 0},
        {"--on-overflow", "undo|stop",
         "... undo: end without that iteration's update; stop: end amid it, maybe; for --update (undo)", ARG_TEXT,
         &t->on_overflow, 0, 0},
        {"--no-ladder", NULL, "if memory is short, fail; do not switch to a plan that needs less", ARG_FLAG,
         &t->no_ladder, 0, 0},
        {"--self-check", NULL, "check what each step reads and writes, and lossless copies (slow)", ARG_FLAG,
         &t->self_check, 0, 0},
        {"--verify-issued", NULL, "hold streams, events and copies, as issued, against the plan; stop at a difference",
         ARG_FLAG, &t->verify_issued, 0, 0},
        {"--issue", "auto|thread|inline",
         "who issues side streams: thread: workers; inline: training thread, can be recorded (auto)", ARG_TEXT,
         &t->issue, 0, 0},
        {"--progress", "bar|full", "full: on a terminal, also show budget, memory by kind, streams (bar)", ARG_TEXT,
         &t->progress, 0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &t->quiet, 0, 0},
        {0},
    };
    _Static_assert(sizeof table <= sizeof t->table, "train.table has room for all options");
    memcpy(t->table, table, sizeof table);
    t->argc = argc;
    t->argv = argv;
    MM_TRY(args_parse(argc, argv, t->table, "mm train [OPTIONS]", help_text, &t->help));
    return MM_OK;
}

/* Prints and saves the row of a run that succeeded, or prints why it failed. Returns the exit status. */
static int report_end(train *t, row *r, mm_status *status) {
    const bool tells = !t->ranks || comm_rank(t->ranks) == 0;
    mm_failure ended;
    mm_failure_save(&ended, *status);
    if (ended.status != MM_OK && !t->trained) {
        const int code = failed(t, *status);
        if (*status == MM_ERR_INFEASIBLE && t->budget_bytes > 0 && !t->ranks) report_of_plan(t);
        return code;
    }
    row_end(r, t->stopped);
    *status = tells ? row_print(json_file_beside(t->json), r) : MM_OK;
    if (*status == MM_OK && t->json) *status = rows_save(t->json, r, 1);
    if (t->stopped && tells && r->iterations > 0 && r->diverged_iteration == 0) train_say_interrupted(t);
    if (ended.status != MM_OK) *status = mm_failure_restore(&ended);
    if (*status != MM_OK) return failed(t, *status);
    if (r->diverged_iteration > 0 && !t->keep_going) return EXIT_FAILED;
    return t->stopped ? EXIT_INTERRUPTED : EXIT_OK;
}

/* Frees all but the ranks. Call it when nothing more is printed: rows and messages point to t->texts and to the state's
 * options. */
static void release(train *t) {
    if (t->log) fclose(t->log);
    if (t->codec_log) fclose(t->codec_log);
    target_fini(&t->target);
    facts_source_close(&t->source);
    host_rates_close(&t->rates);
    nets_net_destroy(t->network);
    session_state_close(t->state);
    session_state_close(t->base_file);
    free(t->data_path);
    free(t->base_path);
    free(t->net_path);
    args_texts_fini(&t->lr_texts);
    args_texts_fini(&t->switch_texts);
    texts_fini(&t->texts);
}

int cmd_train(int argc, char **argv) {
    train t = {.net = "resnet32",
               .data = "synthetic",
               .target = TARGET_DEFAULTS,
               .policy = "",
               .issue = "auto",
               .sum = "overlap",
               .sum_at = "ranks",
               .divide = "none",
               .on_overflow = "undo",
               .base = "",
               .progress = "bar",
               .batch = 128,
               .pinned_bytes = PINNED_OPEN,
               .effort = EFFORT_OPEN,
               .seed = 1,
               .lr_schedule = "",
               .momentum = -1,
               .weight_decay = -1,
               .clip_norm = -1};
    row r = {0};
    session s = {0};
    mm_status status = read_options(&t, argc, argv);
    if (status == MM_OK && t.help) return EXIT_OK;
    int code = -1;
    if (status == MM_OK) {
        t.interrupted = t.target.stop = command_interruptible();
        status = train_ranks_begin(&t, &code);
    }
    if (status != MM_OK || code < 0) {
        if (status == MM_OK) status = train_open_state(&t);
        if (status == MM_OK)
            status = run_train(&t, &s, &r);
        else if (t.ranks)
            status = train_ranks_agree(&t, NULL, status, &t.stopped);
        code = report_end(&t, &r, &status);
    }
    release(&t);
    return train_ranks_end(&t, status, code);
}
