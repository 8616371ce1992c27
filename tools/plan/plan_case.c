/* SPDX-License-Identifier: MIT */
#include "tools/plan/plan_case.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/size.h"
#include "mm/core/time/time_bound.h"
#include "mm/planning/requirement.h"
#include "tools/args/speed.h"
#include "tools/plan/plan_search.h"

static mm_status plan_all_within(plan_case *c, int64_t budget_bytes) {
    for (int i = 0; i < c->need.n; i++)
        MM_TRY(need_within(&c->need, i, budget_bytes, c->asked.pinned.bytes, c->staged_bytes));
    return MM_OK;
}

/* How much larger the larger budget is: 1 GiB, or a tenth of a budget below 4 GiB, for which 1 GiB would be too
 * much. */
static int64_t more_than(int64_t budget_bytes) {
    const int64_t gib = INT64_C(1) << 30;
    return budget_bytes < 4 * gib ? budget_bytes / 10 : gib;
}

/* Finds the time of an iteration in a larger budget. It leaves the plans for that budget in c->need, where later plans
 * replace them. */
static mm_status look_further(plan_case *c) {
    const int64_t own = plan_case_need(c)->minimum_bytes + c->staged_bytes;
    const int64_t budget = c->asked.budget_bytes ? c->asked.budget_bytes : own;
    forecast more;
    c->more_bytes = more_than(budget);
    MM_TRY(plan_all_within(c, budget + c->more_bytes));
    MM_TRY(forecast_of(&c->need, budget + c->more_bytes, c->asked.pinned.bytes, FORECAST_NOMINAL, &more, NULL));
    c->more_ns = more.fits ? more.iteration_ns : 0;
    return MM_OK;
}

/* Plans a pass as a session does: in the budget, with room for staging the next batch if there is any; without a budget
 * in what the policy takes then (need_free_room). */
static mm_status plan_in_budget(plan_case *c, int pass) {
    const int64_t room = need_free_room(&c->need, pass);
    if (room > 0) return need_within(&c->need, pass, room, c->asked.pinned.bytes, c->staged_bytes);
    if (c->asked.budget_bytes < c->need.pass[pass].minimum_bytes && c->staged_bytes == 0 && !c->explained) return MM_OK;
    return need_within(&c->need, pass, c->asked.budget_bytes, c->asked.pinned.bytes, c->staged_bytes);
}

static mm_status plan_above_minimum(plan_case *c) {
    const need_case *asked = &c->asked;
    c->staged_bytes = need_stages(&c->need, asked->staged_bytes);
    if (asked->budget_bytes > 0 && asked->budget_bytes < plan_case_need(c)->minimum_bytes + c->staged_bytes)
        c->staged_bytes = 0;
    if (c->explained) MM_TRY(look_further(c));
    for (int i = 0; i < c->need.n; i++) MM_TRY(plan_in_budget(c, i));
    return MM_OK;
}

/* INT64_MAX: it does not fit, or has no time. */
static int64_t own_ns(const plan_case *c) {
    return plan_case_fits(c) && c->asked.facts ? c->forecast.iteration_ns : INT64_MAX;
}

static mm_status plan(plan_case *c) {
    const need_case *asked = &c->asked;
    c->asked.staged_bytes = target_staged_bytes(asked->target, asked->net, asked->sub_batch);
    MM_TRY(need_init(&c->need, asked));
    MM_TRY(policy_effect_find(asked->policy, plan_case_need(c)->lowered->graph, asked->target->device, c->texts,
                              &c->effect));
    if (plan_case_knows_minimum(c))
        MM_TRY(plan_above_minimum(c));
    else
        c->staged_bytes = plan_case_need(c)->room.staged_bytes;
    const forecast_times times = asked->facts ? FORECAST_FACTS : c->explained ? FORECAST_NOMINAL : FORECAST_NO_TIMES;
    MM_TRY(forecast_of(&c->need, asked->budget_bytes, asked->pinned.bytes, times, &c->forecast, &c->sim));
    if (c->offers && !c->forecast.untimed[0] && (c->asked.facts || !plan_case_fits(c)))
        MM_TRY(sub_batch_offer_find(asked, own_ns(c), &c->offer));
    MM_TRY(mm_account_init(plan_case_plan(c), &c->account));
    return mm_requirement_timeline(&c->account, &c->timeline);
}

mm_status plan_case_init(plan_case *c) {
    c->sample_tokens = nets_net_tokens(c->asked.net);
    mm_status status = plan(c);
    if (status != MM_OK) plan_case_fini(c);
    return status;
}

void plan_case_fini(plan_case *c) {
    free(c->timeline);
    mm_account_fini(&c->account);
    mm_simulation_fini(&c->sim);
    need_fini(&c->need);
    sub_batch_offer_fini(&c->offer);
    nets_net_destroy(c->own_net);
    c->own_net = NULL;
}

bool plan_case_fits(const plan_case *c) {
    const int64_t budget_bytes = c->asked.budget_bytes;
    return c->forecast.pinned_bytes <= c->asked.pinned.bytes && c->forecast.disk_bytes <= c->asked.target->disk_bytes &&
           (budget_bytes == 0 || plan_case_need(c)->minimum_bytes <= budget_bytes);
}

mm_status plan_case_refuse(const plan_case *c) {
    const need_pass *most = plan_case_need(c);
    char holder[256];
    const bool enough = c->asked.budget_bytes == 0 || most->minimum_bytes <= c->asked.budget_bytes;
    if (enough && c->forecast.pinned_bytes <= c->asked.pinned.bytes)
        return need_refuse_disk(plan_case_plan(c)->policy, c->forecast.disk_bytes, c->asked.target);
    if (enough)
        return need_refuse_pinned(plan_case_plan(c)->policy, c->forecast.pinned_bytes, c->asked.pinned,
                                  c->forecast.pinned_hint);
    const need_free *free = &most->free;
    const bool any = c->asked.budget_bytes >= free->device_bytes; /* pinned memory could help */
    mm_graph_step_name(most->lowered->graph, any ? most->minimum_step : free->step, holder, sizeof holder);
    return need_refuse(any ? most->minimum_bytes : free->device_bytes,
                       any ? most->minimum_pinned_bytes : free->pinned_bytes, holder, c->asked.pinned, free);
}

bool plan_case_has_gap(const plan_case *c) { return c->forecast.bound_ns < INT64_MAX && plan_case_fits(c); }

const char *plan_case_bound_of(const plan_case *c) {
#define BATCHES(batches, homes)                                                                                        \
    { batches ", these bytes, these codecs" homes, batches ", this budget, these codecs" homes }
    static const char *const of[2][2][2] = {
        {BATCHES("whole batches", ""), BATCHES("these sub-batches", "")},
        {BATCHES("whole batches", ", any homes"), BATCHES("these sub-batches", ", any homes")}};
#undef BATCHES
    return of[c->forecast.any_home][c->asked.sub_batch < c->asked.batch][c->asked.budget_bytes > 0];
}

static mm_status simulated_timeline(const plan_case *c, mm_timeline *timeline) {
    const mm_program *program = plan_case_need(c)->planned.program;
    int plan;
    MM_TRY(mm_timeline_add_plan(timeline, program, &plan));
    MM_TRY(mm_timeline_add_memory(timeline, plan, program, plan_case_need(c)->planned.facts));
    mm_period *spans = mm_timeline_add(timeline, plan, mm_timeline_begin(timeline),
                                       c->sim.exposed_ns[MM_STREAM_ENCODE] + c->sim.exposed_ns[MM_STREAM_DECODE]);
    if (!spans) return MM_OK; /* the timeline counts it as dropped */
    memcpy(spans, c->sim.spans, (size_t)c->sim.n_spans * sizeof *spans);
    return MM_OK;
}

mm_status plan_case_trace(const plan_case *c, traces *t) {
    const mm_plan *plan = plan_case_plan(c);
    char name[TRACES_NAME_CAPACITY];
    mm_timeline *timeline;
    if (c->forecast.untimed[0])
        return mm_fail(MM_ERR_INVALID, "--trace: %s has no times of %s; 'mm bench --facts' with %s measures them",
                       c->asked.facts->path, c->forecast.untimed, plan->policy);
    traces_name(c->net, c->asked.batch, plan->policy,
                c->asked.budget_bytes > 0 ? c->asked.budget_bytes : plan->peak_bytes, name);
    MM_TRY(mm_timeline_create(name, 0, &timeline));
    mm_status status = mm_timeline_set_source(timeline, facts_source_machine(c->asked.facts), true);
    if (status == MM_OK) status = simulated_timeline(c, timeline);
    if (status == MM_OK) return traces_add(t, timeline);
    mm_timeline_destroy(timeline);
    return status;
}

/* ---------------------------------------------------------------- text */

static void print_size(FILE *file, const char *what, int64_t bytes) {
    char size[32];
    fprintf(file, "  %-22s %14lld  %s\n", what, (long long)bytes, mm_size_format(bytes, size, sizeof size));
}

static void print_categories(FILE *file, const plan_case *c) {
    int64_t live[MM_CATEGORIES];
    mm_plan_live_at(plan_case_plan(c), c->account.peak_node, live);
    for (int i = 0; i < MM_CATEGORIES; i++) {
        char label[32];
        snprintf(label, sizeof label, "  %s", mm_category_name(i));
        if (live[i] > 0) print_size(file, label, live[i]);
    }
}

static void print_kinds(FILE *file, const mm_account *account) {
    char declared[32], peak[32];
    fprintf(file, "  %-24s %12s %12s\n", "", "declared", "at the peak");
    for (int k = 0; k < MM_ACCOUNT_KINDS; k++)
        if (account->declared[k] || account->at_peak[k])
            fprintf(file, "    %-22s %12s %12s\n", mm_account_kind_name(k),
                    mm_size_format(account->declared[k], declared, sizeof declared),
                    mm_size_format(account->at_peak[k], peak, sizeof peak));
    fprintf(file, "    %-22s %12s %12s\n", "reserved, but idle", "",
            mm_size_format(account->idle_bytes, peak, sizeof peak));
}

/* The last user of a segment, which keeps it alive. */
static const char *last_user(const mm_plan *plan, const mm_segment *s, char *buffer, size_t capacity) {
    const mm_node *last = &plan->nodes[s->last_node];
    if (mm_node_runs_step(last)) return mm_graph_step_name(plan->graph, last->step, buffer, capacity);
    snprintf(buffer, capacity, "its %s", mm_node_kind_name(last->kind));
    return buffer;
}

enum { LARGEST = 10 };

static void print_segments(FILE *file, const mm_account *account) {
    const mm_plan *plan = account->plan;
    char name[320], step[256], size[32];
    int64_t rest = 0;
    fprintf(file, "  largest of the %d segments alive at the peak\n", account->n_segments);
    for (int i = 0; i < account->n_segments; i++) {
        const mm_segment *s = &plan->segments[account->segments[i]];
        rest += i >= LARGEST ? s->bytes : 0;
        if (i >= LARGEST) continue;
        fprintf(file, "    %10s  %s", mm_size_format(s->bytes, size, sizeof size),
                mm_account_segment_name(plan, account->segments[i], name, sizeof name));
        if (s->content != MM_CONTENT_WORK)
            fprintf(file, "%s, last used by %s", s->content == MM_CONTENT_CODED ? ", coded" : "",
                    last_user(plan, s, step, sizeof step));
        fputc('\n', file);
    }
    if (rest > 0)
        fprintf(file, "    %10s  in %d smaller ones\n", mm_size_format(rest, size, sizeof size),
                account->n_segments - LARGEST);
}

static void print_moves(FILE *file, const mm_moves *moves) {
    char size[32];
    fprintf(file, "  %-22s %14lld  %s, in %lld offloads and %lld prefetches\n", "moved over the link",
            (long long)moves->bytes, mm_size_format(moves->bytes, size, sizeof size), (long long)moves->offloads,
            (long long)moves->prefetches);
}

static void print_disk(FILE *file, const plan_case *c, const mm_moves *moves) {
    char size[32];
    print_size(file, "disk", plan_case_plan(c)->disk_bytes);
    fprintf(file, "  %-22s %14lld  %s, in %lld stores and %lld loads\n", "  moved", (long long)moves->disk_bytes,
            mm_size_format(moves->disk_bytes, size, sizeof size), (long long)moves->stores, (long long)moves->loads);
}

static double speed(const plan_case *c, int64_t ns) {
    return speed_of((double)(c->ranks * c->asked.batch) * 1e9 / (double)ns, c->sample_tokens);
}

static void print_prediction(FILE *file, const plan_case *c) {
    if (c->forecast.untimed[0])
        fprintf(file, "  %-22s none: %s has no times of %s; 'mm bench --facts' with this policy measures them\n",
                "predicted step", c->asked.facts->path, c->forecast.untimed);
    else
        fprintf(file, "  %-22s %14.3f  ms, %.1f %s, %d%% of side streams hidden\n", "predicted step",
                (double)c->forecast.iteration_ns * 1e-6, speed(c, c->forecast.iteration_ns),
                speed_unit(c->sample_tokens), c->sim.hidden_permille / 10);
    if (plan_case_has_gap(c))
        fprintf(file, "  %-22s %14.3f  ms, %.1f %s (%s): no plan is faster; the gap is %.1f%%\n", "bound",
                (double)c->forecast.bound_ns * 1e-6, speed(c, c->forecast.bound_ns), speed_unit(c->sample_tokens),
                plan_case_bound_of(c),
                (double)mm_time_bound_gap_permille(c->forecast.iteration_ns, c->forecast.bound_ns) / 10);
}

static void print_offer(FILE *file, const plan_case *c) {
    const sub_batch_offer *offer = &c->offer;
    if (offer->sub_batch == 0) return;
    char *text = sub_batch_offer_text(offer, c->asked.net, c->ranks * c->asked.batch, own_ns(c));
    if (text) fprintf(file, "  %s %s\n", offer->spec, text);
    free(text);
}

/* Where the limit of pinned memory comes from, after its size. */
static const char *limit_source(pinned_from from) {
    return from == PINNED_HALF   ? "half of what this host has free"
           : from == PINNED_DISK ? "a part of what this host has free, beside a disk"
                                 : "--pinned";
}

/* The first line: what was planned, whether it fits, what it needs on the device and takes of the host. */
static void print_verdict(FILE *file, const plan_case *c) {
    const bool fits = plan_case_fits(c), budget = c->asked.budget_bytes > 0, judged = budget || !fits;
    const int64_t pinned = c->forecast.pinned_bytes;
    const char *policy = plan_case_plan(c)->policy;
    char size[32];
    fprintf(file, "%s, ", c->net);
    if (c->search == PLAN_MAX_CONTEXT) fprintf(file, "context %lld, ", (long long)c->sample_tokens);
    fprintf(file, "batch %lld, ", (long long)(c->ranks * c->asked.batch));
    if (c->ranks > 1) fprintf(file, "one of %d ranks with %lld images, ", c->ranks, (long long)c->asked.batch);
    fprintf(file, "%s%s: ", policy, c->forecast.work.lossy ? " (lossy)" : "");
    if (judged) fputs(fits ? "fits" : "does not fit", file);
    if (budget) fprintf(file, " %s", mm_size_format(c->asked.budget_bytes, size, sizeof size));
    if (judged) fputs(" (", file);
    if (plan_case_knows_minimum(c))
        fprintf(file, "needs %s; ", mm_size_format(plan_case_need(c)->minimum_bytes, size, sizeof size));
    fprintf(file, "takes %s of pinned host memory", mm_size_format(pinned, size, sizeof size));
    if (pinned > c->asked.pinned.bytes)
        fprintf(file, ", more than %s, %s%s", mm_size_format(c->asked.pinned.bytes, size, sizeof size),
                limit_source(c->asked.pinned.from), c->forecast.pinned_hint);
    fputs(judged ? ")\n" : "\n", file);
}

static void print_pinned(FILE *file, int64_t bytes, pinned_limit limit) {
    char size[32];
    if (bytes == 0) return;
    print_size(file, "pinned host memory", bytes);
    if (limit.from == PINNED_ELSEWHERE)
        fprintf(file, "  %-22s %14s  that machine must have it; --pinned sets a limit\n", "  the limit", "none");
    else
        fprintf(file, "  %-22s %14lld  %s, %s\n", "  the limit", (long long)limit.bytes,
                mm_size_format(limit.bytes, size, sizeof size), limit_source(limit.from));
}

void plan_case_print(FILE *file, const plan_case *c, bool by_kind) {
    const mm_plan *plan = plan_case_plan(c);
    const char *would, *idle = policy_effect_idle(&c->effect, &c->forecast.work, &would);
    char step[256];
    print_verdict(file, c);
    if (c->effect.idle || would) fprintf(file, "  %s\n", idle);
    if (c->asked.sub_batch < c->asked.batch)
        fprintf(file, "  %-22s %14lld  images, %lld passes; this is the plan of the pass that needs most, %s\n",
                "sub-batch", (long long)c->asked.sub_batch,
                (long long)nets_exec_passes(c->asked.batch, c->asked.sub_batch), mm_graph_name(plan->graph));
    plan_search_print(file, c);
    if (c->forecast.cut_short)
        fprintf(file, "  %-22s interrupted: this is the best plan that was found so far\n", "search");
    if (plan_case_knows_minimum(c)) print_size(file, "minimum budget", c->need.least_bytes);
    if (c->need.least_bytes < c->need.fused_bytes)
        print_size(file, c->need.fused ? "  layers fused, as here" : "  layers fused; here not", c->need.fused_bytes);
    if (c->need.fused == c->asked.target->apart && c->asked.budget_bytes >= c->need.fused_bytes)
        fprintf(file, "  %-22s not fused: that is faster in this budget\n", "layers");
    if (c->staged_bytes > 0) print_size(file, "room for the next batch", c->staged_bytes);
    if (plan->peak_bytes != c->need.least_bytes)
        print_size(file, c->asked.budget_bytes > 0 ? "planned in the budget" : "planned", plan->peak_bytes);
    print_size(file, "live bytes at the peak", plan->live_peak_bytes);
    fprintf(file, "  %-22s %s, step %d of %d\n", "held by",
            mm_graph_step_name(plan->graph, plan->peak_step, step, sizeof step), plan->peak_step,
            mm_graph_steps(plan->graph));
    if (by_kind)
        print_kinds(file, &c->account);
    else
        print_categories(file, c);
    print_size(file, "stash", plan->stash_bytes);
    if (plan->code_region_bytes > 0) print_size(file, "compression workspace", plan->code_region_bytes);
    const mm_pool_sums pools = mm_account_pools(plan);
    if (pools.bound_bytes > 0) {
        print_size(file, "pool of codes, reserve", pools.reserve_bytes);
        if (pools.spill_bytes > 0) print_size(file, "  spill, pinned", pools.spill_bytes);
        if (pools.pinned_bytes > 0) print_size(file, "  pool, pinned", pools.pinned_bytes);
        print_size(file, "  codes take at most", pools.bound_bytes);
    }
    if (plan->buffers > 0) {
        char label[32];
        snprintf(label, sizeof label, "%d tensor buffers", plan->buffers);
        print_size(file, label, plan->buffer_region_bytes);
    }
    print_pinned(file, plan->pinned_bytes, c->asked.pinned);
    if (c->forecast.moves.bytes > 0) print_moves(file, &c->forecast.moves);
    if (plan->disk_bytes > 0) print_disk(file, c, &c->forecast.moves);
    if (c->forecast.defragmentations > 0)
        fprintf(file, "  %-22s %14lld  times: all maps are swapped out, and those that a step needs are fetched\n",
                "defragmented", (long long)c->forecast.defragmentations);
    if (c->asked.facts) print_prediction(file, c);
    print_offer(file, c);
    if (by_kind) print_segments(file, &c->account);
}

/* ---------------------------------------------------------------- json */

static json_t *at_peak(const plan_case *c) {
    int64_t live[MM_CATEGORIES];
    json_t *object = json_object();
    mm_plan_live_at(plan_case_plan(c), c->account.peak_node, live);
    for (int i = 0; i < MM_CATEGORIES; i++) json_object_set_new(object, mm_category_name(i), json_integer(live[i]));
    return object;
}

static json_t *offer_json(const plan_case *c) {
    const sub_batch_offer *offer = &c->offer;
    const bool timed = offer->ns < INT64_MAX;
    return json_pack(
        "{ss so so ss}", "policy", offer->spec, "images_per_second",
        timed ? json_real((double)(c->ranks * c->asked.batch) * 1e9 / (double)offer->ns) : json_null(), "times",
        timed && plan_case_fits(c) ? json_real((double)c->forecast.iteration_ns / (double)offer->ns) : json_null(),
        "differs", sub_batch_differs_key(c->asked.net));
}

/* null if the minimum is not known. */
static json_t *known_bytes(const plan_case *c, int64_t bytes) {
    return plan_case_knows_minimum(c) ? json_integer(bytes) : json_null();
}

json_t *plan_case_row(const plan_case *c) {
    const mm_plan *plan = plan_case_plan(c);
    const char *would, *idle = policy_effect_idle(&c->effect, &c->forecast.work, &would);
    char step[256];
    json_t *row = json_pack(
        "{ss sI si sI ss ss ss ss sb ss? ss? sI sI so sI sI ss so sI sI si sI so ss sb}", "net", c->net, "batch",
        (json_int_t)(c->ranks * c->asked.batch), "ranks", c->ranks, "sub_batch", (json_int_t)c->asked.sub_batch,
        "device", c->asked.target->device, "machine", plan_case_machine(c), "fuse", c->need.fused ? "on" : "off",
        "policy", plan->policy, "lossy", (int)c->forecast.work.lossy, "idle", idle, "would", would, "budget_bytes",
        (json_int_t)c->asked.budget_bytes, "predicted_peak_bytes", (json_int_t)plan->peak_bytes, "minimum_bytes",
        known_bytes(c, c->need.least_bytes), "staged_bytes", (json_int_t)c->staged_bytes, "live_peak_bytes",
        (json_int_t)plan->live_peak_bytes, "held_by",
        mm_graph_step_name(plan->graph, plan->peak_step, step, sizeof step), "at_peak", at_peak(c), "stash_bytes",
        (json_int_t)plan->stash_bytes, "compression_workspace_bytes", (json_int_t)plan->code_region_bytes, "buffers",
        plan->buffers, "pinned_bytes", (json_int_t)plan->pinned_bytes, "iteration_seconds_predicted",
        c->asked.facts && !c->forecast.untimed[0] ? json_real((double)c->forecast.iteration_ns * 1e-9) : json_null(),
        "status", plan_case_fits(c) ? "ok" : "infeasible", "interrupted", (int)c->forecast.cut_short);
    const mm_pool_sums pools = mm_account_pools(plan);
    if (row && pools.bound_bytes > 0)
        json_object_set_new(row, "pools",
                            json_pack("{sI sI sI sI}", "reserve_bytes", (json_int_t)pools.reserve_bytes, "spill_bytes",
                                      (json_int_t)pools.spill_bytes, "pinned_bytes", (json_int_t)pools.pinned_bytes,
                                      "bound_bytes", (json_int_t)pools.bound_bytes));
    if (row)
        json_object_update_new(row, json_pack("{sI sI sI sI}", "offloads", (json_int_t)c->forecast.moves.offloads,
                                              "prefetches", (json_int_t)c->forecast.moves.prefetches, "moved_bytes",
                                              (json_int_t)c->forecast.moves.bytes, "defragmentations",
                                              (json_int_t)c->forecast.defragmentations));
    if (row && plan->disk_bytes > 0)
        json_object_update_new(row, json_pack("{sI sI sI sI}", "disk_bytes", (json_int_t)plan->disk_bytes, "stores",
                                              (json_int_t)c->forecast.moves.stores, "loads",
                                              (json_int_t)c->forecast.moves.loads, "disk_moved_bytes",
                                              (json_int_t)c->forecast.moves.disk_bytes));
    if (row && plan_case_has_gap(c))
        json_object_update_new(
            row, json_pack("{sf ss sI}", "bound_seconds", (double)c->forecast.bound_ns * 1e-9, "bound_of",
                           plan_case_bound_of(c), "gap_permille",
                           (json_int_t)mm_time_bound_gap_permille(c->forecast.iteration_ns, c->forecast.bound_ns)));
    if (row)
        json_object_update_new(
            row, json_pack("{so so}", "minimum_pinned_bytes", known_bytes(c, plan_case_need(c)->minimum_pinned_bytes),
                           "pinned_limit_bytes",
                           c->asked.pinned.bytes < INT64_MAX ? json_integer(c->asked.pinned.bytes) : json_null()));
    if (row && c->asked.facts && facts_source_estimate(c->asked.facts))
        json_object_set_new(row, "machine_from", json_string(facts_source_estimate(c->asked.facts)));
    if (row && c->offer.sub_batch > 0) json_object_set_new(row, "offer", offer_json(c));
    if (row) plan_search_row(row, c);
    return row;
}
