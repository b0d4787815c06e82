"""A session as if something had happened, for searches that try thousands of changes.

Together with statements this is all that changes a session. A supposition is never committed. Every change has its
opposite, in any order, and whoever supposes something takes it back: then everything is as it was, to the last bit,
because amounts are whole numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from maniple.model.resources import BoolArray, FloatArray, IntArray
from maniple.scheduler.framework.session import Session


class LeavingDevices(NamedTuple):
    """Parts of devices of one resource, one for each entry."""

    row: int
    nodes: IntArray
    devices: IntArray
    millis: IntArray
    spare: BoolArray | None


@dataclass(frozen=True, slots=True, eq=False)
class LeavingPods:
    """Pods as columns; a node can stand there several times."""

    nodes: IntArray
    requests: FloatArray  # [R, pods]
    rows: Sequence[int]  # the resources that any of them holds
    devices: Sequence[LeavingDevices]
    spare: BoolArray | None  # those that no reservation has counted on; None: all
    queues: IntArray | None  # the queue of each; None: no queue has a limit


class Supposition:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._occupied: dict[int, FloatArray] = {}  # node -> amount
        self._charged: dict[int, FloatArray] = {}  # queue -> amount

    def leave(self, pods: LeavingPods, sign: int) -> None:
        """The pods will have left (1), or will not after all (-1): placement sees room that can be promised, and what
        is left of limits.
        """
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
        """So much of the node is in use; given back if it is negative."""
        session = self._session
        session.free[:, node] -= amount
        session.future[:, node] -= amount
        session.capacity.changed.append(node)
        self._occupied[node] = self._occupied.get(node, 0.0) + amount

    def charge(self, queue: int, amount: FloatArray) -> None:
        """The queue and those above it hold so much more."""
        for charged in self._session.queue_paths[queue]:
            self._session.queue_allocated[charged] += amount
        self._charged[queue] = self._charged.get(queue, 0.0) + amount

    def release(self) -> None:
        """All that is occupied and charged is given back."""
        for node, amount in list(self._occupied.items()):
            self.occupy(node, -amount)
        for queue, amount in list(self._charged.items()):
            self.charge(queue, -amount)
