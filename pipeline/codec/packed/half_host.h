/* SPDX-License-Identifier: MIT */
/* Reads and writes elements of any float type on the host device. */
#ifndef PIPELINE_CODEC_PACKED_HALF_HOST_H
#define PIPELINE_CODEC_PACKED_HALF_HOST_H

#include <string.h>

#include "pipeline/codec/block/half_value.h"

/* Converts n elements of 16 bits to floats, and floats to such elements. type: not MM_F32. */
void mm_halves_widen(mm_dtype type, const uint16_t *src, int64_t n, float *dst);
void mm_halves_narrow(mm_dtype type, const float *src, int64_t n, uint16_t *dst);

/* Applies mm_signs_value (signs_value.h) to the n elements of a map, given its mask. infinity: mm_mask_infinity of
 * their type. */
void mm_signs_mend(uint16_t infinity, const uint32_t *mask, void *map, int64_t n);

static inline int64_t mm_elem_bytes(mm_dtype type) { return type == MM_F32 ? 4 : 2; }

/* One element of a map of any type. */
static inline float mm_elem_read(mm_dtype type, const void *map, int64_t i) {
    return type == MM_F32 ? ((const float *)map)[i] : mm_float_of(mm_half_widen(((const uint16_t *)map)[i], type));
}

static inline void mm_elem_write(mm_dtype type, float value, void *map, int64_t i) {
    if (type == MM_F32)
        ((float *)map)[i] = value;
    else
        ((uint16_t *)map)[i] = (uint16_t)mm_half_narrow(mm_float_bits(value), type);
}

/* Elements first to first + n - 1 of a map as floats: in the map itself if it is f32, else in `buffer`. */
static inline const float *mm_elems_read(mm_dtype type, const void *map, int64_t first, int64_t n, float *buffer) {
    if (type == MM_F32) return (const float *)map + first;
    mm_halves_widen(type, (const uint16_t *)map + first, n, buffer);
    return buffer;
}

/* Writes floats to elements first to first + n - 1 of a map, unless `src` is there already. */
static inline void mm_elems_write(mm_dtype type, const float *src, int64_t n, void *map, int64_t first) {
    if (type != MM_F32)
        mm_halves_narrow(type, src, n, (uint16_t *)map + first);
    else if (src != (float *)map + first)
        memcpy((float *)map + first, src, (size_t)n * sizeof *src);
}

#endif
