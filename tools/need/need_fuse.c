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

/* All chosen. NEAR_SHARE: a budget is near the minimum if it is at most a tenth above the minimum. DEEP_STEPS: up to
 * this size, planning both graphs takes at most 3 s. SMALL_STEPS: for larger graphs auto's search is left out, because
 * there it has not made single layers faster than fused ones. */
enum { NEAR_SHARE = 10, DEEP_STEPS = 650, SMALL_STEPS = 300 };

static bool is_little_more(int64_t fused_bytes, int fused_steps, int64_t budget_bytes) {
    return budget_bytes < fused_bytes + fused_bytes / NEAR_SHARE && fused_steps <= DEEP_STEPS;
}

enum { MOST_TIMES = 2 }; /* plans need at most 1.5 times the bound (measured) */

static bool all_stay(const need_pass *p) { return p->policy.config.resident == MM_RESIDENT_ALL; }

/* Whether the budget may be near the minimum with all weights and states on the device. */
static bool may_be_near_staying(const need *n) {
    const need_pass *p = need_most(n);
    const int64_t least = mm_lower_bound_of(p->lowered->graph, p->planned.facts).bytes;
    return least <= n->asked.budget_bytes &&
           is_little_more(MOST_TIMES * least, mm_graph_steps(p->lowered->graph), n->asked.budget_bytes);
}

/* Plans a pass with all weights and states on the device: any plan that fits the budget, or the smallest (0). The peak:
 * INT64_MAX if the plan exceeds the pinned memory. */
static mm_status plan_staying(const need *n, const need_pass *p, int64_t budget_bytes, int64_t pinned_bytes,
                              int64_t *peak_bytes_out) {
    const mm_limits limits = {.device_bytes = budget_bytes,
                              .pinned_bytes = pinned_bytes,
                              .base_bytes = n->base_bytes,
                              .stop = n->asked.target->stop,
                              .first_fit = budget_bytes > 0};
    mm_policy policy = p->policy; /* borrows what that owns */
    mm_plan *plan;
    policy.config.resident = MM_RESIDENT_ALL;
    mm_policy_restrict(&policy, p->lowered->graph, p->planned.facts);
    MM_TRY(mm_policy_plan(&policy, p->lowered->graph, p->planned.facts, &limits, &plan));
    *peak_bytes_out = plan->pinned_bytes <= pinned_bytes ? plan->peak_bytes : INT64_MAX;
    mm_plan_destroy(plan);
    return MM_OK;
}

/* Whether the budget is far above the minimum with all weights and states on the device: each pass has a plan that fits
 * ten elevenths of the budget. Such a plan is found faster than the minimum. It is not looked for where these are less
 * than HARDLY / 8 of the lower bound, since there it seldom exists; the budget is then not far. */
static mm_status is_far(const need *n, bool *far_out) {
    enum { HARDLY = 9 }; /* chosen */
    const int64_t less = n->asked.budget_bytes / (NEAR_SHARE + 1) * NEAR_SHARE;
    int64_t bytes = 0;
    for (int i = 0; i < n->n && bytes <= less; i++) {
        const need_pass *p = &n->pass[i];
        const int64_t least = mm_lower_bound_of(p->lowered->graph, p->planned.facts).bytes;
        bytes = INT64_MAX;
        if (less >= least / 8 * HARDLY) MM_TRY(plan_staying(n, p, less, n->asked.pinned.bytes, &bytes));
    }
    *far_out = bytes <= less;
    return MM_OK;
}

/* Whether the budget is so small that it may be near the minimum (need_is_near). */
static mm_status may_be_near(const need *n, bool *may_out) {
    const need_pass *p = need_most(n);
    const mm_lower_bound bound = mm_lower_bound_of(p->lowered->graph, p->planned.facts);
    const int64_t least = bound.bytes - bound.persistent_bytes;
    const int steps = mm_graph_steps(p->lowered->graph);
    bool far;
    *may_out =
        may_be_near_staying(n) || (!all_stay(p) && is_little_more(MOST_TIMES * least, steps, n->asked.budget_bytes));
    if (!*may_out) return MM_OK;
    MM_TRY(is_far(n, &far));
    *may_out = !far;
    return MM_OK;
}

/* Whether the policy is to plan as fast as it can: where fused layers fit, single ones are then not compared with. */
static bool is_quick(const need *n) {
    const mm_policy *policy = &need_most(n)->policy;
    return policy->ops == &mm_policy_auto && policy->config.own[MM_AUTO_EFFORT] == 0;
}

mm_status need_is_near(const need *n, int64_t fused_bytes, bool *near_out) {
    const need_pass *p = need_most(n);
    const int steps = mm_graph_steps(p->lowered->graph);
    int64_t bytes;
    *near_out = false;
    if (is_quick(n)) return MM_OK;
    *near_out = is_little_more(fused_bytes, steps, n->asked.budget_bytes);
    if (*near_out || all_stay(p) || !may_be_near_staying(n)) return MM_OK;
    MM_TRY(plan_staying(n, p, 0, INT64_MAX, &bytes));
    *near_out = is_little_more(bytes, steps, n->asked.budget_bytes);
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

/* Plans of the same layers, not fused; nothing is planned if these are like the fused ones. */
static mm_status plan_apart(need *n, const need_case *c, const need *fused) {
    MM_TRY(need_open(n, c));
    const bool differs = !need_is_like(n, fused);
    mm_status status = differs ? need_least(n) : MM_OK;
    if (status != MM_OK || !differs) need_fini(n);
    return status;
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

static mm_status is_faster(need *apart, need *fused, bool *is_out) {
    int64_t ns, fused_ns;
    for (int i = 0; i < apart->n; i++) need_hasten(&apart->pass[i].policy, steps_of(fused));
    MM_TRY(need_time(fused, &fused_ns));
    MM_TRY(need_time(apart, &ns));
    *is_out = ns < fused_ns;
    return MM_OK;
}

/* Exchanges *n for the plans without fusion (apart), if those with fusion do not fit and need more; or, if compared, if
 * the plans without fusion are faster. */
static mm_status compare(need *n, need *apart, bool compared) {
    bool better = !need_fits(n) && apart->least_bytes < n->least_bytes;
    if (compared) MM_TRY(is_faster(apart, n, &better));
    const need fused = *n;
    if (better) {
        *n = *apart;
        *apart = fused;
    }
    n->fused_bytes = fused.fused_bytes;
    if (apart->least_bytes < n->least_bytes) n->least_bytes = apart->least_bytes;
    return MM_OK;
}

static mm_status choose(need *n) {
    need_case c = n->asked;
    const bool fused_fit = need_fits(n);
    bool compared = fused_fit && c.wants_fastest && c.budget_bytes > 0;
    need apart = {0};
    if (compared) MM_TRY(need_is_near(n, n->fused_bytes, &compared));
    bool may = compared;
    if (fused_fit && !c.wants_least && !compared) return MM_OK;
    c.apart = true;
    mm_status status = may ? MM_OK : may_undercut(&c, n->fused_bytes, &may);
    if (status == MM_OK && may) status = plan_apart(&apart, &c, n);
    if (status == MM_OK && apart.n > 0) status = compare(n, &apart, compared);
    need_fini(&apart);
    return status;
}

mm_status need_init(need *n, const need_case *c) {
    const bool may_unfuse = c->may_unfuse && need_may_unfuse(c->target, c->policy);
    bool fit = false, near = false;
    MM_TRY(need_open(n, c));
    const bool plans = c->wants_plan && c->budget_bytes > 0;
    mm_status status = plans && may_unfuse && !is_quick(n) ? may_be_near(n, &near) : MM_OK;
    if (status == MM_OK && plans && !near) status = need_plan(n, &fit);
    n->asked.wants_least |= c->wants_plan && !fit; /* a refusal tells the minima */
    if (status == MM_OK && !fit) status = need_least(n);
    if (status == MM_OK && !fit && may_unfuse) status = choose(n);
    if (status != MM_OK) need_fini(n);
    return status;
}
