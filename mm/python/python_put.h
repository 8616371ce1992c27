/* SPDX-License-Identifier: MIT */
/* Puts a tensor that autograd saves into the stash. */
#ifndef MM_PYTHON_PYTHON_PUT_H
#define MM_PYTHON_PYTHON_PUT_H

#include "mm/python/python_types.h"

/* A tensor that is saved, and what is known of it. */
typedef struct saved {
    py_object *x, *fn, *storage, *root; /* root: x, or its base if it is a view */
    layout *layout;
    int64_t total, data, version, start, cdata; /* total, data, cdata: of its storage; start: of x in it, in bytes */
    int64_t flags;                              /* of mm_stash_flag; -1: those of what made x */
    bool is_view, alone;                        /* alone: x has an entry of its own, of its elements only */
    bool begins; /* the put begins an iteration, and torch's allocator shares the budget */
} saved;

void mm_python_saved_end(saved *s);

/* Finds out storage, total and data. False: x has no storage, or not all of it (`why_out` says what it is then; it may
 * also be too small), or there is an exception (*why_out is NULL). */
bool mm_python_look(bridge *b, saved *s, py_object **why_out);

/* Finds out the layout. 1: done; 0: the stash takes no such tensor; -1: there is an exception. */
int mm_python_lay_out(bridge *b, saved *s);

/* Finds out version, start, data and cdata. False: there is an exception. */
bool mm_python_place(bridge *b, saved *s);

/* Puts it. Returns the entry, which the table has; NULL with Python's exception. */
entry *mm_python_put(bridge *b, saved *s);

/* A record of an entry. It takes the reference of the entry. NULL with Python's exception. */
py_object *mm_python_record(python *py, entry *e, layout *as, int64_t offset, py_object *alias, py_object *producer,
                            int64_t output);

/* The stream that the caller enqueues on. False: there is an exception. */
bool mm_python_stream(bridge *b, void **stream_out);

/* Raises the exception of a status. Unless `now`, Core may find that the call is to be made again: then true. */
bool mm_python_refuse(bridge *b, mm_status status, bool now);

/* What made a tensor, by its grad_fn: a new reference; NULL with Python's exception. */
py_object *mm_python_producer_of(bridge *b, py_object *fn);

#endif
