/* SPDX-License-Identifier: MIT */
/* Types of a map's elements that codecs of floats distinguish. */
#ifndef PIPELINE_CODEC_ELEM_TYPE_H
#define PIPELINE_CODEC_ELEM_TYPE_H

typedef enum mm_elem_type { MM_ELEM_F32, MM_ELEM_F16, MM_ELEM_BF16 } mm_elem_type;

#endif
