/* SPDX-License-Identifier: MIT */
/* Whether `auto` would gain by sub-batches, which it does not use by itself: they change bits. */
#ifndef TOOLS_NEED_SUB_BATCH_OFFER_H
#define TOOLS_NEED_SUB_BATCH_OFFER_H

#include "policies/policy.h"
#include "tools/need/need.h"

typedef struct sub_batch_offer {
    int64_t sub_batch; /* 0: no offer */
    int64_t ns;        /* predicted time of an iteration, at most; INT64_MAX: not known */
    char *spec;        /* the case's policy with subbatch=auto: "auto:subbatch=auto" */
} sub_batch_offer;

/* Offers the case's policy with sub-batches, if it is `auto` with whole batches and if with sub-batches it is at least
 * 1.1 times as fast. own_ns: its time now. INT64_MAX: it does not fit, and any sub-batches that fit are offered.
 * Sub-batches are planned without a search (effort=0) and, where the case's plan fits, with all weights and states on
 * the device; and only those whose bound says that they may be so fast; so a plan may be even faster. If the policy has
 * effort=0, only `modnn` plans them; with resident=none, only the policy itself. With measured facts, which hold for
 * whole batches, nothing is offered. The caller ends the offer with sub_batch_offer_fini, which is legal on an all-zero
 * struct. */
MM_CHECKED mm_status sub_batch_offer_find(const need_case *c, int64_t own_ns, sub_batch_offer *offer_out);
void sub_batch_offer_fini(sub_batch_offer *offer);

/* The offer in words, without its policy: "would make at least 7.1 images/s (1.3 times), …". images: of the batch on
 * all ranks; own_ns: as above. The caller frees it. NULL: out of memory. */
char *sub_batch_offer_text(const sub_batch_offer *offer, const nets_net *net, int64_t images, int64_t own_ns);

/* How sub-batches change what is trained, for people and for JSON. */
const char *sub_batch_differs(const nets_net *net);
const char *sub_batch_differs_key(const nets_net *net);

#endif
