/* SPDX-License-Identifier: MIT */
/* The part of Python's C interface that mm_torch's hot path calls. All of it belongs to the stable ABI ("abi3"), so one
 * libmm.so serves every Python from 3.9 on, and building needs no header of Python. The symbols are weak: a program
 * without Python loads libmm.so, too, and never comes here. */
#ifndef MM_PYTHON_PYTHON_ABI_H
#define MM_PYTHON_PYTHON_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PY __attribute__((weak))

typedef struct py_type py_type;

/* PyObject, except of a Python built without its lock, which mm_torch refuses. */
typedef struct py_object {
    ssize_t references;
    py_type *type;
} py_object;

typedef struct py_method {
    const char *name;
    py_object *(*function)(py_object *self, py_object *argument);
    int flags; /* METH_O */
    const char *doc;
} py_method;

typedef struct py_member {
    const char *name;
    int type; /* of py_member_type */
    ssize_t offset;
    int flags;
    const char *doc;
} py_member;

typedef struct py_slot {
    int slot; /* of py_slot_number */
    void *value;
} py_slot;

typedef struct py_spec {
    const char *name;
    int bytes, item_bytes;
    unsigned flags;
    py_slot *slots;
} py_spec;

enum { PY_METH_O = 8, PY_DEFAULT = 1 << 18, PY_BASETYPE = 1 << 10 };
enum py_member_type { PY_INT = 1, PY_OBJECT = 6, PY_BOOL = 14, PY_INT64 = 17, PY_UINT64 = 18, PY_SSIZE = 19 };
enum py_slot_number { PY_DEALLOC = 52, PY_METHODS = 64, PY_MEMBERS = 72, PY_FREE = 74 };

PY int Py_IsInitialized(void);
PY void Py_IncRef(py_object *o); /* NULL is legal, here and below */
PY void Py_DecRef(py_object *o);
PY int PyGILState_Ensure(void);
PY void PyGILState_Release(int state);
PY void *PyEval_SaveThread(void);
PY void PyEval_RestoreThread(void *state);

PY void PyErr_Fetch(py_object **kind, py_object **value, py_object **trace);
PY void PyErr_Restore(py_object *kind, py_object *value, py_object *trace);
PY void PyErr_Clear(void);
PY int PyErr_ExceptionMatches(py_object *kind);
PY py_object *PyErr_Occurred(void);
PY py_object *PyErr_NoMemory(void);

PY py_object *PyObject_GetAttr(py_object *o, py_object *name);
PY int PyObject_SetAttr(py_object *o, py_object *name, py_object *value);
PY int PyObject_IsTrue(py_object *o);
PY int PyObject_RichCompareBool(py_object *a, py_object *b, int operation);
PY py_object *PyObject_CallFunctionObjArgs(py_object *function, ...);
PY py_object *PyObject_CallMethodObjArgs(py_object *o, py_object *name, ...);
PY void PyObject_ClearWeakRefs(py_object *o);
PY void PyObject_GC_UnTrack(void *o);

PY py_object *PyLong_FromLongLong(long long value);
PY long long PyLong_AsLongLong(py_object *o);
PY char *PyBytes_AsString(py_object *o);
PY py_object *PyUnicode_InternFromString(const char *text);
PY py_object *PyTuple_Pack(ssize_t n, ...);
PY py_object *PyTuple_GetItem(py_object *tuple, ssize_t i);
PY py_object *PyDict_GetItemString(py_object *dict, const char *key);
PY py_object *PyDict_GetItemWithError(py_object *dict, py_object *key);
PY py_object *PyWeakref_NewRef(py_object *o, py_object *callback);
PY py_object *PyCapsule_New(void *pointer, const char *name, void (*destructor)(py_object *capsule));

PY py_object *PyType_FromSpec(py_spec *spec);
PY py_object *PyType_GenericAlloc(py_type *type, ssize_t items);
PY void *PyType_GetSlot(py_type *type, int slot);

#undef PY

#endif
