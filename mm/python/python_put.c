/* SPDX-License-Identifier: MIT */
#include "mm/python/python_put.h"

enum { SMALL_BYTES = 4096 }; /* smaller storages are left alone: bookkeeping would cost more than it saves */

void mm_python_saved_end(saved *s) {
    Py_DecRef(s->fn);
    Py_DecRef(s->storage);
    Py_DecRef(s->root);
    Py_DecRef((py_object *)s->layout);
}

/* ---------------------------------------------------------------- what is known of a tensor */

bool mm_python_look(bridge *b, saved *s, py_object **why_out) {
    python *py = b->py;
    *why_out = NULL;
    s->storage = py_call(s->x, py->name.untyped_storage);
    if (s->storage && py_int(py_call(s->storage, py->name.nbytes), &s->total)) {
        if (s->total < SMALL_BYTES) {
            *why_out = py->is.small;
            return false;
        }
        if (py_int(py_call(s->x, py->name.data_ptr), &s->data)) return true;
    }
    if (PyErr_ExceptionMatches(py->is.RuntimeError)) { /* sparse, or wrapped by a function transform */
        PyErr_Clear();
        *why_out = py->is.other;
    }
    return false;
}

/* Whether an attribute is the object; -1: there is an exception. */
static int has(py_object *x, py_object *name, py_object *object) {
    py_object *found = py_get(x, name);
    Py_DecRef(found);
    return found ? found == object : -1;
}

int mm_python_lay_out(bridge *b, saved *s) {
    python *py = b->py;
    const int strided = has(s->x, py->name.layout, py->is.strided);
    if (strided <= 0) return strided;
    py_object *shape = py_get(s->x, py->name.shape), *dtype = py_get(s->x, py->name.dtype);
    py_object *strides = py_call(s->x, py->name.stride), *found = NULL;
    py_object *key = shape && strides && dtype ? PyTuple_Pack(3, shape, strides, dtype) : NULL;
    if (key) found = py_own(PyDict_GetItemWithError(b->layouts, key));
    if (key && !found && !PyErr_Occurred())
        found = PyObject_CallMethodObjArgs((py_object *)b, py->name.new_layout, shape, strides, dtype, NULL);
    Py_DecRef(key);
    Py_DecRef(shape);
    Py_DecRef(strides);
    Py_DecRef(dtype);
    if (found == py->is.None) {
        Py_DecRef(found);
        return 0;
    }
    s->layout = (layout *)found;
    return found ? 1 : -1;
}

bool mm_python_place(bridge *b, saved *s) {
    python *py = b->py;
    int64_t elements;
    if (py->ended && !py_done(py_call((py_object *)b, py->name.check))) return false;
    if (!py_int(py_call(s->x, py->name.storage_offset), &elements) ||
        !py_int(py_get(s->x, py->name._version), &s->version) ||
        !py_int(py_get(s->storage, py->name._cdata), &s->cdata))
        return false;
    s->start = elements * s->layout->size;
    s->data -= s->start;
    return true;
}

/* ---------------------------------------------------------------- calls of Core */

bool mm_python_stream(bridge *b, void **stream_out) {
    int64_t stream = 0;
    if (b->on_cuda && !py_int(py_call((py_object *)b, b->py->name.stream), &stream)) return false;
    *stream_out = (void *)(uintptr_t)stream;
    return true;
}

bool mm_python_refuse(bridge *b, mm_status status, bool now) {
    python *py = b->py;
    py_object *number = PyLong_FromLongLong(status), *urgent = now ? py->is.True : py->is.None;
    const bool again =
        number && py_done(PyObject_CallMethodObjArgs((py_object *)b, py->name.refuse, number, urgent, NULL));
    Py_DecRef(number);
    return again;
}

py_object *mm_python_producer_of(bridge *b, py_object *fn) {
    py_object *found = PyDict_GetItemWithError(b->producers, (py_object *)fn->type);
    if (found || PyErr_Occurred()) return py_own(found);
    return PyObject_CallMethodObjArgs((py_object *)b, b->py->name.producer_of, fn, NULL);
}

py_object *mm_python_record(python *py, entry *e, layout *as, int64_t offset, py_object *alias, py_object *producer,
                            int64_t output) {
    record *r = (record *)PyType_GenericAlloc(py->record, 0);
    if (!r) {
        Py_DecRef((py_object *)e);
        return NULL;
    }
    r->entry = e;
    r->layout = py_own(as);
    r->offset = offset;
    r->alias = py_own(alias);
    r->producer = py_own(producer);
    r->output = output;
    return &r->head;
}

/* ---------------------------------------------------------------- put */

/* Says which memory is put, and how it is laid out: e->memory, e->layout, *data_out. */
static bool choose_memory(bridge *b, const saved *s, entry *e, int64_t *data_out) {
    python *py = b->py;
    *data_out = s->data;
    if (!s->alone) {
        e->memory = py_own(e->watch);
        if (s->layout->dense && s->layout->bytes == s->total) {
            e->layout = py_own(s->layout);
            return true;
        }
        py_object *total = PyLong_FromLongLong(s->total);
        if (total)
            e->layout =
                (layout *)PyObject_CallMethodObjArgs((py_object *)b, py->name.whole, s->x, total, s->layout, NULL);
        Py_DecRef(total);
        return e->layout != NULL;
    }
    if (s->layout->dense) {
        e->memory = py_own(e->watch);
        e->layout = py_own(s->layout);
        e->begin = s->start;
        *data_out += s->start;
        return true;
    }
    py_object *pair = PyObject_CallMethodObjArgs((py_object *)b, py->name.compact, e->watch, NULL);
    if (!pair) return false;
    e->memory = py_own(PyTuple_GetItem(pair, 0));
    e->layout = py_own(PyTuple_GetItem(pair, 1));
    Py_DecRef(pair);
    return e->memory && e->layout && py_int(py_call(e->memory, py->name.data_ptr), data_out);
}

/* Flags of a tensor for the stash. False: there is an exception. */
static bool flags_of(bridge *b, const saved *s, const entry *e, uint32_t *flags) {
    const producer *made_by = (const producer *)e->producer;
    int64_t found = s->flags < 0 ? made_by->flags : s->flags;
    if (*flags) return true; /* its type demands exactness already */
    if (made_by->depends && s->flags < 0) {
        py_object *output = PyLong_FromLongLong(e->output);
        const bool known =
            output &&
            py_int(PyObject_CallMethodObjArgs(e->producer, b->py->name.flags_of, s->fn, output, NULL), &found);
        Py_DecRef(output);
        if (!known) return false;
    }
    *flags = (uint32_t)found;
    return true;
}

/* What the tensor's place and time mean for the iteration, and for the first one's figures. */
static bool tell_session(bridge *b, const entry *e) {
    if (b->between && !py_done(py_call((py_object *)b, b->py->name.after_backward))) return false;
    if (!b->coverage || b->coverage == b->py->is.None) return true;
    py_object *bytes = PyLong_FromLongLong(e->layout->bytes);
    const bool told = bytes && py_done(PyObject_CallMethodObjArgs(b->coverage, b->py->name.put, bytes, NULL));
    Py_DecRef(bytes);
    return told;
}

/* Puts into the stash. *taken_out: whether the stash took it. */
static bool put_bytes(bridge *b, const saved *s, entry *e, int64_t data, bool *taken_out) {
    mm_stash_tensor tensor = *(const mm_stash_tensor *)(uintptr_t)e->layout->described;
    mm_stash_answer answer = MM_STASH_TAKEN;
    mm_status status;
    void *stream;
    *taken_out = true;
    if (b->classifies) return true;
    if (!mm_python_stream(b, &stream) || !flags_of(b, s, e, &tensor.flags)) return false;
    tensor.data = (const void *)(uintptr_t)data;
    tensor.producer = PyBytes_AsString(((const producer *)e->producer)->bytes);
    if (!tensor.producer) return false;
    do {
        void *thread = PyEval_SaveThread();
        status = mm_stash_put(b->stash, &tensor, stream, &e->number, &answer);
        PyEval_RestoreThread(thread);
        if (s->begins && !py_done(py_call((py_object *)b, b->py->name.share_follow))) return false;
    } while (status != MM_OK && mm_python_refuse(b, status, false));
    *taken_out = answer == MM_STASH_TAKEN;
    return status == MM_OK;
}

/* Lets memory go that nobody needs any more: all that the stash took, and what is a copy. Then only `watch` is left,
 * for its version counter. A weak reference keeps the storage's address from other storages. The garbage collector need
 * not visit what is left: it refers to nothing. Thousands of entries would make it run often. */
static bool let_go(bridge *b, const saved *s, entry *e, bool taken) {
    python *py = b->py;
    int64_t weak;
    if (!taken && e->memory == e->watch) return true;
    if (!py_int(py_call(s->storage, py->name._weak_ref), &weak)) return false;
    e->weak = (uint64_t)weak;
    if (taken) {
        Py_DecRef(e->memory);
        Py_DecRef(e->storage);
        e->memory = e->storage = NULL;
        PyObject_GC_UnTrack(e->watch);
        PyObject_GC_UnTrack(e->root);
    }
    py_object *empty = PyDict_GetItemWithError(b->empty, s->layout->dtype);
    if (!empty && !PyErr_Occurred()) {
        empty = PyObject_CallMethodObjArgs((py_object *)b, py->name.new_empty, s->layout->dtype, NULL);
        Py_DecRef(empty); /* `b->empty` has it */
    }
    return empty && PyObject_SetAttr(e->watch, py->name.data, empty) == 0;
}

static bool fill(bridge *b, const saved *s, entry *e) {
    python *py = b->py;
    int64_t data;
    bool taken;
    e->core = py_own(b);
    e->data = s->data;
    e->bytes = s->total;
    e->version = s->version;
    e->start = s->start;
    e->alone = s->alone;
    e->seen = py_own(s->layout);
    e->storage = py_own(s->storage);
    e->readers = 1;
    py_object *producer = mm_python_producer_of(b, s->fn);
    if (producer) e->producer = PyObject_CallMethodObjArgs((py_object *)b, py->name.named, producer, NULL);
    Py_DecRef(producer);
    if (!e->producer || !py_int(py_get(s->x, py->name.output_nr), &e->output)) return false;
    e->root = PyWeakref_NewRef(s->root, NULL);
    e->watch = py_call(s->x, py->name.detach);
    if (!e->root || !e->watch || !choose_memory(b, s, e, &data)) return false;
    b->put_bytes += e->layout->bytes;
    if (!tell_session(b, e)) return false;
    e->iteration = b->number;
    const bool put = put_bytes(b, s, e, data, &taken);
    if (!put || !let_go(b, s, e, taken)) return false;
    b->taken += taken;
    return mm_chains_add(&b->entries, &e->chained, (uint64_t)s->cdata) || PyErr_NoMemory();
}

entry *mm_python_put(bridge *b, saved *s) {
    python *py = b->py;
    s->begins = b->shares && b->entries.count == 0;
    if (s->begins && !py_done(py_call((py_object *)b, py->name.share_begin))) return NULL;
    entry *e = (entry *)PyType_GenericAlloc(py->entry, 0);
    bool made = e && fill(b, s, e);
    if (made && b->watched)
        made = py_done(PyObject_CallMethodObjArgs((py_object *)b, py->name.observe, s->storage, e, NULL));
    if (made) return e;
    Py_DecRef((py_object *)e);
    return NULL;
}
