/* SPDX-License-Identifier: MIT */
#include "tests/pipeline/dispatch_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "mm/core/status.h"
#include "mm/device/host/device_host.h"

/* ---------------------------------------------------------------- the codec that fails */

static mm_status fault_bound(const mm_codec *codec, const mm_shape *shape, int64_t *bytes_out) {
    return mm_codec_bound(((const fault_codec *)codec)->inner, shape, bytes_out);
}

static int64_t fault_scratch(const mm_codec *codec, const mm_shape *shape) {
    return mm_codec_scratch(((const fault_codec *)codec)->inner, shape);
}

static mm_status broken(void *arg) {
    (void)arg;
    return mm_fail(MM_ERR_DEVICE, "the codec broke");
}

static mm_status flip_bit(void *arg) {
    **(uint8_t **)arg ^= 1;
    return MM_OK;
}

static mm_status count_damage(void *arg) {
    atomic_fetch_add(&(*(mm_codec_counters **)arg)->damaged_chunks, 1);
    return MM_OK;
}

static mm_status pause_task(void *arg) {
    struct timespec time = {.tv_nsec = (long)*(int64_t *)arg};
    nanosleep(&time, NULL);
    return MM_OK;
}

static mm_status fault_encode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                              void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    fault_codec *f = (fault_codec *)codec;
    bool now = atomic_fetch_add(&f->encodes, 1) == f->at;
    if (f->encode_ns > 0) MM_TRY(mm_host_launch(stream, pause_task, &f->encode_ns, sizeof f->encode_ns));
    if (now && f->encode == FAULT_ISSUE) return broken(NULL);
    if (now && f->encode == FAULT_RUN) return mm_host_launch(stream, broken, NULL, 0);
    return mm_codec_encode(f->inner, stream, shape, src, dst, scratch, inputs, counters);
}

static mm_status fault_decode(const mm_codec *codec, mm_stream *stream, const mm_shape *shape, const void *src,
                              void *dst, void *scratch, const mm_code_inputs *inputs, mm_codec_counters *counters) {
    fault_codec *f = (fault_codec *)codec;
    bool now = atomic_fetch_add(&f->decodes, 1) == f->at;
    if (now && f->decode == FAULT_ISSUE) return broken(NULL);
    if (now && f->decode == FAULT_RUN) return mm_host_launch(stream, broken, NULL, 0);
    MM_TRY(mm_codec_decode(f->inner, stream, shape, src, dst, scratch, inputs, counters));
    if (now && f->decode == FAULT_COUNT) return mm_host_launch(stream, count_damage, &counters, sizeof counters);
    return now && f->decode == FAULT_BIT ? mm_host_launch(stream, flip_bit, &dst, sizeof dst) : MM_OK;
}

static const mm_codec_ops fault_ops = {
    .name = "fault",
    .summary = "another codec, until it breaks",
    .device = "host",
    .flags = {.lossless = true, .fixed_size = true, .gives_value = true},
    .bound = fault_bound,
    .scratch = fault_scratch,
    .encode = fault_encode,
    .decode = fault_decode,
};

/* ---------------------------------------------------------------- life */

/* Replaces the plan by the one that the options' `change` makes of it. */
static void replan(rig *r, const rig_options *o, const mm_limits *limits) {
    mm_planned *p = &r->planned;
    mm_plan *plan = o->change(p->plan, limits);
    mm_program_fini(p->program);
    mm_plan_destroy(p->plan);
    free(p->exact);
    p->plan = plan;
    p->exact = calloc((size_t)plan->n_segments + 1, sizeof *p->exact);
    if (mm_program_init(plan, p->facts, p->program) != MM_OK ||
        mm_program_prove(p->program, p->facts, limits, p->exact) != MM_OK)
        fail_msg("%s", mm_last_error());
}

static void plan(rig *r, const rig_options *o) {
    const char *spec = o->policy;
    mm_policy policy;
    mm_limits limits = {.device_bytes = INT64_MAX, .pinned_bytes = INT64_MAX, .base_bytes = mm_plan_base(r->graph)};
    if (mm_policy_parse(spec, &policy) != MM_OK || mm_planned_init(&r->planned, &policy, r->graph, "host") != MM_OK)
        fail_msg("%s: %s", spec, mm_last_error());
    if (o->piece_bytes > 0) r->planned.facts->piece_bytes = o->piece_bytes;
    if (mm_planned_make(&r->planned, &policy, r->graph, &limits) != MM_OK) fail_msg("%s: %s", spec, mm_last_error());
    mm_policy_fini(&policy);
    if (o->change) replan(r, o, &limits);
}

static void open_memory(rig *r) {
    int64_t offset = 0;
    r->memory = calloc((size_t)mm_graph_tensors(r->graph), sizeof *r->memory);
    r->operands = calloc((size_t)mm_graph_steps(r->graph), sizeof *r->operands);
    assert_non_null(r->memory);
    assert_non_null(r->operands);
    for (int t = 0; t < mm_graph_tensors(r->graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(r->graph, t);
        if (tensor->ownership == MM_EXTERNAL) r->memory[t] = malloc((size_t)tensor->bytes);
        if (tensor->ownership != MM_PERSISTENT) continue;
        r->memory[t] = (char *)mm_pool_base(r->pool) + offset;
        offset += mm_align(tensor->bytes);
    }
}

void rig_refill(rig *r, uint64_t seed) {
    for (int t = 0; t < mm_graph_tensors(r->graph); t++)
        if (r->memory[t]) random_graph_fill(r->graph, t, seed, r->memory[t]);
}

void rig_init(rig *r, const rig_options *o) {
    memset(r, 0, sizeof *r);
    r->step_ns = o->step_ns;
    random_graph_options graph = {
        .seed = o->seed, .layers = o->layers, .max_channels = 4, .images = o->images, .dtype = o->dtype};
    assert_int_equal(random_graph_create(&graph, &r->graph), MM_OK);
    plan(r, o);
    mm_device_config config = {.delay_seed = o->delay_max_ns ? o->seed : 0,
                               .delay_max_ns = o->delay_max_ns,
                               .link_out_bytes_per_s = o->link_bytes_per_s,
                               .link_in_bytes_per_s = o->link_bytes_per_s};
    assert_int_equal(mm_device_create("host", &config, &r->device), MM_OK);
    assert_int_equal(mm_pool_create(r->device, MM_MEMORY_DEVICE, r->planned.plan->extent_bytes, &r->pool), MM_OK);
    assert_int_equal(mm_pool_create(r->device, MM_MEMORY_PINNED, r->planned.plan->pinned_bytes, &r->pinned), MM_OK);
    mm_dispatch_config dispatch = {.device = r->device,
                                   .pool = r->pool,
                                   .pinned = r->pinned,
                                   .issue = o->issue,
                                   .self_check = o->self_check,
                                   .measure_times = o->measure_times};
    assert_int_equal(mm_dispatch_create(&dispatch, &r->dispatch), MM_OK);
    memcpy(r->codecs, r->planned.codecs, sizeof r->codecs);
    r->codec =
        (fault_codec){.base = {.ops = &fault_ops, .flags = fault_ops.flags, .spec = "fault"}, .inner = r->codecs[0]};
    r->codecs[0] = &r->codec.base;
    if (mm_execution_create(r->dispatch, r->planned.program, r->planned.facts, r->codecs, &r->execution) != MM_OK)
        fail_msg("%s", mm_last_error());
    open_memory(r);
    rig_refill(r, o->seed);
}

void rig_fini(rig *r) {
    mm_memory_info info;
    mm_execution_destroy(r->execution);
    mm_dispatch_destroy(r->dispatch);
    mm_pool_destroy(r->pinned);
    mm_pool_destroy(r->pool);
    mm_device_memory_info(r->device, &info);
    assert_int_equal(info.reserved_bytes, 0);
    mm_device_destroy(r->device); /* asserts that no stream or event is left */
    for (int t = 0; t < mm_graph_tensors(r->graph); t++)
        if (mm_graph_tensor(r->graph, t)->ownership == MM_EXTERNAL) free(r->memory[t]);
    free(r->memory);
    free(r->operands);
    mm_planned_fini(&r->planned);
    mm_graph_destroy(r->graph);
}

/* ---------------------------------------------------------------- iterations */

static mm_status run_step(rig *r, int s, mm_stream *stream) {
    const mm_plan *p = r->planned.plan;
    const mm_step_info *step = mm_graph_step(r->graph, s);
    int index = mm_execution_node(r->execution, s);
    const mm_node *node = &p->nodes[index];
    int64_t waited_ns;
    assert_true(step->n_uses <= RANDOM_USES);
    MM_TRY(mm_dispatch_step_begin(r->dispatch, index, stream, &waited_ns));
    for (int u = 0; u < step->n_uses; u++) {
        int segment = p->bindings[node->first_binding + u];
        bool coded = segment >= 0 && p->segments[segment].content == MM_CONTENT_CODED;
        void *data = segment < 0 ? r->memory[step->uses[u].tensor] : mm_dispatch_address(r->dispatch, segment);
        const random_operand now = {.data = data, .form = coded ? MM_FORM_SIGN : MM_FORM_VALUE};
        random_operand *operand = &r->operands[s][u];
        /* Not written if it is the same: an earlier iteration may still read it. */
        if (operand->data != now.data || operand->form != now.form) *operand = now;
    }
    void *workspace = node->work < 0 ? NULL : mm_dispatch_address(r->dispatch, node->work);
    random_task task = {r->graph, s, r->operands[s], workspace, r->step_ns};
    MM_TRY(stream ? mm_host_launch(stream, random_graph_run_task, &task, sizeof task) : random_graph_run_task(&task));
    return mm_dispatch_step_end(r->dispatch, index);
}

static mm_status iterate(rig *r, bool on_stream, int *failed_step, mm_status (*end)(mm_dispatch *)) {
    mm_stream *stream = on_stream ? mm_dispatch_compute(r->dispatch) : NULL;
    int steps = mm_graph_steps(r->graph), s = 0;
    mm_status status = mm_dispatch_begin(r->dispatch, r->execution);
    while (status == MM_OK && s < steps) {
        status = run_step(r, s, stream);
        s += status == MM_OK;
    }
    if (failed_step) *failed_step = s;
    if (status == MM_OK) return end(r->dispatch);
    mm_dispatch_abort(r->dispatch);
    return status;
}

mm_status rig_iteration(rig *r, bool on_stream, int *failed_step) {
    return iterate(r, on_stream, failed_step, mm_dispatch_end);
}

mm_status rig_iteration_ahead(rig *r) { return iterate(r, true, NULL, mm_dispatch_end_async); }

uint64_t rig_digest(const rig *r) {
    uint64_t digest = 0;
    for (int t = 0; t < mm_graph_tensors(r->graph); t++)
        if (mm_graph_tensor(r->graph, t)->ownership == MM_PERSISTENT)
            digest = random_graph_digest(digest, r->memory[t], (size_t)mm_graph_tensor(r->graph, t)->bytes);
    return digest;
}

uint64_t rig_expected(const rig *r, uint64_t seed, int iterations) {
    return random_graph_reference(r->graph, seed, iterations);
}
