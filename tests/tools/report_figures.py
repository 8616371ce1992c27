# SPDX-License-Identifier: MIT
"""Checks what pages of 'mm report' tell at sight, in wide and narrow windows, light and dark: speeds are seen without
scrolling sideways, a table that goes on fades there, what is predicted differs from what is measured by more than
colour, labels can be read, no value lies beyond an axis, and many rows are folded."""
import sys

WIDTHS = 1280, 400
FEWEST = 20  # changes of colour along a line of a hatched picture; a plain picture has fewer


def expect(value, wanted, what):
    if value != wanted:
        sys.exit("%s: %r, expected %r" % (what, value, wanted))


# Runs in the page, whose own names these are not. inside(box, part): whether a part of a scrolling box is within the
# box, and in the window.
LIBRARY = """
window.inside = (box, part) => {
    const b = box.getBoundingClientRect(), p = part.getBoundingClientRect();
    return p.width > 0 && p.left >= b.left - 1 && p.right <= Math.min(b.right, document.documentElement.clientWidth) + 1;
};
window.each = (selector, within = document) => [...within.querySelectorAll(selector)];
window.style = (part, pseudo) => getComputedStyle(part, pseudo);

// Names of texts in charts that the chart cuts off, or that overlap another.
window.badLabels = () => each('.chart svg').flatMap((svg) => {
    const box = svg.getBoundingClientRect(), texts = each('text', svg).map((t) => [t.getBoundingClientRect(), t.textContent]);
    return texts.filter(([t], i) => t.left < box.left - 1 || t.right > box.right + 1 || t.bottom > box.bottom + 1 ||
                 texts.some(([o], k) => k > i && t.left < o.right - 1 && o.left < t.right - 1 && t.top + 2 < o.bottom - 2 &&
                            o.top + 2 < t.bottom - 2)).map(([, text]) => text);
});

// Charts with a line or a mark above the last tick.
window.beyond = () => each('.chart svg').filter((svg) => {
    const last = Math.min(...each('.grid', svg).map((line) => line.getBBox().y)), of = (part) => part.getBoundingClientRect();
    const tops = each(':scope > .line:not(.level-touched), :scope > .speed', svg).map((line) => line.getBBox().y);
    const marks = each('.mark', svg).map((mark) => (of(mark).top + of(mark).bottom) / 2 - of(svg).top);
    return ![...tops, ...marks].every((y) => y > last - 2);
}).map((svg) => svg.getAttribute('aria-label'));

// Changes of colour in the picture, along the pixel row a bit above the axis of phases.
window.changes = (canvas) => {
    const y = canvas.height - 46, {data} = canvas.getContext('2d').getImageData(80, y, canvas.width - 100, 1);
    let n = 0;
    for (let i = 4; i < data.length; i += 4)
        if (Math.abs(data[i] - data[i - 4]) + Math.abs(data[i + 1] - data[i - 3]) + Math.abs(data[i + 2] - data[i - 2]) > 30) n++;
    return n;
};

// Texts with a contrast to their ground below that of WCAG AA, 4.5.
window.paleTexts = () => {
    const parts = (colour) => colour.match(/[0-9.]+/g).map(Number);
    const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (part) => {
        for (let at = part; at; at = at.parentElement) {
            const c = parts(style(at).backgroundColor);
            if (c.length < 4 || c[3] === 1) return c;
        }
        return [255, 255, 255];
    };
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = new Set();
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        const part = node.parentElement, svg = part instanceof SVGElement;
        if (!node.data.trim() || part.closest('script, noscript, .hidden, .skip, [hidden], option') || part.getClientRects().length === 0) continue;
        const ink = parts(svg ? style(part).fill : style(part).color), a = light(ink), b = light(ground(part));
        if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) found.add(node.data.trim() + ' ' + ink);
    }
    return [...found].slice(0, 8);
};
0
"""


def check_speed_is_seen(page):
    """Each speed, and what each plan needs, is seen without scrolling, as is the head of its column."""
    for section, head in ("runs", "images/s"), ("plans", "needs"):
        at = page.run("each('#%s thead th').findIndex((th) => th.innerText.startsWith('%s'))" % (section, head))
        cells = "each('#%s tr:not(.fold)').flatMap((row) => [row.children[0], row.children[%d]])" % (section, at)
        expect(page.run("each('#%s tr td .share').length" % section) > 0, True, "figures in " + section)
        expect(page.run(cells + ".filter((cell) => !inside(cell.closest('.table'), cell)).map((cell) => cell.innerText)"),
               [], "policies and %s that are not seen in %s" % (head, section))
    expect(page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), True,
           "that the page scrolls down only")


def check_menu(page):
    """Each entry of the menu is seen as a whole."""
    expect(page.run("each('nav a').length"), page.run("each('main section').length"), "entries of the menu")
    expect(page.run("each('nav a').filter((a) => !inside(a.parentElement, a)).map((a) => a.innerText)"), [],
           "entries of the menu that are cut")


def check_fades(page, width):
    """A table that goes on at the right fades there, until it is scrolled to its end."""
    goes_on = page.run("each('.table').map((box) => box.scrollWidth > box.clientWidth + 1)")
    expect(page.run("each('.table').map((box) => style(box).maskImage !== 'none')"), goes_on, "tables that fade")
    expect(True in goes_on or width > 400, True, "that a table is wider than a narrow window")
    page.run("each('.table').forEach((box) => { box.scrollLeft = box.scrollWidth; })")
    page.settle()
    expect(page.run("each('.table.cut').length"), 0, "tables that fade at their end")
    page.run("each('.table').forEach((box) => { box.scrollLeft = 0; })")


def check_curves(page):
    """The only chart has measured and simulated rows of the same policies, and predictions beside measured ones."""
    expect(page.run("each('#throughput .chart svg').length"), 1, "charts")
    rows = "all.rows.filter(ranRow)"  # the page's data
    simulated = page.run(rows + ".filter((row) => row.simulated).length")
    beside = page.run(rows + ".filter((row) => !row.simulated && row.iteration_seconds_predicted > 0).length")
    measured = page.run(rows + ".filter((row) => !row.simulated && row.budget_bytes > 0 && row.net === 'resnet20').length")
    expect([simulated > 1, beside > 0, measured > 1], [True] * 3, "that there are rows of all kinds")
    card = "style(document.querySelector('.card')).backgroundColor"
    expect(page.run("each('#throughput .chart .mark').filter((mark) => style(mark).fill === %s).length" % card), simulated + beside,
           "hollow marks")
    expect(page.run("each('#throughput .chart .mark').filter((mark) => style(mark).fill !== %s).length" % card), measured,
           "filled marks")
    dashes = page.run("each('#throughput .chart svg > .line').map((line) => style(line).strokeDasharray !== 'none')")
    expect([True in dashes, False in dashes], [True, True], "dashed and solid lines: %r" % dashes)
    lossy = page.run("each('#throughput .chart .whiskers').length")
    expect(0 < lossy < simulated + beside + measured, True, "marks of lossy policies: %d" % lossy)
    for word in "measured", "predicted", "lossy":
        expect(page.run("document.querySelector('#throughput .key-of-marks').innerText.includes('%s')" % word), True,
               "the key has " + word)


def check_rows(page):
    """Simulated rows say so, and have slanted figures, a hatched bar and a hollow mark; measured ones do not."""
    told = page.run("each('#runs tbody tr').map((row) => [row.querySelector('th').innerText.includes('simulated'),"
                    "style(row.querySelector('.share')).fontStyle === 'italic',"
                    "style(row.querySelector('.share'), '::after').backgroundImage !== 'none',"
                    "row.querySelector('.mark.predicted') !== null])")
    for row in told:
        expect(row, [row[0]] * 4, "a row: simulated, slanted, hatched, hollow")
    expect([True in (r[0] for r in told), False in (r[0] for r in told)], [True, True], "measured and simulated rows")
    expect(page.run("each('#plans tbody td .share').every((part) => style(part, '::after').backgroundImage !== 'none')"),
           True, "that what plans need is hatched")


def check_folded(page):
    """Rows that did not run are shown on demand, and say in the speed's place what they need."""
    ran, rows = page.run("[all.rows.filter(ranRow).length, all.rows.length]")
    expect(page.run("each('#runs tbody tr').length"), ran, "rows at first")
    expect(page.run("document.querySelector('#runs .more').innerText"),
           "show all %d rows, %d of which did not run" % (rows, rows - ran), "the button below the rows")
    page.run("document.querySelector('#runs .more').click()")
    expect(page.run("each('#runs tbody tr').length"), rows, "rows after a click")
    needs = page.run("each('#runs .absent').filter((cell) => inside(cell.closest('.table'), cell))"
                     ".map((cell) => cell.innerText)")
    expect([len(needs), all(text.startswith("needs ") for text in needs)], [rows - ran, True], "needs: %r" % needs)


def check_memory(page):
    """Predicted memory is hatched, and says so; that of a run is plain."""
    panels = page.run("each('.memory').map((box) => [box.querySelector('.chip').innerText,"
                      "changes(box.querySelector('canvas'))])")
    expect(sorted(set(chip for chip, _ in panels)), ["of a run", "predicted"], "pictures of memory")
    for chip, changes in panels:
        expect(changes > FEWEST, chip == "predicted", "that memory, %s, is hatched: %d changes" % (chip, changes))
    for section in "memory", "timeline":
        expect(page.run("document.querySelector('#%s .legend').innerText.includes('hatched: predicted')" % section),
               True, "that the legend of %s explains what is hatched" % section)


def check_training(page):
    """The curves of a training: --log gives the values, --json the name, and what memory was measured."""
    shown = page.run("each('#training h3').map((h) => h.innerText)")
    expect(shown, ["tiny, batch 4, liveness, measured on host log.csv",
                   "resnet8, batch 4, liveness → naive, measured on host switched.csv"], "headings of trainings")
    # The first has evaluations, and the same plan throughout; the second is switched to a plan that needs more.
    plain = ["learning rate", "images/s"]
    expect(page.run("each('#training figcaption').map((one) => one.innerText)"),
           ["loss", "accuracy"] + plain + ["loss of training batches", "accuracy of training batches"] + plain +
           ["device memory, as planned"], "curves")
    expect(page.run("each('#training figure').map((box) =>"
                    "style(box.querySelector('svg > .series0')).strokeDasharray !== 'none')"),
           [False] * 8 + [True], "that planned memory alone is dashed")
    expect(page.run("each('#training figure').map((box) => each('.chart svg > .mark.series1', box).length)"), [3, 3] + [0] * 7,
           "marks of evaluations")
    keys = page.run("each('#training .key-of-lines').map((key) => key.textContent)")
    words = ("training batches", "test data"), ("training batches", "test data"), \
        ("planned", "touched, as measured", "budget 32MiB")
    expect(len(keys), 3, "keys of lines")
    for key, wanted in zip(keys, words):
        expect([word for word in wanted if word not in key], [], "words that the key %r lacks" % key)
    facts = page.run("each('#training .facts').map((one) => one.textContent)")
    for word in "best of 3 evaluations", "device memory planned", "touched, as measured", "budget 8MiB":
        expect([word in one for one in facts], [True, False], "that facts, %r, have %s" % (facts, word))
    expect(page.run("each('#training .chart svg').every((svg) => each('text', svg).length > 4)"), True,
           "that each curve has numbers at its axes")


def check_bars(page):
    """Of two budgets there are bars, and it is told apart which policies ran in none of them, and which in one."""
    expect(page.run("[each('#throughput .chart .speed').length, each('#throughput .chart svg > .line').length]"), [21, 0],
           "bars and lines")
    note = page.run("document.querySelector('#throughput .note').innerText")
    expect(note, "Ran in none of the budgets: naive (needs 90MiB). Ran in some of the budgets only: late (needs 50MiB).",
           "what is told below the chart")


def check_groups(page):
    """Of many rows, the fastest of each group are shown; a row tells the others, and unfolds them."""
    expect(page.run("each('#runs .chip').filter((chip) => chip.innerText === 'simulated').length"), 0,
           "chips that say of each row what the heading says of all")
    number = "each('#runs tbody tr:not(.fold)').length"
    expect(page.run(number), 16, "rows at first")
    expect(page.run("each('#runs .fold button').map((one) => [one.innerText, one.getAttribute('aria-expanded')])"),
           [["3 more, the fastest of them p8 with 365.0 images/s; 1 that did not run", "false"],
            ["2 more, the fastest of them p8 with 365.0 images/s; 2 that did not run", "false"]], "folded rows")
    expect(page.run("each('#runs .fold button').filter((one) => !inside(one.closest('.table'), one)).length"), 0,
           "texts of folded rows that are cut")
    page.run("document.querySelector('#runs .fold button').click()")
    expect(page.run(number), 20, "rows when a group is unfolded")
    expect(page.run("document.activeElement.getAttribute('aria-expanded')"), "true", "that the button keeps the focus")
    page.run("document.querySelector('#runs .fold button').click()")
    expect(page.run(number), 16, "rows when it is folded again")
    page.run("document.querySelector('#runs .more').click()")
    expect(page.run("[%s, each('#runs .fold').length]" % number), [24, 0], "rows when all are shown")


def check_misfits(page):
    """The table of plans says first which do not fit their budget."""
    told = page.run("each('#plans tbody th').map((cell) => [cell.innerText.split(/\\s/)[0],"
                    "each('.chip.bad', cell).filter((chip) => inside(cell.closest('.table'), chip))"
                    ".map((chip) => chip.innerText)])")
    expect(told, [["liveness", ["does not fit"]], ["swap-async", []]], "plans, and whether they fit")


def check_page(page, path, width, checks):
    """Makes the checks in a window of a width, in both themes."""
    for theme in "light", "dark":
        page.prefer(theme)
        page.open(path)
        page.run("document.querySelector('header .switch button[value=auto]').click()")
        page.settle()
        expect(page.run("document.documentElement.dataset.theme"), theme, "the theme")
        page.run(LIBRARY)
        try:
            check_fades(page, width)
            for check in checks:
                check(page)
            expect(page.run("badLabels()"), [], "labels that are cut or overlap")
            expect(page.run("beyond()"), [], "charts with a value beyond the axis")
            expect(page.run("paleTexts()"), [], "texts with too little contrast")
        except SystemExit as failed:
            sys.exit("%s at %d, %s" % (failed, width, theme))


def check_figures(page, figures, many):
    """figures: a page of measured and predicted rows, plans, traces, trainings; many: of many rows in two budgets."""
    for width in WIDTHS:
        page.size(width, 900)
        check_page(page, figures, width, [check_speed_is_seen, check_menu, check_curves, check_rows, check_memory,
                                          check_training, check_folded])
        check_page(page, many, width, [check_speed_is_seen, check_menu, check_bars, check_groups, check_misfits])
