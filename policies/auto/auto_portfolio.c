/* SPDX-License-Identifier: MIT */
#include "policies/auto/auto_portfolio.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/account/account_bound.h"
#include "mm/core/status.h"
#include "mm/core/text.h"
#include "mm/core/time/simulate.h"
#include "policies/auto/auto_search.h"
#include "policies/engine/engine.h"
#include "policies/policy_table.h"
#include "policies/rules/rules.h"
#include "policies/schedule/draft_time.h"

/* The policies that are tried: all but those that say why not (mm_policy_ops.not_in_auto). Those that win most often
 * come first, so that plans of later ones need not be placed if their bounds are slower. A step's other algorithms
 * round differently, so plans use them only where nothing else fits. */
enum { FAST = 1, LEAST = 2, COPIES = 4, HOMES = 8, ALL_HOMES = 24, FIRST = 32 };
static const struct member {
    const char *spec; /* %s: each of the codecs in turn */
    int flags;        /* FAST: its plan may be the fastest that fits. LEAST: its plan may be the smallest; the other
                         members keep more, or copy more at a time. COPIES: it copies every map that it does not keep.
                         HOMES: for the fastest plan it is tried only if all homes are on the device: with copies of
                         weights beside its own it is slow, or slow to find; ALL_HOMES: also for the smallest. FIRST:
                         where any plan that fits will do, it is tried before the others; where few policies shall be
                         tried (mm_limits.few), no other is. These fit most often (measured) */
} members[] = {
    {"recompute:mode=nested", FAST | FIRST},
    {"recompute-swap:mode=nested", FAST | LEAST | HOMES},
    {"rules:*=mask;*=recompute;*=swap,mode=sqrt", FAST | FIRST},
    {"rules:*=mask;*=recompute;*=swap,mode=nested", FAST | FIRST},
    {"recompute-swap", FAST | HOMES},
    {"rules:*=mask;*=compress(%s);*=swap", FAST},
    {"freelunch:codec=%s,eligible=all", FAST | LEAST},
    {"freelunch:codec=%s", FAST},
    {"hybrid:codec=%s", FAST | LEAST},
    {"recompute:mode=sqrt", FAST},
    {"recompute", FAST},
    {"rules:*=mask;*=swap", FAST},
    {"swap-async", FAST | COPIES},
    {"vdnn-all", FAST | LEAST | COPIES},
    {"vdnn-conv", FAST | COPIES},
    {"rules:*=recompute;*=lean-swap,mode=nested", FAST},
    {"rules:relu=recompute;*=lean-swap", FAST},
    {"rules:*=lean-swap", FAST},
    {"rules:*=lean-swap,depth=0", FAST | LEAST | FIRST},
    {"rules:attention=recompute;add=lean-swap;embedding=lean-swap;linear=recompute;ln=recompute;gelu=recompute;"
     "relu=recompute;*=lean-swap,mode=memory",
     FAST | LEAST},
    {"rules:conv=lean-recompute;*=lean-swap,mode=memory", FAST},
    {"rules:conv-in=lean-swap;conv=recompute;*=recompute,mode=memory", FAST},
    {"swap", FAST | LEAST | COPIES},
    {"cdma:codec=%s", FAST | LEAST},
    {"recompute:mode=speed", FAST},
    {"recompute:mode=memory", FAST},
    {"gist:lossless", FAST},
    {"gist:lossy=fp16", FAST},
    {"gist:lossy=fp10", FAST},
    {"gist:lossy=fp8", FAST},
    {"modnn:subbatch=off,algorithms=fastest", FAST | COPIES | ALL_HOMES},
    {"modnn:subbatch=off", LEAST | ALL_HOMES},
};

enum { MEMBERS = sizeof members / sizeof *members };

const char *mm_portfolio_member(int i) { return i < MEMBERS ? members[i].spec : NULL; }

bool mm_portfolio_fits(const mm_portfolio *p, const mm_plan *plan) {
    return plan->peak_bytes <= p->limits->device_bytes && plan->pinned_bytes <= p->limits->pinned_bytes;
}

mm_status mm_portfolio_offer(mm_portfolio *p, mm_plan *plan) {
    if (!plan) return MM_OK;
    int64_t ns = INT64_MAX;
    mm_status status = mm_portfolio_fits(p, plan) ? mm_simulated_time(plan, p->facts, &ns) : MM_OK;
    bool better = !p->plan || ns < p->ns;
    if (p->plan && ns == INT64_MAX && p->ns == INT64_MAX) {
        const bool within = plan->pinned_bytes <= p->limits->pinned_bytes;
        const bool was_within = p->plan->pinned_bytes <= p->limits->pinned_bytes;
        better = within != was_within ? within : plan->peak_bytes < p->plan->peak_bytes;
    }
    better = better && status == MM_OK;
    mm_plan_destroy(better ? p->plan : plan);
    if (!better) return status;
    p->plan = plan;
    p->ns = ns;
    return MM_OK;
}

/* Whether a policy's codecs are all in a menu. */
static bool is_named(const mm_engine_config *menu, const mm_engine_config *config) {
    char known[MM_MAX_CODECS][MM_SPEC_CAPACITY], used[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    const int n = mm_engine_codecs(menu, known, MM_MAX_CODECS), m = mm_engine_codecs(config, used, MM_MAX_CODECS);
    for (int i = 0; i < m; i++) {
        int k = 0;
        while (k < n && strcmp(known[k], used[i]) != 0) k++;
        if (k == n) return false;
    }
    return true;
}

/* Remembers the policy of the smallest plan. */
static mm_status keep_smallest(mm_portfolio *p, const mm_policy *policy) {
    free(p->smallest);
    p->smallest = strdup(policy->spec);
    return p->smallest ? MM_OK : mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(p->graph));
}

/* Before a refusal that is near: plans with the policy of the smallest plan, which searches longer for its places. */
static mm_status fit_smallest(mm_portfolio *p) {
    enum { NEAR = 16 }; /* chosen: placements are seldom more than a few per cent above what is alive */
    mm_policy policy;
    mm_plan *plan;
    if (!p->smallest || p->plan->peak_bytes - p->limits->device_bytes > p->limits->device_bytes / NEAR) return MM_OK;
    MM_TRY(mm_policy_parse(p->smallest, &policy));
    mm_status status = mm_engine_plan_needed(p->graph, p->facts, p->limits, &policy.config, &plan);
    mm_policy_fini(&policy);
    return status == MM_OK ? mm_portfolio_offer(p, plan) : status;
}

/* The time from which on plans are of no use. */
static int64_t useful_below_ns(const mm_portfolio *p) {
    const int64_t below_ns = p->limits->below_ns;
    return below_ns > 0 && below_ns < p->ns ? below_ns : p->ns;
}

/* Plans with a policy. fastest: for a plan that fits and is faster than the best so far; else for one with a low
 * peak. */
static mm_status try_policy(mm_portfolio *p, const mm_policy *policy, bool fastest) {
    mm_limits limits = *p->limits;
    mm_plan *plan;
    if (policy->ops->plan != mm_engine_plan) {
        MM_TRY(policy->ops->plan(p->graph, p->facts, &limits, &policy->config, &plan));
        return mm_portfolio_offer(p, plan);
    }
    int64_t below_bytes = limits.device_bytes < INT64_MAX ? limits.device_bytes + 1 : INT64_MAX;
    if (!fastest) {
        const bool within = p->plan && p->plan->pinned_bytes <= limits.pinned_bytes;
        below_bytes = within ? p->plan->peak_bytes : INT64_MAX;
        limits.device_bytes = 0;
    }
    MM_TRY(mm_engine_plan_below(p->graph, p->facts, &limits, &policy->config, p->survey,
                                fastest ? useful_below_ns(p) : INT64_MAX, below_bytes, &plan));
    const mm_plan *before = p->plan;
    MM_TRY(mm_portfolio_offer(p, plan));
    return fastest || p->plan == before ? MM_OK : keep_smallest(p, policy);
}

static bool has_layer_of(const mm_graph *graph, uint32_t kinds) {
    for (int i = 0; i < mm_graph_layers(graph); i++)
        if (kinds >> mm_graph_layer(graph, i)->kind & 1) return true;
    return false;
}

/* Whether a policy's plans are those of other policies, and only take longer to find: its first rule is for layers of a
 * kind that the graph lacks, or it recomputes though that is not allowed, or though no layer can run again. */
static bool is_in_vain(const mm_portfolio *p, const mm_engine_config *config) {
    bool recomputes = false;
    if (config->n_rules > 0 && !has_layer_of(p->graph, config->rules[0].selector.terms[0].kinds)) return true;
    for (int r = 0; r < config->n_rules; r++) recomputes |= config->rules[r].action == MM_ACTION_RECOMPUTE;
    for (int i = 0; recomputes && !p->limits->no_recompute && i < mm_graph_layers(p->graph); i++)
        if (mm_graph_layer(p->graph, i)->properties.repeatable) return false;
    return recomputes;
}

static mm_status try_spec(mm_portfolio *p, const char *spec, bool fastest) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    const bool due = is_named(p->menu, &policy.config) && !(p->tried && is_named(p->tried, &policy.config)) &&
                     !is_in_vain(p, &policy.config);
    mm_status status = due ? try_policy(p, &policy, fastest) : MM_OK;
    mm_policy_fini(&policy);
    return status;
}

/* Tries a member: with each codec of the menu in turn, if its spec takes one. */
static mm_status try_member(mm_portfolio *p, const char *member, bool fastest) {
    char codecs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    const int n = mm_engine_codecs(p->menu, codecs, MM_MAX_CODECS);
    if (!strchr(member, '%')) return try_spec(p, member, fastest);
    for (int i = 0; i < n; i++) {
        if (strcmp(codecs[i], mm_mask_spec) == 0) continue;
        char *spec = mm_text_format(member, codecs[i]);
        if (!spec) return mm_fail(MM_ERR_NOMEM, "out of memory for planning %s", mm_graph_name(p->graph));
        mm_status status = try_spec(p, spec, fastest);
        free(spec);
        MM_TRY(status);
    }
    return MM_OK;
}

/* Whether there is a plan that fits, and the caller wants no better one. */
static bool has_enough(const mm_portfolio *p) {
    return p->ns < INT64_MAX && (p->limits->first_fit || mm_is_stopped(p->limits->stop));
}

/* Whether a member's plan may be the smallest. Where pinned memory is short, those that copy little are. */
static bool may_be_least(const mm_portfolio *p, const struct member *m) {
    return m->flags & LEAST || (p->limits->pinned_bytes < INT64_MAX && !(m->flags & COPIES));
}

/* Tries, in order, the members whose flags are `wanted` where `mask` has bits. For the lowest peak, only those that may
 * be the smallest, in reverse order: members that wait, which need least, are at the end. */
static mm_status try_those(mm_portfolio *p, bool fastest, int mask, int wanted) {
    for (int i = 0; i < MEMBERS; i++) {
        const struct member *m = &members[fastest ? i : MEMBERS - 1 - i];
        if (has_enough(p)) return MM_OK;
        if ((m->flags & mask) != wanted) continue;
        if (fastest ? !(m->flags & FAST) : !may_be_least(p, m)) continue;
        if (fastest && (m->flags & COPIES) && p->copying_ns >= useful_below_ns(p)) continue;
        if (p->limits->pinned_base_bytes > 0 && (m->flags & ALL_HOMES) >= (fastest ? HOMES : ALL_HOMES)) continue;
        MM_TRY(try_member(p, m->spec, fastest));
    }
    return MM_OK;
}

static mm_status try_members(mm_portfolio *p, bool fastest) {
    if (!fastest || (!p->limits->first_fit && !p->limits->few)) return try_those(p, fastest, 0, 0);
    MM_TRY(try_those(p, fastest, FIRST, FIRST));
    return p->limits->few ? MM_OK : try_those(p, fastest, FIRST, 0);
}

/* A lower bound of the time of plans that either keep a map or copy it. The bytes that are alive when the backward pass
 * begins and exceed the budget have been copied out during the forward pass, and are copied back during the backward
 * pass. Neither pass is shorter than its copies. kept: the plan that keeps all maps. */
static int64_t bound_copying(const mm_portfolio *p, const mm_plan *kept) {
    double passes[2] = {0};
    int64_t live[MM_CATEGORIES], excess = -p->limits->device_bytes;
    int turn = -1;
    for (int i = 0; i < kept->n_nodes; i++) {
        if (kept->nodes[i].kind != MM_NODE_STEP) continue; /* a copy of a weight or a state */
        if (turn < 0 && mm_graph_step(p->graph, kept->nodes[i].step)->phase == MM_BACKWARD) turn = i;
        passes[turn >= 0] += (double)mm_simulate_step_ns(p->facts, &kept->nodes[i]);
    }
    if (turn < 0) return 0;
    mm_plan_live_at(kept, turn, live);
    for (int c = 0; c < MM_CATEGORIES; c++) excess += c == MM_CAT_WORKSPACE ? 0 : live[c];
    const int64_t rates[2] = {p->facts->out_bytes_per_s, p->facts->in_bytes_per_s};
    for (int i = 0; i < 2; i++) {
        const double ns = rates[i] > 0 ? (double)excess / (double)rates[i] * 1e9 : 0;
        if (ns > passes[i]) passes[i] = ns;
    }
    return (int64_t)((passes[0] + passes[1]) * 0.999); /* the simulator rounds */
}

/* ---------------------------------------------------------------- menus */

/* The work of a search for an effort of 1: it takes about as long for all networks, a part of a second. For each later
 * menu (try_menus) it is half. */
static int64_t search_work(const mm_portfolio *p) {
    enum { NODES = 600000, FEWEST = 80, MOST = 4000 }; /* nodes of all drafts; the fewest and the most drafts. Chosen */
    const int64_t draft = p->nodes + 1;
    int64_t work = NODES < MOST * draft ? NODES : MOST * draft;
    if (work < FEWEST * draft) work = FEWEST * draft;
    if (p->tried) work /= 2;
    return p->limits->compared > 1 ? work / p->limits->compared : work;
}

/* Searches beyond the portfolio. */
static mm_status search(mm_portfolio *p) {
    const int64_t effort = p->menu->own[MM_AUTO_EFFORT];
    if (effort == 0 || has_enough(p) || p->limits->first_fit || p->ns > useful_below_ns(p) ||
        (p->ns == INT64_MAX && !p->searches))
        return MM_OK;
    MM_TRY(
        mm_auto_search(p->graph, p->facts, p->limits, p->menu, p->survey, effort * search_work(p), &p->hint, &p->plan));
    return mm_portfolio_fits(p, p->plan) ? mm_simulated_time(p->plan, p->facts, &p->ns) : MM_OK;
}

/* Tries for the fastest plans, unless no plan can fit; then for the smallest ones, if none fits. A refusal in a small
 * budget is quick: there is no search. */
static mm_status try_menu(mm_portfolio *p) {
    const int64_t least = mm_lower_bound_of(p->graph, p->facts).bytes - p->limits->pinned_base_bytes;
    const bool possible = p->limits->device_bytes >= least;
    if (possible) MM_TRY(try_members(p, true));
    /* the caller has another plan, or makes one with other limits */
    const bool in_vain = p->limits->few || p->limits->below_ns > 0;
    if (p->ns == INT64_MAX && !(in_vain && p->plan)) MM_TRY(try_members(p, false));
    if (p->ns == INT64_MAX && !p->searches && mm_auto_is_small(p->graph, p->facts, p->limits->device_bytes))
        return MM_OK;
    return search(p);
}

/* Filters a menu by the stages in which it is tried: without codecs of elements, with those that nobody named, without
 * lossy ones, all. */
static bool has_no_codec(const mm_graph_facts *facts, const mm_rule *rule) {
    (void)facts;
    return !*rule->codec || rule->mask;
}

static bool is_unnamed(const mm_graph_facts *facts, const mm_rule *rule) {
    return has_no_codec(facts, rule) || rule->offered;
}

static bool is_lossless(const mm_graph_facts *facts, const mm_rule *rule) {
    return !*rule->codec || facts->codecs[mm_facts_codec(facts, rule->codec)].lossless;
}

static bool is_any(const mm_graph_facts *facts, const mm_rule *rule) {
    (void)facts;
    (void)rule;
    return true;
}

void mm_portfolio_filter(mm_engine_config *menu, const mm_graph_facts *facts,
                         bool (*serves)(const mm_graph_facts *facts, const mm_rule *rule)) {
    int n = 0;
    for (int r = 0; r < menu->n_rules; r++) {
        if (serves(facts, &menu->rules[r]))
            menu->rules[n++] = menu->rules[r];
        else
            mm_selector_fini(&menu->rules[r].selector);
    }
    menu->n_rules = n;
}

/* Tries the menu in stages (has_no_codec), each of which adds to the one before: so that more codecs never give a
 * slower plan. */
static mm_status try_menus(mm_portfolio *p) {
    bool (*const stages[])(const mm_graph_facts *, const mm_rule *) = {has_no_codec, is_unnamed, is_lossless, is_any};
    enum { STAGES = sizeof stages / sizeof *stages };
    const mm_engine_config *whole = p->menu;
    mm_engine_config menus[STAGES];
    mm_status status = mm_survey_create(p->graph, p->facts, p->limits, p->menu, NULL, &p->survey);
    int n = 0;
    while (status == MM_OK && n < STAGES && !(n > 0 && has_enough(p))) {
        status = mm_config_copy(whole, &menus[n]);
        if (status != MM_OK) break;
        p->menu = &menus[n++];
        mm_portfolio_filter(&menus[n - 1], p->facts, stages[n - 1]);
        p->tried = n > 1 ? &menus[n - 2] : NULL;
        if (n == 1 || menus[n - 1].n_rules > menus[n - 2].n_rules) status = try_menu(p);
    }
    mm_auto_hint_fini(&p->hint);
    mm_survey_destroy(p->survey);
    p->survey = NULL;
    p->menu = whole;
    p->tried = NULL;
    while (n > 0) mm_rules_fini(&menus[--n]);
    return status;
}

static mm_status plan_within(mm_portfolio *p, mm_plan **plan_out) {
    mm_policy liveness;
    mm_plan *kept = NULL;
    p->plan = NULL;
    p->ns = INT64_MAX;
    MM_TRY(mm_policy_default(&mm_policy_liveness, &liveness));
    mm_status status = liveness.ops->plan(p->graph, p->facts, p->limits, &liveness.config, &kept);
    mm_policy_fini(&liveness);
    if (status == MM_OK) p->copying_ns = bound_copying(p, kept);
    if (status == MM_OK) p->nodes = kept->n_nodes;
    if (status == MM_OK) status = mm_portfolio_offer(p, kept);
    if (status == MM_OK && p->ns == INT64_MAX) status = try_menus(p); /* if liveness fits, nothing is faster */
    if (status == MM_OK && p->ns == INT64_MAX) status = fit_smallest(p);
    free(p->smallest);
    p->smallest = NULL;
    if (status == MM_OK)
        *plan_out = p->plan;
    else
        mm_plan_destroy(p->plan);
    return status;
}

/* Plans without a limit of pinned memory first, and with it only if the result exceeds it. So the plan stays the same
 * if the limit is set to just what it takes. */
mm_status mm_portfolio_plan(mm_portfolio *p, mm_plan **plan_out) {
    const mm_limits *limits = p->limits;
    mm_limits unlimited = *limits;
    unlimited.pinned_bytes = INT64_MAX;
    p->limits = &unlimited;
    mm_status status = plan_within(p, plan_out);
    p->limits = limits;
    if (status != MM_OK || (*plan_out)->pinned_bytes <= limits->pinned_bytes) return status;
    p->searches = p->ns < INT64_MAX;
    mm_plan_destroy(*plan_out);
    return plan_within(p, plan_out);
}
