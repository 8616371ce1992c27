# SPDX-License-Identifier: MIT
"""What a compiled region saves for its backward pass: joint graphs of AOT autograd as problems of cuts.py.

    with partition.chosen(choose):           # torch's min-cut partitioner asks choose(graph, info) what to save
        compile_fx(gm, inputs)

A joint graph has the forward and the backward pass of a region. Region finds in it what the backward pass reads, what
saving each value costs in bytes, and what computing it again costs in time. Views are not saved, but what they show;
sizes are always there. What draws random numbers, overwrites something or communicates runs once; so does what reads
an input that the forward pass overwrites (running statistics), and what a user's checkpoint says shall be saved.

Torch compiles under a lock of its own, so one thread is here at a time."""

import contextlib
import operator
from typing import Any, Callable, Collection, Dict, Iterator, List, Sequence
from unittest import mock

import torch
from torch._functorch import partitioners
from torch.fx import Node
from torch.utils import _pytree as pytree

from . import cuts, operators

_CHOOSE = "choose_saved_values_set"
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_SEED_BYTES = 8
_HIDDEN_VIEWS = {torch.ops.aten._unsafe_view.default, torch.ops.aten.lift_fresh.default}  # by their schemas no views
_AGAIN = ("MUST_RECOMPUTE", "PREFER_RECOMPUTE")  # torch.utils.checkpoint.CheckpointPolicy


@contextlib.contextmanager
def chosen(choose: Callable[[torch.fx.Graph, Any], List[Node]]) -> Iterator[None]:
    """Inside, torch's min-cut partitioner saves what choose(joint graph, torch's NodeInfo of it) returns. RuntimeError:
    this torch's partitioner does not ask."""
    if not hasattr(partitioners, _CHOOSE):
        raise RuntimeError(f"mm.backend: the partitioner of torch {torch.__version__} has no {_CHOOSE}: use a torch from 2.6 "
                           "to 2.14")
    with mock.patch.object(partitioners, _CHOOSE, lambda graph, info, *_, **__: choose(graph, info)):
        yield


class Region:
    """A joint graph and its problem. graph: as the partitioner has it. info: torch's NodeInfo. machine: rates
    (machine.Machine). activations: names of placeholders that other regions made: their bytes count."""

    def __init__(self, graph: torch.fx.Graph, info: Any, machine: Any, activations: Collection[str] = ()):
        self.machine, self.info, self.activations = machine, info, set(activations)
        self.problem = cuts.Problem()
        self.number: Dict[Node, int] = {}
        self.order = list(graph.nodes)
        self.backward = self._backward()
        self.reads = {n for node in self.backward for n in node.all_input_nodes if n not in self.backward}
        constant = {n for n in info.required_bw_nodes if n.op != "output" and n not in self.backward}  # gradients
        self.reads |= constant
        self.overwritten = {node.args[0] for node in self.order if node not in self.backward and
                            getattr(getattr(node.target, "_schema", None), "is_mutable", False) and node.args}
        relevant, stack = set(self.reads), list(self.reads)
        while stack:
            for n in stack.pop().all_input_nodes:
                if n not in relevant:
                    relevant.add(n)
                    stack.append(n)
        for node in self.order:
            if node in relevant:
                self._add(node)
        for node in self.order:
            if node in self.backward:
                self.problem.step([self.number[n] for n in node.all_input_nodes if n in self.number])
        for node in self.reads:
            if node in self.number:
                self.problem.need(self.number[node])

    def _backward(self):
        """Nodes that depend on a gradient of an output, or must run in the backward pass."""
        found = set()
        for node in self.order:
            if node.op == "placeholder":
                is_backward = partitioners._is_tangent(node) or partitioners._is_bwd_seed_offset(node)
            else:
                is_backward = node.op != "output" and (any(n in found for n in node.all_input_nodes)
                                                       or partitioners._must_be_in_backward(node))
            if is_backward:
                found.add(node)
        return found

    def _add(self, node):
        value = node.meta.get("val")
        if node.op == "get_attr" or isinstance(value, _SYMBOLS):
            return
        if node.op == "placeholder":
            if partitioners._is_fwd_seed_offset(node):
                self._value(node, _SEED_BYTES, None)
            elif node.name in self.activations and isinstance(value, torch.Tensor):
                self._value(node, operators.bytes_of(value), None)
            return  # others are there anyway
        if _is_view(node):
            if any(n in self.number for n in node.all_input_nodes):
                self._value(node, None, 0)
            return
        wish = getattr(node.meta.get("recompute"), "name", "")
        again = None if wish == "MUST_SAVE" else self._again_ns(node)
        is_parts = isinstance(value, (tuple, list))
        bytes_ = operators.bytes_of(value) if isinstance(value, torch.Tensor) else 0
        if is_parts or wish in _AGAIN and again is not None:
            bytes_ = None  # of several results each is a value of its own
        self._value(node, bytes_, again)

    def _value(self, node, bytes_, again):
        inputs = [self.number[n] for n in node.all_input_nodes if n in self.number]
        # What only the backward pass reads is no more computed again than its gradients are.
        late = node.op == "call_function" and not self.info.is_required_fw(node)
        self.number[node] = self.problem.value(node.name, bytes_, again, inputs, late)

    def _again_ns(self, node):
        """The time of running a node again; None: it must not."""
        if node.target is operator.getitem:
            return 0
        if any(n in self.overwritten for n in node.all_input_nodes):
            return None
        if getattr(node.target, "namespace", "") in ("_c10d_functional", "c10d"):
            return None
        try:
            work = operators.node_work(node)
        except ValueError:  # an input without a description
            return None
        if not work.repeatable:
            return None
        # What the forward pass does not need runs once, in whichever pass.
        return work.time_ns(self.machine) if self.info.is_required_fw(node) else 0

    def time_ns(self, node: Node) -> int:
        """The time of running a node once; 0: it is no operator, or not known."""
        if node.op != "call_function" or node.target is operator.getitem:
            return 0
        try:
            return operators.node_work(node).time_ns(self.machine)
        except ValueError:
            return 0

    def saved_nodes(self, choice: cuts.Choice) -> List[Node]:
        """What torch's partitioner has to save: the choice's values; what is there anyway, and sizes, as far as the
        backward pass and what runs again read them."""
        saved = {node for node, i in self.number.items() if i in choice.saved}
        found, seen, stack = set(), set(), list(self.reads)
        while stack:
            node = stack.pop()
            if node in seen or node.op == "get_attr":
                continue
            seen.add(node)
            if node in saved or node.op == "placeholder" or isinstance(node.meta.get("val"), torch.SymInt):
                found.add(node)
            else:
                stack += node.all_input_nodes
        return [node for node in self.order if node in found]


def _is_view(node):
    """Whether the result shares the storage of an input, also as one of several results."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], Node) and _is_view(node.args[0])
    if node.target in _HIDDEN_VIEWS:
        return True
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def activations_of(graph: torch.fx.Graph, info: Any, inputs: Sequence[Any]) -> List[str]:
    """Names of placeholders that are no parameters or buffers, and have a gradient: other regions made them. inputs: of
    the region, as the backend got them."""
    gradients = pytree.arg_tree_leaves(*next(iter(graph.find_nodes(op="output"))).args)
    primals = [n for n in graph.find_nodes(op="placeholder") if partitioners._is_primal(n)]
    static = getattr(info, "static_lifetime_input_nodes", None)
    if static is None:  # torch 2.6
        if len(primals) != len(inputs):
            return []
        static = {n for n, value in zip(primals, inputs) if isinstance(value, torch.nn.Parameter)}
    of_primals = gradients[len(gradients) - len(primals):]
    return [n.name for n, gradient in zip(primals, of_primals) if gradient is not None and n not in static]
