/* What a network needs under a policy, found out without a device: by planning. */
#ifndef TOOLS_REQUIREMENT_H
#define TOOLS_REQUIREMENT_H

#include "mm/planning.h"
#include "nets/lower.h"
#include "tools/facts_source.h"
#include "tools/target.h"

typedef struct requirement {
    nets_lowered *lowered;
    mm_planned planned;
    mm_policy policy;
    int64_t base_bytes;    /* of persistent tensors */
    int64_t minimum_bytes; /* the lowest peak of the policy's plans */
} requirement;

/* What a plan takes at the least on the device where pinned memory has no limit. */
typedef struct requirement_free {
    int64_t device_bytes, pinned_bytes;
} requirement_free;

/* MM_ERR_INFEASIBLE: within so much pinned memory it needs that much on the device, held by that step; and what it
 * would need with more pinned memory, where `free` says that this is less. */
MM_CHECKED mm_status requirement_refuse(int64_t minimum_bytes, const char *holder, int64_t pinned_bytes,
                                        const requirement_free *free);

/* Lowers and plans, with the lowest peak that the policy can reach. base_bytes 0: what the graph's own persistent
 * tensors take. facts: times to go with it (facts_source.h), or NULL. The net must outlive it. */
MM_CHECKED mm_status requirement_init(requirement *r, const nets_net *net, int64_t batch, nets_mode mode,
                                      const target *target, const char *policy, int64_t base_bytes,
                                      const facts_source *facts);
/* Plans anew, as the policy does within these limits; if nothing of it fits them, with the lowest peak within the
 * pinned memory. staged_bytes: of a buffer beside the persistent tensors (target_staged_bytes), or 0. */
MM_CHECKED mm_status requirement_limit(requirement *r, int64_t device_bytes, int64_t pinned_bytes,
                                       int64_t staged_bytes);

/* Plans anew if the plan takes more pinned memory than that (0: no limit), and what it needs at the least becomes what
 * it needs so. Where the policy cannot do with less, the plan still takes more. */
MM_CHECKED mm_status requirement_limit_pinned(requirement *r, int64_t pinned_bytes);

/* With a refusal as the last error: MM_ERR_INFEASIBLE, and the message says which policy would fit (mm_advise). facts:
 * what was planned by, or NULL. */
MM_CHECKED mm_status requirement_advise(const nets_net *net, int64_t batch, const target *target, int64_t device_bytes,
                                        int64_t pinned_bytes, const facts_source *facts);

/* Offloaded maps get the pinned memory that the plan needs; where nobody says, at the most this: half of what is free
 * of the machine's memory now. 0 where that is not known. */
int64_t requirement_pinned_most(void);

void requirement_fini(requirement *r);

/* Whether training under a policy is lossy: a codec that it names gives other values back. False of what is no policy. */
bool requirement_is_lossy(const char *policy);
/* What stands behind a policy's name in every table: " (lossy)", or "". */
const char *requirement_mark(const char *policy);

#endif
