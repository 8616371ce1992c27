/* SPDX-License-Identifier: MIT */
#include "tools/need/sub_batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/account/account_bound.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/size.h"
#include "mm/core/text.h"
#include "policies/policy.h"

/* moDNN's rule: any consecutive steps that are this share of all steps must fit into memory together. The value is the
 * choice of moDNN's authors. */
enum { WINDOW_PERMILLE = 150 };

/* ---------------------------------------------------------------- reading the option */

static mm_status parse(const char *text, int64_t batch, int64_t *sub_batch_out) {
    char *end;
    *sub_batch_out = *text ? 0 : batch;
    if (!*text || strcmp(text, "auto") == 0) return MM_OK;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < 1 || n > batch)
        return mm_fail(MM_ERR_INVALID, "--sub-batch %s: must be from 1 to the batch, %lld, or auto", text,
                       (long long)batch);
    *sub_batch_out = n;
    return MM_OK;
}

bool sub_batch_is_measured_once(const facts_source *facts) { return facts && facts->n_facts == 1; }

mm_status sub_batch_read(const char *text, const char *policy_spec, int64_t batch, bool whole, int64_t *sub_batch_out) {
    if (text) return parse(text, batch, sub_batch_out);
    mm_policy policy;
    MM_TRY(mm_policy_parse(policy_spec, &policy));
    const int64_t n = mm_policy_sub_batch(&policy);
    mm_policy_fini(&policy);
    if (n > batch)
        return mm_fail(MM_ERR_INVALID, "policy %s: subbatch=%lld: must be at most the batch, %lld",
                       MM_BRIEF(policy_spec), (long long)n, (long long)batch);
    *sub_batch_out = n == MM_SUB_BATCH_OFF ? batch : n != MM_SUB_BATCH_AUTO ? n : whole ? batch : 0;
    return MM_OK;
}

mm_status sub_batch_find(const char *text, const need_case *c, int64_t *sub_batch_out) {
    MM_TRY(sub_batch_read(text, c->policy, c->batch, sub_batch_is_measured_once(c->facts), sub_batch_out));
    if (*sub_batch_out > 0) return MM_OK;
    if (c->budget_bytes > 0) return sub_batch_choose(c, sub_batch_out);
    if (text) return mm_fail(MM_ERR_INVALID, "--sub-batch auto: needs a --budget to fit into");
    *sub_batch_out = c->batch;
    return MM_OK;
}

mm_status sub_batch_check_facts(const char *option, const facts_source *facts, int64_t batch, int64_t sub_batch) {
    if (!facts || facts->n_facts != 1 || facts->batch == 0 || facts->batch == batch || sub_batch < batch) return MM_OK;
    return mm_fail(
        MM_ERR_INVALID,
        "%s %s: was measured with batch %lld, but this is batch %lld; give facts measured with that, or with "
        "several batches: FILE,FILE",
        option, facts->path, (long long)facts->batch, (long long)batch);
}

bool sub_batch_changes_statistics(const nets_net *net) {
    for (int i = 0; i < nets_net_layers(net); i++)
        if (nets_net_layer(net, i)->op == NETS_BATCH_NORM) return true;
    return false;
}

/* With sub-batches, batch norms normalise fewer images, which changes what is trained. */
void sub_batch_warn(const char *command, const nets_net *net, int64_t batch, int64_t sub_batch) {
    if (sub_batch == batch || !sub_batch_changes_statistics(net)) return;
    fprintf(stderr,
            "mm %s: --sub-batch %lld: the batch norms of %s normalise %lld image%s at a time, not the batch of %lld\n",
            command, (long long)sub_batch, nets_net_name(net), (long long)sub_batch, sub_batch == 1 ? "" : "s",
            (long long)batch);
}

/* ---------------------------------------------------------------- choosing by the budget */

static need_case in_parts(const need_case *c, int64_t sub_batch) {
    need_case parts = *c;
    parts.sub_batch = sub_batch;
    return parts;
}

static mm_status window_of(const need_case *c, const nets_exec_graph *pass, int64_t *bytes_out) {
    nets_lowered *lowered;
    mm_graph_facts *facts = NULL;
    MM_TRY(need_lower(c, pass, &lowered));
    mm_status status = c->facts ? mm_graph_facts_create(lowered->graph, 0, &facts) : MM_OK;
    if (status == MM_OK && c->facts) status = facts_source_fill(c->facts, lowered->graph, facts);
    if (status == MM_OK) status = mm_window_bytes(lowered->graph, facts, WINDOW_PERMILLE, bytes_out);
    mm_graph_facts_destroy(facts);
    nets_lowered_destroy(lowered);
    return status;
}

/* Whether every window (consecutive steps, WINDOW_PERMILLE of all) of every pass fits the budget. */
static mm_status windows_fit(const need_case *c, int64_t sub_batch, bool *fit_out) {
    nets_exec_graph graphs[NETS_PASSES];
    *fit_out = true;
    for (int i = nets_exec_graphs(c->batch, sub_batch, graphs) - 1; *fit_out && i >= 0; i--) {
        int64_t bytes;
        MM_TRY(window_of(c, &graphs[i], &bytes));
        *fit_out = bytes <= c->budget_bytes;
    }
    return MM_OK;
}

/* The largest sub-batch whose windows fit; 1 if none does. */
static mm_status find_by_windows(const need_case *c, int64_t *sub_batch_out) {
    int64_t fits = 1, over = c->batch + 1;
    while (over - fits > 1) {
        const int64_t middle = over > c->batch ? c->batch : fits + (over - fits) / 2;
        bool fit;
        MM_TRY(windows_fit(c, middle, &fit));
        *(fit ? &fits : &over) = middle;
    }
    *sub_batch_out = fits;
    return MM_OK;
}

/* How far apart sizes that suit devices are from n on: they are powers of two up to 64, then multiples of 64, and from
 * 1024 on of an eighth of a power of two, so that they are not too many. */
static int64_t apart(int64_t n) {
    int64_t power = 1;
    while (2 * power <= n) power *= 2;
    return power <= 64 ? power : power < 1024 ? 64 : power / 8;
}

/* Rounds down to such a size. */
static int64_t rounded(int64_t n) { return n / apart(n) * apart(n); }

/* Finds what the policy needs with sub-batches of this size, and whether that fits the budget. */
static mm_status plan_parts(const need_case *c, int64_t sub_batch, need *n, bool *fits_out) {
    const need_case parts = in_parts(c, sub_batch);
    MM_TRY(need_init(n, &parts));
    *fits_out = need_most(n)->minimum_bytes <= c->budget_bytes;
    return MM_OK;
}

static mm_status fits(const need_case *c, int64_t sub_batch, bool *fits_out) {
    need n;
    MM_TRY(plan_parts(c, sub_batch, &n, fits_out));
    need_fini(&n);
    return MM_OK;
}

static int64_t next_larger(const need_case *c, int64_t n) {
    const int64_t more = n + apart(n);
    return more < c->batch ? more : c->batch;
}

/* Takes larger sub-batches while all maps fit the budget (policy liveness), so that none has to be evicted. */
static mm_status climb(const need_case *c, int64_t *n) {
    need_case kept = *c;
    kept.policy = "liveness";
    kept.pinned.bytes = INT64_MAX;
    while (*n < c->batch) {
        const int64_t more = next_larger(c, *n);
        bool fit;
        MM_TRY(fits(&kept, more, &fit));
        if (!fit) return MM_OK;
        *n = more;
    }
    return MM_OK;
}

static mm_status refuse(const need *n) {
    const need_pass *most = need_most(n);
    const mm_plan *plan = most->planned.plan;
    char holder[256], bound[320];
    return mm_fail(MM_ERR_INFEASIBLE, "infeasible: sub-batches of one image need at least %s, held by %s%s; %s",
                   MM_SIZE_TEXT(most->minimum_bytes),
                   mm_graph_step_name(plan->graph, plan->peak_step, holder, sizeof holder),
                   MM_PLAN_PINNED_TEXT(most->minimum_pinned_bytes), need_bound_text(n, bound, sizeof bound));
}

/* Halves the sub-batch until the policy's plans fit. Sub-batches need a sum of gradients for each weight, whole batches
 * do not. So if not even single images fit, tries the whole batch. */
static mm_status halve(const need_case *c, int64_t *n) {
    const bool divided = *n < c->batch;
    for (;;) {
        const int64_t tried = *n;
        need planned;
        bool fit, whole = false;
        MM_TRY(plan_parts(c, tried, &planned, &fit));
        mm_status status = MM_OK;
        if (!fit && tried == 1 && divided) status = fits(c, c->batch, &whole);
        if (status == MM_OK && whole) *n = c->batch;
        if (status == MM_OK && !fit && *n == 1) status = refuse(&planned);
        need_fini(&planned);
        if (status != MM_OK || fit || tried == 1) return status;
        *n = rounded(tried / 2);
    }
}

/* Predicts the time of an iteration with this sub-batch. INT64_MAX: the policy's plans do not fit. */
static mm_status predict(const need_case *c, int64_t sub_batch, int64_t *ns_out) {
    const need_case parts = in_parts(c, sub_batch);
    need n;
    MM_TRY(need_init(&n, &parts));
    for (int i = 0; i < n.n; i++) need_hasten(&n.pass[i].policy, mm_graph_steps(n.pass[i].lowered->graph));
    mm_status status = need_time(&n, ns_out);
    need_fini(&n);
    return status;
}

/* A lower bound of what `predict` gives, found without planning. below_ns: a bound that is no less is not improved. */
static mm_status bound(const need_case *c, int64_t sub_batch, int64_t below_ns, int64_t *ns_out) {
    const need_case parts = in_parts(c, sub_batch);
    need n;
    MM_TRY(need_open(&n, &parts));
    mm_status status = need_bound(&n, 0, 0, INT64_MAX, ns_out);
    if (status == MM_OK && *ns_out < below_ns)
        status = need_bound(&n, c->budget_bytes, c->pinned.bytes, below_ns, ns_out);
    need_fini(&n);
    return status;
}

/* Takes `other` if it is predicted to be faster. */
static mm_status take_faster(const need_case *c, int64_t other, int64_t *n, int64_t *least_ns) {
    int64_t ns;
    MM_TRY(bound(c, other, *least_ns, &ns));
    if (ns >= *least_ns) return MM_OK;
    MM_TRY(predict(c, other, &ns));
    if (ns < *least_ns) {
        *n = other;
        *least_ns = ns;
    }
    return MM_OK;
}

/* Takes the fastest of all sizes that suit devices. These do not depend on the budget, so that with more memory, whose
 * plans are no slower, the fastest is no slower either. Larger ones come first: they are equally fast with fewer
 * passes. Their steps are seldom slower, so smaller ones are mostly ruled out by their bounds. */
static mm_status hasten(const need_case *c, int64_t *n) {
    const int64_t first = *n;
    int64_t least_ns;
    MM_TRY(predict(c, first, &least_ns));
    for (int64_t other = c->batch; other > 0; other = rounded(other - 1))
        if (other != first) MM_TRY(take_faster(c, other, n, &least_ns));
    return MM_OK;
}

/* Lower bounds of the times of all passes of each kind, in any budget; with their sum. */
static mm_status bound_each(const need *n, int64_t bounds_out[NETS_PASSES], int64_t *sum_out) {
    *sum_out = 0;
    for (int i = 0; i < n->n; i++) {
        MM_TRY(need_bound_passes(n, i, 0, 0, INT64_MAX, &bounds_out[i]));
        *sum_out = bounds_out[i] < INT64_MAX - *sum_out ? *sum_out + bounds_out[i] : INT64_MAX;
    }
    return MM_OK;
}

/* As predict, without looking for the minima. below_ns: of no interest from this time on; INT64_MAX: no limit. Each
 * kind of pass gets what the bounds of the others leave. */
static mm_status predict_within(const need_case *c, int64_t sub_batch, int64_t below_ns, int64_t *ns_out) {
    const need_case parts = in_parts(c, sub_batch);
    need n;
    int64_t ns = 0, bounds[NETS_PASSES] = {0}, others_ns = 0;
    MM_TRY(need_open(&n, &parts));
    mm_status status = below_ns < INT64_MAX ? bound_each(&n, bounds, &others_ns) : MM_OK;
    bool fit = others_ns < below_ns;
    for (int i = n.n - 1; status == MM_OK && fit && i >= 0; i--) {
        mm_simulation sim;
        others_ns -= bounds[i];
        if (below_ns < INT64_MAX) n.asked.below_ns = (below_ns - ns - others_ns - 1) / n.pass[i].graph.passes + 1;
        status = need_within(&n, i, c->budget_bytes, c->pinned.bytes, 0);
        const mm_plan *plan = n.pass[i].planned.plan;
        fit = status == MM_OK && plan->peak_bytes <= c->budget_bytes && need_is_within(c, plan);
        if (fit) status = need_simulate(&n, i, &sim);
        if (!fit || status != MM_OK) continue;
        ns += n.pass[i].graph.passes * sim.iteration_ns;
        fit = ns + others_ns < below_ns;
        mm_simulation_fini(&sim);
    }
    need_fini(&n);
    *ns_out = fit ? ns : INT64_MAX;
    return status;
}

/* Chosen. SMALL_STEPS: `auto` plans three passes of such graphs in some 0.2 s. NEAR_SHARE: without a search its plans
 * are seldom nearer to the bound, unless all maps fit, which `quick` finds. */
enum { HALVINGS = 20, SMALL_STEPS = 150, NEAR_SHARE = 32, ANY_SHARE = INT32_MAX };

typedef struct candidates {
    int64_t size[HALVINGS], bound_ns[HALVINGS];
    int n;
    int64_t best, best_ns; /* best 0: none */
} candidates;

static int least_bound(const candidates *k) {
    int least = 0;
    for (int i = 1; i < k->n; i++) least = k->bound_ns[i] < k->bound_ns[least] ? i : least;
    return least;
}

/* Plans a candidate, unless its bound says that it is not faster; near_share: by at least such a share of the bound. */
static mm_status plan_candidate(const need_case *c, int i, int near_share, candidates *k) {
    int64_t ns;
    if (k->bound_ns[i] >= k->best_ns || k->bound_ns[i] + k->bound_ns[i] / near_share >= k->best_ns) return MM_OK;
    MM_TRY(predict_within(c, k->size[i], k->best_ns, &ns));
    if (ns >= k->best_ns) return MM_OK;
    k->best = k->size[i];
    k->best_ns = ns;
    return MM_OK;
}

/* Whether the best is so near all bounds that no plan is faster by a tenth. */
static bool is_near(const candidates *k) { return k->best > 0 && k->best_ns / 11 * 10 <= k->bound_ns[least_bound(k)]; }

/* Finds bounds in the budget until the least of all is one of them. The bounds in any budget, which are known, are no
 * higher, so that most candidates need none in the budget. */
static mm_status find_least_bound(const need_case *c, candidates *k) {
    bool in_budget[HALVINGS] = {0};
    for (int i = least_bound(k); !in_budget[i] && k->bound_ns[i] < k->best_ns; i = least_bound(k)) {
        in_budget[i] = true;
        MM_TRY(bound(c, k->size[i], k->best_ns, &k->bound_ns[i]));
    }
    return MM_OK;
}

mm_status sub_batch_fast(const need_case *c, const char *quick, bool thorough, int steps, int64_t below_ns,
                         int64_t *sub_batch_out, int64_t *ns_out) {
    candidates k = {.best_ns = below_ns};
    need_case quickly = *c;
    quickly.policy = quick;
    for (int64_t size = rounded((c->batch + 1) / 2); size > 0 && k.n < HALVINGS; size = rounded(size / 2)) {
        MM_TRY(bound(c, size, 0, &k.bound_ns[k.n])); /* in any budget, which takes much less time */
        k.size[k.n++] = size;
    }
    for (int i = 0; quick && i < k.n && !is_near(&k); i++) MM_TRY(plan_candidate(&quickly, i, ANY_SHARE, &k));
    if (thorough && k.n > 0 && !is_near(&k) && (k.best == 0 || steps <= SMALL_STEPS)) {
        MM_TRY(find_least_bound(c, &k));
        if (!is_near(&k)) MM_TRY(plan_candidate(c, least_bound(&k), NEAR_SHARE, &k));
    }
    *sub_batch_out = k.best;
    *ns_out = k.best_ns;
    return MM_OK;
}

static mm_status choose(const need_case *c, int64_t *n) {
    MM_TRY(find_by_windows(c, n));
    if (*n < c->batch) *n = rounded(*n);
    MM_TRY(climb(c, n));
    MM_TRY(halve(c, n));
    return c->facts ? hasten(c, n) : MM_OK;
}

/* If the device times algorithms, chooses a size with lower bounds of their workspaces first, and only then plans with
 * the timed algorithms, from that size down. */
mm_status sub_batch_choose(const need_case *given, int64_t *sub_batch_out) {
    need_case c = *given;
    struct target untimed = *c.target;
    facts_source between;
    mm_status status = nets_backend_open_bound(untimed.backend, &untimed.backend);
    if (status == MM_ERR_UNSUPPORTED) return choose(&c, sub_batch_out);
    MM_TRY(status);
    c.target = &untimed;
    if (c.facts) {
        between = *c.facts;
        between.only_between = true;
        c.facts = &between;
    }
    status = choose(&c, sub_batch_out);
    target_fini(&untimed);
    c.target = given->target;
    c.facts = given->facts;
    return status == MM_OK ? halve(&c, sub_batch_out) : status;
}
