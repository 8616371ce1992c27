/* auto: every action on every map. It plans by all other policies of the same lossiness, in the forms that pay, and
 * takes the fastest plan that fits; so it is never slower than one of them.
 *
 * Its rules are its menu: each names all maps, with one action that a map may get. The codecs, and what is checked and
 * printed of them, follow from the rules, as they do for the engine's presets. A policy takes part whose codecs are all
 * in the menu: without codecs= those that lose nothing. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/account.h"
#include "mm/core/simulate.h"
#include "mm/core/status.h"
#include "policies/auto_search.h"
#include "policies/engine.h"
#include "policies/least_time.h"
#include "policies/nominal.h"
#include "policies/option_tables.h"
#include "policies/strategies.h"

/* The portfolio. The first are those that win most often, so that bounds keep the later ones' plans from being placed.
 * Left out is what cannot win: naive, which needs more than liveness and is no faster. Other algorithms of a step round
 * otherwise, so plans have them only where nothing else fits. */
enum { FAST = 1, LEAST = 2, COPIES = 4 };
static const struct member {
    const char *spec; /* %s: each of the codecs in turn */
    int flags;        /* FAST: its plan may be the fastest that fits. LEAST: the smallest; those of the others keep
                         more, or copy more at a time. COPIES: what it does not keep it copies whole, and no more */
} members[] = {
    {"recompute:mode=nested", FAST},
    {"recompute-swap:mode=nested", FAST | LEAST},
    {"rules:*=mask;*=recompute;*=swap,mode=sqrt", FAST},
    {"rules:*=mask;*=recompute;*=swap,mode=nested", FAST},
    {"recompute-swap", FAST},
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
    {"rules:*=lean-swap,depth=0", FAST | LEAST},
    {"swap", FAST | LEAST | COPIES},
    {"cdma:codec=%s", FAST | LEAST},
    {"recompute:mode=speed", FAST},
    {"recompute:mode=memory", FAST},
    {"gist:lossless", FAST},
    {"gist:lossy=fp16", FAST},
    {"gist:lossy=fp10", FAST},
    {"gist:lossy=fp8", FAST},
    {"modnn:subbatch=off,algorithms=fastest", FAST | COPIES},
    {"modnn:subbatch=off", LEAST},
};

typedef struct portfolio {
    const mm_graph *graph;
    const mm_facts *facts; /* with times, measured or nominal */
    const mm_limits *limits;
    const mm_engine_config *config;
    mm_plan *plan;      /* the best so far; NULL: none */
    int64_t ns;         /* its iteration's time; INT64_MAX: it does not fit */
    int64_t copying_ns; /* no plan that copies what it does not keep takes less */
    bool cut_short;
    bool searches; /* also where no member fits */
} portfolio;

static bool fits(const portfolio *p, const mm_plan *plan) {
    return plan->peak_bytes <= p->limits->device_bytes && plan->pinned_bytes <= p->limits->pinned_bytes;
}

/* Keeps the better of both plans: one that fits, then the faster one. Of two that do not fit, one within the pinned
 * memory, then the smaller one. NULL is no plan. */
static mm_status offer(portfolio *p, mm_plan *plan) {
    if (!plan) return MM_OK;
    int64_t ns = INT64_MAX;
    mm_status status = fits(p, plan) ? mm_simulated_time(plan, p->facts, &ns) : MM_OK;
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

static bool is_stopped(const portfolio *p) { return p->limits->stop && *p->limits->stop; }

/* Whether a policy uses no codec but those of the menu. */
static bool is_named(const portfolio *p, const mm_engine_config *config) {
    char known[MM_MAX_CODECS][MM_SPEC_CAPACITY], used[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    const int n = mm_engine_codecs(p->config, known, MM_MAX_CODECS), m = mm_engine_codecs(config, used, MM_MAX_CODECS);
    for (int i = 0; i < m; i++) {
        int k = 0;
        while (k < n && strcmp(known[k], used[i]) != 0) k++;
        if (k == n) return false;
    }
    return true;
}

/* Plans by a policy. fastest: for a plan that fits and is faster than the best; else for one with a low peak. */
static mm_status try_policy(portfolio *p, const mm_policy *policy, bool fastest) {
    mm_limits limits = *p->limits;
    mm_plan *plan;
    if (policy->ops->plan != mm_engine_plan) {
        MM_TRY(policy->ops->plan(p->graph, p->facts, &limits, &policy->config, &plan));
        return offer(p, plan);
    }
    int64_t below_bytes = limits.device_bytes < INT64_MAX ? limits.device_bytes + 1 : INT64_MAX;
    if (!fastest) {
        const bool within = p->plan && p->plan->pinned_bytes <= limits.pinned_bytes;
        below_bytes = within ? p->plan->peak_bytes : INT64_MAX;
        limits.device_bytes = 0;
    }
    MM_TRY(mm_engine_plan_below(p->graph, p->facts, &limits, &policy->config, fastest ? p->ns : INT64_MAX, below_bytes,
                                &plan));
    return offer(p, plan);
}

static mm_status try_spec(portfolio *p, const char *spec, bool fastest) {
    mm_policy policy;
    MM_TRY(mm_policy_parse(spec, &policy));
    mm_status status = is_named(p, &policy.config) ? try_policy(p, &policy, fastest) : MM_OK;
    mm_policy_fini(&policy);
    return status;
}

/* A member with each of the codecs, or as it is. */
static mm_status try_member(portfolio *p, const char *member, bool fastest) {
    char codecs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    const int n = mm_engine_codecs(p->config, codecs, MM_MAX_CODECS);
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

/* All members; for the lowest peak those that may have it, the other way round: those that wait need least. */
static mm_status try_members(portfolio *p, bool fastest) {
    enum { MEMBERS = sizeof members / sizeof *members };
    for (int i = 0; i < MEMBERS; i++) {
        const struct member *m = &members[fastest ? i : MEMBERS - 1 - i];
        p->cut_short = is_stopped(p) && p->ns < INT64_MAX;
        if (p->cut_short) return MM_OK;
        if (!(m->flags & (fastest ? FAST : LEAST))) continue;
        if (fastest && (m->flags & COPIES) && p->copying_ns >= p->ns) continue;
        MM_TRY(try_member(p, m->spec, fastest));
    }
    return MM_OK;
}

/* A bound of plans that keep a map or copy it: what is alive when the backward pass begins, and exceeds the budget, has
 * been copied to the host in the time of the forward pass or longer, and comes back likewise. kept: keeps all maps. */
static int64_t bound_copying(const portfolio *p, const mm_plan *kept) {
    double passes[2] = {0};
    int64_t live[MM_CATEGORIES], excess = -p->limits->device_bytes;
    int turn = -1;
    for (int i = 0; i < kept->n_nodes; i++) {
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
    return (int64_t)((passes[0] + passes[1]) * 0.999); /* roundings of the simulator */
}

/* ---------------------------------------------------------------- the policy */

static bool is_timed(const mm_facts *facts, const char *spec) {
    const int codec = mm_facts_codec(facts, spec);
    for (int t = 0; t < facts->n_tensors; t++)
        if (mm_facts_code(facts, codec, t)->encode_ns > 0) return true;
    return false;
}

/* Checks that the facts have what plans are compared by. */
static mm_status check_facts(const mm_graph *graph, const mm_facts *facts, const mm_engine_config *config) {
    MM_TRY(mm_nominal_check_times(graph, facts));
    char codecs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    const int n = mm_engine_codecs(config, codecs, MM_MAX_CODECS);
    for (int i = 0; i < n; i++) {
        char what[MM_SPEC_CAPACITY + 16];
        snprintf(what, sizeof what, "time of codec %.63s", codecs[i]);
        if (!is_timed(facts, codecs[i])) return mm_nominal_lacks(what);
    }
    return MM_OK;
}

/* Takes masks off the menu: files of a machine's rates, or of runs that made none, may lack their times. */
static void leave_masks_out(mm_engine_config *menu) {
    int n = 0;
    for (int r = 0; r < menu->n_rules; r++) {
        mm_rule *rule = &menu->rules[r];
        if (rule->mask || rule->lean)
            mm_selector_fini(&rule->selector);
        else
            menu->rules[n++] = *rule;
    }
    menu->n_rules = n;
}

/* Searches beyond the portfolio, with a number of drafts that takes about as long for all networks. */
static mm_status search(portfolio *p) {
    enum { STEPS = 400000, FEWEST = 40, MOST = 4000 }; /* of all drafts, for an effort of 1; chosen for time */
    const int64_t effort = p->config->own[MM_AUTO_EFFORT], drafts = STEPS / (mm_graph_steps(p->graph) + 1);
    const int64_t trials = effort * (drafts < FEWEST ? FEWEST : drafts > MOST ? MOST : drafts);
    if (effort == 0 || p->cut_short) return MM_OK;
    MM_TRY(mm_auto_search(p->graph, p->facts, p->limits, p->config, trials < INT_MAX ? (int)trials : INT_MAX,
                          p->limits->stop, &p->plan));
    p->cut_short = is_stopped(p);
    return MM_OK;
}

/* Where the budget is small, the smallest plans come first: if these do not fit, the refusal is quick. */
static mm_status choose(portfolio *p, mm_plan *kept) {
    enum { SMALL = 2 }; /* times a bound of what any plan needs; plans need at most 1.5 times that (measured) */
    MM_TRY(offer(p, kept));
    if (p->ns < INT64_MAX) return MM_OK; /* nothing is faster */
    const bool small = p->limits->device_bytes < SMALL * mm_lower_bound_of(p->graph, p->facts).bytes;
    if (small) MM_TRY(try_members(p, false));
    if (small && p->ns == INT64_MAX && !p->searches) return MM_OK;
    MM_TRY(try_members(p, true));
    if (!small && p->ns == INT64_MAX) MM_TRY(try_members(p, false));
    return p->ns < INT64_MAX || p->searches ? search(p) : MM_OK;
}

static mm_status plan_within(portfolio *p, mm_plan **plan_out) {
    mm_policy liveness;
    mm_plan *kept = NULL;
    p->plan = NULL;
    p->ns = INT64_MAX;
    MM_TRY(mm_policy_default(&mm_policy_liveness, &liveness));
    mm_status status = liveness.ops->plan(p->graph, p->facts, p->limits, &liveness.config, &kept);
    mm_policy_fini(&liveness);
    if (status == MM_OK) p->copying_ns = bound_copying(p, kept);
    if (status == MM_OK) status = choose(p, kept);
    if (status == MM_OK)
        *plan_out = p->plan;
    else
        mm_plan_destroy(p->plan);
    return status;
}

/* Plans without a limit of pinned memory first, and with it only if the result exceeds it. So the plan stays the same if
 * the limit is set to just what it takes. */
static mm_status plan_timed(portfolio *p, mm_plan **plan_out) {
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

/* The facts, with nominal times of masks. */
static mm_status time_masks(const mm_graph *graph, const mm_facts *facts, mm_facts *timed) {
    const size_t tensors = (size_t)facts->n_tensors;
    MM_TRY(mm_nominal_init(graph, facts, timed));
    const mm_facts nominal = *timed;
    *timed = *facts;
    timed->variants = nominal.variants;
    timed->codes = nominal.codes;
    memcpy(timed->variants, facts->variants, (size_t)facts->variant_first[facts->n_steps] * sizeof *facts->variants);
    for (int c = 0; c < facts->n_codecs; c++)
        if (strcmp(facts->codecs[c].spec, mm_mask_spec) != 0)
            memcpy(timed->codes + (size_t)c * tensors, facts->codes + (size_t)c * tensors,
                   tensors * sizeof *facts->codes);
    return MM_OK;
}

/* Where no plan without masks fits: better one whose time is estimated than none. */
static mm_status plan_with_masks(portfolio *p, const mm_facts *near, mm_facts *timed, mm_plan **plan) {
    mm_plan *without = *plan;
    mm_status status = time_masks(p->graph, near, timed);
    p->facts = timed;
    *plan = NULL;
    if (status == MM_OK) status = plan_timed(p, plan);
    p->plan = *plan;
    if (status == MM_OK)
        status = offer(p, without);
    else
        mm_plan_destroy(without);
    *plan = p->plan;
    return status;
}

static mm_status plan_by(portfolio *p, const mm_facts *facts, mm_engine_config *menu, mm_plan **plan_out) {
    const mm_engine_config *whole = p->config;
    mm_facts nominal = {0}, near = *facts;
    mm_status status = mm_engine_check_codecs(facts, menu);
    const bool due = mm_nominal_is_due(facts), unmasked = !due && !is_timed(facts, mm_mask_spec);
    near.far_ps_per_byte = 0; /* as in needed.c */
    p->facts = &near;
    p->config = menu;
    if (status == MM_OK && due) {
        status = mm_nominal_init(p->graph, &near, &nominal);
        p->facts = &nominal;
    } else if (status == MM_OK) {
        if (unmasked) leave_masks_out(menu);
        status = check_facts(p->graph, facts, menu);
    }
    if (status == MM_OK) status = plan_timed(p, plan_out);
    p->config = whole;
    if (status == MM_OK && unmasked && !fits(p, *plan_out)) status = plan_with_masks(p, &near, &nominal, plan_out);
    if (status == MM_OK) (*plan_out)->cut_short = p->cut_short;
    p->facts = NULL;
    mm_nominal_fini(&nominal);
    return status;
}

static mm_status auto_plan(const mm_graph *graph, const mm_facts *facts, const mm_limits *limits,
                           const mm_engine_config *config, mm_plan **plan_out) {
    mm_engine_config menu;
    MM_TRY(mm_config_copy(config, &menu));
    portfolio p = {.graph = graph, .limits = limits, .config = config};
    mm_status status = plan_by(&p, facts, &menu, plan_out);
    mm_rules_fini(&menu);
    return status;
}

static const mm_option_desc auto_options[] = {
    {.key = "codecs",
     .fallback = "",
     .type = MM_OPTION_MENU,
     .help = "codecs of the maps' elements that it may use, as zfp:rate=4+dpr:fp16; with a lossy one it is lossy"},
    {.key = "effort",
     .fallback = "1",
     .type = MM_OPTION_NUMBER,
     .field = offsetof(mm_engine_config, own[MM_AUTO_EFFORT]),
     .min = 0,
     .max = 1000000,
     .help = "how long it searches beyond the other policies' plans, in multiples; 0: not"},
    MM_OPTION_SUB_BATCH("off"),
    {0},
};

const mm_policy_ops mm_policy_auto = {
    .name = "auto",
    .summary = "every action on every map: the fastest plan of all that it tries",
    .options = auto_options,
    .config = {.fetch = MM_FETCH_DEPTH,
               .depth = 2,
               .buffers = MM_REGION_GENERAL,
               .codes = MM_REGION_GENERAL,
               .recompute = MM_RECOMPUTE_NESTED,
               .sub_batch = MM_SUB_BATCH_OFF},
    .plan = auto_plan,
};
