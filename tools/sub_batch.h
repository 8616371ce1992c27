/* SPDX-License-Identifier: MIT */
/* Sub-batches: how many images of a batch are computed at a time (nets_exec_create_sub). --sub-batch says it, else the
 * policy's option `subbatch`. */
#ifndef TOOLS_SUB_BATCH_H
#define TOOLS_SUB_BATCH_H

#include "tools/facts_source.h"
#include "tools/requirement.h"
#include "tools/target.h"

/* Reads how many are asked for: the batch, or a smaller number; 0: as many as the budget bears. text: that of
 * --sub-batch; NULL: not given, so that the policy says it; "": whole batches, as a saved state has it. measured: times
 * are of whole batches, so that a policy that chooses keeps them whole. MM_ERR_INVALID: neither `auto` nor from 1 to
 * the batch; the message names the option. */
MM_CHECKED mm_status sub_batch_read(const char *text, const char *policy, int64_t batch, bool measured,
                                    int64_t *sub_batch_out);

/* Whether facts were measured, so of whole batches; not so a machine's rates. NULL: there are none. */
bool sub_batch_is_measured(const facts_source *facts);

/* A run that a sub-batch is chosen for. */
typedef struct sub_batch_case {
    const nets_net *net;
    int64_t batch;
    const target *target;
    const char *policy;
    int64_t budget_bytes, pinned_bytes; /* budget 0: what the policy needs */
    const facts_source *facts;          /* NULL: none; of measured ones: a policy that chooses keeps batches whole */
} sub_batch_case;

/* What is planned of a case in sub-batches of so many images, as train, plan and bench fuse layers. */
requirement_asked sub_batch_asked(const sub_batch_case *c, int64_t sub_batch);

/* The same, and chooses it for the budget where that is asked for; without a budget, a policy that asks gets whole
 * batches. It chooses as moDNN does (Chen et al., equation 8): the largest in which any 15 % of the steps in a row fit
 * together, each with its fastest algorithm's workspace, down to a multiple of 64, or to 32, 16 and so on; or a larger
 * one in which all maps fit. From there it is halved until the policy's plans fit. By a machine's rates, a larger or
 * smaller one is taken instead while the policy's plan for it is predicted to take a fiftieth less time.
 * MM_ERR_INVALID as above, and: --sub-batch auto without a budget. MM_ERR_INFEASIBLE: plans do not fit even for one
 * image: *sub_batch_out is 1, and the message has what they need then. */
MM_CHECKED mm_status sub_batch_find(const char *text, const sub_batch_case *c, int64_t *sub_batch_out);

/* MM_ERR_INVALID: the facts are measured, so of whole batches of one size, and the run is in sub-batches, or of another
 * batch. option: what gave them. */
MM_CHECKED mm_status sub_batch_check_facts(const char *option, const facts_source *facts, int64_t batch,
                                           int64_t sub_batch);

/* Adds to the refusal in mm_last_error that the policy would fit in smaller sub-batches, if it does with one image at a
 * time. Returns MM_ERR_INFEASIBLE. */
MM_CHECKED mm_status sub_batch_advise(const sub_batch_case *c);

/* Prints a line on stderr if a batch norm of the net normalises each sub-batch by itself. */
void sub_batch_warn(const char *command, const nets_net *net, int64_t batch, int64_t sub_batch);

#endif
