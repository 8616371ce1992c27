#include "tools/train_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/codec/codec.h"
#include "policies/policy.h"

/* What the bits hang on: of policies, and of the budget they plan for, only where a code is lossy. */
static const char *const RUN_OPTIONS[] = {"--data",        "--batch",     "--seed",     "--lr",           "--lr-step",
                                          "--lr-schedule", "--optimizer", "--momentum", "--weight-decay", "--threads"},
                         *const LOSSY_OPTIONS[] = {"--policy", "--switch", "--budget"};

enum {
    RUN_OPTIONS_N = sizeof RUN_OPTIONS / sizeof *RUN_OPTIONS,
    LOSSY_OPTIONS_N = sizeof LOSSY_OPTIONS / sizeof *LOSSY_OPTIONS
};
_Static_assert(RUN_OPTIONS_N + LOSSY_OPTIONS_N <= TRAIN_STATE_OPTIONS, "room for all of them");

bool train_state_lossy(const char *policy) {
    char specs[MM_MAX_CODECS][MM_SPEC_CAPACITY];
    const mm_codec_ops *codec;
    int n = 0;
    if (mm_policy_codecs(policy, specs, &n) != MM_OK) return false;
    for (int i = 0; i < n; i++)
        for (size_t c = 0; (codec = mm_codec_table(c)); c++)
            if (strncmp(codec->name, specs[i], strcspn(specs[i], ":")) == 0 && !codec->flags.lossless) return true;
    return false;
}

void train_state_options(const arg *table, bool lossy, arg options[TRAIN_STATE_OPTIONS + 1]) {
    int n = 0;
    for (int i = 0; i < RUN_OPTIONS_N; i++) options[n++] = *args_find(table, RUN_OPTIONS[i]);
    for (int i = 0; lossy && i < LOSSY_OPTIONS_N; i++) options[n++] = *args_find(table, LOSSY_OPTIONS[i]);
    options[n] = (arg){0};
}

mm_status train_state_period(const char *text, session_period *period_out, bool *epochs_out) {
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    bool epochs = strcmp(end, "epoch") == 0 || strcmp(end, "epochs") == 0;
    if (errno || end == text || (*end && !epochs) || n < 1 || n > SESSION_ITERATIONS_MAX)
        return mm_fail(MM_ERR_INVALID, "--save-every %s: must be iterations or epochs, from 1 to %d: 100, 1epoch", text,
                       SESSION_ITERATIONS_MAX);
    *period_out = (session_period){.every = n};
    *epochs_out = epochs;
    return MM_OK;
}
