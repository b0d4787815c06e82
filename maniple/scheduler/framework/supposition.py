"""Hypothetical changes of a session, for searches that try thousands of them.

Only statements and suppositions change a session. A supposition is never committed. Its changes can be undone in any
order, and the caller must undo all of them. The session is then as before, to the last bit: amounts are whole numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.session import Session


class LeavingDevices(NamedTuple):
    """Parts of devices of one resource, one per entry."""

    row: int
    nodes: IntArray
    devices: IntArray
    millis: IntArray
    spare: BoolArray | None


@dataclass(frozen=True, slots=True, eq=False)
class LeavingPods:
    """Pods as columns; a node can occur several times."""

    nodes: IntArray
    requests: FloatArray  # [R, pods]
    rows: Sequence[int]  # resources that any of them holds
    devices: Sequence[LeavingDevices]
    spare: BoolArray | None  # pods that no reservation has counted on; None: all
    queues: IntArray | None  # the queue of each; None: no queue has a limit


class Supposition:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._occupied: dict[int, FloatArray] = {}  # node -> amount
        self._charged: dict[int, FloatArray] = {}  # queue -> amount

    def leave(self, pods: LeavingPods, sign: int) -> None:
        """The pods will leave (1), or will stay after all (-1). Changes what can be promised and what limits leave."""
        session, nodes, requests = self._session, pods.nodes, pods.requests * sign
        for row in pods.rows:
            np.add.at(session.future[row], nodes, requests[row])
        session.reserved.give_back(nodes, requests, pods.spare)
        for part in pods.devices:
            session.gpus.leave_all(part.row, part.nodes, part.devices, part.millis * sign, part.spare)
        session.capacity.changed.extend(nodes.tolist())
        if pods.queues is not None:
            for queue in np.unique(pods.queues).tolist():
                amount = requests[:, pods.queues == queue].sum(axis=1)
                session.queue_allocated[session.queue_paths[queue]] -= amount

    def occupy(self, node: int, amount: FloatArray) -> None:
        """Takes an amount of the node, or gives it back if negative."""
        session = self._session
        session.free[:, node] -= amount
        session.future[:, node] -= amount
        session.capacity.changed.append(node)
        self._occupied[node] = self._occupied.get(node, 0.0) + amount

    def charge(self, queue: int, amount: FloatArray) -> None:
        """Charges the amount to the queue and its ancestors."""
        for charged in self._session.queue_paths[queue]:
            self._session.queue_allocated[charged] += amount
        self._charged[queue] = self._charged.get(queue, 0.0) + amount

    def release(self) -> None:
        """Undoes all of occupy and charge."""
        for node, amount in list(self._occupied.items()):
            self.occupy(node, -amount)
        for queue, amount in list(self._charged.items()):
            self.charge(queue, -amount)
