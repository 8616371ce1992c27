/* SPDX-License-Identifier: MIT */
/* For the analyser Frama-C (clocks_eva.sh): all logs of ENTRIES entries over two streams, two events and two callers,
 * through the clocks of issued work, from an array of clocks with room for one. */
#include "__fc_builtin.h"
#include "mm/core/check/issued_check.c"

#ifndef ENTRIES
#define ENTRIES 3
#endif

/* As in clocks_eva.c. */
#define ANY(x, low, high)                                                                                              \
    x = (low);                                                                                                         \
    while (x < (high) && Frama_C_interval(0, 1)) x++

int main(void) {
    enum { STREAM = 10, EVENT = 20 };
    mm_issued log[ENTRIES];
    mm_issued_order order = {.clocks = malloc(sizeof *order.clocks), .capacity = 1};
    if (!order.clocks) return 0;
    for (int i = 0; i < ENTRIES; i++) {
        int kind, stream, event, caller;
        ANY(kind, MM_ISSUED_FILL, MM_ISSUED_SYNC);
        ANY(stream, STREAM, STREAM + 1);
        ANY(event, EVENT, EVENT + 1);
        ANY(caller, 0, 1);
        log[i] = (mm_issued){.kind = (mm_issued_kind)kind, .caller = caller};
        log[i].stream = (uint64_t)stream;
        log[i].event = kind == MM_ISSUED_SYNC && event > EVENT ? 0 : (uint64_t)event;
    }
    if (mm_issued_follow(log, ENTRIES, &order) != MM_OK) return 0; /* out of memory */
    for (int i = 0; i < order.n; i++)
        for (int s = 0; s < MM_STREAM_COUNT; s++) {
            /*@ check \initialized(&order.clocks[i].ended[s]); */
        }
    /*@ check order.n <= order.capacity; */
    mm_issued_order_fini(&order);
    return 0;
}
