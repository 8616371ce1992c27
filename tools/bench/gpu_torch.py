#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures ResNet-50 in PyTorch under bf16 autocast: eager, with save_on_cpu, and in budgets of mm_torch.

Prints a row for each, measured in a process of its own: images a second (by the median step), the allocator's peak,
mm's arena, and the budget of mm's rows: eager's peak, less (1 - share) of what eager saves. Then it prints the goals,
with pass or fail. What eager saves is measured as the bytes that mm moves in one unplanned step. On a CPU torch's
allocator counts nothing: there the budget is `share` of what is saved, for mm alone, and goals are printed only to try
this program.

It works with torch from 2.6 on, and was tried on a CPU alone. MM_LIBRARY and PYTHONPATH say where mm_torch is.
Exits with 1 if a row could not be measured."""

import argparse
import json
import os
import statistics
import sys

from gpu_summary import lines_of
from torch_nets import build, optimizer_of
from torch_rig import EXPANDABLE, row_apart, step_seconds, warm_up

LOSSLESS, LOSSY = "swap-async", "freelunch:rate=4,eligible=all"  # eligible=all: other choices would not fit in half
ROWS = "eager", "save_on_cpu", LOSSLESS, LOSSY
# Goals: lossless over save_on_cpu's images/s; lossy over eager's. By an estimate the first is out of reach at batch 128
# in half: 2.6 GB out and back at 55 GB/s take 95 ms, which nothing hides, and save_on_cpu about 335 ms: 3.3 times at
# best.
SPEEDUP, SHARE_OF_EAGER = 5.0, 0.9


def made(torch, args):
    """Builds the network, and returns a function that runs a training step inside a context."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    net = build(torch, "resnet50", "keep").to(args.device)
    optimizer = optimizer_of(torch, "resnet50", net)
    criterion = torch.nn.CrossEntropyLoss()
    x = torch.randn(args.batch, 3, args.image_size, args.image_size, device=args.device)
    y = torch.randint(1000, (args.batch,), device=args.device)

    def step(context):
        optimizer.zero_grad(set_to_none=True)
        with context:
            with torch.autocast(args.device, torch.bfloat16):
                output = net(x)
            loss = criterion(output.float(), y)
            loss.backward()
        optimizer.step()
        return loss.detach()
    return step


class Plain:
    """A context that does nothing and can be entered again."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def saved_bytes(torch, args):
    """Bytes that a step saves and mm moves. Call it in a process of its own: the arena may take most of the device."""
    import mm_torch as mm
    on_gpu = args.device == "cuda"
    free = torch.cuda.mem_get_info()[0] // 2 if on_gpu else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    m = mm.budget(free, LOSSLESS, host=None if on_gpu else 0, device=args.device, unplanned=True, _cuda=None)
    made(torch, args)(m)
    return {"saved_bytes": m.stats.put_bytes}


def measured(torch, args, name):
    on_gpu = args.device == "cuda"
    step, m, context = made(torch, args), None, Plain()
    if name not in ROWS[:2]:
        import mm_torch as mm
        m = context = mm.budget(args.budget, name, device=args.device)
    losses = []

    def iterate(_i):
        inside = torch.autograd.graph.save_on_cpu(pin_memory=on_gpu) if name == "save_on_cpu" else context
        losses.append(step(inside))

    for _ in range(3 if m else 0):  # mm measures, corrects, and learns the order; later steps are planned
        iterate(0)
        m.settle()
    fit = warm_up(torch, on_gpu, iterate, args.seconds)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = step_seconds(torch, on_gpu, iterate, min(args.iterations, fit))
    row = {"images_per_second": args.batch / statistics.median(times), "iterations": len(times), "loss": losses[-1].item(),
           "peak_bytes": torch.cuda.max_memory_reserved() if on_gpu else 0, "torch": torch.__version__}
    if m:
        stats = m.stats
        row.update(arena_bytes=stats.predicted_bytes - stats.predicted_kept_bytes,
        kept_bytes=stats.predicted_kept_bytes,
                   held_bytes=stats.peak_bytes, planned=stats.planned, off_plan=stats.off_plan,
                   torch_bytes=stats.torch_bytes)
    return row


def measure(values, name, budget):
    """Yields None once it is ready, then the row's figures."""
    import torch
    args = argparse.Namespace(**values, budget=budget)
    yield None
    yield dict(saved_bytes(torch, args) if name == "saved" else measured(torch, args, name), status="ok")


def apart(args, name, budget=0):
    """Measures a row in a process of its own; its status says what failed. All rows have the same allocator."""
    values = {key: getattr(args, key) for key in ("device", "batch", "image_size", "iterations", "seconds")}
    row = {"policy": name, "net": "resnet50", "batch": args.batch, "precision": "bf16", "device": args.device,
           "budget_bytes": budget}
    return dict(row, **row_apart("gpu_torch", "measure", [values, name, budget], args.limit, **EXPANDABLE))


def size(value):
    return "%.2f GB" % (value / 1e9) if value >= 1e9 else "%.1f MB" % (value / 1e6)


def goals(rows, args):
    """Yields for each goal: text, whether it is reached (None: not known), figures."""
    speed = {name: row.get("images_per_second") for name, row in rows.items()}
    for text, name, base, wanted in (("%s in %g of what eager saves, of save_on_cpu" % (LOSSLESS, args.share), LOSSLESS, "save_on_cpu", SPEEDUP),
                                     ("%s, of eager" % LOSSY, LOSSY, "eager", SHARE_OF_EAGER)):
        known = speed.get(name) and speed.get(base)
        ratio = speed[name] / speed[base] if known else None
        yield "%s: %g x" % (text, wanted), ratio >= wanted if known else None, "%.2f x" % ratio if known else rows[name]["status"]
    for name in ROWS[2:]:
        row = rows[name]
        if row["status"] != "ok":
            yield "%s keeps its budget" % name, None, row["status"]
            continue
        # On a GPU the sum of torch's peak and the arena bounds what was taken; on a CPU the stash's peak is compared.
        taken = row["peak_bytes"] + row["arena_bytes"] if args.device == "cuda" else row["held_bytes"]
        yield ("%s: the allocator's peak and the arena in the budget" % name, taken <= row["budget_bytes"],
               "%s of %s" % (size(taken), size(row["budget_bytes"])))


def compare(args):
    rows = {name: apart(args, name) for name in ROWS[:2]}
    saved = apart(args, "saved")
    all_saved = saved.get("saved_bytes", 0)
    share = int(args.share * all_saved)
    budget = max(rows["eager"].get("peak_bytes", 0) - (all_saved - share), 0) if args.device == "cuda" else share
    for name in ROWS[2:]:
        rows[name] = apart(args, name, budget) if budget else dict(saved, policy=name, status="no budget: " + saved["status"])
    print("resnet50, batch %d, bf16 autocast, %s: eager saves %s, budget %s" % (args.batch, args.device,
                                                                              size(all_saved), size(budget)))
    cells = [["row", "img/s", "of eager", "torch's peak", "arena", "kept", "planned", "status"]]
    eager = rows["eager"].get("images_per_second")
    for name, row in rows.items():
        fine = row["status"] == "ok"
        cells.append([name, "%.1f" % row["images_per_second"] if fine else "-",
                      "%.2f" % (row["images_per_second"] / eager) if fine and eager else "-"] +
                     [size(row[key]) if key in row else "-" for key in ("peak_bytes", "arena_bytes", "kept_bytes")] +
                     [str(row.get("planned", "-")), row["status"]])
    print("\n".join(lines_of(cells, (0,))))
    for text, reached, figures in goals(rows, args):
        print("%s  %s (%s)" % ("?   " if reached is None else "pass" if reached else "FAIL", text, figures))
    if args.device != "cuda":
        print("not on a GPU: the goals are printed only to try this program")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(list(rows.values()), file, indent=1)
    return all(row["status"] == "ok" for row in rows.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10, help="of each row's steps, at most")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a row's process")
    parser.add_argument("--share", type=float, default=0.5,
                        help="of what eager saves, the share that mm may hold; with few images that is mostly autocast's copies of weights")
    parser.add_argument("--json", help="file for the rows")
    sys.exit(not compare(parser.parse_args()))


if __name__ == "__main__":
    main()
