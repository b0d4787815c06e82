"""Supposes units gone, thousands at a time, while a trial asks whether a gang fits.

Placement sees the room as if the units were evicted. Rules on victims read other state, so they must never be asked
inside the scope. On exit the session is as it was.
"""

from typing import Self

import numpy as np

from maniple.model.resources import BoolArray, IntArray
from maniple.scheduler.eviction.unit_table import UnitTable
from maniple.scheduler.framework.session import Session
from maniple.scheduler.framework.supposition import LeavingDevices, LeavingPods, Supposition


class SupposedGone:
    def __init__(self, session: Session, table: UnitTable) -> None:
        self._table = table
        self._spare = table.spare()
        self._supposition = Supposition(session)
        self.units: BoolArray = np.zeros(len(table), dtype=bool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove(np.flatnonzero(self.units))

    def add(self, units: IntArray) -> None:
        self.units[units] = True
        if len(units):
            self._supposition.leave(self._pods_of(units), 1)

    def remove(self, units: IntArray) -> None:
        self.units[units] = False
        if len(units):
            self._supposition.leave(self._pods_of(units), -1)

    def _pods_of(self, units: IntArray) -> LeavingPods:
        table = self._table
        pods = table.pods_of(units)
        nodes = table.nodes[pods]
        spare = None if self._spare is None else self._spare[pods]
        parts, owners = table.device_parts.of(pods)
        devices = []
        for row in table.device_parts.resources:
            is_of_row = table.device_parts.rows[parts] == row
            of_row, owner = parts[is_of_row], owners[is_of_row]
            is_spare = None if spare is None else spare[owner]
            held, millis = table.device_parts.devices[of_row], table.device_parts.millis[of_row]
            devices.append(LeavingDevices(row, nodes[owner], held, millis, is_spare))
        queues = table.queues[pods] if table.is_limited else None
        return LeavingPods(nodes, table.requests[:, pods], table.rows, devices, spare, queues)
