/* SPDX-License-Identifier: MIT */
#include "mm/python/python_types.h"

#include <stdlib.h>

/* ---------------------------------------------------------------- chains */

static size_t place_of(const chains *table, uint64_t key) {
    return (size_t)(key * 0x9e3779b97f4a7c15ull >> 32) & (table->heads_count - 1);
}

static bool grow(chains *table) {
    chains larger = {.heads_count = table->heads_count ? 2 * table->heads_count : 64};
    larger.heads = calloc(larger.heads_count, sizeof(*larger.heads));
    if (!larger.heads) return false;
    for (size_t i = 0; i < table->heads_count; i++)
        for (chained *item = table->heads[i], *next; item; item = next) {
            next = item->next;
            chained **head = &larger.heads[place_of(&larger, item->key)];
            item->next = *head;
            *head = item;
        }
    free(table->heads);
    table->heads = larger.heads;
    table->heads_count = larger.heads_count;
    return true;
}

bool mm_chains_add(chains *table, chained *item, uint64_t key) {
    if (table->count >= table->heads_count && !grow(table)) return false;
    chained **head = &table->heads[place_of(table, key)];
    *item = (chained){.next = *head, .key = key};
    *head = item;
    table->count++;
    return true;
}

void mm_chains_remove(chains *table, chained *item) {
    if (!table->count) return;
    chained **at = &table->heads[place_of(table, item->key)];
    while (*at && *at != item) at = &(*at)->next;
    if (!*at) return;
    *at = item->next;
    table->count--;
}

chained *mm_chains_first(const chains *table, uint64_t key) {
    return table->count ? table->heads[place_of(table, key)] : NULL;
}

/* ---------------------------------------------------------------- ends */

static void release(py_object *self) {
    py_type *type = self->type;
    ((void (*)(void *))PyType_GetSlot(type, PY_FREE))(self);
    Py_DecRef((py_object *)type);
}

static void bridge_free(py_object *self) {
    bridge *b = (bridge *)self;
    py_object *members[] = {b->device, b->layouts, b->producers, b->empty, b->coverage, b->joins};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) Py_DecRef(members[i]);
    free(b->entries.heads);
    free(b->results.heads);
    release(self);
}

static void layout_free(py_object *self) {
    Py_DecRef(((layout *)self)->shape);
    Py_DecRef(((layout *)self)->dtype);
    release(self);
}

static void producer_free(py_object *self) {
    Py_DecRef(((producer *)self)->name);
    Py_DecRef(((producer *)self)->bytes);
    release(self);
}

/* Runs on any thread, when autograd has released the entry's last record; perhaps while an exception is pending. */
static void entry_free(py_object *self) {
    entry *e = (entry *)self;
    bridge *b = e->core;
    if (e->weak_refs) PyObject_ClearWeakRefs(self);
    if (b) {
        py_object *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace);
        mm_chains_remove(&b->entries, &e->chained);
        if (e->number && b->py->ended == PYTHON_RUNS) {
            void *thread = PyEval_SaveThread();
            mm_stash_drop(b->stash, e->number);
            PyEval_RestoreThread(thread);
        }
        if (e->weak && b->py->ended != PYTHON_ENDS) {
            py_object *weak = PyLong_FromLongLong((int64_t)e->weak);
            Py_DecRef(weak ? PyObject_CallFunctionObjArgs(b->py->is.free_weak_ref, weak, NULL) : NULL);
            Py_DecRef(weak);
        }
        PyErr_Restore(kind, value, trace);
    }
    py_object *members[] = {
        e->watch,      e->memory, e->root, e->storage, e->producer, (py_object *)e->layout, (py_object *)e->seen,
        (py_object *)b};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) Py_DecRef(members[i]);
    release(self);
}

static void record_free(py_object *self) {
    record *r = (record *)self;
    Py_DecRef(r->alias);
    Py_DecRef(r->producer);
    Py_DecRef((py_object *)r->layout);
    Py_DecRef((py_object *)r->entry);
    release(self);
}

/* ---------------------------------------------------------------- members */

enum { READ_ONLY = 1 };

#define MEMBER(kind, type, name)                                                                                       \
    { #name, kind, offsetof(type, name), 0, NULL }
#define SHOWN(kind, type, name)                                                                                        \
    { #name, kind, offsetof(type, name), READ_ONLY, NULL }

static py_member bridge_members[] = {
    {"python", PY_UINT64, offsetof(bridge, py), 0, NULL},
    MEMBER(PY_UINT64, bridge, stash),
    MEMBER(PY_OBJECT, bridge, device),
    MEMBER(PY_OBJECT, bridge, layouts),
    MEMBER(PY_OBJECT, bridge, producers),
    MEMBER(PY_OBJECT, bridge, empty),
    MEMBER(PY_OBJECT, bridge, coverage),
    MEMBER(PY_OBJECT, bridge, joins),
    {"entries", PY_SSIZE, offsetof(bridge, entries.count), READ_ONLY, NULL},
    MEMBER(PY_BOOL, bridge, on_cuda),
    MEMBER(PY_BOOL, bridge, shares),
    MEMBER(PY_BOOL, bridge, classifies),
    MEMBER(PY_BOOL, bridge, watched),
    MEMBER(PY_BOOL, bridge, backward),
    MEMBER(PY_BOOL, bridge, between),
    MEMBER(PY_INT64, bridge, number),
    MEMBER(PY_INT64, bridge, params),
    MEMBER(PY_INT64, bridge, duplicates),
    MEMBER(PY_INT64, bridge, views),
    MEMBER(PY_INT64, bridge, taken),
    MEMBER(PY_INT64, bridge, put_bytes),
    {0},
};

static py_member layout_members[] = {
    MEMBER(PY_OBJECT, layout, shape),
    MEMBER(PY_OBJECT, layout, dtype),
    MEMBER(PY_INT64, layout, bytes),
    MEMBER(PY_INT64, layout, size),
    MEMBER(PY_UINT64, layout, described),
    {"template", PY_UINT64, offsetof(layout, template_), 0, NULL},
    MEMBER(PY_BOOL, layout, dense),
    MEMBER(PY_BOOL, layout, cast),
    {0},
};

static py_member producer_members[] = {
    MEMBER(PY_OBJECT, producer, name),
    MEMBER(PY_OBJECT, producer, bytes),
    MEMBER(PY_INT, producer, flags),
    MEMBER(PY_BOOL, producer, depends),
    {0},
};

static py_member entry_members[] = {
    {"__weaklistoffset__", PY_SSIZE, offsetof(entry, weak_refs), READ_ONLY, NULL},
    SHOWN(PY_OBJECT, entry, core),
    SHOWN(PY_UINT64, entry, number),
    SHOWN(PY_INT64, entry, bytes),
    SHOWN(PY_INT64, entry, version),
    SHOWN(PY_OBJECT, entry, watch),
    SHOWN(PY_OBJECT, entry, memory),
    SHOWN(PY_OBJECT, entry, storage),
    SHOWN(PY_OBJECT, entry, layout),
    SHOWN(PY_OBJECT, entry, producer),
    {0},
};

static py_member record_members[] = {
    SHOWN(PY_OBJECT, record, entry),
    SHOWN(PY_OBJECT, record, layout),
    SHOWN(PY_OBJECT, record, producer),
    SHOWN(PY_INT64, record, output),
    {0},
};

/* ---------------------------------------------------------------- types */

static py_object *make(const char *name, size_t bytes, void (*ends)(py_object *self), py_member *members,
                       py_method *methods) {
    py_slot slots[] = {
        {PY_DEALLOC, (void *)ends}, {PY_MEMBERS, members}, {methods ? PY_METHODS : 0, methods}, {0, NULL}};
    py_spec spec = {name, (int)bytes, 0, PY_DEFAULT | PY_BASETYPE, slots};
    return PyType_FromSpec(&spec);
}

py_object *mm_python_types(python *py, py_method *methods) {
    py_object *types[] = {make("mm_torch.hot.Bridge", sizeof(bridge), bridge_free, bridge_members, methods),
                          make("mm_torch.hot.Layout", sizeof(layout), layout_free, layout_members, NULL),
                          make("mm_torch.hot.Producer", sizeof(producer), producer_free, producer_members, NULL),
                          make("mm_torch.hot.Entry", sizeof(entry), entry_free, entry_members, NULL),
                          make("mm_torch.hot.Record", sizeof(record), record_free, record_members, NULL)};
    py_object *address = PyLong_FromLongLong((int64_t)(intptr_t)py);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!types[i]) return NULL;
    py->entry = (py_type *)types[3];
    py->record = (py_type *)types[4];
    return address ? PyTuple_Pack(6, address, types[0], types[1], types[2], types[3], types[4]) : NULL;
}
