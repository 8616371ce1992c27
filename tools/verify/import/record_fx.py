# SPDX-License-Identifier: MIT
"""Writes the graphs of torch.compile with activation offloading as a file for fx_to_log.py.

    def partition(joint, inputs, *, num_fwd_outputs, **more):      # a partition_fn of aot_autograd
        forward, backward = min_cut_rematerialization_partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)
        save("my.fx", forward, backward, num_fwd_outputs)
        return forward, backward

torch inserts the transfers in its partitioner, if torch._functorch.config.enable_activation_offloading is set, so there
both graphs are as they will run. README.md has the format. For torch 2.13; no GPU is needed."""
import json
import operator

import torch


def names_in(value):
    """The nodes in an argument: a name, a list of them, or None."""
    if isinstance(value, torch.fx.Node):
        return value.name
    if isinstance(value, (list, tuple)):
        found = [names_in(v) for v in value]
        return [name for name in found if name] or None
    return None


def bytes_of(value):
    tensors = value if isinstance(value, (list, tuple)) else [value]
    return [int(t.numel()) * t.element_size() if isinstance(t, torch.Tensor) else 0 for t in tensors]


def call(node):
    """Target, arguments by their names, and which of them the result shares storage with or the call changes."""
    if node.target is operator.getitem:
        return {"target": "getitem", "args": {"of": node.args[0].name, "index": node.args[1]}}
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        raise ValueError(f"{node.name}: {node.target} is no operator with a schema")
    given = {a.name: node.args[i] if i < len(node.args) else node.kwargs.get(a.name)
             for i, a in enumerate(schema.arguments)}
    line = {"target": str(node.target), "args": {k: names_in(v) for k, v in given.items() if names_in(v)}}
    shared = set().union(*(r.alias_info.before_set for r in schema.returns if r.alias_info))
    of = [a.name for a in schema.arguments if a.alias_info and a.alias_info.before_set & shared]
    changed = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write and line["args"].get(a.name)]
    return {**line, **({"shares": of[0]} if of else {}), **({"changes": changed} if changed else {})}


def lines(forward, backward, outputs, name):
    yield {"format": "mm fx", "version": 1, "name": name, "torch": torch.__version__, "outputs": outputs}
    for which, module in (("forward", forward), ("backward", backward)):
        for node in module.graph.nodes:
            line = {"graph": which, "node": node.name}
            if node.op == "placeholder":
                yield {**line, "is": "input", "bytes": bytes_of(node.meta["val"])}
            elif node.op == "output":
                yield {**line, "is": "output", "values": [names_in(v) for v in node.args[0]]}
            elif node.op == "call_function":
                yield {**line, "is": "call", **call(node), "bytes": bytes_of(node.meta.get("val"))}
            else:
                raise ValueError(f"{node.name}: a node of kind {node.op} is not known")


def save(path, forward, backward, outputs, name="a graph of torch"):
    """forward, backward: GraphModules. outputs: how many of the forward's outputs are the model's own; the rest is
    saved for the backward."""
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines(forward, backward, outputs, name))
