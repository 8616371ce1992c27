#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What compiled nets save for the backward pass, and compute again: mm_torch.backend beside torch's own knob.

    PYTHONPATH=tools/python tools/bench/activation_budget.py [--nets resnet18,vit,gpt,mlp] [--machine H100]

torch._functorch.config.activation_memory_budget is a share of what its partitioner would save; its solvers (greedy, dp,
ilp with scipy) get the same times of operators as mm: those of the machine. Nothing is trained and nothing timed: each
net is traced once, with inductor's decompositions and passes, and both choose on that joint graph.

For each share, torch's choice: saved bytes, and the time of what runs again. mm at the same bytes: its time, and their
ratio. fit: with these bytes as a budget of all that is saved or computed again at any time, which torch's knob does not
bound: mm's peak and time; torch's peak by the same model. The last line of a net: whether more bytes were ever slower,
whether mm was slower than torch anywhere, and CPU time of choosing. Exits with 1 if mm was slower, or not monotone."""

import argparse
import sys
import time

import torch
from torch import nn
from torch._functorch import config, partitioners
from torch.nn import functional as F

from mm_torch import machine, models, operators, partition

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8)


class ViT(nn.Module):
    """ViT-Small's blocks (Touvron et al. 2021) over patches of 16 x 16."""

    def __init__(self, width=384, heads=6, blocks=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.place = nn.Parameter(torch.zeros(1, 196, width))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True,
                                                               norm_first=True) for _ in range(blocks))
        self.head = nn.Linear(width, 100)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def mlp():
    layers = []
    for _ in range(8):
        layers += [nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(1024, 100))


NETS = {
    "resnet18": (lambda: models.ResNet((64, 128, 256, 512), (2, 2, 2, 2), (7, 2, True), True, 100),
                 lambda: torch.randn(8, 3, 112, 112)),
    "vit": (ViT, lambda: torch.randn(4, 3, 224, 224)),
    "gpt": (lambda: models.GPT(256, 4, 8, 128, 1000), lambda: torch.randint(1000, (8, 128))),
    "mlp": (mlp, lambda: torch.randn(256, 1024)),
}


def joint_of(name):
    """The joint graph of a net that inductor would partition, torch's NodeInfo, and torch's own function."""
    from torch._inductor.compile_fx import compile_fx
    found = []

    def choose(graph, info):
        found.extend((graph, info))
        raise StopIteration
    torch._dynamo.reset()
    torch.manual_seed(1)
    make, batch = NETS[name]
    own = partitioners.choose_saved_values_set
    compiled = torch.compile(make(), backend=compile_fx)
    try:
        with partition.chosen(choose), config.patch(enable_autograd_cache=False):
            compiled(batch())
    except Exception:  # dynamo wraps what choose raised
        if not found:
            raise
    return found[0], found[1], own


class Measured:
    """A set of saved nodes by mm's figures. bytes: of storages that no parameter and no input has; ns: of what runs
    again; peak: as cuts.Problem.peak."""

    def __init__(self, region, nodes):
        problem, number = region.problem, region.number
        # A saved view keeps what it shows.
        values, stack = set(), [n for n in nodes if n in number]
        while stack:
            n = stack.pop()
            if problem.bytes[number[n]] is None:
                stack += [i for i in n.all_input_nodes if i in number]
            else:
                values.add(number[n])
        # Seeds of random numbers, which torch's solvers may let run again: they count as saved.
        values.update(i for i, again in enumerate(problem.again_ns) if again is None and problem.bytes[i] is not None)
        choice = problem.finish(values)
        self.bytes, self.ns, self.peak = choice.bytes, choice.ns, problem.peak(choice)


def solvers():
    try:
        import scipy.optimize  # noqa: F401
        return ("greedy", "dp", "ilp")
    except ImportError:
        return ("greedy", "dp")


def estimator(rates):
    """mm's times for torch's knapsack."""
    def estimate(node):
        return max(operators.node_work(node).time_ns(rates), 1)
    try:
        from torch._inductor.custom_graph_pass import CustomRuntimeEstimator
    except ImportError:
        return estimate  # before torch 2.9 a function

    class Times(CustomRuntimeEstimator):
        def __call__(self, node):
            return estimate(node)

        def uuid(self):
            return None
    return Times()


def torch_choices(own, graph, info, region, solver, rates):
    """[Measured or None] by share, and CPU seconds."""
    started, found = time.process_time(), []
    with config.patch(activation_memory_budget_solver=solver, activation_memory_budget_runtime_estimator=estimator(rates)):
        for share in SHARES:
            found.append(Measured(region, own(graph, info, memory_budget=share)))
    return found, time.process_time() - started


def distances(graph, info):
    """What min_cut_rematerialization_partition notes before it chooses."""
    for node in reversed(graph.nodes):
        if node.op == "output":
            node.dist_from_bw = int(1e9)
        elif not info.is_required_fw(node):
            node.dist_from_bw = 0
        else:
            node.dist_from_bw = min([int(1e9)] + [user.dist_from_bw + 1 for user in node.users])


def compare(name, rates, tried):
    """Prints the table of a net. Returns whether mm was never slower, and monotone."""
    graph, info, own = joint_of(name)
    distances(graph, info)
    started = time.process_time()
    region = partition.Region(graph, info, rates, partition.activations_of(graph, info, ()))
    problem = region.problem
    least, most = problem.extremes()
    problem.family()
    mine = time.process_time() - started
    print(f"\n{name}: {len(problem.names)} values; from {least.bytes / 2**20:.2f} MiB with {least.ns / 1e3:.0f} us again "
          f"to {most.bytes / 2**20:.2f} MiB with none; the lowest peak {problem.least().peak_bytes / 2**20:.2f} MiB")
    right, slower, ratios = True, 0, []
    for solver in tried:
        found, seconds = torch_choices(own, graph, info, region, solver, rates)
        print(f"  {solver:8}{'share':>6}{'MiB':>9}{'us again':>10}{'mm at it':>10}{'ratio':>7}{'peak':>9} | "
              f"{'fit: peak':>10}{'us again':>10}")
        times = []
        for share, theirs in zip(SHARES, found):
            started = time.process_time()
            ours, fit = problem.choose(theirs.bytes), problem.fit(theirs.bytes)
            mine += time.process_time() - started
            times.append((theirs.bytes, theirs.ns, ours.ns if ours else None))
            worse = ours is None or ours.ns > theirs.ns
            slower += worse
            ratios.append(theirs.ns / ours.ns if ours and ours.ns else 1.0 if theirs.ns == 0 else float("inf"))
            inside = f"{fit.peak_bytes / 2**20:10.2f}{fit.ns / 1e3:10.0f}" if fit else f"{'-':>10}{'-':>10}"
            print(f"          {share:6.2f}{theirs.bytes / 2**20:9.2f}{theirs.ns / 1e3:10.1f}"
                  f"{ours.ns / 1e3 if ours else float('nan'):10.1f}{ratios[-1]:7.2f}{theirs.peak / 2**20:9.2f} | {inside}")
        ordered = sorted(times)
        theirs_monotone = all(a[1] >= b[1] for a, b in zip(ordered, ordered[1:]))
        by_share = all(a[1] >= b[1] for a, b in zip(times, times[1:]))
        ours_monotone = all(a[2] >= b[2] for a, b in zip(ordered, ordered[1:]))
        right &= ours_monotone
        print(f"          torch: a larger share is {'never' if by_share else 'SOMETIMES'} slower, more bytes "
              f"{'never' if theirs_monotone else 'SOMETIMES'}; mm: {'never' if ours_monotone else 'SOMETIMES'}; torch's choosing "
              f"took {seconds:.2f} s of CPU time")
    finite = [r for r in ratios if r != float("inf")]
    print(f"  torch's time of mm's at equal bytes: {min(finite):.2f} to {max(finite):.2f}, {ratios.count(float('inf'))} times "
          f"mm computes nothing again; mm slower in {slower} of {len(ratios)}; mm's choosing took {mine:.2f} s of CPU time")
    return right and not slower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--machine", default="H100")
    parser.add_argument("--solvers", default=",".join(solvers()), help="torch's: %(default)s")
    options = parser.parse_args()
    unknown = [name for name in options.nets.split(",") if name not in NETS]
    if unknown:
        parser.error(f"--nets {options.nets}: there is no {unknown[0]}; there are {', '.join(NETS)}")
    rates = machine.named(options.machine)
    print(f"torch {torch.__version__}, rates of {rates.name}")
    right = all([compare(name, rates, options.solvers.split(",")) for name in options.nets.split(",")])
    sys.exit(not right)


if __name__ == "__main__":
    main()
