# SPDX-License-Identifier: MIT
"""resident: the memory of a process that trains six transformer layers, of which a step saves 216 MiB: with plain
torch, with a checkpoint around each layer, and by mm.fit at shares of what is saved. Each way is a process of its own.
Checks that fit's processes take less the less they are given, about as checkpoints do, with the same losses."""

import contextlib
import os
import subprocess
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import checks
from checks import expect

SHARES = (0.7, 0.5, 0.3)
NOISE_MIB = 20
# Tensors of 1 MiB or more are then apart from the heap, in whose gaps glibc keeps up to 100 MiB of what was freed here.
HEAP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)}


class Net(nn.Module):
    def __init__(self, checkpoints):
        super().__init__()
        self.checkpoints = checkpoints
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 512, 0.1, batch_first=True) for _ in range(6))
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpoints else layer(x)
        return self.head(x.mean(1))


def loss(output, y):
    return F.cross_entropy(output, y)


def status(key):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


def train(way):
    """Prints what the training adds to the process's resident memory at most, in MiB, the planned MiB, and the last
    loss. What the package itself takes is not counted."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Net(way == "checkpoint")
    x, y = torch.randn(16, 128, 128), torch.randint(10, (16,))
    optimizer = torch.optim.SGD(net.parameters(), 0.05, 0.9)
    plan, planned = contextlib.nullcontext(), 0
    import mm_torch as mm
    before = status("VmRSS")
    if way not in ("plain", "checkpoint"):
        total = mm.fit(net, loss, x, y, "1GiB").planned_bytes
        plan = mm.fit(net, loss, x, y, int(float(way) * total))
        planned = plan.planned_bytes
    torch.manual_seed(3)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # sets VmHWM to VmRSS
    for _ in range(4):
        with plan:
            value = loss(net(x), y)
            value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last = value.item()
        del value
    print(status("VmHWM") - before, planned / 2**20, last)


def resident_memory_falls():
    found = {}
    for way in ("plain", "checkpoint", *map(str, SHARES)):
        out = subprocess.run([sys.executable, "-W", "ignore", os.path.abspath(__file__), "--way", way], check=True,
                             stdout=subprocess.PIPE, env={**os.environ, **HEAP}).stdout
        found[way] = tuple(map(float, out.split()))
        print(f"{way}: {found[way][0]:.0f} MiB, planned {found[way][1]:.0f} MiB", flush=True)
    mib = {way: figures[0] for way, figures in found.items()}
    expect("losses are the same", len({figures[2] for figures in found.values()}) == 1, found)
    expect("a smaller budget takes less", mib["0.3"] < mib["0.5"] < mib["0.7"] < mib["plain"] + NOISE_MIB, mib)
    expect("0.5 takes much less than plain torch", mib["0.5"] < 0.85 * mib["plain"], mib)
    expect("0.3 takes what checkpoints take", mib["0.3"] < mib["checkpoint"] + NOISE_MIB, mib)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--way"]:
        train(sys.argv[2])
    else:
        checks.run(resident_memory_falls)
