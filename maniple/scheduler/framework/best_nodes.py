"""The best of ten thousand nodes for a pod, without a look at each of them.

Nodes are ranked by score, ties by index, those without room not at all. They lie in blocks, and the best rank of each
block is known. So the best node is found in one look at the blocks and one into the best of them, and a node that
changes only costs its block. With N nodes both are O(sqrt(N)), done by numpy on a few dozen numbers.
"""

import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop

import numpy as np

from maniple.model.resources import FloatArray, IntArray

_NO_ROOM = -math.inf


class BestNodes:
    def __init__(self, fits: FloatArray, scores: FloatArray) -> None:
        """[N] how many pods fit on each node, and the score of each for the next of them."""
        count = len(fits)
        self._width = max(16, math.isqrt(count))
        self._fits = fits.copy()
        ranks = np.full((-(-count // self._width), self._width), _NO_ROOM)
        self._blocks = ranks
        self._ranks = ranks.reshape(-1)  # the same memory
        self._ranks[:count] = np.where(fits > 0, scores, _NO_ROOM)
        self._tops = ranks.max(axis=1, initial=_NO_ROOM)
        self.total = float(fits.sum())  # whole numbers: exact in any order

    def update(self, node: int, fits: float, score: float) -> None:
        self.total += fits - float(self._fits[node])
        self._fits[node] = fits
        rank = score if fits > 0 else _NO_ROOM
        before = self._ranks[node]
        if rank == before:
            return
        self._ranks[node] = rank
        block = node // self._width
        top = self._tops[block]
        if rank >= top:
            self._tops[block] = rank
        elif before == top:
            self._tops[block] = self._blocks[block].max()

    def update_many(self, nodes: IntArray, fits: FloatArray, scores: FloatArray) -> None:
        """`nodes` are distinct."""
        self.total += float((fits - self._fits[nodes]).sum())
        self._fits[nodes] = fits
        self._ranks[nodes] = np.where(fits > 0, scores, _NO_ROOM)
        blocks = np.unique(nodes // self._width)
        self._tops[blocks] = self._blocks[blocks].max(axis=1)

    def first(self) -> int | None:
        """The best node; None if no node has room."""
        if not self.total:
            return None
        block = int(self._tops.argmax())
        return block * self._width + int(self._blocks[block].argmax())

    def in_order(self) -> Iterator[int]:
        """Yields the nodes with room, best first. Nothing may change meanwhile."""
        ranked: list[tuple[float, int]] = []
        tops = self._tops.tolist()
        for block in np.argsort(-self._tops, kind="stable").tolist():
            if tops[block] == _NO_ROOM:
                break
            start = block * self._width
            while ranked and ranked[0] < (-tops[block], start):
                yield heappop(ranked)[1]
            values = enumerate(self._blocks[block].tolist(), start)
            ranked += [(-value, node) for node, value in values if value > _NO_ROOM]
            heapify(ranked)
        while ranked:
            yield heappop(ranked)[1]

    def fits_on(self, nodes: Sequence[int]) -> list[float]:
        return [float(self._fits[node]) for node in nodes]

    def scores_of(self, nodes: Sequence[int]) -> list[float]:
        return [float(self._ranks[node]) for node in nodes]
