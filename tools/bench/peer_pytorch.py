#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the same networks and batches with PyTorch; prints and saves rows with the keys of `mm bench --json`.

    peer_pytorch.py --net resnet50 --batch 128 --precision tf32 --json peers.json
    gpu_summary.py --table mm.json peers.json        one table of rows from several files
    peer_pytorch.py --device cpu --net resnet20:128,resnet50:8,vgg16:8 --mm bazel-bin/tools/mm
                                                     both sides in alternating rounds, in one table

Networks are built layer by layer as in the zoo (torchvision's shapes), so only torch is needed. GPTs (gpt2, or
gpt,layers=4,width=128,...) use AdamW. bf16: under torch.autocast. Each run has a process of its own, so that its peak
is its own, and running out of memory or time affects no other run. Rows are saved as they are made. As in mm, each
batch comes from pinned host memory, and nothing waits for the device until a run's end.

Modes: keep; channels_last (keep with images and weights in that order, as in mm); checkpoint (each residual block;
plain networks in four segments); save_on_cpu (autograd's saved tensors in pinned memory); compile:B (torch.compile with
activation_memory_budget B, PyTorch 2.4 or later; in bf16 in channels_last order, which is faster); compile_checkpoint
(torch.compile of checkpoint). On the CPU all modes but keep are in channels_last order. outside_bytes: the process's
device memory beside its tensors, less what CUDA and its libraries take before there are any.

With --mm both sides take turns: each round runs each mode and each run of mm bench; the median of rounds counts. A mode
keeps its process, with compiled code and memory, for all rounds. Without PyTorch only mm runs, and the rows of
PyTorch's modes say so.

On the CPU both sides compute on --threads threads (default: as many as the process may be scheduled on), and are
compared by images or tokens a second (the median of rounds) and by the process's resident peak. peer_host.py runs six
networks so.
"""
import contextlib
import importlib.util
import json
import os
import re
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_summary import make_parser, print_table, rate_of
from torch_nets import NAMES, batch_of, build, is_known, optimizer_of, sizes_of
from torch_rig import EXPANDABLE, Apart, reason, step_seconds, warm_up

MODES = ["keep", "channels_last", "checkpoint", "save_on_cpu", "compile:1.0", "compile:0.5", "compile:0.2",
         "compile_checkpoint"]

# ---------------------------------------------------------------- one run


def use_memory_budget(torch, budget):
    """Limits what torch.compile keeps for the backward pass to the share `budget` of what it would keep."""
    if not hasattr(torch, "compile") or importlib.util.find_spec("torch._functorch") is None:
        raise RuntimeError("PyTorch %s has no torch.compile" % torch.__version__)
    import torch._functorch.config as config
    if not hasattr(config, "activation_memory_budget"):
        raise RuntimeError("torch.compile of PyTorch %s has no activation_memory_budget" % torch.__version__)
    config.activation_memory_budget = budget


def bytes_in_use(torch):
    free, total = torch.cuda.mem_get_info()
    return total - free


def base_bytes(torch):
    """Device bytes in use (by all processes) once CUDA, cuDNN and cuBLAS are loaded, without torch's tensors."""
    image, matrix = torch.randn(1, 8, 16, 16, device="cuda"), torch.randn(64, 64, device="cuda")
    torch.nn.functional.conv2d(image, torch.randn(8, 8, 3, 3, device="cuda"))
    torch.mm(matrix, matrix)
    torch.cuda.synchronize()
    return bytes_in_use(torch) - torch.cuda.memory_reserved()


def measure(net, batch, mode, precision, device, iterations, seconds, cap, image_size, threads):
    """Yields None once it is warm, then the figures of a row whenever asked."""
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
    last = mode == "channels_last" or compiled and half or not cuda and mode != "keep"
    order = torch.channels_last if last else torch.contiguous_format
    model = build(torch, net, mode).to(device, memory_format=order)
    criterion = torch.nn.CrossEntropyLoss()

    def loss_of(x, y):
        return criterion(model(x).flatten(0, -2), y.flatten())

    if compiled:
        use_memory_budget(torch, float(mode.partition(":")[2] or 1))
        loss_of = torch.compile(loss_of)  # with the loss: a GPT's scores are its largest map
    optimizer = optimizer_of(torch, net, model)
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
    beside = bytes_in_use(torch) - base - torch.cuda.memory_reserved() if cuda else 0  # before other processes begin
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    tokens = hosts[0][0].shape[1] if sizes_of(net) else 0
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
    """A row with the keys of mm's rows; figures that PyTorch does not have are null or 0."""
    return {"net": net, "batch": batch, "device": args.device, "precision": precision, "policy": "pytorch " + mode,
            "policy_effective": "pytorch " + mode, "ladder_steps": 0, "codec": "", "budget_bytes": args.cap,
            "peak_bytes": 0, "predicted_peak_bytes": 0, "minimum_bytes": 0, "outside_bytes": 0, "stash_bytes": 0,
            "images_per_second": 0.0, "tokens_per_second": None, "iteration_seconds_median": 0.0,
            "iteration_seconds_p95": 0.0, "iteration_seconds_predicted": None, "simulator_error": None,
            "simulated": False, "calibrated": False, "codec_hidden_share": None, "codec_busy_seconds": 0.0,
            "compute_busy_seconds": 0.0, "step_ratio": None, "compute_ratio": None, "loss_first": None, "loss_last": None,
            "test_accuracy": None, "iterations": 0, "replays": 0, "status": ""}


def environment(args):
    """The child's environment."""
    return EXPANDABLE if args.cap else {}


def start(args, net, batch, mode, precision):
    """Starts a process that measures a mode. Returns it, and a row to complete with its figures."""
    what = [net, batch, mode, precision, args.device, args.iterations, args.seconds, args.cap, args.image_size,
            args.threads]
    apart = Apart("peer_pytorch", "measure", what, args.limit, **environment(args))
    return apart, empty_row(args, net, batch, mode, precision)


# ---------------------------------------------------------------- both sides


def run_mm(args, net, batch, options):
    """Runs mm bench. Returns a row for each policy that it reached; if it reached none, a row that says why."""
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
        try:  # it saves after each row, so some may be there
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
    """For each mode and policy the row of its median round, with the images/s of all rounds."""
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
    """Yields the rows of the present round whenever there is a new one, so that a run that is cut keeps them. mm's
    first run comes first, then PyTorch's modes, then mm's other runs, so that the main comparison is there first.
    PyTorch's processes start in the first round, one by one, since each start may take long."""
    runs = [shlex.split(run) for run in args.run or []]
    adam = ["--optimizer", "adamw"] if sizes_of(net) else []
    runs = runs or [["--policies", policy] + adam for policy in args.policies.split(";")]  # a process for each peak
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
                    peers.append(start(args, net, batch, mode, args.precision))
                    begin += time.monotonic() - starts  # later rounds do not start processes
                peer, empty = peers[j]
                rows.append(dict(empty, **peer.row()))
                yield rows
            for run in runs[1:]:
                rows += run_mm(args, net, batch, run)
                yield rows
            yield rows
            longest = max(longest, time.monotonic() - begin)
            if args.end and time.monotonic() + longest > args.end:
                return
    finally:
        for peer, _ in peers:
            peer.close()


def compare(args):
    """Runs alternating rounds, and prints each side's median and its ratio to PyTorch's."""
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


def usable_threads():
    return len(os.sched_getaffinity(0))


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
    p.add_argument("--iterations", type=int, default=30, help="measured iterations, at most (30)")
    p.add_argument("--seconds", type=float, default=30, help="for these iterations; slow ones are fewer (30)")
    p.add_argument("--limit", type=float, default=600, help="seconds of a run, with its start (600)")
    p.add_argument("--image-size", type=int, default=224, help="pixels a side; others than 224 only for residual networks (224)")
    p.add_argument("--mm", help="run this mm, too, in alternating rounds; --net takes NET:BATCH")
    p.add_argument("--policies", default="liveness;freelunch:rate=4,when=always", help="mm's policies, separated by ;")
    p.add_argument("--run", action="append", help="options of a run of mm bench in each round, instead of --policies; may be repeated")
    p.add_argument("--total", type=float, default=0, help="seconds for all rounds: a round that would end later is not begun")
    p.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    p.add_argument("--threads", type=int, default=0, help="threads of both sides on the CPU (as many as may be scheduled)")
    p.add_argument("--json", help="the rows, as an array, saved after each")
    args = p.parse_args()
    args.end = time.monotonic() + args.total if args.total else 0
    args.modes = args.modes or ("channels_last" if args.mm else ",".join(MODES))
    args.precision = args.precision or ("fp32" if args.mm else "fp32,tf32")
    if args.mm and "," in args.precision:
        p.error("--precision %s: with --mm give one" % args.precision)
    args.threads = args.threads or (usable_threads() if args.device == "cpu" else 0)
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
    """Why PyTorch cannot be compared with; None: it can."""
    if importlib.util.find_spec("torch") is None:
        return "no torch"
    import torch
    if device == "cuda" and not torch.cuda.is_available():
        return "PyTorch finds no CUDA device; --device cpu runs without"
    return None if is_known(net) else "no %s in PyTorch; there are %s" % (net, NAMES)


def save(path, rows):
    """Replaces the file as a whole."""
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    os.replace(path + ".tmp", path)


def main():
    args = parse()
    why = why_none(args.device, args.cases[0][0])
    if why and not args.mm:
        sys.exit("peer_pytorch: " + ("there is no PyTorch here (module torch)" if why == "no torch" else why))
    for number in (signal.SIGINT, signal.SIGTERM):  # closes the child, too, whose group gets no signal
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    if args.mm:
        compare(args)
        return
    rows = []
    for net, batch in args.cases:
        for precision in args.precision.split(","):
            for mode in args.modes:
                peer, empty = start(args, net, batch, mode, precision)
                try:
                    rows.append(dict(empty, **peer.row()))
                finally:
                    peer.close()
                print("%s, batch %s, %s, %s: %s" % (net, batch, precision, mode, rows[-1]["status"]), file=sys.stderr,
                      flush=True)
                if args.json:
                    save(args.json, rows)
    print_table(rows)
    sys.exit(0 if any(row["status"] == "ok" for row in rows) else 1)


if __name__ == "__main__":
    main()
