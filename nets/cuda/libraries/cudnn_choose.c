/* SPDX-License-Identifier: MIT */
/* Choosing what computes a convolution. The candidates are the legacy API's best algorithms by its own timing, the
 * algorithms that cuBLAS proposes for a product, and the engines that the graph API proposes. They run one after the
 * other in memory that is freed afterwards. This allocates and waits, so it happens when an op is created. The choices
 * are the fastest, and those that take more time and less workspace.
 *
 * A candidate that fails is dropped. At level debug, the log lists each candidate, and why any other proposal is not a
 * candidate. The numbers below are chosen. */
#include <stdio.h>

#include "mm/core/log.h"
#include "nets/cuda/libraries/cudnn_conv.h"
#include "nets/cuda/libraries/timing.h"

enum {
    LEGACY = 8,   /* algorithms of the legacy API; a direction has no more */
    PRODUCTS = 8, /* algorithms of cuBLAS */
    ENGINES = 9,
    CANDIDATES = LEGACY + PRODUCTS + ENGINES,
    BEYOND = 6,    /* candidates that take more workspace than the limit */
    PROPOSED = 64, /* engines that are considered from each heuristic */
    COMPILED = 4,  /* candidates that compile their kernel when their plan is made, which can take seconds */
    TEXT = 1200,
};

typedef nets_conv_algorithm candidate;

typedef struct selection {
    nets_conv_tensors memory;
    nets_cuda_timing timing;
    nets_cudnn_graph graph;
    candidate of[CANDIDATES + BEYOND];
    /* Over the limit, with tensor cores; timed only if no candidate within the limit uses tensor cores. */
    candidate beyond[BEYOND];
    int n, n_beyond, compiled;
    bool timed, tensor_core /* a candidate uses them */, incomplete /* some were not timed that should be */;
} selection;
_Static_assert(CANDIDATES + BEYOND <= NETS_FRONT_POINTS, "nets_pareto_of takes all");

/* ---------------------------------------------------------------- the log */

static const mm_log *log_of(const nets_cudnn_conv *c) { return &c->cuda->config.log; }

static void report_shape(const nets_cudnn_conv *c) {
    static const char *const DIRECTIONS[] = {"forward", "by input", "by weights"};
    const nets_conv_shape *s = &c->shape;
    mm_log_send(log_of(c), MM_LOG_DEBUG,
                "a convolution %s%s%s: %d x %d x %d x %d to %d x %d x %d, window %d x %d, stride %d x %d, groups %d",
                DIRECTIONS[s->direction], s->adds ? ", added" : "", s->bf16 ? ", bf16" : "", s->x[0], s->x[1], s->x[2],
                s->x[3], s->y[1], s->y[2], s->y[3], s->kernel[0], s->kernel[1], s->stride[0], s->stride[1], s->groups);
}

static void describe(const nets_conv_choice *c, char text[TEXT]) {
    static const char *const NAMES[] = {
        [NETS_CONV_LEGACY] = "algorithm", [NETS_CONV_GRAPH] = "engine", [NETS_CONV_PRODUCT] = "product"};
    int at = snprintf(text, TEXT, "%s %d", NAMES[c->api], c->algorithm);
    if (c->api == NETS_CONV_LEGACY) snprintf(text + at, (size_t)(TEXT - at), ", math %d", c->math);
    for (int i = 0; c->api != NETS_CONV_PRODUCT && i < c->n_knobs; i++)
        at += snprintf(text + at, (size_t)(TEXT - at), " %d=%lld", c->knobs[i].type, (long long)c->knobs[i].value);
}

static void tell(const nets_cudnn_conv *c, const nets_conv_choice *choice, const char *verdict) {
    char text[TEXT];
    describe(choice, text);
    mm_log_send(log_of(c), MM_LOG_DEBUG, "  %s: %s", text, verdict);
}

static void report_time(const nets_cudnn_conv *c, const candidate *a, const char *what) {
    char verdict[128];
    snprintf(verdict, sizeof verdict, "%s%.4f ms, %lld bytes", what, (double)a->choice.ns / 1e6,
             (long long)a->choice.workspace_bytes);
    tell(c, &a->choice, verdict);
}

/* Warns once: the reason is the same for all convolutions. */
static void report_untimed(const nets_cudnn_conv *c) {
    if (!c->cuda->told_untimed)
        mm_log_send(log_of(c), MM_LOG_WARNING, "cannot time a convolution's algorithms, takes a guess: %s",
                    mm_last_error());
    c->cuda->told_untimed = true;
}

/* ---------------------------------------------------------------- running candidates */

static mm_status start(const nets_cudnn_conv *c, selection *s) {
    const nets_cuda_timing *t = &s->timing;
    MM_TRY(nets_cuda_timing_start(&s->timing));
    MM_TRY(nets_cuda_timing_tensor(t, c->x_bytes, nets_conv_is_bf16(&c->shape, NETS_CONV_BY_INPUT), &s->memory.x));
    MM_TRY(nets_cuda_timing_tensor(t, c->y_bytes, nets_conv_is_bf16(&c->shape, NETS_CONV_FORWARD), &s->memory.y));
    MM_TRY(nets_cuda_timing_tensor(t, c->weights_bytes, nets_conv_is_bf16(&c->shape, NETS_CONV_BY_WEIGHTS),
                                   &s->memory.weights));
    if (nets_conv_has_epilogue(&c->shape))
        MM_TRY(nets_cuda_timing_tensor(t, nets_gemm_extra_bytes(&c->shape), true, &s->memory.extra));
    MM_TRY(nets_cuda_timing_take(c->terms.limit_bytes, &s->memory.workspace));
    return nets_cuda_dnn_check(cudnnSetStream(c->cuda->dnn, t->stream), "setting a stream");
}

static void end(const nets_cudnn_conv *c, selection *s) {
    void *const memory[] = {s->memory.x, s->memory.y, s->memory.weights, s->memory.extra, s->memory.workspace};
    (void)cudnnSetStream(c->cuda->dnn, NULL);
    nets_cuda_timing_stop(&s->timing);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i]) (void)cudaFree(memory[i]);
    nets_cuda_timing_end(&s->timing);
    s->memory = (nets_conv_tensors){0};
}

/* NULL: there is no candidate yet. */
static const candidate *fastest_of(const selection *s) {
    const candidate *fastest = NULL;
    for (int i = 0; i < s->n; i++)
        if (!fastest || s->of[i].choice.ns < fastest->choice.ns) fastest = &s->of[i];
    return fastest;
}

/* The argument of launch. */
typedef struct launching {
    const nets_cudnn_conv *conv;
    const nets_conv_tensors *memory;
    const candidate *of;
} launching;

static mm_status launch(const void *ctx, cudaStream_t stream) {
    const launching *l = ctx;
    return nets_cudnn_conv_launch(l->conv, l->of, l->memory, stream);
}

static mm_status time_candidate(const nets_cudnn_conv *c, const selection *s, candidate *a) {
    const candidate *fastest = fastest_of(s);
    const launching l = {c, &s->memory, a};
    MM_TRY(nets_cuda_timing_go_on(c->cuda));
    MM_TRY(nets_cuda_timing_run(&s->timing, launch, &l, fastest ? fastest->choice.ns : INT64_MAX, &a->choice.ns));
    report_time(c, a, "");
    return MM_OK;
}

/* ---------------------------------------------------------------- candidates */

static bool has_legacy(const nets_cudnn_conv *c) { return c->legacy.x != NULL; }

/* Adds at most `most` algorithms of the legacy API. A failure leaves the other candidates. */
static void add_legacy(nets_cudnn_conv *c, selection *s, int most) {
    nets_conv_choice proposed[LEGACY];
    int n = 0;
    if (!has_legacy(c) || nets_cuda_timing_go_on(c->cuda) != MM_OK) return;
    if (nets_cudnn_legacy_propose(c, s->timed ? &s->memory : NULL, most, proposed, &n) != MM_OK)
        mm_log_send(log_of(c), MM_LOG_DEBUG, "  no algorithm: %s", mm_last_error());
    for (int i = 0; i < n; i++) {
        candidate *a = &s->of[s->n];
        *a = (candidate){.choice = proposed[i]};
        if (s->timed && time_candidate(c, s, a) != MM_OK)
            tell(c, &a->choice, mm_last_error());
        else
            s->n++;
    }
}

static mm_status make_product(nets_cudnn_conv *c, selection *s, candidate *a) {
    MM_TRY(nets_gemm_make(&c->product, &a->choice, &a->product));
    a->choice.workspace_bytes = a->product.workspace_bytes;
    if (a->choice.workspace_bytes > c->terms.limit_bytes)
        return mm_fail(MM_ERR_UNSUPPORTED, "takes %lld bytes of workspace, more than the limit",
                       (long long)a->choice.workspace_bytes);
    return s->timed ? time_candidate(c, s, a) : MM_OK;
}

/* Adds algorithms of cuBLAS until there are `most` candidates. */
static void add_products(nets_cudnn_conv *c, selection *s, int most) {
    nets_conv_choice proposed[PRODUCTS];
    int n;
    if (!c->product.lt) return;
    if (nets_gemm_propose(&c->product, c->terms.limit_bytes, c->terms.deterministic, PRODUCTS, proposed, &n) != MM_OK)
        mm_log_send(log_of(c), MM_LOG_DEBUG, "  no more algorithms of cuBLAS: %s", mm_last_error());
    for (int i = 0; i < n && s->n < most; i++) {
        candidate *a = &s->of[s->n];
        *a = (candidate){.choice = proposed[i]};
        if (make_product(c, s, a) != MM_OK) {
            tell(c, &a->choice, mm_last_error());
        } else {
            s->n++;
            s->tensor_core |= a->product.tensor_core;
        }
    }
}

static bool same_engine(const nets_conv_choice *a, const nets_conv_choice *b) {
    if (a->api != b->api || a->algorithm != b->algorithm || a->n_knobs != b->n_knobs) return false;
    for (int i = 0; i < a->n_knobs; i++)
        if (a->knobs[i].type != b->knobs[i].type || a->knobs[i].value != b->knobs[i].value) return false;
    return true;
}

static bool is_candidate(const selection *s, const nets_conv_choice *choice) {
    for (int i = 0; i < s->n; i++)
        if (same_engine(&s->of[i].choice, choice)) return true;
    for (int i = 0; i < s->n_beyond; i++)
        if (same_engine(&s->beyond[i].choice, choice)) return true;
    return false;
}

/* Why an engine is not a candidate; NULL: it is one. An engine that converts its inputs to TF32 keeps float32's range;
 * other conversions may not. */
static const char *objection(const nets_cudnn_conv *c, const selection *s, const nets_cudnn_engine *e) {
    if (e->unreadable) return "cannot be read";
    if (c->terms.deterministic && e->nondeterministic) return "not deterministic";
    if (e->converts) return "converts its inputs";
    if (e->coarse_sums) return "does not sum in float32";
    if (c->cuda->config.precision == NETS_FP32 && !c->shape.bf16 && e->tensor_core) return "rounds to TF32";
    if (e->compiles && s->compiled == COMPILED) return "has to be compiled, and enough candidates were";
    return NULL;
}

/* Moves a candidate to an empty place. */
static void move(candidate *from, candidate *to) {
    *to = *from;
    from->plan = (nets_cudnn_plan){.plan = NULL};
}

static mm_status refuse(const nets_cudnn_conv *c, selection *s, const nets_cudnn_engine *e, candidate *a) {
    const int64_t bytes = a->choice.workspace_bytes;
    bool later = s->timed && e->tensor_core && bytes <= c->terms.tensor_core_limit_bytes && s->n_beyond < BEYOND;
    if (later) move(a, &s->beyond[s->n_beyond++]);
    return mm_fail(MM_ERR_UNSUPPORTED, "takes %lld bytes of workspace, more than the limit", (long long)bytes);
}

static mm_status make_candidate(nets_cudnn_conv *c, selection *s, const nets_cudnn_engine *e, candidate *a) {
    MM_TRY(nets_cuda_timing_go_on(c->cuda)); /* first, because a plan's kernel may have to be compiled */
    MM_TRY(nets_cudnn_plan_init(&a->plan, &s->graph, &a->choice));
    a->choice.workspace_bytes = a->plan.workspace_bytes;
    mm_status status = MM_OK;
    if (a->plan.workspace_bytes > c->terms.limit_bytes)
        status = refuse(c, s, e, a);
    else if (s->timed)
        status = time_candidate(c, s, a);
    if (status != MM_OK) nets_cudnn_plan_fini(&a->plan);
    return status;
}

static void add_engine(nets_cudnn_conv *c, selection *s, const nets_cudnn_engine *e) {
    const char *no = objection(c, s, e);
    candidate *a = &s->of[s->n];
    if (!no) {
        *a = (candidate){.choice = e->choice};
        s->compiled += e->compiles;
        if (make_candidate(c, s, e, a) != MM_OK) no = mm_last_error();
    }
    if (no) {
        tell(c, &e->choice, no);
    } else {
        s->n++;
        s->tensor_core |= e->tensor_core;
    }
}

/* Adds engines that a heuristic proposes until there are `most` candidates. */
static void ask(nets_cudnn_conv *c, selection *s, cudnnBackendHeurMode_t mode, int most) {
    nets_cudnn_engine proposed[PROPOSED];
    int n;
    if (nets_cudnn_engines(&s->graph, mode, PROPOSED, proposed, &n) != MM_OK)
        mm_log_send(log_of(c), MM_LOG_DEBUG, "  no engines of mode %d: %s", (int)mode, mm_last_error());
    for (int i = 0; i < n && s->n < most; i++)
        if (!is_candidate(s, &proposed[i].choice)) add_engine(c, s, &proposed[i]);
}

/* Mode B's list repeats mode A's; FALLBACK's engines are slow, but better than none. */
static void add_engines(nets_cudnn_conv *c, selection *s, int most) {
    if (c->shape.pitch > 0 || nets_conv_has_epilogue(&c->shape)) return;
    if (nets_cudnn_graph_init(&s->graph, c->cuda, &c->shape) != MM_OK) {
        mm_log_send(log_of(c), MM_LOG_DEBUG, "  no engines: %s", mm_last_error());
        return;
    }
    ask(c, s, CUDNN_HEUR_MODE_A, most);
    if (s->n < most) ask(c, s, CUDNN_HEUR_MODE_B, most);
    if (!s->n) ask(c, s, CUDNN_HEUR_MODE_FALLBACK, most);
}

/* Replaces the workspace, which is as large as the limit, by one for the candidates beyond it. */
static mm_status take_more(selection *s) {
    int64_t bytes = 0;
    void *less = s->memory.workspace;
    for (int i = 0; i < s->n_beyond; i++) bytes = nets_larger(bytes, s->beyond[i].choice.workspace_bytes);
    s->memory.workspace = NULL;
    MM_TRY(mm_cuda_check(cudaFree(less), "cudaFree"));
    return nets_cuda_timing_take(bytes, &s->memory.workspace);
}

/* If no candidate within the limit uses tensor cores, adds those beyond the limit that are much faster. */
static void add_beyond(nets_cudnn_conv *c, selection *s) {
    const candidate *fastest = fastest_of(s);
    if (s->tensor_core || !s->n_beyond) return;
    if (take_more(s) != MM_OK) {
        mm_log_send(log_of(c), MM_LOG_DEBUG, "  no memory to time the candidates that exceed the workspace limit: %s",
                    mm_last_error());
        s->incomplete = true;
        return;
    }
    for (int i = 0; i < s->n_beyond; i++) {
        candidate *a = &s->beyond[i];
        if (time_candidate(c, s, a) != MM_OK)
            tell(c, &a->choice, mm_last_error());
        else if (fastest && (double)a->choice.ns > NETS_CUDNN_MUCH_FASTER * (double)fastest->choice.ns)
            tell(c, &a->choice, "not fast enough to exceed the workspace limit");
        else
            move(a, &s->of[s->n++]);
    }
}

/* ---------------------------------------------------------------- the choice */

static mm_status time_all(nets_cudnn_conv *c, selection *s) {
    s->timed = true;
    MM_TRY(start(c, s));
    add_legacy(c, s, LEGACY);
    add_products(c, s, s->n + PRODUCTS);
    add_engines(c, s, s->n + ENGINES);
    add_beyond(c, s);
    return MM_OK;
}

/* Takes the libraries' own first choice, without timing. */
static void guess(nets_cudnn_conv *c, selection *s) {
    s->timed = false;
    add_products(c, s, 1);
    if (!s->n) add_legacy(c, s, 1);
    if (!s->n) add_engines(c, s, 1);
}

/* Chooses the candidates that are each the best for some size of workspace. */
static mm_status take_best(nets_cudnn_conv *c, selection *s) {
    nets_pareto_point points[CANDIDATES + BEYOND];
    int chosen[NETS_WORKSPACES];
    for (int i = 0; i < s->n; i++) points[i] = (nets_pareto_point){s->of[i].choice.workspace_bytes, s->of[i].choice.ns};
    c->n = nets_pareto_of(points, s->n, NETS_CUDNN_NO_SLOWER, NETS_WORKSPACES, chosen);
    if (!c->n)
        return mm_fail(
            MM_ERR_UNSUPPORTED,
            "there is no %salgorithm for this convolution within %lld bytes of workspace; at level debug, the "
            "log says why each one was refused%s",
            c->terms.deterministic ? "deterministic " : "", (long long)c->terms.limit_bytes,
            has_legacy(c) ? "" : "; with a smaller batch there are more");
    bool engines = false;
    for (int i = 0; i < c->n; i++) {
        move(&s->of[chosen[i]], &c->of[i]);
        engines |= c->of[i].choice.api == NETS_CONV_GRAPH;
        report_time(c, &c->of[i], "taken: ");
    }
    if (engines) {
        c->graph = s->graph;
        s->graph = (nets_cudnn_graph){.graph = NULL};
    }
    return MM_OK;
}

static void drop_rest(selection *s) {
    for (int i = 0; i < s->n; i++) nets_cudnn_plan_fini(&s->of[i].plan);
    for (int i = 0; i < s->n_beyond; i++) nets_cudnn_plan_fini(&s->beyond[i].plan);
    nets_cudnn_graph_fini(&s->graph);
}

mm_status nets_cudnn_choose(nets_cudnn_conv *c, bool *timed_out) {
    selection s = {.n = 0};
    report_shape(c);
    mm_status status = time_all(c, &s);
    *timed_out = status == MM_OK && !s.incomplete;
    end(c, &s);
    if (status != MM_OK) {
        report_untimed(c);
        guess(c, &s);
    }
    status = nets_cuda_timing_go_on(c->cuda);
    if (status == MM_OK) status = take_best(c, &s);
    drop_rest(&s);
    return status;
}
