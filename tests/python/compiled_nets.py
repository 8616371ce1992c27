# SPDX-License-Identifier: MIT
"""compiled: nets under torch.compile(backend=mm.backend(...)) against torch's own backends."""

import contextlib
import functools
import random
import shutil
import sys

import torch
from torch import nn
from torch.nn import functional as F

import checks
import mm_torch as mm
from checks import expect
from mm_torch import cuts

H100 = "H100"


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1),
                                  nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Attention(nn.Module):
    """A transformer's blocks over x, or over patches of it (a ViT)."""

    def __init__(self, causal, patches=False, width=32, blocks=2):
        super().__init__()
        self.causal = causal
        self.patches = nn.Conv2d(3, width, 4, 4) if patches else None
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
            "norm2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)})
            for _ in range(blocks))

    def forward(self, x):
        if self.patches is not None:
            x = self.patches(x).flatten(2).transpose(1, 2)
        n, t, c = x.shape
        for b in self.blocks:
            q, k, v = (a.view(n, t, 2, c // 2).transpose(1, 2) for a in b["qkv"](b["norm1"](x)).split(c, 2))
            scores = q @ k.transpose(2, 3) / 4
            if self.causal:
                scores = scores + torch.full((t, t), -1e9).triu(1)
            x = x + b["out"]((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))
            x = x + b["down"](F.gelu(b["up"](b["norm2"](x))))
        return x.mean(1)


class Dropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.2))))

    def forward(self, x):
        return self.body(x)


class Broken(nn.Module):
    """Two regions; whole: one."""

    def __init__(self, whole=False):
        super().__init__()
        self.whole = whole
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64), nn.LayerNorm(64))
                                   for _ in range(4))

    def forward(self, x):
        x = x + self.parts[0](x)
        x = x + self.parts[1](x)
        if not self.whole:
            torch._dynamo.graph_break()
        x = x + self.parts[2](x)
        return x + self.parts[3](x)


NETS = {
    "conv": (Conv, (4, 3, 16, 16)),
    "gpt": (lambda: Attention(True), (2, 16, 32)),
    "vit": (lambda: Attention(False, True), (2, 3, 16, 16)),
    "dropout": (Dropout, (32, 64)),
    "broken": (Broken, (32, 64)),
    "whole": (lambda: Broken(True), (32, 64)),
}


def train(name, backend, steps=3, around=None, shapes=None):
    """Losses, gradients and buffers of a few steps; saved: the most bytes that autograd held of tensors it was given at
    the end of a forward pass, each storage once, parameters and the batch left out."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    make, shape = NETS[name]
    net = make()
    compiled = torch.compile(net, backend=backend)
    owned = {p.untyped_storage().data_ptr() for p in list(net.parameters()) + list(net.buffers())}
    results, most = [], 0
    for step in range(steps):
        x, held = torch.randn(*((shapes or [shape])[step % len(shapes or [shape])])), {}

        def pack(t):
            if t.untyped_storage().data_ptr() not in owned | {x.untyped_storage().data_ptr()}:
                held[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t.detach() if t.requires_grad else t
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
        with around or hooks:
            loss = compiled(x).square().sum()
            loss.backward()
        results.append(loss.detach())
        most = max(most, sum(held.values()) if step else 0)  # the loss saves its own input, too
    return results + [p.grad for p in net.parameters()] + [b.clone() for b in net.buffers()], most


def equal(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


@functools.lru_cache(maxsize=None)
def most_bytes(name):
    """What a net saves if nothing is computed again, and the least budget without moves."""
    b = mm.backend("1GiB", None, "aot_eager", machine=H100)
    train(name, b, 2)
    most = sum(region.choice.bytes for region in b.regions)
    try:
        train(name, mm.backend(1, None, "aot_eager", machine=H100), 3)
        expect(f"{name}: refused", False)
    except mm.Infeasible as error:
        least = error.minimum
    train(name, mm.backend(least, None, "aot_eager", machine=H100), 3)  # also of several regions, the minimum runs
    return most, least


# ---------------------------------------------------------------- choices

def small_problem(rng):
    p = cuts.Problem()
    for i in range(rng.randint(4, 10)):
        inputs = [j for j in range(max(0, i - 4), i) if rng.random() < 0.45]
        size = None if rng.random() < 0.1 else rng.randint(1, 30)
        once = (rng.random() < 0.15 or not inputs) and size is not None
        p.value(str(i), size, None if once else rng.randint(0, 20), inputs)
        if rng.random() < 0.4:
            p.step([i])
    return p


def choices_are_monotone_within_budgets_and_near_the_best_of_all():
    """Against all sets of saved values."""
    budgets = slower = 0
    for seed in range(60):
        p = small_problem(random.Random(seed))
        if not p.needed:
            continue
        able = [i for i, size in enumerate(p.bytes) if size is not None]
        found = [p.finish({v for k, v in enumerate(able) if bits >> k & 1}) for bits in range(1 << len(able))]
        found = [c for c in found if c]
        try:
            small, large = p.extremes()
        except ValueError:
            expect(f"{seed}: refused, and impossible", not found)
            continue
        expect(f"{seed}: the least bytes", small.bytes == min(c.bytes for c in found), small)
        expect(f"{seed}: the least time", large.ns == min(c.ns for c in found), large)
        before = None
        for budget in range(small.bytes, large.bytes + 1):
            c = p.choose(budget)
            best = min(f.ns for f in found if f.bytes <= budget)
            expect(f"{seed}, {budget}: fits, monotone, possible",
                   best <= c.ns <= (before if before is not None else c.ns) and c.bytes <= budget, c)
            before, budgets, slower = c.ns, budgets + 1, slower + (c.ns > best)
    expect("nearly all are the best", budgets > 500 and slower <= 0.1 * budgets, (slower, budgets))


def peaks_are_those_of_a_chain_in_parts():
    """A chain of 16 values of 10 bytes, each read by a backward step in the opposite order: without parts, all of it
    runs again at once."""
    p, before = cuts.Problem(), []
    for i in range(16):
        before = [p.value(f"h{i}", 10, 5 if i else None, before)]
    for i in reversed(range(16)):
        p.step([i])
    small = p.extremes()[0]
    expect("only the first is saved", small.saved == {0} and p.peak(small) == 160, (small, p.peak(small)))
    expect("as parts", p.least().peak_bytes <= 80, p.least())
    expect("a budget for parts", p.fit(90).peak_bytes <= 90 and p.fit(160).ns == 0 and p.fit(20) is None, p.fit(90))


# ---------------------------------------------------------------- nets

def nets_are_bit_equal_over_budgets():
    for name in ("conv", "gpt", "vit", "dropout", "broken"):
        plain, _ = train(name, "aot_eager")
        most, least = most_bytes(name)
        times = []
        for share in (1.0, 0.6, 0.0):
            budget = max(int(share * most), least)
            b = mm.backend(budget, None, "aot_eager", machine=H100)
            found, saved = train(name, b)
            expect(f"{name} at {share}: bit-equal", equal(plain, found))
            planned = sum(region.choice.bytes for region in b.regions)
            expect(f"{name} at {share}: within the budget", planned <= budget, (planned, budget))
            extra = 4 * found[0].numel() + 4 * 32 * 64  # what the loss saves, outside of the regions
            expect(f"{name} at {share}: saved as planned", saved <= planned + extra, (saved, planned, b.report()))
            times.append(sum(region.choice.ns for region in b.regions))
        expect(f"{name}: a larger budget is not slower", times == sorted(times) and times[0] == 0, times)


def values_move_where_that_is_faster():
    for name in ("gpt", "dropout", "broken"):
        plain, _ = train(name, "aot_eager")
        most, _ = most_bytes(name)
        b = mm.backend(int(0.6 * most), "swap-async", "aot_eager", host="64MiB", machine=H100, log=lambda text: None)
        found, _ = train(name, b, around=contextlib.nullcontext())
        stats = b.session.stats
        expect(f"{name}: bit-equal", equal(plain, found))
        expect(f"{name}: values moved", any(r.moved for r in b.regions) and stats.puts > 0 and stats.out_bytes > 0, b.report())
        expect(f"{name}: in the budget", 0 < stats.peak_bytes <= b.session.bytes <= b.bytes, stats)
        expect(f"{name}: nothing is left", stats.entries == 0, stats.entries)


class Settling:
    """Around each step: waits for the plan of what moves."""

    def __init__(self, backend):
        self.backend = backend

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.backend.session.settle()


def values_leave_in_lossless_codes():
    for name in ("conv", "gpt"):
        plain, _ = train(name, "aot_eager", 4)
        most, _ = most_bytes(name)
        b = mm.backend(int(0.6 * most), "rules:*=compress-swap(zvc)", "aot_eager", host="64MiB", machine=H100,
                       log=lambda text: None)
        found, _ = train(name, b, 4, around=Settling(b))
        stats = b.session.stats
        expect(f"{name}: bit-equal", equal(plain, found))
        coded = 0 < stats.coded_bytes < stats.encoded_bytes
        expect(f"{name}: as planned, in codes that leave", stats.planned >= 2 and coded and stats.out_bytes > 0, stats)
        expect(f"{name}: lossless", stats.lossy_gets == 0, stats)
        expect(f"{name}: in the budget", stats.peak_bytes <= b.bytes and stats.entries == 0, stats)


def passes_of_one_step_share_the_budget():
    """A GAN's step: the generator's call waits while the discriminator is trained. One refusal; its minimum runs."""
    def steps(backend):
        torch._dynamo.reset()
        torch.manual_seed(1)
        make, judge = Dropout(), Dropout()
        if backend is not None:
            make.compile(backend=backend), judge.compile(backend=backend)
        for _ in range(4):
            fake = make(torch.randn(32, 64))
            (judge(torch.randn(32, 64)).square() + judge(fake.detach())).sum().backward()
            judge(fake).square().sum().backward()
        return [p.grad for net in (make, judge) for p in net.parameters()]

    plain = steps("aot_eager")
    try:
        steps(mm.backend(4096, None, "aot_eager", machine=H100))
        expect("refused", False)
    except mm.Infeasible as error:
        b = mm.backend(error.minimum, None, "aot_eager", machine=H100)
        expect("the minimum runs, with equal bits", equal(plain, steps(b)))
        expect("in the budget", 0 < b.saved_bytes <= b.bytes, (b.saved_bytes, b.bytes))


def a_graph_that_is_dropped_leaves_nothing():
    most, _ = most_bytes("gpt")
    b = mm.backend(int(0.6 * most), "swap-async", "aot_eager", host="64MiB", machine=H100)
    torch._dynamo.reset()
    torch.manual_seed(1)
    net = torch.compile(NETS["gpt"][0](), backend=b)
    output = net(torch.randn(*NETS["gpt"][1]))
    entries = b.session.stats.entries
    del output
    expect("entries, then none", entries > 0 and b.session.stats.entries == 0, (entries, b.session.stats.entries))


def inside_a_budget_its_stash_takes_what_moves():
    plain, _ = train("gpt", "aot_eager")
    most, _ = most_bytes("gpt")
    b = mm.backend(int(0.6 * most), "swap-async", "aot_eager", host="64MiB", machine=H100)
    m = mm.budget(4 * most, "swap-async", device="cpu", log=lambda text: None)
    found, _ = train("gpt", b, around=m)
    expect("bit-equal", equal(plain, found))
    expect("its stash", m.stats.puts >= len(b.regions[0].moved) > 0 and b.session.stats.puts == 0, m.stats)


def too_small_a_budget_is_refused_with_the_minimum():
    most, least = most_bytes("dropout")
    try:
        train("dropout", mm.backend(least - 1, None, "aot_eager", machine=H100))
        expect("refused", False)
    except mm.Infeasible as error:
        expect("the minimum", error.minimum == least < most, (error.minimum, least, most))
    found, _ = train("dropout", mm.backend(least, None, "aot_eager", machine=H100))
    expect("the minimum is enough", equal(train("dropout", "aot_eager")[0], found))


def regions_share_the_budget():
    most, _ = most_bytes("broken")
    b = mm.backend(int(0.7 * most), None, "aot_eager", machine=H100)
    train("broken", b, 1)
    first = [region.choice.bytes for region in b.regions]
    train("broken", b := mm.backend(int(0.7 * most), None, "aot_eager", machine=H100), 3)
    then = [region.choice.bytes for region in b.regions]
    expect("two regions, and other parts once both are known", len(then) == 2 and first != then and sum(then) <= b.bytes,
           (first, then, b.bytes))


def other_shapes_are_compiled_anew():
    shapes = [(32, 64), (16, 64), (48, 64), (32, 64)]
    plain, _ = train("dropout", "aot_eager", 4, shapes=shapes)
    most, least = most_bytes("dropout")
    b = mm.backend(max(2 * most // 3, 2 * least), "swap-async", "aot_eager", host="64MiB", machine=H100, log=lambda text: None)
    found, _ = train("dropout", b, 4, shapes=shapes)
    expect("bit-equal", equal(plain, found))
    expect("more than one region", len(b.regions) > 1, b.report())


def arguments_are_refused():
    for arguments, words in (((0,), "budget"), (("6XiB",), "budget"), (("1MiB", "no-policy"), "no-policy"),
                             (("1MiB", "recompute"), "recompute"), (("1MiB", "freelunch:rate=4,eligible=all"), "lossless code"),
                              (("1MiB", None, "tensorrt"), "inner compiler")):
        try:
            mm.backend(*arguments)
            expect(f"{arguments} refused", False)
        except ValueError as error:
            expect(f"{arguments}: {words}", words in str(error), error)
    try:
        mm.backend("1MiB", machine="no such GPU")
        expect("machine refused", False)
    except ValueError as error:
        expect("machine", "no such GPU" in str(error), error)


def inductor_is_near_inductor():
    if not (shutil.which("g++") or shutil.which("clang++")):
        print("  skipped: inductor needs a C++ compiler")
        return
    eager, _ = train("whole", "eager", around=contextlib.nullcontext())
    plain, _ = train("whole", "inductor", around=contextlib.nullcontext())
    limit = 2 * max((a - b).abs().max().item() for a, b in zip(plain, eager)) + 1e-30
    most, _ = most_bytes("whole")
    for policy in (None, "swap-async"):  # inductor's graphs have more values, so they need more than `least`
        b = mm.backend(int(0.7 * most), policy, host="64MiB", machine=H100, log=lambda text: None)
        found, _ = train("whole", b, around=contextlib.nullcontext())
        far = max((a - c).abs().max().item() for a, c in zip(found, eager))
        expect(f"{policy}: near eager", far <= limit, (far, limit))
        expect(f"{policy}: it acts", any(r.choice.ns or r.moved for r in b.regions), b.report())
        expect(f"{policy}: nothing is left", b.session.stats.entries == 0, b.session.stats.entries)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
        print(f"skipped: torch {torch.__version__} is older than 2.6")
        sys.exit()
    checks.run(*checks.cases(globals()))
