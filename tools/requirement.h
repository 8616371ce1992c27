/* What a network needs under a policy, found out without a device: by planning. */
#ifndef TOOLS_REQUIREMENT_H
#define TOOLS_REQUIREMENT_H

#include "mm/planning.h"
#include "nets/lower.h"

typedef struct requirement {
    nets_backend *backend;
    nets_lowered *lowered;
    mm_planned planned;
} requirement;

/* MM_ERR_NOT_FOUND: this build has no such device; the message lists those that it has. */
MM_CHECKED mm_status requirement_device(const char *device);

/* Lowers and plans. base_bytes 0: what the graph's own persistent tensors take. facts_path: measured times to go with
 * it, or NULL. The net must outlive it. */
MM_CHECKED mm_status requirement_init(requirement *r, const nets_net *net, int64_t batch, nets_mode mode,
                                      const char *device, const char *policy, int64_t base_bytes,
                                      const char *facts_path);
/* The first of the policies that fits a budget, the lossless ones first; NULL if none does, or if none can be planned. */
const char *requirement_suggest(const nets_net *net, int64_t batch, const char *device, int64_t budget_bytes);

void requirement_fini(requirement *r);

#endif
