# SPDX-License-Identifier: MIT
"""fit: mm.fit chooses modules that run again, and trains with plain torch's bits inside the budget; what it never
wraps; what it restores; what it says."""

import contextlib
import random

import torch
from torch import nn
from torch.nn import functional as F

import checks
import mm_torch as mm
from checks import expect
from mm_torch import models, wrap

SEED = 5


def square(output, y):
    return (output - y).square().mean()


class Encoder(nn.Module):
    """A transformer with dropout, a mask given by name, and tensors in a tuple."""

    def __init__(self, layers=3, width=48):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 96, batch_first=True) for _ in range(layers))
        self.mix = nn.ModuleList(Mix(width) for _ in range(2))

    def forward(self, x):
        mask = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool).fill_diagonal_(True) ^ True
        for layer in self.layers:
            x = layer(x, src_mask=mask & False)
        for mix in self.mix:
            x = mix((x, x * 2), scale=0.5)["mixed"]
        return x


class Mix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, pair, scale):
        return {"mixed": F.gelu(self.a(pair[0])) * scale + torch.sigmoid(self.b(pair[1]))}


class Recurrent(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x, _ = layer(x)
        return x


class Counting(nn.Module):
    """Its output depends on how often it was called."""

    def __init__(self, width=48):
        super().__init__()
        self.linear = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.out(F.gelu(self.linear(x)) * self.calls.cos())


def counted():
    def block():
        return nn.Sequential(nn.Linear(48, 192), nn.GELU(), nn.Tanh(), nn.Linear(192, 48))
    return nn.Sequential(*(Counting() if i == 1 else block() for i in range(4)))


def sequence(width=48):
    g = torch.Generator().manual_seed(1)
    return torch.randn(4, 40, width, generator=g), torch.randn(4, 40, width, generator=g)


def images():
    return models.make("resnet20")[1](4, torch.Generator().manual_seed(1))


NETS = {"encoder": (Encoder, square, sequence), "resnet20": (lambda: models.make("resnet20")[0], models.loss, images),
        "lstm": (Recurrent, square, sequence), "counting": (counted, square, sequence)}


def make(name):
    torch.manual_seed(SEED)
    build, loss, data = NETS[name]
    return (build(), loss, *data())


def train(net, loss, x, y, m=None, steps=3):
    """Weights, buffers and losses after some steps; those after the first have its plan."""
    torch.manual_seed(SEED + 1)
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), []
    for step in range(steps):
        with m or contextlib.nullcontext():
            value = loss(net(x), y)
            value.backward()
        if m and step == 0:
            m.settle()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(value.detach())
        del value
    return [v.clone() for v in net.state_dict().values()] + losses


def same(a, b):
    return len(a) == len(b) and all(map(torch.equal, a, b))


def is_unwrapped(net):
    return not any("forward" in vars(m) for m in net.modules())


def weights_are_plain_torchs():
    for name in NETS:
        plain = train(*make(name))
        net, loss, x, y = make(name)
        roomy = mm.fit(net, loss, x, y, "1GiB")
        again = [v.path for v in roomy.verdicts if v.action == "recompute"]
        expect(f"{name}: a roomy budget runs nothing again", not again, roomy)
        expect(f"{name}: and is plain torch", same(plain, train(net, loss, x, y, roomy)))
        most = roomy.peak_bytes
        for budget in (int(0.8 * most), (most + roomy.minimum) // 2, roomy.minimum):
            what = f"{name} in {budget}"
            net, loss, x, y = make(name)
            plan = mm.fit(net, loss, x, y, budget)
            expect(f"{what}: bits", same(plain, train(net, loss, x, y, plan)))
            expect(f"{what}: as planned, or less", 0 < plan.peak_bytes <= plan.planned_bytes <= budget,
                   (plan.peak_bytes, plan.planned_bytes))
            expect(f"{what}: nothing is left", plan.stats.entries == 0 and plan.stats.kept_bytes == 0, plan.stats)
            expect(f"{what}: unwrapped", is_unwrapped(net))
            expect(f"{what}: something runs again", any(v.action == "recompute" for v in plan.verdicts), plan)
        expect(f"{name}: the least budget is far below", roomy.minimum < 0.85 * most, (roomy.minimum, most))


def what_must_not_run_again():
    net, loss, x, y = make("counting")
    plan = mm.fit(net, loss, x, y, mm.fit(net, loss, x, y, "1GiB").minimum)
    by_path = {v.path: v for v in plan.verdicts}
    expect("a module that counts is kept", by_path["1"].action == "keep" and "buffer calls" in by_path["1"].why, plan)
    expect("others run again", any(v.action == "recompute" for v in plan.verdicts), plan)

    class Around(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.first, self.inner, self.last = nn.Linear(48, 48), inner, nn.Linear(48, 48)

        def forward(self, x):
            return self.last(self.inner(self.first(x)))

    class Inner(nn.Module):
        def __init__(self, what):
            super().__init__()
            self.what, self.count, self.linear = what, 0, nn.Linear(48, 192)

        def forward(self, x):
            if self.what == "in place":
                x.mul_(2)
            h = F.gelu(self.linear(x)).sigmoid()
            if self.what == "python":
                h = h * random.random()
            elif self.what == "attribute":
                self.count += 1
                h = h * self.count
            elif self.what == "stranger":
                h = h * WEIGHT.pop()
            return h[..., :48] + h[..., 48:96]

    for what, words in (("python", "Python's random"), ("attribute", "attribute count"), ("in place", "in place")):
        torch.manual_seed(SEED)
        net = Around(Inner(what))
        plan = mm.fit(net, square, x, y, "1GiB")
        verdict = {v.path: v for v in plan.verdicts}["inner"]
        expect(f"{what}: is told", words in verdict.why and words in str(plan), plan)
    WEIGHT = [1.5, 2.0, 0.5]
    verdict = {v.path: v for v in mm.fit(Around(Inner("stranger")), square, x, y, "1GiB").verdicts}["inner"]
    expect("other bits the second time are seen", "other bits" in verdict.why, verdict.why)
    hooked = Around(nn.Sequential(nn.Linear(48, 192), nn.GELU(), nn.Linear(192, 48)))
    hooked.inner[1].register_forward_hook(lambda *_: None)
    verdict = {v.path: v for v in mm.fit(hooked, square, x, y, "1GiB").verdicts}["inner"]
    expect("hooks inside are seen", "forward hooks" in verdict.why, verdict.why)
    whole = torch.compile(nn.Sequential(nn.Linear(48, 48), nn.GELU()), backend="eager")
    expect("a net that is compiled as one", "compiled" in str(mm.fit(whole, square, x, y, "1GiB")))


def modules_that_are_called_again():
    """One module for several layers; a compiled block; a module in a budget that swaps."""

    class Shared(nn.Module):
        def __init__(self, compiled):
            super().__init__()
            block = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Dropout(0.2), nn.Linear(96, 48))
            if compiled:
                block.compile(backend="eager")
            self.block, self.attention = block, nn.MultiheadAttention(48, 4, batch_first=True)

        def forward(self, x):
            for _ in range(3):
                x = x + self.block(x)
                x = x + self.attention(x, x, x, need_weights=False)[0]
            return x

    x, y = sequence()
    for compiled in (False, True):
        torch.manual_seed(SEED)
        net = Shared(compiled)
        state = {k: v.clone() for k, v in net.state_dict().items()}
        plain = train(net, square, x, y)
        net.load_state_dict(state)
        least = mm.fit(net, square, x, y, "1GiB").minimum
        plan = mm.fit(net, square, x, y, least)
        expect("both run again", {v.path for v in plan.verdicts if v.action == "recompute"} >= {"block"}, plan)
        expect(f"shared, compiled={compiled}: bits", same(plain, train(net, square, x, y, plan)))
        expect(f"shared, compiled={compiled}: within", plan.peak_bytes <= least, (plan.peak_bytes, least))


def policies_by_path():
    net, loss, x, y = make("encoder")
    plain = train(*make("encoder"))
    roomy = mm.fit(net, loss, x, y, "1GiB")
    rules = {"layers.2.self_attn": "keep", "layers.*.self_attn": "recompute", "*": "keep"}
    plan = mm.fit(net, loss, x, y, int(0.9 * roomy.peak_bytes), policy=rules)
    again = {v.path for v in plan.verdicts if v.action == "recompute"}
    expect("rules choose what runs again", again and again <= {"layers.0.self_attn", "layers.1.self_attn"}, plan)
    expect("bits", same(plain, train(net, loss, x, y, plan)))
    for policy, words in (({"layer.*": "recompute"}, "names no module"), ({"layers.0": "explode"}, "explode"),
                          ("nonsense", "nonsense")):
        try:
            mm.fit(net, loss, x, y, "1MiB", policy=policy)
            expect(f"{policy} is refused", False)
        except ValueError as error:
            expect(f"{policy}: says {words}", words in str(error), error)
    net, loss, x, y = make("encoder")
    rules = {"layers.*.self_attn": "recompute", "*": "swap-async"}
    swaps = mm.fit(net, loss, x, y, roomy.peak_bytes // 2, policy=rules, host="64MiB", log=lambda text: None)
    expect("the rest is swapped", same(plain, train(net, loss, x, y, swaps)) and swaps.stats.out_bytes > 0, swaps.stats)
    expect("it is within the budget", swaps.peak_bytes <= roomy.peak_bytes // 2, swaps.peak_bytes)


def all_is_as_it_was():
    net, loss, x, y = make("resnet20")
    before = [v.clone() for v in net.state_dict().values()]
    grads = [p.grad for p in net.parameters()]
    state, python = torch.get_rng_state(), random.getstate()
    plan = mm.fit(net, loss, x, y, mm.fit(net, loss, x, y, "1GiB").minimum)
    expect("weights and buffers", same(before, list(net.state_dict().values())))
    expect("gradients", all(p.grad is g for p, g in zip(net.parameters(), grads)))
    expect("random numbers", torch.equal(state, torch.get_rng_state()) and python == random.getstate())
    expect("it is not wrapped yet", is_unwrapped(net))
    with plan:
        expect("it is wrapped inside", not is_unwrapped(net))
        try:
            with plan:
                expect("a second time is refused", False)
        except RuntimeError as error:
            expect("with the reason", "do not nest" in str(error), error)
        expect("it is still wrapped", not is_unwrapped(net))
    expect("it is unwrapped", is_unwrapped(net))
    try:
        with plan:
            raise KeyError("planted")
    except KeyError:
        pass
    expect("also after an exception", is_unwrapped(net))
    with plan:
        value = loss(net(x), y)
    value.backward()
    found = [p.grad for p in net.parameters()]
    net, loss, x, y = make("resnet20")
    loss(net(x), y).backward()
    expect("a backward pass after the with", same(found, [p.grad for p in net.parameters()]))
    with torch.no_grad(), plan:
        net(x)
    with torch.no_grad():
        module = nn.Linear(4, 4)
        own = module.forward
        with wrap.replaced(module, lambda h: h):
            expect("a module's function is replaced", module(3) == 3)
        expect("and is its own again", module.forward == own)


def what_it_says():
    net, loss, x, y = make("resnet20")
    roomy = mm.fit(net, loss, x, y, "1GiB")
    expect("where all fits, the table says so", "no module has to run again" in str(roomy), roomy)
    plan = mm.fit(net, loss, x, y, roomy.minimum)
    text = str(plan)
    for words in ("ResNet: a step saves", "modules run again", "module", "saved", "forward ms", "verdict", "price ms",
                  "features.3", "recompute", "keep"):
        expect(f"the table says {words!r}", words in text, text)
    expect("the report speaks paths", "features.11" in plan.report() and "auto" in plan.report(), plan.report())
    try:
        mm.fit(net, loss, x, y, roomy.minimum // 2)
        expect("half of the least is refused", False)
    except mm.Infeasible as error:
        expect("with the least budget", error.minimum and error.minimum > roomy.minimum // 2, error)
        expect("and what holds it", error.producer and str(error.minimum) in str(error), error)
        enough = mm.fit(net, loss, x, y, error.minimum)
        expect("which runs", same(train(net, loss, x, y, enough), train(*make("resnet20"))))
        expect("within it", enough.peak_bytes <= error.minimum, enough.peak_bytes)
    large = torch.cat([x, x])
    try:
        with enough:
            loss(net(large), torch.cat([y, y])).backward()
        expect("a larger batch is refused", False)
    except mm.Infeasible as error:
        expect("by the budget", str(enough.bytes) in str(error) and error.minimum > enough.bytes, error)
    expect("it is unwrapped", is_unwrapped(net))
    for bad, words in ((lambda: mm.fit(net, loss, x, y, "much"), "much"),
                       (lambda: mm.fit(net.eval(), loss, x, y, "1GiB"), "net.train()"),
                       (lambda: mm.fit(net.requires_grad_(False), loss, x, y, "1GiB"), "no weight")):
        try:
            bad()
            expect(f"{words}: is refused", False)
        except ValueError as error:
            expect(f"it says {words}", words in str(error), error)


if __name__ == "__main__":
    checks.run(weights_are_plain_torchs, what_must_not_run_again, modules_that_are_called_again, policies_by_path,
               all_is_as_it_was, what_it_says)
