"""Numbers for the states of nodes: of nodes with the same number, what is there and what is left of it are the same.

So what is learnt of one of them about a shape, how many of its pods fit and how good the node is, holds for the others.
The nodes of a cluster are of few kinds, and pods of few shapes leave them in few states. What may differ between nodes
of one number is what is not an amount, such as their labels and taints.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maniple.model.resources import IntArray

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

_MOST = 1 << 16  # numbers that are remembered; a forgotten state gets a new one
_FEW = 12  # nodes that are looked at one by one


class NodeStates:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._changed = session.capacity.changed
        self._seen = len(self._changed)
        self._of_node = [-1] * len(session.snapshot.nodes)  # -1: unknown, or changed since
        self._kinds: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        self._next = 0

    def of(self, nodes: Sequence[int]) -> list[int]:
        of_node = self._of_node
        if self._seen < len(self._changed):
            for node in self._changed.since(self._seen):
                of_node[node] = -1
            self._seen = len(self._changed)
        unknown = [node for node in nodes if of_node[node] < 0]
        if unknown:
            states = map(self._state, unknown) if len(unknown) <= _FEW else self._states(unknown)
            for node, state in zip(unknown, states, strict=True):
                of_node[node] = self._number(state)
        return [of_node[node] for node in nodes]

    def _number(self, state: bytes) -> int:
        number = self._numbers.get(state)
        if number is None:
            if len(self._numbers) >= _MOST:
                self._numbers.clear()
            number = self._numbers[state] = self._next
            self._next += 1
        return number

    def _state(self, node: int) -> bytes:
        session, gpus = self._session, self._session.gpus
        parts = [self._kind(node), session.free[:, node].tobytes(), session.future[:, node].tobytes()]
        for row, free in gpus.free.items():
            parts += (free[node].tobytes(), gpus.future[row][node].tobytes())
        return b"".join(parts) + self._promised_and_reserved(node)

    def _states(self, nodes: Sequence[int]) -> list[bytes]:
        """The same for many nodes."""
        session, gpus = self._session, self._session.gpus
        arrays: list[NDArray[Any]] = [session.free[:, nodes].T, session.future[:, nodes].T]
        for row, free in gpus.free.items():
            arrays += [free[nodes], gpus.future[row][nodes]]
        table = np.concatenate([np.ascontiguousarray(array).view(np.uint8) for array in arrays], axis=1)
        width, data = table.shape[1], table.tobytes()
        return [
            self._kind(node) + data[at * width : (at + 1) * width] + self._promised_and_reserved(node)
            for at, node in enumerate(nodes)
        ]

    def _promised_and_reserved(self, node: int) -> bytes:
        session = self._session
        promised = session.promised_room.amounts[:, node].tobytes() if session.promised_room else b""
        if session.reserved.spare is None or session.reserved.holder(node) is None:
            return promised
        spare = [session.reserved.spare[:, node], *(spare[node] for spare in session.gpus.spare.values())]
        return b"".join([promised, b"reserved", *(part.tobytes() for part in spare)])

    def _kind(self, node: int) -> bytes:
        """The amounts that the node has, and its GPUs."""
        kind = self._kinds.get(node)
        if kind is None:
            allocatable = self._session.snapshot.nodes.allocatable[:, node].tobytes()
            gpus: IntArray = np.array([table.kind[node] for table in self._session.gpus.tables.values()], dtype=np.intp)
            kind = self._kinds[node] = allocatable + gpus.tobytes()
        return kind
