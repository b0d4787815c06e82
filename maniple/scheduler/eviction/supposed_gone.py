"""Supposing that units are gone: a statement for trying thousands of them at once.

Placement sees what it would see if they were evicted: room that can be promised, and what is left of limits. Rules on
victims look at other things and must be asked without it. When it is left, everything is as it was, to the last bit:
amounts are whole numbers.
"""

from types import TracebackType
from typing import Self

import numpy as np

from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.eviction.unit_table import Table
from maniple.scheduler.framework.session import Session


class Absence:
    def __init__(self, session: Session, table: Table) -> None:
        self._session = session
        self._table = table
        self._spare = table.spare()
        self.units: BoolArray = np.zeros(len(table), dtype=bool)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove(np.flatnonzero(self.units))

    def add(self, units: IntArray) -> None:
        self.units[units] = True
        self._shift(units, 1)

    def remove(self, units: IntArray) -> None:
        self.units[units] = False
        self._shift(units, -1)

    def _shift(self, units: IntArray, sign: int) -> None:
        if not len(units):
            return
        session, table = self._session, self._table
        pods = table.pods_of(units)
        nodes, requests = table.nodes[pods], table.requests[:, pods] * sign
        for row in table.rows:
            np.add.at(session.future[row], nodes, requests[row])
        spare = None if self._spare is None else self._spare[pods]
        session.reserved.give_back(nodes, requests, spare)
        grants, owners = table.grants.of(pods)
        for row in table.grants.resources:
            mine = table.grants.rows[grants] == row
            at, owner = grants[mine], owners[mine]
            millis = table.grants.millis[at] * sign
            is_spare = None if spare is None else spare[owner]
            session.gpus.leave_all(row, nodes[owner], table.grants.devices[at], millis, is_spare)
        session.rooms.changed.extend(nodes.tolist())
        if table.is_limited:
            queues = table.queues[pods]
            for queue in np.unique(queues).tolist():
                session.queue_allocated[session.queue_paths[queue]] -= requests[:, queues == queue].sum(axis=1)
