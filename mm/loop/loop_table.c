/* SPDX-License-Identifier: MIT */
#include "mm/mm_loop.h"

size_t mm_table_slots(const mm_table *table, uint64_t mask, int32_t row, mm_loop_touch touch, mm_slot *slots_out) {
    size_t n = 0;
    for (int32_t e = 0; e < table->entries && e < 64; e++) {
        if (!(mask >> e & 1)) continue;
        const bool by_row = table->by_row >> e & 1;
        const int64_t bytes = (int64_t)table->bytes[e] / (by_row ? table->rows : 1);
        slots_out[n++] = (mm_slot){.name = table->names[e],
                                   .row = by_row ? row : 0,
                                   .touch = touch,
                                   .where = (char *)table->pointers + (size_t)e * sizeof(void *),
                                   .bytes = bytes,
                                   .row_offset = by_row ? row * bytes : 0,
                                   .dtype = table->dtype};
    }
    return n;
}
