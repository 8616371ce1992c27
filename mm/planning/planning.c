/* SPDX-License-Identifier: MIT */
#include "mm/planning/planning.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/plan/plan_allreduce.h"
#include "mm/core/plan/plan_fits.h"
#include "mm/core/status.h"
#include "pipeline/codec/code_block.h"
#include "pipeline/codec/codec_facts.h"
#include "policies/schedule/draft_time.h"
#include "policies/schedule/nominal.h"
#include "policies/schedule/onto_disk.h"

static mm_status create_codecs(mm_planned *planned, const mm_policy *policy, const char *device,
                               char specs_out[][MM_SPEC_CAPACITY], int *n_out) {
    planned->codecs = calloc(MM_MAX_CODECS, sizeof(mm_codec *));
    if (!planned->codecs) return mm_fail(MM_ERR_NOMEM, "out of memory for the codecs of %s", policy->spec);
    *n_out = mm_policy_list_codecs(policy, specs_out);
    for (int c = 0; c < *n_out; c++) {
        MM_TRY(mm_codec_create(specs_out[c], device, &planned->codecs[c]));
        const mm_codec_facts facts = mm_codec_facts_of(planned->codecs[c], specs_out[c]);
        MM_TRY(mm_policy_check_codec(policy, &facts));
        if (planned->codecs[c]->flags.reads_bound && !policy->ops->observer)
            return mm_fail(
                MM_ERR_INVALID,
                "codec '%s' has no error bound: give it one (%s:abs=0.001), or let the policy comet choose them",
                specs_out[c], specs_out[c]);
    }
    return MM_OK;
}

mm_status mm_planned_try_codecs(const mm_policy *policy, const char *device) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n;
    mm_planned planned = {0};
    mm_status status = create_codecs(&planned, policy, device, specs, &n);
    mm_planned_fini(&planned);
    return status;
}

static mm_status gather(mm_planned *planned, const mm_policy *policy, const mm_graph *graph, const char *device) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    int n;
    MM_TRY(create_codecs(planned, policy, device, specs, &n));
    return mm_codec_facts_create(graph, planned->codecs, (const char(*)[MM_SPEC_CAPACITY])specs, n, &planned->facts);
}

mm_status mm_planned_init(mm_planned *planned, const mm_policy *policy, const mm_graph *graph, const char *device) {
    memset(planned, 0, sizeof *planned);
    mm_status status = gather(planned, policy, graph, device);
    if (status != MM_OK) mm_planned_fini(planned);
    return status;
}

void mm_planned_set_rates(mm_planned *planned, const mm_rates *rates) {
    mm_graph_facts *facts = planned->facts;
    if (facts->memory_bytes_per_s == 0) facts->memory_bytes_per_s = rates->memory_bytes_per_s;
    if (facts->out_bytes_per_s == 0) facts->out_bytes_per_s = rates->link_bytes_per_s;
    if (facts->in_bytes_per_s == 0) facts->in_bytes_per_s = rates->link_bytes_per_s;
    if (facts->store_bytes_per_s == 0) facts->store_bytes_per_s = rates->disk_bytes_per_s;
    if (facts->load_bytes_per_s == 0) facts->load_bytes_per_s = rates->disk_bytes_per_s;
    mm_facts_drop_impossible(
        facts); /* drops measured rates with both directions busy, if they contradict the rates that were just added */
}

/* Lowers the plan, and proves the program. */
static mm_status prove(mm_planned *planned, const mm_graph_facts *facts, const mm_limits *limits) {
    planned->program = calloc(1, sizeof *planned->program);
    planned->exact = malloc(((size_t)planned->plan->n_segments + 1) * sizeof *planned->exact);
    if (!planned->program || !planned->exact)
        return mm_fail(MM_ERR_NOMEM, "out of memory for a plan of %d segments", planned->plan->n_segments);
    MM_TRY(mm_program_init(planned->plan, facts, planned->program));
    return mm_program_prove(planned->program, facts, limits, planned->exact);
}

static void drop_plan(mm_planned *planned) {
    if (planned->program) mm_program_fini(planned->program);
    free(planned->program);
    free(planned->exact);
    mm_plan_destroy(planned->plan);
}

/* Bytes of the block that the policy's codecs read on the device; 0: none reads it. The facts may have more codecs,
 * from a file. */
static int64_t block_bytes(const mm_planned *planned, const mm_graph *graph) {
    for (int c = 0; c < MM_MAX_CODECS && planned->codecs[c]; c++) {
        const mm_codec_flags *flags = &planned->codecs[c]->flags;
        if (flags->reads_iteration || flags->reads_bound) return mm_code_block_bytes(graph);
    }
    return 0;
}

/* The limits above the block that the codecs read. */
static mm_limits limits_above(const mm_planned *planned, const mm_graph *graph, const mm_limits *limits) {
    const int64_t block = block_bytes(planned, graph);
    mm_limits own = *limits;
    if (block > 0) own.base_bytes = mm_align(limits->base_bytes) + mm_align(block);
    return own;
}

/* Lowers and proves a plan that was made within `own`; it replaces the earlier one. */
static mm_status lower_and_prove(mm_planned *planned, mm_plan *plan, const mm_limits *limits, mm_limits own) {
    own.device_bytes = plan->peak_bytes;
    own.pinned_bytes = plan->pinned_bytes;
    own.disk_bytes = plan->disk_bytes;
    mm_planned made = {.plan = plan};
    mm_status status = prove(&made, planned->facts, &own);
    if (status != MM_OK) {
        drop_plan(&made);
        return status;
    }
    drop_plan(planned);
    planned->plan = made.plan;
    planned->program = made.program;
    planned->exact = made.exact;
    planned->block_offset = mm_align(limits->base_bytes);
    planned->block_bytes = block_bytes(planned, plan->graph);
    return MM_OK;
}

/* The faster of two plans by their predicted times; the other is destroyed. A time that is not known loses. */
static mm_status choose(const mm_graph *graph, const mm_graph_facts *facts, mm_plan *one, mm_plan *other,
                        mm_plan **plan_out) {
    int64_t ns[2] = {0, 0};
    mm_graph_facts nominal = {0};
    const bool is_nominal = mm_nominal_is_due(facts);
    mm_status status = is_nominal ? mm_nominal_init(graph, facts, &nominal) : MM_OK;
    if (status == MM_OK) status = mm_simulated_time(one, is_nominal ? &nominal : facts, &ns[0]);
    if (status == MM_OK) status = mm_simulated_time(other, is_nominal ? &nominal : facts, &ns[1]);
    if (is_nominal) mm_nominal_fini(&nominal);
    const bool takes_other = status == MM_OK && ns[1] < ns[0];
    mm_plan_destroy(takes_other ? one : other);
    if (status == MM_OK)
        *plan_out = takes_other ? other : one;
    else
        mm_plan_destroy(one);
    return status;
}

/* Whether a plan with a disk, which is within the pinned memory, replaces one without it that does not fit: it fits; or
 * the other is not within the pinned memory; or it needs less of the device. */
static bool is_better(const mm_plan *with, const mm_plan *without, const mm_limits *limits) {
    if (with->peak_bytes <= limits->device_bytes) return true;
    if (without->pinned_bytes > limits->pinned_bytes) return true;
    return without->peak_bytes > limits->device_bytes && with->peak_bytes < without->peak_bytes;
}

static bool has_home_on_disk(const mm_graph *graph, const mm_limits *limits) {
    bool any = false;
    for (int i = 0; limits->places && i < mm_graph_persistents(graph); i++)
        any |= limits->places[i].memory == MM_MEM_DISK;
    return any;
}

/* The limits with as much pinned memory as with the disk, where the homes on the disk are in it, too. *places_out: the
 * caller frees it. */
static mm_status widen(const mm_graph *graph, const mm_limits *limits, mm_limits *wide_out, mm_place **places_out) {
    mm_limits wide = *limits;
    mm_place *places = malloc(((size_t)mm_graph_persistents(graph) + 1) * sizeof *places);
    if (!places) return mm_fail(MM_ERR_NOMEM, "out of memory for the homes of %s", mm_graph_name(graph));
    for (int t = 0; limits->places && t < mm_graph_tensors(graph); t++) {
        const mm_tensor_info *tensor = mm_graph_tensor(graph, t);
        if (tensor->persistent < 0) continue;
        mm_place *place = &places[tensor->persistent];
        *place = limits->places[tensor->persistent];
        if (place->memory != MM_MEM_DISK) continue;
        *place = (mm_place){wide.pinned_base_bytes, MM_MEM_PINNED};
        wide.pinned_base_bytes += mm_align(tensor->bytes);
    }
    if (limits->places) wide.places = places;
    wide.disk_base_bytes = 0;
    if (__builtin_add_overflow(limits->pinned_bytes, limits->disk_bytes, &wide.pinned_bytes))
        wide.pinned_bytes = INT64_MAX;
    if (wide.pinned_bytes < wide.pinned_base_bytes) wide.pinned_bytes = wide.pinned_base_bytes; /* mm_homes_make_room */
    *wide_out = wide;
    *places_out = places;
    return MM_OK;
}

static bool is_within(const mm_plan *plan, const mm_limits *limits) {
    return plan->pinned_bytes <= limits->pinned_bytes && plan->disk_bytes <= limits->disk_bytes;
}

/* Makes a plan of the policy within `wide`, and the same on to the disk, which replaces *best if *best is none or this
 * one is within the limits. again: a wider one was tried. *used_out: the pinned memory of the plan; 0: no plan with
 * less is of use. */
static mm_status try_onto_disk(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                               const mm_limits *limits, const mm_limits *wide, bool again, mm_plan **best,
                               int64_t *used_out) {
    mm_plan *plan, *made = NULL;
    *used_out = 0;
    MM_TRY(mm_policy_plan(policy, graph, facts, wide, &plan));
    const bool due = plan->pinned_bytes > limits->pinned_bytes || has_home_on_disk(graph, limits);
    const bool fits = plan->peak_bytes <= limits->device_bytes;
    mm_status status = due && (fits || !again) ? mm_schedule_onto_disk(plan, facts, limits, &made) : MM_OK;
    if (due && fits) *used_out = plan->pinned_bytes;
    mm_plan_destroy(plan);
    if (status == MM_ERR_INFEASIBLE) return MM_OK;
    if (status != MM_OK || !made) return status;
    mm_plan *worse = *best && !is_within(made, limits) ? made : *best;
    if (worse != made) *best = made;
    mm_plan_destroy(worse);
    return MM_OK;
}

/* Plans as if there were as much pinned memory as with the disk; what exceeds the pinned memory goes on to the disk,
 * and homes that are there. If that does not fit both, maps leave for less of it: with a larger disk, a plan may have
 * more of them on their way at one time. *plan_out NULL: the graph has no homes there, and no such plan fits the disk
 * and the pinned memory, or none needs the disk. */
static mm_status make_onto_disk(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                                const mm_limits *limits, mm_plan **plan_out) {
    enum { NARROWER = 4 }; /* tries with less: each halves what maps take beyond the pinned memory; the last has none */
    mm_limits wide;
    mm_place *places;
    mm_plan *best = NULL;
    *plan_out = NULL;
    MM_TRY(widen(graph, limits, &wide, &places));
    const int64_t homes = wide.pinned_base_bytes - limits->pinned_base_bytes;
    const int64_t least = limits->pinned_bytes > INT64_MAX - homes ? INT64_MAX : limits->pinned_bytes + homes;
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i <= NARROWER; i++) {
        int64_t used;
        status = try_onto_disk(policy, graph, facts, limits, &wide, i > 0, &best, &used);
        if (used <= least || used > wide.pinned_bytes || (best && is_within(best, limits))) break;
        wide.pinned_bytes = i + 1 < NARROWER ? least + (used - least) / 2 : least;
    }
    free(places);
    if (status == MM_OK)
        *plan_out = best;
    else
        mm_plan_destroy(best);
    return status;
}

/* Makes the policy's plan; with a disk the better one of two: the faster of those that fit. */
static mm_status make_with_disk(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts,
                                const mm_limits *limits, mm_plan **plan_out) {
    mm_plan *without, *with;
    if (has_home_on_disk(graph, limits) && !policy->ops->places)
        return make_onto_disk(policy, graph, facts, limits, plan_out);
    MM_TRY(mm_policy_plan(policy, graph, facts, limits, &without));
    const bool fits = without->peak_bytes <= limits->device_bytes && without->pinned_bytes <= limits->pinned_bytes;
    *plan_out = without;
    if (limits->disk_bytes == 0 || policy->ops->places || without->keeps_all || (fits && limits->first_fit))
        return MM_OK;
    const mm_status status = make_onto_disk(policy, graph, facts, limits, &with);
    if (status != MM_OK) {
        mm_plan_destroy(without);
        return status;
    }
    if (!with) return MM_OK;
    if (fits && with->peak_bytes <= limits->device_bytes) return choose(graph, facts, without, with, plan_out);
    const bool better = !fits && is_better(with, without, limits);
    mm_plan_destroy(better ? without : with);
    *plan_out = better ? with : without;
    return MM_OK;
}

/* Makes a plan, with the copies of tensors that are all-reduced. The policy plans within the pinned memory that these
 * copies leave. */
static mm_status make(const mm_policy *policy, const mm_graph *graph, const mm_graph_facts *facts, mm_limits own,
                      mm_plan **plan_out) {
    const int64_t shared = mm_plan_allreduce_bytes(graph);
    if (shared == 0 || policy->ops->places) return make_with_disk(policy, graph, facts, &own, plan_out);
    own.pinned_bytes -= shared;
    if (own.pinned_bytes < own.pinned_base_bytes) own.pinned_bytes = own.pinned_base_bytes; /* mm_homes_make_room */
    mm_plan *plan;
    MM_TRY(make_with_disk(policy, graph, facts, &own, &plan));
    mm_status status = mm_plan_add_allreduce(plan, plan_out);
    mm_plan_destroy(plan);
    return status;
}

mm_status mm_planned_make(mm_planned *planned, const mm_policy *policy, const mm_graph *graph,
                          const mm_limits *limits) {
    const mm_limits own = limits_above(planned, graph, limits);
    mm_plan *plan;
    mm_policy_restrict(policy, graph, planned->facts);
    MM_TRY(make(policy, graph, planned->facts, own, &plan));
    return lower_and_prove(planned, plan, limits, own);
}

mm_plan *mm_planned_release(mm_planned *planned) {
    mm_plan *plan = planned->plan;
    planned->plan = NULL;
    drop_plan(planned);
    planned->program = NULL;
    planned->exact = NULL;
    return plan;
}

mm_status mm_planned_take(mm_planned *planned, mm_plan **plan, const mm_graph *graph, const mm_limits *limits) {
    const mm_limits own = limits_above(planned, graph, limits);
    mm_plan *taken = *plan;
    if (taken->base_bytes != own.base_bytes || taken->pinned_base_bytes != own.pinned_base_bytes ||
        taken->disk_base_bytes != own.disk_base_bytes)
        return mm_fail(MM_ERR_PLAN, "the plan of %s begins at offset %lld of the arena, not at %lld",
                       mm_graph_name(graph), (long long)taken->base_bytes, (long long)own.base_bytes);
    *plan = NULL;
    taken->graph = graph;
    return lower_and_prove(planned, taken, limits, own);
}

mm_status mm_planned_add_measures(const mm_planned *planned, const mm_place *places, const mm_measure_at *at, int n,
                                  mm_planned *measured_out) {
    mm_planned made = {0};
    MM_TRY(mm_plan_add_measures(planned->plan, at, n, &made.plan));
    const mm_limits own = {.device_bytes = made.plan->peak_bytes,
                           .pinned_bytes = made.plan->pinned_bytes,
                           .disk_bytes = made.plan->disk_bytes,
                           .base_bytes = made.plan->base_bytes,
                           .pinned_base_bytes = made.plan->pinned_base_bytes,
                           .disk_base_bytes = made.plan->disk_base_bytes,
                           .places = places};
    mm_status status = prove(&made, planned->facts, &own);
    if (status == MM_OK)
        *measured_out = made;
    else
        drop_plan(&made);
    return status;
}

void mm_planned_fini(mm_planned *planned) {
    drop_plan(planned);
    mm_graph_facts_destroy(planned->facts);
    for (int c = 0; planned->codecs && c < MM_MAX_CODECS; c++) mm_codec_destroy(planned->codecs[c]);
    free(planned->codecs);
    memset(planned, 0, sizeof *planned);
}
