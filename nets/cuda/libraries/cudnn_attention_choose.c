/* SPDX-License-Identifier: MIT */
/* Choosing between our kernels for attention and cuDNN's, as cudnn_choose.c chooses for convolutions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/log.h"
#include "nets/cuda/libraries/cudnn_attention.h"
#include "nets/cuda/libraries/cudnn_conv.h"
#include "nets/cuda/libraries/timing.h"

enum { PROPOSED = 16, TRIED = 4 /* engines of each graph; each compiles its kernels, which can take seconds */ };

/* How far cuDNN's results may be from our kernels'. An element may differ by OF_ROW times the largest element of its
 * row (one head of one token) plus OF_MAP times the largest one of the map. Both round factors and results to bf16,
 * 2^-9 each, and have sums that cancel: so OF_ROW is chosen sixteen times as large. OF_MAP is for rows that are 0
 * except for rounding, such as q's gradient of a first token. Logarithms, of f32 sums, may differ by OF_LOG. */
#define OF_ROW 0x1p-5f
#define OF_MAP 0x1p-14f
#define OF_LOG 0x1p-8f

typedef enum output { OUT_Y, OUT_LOG_SUMS, OUT_DX, OUTPUTS } output;
static const mm_phase PHASE_OF[OUTPUTS] = {MM_FORWARD, MM_FORWARD, MM_BACKWARD};

typedef struct results {
    void *of[OUTPUTS]; /* on the host */
} results;

typedef struct trial {
    const nets_cudnn_attention *attention;
    nets_cuda_timing timing;
    nets_attention_tensors at;
    int64_t bytes[OUTPUTS], workspace_bytes;
    results expected, got, again;
} trial;

static const mm_log *log_of(const nets_cudnn_attention *a) { return &a->cuda->config.log; }

/* ---------------------------------------------------------------- one candidate */

/* The argument of launch. */
typedef struct launching {
    const trial *trial;
    mm_phase phase;
    const nets_cudnn_attention_step *step; /* NULL: our kernels */
} launching;

static mm_status launch(const void *ctx, cudaStream_t stream) {
    const launching *l = ctx;
    const nets_attention_tensors *t = &l->trial->at;
    const nets_cuda_attention *of = &l->trial->attention->of;
    if (l->step) return nets_cudnn_attention_enqueue(l->step, of, l->phase, t);
    if (l->phase == MM_FORWARD)
        nets_cuda_attention_forward(MM_BF16, *of, t->x, t->y, t->log_sums, stream);
    else
        nets_cuda_attention_backward(MM_BF16, *of, t->x, t->y, t->dy, t->log_sums, NULL, t->workspace, t->dx, stream);
    return nets_cuda_launched("an attention");
}

static void *output_of(const trial *t, output o) {
    void *const at[OUTPUTS] = {t->at.y, t->at.log_sums, t->at.dx};
    return at[o];
}

/* Fills with NaN the tensors that the phase must write, and the workspace, so that missing results are noticed. */
static mm_status spoil(const trial *t, mm_phase phase) {
    MM_TRY(mm_cuda_check(cudaMemsetAsync(t->at.workspace, 0xff, (size_t)t->workspace_bytes, t->timing.stream),
                         "cudaMemsetAsync"));
    for (int o = 0; o < OUTPUTS; o++)
        if (PHASE_OF[o] == phase)
            MM_TRY(mm_cuda_check(cudaMemsetAsync(output_of(t, o), 0xff, (size_t)t->bytes[o], t->timing.stream),
                                 "cudaMemsetAsync"));
    return MM_OK;
}

static mm_status fetch(const trial *t, mm_phase phase, const results *to) {
    for (int o = 0; o < OUTPUTS; o++)
        if (PHASE_OF[o] == phase)
            MM_TRY(mm_cuda_check(cudaMemcpyAsync(to->of[o], output_of(t, o), (size_t)t->bytes[o],
                                                 cudaMemcpyDeviceToHost, t->timing.stream),
                                 "cudaMemcpyAsync"));
    return mm_cuda_check(cudaStreamSynchronize(t->timing.stream), "cudaStreamSynchronize");
}

static float widened(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float largest(const uint16_t *of, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(widened(of[i])));
    return most;
}

/* Whether cuDNN's map is close enough to our kernels' map. A NaN is not. */
static bool maps_agree(const uint16_t *got, const uint16_t *expected, int64_t n, int size) {
    const float floor = OF_MAP * largest(expected, n);
    for (int64_t row = 0; row < n; row += size) {
        const float most = OF_ROW * largest(expected + row, size) + floor;
        for (int64_t i = row; i < row + size; i++)
            if (!(fabsf(widened(got[i]) - widened(expected[i])) <= most)) return false;
    }
    return true;
}

static bool logs_agree(const float *got, const float *expected, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - expected[i]) <= OF_LOG)) return false;
    return true;
}

static mm_status check(const trial *t, mm_phase phase, bool unordered) {
    static const char *const NAMES[OUTPUTS] = {"output", "logarithms of sums", "gradients"};
    for (int o = 0; o < OUTPUTS; o++) {
        const void *got = t->got.of[o], *expected = t->expected.of[o];
        if (PHASE_OF[o] != phase) continue;
        if (!unordered && memcmp(got, t->again.of[o], (size_t)t->bytes[o]) != 0)
            return mm_fail(MM_ERR_UNSUPPORTED, "its %s have other bits when computed again", NAMES[o]);
        if (o == OUT_LOG_SUMS
                ? !logs_agree(got, expected, t->bytes[o] / (int64_t)sizeof(float))
                : !maps_agree(got, expected, t->bytes[o] / (int64_t)sizeof(uint16_t), t->attention->of.size))
            return mm_fail(MM_ERR_UNSUPPORTED, "its %s differ too much from our kernels'", NAMES[o]);
    }
    return MM_OK;
}

static mm_status time_step(const trial *t, mm_phase phase, const nets_cudnn_attention_step *step, int64_t fastest_ns,
                           int64_t *ns_out) {
    const launching l = {t, phase, step};
    MM_TRY(spoil(t, phase));
    MM_TRY(launch(&l, t->timing.stream));
    MM_TRY(fetch(t, phase, step ? &t->got : &t->expected));
    MM_TRY(nets_cuda_timing_run(&t->timing, launch, &l, fastest_ns, ns_out));
    if (!step) return MM_OK;
    MM_TRY(fetch(t, phase, &t->again));
    return check(t, phase, step->unordered);
}

/* ---------------------------------------------------------------- all candidates */

static mm_status start(trial *t) {
    const nets_cuda_attention *of = &t->attention->of;
    const int64_t head = of->samples * of->tokens * of->size * (int64_t)sizeof(uint16_t);
    const int64_t y = of->heads * head, x = (of->heads + 2 * of->kv_heads) * head;
    t->bytes[OUT_Y] = y;
    t->bytes[OUT_DX] = x;
    t->bytes[OUT_LOG_SUMS] = nets_cuda_attention_backward_bytes(*of);
    t->workspace_bytes = nets_larger(t->attention->cuda->terms.limit_bytes, t->bytes[OUT_LOG_SUMS]);
    for (int o = 0; o < OUTPUTS; o++) {
        results *const all[] = {&t->expected, &t->got, &t->again};
        for (int i = 0; i < 3; i++)
            if (!(all[i]->of[o] = malloc((size_t)t->bytes[o])))
                return mm_fail(MM_ERR_NOMEM, "no memory for %lld bytes of results", (long long)t->bytes[o]);
    }
    MM_TRY(nets_cuda_timing_start(&t->timing));
    MM_TRY(nets_cuda_timing_tensor(&t->timing, x, true, &t->at.x));
    MM_TRY(nets_cuda_timing_tensor(&t->timing, y, true, &t->at.dy));
    MM_TRY(nets_cuda_timing_take(y, &t->at.y));
    MM_TRY(nets_cuda_timing_take(x, &t->at.dx));
    MM_TRY(nets_cuda_timing_take(t->bytes[OUT_LOG_SUMS], &t->at.log_sums));
    MM_TRY(nets_cuda_timing_take(t->workspace_bytes, &t->at.workspace));
    return nets_cuda_dnn_check(cudnnSetStream(t->attention->cuda->dnn, t->timing.stream), "setting a stream");
}

static void end(trial *t) {
    void *const memory[] = {t->at.x, t->at.y, t->at.log_sums, t->at.dy, t->at.dx, t->at.workspace};
    (void)cudnnSetStream(t->attention->cuda->dnn, NULL);
    nets_cuda_timing_stop(&t->timing);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i]) (void)cudaFree(memory[i]);
    nets_cuda_timing_end(&t->timing);
    for (int o = 0; o < OUTPUTS; o++) {
        free(t->expected.of[o]);
        free(t->got.of[o]);
        free(t->again.of[o]);
    }
}

static const char *objection(const nets_cudnn_engine *e, bool unordered) {
    if (e->unreadable) return "cannot be read";
    if (e->nondeterministic && !unordered) return "not deterministic";
    if (e->converts) return "converts its inputs";
    return e->coarse_sums ? "does not sum in float32" : NULL;
}

/* Creates an engine's plan in step->plan, and times it. *hungry_out is set to true if its workspace is too large. */
static mm_status try_engine(const trial *t, mm_phase phase, nets_cudnn_attention_step *step, const nets_cudnn_engine *e,
                            int64_t fastest_ns, bool *hungry_out, int64_t *ns_out) {
    MM_TRY(nets_cuda_timing_go_on(t->attention->cuda)); /* first, because a plan compiles its kernel */
    MM_TRY(nets_cudnn_plan_init(&step->plan, &step->graph, &e->choice));
    mm_status status;
    if (nets_cudnn_attention_bytes(&t->attention->of, phase, step->parts, step->unordered, step->plan.workspace_bytes) >
        t->workspace_bytes) {
        *hungry_out = true;
        status = mm_fail(MM_ERR_UNSUPPORTED, "takes %lld bytes of workspace, more than the limit",
                         (long long)step->plan.workspace_bytes);
    } else {
        status = time_step(t, phase, step, fastest_ns, ns_out);
    }
    if (status != MM_OK) nets_cudnn_plan_fini(&step->plan);
    return status;
}

/* Finds the fastest engine for a batch in step->parts parts; c->api is NETS_CONV_UNCHOSEN if there is none. */
static mm_status try_parts(const trial *t, mm_phase phase, nets_cudnn_attention_step *step, nets_conv_choice *c,
                           bool *hungry_out) {
    nets_cudnn_engine engines[PROPOSED];
    nets_cuda_attention part = t->attention->of;
    int n, tried = 0;
    part.samples /= step->parts;
    MM_TRY(nets_cudnn_attention_graph(&step->graph, t->attention->cuda, &part, phase, step->unordered));
    MM_TRY(nets_cudnn_engines(&step->graph, CUDNN_HEUR_MODE_A, PROPOSED, engines, &n));
    for (int i = 0; i < n && tried < TRIED; i++) {
        nets_cudnn_attention_step other = {.graph = step->graph, .parts = step->parts, .unordered = step->unordered};
        const char *no = objection(&engines[i], step->unordered);
        int64_t ns = 0;
        tried += !no;
        if (!no && try_engine(t, phase, &other, &engines[i], c->api ? c->ns : INT64_MAX, hungry_out, &ns) != MM_OK)
            no = mm_last_error();
        mm_log_send(log_of(t->attention), MM_LOG_DEBUG, "  %s, engine %d, %lld parts: %.4f ms, %lld bytes%s%s",
                    phase == MM_FORWARD ? "forward"
                    : step->unordered   ? "unordered backward"
                                        : "backward",
                    engines[i].choice.algorithm, (long long)step->parts, (double)ns / 1e6,
                    (long long)other.plan.workspace_bytes, no ? ": " : "", no ? no : "");
        if (no) continue;
        if (c->api && c->ns <= ns) {
            nets_cudnn_plan_fini(&other.plan);
            continue;
        }
        nets_cudnn_plan_fini(&step->plan);
        step->plan = other.plan;
        *c = engines[i].choice;
        if (step->unordered) c->api = NETS_CONV_UNORDERED;
        c->math = (int)step->parts;
        c->ns = ns;
        c->workspace_bytes = step->plan.workspace_bytes;
    }
    return MM_OK;
}

/* Whether the batch can be divided so that each part's rows begin at a multiple of 16 bytes, as the graph declares. */
static bool divides(const nets_cuda_attention *of, int64_t parts) {
    return of->samples % parts == 0 && nets_cuda_attention_backward_bytes(*of) / parts % 16 == 0;
}

/* Finds the fastest engine for a batch in as few parts as the workspace allows. */
static void try_engines(const trial *t, mm_phase phase, nets_cudnn_attention_step *step, nets_conv_choice *c) {
    bool hungry = true;
    for (int64_t n = 1; hungry && !c->api && (n == 1 || divides(&t->attention->of, n)); n *= 2) {
        hungry = false;
        nets_cudnn_attention_step_fini(step);
        step->parts = n;
        if (try_parts(t, phase, step, c, &hungry) != MM_OK)
            mm_log_send(log_of(t->attention), MM_LOG_DEBUG, "  no engines: %s", mm_last_error());
    }
    if (!c->api) nets_cudnn_attention_step_fini(step);
}

/* Takes the unordered backward if it is faster. */
static void try_unordered(const trial *t, nets_cudnn_attention_step *step, nets_conv_choice *c) {
    nets_cudnn_attention_step other = {.unordered = true};
    nets_conv_choice made = {.api = NETS_CONV_UNCHOSEN};
    try_engines(t, MM_BACKWARD, &other, &made);
    const bool faster = made.api && (!c->api || made.ns < c->ns);
    nets_cudnn_attention_step_fini(faster ? step : &other);
    if (!faster) return;
    *step = other;
    *c = made;
}

/* Times both phases by our kernels, then by cuDNN: its backward reads what its forward saved. */
static mm_status time_all(trial *t, nets_cudnn_attention_step steps[2], nets_conv_choice own[2],
                          nets_conv_choice theirs[2]) {
    MM_TRY(start(t));
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        own[phase].api = NETS_CONV_OWN;
        MM_TRY(time_step(t, phase, NULL, INT64_MAX, &own[phase].ns));
    }
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        const launching l = {t, phase, &steps[phase]};
        try_engines(t, phase, &steps[phase], &theirs[phase]);
        if (phase == MM_BACKWARD) try_unordered(t, &steps[phase], &theirs[phase]);
        if (!theirs[phase].api || phase == MM_BACKWARD) break;
        /* The backward must read the results of the engine that was chosen, not of the one timed last. */
        MM_TRY(launch(&l, t->timing.stream));
    }
    return MM_OK;
}

/* ---------------------------------------------------------------- the choice */

static nets_conv_shape key_of(const nets_cuda_attention *of, mm_phase phase) {
    return (nets_conv_shape){
        .direction = phase == MM_FORWARD ? NETS_ATTENTION_FORWARD : NETS_ATTENTION_BACKWARD,
        .x = {(int)of->samples, (int)of->tokens, of->heads, of->size},
        .groups = of->kv_heads < of->heads ? of->kv_heads : 0,
        .bf16 = NETS_CONV_BF16,
    };
}

static void use_own(nets_cudnn_attention *a) {
    a->chosen = false;
    a->workspace_bytes[MM_FORWARD] = 0;
    a->workspace_bytes[MM_BACKWARD] = nets_cuda_attention_backward_bytes(a->of);
}

static void use(nets_cudnn_attention *a, const nets_conv_choice of[2]) {
    a->chosen = true;
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++)
        a->workspace_bytes[phase] = nets_cudnn_attention_bytes(
            &a->of, phase, of[phase].math, of[phase].api == NETS_CONV_UNORDERED, of[phase].workspace_bytes);
}

static void drop_steps(nets_cudnn_attention *a) {
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) nets_cudnn_attention_step_fini(&a->steps[phase]);
}

static mm_status make_kept(nets_cudnn_attention *a, const nets_conv_choice kept[2]) {
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        nets_cudnn_attention_step *s = &a->steps[phase];
        nets_cuda_attention part = a->of;
        if (kept[phase].math < 1 || part.samples % kept[phase].math)
            return mm_fail(MM_ERR_INVALID, "cannot divide a batch of %lld into %d parts", (long long)part.samples,
                           kept[phase].math);
        part.samples /= s->parts = kept[phase].math;
        s->unordered = kept[phase].api == NETS_CONV_UNORDERED;
        MM_TRY(nets_cudnn_attention_graph(&s->graph, a->cuda, &part, phase, s->unordered));
        MM_TRY(nets_cudnn_plan_init(&s->plan, &s->graph, &kept[phase]));
        if (s->plan.workspace_bytes > kept[phase].workspace_bytes)
            return mm_fail(MM_ERR_UNSUPPORTED, "the cached engine now takes %lld bytes of workspace",
                           (long long)s->plan.workspace_bytes);
    }
    return MM_OK;
}

static mm_status keep(nets_cudnn_attention *a, const nets_conv_terms *terms, const nets_conv_choice of[2]) {
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        const nets_conv_shape key = key_of(&a->of, phase);
        const nets_conv_pareto front = {1, {of[phase]}};
        MM_TRY(nets_algorithm_cache_store(&a->cuda->choices, &key, terms, &front));
    }
    return MM_OK;
}

/* If timing fails, our kernels are used, and nothing is cached. */
static mm_status choose_anew(nets_cudnn_attention *a, const nets_conv_terms *terms) {
    nets_conv_choice own[2] = {{0}, {0}}, theirs[2] = {{0}, {0}};
    trial t = {.attention = a};
    mm_log_send(log_of(a), MM_LOG_DEBUG, "attention: %lld samples of %lld tokens, %d heads of %d",
                (long long)a->of.samples, (long long)a->of.tokens, a->of.heads, a->of.size);
    mm_status status = time_all(&t, a->steps, own, theirs);
    end(&t);
    MM_TRY(nets_cuda_timing_go_on(a->cuda));
    const int64_t own_ns = own[0].ns + own[1].ns, their_ns = theirs[0].ns + theirs[1].ns;
    const bool faster = status == MM_OK && theirs[MM_FORWARD].api && theirs[MM_BACKWARD].api &&
                        NETS_CUDNN_NO_SLOWER * (double)their_ns < (double)own_ns;
    if (faster)
        use(a, theirs);
    else
        drop_steps(a);
    if (status != MM_OK) {
        mm_log_send(log_of(a), MM_LOG_DEBUG, "cannot time attention, uses our kernels: %s", mm_last_error());
        return MM_OK;
    }
    mm_log_send(log_of(a), MM_LOG_DEBUG, "  our kernels: %.4f ms; taken: %s", (double)own_ns / 1e6,
                faster ? "cuDNN's engines" : "our kernels");
    return keep(a, terms, faster ? theirs : own);
}

static mm_status choose(nets_cudnn_attention *a) {
    const nets_conv_terms terms = nets_cudnn_output_terms(&a->cuda->terms);
    nets_conv_choice kept[2] = {{0}, {0}};
    for (mm_phase phase = MM_FORWARD; phase <= MM_BACKWARD; phase++) {
        const nets_conv_shape key = key_of(&a->of, phase);
        const nets_conv_pareto *front = nets_algorithm_cache_find(&a->cuda->choices, &key, &terms);
        if (front) kept[phase] = front->of[0];
    }
    const int backward = kept[MM_BACKWARD].api;
    const bool by_dnn = kept[MM_FORWARD].api == NETS_CONV_GRAPH && kept[MM_BACKWARD].math > 0 &&
                        (backward == NETS_CONV_GRAPH || backward == NETS_CONV_UNORDERED);
    if (kept[MM_FORWARD].api == NETS_CONV_OWN && backward == NETS_CONV_OWN) return MM_OK;
    if (!a->cuda->dnn) {
        if (by_dnn) use(a, kept);
        return MM_OK;
    }
    if (cudnnGetVersion() < NETS_CUDNN_ATTENTION_OLDEST) return MM_OK;
    if (!by_dnn) return choose_anew(a, &terms);
    const mm_status status = make_kept(a, kept);
    if (status == MM_OK) use(a, kept);
    if (status == MM_OK || status == MM_ERR_NOMEM) return status; /* other steps might give other bits */
    mm_log_send(log_of(a), MM_LOG_DEBUG, "no cached choice for attention holds, chooses anew: %s", mm_last_error());
    drop_steps(a);
    return choose_anew(a, &terms);
}

mm_status nets_cudnn_attention_init(nets_cudnn_attention *attention, nets_cuda_backend *cuda,
                                    const nets_cuda_attention *of, bool candidate) {
    *attention = (nets_cudnn_attention){.cuda = cuda, .of = *of};
    use_own(attention);
    if (!candidate || cuda->config.deterministic) return MM_OK;
    mm_status status = choose(attention);
    if (status != MM_OK) nets_cudnn_attention_fini(attention);
    return status;
}

void nets_cudnn_attention_fini(nets_cudnn_attention *attention) { drop_steps(attention); }
