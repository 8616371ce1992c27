# SPDX-License-Identifier: MIT
"""paths: saved tensors are named by the modules that save them; rules, errors and reports speak these names."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import checks
import mm_torch as mm
from checks import expect
from mm_torch import models, paths


def budget(size="64MiB", policy="swap-async", **options):
    told = []
    m = mm.budget(size, policy, device="cpu", log=told.append, **options)
    m.told = told
    return m


def step(m, net, x, y=None):
    with m:
        output = net(x)
        loss = output.square().mean() if y is None else models.loss(output, y)
        loss.backward()
    net.zero_grad()
    del output, loss
    m.settle()


def of(m):
    """Paths and operations of the last iteration's tensors."""
    return [tuple(entry.producer.rsplit(" ", 1)) for entry in m.entries()]


def chain(kind=nn.Sigmoid, length=3):
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), kind()) for _ in range(length)))


X = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))


def modules_are_named():
    net, batches = models.make("gpt")
    m, (x, y) = budget(), batches(2, torch.Generator().manual_seed(1))
    step(m, net, x, y)
    found, known = {path for path, *_ in of(m)}, dict(net.named_modules())
    expect("paths are those of named_modules, and the net's class",
           found <= known.keys() | {"GPT", ""} | {p for p in found if "Backward" in p}, found - known.keys())
    for path in ("GPT", "blocks.0.attention", "blocks.3.mlp.1", "norm"):
        expect(f"{path} is there", path in found, found)
    expect("an operation comes after the path", ("blocks.1.mlp.1", "ViewBackward0") in of(m), of(m))
    expect("what is saved outside of modules has no path", any(len(names) == 1 for names in of(m)), of(m))
    expect("the report has them", "blocks.2.attention SoftmaxBackward0" in m.report(), m.report())


def forwards_that_run_again():
    """In checkpoints, after an exception in a forward pass, in a compiled region."""
    net = chain()

    class Outer(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.net, self.reentrant = net, reentrant

        def forward(self, h):
            for part in self.net:
                h = checkpoint(part, h, use_reentrant=self.reentrant)
            return h

    for reentrant in (True, False):
        m, outer = budget(), Outer(reentrant)
        step(m, outer, X.clone().requires_grad_() * 1)
        found = {path for path, *_ in of(m)}
        wanted = {"net.0.1", "net.1.1", "net.2.1", "Outer"} if reentrant else {"Outer"}
        expect(f"checkpoints, reentrant={reentrant}", wanted <= found, found)

    class Raises(nn.Module):
        def forward(self, h):
            raise KeyError("planted")

    m, broken = budget(), nn.Sequential(nn.Sigmoid(), Raises())
    try:
        step(m, broken, X.clone().requires_grad_() * 1)
        expect("it raises", False)
    except KeyError:
        pass
    with m:
        (X.clone().requires_grad_() * 1).sigmoid().sum().backward()
    expect("after an exception no module runs", of(m) == [("SigmoidBackward0",)], of(m))
    compiled = nn.Sequential(torch.compile(chain(), backend="eager"), nn.Sigmoid())
    m = budget(net=compiled)
    step(m, compiled, X)
    expect("a compiled region is its module", {path for path, *_ in of(m)} <= {"0", "1", "PowBackward0"}, of(m))


def nets_are_told_apart():
    made, judged = chain(), nn.Sequential(nn.Linear(64, 64), nn.Tanh())
    m = budget()
    with m:
        judged(made(X)).square().mean().backward()
    found = {path for path, *_ in of(m)}
    expect("the second net's paths begin with its class", {"0.1", "Sequential.1"} <= found, found)
    again = budget(net=judged)
    step(again, judged, X)
    found = {path for path, *_ in of(again)}
    expect("those of a net that is given do not", "1" in found and "Sequential.1" not in found, found)

    class Makes(nn.Module):
        def forward(self, h):
            return nn.Sigmoid()(h * 2)

    net = nn.Sequential(Makes())
    step(again, net, X.clone().requires_grad_() * 1)
    expect("a module made in a forward pass", any(p.endswith("0.Sigmoid") for p, *_ in of(again)), of(again))
    wraps = nn.Sequential(nn.DataParallel(chain()))
    expect("wrappers are left out", "0.module.1.0" in dict(paths.modules_of(wraps)), dict(paths.modules_of(wraps)).keys())
    expect("a net that is wrapped", "1.0" in dict(paths.modules_of(nn.DataParallel(chain()))))
    count = len(paths._paths)
    del made, judged, net, wraps, m, again
    import gc
    gc.collect()
    expect("modules that are gone are forgotten", len(paths._paths) < count, (count, len(paths._paths)))


def rules_speak_paths():
    net = chain(length=12)
    plain = [g.clone() for g in torch.autograd.grad(net(X).square().mean(), list(net.parameters()))]
    everything = budget()
    step(everything, net, X)
    half = everything.stats.put_bytes * 5 // 8
    m = budget(half, {"1.1": "keep", "2": "keep", "*": "swap-async"}, net=net)
    for _ in range(3):
        with m:
            grads = torch.autograd.grad(net(X).square().mean(), list(net.parameters()))
        expect("gradients are plain torch's", all(map(torch.equal, grads, plain)))
        m.settle()
    fates = {}
    for entry in m.entries():
        fates.setdefault(entry.producer.split(" ")[0], set()).add(entry.fate)
    expect("it is planned", m.stats.planned == 2 and not m.told, (m.stats, m.told))
    kept = {path: fate for path, fate in fates.items() if path.split(".")[0] == "2" or path == "1.1"}
    expect("a rule names a module, and all inside of it", kept and all(f <= {"kept", "stayed"} for f in kept.values()), fates)
    expect("others move", {"offloaded"} in fates.values(), fates)
    m = budget(half, "rules:0=keep;*=swap", net=net)
    for _ in range(2):
        step(m, net, X)
    expect("the library's rules speak paths, too", m.stats.planned == 1 and not m.told, (m.stats, m.told))
    for policy, words in (({"2.1": "recompute", "*": "keep"}, "mm.fit"), ({}, "no rule"), ({"a=b": "keep"}, "understood"),
                          ({"*": 1}, "understood"), ({"*": "nonsense"}, "nonsense")):
        try:
            budget(half, policy)
            expect(f"{policy} is refused", False)
        except ValueError as error:
            expect(f"{policy}: says {words}", words in str(error), error)
    try:
        budget(half, {"1.2": "keep", "*": "swap"}, net=net)
        expect("a path that names nothing is refused", False)
    except ValueError as error:
        expect("it says so, and the nearest", "'1.2' names no module" in str(error) and "is it" in str(error), error)


def errors_speak_paths():
    net = chain(length=4)
    m = budget(40000, "liveness", net=net)
    try:
        for _ in range(2):
            step(m, net, X)
        expect("it does not fit", False, m.stats)
    except mm.Infeasible as error:
        path, _, operation = error.producer.partition(" ")
        expect("the producer has the path first", path in dict(net.named_modules()) and "Backward" in operation, error.producer)
        expect("the message has it", error.producer in str(error), error)


if __name__ == "__main__":
    checks.run(modules_are_named, forwards_that_run_again, nets_are_told_apart, rules_speak_paths, errors_speak_paths)
