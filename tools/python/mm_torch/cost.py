"""What a budget costs where it forces nothing: python3 -m mm_torch.cost

Microseconds for each saved tensor that is left alone and for each that is moved (pack, unpack and release together, beyond
plain torch's; of 1000 tensors of 4 KiB, the least of several rounds, so that copying is next to nothing), and steps of ResNet-20
with batch 16, inside a budget and plain by turns. Exits with 1 where a median is above its limit (--no-limits: never).

glibc's malloc is told to keep what is freed: whether it returns the top of the heap, and takes it again page by page, depends on
what else was allocated before, and costs more than what is measured here (--trim: as it is)."""

import argparse
import ctypes
import statistics
import sys
import time

import torch

import mm_torch as mm
from mm_torch import models

LEFT_ALONE_US, MOVED_US, STEP_RATIO = 5, 15, 1.05
TENSORS = 1000


class Chain(torch.autograd.Function):
    """Saves the tensors that it is given, and reads them again."""

    @staticmethod
    def forward(ctx, x, *tensors):
        ctx.save_for_backward(*tensors)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return (gradient,) + (None,) * len(ctx.saved_tensors)


def seconds(tensors, m):
    """Of one forward and backward pass."""
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


def steps(count):
    """Medians of alternating steps, plain and inside a budget that forces nothing."""
    m = mm.budget("256MiB", "swap-async", device="cpu")
    nets = [models.make("resnet20")[0] for _ in range(2)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9) for net in nets]
    x, y = models.make("resnet20")[1](16, torch.Generator().manual_seed(1))
    times = ([], [])
    for i in range(count + 3):
        for which in ((0, 1), (1, 0))[i % 2]:
            started = time.perf_counter()
            if which:
                with m:
                    loss = models.loss(nets[1](x), y)
                    loss.backward()
            else:
                loss = models.loss(nets[0](x), y)
                loss.backward()
            optimizers[which].step()
            optimizers[which].zero_grad(set_to_none=True)
            del loss
            if i >= 3:
                times[which].append(time.perf_counter() - started)
            elif which:
                m.settle()
    return [statistics.median(t) * 1e3 for t in times]


def keep_freed_memory():
    """As MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ do. A C library without mallopt stays as it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        if mallopt:
            mallopt(parameter, 1 << 30)


def main():
    parser = argparse.ArgumentParser(prog="python3 -m mm_torch.cost", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-limits", action="store_true")
    parser.add_argument("--trim", action="store_true")
    options = parser.parse_args()
    if not options.trim:
        keep_freed_memory()
    alone, moved = each("left alone", options.rounds), each("moved", options.rounds)
    plain, inside = steps(options.steps)
    for words, value, limit, unit in (("a tensor left alone", alone, LEFT_ALONE_US, "us"), ("a tensor moved", moved, MOVED_US, "us"),
                                      ("a step inside a budget, of a plain one", inside / plain, STEP_RATIO, "")):
        print(f"{words}: {value:.2f}{unit} (limit {limit}{unit})")
    print(f"steps of resnet20, batch 16, medians of {options.steps}: plain {plain:.1f} ms, inside a budget {inside:.1f} ms")
    right = alone <= LEFT_ALONE_US and moved <= MOVED_US and inside / plain <= STEP_RATIO
    sys.exit(not right and not options.no_limits)


if __name__ == "__main__":
    main()
