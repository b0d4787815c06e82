"""Numbers for the states of nodes: of nodes with the same number, what is there and what is left of it are the same.

So what is learnt of one of them about a shape, how many of its pods fit and how good the node is, holds for the others.
The nodes of a cluster are of few kinds, and pods of few shapes leave them in few states. What may differ between nodes
of one number is what is not an amount, such as their labels and taints.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maniple.scheduler.framework.session import Session

_MOST = 1 << 16  # numbers that are remembered; a forgotten state gets a new one


class NodeStates:
    def __init__(self, session: "Session", changed: Sequence[int]) -> None:
        """`changed`: the nodes in the order of their changes; it grows."""
        self._session = session
        self._changed = changed
        self._seen = len(changed)
        self._of_node = [-1] * len(session.snapshot.nodes)  # -1: unknown, or changed since
        self._kinds: dict[int, tuple[object, ...]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = 0

    def of(self, nodes: Sequence[int]) -> list[int]:
        of_node = self._of_node
        if self._seen < len(self._changed):
            for node in self._changed[self._seen :]:
                of_node[node] = -1
            self._seen = len(self._changed)
        for node in nodes:
            if of_node[node] < 0:
                of_node[node] = self._number(self._state(node))
        return [of_node[node] for node in nodes]

    def _number(self, state: tuple[object, ...]) -> int:
        number = self._numbers.get(state)
        if number is None:
            if len(self._numbers) >= _MOST:
                self._numbers.clear()
            number = self._numbers[state] = self._next
            self._next += 1
        return number

    def _state(self, node: int) -> tuple[object, ...]:
        session, gpus = self._session, self._session.gpus
        state: list[object] = [self._kind(node), session.free[:, node].tobytes(), session.future[:, node].tobytes()]
        for row, free in gpus.free.items():
            state += (free[node].tobytes(), gpus.future[row][node].tobytes())
        if session.promised_room:
            state.append(session.promised_room.amounts[:, node].tobytes())
        if session.reserved.spare is not None and session.reserved.holder(node) is not None:
            state.append("reserved")
            state.append(session.reserved.spare[:, node].tobytes())
            state += (spare[node].tobytes() for spare in gpus.spare.values())
        return tuple(state)

    def _kind(self, node: int) -> tuple[object, ...]:
        """The amounts that the node has, and its GPUs."""
        kind = self._kinds.get(node)
        if kind is None:
            allocatable = self._session.snapshot.nodes.allocatable[:, node].tobytes()
            kind = (allocatable, *(table.kind[node] for table in self._session.gpus.tables.values()))
            self._kinds[node] = kind
        return kind
