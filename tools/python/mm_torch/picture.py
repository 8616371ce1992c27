# SPDX-License-Identifier: MIT
"""Reports of a session: a table by producer, and a picture of the plan."""

from . import coverage, session


def table(rows, right):
    """Lines of a table, with columns two spaces apart; columns in `right` are aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.rjust(w) if i in right else cell.ljust(w)
                      for i, (cell, w) in enumerate(zip(row, widths))).rstrip() for row in rows]


def report(m):
    text_of, stats, groups = session.text_of, m.stats, {}
    for entry in m.entries():
        key = entry.producer or "(no gradient)", entry.fate, entry.codec or "-", \
            "signs" if entry.signs else "exact" if entry.exact else ""
        count, size, code, gets = groups.get(key, (0, 0, 0, 0))
        groups[key] = count + 1, size + entry.bytes, code + entry.code_bytes, gets + entry.gets
    rows = [("producer", "needs", "fate", "codec", "tensors", "bytes", "code", "read")]
    for (producer, fate, codec, needs), (count, size, code, gets) in sorted(groups.items(), key=lambda g: -g[1][1]):
        rows.append((producer, needs, fate, codec, str(count), text_of(size), text_of(code) if code else "-", str(gets)))
    lines = [coverage.line(m.coverage)] if m.coverage is not None else []
    lines += table(rows, (4, 5, 6, 7)) if len(rows) > 1 else ["no iteration has ended yet"]
    alone = ", ".join(f"{getattr(stats, name)} {words}" for name, words in (
        ("params", "parameters and their views"), ("small", "small"),
        ("held", f"held by the program ({text_of(stats.held_bytes)})"), ("other", "others"))
        if getattr(stats, name))
    lines += ["", f"budget {text_of(m.bytes)}, {m.policy}: peak {text_of(stats.peak_bytes)}"
              + (f", predicted {text_of(stats.predicted_bytes)}" if stats.predicted_bytes else "")
              + (f", needs {text_of(stats.needed_bytes)} at least" if stats.needed_bytes else ""),
              f"iterations {stats.iterations}, {stats.planned} as planned, {stats.off_plan} left their plan",
              f"saved {stats.saved}: {stats.puts} put, {stats.duplicates} there already"
              + (f"; left alone: {alone}" if alone else ""),
              f"to host memory {text_of(stats.out_bytes)}, back {text_of(stats.in_bytes)}; encoded "
              f"{text_of(stats.encoded_bytes)} to {text_of(stats.coded_bytes)}"]
    if stats.store_bytes:
        lines[-1] += f"; to the disk {text_of(stats.store_bytes)}, back {text_of(stats.load_bytes)}"
    return "\n".join(lines)


_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f")


def svg(m, path):
    """Draws segments as boxes: x: events of the order, y: bytes of the arena. Colour: producer; hatched: codes."""
    entries, boxes = list(m.entries()), [s for s in m.segments() if not s.pinned]
    producers = sorted({e.producer for e in entries})
    colour = {p: _COLOURS[i % len(_COLOURS)] for i, p in enumerate(producers)}
    events = max([s.last + 1 for s in boxes], default=1)
    top = max([m.bytes] + [s.offset + s.bytes for s in boxes])
    width, height, left, head = 960, 480, 70, 24 + 16 * ((len(producers) + 3) // 4)
    x, y = (lambda event: left + (width - left - 10) * event / events), (lambda at: head + height * (1 - at / top))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + head + 30}" font-family="sans-serif" '
           'font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>',
           '<defs><pattern id="code" width="4" height="4" patternUnits="userSpaceOnUse"><path d="M0 4L4 0" stroke="#fff"/>'
           '</pattern></defs>', f'<text x="{left}" y="14">{_xml(m.policy)}: saved tensors in {session.text_of(m.bytes)}</text>']
    for i, producer in enumerate(producers):
        at = left + 220 * (i % 4), 30 + 16 * (i // 4)
        out.append(f'<rect x="{at[0]}" y="{at[1] - 9}" width="10" height="10" fill="{colour[producer]}"/>'
                   f'<text x="{at[0] + 14}" y="{at[1]}">{_xml(producer or "(no gradient)")}</text>')
    for s in boxes:
        entry = entries[s.entry] if 0 <= s.entry < len(entries) else None
        name = f"{entry.producer or '(no gradient)'}, {entry.fate}" if entry else "workspace"
        box = (f'x="{x(s.first):.1f}" y="{y(s.offset + s.bytes):.1f}" width="{max(x(s.last + 1) - x(s.first), .5):.1f}" '
               f'height="{max(height * s.bytes / top, .3):.1f}"')
        out.append(f'<rect {box} fill="{colour[entry.producer] if entry else "#bbb"}" stroke="#fff" stroke-width=".4">'
                   f'<title>{_xml(name)}: {s.bytes} bytes at {s.offset}, events {s.first} to {s.last}</title></rect>')
        if s.code:
            out.append(f'<rect {box} fill="url(#code)"/>')
    for bytes_, text in ((0, "0"), (m.bytes, session.text_of(m.bytes))):
        out.append(f'<path d="M{left} {y(bytes_):.1f}H{width - 10}" stroke="#888" stroke-dasharray="3"/>'
                   f'<text x="{left - 4}" y="{y(bytes_) + 4:.1f}" text-anchor="end">{text}</text>')
    out.append(f'<text x="{left}" y="{head + height + 20}">events (puts, reads, returns): {events}</text></svg>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


def _xml(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
