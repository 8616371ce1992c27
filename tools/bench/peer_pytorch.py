#!/usr/bin/env python3
"""What PyTorch does with the same networks and batches: rows with the keys of `mm bench --json`.

    peer_pytorch.py --net resnet50 --batch 128 --precision tf32 --json peers.json
    peer_pytorch.py --table mm.json peers.json        one table of rows from several files

Networks are built here layer by layer as the zoo has them (torchvision's shapes), so torch alone is needed. Each run has a
process of its own: peaks are its own, and one that runs out of memory spoils no other. As in mm, a batch comes from pinned
host memory in every iteration, and nothing waits for the device but the last line of a run.

Modes: keep; channels_last (the same with images and weights in that order, as mm has them); checkpoint (each residual block; plain networks in four segments); save_on_cpu (autograd's stash in pinned
memory); compile:B (torch.compile with activation_memory_budget B). Outside of the peak: what the process takes of the
device beside its tensors, less what CUDA and its libraries take before there are any.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MODES = ["keep", "channels_last", "checkpoint", "save_on_cpu", "compile:1.0", "compile:0.5", "compile:0.2"]
WARM_UP = 8
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
    "resnet50": lambda nn: resnet(nn, [3, 4, 6, 3]),
    "resnet101": lambda nn: resnet(nn, [3, 4, 23, 3]),
    "resnet152": lambda nn: resnet(nn, [3, 8, 36, 3]),
}

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


def run(net, batch, mode, precision, device, iterations, cap):
    import torch
    import torch.utils.checkpoint

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
        import torch._functorch.config
        torch._functorch.config.activation_memory_budget = float(mode.split(":")[1])
        forward = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
    criterion = torch.nn.CrossEntropyLoss()
    hosts = [(torch.randn(batch, 3, 224, 224).contiguous(memory_format=order), torch.randint(1000, (batch,))) for _ in range(2)]
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

    for i in range(WARM_UP if cuda else 1):
        iterate(i)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    times = sorted(step_seconds(torch, cuda, iterate, iterations))
    peak = outside = 0
    if cuda:
        peak = torch.cuda.max_memory_allocated()
        outside = max(0, bytes_in_use(torch) - base - peak)
    median = statistics.median(times)
    return {"peak_bytes": peak, "outside_bytes": outside, "images_per_second": batch / median,
            "iteration_seconds_median": median, "iteration_seconds_p95": times[int(0.95 * (len(times) - 1) + 0.5)],
            "loss_first": losses[0].item(), "loss_last": losses[-1].item(), "iterations": len(losses), "status": "ok",
            "torch": torch.__version__}


def empty_row(args, net, batch, mode, precision):
    return {"net": net, "batch": batch, "device": args.device, "policy": "pytorch " + mode, "codec": "",
            "precision": precision, "budget_bytes": args.cap, "peak_bytes": 0, "predicted_peak_bytes": 0,
            "minimum_bytes": 0, "outside_bytes": 0, "stash_bytes": 0, "images_per_second": 0,
            "iteration_seconds_median": 0, "iteration_seconds_p95": 0, "codec_hidden_share": None,
            "codec_busy_seconds": 0, "loss_first": None, "loss_last": None, "test_accuracy": None, "iterations": 0,
            "replays": 0, "status": ""}


def run_apart(args, net, batch, mode, precision):
    """In a process of its own; what goes wrong becomes the row's status."""
    row = empty_row(args, net, batch, mode, precision)
    what = json.dumps([net, batch, mode, precision, args.device, args.iterations, args.cap])
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--one", what], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        row.update(json.loads(done.stdout.splitlines()[-1]))
    else:
        words = done.stderr.strip().splitlines() or ["exit %d" % done.returncode]
        row["status"] = words[-1][:200]
    return row


# ---------------------------------------------------------------- the table


def size(n):
    return "%.2f GB" % (n / 1e9) if n else "-"


def print_table(rows):
    """Speed beside liveness of the same network, batch and precision, and beside torch.compile that keeps all."""
    heads = ["net", "batch", "precision", "policy", "budget", "peak", "outside", "img/s", "hidden", "/ liveness",
             "/ compile", "status"]

    def key(row):
        return row["net"], row["batch"], row.get("precision", "-")

    speeds = {(key(r), r["policy"]): r["images_per_second"] for r in rows if r["images_per_second"]}

    def ratio(row, policy):
        base = speeds.get((key(row), policy))
        return "%.2f" % (row["images_per_second"] / base) if base and row["images_per_second"] else "-"

    cells = [heads]
    for r in sorted(rows, key=key):
        hidden = r.get("codec_hidden_share")
        cells.append([r["net"], str(r["batch"]), r.get("precision", "-"), r["policy"], size(r["budget_bytes"]),
                      size(r["peak_bytes"]), size(r["outside_bytes"]),
                      "%.1f" % r["images_per_second"] if r["images_per_second"] else "-",
                      "-" if hidden is None else "%.0f%%" % (100 * hidden), ratio(r, "liveness"),
                      ratio(r, "pytorch compile:1.0"), r["status"]])
    widths = [max(len(c[i]) for c in cells) for i in range(len(heads))]
    for c in cells:
        print("  ".join(c[i].ljust(widths[i]) if i in (0, 3) else c[i].rjust(widths[i])
                        for i in range(len(heads) - 1)), c[-1], sep="  ")


# ---------------------------------------------------------------- the command


def read_size(text):
    units = {"GIB": 1 << 30, "MIB": 1 << 20, "GB": 10**9, "MB": 10**6}
    for unit, factor in units.items():
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--net", default="resnet50", help="of " + ", ".join(NETS))
    p.add_argument("--batch", default="128")
    p.add_argument("--modes", default=",".join(MODES))
    p.add_argument("--precision", default="fp32,tf32")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    p.add_argument("--cap", type=read_size, default=0, help="hard limit of device memory, as 12GiB")
    p.add_argument("--iterations", type=int, default=30)
    p.add_argument("--json", help="the rows, as an array")
    p.add_argument("--table", nargs="+", metavar="FILE", help="runs nothing: prints the rows of these files")
    p.add_argument("--one", help=argparse.SUPPRESS)
    args = p.parse_args()
    for net in args.net.split(","):
        if net not in NETS:
            p.error("--net %s: there are %s" % (net, ", ".join(NETS)))
    for mode in args.modes.split(","):
        if mode not in ("keep", "channels_last", "checkpoint", "save_on_cpu") and not mode.startswith("compile:"):
            p.error("--modes %s: there are %s" % (mode, ", ".join(MODES)))
    for precision in args.precision.split(","):
        if precision not in ("fp32", "tf32"):
            p.error("--precision %s: must be fp32 or tf32" % precision)
    return args


def check_torch(device):
    try:
        import torch
    except ImportError:
        sys.exit("peer_pytorch: there is no PyTorch here (module torch)")
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("peer_pytorch: PyTorch finds no CUDA device; --device cpu runs without")


def main():
    args = parse()
    if args.one:
        print(json.dumps(run(*json.loads(args.one))))
        return
    if args.table:
        rows = []
        for path in args.table:
            with open(path, encoding="utf-8") as file:
                rows += json.load(file)
        print_table(rows)
        return
    check_torch(args.device)
    rows = []
    for net in args.net.split(","):
        for batch in args.batch.split(","):
            for precision in args.precision.split(","):
                for mode in args.modes.split(","):
                    rows.append(run_apart(args, net, int(batch), mode, precision))
                    print("%s, batch %s, %s, %s: %s" % (net, batch, precision, mode, rows[-1]["status"]),
                          file=sys.stderr)
    print_table(rows)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
