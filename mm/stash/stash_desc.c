/* SPDX-License-Identifier: MIT */
/* Converts a tensor as a framework describes it into a description of its bytes in memory. */
#include "mm/stash/stash_desc.h"

#include <stdio.h>

#include "mm/core/graph/dtype.h"
#include "mm/core/text.h"
#include "mm/stash/stash.h"

enum { FLAGS = MM_STASH_SIGNS | MM_STASH_EXACT };

static mm_status refuse(const mm_stash_tensor *t, const char *what, int64_t value, const char *range) {
    return mm_fail(MM_ERR_INVALID, "mm_stash_put: a tensor of %s: %s is %lld, %s",
                   t->producer && *t->producer ? MM_BRIEF(t->producer) : "an unknown producer", what, (long long)value,
                   range);
}

/* Sorts dimensions into their order in memory, the outermost first, and leaves out those of 1. Returns their number. */
static int sort_dims(const mm_stash_tensor *t, int64_t *dims, int64_t *strides) {
    int n = 0;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] == 1) continue;
        int at = n++;
        for (; at > 0 && strides[at - 1] < t->strides[i]; at--) {
            dims[at] = dims[at - 1];
            strides[at] = strides[at - 1];
        }
        dims[at] = t->dims[i];
        strides[at] = t->strides[i];
    }
    return n;
}

static bool has_strides(const mm_stash_tensor *t) {
    for (int i = 0; i < t->rank; i++)
        if (t->strides[i] != 0) return true;
    return false;
}

static mm_status check_elems(const mm_stash_tensor *t, int64_t *elems_out) {
    enum { ELEMS_BITS = 50 }; /* 2^50 elements: more than any memory has */
    int64_t elems = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->dims[i] < 1) return refuse(t, "a dimension", t->dims[i], "must be 1 or more");
        if (t->dims[i] > ((int64_t)1 << ELEMS_BITS) / elems)
            return refuse(t, "a dimension", t->dims[i], "which is too much");
        elems *= t->dims[i];
    }
    *elems_out = elems;
    return MM_OK;
}

mm_status mm_stash_desc_of(const mm_stash_tensor *t, mm_stash_desc *kind_out) {
    int64_t elems = 0, strides[MM_RANK_MAX], next = 1;
    mm_stash_desc kind = {.dtype = t->dtype, .flags = t->flags};
    MM_TRY(mm_check_given(t->data, "mm_stash_put", "tensor->data"));
    if ((unsigned)t->dtype >= MM_DTYPES) return refuse(t, "dtype", t->dtype, "not one of mm_dtype");
    if (t->rank < 0 || t->rank > MM_RANK_MAX) return refuse(t, "rank", t->rank, "must be 0 to 8");
    if (t->flags & ~(uint32_t)FLAGS) return refuse(t, "flags", t->flags, "not of mm_stash_flag");
    MM_TRY(check_elems(t, &elems));
    kind.rank = sort_dims(t, kind.dims, strides);
    for (int i = kind.rank; has_strides(t) && i-- > 0; next *= kind.dims[i])
        if (strides[i] != next)
            return refuse(t, "a stride", strides[i], "which leaves a gap: make the tensor contiguous");
    if (kind.rank == 0) kind.dims[kind.rank++] = 1;
    kind.bytes = elems * mm_dtype_table[t->dtype].bytes;
    snprintf(kind.producer, sizeof kind.producer, "%s", t->producer ? t->producer : "");
    *kind_out = kind;
    return MM_OK;
}
