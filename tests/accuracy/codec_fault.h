/* SPDX-License-Identifier: MIT */
/* Plants wrong codes in the real pipeline, so that a test can show that its threshold tells right from wrong. The
 * linker redirects the pipeline's calls of mm_codec_encode and mm_codec_decode here (--wrap). The fault is enqueued on
 * the stream after the codec's own task. */
#ifndef TESTS_ACCURACY_CODEC_FAULT_H
#define TESTS_ACCURACY_CODEC_FAULT_H

#include <stdint.h>

typedef enum codec_fault {
    FAULT_NONE,
    FAULT_MASK_SHIFTED,    /* each element gets its neighbour's bit */
    FAULT_MASK_ONES,       /* all bits are set */
    FAULT_MASK_TRANSPOSED, /* height and width exchanged */
    FAULT_MASK_OF_DECODED, /* signs of the map after ZFP at 4 bits a value, instead of exact ones */
    FAULT_MAP_TRANSPOSED,  /* decoded with height and width exchanged */
    FAULT_MAP_NCHW,        /* decoded as NCHW */
    FAULT_MAP_SHIFTED,     /* decoded one row off */
} codec_fault;

/* Sets the fault for all managers created from now on. No manager may exist. */
void codec_fault_set(codec_fault fault);

/* Numbers of masks encoded, and of maps decoded, since codec_fault_set. */
int64_t codec_fault_masks(void);
int64_t codec_fault_decodes(void);

#endif
