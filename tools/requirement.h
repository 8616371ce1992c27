/* What a network needs under a policy, found out without a device: by planning. */
#ifndef TOOLS_REQUIREMENT_H
#define TOOLS_REQUIREMENT_H

#include "mm/planning.h"
#include "nets/lower.h"
#include "tools/target.h"

typedef struct requirement {
    nets_lowered *lowered;
    mm_planned planned;
    mm_policy policy;
    int64_t minimum_bytes; /* the lowest peak of the policy's plans */
} requirement;

/* Lowers and plans, with the lowest peak that the policy can reach. base_bytes 0: what the graph's own persistent
 * tensors take. facts_path: times to go with it (facts_source.h), or NULL. The net must outlive it. */
MM_CHECKED mm_status requirement_init(requirement *r, const nets_net *net, int64_t batch, nets_mode mode,
                                      const target *target, const char *policy, int64_t base_bytes,
                                      const char *facts_path);
/* Plans anew, as the policy does within these limits; if nothing of it fits them, with the lowest peak within the
 * pinned memory. */
MM_CHECKED mm_status requirement_limit(requirement *r, int64_t device_bytes, int64_t pinned_bytes);

/* With a refusal as the last error: MM_ERR_INFEASIBLE, and the message says which policy would fit (mm_advise). */
MM_CHECKED mm_status requirement_advise(const nets_net *net, int64_t batch, const target *target, int64_t device_bytes,
                                        int64_t pinned_bytes);

/* Offloaded maps get the pinned memory that the plan needs; where nobody says, at the most this: half of what is free
 * of the machine's memory now. 0 where that is not known. */
int64_t requirement_pinned_most(void);

void requirement_fini(requirement *r);

#endif
