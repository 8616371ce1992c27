# SPDX-License-Identifier: MIT
"""Names what is saved by the modules that save it: `layers.3.attn SoftmaxBackward0`.

The module is found when a tensor is put, in the frames of Python: the innermost call of a module. So calls of modules
cost nothing, and a forward pass that runs again, as in a checkpoint, or that raises, is named like any other. Paths are
those of named_modules() of the net that the program gives, or of the outermost module that is called; modules that only
wrap (compiled ones, those of DataParallel, checkpoints and FSDP) are left out. A net itself goes by its class's name.
Only the thread that packs calls this."""

import difflib
import fnmatch
import sys
import weakref

import torch

from .saved import Producer

PATH_MOST = 110  # characters; the end of longer paths, since libmm cuts a producer to 159 bytes
_NAMED_MOST = 1 << 16
_WALKS_MOST = 16  # how often a net is looked through for modules that it did not have before
_WRAPPERS = frozenset(("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"))
_WRAPPING_NETS = frozenset(("DataParallel", "DistributedDataParallel"))
_LEGAL = str.maketrans(" ;=&", "____")  # a blank ends a path, the others are of the language of rules
_CALL = torch.nn.Module._wrapped_call_impl.__code__

_paths = {}  # id of a module: its path, and a weak reference to it
_walks = {}  # id of a net: how often it was looked through
_named = {}  # (path, producer of an operation): the Producer with the path
_nets = {}  # what stands before the paths of a net: a weak reference to the net


def _remember(module, path):
    key = id(module)

    def forget(_):
        _paths.pop(key, None)
        _walks.pop(key, None)

    _paths[key] = path.translate(_LEGAL)[-PATH_MOST:], weakref.ref(module, forget)


def modules_of(net):
    """Pairs of path and module of a net, each module once, the net itself first, under its class's name."""
    inner = net.module if type(net).__name__ in _WRAPPING_NETS else net
    for name, module in inner.named_modules():
        yield ".".join(part for part in name.split(".") if part not in _WRAPPERS) or type(inner).__name__, module


def _lives_apart(before, net):
    other = _nets.get(before)
    return other is not None and other() not in (None, net)


def register(net, given=True):
    """Names the modules of a net. given: by the program: its paths have nothing before them. Those of nets that are
    only seen have their class's name, if another net lives; and its number, if another one of that class does."""
    before, number, kind = "", 1, type(net).__name__
    while not given and _lives_apart(before, net):
        before, number = f"{kind}." if number == 1 else f"{kind}_{number}.", number + 1
    _nets[before] = weakref.ref(net)
    _walks[id(net)] = _walks.get(id(net), 0) + 1
    for i, (path, module) in enumerate(modules_of(net)):
        if given or id(module) not in _paths:
            _remember(module, before + path if i else before[:-1] or path)
    if id(net) not in _paths:  # it wraps the net
        _remember(net, kind)


def _learn(module, frame):
    """Names a module that is called for the first time. frame: of its call."""
    running = []
    while frame is not None:
        if frame.f_code is _CALL:
            running.append(frame.f_locals["self"])
        frame = frame.f_back
    if _walks.get(id(running[-1]), 0) < _WALKS_MOST:
        register(running[-1], given=False)
    if id(module) not in _paths:  # it was made in a forward pass
        around = next(_paths[id(other)][0] for other in running if id(other) in _paths)
        _remember(module, f"{around}.{type(module).__name__}")
    return _paths[id(module)][0]


def current():
    """The path of the module whose forward pass runs; "": none does."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL:
            module = frame.f_locals["self"]
            known = _paths.get(id(module))
            return known[0] if known is not None else _learn(module, frame)
        frame = frame.f_back
    return ""


def named(producer):
    """The producer with the path of the module whose forward pass runs."""
    path = current()
    if not path:
        return producer
    found = _named.get((path, producer))
    if found is None:
        if len(_named) >= _NAMED_MOST:
            _named.clear()
        found = _named[path, producer] = Producer(producer.name, producer.flags)
        found.bytes = f"{path} {producer.name or '(no-gradient)'}".encode()
    return found


# ---------------------------------------------------------------- policies by path

ACTIONS = {"swap-async": "swap"}  # what a policy's name means for what a rule names


def spec(policy, net=None):
    """The text of a policy. A dict {pattern of paths: action} becomes rules: the first pattern that matches counts.
    ValueError: a dict whose parts are no text, or that recomputes; a pattern that names nothing in the net."""
    if not isinstance(policy, dict):
        return policy
    rules = []
    for pattern, action in policy.items():
        if not isinstance(pattern, str) or not isinstance(action, str) or not pattern or set(pattern) & set(";=&\0"):
            raise ValueError(f"policy {{{pattern!r}: {action!r}}} is not understood: use {{path: action}}, such as "
                             '{"*.attn": "keep", "*": "swap-async"}')
        if "recompute" in action:
            raise ValueError(f"policy {{{pattern!r}: {action!r}}}: a budget recomputes nothing; mm.fit does, and wraps modules "
                             "by torch.utils.checkpoint")
        if net is not None:
            match(pattern, net)
        rules.append(f"{pattern}={ACTIONS.get(action, action)}")
    if not rules:
        raise ValueError("policy {} has no rule: use {path: action}, such as {\"*\": \"swap-async\"}")
    return "rules:" + ";".join(rules)


def match(pattern, net):
    """Paths of the net's modules that a pattern matches: * stands for any text, ? for one character. ValueError: it
    matches none."""
    names = [path for path, _ in modules_of(net)]
    found = [path for path in names if fnmatch.fnmatchcase(path, pattern.replace("[", "[[]"))]
    if not found and pattern != "*":
        near = difflib.get_close_matches(pattern, names, 1)
        raise ValueError(f"{pattern!r} names no module of {type(net).__name__}" +
                         (f": is it {near[0]!r}?" if near else f": its modules are {', '.join(names[:6])}, ..."))
    return found
