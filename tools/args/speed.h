/* SPDX-License-Identifier: MIT */
/* Speeds: in tokens/s for networks of tokens, else in images/s. sample_tokens: tokens of a sample; 0: an image. */
#ifndef TOOLS_ARGS_SPEED_H
#define TOOLS_ARGS_SPEED_H

#include <stdint.h>

static inline double speed_of(double samples_per_second, int64_t sample_tokens) {
    return sample_tokens > 0 ? samples_per_second * (double)sample_tokens : samples_per_second;
}

static inline const char *speed_unit(int64_t sample_tokens) { return sample_tokens > 0 ? "tokens/s" : "images/s"; }

/* For a column's head. */
static inline const char *speed_unit_brief(int64_t sample_tokens) { return sample_tokens > 0 ? "tokens/s" : "img/s"; }

#endif
