# SPDX-License-Identifier: MIT
"""compiled_regions [CASE...]: what torch.compile makes of a net, inside an mm.budget: its regions are managed, and what
it leaves to plain torch is told. Gradients must be the compiled net's bits. mm.backend: compiled_nets.py."""

import logging

import torch
from torch import nn

import checks
import mm_torch as mm
from checks import expect
from faults import budget, equal, net, weights

LOGGER = logging.getLogger("a net")


def compiled(backend, **options):
    """A net compiled as a whole, and by block: gradients are those of the compiled plain run."""
    for by_block in (False, True):
        torch._dynamo.reset()
        plain = net()
        run = nn.Sequential(*(torch.compile(block, backend=backend) for block in plain)) if by_block else \
            torch.compile(plain, backend=backend)
        x = torch.randn(128, 64)

        def step(context, plain=plain, run=run):
            torch.manual_seed(2)
            with context:
                return torch.autograd.grad(run(x).sin().sum(), list(plain.parameters()))

        m = budget(strict=True, **options)
        equal(f"{backend}, by block {by_block}", step, m)
        expect(f"{backend}, by block {by_block}: it is managed", m.coverage.compiled_bytes > 150_000 and
               m.stats.planned >= 1, (m.coverage, m.stats))


def compiled_regions_are_managed():
    compiled("aot_eager")
    torch._dynamo.reset()
    w, = weights((64, 64))
    f = torch.compile(lambda a: (a.exp() * torch.sigmoid(a)).sin(), backend="aot_eager")
    with budget() as m:
        first = f(w).sum()
        expect("nothing is read while it is compiled", m.stats.gets == 0, m.stats)
        first.backward(retain_graph=True)
        first.backward()


def whole_compiled_nets_are_told():
    """One region that saves all reads all of it at once. By block, nothing is told."""
    block = lambda a: (a.exp() * torch.sigmoid(a)).sin()  # noqa: E731

    def deep(a):
        for _ in range(4):
            a = block(a)
        return a

    def by_block(a):
        for _ in range(4):
            a = compiled_block(a)
        return a

    w, = weights((64, 64))
    for what, make, is_told in (("the whole", lambda: torch.compile(deep, backend="aot_eager"), True), ("by block", lambda: by_block, False)):
        torch._dynamo.reset()
        compiled_block, told = torch.compile(block, backend="aot_eager"), []
        f = make()
        with budget() as m:
            f(w).exp().sum().backward()
        whole = m.coverage.region_bytes
        expect(f"{what}: one region's bytes", 16384 <= whole <= m.coverage.compiled_bytes // (1 if is_told else 4), m.coverage)
        m = budget(whole + 4096, log=told.append)
        for _ in range(3):
            with m:
                f(w).exp().sum().backward()
            m.settle()
        expect(f"{what}: told once, with the remedy", len(told) == is_told and all("mm.backend" in t for t in told), told)
        m = budget(whole // 2)
        try:
            with m:
                f(w).sum().backward()
            expect(f"{what}: refused", False, m.stats)
        except mm.Infeasible as error:
            expect(f"{what}: refused, with the remedy", "mm.backend" in str(error), error)


def what_torch_does_not_compile_is_managed():
    """Hooks run where torch.compile traces functions that are called from there."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(16, 32), torch.nn.Linear(32, 32)

        def forward(self, x):
            return self.head(self.lstm(x)[0]).tanh()

    x = torch.randn(40, 8, 16)

    def train(context, net):
        torch._dynamo.reset()
        torch.manual_seed(1)
        net = net(Net())
        for _ in range(3):
            with context:
                net(x).square().sum().backward()
        return [p.grad for p in net.parameters()]

    eager, m = budget(), budget()
    plain = train(eager, lambda net: net)
    found = train(m, lambda net: torch.compile(net, backend="aot_eager"))
    expect("equal bits", all(map(torch.equal, plain, found)))
    expect("all is put that is without torch.compile", m.stats.put_bytes >= eager.stats.put_bytes > 0 and m.coverage.share > 0.9,
           (m.stats, eager.stats))
    torch._dynamo.reset()
    told = []
    backend = mm.backend("1MiB", inner="aot_eager", device="cpu", log=told.append)
    torch.compile(Net(), backend=backend)(x).sum().backward()
    expect("mm.backend tells", len(told) == 1 and "LSTM" in told[0] and "mm.budget" in told[0], told)
    expect("and reports", "left to plain torch" in backend.report(), backend.report())


def a_net_that_logs_leaves_nothing_to_torch():
    """As transformers' losses do: torch.compile breaks the graph at the call, and compiles what stands around it."""
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

        def forward(self, x):
            h = self.body(x).exp()
            LOGGER.info("between the two")
            return self.head(h).tanh()

    torch._dynamo.reset()
    told, m = [], budget()
    backend = mm.backend("1MiB", None, inner="aot_eager", device="cpu", log=told.append)
    with m:
        torch.compile(Net(), backend=backend)(torch.randn(64, 64)).sum().backward()
    expect("nothing is told", not told and not backend.left and len(backend.regions) == 2, (told, backend.left, backend.regions))
    expect("compiled regions save all", 0 < m.coverage.compiled_bytes == m.coverage.managed_bytes, m.coverage)


def deep_inductor():
    """Takes minutes, so it runs only by name. Its backward passes write into donated buffers."""
    compiled("inductor")


if __name__ == "__main__":
    checks.run(*checks.cases(globals()))
