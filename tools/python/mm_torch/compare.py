# SPDX-License-Identifier: MIT
"""Trains a network with plain torch and inside budgets, and compares: python3 -m mm_torch.compare --net resnet20

Prints a row for each policy and share. share: of the bytes that one step saves and mm moves, each storage once. A
lossless row must have plain torch's weights, buffers and losses, bit for bit; a lossy row (by the library's statistics)
losses within 2 % or 0.002. predicted: the most that a step holds, within the budget; kept: the part of it that torch
keeps, which is never moved; touched: bytes of the arena, which holds the rest, that were written. A run must touch the
predicted bytes of the arena (or less, if codes are shorter), and no others. On a GPU budgets are of what is saved
alone, torch's allocator has no part in them, and torch runs with deterministic settings: otherwise it does not get the
same bits twice. Exits with 1 if a row is wrong, with 2 for wrong arguments."""

import argparse
import contextlib
import os
import sys
import time

import torch

import mm_torch as mm
from mm_torch import models, session
from mm_torch.picture import table

RELATIVE, ABSOLUTE = 0.02, 0.002


def policies_of(text):
    """Splits policies at commas; a part with = and no colon before the = belongs to the policy before."""
    found = []
    for part in text.split(","):
        if found and "=" in part.split(":")[0]:
            found[-1] += "," + part
        else:
            found.append(part)
    return found


def deterministic():
    """Has torch compute the same bits each time on a GPU, as far as it can; it warns of operations that cannot. Call it
    before the GPU is used."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    torch.use_deterministic_algorithms(True, warn_only=True)


def train(options, steps, m=None, settle=True):
    """Trains from the same start on one batch, so that losses fall. Returns losses, weights and buffers, seconds."""
    net, batches = models.make(options.net, options.seed)
    net.to(options.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = (part.to(options.device) for part in batches(options.batch, torch.Generator().manual_seed(options.seed)))
    losses, started = [], time.perf_counter()
    for step in range(steps):
        with m or contextlib.nullcontext():
            with torch.autocast(options.device, torch.bfloat16) if options.autocast else contextlib.nullcontext():
                output = net(x)
            loss = models.loss(output, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if m and settle and step == 0:
            del output, loss
            m.settle()
    return losses, {key: value.clone() for key, value in net.state_dict().items()}, time.perf_counter() - started


def moved_bytes(options):
    """Bytes that one step saves and mm moves; each storage once."""
    m = mm.budget(session._most(torch.device(options.device)), host=0, device=options.device, unplanned=True, _cuda=None)
    train(options, 1, m, settle=False)
    return m.stats.put_bytes


def far(a, b):
    """The difference of losses as a multiple of what is allowed."""
    return abs(a - b) / max(RELATIVE * abs(b), ABSOLUTE)


def row(options, policy, budget, plain):
    """Runs a policy in a budget. Returns cells, and whether they are right."""
    losses, state, seconds = plain
    m = None
    try:
        m = mm.budget(budget, policy, device=options.device, measure_touched=True, log=lambda text: None, _cuda=None)
        found_losses, found, found_seconds = train(options, options.steps, m)
    except mm.Infeasible as error:
        least = f"needs {session.text_of(error.minimum)} ({error.minimum} bytes)" if error.minimum else str(error)
        return ["-"] * 7 + [f"infeasible: {least}" + (f", for what {error.producer} saved" if error.producer else "")], \
            bool(error.minimum and error.minimum > budget)
    stats, touched = m.stats, m.touched
    faults = []
    arena = stats.predicted_bytes - stats.predicted_kept_bytes
    if touched.bytes > arena or touched.bytes < arena and not stats.encoded_bytes or not stats.predicted_bytes:
        faults.append("touched bytes are not as predicted")
    if stats.predicted_bytes > budget or stats.peak_bytes > budget:
        faults.append("above the budget")
    if touched.stray:
        faults.append(f"{touched.stray} bytes are stray")
    if stats.entries or stats.kept_bytes:
        faults.append(f"{stats.entries} entries are left")
    same = found_losses == losses and all(torch.equal(found[key], state[key]) for key in state)
    worst = max(far(a, b) for a, b in zip(found_losses, losses))
    if same:
        verdict = "bit-equal"
    elif stats.lossy_gets and worst <= 1:
        verdict = f"lossy, {worst:.0%} of the allowed difference"
    else:
        verdict = "DIFFERS"
        faults.append(f"losses differ by {worst:.1f} times the allowed difference" if found_losses != losses else "weights or buffers differ")
    cells = [session.text_of(stats.predicted_bytes), session.text_of(stats.predicted_kept_bytes), session.text_of(touched.bytes),
             str(touched.stray),
             f"{stats.planned}/{stats.iterations}", f"{found_seconds / seconds:.2f}", f"{found_losses[-1]:.4f}",
             ", ".join([verdict] + faults)]
    return cells, not faults


def main():
    parser = argparse.ArgumentParser(prog="python3 -m mm_torch.compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=sorted(models.NETS), default="resnet20")
    parser.add_argument("--batch", type=int, help="default: the net's own")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--share", default="1,0.5,0.27", help="budgets, as shares of the moved bytes")
    parser.add_argument("--policy", default="liveness,swap-async,freelunch:codec=zvc,eligible=all,when=always")
    parser.add_argument("--autocast", choices=["bf16"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.batch = options.batch or models.NETS[options.net][2]
    try:
        shares = [float(share) for share in options.share.split(",")]
    except ValueError:
        parser.error(f"--share {options.share}: must be numbers separated by commas")
    if options.steps < 1 or options.batch < 1 or min(shares) <= 0:
        parser.error("--steps, --batch and --share must be above 0")
    if options.device == "cuda":
        deterministic()
    plain = train(options, options.steps)
    moved = moved_bytes(options)
    print(f"{options.net}, batch {options.batch}{', ' + options.autocast if options.autocast else ''}, {options.steps} steps: "
          f"a step saves {session.text_of(moved)} ({moved} bytes) that can be moved; plain torch ends with "
          f"{plain[0][-1]:.4f}", flush=True)
    rows, right = [("policy", "share", "budget", "predicted", "kept", "touched", "stray", "planned", "time", "loss", "status")], True
    for policy in policies_of(options.policy):
        for share in shares:
            try:
                cells, fine = row(options, policy, int(share * moved), plain)
            except ValueError as error:
                parser.error(str(error))
            right &= fine
            rows.append((policy, f"{share:g}", session.text_of(int(share * moved)), *cells))
    print("\n".join(table(rows, range(1, 10))))
    print("time: as a multiple of plain torch's.", "All rows are right." if right else "A ROW IS WRONG.")
    sys.exit(not right)


if __name__ == "__main__":
    main()
