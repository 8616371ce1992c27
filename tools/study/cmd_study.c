/* SPDX-License-Identifier: MIT */
/* mm codecs --study: measures how sparse a network's maps are as it trains, and how small codecs make them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/graph/graph.h"
#include "nets/io/net_file.h"
#include "tools/args/args.h"
#include "tools/args/commands.h"
#include "tools/args/files.h"
#include "tools/args/json_file.h"
#include "tools/args/progress.h"
#include "tools/args/table.h"
#include "tools/study/study.h"
#include "tools/study/study_draw.h"
#include "tools/train/session.h"

typedef struct study {
    const char *net_name, *data, *iteration_list, *schedule, *json;
    int64_t batch, seed, windows;
    double rate, zeros; /* zeros: share of zeros in drawn maps; negative: the network trains */
    bool study, help, quiet;
    target target; /* device host */
    const volatile sig_atomic_t *interrupted;
    int64_t iterations[ARG_TEXTS_MAX]; /* ascending, from 1 */
    int n_iterations;
    nets_net *net;
    const nets_lowered *lowered;
    study_sizes *sizes; /* per layer: its output, if that is kept for the backward pass */
    bool *seen;         /* per layer: `sizes` is set */
    json_t *rows;
} study;

/* ---------------------------------------------------------------- maps */

static bool is_float(mm_dtype type) { return type == MM_F32 || type == MM_F16 || type == MM_BF16; }

/* Whether the step's output is a map that vDNN would offload: written in the forward pass, read in the backward. */
static bool is_kept(const nets_lowered *lowered, const nets_step *step) {
    const mm_tensor y = step->tensors[NETS_Y];
    if (step->phase != MM_FORWARD || step->layer < 0 || y < 0) return false;
    const mm_tensor_info *info = mm_graph_tensor(lowered->graph, y);
    const mm_step_info *in = mm_graph_step(lowered->graph, (int)(step - lowered->steps));
    for (int p = 0; p < in->n_pairs; p++)
        if (in->pairs[p].alias && in->pairs[p].output == y) return false;
    return info->kind == MM_FEATURE_MAP && info->ownership == MM_MANAGED && is_float(info->dtype) &&
           info->writes == 1 && info->last_forward >= 0 && info->first_backward > info->last_forward;
}

/* n, h, w, c of a tensor; a missing height or width is 1. */
static void map_dims(const mm_tensor_info *info, int64_t dims_out[4]) {
    const int64_t inner = info->rank > 1 ? info->dims[info->rank - 1] : 1;
    const int64_t width = info->rank > 3 ? info->dims[2] : 1;
    const int64_t all = info->bytes / (int64_t)mm_dtype_bytes(info->dtype);
    dims_out[0] = info->dims[0];
    dims_out[1] = all / info->dims[0] / inner / width;
    dims_out[2] = width;
    dims_out[3] = inner;
}

static void measure(study *s, const nets_step *step, const void *map) {
    const mm_tensor_info *info = mm_graph_tensor(s->lowered->graph, step->tensors[NETS_Y]);
    int64_t dims[4];
    map_dims(info, dims);
    study_measure(map, info->dtype, dims, s->windows, &s->sizes[step->layer]);
    s->seen[step->layer] = true;
}

/* A nets_watch_fn. */
static mm_status see(void *ctx, mm_manager *manager, const nets_step *step) {
    study *s = ctx;
    if (is_kept(s->lowered, step)) measure(s, step, mm_tensor_data(manager, step->tensors[NETS_Y]));
    return MM_OK;
}

/* ---------------------------------------------------------------- figures */

/* Returns the sum over maps; code_bytes are extrapolated from the encoded windows to all elements. largest_out: the
 * largest ratio of a map. */
static study_sizes sum_up(const study *s, double largest_out[STUDY_CODECS][STUDY_LAYOUTS]) {
    study_sizes sum = {0};
    memset(largest_out, 0, sizeof(double) * STUDY_CODECS * STUDY_LAYOUTS);
    for (int i = 0; i < nets_net_layers(s->net); i++) {
        if (!s->seen[i]) continue;
        sum.elems += s->sizes[i].elems;
        sum.window_elems += s->sizes[i].elems;
        sum.nonzeros += s->sizes[i].nonzeros;
        sum.elem_bytes = s->sizes[i].elem_bytes;
        for (int c = 0; c < STUDY_CODECS; c++)
            for (int l = 0; l < STUDY_LAYOUTS; l++) {
                const double ratio = study_ratio(&s->sizes[i], (study_codec)c, (study_layout)l);
                sum.code_bytes[c][l] += (int64_t)(sum.elem_bytes * (double)s->sizes[i].elems / ratio);
                if (ratio > largest_out[c][l]) largest_out[c][l] = ratio;
            }
    }
    return sum;
}

static json_t *ratios_json(const study_sizes *sizes, double (*largest)[STUDY_LAYOUTS]) {
    json_t *all = json_object();
    for (int c = 0; c < STUDY_CODECS; c++) {
        json_t *of = json_object();
        for (int l = 0; l < STUDY_LAYOUTS; l++)
            json_object_set_new(
                of, study_layout_names[l],
                json_real(largest ? largest[c][l] : study_ratio(sizes, (study_codec)c, (study_layout)l)));
        json_object_set_new(all, study_codec_names[c], of);
    }
    return all;
}

/* layer -1: a row of all maps, for which `largest` has each codec's and layout's largest ratio. */
static mm_status add_json(const study *s, int64_t iteration, double loss, int layer, const study_sizes *sizes,
                          double (*largest)[STUDY_LAYOUTS]) {
    const nets_layer *l = layer < 0 ? NULL : nets_net_layer(s->net, layer);
    json_t *row = json_pack(
        "{ss so sI sI so so so sI sf so so}", "net", s->net_name, "data",
        s->zeros >= 0 ? json_null() : json_string(s->data), "batch", (json_int_t)s->batch, "iteration",
        (json_int_t)iteration, "loss", s->zeros >= 0 ? json_null() : json_real(loss), "layer",
        l ? json_string(l->name) : json_null(), "kind", l ? json_string(nets_op_name(l->op)) : json_null(), "map_bytes",
        (json_int_t)(sizes->elem_bytes * sizes->elems), "density", (double)sizes->nonzeros / (double)sizes->elems,
        "ratio", ratios_json(sizes, NULL), "largest_ratio", largest ? ratios_json(sizes, largest) : json_null());
    if (!row || json_array_append_new(s->rows, row) != 0)
        return mm_fail(MM_ERR_NOMEM, "out of memory for the rows, or the loss is not finite");
    return MM_OK;
}

static void add_row(table *t, const char *name, const char *kind, const study_sizes *sizes,
                    double (*largest)[STUDY_LAYOUTS]) {
    char size[32];
    const study_layout all[] = {STUDY_NCHW, STUDY_NHWC, STUDY_CHWN};
    table_row(t);
    table_cell(t, "%s", name);
    table_cell(t, "%s", kind);
    if (largest) {
        table_cell(t, "-");
        table_cell(t, "-");
    } else {
        snprintf(size, sizeof size, "%.4g", sizes->elem_bytes * (double)sizes->elems / (1 << 20));
        table_cell(t, "%s", size);
        table_cell(t, "%.3f", (double)sizes->nonzeros / (double)sizes->elems);
    }
    for (int c = 0; c < STUDY_CODECS; c++)
        for (int l = 0; l < (c == STUDY_RLE || c == STUDY_DEFLATE ? STUDY_LAYOUTS : 1); l++)
            table_cell(t, "%.2f", largest ? largest[c][all[l]] : study_ratio(sizes, (study_codec)c, all[l]));
}

static mm_status print(const study *s, int64_t iteration, double loss) {
    static const table_column columns[] = {{"map of", true, 0},   {"kind", true, 1},  {"MiB", false, 2},
                                           {"density", false, 0}, {"zvc", false, 0},  {"rle nchw", false, 0},
                                           {"nhwc", false, 0},    {"chwn", false, 0}, {"deflate nchw", false, 0},
                                           {"nhwc", false, 0},    {"chwn", false, 0}, {"csr", false, 0},
                                           {"exponent", false, 0}};
    FILE *file = json_file_beside(s->json);
    double largest[STUDY_CODECS][STUDY_LAYOUTS];
    const study_sizes sum = sum_up(s, largest);
    table *t;
    MM_TRY(table_create(columns, sizeof columns / sizeof *columns, TABLE_DROPPING, &t));
    if (s->zeros >= 0)
        fprintf(file, "%s, batch %lld, drawn maps\n", s->net_name, (long long)s->batch);
    else
        fprintf(file, "%s, batch %lld, %s: iteration %lld, loss %.4f\n", s->net_name, (long long)s->batch, s->data,
                (long long)iteration, loss);
    for (int i = 0; i < nets_net_layers(s->net); i++)
        if (s->seen[i])
            add_row(t, nets_net_layer(s->net, i)->name, nets_op_name(nets_net_layer(s->net, i)->op), &s->sizes[i],
                    NULL);
    add_row(t, "all, by bytes", "", &sum, NULL);
    add_row(t, "largest", "", &sum, largest);
    mm_status status = table_print(file, t);
    table_destroy(t);
    MM_TRY(status);
    fprintf(file, "offloaded, of the maps' bytes:");
    for (int c = 0; c < STUDY_CODECS; c++)
        fprintf(file, "%s %s %.3f", c ? "," : "", study_codec_names[c],
                1 / study_ratio(&sum, (study_codec)c, STUDY_NCHW));
    fprintf(file, " (nchw)\n\n");
    fflush(file);
    for (int i = 0; i < nets_net_layers(s->net); i++)
        if (s->seen[i]) MM_TRY(add_json(s, iteration, loss, i, &s->sizes[i], NULL));
    return add_json(s, iteration, loss, -1, &sum, largest);
}

/* ---------------------------------------------------------------- in training */

/* Trains, and measures the maps of each listed iteration. */
static mm_status train(study *s, session *in) {
    session_run run = {.quiet = s->quiet, .schedule = {.rate = (float)s->rate, .factor = 1}};
    run.schedule.iterations = s->iterations[s->n_iterations - 1];
    MM_TRY(nets_schedule_parse(s->schedule, &run.schedule));
    MM_TRY(nets_schedule_check(&run.schedule));
    for (int i = 0; i < s->n_iterations; i++) {
        row r = {0};
        run.iterations = s->iterations[i] - 1;
        if (run.iterations > in->iteration) MM_TRY(session_train(in, &run, &r));
        nets_exec_watch(in->train, see, s);
        run.iterations++;
        mm_status status = in->iteration < run.iterations - 1 ? MM_OK : session_train(in, &run, &r);
        nets_exec_watch(in->train, NULL, NULL);
        MM_TRY(status);
        if (session_is_stopped(in)) return MM_OK;
        if (session_diverged(in))
            return mm_fail(MM_ERR_UNSUPPORTED, "net %s: the loss or a gradient of iteration %lld is not finite",
                           s->net_name, (long long)in->diverged_iteration);
        MM_TRY(print(s, s->iterations[i], r.loss_last));
    }
    return MM_OK;
}

static mm_status study_trained(study *s) {
    session in;
    MM_TRY(target_init(&s->target));
    const session_config config = {.net = s->net,
                                   .data = s->data,
                                   .batch = s->batch,
                                   .target = s->target,
                                   .policies = {.n = 1, .text = {"liveness"}},
                                   .seed = (uint64_t)s->seed,
                                   .issue = MM_ISSUE_INLINE,
                                   .stop = s->interrupted};
    mm_status status = session_init(&in, &config);
    if (session_stopped_early(&in, status)) return MM_OK;
    MM_TRY(status);
    s->lowered = nets_exec_lowered(in.train);
    status = train(s, &in);
    session_fini(&in);
    return status;
}

/* ---------------------------------------------------------------- drawn maps */

static mm_status draw_all(study *s, const double *zeros) {
    mm_status status = MM_OK;
    progress p;
    progress_begin(&p, "mm codecs: drawing", 0, s->lowered->n_steps, s->quiet);
    for (int i = 0; status == MM_OK && i < s->lowered->n_steps; i++) {
        const nets_step *step = &s->lowered->steps[i];
        if (!is_kept(s->lowered, step)) continue;
        const mm_tensor_info *info = mm_graph_tensor(s->lowered->graph, step->tensors[NETS_Y]);
        int64_t dims[4];
        float *map = malloc((size_t)info->bytes);
        if (!map) status = mm_fail(MM_ERR_NOMEM, "out of memory for a map of %lld bytes", (long long)info->bytes);
        if (!map) break;
        map_dims(info, dims);
        study_draw(map, dims, zeros[step->layer], (uint64_t)s->seed * 1000003 + (uint64_t)i);
        measure(s, step, map);
        free(map);
        progress_show(&p, i, "%s", info->name);
    }
    progress_end(&p);
    return status == MM_OK ? print(s, 0, 0) : status;
}

static mm_status study_drawn(study *s) {
    nets_lowered *lowered = NULL;
    bool *counted = calloc((size_t)nets_net_layers(s->net), sizeof *counted);
    double *zeros = calloc((size_t)nets_net_layers(s->net), sizeof *zeros);
    mm_status status =
        counted && zeros ? target_init(&s->target) : mm_fail(MM_ERR_NOMEM, "out of memory for the layers");
    const nets_lowering how = target_lowering(&s->target, NETS_TRAIN);
    if (status == MM_OK) status = nets_lower(s->net, s->target.backend, s->batch, &how, &lowered);
    if (status == MM_OK) {
        s->lowered = lowered;
        for (int i = 0; i < lowered->n_steps; i++)
            if (is_kept(lowered, &lowered->steps[i])) counted[lowered->steps[i].layer] = true;
        status = study_draw_zeros(s->net, counted, s->zeros, zeros);
    }
    if (status == MM_OK) status = draw_all(s, zeros);
    nets_lowered_destroy(lowered);
    free(counted);
    free(zeros);
    return status;
}

/* ---------------------------------------------------------------- the command */

static mm_status check_files(const study *s) {
    data_files data;
    files_data(s->data, &data);
    const named_file files[] = {{"--json", s->json, FILE_WRITTEN},
                                {"--net", files_net(s->net_name), FILE_READ},
                                {"--data", data.images, FILE_READ},
                                {"--data", data.labels, FILE_READ}};
    return files_check(files, sizeof files / sizeof *files);
}

static mm_status run(study *s) {
    MM_TRY(check_files(s));
    if (s->zeros >= 0 && strcmp(s->target.precision, "fp32") != 0)
        return mm_fail(MM_ERR_INVALID, "--precision %s: drawn maps are of f32: leave out --draw", s->target.precision);
    if (s->zeros < 0) MM_TRY(args_rising("--iterations", s->iteration_list, s->iterations, &s->n_iterations));
    MM_TRY(nets_open(s->net_name, &s->net));
    s->sizes = calloc((size_t)nets_net_layers(s->net), sizeof *s->sizes);
    s->seen = calloc((size_t)nets_net_layers(s->net), sizeof *s->seen);
    s->rows = json_array();
    if (!s->sizes || !s->seen || !s->rows) return mm_fail(MM_ERR_NOMEM, "out of memory for the figures");
    MM_TRY(s->zeros >= 0 ? study_drawn(s) : study_trained(s));
    return s->json ? json_file_save(s->json, json_incref(s->rows)) : MM_OK;
}

static const char help_text[] =
    "Trains a network and measures, at the listed iterations, every map that is kept for the backward\n"
    "pass: the share of its elements that are not zero, and the ratio of its bytes to those of its\n"
    "codes, by codec, in windows of 4 KiB, laid out as NCHW, NHWC and CHWN (cDMA, Rhu et al., HPCA\n"
    "2018). Ratios are as published: a dense window takes 33/32 of its bytes in zvc, although our codec\n"
    "stores it uncompressed. deflate is zlib at level 6. The ratios of zvc and csr do not depend on the\n"
    "layout; that of exponent is shown for NCHW. Windows of bf16 have as many elements.\n"
    "\n"
    "--draw trains nothing: it draws random maps with that share of zeros, for networks and batches that\n"
    "cannot be trained here. Zeros lie together within a plane, and deeper maps have more of them.\n"
    "\n"
    "  mm codecs --study --net resnet20 --data cifar10:DIR --iterations 1,100,1000 --json study.json\n"
    "  mm codecs --study --net alexnet-2012 --batch 4 --draw 0.494";

int cmd_study(int argc, char **argv) {
    study s = {.net_name = "resnet20",
               .data = "synthetic",
               .iteration_list = "1,100,1000",
               .schedule = "constant",
               .target = TARGET_DEFAULTS,
               .batch = 64,
               .seed = 1,
               .windows = 1024,
               .rate = 0.1,
               .zeros = -1};
    const arg table[] = {
        {"--study", NULL, "run this study", ARG_FLAG, &s.study, 0, 0},
        {"--net", "NET", "network: 'mm nets' lists them (resnet20)", ARG_TEXT, &s.net_name, 0, 0},
        {"--data", "SPEC", "as 'mm train' takes it: cifar10:DIR, synthetic, ... (synthetic)", ARG_TEXT, &s.data, 0, 0},
        {"--batch", "N", "images an iteration, all of which are measured (64)", ARG_COUNT, &s.batch, 1, 1 << 20},
        {"--iterations", "I,J", "which to measure, from 1 (1,100,1000)", ARG_TEXT, &s.iteration_list, 0, 0},
        {"--lr", "X", "learning rate (0.1)", ARG_NUMBER, &s.rate, 1e-9, 1e3},
        {"--lr-schedule", "HOW", "constant, or cosine[,warmup=N] over all iterations (constant)", ARG_TEXT, &s.schedule,
         0, 0},
        {"--threads", "N", "threads that compute (all CPUs that the process may use)", ARG_COUNT, &s.target.threads, 1,
         MM_HOST_THREADS_MOST},
        {"--precision", "fp32|bf16", "type of feature maps (fp32)", ARG_TEXT, &s.target.precision, 0, 0},
        {"--draw", "ZEROS", "draw maps with this share of zeros instead, from 0 to 1", ARG_NUMBER, &s.zeros, 0, 1},
        {"--windows", "N", "windows of a map to encode in each layout, evenly spread; 0: all (1024)", ARG_COUNT,
         &s.windows, 0, 1e9},
        {"--seed", "N", "of weights and data, or of drawn maps (1)", ARG_COUNT, &s.seed, 0, 9e15},
        {"--json", "FILE", "the figures, as an array; -: to standard output", ARG_TEXT, &s.json, 0, 0},
        {"--quiet", NULL, "no progress", ARG_FLAG, &s.quiet, 0, 0},
        {0},
    };
    mm_status status = args_parse(argc, argv, table, "mm codecs --study [OPTIONS]", help_text, &s.help);
    if (status == MM_OK && s.help) return EXIT_OK;
    s.interrupted = command_interruptible();
    if (status == MM_OK) status = run(&s);
    target_fini(&s.target);
    nets_net_destroy(s.net);
    json_decref(s.rows);
    free(s.sizes);
    free(s.seen);
    if (status != MM_OK) return command_failed("codecs", status);
    return *s.interrupted ? EXIT_INTERRUPTED : EXIT_OK;
}
