/* Deliberately wrong codes in a pipeline that is otherwise the real one, so that a test can show that its threshold
 * tells right from wrong. The linker sends the pipeline's calls of mm_codec_encode and mm_codec_decode here (--wrap);
 * what spoils a code or a map is put on the stream behind the codec's own work. */
#ifndef TESTS_ACCURACY_CODEC_FAULT_H
#define TESTS_ACCURACY_CODEC_FAULT_H

#include <stdint.h>

typedef enum codec_fault {
    FAULT_NONE,
    FAULT_MASK_SHIFTED,    /* each element gets its neighbour's bit: off by one */
    FAULT_MASK_ONES,       /* gradients flow everywhere */
    FAULT_MASK_TRANSPOSED, /* height and width exchanged */
    FAULT_MASK_OF_DECODED, /* signs of what ZFP gives back at 4 bits a value, instead of the exact ones */
    FAULT_MAP_TRANSPOSED,  /* decoded with height and width exchanged */
    FAULT_MAP_NCHW,        /* decoded as if channels were outside of height and width */
    FAULT_MAP_SHIFTED,     /* decoded one row off */
} codec_fault;

/* Of all managers from now on; set while there is none. */
void codec_fault_set(codec_fault fault);

/* How many masks were encoded and maps decoded since codec_fault_set. */
int64_t codec_fault_masks(void);
int64_t codec_fault_decodes(void);

#endif
