# SPDX-License-Identifier: MIT
"""Draws the figures in published.csv, and writes their tables into the papers' pages:

policies/papers/PAPER.md has a table between two marks, and policies/papers/PAPER.svg the picture: ours over published,
on a logarithmic scale.

    published pages [--check]

--check: writes nothing, and fails if a page or a picture is not what it would write.
"""
import math
import os
import sys
from xml.sax.saxutils import escape

from papers import HERE, UNIT, read_table

FOLDER = os.path.join(HERE, "..", "..", "policies", "papers")
BEGIN, END = "<!-- figures: tools/bench/published pages -->\n", "<!-- end of figures -->\n"

# ---------------------------------------------------------------- the table


def text_of(figure, value):
    if figure.kind == "gain":
        return "%+.1f %%" % (100 * (value - 1))
    return ("%.1f %%" if figure.kind == "points" else "%.4g") % value


def rows_of(figures):
    yield "| figure | what | published | ours | error | why it differs |"
    yield "|---|---|---|---|---|---|"
    for f in figures:
        ours = text_of(f, f.ours) if f.ours is not None else "none"
        error = "%+.1f %s" % (f.error(f.ours), UNIT[f.kind]) if f.ours is not None else ""
        if f.status != "predicted":
            error += " *(%s)*" % f.status
        why = f.why if f.ours is None or not f.is_near(f.ours) else ""
        yield "| %s | %s | %s | %s | %s | %s |" % (f.figure, f.what, text_of(f, f.published), ours, error, why)


def page(text, path, figures):
    if BEGIN not in text or END not in text:
        sys.exit("%s: lacks the marks %s and %s" % (path, BEGIN.strip(), END.strip()))
    before, rest = text.split(BEGIN, 1)
    return before + BEGIN + "\n".join(rows_of(figures)) + "\n" + END + rest.split(END, 1)[1]


# ---------------------------------------------------------------- the picture

LABEL, PLOT, LINE, TOP = 380, 360, 18, 46  # pixels: width of labels and plot, height of a line, of the head
MOST = 4.0  # the scale ends at 4 times and at a fourth
COLOURS = {"predicted": "#1f6fb4", "calibrated": "none", "assumed": "none"}


def x_of(ratio):
    return LABEL + PLOT / 2 * (1 + math.log(min(max(ratio, 1 / MOST), MOST)) / math.log(MOST))


def mark(figure, y):
    x = x_of(figure.ours / figure.published if figure.ours > 0 else 1 / MOST)
    if figure.status == "assumed":
        return '<path d="M%.1f %d l4 7 h-8 z" fill="none" stroke="#888"/>' % (x, y - 4)
    return '<circle cx="%.1f" cy="%d" r="4" fill="%s" stroke="#1f6fb4"/>' % (x, y, COLOURS[figure.status])


def picture(paper, figures):
    figures = [f for f in figures if f.ours is not None]
    bottom = TOP + LINE * len(figures)
    yield ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">' %
           (LABEL + PLOT + 20, bottom + 10))
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield ('<text x="8" y="16" font-weight="bold">%s: ours over published (filled: predicted; open: calibrated; '
           'triangle: assumed; grey: within 15 %%)</text>' % paper)
    yield ('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#e8e8e8"/>' %
           (x_of(1 / 1.15), TOP - 8, x_of(1.15) - x_of(1 / 1.15), bottom - TOP + 8))
    for at, name in ((1 / 4, "1/4"), (1 / 2, "1/2"), (1, "1"), (2, "2"), (4, "4")):
        yield '<path d="M%.1f %d V%d" stroke="#bbb"/>' % (x_of(at), TOP - 8, bottom)
        yield '<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (x_of(at), TOP - 12, name)
    for i, figure in enumerate(figures):
        y = TOP + LINE * i + LINE // 2
        yield '<text x="8" y="%d">%s</text>' % (y + 4, escape(figure.what[:62]))
        yield mark(figure, y)
    yield "</svg>"


# ---------------------------------------------------------------- files


def files():
    """(path, content that it must have)"""
    table = read_table()
    for paper in dict.fromkeys(f.paper for f in table):
        figures = [f for f in table if f.paper == paper]
        path = os.path.join(FOLDER, paper + ".md")
        with open(path, encoding="utf-8") as file:
            yield path, page(file.read(), path, figures)
        yield os.path.join(FOLDER, paper + ".svg"), "\n".join(picture(paper, figures)) + "\n"


def add_options(parser):
    parser.add_argument("--check", action="store_true", help="only says what would change")


def run(options):
    changed = []
    for path, content in files():
        now = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                now = file.read()
        if now == content:
            continue
        changed.append(os.path.normpath(os.path.relpath(path, os.path.join(HERE, "..", ".."))))
        if not options.check:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
    for path in changed:
        print("%s: %s" % (path, "is not what published pages writes" if options.check else "written"))
    return 1 if changed and options.check else 0
