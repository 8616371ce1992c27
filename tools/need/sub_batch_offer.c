/* SPDX-License-Identifier: MIT */
#include "tools/need/sub_batch_offer.h"

#include <stdlib.h>
#include <string.h>

#include "mm/core/status.h"
#include "policies/policy_table.h"
#include "tools/need/sub_batch.h"

/* A policy that `auto` is never slower than (auto_portfolio.c), and that plans much faster. */
static const char quick[] = "modnn:algorithms=fastest";

enum { WORTH_PERMILLE = 1100 }; /* chosen: an offer is worth a line from 1.1 times the speed on */

const char *sub_batch_differs(const nets_net *net) {
    return sub_batch_changes_statistics(net) ? "batch norms normalise each sub-batch by itself: statistics differ"
                                             : "the same sums in another order: bits differ";
}

const char *sub_batch_differs_key(const nets_net *net) {
    return sub_batch_changes_statistics(net) ? "statistics" : "rounding";
}

/* Prints the policy with subbatch=auto, and that without a search. *may_out: it is `auto` with whole batches. */
static mm_status specs_of(const char *policy, char **offered_out, char **tried_out, bool *may_out) {
    mm_policy parsed;
    MM_TRY(mm_policy_parse(policy, &parsed));
    *may_out = parsed.ops == &mm_policy_auto && mm_policy_sub_batch(&parsed) == MM_SUB_BATCH_OFF;
    parsed.config.sub_batch = MM_SUB_BATCH_AUTO;
    mm_status status = mm_policy_print(&parsed);
    if (status == MM_OK) *offered_out = strdup(parsed.spec);
    parsed.config.own[MM_AUTO_EFFORT] = 0;
    if (status == MM_OK) status = mm_policy_print(&parsed);
    if (status == MM_OK) *tried_out = strdup(parsed.spec);
    mm_policy_fini(&parsed);
    if (status == MM_OK && (!*offered_out || !*tried_out))
        return mm_fail(MM_ERR_NOMEM, "out of memory for the name of a policy");
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
static mm_status is_fast_enough(const need *whole, int64_t below_ns, bool *is_out) {
    int64_t ns;
    MM_TRY(need_bound(whole, 0, INT64_MAX, &ns));
    *is_out = ns >= below_ns;
    return MM_OK;
}

/* tried: the policy to plan with. */
static mm_status find(const need_case *given, const char *tried, const need *whole, int64_t own_ns,
                      sub_batch_offer *offer) {
    need_case c = *given;
    bool enough = false;
    c.policy = tried;
    c.wants_fastest = c.wants_least = false;
    if (!c.facts) return own_ns == INT64_MAX ? find_untimed(&c, offer) : MM_OK;
    const int64_t below_ns = own_ns == INT64_MAX ? INT64_MAX : own_ns / WORTH_PERMILLE * 1000;
    if (whole) MM_TRY(is_fast_enough(whole, below_ns, &enough));
    if (enough) return MM_OK;
    const int steps = whole ? mm_graph_steps(need_most(whole)->lowered->graph) : 0;
    return sub_batch_fast(&c, quick, steps, below_ns, &offer->sub_batch, &offer->ns);
}

mm_status sub_batch_offer_find(const need_case *c, const need *whole, int64_t own_ns, sub_batch_offer *offer_out) {
    sub_batch_offer offer = {.ns = INT64_MAX};
    char *tried = NULL;
    bool may;
    mm_status status = specs_of(c->policy, &offer.spec, &tried, &may);
    if (status == MM_OK && may && c->batch > 1 && c->budget_bytes > 0 && !sub_batch_is_measured(c->facts))
        status = find(c, tried, whole, own_ns, &offer);
    free(tried);
    if (status == MM_OK)
        *offer_out = offer;
    else
        sub_batch_offer_fini(&offer);
    return status;
}

void sub_batch_offer_fini(sub_batch_offer *offer) {
    free(offer->spec);
    *offer = (sub_batch_offer){0};
}
