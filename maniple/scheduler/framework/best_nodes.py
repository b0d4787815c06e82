"""The best of ten thousand nodes for a pod, without a look at each of them.

Nodes are ranked by score, ties by index, those without room not at all. They lie in blocks, and the best rank of each
block is known. So the best node is found in one look at the blocks and one into the best of them, and a node that
changes only costs its block. With N nodes both are O(sqrt(N)), done by numpy on a few dozen numbers.

Most shapes that are asked about have no room. So nodes are ranked only when one is chosen.
"""

import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop

import numpy as np

from maniple.model.resources import FloatArray, IntArray

_NO_ROOM = -math.inf
_ONE_BY_ONE = 24  # changes; more are made together


class BestNodes:
    def __init__(self, fits: FloatArray) -> None:
        """`fits` [N]: how many pods each node has room for."""
        self._fits = fits.copy()
        self.total = float(fits.sum())  # whole numbers: exact in any order
        self._width = max(16, math.isqrt(len(fits)))
        self._ranks: FloatArray | None = None  # [blocks * width]
        self._blocks: FloatArray = np.empty((0, 0))  # the same memory
        self._tops: FloatArray = np.empty(0)  # the best of each block

    @property
    def is_ranked(self) -> bool:
        return self._ranks is not None

    def with_room(self) -> IntArray:
        return np.flatnonzero(self._fits)

    def rank(self, nodes: IntArray, scores: FloatArray) -> None:
        """Ranks the nodes with room."""
        count = -(-len(self._fits) // self._width)
        self._ranks = np.full(count * self._width, _NO_ROOM)
        self._ranks[nodes] = scores
        self._blocks = self._ranks.reshape(count, self._width)
        self._tops = self._blocks.max(axis=1, initial=_NO_ROOM)

    def change_room(self, nodes: Sequence[int], fits: Sequence[float]) -> None:
        """`nodes` are distinct. If nodes are ranked, `change_ranks` must follow."""
        if len(nodes) <= _ONE_BY_ONE:
            for node, room in zip(nodes, fits, strict=True):
                self.total += room - float(self._fits[node])
                self._fits[node] = room
        else:
            self.total += float((np.array(fits) - self._fits[nodes]).sum())
            self._fits[nodes] = fits

    def change_ranks(self, nodes: Sequence[int], scores: Sequence[float]) -> None:
        """`nodes` are distinct; the score of a node without room is -inf."""
        ranks, tops = self._ranks, self._tops
        assert ranks is not None
        if len(nodes) > _ONE_BY_ONE:
            ranks[nodes] = scores
            blocks = np.unique(np.array(nodes) // self._width)
            tops[blocks] = self._blocks[blocks].max(axis=1)
            return
        for node, rank in zip(nodes, scores, strict=True):
            before, ranks[node] = ranks[node], rank
            block = node // self._width
            top = tops[block]
            if rank >= top:
                tops[block] = rank
            elif before == top:
                tops[block] = self._blocks[block].max()

    @property
    def top(self) -> float:
        """The score of the best node; -inf if no node has room."""
        return float(self._tops.max(initial=_NO_ROOM))

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
        """Of ranked nodes."""
        ranks = self._ranks
        assert ranks is not None
        return [float(ranks[node]) for node in nodes]
