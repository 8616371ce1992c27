/* SPDX-License-Identifier: MIT */
/* Measures cells of the table: trains the network for some iterations. */
#include <stdio.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/device/contract/device.h"
#include "tools/compare/bench.h"
#include "tools/measure/device_speed.h"

static session_config configure(bench *b, const nets_net *net, int64_t batch, const char *policy) {
    session_config config = {.net = net,
                             .data = b->data,
                             .batch = batch,
                             .target = b->target,
                             .pinned_bytes = b->pinned_bytes,
                             .seed = (uint64_t)b->seed,
                             .issue = b->issue,
                             .same_batches = b->same_batches,
                             .keep_going = true, /* an infinite loss does not change the speed */
                             .equal_streams = b->equal_streams,
                             .stop = b->interrupted,
                             .alloc_cost_ns = b->alloc_cost_us * 1000,
                             .texts = &b->texts};
    config.policies.text[config.policies.n++] = policy;
    return config;
}

static mm_status train(const bench *b, session *s, row *r) {
    char size[32], told[48];
    session_run run = {.iterations = b->iterations, .schedule = {.rate = BENCH_RATE, .factor = 1}, .quiet = b->quiet};
    snprintf(told, sizeof told, "budget %s", mm_size_format(r->asked_bytes, size, sizeof size));
    if (r->asked_bytes > 0) run.told = told;
    return session_train(s, &run, r);
}

mm_status bench_calibrate(bench *b, const nets_net *net, int64_t batch, const char *policy, collector *c) {
    session s;
    row r = {.batch = batch};
    session_config config = configure(b, net, batch, policy);
    config.measure_times = true;
    mm_status status = session_init(&s, &config);
    if (session_stopped_early(&s, status)) return MM_OK;
    MM_TRY(status);
    status = train(b, &s, &r);
    if (status == MM_OK && !*b->interrupted) status = collector_add(c, &s, &r);
    session_fini(&s);
    return status == MM_OK ? MM_OK : mm_fail_in(status, "measuring %s under %s", nets_net_name(net), policy);
}

typedef struct calibration {
    bench *b;
    const nets_net *net;
    int64_t batch;
} calibration;

/* A collect_run. */
static mm_status calibrate_by(void *ctx, const char *policy, collector *c) {
    const calibration *of = ctx;
    return *of->b->interrupted ? MM_OK : bench_calibrate(of->b, of->net, of->batch, policy, c);
}

mm_status bench_calibrate_variants(bench *b, const nets_net *net, int64_t batch, collector *c) {
    calibration of = {b, net, batch};
    return collector_measure_variants(c, calibrate_by, &of);
}

/* ---------------------------------------------------------------- measuring */

/* A session that submits iterations ahead (session.ahead) is measured without timing its operations, which would slow
 * it. So a second, short run measures how busy its streams are. */
static mm_status profile(const session_config *measured, row *r) {
    enum { WARM_UP = 2, ITERATIONS = 6 };
    session s;
    row timed = {.codec_hidden_share = -1, .batch = r->batch};
    session_config config = *measured;
    config.measure = config.trace = false;
    config.measure_times = true;
    session_run run = {.iterations = WARM_UP, .schedule = {.rate = BENCH_RATE, .factor = 1}, .quiet = true};
    mm_status status = session_init(&s, &config);
    if (session_stopped_early(&s, status)) return MM_OK;
    MM_TRY(status);
    status = session_train(&s, &run, &timed);
    run.iterations += ITERATIONS;
    if (status == MM_OK) status = session_train(&s, &run, &timed);
    session_fini(&s);
    MM_TRY(status);
    r->codec_hidden_share = timed.codec_hidden_share;
    r->codec_busy_seconds = timed.codec_busy_seconds;
    r->compute_busy_seconds = timed.compute_busy_seconds;
    return MM_OK;
}

/* Records kernels, on the host steps, for --kernels. Where CUPTI is missing, says so once and turns --kernels off. */
static mm_status see_kernels(bench *b, session *s, const row *r) {
    if (!b->kernels || *b->interrupted) return MM_OK;
    if (target_is_host(b->target.device)) return bench_steps(b, s, r);
    mm_status status = bench_kernels(b, s, r);
    if (status != MM_ERR_UNSUPPORTED) return status;
    fprintf(stderr, "mm bench: --kernels %s: nothing is written: %s\n", b->kernels, mm_last_error());
    b->kernels = NULL;
    return MM_OK;
}

/* Rates of this host for a run that has no other times; says once which these are. */
static mm_status open_rates(bench *b, const session_config *config, host_rates *rates) {
    const host_rates_case c = {.rates = b->rates,
                               .policies = &config->policies,
                               .target = &b->target,
                               .has_facts = b->collector != NULL || b->predict,
                               .same_plan = b->iterations <= HOST_RATES_ITERATIONS,
                               .quiet = b->told_rates != 0,
                               .ranks = 1};
    MM_TRY(host_rates_open(rates, "bench", &c));
    if (rates->from != HOST_RATES_NONE && !(b->told_rates & 1U << rates->from)) {
        b->told_rates |= 1U << rates->from;
        host_rates_tell(rates, "bench", config->policies.text[0]);
    }
    return MM_OK;
}

static mm_status measure(bench *b, const nets_net *net, const host_rates *rates, row *r) {
    session s;
    session_config config = configure(b, net, r->batch, r->policy);
    config.sub_batch = r->sub_batch;
    config.budget_bytes = r->asked_bytes;
    config.no_ladder = b->no_ladder;
    config.measure = true;
    config.measure_times = b->collector != NULL || (b->kernels && target_is_host(b->target.device));
    config.trace = b->trace != NULL;
    config.facts = host_rates_source(rates);
    config.rates = rates;
    mm_status status = session_init(&s, &config);
    r->minimum_bytes = s.minimum_bytes;
    if (session_stopped_early(&s, status)) return MM_OK;
    MM_TRY(status);
    status = train(b, &s, r);
    if (status == MM_OK) status = session_trace(&s, &b->traces);
    if (status == MM_OK) status = see_kernels(b, &s, r);
    if (status == MM_OK && b->collector) status = collector_add(b->collector, &s, r);
    config.budget_bytes = s.config.budget_bytes;
    bool apart = s.ahead && !config.measure_times;
    session_fini(&s);
    if (status == MM_OK && apart && !*b->interrupted) status = profile(&config, r);
    return status;
}

mm_status bench_measure(bench *b, const nets_net *net, row *r) {
    host_rates rates;
    const session_config config = configure(b, net, r->batch, r->policy);
    MM_TRY(open_rates(b, &config, &rates));
    const mm_status status = measure(b, net, &rates, r);
    host_rates_close(&rates);
    return status;
}

/* ---------------------------------------------------------------- the codec's speed */

/* The first ZFP codec that a policy names; without one, zfp:rate=6.4. */
static mm_status first_codec(const bench *b, char spec[MM_SPEC_CAPACITY]) {
    strcpy(spec, "zfp:rate=6.4");
    for (int p = 0; p < b->policies.n; p++) {
        char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
        int n;
        MM_TRY(mm_policy_codecs(b->policies.text[p], specs, &n));
        for (int i = 0; i < n; i++)
            if (strncmp(specs[i], "zfp", 3) == 0) {
                strcpy(spec, specs[i]);
                return MM_OK;
            }
    }
    return MM_OK;
}

mm_status bench_codec_speed(const bench *b, int64_t *bytes_per_s_out) {
    char spec[MM_SPEC_CAPACITY];
    mm_device *device;
    device_codec_speed speed = {0};
    MM_TRY(first_codec(b, spec));
    const mm_device_config config = {.codec_threads = (int)b->target.codec_threads};
    MM_TRY(mm_device_create(b->target.device, &config, &device));
    mm_status status = device_speed_codec(device, spec, &speed);
    mm_device_destroy(device);
    *bytes_per_s_out = speed.encode;
    return status;
}
