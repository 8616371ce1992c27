/* SPDX-License-Identifier: MIT */
/* Measures how fast a device's ops are, beside its own copy in the same run.
 *
 *      op_bench [--device host|cuda] [--batch N] [--jobs N] [--rounds N] [--precision fp32|tf32] [--workspace SIZE]
 *               [--all]
 *
 * Prints a line for each op and phase, on maps of ResNet-50 and older networks: its microseconds and, for ops bound by
 * memory, the ratio of its bytes a second to those of a copy inside the device's memory. Counted are only bytes that
 * the op must move: each tensor of its step once. So a second pass over a tensor lowers the ratio. A copy reads and
 * writes its bytes. A round enqueues JOBS of an op together, so that launches do not count. --all prints before each
 * convolution and linear layer, for each direction, the time of each algorithm that the device's libraries offer, why
 * others are refused, and which is chosen. */
#include <stdio.h>
#include <string.h>

#include "mm/device/contract/clock.h"
#include "nets/contract/op.h"
#include "nets/net_ops.h"
#include "tools/args/args.h"
#include "tools/bench/samples.h"

enum { ROLES = NETS_ROLES, COPY_BYTES = 256 << 20 };

typedef struct subject {
    const char *label;
    nets_op_kind kind;
    nets_attrs attrs;
    int64_t x[3], y[3]; /* shapes of one image */
    bool bound;         /* bound by memory */
} subject;

#define WINDOWS(k, s, p) .kernel = {k, k}, .stride = {s, s}, .pad = {p, p}
#define CONV(channels, k, s, p)                                                                                        \
    { .out_channels = channels, WINDOWS(k, s, p), .dilation = {1, 1}, .groups = 1 }

static const subject SUBJECTS[] = {
    {"relu", NETS_RELU, {0}, {56, 56, 256}, {56, 56, 256}, true},
    {"bias + relu", NETS_RELU, {.bias = true}, {56, 56, 256}, {56, 56, 256}, true},
    {"add", NETS_ADD, {0}, {56, 56, 256}, {56, 56, 256}, true},
    {"batch norm, wide", NETS_BATCH_NORM, {.eps = 1e-5f, .momentum = 0.1f}, {112, 112, 64}, {112, 112, 64}, true},
    {"batch norm, deep", NETS_BATCH_NORM, {.eps = 1e-5f, .momentum = 0.1f}, {7, 7, 2048}, {7, 7, 2048}, true},
    {"max pool", NETS_MAX_POOL, {WINDOWS(3, 2, 1)}, {112, 112, 64}, {56, 56, 64}, true},
    {"average pool", NETS_AVG_POOL, {WINDOWS(2, 2, 0)}, {56, 56, 128}, {28, 28, 128}, true},
    {"global pool", NETS_GLOBAL_AVG_POOL, {WINDOWS(7, 7, 0)}, {7, 7, 2048}, {1, 1, 2048}, true},
    {"lrn", NETS_LRN, {.size = 5, .alpha = 1e-4f, .beta = 0.75f, .k = 2}, {27, 27, 256}, {27, 27, 256}, true},
    {"dropout", NETS_DROPOUT, {.p = 0.5f}, {1, 1, 4096}, {1, 1, 4096}, true},
    {"upsample", NETS_UPSAMPLE, {.scale = {2, 2}, .bilinear = true}, {28, 28, 256}, {56, 56, 256}, true},
    {"loss", NETS_LOSS, {0}, {1, 1, 1000}, {1, 1, 1000}, true},
    {"linear", NETS_LINEAR, {.out_channels = 1000, .bias = true}, {1, 1, 2048}, {1, 1, 1000}, false},
    {"conv 7x7 / 2", NETS_CONV, CONV(64, 7, 2, 3), {224, 224, 3}, {112, 112, 64}, false},
    {"conv 1x1", NETS_CONV, CONV(256, 1, 1, 0), {56, 56, 64}, {56, 56, 256}, false},
    {"conv 3x3", NETS_CONV, CONV(64, 3, 1, 1), {56, 56, 64}, {56, 56, 64}, false},
    {"conv 1x1, back", NETS_CONV, CONV(64, 1, 1, 0), {56, 56, 256}, {56, 56, 64}, false},
    {"conv 1x1 / 2", NETS_CONV, CONV(512, 1, 2, 0), {56, 56, 256}, {28, 28, 512}, false},
    {"conv 3x3 / 2", NETS_CONV, CONV(128, 3, 2, 1), {56, 56, 128}, {28, 28, 128}, false},
    {"conv 1x1, deep", NETS_CONV, CONV(2048, 1, 1, 0), {7, 7, 512}, {7, 7, 2048}, false},
    {"conv 3x3, deep", NETS_CONV, CONV(512, 3, 1, 1), {7, 7, 512}, {7, 7, 512}, false},
};

/* A convolution whose input gradient is added in place to an earlier one. */
static const subject ADDED = {"conv 1x1, added", NETS_CONV, CONV(64, 1, 1, 0), {56, 56, 256}, {56, 56, 64}, false};

/* Batch norms fused with their ReLU, whose backward pass reads the output's signs or computes them again from the exact
 * input; and one with a sum before the ReLU. */
static const subject FUSED[] = {
    {"bn + relu", NETS_BATCH_NORM, {.eps = 1e-5f, .momentum = 0.1f}, {112, 112, 64}, {112, 112, 64}, true},
    {"bn + relu, exact", NETS_BATCH_NORM, {.eps = 1e-5f, .momentum = 0.1f}, {112, 112, 64}, {112, 112, 64}, true},
    {"bn + sum + relu", NETS_BATCH_NORM, {.eps = 1e-5f, .momentum = 0.1f}, {14, 14, 1024}, {14, 14, 1024}, true},
};

typedef struct bench {
    const char *device_name, *precision;
    int64_t batch, jobs, rounds, workspace_bytes;
    bool all;
    mm_device *device;
    mm_stream *stream;
    nets_backend *backend;
    double copy_bytes_per_s;
} bench;

/* An op with memory for each tensor. */
typedef struct rig {
    nets_op *op;
    nets_op_desc desc;
    nets_op_args args;
    int64_t bytes[ROLES];
} rig;

/* ---------------------------------------------------------------- memory */

static nets_shape sample_of(const nets_shape *batch) {
    nets_shape sample = {.rank = batch->rank - 1};
    memcpy(sample.dims, &batch->dims[1], (size_t)sample.rank * sizeof *sample.dims);
    return sample;
}

static void count_params(const nets_op_desc *d, int64_t *of) {
    const nets_shape x = sample_of(&d->x[0]);
    const nets_layer layer = {.op = d->kind, .attrs = d->attrs, .shape = sample_of(&d->y)};
    const nets_param_spec *spec;
    for (int i = 0; (spec = nets_param_spec_of(d->kind, i)); i++) {
        nets_shape param;
        if (!nets_param_is_had(spec, &layer)) continue;
        param.rank = spec->shape(&layer, &x, param.dims);
        of[NETS_PARAM + i] = 4 * nets_shape_elems(&param);
        if (spec->learned) of[NETS_DPARAM + i] = of[NETS_PARAM + i];
    }
    if (d->kind == NETS_RELU && d->attrs.bias) of[NETS_B] = of[NETS_DB] = 4 * nets_shape_channels(&d->y);
}

static void count_saved(const nets_op_desc *d, int64_t *of) {
    const nets_saved_spec *saved = nets_op_lowering_of(d->kind, d->relu)->saved;
    for (int i = 0; i < NETS_MAX_SAVED && saved[i].name; i++) {
        const nets_shape shape = saved[i].shape(&d->attrs, d->x, &d->y);
        of[NETS_SAVED + i] = nets_shape_elems(&shape) * (int64_t)mm_dtype_bytes(saved[i].dtype);
    }
}

/* Sets the bytes of the op's tensor of each role; 0: it has no such tensor. */
static void count_bytes(rig *r) {
    const nets_op_desc *d = &r->desc;
    int64_t x = 4 * nets_shape_elems(&d->x[0]), y = 4 * nets_shape_elems(&d->y), *of = r->bytes;
    of[NETS_X] = of[NETS_DX] = x;
    of[NETS_Y] = of[NETS_DY] = y;
    if (d->n_inputs == 2) of[NETS_X2] = of[NETS_DX2] = x;
    count_params(d, of);
    count_saved(d, of);
    of[NETS_RNG] = NETS_RNG_WORDS * (int64_t)sizeof(uint32_t);
    of[NETS_LABELS] = 4 * nets_shape_rows(&d->x[0]);
    of[NETS_LOSS_VALUE] = of[NETS_CORRECT] = 4;
    int64_t forward = nets_op_workspace_bytes(r->op, MM_FORWARD),
            backward = nets_op_workspace_bytes(r->op, MM_BACKWARD);
    of[NETS_WORKSPACE] = r->args.workspace_bytes = forward > backward ? forward : backward;
}

static mm_status take_places(bench *b, rig *r) {
    count_bytes(r);
    for (int role = 0; role < ROLES; role++) {
        if (!r->bytes[role]) continue;
        MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, r->bytes[role], &r->args.at[role]));
        MM_TRY(mm_fill_async(b->stream, r->args.at[role], 0, r->bytes[role]));
    }
    if (r->desc.adds_earlier) r->args.at[NETS_EARLIER] = r->args.at[NETS_DX]; /* it shares the memory of dx */
    return mm_stream_sync(b->stream);
}

static void end_rig(bench *b, rig *r) {
    for (int role = 0; role < ROLES; role++)
        if (r->bytes[role] && r->args.at[role])
            mm_device_release(b->device, MM_MEMORY_DEVICE, r->args.at[role], r->bytes[role]);
    nets_op_destroy(r->op);
}

/* Creates the op of a subject, and memory for its tensors. also: the fields of the description that the subject does
 * not set. */
static mm_status start_rig(bench *b, const subject *s, const nets_op_desc *also, rig *r) {
    *r = (rig){.desc = *also};
    r->desc.kind = s->kind;
    r->desc.attrs = s->attrs;
    r->desc.training = r->desc.wants_dx = true;
    r->desc.x[0] = r->desc.x[1] = (nets_shape){4, {b->batch, s->x[0], s->x[1], s->x[2]}};
    r->desc.y = (nets_shape){4, {b->batch, s->y[0], s->y[1], s->y[2]}};
    MM_TRY(nets_op_create(b->backend, &r->desc, &r->op));
    return take_places(b, r);
}

/* Bytes that the phase must read and write. */
static int64_t needed_bytes(const rig *r, mm_phase phase) {
    const int64_t *of = r->bytes, index = r->desc.kind == NETS_MAX_POOL ? of[NETS_INDEX] : 0;
    if (phase == MM_FORWARD) return of[NETS_X] + of[NETS_X2] + of[NETS_Y] + index;
    int64_t also = r->desc.kind == NETS_BATCH_NORM || r->desc.kind == NETS_LRN ? of[NETS_X] : index;
    if (r->desc.kind == NETS_RELU) also = of[NETS_Y];
    if (r->desc.relu && !r->args.exact_roles) also += of[NETS_Y];
    if (r->desc.kind == NETS_LOSS) return of[NETS_Y] + of[NETS_DX];
    return of[NETS_DY] + of[NETS_DX] + of[NETS_DX2] + also;
}

/* ---------------------------------------------------------------- measuring */

typedef mm_status (*enqueue_fn)(bench *b, void *what, mm_phase phase);

static mm_status enqueue_op(bench *b, void *what, mm_phase phase) {
    rig *r = what;
    return nets_op_enqueue(r->op, phase, &r->args, b->stream);
}

static mm_status enqueue_copy(bench *b, void *what, mm_phase phase) {
    (void)phase;
    return mm_copy_async(b->stream, (char *)what + COPY_BYTES, what, COPY_BYTES, MM_COPY_DEVICE);
}

/* Adds to `seconds` the time of one job in each round. The first round only warms up; its time is not added. */
static mm_status measure(bench *b, enqueue_fn enqueue, void *what, mm_phase phase, samples *seconds) {
    for (int64_t round = 0; round <= b->rounds; round++) {
        int64_t begin = mm_now_ns();
        for (int64_t job = 0; job < b->jobs; job++) MM_TRY(enqueue(b, what, phase));
        MM_TRY(mm_stream_sync(b->stream));
        double each = (double)(mm_now_ns() - begin) * 1e-9 / (double)b->jobs;
        if (round > 0) MM_TRY(samples_add(seconds, each));
    }
    return MM_OK;
}

static mm_status measure_copy(bench *b) {
    void *memory;
    samples seconds = {0};
    MM_TRY(mm_device_reserve(b->device, MM_MEMORY_DEVICE, 2 * (int64_t)COPY_BYTES, &memory));
    mm_status status = mm_fill_async(b->stream, memory, 0, 2 * (int64_t)COPY_BYTES);
    if (status == MM_OK) status = measure(b, enqueue_copy, memory, MM_FORWARD, &seconds);
    if (status == MM_OK) {
        b->copy_bytes_per_s = 2.0 * COPY_BYTES / samples_summarize(&seconds).median;
        samples_print(stdout, &seconds, "copy of 256 MiB", 1e6, "us", 0, NULL);
        printf("  %.3g GB/s, read and written\n", b->copy_bytes_per_s * 1e-9);
    }
    samples_fini(&seconds);
    mm_device_release(b->device, MM_MEMORY_DEVICE, memory, 2 * (int64_t)COPY_BYTES);
    return status;
}

static mm_status measure_phase(bench *b, const subject *s, rig *r, mm_phase phase) {
    char label[64];
    samples seconds = {0};
    snprintf(label, sizeof label, "%s, %s", s->label, phase == MM_FORWARD ? "forward" : "backward");
    mm_status status = measure(b, enqueue_op, r, phase, &seconds);
    if (status == MM_OK) {
        double rate = (double)needed_bytes(r, phase) / samples_summarize(&seconds).median;
        samples_print(stdout, &seconds, label, 1e6, "us", rate / b->copy_bytes_per_s,
                      s->bound ? "the copy's bytes/s" : NULL);
    }
    samples_fini(&seconds);
    return status;
}

static mm_status measure_subject(bench *b, const subject *s, nets_op_desc also, uint64_t exact_roles) {
    rig r;
    mm_status status = start_rig(b, s, &also, &r);
    r.args.exact_roles = exact_roles;
    for (mm_phase phase = MM_FORWARD; status == MM_OK && phase <= MM_BACKWARD; phase++)
        status = measure_phase(b, s, &r, phase);
    end_rig(b, &r);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "%s", s->label);
}

/* ---------------------------------------------------------------- the command */

static void print_message(void *ctx, mm_log_level level, const char *message) {
    (void)ctx;
    printf("%s%s\n", level == MM_LOG_WARNING ? "warning: " : "", message);
}

static mm_status open_all(bench *b) {
    nets_backend_config config = {.precision = NETS_FP32,
                                  .workspace_limit_bytes = b->workspace_bytes,
                                  .log = {print_message, NULL, b->all ? MM_LOG_DEBUG : MM_LOG_WARNING}};
    if (strcmp(b->precision, "tf32") == 0)
        config.precision = NETS_TF32;
    else if (strcmp(b->precision, "fp32") != 0)
        return mm_fail(MM_ERR_INVALID, "--precision %s: must be fp32 or tf32", b->precision);
    MM_TRY(mm_device_create(b->device_name, NULL, &b->device));
    MM_TRY(mm_stream_create(b->device, "bench", 0, &b->stream));
    return nets_backend_open(b->device_name, &config, &b->backend);
}

static mm_status run(bench *b) {
    MM_TRY(open_all(b));
    samples_print_head(stdout, "ops");
    MM_TRY(measure_copy(b));
    for (size_t i = 0; i < sizeof SUBJECTS / sizeof SUBJECTS[0]; i++)
        MM_TRY(measure_subject(b, &SUBJECTS[i], (nets_op_desc){.n_inputs = SUBJECTS[i].kind == NETS_ADD ? 2 : 1}, 0));
    MM_TRY(measure_subject(b, &ADDED, (nets_op_desc){.n_inputs = 1, .adds_earlier = true}, 0));
    for (int i = 0; i < 3; i++)
        MM_TRY(measure_subject(b, &FUSED[i], (nets_op_desc){.n_inputs = i == 2 ? 2 : 1, .relu = true},
                               i == 1 ? UINT64_MAX : 0));
    return MM_OK;
}

int main(int argc, char **argv) {
    bool help = false;
    bench b = {.device_name = "host", .precision = "fp32", .batch = 8, .jobs = 4, .rounds = 15};
    const arg table[] = {
        {"--device", "NAME", "host, cuda or cuda:1 (host)", ARG_TEXT, &b.device_name, 0, 0},
        {"--batch", "N", "images (8; a GPU's memory is measured from 128 on)", ARG_COUNT, &b.batch, 1, 4096},
        {"--jobs", "N", "jobs enqueued together (4)", ARG_COUNT, &b.jobs, 1, 1000},
        {"--rounds", "N", "rounds to measure (15)", ARG_COUNT, &b.rounds, 1, 1000},
        {"--precision", "P", "fp32 or tf32 (fp32)", ARG_TEXT, &b.precision, 0, 0},
        {"--workspace", "SIZE", "workspace that a convolution may take (256MiB)", ARG_SIZE, &b.workspace_bytes, 0, 0},
        {"--all", NULL, "print the algorithms that were tried for convolutions and linear layers", ARG_FLAG, &b.all, 0,
         0},
        {0},
    };
    mm_status status =
        args_parse(argc, argv, table, "op_bench [OPTIONS]", "Times a device's ops beside its copy.", &help);
    if (status == MM_OK && !help) status = run(&b);
    nets_backend_close(b.backend);
    mm_stream_destroy(b.stream);
    mm_device_destroy(b.device);
    if (status != MM_OK) fprintf(stderr, "op_bench: %s\n", mm_last_error());
    return status != MM_OK;
}
