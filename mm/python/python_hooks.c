/* SPDX-License-Identifier: MIT */
/* The hooks that autograd calls with each tensor that it saves, and with what it holds instead. They are methods of
 * Bridge, the base of mm_torch's Core (mm_torch/bridge.py), which is called for what is rare. */
#include <stdlib.h>

#include "mm/python/python_put.h"
#include "mm/python/python_result.h"

/* A view of less than 1/VIEW_SHARE of its storage has an entry of its own. */
enum { VIEW_SHARE = 4, EQUAL = 2 };

static py_object *leave(bridge *b, py_object *x, py_object *why) {
    return why ? PyObject_CallMethodObjArgs((py_object *)b, b->py->name.leave, x, why, NULL) : NULL;
}

/* The record of a leaf that requires a gradient: the tensor itself. */
static py_object *leave_parameter(bridge *b, py_object *x) {
    python *py = b->py;
    if (b->coverage && b->coverage != py->is.None) return leave(b, x, py->is.params);
    b->params++;
    py_object *version = py_get(x, py->name._version);
    py_object *record = version ? PyTuple_Pack(4, x, version, py->is.None, py->zero) : NULL;
    Py_DecRef(version);
    return record;
}

/* Whether a method or attribute gives True; -1: there is an exception. Takes the reference. */
static int is_true(const python *py, py_object *o) {
    Py_DecRef(o);
    return o ? o == py->is.True : -1;
}

/* Looks at a tensor. Returns its record if it is left alone; else NULL: it is to be put if *go_out, or there is an
 * exception. */
static py_object *examine(bridge *b, saved *s, bool *go_out) {
    python *py = b->py;
    py_object *x = s->x, *why;
    if (!(s->fn = py_get(x, py->name.grad_fn))) return NULL;
    const bool leaf = s->fn == py->is.None;
    const int is_parameter = leaf ? is_true(py, py_get(x, py->name.requires_grad)) : 0;
    if (is_parameter) return is_parameter > 0 ? leave_parameter(b, x) : NULL;
    if (x->type != (py_type *)py->is.Tensor) return leave(b, x, py->is.subclass);
    if (!mm_python_look(b, s, &why)) return leave(b, x, why);
    py_object *device = py_get(x, py->name.device);
    const int here = device ? PyObject_RichCompareBool(device, b->device, EQUAL) : -1;
    Py_DecRef(device);
    if (here <= 0) return here < 0 ? NULL : leave(b, x, py->is.device);
    const int laid_out = mm_python_lay_out(b, s);
    if (laid_out <= 0) return laid_out < 0 ? NULL : leave(b, x, py->is.other);
    if (!s->data) return leave(b, x, py->is.small); /* an empty view has no address */
    const int is_view = is_true(py, py_call(x, py->name._is_view));
    if (is_view < 0) return NULL;
    s->is_view = is_view;
    if (leaf || is_view) {
        py_object *record = PyObject_CallMethodObjArgs((py_object *)b, py->name.odd, x, NULL);
        if (record != py->is.None) return record;
        Py_DecRef(record);
    }
    *go_out = mm_python_place(b, s);
    return NULL;
}

/* Whether the entry is of this tensor's storage and version. */
static bool is_of(const entry *e, const saved *s) {
    if (e->chained.key != (uint64_t)s->cdata || e->version != s->version || e->alone != s->alone ||
        e->data != s->data || e->bytes != s->total || (s->alone && (e->seen != s->layout || e->start != s->start)))
        return false;
    py_object *root = PyObject_CallFunctionObjArgs(e->root, NULL);
    Py_DecRef(root);
    return root == s->root;
}

static entry *find(bridge *b, const saved *s) {
    for (chained *at = mm_chains_first(&b->entries, (uint64_t)s->cdata); at; at = at->next) {
        entry *e = (entry *)((char *)at - offsetof(entry, chained));
        if (is_of(e, s)) return e;
    }
    return NULL;
}

/* One more record of an entry. */
static py_object *join(bridge *b, const saved *s, entry *e) {
    python *py = b->py;
    b->duplicates++;
    e->readers++;
    if (s->alone) return mm_python_record(py, py_own(e), e->layout, 0, e->memory, e->producer, e->output);
    if (s->layout == e->seen && s->start == e->start)
        return mm_python_record(py, py_own(e), s->layout, s->start, e->memory, e->producer, e->output);
    int64_t output;
    b->views += s->layout != e->layout;
    py_object *alias = e->memory ? py_call(s->x, py->name.detach) : NULL, *record = NULL;
    py_object *producer = mm_python_producer_of(b, s->fn);
    if (producer && (alias || !e->memory) && py_int(py_get(s->x, py->name.output_nr), &output))
        record = mm_python_record(py, py_own(e), s->layout, s->start, alias, producer, output);
    Py_DecRef(producer);
    Py_DecRef(alias);
    return record;
}

/* The record of a result of the stash, which is saved again. */
static py_object *again(bridge *b, const saved *s, const record *r) {
    int64_t output;
    py_object *producer = mm_python_producer_of(b, s->fn), *record = NULL;
    if (producer && py_int(py_get(s->x, b->py->name.output_nr), &output)) {
        b->duplicates++;
        r->entry->readers++;
        record = mm_python_record(b->py, py_own(r->entry), s->layout, s->start + r->offset, NULL, producer, output);
    }
    Py_DecRef(producer);
    return record;
}

static py_object *put(bridge *b, saved *s) {
    const record *known = mm_python_result_of(b, (uint64_t)s->cdata, s->version);
    if (known) return again(b, s, known);
    /* Unless x is a view, other parts of its storage may have version counters of their own (unsafe_chunk). */
    s->alone = s->layout->bytes * (s->is_view ? VIEW_SHARE : 1) < s->total;
    s->root = s->is_view ? py_get(s->x, b->py->name._base) : py_own(s->x);
    if (!s->root) return NULL;
    entry *e = find(b, s);
    if (e) return join(b, s, e);
    if (!(e = mm_python_put(b, s))) return NULL;
    return mm_python_record(b->py, e, s->alone ? e->layout : s->layout, s->alone ? 0 : s->start, e->memory, e->producer,
                            e->output);
}

/* Bridge.pack(x): what autograd is to hold in place of a tensor that it saves. */
static py_object *pack(py_object *self, py_object *x) {
    bridge *b = (bridge *)self;
    saved s = {.x = x, .flags = -1};
    bool go = false;
    py_object *record = examine(b, &s, &go);
    if (go) record = put(b, &s);
    mm_python_saved_end(&s);
    return record;
}

/* Bridge.put((x, flags)): puts a tensor, whoever else holds it, as an entry of its own. Returns its record. */
static py_object *put_always(py_object *self, py_object *pair) {
    bridge *b = (bridge *)self;
    py_object *x = PyTuple_GetItem(pair, 0), *flags = PyTuple_GetItem(pair, 1), *why, *record = NULL;
    if (!x || !flags) return NULL;
    saved s = {.x = x, .root = py_own(x), .flags = PyLong_AsLongLong(flags), .alone = true};
    s.fn = py_get(x, b->py->name.grad_fn);
    if (s.fn && mm_python_look(b, &s, &why) && mm_python_lay_out(b, &s) == 1 && mm_python_place(b, &s)) {
        entry *e = mm_python_put(b, &s);
        if (e) record = mm_python_record(b->py, e, e->layout, 0, e->memory, e->producer, e->output);
    }
    mm_python_saved_end(&s);
    return record;
}

/* ---------------------------------------------------------------- unpack */

/* The tensor of a record that is left alone; Core takes what is not plain. */
static py_object *unchanged(bridge *b, py_object *record) {
    python *py = b->py;
    py_object *x = PyTuple_GetItem(record, 0), *version = PyTuple_GetItem(record, 1);
    if (!x || !version) return NULL;
    py_object *now = py_get(x, py->name._version);
    if (!now) return NULL;
    const int same = PyObject_RichCompareBool(now, version, EQUAL);
    Py_DecRef(now);
    if (same < 0) return NULL;
    if (same && (b->backward || !b->coverage || b->coverage == py->is.None)) return py_own(x);
    return PyObject_CallMethodObjArgs((py_object *)b, py->name.unchanged, record, NULL);
}

/* Raises torch's error if the tensor was modified since it was saved. */
static bool check_version(bridge *b, record *r) {
    int64_t version;
    if (!py_int(py_get(r->entry->watch, b->py->name._version), &version)) return false;
    if (version == r->entry->version) return true;
    return py_done(PyObject_CallMethodObjArgs((py_object *)b, b->py->name.raise_modified, r, NULL));
}

/* The beginning of a backward pass, and of a further pass of the same iteration. */
static bool begin_reading(bridge *b, const entry *e) {
    python *py = b->py;
    if (py->ended && !py_done(py_call((py_object *)b, py->name.check))) return false;
    if (!b->backward && !py_done(py_call((py_object *)b, py->name.enter_backward))) return false;
    if (e->iteration != b->number && b->joins && b->joins != py->is.True && b->joins != py->is.None) {
        Py_DecRef(b->joins);
        b->joins = py_own(py->is.True);
    }
    return true;
}

/* A tensor of an entry that the program keeps. */
static py_object *give_kept(bridge *b, record *r, py_object *watch) {
    python *py = b->py;
    entry *e = r->entry;
    int64_t bytes, data;
    if (!py_int(py_call(e->storage, py->name.nbytes), &bytes)) return NULL;
    if (bytes < e->bytes && e->memory == e->watch)
        return PyObject_CallMethodObjArgs((py_object *)b, py->name.raise_resized, e, NULL);
    /* In a double backward, a result that is saved again is recognised by its storage, so it needs its own one. */
    const int graph = r->alias ? is_true(py, PyObject_CallFunctionObjArgs(py->is.is_grad_enabled, NULL)) : 1;
    if (graph <= 0) return graph < 0 ? NULL : py_own(r->alias);
    py_object *storage = py_call(e->memory, py->name.untyped_storage);
    const bool found = storage && py_int(py_call(storage, py->name.data_ptr), &data); /* resize_ may have moved it */
    Py_DecRef(storage);
    if (!found) return NULL;
    return mm_python_result(b, r, (char *)(uintptr_t)data + e->begin + r->offset, NULL, false, watch);
}

static py_object *give(bridge *b, record *r) {
    entry *e = r->entry;
    void *stream, *data = NULL;
    if (!check_version(b, r) || !begin_reading(b, e)) return NULL;
    const int retained = e->readers > 1 ? 1 : is_true(b->py, PyObject_CallFunctionObjArgs(b->py->is.keeps_graph, NULL));
    if (retained < 0 || !mm_python_stream(b, &stream)) return NULL;
    py_object *watch = retained ? e->watch : NULL; /* NULL: nobody reads it again */
    void *thread = PyEval_SaveThread();
    const mm_status status = mm_stash_get(b->stash, e->number, stream, &data);
    PyEval_RestoreThread(thread);
    if (status != MM_OK) {
        mm_python_refuse(b, status, true);
        return NULL;
    }
    if (e->memory) return give_kept(b, r, watch);
    return mm_python_result(b, r, (char *)data + r->offset, stream, true, watch);
}

/* Bridge.unpack(record): the tensor that autograd saved. */
static py_object *unpack(py_object *self, py_object *held) {
    bridge *b = (bridge *)self;
    if (held->type != b->py->record) return unchanged(b, held);
    return give(b, (record *)held);
}

/* ---------------------------------------------------------------- the module */

static bool know(python *py, py_object *given) {
#define KNOW_NAME(word)                                                                                                \
    if (!(py->name.word = PyUnicode_InternFromString(#word))) return false;
#define KNOW_OBJECT(word)                                                                                              \
    if (!(py->is.word = py_own(PyDict_GetItemString(given, #word)))) return false;
    PYTHON_NAMES(KNOW_NAME)
    PYTHON_OBJECTS(KNOW_OBJECT)
    py->zero = PyLong_FromLongLong(0);
    return py->zero != NULL;
}

void *mm_stash_python(void *given) {
    static py_method methods[] = {{"pack", pack, PY_METH_O, NULL},
                                  {"put", put_always, PY_METH_O, NULL},
                                  {"unpack", unpack, PY_METH_O, NULL},
                                  {0}};
    python *py = calloc(1, sizeof(*py));
    py_object *types = py && know(py, given) ? mm_python_types(py, methods) : NULL;
    if (!types) free(py);
    return types;
}
