# SPDX-License-Identifier: MIT
"""Pictures of mm.plan: memory over the operators of a step, as SVG; and a page of all figures, as HTML."""

import html as escapes
from typing import Dict, List

from . import session

_KINDS = (("weight", "#4e79a7"), ("state", "#9c755f"), ("optimizer state", "#b07aa1"), ("weight gradient", "#76b7b2"),
          ("input", "#edc948"), ("feature map", "#59a14f"), ("saved", "#8cd17d"), ("gradient map", "#f28e2b"),
          ("workspace", "#bab0ac"))
_LINES = ("#e15759", "#000000", "#d37295", "#499894", "#b6992d")
_WIDTH, _HEIGHT, _LEFT, _HEAD = 960, 420, 70, 64
_POINTS = 600  # columns of the picture; each shows the most of its operators


def _by_kind(step) -> List[Dict[str, int]]:
    """Live bytes of plain torch at each operator, by role."""
    changes = [dict() for _ in range(len(step.ops) + 1)]
    for s in step.tracer.storages:
        first, last = max(s.born, 0), len(step.ops) - 1 if s.died is None else s.died
        if last >= first:
            changes[first][s.role] = changes[first].get(s.role, 0) + s.bytes
            changes[last + 1][s.role] = changes[last + 1].get(s.role, 0) - s.bytes
    live, now = [], {}
    for change, op in zip(changes, step.ops):
        for role, n in change.items():
            now[role] = now.get(role, 0) + n
        live.append({**now, "workspace": op.workspace_bytes})
    return live


def _columns(values, size):
    """At most _POINTS of `values`, each the largest by `size` of its range."""
    n = min(len(values), _POINTS)
    return [max(values[len(values) * i // n:max(len(values) * (i + 1) // n, len(values) * i // n + 1)], key=size)
            for i in range(n)]


class _Axes:
    def __init__(self, most):
        self.most = most

    def x(self, at, of):
        return _LEFT + (_WIDTH - _LEFT - 10) * at / max(of, 1)

    def y(self, size):
        return _HEAD + _HEIGHT * (1 - size / self.most)

    def path(self, sizes):
        points = [f"{self.x(i, len(sizes)):.1f},{self.y(n):.1f} {self.x(i + 1, len(sizes)):.1f},{self.y(n):.1f}"
                  for i, n in enumerate(sizes)]
        return " ".join(points)


def _areas(axes, columns):
    """Stacked areas of plain torch's memory by kind."""
    below = [0] * len(columns)
    for role, colour in _KINDS:
        above = [b + c.get(role, 0) for b, c in zip(below, columns)]
        if above != below:
            back = " ".join(reversed(axes.path(below).split(" ")))
            yield f'<polygon points="{axes.path(above)} {back}" fill="{colour}"><title>{role}</title></polygon>'
        below = above


def svg(plan) -> str:
    """Areas: plain torch's memory by kind. Lines: policies' plans. Dashed: the budget."""
    live = _columns(_by_kind(plan.step), lambda column: sum(column.values()))
    lines = {policy: _columns([t["live_bytes"] for t in needs["graphs"][0]["timeline"]], lambda n: n)
             for policy, needs in plan.needs.items() if needs["graphs"][0]["timeline"]}
    most = 1.02 * max([plan.budget_bytes if plan.budget_bytes < 4 * plan.step.peak_bytes else 1, plan.step.peak_bytes]
                      + [max(sizes) for sizes in lines.values()])
    axes, size = _Axes(most), session.text_of
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT + _HEAD + 40}" '
           'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>',
           f'<text x="{_LEFT}" y="14">{escapes.escape(plan.name)}, {escapes.escape(plan.machine.name)}: plain torch '
           '(areas) and policies (lines)</text>']
    there = [(role, colour) for role, colour in _KINDS if any(column.get(role) for column in live)]
    for i, (role, colour) in enumerate(there):
        at = _LEFT + 110 * (i % 8), 30 + 14 * (i // 8)
        out.append(f'<rect x="{at[0]}" y="{at[1] - 9}" width="10" height="10" fill="{colour}"/>'
                   f'<text x="{at[0] + 14}" y="{at[1]}">{role}</text>')
    out += _areas(axes, live)
    for i, (policy, sizes) in enumerate(lines.items()):
        colour = _LINES[i % len(_LINES)]
        out.append(f'<polyline points="{axes.path(sizes)}" fill="none" stroke="{colour}"><title>{escapes.escape(policy)}'
                   f'</title></polyline><text x="{_LEFT + 150 * i}" y="{_HEAD - 4}" fill="{colour}">'
                   f'{escapes.escape(policy)}</text>')
    for value, words in ((0, "0"), (plan.budget_bytes, size(plan.budget_bytes)), (plan.step.peak_bytes,
                                                                                 size(plan.step.peak_bytes))):
        if value <= most:
            out.append(f'<path d="M{_LEFT} {axes.y(value):.1f}H{_WIDTH - 10}" stroke="#888" stroke-dasharray="3"/>'
                       f'<text x="{_LEFT - 4}" y="{axes.y(value) + 4:.1f}" text-anchor="end">{words}</text>')
    out += _phases(plan.step, axes)
    out.append(f'<text x="{_LEFT}" y="{_HEAD + _HEIGHT + 32}">operators in the order of the step: {len(plan.step.ops)}; '
               'a line has the steps of its plan</text></svg>')
    return "\n".join(out) + "\n"


def _phases(step, axes):
    """Where each phase begins."""
    before = ""
    for at, op in enumerate(step.ops):
        if op.phase != before:
            x = axes.x(at, len(step.ops))
            yield (f'<path d="M{x:.1f} {_HEAD}V{_HEAD + _HEIGHT + 6}" stroke="#444"/>'
                   f'<text x="{x + 3:.1f}" y="{_HEAD + _HEIGHT + 16}">{op.phase}</text>')
            before = op.phase


def html(plan) -> str:
    """A page without references to others: the picture, the text, and a table of all modules for each policy."""
    size = session.text_of
    parts = ['<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">', f"<title>{escapes.escape(plan.name)}</title>",
             "<style>body{font-family:sans-serif;margin:2em;max-width:64em}td,th{padding:2px 12px 2px 0;text-align:left}"
             "pre{font-size:13px;overflow-x:auto}</style></head><body>", svg(plan),
             f"<pre>{escapes.escape(str(plan))}</pre>"]
    for policy in plan.needs:
        parts.append(f"<h2>{escapes.escape(policy)}: all modules</h2><table><tr><th>module</th><th>bytes</th>"
                     "<th>what becomes of them</th></tr>")
        for row in plan.modules(policy):
            actions = ", ".join(f"{action} {size(n)}" for action, n in row["actions"].items())
            parts.append(f"<tr><td>{escapes.escape(row['module'])}</td><td>{size(row['bytes'])}</td>"
                         f"<td>{escapes.escape(actions)}</td></tr>")
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>"]) + "\n"
