/* SPDX-License-Identifier: MIT */
/* The sub-batch is the number of images of a batch that are computed at a time (nets_exec_create_sub). --sub-batch sets
 * it, else the policy's option `subbatch`. */
#ifndef TOOLS_NEED_SUB_BATCH_H
#define TOOLS_NEED_SUB_BATCH_H

#include "tools/need/need.h"

/* Reads the sub-batch: from 1 to the batch, or 0 for the largest that suits the budget. text: the value of --sub-batch;
 * NULL: not given, the policy sets it; "": whole batches, as in a saved state. whole: a policy with subbatch=auto gets
 * whole batches. MM_ERR_INVALID: not `auto` nor from 1 to the batch; the message names the option. */
MM_CHECKED mm_status sub_batch_read(const char *text, const char *policy, int64_t batch, bool whole,
                                    int64_t *sub_batch_out);

/* Whether the facts were measured with a single batch. Then a policy with subbatch=auto gets whole batches: nothing
 * says how fast smaller ones are, so these must be asked for with --sub-batch. NULL: false. */
bool sub_batch_is_measured_once(const facts_source *facts);

/* Reads the sub-batch for a case, whose own sub_batch is ignored. If it is to suit the budget, chooses it; a policy
 * with subbatch=auto gets whole batches without a budget. MM_ERR_INVALID as above, or --sub-batch auto without a
 * budget. Errors of sub_batch_choose. */
MM_CHECKED mm_status sub_batch_find(const char *text, const need_case *c, int64_t *sub_batch_out);

/* Chooses the sub-batch as moDNN does (Chen et al., equation 8): the largest in which any 15 % of the steps in a row
 * fit together, with the largest workspace of their fastest algorithms, rounded down to a multiple of 64, or to 32, 16
 * and so on; above 1024 to a multiple of an eighth of a power of two. Takes a larger one if all maps fit with it.
 * Halves it until the policy's plans fit. With facts, then takes the one of all such sizes that is predicted to be the
 * fastest. MM_ERR_INFEASIBLE: not even one image fits: *sub_batch_out is 1, and the message says
 * what one image needs. */
MM_CHECKED mm_status sub_batch_choose(const need_case *c, int64_t *sub_batch_out);

/* A fast sub-batch, as predicted by a machine's rates: plans the batch's halves, quarters and so on with the policy
 * `quick` (NULL: none), as far as their bounds allow; and, if `thorough`, with the case's policy the one with the least
 * bound, if no other was found or the graph, of so many `steps`, is small. below_ns: only ones that take less.
 * *sub_batch_out 0: none was found. */
MM_CHECKED mm_status sub_batch_fast(const need_case *c, const char *quick, bool thorough, int steps, int64_t below_ns,
                                    int64_t *sub_batch_out, int64_t *ns_out);

/* Checks that facts suit a run. MM_ERR_INVALID: they were measured with one batch, and the run has whole batches of
 * another size. Times of sub-batches follow from those of any batch (facts_source_fill). option: the option that names
 * the facts, for the message. */
MM_CHECKED mm_status sub_batch_check_facts(const char *option, const facts_source *facts, int64_t batch,
                                           int64_t sub_batch);

/* Warns on stderr if a batch norm of the net normalises each sub-batch by itself. */
void sub_batch_warn(const char *command, const nets_net *net, int64_t batch, int64_t sub_batch);

/* Whether the net has a batch norm, which normalises each sub-batch by itself. */
bool sub_batch_changes_statistics(const nets_net *net);

#endif
