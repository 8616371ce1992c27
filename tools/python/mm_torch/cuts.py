# SPDX-License-Identifier: MIT
"""Which values of a graph to save, and which to compute again, within a budget: exact where that is tractable.

    problem = Problem()
    h = problem.value("h", bytes=4096, again_ns=500, inputs=[x])
    problem.need(h)                          # the backward pass reads it
    problem.step([h])                        # in this order
    choice = problem.choose(budget)          # saved, again, bytes, ns: least ns with at most so many saved bytes
    choice = problem.fit(budget)             # and peak_bytes: with at most so many at any time

The saved bytes and the time of what runs again trade off. For a price of a byte, the best choice is a least cut of a
network of flows (Dinic). Choices of all prices are the corners of the lower convex hull of (bytes, time): nothing is
better at their bytes. Between two corners, parts that differ independently of each other are chosen one by one, as a
knapsack. So a larger budget never gives a slower choice, and no choice exceeds its budget.

What runs again takes memory, too, and a chain that runs again from its beginning takes all of it at once. So fit()
also saves values between parts of the chain, which saves no time, but lets each part run again on its own (Chen 2016).
It simulates the backward pass of each choice of a family that does not depend on the budget, and takes the fastest
whose peak fits: again, a larger budget is never slower.

Nothing here knows of torch. Objects belong to one thread."""

import dataclasses
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from . import flow

GRID = 1024  # resolution of the knapsack: parts of the distance between two corners
LEVELS = 24  # saved bytes that fit() considers, between the least and the most
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # and parts of what runs again
STATES_MOST = 24  # intermediate states of one part of the knapsack


@dataclasses.dataclass(frozen=True)
class Choice:
    """saved: numbers of values that are saved. again: of those that run again in the backward pass. bytes: of what
    is saved; ns: of what runs again. peak_bytes: most that is saved or was computed again at a time; -1: not
    simulated."""
    saved: frozenset
    again: frozenset
    bytes: int
    ns: int
    peak_bytes: int = -1


class Problem:
    """Values, by numbers in the order in which they are computed."""

    def __init__(self):
        self.names: List[str] = []
        self.bytes: List[Optional[int]] = []
        self.again_ns: List[Optional[int]] = []
        self.inputs: List[Tuple[int, ...]] = []
        self.again_bytes: List[int] = []  # what it takes once it was computed again
        self.late: List[bool] = []
        self.needed: Set[int] = set()
        self.steps: List[Tuple[int, ...]] = []
        self._family: Optional[List[Choice]] = None
        self._corners: Dict[Any, Tuple] = {}

    def value(self, name: str, bytes: Optional[int], again_ns: Optional[int], inputs: Sequence[int] = (),
              late: bool = False) -> int:
        """Adds a value, and returns its number. bytes: of saving it; None: it cannot be saved. again_ns: the time of
        computing it again from its inputs; None: it cannot. inputs: numbers of values, those that are always there
        left out. late: only the backward pass reads it, so it is a part of that, as its gradients are; its bytes do not
        count there."""
        self.names.append(name)
        self.bytes.append(bytes)
        self.again_ns.append(again_ns)
        self.inputs.append(tuple(dict.fromkeys(inputs)))
        self.again_bytes.append(0 if late else bytes or 0)
        self.late.append(late)
        return len(self.names) - 1

    def need(self, value: int) -> None:
        """The backward pass reads this value."""
        self.needed.add(value)

    def step(self, reads: Sequence[int]) -> None:
        """Appends a step of the backward pass, and what it reads."""
        self.steps.append(tuple(reads))
        self.needed.update(reads)

    def add(self, other: "Problem", count: int = 1) -> int:
        """Adds another problem, which runs `count` times, after those that are here; so its backward pass runs before
        theirs. Returns the number of its first value here."""
        first = len(self.names)
        for i, name in enumerate(other.names):
            bytes_, ns = other.bytes[i], other.again_ns[i]
            self.value(name, None if bytes_ is None else count * bytes_, None if ns is None else count * ns,
                       [first + j for j in other.inputs[i]], other.late[i])
            self.again_bytes[-1] = other.again_bytes[i]
        self.steps = [tuple(first + i for i in reads) for reads in other.steps] + self.steps
        self.needed.update(first + i for i in other.needed)
        return first

    def finish(self, saved: Set[int]) -> Optional[Choice]:
        """The choice that saves these values (or fewer, if some are not read). None: something cannot run again."""
        available, again, stack = set(self.needed), set(), list(self.needed)
        while stack:
            i = stack.pop()
            if i in saved:
                continue
            if self.again_ns[i] is None:
                return None
            again.add(i)
            for j in self.inputs[i]:
                if j not in available:
                    available.add(j)
                    stack.append(j)
        kept = frozenset(available - again)
        return Choice(kept, frozenset(again), sum(self.bytes[i] for i in kept), sum(self.again_ns[i] for i in again))

    # ------------------------------------------------------------ one price

    def cut(self, byte_weight: int, ns_weight: int) -> Choice:
        """The choice with the least byte_weight * bytes + ns_weight * ns. ValueError: a needed value can neither be
        saved nor computed again."""
        net = flow.Flow(2 + 2 * len(self.names))
        endless = 1 + sum(byte_weight * b for b in self.bytes if b) + sum(ns_weight * t for t in self.again_ns if t)
        relevant, stack = set(self.needed), list(self.needed)
        while stack:
            for j in self.inputs[stack.pop()]:
                if j not in relevant:
                    relevant.add(j)
                    stack.append(j)
        # 0: source, 1: sink. Value i: 2 + 2i on the sink's side: it runs again; 3 + 2i: the backward pass has it.
        for i in sorted(relevant):
            enter, leave = 2 + 2 * i, 3 + 2 * i
            if self.again_ns[i] is None:
                net.edge(0, enter, endless)
            elif self.again_ns[i]:
                net.edge(0, enter, ns_weight * self.again_ns[i])
            net.edge(enter, leave, endless if self.bytes[i] is None else byte_weight * self.bytes[i])
            for j in self.inputs[i]:
                net.edge(3 + 2 * j, enter, endless)
            if i in self.needed:
                net.edge(leave, 1, endless)
        if net.run() >= endless:
            stuck = [self.names[i] for i in sorted(relevant) if self.bytes[i] is None and self.again_ns[i] is None]
            raise ValueError(f"values can neither be saved nor computed again: {', '.join(stuck[:4])}")
        early = net.side()  # what the source reaches: it is computed in the forward pass only
        saved = {i for i in relevant if 2 + 2 * i in early and self.bytes[i] is not None}
        return self.finish(saved)

    # ------------------------------------------------------------ all budgets

    def extremes(self) -> Tuple[Choice, Choice]:
        """The choice with the least bytes, and that with the least time (and of these, with the least bytes)."""
        if "extremes" not in self._corners:
            bytes_ = 1 + sum(b for b in self.bytes if b)
            ns = 1 + sum(t for t in self.again_ns if t)
            self._corners["extremes"] = self.cut(ns, 1), self.cut(1, bytes_)
        return self._corners["extremes"]

    def choose(self, budget: int) -> Optional[Choice]:
        """The fastest choice found with at most `budget` bytes. None: even the least is larger."""
        small, large = self.extremes()
        if budget >= large.bytes:
            return large
        if budget < small.bytes:
            return None
        while True:
            key = small.bytes, large.bytes
            if key not in self._corners:
                weight = small.ns - large.ns, large.bytes - small.bytes
                between = self.cut(*weight)
                value = [weight[0] * c.bytes + weight[1] * c.ns for c in (between, small)]
                self._corners[key] = (between if value[0] < value[1] else None, None)
            between, gap = self._corners[key]
            if between is None:
                break
            small, large = (between, large) if between.bytes <= budget else (small, between)
        if gap is None:
            gap = _Gap(self, small, large)
            self._corners[key] = (None, gap)
        return gap.choose(budget)


    # ------------------------------------------------------------ peaks

    def fit(self, budget: int) -> Optional[Choice]:
        """The fastest choice found whose peak is at most `budget`; of equally fast ones that with the lowest peak.
        None: none fits."""
        fitting = [choice for choice in self.family() if choice.peak_bytes <= budget]
        return min(fitting, key=lambda c: (c.ns, c.peak_bytes), default=None)

    def least(self) -> Choice:
        """The choice with the lowest peak that fit() knows."""
        return min(self.family(), key=lambda c: (c.peak_bytes, c.ns))

    def family(self) -> List[Choice]:
        """All choices among which fit() takes one."""
        if self._family is None:
            small, large = self.extremes()
            found = {}
            for level in range(LEVELS + 1):
                base = self.choose(small.bytes + (large.bytes - small.bytes) * level // LEVELS)
                for parts in PARTS:
                    if parts <= max(1, len(base.again)):
                        choice = base if parts == 1 else self.finish(set(base.saved) | self._between(base, parts))
                        found.setdefault(choice.saved, choice)
            self._family = [dataclasses.replace(c, peak_bytes=self.peak(c)) for c in found.values()]
        return self._family

    def _between(self, choice, parts):
        """Values to save so that what runs again falls apart into parts that take about the same bytes."""
        chain = sorted(i for i in choice.again if not self.late[i])
        place = {value: k for k, value in enumerate(chain)}
        last = [0] * len(chain)  # the place where the chain reads a value for the last time
        for k, value in enumerate(chain):
            for j in self.inputs[value]:
                if j in place:
                    last[place[j]] = k
        for k in range(len(chain) - 1, -1, -1):  # what is read through a view
            if self._is_alias(chain[k]):
                for j in self.inputs[chain[k]]:
                    if j in place:
                        last[place[j]] = max(last[place[j]], last[k])
        crossing, impossible = [0] * (len(chain) + 1), [0] * (len(chain) + 1)
        for k, value in enumerate(chain):
            if last[k] > k:
                add = crossing if self.bytes[value] is not None else impossible if not self._is_alias(value) else None
                amount = self.bytes[value] if add is crossing else 1
                if add is not None:
                    for p in range(k + 1, last[k] + 1):
                        add[p] += amount
        sizes = [0]
        for value in chain:
            sizes.append(sizes[-1] + (self.bytes[value] or 0))
        saved = set()
        for part in range(1, parts):
            low, high = (sizes[-1] * (2 * part + side) // (2 * parts) for side in (-1, 1))
            places = [p for p in range(1, len(chain)) if low <= sizes[p] <= high and not impossible[p]]
            if places:
                p = min(places, key=lambda p: (crossing[p], abs(2 * parts * sizes[p] - 2 * part * sizes[-1])))
                saved.update(v for k, v in enumerate(chain[:p]) if last[k] >= p and self.bytes[v] is not None)
        return saved

    def _is_alias(self, i):
        return self.bytes[i] is None and self.again_ns[i] == 0

    def peak(self, choice: Choice) -> int:
        """The most bytes at a time that are saved, or were computed again and are still read: the backward pass in the
        order of its steps, each of which first computes what it lacks."""
        order, at = [], {}  # what happens; when a value that runs again does so

        def make(reads):
            stack, lacking = list(reads), set()
            while stack:
                i = stack.pop()
                if i in choice.again and i not in at and i not in lacking:
                    lacking.add(i)
                    stack += self.inputs[i]
            for i in sorted(lacking):
                at[i] = len(order)
                order.append(self.inputs[i])
        for reads in self.steps:
            make(reads)
            order.append(reads)
        last = {}
        for k, reads in enumerate(order):
            for i in reads:
                last[i] = k
        for i in sorted(at, reverse=True):  # a view keeps what it shows
            if self._is_alias(i) and i in last:
                for j in self.inputs[i]:
                    last[j] = max(last.get(j, 0), last[i])
        change = [0] * (len(order) + 1)
        for i in choice.saved:
            change[last.get(i, 0) + 1] -= self.bytes[i]
        for i, k in at.items():
            if i in last:
                change[k] += self.again_bytes[i]
                change[last[i] + 1] -= self.again_bytes[i]
        now = peak = choice.bytes
        for amount in change:
            now += amount
            peak = max(peak, now)
        return peak


class _Gap:
    """Choices between two neighbouring corners of the hull. Values whose fate differs fall apart into parts, of which
    each may have the fate of either corner, or one between them, whatever the others have."""

    def __init__(self, problem, small, large):
        self.problem, self.small = problem, small
        self.span = large.bytes - small.bytes
        states = [self._states(part, small, large) for part in self._parts(small, large)]
        self.table(states)

    def _parts(self, small, large):
        def fate(choice, i):
            return 1 if i in choice.saved else 2 if i in choice.again else 0
        touched = small.saved | small.again | large.saved | large.again
        changed = {i for i in touched if fate(small, i) != fate(large, i)}
        parent = {i: i for i in changed}

        def root(i):
            while parent[i] != i:
                parent[i] = parent[parent[i]]
                i = parent[i]
            return i
        for i in changed:
            for j in self.problem.inputs[i]:
                if j in changed:
                    parent[root(i)] = root(j)
        parts = {}
        for i in sorted(changed):
            parts.setdefault(root(i), []).append(i)
        return list(parts.values())

    def _states(self, part, small, large):
        """[(bytes beyond small's, ns below small's, saved values of the part)], from small's fate to large's. Between
        them the value is saved next which saves most time a byte."""
        problem, inside = self.problem, set(part)
        readers = {i: [] for i in part}
        for i in part:
            for j in problem.inputs[i]:
                if j in inside:
                    readers[j].append(i)
        # Needed from outside of the part: in both corners, by a value that runs again in both of them, or the backward.
        outside = {i for i in part if i in problem.needed}
        for i in (small.again & large.again) - inside:
            outside.update(j for j in problem.inputs[i] if j in inside)

        def figures(saved):
            available, again, stack = set(outside), [], list(outside)
            while stack:
                i = stack.pop()
                if i in saved:
                    continue
                if problem.again_ns[i] is None:
                    return None
                again.append(i)
                for j in problem.inputs[i]:
                    if j in inside and j not in available:
                        available.add(j)
                        stack.append(j)
            kept = available.difference(again)
            return sum(problem.bytes[i] for i in kept), sum(problem.again_ns[i] for i in again), frozenset(kept)
        first, last = figures(small.saved & inside), figures(large.saved & inside)
        states, now = [first], first
        while len(states) < STATES_MOST:
            best = None
            for i in part:
                if i in now[2] or problem.bytes[i] is None:
                    continue
                found = figures(now[2] | {i})
                if found is None or found[1] >= now[1] or found[0] >= last[0]:
                    continue
                more = found[0] - now[0]
                worth = float("inf") if more <= 0 else (now[1] - found[1]) / more
                if best is None or worth > best[0]:
                    best = worth, found
            if best is None:
                break
            now = best[1]
            states.append(now)
        states.append(last)
        return [(b - first[0], first[1] - ns, kept | frozenset(()), inside) for b, ns, kept in states]

    def table(self, parts):
        """best[c]: (most ns saved with c units of the span, states chosen), by dynamic programming; bytes are rounded
        up."""
        grid = min(GRID, max(self.span, 1))
        self.unit = max(self.span, 1) / grid
        best: List[Tuple[int, Tuple]] = [(0, ())] * (grid + 1)
        for states in parts:
            options = {}
            for state in states:
                units = max(0, -int(-state[0] // self.unit))
                if units <= grid and (units not in options or options[units][0] < state[1]):
                    options[units] = (state[1], state)
            new = [None] * (grid + 1)
            for units, (gain, state) in options.items():
                for c in range(units, grid + 1):
                    before = best[c - units]
                    if new[c] is None or before[0] + gain > new[c][0]:
                        new[c] = (before[0] + gain, (before[1], state))
            best = new
        self.best = best

    def choose(self, budget):
        units = min(int((budget - self.small.bytes) // self.unit), len(self.best) - 1)
        saved, chain = set(self.small.saved), self.best[units][1]
        while chain:
            chain, state = chain
            saved -= state[3]
            saved |= state[2]
        return self.problem.finish(saved)
