/* SPDX-License-Identifier: MIT */
#include "tools/sub_batch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/account/account.h"
#include "policies/policy.h"
#include "tools/requirement.h"

/* moDNN's share of the steps that are to fit together, in thousandths: its authors' choice. */
enum { WINDOW_PERMILLE = 150 };

/* ---------------------------------------------------------------- what is asked for */

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

bool sub_batch_is_measured(const facts_source *facts) { return facts && !facts->is_machine; }

mm_status sub_batch_read(const char *text, const char *policy_spec, int64_t batch, bool measured,
                         int64_t *sub_batch_out) {
    if (text) return parse(text, batch, sub_batch_out);
    mm_policy policy;
    MM_TRY(mm_policy_parse(policy_spec, &policy));
    const int64_t n = mm_policy_sub_batch(&policy);
    mm_policy_fini(&policy);
    if (n > batch)
        return mm_fail(MM_ERR_INVALID, "policy %s: subbatch=%lld: must be at most the batch, %lld",
                       MM_BRIEF(policy_spec), (long long)n, (long long)batch);
    *sub_batch_out = n == MM_SUB_BATCH_OFF ? batch : n != MM_SUB_BATCH_AUTO ? n : measured ? batch : 0;
    return MM_OK;
}

mm_status sub_batch_check_facts(const char *option, const facts_source *facts, int64_t batch, int64_t sub_batch) {
    if (!sub_batch_is_measured(facts)) return MM_OK;
    if (facts->batch > 0 && facts->batch != batch)
        return mm_fail(MM_ERR_INVALID, "%s %s: measured of batch %lld, this is of batch %lld; give facts of that",
                       option, facts->path, (long long)facts->batch, (long long)batch);
    if (sub_batch == batch) return MM_OK;
    return mm_fail(MM_ERR_INVALID,
                   "%s %s: measured of whole batches, this computes %lld of %lld images at a time; a machine's rates "
                   "serve that, or keep batches whole: --sub-batch %lld",
                   option, facts->path, (long long)sub_batch, (long long)batch, (long long)batch);
}

/* Batch norms see less of the batch, which other training loops of this kind leave their users to find out. */
void sub_batch_warn(const char *command, const nets_net *net, int64_t batch, int64_t sub_batch) {
    int layer = 0;
    while (layer < nets_net_layers(net) && nets_net_layer(net, layer)->op != NETS_BATCH_NORM) layer++;
    if (sub_batch == batch || layer == nets_net_layers(net)) return;
    fprintf(stderr,
            "mm %s: --sub-batch %lld: the batch norms of %s normalise %lld image%s at a time, not the batch of %lld\n",
            command, (long long)sub_batch, nets_net_name(net), (long long)sub_batch, sub_batch == 1 ? "" : "s",
            (long long)batch);
}

/* ---------------------------------------------------------------- by the budget */

static mm_status window_of(const sub_batch_case *c, const mm_graph *graph, int64_t *bytes_out) {
    mm_facts *facts = NULL;
    if (c->facts) {
        MM_TRY(mm_facts_create(graph, 0, &facts));
        mm_status filled = facts_source_fill(c->facts, graph, facts);
        if (filled != MM_OK) {
            mm_facts_destroy(facts);
            return filled;
        }
    }
    mm_status status = mm_window_bytes(graph, facts, WINDOW_PERMILLE, bytes_out);
    mm_facts_destroy(facts);
    return status;
}

/* Whether runs of steps fit together, in each pass. */
static mm_status windows_fit(const sub_batch_case *c, int64_t sub_batch, bool *fit_out) {
    nets_exec_graph graphs[NETS_PASSES];
    *fit_out = true;
    for (int i = nets_exec_graphs(c->batch, sub_batch, graphs) - 1; *fit_out && i >= 0; i--) {
        nets_lowered *lowered;
        int64_t bytes;
        MM_TRY(nets_lower_pass(c->net, c->target->backend, graphs[i].batch, NETS_TRAIN, graphs[i].pass,
                               c->target->optimizer.id, &lowered));
        mm_status status = window_of(c, lowered->graph, &bytes);
        nets_lowered_destroy(lowered);
        MM_TRY(status);
        *fit_out = bytes <= c->budget_bytes;
    }
    return MM_OK;
}

/* The largest whose windows fit; 1 if none does. */
static mm_status find_by_windows(const sub_batch_case *c, int64_t *sub_batch_out) {
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

/* As devices like it: a multiple of 64, or a power of two. */
static int64_t rounded(int64_t n) {
    int64_t power = 1;
    while (2 * power <= n && power < 64) power *= 2;
    return n / power * power;
}

requirement_asked sub_batch_asked(const sub_batch_case *c, int64_t sub_batch) {
    return (requirement_asked){.net = c->net,
                               .batch = c->batch,
                               .sub_batch = sub_batch,
                               .mode = NETS_TRAIN,
                               .target = c->target,
                               .policy = c->policy,
                               .pinned_bytes = c->pinned_bytes,
                               .facts = c->facts,
                               .may_unfuse = true,
                               .budget_bytes = c->budget_bytes};
}

static mm_status plan_passes(const sub_batch_case *c, int64_t sub_batch, const char *policy, int64_t pinned_bytes,
                             requirement_passes *p) {
    requirement_asked asked = sub_batch_asked(c, sub_batch);
    asked.policy = policy;
    asked.pinned_bytes = pinned_bytes;
    return requirement_passes_init(p, &asked);
}

static int64_t next_larger(const sub_batch_case *c, int64_t n) {
    const int64_t more = n < 64 ? 2 * n : n + 64;
    return more < c->batch ? more : c->batch;
}

/* Larger ones are as good where all maps fit: then none has to leave. */
static mm_status climb(const sub_batch_case *c, int64_t *n) {
    while (*n < c->batch) {
        const int64_t more = next_larger(c, *n);
        requirement_passes p;
        MM_TRY(plan_passes(c, more, "liveness", INT64_MAX, &p));
        const bool fits = requirement_most(&p)->minimum_bytes <= c->budget_bytes;
        requirement_passes_fini(&p);
        if (!fits) return MM_OK;
        *n = more;
    }
    return MM_OK;
}

static mm_status refuse(const requirement_passes *p) {
    const requirement *most = requirement_most(p);
    const mm_plan *plan = most->planned.plan;
    char holder[256], bound[320];
    return mm_fail(MM_ERR_INFEASIBLE, "infeasible: in sub-batches of one image needs at least %s, held by %s; %s",
                   MM_SIZE_TEXT(most->minimum_bytes),
                   mm_graph_step_name(plan->graph, plan->peak_step, holder, sizeof holder),
                   requirement_bound_text(p, bound, sizeof bound));
}

/* Batches in parts keep a sum of gradients for each weight, which whole ones do not. Leaves *n where they do not
 * fit. */
static mm_status try_whole(const sub_batch_case *c, int64_t *n) {
    requirement_passes p;
    MM_TRY(plan_passes(c, c->batch, c->policy, c->pinned_bytes, &p));
    if (requirement_most(&p)->minimum_bytes <= c->budget_bytes) *n = c->batch;
    requirement_passes_fini(&p);
    return MM_OK;
}

/* Until the policy's plans fit. */
static mm_status halve(const sub_batch_case *c, int64_t *n) {
    const bool in_parts = *n < c->batch;
    for (;;) {
        const int64_t tried = *n;
        requirement_passes p;
        MM_TRY(plan_passes(c, tried, c->policy, c->pinned_bytes, &p));
        const bool fits = requirement_most(&p)->minimum_bytes <= c->budget_bytes;
        mm_status status = MM_OK;
        if (!fits && tried == 1 && in_parts) status = try_whole(c, n);
        if (status == MM_OK && !fits && *n == 1) status = refuse(&p);
        requirement_passes_fini(&p);
        if (status != MM_OK || fits || tried == 1) return status;
        *n = rounded(tried / 2);
    }
}

/* INT64_MAX: the policy's plans do not fit. */
static mm_status predict(const sub_batch_case *c, int64_t sub_batch, int64_t *ns_out) {
    const requirement_asked asked = sub_batch_asked(c, sub_batch);
    requirement_passes p;
    MM_TRY(requirement_passes_init(&p, &asked));
    for (int i = 0; i < p.n; i++) requirement_hasten(&p.r[i].policy, p.r[i].lowered->graph);
    mm_status status = requirement_passes_time(&p, &asked, ns_out);
    requirement_passes_fini(&p);
    return status;
}

/* Chosen: by how much, in thousandths of the time, another number must be faster. Larger ones copy more over the link,
 * which a smaller gain is not worth. */
enum { WORTH_PERMILLE = 20 };

/* Goes on to larger ones, or else to smaller ones, while the policy's plans are predicted to take less time. */
static mm_status hasten(const sub_batch_case *c, int64_t *n) {
    const int64_t first = *n;
    int64_t least_ns, ns;
    MM_TRY(predict(c, first, &least_ns));
    for (bool larger = true;;) {
        const int64_t other = larger ? next_larger(c, *n) : rounded(*n / 2);
        const bool is_other = other != *n && other > 0;
        if (is_other) MM_TRY(predict(c, other, &ns));
        if (is_other && ns < least_ns - least_ns / 1000 * WORTH_PERMILLE) {
            *n = other;
            least_ns = ns;
        } else if (larger && *n == first) {
            larger = false;
        } else {
            return MM_OK;
        }
    }
}

static mm_status choose(const sub_batch_case *c, int64_t *n) {
    MM_TRY(find_by_windows(c, n));
    if (*n < c->batch) *n = rounded(*n);
    MM_TRY(climb(c, n));
    MM_TRY(halve(c, n));
    return c->facts ? hasten(c, n) : MM_OK;
}

/* Where the device times algorithms, sizes are tried with as little workspace as timing may leave; only what has come
 * through is tried with the ones that it chooses. */
static mm_status choose_within(const sub_batch_case *given, int64_t *sub_batch_out) {
    sub_batch_case c = *given;
    struct target untimed = *c.target;
    if (sub_batch_is_measured(c.facts)) c.facts = NULL;
    mm_status status = nets_backend_open_bound(untimed.backend, &untimed.backend);
    if (status == MM_ERR_UNSUPPORTED) return choose(&c, sub_batch_out);
    MM_TRY(status);
    c.target = &untimed;
    status = choose(&c, sub_batch_out);
    target_fini(&untimed);
    c.target = given->target;
    return status == MM_OK ? halve(&c, sub_batch_out) : status;
}

mm_status sub_batch_find(const char *text, const sub_batch_case *c, int64_t *sub_batch_out) {
    MM_TRY(sub_batch_read(text, c->policy, c->batch, sub_batch_is_measured(c->facts), sub_batch_out));
    if (*sub_batch_out > 0) return MM_OK;
    if (c->budget_bytes > 0) return choose_within(c, sub_batch_out);
    if (text) return mm_fail(MM_ERR_INVALID, "--sub-batch auto: needs a --budget to fit into");
    *sub_batch_out = c->batch;
    return MM_OK;
}

/* The policy without its own number of images. */
static mm_status without_number(const char *spec, mm_policy *policy_out) {
    MM_TRY(mm_policy_parse(spec, policy_out));
    policy_out->config.sub_batch = policy_out->ops->config.sub_batch;
    mm_status status = mm_policy_print(policy_out);
    if (status != MM_OK) mm_policy_fini(policy_out);
    return status;
}

/* What is found at all is found for one image, too. */
mm_status sub_batch_advise(const sub_batch_case *c) {
    mm_failure refusal;
    mm_failure_save(&refusal, MM_ERR_INFEASIBLE);
    bool fits = false;
    const mm_status status = requirement_try_passes(c->net, c->batch, 1, c->target, c->policy, c->budget_bytes,
                                                    c->pinned_bytes, c->facts, &fits);
    mm_policy policy;
    if (status != MM_OK || !fits || without_number(c->policy, &policy) != MM_OK) return mm_failure_restore(&refusal);
    mm_status told = mm_fail(MM_ERR_INFEASIBLE, "%s; with --sub-batch auto policy %s would fit", refusal.message,
                             MM_BRIEF(policy.spec));
    mm_policy_fini(&policy);
    return told;
}
