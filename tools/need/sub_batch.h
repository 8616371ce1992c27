/* SPDX-License-Identifier: MIT */
/* Sub-batches: how many images of a batch are computed at a time (nets_exec_create_sub). --sub-batch says it, else the
 * policy's option `subbatch`. */
#ifndef TOOLS_NEED_SUB_BATCH_H
#define TOOLS_NEED_SUB_BATCH_H

#include "tools/need/need.h"

/* Reads how many are asked for: the batch, or a smaller number; 0: as many as the budget bears. text: that of
 * --sub-batch; NULL: not given, so that the policy says it; "": whole batches, as a saved state has it. measured: times
 * are of whole batches, so that a policy that chooses keeps them whole. MM_ERR_INVALID: neither `auto` nor from 1 to
 * the batch; the message names the option. */
MM_CHECKED mm_status sub_batch_read(const char *text, const char *policy, int64_t batch, bool measured,
                                    int64_t *sub_batch_out);

/* Whether facts were measured, so of whole batches; not so a machine's rates. NULL: there are none. */
bool sub_batch_is_measured(const facts_source *facts);

/* Reads it for a case, whose own sub_batch does not count, and chooses it for the budget where that is asked for;
 * without a budget, a policy that asks gets whole batches. MM_ERR_INVALID as above, and: --sub-batch auto without a
 * budget. Errors of sub_batch_choose. */
MM_CHECKED mm_status sub_batch_find(const char *text, const need_case *c, int64_t *sub_batch_out);

/* Chooses it as moDNN does (Chen et al., equation 8): the largest in which any 15 % of the steps in a row fit together,
 * each with its fastest algorithm's workspace, down to a multiple of 64, or to 32, 16 and so on; or a larger one in
 * which all maps fit. From there it is halved until the policy's plans fit. By a machine's rates, a larger or smaller
 * one is taken instead while the policy's plan for it is predicted to take a fiftieth less time. MM_ERR_INFEASIBLE:
 * they do not even for one image: *sub_batch_out is 1, and the message has what they need then. */
MM_CHECKED mm_status sub_batch_choose(const need_case *c, int64_t *sub_batch_out);

/* MM_ERR_INVALID: the facts are measured, so of whole batches of one size, and the run is in sub-batches, or of another
 * batch. option: what gave them. */
MM_CHECKED mm_status sub_batch_check_facts(const char *option, const facts_source *facts, int64_t batch,
                                           int64_t sub_batch);

/* Prints a line on stderr if a batch norm of the net normalises each sub-batch by itself. */
void sub_batch_warn(const char *command, const nets_net *net, int64_t batch, int64_t sub_batch);

#endif
