# SPDX-License-Identifier: MIT
"""The work of one operator of torch: bytes, operations, aliases, what it overwrites, if it may run again, its time.

    work = operators.node_work(node)              an FX node, whose inputs have meta["val"]
    work = operators.work_of(func, args, kwargs, out)     a call, as a TorchDispatchMode sees it
    work.time_ns(machine.named("H100"))

Shapes, types and schemas suffice, so tensors may be fake or on the meta device. Functions are pure; any thread may call
them."""

import dataclasses
import operator
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

TYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclasses.dataclass
class Work:
    """What one operator does. Bytes are of storages as they are touched: what a view repeats counts once.

    name: such as "aten.mm". kind: its class of work, a key of KINDS. dtype: of its maps ("f32", ..., "other"). flops:
    multiplications and additions. inputs, outputs: its tensors in the order of the schema, lists flattened. aliases:
    pairs (input, output) that share storage. mutates: inputs that it overwrites. random: it draws numbers. unordered:
    it may add floats in another order each time. repeatable: run again on the same inputs, it gives the same bits, and
    changes nothing."""
    name: str
    kind: str
    dtype: str = "other"
    flops: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    inputs: List[Any] = dataclasses.field(default_factory=list)
    outputs: List[Any] = dataclasses.field(default_factory=list)
    aliases: List[Tuple[int, int]] = dataclasses.field(default_factory=list)
    mutates: List[int] = dataclasses.field(default_factory=list)
    random: bool = False
    unordered: bool = False
    repeatable: bool = True

    @property
    def expensive(self) -> bool:
        """Whether running it again costs a product: mm_layer_properties.cost."""
        return KINDS[self.kind].expensive

    def time_ns(self, machine) -> int:
        """Its time on a machine (machine.Machine), as tools/facts/machine.h counts: the longer of arithmetic and
        traffic, plus a launch. Views take none."""
        kind = KINDS[self.kind]
        if kind.free:
            return 0
        traffic = (self.read_bytes + self.written_bytes) * machine.passes(kind.passes) / machine.memory_bytes_per_s
        arithmetic = self.flops / machine.flops_per_s(kind.product, self.dtype) if kind.product and self.flops else 0.0
        return round(max(traffic, arithmetic) * 1e9 + machine.launch_ns + machine.step_ns)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A class of work. product: whose rate its arithmetic has ("": none is counted). passes: whose number of passes
    over the maps. layer: mm's kind of layer. free: it launches nothing."""
    product: str = ""
    passes: str = ""
    layer: str = "other"
    free: bool = False

    @property
    def expensive(self) -> bool:
        return bool(self.product)


KINDS = {
    "conv": Kind("conv", layer="conv"),
    "winograd": Kind("winograd", layer="conv"),  # 3x3 convolutions of stride 1
    "linear": Kind("linear", layer="linear"),
    "attention": Kind("attention", layer="attention"),
    "rnn": Kind("linear"),
    "norm": Kind(passes="bn", layer="bn"),
    "relu": Kind(layer="relu"),
    "elementwise": Kind(),
    "reduction": Kind(),
    "random": Kind(),
    "view": Kind(free=True),
    "allocation": Kind(free=True),
    "scalar": Kind(free=True),  # sizes, and what has no tensors
}

# Names of operators (without overload) by class; those that are not listed are elementwise, or a view if all that they
# return only shares storage.
_NAMED = {
    "conv": ("convolution", "_convolution", "convolution_backward", "cudnn_convolution", "convolution_overrideable",
             "mkldnn_convolution", "_slow_conv2d_forward", "_convolution_pointwise"),
    "linear": ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "linear_backward",
               "matmul", "_scaled_mm", "_grouped_mm", "mkldnn_linear", "_linear_pointwise", "addmm_", "baddbmm_"),
    "rnn": ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward"),
    "norm": ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
             "_native_batch_norm_legit_no_training", "_batch_norm_with_update", "_batch_norm_with_update_functional",
             "_batch_norm_no_update", "cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm_backward",
             "batch_norm_backward", "cudnn_batch_norm_backward"),
    "relu": ("relu", "relu_", "threshold_backward", "hardtanh", "hardtanh_", "leaky_relu", "leaky_relu_"),
    "allocation": ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"),
    "reduction": ("sum", "mean", "var", "var_mean", "std", "amax", "amin", "max", "min", "argmax", "logsumexp", "norm",
                  "linalg_vector_norm", "prod", "any", "all"),
}
_CLASS = {name: kind for kind, names in _NAMED.items() for name in names}

# Their schemas do not say that they update running statistics: {name: (name of its flag, arguments that change)}.
_UNANNOUNCED = {name: ("training", ("running_mean", "running_var"))
                for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")}
# An in-place operator of these only writes its first input.
_ONLY_WRITES = {"zero_", "fill_", "copy_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_",
                "_foreach_zero_",
                "_foreach_copy_"}
# These read as much of their first tensor as they return.
_GATHERS = {"embedding", "index_select", "gather", "index", "take", "_embedding_bag"}
# On a GPU these add floats in an order that is another each time.
_UNORDERED = {"scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_add", "index_add_",
              "index_put",
              "index_put_", "_index_put_impl_", "embedding_dense_backward", "put", "put_", "bincount", "histc",
              "_embedding_bag_dense_backward"}


# ---------------------------------------------------------------- arithmetic

def _numbers(shape):
    return [_number(n) for n in shape]


def _elements(shape):
    product = 1
    for n in _numbers(shape):
        product *= n
    return product


def attention_flops(query, key, value, products) -> int:
    """Operations of attention without a mask. products: how many of score size, and how many of value size, as (by the
    width of keys, by that of values)."""
    *batch, queries, width = _numbers(query.shape)
    keys = _number(key.shape[-2])
    wide, tall = products
    return 2 * _elements(batch) * queries * keys * (wide * width + tall * _number(value.shape[-1]))


def _rnn(weights, steps):
    return 2 * steps * sum(_elements(w.shape) for w in weights if w is not None and w.dim() == 2)


def _rnn_steps(x):
    return _elements(x.shape[:-1])


# Operations of operators that torch.utils.flop_counter lacks: name -> f(args, out).
_FLOPS: Dict[str, Callable] = {
    "mv": lambda a, out: 2 * _elements(a[0].shape),
    "addmv": lambda a, out: 2 * _elements(a[1].shape),
    "dot": lambda a, out: 2 * _elements(a[0].shape),
    "vdot": lambda a, out: 2 * _elements(a[0].shape),
    "linear": lambda a, out: 2 * _elements(a[0].shape) * _number(a[1].shape[0]),
    "mkldnn_linear": lambda a, out: 2 * _elements(a[0].shape) * _number(a[1].shape[0]),
    "_scaled_dot_product_flash_attention_for_cpu": lambda a, out: attention_flops(a[0], a[1], a[2], (1, 1)),
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda a, out: attention_flops(a[1], a[2], a[3], (3, 2)),
    "_scaled_dot_product_fused_attention_overrideable": lambda a, out: attention_flops(a[0], a[1], a[2], (1, 1)),
    "_scaled_dot_product_fused_attention_overrideable_backward": lambda a, out: attention_flops(a[1], a[2], a[3], (3, 2)),
    "mkldnn_rnn_layer": lambda a, out: _rnn(a[1:5], _rnn_steps(a[0])),
    "mkldnn_rnn_layer_backward": lambda a, out: 2 * _rnn(a[1:5], _rnn_steps(a[0])),
    "_cudnn_rnn": lambda a, out: _rnn(a[1], _rnn_steps(a[0])),
    "_cudnn_rnn_backward": lambda a, out: 2 * _rnn(a[1], _rnn_steps(a[0])),
}


def _number(n) -> int:
    """A size as a number: of a symbol, the size that it was traced with."""
    if isinstance(n, int):
        return n
    hint = getattr(getattr(n, "node", None), "hint", None)
    if hint is None:
        raise ValueError(f"a size {n} is known only when the program runs: plan with fixed shapes")
    return int(hint)


def _flops(func, name, args, kwargs, out):
    if name in _FLOPS:
        return float(_FLOPS[name](args, out))
    formula = flop_registry.get(getattr(func, "overloadpacket", func))
    if formula is None:
        return 0.0
    return float(_number(formula(*args, **kwargs, out_val=out)))


# ---------------------------------------------------------------- tensors and their storages

def tensors_of(tree) -> List[torch.Tensor]:
    """All tensors of nested lists, tuples and dicts, in order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def bytes_of(tensor: torch.Tensor) -> int:
    """Bytes that a tensor's elements take; of an expanded one, of the elements that are there."""
    if tensor.layout is not torch.strided:
        return _elements(tensor.shape) * tensor.element_size()
    elements = 1
    for size, stride in zip(_numbers(tensor.shape), _numbers(tensor.stride())):
        elements *= size if stride != 0 or size == 0 else 1
    return elements * tensor.element_size()


def storage_key(tensor: torch.Tensor) -> int:
    """A number that tensors of one storage share while one of them lives; 0: it has no storage of its own."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return 0


def _named_arguments(func, args, kwargs) -> Iterator[Tuple[Any, Any]]:
    """Pairs (argument of the schema, its value)."""
    arguments = func._schema.arguments
    yield from zip(arguments, args)
    for argument in arguments[len(args):]:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]
        elif argument.has_default_value():
            yield argument, argument.default_value


def _declared(func, args, kwargs):
    """What the schema says of flattened tensors: (written inputs, alias sets of inputs, flattened inputs)."""
    written, sets, inputs = [], [], []
    for argument, value in _named_arguments(func, args, kwargs):
        info = argument.alias_info
        for tensor in tensors_of(value):
            if info is not None and info.is_write:
                written.append(len(inputs))
            sets.append(set(info.before_set) if info is not None else set())
            inputs.append(tensor)
    return written, sets, inputs


def _shared(func, sets, inputs, out):
    """Pairs (input, output) of one storage: by the tensors, as some schemas do not tell, else by the schema."""
    outputs, pairs = [], []
    returns = func._schema.returns
    results = out if len(returns) > 1 and isinstance(out, (tuple, list)) else (out,)
    keys = [storage_key(t) for t in inputs]
    for returned, result in zip(returns, results):
        info = returned.alias_info
        for tensor in tensors_of(result):
            key = storage_key(tensor)
            own = [i for i in range(len(inputs)) if key and keys[i] == key]
            if not own and info is not None:
                own = [i for i, names in enumerate(sets) if names & set(info.before_set)]
            pairs += [(i, len(outputs)) for i in own[:1]]
            outputs.append(tensor)
    return outputs, pairs


# ---------------------------------------------------------------- one call

def _is_random(func, values):
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    chance = next((values[name] for name in ("dropout_p", "dropout") if name in values), None)  # attention, RNNs
    return chance is None or chance > 0


def _is_winograd(values):
    weight = values.get("weight")
    return (isinstance(weight, torch.Tensor) and weight.dim() == 4 and _numbers(weight.shape[2:]) == [3, 3]
            and all(_number(n) == 1 for name in ("stride", "dilation") for n in values.get(name) or ())
            and values.get("groups", 1) == 1)


def _kind(name, values, random, is_view):
    if is_view:
        return "view"
    if "attention" in name:
        return "attention"
    kind = _CLASS.get(name, "random" if random else "elementwise")
    return "winograd" if kind == "conv" and _is_winograd(values) else kind


def dtype_of(tensors) -> str:
    """The name of the type of the largest tensor of floats; "other": there is none, or mm has no name for it."""
    sized = [t for t in tensors if t.is_floating_point()]
    return TYPES.get(max(sized, key=bytes_of).dtype, "other") if sized else "other"


def distinct_bytes(tensors) -> int:
    """Bytes of tensors; what is there twice counts once."""
    seen = {}
    for t in tensors:
        key = storage_key(t) or id(t)
        seen[key] = max(seen.get(key, 0), bytes_of(t))
    return sum(seen.values())


def work_of(func: Any, args: Tuple, kwargs: Dict, out: Any) -> Work:
    """The work of a call func(*args, **kwargs) that returned out. func: an operator (OpOverload); of any other callable
    only the tensors' bytes are known, and it may not run again."""
    if not isinstance(func, torch._ops.OpOverload):
        return _opaque(func, (args, kwargs), out)
    name = func.overloadpacket.__name__
    values = {argument.name: value for argument, value in _named_arguments(func, args, kwargs)}
    written, sets, inputs = _declared(func, args, kwargs)
    outputs, aliases = _shared(func, sets, inputs, out)
    if name in _UNANNOUNCED and values.get(_UNANNOUNCED[name][0]):
        changed = [id(values[n]) for n in _UNANNOUNCED[name][1] if values.get(n) is not None]
        written = sorted({*written, *(i for i, t in enumerate(inputs) if id(t) in changed)})
    random = _is_random(func, values)
    is_view = bool(outputs) and not written and len({o for _, o in aliases}) == len(outputs)
    kind = _kind(name, values, random, is_view) if outputs or written else "scalar"
    work = Work(f"{func.namespace}.{name}", kind, inputs=inputs, outputs=outputs, aliases=aliases, mutates=written,
                random=random)
    work.unordered = name in _UNORDERED or torch.Tag.nondeterministic_bitwise in func.tags
    work.repeatable = not (random or written or work.unordered)
    work.dtype = dtype_of(inputs + outputs)
    if KINDS[kind].free:
        return work
    shared = {o for _, o in aliases}
    fresh = [t for i, t in enumerate(outputs) if i not in shared]
    read = [t for i, t in enumerate(inputs) if not (i in written and name in _ONLY_WRITES)]
    work.written_bytes = distinct_bytes(fresh + [inputs[i] for i in written])
    work.read_bytes = distinct_bytes(read)
    if name in _GATHERS and inputs:
        work.read_bytes += min(0, distinct_bytes(outputs) - bytes_of(inputs[0]))
    if KINDS[kind].product:
        work.flops = _flops(func, name, args, kwargs, out) / (2 if values.get("is_causal") else 1)
    return work


def _opaque(func, arguments, out):
    inputs, outputs = tensors_of(arguments), tensors_of(out)
    name = getattr(func, "__name__", str(func))
    if func is operator.getitem or not (inputs or outputs):
        return Work(name, "view" if inputs else "scalar", inputs=inputs, outputs=outputs,
                    aliases=[(i, o) for o, t in enumerate(outputs) for i, s in enumerate(inputs)
                             if s is t or storage_key(s) == storage_key(t) != 0][:len(outputs)])
    return Work(name, "elementwise", dtype_of(inputs + outputs), 0.0, distinct_bytes(inputs), distinct_bytes(outputs),
                inputs, outputs, repeatable=False)


def node_work(node: "torch.fx.Node") -> Work:
    """The work of an FX node of aten operators; its inputs and itself have meta["val"] (fake tensors). Placeholders,
    outputs and attributes are of kind "scalar"."""
    if node.op != "call_function":
        return Work(node.name, "scalar", repeatable=False)

    def value(argument):
        if not isinstance(argument, torch.fx.Node):
            return argument
        if "val" not in argument.meta:
            raise ValueError(f"node {argument.name} has no meta['val']: trace with fake tensors")
        return argument.meta["val"]

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
    return work_of(node.target, tuple(args), dict(kwargs), node.meta.get("val"))
