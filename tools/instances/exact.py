# SPDX-License-Identifier: MIT
"""The least time of a tiny graph, by trying every schedule.

A state is the next step that has not run, and the tensors that are there. From it, the next step runs, a forward step
runs again, or a tensor is dropped. A step needs its inputs, and room for all that is there, its outputs and its
workspace. Copies to host memory, masks and in-place outputs are no part of it, so it is for instances without pinned
memory, readers of signs, pairs and weights.

No plan takes less: at each moment it holds at least the bytes of the tensors that it will read later, and each of its
steps takes its time on the one stream of the computation. Where a plan takes as long, both are the optimum.
"""

from __future__ import annotations

import heapq
from typing import Any

ALIGN = 256


def _bytes(tensor: dict[str, Any]) -> int:
    size = 4
    for dim in tensor["dims"]:
        size *= dim
    return -(-size // ALIGN) * ALIGN


class Problem:
    """A graph and its facts, as bits: bit i stands for the i-th managed tensor."""

    def __init__(self, graph: dict[str, Any], facts: dict[str, Any]) -> None:
        managed = [t for t in graph["tensors"] if t["ownership"] == "managed"]
        if len(managed) > 16:
            raise ValueError(f"{graph['name']}: {len(managed)} managed tensors, at most 16 can be searched")
        bit = {t["name"]: 1 << i for i, t in enumerate(managed)}
        self.size = {1 << i: _bytes(t) for i, t in enumerate(managed)}
        self.base = sum(_bytes(t) for t in graph["tensors"] if t["ownership"] == "persistent")
        self.gradients = sum(bit[t["name"]] for t in managed if t["kind"] == "gradient map")
        self.steps: list[tuple[int, int, int, bool, int]] = []  # needs, makes, workspace, may run again, ns
        for step, known in zip(graph["steps"], facts["steps"]):
            needs = makes = 0
            if step.get("pairs"):
                raise ValueError(f"{graph['name']}: pairs are not searched")
            for use in step["uses"]:
                if use.get("form", "value") != "value":
                    raise ValueError(f"{graph['name']}: readers of signs are not searched")
                if use["access"] == "write":
                    makes |= bit.get(use["tensor"], 0)
                else:
                    needs |= bit.get(use["tensor"], 0)
            again = step["phase"] == "forward" and graph["layers"][step["layer"]]["repeatable"]
            self.steps.append((needs, makes, step["workspace_bytes"], again, known["variants"][0]["ns"]))
        self.later = [0] * (len(self.steps) + 1)  # tensors that a step from here on needs
        for i in range(len(self.steps) - 1, -1, -1):
            self.later[i] = self.later[i + 1] | self.steps[i][0]

    def held(self, there: int) -> int:
        """Bytes of the tensors of the bits."""
        total = 0
        while there:
            low = there & -there
            total += self.size[low]
            there ^= low
        return total

    def least_ns(self, budget_bytes: int) -> int | None:
        """The least time within so many bytes; None: no schedule fits. Dijkstra's algorithm."""
        room = budget_bytes - self.base
        seen: dict[tuple[int, int], int] = {(0, 0): 0}
        queue = [(0, 0, 0)]
        while queue:
            ns, step, there = heapq.heappop(queue)
            if step == len(self.steps):
                return ns
            if seen[step, there] < ns:
                continue
            for ns_after, step_after, there_after in self._moves(step, there, room):
                key = (step_after, there_after)
                if ns + ns_after < seen.get(key, 1 << 62):
                    seen[key] = ns + ns_after
                    heapq.heappush(queue, (ns + ns_after, *key))
        return None

    def _moves(self, step: int, there: int, room: int) -> list[tuple[int, int, int]]:
        moves = []
        for i in range(step + 1):
            needs, makes, workspace, again, ns = self.steps[i]
            if i < step and (not again or makes & ~there == 0):
                continue
            if needs & ~there or self.held(there | makes) + workspace > room:
                continue
            after = there | makes
            if i == step:  # a gradient that no later step needs is dropped, whatever else is done
                after &= ~self.gradients | self.later[step + 1]
            moves.append((ns, step + (i == step), after))
        left = there
        while left:
            low = left & -left
            moves.append((0, step, there ^ low))
            left ^= low
        return moves
