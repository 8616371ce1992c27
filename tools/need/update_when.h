/* SPDX-License-Identifier: MIT */
/* --update: when weights are updated (nets_update_when), or `auto`: in the backward pass where nothing refuses it, else
 * at the end. */
#ifndef TOOLS_NEED_UPDATE_WHEN_H
#define TOOLS_NEED_UPDATE_WHEN_H

#include "tools/need/target.h"

/* The runs that the option is for. Each policy that one of them has is added to it; the rest the caller sets. */
typedef struct update_runs {
    const char *command;
    bool undo;        /* an iteration whose loss or gradients are not finite must leave the weights as they were */
    bool sub_batches; /* one may compute parts of a batch */
    bool ranks;       /* one is of several ranks, beside what target->allreduce says */
    bool compares;    /* a policy compares gradients of whole iterations (comet's guard) */
} update_runs;

/* Adds a run of whole or divided batches under a policy. text: the value of --sub-batch; NULL: none. whole: a policy
 * with subbatch=auto gets whole batches. */
MM_CHECKED mm_status update_runs_add(update_runs *runs, const char *text, const char *policy, int64_t batch, bool whole,
                                     bool has_budget);

/* Sets target->update from target->update_text. With `auto`, says on stderr if that is at the end, and why.
 * MM_ERR_INVALID: an unknown word, or the runs cannot have it. Call it before networks are lowered, once
 * target->optimizer and allreduce are set. */
MM_CHECKED mm_status update_when_read(target *target, const update_runs *runs);

#endif
