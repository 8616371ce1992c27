/* SPDX-License-Identifier: MIT */
/* Turns bytes of the stash, or of a tensor that the program keeps, into a tensor without a copy, by DLPack. */
#ifndef MM_PYTHON_PYTHON_RESULT_H
#define MM_PYTHON_PYTHON_RESULT_H

#include "mm/python/python_types.h"

/* A result that autograd or the program has. */
typedef struct result result;

/* Returns a tensor at the address `data`, as the record describes it. lent: it is the result of mm_stash_get for the
 * record's entry, which is released, on `stream`, when the tensor is freed, or if there is a failure. watch: a tensor
 * whose version counter the result shares; NULL: it has one of its own. NULL with Python's exception. */
py_object *mm_python_result(bridge *b, record *r, void *data, void *stream, bool lent, py_object *watch);

/* The record of a result whose storage and version these are, so that a result that is saved again, in a double
 * backward, gets the same entry; NULL: there is none. One of another version is forgotten: it was modified through a
 * view of a part of it, and its value is no longer the entry's. */
record *mm_python_result_of(bridge *b, uint64_t storage, int64_t version);

#endif
