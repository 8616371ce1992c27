# SPDX-License-Identifier: MIT
"""Measures what a budget costs if it forces nothing: python3 -m mm_torch.cost

It prints the microseconds beyond plain torch for a saved tensor that is left alone, and for one that is moved (pack,
unpack and release together; 1000 tensors of 4 KiB, so that copying hardly counts; the least of several rounds). Then
steps of ResNet-20 with batch 16, inside a budget and plain in turns: wall time, and the process's CPU time, which a
busy machine disturbs less. Exits with 1 if a wall time is above its limit (--no-limits: never).

mm.budget makes glibc keep memory that a step frees, from which plain steps of the same process gain, too: --apart also
measures plain steps in a process without a budget."""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time

import torch

import mm_torch as mm
from mm_torch import models

LEFT_ALONE_US, MOVED_US, STEP_RATIO = 5, 15, 1.05
TENSORS = 1000
WARM = 3  # steps that are not measured; in the first one, the order of saved tensors is learned


class Chain(torch.autograd.Function):
    """Saves its tensors, and reads them in the backward pass."""

    @staticmethod
    def forward(ctx, x, *tensors):
        ctx.save_for_backward(*tensors)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return (gradient,) + (None,) * len(ctx.saved_tensors)


def seconds(tensors, m):
    """Seconds of one forward and backward pass."""
    x = torch.zeros(1, requires_grad=True)
    started = time.perf_counter()
    if m:
        with m:
            Chain.apply(x, *tensors).backward()
    else:
        Chain.apply(x, *tensors).backward()
    return time.perf_counter() - started


def each(kind, rounds):
    """Microseconds for each tensor beyond plain torch's."""
    m = mm.budget("64MiB", "liveness", device="cpu")
    source = torch.zeros(1024, requires_grad=True)
    with_mm, plain = [], []
    for i in range(rounds):
        for session, times in ((None, plain), (m, with_mm)):
            made = [torch.zeros(1024, requires_grad=True) if kind == "left alone" else source * 1.0 for _ in range(TENSORS)]
            times.append(seconds(made, session))
        if i == 0:
            m.settle()
    assert (m.stats.params >= rounds * TENSORS) == (kind == "left alone") and (m.stats.puts > 0) == (kind != "left alone")
    return (min(with_mm) - min(plain)) / TENSORS * 1e6


def trainer(m=None):
    """A function that makes one step of ResNet-20, and returns its wall and CPU time."""
    net, batches = models.make("resnet20")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = batches(16, torch.Generator().manual_seed(1))

    def step():
        wall, cpu = time.perf_counter(), time.process_time()
        with m or contextlib.nullcontext():
            loss = models.loss(net(x), y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del loss
        return time.perf_counter() - wall, time.process_time() - cpu
    return step


def medians(times):
    return [statistics.median(each) * 1e3 for each in zip(*times)]


def plain_steps(count):
    step = trainer()
    return medians([step() for _ in range(count + WARM)][WARM:])


def steps(count):
    """Medians of alternating steps, plain and inside a budget that forces nothing: milliseconds of wall and CPU
    time."""
    m = mm.budget("256MiB", "swap-async", device="cpu")
    both, times = (trainer(), trainer(m)), ([], [])
    for i in range(count + WARM):
        for which in ((0, 1), (1, 0))[i % 2]:
            times[which].append(both[which]())
        if i < WARM:
            m.settle()
    return [medians(each[WARM:]) for each in times]


def main():
    parser = argparse.ArgumentParser(prog="python3 -m mm_torch.cost", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-limits", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        print(*plain_steps(options.steps))
        return
    apart = subprocess.run([sys.executable, "-W", "ignore", "-m", "mm_torch.cost", "--plain", "--steps", str(options.steps)],
                           stdout=subprocess.PIPE, check=True).stdout.split() if options.apart else None
    alone, moved = each("left alone", options.rounds), each("moved", options.rounds)
    plain, inside = steps(options.steps)
    ratio = inside[0] / plain[0]
    for words, value, limit, unit in (("a tensor left alone", alone, LEFT_ALONE_US, "us"), ("a tensor moved", moved, MOVED_US, "us"),
                                      ("a step inside a budget, of a plain one", ratio, STEP_RATIO, "")):
        print(f"{words}: {value:.2f}{unit} (limit {limit}{unit})")
    print(f"of CPU time: {inside[1] / plain[1]:.2f}" +
          (f"; of a plain step in a process without a budget: {inside[0] / float(apart[0]):.2f}" if apart else ""))
    print(f"steps of resnet20, batch 16, medians of {options.steps}: plain {plain[0]:.1f} ms, inside a budget {inside[0]:.1f} ms")
    right = alone <= LEFT_ALONE_US and moved <= MOVED_US and ratio <= STEP_RATIO
    sys.exit(not right and not options.no_limits)


if __name__ == "__main__":
    main()
