#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Summarises the folder of results of tools/bench/gpu in one text that fits the end of a log.

    gpu_summary.py FOLDER [--first PART,...] [--most CHARACTERS] [--archive FILE]
    gpu_summary.py --table ROWS.json ...              only the table of rows, of mm and PyTorch

Sections: steps; smoke; device; ops; codecs; codecs beside the computation; rows; failures; goals, with our figures and
PyTorch's. If not all fit, sections of the parts named with --first stay; steps, failures and goals always do.
"""
import argparse
import glob
import json
import os
import re
import sys
import tarfile

# ---------------------------------------------------------------- rows


def size(n):
    return "%.2f GB" % (n / 1e9) if n else "-"


def lines_of(cells, left):
    """Lines with aligned columns: to the left if their index is in `left`, the last column not at all."""
    widths = [max(len(c[i]) for c in cells) for i in range(len(cells[0]))]
    return ["  ".join([c[i].ljust(widths[i]) if i in left else c[i].rjust(widths[i]) for i in range(len(c) - 1)]
                      + [c[-1]]).rstrip() for c in cells]


def asked_of(row):
    """The policy; with --workspace also that limit, which tells such rows from those without."""
    limit = row.get("workspace_limit_bytes")
    return row["policy"] + (" (workspace %s)" % size(limit) if limit else "")


def policy_of(row):
    """The policy, and the substitute that ran instead, if memory was short."""
    now = row.get("policy_effective") or row["policy"]
    return asked_of(row) if now == row["policy"] else "%s -> %s" % (asked_of(row), now)


def status_of(row):
    """The status. It says if iterations on a GPU were not recorded and replayed, which is slower."""
    ours = row["device"].split(":")[0] == "cuda" and not row["policy"].startswith("pytorch")
    stepwise = ours and row["status"] == "ok" and row["iterations"] > 2 and not row["replays"]
    return row["status"][:70] + (", not replayed" if stepwise else "")


def host_of(row):
    """Microseconds in which the training thread issues an iteration; PyTorch's rows have none."""
    seconds = row.get("host_seconds")
    return "%.0f" % (1e6 * seconds) if seconds else "-"


def rate_of(row):
    """The speed and its unit: tokens/s for a network of tokens, else images/s."""
    tokens = row.get("tokens_per_second")
    return (tokens, "tok/s") if tokens else (row["images_per_second"], "img/s")


def rate_words(row):
    rate, unit = rate_of(row)
    return "-" if not rate else "%.1f" % rate if unit == "img/s" else "%.0f %s" % (rate, unit)


def row_cells(rows):
    """The table of rows, its head first. /liveness and /compile: speed over that of liveness, and of torch.compile with
    all maps kept, for the same network, batch and precision."""
    cells = [["net", "batch", "prec.", "policy", "budget", "peak", "outside", "img/s", "hidden", "host us",
              "/liveness", "/compile", "status"]]

    def key(row):
        return row["net"], row["batch"], row.get("precision", "-")

    speeds = {}
    for r in rows:
        if r["images_per_second"]:
            speeds.setdefault((key(r), asked_of(r)), r["images_per_second"])

    def ratio(row, policy):
        base = speeds.get((key(row), policy))
        return "%.2f" % (row["images_per_second"] / base) if base and row["images_per_second"] else "-"

    for r in sorted(rows, key=key):
        hidden = r.get("codec_hidden_share")
        cells.append([r["net"], str(r["batch"]), r.get("precision", "-"), policy_of(r), size(r["budget_bytes"]),
                      size(r["peak_bytes"]), size(r["outside_bytes"]),
                      rate_words(r), "-" if hidden is None else "%.0f%%" % (100 * hidden), host_of(r), ratio(r, "liveness"),
                      ratio(r, "pytorch compile:1.0"), status_of(r)])
    return cells


def table(rows):
    return lines_of(row_cells(rows), (0, 3))


def print_table(rows):
    print("\n".join(table(rows)))


def read_rows(path):
    """The rows of a file; none if the run was killed before it wrote the file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return []


def rows_named(folder, label):
    return read_rows(os.path.join(folder, label + ".json"))


def read_text(folder, name):
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


# ---------------------------------------------------------------- steps


def read_steps(folder):
    """{name: (seconds, how it ended)} of the last run of each step."""
    steps = {}
    for line in read_text(folder, "steps.txt").splitlines():
        name, seconds, end = line.split("\t")
        steps.pop(name, None)
        steps[name] = (int(seconds), end)
    return steps


def count_cases(text):
    def of(word):
        return sum(int(n) for n in re.findall(r"^\[  *%s *\] (?:.*: )?(\d+) test\(s\)" % word, text, re.M))

    return of("PASSED"), of("FAILED"), of("SKIPPED")


def steps_section(folder):
    steps = read_steps(folder)
    words = ["%s %d s%s" % (name, seconds, "" if end == "ok" else " " + end.upper())
             for name, (seconds, end) in steps.items()]
    lines = []
    for word in words:
        if lines and len(lines[-1]) + len(word) < 115:
            lines[-1] += " | " + word
        else:
            lines.append(word)
    for name in ("tests", "suites"):
        text = read_text(folder, name + ".log")
        if text:
            lines.append("%s: %d passed, %d failed, %d skipped" % ((name,) + count_cases(text)))
            lines += ["  " + line for line in re.findall(r"^-- (?:FAILED|CUT): .*$", text, re.M)[:12]]
    return lines


WRONG = re.compile(r"^=========.*(Invalid|Error|Race|hazard|Uninit|Barrier|Leaked)|^\[  FAILED  \] [a-z]|"
                   r"--- \[   LINE   \]|^mm [a-z]+: |Error: |^-- FAILED")


def failures_section(folder):
    """For each failed step what its log reports as wrong, else the end of the log."""
    lines = []
    for name, (_, end) in read_steps(folder).items():
        if end == "ok" or end.startswith("skipped"):
            continue
        log = [line.rstrip() for line in read_text(folder, name + ".log").splitlines() if line.strip()]
        found = [line for line in log if WRONG.search(line)]
        lines.append("%s: %s" % (name, end))
        lines += ["    " + line[:170] for line in (found[:4] or log[-3:])]
    return lines[:45]


# ---------------------------------------------------------------- device and codecs


def device_section(folder):
    lines = read_text(folder, "gpu.txt").splitlines()[:3]
    for d in rows_named(folder, "device"):
        if not d.get("usable"):
            lines.append("%s: %s" % (d.get("device", "cuda"), d.get("reason", "no GPU that can be used")))
            continue
        lines.append("%s, %d multiprocessors, %s free of %s; link out %.1f, in %.1f, both %.1f each; copy %.0f GB/s" % (
            d["model"], d["processors"], size(d["free_bytes"]), size(d["total_bytes"]), d["out_bytes_per_s"] / 1e9,
            d["in_bytes_per_s"] / 1e9, d["both_bytes_per_s"] / 1e9, d["copy_bytes_per_s"] / 1e9))
    return lines


def codec_speeds(folder):
    """{(spec, direction): (median GB/s, share of the copy)}"""
    return {(row["codec"], row["direction"]): (row["gb_per_s_median"], row["share_of_copy"])
            for row in rows_named(folder, "codec")}


def codec_section(folder):
    """Two specs a line: encode / decode."""
    speeds, words = codec_speeds(folder), []
    for (spec, direction), (speed, share) in speeds.items():
        if direction == "decode":
            continue
        decode = speeds.get((spec, "decode"))
        words.append(("%s %.0f%s (%.2f%s)" % (spec, speed, " / %.0f" % decode[0] if decode else "", share,
                                              " / %.2f" % decode[1] if decode else "")).ljust(54))
    lines = ["".join(words[i:i + 2]).rstrip() for i in range(0, len(words), 2)]
    return (["encode / decode in GB/s (share of the copy inside the device)"] + lines if lines else []) + zeros_lines(folder)


def facts_section(folder):
    """Codes of fixed rate while a network trains: bytes of maps a second, over all maps."""
    lines = []
    for path in sorted(glob.glob(os.path.join(folder, "facts-*.json"))):
        for codec in (read_rows(path) or {}).get("codecs", []):
            rate = re.search(r"rate=([\d.]+)", codec["spec"])
            timed = [c for c in codec["codes"].values() if c["encode_ns"] > 0 and c["decode_ns"] > 0]
            if rate and timed:
                maps = sum(c["code_bytes"] for c in timed) * 32 / float(rate.group(1))
                lines.append("%s %s: encode %.0f, decode %.0f GB/s of %d maps, %s" % (
                    os.path.basename(path)[6:-5], codec["spec"], maps / sum(c["encode_ns"] for c in timed),
                    maps / sum(c["decode_ns"] for c in timed), len(timed), size(maps)))
    return lines


def plain(name):
    """The last part of a mangled name, without templates and parameters."""
    parts, at = [], re.match(r"_ZN?", name)
    rest = name[at.end():] if at else ""
    while (at := re.match(r"(\d+)", rest)):
        parts.append(rest[at.end():at.end() + int(at.group(1))])
        rest = rest[at.end() + int(at.group(1)):]
    return parts[-1] if parts else name


def kernels_section(folder):
    """For each run: the time of a replayed iteration; and by name the kernels that took most time in an iteration that
    was issued step by step. The more runs there are, the fewer kernels of each."""
    lines, paths = [], sorted(glob.glob(os.path.join(folder, "kernels-*.json")))
    most = min(20, 48 // max(1, sum(len(read_rows(path)) for path in paths)))
    for path in paths:
        for run in read_rows(path):
            whole, of_name = run["replayed"], {}
            for kernel in run["kernels"]:
                of_name.setdefault(plain(kernel["name"]), []).append(kernel)
            idle = whole["idle_ns"] / whole["span_ns"] if whole["span_ns"] else 0
            lines.append("%s: %s, batch %d, %s: replayed %d kernels, %.3f ms in %.3f ms, idle %.1f%%" % (
                os.path.basename(path)[8:-5], run["net"], run["batch"], run["policy"], whole["kernels"],
                whole["kernels_ns"] * 1e-6, whole["span_ns"] * 1e-6, 100 * idle))
            total = sum(k["ns"] for k in run["kernels"] if k["bytes"] is not None) or 1
            cells = [["ms", "share", "n", "GB/s", "kernel", "dearest in"]]
            for name, all_of in sorted(of_name.items(), key=lambda of: -sum(k["ns"] for k in of[1]))[:most]:
                ns, dearest = sum(k["ns"] for k in all_of), max(all_of, key=lambda k: k["ns"])
                moved = sum(k["bytes"] or 0 for k in all_of)
                cells.append(["%.3f" % (ns * 1e-6), "%.1f%%" % (100 * ns / total), str(len(all_of)),
                              "%.0f" % (moved / ns) if moved and ns else "-", name[:44],
                              "%s %s, stream %d, %.1f us" % (dearest["layer"], dearest["phase"], dearest["stream"],
                                                             dearest["ns"] * 1e-3)])
            lines += lines_of(cells, (4,))
    return lines


def smoke_section(folder):
    return read_text(folder, "smoke.log").splitlines()[-14:]


def zeros_lines(folder):
    """Codes of variable size, a line for each codec: for each share of zeros the ratio, and the share of the copy's
    bytes a second in both directions."""
    of_spec = {}
    for row in rows_named(folder, "codec-zeros"):
        if row["direction"] == "encode":
            of_spec.setdefault(row["codec"], []).append("%d %%: %.2f, %.2f" % (
                row["zeros_percent"], row["map_by_code"], row["share_of_bytes"]))
        elif row["direction"] == "decode":
            of_spec[row["codec"]][-1] += " / %.2f" % row["share_of_bytes"]
    lines = ["%-16s %s" % (spec, "   ".join(words)) for spec, words in of_spec.items()]
    return ["zeros: map by code, encode / decode (share of the copy's bytes a second)"] + lines if lines else []


def ops_words(folder, log, begin=""):
    words = []
    for line in read_text(folder, log).splitlines():
        m = re.match(r"  (.{42})\s+\d+\s+\S+\s+(\S+)\s+\S+ us\s*([\d.e+-]+)?", line)
        if m and line.startswith("  " + begin):
            words.append(("%s %s us%s" % (m.group(1).strip(), m.group(2),
                                          " (%s)" % m.group(3) if m.group(3) else "")).ljust(48))
    return ["".join(words[i:i + 2]).rstrip() for i in range(0, len(words), 2)]


def ops_section(folder):
    """For each op the median in us, and the share of the copy's bytes a second."""
    lines = ops_words(folder, "ops.log")
    more = ops_words(folder, "ops-1200MiB.log", "conv")
    return ((["median (share of the copy's bytes a second)"] + lines if lines else [])
            + (["with 1200 MiB of workspace"] + more if more else []))


# ---------------------------------------------------------------- beside the computation


def overlap_section(folder):
    rows = [(dict(r, variant=name), r) for name in ("overlap", "overlap-equal")
            for r in rows_named(folder, "mm-" + name)]
    if not rows:
        return []
    base = next((r for _, r in rows if r["policy"] == "liveness" and r["images_per_second"]), None)
    cells = [["policy", "img/s", "step ms", "/liveness", "hidden", "codec ms", "compute ms", "/liveness", "peak", ""]]
    for named, r in rows:
        step, ran = r["iteration_seconds_median"], r["images_per_second"] > 0
        hidden, busy = r.get("codec_hidden_share"), r.get("compute_busy_seconds", 0)

        def of_base(value, key):
            return "%.3f" % (value / base[key]) if ran and base and base[key] and value else "-"

        note = "" if status_of(r) == "ok" else status_of(r)
        cells.append([policy_of(r) + (" (equal streams)" if named["variant"] == "overlap-equal" else ""),
                      "%.1f" % r["images_per_second"] if ran else "-", "%.2f" % (1e3 * step) if ran else "-",
                      of_base(step, "iteration_seconds_median"), "-" if hidden is None else "%.1f%%" % (100 * hidden),
                      "%.2f" % (1e3 * r["codec_busy_seconds"]), "%.2f" % (1e3 * busy),
                      of_base(busy, "compute_busy_seconds"), size(r["peak_bytes"]), note])
    first = rows[0][1]
    return ["%s, batch %s, %s: step, codec and computation a step; the computation's ratio is what contention costs" % (
        first["net"], first["batch"], first.get("precision", "-"))] + lines_of(cells, (0,))


# ---------------------------------------------------------------- goals

GIB, GB = 1 << 30, 10**9
LOSSLESS, CODES, ANY = "lossless", "codes", "any"


class Goal:
    """A goal for the images or tokens a second of the rows with these labels, beside the fastest of PyTorch's modes in
    this run; without PyTorch, beside `anchor`: its speed on an H200 (on 2026-11-20, one run each; 0: not known)."""

    def __init__(self, text, labels, cap, policies, wanted, peer, anchor, precision="tf32"):
        self.text, self.labels, self.cap, self.policies, self.wanted = text, labels.split(), cap, policies, wanted
        self.peer_labels, self.modes = peer[0].split(), peer[1].split()
        self.anchor, self.precision = anchor, precision


RESNET50 = "rounds-resnet50 mm-resnet50 mm-resnet50-6.5GB mm-resnet50-1200MiB"
BF16, GPT = "rounds-resnet50-bf16", "rounds-gpt2"
ALL_KEPT = Goal("ResNet-50 128, all kept", RESNET50, 0, "liveness", 1.05, ("rounds-resnet50 pytorch-resnet50", "compile:1.0"), 3513)
ALL_KEPT_BF16 = Goal("ResNet-50 128 bf16, all kept", BF16, 0, "liveness", 1.3, (BF16, "channels_last"), 4200, "bf16")
GPT_ALL_KEPT = Goal("GPT-2 16 bf16, all kept", GPT, 0, "liveness", 0.95, (GPT, "compile:1.0"), 0, "bf16")
GPT_HALF = Goal("  in half of that, without loss", GPT, 3.6 * GB, LOSSLESS, 1, (GPT, "compile_checkpoint checkpoint"),
                0, "bf16")
LAUNCH_BOUND = Goal("ResNet-152 44, launch-bound", "mm-resnet152-44", 0, ANY, 1, ("pytorch-resnet152-44", "checkpoint"), 285)
GOALS = [
    ALL_KEPT,
    Goal("  in 6.5 GB, without loss", RESNET50, 6.5 * GB, LOSSLESS, 1.1,
         ("pytorch-resnet50 pytorch-resnet50-eager", "compile:0.5"), 3075),
    Goal("  in 6.5 GB, with codes", RESNET50, 6.5 * GB, CODES, 1.15,
         ("pytorch-resnet50 pytorch-resnet50-eager", "compile:0.5"), 3075),
    Goal("  swapping", "mm-resnet50-swap", 0, ANY, 5, ("pytorch-resnet50 pytorch-resnet50-eager", "save_on_cpu"), 186),
    ALL_KEPT_BF16,
    Goal("  beside torch.compile", BF16, 0, "liveness", 1, (BF16, "compile:1.0"), 0, "bf16"),
    Goal("  in 3.5 GB, without loss", BF16, 3.5 * GB, LOSSLESS, 1, (BF16, "compile:0.2"), 4365, "bf16"),
    GPT_ALL_KEPT,
    GPT_HALF,
    Goal("ResNet-152 256 in 20 GB", "mm-resnet152-20GB", 20 * GB, ANY, 1.8, ("pytorch-resnet152", "checkpoint"), 792),
    Goal("ResNet-152 384 in 12 GiB", "mm-resnet152-12GiB", 12 * GIB, ANY, 1, ("pytorch-resnet152-12GiB", "checkpoint"), 736),
    LAUNCH_BOUND,
]
# Goals of memory. Key: the goal below which the line stands. Values: the largest share of the peer's memory; the goal
# whose peer it is; the peer's GB on an H200 (0: not known).
MEMORY = {ALL_KEPT: (0.8, ALL_KEPT, 16.89), ALL_KEPT_BF16: (1, ALL_KEPT_BF16, 6.18), GPT_HALF: (0.5, GPT_ALL_KEPT, 0)}


def best(rows, precision):
    ran = [r for r in rows if r["images_per_second"] and r["status"] == "ok" and r.get("precision") == precision]
    return max(ran, key=lambda r: r["images_per_second"], default=None)


def ours_of(folder, goal):
    def serves(row):
        if row["policy"].startswith("pytorch ") or goal.cap and not 0 < row["budget_bytes"] <= goal.cap:
            return False
        if goal.policies in (LOSSLESS, CODES):
            return bool(row.get("lossy")) == (goal.policies == CODES)
        return goal.policies == ANY or row["policy"].startswith(goal.policies)

    return best((row for label in goal.labels for row in rows_named(folder, label) if serves(row)), goal.precision)


def peer_of(folder, goal):
    """Returns PyTorch's best row (None: there is none), and why there is none."""
    rows = [row for label in goal.peer_labels for row in rows_named(folder, label)
            if row["policy"] in ["pytorch " + mode for mode in goal.modes]]
    steps = read_steps(folder)
    ends = [steps[label][1] for label in goal.peer_labels if label in steps]
    return (best(rows, goal.precision),
            ([row["status"] for row in rows] + [end for end in ends if end != "ok"] + ["not run"])[0])


def ratio_words(ours, theirs):
    return "%.2f" % (ours / theirs) if ours and theirs else "-"


def of_h200(figure):
    """A figure in brackets: not measured in this run."""
    return "(%g)" % figure if figure else "-"


def peer_words(goal, peer, why, anchor):
    """Describes the peer; without one, why, and the H200's figure."""
    if peer:
        return "%s, batch %d" % (peer["policy"].replace("pytorch ", ""), peer["batch"])
    return "%s: %s" % (goal.modes[0], why.replace("skipped: ", "")[:40]) + ("; %g on an H200" % anchor if anchor else "")


def speed_goal(folder, goal):
    ours, (peer, why) = ours_of(folder, goal), peer_of(folder, goal)
    speed, unit = rate_of(ours) if ours else (0, "tok/s" if goal.labels == [GPT] else "img/s")
    theirs = rate_of(peer)[0] if peer else goal.anchor
    by = "%s, %s" % (policy_of(ours), size(ours["peak_bytes"])) if ours else "no row"
    return ["%s, %s" % (goal.text, unit), "%g x" % goal.wanted, "%.1f" % speed if ours else "-",
            "%.1f" % theirs if peer else of_h200(theirs), ratio_words(speed, theirs), by,
            peer_words(goal, peer, why, goal.anchor)]


def memory_goal(folder, goal):
    """The goal of memory that belongs to a goal of speed: peak and outside bytes of our row and of the peer's."""
    wanted, of, anchor = MEMORY[goal]
    ours, (peer, why) = ours_of(folder, goal), peer_of(folder, of)
    took, theirs = ((row["peak_bytes"] + row["outside_bytes"]) / GB if row else 0 for row in (ours, peer))
    return ["  its memory, GB", "%g x" % wanted, "%.2f" % took if ours else "-",
            "%.2f" % theirs if theirs else of_h200(anchor), ratio_words(took, theirs or anchor), "peak and outside",
            peer_words(of, peer, why, anchor)]


def host_goal(folder, goal):
    """The time in which the training thread issues an iteration."""
    row = ours_of(folder, goal)
    host = 1e6 * (row.get("host_seconds") or 0) if row else 0
    by = "%s, %.3f of the step, %s" % (policy_of(row), host * 1e-6 / row["iteration_seconds_median"],
                                       "replayed" if row["replays"] else "step by step") if host else "no row"
    return ["  host time of an iteration, us", "<= 100", "%.0f" % host if host else "-", "-", "-", by, ""]


def overlap_goals(folder):
    """The largest hidden share of codec time, and the step time of the row that has it, beside that of liveness."""
    rows = [r for r in rows_named(folder, "mm-overlap") if r["images_per_second"]]
    base = next((r for r in rows if r["policy"] == "liveness"), None)
    coded = [r for r in rows if r.get("codec_hidden_share") is not None]
    row = max(coded, key=lambda r: (("eligible=all" in r["policy"]), r["codec_hidden_share"]), default=None)
    name = "%s %d" % (row["net"], row["batch"]) if row else "overlap"
    by = policy_of(row) if row else "no row"
    step = row["iteration_seconds_median"] / base["iteration_seconds_median"] if row and base else 0
    hidden = "%.3f" % row["codec_hidden_share"] if row else "-"
    return [[name + ": codec time hidden", ">= 0.9", hidden, "-", "-", by, ""],
            ["  its step beside liveness'", "<= 1.05", "%.3f" % step if step else "-", "-", "-", by, ""]]


def codec_goal(folder, spec, direction, cuzfp):
    """The codec's speed beside cuZFP's on an H200, and as a share of the copy's speed in this run."""
    speed = codec_speeds(folder).get((spec, direction))
    return ["%s %s, GB/s" % (spec, direction), "5 x", "%.0f" % speed[0] if speed else "-", "(%d)" % cuzfp,
            ratio_words(speed[0] if speed else 0, cuzfp),
            "%.2f of the copy (>= 0.45)" % speed[1] if speed else "no row", "cuZFP on an H200"]


def bytes_goal(folder, spec, wanted):
    """The slower direction's share of the speed that its bytes (map and code) allow at the copy's bytes a second."""
    shares = [row["share_of_bytes"] for row in rows_named(folder, "codec")
              if row["codec"] == spec and "share_of_bytes" in row]
    return ["%s, of what its bytes allow" % spec, ">= %g" % wanted, "%.2f" % min(shares) if shares else "-", "-", "-",
            spec if shares else "no row", ""]


def simulator_goal(folder):
    """Errors of predictions as shares of the measured step, for runs under whose plan no facts were measured."""
    errors = sorted(abs(r["simulator_error"]) for path in glob.glob(os.path.join(folder, "predict-*.json"))
                    for r in read_rows(path) if r["status"] == "ok" and not r["calibrated"])
    ninth = errors[-(-9 * len(errors) // 10) - 1] if errors else 0
    return ["the simulator's error, 90th percentile", "<= 0.1", "%.3f" % ninth if errors else "-", "-", "-",
            "%d runs, %.3f at most" % (len(errors), errors[-1]) if errors else "no row", ""]


def goal_cells(folder):
    """The table of goals, its head first."""
    cells = [["goal", "wanted", "ours", "peer's", "ratio", "by", "peer (in brackets: not of this run)"]]
    for goal in GOALS:
        cells.append(speed_goal(folder, goal))
        if goal in MEMORY:
            cells.append(memory_goal(folder, goal))
    cells.append(host_goal(folder, LAUNCH_BOUND))
    cells += overlap_goals(folder)
    cells += [codec_goal(folder, "zfp:rate=4", *of) for of in (("encode", 369), ("decode", 434))]
    for specs, wanted in (("mask dpr:fp16 mx:fp8 group:bits=4", 0.85), ("zvc csr eb", 0.65)):
        cells += [bytes_goal(folder, spec, wanted) for spec in specs.split()]
    cells.append(simulator_goal(folder))
    return cells


def goals_section(folder):
    return lines_of(goal_cells(folder), (0, 5))


def all_rows(folder):
    """All rows, except those of the overlap, which have fewer iterations or other streams."""
    paths = [path for names in ("rounds-*.json", "mm-*.json", "pytorch-*.json")
             for path in sorted(glob.glob(os.path.join(folder, names))) if "mm-overlap" not in path]
    return [row for path in paths for row in read_rows(path)]


def rows_section(folder):
    rows = all_rows(folder)
    return table(rows) if rows else []


# ---------------------------------------------------------------- the text

SECTIONS = [  # title, function, parts whose results it shows; in the order of print
    ("steps", steps_section, "tests suites sanitizer"),
    ("smoke", smoke_section, "smoke"),
    ("device", device_section, "device"),
    ("ops", ops_section, "device algorithms"),
    ("codecs", codec_section, "device"),
    ("codecs on maps in training", facts_section, "facts"),
    ("kernels", kernels_section, "rounds bf16 gpt"),
    ("beside the computation", overlap_section, "overlap"),
    ("rows", rows_section, "rounds bf16 gpt goals peers nets"),
    ("not well", failures_section, "tests suites sanitizer"),
    ("goals", goals_section, "rounds bf16 gpt goals predict"),
]
ALWAYS = ("goals", "not well", "steps")
EARLY = ("smoke", "rows", "beside the computation", "kernels", "device", "codecs on maps in training")


def summary(folder, first, most):
    texts = {}
    for title, make, _ in SECTIONS:
        lines = make(folder)
        if lines:
            texts[title] = "== %s\n%s\n" % (title, "\n".join(lines))

    def rank(section):
        title, _, parts = section
        wanted = bool(set(first) & set(parts.split()))
        return title not in ALWAYS, not wanted, EARLY.index(title) if title in EARLY else len(EARLY)

    left, kept = most, {}
    for title, _, _ in sorted(SECTIONS, key=rank):
        text = texts.get(title, "")
        if len(text) > left:
            begin = text[:max(0, left - 60)].rpartition("\n")[0]
            text = begin + "\n(the rest of this section is in summary.txt)\n" if left > 400 else ""
        kept[title] = text
        left -= len(text)
    whole = "".join(texts.get(title, "") for title, _, _ in SECTIONS)
    with open(os.path.join(folder, "summary.txt"), "w", encoding="utf-8") as file:
        file.write(whole)
    return "".join(kept[title] for title, _, _ in SECTIONS)


ARCHIVE_BYTES = 12 << 20
LOG_BYTES = 256 << 10  # of the beginning, and of the end, that are kept of a long log


def shorten(path):
    with open(path, "rb") as file:
        text = file.read()
    if len(text) <= 2 * LOG_BYTES:
        return
    with open(path, "wb") as file:
        file.write(text[:LOG_BYTES] + b"\n... (%d bytes) ...\n" % (len(text) - 2 * LOG_BYTES) + text[-LOG_BYTES:])


def make_archive(folder, path):
    """Archives the folder's files, without the largest ones if the archive would exceed ARCHIVE_BYTES. Replaces the
    archive as a whole."""
    for log in glob.glob(os.path.join(folder, "*.log")):
        shorten(log)
    names = sorted((name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name))),
                   key=lambda name: os.path.getsize(os.path.join(folder, name)))
    while True:
        with tarfile.open(path + ".tmp", "w:gz") as archive:
            for name in names:
                archive.add(os.path.join(folder, name), name)
        if os.path.getsize(path + ".tmp") <= ARCHIVE_BYTES or not names:
            break
        print("gpu_summary: %s is too large for %s" % (names.pop(), path), file=sys.stderr)
    os.replace(path + ".tmp", path)


def version():
    header = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../mm/mm.h")
    with open(header, encoding="utf-8") as file:
        return "mm " + re.search('#define MM_VERSION "(.*)"', file.read()).group(1)


def make_parser(description):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--version", action="store_true", help="the version")
    if "--version" in sys.argv[1:]:
        print(version())
        sys.exit(0)
    return p


def main():
    p = make_parser(__doc__)
    p.add_argument("folder", nargs="?")
    p.add_argument("--first", default="", help="parts whose sections stay if not all fit")
    p.add_argument("--most", type=int, default=10000, help="characters (10000)")
    p.add_argument("--archive", metavar="FILE", help="write the folder as a .tar.gz of at most 12 MiB, and print no summary")
    p.add_argument("--table", nargs="+", metavar="FILE", help="only the table of these files' rows")
    args = p.parse_args()
    if args.table:
        rows = []
        for path in args.table:
            rows += read_rows(path) or p.error("--table %s: no rows, or no such file" % path)
            if "images_per_second" not in rows[-1]:
                p.error("--table %s: not rows of mm bench or peer_pytorch.py" % path)
        print_table(rows)
        return
    if not args.folder or not os.path.isdir(args.folder):
        p.error("give a folder of results: %s" % (args.folder or "none given"))
    text = summary(args.folder, args.first.split(","), args.most)
    if args.archive:
        make_archive(args.folder, args.archive)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
