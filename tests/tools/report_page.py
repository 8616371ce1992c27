#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""report_page.py PAGE FIGURES MANY DAMAGED HOMES FOLDER: checks pages of 'mm report' of report_page_test.sh in a
headless Chromium, which is started once: what is on PAGE, what FIGURES and MANY tell at sight (report_figures.py), that
DAMAGED, of damaged files, comes to its end, and that HOMES has tables of homes. FOLDER is for the browser's files.
--find: prints the Chromium's path, or fails."""
import os
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import chromium  # pylint: disable=wrong-import-position
from report_figures import check_figures, expect  # pylint: disable=wrong-import-position

POLICIES = 3


def colours(png):
    """Returns the set of colours of a PNG that has 8 bits a channel and is not interlaced."""
    at, data, header = 8, b"", None
    while at < len(png):
        length, kind = int.from_bytes(png[at:at + 4], "big"), png[at + 4:at + 8]
        if kind == b"IHDR":
            header = png[at + 8:at + 8 + length]
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + length]
        at += 12 + length
    width, height = int.from_bytes(header[:4], "big"), int.from_bytes(header[4:8], "big")
    channels = {2: 3, 6: 4}[header[9]]
    raw, stride, found = zlib.decompress(data), width * channels, set()
    before = bytearray(stride)
    for y in range(height):
        method, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left, up = line[i - channels] if i >= channels else 0, before[i]
            corner = before[i - channels] if i >= channels else 0
            if method == 1:
                line[i] = (line[i] + left) & 255
            elif method == 2:
                line[i] = (line[i] + up) & 255
            elif method == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif method == 4:
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
                line[i] = (line[i] + near[2]) & 255
        found.update(bytes(line[i:i + 3]) for i in range(0, stride, channels))
        before = line
    return found


def holds(condition, what):
    if not condition:
        sys.exit(what)


def number(page, selector):
    return page.run("document.querySelectorAll('%s').length" % selector)


def center(page, selector, fx=0.5, fy=0.5):
    """Scrolls an element into the middle, and returns a point in it."""
    page.run("document.querySelector('%s').scrollIntoView({block: 'center', behavior: 'instant'})" % selector)
    page.settle()
    x, y, width, height = page.run("(() => { const r = document.querySelector('%s').getBoundingClientRect();"
                                   "return [r.x, r.y, r.width, r.height]; })()" % selector)
    return x + fx * width, y + fy * height


def tip(page):
    return page.run("document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText")


def check_counts(page):
    expect(page.run("document.documentElement.dataset.ready"), "yes", "the script's end")
    expect(page.run("[...document.querySelectorAll('main section')].map((s) => s.id)"),
           ["throughput", "training", "runs", "plans", "memory", "timeline", "maps"], "sections")
    # Two networks (one under another name), each with charts over the budget for two batches, and over the batch.
    expect(number(page, "#throughput .chart svg"), 2 * 3, "charts")
    expect(number(page, "#training .chart svg"), 4, "charts of the training")
    # Each row has a mark in two charts: over the budget, and over the batch.
    expect(number(page, ".chart .mark"), 2 * (2 * POLICIES + 2 * POLICIES), "marks")
    expect(number(page, "#runs tbody tr"), 2 * 2 * POLICIES, "rows of runs")
    expect(number(page, "#plans tbody tr"), POLICIES, "rows of plans")
    # Pictures of the plans, and of the trace's runs with both batches.
    expect(number(page, ".memory canvas"), 2 * 3 * POLICIES, "canvases of memory")
    expect(number(page, ".memory button[value=addresses]"), 3 * POLICIES, "pictures with segments")
    expect(number(page, ".timeline canvas"), 2 * 2 * POLICIES, "canvases of timelines")
    expect(number(page, ".timeline option"), 2 * POLICIES * 3, "choices of iterations")
    expect(number(page, "#maps table"), 3, "tables of maps")
    expect(number(page, "#maps thead th"), 3 * (4 + POLICIES), "columns of maps")
    for action in "keep", "compress", "swap":
        holds(number(page, "#maps .act-" + action) > 0, "no map is told to " + action)


def check_pointer(page):
    x, y = center(page, ".memory .view", 0.5, 0.6)
    page.move(x, y)
    page.settle()
    said = tip(page)
    for text in "stashed feature maps", "MiB", " · ", "computed":
        holds(text in said, "the tip over the memory lacks %r: %s" % (text, said))
    page.run("document.querySelector('.memory .switch button[value=addresses]').click()")
    page.move(x, y + 1)
    page.settle()
    said = tip(page)
    for text in "layer", "action", "computed by", "address", "alive":
        holds(text in said, "the tip over a segment lacks %r: %s" % (text, said))
    page.run("document.querySelector('.timeline .zoom button:last-child').click()")
    for share in range(20, 80):  # one of these points is in a compute slice
        x, y = center(page, ".timeline .view", share / 100, 0.25)
        page.move(x, y)
        page.settle()
        said = tip(page)
        if "takes" in said:
            break
    for text in "takes", "stream", "compute", "iteration":
        holds(text in said, "the tip over a slice lacks %r: %s" % (text, said))
    # Keys select the first encode.
    page.run("document.querySelectorAll('.timeline .view')[1].focus()")
    for key in "ArrowDown", "ArrowRight":
        page.key(key)
    page.settle()
    for text in "encode ", "tensor", "stored", "where the map went":
        holds(text in tip(page), "the tip over an encode lacks %r: %s" % (text, tip(page)))
    x, y = center(page, ".chart .mark")
    page.move(x, y)
    page.settle()
    holds("images/s" in tip(page), "no tip at a mark: " + tip(page))
    page.move(2, 2)
    page.settle()
    expect(tip(page), "", "the tip beside everything")


def check_keys(page):
    page.run("document.querySelectorAll('.memory .view')[1].focus()")
    page.key("ArrowRight")
    page.key("ArrowDown")
    page.settle()
    first = tip(page)
    holds("MiB" in first or "KiB" in first, "no tip by arrow keys: " + first)
    for _ in range(9):
        page.key("ArrowRight")
    page.settle()
    holds(tip(page) not in ("", first), "the cursor stays: " + first)
    page.key("Escape")
    page.settle()
    expect(tip(page), "", "the tip after Escape")


def check_tables(page):
    first = "document.querySelector('#maps tbody tr').innerText"
    largest = page.run(first)
    page.run("document.querySelectorAll('#maps thead button')[1].click()")
    order = "document.querySelectorAll('#maps thead th')[1].getAttribute('aria-sort')"
    expect(page.run(order), "ascending", "the order")
    holds(page.run(first) != largest, "a click on a column sorts nothing")
    page.run("(() => { const input = document.querySelector('#maps input'); input.value = 'conv swap';"
             "input.dispatchEvent(new Event('input')); })()")
    holds(page.run("[...document.querySelectorAll('#maps tbody tr')].every((row) => row.innerText.includes('swap'))"),
          "the filter lets others through")
    holds(number(page, "#maps tbody tr") > 0, "the filter lets nothing through")


def look(page):
    """Returns the colours of what is seen. The picture is made small, since it is decoded in Python."""
    clip = {"x": 0, "y": 0, "width": 1200, "height": 900, "scale": 0.4}
    return colours(page.screenshot(clip=clip))


def check_looks(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    center(page, ".memory .view")
    light, light_ground = look(page), page.run(ground)
    holds(len(light) > 60, "the light page has %d colours" % len(light))
    page.prefer("dark")
    dark, dark_ground = look(page), page.run(ground)
    holds(len(dark) > 60 and dark_ground != light_ground,
          "the dark page has %d colours on %s" % (len(dark), dark_ground))
    holds(min(sum(c) for c in dark) < 150, "nothing in the dark page is dark")
    page.run("document.querySelector('header .switch button[value=light]').click()")
    page.settle()
    expect(page.run(ground), light_ground, "the ground after a click on 'light'")
    page.size(400, 800)
    page.settle()
    holds(page.run("document.documentElement.scrollWidth <= innerWidth"), "a narrow page is wider than its window")
    holds(len(colours(page.screenshot())) > 20, "the narrow page is blank")


def check_damaged(page):
    """Checks that the script of a page of damaged files comes to its end, and that the page's pictures answer."""
    expect(page.run("document.documentElement.dataset.ready"), "yes", "the script's end")
    holds(number(page, ".view") > 0, "there are no pictures")
    for i in range(number(page, ".view")):
        page.run("document.querySelectorAll('.view')[%d].focus()" % i)
        for key in "ArrowRight", "ArrowDown", "+", "ArrowLeft", "0":
            page.key(key)
    page.settle()


def check_homes(page):
    expect(page.run("[...document.querySelectorAll('main section')].map((s) => s.id)"), ["plans", "memory", "maps", "homes"],
           "sections")
    rows = page.run("[...document.querySelectorAll('#homes tbody tr')].map((row) => row.innerText)")
    expect(len(rows), 40, "rows, of 42, before all are shown")
    holds(any("host memory" in row for row in rows) and any("disk" in row for row in rows), "homes in both: %s" % rows[:5])
    holds(any("2 visits" in row for row in rows), "no weight comes twice")


def main():
    if sys.argv[1:] == ["--find"]:
        path = chromium.find() or sys.exit(1)
        print(path)
        return
    page = chromium.Page(chromium.find(), os.path.join(sys.argv[6], "profile"))
    try:
        page.size(1200, 900)
        page.prefer("light")
        page.open(sys.argv[1])
        for check in check_counts, check_pointer, check_keys, check_tables, check_looks:
            check(page)
        expect(page.run("window.ran === undefined"), True, "that no name ran as a script")
        check_figures(page, sys.argv[2], sys.argv[3])
        page.open(sys.argv[4])
        check_damaged(page)
        page.open(sys.argv[5])
        check_homes(page)
        expect(page.complaints, [], "the console")
        expect({url.split("/")[-1] for url in page.requests}, set(sys.argv[1:6]), "requests")
    finally:
        page.close()


if __name__ == "__main__":
    main()
