/* SPDX-License-Identifier: MIT */
/* Types of Python that mm_torch's hot path works on. Their members are attributes in Python, too (python_types.c), and
 * Python's garbage collector does not visit them: none of what they hold refers back to them.
 *
 *   autograd ──▶ record ──▶ entry ──▶ an entry of the stash      one entry for each storage and version; views of the
 *                                                                storage share it
 *   autograd ──▶ a tensor ──▶ result ──▶ record                  a result of the stash, by DLPack (python_result.c) */
#ifndef MM_PYTHON_PYTHON_TYPES_H
#define MM_PYTHON_PYTHON_TYPES_H

#include <stdbool.h>

#include "mm/mm.h"
#include "mm/python/python_abi.h"

/* clang-format off */
/* Names of attributes and methods: of tensors and storages, then of Core. */
#define PYTHON_NAMES(X) \
    X(_base) X(_cdata) X(_is_view) X(_version) X(_weak_ref) X(data) X(data_ptr) X(detach) X(device) X(dtype) \
    X(grad_fn) X(layout) X(nbytes) X(output_nr) X(requires_grad) X(shape) X(storage_offset) X(stride) \
    X(untyped_storage) X(view) X(after_backward) X(check) X(compact) X(enter_backward) X(flags_of) X(left) X(leave) \
    X(named) X(new_empty) X(new_layout) X(observe) X(odd) X(producer_of) X(put) X(raise_modified) X(raise_resized) \
    X(refuse) X(share_begin) X(share_follow) X(stream) X(unchanged) X(whole)

/* Objects that the calls compare with or call; mm_torch/hot.py gives them by name. */
#define PYTHON_OBJECTS(X) \
    X(None) X(True) X(Tensor) X(strided) X(RuntimeError) X(from_dlpack) X(keeps_graph) X(is_grad_enabled) \
    X(free_weak_ref) X(small) X(other) X(device) X(subclass) X(params)
/* clang-format on */

enum { PYTHON_RUNS, PYTHON_FORKED, PYTHON_ENDS };

/* What every call needs. There is one for each set of types, that is for each process; it is never freed. */
typedef struct python {
    int ended; /* Python writes it. FORKED: this process lacks the library's threads; ENDS: modules lose their names */
#define MEMBER(name) py_object *name;
    struct {
        PYTHON_NAMES(MEMBER)
    } name;
    struct {
        PYTHON_OBJECTS(MEMBER)
    } is;
#undef MEMBER
    py_object *zero;
    py_type *record, *entry;
} python;

/* ---- a table: what has a key, in chains */

typedef struct chained {
    struct chained *next;
    uint64_t key;
} chained;

typedef struct chains {
    chained **heads;
    size_t heads_count, count;
} chains;

bool mm_chains_add(chains *table, chained *item, uint64_t key); /* false: there is no memory */
void mm_chains_remove(chains *table, chained *item);            /* an item that is not there is ignored */
chained *mm_chains_first(const chains *table, uint64_t key);    /* of those that may have the key; go on by `next` */

/* ---- the types */

/* Base of Core. */
typedef struct bridge {
    py_object head;
    python *py;
    mm_stash *stash;      /* NULL once it has been destroyed */
    py_object *device;    /* whose tensors are put */
    py_object *layouts;   /* dict: (shape, strides, dtype) → Layout */
    py_object *producers; /* dict: type of a grad_fn → Producer */
    py_object *empty;     /* dict: dtype → a tensor without elements */
    py_object *coverage, *joins;
    chains entries, results; /* keys: the storage's address */
    char on_cuda, shares;    /* it is on a GPU; torch's allocator shares the budget */
    char classifies;         /* only classifies: nothing is put, all counts as taken */
    char watched;            /* observe() is called with each entry */
    char backward, between;  /* a backward pass runs; one has ended, and nothing was put since */
    int64_t number;          /* of the iteration */
    int64_t params, duplicates, views, taken, put_bytes; /* counts */
} bridge;

/* Base of Layout. */
typedef struct layout {
    py_object head;
    py_object *shape, *dtype;
    int64_t bytes, size;
    uint64_t described; /* address of an mm_stash_tensor without data, producer and further flags */
    uint64_t template_; /* address of a DLTensor without data */
    char dense, cast;
} layout;

/* Base of Producer. */
typedef struct producer {
    py_object head;
    py_object *name, *bytes;
    int flags;
    char depends; /* flags depend on the tensor: flags_of() */
} producer;

typedef struct entry {
    py_object head;
    py_object *weak_refs;
    chained chained;
    bridge *core;
    uint64_t number; /* in the stash; 0: it is not there */
    int64_t data, bytes, version, begin, start, iteration, readers;
    uint64_t weak; /* a weak reference of the storage, which keeps its address from others; 0: `memory` does */
    py_object *watch, *memory, *root, *storage, *producer;
    layout *layout, *seen; /* of what was put; of the tensor that was put */
    int64_t output;
    char alone;
} entry;

typedef struct record {
    py_object head;
    entry *entry;
    layout *layout;
    py_object *alias, *producer;
    int64_t offset, output;
} record;

/* Returns (Bridge, Layout, Producer, Entry, Record); NULL with Python's exception. */
py_object *mm_python_types(python *py, py_method *methods);

entry *mm_python_entry(bridge *b); /* a new one; NULL with Python's exception */

/* ---- Python's calls */

static inline py_object *py_get(py_object *o, py_object *name) { return PyObject_GetAttr(o, name); }

static inline py_object *py_call(py_object *o, py_object *method) {
    return PyObject_CallMethodObjArgs(o, method, NULL);
}

/* A new reference. */
static inline void *py_own(void *o) {
    Py_IncRef(o);
    return o;
}

/* Takes an integer's value, and drops the reference. False: there is an exception. */
static inline bool py_int(py_object *o, int64_t *value_out) {
    if (!o) return false;
    *value_out = PyLong_AsLongLong(o);
    Py_DecRef(o);
    return *value_out != -1 || !PyErr_Occurred();
}

/* Drops the result of a call. False: it failed. */
static inline bool py_done(py_object *o) {
    Py_DecRef(o);
    return o != NULL;
}

#endif
