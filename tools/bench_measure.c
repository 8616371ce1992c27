/* Cells of the table that are measured: a network is trained for some iterations. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mm/device/device.h"
#include "tools/bench.h"

static session_config configure(const bench *b, const nets_net *net, int64_t batch, const char *policy) {
    session_config config = {.net = net,
                             .data = b->data,
                             .batch = batch,
                             .target = b->target,
                             .pinned_bytes = b->pinned_bytes,
                             .link_bytes_per_s = b->link_bytes,
                             .seed = (uint64_t)b->seed,
                             .sgd = {.momentum = 0.9f, .weight_decay = 1e-4f},
                             .issue = b->issue,
                             .same_batches = b->same_batches,
                             .stop = b->interrupted,
                             .alloc_cost_ns = b->alloc_cost_us * 1000};
    snprintf(config.policies.text[config.policies.n++], ARG_TEXT_CAPACITY, "%s", policy);
    return config;
}

static mm_status train(const bench *b, session *s, row *r) {
    session_run run = {.iterations = b->iterations, .schedule = {.rate = 0.1f, .factor = 1}, .quiet = b->quiet};
    return session_train(s, &run, r);
}

/* ---------------------------------------------------------------- predicting */

static mm_status calibrate_with(bench *b, const nets_net *net, int64_t batch, const char *policy) {
    session s;
    row r = {.batch = batch};
    session_config config = configure(b, net, batch, policy);
    config.measure_times = true;
    MM_TRY(session_init(&s, &config));
    mm_status status = train(b, &s, &r);
    if (status == MM_OK) status = collector_add(b->collector, &s, &r);
    session_fini(&s);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "measuring %s under %s", nets_net_name(net), policy);
}

mm_status bench_calibrate(bench *b, const nets_net *net, int64_t batch, const char *policy) {
    MM_TRY(calibrate_with(b, net, batch, "liveness"));
    return strcmp(policy, "liveness") == 0 ? MM_OK : calibrate_with(b, net, batch, policy);
}

/* The manager planned without times, so that is how its plan is made again. */
static mm_status predict(const bench *b, const session *s, row *r) {
    simulated_run run;
    time_source times = {.fill = collector_fill, .ctx = b->collector};
    MM_TRY(simulated_policy(&b->subject, r->policy, s->config.budget_bytes, s->pinned_most_bytes, &times, &run));
    if (!run.untimed[0]) r->iteration_seconds_predicted = (double)run.iteration_ns * 1e-9;
    return MM_OK;
}

/* ---------------------------------------------------------------- measuring */

/* What runs ahead is measured as it runs, without times taken on the way: what its streams do comes from another, short
 * run. */
static mm_status profile(const session_config *measured, row *r) {
    enum { WARM_UP = 2, ITERATIONS = 6 };
    session s;
    row timed = {.codec_hidden_share = -1, .batch = r->batch};
    session_config config = *measured;
    config.measure = false;
    config.measure_times = true;
    session_run run = {.iterations = WARM_UP, .schedule = {.rate = 0.1f, .factor = 1}, .quiet = true};
    MM_TRY(session_init(&s, &config));
    mm_status status = session_train(&s, &run, &timed);
    run.iterations += ITERATIONS;
    if (status == MM_OK) status = session_train(&s, &run, &timed);
    session_fini(&s);
    MM_TRY(status);
    r->codec_hidden_share = timed.codec_hidden_share;
    r->codec_busy_seconds = timed.codec_busy_seconds;
    r->compute_busy_seconds = timed.compute_busy_seconds;
    return MM_OK;
}

static mm_status measure_once(bench *b, const nets_net *net, row *r) {
    session s;
    session_config config = configure(b, net, r->batch, r->policy);
    config.budget_bytes = r->asked_bytes;
    config.no_ladder = b->no_ladder;
    config.measure = true;
    config.measure_times = b->collector && !b->predict;
    mm_status status = session_init(&s, &config);
    r->minimum_bytes = s.minimum_bytes;
    MM_TRY(status);
    status = train(b, &s, r);
    if (status == MM_OK && config.measure_times) status = collector_add(b->collector, &s, r);
    if (status == MM_OK && b->predict) status = predict(b, &s, r);
    config.budget_bytes = s.config.budget_bytes;
    bool apart = s.ahead && !config.measure_times;
    session_fini(&s);
    if (status == MM_OK && apart && !*b->interrupted) status = profile(&config, r);
    return status;
}

static double expected_part(const row *r) { return r->iteration_seconds_predicted / r->iteration_seconds_median; }

static int by_expected_part(const void *a, const void *b) {
    double x = expected_part(a), y = expected_part(b);
    return (x > y) - (x < y);
}

/* Three times, each right after facts were measured: the one in the middle counts, so that a disturbance does not. */
static mm_status measure_and_predict(bench *b, const nets_net *net, row *r) {
    enum { TIMES = 3 };
    row rows[TIMES];
    for (int i = 0; i < TIMES; i++) {
        rows[i] = *r;
        MM_TRY(bench_calibrate(b, net, r->batch, r->policy));
        mm_status status = measure_once(b, net, &rows[i]);
        r->minimum_bytes = rows[i].minimum_bytes;
        MM_TRY(status);
        if (*b->interrupted) return MM_OK;
    }
    qsort(rows, TIMES, sizeof *rows, by_expected_part);
    *r = rows[TIMES / 2];
    return MM_OK;
}

mm_status bench_measure(bench *b, const nets_net *net, row *r) {
    return b->predict ? measure_and_predict(b, net, r) : measure_once(b, net, r);
}

/* ---------------------------------------------------------------- the codec's speed */

/* A convolution's map of a small network. */
static const mm_shape SAMPLE = {.dtype = MM_F32, .rank = 4, .dims = {32, 32, 32, 16}};
enum { SAMPLE_ELEMS = 32 * 32 * 32 * 16, ROUNDS = 9 };

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The median of some encodings, after one that warms up. */
static mm_status time_encoding(const mm_codec *codec, mm_stream *stream, const float *map, void *code,
                               int64_t *ns_out) {
    int64_t ns[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        int64_t start = now_ns();
        MM_TRY(mm_codec_encode(codec, stream, &SAMPLE, map, code, NULL, NULL));
        MM_TRY(mm_stream_sync(stream));
        if (i >= 0) ns[i] = now_ns() - start;
    }
    qsort(ns, ROUNDS, sizeof *ns, by_value);
    *ns_out = ns[ROUNDS / 2] > 0 ? ns[ROUNDS / 2] : 1;
    return MM_OK;
}

static mm_status time_codec(const char *device_name, const mm_codec *codec, int64_t *ns_out) {
    mm_device *device;
    mm_stream *stream = NULL;
    int64_t bytes;
    MM_TRY(mm_codec_bound(codec, &SAMPLE, &bytes));
    MM_TRY(mm_device_create(device_name, NULL, &device));
    float *map = malloc(SAMPLE_ELEMS * sizeof *map);
    void *code = aligned_alloc(MM_ALIGN, (size_t)mm_align(bytes));
    mm_status status = map && code ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for measuring %s", codec->spec);
    for (int64_t i = 0; status == MM_OK && i < SAMPLE_ELEMS; i++) map[i] = (float)(i * 7919 % 1009) * 1e-3f - 0.3f;
    if (status == MM_OK) status = mm_stream_create(device, "speed", 0, &stream);
    if (status == MM_OK) status = time_encoding(codec, stream, map, code, ns_out);
    mm_stream_destroy(stream);
    free(map);
    free(code);
    mm_device_destroy(device);
    return status;
}

/* The first codec of elements that a policy names. */
static void first_codec(const bench *b, char spec[MM_SPEC_CAPACITY]) {
    strcpy(spec, "zfp:rate=6.4");
    for (int p = 0; p < b->policies.n; p++) {
        mm_policy policy;
        char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
        if (mm_policy_parse(b->policies.text[p], &policy) != MM_OK || !policy.ops->codecs) continue;
        int n = policy.ops->codecs(policy.ops, &policy.options, specs, MM_MAX_CODECS);
        for (int i = 0; i < n; i++)
            if (strncmp(specs[i], "zfp", 3) == 0) {
                strcpy(spec, specs[i]);
                return;
            }
    }
}

mm_status bench_codec_speed(const bench *b, int64_t *bytes_per_s_out) {
    char spec[MM_SPEC_CAPACITY];
    mm_codec *codec;
    int64_t ns = 1;
    first_codec(b, spec);
    MM_TRY(mm_codec_create(spec, b->target.device, &codec));
    mm_status status = codec->ops->flags.gives_value
                           ? time_codec(b->target.device, codec, &ns)
                           : mm_fail(MM_ERR_UNSUPPORTED, "--link codec: %s is no codec of elements", spec);
    mm_codec_destroy(codec);
    MM_TRY(status);
    *bytes_per_s_out = (int64_t)((double)(SAMPLE_ELEMS * sizeof(float)) * 1e9 / (double)ns);
    return MM_OK;
}
