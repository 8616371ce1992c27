/* SPDX-License-Identifier: MIT */
/* The parameters in the spec of the zfp codec. */
#ifndef PIPELINE_CODEC_ZFP_ZFP_SPEC_H
#define PIPELINE_CODEC_ZFP_ZFP_SPEC_H

#include <stdbool.h>

#include "mm/core/status.h"

/* The parameters, as the codecs' summaries describe them. */
#define MM_ZFP_SUMMARY                                                                                                 \
    "fixed-rate ZFP, lossy; rate=BITS_PER_VALUE, up to 32, default 6.4; dims=1|2|3, default 2; layout=nhwc|nchw, "     \
    "default nhwc; sms=N, threads of that many of a GPU's multiprocessors, default all"

typedef struct mm_zfp_spec {
    int dims, maxbits;
    bool channels_first; /* layout=nchw */
    int sms;             /* 0: all */
    char canonical[48];  /* "rate=4,dims=3": the rate, and parameters that are not at their defaults */
} mm_zfp_spec;

/* Parses "rate=4,dims=3": any parameters, in any order; or "rate=4:dims=3", for places where commas separate other
 * things (a policy's options). MM_ERR_INVALID: the message says what is wrong, and the range. */
MM_CHECKED mm_status mm_zfp_spec_parse(const char *params, mm_zfp_spec *spec_out);

#endif
