#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What PyTorch does with the same networks and batches: rows with the keys of `mm bench --json`.

    peer_pytorch.py --net resnet50 --batch 128 --precision tf32 --json peers.json
    gpu_summary.py --table mm.json peers.json        one table of rows from several files
    peer_pytorch.py --device cpu --net resnet20:128,resnet50:8,vgg16:8 --mm bazel-bin/tools/mm
                                                     both sides in alternating rounds, in one table

Networks are built here layer by layer as the zoo has them (torchvision's shapes), so torch alone is needed; GPTs (gpt2,
or gpt,layers=4,width=128,...) are peer_gpt.py's, trained by AdamW. bf16: under torch.autocast. Each run has a process
of its own: peaks are its own, and one that runs out of memory, or of its time, spoils no other. Rows are saved as they
are made. As in mm, a batch comes from pinned host memory in every iteration, and nothing waits for the device but the
last line of a run.

Modes: keep; channels_last (the same with images and weights in that order, as mm has them); checkpoint (each residual
block; plain networks in four segments); save_on_cpu (autograd's stash in pinned memory); compile:B (torch.compile with
activation_memory_budget B: PyTorch 2.4 or later; in bf16 with the order of channels_last, the faster one there);
compile_checkpoint (torch.compile of checkpoint). Outside of the peak: what the process takes of the device beside its
tensors, less what CUDA and its libraries take before there are any.

With --mm both sides take turns: in each round each mode and each run of mm bench, of each the median. A mode keeps its
process, and so what it has compiled and its memory, for all rounds. Without PyTorch there are mm's rows alone, and for
its modes rows that say so.

On the CPU both sides compute on --threads threads, by default on as many as the process may be scheduled on, and are
told apart by images or tokens a second (the median of the rounds) and by the process's resident peak. A fair peer needs
a fast BLAS: Debian's python3-torch with libopenblas0-pthread.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import re
import resource
import select
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import peer_gpt
from gpu_summary import make_parser, print_table, rate_of

MODES = ["keep", "channels_last", "checkpoint", "save_on_cpu", "compile:1.0", "compile:0.5", "compile:0.2",
         "compile_checkpoint"]
WARM_UP, LEAST_ITERATIONS = 8, 3
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4

# ---------------------------------------------------------------- networks


def bottleneck(nn, cin, width, stride):
    class Bottleneck(nn.Module):
        def __init__(self):
            super().__init__()
            cout = 4 * width
            self.main = nn.Sequential(
                nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout))
            self.past = None
            if stride != 1 or cin != cout:
                self.past = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.relu(self.main(x) + (x if self.past is None else self.past(x)))

    return Bottleneck()


def resnet(nn, stages):
    blocks = [nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                            nn.MaxPool2d(3, 2, 1))]
    cin = 64
    for stage, n in enumerate(stages):
        width = 64 << stage
        for i in range(n):
            blocks.append(bottleneck(nn, cin, width, 2 if stage and not i else 1))
            cin = 4 * width
    blocks.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000)))
    return blocks


def resnet_cifar(nn, n):
    """Of basic blocks, for 32x32, with projections where the shape changes."""
    def block(cin, cout, stride):
        class Basic(nn.Module):
            def __init__(self):
                super().__init__()
                self.main = nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout),
                                          nn.ReLU(inplace=True), nn.Conv2d(cout, cout, 3, 1, 1, bias=False),
                                          nn.BatchNorm2d(cout))
                self.past = nn.Identity() if cin == cout else nn.Sequential(
                    nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
                self.relu = nn.ReLU(inplace=True)

            def forward(self, x):
                return self.relu(self.main(x) + self.past(x))

        return Basic()

    blocks = [nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))]
    for stage in range(3):
        for i in range(n):
            first = stage and not i
            blocks.append(block(16 << (stage - 1) if first else 16 << stage, 16 << stage, 2 if first else 1))
    blocks.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)))
    return blocks


def segments_of(nn, layers, n=4):
    """Plain networks have no blocks: n parts of about as many layers. None begins with a ReLU, which works in place: a
    part's input must stay as it is to run the part again."""
    at = [len(layers) * i // n for i in range(n + 1)]
    for i in range(1, n):
        while isinstance(layers[at[i]], nn.ReLU):
            at[i] += 1
    return [nn.Sequential(*layers[a:b]) for a, b in zip(at, at[1:])]


def vgg(nn, groups):
    layers, cin = [], 3
    for group, n in enumerate(groups):
        cout = min(64 << group, 512)
        for _ in range(n):
            layers += [nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(inplace=True)]
            cin = cout
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
               nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000)]
    return segments_of(nn, layers)


def alexnet(nn):
    def conv(cin, cout, kernel, stride=1, pad=1):
        return [nn.Conv2d(cin, cout, kernel, stride, pad), nn.ReLU(inplace=True)]

    layers = conv(3, 64, 11, 4, 2) + [nn.MaxPool2d(3, 2)] + conv(64, 192, 5, 1, 2) + [nn.MaxPool2d(3, 2)]
    layers += conv(192, 384, 3) + conv(384, 256, 3) + conv(256, 256, 3) + [nn.MaxPool2d(3, 2), nn.Flatten()]
    layers += [nn.Dropout(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True), nn.Dropout(),
               nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000)]
    return segments_of(nn, layers)


NETS = {
    "alexnet": alexnet,
    "vgg11": lambda nn: vgg(nn, [1, 1, 2, 2, 2]),
    "vgg16": lambda nn: vgg(nn, [2, 2, 3, 3, 3]),
    "resnet20": lambda nn: resnet_cifar(nn, 3),
    "resnet32": lambda nn: resnet_cifar(nn, 5),
    "resnet50": lambda nn: resnet(nn, [3, 4, 6, 3]),
    "resnet101": lambda nn: resnet(nn, [3, 4, 23, 3]),
    "resnet152": lambda nn: resnet(nn, [3, 8, 36, 3]),
}

NAMES = ", ".join([*NETS, *peer_gpt.FAMILIES])
CIFAR = ("resnet20", "resnet32")  # images of 32x32 in 10 classes


def is_known(net):
    return net in NETS or peer_gpt.sizes_of(net) is not None


# ---------------------------------------------------------------- one run


def build(torch, name, mode):
    nn, sizes = torch.nn, peer_gpt.sizes_of(name)
    parts = nn.ModuleList(peer_gpt.parts_of(torch, sizes) if sizes else NETS[name](nn))
    again = len(parts) - 1 if mode.endswith("checkpoint") else 0  # not the last, whose backward comes at once

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = parts

        def forward(self, x):
            for i, part in enumerate(self.parts):
                if i < again:
                    x = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
                else:
                    x = part(x)
            return x

    return Net()


def step_seconds(torch, cuda, iterate, n):
    """Seconds of each of n iterations; those on a GPU are enqueued without waiting and timed by events."""
    if not cuda:
        times = []
        for i in range(n):
            begin = time.perf_counter()
            iterate(i)
            times.append(time.perf_counter() - begin)
        return times
    events = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    events[0].record()
    for i in range(n):
        iterate(i)
        events[i + 1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]


def warm_up(torch, cuda, iterate, seconds):
    """Iterations that are not measured, and how many fit into so many seconds. The first few choose algorithms, compile
    and fill the allocator's cache; those after them show how long one takes."""
    def sync():
        if cuda:
            torch.cuda.synchronize()

    for i in range(2 if cuda else 1):
        iterate(i)
    sync()
    begin = time.perf_counter()
    iterate(0)
    sync()
    each = time.perf_counter() - begin
    fit = max(LEAST_ITERATIONS, int(seconds / each))
    for i in range(min(WARM_UP, fit // 4) if cuda else 0):
        iterate(i)
    sync()
    return fit


def use_memory_budget(torch, budget):
    """For torch.compile: the share of what it would keep for the backward pass that it may keep."""
    if not hasattr(torch, "compile") or importlib.util.find_spec("torch._functorch") is None:
        raise RuntimeError("PyTorch %s has no torch.compile" % torch.__version__)
    import torch._functorch.config as config
    if not hasattr(config, "activation_memory_budget"):
        raise RuntimeError("torch.compile of PyTorch %s has no activation_memory_budget" % torch.__version__)
    config.activation_memory_budget = budget


def batch_of(torch, net, batch, image_size):
    """Samples and their labels on the host."""
    sizes = peer_gpt.sizes_of(net)
    if sizes:
        tokens = torch.randint(sizes["vocabulary"], (batch, sizes["context"] + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    image_size, classes = (32, 10) if net in CIFAR else (image_size, 1000)
    return torch.randn(batch, 3, image_size, image_size), torch.randint(classes, (batch,))


def optimizer_of(torch, net, model, cuda):
    if peer_gpt.sizes_of(net):
        return peer_gpt.optimizer_of(torch, model, **({"fused": True} if cuda else {}))
    return torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)


def bytes_in_use(torch):
    free, total = torch.cuda.mem_get_info()
    return total - free


def base_bytes(torch):
    """What is in use when CUDA, its convolutions and its products are there, beside torch's own memory; others' too."""
    image, matrix = torch.randn(1, 8, 16, 16, device="cuda"), torch.randn(64, 64, device="cuda")
    torch.nn.functional.conv2d(image, torch.randn(8, 8, 3, 3, device="cuda"))
    torch.mm(matrix, matrix)
    torch.cuda.synchronize()
    return bytes_in_use(torch) - torch.cuda.memory_reserved()


def measure(net, batch, mode, precision, device, iterations, seconds, cap, image_size, threads):
    """Yields nothing once it is warm, then what a row has, as often as asked."""
    import torch
    import torch.utils.checkpoint

    if threads:
        torch.set_num_threads(threads)
    cuda = device == "cuda"
    base = base_bytes(torch) if cuda else 0
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if cuda and cap:
        torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])
    compiled, half = mode.startswith("compile"), precision == "bf16"
    order = torch.channels_last if mode == "channels_last" or compiled and half else torch.contiguous_format
    model = build(torch, net, mode).to(device, memory_format=order)
    criterion = torch.nn.CrossEntropyLoss()

    def loss_of(x, y):
        return criterion(model(x).flatten(0, -2), y.flatten())

    if compiled:
        use_memory_budget(torch, float(mode.partition(":")[2] or 1))
        loss_of = torch.compile(loss_of)  # a GPT's scores are its largest map: the loss is compiled with them
    optimizer = optimizer_of(torch, net, model, cuda)
    hosts = [batch_of(torch, net, batch, image_size) for _ in range(2)]
    hosts = [(x.contiguous(memory_format=order) if x.dim() == 4 else x, y) for x, y in hosts]
    if cuda:
        hosts = [(x.pin_memory(), y.pin_memory()) for x, y in hosts]
    losses = []

    def iterate(i):
        x, y = (t.to(device, non_blocking=True) for t in hosts[i % 2])
        optimizer.zero_grad(set_to_none=True)
        saved = torch.autograd.graph.save_on_cpu(pin_memory=cuda) if mode == "save_on_cpu" else contextlib.nullcontext()
        with saved, torch.autocast(device, torch.bfloat16, enabled=half):
            loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    fit = warm_up(torch, cuda, iterate, seconds)
    beside = bytes_in_use(torch) - base - torch.cuda.memory_reserved() if cuda else 0  # before others begin
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    tokens = hosts[0][0].shape[1] if peer_gpt.sizes_of(net) else 0
    yield None
    while True:
        times = sorted(step_seconds(torch, cuda, iterate, min(iterations, fit)))
        median = statistics.median(times)
        peak, taken = (torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved() + beside) if cuda else (0, 0)
        yield {"peak_bytes": peak, "outside_bytes": max(0, taken - peak),
               "images_per_second": batch / median, "tokens_per_second": batch * tokens / median if tokens else None,
               "iteration_seconds_median": median,
               "iteration_seconds_p95": times[int(0.95 * (len(times) - 1) + 0.5)], "loss_first": losses[0].item(),
               "loss_last": losses[-1].item(), "iterations": len(losses), "status": "ok", "torch": torch.__version__,
               "threads": torch.get_num_threads() if not cuda else 0,
               "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def empty_row(args, net, batch, mode, precision):
    """The keys of mm's rows; what PyTorch has no such thing as is null, or none."""
    return {"net": net, "batch": batch, "device": args.device, "precision": precision, "policy": "pytorch " + mode,
            "policy_effective": "pytorch " + mode, "ladder_steps": 0, "codec": "", "budget_bytes": args.cap,
            "peak_bytes": 0, "predicted_peak_bytes": 0, "minimum_bytes": 0, "outside_bytes": 0, "stash_bytes": 0,
            "images_per_second": 0.0, "tokens_per_second": None, "iteration_seconds_median": 0.0,
            "iteration_seconds_p95": 0.0, "iteration_seconds_predicted": None, "simulator_error": None,
            "simulated": False, "calibrated": False, "codec_hidden_share": None, "codec_busy_seconds": 0.0,
            "compute_busy_seconds": 0.0, "step_ratio": None, "compute_ratio": None, "loss_first": None, "loss_last": None,
            "test_accuracy": None, "iterations": 0, "replays": 0, "status": ""}


def reason(stderr, code):
    """The line that names the error: what is said after it is advice."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return ((errors or lines or ["exit %d" % code])[-1])[:200]


def environment(args):
    """A hard limit is for segments that can grow: else what is lost between blocks counts, too."""
    here = dict(os.environ)
    if args.cap:
        here["PYTORCH_CUDA_ALLOC_CONF"] = here["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    return here


class Apart:
    """A mode in a process group of its own, which serves a row for each line that it is sent. What goes wrong becomes
    the row's status, and ends it."""

    def __init__(self, args, net, batch, mode, precision):
        self.args, self.empty = args, empty_row(args, net, batch, mode, precision)
        self.err = tempfile.TemporaryFile("w+")
        what = json.dumps([net, batch, mode, precision, args.device, args.iterations, args.seconds, args.cap,
                           args.image_size, args.threads])
        self.child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", what],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err,
                                      env=environment(args), start_new_session=True)
        try:
            self.status = self.answer()["status"]
        except BaseException:  # an interrupt, which does not reach its group
            self.close()
            raise

    def answer(self):
        """The next line that it writes, in time."""
        end, line = time.monotonic() + self.args.limit, b""
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                return self.close("took more than %g s" % self.args.limit)
            piece = os.read(self.child.stdout.fileno(), 1 << 16)
            if not piece:
                self.child.wait()
                self.err.seek(0)
                return self.close(reason(self.err.read(), self.child.returncode))
            line += piece
        return json.loads(line)

    def row(self):
        told = {"status": self.status}
        if self.status == "ok":
            with contextlib.suppress(OSError):  # a child that has ended: the answer says why
                self.child.stdin.write(b"\n")
                self.child.stdin.flush()
            told = self.answer()
        return dict(self.empty, **told)

    def close(self, status="closed"):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        for file in (self.child.stdin, self.child.stdout):
            with contextlib.suppress(OSError):
                file.close()
        self.status = status
        return {"status": status}


def run_apart(args, net, batch, mode, precision):
    apart = Apart(args, net, batch, mode, precision)
    try:
        return apart.row()
    finally:
        apart.close()


def serve(what):
    rows = measure(*what)
    out, sys.stdout = sys.stdout, sys.stderr  # a library that prints spoils no row
    next(rows)
    print(json.dumps({"status": "ok"}), file=out, flush=True)
    for _ in sys.stdin:
        print(json.dumps(next(rows)), file=out, flush=True)


# ---------------------------------------------------------------- both sides


def run_mm(args, net, batch, options):
    """Rows of mm bench, one for each policy that it came to; if it came to none, one that says why."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        command = [args.mm, "bench", "--net", net, "--batch", str(batch), "--iterations", str(args.iterations),
                   "--quiet", "--json", path, "--precision", args.precision] + options
        command += ["--threads", str(args.threads)] if args.device == "cpu" else ["--device", "cuda"]
        try:
            ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
                                   timeout=args.limit)
            status = reason(ended.stderr, ended.returncode)
        except subprocess.TimeoutExpired:
            status = "took more than %g s" % args.limit
        try:  # saved after each row, so there can be some
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        except OSError:
            print("peer_pytorch: %s: %s" % (" ".join(command), status), file=sys.stderr, flush=True)
        return [dict(empty_row(args, net, batch, "", args.precision), policy=" ".join(options), status=status)]


def is_pytorch(row):
    return row["policy"].startswith("pytorch ")


def row_key(row):
    return row["policy"], row.get("budget_bytes"), row.get("workspace_limit_bytes")


def medians(rounds):
    """Of each mode and policy the row of its median round, with the images a second of all rounds."""
    of = {}
    for row in (row for rows in rounds for row in rows):
        of.setdefault(row_key(row), []).append(row)
    result = []
    for rows in of.values():
        by_speed = sorted(rows, key=lambda row: row["images_per_second"])
        result.append(dict(by_speed[len(rows) // 2], rounds=[row["images_per_second"] for row in rows]))
        peaks = [row.get("host_peak_bytes") or 0 for row in rows]
        result[-1]["host_peak_bytes"] = max(peaks)
    return result


def rounds_of(args, net, batch):
    """Yields the rows of the present round each time that there are more: a run that is cut keeps them. mm's first run
    comes first, then PyTorch's modes, then mm's other runs: what is compared is there first. PyTorch's processes begin
    in the first round, one by one, each with a row, for each may take long."""
    runs = [shlex.split(run) for run in args.run or []]
    adam = ["--optimizer", "adamw"] if peer_gpt.sizes_of(net) else []
    runs = runs or [["--policies", policy] + adam for policy in args.policies.split(";")]  # each its resident peak
    peers, why, longest = [], why_none(args.device, net), 0
    try:
        for i in range(args.rounds):
            begin, rows = time.monotonic(), []
            rows += run_mm(args, net, batch, runs[0])
            yield rows
            for j, mode in enumerate(args.modes):
                if why:
                    rows.append(dict(empty_row(args, net, batch, mode, args.precision), status=why))
                    continue
                if i == 0:
                    starts = time.monotonic()
                    peers.append(Apart(args, net, batch, mode, args.precision))
                    begin += time.monotonic() - starts  # not what the next rounds take
                rows.append(peers[j].row())
                yield rows
            for run in runs[1:]:
                rows += run_mm(args, net, batch, run)
                yield rows
            yield rows
            longest = max(longest, time.monotonic() - begin)
            if args.end and time.monotonic() + longest > args.end:
                return
    finally:
        for peer in peers:
            peer.close()


def compare(args):
    """Alternating rounds; of each side the median, and its ratio to PyTorch's."""
    everything = []
    for net, batch in args.cases:
        rounds, rows = [], []
        for told in rounds_of(args, net, batch):
            if not rounds or rounds[-1] is not told:
                rounds.append(told)
            rows = sorted(medians(rounds), key=lambda row: not is_pytorch(row))
            if args.json:
                save(args.json, everything + rows)
        everything += rows
        for row in rows:
            print("%s: %s" % (row["policy"], ", ".join("%.1f" % each for each in row["rounds"])), file=sys.stderr)
    print("%-10s %5s %7s  %-36s %12s %8s %12s %8s" %
          ("net", "batch", "threads", "side", "per second", "to torch", "resident MiB", "to torch"))
    theirs = {(row["net"], row["batch"]): row for row in reversed(everything) if is_pytorch(row)}
    for row in everything:
        base = theirs.get((row["net"], row["batch"]), empty_row(args, row["net"], row["batch"], "", ""))
        speeds, peaks = ([r[key] for r in (row, base)] for key in ("images_per_second", "host_peak_bytes"))
        print("%-10s %5d %7d  %-36s %12s %8s %12.0f %8s%s" % (
            row["net"], row["batch"], args.threads, row["policy"], "%.1f %s" % rate_of(row),
            "%.2f" % (speeds[0] / speeds[1]) if speeds[1] else "-", peaks[0] / (1 << 20),
            "%.2f" % (peaks[0] / peaks[1]) if peaks[1] else "-", "" if row["status"] == "ok" else "  " + row["status"]))
    bad = [row for row in everything if row["status"] not in ("ok", why_none(args.device, row["net"]))]
    sys.exit("peer_pytorch: %s, %s: %s" % tuple(bad[0][key] for key in ("net", "policy", "status")) if bad else 0)


# ---------------------------------------------------------------- the command


def read_size(text):
    units = {"GIB": 1 << 30, "MIB": 1 << 20, "GB": 10**9, "MB": 10**6}
    for unit, factor in units.items():
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def read_modes(p, text):
    modes = text.split(",")
    for mode in modes:
        if mode in MODES:
            continue
        kind, _, budget = mode.partition(":")
        if kind != "compile" or not re.fullmatch(r"0(\.\d+)?|1(\.0+)?", budget):
            p.error("--modes %s: there are %s; compile takes any budget from 0 to 1" % (mode, ", ".join(MODES)))
    return modes


def read_batches(p, text):
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        p.error("--batch %s: must be whole numbers from 1" % text)
    return [int(batch) for batch in text.split(",")]


def parse():
    p = make_parser(__doc__)
    p.add_argument("--net", default="resnet50", help="of " + NAMES)
    p.add_argument("--batch", default="128")
    p.add_argument("--modes", help="of " + ", ".join(MODES) + " (all; with --mm channels_last)")
    p.add_argument("--precision", help="fp32, tf32, bf16, with --mm one of them (fp32,tf32; with --mm fp32)")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--cap", type=read_size, default=0, help="hard limit of device memory, as 12GiB")
    p.add_argument("--iterations", type=int, default=30, help="that are measured, at most (30)")
    p.add_argument("--seconds", type=float, default=30, help="that they may take: fewer, where one is slow (30)")
    p.add_argument("--limit", type=float, default=600, help="seconds of a run with all that it takes to begin (600)")
    p.add_argument("--image-size", type=int, default=224, help="pixels a side; another for residual networks alone (224)")
    p.add_argument("--mm", help="this mm beside it, in alternating rounds; --net takes NET:BATCH")
    p.add_argument("--policies", default="liveness;freelunch:rate=4,when=always", help="mm's, separated by ;")
    p.add_argument("--run", action="append", help="a run of mm bench in each round, as its options, instead of --policies")
    p.add_argument("--total", type=float, default=0, help="seconds: no round begins that is not expected to end in them")
    p.add_argument("--rounds", type=int, default=3, help="of both sides (3)")
    p.add_argument("--threads", type=int, default=0, help="of both sides on the CPU (those it may be scheduled on)")
    p.add_argument("--json", help="the rows, as an array, saved after each")
    p.add_argument("--serve", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.serve:
        return args
    args.end = time.monotonic() + args.total if args.total else 0
    args.modes = args.modes or ("channels_last" if args.mm else ",".join(MODES))
    args.precision = args.precision or ("fp32" if args.mm else "fp32,tf32")
    if args.mm and "," in args.precision:
        p.error("--precision %s: with --mm one at a time" % args.precision)
    args.threads = args.threads or (len(os.sched_getaffinity(0)) if args.device == "cpu" else 0)
    args.cases = []
    for each in re.split(r",(?![a-z]+=)", args.net):
        net, _, batch = each.partition(":")
        if not is_known(net) and not args.mm:
            p.error("--net %s: there are %s" % (net, NAMES))
        args.cases += [(net, b) for b in read_batches(p, batch or args.batch)]
    for precision in args.precision.split(","):
        if precision not in ("fp32", "tf32", "bf16"):
            p.error("--precision %s: must be fp32, tf32 or bf16" % precision)
    for option in ("iterations", "rounds", "seconds", "limit", "image_size"):
        if not getattr(args, option) > 0:
            p.error("--%s: must be more than 0" % option.replace("_", "-"))
    args.modes = read_modes(p, args.modes)
    return args


def why_none(device, net):
    """Why there is no PyTorch to compare with; None: there is."""
    if importlib.util.find_spec("torch") is None:
        return "no torch"
    import torch
    if device == "cuda" and not torch.cuda.is_available():
        return "PyTorch finds no CUDA device; --device cpu runs without"
    return None if is_known(net) else "no %s in PyTorch; there are %s" % (net, NAMES)


def save(path, rows):
    """A whole file at any time."""
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    os.replace(path + ".tmp", path)


def main():
    args = parse()
    if args.serve:
        serve(json.loads(args.serve))
        return
    why = why_none(args.device, args.cases[0][0])
    if why and not args.mm:
        sys.exit("peer_pytorch: " + ("there is no PyTorch here (module torch)" if why == "no torch" else why))
    for number in (signal.SIGINT, signal.SIGTERM):  # not without the child, which no signal to the group reaches
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    if args.mm:
        compare(args)
        return
    rows = []
    for net, batch in args.cases:
        for precision in args.precision.split(","):
            for mode in args.modes:
                rows.append(run_apart(args, net, batch, mode, precision))
                print("%s, batch %s, %s, %s: %s" % (net, batch, precision, mode, rows[-1]["status"]), file=sys.stderr,
                      flush=True)
                if args.json:
                    save(args.json, rows)
    print_table(rows)
    sys.exit(0 if any(row["status"] == "ok" for row in rows) else 1)


if __name__ == "__main__":
    main()
