"""Hypothetical changes of a session, for searches that try thousands of them.

Only statements and suppositions change a session. A supposition is never committed. Its changes can be undone in any
order, and the caller must undo all of them. The session is then as before, to the last bit: amounts are whole numbers.
"""

import numpy as np

from maniple.model.resources import FloatArray, IntArray
from maniple.scheduler.framework.pod_columns import PodColumns
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.statement import Cleared, shift_cleared


class Supposition:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._occupied: dict[int, FloatArray] = {}  # node -> amount
        self._charged: dict[int, FloatArray] = {}  # queue -> amount

    def leave(self, pods: PodColumns, chosen: IntArray, sign: int, *, as_neighbours: bool) -> None:
        """The chosen pods will leave (1), or stay after all (-1). Changes what may be promised and charged.

        `as_neighbours`: also for the rules of pods about each other.
        """
        session = self._session
        nodes, requests = pods.nodes[chosen], pods.requests[:, chosen] * sign
        spare = pods.spare()
        spare = None if spare is None else spare[chosen]
        for row in pods.rows:
            np.add.at(session.future[row], nodes, requests[row])
        session.reserved.give_back(nodes, requests, spare)
        held = pods.device_parts
        parts, owners = held.of(chosen)
        for row in held.resources:
            is_of_row = held.rows[parts] == row
            of_row, owner = parts[is_of_row], owners[is_of_row]
            is_spare = None if spare is None else spare[owner]
            session.gpus.leave_all(row, nodes[owner], held.devices[of_row], held.millis[of_row] * sign, is_spare)
        session.capacity.changed.extend(nodes.tolist())
        if as_neighbours and pods.has_neighbours:
            for number in chosen.tolist():
                pod = pods.pods[number]
                session.neighbours.leave(pod.pod_affinity, pod.exclusives, pod.node, sign)
        if pods.is_limited:
            queues = pods.queues[chosen]
            for queue in np.unique(queues).tolist():
                amount = requests[:, queues == queue].sum(axis=1)
                session.queue_allocated[session.queue_paths[queue]] -= amount

    def end(self, cleared: Cleared, sign: int) -> None:
        """The pods will have ended (1), or not after all (-1). Not for rules of pods about each other.

        NodeCapacity is not told: only those may count who count anew what they changed, until all of it is undone.
        """
        shift_cleared(self._session, cleared, sign)

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
        if queue in self._charged:
            self._charged[queue] += amount
        else:
            self._charged[queue] = amount.copy()

    def release(self) -> None:
        """Undoes all of occupy and charge."""
        for node, amount in list(self._occupied.items()):
            self.occupy(node, -amount)
        for queue, amount in list(self._charged.items()):
            self.charge(queue, -amount)
