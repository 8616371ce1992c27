/* The parameters of the zfp codec, as its spec has them. */
#ifndef PIPELINE_CODEC_ZFP_SPEC_H
#define PIPELINE_CODEC_ZFP_SPEC_H

#include <stdbool.h>

#include "mm/core/status.h"

/* What codecs say of them in their summaries. */
#define MM_ZFP_SUMMARY                                                                                                 \
    "fixed-rate ZFP, lossy; rate=BITS_PER_VALUE, up to 32, default 6.4; dims=1|2|3, default 2; layout=nhwc|nchw, "     \
    "default nhwc; sms=N, threads of that many of a GPU's multiprocessors, default all"

typedef struct mm_zfp_spec {
    int dims, maxbits;
    bool channels_first; /* layout=nchw */
    int sms;             /* 0: all */
    char canonical[48];  /* "rate=4,dims=3": without what is as by default, but the rate */
} mm_zfp_spec;

/* `params`: "rate=4,dims=3", any of them, in any order; or "rate=4:dims=3", for a place where commas part other things
 * (a policy's options). MM_ERR_INVALID says what is wrong and the range. */
MM_CHECKED mm_status mm_zfp_spec_parse(const char *params, mm_zfp_spec *spec_out);

#endif
