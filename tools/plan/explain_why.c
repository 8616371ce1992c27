/* SPDX-License-Identifier: MIT */
#include "tools/plan/explain_why.h"

#include <stdlib.h>

#include "mm/core/size.h"
#include "mm/core/status.h"

/* ---------------------------------------------------------------- finding */

/* The price of an action by itself, as --explain lists it; 0: none. */
static int64_t price_of(const mm_stash_map *map, mm_remedy_kind action) {
    for (int r = 0; r < map->n_remedies; r++)
        if (map->remedies[r].kind == action) return map->remedies[r].ns;
    return 0;
}

static mm_status find_map(mm_alternatives *a, const mm_stash_map *map, int index, uint32_t decided,
                          explained_why *why) {
    static const mm_remedy_kind actions[] = {MM_REMEDY_KEEP, MM_REMEDY_MASK, MM_REMEDY_RECOMPUTE, MM_REMEDY_SWAP};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        explained_other other = {.action = actions[i], .price_ns = price_of(map, actions[i])};
        if (decided & 1u << actions[i]) continue;
        MM_TRY(mm_alternatives_try(a, index, actions[i], &other.what));
        const bool told =
            other.what.why != MM_WHY_UNKNOWN && (actions[i] != MM_REMEDY_MASK || other.what.why != MM_WHY_IMPOSSIBLE);
        if (told) why->other[why->n++] = other;
    }
    return MM_OK;
}

static mm_status find_all(const mm_alternatives_of *of, explained_whys *whys) {
    mm_alternatives *a;
    MM_TRY(mm_alternatives_create(of, &a));
    whys->anew = mm_alternatives_anew(a);
    mm_status status = MM_OK;
    for (int i = 0; status == MM_OK && i < whys->n; i++)
        if (!whys->maps[i].room) status = find_map(a, &of->stash->maps[i], i, of->decisions[i].kinds, &whys->maps[i]);
    mm_alternatives_destroy(a);
    return status;
}

mm_status explain_why_find(const plan_case *c, const mm_stash_account *stash, const mm_decision *decisions,
                           const mm_graph_facts *times, int n, explained_whys *out) {
    const bool fits = plan_case_fits(c);
    bool any = false;
    explained_whys whys = {.n = n < stash->n_maps ? n : stash->n_maps};
    whys.maps = calloc((size_t)whys.n + 1, sizeof *whys.maps);
    if (!whys.maps) return mm_fail(MM_ERR_NOMEM, "out of memory for the explanation");
    for (int i = 0; i < whys.n; i++) {
        whys.maps[i].room = fits && decisions[i].kinds == 1u << MM_REMEDY_KEEP;
        any |= !whys.maps[i].room;
    }
    const mm_alternatives_of of = {.plan = plan_case_plan(c),
                                   .facts = times,
                                   .stash = stash,
                                   .decisions = decisions,
                                   .config = &plan_case_need(c)->policy.config,
                                   .device_bytes = c->asked.budget_bytes,
                                   .pinned_bytes = c->asked.pinned.bytes};
    mm_status status = any ? find_all(&of, &whys) : MM_OK;
    if (status == MM_OK)
        *out = whys;
    else
        explain_why_fini(&whys);
    return status;
}

void explain_why_fini(explained_whys *whys) {
    free(whys->maps);
    *whys = (explained_whys){0};
}

/* ---------------------------------------------------------------- text */

/* Drafts round every tensor up: chosen, far below what matters. */
enum { ROUNDED = 64 << 10 };

static void print_device(FILE *text, const plan_case *c, const mm_anew *anew, const mm_alternative *what) {
    const int64_t there = c->asked.budget_bytes > 0 ? c->asked.budget_bytes : plan_case_plan(c)->peak_bytes;
    char size[32], step[256];
    fprintf(text, "needs %s more%s, at %s", mm_size_format(what->bytes, size, sizeof size),
            anew->limit_bytes > there + ROUNDED ? ""
            : c->asked.budget_bytes > 0         ? " than the budget"
                                                : " than this plan",
            mm_graph_step_name(plan_case_plan(c)->graph, what->step, step, sizeof step));
}

static void print_reason(FILE *text, const plan_case *c, const mm_anew *anew, const explained_other *other) {
    const double ms = (double)other->what.ns * 1e-6;
    char size[32];
    switch (other->what.why) {
    case MM_WHY_IMPOSSIBLE:
        fputs("no layer can make it again with the same result", text);
        return;
    case MM_WHY_BARRED:
        fputs("impossible as long as other maps have their actions", text);
        return;
    case MM_WHY_DEVICE:
        print_device(text, c, anew, &other->what);
        return;
    case MM_WHY_PINNED:
        fprintf(text, "needs %s more of pinned memory than there is",
                mm_size_format(other->what.bytes, size, sizeof size));
        return;
    case MM_WHY_PLACES:
        fputs("its bytes would fit, but no placement was found", text);
        return;
    case MM_WHY_SLOWER:
        fprintf(text, "an iteration takes %.3g ms more", ms);
        return;
    case MM_WHY_EQUAL:
        fputs("an iteration takes as long", text);
        return;
    case MM_WHY_FASTER:
        fprintf(text, "an iteration takes %.3g ms less; the policy did not do that", ms);
        return;
    case MM_WHY_ROOM:
    case MM_WHY_UNKNOWN:
    case MM_WHYS:
        return;
    }
}

void explain_why_print(FILE *text, const plan_case *c, const explained_whys *whys, int map) {
    const explained_why *why = &whys->maps[map];
    for (int i = 0; i < why->n; i++) {
        const explained_other *other = &why->other[i];
        fprintf(text, "%s%s", i ? "; " : "", mm_remedy_kind_name(other->action));
        if (other->price_ns > 0) fprintf(text, ", %.3g ms", (double)other->price_ns * 1e-6);
        fputs(": ", text);
        print_reason(text, c, &whys->anew, other);
    }
}

void explain_why_print_anew(FILE *file, const plan_case *c, const explained_whys *whys) {
    char size[32];
    if (whys->anew.ns == 0) return;
    fprintf(file,
            "%s, batch %lld, %s: \"instead\" is planned anew, with one map's action changed\n"
            "  with none changed        %12.3f ms, in place of %.3f; %s, without gaps\n",
            c->net, (long long)c->asked.batch, plan_case_plan(c)->policy, (double)whys->anew.ns * 1e-6,
            (double)whys->anew.plan_ns * 1e-6, mm_size_format(whys->anew.peak_bytes, size, sizeof size));
}

/* ---------------------------------------------------------------- json */

json_t *explain_why_json(const plan_case *c, const explained_whys *whys, int map) {
    json_t *array = json_array();
    if (map >= whys->n) return array;
    const explained_why *why = &whys->maps[map];
    if (why->room)
        json_array_append_new(array, json_pack("{ss ss}", "action", "keep", "reason", mm_why_name(MM_WHY_ROOM)));
    for (int i = 0; i < why->n; i++) {
        const mm_alternative *what = &why->other[i].what;
        char step[256];
        json_t *object =
            json_pack("{ss ss}", "action", mm_remedy_kind_name(why->other[i].action), "reason", mm_why_name(what->why));
        if (why->other[i].price_ns > 0)
            json_object_set_new(object, "seconds", json_real((double)why->other[i].price_ns * 1e-9));
        if (what->bytes > 0) json_object_set_new(object, "more_bytes", json_integer(what->bytes));
        if (what->why == MM_WHY_DEVICE)
            json_object_set_new(
                object, "step",
                json_string(mm_graph_step_name(plan_case_plan(c)->graph, what->step, step, sizeof step)));
        if (what->ns > 0)
            json_object_set_new(object, "more_seconds",
                                json_real((what->why == MM_WHY_FASTER ? -1e-9 : 1e-9) * (double)what->ns));
        json_array_append_new(array, object);
    }
    return array;
}
