/* What the state of mm train says of its run, and how often it is saved. */
#ifndef TOOLS_TRAIN_STATE_H
#define TOOLS_TRAIN_STATE_H

#include "tools/session.h"

enum { TRAIN_STATE_OPTIONS = 16 }; /* at most */

/* The options of the table that a state says, ending with ARG_END; with `lossy` those that its bits hang on where a code
 * is lossy, too. */
void train_state_options(const arg *table, bool lossy, arg options[TRAIN_STATE_OPTIONS + 1]);

/* Whether a policy has a lossy codec. */
bool train_state_lossy(const char *policy);

/* Reads --save-every: iterations, or epochs, which are the period's unit then: "100", "1epoch", "5epochs". */
MM_CHECKED mm_status train_state_period(const char *text, session_period *period_out, bool *epochs_out);

#endif
