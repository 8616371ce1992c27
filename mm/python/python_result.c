/* SPDX-License-Identifier: MIT */
#include "mm/python/python_result.h"

#include <stdlib.h>
#include <string.h>

/* DLManagedTensor of dlpack.h, version 0.x, which every torch reads. */
typedef struct dl_managed {
    struct {
        void *data;
        int32_t device_type, device_id, dimensions;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } tensor;
    void *manager;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

_Static_assert(sizeof(dl_managed) == 64, "DLManagedTensor has 64 bytes");

struct result {
    dl_managed managed;
    chained chained; /* in bridge.results */
    record *record;
    void *stream;
    int64_t version; /* as it was handed out */
    bool lent, *ended;
};

static void end_result(result *r) {
    entry *e = r->record->entry;
    mm_chains_remove(&e->core->results, &r->chained);
    if (r->lent && e->core->py->ended == PYTHON_RUNS) {
        void *thread = PyEval_SaveThread();
        mm_stash_release(e->core->stash, e->number, r->stream);
        PyEval_RestoreThread(thread);
    }
    if (r->ended) *r->ended = true;
    Py_DecRef((py_object *)r->record);
    free(r);
}

/* Any thread may call it, also while an exception is pending. */
static void delete_result(dl_managed *managed) {
    py_object *kind, *value, *trace;
    if (!Py_IsInitialized()) return;
    const int state = PyGILState_Ensure();
    PyErr_Fetch(&kind, &value, &trace);
    end_result((result *)managed);
    PyErr_Restore(kind, value, trace);
    PyGILState_Release(state);
}

/* Hands a result over to a tensor. If that fails, ends the result, unless torch has done so. */
static py_object *import(python *py, result *r) {
    bool ended = false;
    r->ended = &ended;
    py_object *capsule = PyCapsule_New(&r->managed, "dltensor", NULL);
    py_object *tensor = capsule ? PyObject_CallFunctionObjArgs(py->is.from_dlpack, capsule, NULL) : NULL;
    if (tensor)
        r->ended = NULL;
    else if (!ended)
        end_result(r);
    Py_DecRef(capsule);
    return tensor;
}

/* Remembers the storage of a tensor that has just been made of the result. */
static bool remember(bridge *b, result *r, py_object *tensor) {
    int64_t storage = 0;
    py_object *object = py_call(tensor, b->py->name.untyped_storage);
    const bool found = object && py_int(py_get(object, b->py->name._cdata), &storage);
    Py_DecRef(object);
    if (!found) return false;
    return mm_chains_add(&b->results, &r->chained, (uint64_t)storage) || PyErr_NoMemory();
}

/* The tensor in its own type, with the version counter of `watch`. Takes the reference. */
static py_object *dress(python *py, py_object *tensor, const layout *as, py_object *watch) {
    if (as->cast) {
        py_object *cast = PyObject_CallMethodObjArgs(tensor, py->name.view, as->dtype, NULL);
        Py_DecRef(tensor);
        tensor = cast;
    }
    if (!watch || !tensor) return tensor;
    py_object *shared = py_call(watch, py->name.detach);
    if (shared && PyObject_SetAttr(shared, py->name.data, tensor) < 0) {
        Py_DecRef(shared);
        shared = NULL;
    }
    Py_DecRef(tensor);
    return shared;
}

py_object *mm_python_result(bridge *b, record *r, void *data, void *stream, bool lent, py_object *watch) {
    result *made = calloc(1, sizeof(*made));
    if (!made) {
        if (lent) mm_stash_release(b->stash, r->entry->number, stream);
        return PyErr_NoMemory();
    }
    memcpy(&made->managed.tensor, (const void *)(uintptr_t)r->layout->template_, sizeof made->managed.tensor);
    made->managed.tensor.data = data;
    made->managed.deleter = delete_result;
    made->record = py_own(r);
    made->stream = stream;
    made->lent = lent;
    made->version = watch ? r->entry->version : 0;
    py_object *tensor = import(b->py, made);
    if (tensor && !remember(b, made, tensor)) {
        Py_DecRef(tensor);
        return NULL;
    }
    return tensor ? dress(b->py, tensor, r->layout, watch) : NULL;
}

record *mm_python_result_of(bridge *b, uint64_t storage, int64_t version) {
    for (chained *at = mm_chains_first(&b->results, storage); at; at = at->next) {
        result *r = (result *)((char *)at - offsetof(result, chained));
        if (at->key != storage) continue;
        if (r->version == version) return r->record;
        mm_chains_remove(&b->results, at);
        return NULL;
    }
    return NULL;
}
