/* SPDX-License-Identifier: MIT */
/* The order of an iteration: the events of its entries, in sequence. Plain data.
 *
 *   put     the entry is put
 *   get     it is got while nobody holds it
 *   return  nobody holds it any more, and it is not dropped at once
 *   end     it is dropped, and nobody holds it */
#ifndef MM_STASH_STASH_ORDER_H
#define MM_STASH_STASH_ORDER_H

#include "mm/core/status.h"

/* Bytes of a producer's name with its NUL: a module's path and an operation. Chosen: paths of wrapped networks reach
 * 80. */
enum { MM_STASH_PRODUCER_CAPACITY = 160 };

/* What an entry is. */
typedef struct mm_stash_desc {
    mm_dtype dtype;
    uint32_t flags;
    int rank;                  /* at least 1 */
    int64_t dims[MM_RANK_MAX]; /* in the order in memory, without dimensions of 1; unused ones are 0 */
    int64_t bytes;
    char producer[MM_STASH_PRODUCER_CAPACITY]; /* cut to this length */
} mm_stash_desc;

typedef enum mm_order_event_kind { MM_ORDER_PUT, MM_ORDER_GET, MM_ORDER_RETURN, MM_ORDER_END } mm_order_event_kind;

typedef struct mm_order_event {
    mm_order_event_kind kind;
    int32_t entry;
} mm_order_event;

typedef struct mm_order {
    mm_stash_desc *entries;
    mm_order_event *events;
    int n_entries, n_events, entry_capacity, event_capacity;
    int open;   /* number of entries that have not ended */
    int n_gets; /* number of gets */
    bool lost;  /* the order is incomplete, because memory ran out or it became too long */
} mm_order;

/* Longer orders are not learned. A deep network has a twentieth of so many events. */
enum { MM_ORDER_EVENTS_MOST = 1 << 16 };

/* Add an event to an order. If that fails, the order is lost. A put adds entry number n_entries. */
void mm_order_put(mm_order *order, const mm_stash_desc *kind);
void mm_order_add(mm_order *order, mm_order_event_kind kind, int entry);
/* Empties the order, and keeps its memory. */
void mm_order_clear(mm_order *order);
void mm_order_fini(mm_order *order);

bool mm_stash_desc_equal(const mm_stash_desc *a, const mm_stash_desc *b);
bool mm_order_equal(const mm_order *a, const mm_order *b);
/* Equal orders have equal hashes; others hardly ever. */
uint64_t mm_order_hash(const mm_order *order);

#endif
