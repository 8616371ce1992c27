/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "tools/args/commands.h"
#include "tools/args/files.h"
#include "tools/args/json_file.h"
#include "tools/compare/bench.h"
#include "tools/compare/bench_grid.h"
#include "tools/need/effort.h"
#include "tools/need/sub_batch.h"
#include "tools/need/update_when.h"

static mm_status print_all(const bench *b) {
    grid *grids;
    int n;
    MM_TRY(rows_print(b->out, b->rows, b->n_rows));
    MM_TRY(grids_make(b->rows, b->n_rows, &grids, &n));
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < n; i++) status = grid_print(b->out, &grids[i]);
    if (status == MM_OK && n == 0) status = grid_print_orders(b->out, b->rows, b->n_rows);
    if (status == MM_OK) status = rows_print_error(b->out, b->rows, b->n_rows);
    if (status == MM_OK) rows_print_idle(b->out, b->rows, b->n_rows);
    if (status == MM_OK) rows_print_offers(b->out, b->rows, b->n_rows);
    if (status == MM_OK) status = b->svg && n > 0 ? grids_save_picture(b->svg, grids, n) : MM_OK;
    free(grids);
    return status;
}

/* Parses N of "codec/N": the link gets an N-th of the codec's speed, which is measured here. */
static mm_status read_part_of_codec(const bench *b, const char *divisor, int64_t *bytes_per_s_out) {
    char *end, codec_size[32], link_size[32];
    int64_t speed;
    double part = strtod(divisor, &end);
    if (end == divisor || *end || !(part >= 0.001 && part <= 1e6))
        return mm_fail(MM_ERR_INVALID, "--link %s: must be a size, or codec/N with N from 0.001 to 1e6", b->link);
    MM_TRY(bench_codec_speed(b, &speed));
    *bytes_per_s_out = (int64_t)((double)speed / part) > 0 ? (int64_t)((double)speed / part) : 1;
    fprintf(b->out, "link: %s/s: the codec's speed, %s/s, divided by %g\n",
            mm_size_format(*bytes_per_s_out, link_size, sizeof link_size),
            mm_size_format(speed, codec_size, sizeof codec_size), part);
    return MM_OK;
}

static mm_status read_link(bench *b) {
    static const char codec[] = "codec/";
    int64_t bytes_per_s = 0;
    if (!b->link) return MM_OK;
    MM_TRY(target_allows_link(&b->target));
    if (strncmp(b->link, codec, strlen(codec)) == 0)
        MM_TRY(read_part_of_codec(b, b->link + strlen(codec), &bytes_per_s));
    else if (mm_size_parse(b->link, &bytes_per_s) != MM_OK)
        return mm_fail_in(MM_ERR_INVALID, "--link");
    else if (bytes_per_s < TARGET_LINK_LEAST)
        return mm_fail(MM_ERR_INVALID, "--link %s: must be at least %d bytes", b->link, TARGET_LINK_LEAST);
    target_set_link(&b->target, bytes_per_s);
    return MM_OK;
}

static mm_status check_subject(const bench *b, const facts_source *source) {
    if (source->is_machine) return MM_OK;
    target_log_threads(&b->target, source->path, source->threads);
    if (b->ranks_list)
        return mm_fail(MM_ERR_INVALID,
                       "--simulate %s: has the facts of one device and its batch; --ranks needs a machine's "
                       "rates",
                       source->path);
    if (b->net_list || b->batch_list)
        return mm_fail(MM_ERR_INVALID,
                       "--simulate %s: has the facts of one network and batch; --net and --batch need a machine's "
                       "rates",
                       source->path);
    if (!source->net[0])
        return mm_fail(MM_ERR_FORMAT, "facts file %s does not name its network and batch", source->path);
    for (int i = 0; i < b->policies.n; i++) {
        int64_t n;
        MM_TRY(bench_sub_batch(b, b->policies.text[i], source->batch, &n));
        if (n > 0) MM_TRY(sub_batch_check_facts("--simulate", source, source->batch, n));
    }
    return bench_check_sub_batches(b, source->batch);
}

/* Sets *of_lists if the file has a machine's rates, which can be used with all listed networks and batches. */
static mm_status check_source(const bench *b, const char *path, bool *of_lists) {
    facts_source source;
    MM_TRY(bench_open_source(b, path, &source));
    *of_lists |= source.is_machine;
    mm_status status = check_subject(b, &source);
    if (status == MM_OK) status = facts_source_study(&source, b->study);
    facts_source_close(&source);
    return status;
}

static mm_status check_sources(const bench *b) {
    bool of_lists = b->sources.n == 0;
    if (b->sources.n > 0 && (b->predict || b->link || b->alloc_cost_us > 0))
        return mm_fail(MM_ERR_INVALID, "--simulate runs nothing: it cannot go with --predict, --link or --alloc-cost");
    if (b->trace && (b->sources.n > 0 || b->predict))
        return mm_fail(MM_ERR_INVALID,
                       "--trace: records runs, and cannot go with --simulate or --predict; 'mm plan --facts "
                       "F --trace' writes predicted iterations");
    if (b->ranks_list && b->sources.n == 0)
        return mm_fail(MM_ERR_INVALID, "--ranks: goes with --simulate only; to train, use 'mm train --ranks'");
    if (b->study && b->sources.n == 0) return mm_fail(MM_ERR_INVALID, "--study: goes with --simulate only");
    MM_TRY(bench_check_ranks(b));
    for (int i = 0; i < b->sources.n; i++) MM_TRY(check_source(b, b->sources.text[i], &of_lists));
    return of_lists ? bench_check_sub_batches(b, 0) : MM_OK;
}

static bool are_several(const arg_texts *texts) {
    const char *first = texts->text[0];
    return texts->n > 1 || strncmp(first, "sweep", 5) == 0 || strcmp(first, "plans") == 0;
}

/* --svg draws throughput over budgets or batches, so there must be several, or several sources. */
static mm_status check_picture(const bench *b) {
    if (!are_several(&b->budgets) && !are_several(&b->batches) && b->sources.n < 2)
        return mm_fail(MM_ERR_INVALID,
                       "--svg %s: throughput is drawn over several --budgets, or over several --batch; give "
                       "several",
                       b->svg);
    return MM_OK;
}

static mm_status check_files(const bench *b) {
    data_files data;
    files_data(b->data, &data);
    named_file files[7 + 2 * ARG_TEXTS_MAX] = {
        {"--json", b->json, FILE_WRITTEN},   {"--svg", b->svg, FILE_WRITTEN},
        {"--facts", b->facts, FILE_WRITTEN}, {"--algorithms", b->target.algorithms, FILE_KEPT},
        {"--data", data.images, FILE_READ},  {"--data", data.labels, FILE_READ},
        {"--trace", b->trace, FILE_WRITTEN}, {"--kernels", b->kernels, FILE_WRITTEN}};
    int n = 8;
    if (b->svg) MM_TRY(check_picture(b));
    for (int i = 0; !b->gpu_list && i < b->sources.n; i++)
        files[n++] = (named_file){"--simulate", b->sources.text[i], FILE_READ};
    for (int i = 0; i < b->nets.n; i++) files[n++] = (named_file){"--net", files_net(b->nets.text[i]), FILE_READ};
    return files_check(files, n);
}

/* Runs keep going, so nothing is undone. Batches of a sweep are computed whole. */
static mm_status read_update(bench *b) {
    update_runs runs = {.command = "bench"};
    bool has_budget = false;
    for (int i = 0; i < b->budgets.n; i++) has_budget |= strcmp(b->budgets.text[i], "own") != 0;
    for (int i = 0; i < b->ranks.count; i++) runs.ranks |= b->ranks.n[i] > 1;
    for (int i = 0; i < b->batches.n; i++)
        for (int p = 0; p < b->policies.n; p++) {
            const int64_t batch = strtoll(b->batches.text[i], NULL, 10);
            MM_TRY(update_runs_add(&runs, batch > 0 ? b->sub_batch : "", b->policies.text[p], batch,
                                   b->facts || b->predict, has_budget));
        }
    return update_when_read(&b->target, &runs);
}

static mm_status prepare(bench *b) {
    if (b->gpu_list && b->simulate_list)
        return mm_fail(MM_ERR_INVALID, "--gpu and --simulate: give one of them; --simulate takes names of GPUs, too");
    if (b->gpu_list) b->simulate_list = b->gpu_list;
    MM_TRY(bench_read_lists(b));
    MM_TRY(ranks_read(b->ranks_list, b->sum, b->sum_at, b->divide, &b->ranks));
    if (b->facts && b->ranks_list)
        return mm_fail(MM_ERR_INVALID, "--facts: facts are of one device; it cannot go with --ranks");
    if ((b->facts || b->predict) && target_may_unfuse(&b->target)) b->target.fuse = "on"; /* facts are of one graph */
    MM_TRY(target_init(&b->target));
    target_log_lossy(&b->target);
    MM_TRY(bench_check_codecs(b));
    if (!b->simulate_list) MM_TRY(target_probe(&b->target));
    MM_TRY(target_issue(&b->target, b->issue_text, &b->issue));
    MM_TRY(check_sources(b));
    MM_TRY(read_update(b));
    if (b->kernels && (b->simulate_list || b->predict))
        return mm_fail(MM_ERR_INVALID, "--kernels: is of runs; it cannot go with --simulate or --predict");
    if (b->facts &&
        (b->nets.n > 1 || b->batches.n > 1 || b->sources.n > 1 || strncmp(b->batches.text[0], "sweep", 5) == 0))
        return mm_fail(MM_ERR_INVALID, "--facts: facts are of one network and one batch; give one of each");
    MM_TRY(check_files(b));
    return read_link(b);
}

static const char help_text[] =
    "Runs every combination of networks, batches, policies and budgets for some iterations, and prints one table. For\n"
    "several budgets or batches it also prints each policy's throughput over them (-: does not fit), which --svg "
    "draws.\n"
    "A policy that does not fit a budget gets a row that says what it needs. Ctrl-C ends it with the rows so far.\n"
    "\n"
    "--budgets takes sizes, 'own' (what the policy's plan needs), 'plans' (what each listed policy's plan needs, one\n"
    "after the other) and 'sweep[:N]' (N sizes from the least that any of them needs to what liveness needs). --batch\n"
    "takes numbers and 'sweep[:N]' (N numbers up to the largest batch that any policy fits into the one budget given,\n"
    "and the largest of each policy).\n"
    "\n"
    "--sub-batch computes N images of a batch at a time, and adds up gradients; auto: as many as fit each budget.\n"
    "Without it, a policy's own subbatch= counts. img/s count whole updates. With auto, 'plans' are those of whole\n"
    "batches, and a sweep begins at what single images need. --facts and --predict take whole batches only.\n"
    "\n"
    "--simulate needs no device and no data: the simulator predicts times from facts that 'mm bench --facts' measured\n"
    "(for one network and batch; several files may be given), or from a machine's rates, such as\n"
    "tools/facts/titanx.json (for any network and batch). --gpu takes names of GPUs instead, whose rates are\n"
    "estimated from data sheet and assumptions; 'mm gpus' lists them.\n"
    "\n"
    "--ranks N,M, with a machine's rates: N devices each train an N-th of the batch, and add up gradients. These are\n"
    "copied to pinned memory and back beside the backward pass (--sum end: after it), over a link that the machine's\n"
    "link_sharers share, and added up at its host_sum_bytes_per_s. Each device has the budget; img/s are of all.\n"
    "\n"
    "--facts also runs liveness with the algorithms of steps that are not the fastest, so that all have times. Except\n"
    "on device host it measures how much steps, the first listed codec that allows it, and copies slow each other.\n"
    "\n"
    "--predict measures facts of each network and batch under liveness, recompute:mode=sqrt,when=always,\n"
    "vdnn-all:when=always, and freelunch:codec=C,eligible=all,when=always for every codec of elements that a listed\n"
    "policy has. With them it simulates each listed policy's step, and compares that with the measured step. Facts\n"
    "are measured in four rounds, and all listed policies in a pass after each round but the last; the median of the\n"
    "rounds' predictions is compared with the median of the passes. Nothing is scaled. A policy with the same plan as\n"
    "a run that gave facts is marked (own), and left out of the error's summary.\n"
    "\n"
    "If the output is not a terminal, each row is also printed once it is known; with --predict, once its network and\n"
    "batch are done.\n"
    "\n"
    "Columns:\n"
    "  batch                 images of an update; 128/32: 32 of them at a time; 4x64: 4 ranks train 64 each\n"
    "  predicted, touched    peak bytes on the device: by the plan, and as measured (touched)\n"
    "  outside               bytes that libraries took outside the arena\n"
    "  stash                 bytes held from the forward to the backward pass\n"
    "  pinned                host memory for swapped maps\n"
    "  img/s                 images a second, by the median iteration\n"
    "  hidden                share of the codecs' time during which computation did not wait for them\n"
    "  ratio                 bytes of the maps that were encoded, over bytes of their codes\n"
    "  host                  on cuda: time in which the training thread issues an iteration, without waits; in all, "
    "and\n"
    "                        per layer (forward and backward); whether it is replayed, or issued step by step\n"
    "  loss                  of the first iteration and of the last\n"
    "  simulated             the predicted step, and its error\n"
    "\n"
    "--kernels writes an array with an element for each run. On the host it also prints a table: of each operation\n"
    "and phase the time of its steps in an iteration, their rates, the least time at the rates of 'host' (flops_per_s\n"
    "of a large product, bytes_per_s of a copy or sum, both measured by the command), and what is lost to it; then\n"
    "JSON has operations, and steps with layer and again (it ran once more). Operations count as in a machine file: a\n"
    "multiply-add is two, a convolution counts as a direct one. beside_ns is of codecs and copies.\n"
    "On cuda: kernels (of an iteration that is issued step by step): name, layer, phase, stream, begin_ns, ns, gap_ns\n"
    "(since the stream's last), bytes (what the step reads and writes by the plan, divided by time; null on other\n"
    "streams than the computation's) and gb_per_s. replayed (of the next iteration): kernels (their number),\n"
    "kernels_ns (their sum), busy_ns, span_ns, idle_ns (no kernel ran). It needs CUPTI; without it, a line says so.\n"
    "\n"
    "Keys of --json, in each row (null: not known, or not there):\n"
    "  net, batch, ranks, sub_batch, device, precision, fuse, codec   sub_batch: images computed at a time;\n"
    "                               fuse: on or off, also where --fuse auto chose\n"
    "  threads                      that device host computed on; 0: another device\n"
    "  policy, policy_effective, ladder_steps   as asked for; the substitute at the end, after so many changes\n"
    "  replans                      new plans of train --replan; else 0\n"
    "  lossy                        true: the row's plan changes values; if it did not run, it can; tables say "
    "(lossy)\n"
    "  idle, would                  why the policy acts on no map in this row, and what would; null: it acts, or it\n"
    "                               keeps all maps by design\n"
    "  same_plan_as                 the policy of an earlier row of this network, batch and budget that has the same\n"
    "                               plan: their speeds differ by noise alone; null: none\n"
    "  offer                        --simulate, auto: the policy in sub-batches that would be 1.1 times as fast, or\n"
    "                               alone fit, with images_per_second, times and what differs (rounding, statistics)\n"
    "  status                       ok; diverged (a loss was NaN or infinite, in the row null); or why it did not run\n"
    "  budget_bytes, minimum_bytes  the budget, and the least in which the policy runs\n"
    "  predicted_peak_bytes, peak_bytes   by the plan, and touched\n"
    "  staged_bytes                 room for the next batch in the plan, on cuda\n"
    "  outside_bytes, stash_bytes, pinned_bytes   as in the table\n"
    "  host_peak_bytes              the most memory that this process had resident while the row was made, planning\n"
    "                               and data included; null where the system does not count it by row\n"
    "                               (/proc/self/clear_refs) and an earlier row had more\n"
    "  host_planned_bytes           the part that plans explain: pinned_bytes, and on device host the planned peak\n"
    "  host_other_bytes             the rest: the program, its libraries and what they allocate, data\n"
    "  workspace_limit_bytes        --workspace; 0: not given\n"
    "  images_per_second, iteration_seconds_median, iteration_seconds_p95\n"
    "  iteration_seconds_predicted, simulator_error   the simulator's, and its error as a share\n"
    "  bound_seconds                of simulated rows: no plan of this sub_batch, budget and codecs takes less\n"
    "  simulated                    true: nothing ran, images_per_second is the simulator's\n"
    "  calibrated                   true: facts were measured with the same plan\n"
    "  encoded_bytes, coded_bytes, spilled_bytes   in an iteration: of encoded maps, of their codes, and of codes of\n"
    "                               variable size in pinned memory\n"
    "  codec_hidden_share, codec_busy_seconds, compute_busy_seconds   hidden, and busy times of streams in an "
    "iteration\n"
    "  step_ratio                   to the step under liveness, if the table has that\n"
    "  compute_ratio                the same of the computation beside codecs and copies, on cuda\n"
    "  host_seconds                 in which the training thread issues an iteration with a copied batch, without\n"
    "                               waits; median. On device host it shares its cores with the computation\n"
    "  host_seconds_per_layer       the same divided by the network's layers, each forward and backward\n"
    "  iterations, replays          their number, and that of recorded ones enqueued as a whole, on cuda\n"
    "  loss_first, loss_last, test_accuracy, test_loss\n"
    "  tokens_per_second            of networks of tokens; else null\n"
    "  moved_bytes, steps_again     bytes over the link, and steps that run again, in an iteration by its plan\n"
    "\n"
    "  mm bench --net resnet32 --policies naive,liveness,freelunch:rate=4 --budgets plans\n"
    "  mm bench --net resnet20 --batch 32 --policies all --budgets sweep --svg throughput.svg\n"
    "  mm bench --simulate tools/facts/titanx.json --net vgg16 --batch sweep --budgets 12GiB --policies all\n"
    "  mm bench --gpu v100-16,a100-40 --net resnet50 --batch 64 --policies liveness,recompute-swap --budgets plans";

int cmd_bench(int argc, char **argv) {
    bench b = {.policy_list = "naive,liveness,freelunch",
               .budget_list = "own",
               .data = "synthetic",
               .target = TARGET_DEFAULTS,
               .issue_text = "auto",
               .iterations = 10,
               .pinned_bytes = PINNED_OPEN,
               .effort = EFFORT_OPEN,
               .seed = 1};
    const arg table[] = {
        {"--net", "NET,..", "networks (resnet32)", ARG_TEXT, &b.net_list, 0, 0},
        {"--batch", "N,M", "batch sizes, or sweep[:N] (128)", ARG_TEXT, &b.batch_list, 0, 0},
        {"--sub-batch", "N|auto", "compute N images at a time; auto: as many as fit the budget (policy's subbatch=)",
         ARG_TEXT, &b.sub_batch, 0, 0},
        RANKS_ARGS(&b.ranks_list, &b.sum, &b.sum_at, &b.divide),
        {"--policies", "POLICY,..", "policies with their options, all, or peers (naive,liveness,freelunch)", ARG_TEXT,
         &b.policy_list, 0, 0},
        EFFORT_ARG(&b.effort),
        {"--budgets", "X,Y", "budgets: 300MiB, own, plans, sweep[:N] (own)", ARG_TEXT, &b.budget_list, 0, 0},
        {"--iterations", "N", "iterations of each run (10)", ARG_COUNT, &b.iterations, 1, 1e9},
        {"--data", "SPEC", "cifar10:DIR, fashion-mnist[:DIR], synthetic[:samples=N], files:X.npy,Y.npy (synthetic)",
         ARG_TEXT, &b.data, 0, 0},
        TARGET_ARGS(&b.target),
        TARGET_ADAPT_ARGS(&b.target),
        TARGET_CODEC_THREADS_ARG(&b.target),
        TARGET_OPTIMIZER_ARG(&b.target),
        TARGET_UPDATE_ARG(&b.target),
        TARGET_DISK_ARG(&b.target),
        {"--same-batches", NULL, "repeat the first batches, so that a GPU never waits for data", ARG_FLAG,
         &b.same_batches, 0, 0},
        {"--seed", "N", "of weights and data (1)", ARG_COUNT, &b.seed, 0, 9e15},
        {"--pinned", "SIZE",
         "host memory for offloaded maps; 0: none (what the plan needs, at most half of what is free; with --disk a "
         "quarter)",
         ARG_SIZE, &b.pinned_bytes, -1, 0},
        {"--link", "SIZE", "bytes a second to host memory: 12GB, or codec/10: a tenth of the codec's speed (memcpy's)",
         ARG_TEXT, &b.link, 0, 0},
        {"--alloc-cost", "US", "cost of an unplanned allocation, in microseconds; on a GPU 200 (0)", ARG_COUNT,
         &b.alloc_cost_us, 0, 1e6},
        {"--issue", "auto|thread|inline",
         "how side streams are issued: by threads, or inline, which can be recorded (auto)", ARG_TEXT, &b.issue_text, 0,
         0},
        {"--equal-streams", NULL,
         "give codecs and copies the priority of the computation, which otherwise goes first (cuda)", ARG_FLAG,
         &b.equal_streams, 0, 0},
        {"--simulate", "FILE,...", "run nothing: times from facts, or from a machine's rates", ARG_TEXT,
         &b.simulate_list, 0, 0},
        {"--gpu", "GPU,..", "the same for GPUs by name: times " GPU_ESTIMATED " ('mm gpus')", ARG_TEXT, &b.gpu_list, 0,
         0},
        HOST_RATES_ARG(&b.rates),
        {"--study", "FILE[,LAYOUT]", "for --simulate: sizes of codes of variable size, from 'mm codecs --study'",
         ARG_TEXT, &b.study, 0, 0},
        {"--predict", NULL, "measure the simulator's error", ARG_FLAG, &b.predict, 0, 0},
        {"--facts", "FILE", "write the times of steps, codecs and link in these runs, for 'mm plan --facts'", ARG_TEXT,
         &b.facts, 0, 0},
        {"--json", "FILE", "the rows as an array; -: to standard output", ARG_TEXT, &b.json, 0, 0},
        {"--no-ladder", NULL, "if memory is short, fail: do not substitute a plan that needs less", ARG_FLAG,
         &b.no_ladder, 0, 0},
        {"--svg", "FILE", "a picture of throughput over budget and over batch", ARG_TEXT, &b.svg, 0, 0},
        {"--trace", "FILE", "when each step and operation of each run ran, for Perfetto", ARG_TEXT, &b.trace, 0, 0},
        {"--kernels", "FILE", "the steps of each run beside what the host can, or its kernels, from CUPTI (cuda)",
         ARG_TEXT, &b.kernels, 0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &b.quiet, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm bench [OPTIONS]", help_text, &b.help);
    if (status != MM_OK) return command_failed("bench", status);
    if (b.help) return EXIT_OK;
    b.interrupted = b.target.stop = command_interruptible();
    b.out = json_file_beside(b.json);
    status = prepare(&b);
    if (status == MM_OK) {
        status = bench_run(&b);
        mm_status saved = bench_save_rows(&b), printed = print_all(&b);
        if (status == MM_OK) status = saved != MM_OK ? saved : printed;
        if (b.trace) {
            mm_status traced = traces_save(&b.traces, "bench", b.trace);
            if (status == MM_OK) status = traced;
        }
        if (b.kernel_rows && b.kernels) {
            mm_status kept = json_file_save(b.kernels, b.kernel_rows);
            b.kernel_rows = NULL;
            if (status == MM_OK) status = kept;
        }
    }
    target_fini(&b.target);
    bench_free_lists(&b);
    int code = b.failed ? EXIT_FAILED : *b.interrupted ? EXIT_INTERRUPTED : EXIT_OK;
    if (status != MM_OK) code = command_failed("bench", status);
    traces_fini(&b.traces);
    json_decref(b.kernel_rows);
    free(b.rows);
    texts_fini(&b.texts);
    return code;
}
