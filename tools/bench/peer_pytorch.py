#!/usr/bin/env python3
"""What PyTorch does with the same networks and batches: rows with the keys of `mm bench --json`.

    peer_pytorch.py --net resnet50 --batch 128 --precision tf32 --json peers.json
    gpu_summary.py --table mm.json peers.json        one table of rows from several files
    peer_pytorch.py --device cpu --net resnet20:128,resnet50:8,vgg16:8 --mm bazel-bin/tools/mm
                                                     both sides on the CPU, in alternating rounds, in one table

Networks are built here layer by layer as the zoo has them (torchvision's shapes), so torch alone is needed. Each run has a
process of its own: peaks are its own, and one that runs out of memory, or of its time, spoils no other. Rows are saved as
they are made. As in mm, a batch comes from pinned host memory in every iteration, and nothing waits for the device but the
last line of a run.

Modes: keep; channels_last (the same with images and weights in that order, as mm has them); checkpoint (each residual
block; plain networks in four segments); save_on_cpu (autograd's stash in pinned memory); compile:B (torch.compile with
activation_memory_budget B: PyTorch 2.4 or later). Outside of the peak: what the process takes of the device beside its
tensors, less what CUDA and its libraries take before there are any.

On the CPU both sides compute on --threads threads, by default on as many as the process may be scheduled on, and are told
apart by images a second (the median of the rounds) and by the process's resident peak. A fair peer needs a fast BLAS:
Debian's python3-torch with libopenblas0-pthread.
"""
import argparse
import importlib.util
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from gpu_summary import make_parser, print_table

MODES = ["keep", "channels_last", "checkpoint", "save_on_cpu", "compile:1.0", "compile:0.5", "compile:0.2"]
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

CIFAR = ("resnet20", "resnet32")  # images of 32x32 in 10 classes

# ---------------------------------------------------------------- one run


def build(torch, name, mode):
    nn = torch.nn
    parts = nn.ModuleList(NETS[name](nn))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = parts

        def forward(self, x):
            for part in self.parts:
                if mode == "checkpoint" and part is not self.parts[-1]:  # whose backward comes at once
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


def run(net, batch, mode, precision, device, iterations, seconds, cap, image_size, threads):
    import torch
    import torch.utils.checkpoint

    if threads:
        torch.set_num_threads(threads)
    image_size, classes = (32, 10) if net in CIFAR else (image_size, 1000)

    cuda = device == "cuda"
    base = base_bytes(torch) if cuda else 0
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if cuda and cap:
        torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])
    order = torch.channels_last if mode == "channels_last" else torch.contiguous_format
    model = build(torch, net, mode).to(device, memory_format=order)
    forward = model
    if mode.startswith("compile:"):
        use_memory_budget(torch, float(mode.split(":")[1]))
        forward = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
    criterion = torch.nn.CrossEntropyLoss()
    hosts = [(torch.randn(batch, 3, image_size, image_size).contiguous(memory_format=order),
              torch.randint(classes, (batch,))) for _ in range(2)]
    if cuda:
        hosts = [(x.pin_memory(), y.pin_memory()) for x, y in hosts]
    losses = []

    def iterate(i):
        x, y = (t.to(device, non_blocking=True) for t in hosts[i % 2])
        optimizer.zero_grad(set_to_none=True)
        if mode == "save_on_cpu":
            with torch.autograd.graph.save_on_cpu(pin_memory=cuda):
                loss = criterion(forward(x), y)
        else:
            loss = criterion(forward(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    fit = warm_up(torch, cuda, iterate, seconds)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times = sorted(step_seconds(torch, cuda, iterate, min(iterations, fit)))
    peak = outside = 0
    if cuda:
        peak = torch.cuda.max_memory_allocated()
        outside = max(0, bytes_in_use(torch) - base - peak)
    median = statistics.median(times)
    return {"peak_bytes": peak, "outside_bytes": outside, "images_per_second": batch / median,
            "iteration_seconds_median": median, "iteration_seconds_p95": times[int(0.95 * (len(times) - 1) + 0.5)],
            "loss_first": losses[0].item(), "loss_last": losses[-1].item(), "iterations": len(losses), "status": "ok",
            "torch": torch.__version__, "threads": torch.get_num_threads() if not cuda else 0,
            "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def empty_row(args, net, batch, mode, precision):
    """The keys of mm's rows; what PyTorch has no such thing as is null, or none."""
    return {"net": net, "batch": batch, "device": args.device, "precision": precision, "policy": "pytorch " + mode,
            "policy_effective": "pytorch " + mode, "ladder_steps": 0, "codec": "", "budget_bytes": args.cap,
            "peak_bytes": 0, "predicted_peak_bytes": 0, "minimum_bytes": 0, "outside_bytes": 0, "stash_bytes": 0,
            "images_per_second": 0.0, "iteration_seconds_median": 0.0, "iteration_seconds_p95": 0.0,
            "iteration_seconds_predicted": None, "simulator_error": None, "simulated": False, "calibrated": False,
            "codec_hidden_share": None, "codec_busy_seconds": 0.0, "compute_busy_seconds": 0.0, "step_ratio": None,
            "compute_ratio": None, "loss_first": None, "loss_last": None, "test_accuracy": None, "iterations": 0,
            "replays": 0, "status": ""}


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


def run_apart(args, net, batch, mode, precision):
    """In a process group of its own; what goes wrong becomes the row's status."""
    row = empty_row(args, net, batch, mode, precision)
    what = json.dumps([net, batch, mode, precision, args.device, args.iterations, args.seconds, args.cap,
                       args.image_size, args.threads])
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--one", what], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, env=environment(args), start_new_session=True)
    try:
        out, err = child.communicate(timeout=args.limit)
    except subprocess.TimeoutExpired:
        row["status"] = "took more than %g s" % args.limit
        return row
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode == 0:
        row.update(json.loads(out.splitlines()[-1]))
    else:
        row["status"] = reason(err, child.returncode)
    return row


# ---------------------------------------------------------------- both sides, on the CPU


def run_mm(args, net, batch, policies):
    """Rows of mm bench, one for each policy."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows")
        command = [args.mm, "bench", "--net", net, "--batch", str(batch), "--threads", str(args.threads), "--policies",
                   policies, "--iterations", str(args.iterations), "--quiet", "--json", path]
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
                               timeout=args.limit)
        if not os.path.exists(path):
            sys.exit("peer_pytorch: %s: %s" % (" ".join(command), reason(ended.stderr, ended.returncode)))
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def compare(args):
    """Alternating rounds; of each side the median, and its ratio to PyTorch's."""
    lines = []
    for net, batch in args.cases:
        speeds, peaks = {}, {}
        for _ in range(args.rounds):
            rows = [run_apart(args, net, batch, "channels_last", "fp32")]
            for policy in args.policies.split(";"):  # each in a process of its own: its resident peak
                rows += run_mm(args, net, batch, policy)
            for row in rows:
                if row["status"] != "ok":
                    sys.exit("peer_pytorch: %s, %s: %s" % (net, row["policy"], row["status"]))
                speeds.setdefault(row["policy"], []).append(row["images_per_second"])
                peaks[row["policy"]] = max(peaks.get(row["policy"], 0), row["host_peak_bytes"] or 0)
        torch_speed, torch_peak = (next(iter(of.values())) for of in (speeds, peaks))
        for policy, rounds in speeds.items():
            speed = statistics.median(rounds)
            lines.append((net, batch, args.threads, policy, speed, speed / statistics.median(torch_speed),
                          peaks[policy] / (1 << 20), peaks[policy] / torch_peak))
            print("%s: %s" % (policy, ", ".join("%.1f" % each for each in rounds)), file=sys.stderr, flush=True)
    print("%-10s %5s %7s  %-36s %8s %8s %12s %8s" %
          ("net", "batch", "threads", "side", "images/s", "to torch", "resident MiB", "to torch"))
    for line in lines:
        print("%-10s %5d %7d  %-36s %8.1f %8.2f %12.0f %8.2f" % line)


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
    p.add_argument("--net", default="resnet50", help="of " + ", ".join(NETS))
    p.add_argument("--batch", default="128")
    p.add_argument("--modes", default=",".join(MODES))
    p.add_argument("--precision", default="fp32,tf32")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--cap", type=read_size, default=0, help="hard limit of device memory, as 12GiB")
    p.add_argument("--iterations", type=int, default=30, help="that are measured, at most (30)")
    p.add_argument("--seconds", type=float, default=30, help="that they may take: fewer, where one is slow (30)")
    p.add_argument("--limit", type=float, default=600, help="seconds of a run with all that it takes to begin (600)")
    p.add_argument("--image-size", type=int, default=224, help="pixels a side; another for residual networks alone (224)")
    p.add_argument("--mm", help="with --device cpu: mm beside it, in alternating rounds; --net takes NET:BATCH")
    p.add_argument("--policies", default="liveness;freelunch:rate=4,when=always", help="mm's, separated by ;")
    p.add_argument("--rounds", type=int, default=3, help="of both sides (3)")
    p.add_argument("--threads", type=int, default=0, help="of both sides on the CPU (those it may be scheduled on)")
    p.add_argument("--json", help="the rows, as an array, saved after each")
    p.add_argument("--one", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        return args
    if args.mm and args.device != "cpu":
        p.error("--mm: both sides are compared on the CPU; it goes with --device cpu")
    args.threads = args.threads or (len(os.sched_getaffinity(0)) if args.device == "cpu" else 0)
    args.cases = []
    for each in args.net.split(","):
        net, _, batch = each.partition(":")
        if net not in NETS:
            p.error("--net %s: there are %s" % (net, ", ".join(NETS)))
        args.cases += [(net, b) for b in read_batches(p, batch or args.batch)]
    for precision in args.precision.split(","):
        if precision not in ("fp32", "tf32"):
            p.error("--precision %s: must be fp32 or tf32" % precision)
    for option in ("iterations", "rounds", "seconds", "limit", "image_size"):
        if not getattr(args, option) > 0:
            p.error("--%s: must be more than 0" % option.replace("_", "-"))
    args.modes = read_modes(p, args.modes)
    return args


def check_torch(device):
    try:
        import torch
    except ImportError:
        sys.exit("peer_pytorch: there is no PyTorch here (module torch)")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("peer_pytorch: PyTorch finds no CUDA device; --device cpu runs without")


def save(path, rows):
    """A whole file at any time."""
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    os.replace(path + ".tmp", path)


def main():
    args = parse()
    if args.one:
        print(json.dumps(run(*json.loads(args.one))))
        return
    check_torch(args.device)
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
