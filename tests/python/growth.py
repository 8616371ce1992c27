# SPDX-License-Identifier: MIT
"""growth: memory of a process stays the same over many iterations inside a budget, in loops of six kinds.

    growth.py [--iterations N] [LOOP...]

Default: 40 iterations of all loops, in one process. The deep test has 2000, each loop in a process of its own. Compared
is what is resident, and Python's number of objects, after a quarter of the iterations and at the end. Nothing of the
stash may be left."""

import argparse
import gc
import sys

import torch
from torch import nn
from torch.nn import functional as F

import checks
import mm_torch as mm
from checks import expect

RESIDENT_KIB = 4096  # gaps of a heap; one tensor of 16 KiB that leaks in each of 2000 iterations takes 32 MiB
OBJECTS = 50


def cnn():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10))


def images():
    return torch.randn(8, 3, 16, 16), torch.randint(10, (8,))


class Steps:
    """A loop: called once for each iteration. m: the budget."""

    def __init__(self, m, net):
        self.m, self.net = m, net
        self.optimizer = torch.optim.SGD(net.parameters(), 1e-3, 0.9)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Cnn(Steps):
    def __init__(self, m):
        super().__init__(m, cnn())

    def __call__(self, i):
        x, y = images()
        with self.m:
            F.cross_entropy(self.net(x), y).backward()
        self.update()


class Transformer(Steps):
    def __init__(self, m):
        layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True)
        super().__init__(m, nn.TransformerEncoder(layer, 2))

    def __call__(self, i):
        with self.m:
            self.net(torch.randn(4, 32, 64)).square().mean().backward()
        self.update()


class Lstm(Steps):
    def __init__(self, m):
        super().__init__(m, nn.LSTM(32, 64, 2, batch_first=True))

    def __call__(self, i):
        with self.m:
            self.net(torch.randn(8, 24, 32))[0].square().mean().backward()
        self.update()


class Gan(Steps):
    """PyTorch's tutorial: the judge's backward pass, then the maker's over the same images."""

    def __init__(self, m):
        super().__init__(m, nn.Sequential(nn.Linear(16, 768), nn.Tanh()))
        self.judge = nn.Sequential(nn.Linear(768, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1))
        self.judging = torch.optim.SGD(self.judge.parameters(), 1e-3)

    def __call__(self, i):
        bce = F.binary_cross_entropy_with_logits
        with self.m:
            made = self.net(torch.randn(16, 16))
            real, fake = self.judge(torch.randn(16, 768)), self.judge(made.detach())
            (bce(real, torch.ones(16, 1)) + bce(fake, torch.zeros(16, 1))).backward()
            self.judging.step()
            bce(self.judge(made), torch.ones(16, 1)).backward()
        self.update()
        self.judging.zero_grad(set_to_none=True)


class Accumulation(Cnn):
    def update(self):
        self.count = getattr(self, "count", 0) + 1
        if self.count % 4 == 0:
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            super().update()


class Evaluation(Cnn):
    """An evaluation after each step, inside the budget: without gradients, and with a graph that is thrown away."""

    def __call__(self, i):
        super().__call__(i)
        x, _ = images()
        self.net.eval()
        with self.m:
            with torch.no_grad():
                self.net(x)
            if i % 3 == 0:
                self.net(x)
        self.net.train()


LOOPS = {loop.__name__.lower(): loop for loop in (Cnn, Transformer, Lstm, Gan, Accumulation, Evaluation)}
SHARE, TRIES = 0.6, 6


def begun(name):
    """A loop that has run some iterations, in a budget of SHARE of what it puts, or of the least that is enough."""
    kind, quiet = LOOPS[name], {"device": "cpu", "host": "64MiB", "log": lambda text: None}
    all_of_it = mm.budget("64MiB", "liveness", unplanned=True, **quiet)
    kind(all_of_it)(0)
    nbytes = int(SHARE * all_of_it.stats.put_bytes)
    for _ in range(TRIES):
        loop = kind(mm.budget(nbytes, "swap-async", **quiet))
        try:
            for i in range(5):
                loop(i)
                loop.m.settle()
            return loop
        except mm.Infeasible as error:
            nbytes = error.minimum
    raise AssertionError(f"{name}: no budget is enough")


def resident():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def memory_stays(name, iterations):
    torch.manual_seed(0)
    loop, found = begun(name), []
    for i in range(iterations):
        loop(i)
        if i + 1 in (iterations // 4, iterations):
            gc.collect()
            found += [resident(), len(gc.get_objects())]
    (before, objects, after, more), stats = found, loop.m.stats
    print(f"{name}: {iterations} iterations in {loop.m.bytes >> 10} KiB, {stats.puts} tensors put, {stats.out_bytes >> 10} KiB moved "
          f"out, {stats.planned} planned: resident {before} then {after} KiB, {objects} then {more} objects", flush=True)
    expect(f"{name}: memory stays", after - before <= RESIDENT_KIB, (before, after))
    expect(f"{name}: objects stay", more - objects <= OBJECTS, (objects, more))
    expect(f"{name}: nothing is left", stats.entries == 0, stats)
    expect(f"{name}: tensors moved", stats.puts >= 3 * iterations and stats.moved_bytes > 0, stats)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loops", nargs="*", metavar="LOOP", help=", ".join(LOOPS))
    parser.add_argument("--iterations", type=int, default=40)
    options = parser.parse_args()
    unknown = [name for name in options.loops if name not in LOOPS]
    if unknown:
        parser.error(f"there is no loop {unknown[0]}; there are {', '.join(LOOPS)}")
    torch.set_num_threads(1)
    for name in options.loops or LOOPS:
        memory_stays(name, options.iterations)
    sys.exit(checks.failed() > 0)


if __name__ == "__main__":
    main()
