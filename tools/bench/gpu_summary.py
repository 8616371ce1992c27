#!/usr/bin/env python3
"""What tools/bench/gpu found, from its folder of results: one text that fits the end of a log.

    gpu_summary.py FOLDER [--first PART,...] [--most CHARACTERS]
    gpu_summary.py --table ROWS.json ...              only the table of rows, of mm and PyTorch alike

Sections: steps; device; ops; codecs; what runs beside the computation; every row; what failed; the goals and what was
reached. Those of the parts named with --first are kept when not all fit; steps, failures and goals always are.
"""
import argparse
import glob
import json
import os
import re
import sys

# ---------------------------------------------------------------- rows


def size(n):
    return "%.2f GB" % (n / 1e9) if n else "-"


def lines_of(cells, left):
    """Aligned columns; those whose index is in `left` to the left, the last as it is."""
    widths = [max(len(c[i]) for c in cells) for i in range(len(cells[0]))]
    return ["  ".join([c[i].ljust(widths[i]) if i in left else c[i].rjust(widths[i]) for i in range(len(c) - 1)]
                      + [c[-1]]).rstrip() for c in cells]


def asked_of(row):
    """With the limit of convolutions' scratch, where one was given: such rows are beside those without."""
    limit = row.get("workspace_limit_bytes")
    return row["policy"] + (" (workspace %s)" % size(limit) if limit else "")


def policy_of(row):
    """With what stood in for it, where memory was short."""
    now = row.get("policy_effective") or row["policy"]
    return asked_of(row) if now == row["policy"] else "%s -> %s" % (asked_of(row), now)


def status_of(row):
    """Iterations on a GPU are recorded once and replayed: one that is not says so, for it is slower."""
    ours = row["device"].split(":")[0] == "cuda" and not row["policy"].startswith("pytorch")
    stepwise = ours and row["status"] == "ok" and row["iterations"] > 2 and not row["replays"]
    return row["status"][:70] + (", not replayed" if stepwise else "")


def host_of(row):
    """What the training thread takes to issue an iteration; PyTorch's rows do not say."""
    seconds = row.get("host_seconds")
    return "%.0f" % (1e6 * seconds) if seconds else "-"


def table(rows):
    """Speed beside liveness of the same network, batch and precision, and beside torch.compile that keeps all."""
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
                      "%.1f" % r["images_per_second"] if r["images_per_second"] else "-",
                      "-" if hidden is None else "%.0f%%" % (100 * hidden), host_of(r), ratio(r, "liveness"),
                      ratio(r, "pytorch compile:1.0"), status_of(r)])
    return lines_of(cells, (0, 3))


def print_table(rows):
    print("\n".join(table(rows)))


def read_rows(path):
    """A file that a run was killed before it wrote has none."""
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
    """name, seconds, how it ended; the last run of each."""
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
    """The end of each failed step's log, and of a tool's what it found."""
    lines = []
    for name, (_, end) in read_steps(folder).items():
        if end == "ok":
            continue
        log = [line.rstrip() for line in read_text(folder, name + ".log").splitlines() if line.strip()]
        found = [line for line in log if WRONG.search(line)]
        lines.append("%s: %s" % (name, end))
        lines += ["    " + line[:170] for line in (found[:4] or log[-3:])]
    return lines[:45]


# ---------------------------------------------------------------- device and codecs


def device_section(folder):
    lines = read_text(folder, "gpu.txt").splitlines()[:2]
    for d in rows_named(folder, "device"):
        if not d.get("usable"):
            lines.append("%s: %s" % (d["device"], d.get("reason", "")))
            continue
        lines.append("%s, %d multiprocessors, %s free of %s; link out %.1f, in %.1f, both %.1f each; copy %.0f GB/s" % (
            d["model"], d["processors"], size(d["free_bytes"]), size(d["total_bytes"]), d["out_bytes_per_s"] / 1e9,
            d["in_bytes_per_s"] / 1e9, d["both_bytes_per_s"] / 1e9, d["copy_bytes_per_s"] / 1e9))
    return lines


def codec_speeds(folder):
    """(spec, direction) -> median GB/s, share of the copy."""
    return {(row["codec"], row["direction"]): (row["gb_per_s_median"], row["share_of_copy"])
            for row in rows_named(folder, "codec")}


def codec_section(folder):
    """Three specs a line: encode / decode."""
    speeds, words = codec_speeds(folder), []
    for (spec, direction), (speed, share) in speeds.items():
        if direction == "decode":
            continue
        decode = speeds.get((spec, "decode"))
        words.append(("%s %.0f%s (%.2f%s)" % (spec, speed, " / %.0f" % decode[0] if decode else "", share,
                                              " / %.2f" % decode[1] if decode else "")).ljust(54))
    lines = ["".join(words[i:i + 2]).rstrip() for i in range(0, len(words), 2)]
    return (["encode / decode in GB/s (share of the copy inside the device)"] + lines if lines else []) + zeros_lines(folder)


def zeros_lines(folder):
    """Codes of variable size, a line a codec: for each share of zeros its ratio, and both directions' shares of the
    copy's bytes a second."""
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
    """Median us, and the share of the copy's bytes a second, of each op."""
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


def best(rows, name=""):
    """The fastest row whose policy begins so."""
    ran = [r for r in rows if r["images_per_second"] and r["status"] == "ok" and r["policy"].startswith(name)]
    return max(ran, key=lambda r: r["images_per_second"], default=None)


def candidates(folder, labels):
    return [row for label in labels.split() for row in rows_named(folder, "mm-" + label)]


def speed_goal(folder, text, labels, name, wanted, peer_label, peer_name):
    row = best(candidates(folder, labels), name)
    peer = best(rows_named(folder, "pytorch-" + peer_label), "pytorch " + peer_name)
    reached = row["images_per_second"] if row else None
    beside = "-"
    if row and peer:
        beside = "%.2f of %.0f (%s, batch %d, %s)" % (reached / peer["images_per_second"], peer["images_per_second"],
                                                     peer["policy"][8:], peer["batch"], size(peer["peak_bytes"]))
    by = "%s, batch %d, %s" % (policy_of(row), row["batch"], size(row["peak_bytes"])) if row else "no row"
    return [text, "%g" % wanted, "%.1f" % reached if row else "-", "%.2f" % (reached / wanted) if row else "-", by,
            beside]


def memory_goal(folder, text, labels, wanted, peer_label, peer_name):
    """Of the row that serves the speed's goal. Less is better: the ratio is of what was wanted to what it took."""
    row = best(candidates(folder, labels), "liveness")
    peer = best(rows_named(folder, "pytorch-" + peer_label), "pytorch " + peer_name)
    took = (row["peak_bytes"] + row["outside_bytes"]) / 1e9 if row else 0
    beside = "-"
    if row and peer:
        theirs = (peer["peak_bytes"] + peer["outside_bytes"]) / 1e9
        if theirs:
            beside = "%.2f of %.2f (%s, with what is outside)" % (took / theirs, theirs, peer["policy"][8:])
    return [text, "%g" % wanted, "%.2f" % took if row else "-", "%.2f" % (wanted / took) if took else "-",
            "peak and outside" if row else "no row", beside]


def host_goal(folder, text, labels):
    """Of the fastest row: the share of a step in which the training thread is busy issuing it. At 1 that is what holds the
    step up."""
    row = best(candidates(folder, labels))
    if not row or not row.get("host_seconds"):
        return [text, "1", "-", "-", "no row", "-"]
    share = row["host_seconds"] / row["iteration_seconds_median"]
    by = "%s, %s us, %.2f a layer, %s" % (policy_of(row), host_of(row), 1e6 * row["host_seconds_per_layer"],
                                          "replayed" if row["replays"] else "step by step")
    return [text, "1", "%.3f" % share, "%.0f" % (1 / share), by, "-"]


def codec_goal(folder, text, spec, direction, wanted):
    speed = codec_speeds(folder).get((spec, direction))
    return [text, "%g" % wanted, "%.0f" % speed[0] if speed else "-", "%.2f" % (speed[0] / wanted) if speed else "-",
            spec if speed else "no row", "%.2f of the copy" % speed[1] if speed else "-"]


def bytes_goal(folder, spec, wanted):
    """Of the slower direction: its share of what the copy's bytes a second allow for the map and its code."""
    shares = [row["share_of_bytes"] for row in rows_named(folder, "codec")
              if row["codec"] == spec and "share_of_bytes" in row]
    reached = "%.2f" % min(shares) if shares else "-"
    return ["%s, of what its bytes allow" % spec, "%g" % wanted, reached,
            "%.2f" % (min(shares) / wanted) if shares else "-", spec if shares else "no row", "-"]


def goals_section(folder):
    """Figures wanted: those of PyTorch are of an H200, TF32; what PyTorch does in this very run is beside."""
    cells = [["goal", "wanted", "reached", "ratio", "by", "beside PyTorch here"]]
    first = "resnet50 resnet50-1200MiB"
    cells += [
        speed_goal(folder, "ResNet-50 128: liveness as torch.compile, img/s", first, "liveness", 3513, "resnet50",
                   "compile:1.0"),
        memory_goal(folder, "  with less memory than its, GB", first, 16.89, "resnet50", "compile:1.0"),
        speed_goal(folder, "ResNet-50 128 in 6.5 GB: freelunch as budget 0.5", "resnet50-6.5GB", "freelunch", 3075,
                   "resnet50", "compile:0.5"),
        speed_goal(folder, "ResNet-152 256 in 20 GB, img/s", "resnet152-20GB", "", 1200, "resnet152", "checkpoint"),
        speed_goal(folder, "ResNet-152 384 under 12 GiB, img/s", "resnet152-12GiB", "", 736, "resnet152-12GiB",
                   "checkpoint"),
        speed_goal(folder, "ResNet-152 44: not held up by launches, img/s", "resnet152-44", "", 285, "resnet152-44",
                   "checkpoint"),
        host_goal(folder, "  host time, as a share of the step", "resnet152-44"),
    ]
    for spec, wanted in (("zfp:rate=4", 1600), ("zfp:rate=6", 1200), ("zfp:rate=4,dims=3", 1000)):
        for direction in ("encode", "decode"):
            cells.append(codec_goal(folder, "%s %s, GB/s" % (spec, direction), spec, direction, wanted))
    for specs, wanted in (("mask dpr:fp16 mx:fp8 group:bits=4", 0.85), ("zvc csr eb", 0.65)):
        cells += [bytes_goal(folder, spec, wanted) for spec in specs.split()]
    return lines_of(cells, (0, 4))


def rows_section(folder):
    paths = [path for names in ("mm-*.json", "pytorch-*.json") for path in sorted(glob.glob(os.path.join(folder, names)))]
    rows = [row for path in paths if "mm-overlap" not in path for row in read_rows(path)]
    return table(rows) if rows else []


# ---------------------------------------------------------------- the text

SECTIONS = [  # title, function, parts that it is of; in the order of print
    ("steps", steps_section, "tests suites sanitizer"),
    ("device", device_section, "device"),
    ("ops", ops_section, "device algorithms"),
    ("codecs", codec_section, "device"),
    ("beside the computation", overlap_section, "overlap"),
    ("rows", rows_section, "goals peers nets"),
    ("not well", failures_section, "tests suites sanitizer"),
    ("goals", goals_section, "goals"),
]
ALWAYS = ("steps", "not well", "goals")


def summary(folder, first, most):
    texts = {}
    for title, make, _ in SECTIONS:
        lines = make(folder)
        if lines:
            texts[title] = "== %s\n%s\n" % (title, "\n".join(lines))

    def rank(section):
        title, _, parts = section
        return 0 if title in ALWAYS else 1 if set(first) & set(parts.split()) else 2

    left, kept = most, {}
    for title, _, _ in sorted(SECTIONS, key=rank):
        text = texts.get(title, "")
        if len(text) > left:
            begin = text[:max(0, left - 60)].rpartition("\n")[0]
            text = begin + "\n(the rest of it is in summary.txt)\n" if left > 400 else ""
        kept[title] = text
        left -= len(text)
    whole = "".join(texts.get(title, "") for title, _, _ in SECTIONS)
    with open(os.path.join(folder, "summary.txt"), "w", encoding="utf-8") as file:
        file.write(whole)
    return "".join(kept[title] for title, _, _ in SECTIONS)


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
    p.add_argument("--first", default="", help="parts whose sections are kept when not all fit")
    p.add_argument("--most", type=int, default=11000, help="characters (11000)")
    p.add_argument("--table", nargs="+", metavar="FILE", help="only the table of these files' rows")
    args = p.parse_args()
    if args.table:
        rows = []
        for path in args.table:
            rows += read_rows(path) or p.error("--table %s: no rows, or no such file" % path)
            if "images_per_second" not in rows[-1]:
                p.error("--table %s: these are no rows of mm bench or peer_pytorch.py" % path)
        print_table(rows)
        return
    if not args.folder or not os.path.isdir(args.folder):
        p.error("a folder of results is wanted: %s" % (args.folder or "none given"))
    print(summary(args.folder, args.first.split(","), args.most), end="")


if __name__ == "__main__":
    main()
