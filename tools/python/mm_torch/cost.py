# SPDX-License-Identifier: MIT
"""Measures what a budget costs: python3 -m mm_torch.cost

It prints the microseconds beyond plain torch for a saved tensor

  left alone  a parameter
  kept        put, planned, and left to the program, as where the budget forces nothing
  moved       put, copied to host memory, and back: pack, unpack and release together; 1000 tensors of 4 KiB, a
              graph of as many operations, so that copying hardly counts

of CPU time of the whole process, mm's threads included: medians of alternating rounds, which a busy machine disturbs
less than wall time. `moved` is without a plan; `moved by plan` follows one. Then the CPU time in which an order of 2000
tensors is planned; and steps of ResNet-20 with batch 16, inside a budget that forces nothing and plain in turns: the
median of ratios of neighbours, of wall and of CPU time. Exits with 1 if a figure is above its limit (--no-limits:
never).

mm.budget makes glibc keep memory that a step frees, from which plain steps of the same process gain, too: --apart also
measures plain steps in a process without a budget."""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time

import torch

import mm_torch as mm
from mm_torch import models

# What is measured: its limit, and unit. `moved by plan` and planning under other policies have none.
LIMITS = {"left_alone_us": 5, "kept_us": 10, "moved_us": 10, "planning_s": 0.5, "step_ratio": 1.05}
TENSORS, KIB = 1000, 1 << 10
PLANNED_TENSORS = 2000
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


def parameters():
    """A function that saves parameters, and reads them."""
    x, saved = torch.zeros(1, requires_grad=True), [torch.zeros(1024, requires_grad=True) for _ in range(TENSORS)]
    return lambda: Chain.apply(x, *saved).backward()


def exponents(count=TENSORS):
    """A function that saves `count` tensors, one for each operation, and reads them in turn."""
    def run():
        y = torch.zeros(1024, requires_grad=True)
        for _ in range(count):
            y = y.exp()
        y.backward(gradient)
    gradient = torch.zeros(1024)
    return run


def each(function, rounds, nbytes, **options):
    """Microseconds of CPU time for each tensor beyond plain torch's, and the budget."""
    m, found = mm.budget(nbytes, "swap-async", host="64MiB", device="cpu", **options), []
    for i in range(rounds + 1):
        times = []
        for context in (contextlib.nullcontext(), m):
            started = time.process_time()
            with context:
                function()
            times.append(time.process_time() - started)
        if i == 0:
            m.settle()
        else:
            found.append((times[1] - times[0]) / TENSORS * 1e6)
    return statistics.median(found), m.stats


def tensors(rounds):
    """Microseconds for a tensor of each kind."""
    room, little = 64 << 20, 128 * KIB
    alone, stats = each(parameters(), rounds, room)
    assert stats.params >= rounds * TENSORS and stats.puts == 0, stats
    kept, stats = each(exponents(), rounds, room)
    assert stats.planned >= rounds and stats.out_bytes == 0, stats
    moved, stats = each(exponents(), rounds, little, unplanned=True)
    assert stats.out_bytes >= rounds * 0.9 * TENSORS * 4 * KIB, stats
    planned, stats = each(exponents(), rounds, little)
    assert stats.planned >= rounds and stats.out_bytes >= rounds * 0.9 * TENSORS * 4 * KIB, stats
    return {"left_alone_us": alone, "kept_us": kept, "moved_us": moved, "moved_by_plan_us": planned}


def planning():
    """Seconds of CPU time in which an order of PLANNED_TENSORS tensors is planned, in half of their bytes."""
    m = mm.budget(PLANNED_TENSORS * 4 * KIB // 2, "swap-async", host="64MiB", device="cpu")
    with m:
        exponents(PLANNED_TENSORS)()
    m.settle()
    assert m.stats.plans == 1 and m.stats.puts == PLANNED_TENSORS, m.stats
    return m.stats.planning_ns * 1e-9


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
    """Medians of alternating steps, plain and inside a budget that forces nothing: milliseconds of wall and CPU time;
    and the medians of their ratios, each to its neighbour."""
    m = mm.budget("256MiB", "swap-async", device="cpu")
    both, times = (trainer(), trainer(m)), ([], [])
    for i in range(count + WARM):
        for which in ((0, 1), (1, 0))[i % 2]:
            times[which].append(both[which]())
        if i < WARM:
            m.settle()
    plain, inside = times[0][WARM:], times[1][WARM:]
    ratios = [statistics.median(b[k] / a[k] for a, b in zip(plain, inside)) for k in (0, 1)]
    return medians(plain), medians(inside), ratios


def main():
    parser = argparse.ArgumentParser(prog="python3 -m mm_torch.cost", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-limits", action="store_true")
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        print(*plain_steps(options.steps))
        return
    apart = subprocess.run([sys.executable, "-W", "ignore", "-m", "mm_torch.cost", "--plain", "--steps", str(options.steps)],
                           stdout=subprocess.PIPE, check=True).stdout.split() if options.apart else None
    figures = {**tensors(options.rounds), "planning_s": planning()}
    plain, inside, (figures["wall_ratio"], figures["step_ratio"]) = steps(options.steps)
    for key, words, unit in (("left_alone_us", "a tensor left alone", "us"), ("kept_us", "a tensor kept", "us"),
                             ("moved_us", "a tensor moved", "us"), ("moved_by_plan_us", "a tensor moved by plan", "us"),
                             ("planning_s", f"planning of {PLANNED_TENSORS} tensors", "s"),
                             ("step_ratio", "a step inside a budget, of a plain one, CPU time", "")):
        limit = f" (limit {LIMITS[key]}{unit})" if key in LIMITS else ""
        print(f"{words}: {figures[key]:.2f}{unit}{limit}")
    print(f"of wall time: {figures['wall_ratio']:.2f}" +
          (f"; of a plain step in a process without a budget: {inside[0] / float(apart[0]):.2f}" if apart else ""))
    print(f"steps of resnet20, batch 16, medians of {options.steps}: plain {plain[0]:.1f} ms, inside a budget {inside[0]:.1f} ms")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**figures, "limits": LIMITS}, file, indent=1)
    right = all(figures[key] <= limit for key, limit in LIMITS.items())
    sys.exit(not right and not options.no_limits)


if __name__ == "__main__":
    main()
