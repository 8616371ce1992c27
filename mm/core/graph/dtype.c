/* SPDX-License-Identifier: MIT */
#include "mm/core/graph/dtype.h"

const mm_dtype_traits mm_dtype_table[MM_DTYPES] = {
    [MM_F32] = {"f32", "F32", 4, true}, [MM_I32] = {"i32", "I32", 4, false},   [MM_U8] = {"u8", "U8", 1, false},
    [MM_F16] = {"f16", "F16", 2, true}, [MM_BF16] = {"bf16", "BF16", 2, true},
};

size_t mm_dtype_bytes(mm_dtype dtype) { return (unsigned)dtype < MM_DTYPES ? (size_t)mm_dtype_table[dtype].bytes : 0; }

const char *mm_dtype_name(mm_dtype dtype) {
    return (unsigned)dtype < MM_DTYPES ? mm_dtype_table[dtype].name : "unknown";
}
