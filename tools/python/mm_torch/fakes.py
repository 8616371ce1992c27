# SPDX-License-Identifier: MIT
"""Fake tensors, of shapes and types alone, in place of a net's parameters, a batch, and an optimizer's states.

They are on the CPU whatever the originals are on: builds of torch without CUDA cannot have fake CUDA tensors."""

import contextlib
import copy
import functools
import inspect
import logging
import sys
from collections import defaultdict
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree


class Fakes:
    """Fake copies of tensors, one for each original, made inside a FakeTensorMode. batch: the size of the first
    dimension that tensors of a batch get (None: as they are), where it is `of` now."""

    def __init__(self):
        self._made: Dict[int, torch.Tensor] = {}
        self._kept: Dict[int, torch.Tensor] = {}  # so that no id is used again

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The fake of a tensor; a parameter's is a parameter."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            raise ValueError(f"a tensor of type {type(tensor).__name__}, {tensor.layout}: plans are of ordinary tensors")
        if id(tensor) not in self._made:
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            if isinstance(tensor, torch.nn.Parameter):
                fake = torch.nn.Parameter(fake, tensor.requires_grad)
            self._made[id(tensor)] = fake
            self._kept[id(tensor)] = tensor
        return self._made[id(tensor)]

    def batch(self, tree: Any, size: Optional[int] = None, instead_of: Optional[int] = None) -> Any:
        """A batch in fake tensors. Where the first dimension has `instead_of` elements, it gets `size`."""
        def one(tensor):
            if id(tensor) in self._made:
                return self._made[id(tensor)]
            shape = list(tensor.shape)
            if size is not None and shape and shape[0] == instead_of:
                shape[0] = size
            self._kept[id(tensor)] = tensor
            fake = torch.empty(shape, dtype=tensor.dtype, device="cpu").requires_grad_(tensor.requires_grad)
            return self._made.setdefault(id(tensor), fake)
        return pytree.tree_map_only(torch.Tensor, one, tree)

    @contextlib.contextmanager
    def instead(self, net: torch.nn.Module) -> Iterator[None]:
        """Inside, the net's parameters and buffers are fakes. Afterwards they are the originals again."""
        put_back = []
        try:
            for module in net.modules():
                for table in (module._parameters, module._buffers):
                    for name, tensor in table.items():
                        if tensor is None:
                            continue
                        fake = self.of(tensor)
                        put_back.append((module, table, name, tensor))
                        self._put(module, table, name, fake)
            yield
        finally:
            for module, table, name, tensor in reversed(put_back):
                self._put(module, table, name, tensor)

    @staticmethod
    def _put(module, table, name, tensor):
        table[name] = tensor
        if name in getattr(module, "_flat_weights_names", ()):  # an RNN keeps its weights in a list, too
            module._flat_weights[module._flat_weights_names.index(name)] = tensor

    def optimizer(self, given: Any, net: torch.nn.Module, foreach: bool) -> Optional[torch.optim.Optimizer]:
        """An optimizer of the net's parameters, which are fakes now. given: None; an optimizer of the originals; a
        class of torch.optim or its name ("AdamW"); a function of parameters. foreach: as torch's optimizers choose on a
        GPU."""
        if given is None:
            return None
        if isinstance(given, str):
            named = next((c for n, c in vars(torch.optim).items() if n.lower() == given.lower() and inspect.isclass(c)
                          and issubclass(c, torch.optim.Optimizer)), None)
            if named is None:
                raise ValueError(f"optimizer {given!r}: torch.optim has none of that name")
            given = named
        if isinstance(given, torch.optim.Optimizer):
            made = self._copy(given)
        elif callable(given):
            made = given([p for p in net.parameters() if p.requires_grad])
        else:
            raise ValueError(f"optimizer {given!r}: must be an optimizer, a class, a name such as \"AdamW\", or a function "
                             "of parameters")
        for group in made.param_groups:
            if foreach and "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = True
        return made

    def _copy(self, given):
        made = copy.copy(given)
        made.state = defaultdict(dict)
        made.param_groups = []
        for group in given.param_groups:
            missing = [p for p in group["params"] if id(p) not in self._made]
            if missing:
                raise ValueError(f"the optimizer has {len(missing)} parameters that are not the net's, such as one of shape "
                                 f"{tuple(missing[0].shape)}")
            made.param_groups.append({**group, "params": [self._made[id(p)] for p in group["params"]]})
        return made


@functools.lru_cache(maxsize=256)
def _lstm_workspace(x, weights, state, flags):
    """Bytes that oneDNN's LSTM saves for these shapes. Only oneDNN knows, so this runs that one operator."""
    with unset_fake_temporarily(), torch.enable_grad():  # without, it saves nothing
        made = [torch.zeros(shape) for shape in (x, *weights, state, state)]
        return torch.ops.aten.mkldnn_rnn_layer(*made, *flags)[3].numel()


def corrected(func: Any, args: Tuple, out: Any) -> Any:
    """What an operator of the CPU returns, where torch's fake of it has a size that the real one has not."""
    if func is not torch.ops.aten.mkldnn_rnn_layer.default or out[3].numel() or not args[15]:
        return out
    flags = tuple(tuple(f) if isinstance(f, list) else f for f in args[7:])
    size = _lstm_workspace(tuple(args[0].shape), tuple(tuple(w.shape) for w in args[1:5]), tuple(args[5].shape), flags)
    return (*out[:3], torch.empty(size, dtype=torch.uint8, device="cpu"))


# What the batch's values would decide, and is assumed: {module: {function: what it returns}}.
ASSUMED = {"transformers.masking_utils": {"find_packed_sequence_indices": None}}  # a row of a batch is one text


def assumptions() -> Dict[Any, Dict[str, Callable]]:
    """ASSUMED for modules that are loaded, for replaced."""
    return {sys.modules[module]: {name: (lambda *_, value=value, **__: value) for name, value in functions.items()
                                  if hasattr(sys.modules[module], name)}
            for module, functions in ASSUMED.items() if module in sys.modules}


@contextlib.contextmanager
def silent(logger: str) -> Iterator[None]:
    """Inside, a logger says nothing: of an error that is raised, torch prints the whole stack, too."""
    found = logging.getLogger(logger)
    before, found.disabled = found.disabled, True
    try:
        yield
    finally:
        found.disabled = before


@contextlib.contextmanager
def replaced(functions: Dict[Any, Dict[str, Callable]]) -> Iterator[None]:
    """Inside, functions of modules are others: {module: {name: function}}."""
    before = [(module, name, getattr(module, name), name in vars(module))
              for module, names in functions.items() for name in names]
    try:
        for module, names in functions.items():
            for name, function in names.items():
                setattr(module, name, function)
        yield
    finally:
        for module, name, function, own in before:
            setattr(module, name, function) if own else delattr(module, name)
