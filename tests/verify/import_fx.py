# SPDX-License-Identifier: MIT
"""Graphs that torch's own passes make, for fx_to_log.py: import_fx.py IMPORT MM VERIFY.PY GRAPHS [--record].

Run by tests/python/with_torch, with torch 2.13 or later that has ao.offload. aot_autograd traces and partitions on the
CPU; torch's activation offloading inserts its nodes in the real partitioner. Nothing of the graphs runs. GRAPHS, the
file in the tree, is what torch 2.13.0 makes of the chain; --record writes it anew."""
import sys
from unittest import mock

import torch
from torch._functorch import config
from torch._functorch.aot_autograd import aot_module
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

from fx_graphs import each_wait_is_needed, judged, waits

try:
    from torch._functorch._activation_offloading import activation_offloading
except ImportError:
    print("torch", torch.__version__, "has no activation offloading")
    sys.exit(77)

IMPORT, MM, SECOND, GRAPHS, *RECORD = sys.argv[1:]
sys.path.insert(0, IMPORT)
from record_fx import save  # noqa: E402


class Partitioned(Exception):
    """Both graphs are there; they cannot run here, because the transfers need a GPU."""


def chain():
    layers = [layer for _ in range(3) for layer in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    return torch.nn.Sequential(*layers), torch.randn(8, 64)


def norms():
    """Nodes of several results, views, and buffers that the forward pass changes."""
    layers = [torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(256, 64), torch.nn.GELU()), \
        torch.randn(2, 4, 8, 8)


def recorded(net, marked, partitioner=default_partition, **options):
    """The lines of both graphs of the net, of which the results of the operators in `marked` are offloaded."""
    def partition(joint, inputs, *, num_fwd_outputs, **more):
        for node in joint.graph.nodes:
            if node.op == "call_function" and node.name.split("_")[0] in marked:
                node.meta["should_offload"] = True
        forward, backward = partitioner(joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)
        save("torch.fx", forward, backward, num_fwd_outputs, "chain")
        raise Partitioned

    model, x = net()
    # Prefetching asks a GPU for the times of operations.
    with config.patch(enable_activation_offloading=True, **options), \
            mock.patch.object(activation_offloading, "benchmark_node", lambda *_: 0.001):
        try:
            aot_module(model, fw_compiler=lambda g, _: g, bw_compiler=lambda g, _: g, partition_fn=partition)(x)
        except Partitioned:
            pass
    with open("torch.fx", encoding="utf-8") as file:
        return file.read().splitlines()


def main():
    beside = {"activation_offload_separate_stream": True}
    graphs = recorded(chain, {"addmm"}, **beside)
    if RECORD:
        with open(GRAPHS, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in graphs)
        return
    if torch.__version__.split("+")[0] == "2.13.0":
        with open(GRAPHS, encoding="utf-8") as file:
            kept = file.read().splitlines()
        assert graphs[1:] == kept[1:], "torch makes other graphs than those in the tree"

    def judge(lines):
        return judged(lines, IMPORT, MM, SECOND)

    assert each_wait_is_needed(graphs, judge) == 6
    # Waits at the end, reloads ahead.
    moved = recorded(chain, {"addmm"}, activation_offload_sink_wait=True, activation_reload_prefetch=True, **beside)
    assert sorted(waits(moved)) == sorted(waits(graphs)) and moved != graphs
    assert judge(moved) is None
    # On the stream of computation alone.
    alone = recorded(chain, {"addmm"})
    assert not waits(alone) and any("device_put" in line for line in alone) and judge(alone) is None
    # The partitioner that also recomputes; another net.
    assert each_wait_is_needed(recorded(chain, {"addmm"}, min_cut_rematerialization_partition, **beside), judge) > 0
    assert judge(recorded(norms, {"convolution", "addmm"}, **beside)) is None
    print("torch", torch.__version__, "offloads as its waits say")


main()
