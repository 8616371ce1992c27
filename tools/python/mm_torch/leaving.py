# SPDX-License-Identifier: MIT
"""Saved values that leave in the middle of a compiled pass, and come back in the middle of the backward pass.

Autograd gets all that a compiled region saves at the region's end, and reads all of it where its backward pass begins.
So tensors that shall leave do it by operators inside the graphs:

  forward    h ──▶ last reader        mm_torch::put(h) ──▶ ticket ──▶ saved in place of h
  backward   ticket ──▶ mm_torch::get(ticket) ──▶ h ──▶ first reader

A ticket is a tensor of 8 bytes on the host, with a number. The entry of the stash lives as long as the ticket's memory,
so it is dropped when autograd drops the ticket, also if there is no backward pass. Any thread may run the operators."""

import contextlib
import itertools
import weakref
from typing import Collection, Iterator
from unittest import mock

import torch
from torch._functorch import partitioners

from . import active, bridge, layouts, library

_EXTRACT = "_extract_fwd_bwd_modules"
_numbers = itertools.count(1)
_tickets = weakref.WeakValueDictionary()  # number: _Ticket
owners = weakref.WeakValueDictionary()  # number: a backend, whose `session` has the stash

_library = torch.library.Library("mm_torch", "DEF")
_library.define("put(Tensor x, int owner, bool own) -> Tensor")
_library.define("get(Tensor ticket, int[] size, int[] stride, ScalarType dtype, Device device, bool once) -> Tensor")


class _Ticket(bytearray):
    """The memory of a ticket. record: hot.Record of the tensor; None once it was read for the only time."""


def _put(x, owner, own):
    """owner: number of the backend, whose stash it is unless an mm.budget is active. own: the caller may overwrite x's
    memory afterwards, so the stash must not leave x to the caller."""
    budget = active.here()
    core = (budget or owners[owner].session)._core
    ticket = _Ticket(next(_numbers).to_bytes(8, "little"))
    # A backend's policy is lossless, a budget's may not be.
    ticket.record = core.put((x.clone() if own else x, library.EXACT if budget else 0))
    _tickets[int.from_bytes(ticket, "little")] = ticket
    return torch.frombuffer(ticket, dtype=torch.int64)


def _get(ticket, size, stride, dtype, device, once):
    number = int(ticket)
    found = _tickets.get(number)
    if found is None or found.record is None:
        raise RuntimeError("mm.backend: what a compiled region moved away is read a second time: retain_graph=True needs "
                           "inner=\"aot_eager\", or a budget that moves nothing")
    record = found.record
    if once:
        found.record = None  # the compiled code may overwrite what it gets
    x = record.entry.core.unpack(record)
    if x.stride() == tuple(stride):
        return x
    # The compiler had laid it out otherwise when it was put.
    return torch.empty_strided(size, stride, dtype=dtype, device=device).copy_(x)


torch.library.impl(_library, "put", "CompositeExplicitAutograd")(_put)
torch.library.impl(_library, "get", "CompositeExplicitAutograd")(_get)


@torch.library.register_fake("mm_torch::put", lib=_library)
def _put_fake(x, owner, own):
    return torch.empty(1, dtype=torch.int64, device="cpu")


@torch.library.register_fake("mm_torch::get", lib=_library)
def _get_fake(ticket, size, stride, dtype, device, once):
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def can_leave(node: torch.fx.Node, device: torch.device) -> bool:
    """Whether the operators can move a node's value: a plain tensor of a fixed shape on the device, worth it."""
    value = node.meta.get("val")
    return (isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == device.type
            and value.dtype in layouts.DTYPES and all(isinstance(n, int) for n in (*value.shape, *value.stride()))
            and value.numel() * value.element_size() >= bridge.SMALL_BYTES and layouts._dense(value.shape, value.stride()))


@contextlib.contextmanager
def passing(names: Collection[str], owner: int, own: bool) -> Iterator[None]:
    """Inside, what torch's partitioner saves of nodes with these names goes through the operators. `names` may be
    filled until the partitioner extracts the graphs. owner, own: see _put; with own, what comes back is read once."""
    extract = getattr(partitioners, _EXTRACT)

    def wrapped(joint, *args, num_fwd_outputs, **kwargs):
        forward, backward = extract(joint, *args, num_fwd_outputs=num_fwd_outputs, **kwargs)
        for name in names:
            _replace(forward, backward, name, num_fwd_outputs, owner, own)
        forward.recompile()
        backward.recompile()
        return forward, backward
    with mock.patch.object(partitioners, _EXTRACT, wrapped):
        yield


def _replace(forward, backward, name, outputs, owner, own):
    """Replaces a saved value in both graphs by a ticket."""
    output = next(iter(forward.graph.find_nodes(op="output")))
    results = list(output.args[0])
    place = next((i for i in range(outputs, len(results)) if getattr(results[i], "name", "") == name), None)
    coming = next((n for n in backward.graph.find_nodes(op="placeholder") if n.name == name), None)
    if place is None or coming is None or not coming.users:
        return  # the backward pass does without it
    value = results[place]
    last = [n for n in forward.graph.nodes if n is value or value in n.all_input_nodes and n is not output][-1]
    with last.meta["val"].fake_mode if hasattr(last.meta.get("val"), "fake_mode") else value.meta["val"].fake_mode:
        fake = torch.empty(1, dtype=torch.int64, device="cpu")
    with forward.graph.inserting_after(last):
        ticket = forward.graph.call_function(torch.ops.mm_torch.put.default, (value, owner, own))
    ticket.meta["val"] = fake
    results[place] = ticket
    output.args = (tuple(results),)
    seen = coming.meta["val"]
    with backward.graph.inserting_before(coming):
        arrived = backward.graph.placeholder(f"{name}_ticket")
    arrived.meta["val"] = fake
    with backward.graph.inserting_before(next(n for n in backward.graph.nodes if n.op != "placeholder")):
        again = backward.graph.call_function(torch.ops.mm_torch.get.default, (
            arrived, list(seen.shape), list(seen.stride()), seen.dtype, seen.device, own))
    again.meta = dict(coming.meta)
    coming.replace_all_uses_with(again)
    backward.graph.erase_node(coming)
