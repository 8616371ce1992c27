#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes one page, and a table for a README, of what tools/bench/gpu measured.

    gpu_report.py ARCHIVE... [--page FILE]

ARCHIVE: results of the first call, of the second, or of any run with --archive. Of files with the same name the last
archive's counts; steps of all are listed. The page (gpu-report.html) needs nothing else to be read. The table goes to
standard output, in Markdown: for each network, batch and precision the speed with all maps kept, the fastest lossless
policy in three quarters of that memory, the fastest with lossy codes, and PyTorch's fastest mode. Exits with 1 if there
are no rows to show, and with 2 if an archive cannot be read.
"""
import html
import os
import re
import sys
import tarfile
import tempfile
import time

from gpu_summary import SECTIONS, all_rows, goal_cells, make_parser, policy_of, rate_of, read_steps, read_text, row_cells

LESS = 0.75  # chosen: of the memory that `liveness` takes; what takes more saves too little for a column of its own
NAMES = {"alexnet": "AlexNet", "vgg16": "VGG-16", "resnet50": "ResNet-50", "resnet152": "ResNet-152", "gpt2": "GPT-2"}
AS_TABLES = ("goals", "rows")  # sections of the summary that the page shows as tables

# ---------------------------------------------------------------- archives


def unpack(paths, folder):
    """Writes the archives' files to the folder. Returns when the last one was written. Exits if one is damaged."""
    newest, steps = 0, []
    for path in paths:
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    if not member.isfile() or os.path.basename(member.name) != member.name:
                        raise tarfile.TarError("it has %s, which tools/bench/gpu does not write" % member.name)
                    data = archive.extractfile(member).read()
                    newest = max(newest, member.mtime)
                    if member.name == "steps.txt":
                        steps.append(data)
                        data = b"".join(steps)
                    with open(os.path.join(folder, member.name), "wb") as file:
                        file.write(data)
        except (OSError, EOFError, tarfile.TarError) as error:
            print("gpu_report: %s: not an archive of results, or damaged: %s" % (path, error), file=sys.stderr)
            sys.exit(2)
    return newest


def machine(folder, newest):
    """The GPU and what ran on it, in words: "NVIDIA H200, driver 580.65, cudnn 9.19.0, cublas 13.1.0; 2026-11-29"."""
    first = (read_text(folder, "gpu.txt").splitlines() or [""])[0].split(", ")
    has_gpu = len(first) >= 2 and "cores" not in first[0]
    words = [first[0], "driver " + first[1]] if has_gpu else ["no GPU named"]
    of = re.match(r"\S+/cudnn-(\d+)/cublas-(\d+)", read_text(folder, "algorithms").partition("\n")[2])
    if of:  # 91900 is 9.19.0; 130100 is 13.1.0
        words += ["cuDNN " + dotted(int(of.group(1)), 1000 if int(of.group(1)) < 90000 else 10000),
                  "cuBLAS " + dotted(int(of.group(2)), 10000)]
    return ", ".join(words) + "; " + time.strftime("%Y-%m-%d", time.gmtime(newest))


def dotted(version, major):
    return "%d.%d.%d" % (version // major, version % major // 100, version % 100)


# ---------------------------------------------------------------- the table for a README


def taken(row):
    return row["peak_bytes"] + row["outside_bytes"]


def cell_of(row, name):
    """Speed, memory, and by what if the column does not say it."""
    if not row:
        return "-"
    rate, unit = rate_of(row)
    speed = "{:,.0f}".format(rate) if rate >= 100 else "%.3g" % rate
    memory = taken(row) / 1e9
    by = ", `%s`" % policy_of(row).replace("pytorch ", "").replace("|", "\\|") if name else ""
    return "%s in %s%s" % (speed, "%.2f GB" % memory if memory >= 0.1 else "%.3g MB" % (memory * 1e3), by)


def fastest(rows):
    return max(rows, key=lambda row: rate_of(row)[0], default=None)


def readme_table(rows):
    """Lines of Markdown; none without a row that ran."""
    of_case = {}
    for row in rows:
        if row["status"] == "ok" and row["images_per_second"]:
            of_case.setdefault((row["net"], row["batch"], row.get("precision", "-")), []).append(row)
    lines = ["| | all kept | in less memory | with lossy codes | PyTorch |", "|---|---|---|---|---|"]
    for (net, batch, precision), ran in of_case.items():
        theirs = [row for row in ran if row["policy"].startswith("pytorch ")]
        ours = [row for row in ran if row not in theirs]
        exact = [row for row in ours if not row.get("lossy")]
        kept = fastest(row for row in exact if policy_of(row).startswith("liveness"))
        less = fastest(row for row in exact if not kept or taken(row) <= LESS * taken(kept))
        coded = fastest(row for row in ours if row.get("lossy"))
        unit = {"tok/s": "tokens/s", "img/s": "images/s"}[rate_of(ran[0])[1]]
        lines.append("| %s, batch %d, %s: %s | %s | %s | %s | %s |" % (
            NAMES.get(net, "`%s`" % net), batch, precision.replace("tf32", "TF32"), unit, cell_of(kept, False),
            cell_of(less, True), cell_of(coded, True), cell_of(fastest(theirs), True)))
    return lines if of_case else []


# ---------------------------------------------------------------- the page

STYLE = """body { font: 15px/1.45 sans-serif; max-width: 76em; margin: 2em auto; padding: 0 1em; color: #1b1b1b }
table { border-collapse: collapse; font-size: 13px } td, th { padding: 2px 9px; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child, td.text, th.text { text-align: left } td.yes { background: #dff3df } td.no { background: #f8dede }
pre { font-size: 12px; overflow-x: auto; background: #f6f6f6; padding: 8px } div { overflow-x: auto }"""


def number(text):
    found = re.match(r"(?:[<>]= )?([\d.]+)", text)
    return float(found.group(1)) if found else None


def reached(goal):
    """Whether the goal of a line of the table is reached; None: there is no figure, or no peer of this run."""
    text, wanted, ours, peer, ratio = goal[:5]
    if wanted.endswith(" x"):
        value = None if peer.startswith("(") and "encode" not in text and "decode" not in text else number(ratio)
        if value is None:
            return None
        return value <= number(wanted) if "memory" in text else value >= number(wanted)
    value = number(ours)
    if value is None:
        return None
    return value <= number(wanted) if wanted.startswith("<") else value >= number(wanted)


def table_of(cells, texts, marks=None):
    """HTML of a table; `texts`: columns of words. marks: for each line but the first, a class of its first cell."""
    lines = []
    for i, line in enumerate(cells):
        tag, mark = "td" if i else "th", marks[i - 1] if marks and i else ""
        lines.append("<tr>" + "".join(
            "<%s%s>%s</%s>" % (tag, ' class="%s"' % (mark if not k else "text") if mark and not k or k in texts else "",
                               html.escape(text).replace("  ", "&nbsp; ", 1) if text.startswith("  ") else html.escape(text),
                               tag) for k, text in enumerate(line)) + "</tr>")
    return "<div><table>\n%s\n</table></div>" % "\n".join(lines)


def page(folder, title, markdown):
    goals, rows = goal_cells(folder), all_rows(folder)
    verdicts = [reached(goal) for goal in goals[1:]]
    bad = [name for name, (_, end) in read_steps(folder).items() if end != "ok" and not end.startswith("skipped")]
    parts = ["<h1>mm on %s</h1>" % html.escape(title),
             "<p>%d of %d goals with figures of this run are reached (green; red: not; neither: no figure). %s</p>" % (
                 verdicts.count(True), len(verdicts) - verdicts.count(None),
                 "Steps that did not end well: %s." % html.escape(", ".join(bad)) if bad else "All steps ended well."),
             "<h2>goals</h2>", table_of(goals, (0, 5, 6), [{True: "yes", False: "no", None: ""}[v] for v in verdicts])]
    if rows:
        parts += ["<h2>rows</h2>", table_of(row_cells(rows), (0, 3, 12)),
                  "<h2>for a README</h2>", "<pre>%s</pre>" % html.escape("\n".join(markdown))]
    for name, make, _ in SECTIONS:
        lines = [] if name in AS_TABLES else make(folder)
        if lines:
            parts += ["<h2>%s</h2>" % name, "<pre>%s</pre>" % html.escape("\n".join(lines))]
    parts.append("<h2>machine</h2><pre>%s</pre>" % html.escape(read_text(folder, "gpu.txt")))
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>mm on %s</title>\n<style>%s</style></head>" \
        "<body>\n%s\n</body></html>\n" % (html.escape(title), STYLE, "\n".join(parts))


def main():
    p = make_parser(__doc__)
    p.add_argument("archives", nargs="+", metavar="ARCHIVE")
    p.add_argument("--page", metavar="FILE", default="gpu-report.html", help="where the page goes (gpu-report.html)")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        title = machine(folder, unpack(args.archives, folder))
        markdown = readme_table(all_rows(folder))
        if markdown:
            markdown = ["Measured on one %s." % title, ""] + markdown
        with open(args.page, "w", encoding="utf-8") as file:
            file.write(page(folder, title, markdown))
        why = (read_text(folder, "device.log") or read_text(folder, "missing.txt")).splitlines()[-1:]
    print("\n".join(markdown))
    print("the page: %s" % args.page, file=sys.stderr)
    if not markdown:
        print("gpu_report: no rows%s" % (": " + why[0] if why else ""), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
