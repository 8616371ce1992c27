# SPDX-License-Identifier: MIT
"""Plans without running against real steps on the CPU. Arguments: names of cases; --deep: nets of real size, and a
Llama of 7 B, instead. Prints for each net: saved bytes planned and real; the peak planned, and of all storages that a
dispatch mode sees, and of torch's allocator. MM_COMMAND: the command mm."""

import contextlib
import importlib.util
import io
import json
import math
import os
import resource
import runpy
import subprocess
import sys
import tempfile

import torch

if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 6):
    print(f"plans without running need torch 2.6, this is {torch.__version__}")
    sys.exit(77)

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import mm_torch as mm
from checks import expect, run
from joint_nets import NEEDS, NETS, counted_peak, nets, profiled_peak, real_step, saved_bytes
from mm_torch import joint, machine, operators


def row(name, small, optimizer=torch.optim.AdamW):
    """(saved bytes planned and real; peak planned, as a mode counts it, as torch's allocator has it)."""
    torch.manual_seed(1)
    net, loss, x, y = NETS[name](small)
    net.train()
    given = optimizer(net.parameters(), lr=1e-3) if optimizer else None
    real_step(net, loss, x, y, given)  # makes the optimizer's states
    net.zero_grad(set_to_none=True)
    step = joint.trace(net, loss, x, y, given, gpu=None)
    outside = sum(s.bytes for s in step.tracer.storages if s.born < 0 and s.died != -1)
    saved = saved_bytes(net, loss, x, y)
    counted = counted_peak(net, loss, x, y, given)
    net.zero_grad(set_to_none=True)
    return step.saved_bytes, saved, step.peak_bytes, counted, profiled_peak(net, loss, x, y, given) + outside


def check_row(name, small, optimizer):
    saved, real, peak, counted, allocated = row(name, small, optimizer)
    print(f"{name:10}{saved:14}{real:14}{peak:14}{counted:14}{peak / counted - 1:+8.2%}{allocated:14}"
          f"{peak / allocated - 1:+8.2%}", flush=True)
    expect(f"{name}: saved bytes are those of a real step", saved == real, (saved, real))
    expect(f"{name}: the peak is within 3 %", abs(peak / counted - 1) <= 0.03, (peak, counted))
    if name not in ("lstm", "mixed"):  # oneDNN's LSTM, and torch's CPU attention, allocate inside
        expect(f"{name}: the peak is the allocator's within 3 %", abs(peak / allocated - 1) <= 0.03, (peak, allocated))


# ---------------------------------------------------------------- cases

def as_real_steps():
    for name in nets():
        check_row(name, True, torch.optim.AdamW)
    for name in ("lstm", "mixed", "resnet20"):
        check_row(name, True, None)
        check_row(name, True, torch.optim.SGD)


def nothing_changes():
    net, loss, x, y = NETS["mixed"](True)
    given = torch.optim.AdamW(net.parameters())
    real_step(net, loss, x, y, given)
    real_step(net, loss, x, y, None)  # leaves gradients
    before = {k: (id(v), v.clone()) for k, v in net.state_dict(keep_vars=True).items()}
    grads = {k: (id(p.grad), p.grad.clone()) for k, p in net.named_parameters()}
    moments, state = [t.clone() for s in given.state.values() for t in operators.tensors_of(s)], torch.get_rng_state()
    functions = torch.nn.functional.dropout, torch._VF.gru, torch.nn.functional.scaled_dot_product_attention
    for gpu in (None, "H100"):
        joint.trace(net, loss, x, y, given, gpu)
    after = net.state_dict(keep_vars=True)
    expect("parameters stay", all(id(after[k]) == i and torch.equal(after[k], v) for k, (i, v) in before.items()))
    expect("gradients stay", all(id(p.grad) == grads[k][0] and torch.equal(p.grad, grads[k][1])
                                 for k, p in net.named_parameters()))
    expect("states stay", all(map(torch.equal, moments, [t for s in given.state.values() for t in operators.tensors_of(s)])))
    expect("random numbers stay", torch.equal(state, torch.get_rng_state()))
    expect("functions stay", functions == (torch.nn.functional.dropout, torch._VF.gru,
                                           torch.nn.functional.scaled_dot_product_attention))
    real_step(net, loss, x, y, given)


class Works(TorchDispatchMode):
    """The work of all calls, by name."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        work = operators.work_of(func, args, kwargs or {}, out)
        self.found.setdefault(work.name, []).append(work)
        return out


def works_of_operators():
    a, b = torch.ones(4, 8), torch.ones(8, 2)
    norm, x = torch.nn.BatchNorm2d(3), torch.ones(2, 3, 4, 4)
    with Works() as seen:
        a @ b, a.t(), a.relu_(), torch.empty(3), a.add(1), torch.rand(3), norm(x), a.reshape(8, 4), a.expand(3, 4, 8) + 1
        torch.nn.functional.embedding(torch.tensor([1, 2]), torch.ones(100, 8)), a.new_zeros(2).copy_(a[0, :2])
    got = {name: works[0] for name, works in seen.found.items()}
    for name, wanted in {
            "aten.mm": ("linear", 2 * 4 * 8 * 2, 4 * (32 + 16), 4 * 8, [], [], True),
            "aten.t": ("view", 0, 0, 0, [(0, 0)], [], True),
            "aten.relu_": ("relu", 0, 128, 128, [(0, 0)], [0], False),
            "aten.empty": ("allocation", 0, 0, 0, [], [], True),
            "aten.add": ("elementwise", 0, 128, 128, [], [], True),
            "aten.rand": ("random", 0, 0, 12, [], [], False),
            "aten.view": ("view", 0, 0, 0, [(0, 0)], [], True),
            "aten.native_batch_norm": ("norm", 0, 4 * (96 + 12), 4 * (96 + 12), [], [3, 4], False),
            "aten.embedding": ("elementwise", 0, 64 + 16, 64, [], [], True),
            "aten.copy_": ("elementwise", 0, 8, 8, [(0, 0)], [0], False)}.items():
        w = got[name]
        found = (w.kind, w.flops, w.read_bytes, w.written_bytes, w.aliases, w.mutates, w.repeatable)
        expect(f"work of {name}", found == wanted, found)
    expect("what a view repeats counts once", seen.found["aten.add"][-1].read_bytes == 128, seen.found["aten.add"][-1])
    h100 = machine.named("H100")
    expect("time by arithmetic", operators.Work("p", "linear", "f32", 1e12, 8, 8).time_ns(h100)
           == round(1e21 / h100.flops_per_s("linear") + 2000))
    expect("time by traffic", operators.Work("p", "elementwise", "f32", 0, 10**9, 0).time_ns(h100)
           == round(1e18 / h100.memory_bytes_per_s + 2000))
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda u, v: (u @ v).relu().sum(), tracing_mode="fake")(a, b).graph
    kinds = [operators.node_work(node).kind for node in graph.nodes]
    expect("works of nodes", kinds == ["scalar", "scalar", "linear", "relu", "reduction", "scalar"], kinds)
    net, loss, x, y = NETS["resnet20"](True)
    with FlopCounterMode(display=False) as counter:
        real_step(net, loss, x, y, None)
    flops = sum(op.work.flops for op in joint.trace(net, loss, x, y, None, None).ops)
    expect("operations are torch's", flops == counter.get_total_flops(), (flops, counter.get_total_flops()))


def rates_of_gpus():
    def same(a, b):
        if isinstance(a, dict):
            return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
        return a == b or isinstance(a, (int, float)) and math.isclose(a, b, rel_tol=1e-12)

    if "MM_COMMAND" in os.environ:
        for name in machine.names():
            done = subprocess.run([os.environ["MM_COMMAND"], "gpus", name, "--json"], stdout=subprocess.PIPE, check=True)
            expect(f"{name} is as of the command", same(json.loads(done.stdout), machine.gpu_json(name)))
    expect("all GPUs are there", len(machine.names()) > 20, machine.names())
    expect("names are read as the command does", {machine.named(n).name for n in ("h100", "NVIDIA H100 80GB HBM3")}
           == {"H100-SXM-est."})
    for name, word in (("A100", "A100-40, A100-80-PCIe"), ("H1000", "no GPU"), ("no.json", "no.json")):
        refused(f"GPU {name}", word)(lambda name=name: machine.named(name))
    expect("this host has rates", machine.named(None).flops_per_s("linear") > 1e7)


def refused(what, word):
    def call(function):
        try:
            function()
        except ValueError as error:
            expect(f"{what}: the message has {word!r}", word in str(error), error)
        else:
            expect(f"{what} is refused", False)
    return call


def kernels_of_gpus():
    """A GPU's dropout saves bytes, its attention no scores, its GRU one reserve."""
    x = torch.ones(64, 128, requires_grad=True)
    drop = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.Dropout(0.5))
    cpu, gpu = (joint.trace(drop, lambda out, y: out.sum(), x, None, None, g).saved_bytes for g in (None, "H100"))
    expect("dropout's mask", (cpu, gpu) == (64 * 128 * 4, 64 * 128), (cpu, gpu))

    class Attention(torch.nn.Module):
        def forward(self, q):
            return torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1, is_causal=True)

    q = torch.ones(2, 4, 96, 16, requires_grad=True)
    step = joint.trace(Attention(), lambda out, y: out.sum(), q, None, None, "H100")
    expect("attention saves output, sums and a seed", step.saved_bytes == 2 * 4 * 96 * (16 * 4 + 4) + 16, step.saved_bytes)
    names = [op.work.name for op in step.ops]
    expect("attention is one kernel each way", [n for n in names if "attention" in n] == ["attention", "attention backward"],
           names)
    if hasattr(torch.ops.aten, "_fused_rms_norm"):
        step = joint.trace(torch.nn.RMSNorm(128), lambda out, y: out.sum(), x, None, None, "H100")
        expect("an RMS norm saves a number for each row", step.saved_bytes == 64 * 4, step.saved_bytes)

    class Cast(torch.nn.Module):
        def forward(self, x):
            with torch.autocast("cuda", torch.bfloat16):
                return drop[0](x).exp()

    step = joint.trace(Cast(), lambda out, y: out.sum(), x, None, None, "H100")
    expect("a GPU's autocast is seen", any(s.dtype == "bf16" for s in step.saved), [s.dtype for s in step.saved])
    net, loss, x, y = NETS["mixed"](True)
    cpu, gpu = (joint.trace(net, loss, x, y, "sgd", g) for g in (None, "A100-40"))
    expect("a GRU is one kernel", sum(op.work.kind == "rnn" for op in gpu.ops) == 2 and len(gpu.ops) < len(cpu.ops) / 2)
    listed = [k["name"] for k in gpu.kernels]
    expect("kernels are listed", listed == ["attention", "dropout", "rnn", "linear", "optimizer"] and not cpu.kernels, listed)


def plans_tell():
    net, loss, x, y = NETS["resnet20"](True)
    out = io.StringIO()
    made = mm.plan(net, loss, x, y, "AdamW", budget="20MiB", policies=("liveness", "recompute-swap"), gpu="H100", file=out)
    step, figures = made.step, made.figures()
    for word in ("peak of plain torch", "largest batch", "the minimum is", "recompute-swap", "estimated from data sheet",
                 "convolution:"):
        expect(f"the text says {word!r}", word in out.getvalue(), out.getvalue())
    liveness = made.needs["liveness"]["least_bytes"]
    most = step.peak_bytes + step.bytes_of("weight gradient") + 256 * len(step.tracer.storages)
    expect("liveness needs torch's peak, and gradients all along", step.peak_bytes * 0.9 < liveness <= most,
           (liveness, step.peak_bytes, most))
    expect("recompute-swap needs less", made.needs["recompute-swap"]["least_bytes"] <= liveness)
    rows = made.modules("recompute-swap")
    expect("modules have paths", any(row["module"] == "features.*.conv1" for row in rows), rows)
    budget, least = 64 << 20, lambda b, **k: joint.trace(net, loss, x, y, "AdamW", "H100", b).peak_bytes
    most = mm.plan(net, loss, x, y, "AdamW", budget, policies=(), file=out).largest["torch"]
    expect("the largest batch fits, and no larger one", least(most) <= budget < least(most + 1), most)
    expect("JSON can be written", json.loads(json.dumps(figures))["policies"][0]["policy"] == "liveness")
    expect("a compiled net is planned as it is without", joint.trace(
        torch.compile(net), loss, x, y, "AdamW", "H100").peak_bytes == step.peak_bytes)
    expect("a net on the meta device gives the same", joint.trace(
        net.to("meta"), loss, x.to("meta"), y.to("meta"), "AdamW", "H100").peak_bytes == step.peak_bytes)


def bad_input_is_refused():
    net, loss, x, y = NETS["resnet20"](True)
    quiet = dict(file=io.StringIO(), largest=False)

    class Asks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x) if self.linear.weight.sum() > 0 else x

    refused("a net that asks for values", "values")(lambda: mm.plan(Asks(), lambda out, y: out.sum(), torch.ones(1, 4), **quiet))
    refused("a batch that does not fit the net", "cannot be traced")(
        lambda: mm.plan(torch.nn.Linear(4, 4), lambda out, y: out.sum(), torch.ones(1, 5), **quiet))
    refused("a GPU", "no GPU")(lambda: mm.plan(net, loss, x, y, gpu="nothing", **quiet))
    refused("a budget", "12 apples")(lambda: mm.plan(net, loss, x, y, budget="12 apples", **quiet))
    refused("an optimizer's name", "torch.optim")(lambda: mm.plan(net, loss, x, y, "none", **quiet))
    refused("another net's optimizer", "not the net's")(
        lambda: mm.plan(net, loss, x, y, torch.optim.SGD(torch.nn.Linear(2, 2).parameters()), **quiet))
    refused("a policy", "nonsense")(lambda: mm.plan(net, loss, x, y, policies=("nonsense",), **quiet))
    refused("no loss", ".loss")(lambda: mm.plan(torch.nn.Identity(), None, ([x],), **quiet))
    expect("the net is as before", all(type(p) is torch.nn.Parameter for p in net.parameters()))


SCRIPT = """
import torch
def net():
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    return net, torch.nn.functional.cross_entropy, torch.ones(32, 64), torch.zeros(32, dtype=torch.long), "SGD"
def nothing():
    return 3
"""


def as_a_program():
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "nets.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPT)

        def call(*arguments):
            """What the program would do, in this process: (status, standard output, standard error)."""
            out, error, status = io.StringIO(), io.StringIO(), 0
            before, sys.argv, sys.path[:0] = sys.argv, ["plan", *arguments], [folder]
            try:
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                    runpy.run_module("mm_torch.plan", run_name="__main__")
            except SystemExit as ended:
                status = ended.code
            finally:
                sys.argv = before
                sys.path.remove(folder)
            return status, out.getvalue(), error.getvalue()

        names = {n: os.path.join(folder, f"out.{n}") for n in ("svg", "html", "json", "graph")}
        status, out, error = call(f"{script}:net", "--budget", "64MiB", "--policy", "liveness,recompute-swap",
                                  *(a for n, path in names.items() for a in (f"--{n}", path)))
        expect("a plan succeeds", status == 0 and "Sequential, batch 32" in out, (status, out, error))
        text = {n: open(path, encoding="utf-8").read() if os.path.exists(path) else "" for n, path in names.items()}
        expect("a picture", text["svg"].startswith("<svg") and text["svg"].count("<polygon") > 3, text["svg"][:300])
        expect("a page", text["html"].startswith("<!DOCTYPE") and "recompute-swap" in text["html"])
        expect("figures", json.loads(text["json"] or "{}").get("format") == "mm torch plan")
        if "MM_COMMAND" in os.environ and text["graph"]:
            done = subprocess.run([os.environ["MM_COMMAND"], "plan", "--graph", names["graph"], "--policy", "liveness"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            expect("the command reads the graph", done.returncode == 0, done.stderr)
        status, out, error = call("nets:net", "--budget", "1kB", "--json", "-", "--policy", "liveness", "--no-largest")
        expect("what does not fit exits with 1", status == 1 and json.loads(out)["torch"]["fits"] is False, (status, error))
        for arguments, word in ((("nets:none",), "none"), (("nets",), "MODULE:FUNCTION"), (("nets:nothing",), "returned int"),
                                (("nets:net", "--gpu", "x1"), "x1")):
            status, out, error = call(*arguments)
            expect(f"{arguments} is refused", status == 2 and word in error, (status, error))


# ---------------------------------------------------------------- of real size

def real_sizes():
    for name in nets():
        if name in NEEDS or name == "lstm":
            check_row(name, False, torch.optim.AdamW)


def seven_billion():
    if not importlib.util.find_spec("transformers"):
        return
    from transformers import LlamaConfig, LlamaForCausalLM
    with torch.device("meta"):
        net, tokens = LlamaForCausalLM(LlamaConfig()), torch.zeros(1, 2048, dtype=torch.long)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with contextlib.redirect_stderr(io.StringIO()):
        made = mm.plan(net, None, {"input_ids": tokens, "labels": tokens}, optimizer="AdamW", gpu="B200", largest=False)
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds, grown = after.ru_utime - before.ru_utime, (after.ru_maxrss - before.ru_maxrss) << 10
    print(f"{seconds:.1f} s of CPU time, the process grew by {grown >> 20} MiB")
    expect("7 B weights of f32", made.step.bytes_of("weight") == 4 * 6738415616, made.step.bytes_of("weight"))
    expect("it takes minutes, and no memory", seconds < 300 and grown < 2 << 30, (seconds, grown))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "--deep" in sys.argv:
        sys.argv.remove("--deep")
        run(seven_billion, real_sizes)  # in this order: the first one tells how much memory it took
    run(as_real_steps, nothing_changes, works_of_operators, rates_of_gpus, kernels_of_gpus, plans_tell, bad_input_is_refused,
        as_a_program)
