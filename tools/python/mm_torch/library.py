# SPDX-License-Identifier: MIT
"""libmm.so by ctypes: the calls and types of mm_stash.h that the bridge uses, and errors."""

import ctypes
import os
import re
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

RANK_MAX = 8
(OK, ERR_INVALID, ERR_ORDER, ERR_NOMEM, ERR_INFEASIBLE, ERR_PLAN, ERR_DEVICE, ERR_IO, ERR_FORMAT, ERR_NOT_FOUND,
 ERR_UNSUPPORTED) = range(11)
F32, I32, U8, F16, BF16 = range(5)
SIGNS, EXACT = 1, 2
KEEP_ALWAYS, REFUSE_LATER = 2, 4  # of mm_stash_mode
FATES = ("unplanned", "kept", "stayed", "encoded", "offloaded", "encoded, offloaded", "stored on disk")
LOG_WARNING = 1

LOG_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
RECLAIM_FN = ctypes.CFUNCTYPE(None, c_void_p)


class Infeasible(RuntimeError):
    """The budget is too small for an order of saved tensors, for what is held at once, or for one tensor. minimum:
    bytes (None: not known). tensor: index in the order of saving (None: not known). producer: such as
    "ConvolutionBackward0". policy: one that fits the order ("": none is known)."""

    def __init__(self, message, minimum=None, tensor=None, producer="", policy=""):
        super().__init__(message)
        self.minimum, self.tensor, self.producer, self.policy = minimum, tensor, producer, policy


class Log(ctypes.Structure):
    _fields_ = [("fn", LOG_FN), ("ctx", c_void_p), ("level", c_int)]


class Options(ctypes.Structure):
    _fields_ = [("device", c_char_p), ("device_bytes", c_int64), ("pinned_bytes", c_int64), ("policy", c_char_p),
                ("log", Log), ("facts", c_void_p), ("codec_threads", c_int), ("measure_touched", c_bool),
                ("unplanned", c_bool), ("delay_seed", c_uint64), ("delay_max_ns", c_int64),
                ("link_bytes_per_s", c_int64), ("reclaim", RECLAIM_FN), ("reclaim_ctx", c_void_p),
                ("modes", c_uint64), ("device_most_bytes", c_int64), ("disk", c_char_p), ("disk_bytes", c_int64),
                ("disk_bytes_per_s", c_int64)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("rank", c_int), ("dims", c_int64 * RANK_MAX),
                ("strides", c_int64 * RANK_MAX), ("producer", c_char_p), ("flags", c_uint32)]


class Stats(ctypes.Structure):
    """mm_stash_stats; mm_stash.h explains the fields."""
    _fields_ = [(name, c_int64) for name in (
        "entries", "kept_bytes", "puts", "gets", "iterations", "planned", "off_plan", "plans", "planning_ns", "peak_bytes",
        "predicted_bytes", "needed_bytes", "moved_bytes", "out_bytes", "in_bytes", "encoded_bytes", "coded_bytes",
        "host_bytes", "lossy_gets", "predicted_kept_bytes", "arena_bytes", "beyond_bytes",
        "store_bytes", "load_bytes")]


class HostMemory(ctypes.Structure):
    _fields_ = [("machine_bytes", c_int64), ("total_bytes", c_int64), ("free_bytes", c_int64)]


class Touched(ctypes.Structure):
    _fields_ = [("total_bytes", c_int64), ("persistent_bytes", c_int64), ("stray_bytes", c_int64)]


class Refusal(ctypes.Structure):
    _fields_ = [("needed_bytes", c_int64), ("device_bytes", c_int64), ("tensor_bytes", c_int64), ("tensor", c_int),
                ("producer", c_char_p), ("policy", c_char_p)]


class Line(ctypes.Structure):
    _fields_ = [("producer", c_char_p), ("dtype", c_int), ("flags", c_uint32), ("bytes", c_int64), ("fate", c_int),
                ("codec", c_char_p), ("code_bytes", c_int64), ("lossy", c_bool), ("gets", c_int)]


class Segment(ctypes.Structure):
    _fields_ = [("entry", c_int), ("pinned", c_bool), ("code", c_bool), ("offset", c_int64), ("bytes", c_int64),
                ("first", c_int), ("last", c_int)]


_SIGNATURES = {
    "mm_version": (c_char_p,),
    "mm_last_error": (c_char_p,),
    "mm_status_name": (c_char_p, c_int),
    "mm_host_memory_get": (None, POINTER(HostMemory)),
    "mm_stash_create_sized": (c_int, POINTER(Options), c_size_t, POINTER(c_void_p)),
    "mm_stash_destroy": (None, c_void_p),
    "mm_stash_budget_set": (c_int, c_void_p, c_int64),
    "mm_stash_iteration_end": (None, c_void_p),
    "mm_stash_wait_planned": (c_int, c_void_p),
    "mm_stash_stats_get_sized": (None, c_void_p, POINTER(Stats), c_size_t),
    "mm_stash_touched_get": (c_int, c_void_p, POINTER(Touched)),
    "mm_stash_refusal_get": (c_bool, c_void_p, POINTER(Refusal)),
    "mm_stash_report": (c_bool, c_void_p, c_int, POINTER(Line)),
    "mm_stash_plan_segment": (c_bool, c_void_p, c_int, POINTER(Segment)),
}


def version():
    """The package's version: in a wheel, of the library it was built with; else of the tree that it lies in."""
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        with open(os.path.join(here, "VERSION"), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        pass
    try:
        with open(os.path.join(here, "../../../mm/mm.h"), encoding="utf-8") as file:
            return re.search(r'#define MM_VERSION "(.*)"', file.read()).group(1)
    except OSError:
        raise ImportError(f"mm_torch: {here} has no file VERSION, and is not in a tree of mm: install mm_torch again") from None


def path():
    """The path of libmm.so: $MM_LIBRARY; beside this file, in a wheel; or where bazel builds it in this tree."""
    here = os.path.dirname(os.path.abspath(__file__))
    named = os.environ.get("MM_LIBRARY")
    places = [named] if named else [os.path.join(here, "libmm.so.1"),
                                    os.path.normpath(os.path.join(here, "../../../bazel-bin/mm/libmm.so"))]
    for place in places:
        if os.path.exists(place):
            return place
    raise ImportError(f"mm_torch {version()}: there is no {' nor '.join(places)}: "
                      "build it (bazel build //mm:libmm.so), or set MM_LIBRARY to its path")


def load():
    """Loads the library. Refuses another version, whose types may differ."""
    place, wanted = path(), version()
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        for name in os.listdir(here):  # libraries that libmm.so needs, from the wheel
            if ".so" in name and not name.startswith("libmm."):
                ctypes.CDLL(os.path.join(here, name))
        lib = ctypes.CDLL(place)
    except OSError as error:
        raise ImportError(f"mm_torch {wanted}: {place} cannot be loaded: {error}") from None
    try:
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        found = lib.mm_version().decode()
    except AttributeError as error:
        raise ImportError(f"mm_torch {wanted} needs libmm {wanted}; {place} is another version: "
                          f"{error}") from None
    if found != wanted:
        raise ImportError(f"mm_torch {wanted} needs libmm {wanted}; {place} is libmm {found}")
    return lib


_lib = None


def get():
    """Returns the library, which the first call loads."""
    global _lib
    if _lib is None:
        _lib = load()
    return _lib


def check(lib, status, stash=None):
    """Raises the exception of a status: ValueError (a bad argument or name), Infeasible, MemoryError, OSError (a disk
    that is full or fails), RuntimeError."""
    if status == OK:
        return
    message = lib.mm_last_error().decode(errors="replace")
    if status == ERR_INFEASIBLE:
        message = re.sub("pinned (host )?memory", "host memory (the argument host)", message, count=1)
        refusal = Refusal()
        if stash and lib.mm_stash_refusal_get(stash, byref(refusal)):
            raise Infeasible(message, refusal.needed_bytes or None, refusal.tensor if refusal.tensor >= 0 else None,
                             (refusal.producer or b"").decode(), (refusal.policy or b"").decode())
        raise Infeasible(message)
    if status in (ERR_INVALID, ERR_NOT_FOUND, ERR_UNSUPPORTED):
        raise ValueError(message)
    if status == ERR_NOMEM:
        raise MemoryError(message)
    if status == ERR_IO:
        raise OSError(message)
    raise RuntimeError(f"{message} ({lib.mm_status_name(status).decode()})")
