/* SPDX-License-Identifier: MIT */
#include "tools/need/sub_batch_offer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "mm/core/text.h"
#include "policies/policy_table.h"
#include "tools/args/speed.h"
#include "tools/need/sub_batch.h"

/* A policy that `auto` is hardly ever slower than (auto_portfolio.c), and that plans much faster. */
static const char modnn[] = "modnn:algorithms=fastest";

enum { WORTH_PERMILLE = 1100 }; /* chosen: an offer is worth a line from 1.1 times the speed on */

const char *sub_batch_differs(const nets_net *net) {
    return sub_batch_changes_statistics(net) ? "batch norms normalise each sub-batch by itself: statistics differ"
                                             : "the same sums in another order: bits differ";
}

const char *sub_batch_differs_key(const nets_net *net) {
    return sub_batch_changes_statistics(net) ? "statistics" : "rounding";
}

/* What an offer is looked for with. */
typedef struct attempt {
    char *tried;       /* the policy to plan with; owned */
    const char *quick; /* as for sub_batch_fast */
    bool thorough;     /* as for sub_batch_fast */
    bool may;          /* the policy is `auto` with whole batches */
} attempt;

/* Prints the policy with subbatch=auto; and the one to try: without a search, and with all weights and states on the
 * device, unless no plan of the given policy fits, or it lets none stay there. */
static mm_status specs_of(const char *policy, int64_t own_ns, char **offered_out, attempt *a) {
    mm_policy parsed;
    MM_TRY(mm_policy_parse(policy, &parsed));
    a->may = parsed.ops == &mm_policy_auto && mm_policy_sub_batch(&parsed) == MM_SUB_BATCH_OFF;
    const bool none_stays = parsed.config.resident == MM_RESIDENT_NONE;
    a->thorough = none_stays || own_ns == INT64_MAX || parsed.config.own[MM_AUTO_EFFORT] > 0;
    parsed.config.sub_batch = MM_SUB_BATCH_AUTO;
    mm_status status = mm_policy_print(&parsed);
    if (status == MM_OK) *offered_out = strdup(parsed.spec);
    parsed.config.own[MM_AUTO_EFFORT] = 0;
    /* plans with homes take several times longer */
    if (own_ns < INT64_MAX && parsed.config.resident == MM_RESIDENT_NEEDED) parsed.config.resident = MM_RESIDENT_ALL;
    if (status == MM_OK) status = mm_policy_print(&parsed);
    if (status == MM_OK) a->tried = strdup(parsed.spec);
    mm_policy_fini(&parsed);
    if (status == MM_OK && (!*offered_out || !a->tried))
        return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
    a->quick = none_stays ? NULL : modnn; /* modnn has no homes but on the device */
    return status;
}

/* Without times: one image at a time is what fits if anything does. */
static mm_status find_untimed(const need_case *c, sub_batch_offer *offer) {
    need_case single = *c;
    bool fits;
    single.sub_batch = 1;
    MM_TRY(need_try(&single, &fits));
    offer->sub_batch = fits ? 1 : 0;
    return MM_OK;
}

/* Whether the computation of the whole batch alone takes so long that no sub-batches are worth an offer: together they
 * compute as much, in steps that are no more efficient (tools/facts/machine.h). */
static mm_status is_fast_enough(const need_case *c, int64_t below_ns, int *steps_out, bool *is_out) {
    need whole;
    int64_t ns;
    MM_TRY(need_open(&whole, c));
    mm_status status = need_bound(&whole, 0, INT64_MAX, INT64_MAX, &ns);
    if (status == MM_OK) *is_out = ns >= below_ns;
    *steps_out = mm_graph_steps(need_most(&whole)->lowered->graph);
    need_fini(&whole);
    return status;
}

static mm_status find(const need_case *given, const attempt *a, int64_t own_ns, sub_batch_offer *offer) {
    need_case c = *given;
    bool enough = false;
    int steps = 0;
    c.policy = a->tried;
    c.wants_fastest = c.wants_least = c.wants_plan = false;
    if (!c.facts) return own_ns == INT64_MAX ? find_untimed(&c, offer) : MM_OK;
    const int64_t below_ns = own_ns == INT64_MAX ? INT64_MAX : own_ns / WORTH_PERMILLE * 1000;
    if (own_ns < INT64_MAX) MM_TRY(is_fast_enough(given, below_ns, &steps, &enough));
    if (enough) return MM_OK;
    return sub_batch_fast(&c, a->quick, a->thorough, steps, below_ns, &offer->sub_batch, &offer->ns);
}

mm_status sub_batch_offer_find(const need_case *c, int64_t own_ns, sub_batch_offer *offer_out) {
    sub_batch_offer offer = {.ns = INT64_MAX};
    attempt a = {0};
    mm_status status = specs_of(c->policy, own_ns, &offer.spec, &a);
    if (status == MM_OK && a.may && c->batch > 1 && c->budget_bytes > 0 && !sub_batch_is_measured_once(c->facts))
        status = find(c, &a, own_ns, &offer);
    free(a.tried);
    if (status == MM_OK)
        *offer_out = offer;
    else
        sub_batch_offer_fini(&offer);
    return status;
}

char *sub_batch_offer_text(const sub_batch_offer *offer, const nets_net *net, int64_t images, int64_t own_ns) {
    const int64_t tokens = nets_net_tokens(net);
    char speed[64] = "fit", times[32] = "";
    if (offer->ns < INT64_MAX)
        snprintf(speed, sizeof speed, "make at least %.1f %s",
                 speed_of((double)images * 1e9 / (double)offer->ns, tokens), speed_unit(tokens));
    if (own_ns < INT64_MAX) snprintf(times, sizeof times, " (%.1f times)", (double)own_ns / (double)offer->ns);
    return mm_text_format("would %s%s, in sub-batches; %s", speed, times, sub_batch_differs(net));
}

void sub_batch_offer_fini(sub_batch_offer *offer) {
    free(offer->spec);
    *offer = (sub_batch_offer){0};
}
