# SPDX-License-Identifier: MIT
"""mm's networks against torch in float64: one forward and backward pass of each.

    networks.py MM NET [IMAGES]

Trains NET for one iteration with the least learning rate, 1e-9. So the saved state has nearly the initial weights, the
gradients (SGD's momentum after one iteration) and the running statistics after the pass. An interpreter of network
files computes the same in torch. Dropout is left out. If torchvision is there, names and shapes of parameters are
compared with its model of that name, too.
"""
import importlib
import json
import struct
import subprocess
import sys

import torch
from torch.nn import functional

SEED = 5


def run(mm, *arguments):
    return subprocess.run([mm, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def save_npy(path, tensor, dtype, code):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (dtype, tuple(tensor.shape))
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    values = tensor.flatten().tolist()
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack("<%d%s" % (len(values), code), *values))


def load_state(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    state = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, offset=begin, count=(end - begin) // 4)
        state[name] = flat.reshape(entry["shape"]).double()
    return state


# ---------------------------------------------------------------- the interpreter: maps are NCHW


def pair(value):
    return value if isinstance(value, list) else [value, value]


def tokens(x):
    """[n, c, h, w] as [n, tokens, c]."""
    return x.flatten(2).transpose(1, 2)


def maps(x, like):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], *like.shape[2:])


def attention(a, p, at):
    x = tokens(at)
    n, count, width = x.shape
    q, k, v = (t.reshape(n, count, a["heads"], -1).transpose(1, 2) for t in x.chunk(3, dim=-1))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if not a["full"]:
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), float("-inf"))
    return maps((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, count, width // 3), at)


def class_token(a, p, x):
    y = torch.cat([p["token"].expand(x.shape[0], -1, -1), tokens(x)], 1) + p["position"]
    return y.transpose(1, 2)[:, :, None]


def project(a, p, x):
    weight = p["weight"] if a["by_output"] else p["weight"].t()
    return maps(functional.linear(tokens(x), weight, p.get("bias")), x)


def crop(a, p, x):
    (top, left), (height, width) = pair(a["offset"]), pair(a["out_size"])
    return x[:, :, top:top + height, left:left + width]


def batch_norm(a, p, x):
    p["new_mean"] = x.mean((0, 2, 3)).detach()
    p["new_var"] = x.var((0, 2, 3), unbiased=True).detach()
    return functional.batch_norm(x, None, None, p["weight"], p["bias"], True, a["momentum"], a["eps"])


OPS = {
    "conv": lambda a, p, x: functional.conv2d(x, p["weight"], p.get("bias"), pair(a["stride"]), pair(a["pad"]),
                                              pair(a["dilation"]), a["groups"]),
    "batch_norm": batch_norm,
    "group_norm": lambda a, p, x: functional.group_norm(x, a["groups"], p["weight"], p["bias"], a["eps"]),
    "layer_norm": lambda a, p, x: maps(functional.layer_norm(tokens(x), x.shape[1:2], p["weight"], p["bias"],
                                                             a["eps"]), x),
    "relu": lambda a, p, x: x.relu(),
    "leaky_relu": lambda a, p, x: functional.leaky_relu(x, a["slope"]),
    "scale": lambda a, p, x: x * a["slope"],
    "relu6": lambda a, p, x: functional.relu6(x),
    "sigmoid": lambda a, p, x: x.sigmoid(),
    "silu": lambda a, p, x: functional.silu(x),
    "hard_sigmoid": lambda a, p, x: functional.hardsigmoid(x),
    "hard_swish": lambda a, p, x: functional.hardswish(x),
    "gelu": lambda a, p, x: functional.gelu(x, approximate="tanh" if a["tanh"] else "none"),
    "add": lambda a, p, x, y: x + y,
    "mul": lambda a, p, x, y: x * y,
    "max_pool": lambda a, p, x: functional.max_pool2d(x, pair(a["kernel"]), pair(a["stride"]), pair(a["pad"]),
                                                      ceil_mode=a["ceil_mode"]),
    "global_avg_pool": lambda a, p, x: x.mean((2, 3), keepdim=True),
    "attention": attention,
    "class_token": class_token,
    "project": project,
    "crop": crop,
    "dropout": lambda a, p, x: x,
    "linear": lambda a, p, x: functional.linear(x.flatten(1), p["weight"], p.get("bias"))[:, :, None, None],
}


def compute(net, defaults, parameters, x, labels):
    at = {"data": x}
    for layer in net["layers"]:
        inputs = [at[name] for name in layer["inputs"]]
        if layer["op"] == "loss":
            return functional.cross_entropy(inputs[0].flatten(1), labels)
        a = {**defaults[layer["op"]], **layer}
        if a.get("stride") is None and "kernel" in a:
            a["stride"] = a["kernel"]
        at[layer["name"]] = OPS[layer["op"]](a, parameters[layer["name"]], *inputs)
    raise SystemExit("the network has no loss")


# ---------------------------------------------------------------- the comparison


def names_of(layer, spec):
    """The layer's parameters, by their names in its operation and in states."""
    given = [p["name"] for p in spec if p["with"] is None or layer.get(p["with"])]
    return dict(zip(given, layer.get("parameters") or [layer["name"] + "." + name for name in given]))


def off(got, want, least):
    """The Euclidean norm of their difference, relative to that of `want`, or to `least` if that is greater."""
    return (got - want).norm().item() / max(want.norm().item(), least)


def expect_near(name, got, want, bound, least):
    if got.shape != want.shape or not off(got, want, least) <= bound:
        raise SystemExit("%s: %s, off by %g" % (name, list(got.shape), off(got, want, least)))


def compare_with_torchvision(name, size, state):
    if "thin=" in name:
        return "torchvision has no thin networks"
    sized = {"image_size": size["height"]} if name.startswith("vit") else {}
    try:
        build = getattr(importlib.import_module("torchvision").models, name.split("@")[0].split(",")[0])
    except (ImportError, AttributeError):
        return "torchvision has no such model here"
    model = build(num_classes=size["classes"], **sized)
    want = {k: list(v.shape) for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}
    got = {k: list(v.shape) for k, v in state.items() if not k.startswith("momentum.")}
    if got != want:
        raise SystemExit("not torchvision's: %s" % sorted(set(map(str, got.items())) ^ set(map(str, want.items()))))
    return "%d tensors named and shaped as torchvision's" % len(want)


def main(mm, name, images=4):
    net = json.loads(run(mm, "nets", "--net", name, "--json"))
    operations = {op["op"]: op for op in json.loads(run(mm, "nets", "--ops", "--json"))}
    defaults = {op: {a["name"]: a["default"] for a in d["attributes"]} for op, d in operations.items()}
    for layer in net["layers"]:
        if layer["op"] == "dropout":
            layer.pop("p", None)
    with open("net.json", "w", encoding="ascii") as file:
        json.dump(net, file)

    size, generator = net["input"], torch.Generator().manual_seed(SEED)
    shape = (images, size["height"], size["width"], size["channels"])
    x = torch.randint(0, 256, shape, generator=generator)
    labels = torch.randint(0, size["classes"], (images,), generator=generator)
    save_npy("x.npy", x, "|u1", "B")
    save_npy("labels.npy", labels, "<i4", "i")
    run(mm, "train", "--net", "file:net.json", "--data", "files:x.npy,labels.npy", "--batch", str(images),
        "--iterations", "1", "--lr", "1e-9", "--momentum", "0.9", "--weight-decay", "0", "--save", "state", "--json",
        "rows.json", "--quiet")
    state = load_state("state")

    parameters, by_name = {}, {}
    for layer in net["layers"]:
        names = names_of(layer, operations[layer["op"]]["parameter_list"])
        parameters[layer["name"]] = {k: state[n].requires_grad_("momentum." + n in state)
                                     for k, n in names.items() if n in state}
        by_name.update({n: (layer["name"], k) for k, n in names.items()})
    batch = (x.double() / 127.5 - 1).permute(0, 3, 1, 2)
    loss = compute(net, defaults, parameters, batch, labels)
    loss.backward()
    single = {layer: {k: v.detach().float().requires_grad_(v.requires_grad) for k, v in p.items()}
              for layer, p in parameters.items()}
    compute(net, defaults, single, batch.float(), labels).backward()

    with open("rows.json", encoding="ascii") as file:
        got = json.load(file)[0]["loss_first"]
    expect_near("loss", torch.tensor(got).double(), loss.detach(), 1e-4, 0)
    learned = [(t, *at) for t, at in by_name.items() if t in state and parameters[at[0]][at[1]].requires_grad]
    # Gradients that are 0 but for rounding, such as those of a shift before a batch norm, are measured by others. An
    # activation with a bend lets float32's rounding grow: so what torch is off in float32 is the measure.
    least = 1e-4 * max(parameters[layer][key].grad.norm().item() for _, layer, key in learned)
    peer = max(off(single[layer][key].grad, parameters[layer][key].grad, least) for _, layer, key in learned)
    worst = 0
    for tensor, layer, key in learned:
        want = parameters[layer][key].grad
        expect_near("gradient of " + tensor, state["momentum." + tensor], want, max(1e-4, 3 * peer), least)
        worst = max(worst, off(state["momentum." + tensor], want, least))
    for tensor, (layer, key) in by_name.items():
        if key in ("running_mean", "running_var"):
            new, first = (parameters[layer]["new_mean"], 0) if key == "running_mean" else (
                parameters[layer]["new_var"], 1)
            momentum = {**defaults["batch_norm"], **next(n for n in net["layers"] if n["name"] == layer)}["momentum"]
            expect_near(tensor, state[tensor], (1 - momentum) * first + momentum * new, 1e-3, 1e-3)
    print("%s: loss %.6f; gradients of %d tensors off by at most %.1e of the norm, torch's in float32 by %.1e; %s" %
          (name, loss, len(learned), worst, peer, compare_with_torchvision(name, size, state)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
