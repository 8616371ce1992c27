/* SPDX-License-Identifier: MIT */
/* Chooses whether the layers of a plan's network are fused (nets/lower/fuse.h). */
#include <string.h>

#include "mm/core/account/account_bound.h"
#include "policies/policy_table.h"
#include "tools/need/need.h"

bool need_may_unfuse(const target *target, const char *policy) {
    static const char chooses[] = "auto";
    const size_t length = strlen(chooses);
    return target_may_unfuse(target) && strcspn(policy, ":") == length && strncmp(policy, chooses, length) == 0;
}

/* All chosen. NEAR_SHARE: a budget is near the minimum if no plan is found that fits ten elevenths of it. DEEP_STEPS:
 * up to this size, planning both graphs takes at most 3 s. SMALL_STEPS: for larger graphs auto's search is left out,
 * because there it has not made single layers faster than fused ones. */
enum { NEAR_SHARE = 10, DEEP_STEPS = 650, SMALL_STEPS = 300 };

/* Whether the budget may be near the minimum of plans of which each needs least_bytes or more. */
static bool may_be_near(const need *n, int64_t least_bytes) {
    enum { MOST_TIMES = 2 }; /* plans need at most 1.5 times the bound (measured) */
    const int64_t most_bytes = MOST_TIMES * least_bytes;
    return n->asked.budget_bytes < most_bytes + most_bytes / NEAR_SHARE;
}

/* Whether the policy is to plan as fast as it can: where fused layers fit, single ones are then not compared with. */
static bool is_quick(const need *n) {
    const mm_policy *policy = &need_most(n)->policy;
    return policy->ops == &mm_policy_auto && policy->config.own[MM_AUTO_EFFORT] == 0;
}

mm_status need_is_near(const need *n, bool *near_out) {
    const mm_resident resident = need_most(n)->policy.config.resident;
    const int64_t less = n->asked.budget_bytes / (NEAR_SHARE + 1) * NEAR_SHARE;
    bool fits = true;
    *near_out = false;
    if (is_quick(n) || mm_graph_steps(need_most(n)->lowered->graph) > DEEP_STEPS) return MM_OK;
    for (int i = 0; i < n->n && fits; i++) {
        const mm_lower_bound bound = mm_lower_bound_of(n->pass[i].lowered->graph, n->pass[i].planned.facts);
        if (bound.bytes <= n->asked.budget_bytes && may_be_near(n, bound.bytes))
            MM_TRY(need_try_pass(n, i, less, MM_RESIDENT_ALL, &fits));
        else if (resident != MM_RESIDENT_ALL && may_be_near(n, bound.bytes - bound.persistent_bytes))
            MM_TRY(need_try_pass(n, i, less, resident, &fits));
    }
    *near_out = !fits;
    return MM_OK;
}

void need_hasten(mm_policy *policy, int fused_steps) {
    int *effort = &policy->config.own[MM_AUTO_EFFORT];
    if (strcmp(policy->ops->name, "auto") == 0 && *effort == 1 && fused_steps > SMALL_STEPS) *effort = 0;
}

/* ---------------------------------------------------------------- choosing by measured facts */

static mm_status are_of(const need_case *c, bool *are_out) {
    const nets_exec_graph whole = need_last(c);
    nets_lowered *lowered;
    mm_graph_facts *facts = NULL;
    MM_TRY(need_lower(c, &whole, &lowered));
    mm_status status = mm_graph_facts_create(lowered->graph, 0, &facts);
    if (status == MM_OK) status = facts_source_fill(c->facts, lowered->graph, facts);
    *are_out = status == MM_OK;
    mm_graph_facts_destroy(facts);
    nets_lowered_destroy(lowered);
    return status == MM_ERR_FORMAT ? MM_OK : status;
}

/* If the facts belong to neither graph, whoever uses them refuses them. */
mm_status need_follow_facts(target *target, const nets_net *net, const facts_source *facts) {
    bool fused, apart = false;
    if (!facts || facts->is_machine || facts->batch == 0 || strcmp(facts->net, nets_net_name(net)) != 0 ||
        !target_may_unfuse(target))
        return MM_OK;
    need_case c = {.net = net, .batch = facts->batch, .mode = NETS_TRAIN, .target = target, .facts = facts};
    MM_TRY(are_of(&c, &fused));
    c.apart = true;
    if (!fused) MM_TRY(are_of(&c, &apart));
    target->apart = apart;
    target->fuse_facts = facts->path;
    return MM_OK;
}

/* ---------------------------------------------------------------- choosing by plans */

static int steps_of(const need *n) { return mm_graph_steps(need_most(n)->lowered->graph); }

static bool uses_alike(const mm_graph *a, const mm_graph *b, int s) {
    const mm_step_info *x = mm_graph_step(a, s), *y = mm_graph_step(b, s);
    bool alike = x->n_uses == y->n_uses && x->workspace_bytes == y->workspace_bytes;
    for (int u = 0; alike && u < x->n_uses; u++) {
        const mm_use *of_x = &x->uses[u], *of_y = &y->uses[u];
        alike = of_x->access == of_y->access && of_x->form == of_y->form &&
                strcmp(mm_graph_tensor(a, of_x->tensor)->name, mm_graph_tensor(b, of_y->tensor)->name) == 0;
    }
    return alike;
}

bool need_is_like(const need *a, const need *b) {
    const mm_graph *x = need_most(a)->lowered->graph, *y = need_most(b)->lowered->graph;
    bool alike = mm_graph_steps(x) == mm_graph_steps(y) && mm_facts_tensor_bytes(x) == mm_facts_tensor_bytes(y);
    for (int s = 0; alike && s < mm_graph_steps(x); s++) alike = uses_alike(x, y, s);
    return alike;
}

/* Opens the same layers, not fused; *differs_out false: they are like the fused ones, and not opened. */
static mm_status open_apart(need *n, const need *fused, bool *differs_out) {
    need_case c = fused->asked;
    c.apart = true;
    MM_TRY(need_open(n, &c));
    *differs_out = !need_is_like(n, fused);
    if (!*differs_out) need_fini(n);
    return MM_OK;
}

/* Whether a plan of these layers may need less than `bytes`. Plans round tensors up, the bound does not: ROUNDED allows
 * for that in one step. */
static mm_status may_undercut(const need_case *c, int64_t bytes, bool *may_out) {
    enum { ROUNDED = 16 * MM_ALIGN };
    const nets_exec_graph last = need_last(c);
    nets_lowered *lowered;
    mm_graph_facts *facts;
    MM_TRY(need_lower(c, &last, &lowered));
    mm_status status = mm_graph_facts_create(lowered->graph, 0, &facts);
    if (status == MM_OK) {
        const mm_lower_bound bound = mm_lower_bound_of(lowered->graph, facts);
        *may_out = mm_plan_base(lowered->graph) + bound.bytes - bound.persistent_bytes + ROUNDED < bytes;
        mm_graph_facts_destroy(facts);
    }
    nets_lowered_destroy(lowered);
    return status;
}

static void exchange(need *a, need *b) {
    const need other = *a;
    *a = *b;
    *b = other;
}

static void hasten(need *apart, const need *fused) {
    for (int i = 0; i < apart->n; i++) need_hasten(&apart->pass[i].policy, steps_of(fused));
}

static mm_status is_faster(need *apart, need *fused, bool *is_out) {
    int64_t ns, fused_ns;
    MM_TRY(need_time(fused, &fused_ns));
    MM_TRY(need_time(apart, &ns));
    *is_out = ns < fused_ns;
    return MM_OK;
}

/* Exchanges *n for the plans without fusion (apart), if those with fusion do not fit and need more; or, if compared, if
 * the plans without fusion are faster. */
static mm_status compare(need *n, need *apart, bool compared) {
    const int64_t fused_bytes = n->fused_bytes;
    bool better = !need_fits(n) && apart->least_bytes < n->least_bytes;
    if (compared) hasten(apart, n);
    if (compared) MM_TRY(is_faster(apart, n, &better));
    if (better) exchange(n, apart);
    n->fused_bytes = fused_bytes;
    if (apart->least_bytes < n->least_bytes) n->least_bytes = apart->least_bytes;
    return MM_OK;
}

static mm_status choose(need *n) {
    need_case c = n->asked;
    const bool fused_fit = need_fits(n);
    bool compared = fused_fit && c.wants_fastest && c.budget_bytes > 0;
    need apart = {0};
    if (compared) MM_TRY(need_is_near(n, &compared));
    bool may = compared;
    if (fused_fit && !c.wants_least && !compared) return MM_OK;
    c.apart = true;
    mm_status status = may ? MM_OK : may_undercut(&c, n->fused_bytes, &may);
    if (status == MM_OK && may) status = open_apart(&apart, n, &may);
    if (status == MM_OK && may) status = need_least(&apart);
    if (status == MM_OK && may) status = compare(n, &apart, compared);
    need_fini(&apart);
    return status;
}

static bool is_staged(const need *n) { return n->pass[0].room.staged_bytes > 0; }

/* Exchanges *n, whose plans fit the budget, for plans without fusion that fit, too, also in having room for a staging
 * buffer, and are faster. */
static mm_status choose_fastest(need *n) {
    need apart = {0};
    bool better = false;
    mm_status status = open_apart(&apart, n, &better);
    if (better) hasten(&apart, n);
    if (better) status = need_plan(&apart, &better);
    better = better && is_staged(&apart) == is_staged(n);
    if (status == MM_OK && better) status = is_faster(&apart, n, &better);
    if (status == MM_OK && better) exchange(n, &apart);
    need_fini(&apart);
    return status;
}

mm_status need_init(need *n, const need_case *c) {
    const bool may_unfuse = c->may_unfuse && need_may_unfuse(c->target, c->policy);
    bool fit = false, near = false;
    MM_TRY(need_open(n, c));
    const bool plans = c->wants_plan && c->budget_bytes > 0;
    mm_status status = plans ? need_plan(n, &fit) : MM_OK;
    n->asked.wants_least |= c->wants_plan && !fit; /* a refusal tells the minima */
    if (status == MM_OK && fit && may_unfuse && c->wants_fastest) status = need_is_near(n, &near);
    if (status == MM_OK && near) status = choose_fastest(n);
    if (status == MM_OK && !fit) status = need_least(n);
    if (status == MM_OK && !fit && may_unfuse) status = choose(n);
    if (status != MM_OK) need_fini(n);
    return status;
}
