"""Which nodes have changed since somebody looked last.

Many look: every array by shape that is kept over the nodes. A search for victims changes the same nodes again and
again, so what has happened since is a set of nodes, which costs no more than a look at all of them.
"""

from collections.abc import Iterable

import numpy as np

from maniple.model.resources import IntArray

_FEW = 64  # changes that are looked at one by one


class ChangedNodes:
    def __init__(self, count: int) -> None:
        """`count` nodes."""
        self._log: list[int] = []
        self._last: IntArray = np.full(count, -1, dtype=np.intp)  # [N] the position of the last change in the log
        self._noted = 0  # how much of the log is in it
        self._few = max(_FEW, count // 64)

    def __len__(self) -> int:
        """The number of changes so far."""
        return len(self._log)

    def append(self, node: int) -> None:
        self._log.append(node)

    def extend(self, nodes: Iterable[int]) -> None:
        self._log.extend(nodes)

    def since(self, seen: int) -> list[int]:
        """The nodes that have changed since there were `seen` changes, each once, in no certain order."""
        if len(self._log) - seen <= self._few:
            return list(set(self._log[seen:]))
        if self._noted < len(self._log):
            new = np.array(self._log[self._noted :], dtype=np.intp)
            self._last[new] = np.arange(self._noted, len(self._log))
            self._noted = len(self._log)
        changed: list[int] = np.flatnonzero(self._last >= seen).tolist()
        return changed
