# SPDX-License-Identifier: MIT
"""A network of flows and its least cut, with whole numbers."""

from collections import deque
from typing import List, Set


class Flow:
    """Nodes 0 (the source), 1 (the sink), ... and edges; the greatest flow by Dinic's algorithm (1970)."""

    def __init__(self, nodes: int):
        self.at = [[] for _ in range(nodes)]  # numbers of edges that leave a node; edge e's reverse is e ^ 1
        self.to, self.room = [], []

    def edge(self, a: int, b: int, capacity: int) -> None:
        """Adds an edge from a to b."""
        self.at[a].append(len(self.to))
        self.at[b].append(len(self.to) + 1)
        self.to += b, a
        self.room += capacity, 0

    def levels(self) -> List[int]:
        """Each node's distance from the source along edges with room; -1: it has none."""
        level, queue = [-1] * len(self.at), deque((0,))
        level[0] = 0
        while queue:
            a = queue.popleft()
            for e in self.at[a]:
                b = self.to[e]
                if self.room[e] and level[b] < 0:
                    level[b] = level[a] + 1
                    queue.append(b)
        return level

    def run(self) -> int:
        """Fills the network. Returns the flow, which is the capacity of the least cut."""
        total = 0
        while True:
            level = self.levels()
            if level[1] < 0:
                return total
            total += self.block(level)

    def block(self, level):
        """Fills all shortest paths."""
        to, room, at, total = self.to, self.room, self.at, 0
        place, path, a = [0] * len(at), [], 0
        while True:
            if a == 1:
                amount = min(room[e] for e in path)
                total += amount
                cut = 0
                for k, e in enumerate(path):
                    room[e] -= amount
                    room[e ^ 1] += amount
                for k, e in enumerate(path):
                    if not room[e]:
                        cut = k
                        break
                a = to[path[cut] ^ 1]
                del path[cut:]
                continue
            edges = at[a]
            while place[a] < len(edges):
                e = edges[place[a]]
                if room[e] and level[to[e]] == level[a] + 1:
                    break
                place[a] += 1
            if place[a] < len(edges):
                path.append(e)
                a = to[e]
            elif path:
                e = path.pop()
                a = to[e ^ 1]
                place[a] += 1
            else:
                return total

    def side(self) -> Set[int]:
        """Nodes that the source still reaches."""
        return {node for node, level in enumerate(self.levels()) if level >= 0}
